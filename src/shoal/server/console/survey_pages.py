"""The pages of surveys: all of them, and one with its crowds and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoal.analysis.screening import Screening
from shoal.protocol.plan import Plan
from shoal.protocol.promise import read_certificate
from shoal.reports.markup import Markup, element
from shoal.reports.observers import observers_table
from shoal.reports.sections import scrolling
from shoal.reports.words import possible_answers, release_note
from shoal.server.console.formatting import window_in_words
from shoal.server.console.forms import checkbox, field, post_form
from shoal.server.console.responses import unreadable_note
from shoal.server.storage.records import CrowdRecord, PlanRecord, Reason
from shoal.support.rounding import round_down

__all__ = ["CrowdLine", "Survey", "home_parts", "promise_in_words", "survey_parts"]

_REASONS: dict[Reason, str] = {
    "window": "its window was over before it was full",
    "deadline": "it was not full before the deadline",
    "closed": "its plan was closed",
    "key": "the key of open crowds was lost",
    "restored": "the data were restored from a backup",
    "unreadable": "too few of its reports could be read",
    "relay": "the relay discarded it",
}

_AT_THE_RELAY = "waiting for the relay"
_UNDONE = "I know that this cannot be undone."


class Survey(NamedTuple):
    """A plan, how many crowds of it are in each state, and those that are open."""

    record: PlanRecord
    counts: dict[str, int]
    open_crowds: Sequence[CrowdRecord]


class CrowdLine(NamedTuple):
    """A crowd and, if it is sealed and may be looked at, the traces of fake reports in it."""

    crowd: CrowdRecord
    screening: Screening | None


def home_parts(surveys: Sequence[Survey], may_add: bool) -> list[Markup]:
    """Return the list of surveys."""
    lede = element("p", "A crowd is shown when it is complete, and not before.", class_="lede")
    add = (
        [element("p", element("a", "Add a draft", href="/drafts"), class_="ways")]
        if may_add
        else []
    )
    if not surveys:
        none = "There is no survey yet. Make a plan with the planner or with shoal plan."
        return [lede, element("p", none), *add]
    return [lede, *(_card(one) for one in surveys), *add]


def _card(survey: Survey) -> Markup:
    plan = survey.record.plan
    title = element("a", element("bdi", plan.survey.name), href=f"/surveys/{plan.id}")
    sealed, ended = survey.counts.get("sealed", 0), survey.counts.get("given up", 0)
    facts = [f"crowds of {plan.reports_needed:,}", _crowds(sealed, "sealed")]
    facts += [_crowds(ended, "given up")] if ended else []
    return element(
        "div",
        element("h2", title, " ", _state(survey.record.state)),
        element("p", ", ".join(facts), "; ", promise_in_words(survey.record), class_="quiet"),
        *_progress(survey),
        class_="card",
    )


def _crowds(number: int, state: str) -> str:
    return f"{number:,} {state}"


def _state(state: str) -> Markup:
    return element("span", state, class_=f"state {state}")


def _progress(survey: Survey) -> list[Markup]:
    plan, waiting = survey.record.plan, survey.counts.get("open", 0)
    if plan.parties is None:
        return [_tenths(plan, crowd) for crowd in survey.open_crowds]
    return [element("p", f"{_crowds(waiting, _AT_THE_RELAY)}.")] if waiting else []


def _tenths(plan: Plan, crowd: CrowdRecord) -> Markup:
    where = "" if plan.window is None else f", window {window_in_words(plan, crowd.window)}"
    text = f"Crowd {crowd.number}{where}: {crowd.tenths} tenths full"
    bar = element("progress", max=10, value=crowd.tenths, aria_label=f"Crowd {crowd.number}")
    return element("p", bar, element("span", text), class_="progress")


def survey_parts(
    survey: Survey, crowds: Sequence[CrowdLine], *, may_look: bool, may_act: bool
) -> list[Markup]:
    """Return a survey: what is asked and promised, its crowds, and what can be done."""
    record = survey.record
    plan, base = record.plan, f"/surveys/{record.plan.id}"
    sealed = survey.counts.get("sealed", 0)
    ways = []
    if may_look and sealed:
        ways.append(element("a", "Last sealed crowd", href=f"/v1/plans/{plan.id}/report.html"))
    if may_look and sealed > 1:
        ways.append(element("a", "Trend over crowds", href=f"{base}/trend"))
        ways.append(element("a", "Difference of two crowds", href=f"{base}/difference"))
    ways.append(element("a", "Plan as JSON", href=f"/v1/plans/{plan.id}"))
    if record.certificate is not None:
        ways.append(element("a", "Certificate", href=f"/v1/plans/{plan.id}/certificate"))
    return [
        element("p", _state(record.state), " ", promise_in_words(record)),
        element("p", f"Crowds of {plan.reports_needed:,} reports, view {plan.view}. ",
                element("code", plan.id)),
        *(element("p", note) for note in release_note(plan)),
        *_progress(survey),
        element("p", *ways, class_="ways"),
        _crowd_section(plan, crowds, may_look),
        _asked(plan),
        *_observers(record),
        *(_acts(record) if may_act else []),
    ]  # fmt: skip


def promise_in_words(record: PlanRecord) -> str:
    """Return what was computed for a plan's certificate; a draft only asks for something."""
    if record.certificate is None:
        return record.plan.promise.in_words
    return read_certificate(record.plan, record.certificate).in_words


