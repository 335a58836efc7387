"""Pages from templates, static files, forms, and the words that pages use.

A page has no inline style or script, so that its policy can forbid both. Static files are named
after their content, so that browsers may keep them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from shoal.analysis.screening import Screening
from shoal.protocol.plan import Plan
from shoal.protocol.promise import read_certificate
from shoal.reports.formatting import THIN, flip_in_words, unreadable_note
from shoal.reports.page import environment, style_sheet
from shoal.server.core import problems
from shoal.server.core.http import Refusal, media_type, read_body
from shoal.server.core.openapi import SAFE
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import Token
from shoal.server.storage.records import CrowdRecord, PlanRecord, Reason
from shoal.server.storage.windows import DAY
from shoal.support.rounding import round_down, text_near, text_up

SAFE_PAGE = SAFE | {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:;"
    " script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every page: no style or script but those of the console, and no frame around it."""

_SMALL = 64 << 10
_MEDIA = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
_REASONS: dict[Reason, str] = {
    "window": "its window ended before it was complete",
    "deadline": "it was not complete before the deadline",
    "closed": "its plan was closed",
    "key": "the key of open crowds was lost",
    "restored": "the data were restored from a backup",
    "unreadable": "too few of its reports could be read",
    "relay": "the relay discarded it",
}


def render(
    template: str, title: str, token: Token | None = None, status: int = 200, **values: Any
) -> Response:
    """Return a page; `token` decides which other pages it links to."""
    page = _templates.get_template(f"console/{template}.html")
    return HTMLResponse(page.render(title=title, token=token, **values), status)


def refused_page(request: Request, problem: Problem) -> Response:
    """Return the page of a problem; redirect people who are not signed in."""
    if problem.status == 401 and request.method in ("GET", "HEAD"):
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = quote(f"{request.url.path}{query}", safe="")
        return RedirectResponse(f"/sign-in?next={wanted}", 303)
    token = getattr(request.state, "token", None)
    response = render("refused", "Not done", token, problem.status, problem=problem)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


@cache
def static_file(name: str) -> bytes:
    """Return a static file; the style is that of report pages and the console's own."""
    content = (files("shoal.server.console") / "static" / name).read_bytes()
    return style_sheet().encode() + content if name == "console.css" else content


@cache
def _static_url(name: str) -> str:
    return f"/static/{name}?{hashlib.sha256(static_file(name)).hexdigest()[:16]}"


def static_response(name: str) -> Response:
    """Return a file that browsers may keep, since its address changes with its content."""
    cache = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(static_file(name), headers=cache, media_type=_MEDIA[name])


class Form(dict[str, str]):
    """The fields of a form, stripped; a missing one is an empty text."""

    def __missing__(self, name: str) -> str:
        return ""


async def read_fields(
    request: Request, max_size: int = _SMALL, max_fields: int = 200
) -> list[tuple[str, str]]:
    """Read the fields of a form of at most `max_size` bytes, in their order, stripped."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != b"application/x-www-form-urlencoded":
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, max_size)
    if isinstance(body, Problem):
        raise Refusal(body)
    try:
        text = body.decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_fields)
    except ValueError as error:  # not ASCII, not UTF-8, or too many fields
        raise Refusal(problems.BAD_REQUEST) from error
    return [(name, value.strip()) for name, value in fields]


async def read_form(request: Request, max_size: int = _SMALL) -> Form:
    """Read a form; of several fields with one name the first counts."""
    return Form(reversed(await read_fields(request, max_size)))


def promise_in_words(record: PlanRecord) -> str:
    """Return the computed promise of a plan's certificate; a draft has only a requested one."""
    if record.certificate is None:
        return record.plan.promise.in_words
    return read_certificate(record.plan, record.certificate).in_words


def about(percent: int) -> str:
    return f"about {percent}{THIN}%"


def crowd_in_words(plan: Plan, crowd: CrowdRecord) -> str:
    """Return the state of a crowd; of an open one its rounded progress and nothing else."""
    state = crowd.state
    if state == "released":
        note = f". {unreadable_note(plan, crowd.unreadable)}" if crowd.unreadable else ""
        return f"released, {crowd.reports:,} reports{note}"
    why = "" if crowd.reason is None else f": {_REASONS[crowd.reason]}"
    if crowd.unreadable:
        why += f" ({crowd.unreadable:,} messages could not)"
    if plan.parties is not None:  # only the relay knows the progress of a crowd
        return "waiting for the relay" if state == "open" else f"{state}{why}"
    if state == "open":
        return f"open, {about(crowd.progress)}"
    return f"{state}{why}; it was {about(crowd.progress)} complete"


def expected_in_words(plan: Plan, crowd: CrowdRecord, now: float) -> str:
    """Return when an open crowd will probably be complete; nothing where that is unknown.

    The rough estimate follows from the rounded progress and the day on which the crowd was opened,
    so it reveals no more than they do.
    """
    days = int(now // DAY) - (crowd.opened_day or 0)
    if plan.parties is not None or not crowd.opened_day or days < 1 or not crowd.progress:
        return ""
    left = days * (95 - crowd.progress) / (crowd.progress + 5)  # the middle of its 10 %
    if plan.window is not None and now + left * DAY > (crowd.window + 1) * plan.window:
        return "probably not before its window ends"
    if left < 1:
        return "probably within a day"
    unit, length = ("day", 1) if left < 14 else ("week", 7) if left < 60 else ("month", 30)
    count = round(left / length)
    return f"probably in about {count} {unit}{'s' * (count > 1)}"


def traces(screening: Screening | None) -> str:
    """Return the traces of fake reports in few words."""
    if screening is None:
        return ""
    if not screening.suspicious:
        return "none seen"
    return f"in at least {round_down(100 * screening.smallest_share_of_fakes, 2):g} % of them"


_FILTERS: dict[str, Callable[..., str]] = {
    "about": about,
    "count": lambda number: f"{number:,}",
    "flips": flip_in_words,
    "near": lambda number: text_near(number, 3),
    "up": lambda number: "-" if number is None else text_up(number, 3),
    "promise": promise_in_words,
}

_templates = environment(console="shoal.server.console")
_templates.filters |= _FILTERS
_templates.globals["static_url"] = _static_url
