"""Results in a notebook: charts and tables in the notebook's own colours, without any script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from markupsafe import Markup

from shoal.analysis.estimates import Estimates
from shoal.analysis.intervals import IntervalKind
from shoal.analysis.question_estimates import QuestionEstimates
from shoal.analysis.trends import CrowdDifference, Trend
from shoal.reports.charts import WIDTHS, bar_chart, difference_chart, histogram, trend_chart
from shoal.reports.page import render
from shoal.reports.publication import Publication
from shoal.support.results import MAX_ROWS, Displayed

Charts = Iterator[tuple[int, Markup]]
"""Charts, each with the place of the table that it stands above."""

_MAX_CROWDS = 24  # of a chart
_WIDE = WIDTHS["wide"]
_numbers = count(1)


def notebook_html(result: Displayed) -> str:
    """Return a piece of HTML that needs nothing else: no style sheet, no script, no request."""
    name, _, about = result._headline().partition(": ")
    return render(
        "notebook.html",
        name=name,
        about=about,
        charts=dict(_charts(result)),
        sections=list(result._sections()),
        remarks=list(result._remarks()),
    )


def _charts(result: Displayed) -> Charts:
    match result:
        case Publication():
            yield from _intervals(result.estimates, result.level, result.interval)
        case Estimates():
            yield from _intervals(result)
        case QuestionEstimates():
            yield from _intervals({result.question.name: result})
        case Trend() if len(result.crowds) <= _MAX_CROWDS:
            crowds = [f"crowd {number}" for number in range(1, len(result.crowds) + 1)]
            for place, name, options in _small(result.to_json()):
                yield place, trend_chart(name, options, crowds, _WIDE, **_given())
        case CrowdDifference():
            for place, name, options in _small(result.to_json()):
                yield place, difference_chart(name, options, _WIDE, **_given())


def _intervals(
    questions: Mapping[str, QuestionEstimates], level: float = 0.95, kind: IntervalKind = "exact"
) -> Charts:
    """Yield a chart of the possible shares of each question, as on a page."""
    small = {place: one for place, one in enumerate(questions.values()) if len(one) <= MAX_ROWS}
    if not small:
        return
    first = next(iter(small.values()))
    numbers = first.estimates.questions_json(small.values(), level, kind)
    for place, one in small.items():
        draw = histogram if one.question.kind == "number" else bar_chart
        yield place, draw(one.question, numbers, _WIDE, **_given())


def _small(document: Mapping[str, Any]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    for place, (name, options) in enumerate(document["questions"].items()):
        if len(options) <= MAX_ROWS:
            yield place, name, options


def _given() -> dict[str, Any]:
    """Return an id of its own for each chart, and a style that fits narrow notebooks."""
    return {"name": f"shoal-{next(_numbers)}", "style": "max-width:100%;height:auto"}
