"""Joint answers: combinations of chosen bits, counted and estimated, where the view allows it.

A plan with view `counts` promises that observers see no more than how many reports set each bit, in
each cohort if there are cohorts. Its noise is far too small for anything that links the bits of one
report: counts by number of set bits, whole vectors, and joint counts are refused wherever a plan
and a tally meet. A cross in the survey is how to count answers jointly: its cells are bits of their
own, and the plan's noise allows for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.intervals import Interval, Target, drawn_sigma, normal_interval
from shoal.errors import InputError, PrivacyRefusal, TallyError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Cross, Flags, Survey, YesNo
from shoal.protocol.wire import Rows
from shoal.support.checks import check_integer
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows

if TYPE_CHECKING:
    import pyarrow as pa

MAX_JOINT_BITS = 16  # 65,536 counts
COUNTS_ONLY = (
    "the plan's view is counts: a tally holds how many reports set each bit and nothing that links"
    " the bits of one report"
)

Counts = NDArray[np.int64]
Bits = tuple[int, ...]


@dataclass(frozen=True)
class JointCell:
    """One combination of answers: its values in the order asked, its count and its spread.

    `count` and `variance`, that of the flips, are unbiased; the variance can be negative. `noise`,
    its root, does not fall below what any crowd of this size must have. `drawn` people were drawn
    from a population, 0 for the crowd. `constrained` is the likeliest count, if a table was fitted.
    """

    values: tuple[Any, ...]
    count: float
    variance: float
    noise: float
    drawn: int
    constrained: float | None = None

    @property
    def sigma(self) -> float:
        likely = self.count if self.constrained is None else self.constrained
        return drawn_sigma(likely, self.noise, self.drawn)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the normal interval of the count (approximate: for large crowds)."""
        return normal_interval(self.count, self.noise, level, self.drawn)


@dataclass(frozen=True, repr=False)
class JointEstimates(Displayed, TableExport):
    """Estimates of every combination of chosen bits: ``joint[1, 0]`` is set, not set."""

    bits: tuple[tuple[str, str], ...]
    cells: tuple[JointCell, ...]

    @property
    def _names(self) -> list[str]:
        return [f"{question}={label}" for question, label in self.bits]

    def _headline(self) -> str:
        return f"{', '.join(self._names)}: {len(self.cells):,} combinations"

    def _sections(self) -> list[Section]:
        cells, left_out = first_rows(self.cells)
        rows = [
            (*map(str, cell.values), f"{cell.count:z,.0f}", f"{cell.sigma:,.1f}") for cell in cells
        ]
        return [Section((*self._names, "count", "sigma"), rows, left_out=left_out)]

    def to_arrow(self) -> pa.Table:
        """Return the combinations as an Arrow table, a row for each."""
        rows = [
            dict(zip(self._names, cell.values, strict=True))
            | {"count": cell.count, "sigma": cell.sigma}
            for cell in self.cells
        ]
        return arrow_rows([], rows)

    def __getitem__(self, values: tuple[int, ...] | int) -> JointCell:
        wanted = (values,) if isinstance(values, int) else tuple(values)
        for cell in self.cells:
            if cell.values == wanted:
                return cell
        raise InputError(f"a combination is {len(self.bits)} values of 0 or 1, got {values}.")


def estimate_joint(
    counts: Counts, q: float, bits: Sequence[tuple[str, str]], target: Target = "crowd"
) -> JointEstimates:
    """Undo the flips of chosen bits jointly; counts[v] is of combination v, first bit lowest.

    The channel on j bits is the j-fold Kronecker power of [[p, q], [q, p]], so it is undone one bit
    at a time in j 2^j steps. The spread of a cell grows like (1 - 2q)^-j.

    A cell's variance is estimated without bias from the same counts as sum_v count(v) w(v)^2 -
    count, where w are the inverse channel's weights for that cell: each report adds
    E[w^2] - (E w)^2, and E w is 1 for those truly in the cell and 0 for the others.
    """
    j = len(bits)
    if counts.shape != (1 << j,):
        raise InputError(f"{j} bits have {1 << j} joint counts, got {counts.size}.")
    scale = 1 / (1 - 2 * q)
    keep, flip = (1 - q) * scale, -q * scale
    undone = _each_bit(counts.astype(float), j, keep, flip)
    squared = _each_bit(counts.astype(float), j, keep**2, flip**2)
    reports = int(counts.sum())
    variance = squared - undone
    # A person d bits off the cell adds this much; a crowd of n adds at least n times the least.
    same, other = (1 - q) * keep**2 + q * flip**2, (1 - q) * flip**2 + q * keep**2
    least = min(same ** (j - d) * other**d - (d == 0) for d in range(j + 1))
    noise = np.sqrt(np.maximum(variance, reports * least))
    drawn = reports if target == "population" else 0
    cells = []
    for values in product((0, 1), repeat=j):
        index = sum(value << place for place, value in enumerate(values))
        cell = (float(undone[index]), float(variance[index]), float(noise[index]))
        cells.append(JointCell(values, *cell, drawn))
    return JointEstimates(tuple(bits), tuple(cells))


