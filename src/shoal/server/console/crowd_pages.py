"""The pages of sealed crowds: one, a trend over several, the difference of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.protocol.plan import Plan
from shoal.reports.crowd_parts import (
    crowd_parts,
    difference_parts,
    screening_parts,
    trend_parts,
)
from shoal.reports.markup import Markup, element
from shoal.server.console.formatting import window_in_words
from shoal.server.console.forms import field, post_form, select
from shoal.server.console.responses import unreadable_note
from shoal.server.console.searches import FDR
from shoal.server.storage.records import CrowdRecord, PlanRecord

__all__ = ["crowd_page_parts", "difference_page_parts", "name_of_crowd", "trend_page_parts"]


def name_of_crowd(plan: Plan, crowd: Mapping[str, Any]) -> str:
    """Return how people call a crowd: its number, and its window as dates."""
    number = f"crowd {crowd['name']}"
    return number if plan.window is None else f"{number}, {window_in_words(plan, crowd['window'])}"


def crowd_page_parts(
    plan: Plan, crowd: CrowdRecord, document: Mapping[str, Any], screening: Mapping[str, Any]
) -> list[Markup]:
    """Return a sealed crowd: where else it can be had, its questions, traces of fake reports."""
    base = f"/v1/plans/{plan.id}/crowds/{crowd.number}"
    ways = [
        element("a", name, href=where)
        for name, where in (
            ("Survey", f"/surveys/{plan.id}"),
            ("Report page", f"{base}/report.html"),
            ("CSV", f"{base}/estimates?format=csv"),
            ("Parquet", f"{base}/estimates?format=parquet"),
            ("Arrow", f"{base}/estimates?format=arrow"),
            ("JSON", f"{base}/results"),
            ("Signed tally", base),
        )
    ]
    about = f"Sealed, {crowd.reports:,} reports"
    if plan.window is not None:
        about += f", window {window_in_words(plan, crowd.window)}"
    searched = set(document["texts"])
    texts = [one.name for one in plan.survey if one.kind == "text" and one.name not in searched]
    return [
        element("p", f"{about}. Intervals are {document['estimates']['interval']}."),
        *([element("p", unreadable_note(plan, crowd.unreadable))] if crowd.unreadable else []),
        element("p", *ways, class_="ways"),
        *crowd_parts(plan, document),
        *([_search(plan, crowd.number, texts)] if texts else []),
        *screening_parts(screening),
    ]


def _search(plan: Plan, number: int, texts: Sequence[str]) -> Markup:
    """Return the form that asks which of some candidates a crowd answered."""
    where = f"/surveys/{plan.id}/crowds/{number}/texts"
    question = select("question", [(name, name) for name in texts])
    area = element("textarea", name="candidates", required="required", spellcheck="false")
    rate = element("input", type="text", name="fdr", value=f"{FDR}", inputmode="decimal")
    return element(
        "section",
        element("h2", "Find texts", id="texts"),
        post_form(
            where,
            field("Question", question),
            field("Candidates", area, "one in each line"),
            field("False-discovery rate", rate, "the part of the texts found that may be wrong"),
            button="Find",
        ),
        aria_labelledby="texts",
    )


def trend_page_parts(
    record: PlanRecord, question: str, document: Mapping[str, Any], shown: int
) -> list[Markup]:
    """Return a trend, and the form that chooses another."""
    plan = record.plan
    asked = [one.name for one in plan.survey if one.kind != "text"]
    names = [name_of_crowd(plan, one["crowds"][0]) for one in document["crowds"]]
    crowds = element("input", type="number", name="crowds", min=2, max=60, value=shown)
    chooser = element(
        "form",
        element(
            "div",
            field("Question", select("question", [(name, name) for name in asked], question)),
            field("Crowds", crowds, "how many of the last sealed ones"),
            class_="grid",
        ),
        element("button", "Show", type="submit"),
        method="get",
        action=f"/surveys/{plan.id}/trend",
    )
    return [_back(plan), chooser, *trend_parts(question, document, names)]


def difference_page_parts(
    record: PlanRecord,
    other: PlanRecord,
    document: Mapping[str, Any],
    others: Sequence[PlanRecord],
) -> list[Markup]:
    """Return the difference of two crowds, and the form that chooses others."""
    plan = record.plan
    first, second = (document[side]["crowds"][0] for side in ("first", "second"))
    names = [name_of_crowd(plan, first), name_of_crowd(other.plan, second)]
    if other is not record:
        pairs = zip(names, (plan, other.plan), strict=True)
        names = [f"{one.survey.name}, {name}" for name, one in pairs]
    plans = [(one.plan.id, f"{one.plan.survey.name} ({one.plan.id[:8]})") for one in others]
    numbers = [
        element("input", type="number", name=name, min=1, value=crowd["name"])
        for name, crowd in (("first", first), ("second", second))
    ]
    chooser = element(
        "form",
        element(
            "div",
            field("Crowd", numbers[0]),
            field("Minus crowd", numbers[1]),
            field("of survey", select("with_plan", plans, other.plan.id)),
            class_="grid",
        ),
        element("button", "Compare", type="submit"),
        method="get",
        action=f"/surveys/{plan.id}/difference",
    )
    return [_back(plan), chooser, *difference_parts(document, *names)]


def _back(plan: Plan) -> Markup:
    return element(
        "p", element("a", "Back to ", element("bdi", plan.survey.name), href=f"/surveys/{plan.id}"),
        class_="ways",
    )  # fmt: skip
