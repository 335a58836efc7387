"""The console's plain page: what there is, and where its parts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from shoal.collector.store import Epoch, KeptPlan
from shoal.promising import read_certificate
from shoal.publishing.markup import Markup, element
from shoal.rounding import round_down
from shoal.screening import Screening

__all__ = ["Crowd", "home"]


_STYLE = "th, td { overflow-wrap: break-word; }\na { color: var(--accent); }\n"
"""Words in tables stay whole, so that a long column does not squeeze the others."""


class Crowd(NamedTuple):
    """A crowd and, if it is sealed and may be looked at, the traces of fake reports in it."""

    epoch: Epoch
    screening: Screening | None


def home(plans: Sequence[KeptPlan], crowds: Mapping[str, Sequence[Crowd]]) -> str:
    """Return the page of all plans and their crowds."""
    css = (files("shoal.publishing") / "templates" / "page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Shoal"),
        element("style", Markup(css + _STYLE)),
    )
    sections = [_plan(kept, crowds[kept.plan.id]) for kept in plans]
    if not sections:
        sections = [element("p", "There is no plan yet. Send one to /v1/plans.")]
    main = element(
        "main",
        element("h1", "Shoal"),
        element("p", "Each crowd is shown when it is complete, and not before."),
        *sections,
    )
    return f'<!doctype html>\n<html lang="en">{head}{element("body", main)}</html>\n'


def _plan(kept: KeptPlan, crowds: Sequence[Crowd]) -> Markup:
    plan = kept.plan
    rows = []
    for epoch, screening in crowds:
        links = () if screening is None else _links(plan.id, epoch)
        cells = (str(epoch.number), _state(epoch), _traces(screening))
        rows.append(element("tr", *(element("td", cell) for cell in cells), element("td", *links)))
    names = ("crowd", "state", "traces of fake reports", "look at")
    heading = element("tr", *(element("th", name) for name in names))
    return element(
        "section",
        element("h2", element("bdi", plan.survey.name)),
        element("p", f"{kept.state}; crowds of {plan.reports_needed:,}; {_promise(kept)}"),
        element("p", element("code", plan.id)),
        *([element("table", element("thead", heading), element("tbody", *rows))] if rows else []),
        *(
            _findings(epoch, screening)
            for epoch, screening in crowds
            if screening is not None and screening.suspicious
        ),
    )


def _promise(kept: KeptPlan) -> str:
    """Return what was computed for a plan's certificate; a draft only asks for something."""
    if kept.certificate is None:
        return kept.plan.promise.in_words
    return read_certificate(kept.plan, kept.certificate).in_words


def _state(epoch: Epoch) -> str:
    if epoch.state == "sealed":
        return f"sealed, {epoch.reports:,} reports"
    if epoch.state == "open":
        return f"open, {epoch.tenths} tenths full"
    return f"{epoch.state}, it was {epoch.tenths} tenths full"


def _traces(screening: Screening | None) -> str:
    if screening is None:
        return ""
    if not screening.suspicious:
        return "none seen"
    return f"in at least {round_down(100 * screening.smallest_share_of_fakes, 2):g} % of them"


def _findings(epoch: Epoch, screening: Screening) -> Markup:
    return element(
        "div",
        element("h3", f"Traces of fake reports in crowd {epoch.number}"),
        element("ul", *(element("li", finding) for finding in screening.findings)),
    )


def _links(plan_id: str, epoch: Epoch) -> list[Markup]:
    base = f"/v1/plans/{plan_id}/epochs/{epoch.number}"
    pairs = (("report", "/report.html"), ("estimates", "/estimates"), ("tally", ""))
    return [element("span", element("a", name, href=base + end), " ") for name, end in pairs]
