"""Self-contained pages: no request, no script, readable without colour.

`page` is one publication; `site.py` makes a site of several. The HTML is in `templates`; it escapes
every value that is not markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined

from shoal.analysis.crowds import in_crowds
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.reports.formatting import (
    SIMULATED,
    THIN,
    Table,
    TableRow,
    flip_in_words,
    level_in_words,
    possible_answers,
    release_note,
    sum_note,
)
from shoal.reports.protection import OBSERVER_HEADS, Fact, facts, observer_rows, one_crowd
from shoal.reports.sections import lead, option_table, paragraphs, question_sections

_INTERVALS = {
    "exact": "Each range contains the true share with a probability of at least {level}, whatever"
    " the true share is.",
    "normal": "The ranges are approximate: in large crowds each contains the true share with a"
    " probability of about {level}, in small ones sometimes with less.",
    "simultaneous": "With a probability of at least {level}, all ranges of a question contain their"
    " true shares at once.",
    "chebyshev": "Each range contains the true share with a probability of at least {level}; it"
    " uses only sigma, so it is wide.",
}
_TARGETS = {
    "crowd": "the people who reported",
    "table": "the people in the table",
    "population": "the population of which the people who reported are a random sample",
}


def environment(**packages: str) -> Environment:
    """Return the templates of reports, and of packages by the prefix of their templates' names.

    Every value is escaped unless it is markup, and a missing one is an error; `tojson` is strict.
    """
    packages = {"reports": "shoal.reports", **packages}
    made = Environment(
        loader=PrefixLoader({name: PackageLoader(package) for name, package in packages.items()}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False}
    made.globals["SIMULATED"] = SIMULATED
    made.filters["md"] = _escape_markdown
    return made


_environment = cache(environment)


def render(template: str, **values: Any) -> str:
    return _environment().get_template(f"reports/{template}").render(values)


@cache
def style_sheet() -> str:
    return (files("shoal.reports") / "templates" / "page.css").read_text("utf-8")


def observers_table(observers: Sequence[Mapping[str, Any]], about: str = "") -> Table:
    """Return who sees what, from a certificate's JSON."""
    rows = [TableRow(who, cells) for who, *cells in observer_rows(observers)]
    return Table(f"Guarantee against each observer{about}", OBSERVER_HEADS, rows)


class PageText(NamedTuple):
    """What a page says about its numbers: in its header, in Markdown, and on protection."""

    lede: str
    summary: str
    notes: Sequence[str]
    facts: Sequence[Fact]
    observers: Table | None


def crowd_text(plan: Plan, document: Mapping[str, Any]) -> PageText:
    """Return what the page of a crowd says, from the JSON of its publication."""
    estimates, whole = document["estimates"], document["promise"]["sum"]
    certificate, count = document["certificate"], len(plan.survey.asked)
    asked = "One question" if count == 1 else f"{count} questions"
    reports = f"{estimates['reports']:,} reports{in_crowds(estimates)}"
    added = "" if plan.noise is None else f" The leader and the helper each added {plan.noise}."
    return PageText(
        f"{asked}, {reports}. Every device flipped each bit with probability"
        f" {flip_in_words(float(plan.q))}; the counts are corrected for the flips.{added}",
        reports,
        [*sum_note(estimates), *release_note(plan)],
        facts(plan, certificate, estimates["reports"], whole),
        certificate and observers_table(certificate["observers"], one_crowd(whole)),
    )


def page(
    survey: Survey,
    document: Mapping[str, Any],
    text: PageText,
    template: str = "report.html",
    **more: Any,
) -> str:
    """Return the page of a publication, from its JSON form; `more` are values of the template."""
    estimates = document["estimates"]
    return render(
        template,
        document=document,
        text=text,
        css=style_sheet(),
        reading=f"Shares are of {_TARGETS[estimates['target']]}. A share of 62{THIN}% ± 3 stands"
        f" for the range from 59 to 65{THIN}%."
        f" {_INTERVALS[estimates['interval']].format(level=level_in_words(estimates))}",
        introduction=paragraphs(survey.text),
        sections=question_sections(survey, document),
        **more,
    )


def markdown(survey: Survey, document: Mapping[str, Any], text: PageText) -> str:
    """Return the page's words and tables as Markdown."""
    estimates = document["estimates"]
    template = _environment().overlay(autoescape=False).get_template("reports/report.md")
    written = template.render(
        document=document,
        text=text,
        introduction=survey.text or "",
        about=f"{text.summary}, {estimates['interval']} intervals at level"
        f" {estimates['level']:.6g}, for the {estimates['target']}",
        questions=[
            (
                question,
                possible_answers(question),
                question.name in estimates["questions"] and lead(question, estimates),
                question.name in estimates["questions"] and option_table(question, estimates),
            )
            for question in survey
        ],
    )
    return f"{written}\n"


def _escape_markdown(text: str) -> str:
    r"""Escape what Markdown, or HTML within it, would read as more than text.

    >>> print(_escape_markdown("<b> a|b *c*"))
    \<b\> a\|b \*c\*
    """
    return re.sub(r"([\\`*_\[\]<>|~#&:@$])", r"\\\1", text)
