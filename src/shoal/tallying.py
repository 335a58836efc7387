"""Synthetic vectors to a Tally: counts, and nothing that points at one report.

A tally counts reports by bit (M of SDP 4), by number of set bits (T of SDP 3.3) and, where that is
small or asked for, by vector (S of SDP 1.3) and by the joint value of chosen bits. Tallies of one
plan add; the order of the reports and how they were cut into chunks leave no trace in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._check import check_integer
from shoal._files import read_json, write_json
from shoal.counting import BitCounter, count_by_set_bits
from shoal.errors import TallyError
from shoal.plans import Plan
from shoal.vectors import Cohorts, Original, Rows, Synthetic, check_rows, row_bytes, unpack

__all__ = ["CohortCounts", "Tally", "Tallying", "tally"]

SMALL_VECTOR = 12
"""Vectors of up to this many bits are always counted one by one: 4096 counts at most."""

MOST_JOINT_BITS = 16
"""The most bits whose joint values are counted: 65,536 counts."""

Counts = NDArray[np.int64]
Bits = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class CohortCounts:
    """The reports of one cohort: how many, and how many of them show a one at each position."""

    reports: int
    by_bit: Counts

    def __add__(self, other: CohortCounts) -> CohortCounts:
        return CohortCounts(self.reports + other.reports, self.by_bit + other.by_bit)


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of the synthetic vectors of one plan.

    `by_vector` maps a packed row, in hexadecimal, to its count; None if vectors were not counted.
    `joint` maps bit positions to the counts of their joint values; the first position is the least
    significant bit of the value. `cohorts` counts each cohort by itself, if the plan has cohorts.
    """

    plan_id: str
    reports: int
    by_bit: Counts
    by_set_bits: Counts
    by_vector: Mapping[str, int] | None = None
    joint: Mapping[Bits, Counts] = field(default_factory=dict)
    simulated: bool = False
    cohorts: tuple[CohortCounts, ...] | None = None

    @property
    def bits(self) -> int:
        """How many bits a report has."""
        return len(self.by_bit)

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if (self.plan_id, self.bits) != (other.plan_id, other.bits):
            raise TallyError(
                f"tallies of two plans do not add: {self.plan_id[:12]} and {other.plan_id[:12]}."
            )
        if (self.by_vector is None) != (other.by_vector is None) or set(self.joint) != set(
            other.joint
        ):
            raise TallyError("tallies add when they count the same vectors and joint values.")
        if self.simulated != other.simulated and self.reports and other.reports:
            raise TallyError("simulated and real reports do not add.")
        return Tally(
            self.plan_id,
            self.reports + other.reports,
            self.by_bit + other.by_bit,
            self.by_set_bits + other.by_set_bits,
            _added(self.by_vector, other.by_vector),
            {bits: counts + other.joint[bits] for bits, counts in self.joint.items()},
            self.simulated if self.reports else other.simulated,
            _added_cohorts(self.cohorts, other.cohorts),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def joint_counts(self, bits: Sequence[int]) -> Counts:
        """Return the counts of the joint values of chosen bits, the first one least significant.

        They are summed from the smallest group that holds the bits, or from whole vectors.
        """
        chosen = checked_bits(bits, self.bits)
        holding = [counted for counted in self.joint if set(chosen) <= set(counted)]
        if holding:
            group = min(holding, key=len)
            return _marginal(self.joint[group], [group.index(bit) for bit in chosen])
        if self.by_vector is None:
            raise TallyError(
                f"the tally does not count bits {list(chosen)} jointly; tally with joint= or"
                " declare them in the plan."
            )
        rows = np.frombuffer(bytes.fromhex("".join(self.by_vector)), np.uint8)
        values = _joint_values(rows.reshape(-1, row_bytes(self.bits)), chosen)
        counts = np.zeros(1 << len(chosen), np.int64)
        np.add.at(counts, values, np.fromiter(self.by_vector.values(), np.int64))
        return counts

    def to_json(self) -> dict[str, Any]:
        """Return the tally as plain JSON values, the same for the same reports."""
        vectors = self.by_vector
        return {
            "plan": self.plan_id,
            "reports": self.reports,
            "simulated": self.simulated,
            "by_bit": self.by_bit.tolist(),
            "by_set_bits": self.by_set_bits.tolist(),
            "by_vector": None if vectors is None else dict(sorted(vectors.items())),
            "joint": [
                {"bits": list(bits), "counts": counts.tolist()}
                for bits, counts in sorted(self.joint.items())
            ],
            "cohorts": None
            if self.cohorts is None
            else [{"reports": c.reports, "by_bit": c.by_bit.tolist()} for c in self.cohorts],
        }

    @classmethod
    def from_json(cls, document: object, plan: Plan) -> Tally:
        """Read a tally of `plan`; counts that cannot belong together are errors."""
        from shoal._tally_json import parse_tally

        return parse_tally(document, plan)

    @classmethod
    def read(cls, path: Path | str, plan: Plan) -> Tally:
        """Read a tally of `plan` from a JSON file, or from a collector's answer about a crowd."""
        from shoal._tally_json import parse_file

        return parse_file(read_json(Path(path), "tally", TallyError), plan)

    def write(self, path: Path | str) -> None:
        """Write the tally as JSON."""
        write_json(Path(path), self.to_json())


class Tallying:
    """A tally in the making: add chunks of rows, then take the `result`.

    Memory does not grow with the number of reports, unless vectors are counted one by one.
    """

    def __init__(
        self, plan: Plan, *, vectors: bool | None = None, joint: Iterable[Sequence[int]] = ()
    ) -> None:
        self._plan = plan
        self._reports = 0
        self._simulated = False
        self._counter = BitCounter(row_bytes(plan.bits))
        self._by_set_bits = np.zeros(plan.bits + 1, np.int64)
        declared = (tuple(plan.survey.bit(*bit) for bit in group) for group in plan.joint)
        self._joint = {checked_bits(bits, plan.bits): _joint_table(bits) for bits in declared}
        self._joint |= {checked_bits(bits, plan.bits): _joint_table(bits) for bits in joint}
        counted = plan.bits <= SMALL_VECTOR if vectors is None else vectors
        self._vectors: dict[str, int] | None = {} if counted else None
        count = plan.cohorts or 0
        self._cohort_reports = np.zeros(count, np.int64)
        self._cohort_bits = np.zeros((count, plan.bits), np.int64)

    def add(self, rows: Rows, *, simulated: bool = False, cohorts: Cohorts | None = None) -> None:
        """Count more rows; all of them, or none if one is malformed."""
        check_rows(rows, self._plan.bits, error=TallyError)
        self._check_cohorts(rows, cohorts)
        if self._reports and len(rows) and simulated != self._simulated:
            raise TallyError("simulated and real reports are not tallied together.")
        self._simulated = simulated if len(rows) else self._simulated
        self._reports += len(rows)
        self._counter.add(rows)
        self._by_set_bits += count_by_set_bits(rows)[: self._plan.bits + 1]
        for bits, table in self._joint.items():
            table += np.bincount(_joint_values(rows, bits), minlength=table.size)
        if self._vectors is not None:
            self._count_vectors(rows, self._vectors)
        if cohorts is not None:
            self._count_cohorts(rows, cohorts)

    def _check_cohorts(self, rows: Rows, cohorts: Cohorts | None) -> None:
        wanted = self._plan.cohorts
        if (wanted is None) != (cohorts is None):
            raise TallyError("reports have cohorts exactly when their plan has.")
        if cohorts is None or wanted is None:
            return
        if cohorts.shape != (len(rows),) or (len(rows) and int(cohorts.max()) >= wanted):
            raise TallyError(f"each report needs a cohort below {wanted}.")

    def _count_cohorts(self, rows: Rows, cohorts: Cohorts) -> None:
        order = np.argsort(cohorts, kind="stable")
        sizes = np.bincount(cohorts, minlength=self._cohort_reports.size)
        self._cohort_reports += sizes
        ends = np.cumsum(sizes)
        for cohort in np.flatnonzero(sizes):
            chosen = rows[order[ends[cohort] - sizes[cohort] : ends[cohort]]]
            self._cohort_bits[cohort] += unpack(chosen, self._plan.bits).sum(axis=0, dtype=np.int64)

    def result(self) -> Tally:
        """Return the tally of everything added so far."""
        return Tally(
            self._plan.id,
            self._reports,
            self._counter.counts()[: self._plan.bits],
            self._by_set_bits.copy(),
            None if self._vectors is None else dict(sorted(self._vectors.items())),
            {bits: table.copy() for bits, table in self._joint.items()},
            self._simulated,
            self._cohort_counts(),
        )

    def _cohort_counts(self) -> tuple[CohortCounts, ...] | None:
        if self._plan.cohorts is None:
            return None
        pairs = zip(self._cohort_reports.tolist(), self._cohort_bits, strict=True)
        return tuple(CohortCounts(reports, by_bit.copy()) for reports, by_bit in pairs)

    def _count_vectors(self, rows: Rows, counted: dict[str, int]) -> None:
        whole = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").reshape(-1)
        values, counts = np.unique(whole, return_counts=True)
        for value, count in zip(values, counts.tolist(), strict=True):
            key = value.tobytes().hex()
            counted[key] = counted.get(key, 0) + count


def tally(
    plan: Plan,
    synthetic: Synthetic | Iterable[Synthetic],
    *,
    vectors: bool | None = None,
    joint: Iterable[Sequence[int]] = (),
) -> Tally:
    """Count synthetic vectors.

    Parameters
    ----------
    plan
        The plan that the vectors were made for.
    synthetic
        The vectors, at once or in chunks.
    vectors
        Whether to count whole vectors too. By default up to 12 bits.
    joint
        Groups of bit positions whose joint values are counted, beside those the plan declares.

    Examples
    --------
    >>> from shoal import Flags, LieProbability, Promise, Survey
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, LieProbability.at_least(0.25), Promise("local", "2.2"))
    >>> counts = tally(plan, Synthetic(np.array([[1], [3], [3]], np.uint8), bits=2))
    >>> counts.by_bit, counts.by_set_bits, counts.by_vector
    (array([3, 2]), array([0, 1, 2]), {'01': 1, '03': 2})
    """
    tallying = Tallying(plan, vectors=vectors, joint=joint)
    chunks = [synthetic] if isinstance(synthetic, (Synthetic, Original)) else synthetic
    for chunk in chunks:
        if not isinstance(chunk, Synthetic):
            raise TallyError(f"only synthetic vectors are tallied, got {type(chunk).__name__}.")
        if chunk.bits != plan.bits:
            raise TallyError(f"the plan has {plan.bits} bits, the vectors have {chunk.bits}.")
        tallying.add(chunk.rows, simulated=chunk.simulated, cohorts=chunk.cohorts)
    return tallying.result()


def _added(
    mine: Mapping[str, int] | None, other: Mapping[str, int] | None
) -> dict[str, int] | None:
    if mine is None or other is None:
        return None
    keys = sorted(mine.keys() | other.keys())
    return {key: mine.get(key, 0) + other.get(key, 0) for key in keys}


def _added_cohorts(
    mine: tuple[CohortCounts, ...] | None, other: tuple[CohortCounts, ...] | None
) -> tuple[CohortCounts, ...] | None:
    if mine is None or other is None:
        return None
    return tuple(a + b for a, b in zip(mine, other, strict=True))


def _marginal(table: Counts, places: Sequence[int]) -> Counts:
    """Return the joint table of some bits of a joint table, in the order asked for."""
    values = np.arange(table.size)
    reduced = np.zeros_like(values)
    for new, old in enumerate(places):
        reduced |= (values >> old & 1) << new
    counts = np.zeros(1 << len(places), np.int64)
    np.add.at(counts, reduced, table)
    return counts


def _joint_table(bits: Sequence[int]) -> Counts:
    return np.zeros(1 << len(bits), np.int64)


def _joint_values(rows: Rows, bits: Bits) -> NDArray[np.int64]:
    values = np.zeros(len(rows), np.int64)
    for place, bit in enumerate(bits):
        values |= (rows[:, bit // 8].astype(np.int64) >> (bit % 8) & 1) << place
    return values


def checked_bits(bits: Sequence[int], length: int) -> Bits:
    chosen = tuple(check_integer("a bit", b, lowest=0, highest=length - 1) for b in bits)
    if not 1 <= len(set(chosen)) == len(chosen) <= MOST_JOINT_BITS:
        raise TallyError(f"joint counts take 1 to {MOST_JOINT_BITS} different bits, got {chosen}.")
    return chosen
