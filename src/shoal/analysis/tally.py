"""Synthetic vectors to a Tally: counts, and nothing that points at one report.

A tally counts reports by bit (M of SDP 4), by number of set bits (T of SDP 3.3) and, where that is
small or asked for, by vector (S of SDP 1.3) and by the joint value of chosen bits. Under a plan
with view `counts` it counts them by bit only. Tallies of one plan add; the order of the reports and
how they were cut into chunks leave no trace in them. Which crowds were added stays known: their
people may be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.count_table import CountTable, Weights
from shoal.analysis.crowds import Crowd, People, add_crowds, check_people, note_on
from shoal.analysis.joint import (
    Bits,
    check_links,
    checked_bits,
    joint_values,
    marginal,
    plan_groups,
)
from shoal.errors import PrivacyRefusal, TallyError
from shoal.protocol.plan import Plan, View
from shoal.protocol.wire import Cohorts, Rows, Synthetic, check_rows, row_bytes
from shoal.support.checks import takes
from shoal.support.files import explain_wrong_file, read_json, write_json
from shoal.support.results import Displayed, Section, first_rows

Counts = NDArray[np.int64]
SMALL_VECTOR = 12  # bits, up to which vectors are always counted one by one: 4096 counts at most


@dataclass(frozen=True, eq=False)
class CohortCounts:
    """The reports of one cohort: how many, and how many of them show a one at each position."""

    reports: int
    by_bit: Counts

    def __add__(self, other: CohortCounts) -> CohortCounts:
        return CohortCounts(self.reports + other.reports, self.by_bit + other.by_bit)


@dataclass(frozen=True, eq=False, repr=False)
class Tally(Displayed):
    """Counts of the synthetic vectors of one plan.

    `by_set_bits` is None if the plan's view is `counts`; then nothing else links bits of a report.
    `by_vector` maps a packed row, in hexadecimal, to its count; None if vectors were not counted.
    `joint` maps bit positions to the counts of their joint values, the first position least
    significant. `cohorts` counts each cohort by itself. `crowds` lists the crowds of the reports,
    by default one unnamed. `people` is ``"different"`` if no person is in two of them, as declared.
    """

    how_to_get: ClassVar[str] = "count reports with tally(plan, reports) or Tally.read(path, plan)"

    plan_id: str
    reports: int
    by_bit: Counts
    by_set_bits: Counts | None = None
    by_vector: Mapping[str, int] | None = None
    joint: Mapping[Bits, Counts] = field(default_factory=dict)
    simulated: bool = False
    cohorts: tuple[CohortCounts, ...] | None = None
    crowds: tuple[Crowd, ...] = ()
    people: People | None = None

    def __post_init__(self) -> None:
        check_people(self.people)
        if self.view == "counts" and (self.by_vector is not None or self.joint):
            raise TallyError(
                "a tally without counts of set bits holds the counts of single bits and no more;"
                " it takes no vectors and no joint counts."
            )
        if self.reports and not self.crowds:
            object.__setattr__(self, "crowds", (Crowd(self.reports),))
        if sum(crowd.reports for crowd in self.crowds) != self.reports:
            raise TallyError(f"the crowds' reports do not add up to {self.reports}.")

    @property
    def bits(self) -> int:
        """How many bits a report has."""
        return len(self.by_bit)

    @property
    def in_words(self) -> str:
        """How many reports and crowds there are, and whether they are simulated."""
        crowds = f" of {len(self.crowds):,} crowds" if len(self.crowds) > 1 else ""
        return f"{self.reports:,} reports{crowds}{', simulated' if self.simulated else ''}"

    def _headline(self) -> str:
        return f"{self.in_words}, {self.bits:,} bits, plan {self.plan_id[:12]}, view {self.view}"

    def _sections(self) -> list[Section]:
        counts, left_out = first_rows(self.by_bit.tolist())
        rows = [(f"{place}", f"{ones:,}") for place, ones in enumerate(counts)]
        return [Section(("bit", "reports that set it"), rows, left_out=left_out)]

    def _remarks(self) -> list[str]:
        flipped = "These counts include the flips; shoal.estimate(plan, tally) removes them."
        return [flipped, *filter(None, [self.note])]

    @property
    def view(self) -> View:
        """Whether the tally holds only `counts` of single bits, or more of the `reports`."""
        return "counts" if self.by_set_bits is None else "reports"

    @property
    def people_may_repeat(self) -> bool:
        """Whether one person may be in several crowds of the tally."""
        return len(self.crowds) > 1 and self.people != "different"

    @property
    def note(self) -> str | None:
        """What a count is of, if the tally holds several crowds."""
        return note_on(len(self.crowds), self.people)

    def named(self, crowd: str) -> Tally:
        """Name the crowds that have no name: parts of one crowd, but for their windows."""
        named = (replace(c, name=crowd) if c.name is None else c for c in self.crowds)
        return replace(self, crowds=add_crowds(named))

    def of_different_people(self) -> Tally:
        """Declare that no person is in two of its crowds; all results will say so, unchecked."""
        return replace(self, people="different")

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if (self.plan_id, self.bits) != (other.plan_id, other.bits):
            raise TallyError(
                f"tallies of two plans do not add: {self.plan_id[:12]} and {other.plan_id[:12]}."
            )
        mine, theirs = ((one.view, one.by_vector is None, set(one.joint)) for one in (self, other))
        if mine != theirs:
            raise TallyError(
                "tallies add when they count the same set bits, vectors and joint values."
            )
        if self.simulated != other.simulated and self.reports and other.reports:
            raise TallyError("simulated and real reports do not add.")
        # What was declared of some crowds is not declared of more of them.
        declared = [one.people for one in (self, other) if one.reports]
        people = declared[0] if len(declared) == 1 else None
        set_bits = vectors = cohorts = None
        if self.by_set_bits is not None and other.by_set_bits is not None:
            set_bits = self.by_set_bits + other.by_set_bits
        if self.by_vector is not None and other.by_vector is not None:
            vectors = dict(sorted((Counter(self.by_vector) + Counter(other.by_vector)).items()))
        if self.cohorts is not None and other.cohorts is not None:
            cohorts = tuple(a + b for a, b in zip(self.cohorts, other.cohorts, strict=True))
        return Tally(
            self.plan_id,
            self.reports + other.reports,
            self.by_bit + other.by_bit,
            set_bits,
            vectors,
            {bits: counts + other.joint[bits] for bits, counts in self.joint.items()},
            self.simulated if self.reports else other.simulated,
            cohorts,
            add_crowds((*self.crowds, *other.crowds)),
            people,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def joint_counts(self, bits: Sequence[int]) -> Counts:
        """Return the counts of the joint values of chosen bits, the first one least significant."""
        chosen = checked_bits(bits, self.bits)
        holding = [counted for counted in self.joint if set(chosen) <= set(counted)]
        if holding:
            group = min(holding, key=len)
            return marginal(self.joint[group], [group.index(bit) for bit in chosen])
        if self.by_vector is None:
            raise TallyError(
                f"the tally does not count bits {list(chosen)} jointly; tally with joint= or"
                " declare them in the plan, or cross the questions if its view is counts."
            )
        rows = np.frombuffer(bytes.fromhex("".join(self.by_vector)), np.uint8)
        values = joint_values(rows.reshape(-1, row_bytes(self.bits)), chosen)
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
            "by_set_bits": None if self.by_set_bits is None else self.by_set_bits.tolist(),
            "by_vector": None if vectors is None else dict(sorted(vectors.items())),
            "joint": [
                {"bits": list(bits), "counts": counts.tolist()}
                for bits, counts in sorted(self.joint.items())
            ],
            "cohorts": None
            if self.cohorts is None
            else [{"reports": c.reports, "by_bit": c.by_bit.tolist()} for c in self.cohorts],
            "crowds": [crowd.to_json() for crowd in self.crowds],
            "people": self.people,
        }

    @classmethod
    def from_json(cls, document: object, plan: Plan) -> Tally:
        """Read a tally of `plan`; counts that cannot belong together are errors."""
        from shoal.analysis.tally_json import parse_tally

        return parse_tally(document, plan)

    @classmethod
    def read(cls, path: Path | str, plan: Plan) -> Tally:
        """Read a tally of `plan` from a JSON file, or from a collector's document of a crowd."""
        from shoal.analysis.tally_json import parse_file

        document = read_json(Path(path), "tally", TallyError)
        try:
            return parse_file(document, plan)
        except TallyError as error:
            raise TallyError(explain_wrong_file(Path(path), "tally") or str(error)) from error

    def write(self, path: Path | str) -> None:
        """Write the tally as JSON."""
        write_json(Path(path), self.to_json())


