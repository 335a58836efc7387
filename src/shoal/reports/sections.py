"""The values that templates show: questions in the form of their kind, trends and differences.

Every question first shows possible shares with how sure they are, in words that people were asked.
Where everybody has exactly one answer, they add to 100 %. Numbers have a histogram, their mean and
quantiles; crosses a matrix of shares; text a ranked list, if it was decoded. Counts, unbiased
estimates and tests are folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from shoal.analysis.cross_tables import cross_table
from shoal.analysis.estimates import NUMBERS, Estimates
from shoal.analysis.experiments import experiments_of
from shoal.analysis.funnels import funnels_of
from shoal.analysis.number_summary import numbers_of
from shoal.analysis.text.results import DecodedTexts
from shoal.errors import InputError
from shoal.protocol.questions import MISSING
from shoal.protocol.survey import Arm, Cross, Funnel, Number, Question, Survey
from shoal.reports import charts
from shoal.reports.experiments import experiment_parts, funnel_part
from shoal.reports.formatting import (
    Cell,
    Figures,
    Matrix,
    PlainShare,
    Table,
    TableRow,
    count_unit,
    level_in_words,
    number_text,
    option_shares,
    percent,
    plain_shares,
    possible_answers,
    round_high,
    round_low,
    share_digits,
    shown_labels,
    signed_points,
    whole_number,
)
from shoal.reports.protection import Fact
from shoal.support.rounding import text_up

_MAX_WORDS = 200
"""Texts that a page lists; the JSON has them all."""
_SHADES = 8
"""Steps from a share of 0 to the largest of a matrix, each a class of the style sheet."""
_DID = {"arm": "drew", "funnel": "got as far as", "retention": "are at age"}
"""What people did to an answer that they were not asked for."""
_NO_FIT = "no true count fits these reports"
MAX_CELLS = 100
"""Cells of a cross that are shown as a matrix with shares; a larger one is a list of counts."""


def results(
    estimates: Estimates, level: float = 0.95, texts: Iterable[DecodedTexts] = ()
) -> dict[str, dict[str, Any]]:
    """Return what is found beyond counts: of numbers, crosses, texts, experiments and funnels.

    A cross of more than `MAX_CELLS` cells has no table, nor has one of crowds whose people may be
    the same, for which no test of independence holds.
    """
    plan, tally = estimates.plan, estimates.tally
    decoded, kinds = tuple(texts), {one.kind for one in plan.survey}
    for one in decoded:
        plan.survey[one.question]  # an unknown name raises an error that lists the questions
        if one.reports != tally.reports:
            raise InputError(
                f"the decoded texts are of {one.reports:,} reports and the tally has"
                f" {tally.reports:,}; decode this tally."
            )
    crosses = [] if tally.people_may_repeat else [
        one.name for one in plan.survey if isinstance(one, Cross) and one.bits <= MAX_CELLS
    ]  # fmt: skip
    return {
        "numbers": numbers_of(estimates, level) if "number" in kinds else {},
        "crosses": {
            name: cross_table(plan, tally, name, target=estimates.target).to_json(level)
            for name in crosses
        },
        "texts": {one.question: one.to_json() for one in decoded},
        "experiments": {
            name: one.to_json() for name, one in experiments_of(estimates, level).items()
        }
        if "arm" in kinds
        else {},
        "funnels": {name: one.to_json() for name, one in funnels_of(estimates, level).items()}
        if "funnel" in kinds
        else {},
    }


def question_sections(survey: Survey, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the section of each question, from the JSON of a publication or a crowd."""
    return [
        _section(survey, question, f"question-{number}", document)
        for number, question in enumerate(survey, 1)
    ]


