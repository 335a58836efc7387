"""Many vectors: pack them in rows, check their domain, randomize them, pack them into reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shoal.device.encode import outside_domain
from shoal.errors import InputError, ReportError
from shoal.protocol import wire
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Plan
from shoal.protocol.questions import QuestionPart
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.survey import Survey
from shoal.protocol.wire import Cohorts, Rows, Synthetic, check_cohorts, check_rows, padding_mask
from shoal.support.kernels import Kernels, load_kernels

_WORDS = 16384
"""Noise words made at a time: 128 KiB, times the digits of q it stays in the cache."""

Bytes = NDArray[np.uint8]


def randomize_rows(
    original: Original, plan: Plan | FlipProbability, random_bits: RandomBits
) -> Synthetic:
    if isinstance(plan, Plan):
        check_domain(original.rows, plan.survey)
    q = plan.q if isinstance(plan, Plan) else plan
    truth = np.ascontiguousarray(original.rows).reshape(-1)
    out = np.empty_like(truth)
    kernels = load_kernels()
    if kernels is not None and kernels.aes and type(random_bits) is SystemBits:
        _flip_with_kernel(truth, out, q, random_bits, kernels)
    else:
        _flip(truth, out, q, random_bits)
    rows = out.reshape(original.rows.shape)
    if original.bits % 8:
        rows[:, -1] &= padding_mask(original.bits)
    return Synthetic(rows, original.bits, random_bits.simulated, original.cohorts)


def _flip(truth: Bytes, out: Bytes, q: FlipProbability, random_bits: RandomBits) -> None:
    noise = np.empty(min(_WORDS * 8, -(-truth.size // 8)), np.uint64)
    step = noise.size * 8
    for start in range(0, truth.size, step or 1):
        piece = truth[start : start + step]
        words = noise[: -(-piece.size // 8)]
        fill_flips(words, q, random_bits)
        np.bitwise_xor(piece, words.view(np.uint8)[: piece.size], out=out[start : start + step])


def _flip_with_kernel(
    truth: Bytes, out: Bytes, q: FlipProbability, random_bits: SystemBits, kernels: Kernels
) -> None:
    digits = bytes(q.binary_digits())
    source, target = truth.ctypes.data, out.ctypes.data
    for start in range(0, truth.size, _WORDS * 8):  # as many words under one key as above
        size = min(_WORDS * 8, truth.size - start)
        kernels.randomize(random_bits.key(), digits, source + start, target + start, size)


def fill_flips(out: NDArray[np.uint64], q: FlipProbability, random_bits: RandomBits) -> None:
    digits = q.binary_digits()
    fair = np.empty((len(digits), min(_WORDS, out.size)), np.uint64)
    for start in range(0, out.size, _WORDS):
        flips = out[start : start + _WORDS]
        words = (
            fair if flips.size == fair.shape[1] else np.empty((len(digits), flips.size), np.uint64)
        )
        random_bits.fill(words)
        flips[:] = words[0]  # the last digit is 1, since the fraction is in lowest terms
        for digit, word in zip(digits[1:], words[1:], strict=True):
            (np.bitwise_or if digit else np.bitwise_and)(flips, word, out=flips)


@dataclass(frozen=True, slots=True, eq=False)
class Original:
    """Vectors before randomizing: they exist on the device and nowhere else.

    Its `repr` does not show them.
    """

    rows: Rows
    bits: int
    cohorts: Cohorts | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows, self.bits)
        check_cohorts(self.cohorts, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Original({len(self)} x {self.bits} bits, not shown)"


def pack(vectors: NDArray[np.bool_ | np.integer]) -> Rows:
    """Pack an array of 0 and 1, shape (vectors, bits), into rows."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or (vectors.dtype != bool and not np.isin(vectors, (0, 1)).all()):
        raise InputError("vectors must be an array of 0 and 1 with one row per vector.")
    return np.packbits(vectors.astype(bool), axis=1, bitorder="little")


_ROWS = 1 << 15
_WORD = 64

Words = Callable[[int], NDArray[np.uint64]]
"""Returns, for each row, the 64 bits that begin at a byte of the row."""


def check_domain(rows: Rows, survey: Survey) -> None:
    """Raise `AnswerError` unless every packed row is an original that the survey allows."""
    checks = _checks_of(survey)
    if not checks:
        return
    flat, width = np.ascontiguousarray(rows).reshape(-1), rows.shape[1]
    for start in range(0, len(rows), _ROWS):
        count = min(_ROWS, len(rows) - start)
        piece = flat[start * width :]
        if (count + 1) * width + 8 > piece.size:  # a word must not reach beyond the last row
            piece = np.zeros((count + 1) * width + 8, np.uint8)
            piece[: count * width] = flat[start * width : (start + count) * width]

        def words(byte: int, piece: Rows = piece, count: int = count) -> NDArray[np.uint64]:
            return np.ndarray((count,), "<u8", piece, byte, (width,))

        if not all(check(words) for check in checks):
            _refuse(rows[start : start + count], survey, start)


