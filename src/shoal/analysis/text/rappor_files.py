"""A RAPPOR collection as google/rappor writes it: counts of bits by cohort, and candidates.

counts.csv  one row per cohort without a header: the reports of the cohort, then how many of them
            report a 1 at each of the k bits.
map.csv     one row per candidate without a header: the text, then the h bits that it sets in each
            cohort in turn. Positions are numbered from 1 over all cohorts, so that cohort j
            (from 0) has those from k j + 1 to k j + k. Where two hashes of a text hit one bit the
            position is there twice, or once and an empty cell ends the row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.planning.rappor import RapporParameters
from shoal.support.checks import shown

__all__ = ["RapporCollection", "RapporMap", "read_counts", "read_map"]

LARGEST_FILE = 1 << 30
LARGEST_COUNT = 1 << 53
EMPTY = "(empty)"
"""What a candidate of no letters is called."""


@dataclass(frozen=True, eq=False)
class RapporCollection:
    """Of every cohort the number of reports, and of every bit in it the number of ones."""

    sizes: NDArray[np.int64]
    ones: NDArray[np.int64]

    def __post_init__(self) -> None:
        if (self.ones > self.sizes[:, None]).any():
            cohort, bit = (int(place[0]) for place in np.nonzero(self.ones > self.sizes[:, None]))
            raise InputError(
                f"cohort {cohort + 1} has {self.sizes[cohort]:,} reports but"
                f" {self.ones[cohort, bit]:,} ones at bit {bit + 1}; the first number of a row is"
                " how many reports the cohort has."
            )
        if not self.sizes.sum():
            raise InputError("the counts are of no reports; there is nothing to decode.")

    @property
    def reports(self) -> int:
        """How many reports were counted."""
        return int(self.sizes.sum())


@dataclass(frozen=True, eq=False)
class RapporMap:
    """Candidates and the bits they set: shape (cohorts, hashes, candidates), from 0.

    Where two hashes hit the same bit the second stands at k, which is nowhere. `repeated` is how
    many candidates were left out because they came before.
    """

    texts: tuple[str, ...]
    positions: NDArray[np.int32]
    repeated: int


def read_counts(path: Path | str, parameters: RapporParameters) -> RapporCollection:
    """Read counts.csv: a row for each of the m cohorts, its reports and then k counts."""
    wanted = parameters.k + 1
    rows = []
    for line, cells in _rows(Path(path), "counts"):
        if len(cells) != wanted:
            raise InputError(
                f"row {line} of {path} has {len(cells):,} numbers, but k={parameters.k} bits and"
                f" the number of reports make {wanted:,}."
            )
        rows.append([_count(cell, line, path) for cell in cells])
        if len(rows) > parameters.m:
            break
    if len(rows) != parameters.m:
        more = "more than " if len(rows) > parameters.m else ""
        raise InputError(
            f"{path} has {more}{min(len(rows), parameters.m):,} rows, but the parameters say"
            f" m={parameters.m:,} cohorts; write one row for each cohort."
        )
    table = np.array(rows, np.int64)
    return RapporCollection(table[:, 0], table[:, 1:])


def read_map(path: Path | str, parameters: RapporParameters) -> RapporMap:
    """Read map.csv: a row for each candidate, its text and then its h positions of each cohort."""
    k, h, m = parameters.k, parameters.h, parameters.m
    texts: dict[str, list[int]] = {}
    total = 0
    for line, cells in _rows(Path(path), "candidates"):
        total += 1
        if len(cells) != h * m + 1:
            raise InputError(
                f"row {line} of {path} has {len(cells) - 1:,} positions, but h={h} hashes in"
                f" m={m} cohorts make {h * m:,}."
            )
        text = cells[0] or EMPTY
        if text not in texts:
            texts[text] = [_count(cell, line, path) for cell in cells[1:] if cell]
    if not texts:
        raise InputError(f"there are no candidates in {path}.")
    places = np.full((m, h, len(texts)), k, np.int32)
    for candidate, (text, numbers) in enumerate(texts.items()):
        try:
            places[:, :, candidate] = _by_cohort(numbers, k, h, m)
        except InputError as error:
            raise InputError(f"candidate {shown(text)} in {path} {error}") from None
    return RapporMap(tuple(texts), places, total - len(texts))


def _by_cohort(numbers: Sequence[int], k: int, h: int, m: int) -> NDArray[np.int32]:
    """Return the bits of one candidate: shape (cohorts, hashes), k where hashes collide."""
    bits: list[list[int]] = [[] for _ in range(m)]
    for number in sorted(set(numbers)):
        if not 1 <= number <= k * m:
            raise InputError(
                f"has position {number:,}; k={k} bits in m={m} cohorts are numbered from 1 to"
                f" {k * m:,}."
            )
        bits[(number - 1) // k].append((number - 1) % k)
    for cohort, own in enumerate(bits):
        if not 1 <= len(own) <= h:
            raise InputError(
                f"has {len(own)} positions from {k * cohort + 1:,} to {k * cohort + k:,}, those of"
                f" cohort {cohort + 1}, where h={h} hashes set 1 to {h} bits."
            )
    return np.array([own + [k] * (h - len(own)) for own in bits], np.int32)


def _rows(path: Path, what: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the rows of a CSV file with their line numbers; empty lines are none."""
    csv.field_size_limit(1 << 17)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} is larger than {LARGEST_FILE >> 20} MiB.")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for cells in reader:
                if cells:
                    yield reader.line_num, [cell.strip() for cell in cells]
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InputError(f"cannot read RAPPOR's {what} {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"RAPPOR's {what} {path} are not UTF-8 text.") from error
    except csv.Error as error:
        raise InputError(f"RAPPOR's {what} {path} are not CSV: {error}.") from error


def _count(cell: str, line: int, path: Path | str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 16 and int(cell) < LARGEST_COUNT):
        raise InputError(
            f"row {line} of {path} has {shown(cell)} where a whole number belongs; RAPPOR's files"
            " have no header here."
        )
    return int(cell)
