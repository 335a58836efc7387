"""A Tally to a Screening: the traces of fake reports that a whole crowd shows.

The question is whether *any* honest crowd explains the tally: any answers of the survey's domain,
randomized with the plan's q. The answers are not known, so a p-value must hold for all of them
(theorems: `honest_counts` and `mixtures` of `shoal.theory.honest_crowds`). Fakes that follow the
noise of an allowed answer cannot be told from people who give it; nothing here, or anywhere, sees
those.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.estimates import check_crowd
from shoal.analysis.report_files import unpack
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.planning.fragments import overflow_of
from shoal.protocol.encryption import messages_of
from shoal.protocol.plan import Plan
from shoal.protocol.survey import QuestionPart
from shoal.protocol.wire import row_bytes
from shoal.support.checks import check_number
from shoal.support.rounding import round_down, round_up, text_up
from shoal.theory.calibration import largest
from shoal.theory.honest_crowds import (
    at_most,
    bins,
    hoeffding_at_least,
    log_evidence,
    set_bit_pmfs,
    sum_p_values,
)

__all__ = ["Family", "Screening", "Trace", "families", "screen"]

_PRECISION = 0.01
"""How closely the smallest share of fakes is searched for, relative to itself."""

SMALLEST = 1e-300
"""P-values below what floats hold are rounded up to this."""

CLEAN = "No sign of fake reports."
COUNTS_ONLY = (
    "Only the counts of single bits and their totals were tested; under view counts nothing else"
    " is counted, so fakes that set an allowed number of bits leave no trace."
)
IN_PIECES = (
    "A fake device can spend all {messages} messages of its report on one option, so that fewer"
    " fakes explain a trace than of whole reports."
)
NOT_TESTED = "Not tested: with memory and several reports per person, reports are not independent."


@dataclass(frozen=True)
class Screening:
    """What was seen: an honest crowd has a `p_value` of at most a with probability at most a.

    `suspicious` says that it is at most `alarm`. `smallest_share_of_fakes` is a lower bound of the
    part of the reports that no honest crowd explains, at confidence 1 - alarm; there may be more.
    """

    p_value: float
    alarm: float
    findings: tuple[str, ...]
    smallest_share_of_fakes: float
    reports: int
    plan_id: str
    crowds: int = 1

    @property
    def suspicious(self) -> bool:
        """Whether the p-value is at most the alarm."""
        return self.p_value <= self.alarm

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the p-value is rounded up, the share down."""
        return {
            "plan": self.plan_id,
            "reports": self.reports,
            "crowds": self.crowds,
            "p_value": min(round_up(self.p_value), 1.0),
            "alarm": self.alarm,
            "suspicious": self.suspicious,
            "smallest_share_of_fakes": round_down(self.smallest_share_of_fakes),
            "findings": list(self.findings),
        }


def screen(plan: Plan, tally: Tally, *, alarm: float = 1e-3) -> Screening:
    """Look for traces of fake reports in the tally of a whole crowd.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports; fewer than a whole crowd are refused as by
        `estimate`, and so are crowds whose people may be the same if the plan has memory.
    alarm
        The probability, in (0, 1), with which an honest crowd may be called suspicious.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import Flags, Survey, plan, tally
    >>> from shoal.protocol.wire import Synthetic
    >>> agreed = plan(Survey("s", (Flags("f", ("a", "b", "c", "d")),)), q="0.25")
    >>> rows = np.repeat(np.array([[0], [1], [15]], np.uint8), [500, 200, 300], axis=0)
    >>> screening = screen(agreed, tally(agreed, Synthetic(rows, bits=4)))
    >>> screening.suspicious, round(screening.smallest_share_of_fakes, 3)
    (True, 0.932)
    >>> screening.findings[-1]
    '500 reports are the vector 00; an honest crowd is expected to send it at most 316.5 times.'
    """
    if not 0 < check_number("alarm", alarm) < 1:
        raise InputError(f"alarm must be strictly between 0 and 1, got alarm={alarm}.")
    check_crowd(plan, tally)
    about = tally.reports, plan.id, len(tally.crowds)
    if plan.memory is not None and plan.max_reports_per_person > 1:
        return Screening(1.0, alarm, (NOT_TESTED,), 0.0, *about)
    limits = [COUNTS_ONLY] if plan.view == "counts" else []
    overflow = overflow_of(plan)
    if overflow is not None and overflow.messages > 1:
        limits.append(IN_PIECES.format(messages=overflow.messages))
    # honest reports that drop bits are as whole ones but for this probability
    dropped = 0.0 if overflow is None else tally.reports * overflow.chance(float(plan.q))
    looked_at = families(plan, tally)
    traces = [
        (len(looked_at) * p + dropped, say) for family in looked_at for p, say in family.traces(0)
    ]
    traces.sort(key=lambda trace: trace[0])
    p_value = min(max(traces[0][0], SMALLEST), 1.0)
    if p_value > alarm:
        return Screening(p_value, alarm, (CLEAN, *limits), 0.0, *about)
    findings = (*(say() for p, say in traces if p <= alarm), *limits)
    share = _fewest_fakes(looked_at, tally.reports, alarm - dropped) / tally.reports
    return Screening(p_value, alarm, findings, share, *about)