def _each_sets_one(byte: int, mask: np.uint64, lowest: np.uint64, parts: int, words: Words) -> bool:
    """Whether each of the parts within a word has exactly one set bit, in every row.

    `mask` are the bits of the parts, `lowest` the first bit of each. Subtracting `lowest` takes 1
    from each part. A part with one set bit then has no bit in common with its former self, a part
    with more has. A part with none borrows from the next: that one loses 2 in all, and if it had
    several bits set, its second or its first stays in common. So if nothing is in common, no part
    has more than one bit, and if there are as many bits as parts, none has fewer.
    """
    bits = np.bitwise_and(words(byte), mask)
    common = np.subtract(bits, lowest)
    np.bitwise_and(common, bits, out=common)
    if np.bitwise_or.reduce(common):
        return False
    count = np.bitwise_count(bits)
    return int(count.min()) == int(count.max()) == parts


def _is_within(part: QuestionPart, masks: tuple[tuple[int, np.uint64], ...], words: Words) -> bool:
    """Whether a part, given as masks of words, has as many set bits as it allows, in every row."""
    pieces = (np.bitwise_count(words(byte) & mask) for byte, mask in masks)
    total: NDArray[np.unsignedinteger] = next(pieces)
    for piece in pieces:
        # A part rarely has several words; at most 65,536 bits in all.
        total = np.add(total, piece, dtype=np.uint32)
    fewest, most = part.min_set_bits, part.max_set_bits
    return int(total.max()) <= most and (fewest == 0 or int(total.min()) >= fewest)


def _checks_of(survey: Survey) -> list[Callable[[Words], bool]]:
    """Return the checks of a survey's rows, which are worked out once."""
    checks: list[Callable[[Words], bool]] | None = vars(survey).get("_domain_checks")
    if checks is None:
        checks = vars(survey)["_domain_checks"] = [*_word_checks(survey), *_part_checks(survey)]
    return checks


def _fits_a_word(place: slice, part: QuestionPart) -> bool:
    return part.takes_one and place.stop - place.start // 8 * 8 <= _WORD


def _word_checks(survey: Survey) -> Iterator[Callable[[Words], bool]]:
    places = [place for _, place, part in survey.parts if _fits_a_word(place, part)]
    while places:
        first_bit = places[0].start // 8 * 8
        here = [place for place in places if place.stop <= first_bit + _WORD]
        places = places[len(here) :]
        mask = sum((1 << place.stop) - (1 << place.start) for place in here) >> first_bit
        lowest = sum(1 << place.start for place in here) >> first_bit
        yield partial(_each_sets_one, first_bit // 8, np.uint64(mask), np.uint64(lowest), len(here))


def _part_checks(survey: Survey) -> Iterator[Callable[[Words], bool]]:
    for _, place, part in survey.parts:
        free = part.min_set_bits == 0 and part.max_set_bits == part.bits
        if free or _fits_a_word(place, part):
            continue
        masks = []
        for byte in range(place.start // 8, -(-place.stop // 8), 8):
            first, last = max(place.start, 8 * byte), min(place.stop, 8 * byte + _WORD)
            mask = ((1 << last) - (1 << first)) >> (8 * byte)
            masks.append((byte, np.uint64(mask)))
        yield partial(_is_within, part, tuple(masks))


def _refuse(rows: Rows, survey: Survey, before: int) -> None:
    vectors = np.unpackbits(rows, axis=1, count=survey.bits, bitorder="little")
    for question, place, part in survey.parts:
        fewest, most = part.min_set_bits, part.max_set_bits
        count = vectors[:, place].sum(axis=1, dtype=np.int64)
        wrong = np.flatnonzero((count < fewest) | (count > most))
        if wrong.size:
            first = int(wrong[0])
            raise outside_domain(
                f"original {before + first + 1}", question, part, int(count[first])
            )
    raise AssertionError("the checks of whole words and of single bits disagree")


def pack_rows(plan: Plan, synthetic: Synthetic, window: int) -> wire.Reports:
    """Wrap vectors that `shoal.device.randomize.pack_reports` has checked as reports."""
    cohorts = synthetic.cohorts
    if (plan.cohorts is None) != (cohorts is None):
        raise ReportError("vectors have cohorts exactly when their plan has.")
    if len(synthetic) > wire.MAX_REPORTS:
        raise ReportError(
            f"a batch holds at most {wire.MAX_REPORTS} reports, got {len(synthetic)}."
        )
    fields = wire.report_fields(plan.bits, plan.cohorts is not None)
    records = np.empty(len(synthetic), np.dtype(fields))
    if cohorts is not None:
        outside = cohorts[cohorts >= (plan.cohorts or 0)]
        if outside.size:
            raise ReportError(f"a cohort must be below {plan.cohorts}, got {outside[0]}.")
        records["cohort"] = cohorts
    ids = np.frombuffer(SystemBits().draw(wire.ID_BYTES * len(synthetic)), np.uint8)
    records["id"] = ids.reshape(-1, wire.ID_BYTES)
    records["window"], records["bits"] = window, synthetic.rows
    return wire.Reports(plan.id, records.itemsize, records.tobytes())
