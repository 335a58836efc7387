"""Publications: estimates with their plan and certificate, shown and written in every format.

A notebook shows any result with charts and tables in its own colours, without a script.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from markupsafe import Markup

from shoal import __version__
from shoal.analysis.estimates import (
    Estimates,
    check_crowd,
    estimate,
    estimate_rows,
    estimates_arrow,
)
from shoal.analysis.intervals import IntervalKind, Target
from shoal.analysis.question_estimates import QuestionEstimates
from shoal.analysis.tally import Tally
from shoal.analysis.text.results import DecodedTexts
from shoal.analysis.trends import CrowdDifference, Trend
from shoal.errors import InputError
from shoal.planning.certificate import check_promise
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.reports.charts import WIDTHS, bar_chart, difference_chart, histogram, trend_chart
from shoal.reports.formatting import shown_labels
from shoal.reports.page import PageText, crowd_text, markdown, page, render
from shoal.reports.protection import assumptions, citation, plain_promise, promise_of_sum
from shoal.reports.sections import results
from shoal.support import files
from shoal.support.checks import check_level, check_text, takes
from shoal.support.results import MAX_ROWS, Displayed, Section, TableExport

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.planning.certificate import Certificate


SUFFIXES = (".html", ".csv", ".json", ".parquet", ".arrow", ".md")


class WrittenResult(Displayed, TableExport):
    """Estimates that are shown on a page and written in every format, from one JSON document."""

    @cached_property
    def _document(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def _page(self) -> tuple[Survey, dict[str, Any], PageText]:
        """The survey, the document, and what a page says about its numbers."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values; the page embeds exactly these."""
        return deepcopy(self._document)

    def to_html(self) -> str:
        """Return one page that needs nothing else: no network, no script."""
        return page(*self._page)

    def to_markdown(self) -> str:
        """Return the page's words and tables as Markdown."""
        return markdown(*self._page)

    def to_csv(self) -> str:
        """Return the estimates as CSV, a row for each option, numbers in full."""
        return csv_text(self._document)

    def to_arrow(self) -> pa.Table:
        """Return the estimates as an Arrow table; its metadata `shoal` holds the whole JSON."""
        return estimates_arrow(self._document)

    def write(self, path: Path | str) -> None:
        """Write a file in the form that its suffix names, whole or not at all."""
        target = check_suffix(path)
        kind = target.suffix.lower()
        if kind == ".json":
            files.write_json(target, self._document)
        elif kind in (".parquet", ".arrow"):
            files.write_whole(
                target, lambda scratch: write_table(self._document, scratch, kind[1:])
            )
        else:
            forms = {".html": self.to_html, ".csv": self.to_csv, ".md": self.to_markdown}
            files.write_text(target, forms[kind]())


@dataclass(frozen=True, repr=False)
class Publication(WrittenResult):
    """Estimates with their plan and the certificate of its promise; None where that is local."""

    estimates: Estimates
    certificate: Certificate | None
    level: float = 0.95
    interval: IntervalKind = "exact"
    title: str | None = None
    date: str | None = None
    remarks: tuple[str, ...] = ()
    texts: tuple[DecodedTexts, ...] = ()

    @property
    def plan(self) -> Plan:
        """The plan that the reports were made for."""
        return self.estimates.plan

    @cached_property
    def _document(self) -> dict[str, Any]:
        plan, tally = self.plan, self.estimates.tally
        check_crowd(plan, tally)
        if self.certificate != certificate_for(plan):
            raise InputError("the certificate is not the one of the plan; use shoal.publish.")
        computed = check_promise(plan)
        whole = promise_of_sum(plan, tally, self.certificate)
        document = {
            "title": self.title or plan.survey.heading,
            "survey": plan.survey.name,
            "date": self.date,
            "shoal": __version__,
            "estimates": self.estimates.to_json(self.level, self.interval),
            **words_of(plan.survey),
            **results(self.estimates, self.level, self.texts),
            "promise": {
                "kind": plan.promise.kind,
                "guarantee": computed.is_guarantee,
                "short": computed.in_words if whole is None else whole.in_words,
                "plain": plain_promise(computed) if whole is None else whole.plain,
                "sum": None if whole is None else whole.to_json(),
                "warnings": list(plan.warnings),
                "assumptions": [*assumptions(plan, self.certificate, tally), *self.remarks],
            },
            "certificate": self._certificate(),
            "plan": {"id": plan.id} | plan.to_json(),
        }
        return document | {"citation": citation(document)}

    def _certificate(self) -> dict[str, Any] | None:
        if self.certificate is None:
            return None
        epsilon, most = float(self.plan.promise.epsilon), self.plan.max_reports_per_person
        document = self.certificate.to_json(epsilon=epsilon)
        if most > 1:
            document["group_delta"] = self.certificate.group_delta(epsilon=epsilon, reports=most)
        return document

    @property
    def _page(self) -> tuple[Survey, dict[str, Any], PageText]:
        return self.plan.survey, self._document, crowd_text(self.plan, self._document)

    def _headline(self) -> str:
        words = self.estimates._headline(self.level, self.interval)
        return words if self.title is None else f"{self.title}; {words}"

    def _sections(self) -> Iterable[Section]:
        return self.estimates._sections(self.level, self.interval)

    def _remarks(self) -> list[str]:
        return [*self.estimates.notes, self._document["promise"]["short"]]


