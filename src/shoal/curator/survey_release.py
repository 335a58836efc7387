"""A whole survey of a table that a curator holds, released once and shown on a crowd's page.

One vector of noisy counts is all that is computed from the table: its options, crosses, means,
quantiles, charts and tests follow from it. The noise is chosen before the table is read. The budget
has recorded the expense before noise is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shoal import __version__
from shoal.analysis.estimates import nearest_feasible
from shoal.analysis.question_estimates import option_section
from shoal.curator.budget import Budget
from shoal.curator.counts import CountNoise, count_table, released_survey
from shoal.curator.estimates import NoisyCount, NoisyCross, NoisyNumbers
from shoal.curator.noise import (
    CHANGES,
    NEIGHBOURS_IN_WORDS,
    Neighbours,
    check_delta,
    check_epsilon,
    check_neighbours,
    check_public_rows,
)
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.questions import MISSING, Number, Question
from shoal.protocol.survey import Survey
from shoal.reports.formatting import Table, TableRow
from shoal.reports.page import PageText
from shoal.reports.protection import OBSERVER_HEADS, Fact, ratio_in_words
from shoal.reports.publication import WrittenResult
from shoal.reports.sections import MAX_CELLS
from shoal.support.checks import check_level, check_text
from shoal.support.results import Section
from shoal.support.rounding import text_up
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat


def release(
    survey: Survey | Path | str,
    table: Path | str | Any,
    *,
    epsilon: object,
    delta: object = None,
    neighbours: Neighbours,
    options_are_public: bool = False,
    budget: Budget | None = None,
    table_format: TableFormat | None = None,
    level: float = 0.95,
    title: str | None = None,
    date: str | None = None,
) -> SurveyRelease:
    """Release every question and cross table of a survey, from one table and one budget.

    Parameters
    ----------
    survey
        The survey, or the path of its TOML file, whose [table] section is then the format.
    table
        One row for each person: a file, a data frame, an Arrow table, a mapping from columns to
        lists, or a list of answers.
    epsilon, delta
        What the release spends, decimals. Without a delta the noise is Laplace; with one it is
        Laplace or Gaussian, whichever is smaller for this survey.
    neighbours
        ``"replace"`` (one row becomes another; the number of rows is public) or ``"add-remove"``
        (one row comes or goes; it is private). It is never guessed.
    options_are_public
        Declares that the survey's options and limits are public although they were inferred from a
        table (`inferred = true` in its [table] section). Otherwise such a survey is refused.
    budget
        Records the expense before noise is drawn, and refuses more than it has.
    table_format
        The format of the cells; by default that of the survey file.
    level, title, date
        For intervals and for the page.

    Examples
    --------
    >>> from shoal import Choice, Number
    >>> survey = Survey("shop", (Choice("brand", ("old", "new")), Number("age", low=0, high=100,
    ...     points=11)))
    >>> people = {"brand": ["old", "new", "new", ""] * 500, "age": [31, 45, 22, 67] * 500}
    >>> found = release(survey, people, epsilon=1, neighbours="replace")
    >>> round(found["brand"]["new"].sigma, 2), found["brand"]["new"].interval().compatible
    (5.66, True)
    >>> mean = found.numbers["age"].mean
    >>> 0 <= mean.low < mean.high <= 100
    True
    """
    spending = check_epsilon(epsilon), None if delta is None else check_delta(delta)
    relation = check_neighbours(neighbours)
    if not isinstance(survey, Survey):
        path = Path(survey)
        survey, declared = Survey.from_toml(path), table_format_of(path)
        table_format = (table_format or declared).replaced(inferred=declared.inferred or None)
    written = table_format or DEFAULT_FORMAT
    if written.inferred and not options_are_public:
        raise PrivacyRefusal(
            "the survey's options and limits were inferred from a table, and no noise protects"
            " them; check them and delete inferred = true from its [table] section, or declare"
            " that they are public with options_are_public=True."
        )
    check_public_rows(relation, written)
    check_level(level)
    for name, text in (("title", title), ("date", date)):
        if text is not None:
            check_text(name, text)
    asked = released_survey(survey)
    noise = CountNoise.choose(asked, relation, *spending)
    counted = count_table(asked, table, written)
    if relation == "replace" and not counted.rows:
        raise InputError("the table has no rows; it needs one for each person.")
    vector = [*counted.counts]
    if relation == "add-remove":
        vector.append(int(counted.rows / counted.unit))
    mechanism = noise.mechanism(vector)
    if budget is not None:
        what = f"survey {asked.name}"[:160]
        budget.spend(noise.epsilon, neighbours=relation, what=what, delta=noise.delta)
    noisy = [value * float(counted.unit) for value in mechanism(vector)]
    rows = counted.rows if relation == "replace" else max(round(noisy.pop()), 1)
    return SurveyRelease(
        asked,
        tuple(noisy),
        rows,
        relation,
        noise,
        tuple(one.name for one in survey if one not in asked.questions),
        written.inferred,
        None if budget is None else budget.to_json() | {"file": None},
        level,
        title,
        date,
    )


def table_format_of(survey_file: Path) -> TableFormat:
    """Return the format in the [table] section of a survey file, or the default."""
    from shoal.support.files import read_toml

    return TableFormat.from_json(read_toml(survey_file, "survey", InputError).get("table", {}))


@dataclass(frozen=True, repr=False)
class SurveyRelease(WrittenResult, Mapping[str, Mapping[str, NoisyCount]]):
    """The released counts of a survey: ``release["channel"]["beta"]`` is that of an option.

    `counts` are the noisy counts of its bits. `rows` is public, or a noisy count of them, at least
    1. `left_out` are text questions.
    """

    survey: Survey
    counts: tuple[float, ...]
    rows: int
    neighbours: Neighbours
    noise: CountNoise
    left_out: tuple[str, ...] = ()
    inferred: bool = False
    budget: Mapping[str, Any] | None = None
    level: float = 0.95
    title: str | None = None
    date: str | None = None

    @cached_property
    def _questions(self) -> dict[str, dict[str, NoisyCount]]:
        return {one.name: self._counts(one) for one in self.survey}

    def _counts(self, question: Question) -> dict[str, NoisyCount]:
        counts = np.array(self.counts[self.survey.slice_of(question.name)])
        blank = question.takes_one and not getattr(question, "missing", None)
        lowest = 0 if blank else question.min_set_bits * self.rows
        nearest = nearest_feasible(counts, self.rows, lowest, question.max_set_bits * self.rows)
        about: Any = {"rows_are_public": self.neighbours == "replace", "noise": self.noise}
        rows = zip(question.labels, counts.tolist(), nearest.tolist(), strict=True)
        found = {label: NoisyCount(label, a, b, self.rows, **about) for label, a, b in rows}
        if blank and question.kind != "cross":
            rest = self.rows - float(counts.sum()), max(self.rows - float(nearest.sum()), 0.0)
            about |= {"parts": len(counts), "rest": True}
            found[MISSING] = NoisyCount(MISSING, *rest, self.rows, **about)
        return found

    def __getitem__(self, question: str) -> Mapping[str, NoisyCount]:
        if question in self.left_out:
            raise InputError(_left_out(question))
        self.survey[question]  # an unknown name raises an error that lists the questions
        return self._questions[question]

    def __iter__(self) -> Iterator[str]:
        return iter(self._questions)

    def __len__(self) -> int:
        return len(self._questions)

    @cached_property
    def numbers(self) -> Mapping[str, NoisyNumbers]:
        """The mean and the quantiles of each number question, at `level`."""
        return {
            one.name: NoisyNumbers(
                one,
                tuple(count for count in self[one.name].values() if count.label != MISSING),
                self.level,
            )
            for one in self.survey
            if isinstance(one, Number)
        }

    @cached_property
    def crosses(self) -> Mapping[str, NoisyCross]:
        """The table of each cross, by its name."""
        return {
            one.name: NoisyCross.of(one, [*self[one.name].values()]) for one in self.survey.crosses
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about rows, blank cells and questions that were left out."""
        sentences = [
            "A blank cell is counted as (missing); it is in no cell of a cross, and of flags and"
            " yes/no questions it sets no option."
        ]
        if self.neighbours == "add-remove":
            sentences.insert(
                0,
                "The number of rows is private: it is a noisy count, and intervals of shares allow"
                " for that.",
            )
        return (*sentences, *map(_left_out, self.left_out))

    def estimates_json(self, level: float | None = None) -> dict[str, Any]:
        """Return the counts as plain JSON values, in the form of a crowd's estimates."""
        level = self.level if level is None else check_level(level)
        return {
            "plan": None,
            "reports": self.rows,
            "crowds": [],
            "people": None,
            "level": level,
            "interval": "exact",
            "target": "table",
            "simulated": False,
            "questions": {
                name: {label: one.to_json(level) for label, one in options.items()}
                for name, options in self.items()
            },
            "notes": list(self.notes),
        }

    @cached_property
    def _document(self) -> dict[str, Any]:
        noise = self.noise
        document: dict[str, Any] = {
            "title": self.title or self.survey.heading,
            "survey": self.survey.name,
            "date": self.date,
            "shoal": __version__,
            "estimates": self.estimates_json(),
            "numbers": {name: one.to_json() for name, one in self.numbers.items()},
            "crosses": {
                name: one.to_json(self.level)
                for name, one in self.crosses.items()
                if one.cells.size <= MAX_CELLS
            },
            "texts": {},
            "promise": {
                "kind": "curator",
                "guarantee": True,
                "status": "theorem",
                "observer": "readers of this release",
                "epsilon": noise.epsilon,
                "delta": noise.delta,
                "neighbours": self.neighbours,
                "short": self._promise,
                "plain": self._plain_promise,
                "sum": None,
                "assumptions": list(self.assumptions),
            },
            "noise": {
                "distribution": noise.distribution,
                "scale": noise.scale,
                "sigma": noise.sigma,
                "unit": float(noise.unit),
                "sensitivity": noise.sensitivity,
            },
            "budget": self.budget,
            "certificate": None,
            "plan": None,
        }
        cited = [
            self.survey.name,
            f"Counts of {self._rows_in_words} with {noise.distribution} noise",
            f"Shoal {__version__}",
            *([self.date] if self.date else []),
        ]
        return document | {"citation": ". ".join(cited) + "."}

    @property
    def _rows_in_words(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return rows if self.neighbours == "replace" else f"about {rows}"

    @property
    def _spent(self) -> str:
        delta = "" if self.noise.delta == "0" else f", delta {self.noise.delta}"
        return f"epsilon {self.noise.epsilon}{delta}"

    @property
    def _promise(self) -> str:
        return (
            f"proven: {self._spent}, against readers of this release, if one row is"
            f" {CHANGES[self.neighbours]}"
        )

    @property
    def _plain_promise(self) -> str:
        change = {
            "replace": "Suppose one person's row had held different answers.",
            "add-remove": "Suppose one person's row had not been in the table.",
        }[self.neighbours]
        delta = "" if self.noise.delta == "0" else f", plus a probability of {self.noise.delta}"
        return (
            f"{change} Whatever the other rows hold, and whatever else a reader knows, any result"
            " of these counts would have been at most"
            f" {ratio_in_words(float(self.noise.epsilon))} times as likely{delta}. This is a"
            " theorem. It holds against readers of this release; the curator sees every row and is"
            " trusted."
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The conditions of the promise."""
        public = "The survey, its options and its limits are public: no noise protects them."
        if self.inferred:
            public += (
                " They were inferred from a table; the curator declares that they are public, and"
                " it was not checked."
            )
        return (
            NEIGHBOURS_IN_WORDS[self.neighbours],
            "Each person has one row.",
            "The curator sees every row and is trusted.",
            public,
            f"This release spends {self._spent}. Releases about the same people add up: their"
            " epsilons, and their deltas.",
        )

    @property
    def _page(self) -> tuple[Survey, dict[str, Any], PageText]:
        count, noise = len(self.survey.asked), self.noise
        asked = "One question" if count == 1 else f"{count} questions"
        root = "" if noise.distribution == "Laplace" else "square root of "
        norm = "L1" if noise.distribution == "Laplace" else "L2"
        sigma = text_up(noise.sigma, 4)
        facts = [
            Fact("Proven", self._spent, "For this release; a theorem. The noise is exact."),
            Fact(
                "Sensitivity",
                f"{root}{noise.sensitivity}",
                f"The most by which one row moves all counts together ({norm}).",
            ),
            Fact(
                "Noise",
                f"{noise.distribution}, scale {text_up(noise.scale, 4)}",
                "Independent for every count, and chosen without the data.",
            ),
            Fact("Precision", f"sigma {sigma} people", "The standard deviation of every count."),
        ]
        if self.budget is not None:
            facts.append(Fact("Budget", *_budget_in_words(self.budget)))
        observers = [
            TableRow(
                "readers of this release",
                ("these counts", f"{self._spent} (theorem)", "each person has one row"),
            ),
            TableRow("the curator", ("every row", "none", "is trusted")),
        ]
        text = PageText(
            f"{asked}, {self._rows_in_words}. The curator counted the rows and added"
            f" {noise.distribution} noise of standard deviation {sigma} to every count, once.",
            self._rows_in_words,
            self.notes,
            facts,
            Table("Guarantee against each observer", OBSERVER_HEADS, observers),
        )
        return self.survey, self._document, text

    def _headline(self) -> str:
        return (
            f"{self.survey.name}: {self._rows_in_words}, exact intervals at {self.level:.4g},"
            f" {self._promise}"
        )

    def _sections(self) -> list[Section]:
        return [
            option_section(name, options.items(), lambda one: one.to_json(self.level))
            for name, options in self.items()
        ]

    def _remarks(self) -> tuple[str, ...]:
        return self.notes


def _left_out(question: str) -> str:
    return (
        f"Question {question!r} is text and was left out; ask for the frequent answers as a choice"
        " with other = true."
    )


def _budget_in_words(budget: Mapping[str, Any]) -> tuple[str, str]:
    names = ["epsilon"] + ["delta"] * (budget["delta"] != "0")
    spent = {"epsilon": budget["spent"], "delta": budget["delta_spent"]}
    words = ", ".join(f"{one} {spent[one]} of {budget[one]} spent" for one in names)
    return words, "By all releases of this table so far, this one included."