def _fewest_fakes(looked_at: list[Family], reports: int, alarm: float) -> int:
    """Return the least number of fakes that is not rejected; the p-value rises with the number.

    None at all was rejected before, and rounding is downward: it is a lower bound.
    """

    def rejected(fakes: int) -> bool:
        limit = alarm / len(looked_at)
        return any(p <= limit for family in looked_at for p, _ in family.traces(fakes))

    return largest(rejected, 0, reports - 1, rtol=_PRECISION) + 1


Floats = NDArray[np.float64]

MAX_PMF_CELLS = 2_000_000
"""Up to so many probabilities, laws times outcomes, the shape of the set bits is tested."""

MAX_SHAPE_BITS = 6
"""Up to so many bits the shape of the whole histogram of vectors is tested."""

MAX_VECTOR_BITS = 256
"""Up to so many bits repeated vectors are looked for: 2^256 tests still leave p-values to see."""

RUNS = (3, 8, 24, 96)
"""The set bits are cut into so many runs; few see gross fakes soon, many see fine ones later."""

_SHOWN = 3


class Trace(NamedTuple):
    """One thing that was looked at: its p-value within the family, and how to say it."""

    p_value: float
    sentence: Callable[[], str]


class Family(Protocol):
    """Tests of one kind."""

    def traces(self, fakes: int) -> Iterator[Trace]:
        """Yield the strongest traces against at most `fakes` fakes."""


def families(plan: Plan, tally: Tally) -> list[Family]:
    """Return the families that a plan and the kind of its tally allow, whatever was counted."""
    tests: list[Family] = [Bits(plan, tally), Sums(plan, tally)]
    if tally.by_set_bits is not None:
        tests.insert(0, SetBits(plan, tally.by_set_bits))
        fewest, most = set_bit_range(plan)
        if (most - fewest + 1) * (plan.bits + 1) <= MAX_PMF_CELLS:
            tests.append(Shape(plan, tally.by_set_bits))
    if tally.cohorts is not None:
        tests.append(Cohorts(plan, tally))
    if tally.by_vector is not None and plan.bits <= MAX_VECTOR_BITS:
        tests.append(Vectors(plan, tally))
        if plan.bits <= MAX_SHAPE_BITS:
            tests.append(VectorShape(plan, tally))
    return tests


def set_bit_range(plan: Plan) -> tuple[int, int]:
    """Return the fewest and the most bits that an original has set; all between are allowed."""
    survey = plan.survey
    return sum(q.min_set_bits for q in survey), sum(q.max_set_bits for q in survey)


class SetBits:
    """Too many reports with many, with few or with exactly so many set bits."""

    def __init__(self, plan: Plan, seen: NDArray[np.int64]) -> None:
        fewest, most = set_bit_range(plan)
        bits, q = plan.bits, float(plan.q)
        self._reports = int(seen.sum())
        lowest, highest = (set_bit_pmfs(bits, k, k, q)[0] for k in (fewest, most))
        # More true bits make more set bits likelier, so the extreme originals bound the tails.
        counts = [np.cumsum(seen[::-1])[::-1][1:], np.cumsum(seen)[:-1]]
        rates = [np.cumsum(highest[::-1])[::-1][1:], np.cumsum(lowest)[:-1]]
        if (most - fewest + 1) * (bits + 1) <= MAX_PMF_CELLS:
            counts.append(seen)
            rates.append(set_bit_pmfs(bits, fewest, most, q).max(axis=0))
        self._bits, self._counts = bits, np.concatenate(counts)
        self._rates = np.minimum(np.concatenate(rates) * (1 + 1e-9), 1.0)

    def traces(self, fakes: int) -> Iterator[Trace]:
        honest = self._reports - fakes
        p_values = hoeffding_at_least(self._counts - fakes, honest, self._rates)
        for i, p in _strongest(p_values):
            yield Trace(p * p_values.size, partial(self._sentence, i))

    def _sentence(self, i: int) -> str:
        kind, place = divmod(i, self._bits)
        many = (f"{place + 1} or more", f"{place} or fewer")
        words = many[kind] if kind < 2 else f"exactly {i - 2 * self._bits}"
        return (
            f"{self._counts[i]:,} reports have {words} set bits; an honest crowd is"
            f" expected to have at most {text_up(self._reports * self._rates[i])}."
        )


