"""The pages of those who run the collector: signing in, tokens, drafts, actions, backups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from shoal.reports.markup import Markup, element
from shoal.reports.sections import scrolling
from shoal.server.console.forms import field, post_form, select
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import ROLES, Action, Token
from shoal.server.storage.records import PlanRecord

__all__ = [
    "action_parts",
    "backup_parts",
    "draft_parts",
    "refusal_parts",
    "sign_in_parts",
    "token_parts",
]


def sign_in_parts(next_page: str, failed: bool) -> list[Markup]:
    """Return the form that takes a token."""
    sorry = "No token like this is valid here. Ask whoever runs the collector for one."
    secret = element(
        "input", type="password", name="token", required="required",
        autocomplete="current-password", autofocus="autofocus",
    )  # fmt: skip
    return [
        *([element("p", sorry, class_="told refused", role="alert")] if failed else []),
        post_form(
            "/sign-in",
            field("Token", secret, "begins with shoal_viewer_, shoal_analyst_ or shoal_admin_"),
            element("input", type="hidden", name="next", value=next_page),
            button="Sign in",
        ),
    ]


def refusal_parts(problem: Problem) -> list[Markup]:
    """Return why a request was refused."""
    named = f" It is about {problem.parameter}." if problem.parameter else ""
    return [
        element("p", f"{problem.title}{named}", class_="told refused", role="alert"),
        element("p", element("a", "All surveys", href="/")),
    ]


def token_parts(
    tokens: Sequence[tuple[Token, date | None]],
    plans: Sequence[PlanRecord],
    made: tuple[Token, str] | None = None,
) -> list[Markup]:
    """Return the list of tokens with their last days of use, and the form that makes one."""
    told = []
    if made is not None:
        token, secret = made
        about = f"The new token {token.label} ({token.role}). It is shown this once; keep it now."
        told = [
            element("div", element("p", about), element("code", secret, class_="secret"),
                    class_="told", role="status")
        ]  # fmt: skip
    names = {record.plan.id: record.plan.survey.name for record in plans}
    body = [_token_row(token, used, names) for token, used in tokens]
    heads = ("label", "role", "last day", "plans", "last used", "revoke")
    table = element(
        "table",
        element(
            "caption", element("span", "A token is stored as a hash; nobody can read it here.")
        ),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *body),
    )
    choices = [("", "all plans"), *((one, f"{names[one]} ({one[:8]})") for one in names)]
    label = element("input", type="text", name="label", required="required", maxlength=80)
    day = element("input", type="date", name="expires")
    key = element("input", type="text", name="key", maxlength=43, spellcheck="false")
    form = post_form(
        "/tokens",
        element(
            "div",
            field("Label", label, "names it in lists; never a person who sends reports"),
            field("Role", select("role", [(role, role) for role in ROLES], "viewer")),
            field("Last day", day, "none if it is left empty"),
            field("For", select("plan", choices)),
            field("Key", key, "of a relay that forwards whole crowds, as shoal relay prints it"),
            class_="grid",
        ),
        button="Make a token",
    )
    return [
        *told,
        element("section", element("h2", "Tokens", id="tokens"), scrolling(table, "tokens")),
        element("section", element("h2", "Make a token"), form),
    ]


def _token_row(token: Token, used: date | None, names: dict[str, str]) -> Markup:
    last = "none" if token.expires is None else token.expires.isoformat()
    plans = "all" if token.plans is None else ", ".join(names.get(one, one) for one in token.plans)
    if token.role in ("app", "relay"):
        seen = "not stored: it would tell when reports came"
    else:
        seen = "never" if used is None else used.isoformat()
    revoke = post_form(f"/tokens/{token.id}/revoke", button="Revoke", class_="inline")
    cells = [element("td", element("bdi", text)) for text in (token.role, last, plans, seen)]
    return element(
        "tr", element("th", element("bdi", token.label), scope="row"), *cells, element("td", revoke)
    )


def draft_parts() -> list[Markup]:
    """Return the form that adds a plan as a draft."""
    area = element("textarea", name="plan", required="required", spellcheck="false")
    text = (
        "Paste a plan as shoal plan -o plan.json writes it. The collector computes its promise and"
        " keeps the plan as a draft; nobody is asked before you publish it."
    )
    return [
        element("p", text),
        post_form("/drafts", field("Plan (JSON)", area), button="Add the draft"),
    ]


def action_parts(actions: Sequence[Action], names: dict[str, str]) -> list[Markup]:
    """Return what people did, the last first; `names` are those of plans."""
    if not actions:
        return [element("p", "Nothing was done yet.")]
    body = []
    for one in actions:
        subject = names.get(one.subject, one.subject)
        cells = [element("td", element("bdi", text)) for text in (one.by, one.action, subject)]
        body.append(element("tr", element("th", one.time, scope="row"), *cells))
    heads = ("time", "who", "what", "which")
    table = element(
        "table",
        element("caption", element("span", "Changes to plans, tokens, the clock and backups")),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *body),
    )
    return [element("h2", "Actions", id="actions"), scrolling(table, "actions")]


def backup_parts(names: Sequence[str]) -> list[Markup]:
    """Return the list of backups, and the button that makes one."""
    text = (
        "A backup holds plans, sealed crowds, tokens and the signing key, and nothing of open"
        " crowds. It is written to the folder backups in the collector's data, readable by its"
        " owner only; copy it to another machine. shoal collector restore reads it."
    )
    listed = [element("li", element("code", name)) for name in reversed(names)]
    return [
        element("p", text),
        post_form("/backups", button="Make a backup"),
        element("ul", *listed) if listed else element("p", "There is none yet."),
    ]
