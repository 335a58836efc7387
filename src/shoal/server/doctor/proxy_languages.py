"""The languages of nginx's and Caddy's configurations: directives, their words, their blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from shoal.errors import InputError

__all__ = ["Directive", "read_caddy", "read_nginx"]

_DEEPEST = 50
_NGINX = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<sign>[{};])
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>(?:\$\{[^}\s]*\}|[^\s{};"'\\]|\\.)(?:\$\{[^}\s]*\}|[^\s{};\\]|\\.)*)""",
    re.X | re.S,
)
_CADDY = re.compile(
    r"""(?P<space>[^\S\n]+|\#[^\n]*|\\\n)
      | (?P<sign>\n)
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | `(?P<single>[^`]*)`
      | (?P<word>[^\s"`][^\s]*)""",
    re.X | re.S,
)


@dataclass
class Directive:
    """One directive: its name, its words, and the directives in its block."""

    name: str
    words: list[str]
    line: int
    block: list[Directive] = field(default_factory=list)


def read_nginx(text: str) -> list[Directive]:
    """Read nginx's language.

    >>> [server] = read_nginx("server { listen 443 ssl; access_log off; }")
    >>> [(one.name, one.words) for one in server.block]
    [('listen', ['443', 'ssl']), ('access_log', ['off'])]
    """
    top: list[Directive] = []
    open_blocks = [top]
    words: list[str] = []
    begins = 1
    for token, is_sign, line in _tokens(_NGINX, text):
        if not is_sign:
            begins = line if not words else begins
            words.append(token)
            continue
        if words and token != "}":  # noqa: S105  a brace
            open_blocks[-1].append(Directive(words[0].lower(), words[1:], begins))
        elif words or (token == "{" and not words):  # noqa: S105  a brace
            raise InputError(f"line {line} is not nginx's language")
        if token == "{":  # noqa: S105  a brace
            open_blocks.append(open_blocks[-1][-1].block)
        if token == "}":  # noqa: S105  a brace
            open_blocks.pop()
        words = []
        if not 1 <= len(open_blocks) <= _DEEPEST:
            raise InputError(f"the braces do not fit at line {line}")
    if len(open_blocks) != 1 or words:
        raise InputError("it ends within a directive")
    return top


def read_caddy(text: str) -> list[Directive]:
    r"""Read a Caddyfile; its global options are a directive with a brace for a name.

    >>> [site] = read_caddy("a.example {\n  reverse_proxy b:1 {\n    header_up -X y\n  }\n}")
    >>> site.name, site.block[0].words, site.block[0].block[0].words
    ('a.example', ['b:1'], ['-X', 'y'])
    """
    top: list[Directive] = []
    open_blocks = [top]
    words: list[str] = []
    begins = 1
    # A site that is the only one may stand without braces: its first line is its address.
    for token, is_sign, line in (*_tokens(_CADDY, text), ("\n", True, 0)):
        if not is_sign:
            begins = line if not words else begins
            words.append(token)
            continue
        if words == ["}"]:
            open_blocks.pop()
        elif words and words[-1] == "{":
            opened = Directive(words[0], words[1:-1], begins)
            open_blocks[-1].append(opened)
            open_blocks.append(opened.block)
        elif words:
            open_blocks[-1].append(Directive(words[0], words[1:], begins))
        words = []
        if not 1 <= len(open_blocks) <= _DEEPEST:
            raise InputError(f"the braces do not fit at line {line}")
    if len(open_blocks) != 1:
        raise InputError("it ends within a block")
    return top


def _tokens(language: re.Pattern[str], text: str) -> Iterator[tuple[str, bool, int]]:
    """Yield words and signs, each with whether it is a sign and its line."""
    place, line = 0, 1
    while place < len(text):
        matched = language.match(text, place)
        if matched is None:
            raise InputError(f"line {line} cannot be read")
        kind = matched.lastgroup
        if kind == "sign":
            yield matched[0], True, line
        elif kind != "space":
            yield matched[str(kind)], False, line
        line += matched[0].count("\n")
        place = matched.end()