class Bits:
    """A bit that fewer reports show than flips alone would, or more than the truth could."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self._plan, self._reports, self._ones = plan, tally.reports, tally.by_bit

    def traces(self, fakes: int) -> Iterator[Trace]:
        q, pieces = float(self._plan.q), messages_of(self._plan)
        few, many = _bit_p_values(self._ones, self._reports, q, fakes, pieces)
        p_values = np.concatenate((few, many))
        for i, p in _strongest(p_values):
            yield Trace(p * p_values.size, partial(self._sentence, i))

    def _sentence(self, i: int) -> str:
        place = i % self._plan.bits
        question, label = self._plan.survey.labels[place]
        q = float(self._plan.q)
        few = i == place
        rate = q if few else 1 - q
        return (
            f"Option {label!r} of question {question!r} is set in {self._ones[place]:,} reports;"
            f" an honest crowd is expected to set it in at {'least' if few else 'most'}"
            f" {self._reports * rate:,.0f}."
        )


class Cohorts:
    """The same of every bit within each cohort, where all reports of a text look alike."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        assert tally.cohorts is not None
        self._q, self._bits = float(plan.q), plan.bits
        self._reports = np.array([cohort.reports for cohort in tally.cohorts])[:, None]
        self._ones = np.array([cohort.by_bit for cohort in tally.cohorts])

    def traces(self, fakes: int) -> Iterator[Trace]:
        few, many = _bit_p_values(self._ones, self._reports, self._q, fakes)
        p_values = np.concatenate((few.ravel(), many.ravel()))
        for i, p in _strongest(p_values):
            yield Trace(p * p_values.size, partial(self._sentence, i))

    def _sentence(self, i: int) -> str:
        cohort, place = divmod(i % self._ones.size, self._bits)
        return (
            f"{self._ones[cohort, place]:,} of the {self._reports[cohort, 0]:,} reports of cohort"
            f" {cohort} set bit {place}; an honest crowd hardly ever does."
        )


def _bit_p_values(
    ones: NDArray[np.int64],
    reports: NDArray[np.int64] | int,
    q: float,
    fakes: int,
    pieces: int = 1,
) -> tuple[Floats, Floats]:
    """Every report shows a bit with q or p, so the count is between Bin(n, q) and Bin(n, p)."""
    honest = np.maximum(np.asarray(reports) - fakes, 0)
    # Of f fakes all may lack the bit, or all may have it, each as often as it has pieces.
    few = np.where(ones >= honest, 1.0, at_most(ones, honest, q))
    return few, at_most(honest - (ones - fakes * pieces), honest, q)