def _asked(plan: Plan) -> Markup:
    asked = [
        element("li", element("bdi", question.name), f": {possible_answers(question)}")
        for question in plan.survey
    ]
    return element("section", element("h2", "What is asked"), element("ul", *asked))


def _observers(record: PlanRecord) -> list[Markup]:
    """Return who sees what of a plan's crowds; a draft has no certificate yet."""
    if record.observers is None:
        return []
    table = observers_table(record.observers, "What holds against each observer")
    return [
        element(
            "section",
            element("h2", "Who sees what", id="observers"),
            scrolling(table, "observers"),
            aria_labelledby="observers",
        )
    ]


def _crowd_section(plan: Plan, crowds: Sequence[CrowdLine], may_look: bool) -> Markup:
    if not crowds:
        return element("section", element("h2", "Crowds"), element("p", "There is none yet."))
    names = ["crowd", *(["window"] if plan.window else []), "state"]
    names += ["traces of fake reports", "look at"] if may_look else []
    heads = [element("th", name, scope="col") for name in names]
    table = element(
        "table",
        element("caption", element("span", "The last one first")),
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(plan, line, may_look) for line in crowds)),
    )
    return element(
        "section", element("h2", "Crowds", id="crowds"), scrolling(table, "crowds"),
        aria_labelledby="crowds",
    )  # fmt: skip


def _row(plan: Plan, line: CrowdLine, may_look: bool) -> Markup:
    crowd, screening = line
    name = str(crowd.number)
    shown = may_look and crowd.state == "sealed"
    link = element("a", name, href=f"/surveys/{plan.id}/crowds/{name}") if shown else name
    cells: list[Markup] = []
    if plan.window:
        cells.append(element("td", window_in_words(plan, crowd.window), class_="dates"))
    cells.append(element("td", crowd_in_words(plan, crowd)))
    if may_look:
        cells.append(element("td", _traces(screening)))
        cells.append(element("td", *(_downloads(plan.id, crowd.number) if shown else ())))
    return element("tr", element("th", link, scope="row"), *cells)


def crowd_in_words(plan: Plan, crowd: CrowdRecord) -> str:
    """Return the state of a crowd; of an open one its tenths, and nothing else."""
    if crowd.state == "sealed":
        note = f". {unreadable_note(plan, crowd.unreadable)}" if crowd.unreadable else ""
        return f"sealed, {crowd.reports:,} reports{note}"
    why = "" if crowd.reason is None else f": {_REASONS[crowd.reason]}"
    if crowd.unreadable:
        why += f" ({crowd.unreadable:,} messages could not)"
    if plan.parties is not None:  # how full a crowd is, only the relay knows
        return _AT_THE_RELAY if crowd.state == "open" else f"{crowd.state}{why}"
    if crowd.state == "open":
        return f"open, {crowd.tenths} tenths full"
    return f"{crowd.state}{why}; it was {crowd.tenths} tenths full"


def _traces(screening: Screening | None) -> str:
    if screening is None:
        return ""
    if not screening.suspicious:
        return "none seen"
    return f"in at least {round_down(100 * screening.smallest_share_of_fakes, 2):g} % of them"


def _downloads(plan_id: str, number: int) -> list[Markup]:
    base = f"/v1/plans/{plan_id}/crowds/{number}"
    pairs = (
        ("report", "/report.html"),
        ("CSV", "/estimates?format=csv"),
        ("Parquet", "/estimates?format=parquet"),
        ("Arrow", "/estimates?format=arrow"),
        ("JSON", "/results"),
        ("tally", ""),
    )
    return [element("span", element("a", name, href=base + end), " ") for name, end in pairs]


def _acts(record: PlanRecord) -> list[Markup]:
    """Return what an admin can do with a plan in its state."""
    base, state = f"/surveys/{record.plan.id}", record.state
    forms: list[Markup] = []
    if state == "draft":
        honest = checkbox("honest", "all", "A whole crowd is honest: nobody sends fake reports.")
        unsaid = [honest] if record.plan.honest_fraction is None else []
        never = checkbox("never_published", "yes", "After a restore: it was not published before.")
        forms.append(post_form(f"{base}/publish", *unsaid, never, button="Publish"))
    if state in ("draft", "published", "paused"):
        origins = element("input", type="text", name="origins", value=" ".join(record.origins))
        help_ = "such as https://page.example, or * for all; empty for none"
        name = "Origins of the web pages that may send reports"
        forms.append(post_form(f"{base}/origins", field(name, origins, help_), button="Set"))
    if state == "paused":
        forms.append(post_form(f"{base}/publish", button="Resume", class_="inline"))
    if state == "published":
        forms.append(post_form(f"{base}/pause", button="Pause", class_="inline"))
    if state in ("published", "paused"):
        text = element("p", "Closing destroys the open crowd. Sealed crowds stay.")
        forms.append(post_form(f"{base}/close", text, button="Close", confirm=_UNDONE))
    if state == "closed":
        text = element("p", "This destroys all that was collected, sealed crowds included.")
        forms.append(post_form(f"{base}/destroy", text, button="Destroy", confirm=_UNDONE))
    if not forms:
        return []
    return [element("section", element("h2", "Act"), *forms)]
