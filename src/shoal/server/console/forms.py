"""Forms: what a page sends back, and the pieces of HTML that ask for it."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from shoal.reports.markup import Markup, element
from shoal.server.core import problems
from shoal.server.core.http import Refusal, media_type, read_body

__all__ = ["Form", "field", "post_form", "read_form"]

_SMALL, _MOST_FIELDS = 64 << 10, 200


class Form:
    """The fields of a form."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str) -> str:
        """Return a field, stripped; an empty text if there is none."""
        return next((value.strip() for key, value in self._pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        """Return every field of a name."""
        return [value for key, value in self._pairs if key == name]

    def confirmed(self) -> bool:
        """Whether somebody ticked the box of what cannot be undone."""
        return self.text("confirm") == "yes"


async def read_form(request: Request, largest: int = _SMALL) -> Form:
    """Read a form of at most `largest` bytes."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != b"application/x-www-form-urlencoded":
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, largest)
    if isinstance(body, problems.Problem):
        raise Refusal(body)
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:  # not ASCII, not UTF-8, or too many fields
        raise Refusal(problems.BAD_REQUEST) from error
    return Form(pairs)


def post_form(
    action: str, *children: Markup, button: str, confirm: str | None = None, class_: str = ""
) -> Markup:
    """Return a form that posts to an address; `confirm` is a box that must be ticked first."""
    box = [] if confirm is None else [_box("confirm", "yes", confirm, required=True)]
    kind = "danger" if confirm else None
    return element(
        "form",
        *children,
        *box,
        element("button", button, type="submit", class_=kind),
        method="post",
        action=action,
        class_=class_ or None,
    )


def _box(name: str, value: str, text: str, *, required: bool = False) -> Markup:
    given = {"required": "required"} if required else {}
    box = element("input", type="checkbox", name=name, value=value, **given)
    return element("label", box, " ", text, class_="box")


def field(label: str, control: Markup, help: str = "") -> Markup:
    """Return a labelled control with a word of help."""
    told = [element("span", help, class_="quiet")] if help else []
    return element("label", element("span", label, class_="name"), control, *told, class_="field")


def checkbox(name: str, value: str, text: str) -> Markup:
    """Return a box that may be ticked."""
    return _box(name, value, text)


def select(name: str, options: list[tuple[str, str]], chosen: str = "") -> Markup:
    """Return a list to choose from, as pairs of a value and what is shown."""
    return element(
        "select",
        *(
            element(
                "option", shown, value=value,
                **({"selected": "selected"} if value == chosen else {}),
            )
            for value, shown in options
        ),
        name=name,
    )  # fmt: skip