class Sums:
    """All bits of a question together: a choice sets exactly one, so its counts must add up."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self._q, self._reports = float(plan.q), tally.reports
        in_pieces = plan.parties is not None and plan.view == "counts"
        self._pieces = messages_of(plan) if in_pieces else None
        self._parts = [
            (question.name, part, sum(tally.by_bit[place].tolist()))
            for question, place, part in plan.survey.parts
        ]

    def traces(self, fakes: int) -> Iterator[Trace]:
        tests = 2 * len(self._parts)
        for name, part, ones in self._parts:
            domain = part.bits, part.min_set_bits, part.max_set_bits
            few, many = sum_p_values(ones, self._reports, *domain, self._q, fakes)
            if self._pieces is not None:  # a fake sets at most so many bits, whichever they are
                more = fakes * (self._pieces - part.bits)
                _, many = sum_p_values(ones - more, self._reports, *domain, self._q, fakes)
            yield Trace(few * tests, partial(self._sentence, name, part, ones, low=True))
            yield Trace(many * tests, partial(self._sentence, name, part, ones, low=False))

    def _sentence(self, question: str, part: QuestionPart, ones: int, *, low: bool) -> str:
        set_bits = part.min_set_bits if low else part.max_set_bits
        rate = set_bits * (1 - self._q) + (part.bits - set_bits) * self._q
        return (
            f"The reports set {ones:,} bits of question {question!r}; an honest crowd is"
            f" expected to set at {'least' if low else 'most'} {self._reports * rate:,.0f}."
        )


class Shape:
    """A histogram of set bits that no mixture of answers makes."""

    def __init__(self, plan: Plan, seen: NDArray[np.int64]) -> None:
        self._laws = set_bit_pmfs(plan.bits, *set_bit_range(plan), float(plan.q))
        self._cuts = _different([bins(self._laws, runs) for runs in RUNS])
        self._counts = seen

    def traces(self, fakes: int) -> Iterator[Trace]:
        share = fakes / int(self._counts.sum())
        p = float(np.exp(min(-log_evidence(self._laws, self._counts, self._cuts, share), 0.0)))
        yield Trace(
            p,
            lambda: (
                "The numbers of set bits do not fit any mixture of honest answers under the plan's"
                " flips."
            ),
        )


class Vectors:
    """A vector that is reported more often than even those whose answer it is would report it."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        assert tally.by_vector is not None
        self._tests, self._reports = 2.0**plan.bits, tally.reports
        counts = list(tally.by_vector.items())
        self._names = [name for name, _ in counts]
        self._counts = np.array([count for _, count in counts], np.int64)
        packed = np.frombuffer(bytes.fromhex("".join(self._names)), np.uint8)
        vectors = unpack(packed.reshape(-1, row_bytes(plan.bits)), plan.bits)
        q = float(plan.q)
        self._rates = np.full(len(counts), 1 + 1e-9)
        for _, place, part in plan.survey.parts:
            ones = vectors[:, place].sum(axis=1, dtype=np.int64)
            # The nearest allowed answer makes a vector likeliest.
            flips = np.maximum(0, ones - part.max_set_bits)
            flips = np.maximum(flips, part.min_set_bits - ones)
            self._rates *= q**flips * (1 - q) ** (part.bits - flips)
        self._rates = np.minimum(self._rates, 1.0)

    def traces(self, fakes: int) -> Iterator[Trace]:
        honest = self._reports - fakes
        for i, p in _strongest(hoeffding_at_least(self._counts - fakes, honest, self._rates)):
            yield Trace(p * self._tests, partial(self._sentence, i))

    def _sentence(self, i: int) -> str:
        return (
            f"{self._counts[i]:,} reports are the vector {self._names[i]}; an honest crowd is"
            f" expected to send it at most {text_up(self._reports * self._rates[i])} times."
        )


class VectorShape:
    """A histogram of vectors that no mixture of answers makes."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        assert tally.by_vector is not None
        values, q = np.arange(1 << plan.bits), float(plan.q)
        allowed = np.array(
            [
                value
                for value in values.tolist()
                if all(
                    part.min_set_bits <= block.bit_count() <= part.max_set_bits
                    for part, block in _blocks(plan, value)
                )
            ]
        )
        flips = np.bitwise_count(allowed[:, None] ^ values)
        self._laws = q**flips * (1 - q) ** (plan.bits - flips)
        self._counts = np.zeros(values.size, np.int64)
        for name, count in tally.by_vector.items():
            self._counts[int(name, 16)] += count

    def traces(self, fakes: int) -> Iterator[Trace]:
        share, cuts = fakes / int(self._counts.sum()), [np.arange(self._counts.size)]
        p = float(np.exp(min(-log_evidence(self._laws, self._counts, cuts, share), 0.0)))
        yield Trace(
            p,
            lambda: (
                "The vectors' frequencies do not fit any mixture of honest answers under the plan's"
                " flips."
            ),
        )


def _blocks(plan: Plan, value: int) -> Iterator[tuple[QuestionPart, int]]:
    for _, place, part in plan.survey.parts:
        yield part, value >> place.start & (1 << part.bits) - 1


def _strongest(p_values: Floats) -> Iterator[tuple[int, float]]:
    for i in itertools.islice(np.argsort(p_values, kind="stable"), _SHOWN):
        yield int(i), float(p_values[i])


def _different(cuts: Sequence[NDArray[np.intp]]) -> list[NDArray[np.intp]]:
    return [cut for i, cut in enumerate(cuts) if not i or cut.size != cuts[i - 1].size]
