"""Lines of text that fit a width in columns, in which East Asian letters take two."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_SPACES = " \n"  # of a no-break space a line is not broken
_NOT_FIRST = "、。，．：；？！）」』】〕〉》ー々・…ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
_NOT_LAST = "（「『【〔〈《"


def width_of(text: str) -> int:
    r"""Return how many columns of a terminal a text takes.

    >>> width_of("ja"), width_of("はい"), width_of("e\u0301")
    (2, 4, 1)
    """
    return sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def wrapped(text: str, width: int) -> str:
    r"""Break lines that are too long; what follows an indented line is indented further.

    >>> print(wrapped("one two three", 8))
    one two
    three
    >>> print(wrapped("送信しますか、と質問します。", 12))
    送信します
    か、と質問し
    ます。
    """
    return "\n".join(part for line in text.split("\n") for part in _lines(line, width))


def _lines(line: str, width: int) -> Iterator[str]:
    if width_of(line) <= width:
        yield line
        return
    start = line[: len(line) - len(line.lstrip(" "))]
    indent = start + "  " if start else ""
    current = start
    for space, piece in _pieces(line[len(start) :], max(width - len(indent), 2)):
        if width_of(current + space + piece) > width and current.strip():
            yield current
            current = indent + piece
        else:
            current += space + piece
    yield current


def _pieces(line: str, widest: int) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line that are not broken, each with the space before it."""
    space, piece = "", ""
    for letter in line:
        if letter in _SPACES:
            if piece:
                yield space, piece
                space, piece = "", ""
            space += letter
            continue
        may_break = piece and (_columns(letter) == 2 or _columns(piece[-1]) == 2)
        may_break = may_break and letter not in _NOT_FIRST and piece[-1] not in _NOT_LAST
        if may_break or width_of(piece + letter) > widest:
            yield space, piece
            space, piece = "", ""
        piece += letter
    if piece:
        yield space, piece
