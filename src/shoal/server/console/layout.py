"""The frame of every page of the console: its head, the way to other pages, and its style.

A page brings no style or script of its own, so that its policy can forbid both; the style is one
file, named after its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from shoal.reports.markup import Markup, element
from shoal.server.core.tokens import Token

__all__ = ["frame", "icon", "script", "style", "turning"]


@cache
def style() -> bytes:
    """Return the style of all pages: that of published pages, and the console's own."""
    published = files("shoal.reports") / "templates" / "page.css"
    own = files("shoal.server.console") / "static" / "console.css"
    return (published.read_text("utf-8") + own.read_text("utf-8")).encode()


@cache
def script() -> bytes:
    """Return the script of the planner's sliders."""
    return (files("shoal.server.console") / "static" / "console.js").read_bytes()


@cache
def icon() -> bytes:
    """Return the picture that browsers show beside a page's title."""
    return (files("shoal.server.console") / "static" / "icon.svg").read_bytes()


@cache
def _address(name: str) -> str:
    content = {"console.css": style, "console.js": script, "icon.svg": icon}[name]()
    return f"/static/{name}?{hashlib.sha256(content).hexdigest()[:16]}"


def frame(
    title: str, parts: Sequence[Markup], token: Token | None = None, *, scripted: bool = False
) -> str:
    """Return a page; `token` is whose it is, and decides what it leads to."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} - Shoal"),
        element("link", rel="icon", href=_address("icon.svg"), type="image/svg+xml"),
        element("link", rel="stylesheet", href=_address("console.css")),
        *([element("script", src=_address("console.js"), defer="defer")] if scripted else []),
    )
    skip = element("a", "Skip to the content", href="#content", class_="skip")
    main = element("main", element("h1", element("bdi", title)), *parts, id="content")
    body = element("body", skip, _top(token), main)
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _top(token: Token | None) -> Markup:
    if token is None:
        return element("header", element("strong", "Shoal"), class_="top")
    places = [("Surveys", "/"), ("Planner", "/planner")]
    if token.role == "admin" and token.plans is None:
        places += [
            ("Tokens", "/tokens"),
            ("Actions", "/actions"),
            ("Backups", "/backups"),
        ]
    links = [element("a", name, href=where) for name, where in places]
    leave = element(
        "form",
        element("span", f"{token.label}, {token.role} ", class_="quiet"),
        element("button", "Sign out", type="submit"),
        method="post",
        action="/sign-out",
    )
    return element(
        "header",
        element("strong", "Shoal"),
        element("nav", *links, aria_label="Console"),
        leave,
        class_="top",
    )


def turning(where: str, page: int, has_more: bool) -> list[Markup]:
    """Return the links to the pages beside one."""
    links = []
    if page:
        links.append(element("a", "newer", href=f"{where}page={page - 1}", rel="prev"))
    if has_more:
        links.append(element("a", "older", href=f"{where}page={page + 1}", rel="next"))
    return [element("nav", *links, class_="turning", aria_label="Pages")] if links else []
