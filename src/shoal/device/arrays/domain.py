"""Whether many originals are in the domain that a plan's noise was chosen for.

It looks at 64 bits of a row at a time wherever they begin, and at every bit of every row.
`shoal.device.domain` says why, and looks at one vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.device.domain import outside_domain
from shoal.protocol.questions import Part
from shoal.protocol.survey import Survey
from shoal.protocol.vectors import Rows

__all__ = ["check_domain"]

_ROWS = 1 << 15
_WINDOW = 64


class _Window(NamedTuple):
    """So many parts with exactly one set bit, all within 64 bits behind a byte of the row.

    `mask` are their bits and `lowest` the first bit of each.
    """

    byte: int
    mask: np.uint64
    lowest: np.uint64
    parts: int

    def is_right(self, words: NDArray[np.uint64]) -> bool:
        """Whether each of the parts has exactly one set bit in each word.

        Subtracting `lowest` takes 1 from each block. A block with one set bit then has none left
        in common with what it was, a block with more has. A block with none borrows from the next:
        that one loses 2 in all, and if it had several bits set, the second of them, or its first
        bit, stays in common. So if nothing is in common, no block has more than one, and if there
        are as many bits as blocks, none has less.
        """
        bits = np.bitwise_and(words, self.mask)
        common = np.subtract(bits, self.lowest)
        np.bitwise_and(common, bits, out=common)
        if np.bitwise_or.reduce(common):
            return False
        count = np.bitwise_count(bits)
        return int(count.min()) == int(count.max()) == self.parts


class _Block(NamedTuple):
    """A part with limits of its own, as masks of 64 bits behind bytes of the row."""

    part: Part
    masks: tuple[tuple[int, np.uint64], ...]


def check_domain(rows: Rows, survey: Survey) -> None:
    """Raise `AnswerError` unless every packed row is an original that the survey allows.

    >>> from shoal import Choice
    >>> check_domain(np.array([[1], [3]], np.uint8), Survey("s", (Choice("c", ("a", "b")),)))
    Traceback (most recent call last):
    ...
    shoal.errors.AnswerError: original 2 sets 2 bits of question 'c', which allows 1; ...
    """
    windows, blocks = _looks(survey)
    if not windows and not blocks:
        return
    flat, width = np.ascontiguousarray(rows).reshape(-1), rows.shape[1]
    for start in range(0, len(rows), _ROWS):
        count = min(_ROWS, len(rows) - start)
        piece = flat[start * width :]
        if (count + 1) * width + 8 > piece.size:  # a look must not reach beyond the last row
            piece = np.zeros((count + 1) * width + 8, np.uint8)
            piece[: count * width] = flat[start * width : (start + count) * width]

        def words(byte: int, piece: Rows = piece, count: int = count) -> NDArray[np.uint64]:
            return np.ndarray((count,), "<u8", piece, byte, (width,))

        right = all(window.is_right(words(window.byte)) for window in windows) and all(
            _is_right(block.part, (words(byte) & mask for byte, mask in block.masks))
            for block in blocks
        )
        if not right:
            _refuse(rows[start : start + count], survey, start)


def _is_right(part: Part, pieces: Iterator[NDArray[np.uint64]]) -> bool:
    """Whether the set bits of all pieces of a part are as many as it allows."""
    total: NDArray[np.unsignedinteger] = np.bitwise_count(next(pieces))
    for piece in pieces:
        # Several pieces are seldom; at most 65,536 bits in all.
        total = np.add(total, np.bitwise_count(piece), dtype=np.uint32)
    fewest, most = part.fewest_set_bits, part.most_set_bits
    return int(total.max()) <= most and (fewest == 0 or int(total.min()) >= fewest)


def _looks(survey: Survey) -> tuple[list[_Window], list[_Block]]:
    """Return where to look, which is worked out once for a survey."""
    looks: tuple[list[_Window], list[_Block]] | None = vars(survey).get("_looks")
    if looks is None:
        looks = list(_windows(survey)), list(_blocks(survey))
        vars(survey)["_looks"] = looks
    return looks


def _fits_a_window(place: slice, part: Part) -> bool:
    return part.takes_one and place.stop - place.start // 8 * 8 <= _WINDOW


def _windows(survey: Survey) -> Iterator[_Window]:
    places = [place for _, place, part in survey.parts if _fits_a_window(place, part)]
    while places:
        first_bit = places[0].start // 8 * 8
        here = [place for place in places if place.stop <= first_bit + _WINDOW]
        places = places[len(here) :]
        mask = sum((1 << place.stop) - (1 << place.start) for place in here) >> first_bit
        lowest = sum(1 << place.start for place in here) >> first_bit
        yield _Window(first_bit // 8, np.uint64(mask), np.uint64(lowest), len(here))


def _blocks(survey: Survey) -> Iterator[_Block]:
    for _, place, part in survey.parts:
        free = part.fewest_set_bits == 0 and part.most_set_bits == part.bits
        if free or _fits_a_window(place, part):
            continue
        masks = []
        for byte in range(place.start // 8, -(-place.stop // 8), 8):
            first, last = max(place.start, 8 * byte), min(place.stop, 8 * byte + _WINDOW)
            mask = ((1 << last) - (1 << first)) >> (8 * byte)
            masks.append((byte, np.uint64(mask)))
        yield _Block(part, tuple(masks))


def _refuse(rows: Rows, survey: Survey, before: int) -> None:
    """Say which original it is, and how many bits of which question it sets."""
    vectors = np.unpackbits(rows, axis=1, count=survey.bits, bitorder="little")
    for question, place, part in survey.parts:
        fewest, most = part.fewest_set_bits, part.most_set_bits
        count = vectors[:, place].sum(axis=1, dtype=np.int64)
        wrong = np.flatnonzero((count < fewest) | (count > most))
        if wrong.size:
            first = int(wrong[0])
            raise outside_domain(
                f"original {before + first + 1}", question, part, int(count[first])
            )
    raise AssertionError("a look at whole words and a look at single bits disagree")