class Tallying:
    """Builds a tally: add chunks of rows, then take the `result`.

    Memory does not grow with the number of reports, unless long vectors are counted one by one.
    Rows belong to the crowd of their window; `crowd` names it, and `window` is the default.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        vectors: bool | None = None,
        joint: Iterable[Sequence[int]] = (),
        crowd: str | None = None,
        window: int | None = None,
        extra: int = 0,
    ) -> None:
        Crowd(1, crowd, window)  # checks both
        self._plan = plan
        self._crowd, self._window = crowd, window
        self._windows: Counter[int | None] = Counter()
        self._simulated = False
        groups = [*plan_groups(plan), *(checked_bits(bits, plan.bits) for bits in joint)]
        if vectors or groups:
            bits = {bit for group in groups for bit in group}
            check_links(plan, "joint counts" if groups else "whole vectors", sorted(bits))
        is_short = plan.bits <= SMALL_VECTOR
        counted = is_short and plan.view == "reports" if vectors is None else vectors
        self._long_vectors = Counter[str]() if counted and not is_short else None
        self.table = CountTable(
            plan, list(dict.fromkeys(groups)), vectors=counted and is_short, extra=extra
        )

    def add(
        self,
        rows: Rows,
        *,
        simulated: bool = False,
        cohorts: Cohorts | None = None,
        window: int | None = None,
        weights: Weights | None = None,
    ) -> None:
        """Count more rows: all, or none if one is invalid. Rows of weight 0 only take time."""
        check_rows(rows, self._plan.bits, error=TallyError)
        if self._plan.noise is not None and not simulated:
            raise PrivacyRefusal(
                "the leader and the helper of this plan add noise to the counts, so its reports are"
                " counted by them and nowhere else."
            )
        window = self._checked_window(window)
        self._check_cohorts(rows, cohorts)
        if self.table.reports and len(rows) and simulated != self._simulated:
            raise TallyError("simulated and real reports are not tallied together.")
        self._simulated = simulated if len(rows) else self._simulated
        before = self.table.reports
        self.table.add(rows, cohorts, weights)
        if window != self._window:
            self._windows[window] += self.table.reports - before
        if self._long_vectors is not None:
            counted = rows if weights is None else rows[weights > 0]
            self._count_vectors(counted, self._long_vectors)

    def add_vectors(self, vectors: Synthetic) -> None:
        """Count more vectors, with their cohorts and window."""
        if not isinstance(vectors, Synthetic):
            raise TallyError(
                "a tally counts the reports that randomize returns, or read_reports of"
                f" shoal.analysis.report_files, got {type(vectors).__name__}."
            )
        if vectors.bits != self._plan.bits:
            raise TallyError(
                f"the plan has {self._plan.bits} bits, the vectors have {vectors.bits}."
            )
        self.add(
            vectors.rows,
            simulated=vectors.simulated,
            cohorts=vectors.cohorts,
            window=vectors.window,
        )

    def _checked_window(self, window: int | None) -> int | None:
        if window is None:
            return self._window
        Crowd(1, window=window)
        if self._window not in (None, window):
            raise TallyError(f"the reports are of window {window}, not of window {self._window}.")
        return window

    def _check_cohorts(self, rows: Rows, cohorts: Cohorts | None) -> None:
        wanted = self._plan.cohorts
        if (wanted is None) != (cohorts is None):
            raise TallyError("reports have cohorts exactly when their plan has.")
        if cohorts is None or wanted is None:
            return
        if cohorts.shape != (len(rows),) or (len(rows) and int(cohorts.max()) >= wanted):
            raise TallyError(f"each report needs a cohort below {wanted}.")

    def result(self) -> Tally:
        """Return the tally of everything added so far."""
        windows = self._windows.copy()
        windows[self._window] = self.table.reports - windows.total()
        vectors = self.table.vectors() if self.table.by_vector.size else self._long_vectors
        cohorts = None
        if self._plan.cohorts is not None:
            rows = self.table.cohorts
            cohorts = tuple(CohortCounts(int(row[0]), row[1:].copy()) for row in rows)
        return Tally(
            self._plan.id,
            self.table.reports,
            self.table.by_bit,
            self.table.by_set_bits.copy() if self._plan.view == "reports" else None,
            None if vectors is None else dict(sorted(vectors.items())),
            {bits: counts.copy() for bits, counts in self.table.joint.items()},
            self._simulated,
            cohorts,
            add_crowds(Crowd(n, self._crowd, window) for window, n in windows.items() if n),
        )

    def _count_vectors(self, rows: Rows, counted: Counter[str]) -> None:
        whole = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").reshape(-1)
        values, counts = np.unique(whole, return_counts=True)
        for value, count in zip(values, counts.tolist(), strict=True):
            counted[value.tobytes().hex()] += count


@takes(plan=Plan)
def tally(
    plan: Plan,
    synthetic: Synthetic | Iterable[Synthetic],
    *,
    vectors: bool | None = None,
    joint: Iterable[Sequence[int]] = (),
    crowd: str | None = None,
    window: int | None = None,
) -> Tally:
    """Count synthetic vectors.

    Parameters
    ----------
    plan, synthetic
        The plan and its vectors, at once or in chunks.
    vectors
        Whether to count whole vectors too. By default up to 12 bits, and never under view counts.
    joint
        Groups of bit positions whose joint values are counted, beside those the plan declares.
    crowd, window
        The name of the crowd and the window of its reports. Parts of one crowd that are counted
        apart add up to one crowd if both are the same.

    Examples
    --------
    >>> from shoal import Flags, Survey
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Promise
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, FlipProbability.at_least(0.25), Promise("local", "2.2"))
    >>> counts = tally(plan, Synthetic(np.array([[1], [3], [3]], np.uint8), bits=2))
    >>> counts.by_bit, counts.by_set_bits, counts.by_vector
    (array([3, 2]), array([0, 1, 2]), {'01': 1, '03': 2})
    """
    tallying = Tallying(plan, vectors=vectors, joint=joint, crowd=crowd, window=window)
    chunks = synthetic if isinstance(synthetic, Iterable) else [synthetic]
    for chunk in chunks:
        tallying.add_vectors(chunk)
    return tallying.result()
