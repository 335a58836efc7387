"""Pairs of letters, declared with a text question so that its words can be discovered.

A text's own bits only say whether a candidate explains them. With `pairs` the question has further
bits, and a report also carries the pair of letters at one of the word's positions. Which position
follows from the report's cohort, so it is public, drawn afresh and costs no field on the wire:

    position of the pair = cohort mod (length - 1), counted from 0: letters at it and after it

A word shorter than `length` is filled up with the padding sign. A word that is longer, or has a
letter outside the alphabet, sets the bit "other": it cannot be discovered, and does not mislead.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.errors import SurveyError
from shoal.protocol.hashing import normal_text
from shoal.support.checks import check_integer

__all__ = ["Pairs"]

PADDING = "_"
OTHER = "other"
LONGEST = 64


@dataclass(frozen=True)
class Pairs:
    """How the words of a text question are cut into pairs of letters.

    Parameters
    ----------
    length
        The longest word that can be discovered, 2 to 64 letters.
    alphabet
        The letters of the words, each once; ``_`` is reserved for padding.

    Examples
    --------
    >>> pairs = Pairs(4, "abc")
    >>> pairs.options
    ('aa', 'ab', 'ac', 'a_', 'ba', 'bb', 'bc', 'b_', 'ca', 'cb', 'cc', 'c_', '__')
    >>> [pairs.options[pairs.option("cab", position)] for position in range(pairs.positions)]
    ['ca', 'ab', 'b_']
    """

    length: int
    alphabet: str = "abcdefghijklmnopqrstuvwxyz"

    def __post_init__(self) -> None:
        length = check_integer(
            "length of pairs", self.length, lowest=2, highest=LONGEST, error=SurveyError
        )
        object.__setattr__(self, "length", length)
        _check_alphabet(self.alphabet)

    @property
    def positions(self) -> int:
        """How many pairs a word has."""
        return self.length - 1

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Every pair a word can have: letter and letter, letter and padding, padding twice."""
        seconds = self.alphabet + PADDING
        return (*(a + b for a in self.alphabet for b in seconds), PADDING * 2)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each bit: every pair, and `other` for a word that has none."""
        return (*self.options, OTHER)

    @property
    def bits(self) -> int:
        """How many bits the pair takes; exactly one of them is set."""
        letters = len(self.alphabet)
        return letters * (letters + 1) + 2

    @cached_property
    def _place(self) -> dict[str, int]:
        return {pair: place for place, pair in enumerate(self.options)}

    def position(self, cohort: int) -> int:
        """Return at which letter the pair of a report in this cohort begins."""
        return cohort % self.positions

    def option(self, word: str, position: int) -> int:
        """Return which bit a word sets at a position; an empty word is no answer."""
        normal = normal_text(word)
        if not normal or len(normal) > self.length or set(normal) - set(self.alphabet):
            return len(self.options)  # other
        filled = normal.ljust(self.length, PADDING)
        return self._place[filled[position : position + 2]]

    def to_json(self) -> dict[str, Any]:
        """Return the pairs as plain JSON values."""
        return {"alphabet": self.alphabet, "length": self.length}


def _check_alphabet(alphabet: object) -> None:
    if not isinstance(alphabet, str) or not 1 <= len(alphabet) <= 250:
        raise SurveyError(f"an alphabet is a text of 1 to 250 letters, got {alphabet!r:.60}.")
    if len(set(alphabet)) < len(alphabet):
        twice = next(letter for letter in alphabet if alphabet.count(letter) > 1)
        raise SurveyError(f"an alphabet has each letter once, got {twice!r} twice.")
    for letter in alphabet:
        # Two letters that Unicode would join into one could not be told apart in a table.
        joined = unicodedata.combining(letter) or unicodedata.normalize("NFC", letter) != letter
        if joined or not letter.isprintable() or letter.isspace() or letter in f";{PADDING}":
            raise SurveyError(
                f"an alphabet has printable letters other than blanks, ';' and {PADDING!r},"
                f" got {letter!r}."
            )
