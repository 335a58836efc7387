"""Pages from templates, static files, and the forms that pages send back.

A page has no inline style or script, so that its policy can forbid both. Static files are named
after their content, so that browsers may keep them.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shoal.reports.page import environment, style_sheet
from shoal.server.console.formatting import FILTERS
from shoal.server.core import problems
from shoal.server.core.http import Refusal, media_type, read_body
from shoal.server.core.tokens import Token

__all__ = ["Form", "read_form", "render", "static_file"]

_SMALL, _MAX_FIELDS = 64 << 10, 200
_MEDIA = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}

_templates = environment(console="shoal.server.console")
_templates.filters |= FILTERS


@cache
def static_file(name: str) -> bytes:
    """Return a static file; the style is that of report pages and the console's own."""
    content = (files("shoal.server.console") / "static" / name).read_bytes()
    return style_sheet().encode() + content if name == "console.css" else content


@cache
def _static_url(name: str) -> str:
    return f"/static/{name}?{hashlib.sha256(static_file(name)).hexdigest()[:16]}"


_templates.globals["static_url"] = _static_url


def render(
    template: str, title: str, token: Token | None = None, status: int = 200, **values: Any
) -> Response:
    """Return a page; `token` decides which other pages it links to."""
    page = _templates.get_template(f"console/{template}.html")
    return HTMLResponse(page.render(title=title, token=token, **values), status)


def static_response(name: str) -> Response:
    """Return a file that browsers may keep, since its address changes with its content."""
    cache = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(static_file(name), headers=cache, media_type=_MEDIA[name])


class Form:
    """The fields of a form."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str) -> str:
        """Return a field, stripped; an empty text if there is none."""
        return next((value.strip() for key, value in self._pairs if key == name), "")


async def read_form(request: Request, max_size: int = _SMALL) -> Form:
    """Read a form of at most `max_size` bytes."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != b"application/x-www-form-urlencoded":
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, max_size)
    if isinstance(body, problems.Problem):
        raise Refusal(body)
    try:
        text = body.decode("ascii")
        return Form(
            parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        )
    except ValueError as error:  # not ASCII, not UTF-8, or too many fields
        raise Refusal(problems.BAD_REQUEST) from error
