"""HTML and SVG that cannot be spoiled by a name: text is escaped unless it is already markup."""

from __future__ import annotations

import json
from html import escape

__all__ = ["Markup", "data_block", "element"]

_VOID = {"br", "hr", "input", "link", "meta"}


class Markup(str):
    """Text that is HTML or SVG already; everything else is escaped before it becomes that."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; a child or an attribute that is not `Markup` is escaped.

    An attribute's underscores are hyphens, one at its end is dropped; None leaves it out.

    >>> element("td", "<b> & co", class_="number", data_of='"x"')
    '<td class="number" data-of="&quot;x&quot;">&lt;b&gt; &amp; co</td>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    inside = "".join(child if isinstance(child, Markup) else escape(child) for child in children)
    return Markup(f"<{tag}{written}>{inside}</{tag}>")


def data_block(document: object, name: str) -> Markup:
    r"""Return a JSON document as a block of data that no browser runs and no text can end.

    >>> data_block({"name": "</script>"}, "estimates")
    '<script type="application/json" id="estimates">{"name": "\\u003c/script\\u003e"}</script>'
    """
    text = json.dumps(document, allow_nan=False)  # ASCII only
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(name)}">{text}</script>')
