"""Decode a collection that RAPPOR made, and state what it promised its people.

RAPPOR's bits differ from Shoal's in two ways. The channel is not symmetric: a true 0 is reported as
1 at the rate p*, and a true 1 at the rate q* (`least_squares` takes both). And its hashes may hit
one bit twice (`Design`). All else is as in `decode`, with the same approximations.

The files are those of google/rappor:

counts.csv  one row per cohort without a header: the reports of the cohort, then how many of them
            report a 1 at each of the k bits.
map.csv     one row per candidate without a header: the text, then the h bits that it sets in each
            cohort in turn. Positions are numbered from 1 over all cohorts, so that cohort j
            (from 0) has those from k j + 1 to k j + k. Where two hashes of a text hit one bit the
            position is there twice, or once and an empty cell ends the row.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.intervals import Interval
from shoal.analysis.text.decode import check_rates, explain, reading, too_few_bits
from shoal.analysis.text.least_squares import debias, merged
from shoal.analysis.text.results import DecodedTexts
from shoal.errors import InputError
from shoal.planning.rappor import RapporParameters
from shoal.support.checks import shown
from shoal.support.results import Displayed, Section, TableExport
from shoal.support.rounding import round_up, text_up
from shoal.theory.randomized_response import normal_factor


@dataclass(frozen=True)
class PersonalPromise:
    """What RAPPOR promises one person; `epsilon` is infinite where there is no bound."""

    name: str
    epsilon: float
    against: str
    status: str
    source: str

    def to_json(self) -> dict[str, Any]:
        epsilon = None if math.isinf(self.epsilon) else round_up(self.epsilon)
        return dict(vars(self)) | {"epsilon": epsilon}


@dataclass(frozen=True, repr=False)
class RapporDecoded(Displayed, TableExport):
    """The texts of a RAPPOR collection, and what was promised to the people who sent them."""

    parameters: RapporParameters
    texts: DecodedTexts

    @property
    def promises(self) -> tuple[PersonalPromise, ...]:
        """What was promised to each person, whatever is decoded."""
        one = "an observer of one report who knows its sender"
        every = "an observer of all reports that a person ever sends about one value"
        first, last = self.parameters.epsilon_1, self.parameters.epsilon_infinity
        return (
            PersonalPromise("epsilon_1", first, one, "theorem", "RAPPOR, Theorem 2"),
            PersonalPromise("epsilon_infinity", last, every, "theorem", "RAPPOR, Theorem 1"),
        )

    @property
    def explained(self) -> Interval:
        """The share of the reports that the texts found account for, with its normal interval."""
        texts = self.texts
        reach = normal_factor(texts.level) * texts.unexplained_sigma
        explained = texts.reports - texts.unexplained
        low, high = (explained - reach) / texts.reports, (explained + reach) / texts.reports
        return Interval(low, high, texts.level, "normal")

    @property
    def together(self) -> Interval:
        """The sum of the texts found and those not found, as a share of the reports.

        It is 1 within the interval if parameters, counts and map belong together and every popular
        text is a candidate (observed to cover).
        """
        regression, reports = self.texts._regression, self.texts.reports
        low, high = regression.bounds(np.ones(len(regression.fit.inverse)), self.texts.level)
        return Interval(low / reports, high / reports, self.texts.level, "normal")

    def _headline(self) -> str:
        return self.texts._headline()

    def _sections(self) -> list[Section]:
        rows = [
            (
                one.name,
                "no bound" if math.isinf(one.epsilon) else text_up(one.epsilon),
                f"against {one.against} ({one.status}; {one.source})",
            )
            for one in self.promises
        ]
        return [*self.texts._sections(), Section(("promise", "epsilon", ""), rows, prose=True)]

    def _remarks(self) -> list[str]:
        return self.texts._remarks()

    def to_arrow(self) -> Any:
        """Return the candidates as an Arrow table, at the level they were decoded with."""
        return self.texts.to_arrow()

    def __getitem__(self, text: str) -> Any:
        return self.texts[text]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def to_json(self) -> dict[str, Any]:
        """Return the document that `shoal decode --rappor --json` prints."""
        parameters = self.parameters
        return self.texts.to_json() | {
            "explained": [self.explained.low, self.explained.high],
            "together": [self.together.low, self.together.high],
            "rappor": parameters.to_json()
            | {"p_star": float(parameters.p_star), "q_star": float(parameters.q_star)},
            "promises": [promise.to_json() for promise in self.promises],
        }


def decode_rappor(
    parameters: RapporParameters | Path | str,
    counts: RapporCollection | Path | str,
    candidates: RapporMap | Path | str,
    *,
    fdr: float = 0.05,
    level: float = 0.95,
    name: str = "value",
) -> RapporDecoded:
    """Find which candidates the people of a RAPPOR collection reported, and how many each.

    Parameters
    ----------
    parameters, counts, candidates
        The collection as google/rappor writes it: params.csv, counts.csv and map.csv, as paths or
        already read.
    fdr
        The expected share, strictly between 0 and 1, of texts reported by no one among those found.
    level
        The confidence level of the intervals.
    name
        What was asked, for tables and pages.
    """
    check_rates(fdr, level)
    if not isinstance(parameters, RapporParameters):
        parameters = RapporParameters.read(parameters)
    if not isinstance(counts, RapporCollection):
        counts = read_counts(counts, parameters)
    if not isinstance(candidates, RapporMap):
        candidates = read_map(candidates, parameters)
    shape = (parameters.m, parameters.k)
    if counts.ones.shape != shape:
        raise InputError(f"the counts are of {counts.ones.shape} cohorts and bits, not of {shape}.")
    data = debias(
        counts.sizes.astype(float),
        counts.ones.astype(float),
        zero_rate=float(parameters.p_star),
        one_rate=float(parameters.q_star),
        hashes=parameters.h,
    )
    texts = explain(
        data,
        merged(candidates.positions, parameters.k),
        candidates.texts,
        question=name,
        fdr=fdr,
        level=level,
        notes=_notes(parameters, candidates, fdr),
    )
    return RapporDecoded(parameters, texts)


def _notes(parameters: RapporParameters, candidates: RapporMap, fdr: float) -> tuple[str, ...]:
    notes = []
    if candidates.repeated:
        notes.append(f"repeated candidates left out: {candidates.repeated}")
    if (collisions := int((candidates.positions == parameters.k).sum())) > 0:
        notes.append(f"hashes that hit a bit of their own text again, counted once: {collisions}")
    used = int(np.prod(candidates.positions.shape[:2]))
    if note := too_few_bits(parameters.k, used, len(candidates.texts), fdr):
        notes.append(note)
    notes.append(
        "counts are of reports; intervals hold if no person sent several of them, and everybody's"
        " cohort was drawn at random"
    )
    return tuple(notes)


LARGEST_COUNT = 1 << 53
EMPTY = "(empty)"  # the name of a candidate of no letters


@dataclass(frozen=True, eq=False)
class RapporCollection:
    """The number of reports of every cohort, and the number of ones of every bit in it."""

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
        return int(self.sizes.sum())


@dataclass(frozen=True, eq=False)
class RapporMap:
    """Candidates and the bits they set: shape (cohorts, hashes, candidates), from 0.

    Where two hashes hit the same bit the second stands at k, which is nowhere.
    """

    texts: tuple[str, ...]
    positions: NDArray[np.int32]
    repeated: int


def read_counts(path: Path | str, parameters: RapporParameters) -> RapporCollection:
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
        with reading(path, f"RAPPOR's {what}"), path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for cells in reader:
                if cells:
                    yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise InputError(f"RAPPOR's {what} {path} are not CSV: {error}.") from error


def _count(cell: str, line: int, path: Path | str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 16 and int(cell) < LARGEST_COUNT):
        raise InputError(
            f"row {line} of {path} has {shown(cell)} where a whole number belongs; RAPPOR's files"
            " have no header here."
        )
    return int(cell)