def _each_bit(
    table: NDArray[np.float64], bits: int, same: float, other: float
) -> NDArray[np.float64]:
    """Apply [[same, other], [other, same]] to every bit of the table's index."""
    for place in range(bits):
        pairs = table.reshape(-1, 2, 1 << place)
        clear, set_ = pairs[:, 0], pairs[:, 1]
        table = np.stack((same * clear + other * set_, other * clear + same * set_), axis=1)
        table = table.reshape(-1)
    return table


def marginal(table: Counts, places: Sequence[int]) -> Counts:
    """Return the joint table of some bits of a joint table, in the order asked for."""
    bits = table.size.bit_length() - 1
    kept = [bits - 1 - place for place in reversed(places)]  # the first axis is the highest bit
    others = [axis for axis in range(bits) if axis not in kept]
    by_bit = table.reshape((2,) * bits).transpose(*kept, *others)
    return np.asarray(by_bit.reshape(1 << len(places), -1).sum(axis=1))


def joint_values(rows: Rows, bits: Bits) -> NDArray[np.int64]:
    """Return the joint value of some bits in each row, the first bit least significant."""
    places = np.array(bits)
    chosen = rows[:, places // 8] >> (places % 8).astype(np.uint8) & 1
    packed = np.packbits(chosen, axis=1, bitorder="little")
    return np.asarray(packed @ (1 << 8 * np.arange(packed.shape[1])))


def checked_bits(bits: Sequence[int], length: int) -> Bits:
    chosen = tuple(check_integer("a bit", b, lowest=0, highest=length - 1) for b in bits)
    if not 1 <= len(set(chosen)) == len(chosen) <= MAX_JOINT_BITS:
        raise TallyError(f"joint counts take 1 to {MAX_JOINT_BITS} different bits, got {chosen}.")
    return chosen


def plan_groups(plan: Plan) -> list[Bits]:
    groups = (tuple(plan.survey.bit(*bit) for bit in group) for group in plan.joint)
    return [checked_bits(group, plan.bits) for group in groups]


def check_links(plan: Plan, what: str, bits: Iterable[int] = ()) -> None:
    """Refuse counts that link bits of one report under view counts; suggest a cross of `bits`."""
    if plan.view == "counts":
        raise PrivacyRefusal(
            f"{COUNTS_ONLY}, so it has no {what}; {suggest_cross(plan.survey, bits)}"
        )


def suggest_cross(survey: Survey, bits: Iterable[int] = ()) -> str:
    """Say which cross counts these bits jointly, or that none does."""
    labels = survey.labels
    names: dict[str, None] = {}
    for bit in bits:
        name, label = labels[bit]
        question = survey[name]
        if isinstance(question, Cross):
            names |= dict.fromkeys(side.name for side in question.sides)
        elif question.takes_one or isinstance(question, YesNo):
            names[name] = None
        elif isinstance(question, Flags) and question.at_most is None:
            names[f"{name}={label}"] = None
        else:
            kind = "flags with at_most" if isinstance(question, Flags) else question.kind
            return f"question {name!r} is {kind}, which cannot be crossed either."
    for cross in survey.crosses:
        if len(names) > 1 and set(names) <= {side.name for side in cross.sides}:
            return f"cross {cross.name!r} counts them: shoal associate, cross_table."
    if len(names) < 2:
        return 'cross the questions that you want jointly in the plan: --cross "A;B".'
    return f'cross the questions in the plan: --cross "{";".join(names)}".'
