"""The words that a person reads, in their language, and lines that fit their terminal.

`catalogue.json` has one entry per language, all with the same keys. A tool may add languages of its
own. The language is that of the environment; where the terminal cannot show it, English.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, TextIO, TypeAlias

from shoal.errors import InputError
from shoal.support.results import wrapped

Words: TypeAlias = "Mapping[str, Any]"
"""The texts of one language, by key."""

_ENGLISH = "en"


@cache
def catalogue() -> dict[str, Words]:
    """Return the texts of all languages that Shoal brings."""
    content = resources.files(__package__).joinpath("catalogue.json").read_text("utf-8")
    found: dict[str, Words] = json.loads(content)
    return found


def english() -> Words:
    return catalogue()[_ENGLISH]


def read_translations(given: object) -> dict[str, Words]:
    """Return the languages that a tool adds: a mapping like the catalogue, or a file with one."""
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        try:
            with open(given, encoding="utf-8") as file:
                given = json.load(file)
        except (OSError, ValueError) as problem:
            raise InputError(f"the translations {given} cannot be read.") from problem
    if not isinstance(given, Mapping):
        raise InputError("translations are a mapping from languages, or the path of a JSON file.")
    for language, words in given.items():
        _check(str(language), words)
    return {str(language): words for language, words in given.items()}


def _check(language: str, words: object) -> None:
    """Refuse a translation in which a text, or a value in a text, is missing."""
    if not isinstance(words, Mapping):
        raise InputError(f"the translation {language!r} is not a mapping.")
    ours = english()
    for key, model in ours.items():
        found = words.get(key)
        if type(found) is not type(model):
            raise InputError(
                f"the translation {language!r} needs a {type(model).__name__} {key!r}."
            )
        parts = model.items() if isinstance(model, Mapping) else [("", model)]
        for name, text in parts:
            other = found.get(name) if isinstance(found, Mapping) else found
            if _fields(other) != _fields(text):
                where = f"{key!r}" if not name else f"{key!r}, {name!r}"
                raise InputError(
                    f"the translation {language!r}, {where}, needs the fields"
                    f" {', '.join(sorted(_fields(text))) or 'of no value'}."
                )
    if unknown := set(words) - set(ours):
        raise InputError(f"the translation {language!r} has an unknown text {min(unknown)!r}.")


def _fields(text: object) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text)) if isinstance(text, str) else set()


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language of messages, by the variables of POSIX in their order.

    >>> language_of({"LANG": "de_DE.UTF-8"}), language_of({"LC_ALL": "C", "LANG": "fr_FR"})
    ('de', 'en')
    """
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environ[name] for name in names if environ.get(name)), _ENGLISH)
    language = re.split(r"[_.@-]", locale, maxsplit=1)[0].lower()
    return _ENGLISH if language in ("c", "posix") else language


def words_for(
    environ: Mapping[str, str], translations: Mapping[str, Words], stream: TextIO
) -> tuple[str, Words]:
    """Return a language and its texts: the person's, if it is known and can be shown."""
    language, known = language_of(environ), {**catalogue(), **translations}
    if language not in known or not _can_show(known[language], stream):
        language = _ENGLISH
    return language, known[language]


def _can_show(words: Words, stream: TextIO) -> bool:
    try:
        json.dumps(dict(words), ensure_ascii=False).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def fitted(text: str, stream: TextIO | None = None) -> str:
    """Return a text whose lines fit the terminal that a stream is; others keep their lines."""
    stream = sys.stdout if stream is None else stream
    if not stream.isatty():
        return text
    return wrapped(text, terminal_width(stream))
