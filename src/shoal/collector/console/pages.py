"""The console's plain page: what there is, and where its parts are.

It is shown in pages, so that it costs the same however many plans and crowds there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from shoal.agreement.plan import Plan
from shoal.agreement.promise import read_certificate
from shoal.analysis.publishing.markup import Markup, element
from shoal.analysis.publishing.observers import observers_table
from shoal.analysis.publishing.words import release_note
from shoal.analysis.screening import Screening
from shoal.collector.console.responses import unreadable_note
from shoal.collector.intake.records import CrowdRecord, PlanRecord
from shoal.support.rounding import round_down

__all__ = ["CROWDS_OF_EACH", "CROWDS_OF_ONE", "PLANS", "CrowdLine", "Section", "home"]

PLANS, CROWDS_OF_EACH = 20, 5
"""Plans on a page, and how many of the last crowds of each."""

CROWDS_OF_ONE = 50
"""Crowds on a page of one plan."""

_STYLE = "th, td { overflow-wrap: break-word; }\na { color: var(--accent); }\n"
"""Words in tables stay whole, so that a long column does not squeeze the others."""


class CrowdLine(NamedTuple):
    """A crowd and, if it is sealed and may be looked at, the traces of fake reports in it."""

    crowd: CrowdRecord
    screening: Screening | None


class Section(NamedTuple):
    """A plan, and some of its crowds, the last one first."""

    record: PlanRecord
    crowds: Sequence[CrowdLine]
    more: bool
    """Whether it has crowds that are not shown here."""


def home(sections: Sequence[Section], *, newer: str | None, older: str | None) -> str:
    """Return a page of plans and their crowds; `newer` and `older` lead to those beside it."""
    css = (files("shoal.analysis.publishing") / "templates" / "page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Shoal"),
        element("style", Markup(css + _STYLE)),
    )
    parts = [_plan(section) for section in sections]
    if not parts:
        parts = [
            element(
                "p",
                "There is no plan yet. Publish one with shoal serve PLAN.json, or send it to"
                " /v1/plans.",
            )
        ]
    turns = [("back", newer), ("more", older)]
    links = [element("a", name, " ", href=where) for name, where in turns if where is not None]
    main = element(
        "main",
        element("h1", "Shoal"),
        element("p", "A crowd is shown when it is complete, and not before."),
        *parts,
        *([element("p", *links)] if links else []),
    )
    return f'<!doctype html>\n<html lang="en">{head}{element("body", main)}</html>\n'


def _plan(section: Section) -> Markup:
    record, crowds, more = section
    plan = record.plan
    rows = []
    for crowd, screening in crowds:
        links = () if screening is None else _links(plan.id, crowd)
        cells = (str(crowd.number), _state(plan, crowd), _traces(screening))
        rows.append(element("tr", *(element("td", cell) for cell in cells), element("td", *links)))
    names = ("crowd", "state", "traces of fake reports", "look at")
    heading = element("tr", *(element("th", name) for name in names))
    return element(
        "section",
        element("h2", element("bdi", plan.survey.name)),
        element(
            "p",
            f"{record.state}; crowds of {plan.reports_needed:,}; view {plan.view};"
            f" {_promise(record)}",
        ),
        element("p", element("code", plan.id)),
        *(element("p", note) for note in release_note(plan)),
        *_observers(record),
        *([element("table", element("thead", heading), element("tbody", *rows))] if rows else []),
        *([element("p", element("a", "all crowds", href=f"/?plan={plan.id}"))] if more else []),
        *(
            _findings(crowd, screening)
            for crowd, screening in crowds
            if screening is not None and screening.suspicious
        ),
    )


def _observers(record: PlanRecord) -> list[Markup]:
    """Return who sees what of a plan's crowds, folded; a draft has no certificate yet."""
    if record.observers is None:
        return []
    table = observers_table(record.observers, "What holds against each observer")
    return [element("details", element("summary", "Who sees what"), table)]


def _promise(record: PlanRecord) -> str:
    """Return what was computed for a plan's certificate; a draft only asks for something."""
    if record.certificate is None:
        return record.plan.promise.in_words
    return read_certificate(record.plan, record.certificate).in_words


def _state(plan: Plan, crowd: CrowdRecord) -> str:
    if crowd.state == "sealed":
        note = f". {unreadable_note(plan, crowd.unreadable)}" if crowd.unreadable else ""
        return f"sealed, {crowd.reports:,} reports{note}"
    if plan.parties is not None:  # how full a crowd is, only the relay knows
        return "waiting for the relay" if crowd.state == "open" else crowd.state
    if crowd.state == "open":
        return f"open, {crowd.tenths} tenths full"
    return f"{crowd.state}, it was {crowd.tenths} tenths full"


def _traces(screening: Screening | None) -> str:
    if screening is None:
        return ""
    if not screening.suspicious:
        return "none seen"
    return f"in at least {round_down(100 * screening.smallest_share_of_fakes, 2):g} % of them"


def _findings(crowd: CrowdRecord, screening: Screening) -> Markup:
    return element(
        "div",
        element("h3", f"Traces of fake reports in crowd {crowd.number}"),
        element("ul", *(element("li", finding) for finding in screening.findings)),
    )


def _links(plan_id: str, crowd: CrowdRecord) -> list[Markup]:
    base = f"/v1/plans/{plan_id}/crowds/{crowd.number}"
    pairs = (("report", "/report.html"), ("estimates", "/estimates"), ("tally", ""))
    return [element("span", element("a", name, href=base + end), " ") for name, end in pairs]
