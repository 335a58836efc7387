"""Original to Synthetic: every bit is flipped with probability q, independently of all others.

The sampler is exact. With q = 0.d1 d2 ... dk in binary and fair bits r1 ... rk, it computes
[U < q] for the uniform number U = 0.(1-r1)(1-r2)...(1-rk), from the least significant digit on:

    x = 0;   for j = k, ..., 1:   x = (x | rj) if dj is 1 else (x & rj)

on all bits of a vector at once. The noise is drawn before the original is touched, and how much is
drawn depends on the plan alone. One vector is an integer; ten million rows are arrays, in
`shoal.device.arrays.randomize`. From the same random bits both make the same synthetic vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from shoal.device.encode import OriginalVector, SyntheticVector, check_vector, encode
from shoal.errors import InputError, ReportError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import RandomBits, SystemBits, draw_below
from shoal.protocol.wire import (
    ID_BYTES,
    Reports,
    Synthetic,
    checked_window,
    join_report,
    report_bytes,
)
from shoal.support.checks import takes

if TYPE_CHECKING:
    from shoal.device.arrays.randomize import Original
    from shoal.support.table_format import TableFormat


_WORD_BITS = 64
_SYSTEM_BITS = SystemBits()


@overload
def randomize(  # type: ignore[overload-overlap]  # a mapping is one answer, all else is many
    plan: Plan, answers: Mapping[str, Any], *, random_bits: RandomBits | None = None
) -> SyntheticVector: ...


@overload
def randomize(
    plan: Plan,
    answers: object,
    *,
    table_format: TableFormat | None = None,
    random_bits: RandomBits | None = None,
) -> Synthetic: ...


@takes(plan=Plan)
def randomize(
    plan: Plan,
    answers: object,
    *,
    table_format: TableFormat | None = None,
    random_bits: RandomBits | None = None,
) -> SyntheticVector | Synthetic:
    """Encode one answer, or a table of answers, and flip each bit with probability q.

    Parameters
    ----------
    plan
        The plan that the answers are for. Whether it keeps its promise is not computed here:
        `shoal.Outbox` and the commands do that before the first answer.
    answers
        One mapping from question to value, a list of mappings, or a table (Arrow, pandas,
        polars), as in `shoal.device.encode.encode`.
    table_format
        How cells of a table are written: a `shoal.support.table_format.TableFormat`.
    random_bits
        The source of noise. Leave it out to use the operating system; reports made with
        `SimulationBits` are marked as simulated.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan, randomize
    >>> agreed = plan(Survey("tools", (Flags("used", ("a", "b")),)), q=0.25)
    >>> randomize(agreed, [{"used": ["a"]}, {"used": []}])
    Synthetic(2 x 2 bits)
    """
    original = encode(plan, answers, table_format=table_format, random_bits=random_bits)
    return flip(plan, original, random_bits=random_bits)


@overload
def flip(
    plan: Plan | FlipProbability, original: OriginalVector, *, random_bits: RandomBits | None = None
) -> SyntheticVector: ...


@overload
def flip(
    plan: Plan | FlipProbability, original: Original, *, random_bits: RandomBits | None = None
) -> Synthetic: ...


def flip(
    plan: Plan | FlipProbability,
    original: OriginalVector | Original,
    *,
    random_bits: RandomBits | None = None,
) -> SyntheticVector | Synthetic:
    """Flip each bit of one encoded vector, or of each of many, with probability q.

    A plan refuses a vector outside its domain, such as two options of a choice, because its noise
    does not hide that vector. A flip probability alone has no domain and no promise.
    """
    if not isinstance(original, OriginalVector):
        from shoal.device.arrays.randomize import Original, randomize_rows

        if not isinstance(original, Original):
            raise InputError(f"flip takes encoded answers, got {type(original).__name__}.")
    if isinstance(plan, Plan) and plan.bits != original.bits:
        raise InputError(f"the plan has {plan.bits} bits, the original {original.bits}.")
    source = _SYSTEM_BITS if random_bits is None else random_bits
    if not isinstance(original, OriginalVector):
        return randomize_rows(original, plan, source)
    if isinstance(plan, Plan):
        check_vector(original.value, plan.survey)
    q = plan.q if isinstance(plan, Plan) else plan
    flipped = original.value ^ draw_flips(original.bits, q, source)
    return SyntheticVector(flipped, original.bits, original.cohort, source.simulated)


def fit_to_weight(synthetic: SyntheticVector, max_weight: int | None) -> SyntheticVector:
    """Return the vector with at most `max_weight` set bits, as of `Plan.max_weight`.

    Which set bits are dropped is random, each choice as likely as any other.
    """
    positions = [place for place in range(synthetic.bits) if synthetic.value >> place & 1]
    excess = 0 if max_weight is None else len(positions) - max_weight
    value = synthetic.value
    for _ in range(excess):
        value ^= 1 << positions.pop(draw_below(len(positions), _SYSTEM_BITS))
    return SyntheticVector(value, synthetic.bits, synthetic.cohort, synthetic.simulated)


def draw_flips(bits: int, q: FlipProbability, random_bits: RandomBits) -> int:
    """Return a number of `bits` bits, each set with probability exactly q."""
    digits = q.binary_digits()
    size = -(-bits // _WORD_BITS) * _WORD_BITS // 8
    fair = bytearray(len(digits) * size)
    random_bits.fill(fair)
    words = [int.from_bytes(fair[at : at + size], "little") for at in range(0, len(fair), size)]
    flips = words[0]  # the last digit is 1, since the fraction is in lowest terms
    for digit, word in zip(digits[1:], words[1:], strict=True):
        flips = flips | word if digit else flips & word
    return flips & ((1 << bits) - 1)


def pack_reports(
    plan: Plan, synthetic: SyntheticVector | Synthetic, *, window: int | None = None
) -> Reports:
    """Wrap one synthetic vector, or many, as reports, each with a fresh random id.

    Unless `window` says otherwise, they are of the window that this machine's clock says is open.
    A plan without windows has window 0 only.
    """
    if not isinstance(synthetic, (SyntheticVector, Synthetic)):
        raise ReportError(f"only synthetic vectors are sent, got {type(synthetic).__name__}.")
    if synthetic.bits != plan.bits:
        raise ReportError(f"the plan has {plan.bits} bits, the vectors have {synthetic.bits}.")
    if synthetic.simulated:
        raise ReportError("simulated vectors are not for release; randomize without a seed.")
    window = checked_window(plan, window)
    if isinstance(synthetic, Synthetic):
        from shoal.device.arrays.randomize import pack_rows

        return pack_rows(plan, synthetic, window)
    if (plan.cohorts is None) != (synthetic.cohort is None):
        raise ReportError("a vector has a cohort exactly when its plan has cohorts.")
    if synthetic.cohort is not None and not 0 <= synthetic.cohort < (plan.cohorts or 0):
        raise ReportError(f"a cohort must be below {plan.cohorts}, got {synthetic.cohort}.")
    report = join_report(SystemBits().draw(ID_BYTES), window, synthetic.cohort, synthetic.row)
    return Reports(plan.id, report_bytes(plan), report)