@takes(plan=Plan, tally=Tally)
def publish(
    plan: Plan,
    tally: Tally,
    *,
    level: float = 0.95,
    interval: IntervalKind = "exact",
    target: Target = "crowd",
    title: str | None = None,
    date: str | None = None,
    remarks: Sequence[str] = (),
    texts: Iterable[DecodedTexts] = (),
) -> Publication:
    """Put estimates, plan and certificate together, to be shown and written.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports. A plan with a crowd refuses a tally of fewer
        reports, as `shoal.estimate` does. Where the people of several crowds may be the same, the
        promises of the crowds compose, and that is what is printed.
    level, interval
        The confidence level and the kind of interval, see `shoal.analysis.intervals`.
    target
        ``"crowd"`` for the people who reported, ``"population"`` for those they are a random
        sample of.
    title
        Stands on top of the page; by default the survey's title, or its name.
    date
        Stands in the citation as it is given. Shoal does not look at the clock.
    remarks
        Sentences about this release that stand beside its assumptions.
    texts
        What `shoal.text.decode` found for text questions, to be listed with its false-discovery
        rate.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan, simulate
    >>> agreed = plan(Survey("browser", (Flags("features", ("sync", "vpn")),)), q=0.25)
    >>> run = simulate(agreed, users=10_000, seed=1)
    >>> publication = publish(agreed, run.estimates.tally, date="May 2026")
    >>> print(publication.to_csv().splitlines()[0])
    question,option,count,share,sigma,low,high,constrained,compatible,reports,...
    """
    check_level(level)
    for name, text in (("title", title), ("date", date)):
        if text is not None:
            check_text(name, text)
    estimates = estimate(plan, tally, target=target)
    publication = Publication(
        estimates, certificate_for(plan), level, interval, title, date, tuple(remarks), tuple(texts)
    )
    publication.to_json()  # whatever cannot be computed is told here
    return publication


def words_of(survey: Survey) -> dict[str, dict[str, Any]]:
    """Return what people read in place of the names of questions and options, if it is different.

    Keys of a publication are names; `words` is there only where a title or a unit is declared.
    """
    if all(one.shown_labels == one.labels and one.heading == one.name for one in survey.asked):
        return {}
    return {
        "words": {
            one.name: {"title": one.heading, "options": shown_labels(one, one.labels)}
            for one in survey
        }
    }


def certificate_for(plan: Plan) -> Certificate | None:
    """Return the certificate that a plan is published with; None where its promise is local."""
    if plan.promise.kind == "local":
        return None
    from shoal.planning.certificate import certify

    return certify(plan)


def check_suffix(path: Path | str) -> Path:
    """Return the path if its suffix names a form that can be written."""
    return files.check_suffix(path, SUFFIXES, "publication")


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that start a formula in a spreadsheet, full-width too (OWASP, CSV injection)."""


def csv_text(document: Mapping[str, Any]) -> str:
    """Write the estimates as CSV (RFC 4180), with full precision and without formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    for number, row in enumerate(estimate_rows(document)):
        if number == 0:
            writer.writerow(row)
        writer.writerow([_cell(value) for value in row.values()])
    return out.getvalue()


def _cell(value: object) -> object:
    """Return the content of a cell; text that a spreadsheet would compute gets a leading quote.

    >>> _cell("=cmd|' /C calc'!A0"), _cell("a=b"), _cell(-1.5), _cell(True)
    ("'=cmd|' /C calc'!A0", 'a=b', -1.5, 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value


def write_table(document: Mapping[str, Any], target: Path | BinaryIO, kind: str) -> None:
    """Write the estimates as Parquet or Arrow; the metadata `shoal` holds the whole JSON."""
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    table = estimates_arrow(document)
    if kind == "parquet":
        pq.write_table(table, target)
    else:
        feather.write_feather(table, target, compression="uncompressed")


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