def _section(
    survey: Survey, question: Question, id: str, document: Mapping[str, Any]
) -> dict[str, Any]:
    estimates, name = document["estimates"], question.name
    section: dict[str, Any] = {
        "id": id,
        "heading": question.heading,
        "name": name,
        "text": paragraphs(getattr(question, "text", None)),
        "answers": possible_answers(question),
    }
    if question.kind == "text":
        decoded = document["texts"].get(name)
        return section | ({} if decoded is None else {"words": word_list(decoded)})
    if isinstance(question, Cross) and name in document["crosses"]:
        section["slices"] = list(_slices(question, document["crosses"][name]))
    else:
        draw = charts.histogram if question.kind == "number" else charts.bar_chart
        summary = document["numbers"].get(name)
        section["lead"] = lead(question, estimates, summary)
        section["charts"] = charts.width_charts(
            lambda width, **given: draw(question, estimates, width, **given), id
        )
        section["facts"] = _numbers(question, summary)
    return section | {
        "parts": _parts(survey, question, id, document),
        "options": option_table(question, estimates),
    }


def _parts(
    survey: Survey, question: Question, id: str, document: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the outcomes of an experiment below its arm, and the steps of a funnel."""
    name = question.name
    if isinstance(question, Arm) and name in document.get("experiments", {}):
        return experiment_parts(survey, question, document["experiments"][name], id)
    if isinstance(question, Funnel) and name in document.get("funnels", {}):
        return [funnel_part(question, document["funnels"][name])]
    return []


NOT_KNOWN = "Not known"


class Lead(NamedTuple):
    """The one number of a question that everybody reads, and what it is of.

    `label` is the option in files, if it is a share.
    """

    number: str
    of: str
    answer: str = ""
    label: str = ""


def lead(
    question: Question, estimates: Mapping[str, Any], summary: Mapping[str, Any] | None = None
) -> Lead:
    """Return the mean of a number, or the answer with the largest share."""
    if summary is not None and summary["mean"] is not None:
        mean, (first, last) = summary["mean"], summary["limits"]
        if mean["low"] <= first and mean["high"] >= last:
            return Lead(NOT_KNOWN, "The average can be any possible number.")
        ends = f"{number_text(mean['low'])} to {number_text(mean['high'])}"
        return Lead(_with_unit(question, number_text(mean["value"])), f"on average ({ends})")
    rows = estimates["questions"][question.name]
    shown = shown_labels(question, rows)
    shares = option_shares(question, rows, estimates["reports"])
    top = max(shares, key=lambda label: shares[label].share)
    people = count_unit(estimates)
    if shares[top].is_unknown:
        return Lead(NOT_KNOWN, f"Chance and noise hide how {people} answered.")
    if rows[top].get("incompatible"):
        return Lead(NOT_KNOWN, f"These reports do not fit the plan: {_NO_FIT}.")
    number = shares[top].text
    number = number[0].upper() + number[1:]
    if top == MISSING:
        return Lead(number, f"of {people} gave no answer", label=top)
    did = _DID.get(question.kind, "answered")
    return Lead(number, f"of {people} {did}", shown[top], top)


def lead_over_crowds(
    question: Question, documents: Sequence[Mapping[str, Any]], name: str
) -> tuple[Lead, Markup | None]:
    """Return the lead of the last of some crowds, and how its number changed over all of them.

    There is no picture of one crowd, nor of a number that is not known; `name` begins its ids.
    """
    last = documents[-1]
    found = lead(question, last["estimates"], last["numbers"].get(question.name))
    if found.label:
        shares = [
            option_shares(question, one["estimates"]["questions"][question.name],
                          one["estimates"]["reports"])[found.label]
            for one in documents
        ]  # fmt: skip
        rows = [(one.share, max(one.low, 0.0), min(one.high, 1.0)) for one in shares]
        texts = [one.text for one in shares]
    elif found.number != NOT_KNOWN:
        means = [one["numbers"][question.name]["mean"] for one in documents]
        rows = [(one["value"], one["low"], one["high"]) for one in means]
        texts = [f"{number_text(value)} ± {number_text((high - low) / 2)}"
                 for value, low, high in rows]  # fmt: skip
    if found.number == NOT_KNOWN or len(documents) < 2:
        return found, None
    title = f"{question.heading}: {found.answer or found.of} over {len(documents)} crowds"
    described = f"First {texts[0]}, last {texts[-1]}."
    return found, charts.sparkline(title, rows, described, name=name)


def paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a text that people read."""
    return [part.replace("\n", " ") for part in (text or "").split("\n\n") if part]


def _with_unit(question: Question, number: str) -> str:
    unit = question.unit if isinstance(question, Number) else None
    return f"{number} {unit}" if unit else number


def option_table(question: Question, estimates: Mapping[str, Any]) -> Table:
    """Return the unbiased estimates of a question.

    A note names the option if people read something else, and says if no true count fits.
    """
    options, rows = estimates["questions"][question.name], []
    shown = shown_labels(question, options)
    for label, row in options.items():
        notes = [label] * (shown[label] != label) + [_NO_FIT] * bool(row.get("incompatible"))
        cells = Figures.of(row, estimates["reports"])
        rows.append(TableRow(shown[label], cells, "; ".join(notes)))
    caption = (
        f"Counts of {count_unit(estimates)} with their standard deviation (sigma) and"
        f" {estimates['interval']} interval at {level_in_words(estimates)}"
    )
    return Table(caption, ("option", *NUMBERS), rows)


def _numbers(question: Question, summary: Mapping[str, Any] | None) -> list[Fact]:
    if summary is None:
        return []
    shown = shown_labels(question, question.labels)
    found, mean, spread = [], summary["mean"], summary["variance"]
    at = percent(summary["level"], 0)
    if mean is not None:
        first, last = (f"{number_text(end)}" for end in summary["limits"])
        ends = f"between {number_text(mean['low'])} and {number_text(mean['high'])} at {at}"
        clamped = f"numbers outside {first} to {last} count as the nearer end"
        value = _with_unit(question, number_text(mean["value"]))
        found.append(Fact("Mean", value, f"{ends} (approximate); {clamped}"))
    if spread is not None:
        low, high = (number_text(spread[end] ** 0.5) for end in ("low", "high"))
        meaning = f"at {at} (approximate), whatever rounding to the grid added"
        value = _with_unit(question, f"{low} to {high}")
        found.append(Fact("Standard deviation", value, meaning))
    for one in summary["quantiles"]:
        name = "Median" if one["part"] == 0.5 else f"{percent(one['part'], 0)} are below"
        meaning = f"{_between(one['low'], one['high'])} at {percent(one['level'], 0)}"
        found.append(Fact(name, shown.get(one["label"], one["label"]), meaning))
    return found


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return "anywhere" if high is None else f"below {number_text(high)}"
    if high is None:
        return f"{number_text(low)} or above"
    return f"from {number_text(low)} to {number_text(high)}"


def _slices(cross: Cross, table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the matrices of a cross, or those for each answer to the first of three questions."""
    if "slices" in table:
        for part in table["slices"]:
            yield from _slices(cross, part)
        return
    words = _CrossWords.of(cross, table)
    given = (
        f"{words.headings[asked]}: {words.values[asked][value]}"
        for asked, value in table["given"].items()
    )
    yield {
        "given": "; ".join(given),
        "matrix": _share_matrix(words, "first", "second"),
        "turned": _share_matrix(words, "second", "first"),
        "counts": _count_matrix(words),
        "finding": _independence_in_short(table),
        "test": independence_in_words(table),
    }


class _CrossWords(NamedTuple):
    """The JSON of a table of two questions, and what people read in place of its names."""

    table: Mapping[str, Any]
    headings: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, cross: Cross, table: Mapping[str, Any]) -> _CrossWords:
        return cls(
            table,
            {side.name: side.heading for side in cross.sides},
            {
                side.name: dict(zip(side.values, side.shown_values, strict=True))
                for side in cross.sides
            },
        )

    def side(self, side: str) -> tuple[str, list[str]]:
        """Return the heading and the values of the "first" or the "second" question."""
        name = self.table[side]
        return self.headings[name], [self.values[name][one] for one in self.table["totals"][side]]

    def cells(self, down: str, across: str) -> list[list[Mapping[str, Any]]]:
        """Return the cells row by row, with the `down` question in rows."""
        found = {(cell[down], cell[across]): cell for cell in self.table["table"]}
        totals = self.table["totals"]
        return [[found[row, column] for column in totals[across]] for row in totals[down]]


def _share_matrix(words: _CrossWords, down: str, across: str) -> Matrix:
    """Return how the people of each row divide over the columns: shares that add to 100 %."""
    (of, rows), (by, columns) = words.side(down), words.side(across)
    kind = "row_share" if down == "first" else "column_share"
    cells = words.cells(down, across)
    ends = [_ends(cell, kind) for row in cells for cell in row]
    parts = [_row_shares(row, kind, share_digits(ends)) for row in cells]
    darkest = max((one.share for row in parts for one in row or ()), default=0.0) or 1.0
    people = [whole_number(max(one["value"], 0)) for one in words.table["totals"][down].values()]
    made = []
    for label, row, count in zip(rows, parts, people, strict=True):
        unknown = Cell("?", "0\N{EN DASH}100")
        line = [unknown] * len(columns)
        if row is not None:
            line = [
                unknown
                if one.is_unknown
                else Cell(
                    one.number,
                    "\N{EN DASH}".join(one.ends),
                    min(int(one.share / darkest * _SHADES), _SHADES - 1),
                )
                for one in row
            ]
        made.append(TableRow(label, [*line, Cell(count)]))
    caption = (
        f"Of the people in each row ({of}), the share in each column ({by}) in percent, with its"
        " interval; a stronger colour is more"
    )
    return Matrix(caption, (of, *columns, "people"), made)


def _row_shares(
    cells: Sequence[Mapping[str, Any]], kind: str, digits: int
) -> list[PlainShare] | None:
    """Return the shares of the cells of a row, or None where nobody seems to be in it."""
    total = sum(cell["constrained"] for cell in cells)
    if total <= 0 or any(cell[kind]["value"] is None for cell in cells):
        return None
    shares = [cell["constrained"] / total for cell in cells]
    return plain_shares(shares, [_ends(cell, kind) for cell in cells], digits, adds_up=True)


def _ends(cell: Mapping[str, Any], kind: str) -> tuple[float, float]:
    return cell[kind]["low"], cell[kind]["high"]


def _count_matrix(words: _CrossWords) -> Matrix:
    """Return the counts of people with their intervals, and the totals of rows and columns."""
    (of, rows), (by, columns) = words.side("first"), words.side("second")
    totals = words.table["totals"]
    made = [
        TableRow(label, [*(_count(one, "constrained") for one in cells), _count(total)])
        for label, cells, total in zip(
            rows, words.cells("first", "second"), totals["first"].values(), strict=True
        )
    ]
    made.append(TableRow("all", [*map(_count, totals["second"].values()), Cell("")]))
    return Matrix(f"{of} (rows) by {by} (columns): people", (of, *columns, "all"), made)


def _count(row: Mapping[str, Any], name: str = "value") -> Cell:
    return Cell(whole_number(row[name]), f"{round_low(row['low'])} to {round_high(row['high'])}")


def _independence_in_short(table: Mapping[str, Any]) -> str:
    """Return what the test of independence found, for people who know no statistics."""
    test, level = table["independence"], table["sensitivity"]["level"]
    if test["kind"] == "rough":
        return "There are too few people to say whether the two answers go together."
    if test["p_value"] < level:
        return "The two answers go together: rows differ by more than chance and noise explain."
    return "No clear connection: chance and noise explain how the rows differ."


def independence_in_words(table: Mapping[str, Any]) -> str:
    """Return the result of the test of independence, and which effect it would have seen."""
    test = table["independence"]
    degrees = test["degrees"]
    freedom = "one degree" if degrees == 1 else f"{degrees} degrees"
    return (
        "If the two were independent, a table at least this far from independence"
        f" would be seen with probability {text_up(test['p_value'], 3)} ({test['kind']} test,"
        f" {freedom} of freedom). {table['sensitivity']['in_words']}"
    )


def word_list(decoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts that were found, most frequent first, and what they do not explain."""
    finds = [row for row in decoded["candidates"] if row["found"]]
    rows = [
        TableRow(
            row["value"],
            (
                whole_number(row["count"]),
                percent(row["count"] / decoded["reports"]),
                round_low(row["low"]),
                round_high(row["high"]),
            ),
            ", ".join(row.get("same_as", [])[:3]),
        )
        for row in finds[:_MAX_WORDS]
    ]
    caption = f"Texts found, with intervals at {percent(decoded['level'], 0)}"
    alike = [f"Hard to tell apart: {', '.join(group[:8])}." for group in decoded["alike"][:5]]
    return {
        "summary": f"{len(finds):,} of {len(decoded['candidates']):,} candidates were found. On"
        f" average at most {decoded['fdr'] * 100:g} % of the texts found are wrong"
        " (false-discovery rate).",
        "table": Table(caption, ("text", "people", "share", "low", "high"), rows),
        "cut": f"The first {_MAX_WORDS} are shown; the JSON has all of them."
        if len(finds) > _MAX_WORDS
        else "",
        "unexplained": f"Unexplained: {whole_number(decoded['unexplained'])} reports (sigma"
        f" {text_up(decoded['unexplained_sigma'], 3)}). These people answered another text, or"
        " nothing.",
        "notes": [*decoded["notes"], *alike],
    }


def trend_section(
    question: Question, document: Mapping[str, Any], crowds: Sequence[str], id: str = "trend"
) -> dict[str, Any]:
    """Return how a question changed over crowds with the given names; `id` begins the ids."""
    options = document["questions"][question.name]
    shown = shown_labels(question, options)
    digits = share_digits([(one["low"], one["high"]) for rows in options.values() for one in rows])
    by_crowd = [
        plain_shares(
            [rows[place]["constrained"] for rows in options.values()],
            [(rows[place]["low"], rows[place]["high"]) for rows in options.values()],
            digits,
            adds_up=question.takes_one,
        )
        for place in range(len(crowds))
    ]
    rows = [
        TableRow(crowd, [Cell(one.number, "\N{EN DASH}".join(one.ends)) for one in shares])
        for crowd, shares in zip(crowds, by_crowd, strict=True)
    ]
    heads = ("crowd", *(shown[label] for label in options))
    return {
        "id": id,
        "heading": question.heading,
        "question": question.name,
        "text": paragraphs(getattr(question, "text", None)),
        "simulated": document["simulated"],
        "about": f"{len(crowds)} crowds. With a probability of at least {level_in_words(document)},"
        " all intervals of this question contain their true shares at once, over all options and"
        " crowds. Lines are the shares that fit the question.",
        "charts": charts.width_charts(
            lambda width, **given: charts.trend_chart(
                question.heading, options, crowds, width, shown, **given
            ),
            id,
        ),
        "table": Matrix(f"{question.heading}: shares in percent, with intervals", heads, rows),
    }


def difference_sections(
    survey: Survey, document: Mapping[str, Any], first: str, second: str
) -> dict[str, Any]:
    """Return the difference of two crowds with the given names: the first minus the second."""
    about = (
        f"{first} minus {second}, in percentage points: from 40 % to 43 % are +3 points. With a"
        f" probability of at least {level_in_words(document)}, all intervals of a question contain"
        " their true differences at once."
    )
    questions = document["questions"].items()
    return {
        "about": about,
        "simulated": document["simulated"],
        "questions": [
            _difference(f"difference-{number}", survey[name], rows)
            for number, (name, rows) in enumerate(questions, 1)
        ],
    }


def _difference(
    id: str, question: Question, options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    shown = shown_labels(question, options)
    rows = [
        TableRow(
            shown[label],
            (
                *(percent(row[key]) for key in ("first_constrained", "second_constrained")),
                *(signed_points(row[key]) for key in ("difference", "low", "high")),
                "yes" if row["differs"] else "no clear change",
            ),
        )
        for label, row in options.items()
    ]
    heads = ("option", "first", "second", "difference", "low", "high", "differs")
    caption = (
        "Possible shares, and the difference of the unbiased ones in percentage points with its"
        " exact interval"
    )
    return {
        "id": id,
        "heading": question.heading,
        "text": paragraphs(getattr(question, "text", None)),
        "charts": charts.width_charts(
            lambda width, **given: charts.difference_chart(
                question.heading, options, width, shown, **given
            ),
            id,
        ),
        "table": Table(caption, heads, rows),
    }
