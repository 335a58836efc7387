"""A Tally to a Screening: the traces of fake reports in a complete crowd.

The question is whether *any* honest crowd explains the tally: any answers of the survey's domain,
randomized with the plan's q. The answers are not known, so a p-value must hold for all of them
(theorems: `shoal.theory.honest_crowds`). No test sees fakes that follow the noise of an allowed
answer: they cannot be told from people who give it.

Tests come in families, one for each kind of trace. The p-values of a family are valid for every
honest crowd of its plan, already multiplied by the number of tests (Bonferroni). Given `fakes`,
they are valid for every crowd in which at most that many reports are fake and may be anything; with
a leader and a helper, anything with at most `max_weight` set bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.estimates import check_crowd
from shoal.analysis.tally import Counts, Tally
from shoal.errors import InputError
from shoal.planning.bounds import overflow_of
from shoal.protocol.plan import Plan
from shoal.protocol.questions import QuestionPart
from shoal.protocol.wire import row_bytes
from shoal.support.checks import check_number, takes
from shoal.support.results import Displayed, Section
from shoal.support.rounding import round_down, round_up, text_near, text_up
from shoal.theory.calibration import largest
from shoal.theory.honest_crowds import (
    at_most,
    bins,
    hoeffding_at_least,
    log_evidence,
    set_bit_pmfs,
    sum_p_values,
)

Floats = NDArray[np.float64]

SMALLEST = 1e-300  # p-values below what floats hold are rounded up to this
CLEAN = "No sign of fake reports."
COUNTS_ONLY = (
    "Only the counts of single bits and their totals were tested; under view counts nothing else"
    " is counted, so fakes that set an allowed number of bits leave no trace."
)
UNDER_NOISE = "Not tested: noise of aggregators is in the counts, and a proof checks each report."
NOT_TESTED = "Not tested: with memory and several reports per person, reports are not independent."

MAX_PMF_CELLS = 2_000_000  # probabilities, up to which the shape of the set bits is tested
MAX_SHAPE_BITS = 6  # up to which the shape of the whole histogram of vectors is tested
MAX_VECTOR_BITS = 256  # for repeated vectors: 2^256 tests still leave p-values to see
RUNS = (3, 8, 24, 96)  # of set bits: few see gross fakes soon, many see fine ones later
_PRECISION = 0.01  # relative, of the smallest share of fakes
_SHOWN = 3  # traces of each family


@dataclass(frozen=True, repr=False)
class Screening(Displayed):
    """The result: an honest crowd has a `p_value` of at most a with probability at most a.

    `smallest_share_of_fakes` is a lower bound of the part of the reports that no honest crowd
    explains, at confidence 1 - alarm.
    """

    p_value: float
    alarm: float
    findings: tuple[str, ...]
    smallest_share_of_fakes: float
    reports: int
    plan_id: str
    crowds: int = 1

    def _headline(self) -> str:
        found = "suspicious" if self.suspicious else "no trace of fakes"
        return f"{found}: p-value {text_up(self.p_value, 3)}, {self.reports:,} reports"

    def _sections(self) -> list[Section]:
        fakes = f"at least {self.smallest_share_of_fakes:.4%} of the reports"
        rows = [("alarm", text_near(self.alarm)), *[("fakes", fakes)] * self.suspicious]
        return [Section(("", ""), rows)]

    def _remarks(self) -> tuple[str, ...]:
        return self.findings

    @property
    def suspicious(self) -> bool:
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


@takes(plan=Plan, tally=Tally)
def screen(plan: Plan, tally: Tally, *, alarm: float = 1e-3) -> Screening:
    """Look for traces of fake reports in the tally of a complete crowd; see docs/screen.md.

    An incomplete crowd is refused as by `estimate`, and so are crowds whose people may be the same
    if the plan has memory. `alarm` is the probability with which an honest crowd is suspicious.
    """
    if not 0 < check_number("alarm", alarm) < 1:
        raise InputError(f"alarm must be strictly between 0 and 1, got alarm={alarm}.")
    check_crowd(plan, tally)
    about = tally.reports, plan.id, len(tally.crowds)
    if plan.memory is not None and plan.max_reports_per_person > 1:
        return Screening(1.0, alarm, (NOT_TESTED,), 0.0, *about)
    if plan.noise is not None:
        return Screening(1.0, alarm, (UNDER_NOISE,), 0.0, *about)
    limits, dropped = [], 0.0
    if plan.view == "counts":
        limits, overflow = [COUNTS_ONLY], overflow_of(plan)
        if overflow is not None:
            # Honest reports that drop bits are like whole ones but for this probability.
            dropped = tally.reports * overflow.chance(float(plan.q))
    tests = families(plan, tally)
    traces = [(len(tests) * p + dropped, say) for family in tests for p, say in family(0)]
    traces.sort(key=lambda trace: trace[0])
    p_value = min(max(traces[0][0], SMALLEST), 1.0)
    if p_value > alarm:
        return Screening(p_value, alarm, (CLEAN, *limits), 0.0, *about)
    findings = (*(say() for p, say in traces if p <= alarm), *limits)
    share = _min_fakes(tests, tally.reports, alarm - dropped) / tally.reports
    return Screening(p_value, alarm, findings, share, *about)


class Trace(NamedTuple):
    """One test: its p-value within the family, and a function that describes it."""

    p_value: float
    sentence: Callable[[], str]


Family = Callable[[int], Iterator[Trace]]
"""Tests of one kind: yields the strongest traces against at most `fakes` fakes."""


def _min_fakes(tests: list[Family], reports: int, alarm: float) -> int:
    """Return the least number of fakes that is not rejected; p-values rise with it."""

    def rejected(fakes: int) -> bool:
        return any(p <= alarm / len(tests) for family in tests for p, _ in family(fakes))

    return largest(rejected, 0, reports - 1, rtol=_PRECISION) + 1


def families(plan: Plan, tally: Tally) -> list[Family]:
    """Return the families that a plan and the kind of its tally allow, whatever was counted."""
    tests = [_bits(plan, tally), _totals(plan, tally)]
    if tally.by_set_bits is not None:
        lowest, highest = _set_bit_range(plan)
        small = (highest - lowest + 1) * (plan.bits + 1) <= MAX_PMF_CELLS
        tests.insert(0, _set_bits(plan, tally.by_set_bits, exactly=small))
        if small:
            pmfs = set_bit_pmfs(plan.bits, lowest, highest, float(plan.q))
            cuts = [bins(pmfs, runs) for runs in RUNS]
            distinct = [c for i, c in enumerate(cuts) if not i or c.size != cuts[i - 1].size]
            tests.append(_shape(pmfs, tally.by_set_bits, distinct, "numbers of set bits"))
    if tally.cohorts is not None:
        tests.append(_cohorts(plan, tally))
    if tally.by_vector is not None and plan.bits <= MAX_VECTOR_BITS:
        tests.append(_vectors(plan, tally))
        if plan.bits <= MAX_SHAPE_BITS:
            pmfs, counts = _vector_pmfs(plan), np.zeros(1 << plan.bits, np.int64)
            for name, count in tally.by_vector.items():
                counts[int(name, 16)] += count
            tests.append(_shape(pmfs, counts, [np.arange(counts.size)], "vectors' frequencies"))
    return tests


def _set_bit_range(plan: Plan) -> tuple[int, int]:
    survey = plan.survey
    return sum(q.min_set_bits for q in survey), sum(q.max_set_bits for q in survey)


def _set_bits(plan: Plan, seen: Counts, *, exactly: bool) -> Family:
    """Test for too many reports with many, with few or with one exact number of set bits."""
    lowest, highest = _set_bit_range(plan)
    bits, q, reports = plan.bits, float(plan.q), int(seen.sum())
    low, high = (set_bit_pmfs(bits, k, k, q)[0] for k in (lowest, highest))
    # More true bits make more set bits likelier, so the extreme originals bound the tails.
    parts = [np.cumsum(seen[::-1])[::-1][1:], np.cumsum(seen)[:-1]]
    tails = [np.cumsum(high[::-1])[::-1][1:], np.cumsum(low)[:-1]]
    if exactly:
        parts.append(seen)
        tails.append(set_bit_pmfs(bits, lowest, highest, q).max(axis=0))
    counts, rates = np.concatenate(parts), np.concatenate(tails)
    rates = np.minimum(rates * (1 + 1e-9), 1.0)

    def sentence(i: int) -> str:
        kind, place = divmod(i, bits)
        many = (f"{place + 1} or more", f"{place} or fewer")
        words = many[kind] if kind < 2 else f"exactly {i - 2 * bits}"
        return (
            f"{counts[i]:,} reports have {words} set bits; an honest crowd is"
            f" expected to have at most {text_up(reports * rates[i])}."
        )

    def p_values(fakes: int) -> Floats:
        return hoeffding_at_least(counts - fakes, reports - fakes, rates)

    return _strongest(p_values, sentence)


def _bits(plan: Plan, tally: Tally) -> Family:
    """Test for a bit that fewer reports show than flips would, or more than the truth could."""
    q, reports, ones = float(plan.q), tally.reports, tally.by_bit

    def sentence(i: int) -> str:
        few, place = i < plan.bits, i % plan.bits
        question, label = plan.survey.labels[place]
        return (
            f"Option {label!r} of question {question!r} is set in {ones[place]:,} reports;"
            f" an honest crowd is expected to set it in at {'least' if few else 'most'}"
            f" {reports * (q if few else 1 - q):,.0f}."
        )

    return _strongest(partial(_bit_p_values, ones, reports, q), sentence)


def _cohorts(plan: Plan, tally: Tally) -> Family:
    """Test every bit within each cohort, where all reports of a text look alike."""
    assert tally.cohorts is not None
    reports = np.array([cohort.reports for cohort in tally.cohorts])[:, None]
    ones = np.array([cohort.by_bit for cohort in tally.cohorts])

    def sentence(i: int) -> str:
        cohort, place = divmod(i % ones.size, plan.bits)
        return (
            f"{ones[cohort, place]:,} of the {reports[cohort, 0]:,} reports of cohort"
            f" {cohort} set bit {place}; an honest crowd hardly ever does."
        )

    return _strongest(partial(_bit_p_values, ones, reports, float(plan.q)), sentence)


def _bit_p_values(ones: Counts, reports: Counts | int, q: float, fakes: int) -> Floats:
    """Bound a count between Bin(n, q) and Bin(n, p): every report shows a bit with q or p."""
    honest = np.maximum(np.asarray(reports) - fakes, 0)
    # Of f fakes all may lack the bit, or all may have it.
    few = np.where(ones >= honest, 1.0, at_most(ones, honest, q))
    many = at_most(honest - (ones - fakes), honest, q)
    return np.concatenate((few.ravel(), many.ravel()))


def _totals(plan: Plan, tally: Tally) -> Family:
    """Test all bits of a question together: the counts of a choice must add up."""
    q, reports = float(plan.q), tally.reports
    parts = [
        (question.name, part, sum(tally.by_bit[place].tolist()))
        for question, place, part in plan.survey.parts
    ]

    def sentence(question: str, part: QuestionPart, ones: int, *, low: bool) -> str:
        set_bits = part.min_set_bits if low else part.max_set_bits
        rate = set_bits * (1 - q) + (part.bits - set_bits) * q
        return (
            f"The reports set {ones:,} bits of question {question!r}; an honest crowd is"
            f" expected to set at {'least' if low else 'most'} {reports * rate:,.0f}."
        )

    def traces(fakes: int) -> Iterator[Trace]:
        for name, part, ones in parts:
            domain = part.bits, part.min_set_bits, part.max_set_bits
            few, many = sum_p_values(ones, reports, *domain, q, fakes)
            if plan.max_weight is not None:  # a fake sets no more bits, any of them
                fewer = fakes * max(part.bits - plan.max_weight, 0)
                _, many = sum_p_values(ones + fewer, reports, *domain, q, fakes)
            for p, low in ((few, True), (many, False)):
                yield Trace(p * 2 * len(parts), partial(sentence, name, part, ones, low=low))

    return traces


def _shape(pmfs: Floats, counts: Counts, cuts: list[NDArray[np.intp]], what: str) -> Family:
    """Test for a histogram that no mixture of answers makes, at any of several cuts."""

    def sentence() -> str:
        return f"The {what} do not fit any mixture of honest answers under the plan's flips."

    def traces(fakes: int) -> Iterator[Trace]:
        evidence = log_evidence(pmfs, counts, cuts, fakes / int(counts.sum()))
        yield Trace(float(np.exp(min(-evidence, 0.0))), sentence)

    return traces


def _vectors(plan: Plan, tally: Tally) -> Family:
    """Test for a vector that comes more often than if it were everybody's answer."""
    assert tally.by_vector is not None
    names, q, reports = list(tally.by_vector), float(plan.q), tally.reports
    counts = np.array(list(tally.by_vector.values()), np.int64)
    packed = np.frombuffer(bytes.fromhex("".join(names)), np.uint8)
    rows = packed.reshape(-1, row_bytes(plan.bits))
    vectors = np.unpackbits(rows, axis=1, count=plan.bits, bitorder="little")
    rates = np.full(len(counts), 1 + 1e-9)
    for _, place, part in plan.survey.parts:
        ones = vectors[:, place].sum(axis=1, dtype=np.int64)
        # The nearest allowed answer makes a vector likeliest.
        flips = np.maximum(np.maximum(0, ones - part.max_set_bits), part.min_set_bits - ones)
        rates *= q**flips * (1 - q) ** (part.bits - flips)
    rates = np.minimum(rates, 1.0)

    def sentence(i: int) -> str:
        return (
            f"{counts[i]:,} reports are the vector {names[i]}; an honest crowd is"
            f" expected to send it at most {text_up(reports * rates[i])} times."
        )

    def p_values(fakes: int) -> Floats:
        return hoeffding_at_least(counts - fakes, reports - fakes, rates)

    return _strongest(p_values, sentence, tests=2.0**plan.bits)


def _vector_pmfs(plan: Plan) -> Floats:
    """Return the probability of each reported vector, a row for each allowed answer."""
    values, q = np.arange(1 << plan.bits), float(plan.q)
    allowed = [
        value
        for value in values.tolist()
        if all(
            part.min_set_bits
            <= (value >> place.start & (1 << part.bits) - 1).bit_count()
            <= part.max_set_bits
            for _, place, part in plan.survey.parts
        )
    ]
    flips = np.bitwise_count(np.array(allowed)[:, None] ^ values)
    return np.asarray(q**flips * (1 - q) ** (plan.bits - flips))


def _strongest(
    p_values: Callable[[int], Floats], sentence: Callable[[int], str], tests: float | None = None
) -> Family:
    """Return the family of many tests, by default as many as p-values."""

    def traces(fakes: int) -> Iterator[Trace]:
        found = p_values(fakes)
        for i in np.argsort(found, kind="stable")[:_SHOWN].tolist():
            yield Trace(float(found[i]) * (tests or found.size), partial(sentence, i))

    return traces
