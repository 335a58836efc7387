"""A tally and candidates to the texts a crowd answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shoal._check import check_level, check_number
from shoal.decoding.candidates import check_candidates
from shoal.decoding.design import Design, Floats, Places, make_design
from shoal.decoding.fitting import Data, Fit, make_data
from shoal.decoding.inference import conditional_low, covariance, excess, spread
from shoal.decoding.selecting import Selection, select
from shoal.errors import InputError
from shoal.estimating import estimate
from shoal.hashing import normal_text
from shoal.intervals import Interval, normal_factor
from shoal.plans import Plan
from shoal.questions import Text, listed
from shoal.survey import Survey
from shoal.tallying import Tally

__all__ = ["Decoded", "DecodedText", "decode"]

ALIKE = 0.75
"""Candidates that set this share of their bits alike are listed as hard to tell apart."""


@dataclass(frozen=True)
class DecodedText:
    """How many people answered one text.

    `count` is the least-squares estimate, unbiased and perhaps negative, and `sigma` its standard
    deviation. `constrained` is the non-negative fit: the texts found together, 0 for the others.
    `same_as` are candidates that set the same bits in every cohort: the count is of all of them.
    """

    value: str
    count: float
    sigma: float
    low: float
    high: float
    found: bool
    constrained: float
    same_as: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Inside:
    """What covariances are computed from."""

    data: Data
    design: Design
    fit: Fit
    pattern: Mapping[str, int]


@dataclass(frozen=True)
class Decoded(Sequence[DecodedText]):
    """The candidates by falling count; ``decoded["word"]`` is the row of one of them.

    `unexplained` is how many reports the texts found do not account for, and `other_texts` how many
    people answered a text that was not found; the rest of the unexplained answered nothing. `alike`
    lists groups of candidates that are hard to tell apart, those found first.
    """

    question: str
    reports: int
    fdr: float
    level: float
    texts: tuple[DecodedText, ...]
    unexplained: float
    unexplained_sigma: float
    other_texts: float
    other_texts_sigma: float
    alike: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    simulated: bool
    _inside: _Inside = field(repr=False, compare=False)

    @cached_property
    def _by_value(self) -> dict[str, DecodedText]:
        return {value: row for row in self.texts for value in (row.value, *row.same_as)}

    @property
    def found(self) -> tuple[DecodedText, ...]:
        """The texts that were found, by falling count."""
        return tuple(row for row in self.texts if row.found)

    def __getitem__(self, key: Any) -> Any:  # a text, or a place in the order
        if not isinstance(key, str):
            return self.texts[key]
        try:
            return self._by_value[normal_text(key)]
        except KeyError:
            raise InputError(f"{key!r} is not among the candidates.") from None

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[DecodedText]:
        return iter(self.texts)

    def covariance(self, values: Iterable[str]) -> Floats:
        """Return the covariance matrix of the counts of texts that were found."""
        return covariance(*self._parts, self._combinations(values))

    def total(self, values: Iterable[str]) -> Interval:
        """Return an interval for the people behind several texts that were found, together.

        It treats the texts as chosen beforehand.
        """
        whole = self._combinations(values).sum(axis=0, keepdims=True)
        counts = np.append(self._inside.fit.background, self._inside.fit.counts)
        centre = float((whole @ counts)[0])
        reach = normal_factor(self.level) * float(spread(*self._parts, whole)[0])
        return Interval(max(centre - reach, 0.0), centre + reach, self.level, "normal")

    @property
    def _parts(self) -> tuple[Data, Design, Fit]:
        return self._inside.data, self._inside.design, self._inside.fit

    def _combinations(self, values: Iterable[str]) -> Floats:
        chosen = self._inside.fit.chosen
        rows = []
        for value in values:
            if not self[value].found:
                raise InputError(f"{value!r} was not found, so its count is not fitted.")
            rows.append(np.flatnonzero(chosen == self._inside.pattern[self[value].value]))
        combinations = np.zeros((len(rows), len(chosen) + 1))
        combinations[np.arange(len(rows)), np.ravel(rows).astype(int) + 1] = 1
        return combinations

    def to_json(self) -> dict[str, Any]:
        """Return the document that `shoal decode --json` prints."""
        return {
            "question": self.question,
            "reports": self.reports,
            "fdr": self.fdr,
            "level": self.level,
            "simulated": self.simulated,
            "unexplained": {"count": self.unexplained, "sigma": self.unexplained_sigma},
            "other_texts": {"count": self.other_texts, "sigma": self.other_texts_sigma},
            "notes": list(self.notes),
            "alike": [list(group) for group in self.alike],
            "candidates": [_row(text) for text in self.texts],
        }


def decode(
    plan: Plan,
    tally: Tally,
    candidates: Iterable[str],
    *,
    question: str | None = None,
    fdr: float = 0.05,
    level: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> Decoded:
    """Find which candidates a crowd answered, and how many people answered each.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports. A plan with a crowd refuses a tally of fewer
        reports.
    candidates
        Texts that somebody may have answered: a list, or a column of a table. They are taken in
        normal form; empty ones and repetitions are left out, with a note.
    question
        Which text question; needed if the survey has several.
    fdr
        The expected share, strictly between 0 and 1, of texts nobody answered among those found.
    level
        The confidence level of the intervals.
    progress
        Called with the number of candidates hashed since the last call.

    Examples
    --------
    >>> import shoal
    >>> survey = shoal.Survey("words", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    >>> made = shoal.plan(survey, q="0.05")
    >>> answers = [{"word": "tea"}] * 300 + [{"word": "coffee"}] * 700
    >>> noise = shoal.SimulationBits(1)
    >>> originals = shoal.encode(survey, answers, random_bits=noise)
    >>> counted = shoal.tally(made, shoal.randomize(originals, made, random_bits=noise))
    >>> decoded = decode(made, counted, ["coffee", "tea", "cocoa", "water"])
    >>> [(text.value, round(text.count)) for text in decoded.found]
    [('coffee', 706), ('tea', 298)]
    """
    check_level(level)
    if not 0 < check_number("fdr", fdr) < 1:
        raise InputError(f"fdr must be strictly between 0 and 1, got fdr={fdr}. Try 0.05.")
    estimate(plan, tally)  # refuses what cannot or must not be estimated from
    asked = _text_question(plan.survey, question)
    checked = check_candidates(candidates)
    assert tally.cohorts is not None
    hashing = plan.survey.text_hash(asked.name)
    design = make_design(hashing, checked.texts, asked.cohorts, progress)
    where = plan.survey.slice_of(asked.name)
    data = make_data(tally.cohorts, where, float(plan.q), asked.hashes)
    selected = select(data, design, fdr)
    sigmas = _sigmas(data, design, selected)
    rows = _rows(checked.texts, data, design, selected, sigmas, level)
    whole = np.append(0.0, np.isin(selected.fit.chosen, selected.found).astype(float))
    both = np.vstack((whole, np.eye(len(whole))[0]))
    explained, others = both @ np.append(selected.fit.background, selected.fit.counts)
    chance, chance_sigma = excess(selected.counts, sigmas, selected.z, selected.cutoff)
    spreads = np.hypot(spread(data, design, selected.fit, both), chance_sigma)
    return Decoded(
        asked.name,
        tally.reports,
        fdr,
        level,
        tuple(sorted(rows, key=lambda row: (-row.count, row.value))),
        tally.reports - float(explained) + chance,
        float(spreads[0]),
        float(others) + chance,
        float(spreads[1]),
        _alike(checked.texts, design, selected.found),
        _notes(checked.empty, checked.repeated),
        tally.simulated,
        _Inside(
            data,
            design,
            selected.fit,
            {checked.texts[group[0]]: pattern for pattern, group in enumerate(design.members)},
        ),
    )


def _text_question(survey: Survey, name: str | None) -> Text:
    asked = [question for question in survey if isinstance(question, Text)]
    if name is not None:
        asked = [question for question in asked if question.name == name]
        if not asked:
            survey[name]  # says so if there is no such question at all
            raise InputError(f"question {name!r} does not ask for text; estimate it.")
    if not asked:
        raise InputError("the survey asks for no text; estimate it.")
    if len(asked) > 1:
        names = listed([question.name for question in asked])
        raise InputError(f"the survey has several text questions, {names}; say which.")
    return asked[0]


def _sigmas(data: Data, design: Design, selected: Selection) -> Floats:
    sigmas, fitted = selected.sigmas.copy(), selected.fit
    sigmas[fitted.chosen] = spread(data, design, fitted, np.eye(len(fitted.chosen) + 1)[1:])
    return np.asarray(sigmas * np.sqrt(1 + selected.blur))


def _rows(
    texts: Sequence[str],
    data: Data,
    design: Design,
    selected: Selection,
    sigmas: Floats,
    level: float,
) -> list[DecodedText]:
    counts = selected.counts
    reach = normal_factor(level) * sigmas
    low, high = counts - reach, counts + reach
    found = np.zeros(design.patterns, bool)
    found[selected.found] = True
    z = counts[found] / sigmas[found]
    low[found] = conditional_low(z, selected.cutoff, level) * sigmas[found]
    low, high = np.clip(low, 0, data.reports), np.clip(high, 0, data.reports)
    constrained = np.zeros(design.patterns)
    constrained[selected.found] = _constrained(selected, data.reports)
    return [
        DecodedText(
            value=texts[group[0]],
            count=float(counts[pattern]),
            sigma=float(sigmas[pattern]),
            low=float(low[pattern]),
            high=float(high[pattern]),
            found=bool(found[pattern]),
            constrained=float(constrained[pattern]),
            same_as=tuple(texts[candidate] for candidate in group[1:]),
        )
        for pattern, group in enumerate(design.members)
    ]


def _constrained(selected: Selection, reports: int) -> Floats:
    """Return non-negative counts that fit best together and are no more than the reports."""
    from scipy.optimize import nnls

    fitted = selected.fit
    kept = np.isin(fitted.chosen, selected.found)
    counts = np.append(fitted.background, fitted.counts)
    if not (counts >= 0).all():
        root = np.linalg.cholesky(np.linalg.inv(fitted.inverse)).T
        counts, _ = nnls(root, root @ counts)
    chosen = counts[1:][kept]
    total = float(chosen.sum())
    return np.asarray(chosen * min(1.0, reports / total) if total > 0 else chosen)


def _alike(texts: Sequence[str], design: Design, found: Places) -> tuple[tuple[str, ...], ...]:
    """Group the candidates that nearly share their bits with one that was found."""
    groups: dict[int, list[int]] = {}
    for pattern, other in design.alike(found, ALIKE):
        groups.setdefault(pattern, []).append(other)
    seen: set[frozenset[int]] = set()
    listed_groups = []
    for pattern, others in groups.items():
        if (group := frozenset((pattern, *others))) not in seen:
            seen.add(group)
            listed_groups.append(
                tuple(texts[design.members[place][0]] for place in (pattern, *others))
            )
    return tuple(listed_groups)


def _notes(empty: int, repeated: int) -> tuple[str, ...]:
    notes = []
    if empty:
        notes.append(f"{empty} empty candidates were left out")
    if repeated:
        notes.append(f"{repeated} candidates stood there before, in normal form")
    return tuple(notes)


def _row(text: DecodedText) -> dict[str, Any]:
    row: dict[str, Any] = {
        "value": text.value,
        "count": text.count,
        "sigma": text.sigma,
        "low": text.low,
        "high": text.high,
        "found": text.found,
        "constrained": text.constrained,
    }
    return row | {"same_as": list(text.same_as)} if text.same_as else row
