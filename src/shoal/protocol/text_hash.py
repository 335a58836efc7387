"""Text to bits: hash functions for each survey and cohort, and pairs of letters.

A text answer sets `hashes` bits of a Bloom filter of `bits` bits. Which ones depends on the survey,
the question and the cohort, so that two texts that share bits in one cohort do not in the next, and
tables made for one survey are useless for another. Version 1, for every language::

    message   = "shoal-text-1" NUL  survey digest (32)  length of the name (u16 LE)  name
                cohort (u16 LE)  text
    digest    = SHA-256(message), read as eight u32, little endian
    place i   = word i * (bits - i) / 2^32, rounded down, for i = 0 .. hashes - 1
    position  = the place i among the bits that the earlier positions leave free, in order

So the positions of a text differ, and every text sets the same number of bits in every cohort. The
promise of several hashes relies on that. Names and texts are UTF-8 in Unicode normal form C, texts
without blanks at their ends (Unicode's White_Space, and U+001C to U+001F).

With `pairs` a report also carries the two letters at one position of the word, so that words can be
discovered without candidates. The position is public and follows from the cohort:

    position of the pair = cohort mod (length - 1), counted from 0: letters at it and after it

Padding fills a word shorter than `length`. A longer word, or one with a letter outside the
alphabet, sets the bit "other": it cannot be discovered, and does not mislead.
"""

from __future__ import annotations

import hashlib
import struct
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.errors import SurveyError
from shoal.support.checks import check_integer

_LABEL = b"shoal-text-1\0"
_WORDS = struct.Struct("<8I")


def normal_text(text: str) -> str:
    """Return the one form of a text that is hashed."""
    return unicodedata.normalize("NFC", text).strip()


class TextHash:
    """The hash functions of one text question."""

    def __init__(self, survey_digest: str, question: str, bits: int, hashes: int) -> None:
        name = unicodedata.normalize("NFC", question).encode()
        self._start = hashlib.sha256(
            _LABEL + bytes.fromhex(survey_digest) + len(name).to_bytes(2, "little") + name
        )
        self.bits, self.hashes = bits, hashes

    def positions(self, text: str, cohort: int) -> tuple[int, ...]:
        """Return which bits a text sets in a cohort; they differ."""
        words = _WORDS.unpack(self.digest(normal_text(text).encode(), cohort))
        chosen: list[int] = []
        for i in range(self.hashes):
            place = words[i] * (self.bits - i) >> 32
            for earlier in sorted(chosen):
                place += place >= earlier  # step over a bit that is taken
            chosen.append(place)
        return tuple(chosen)

    def digest(self, text: bytes, cohort: int) -> bytes:
        """Return the 32 bytes that choose the positions of a text: in normal form, as UTF-8."""
        message = self._start.copy()
        message.update(cohort.to_bytes(2, "little") + text)
        return message.digest()


PADDING = "_"
OTHER = "other"
MAX_LENGTH = 64


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
            "length of pairs", self.length, lowest=2, highest=MAX_LENGTH, error=SurveyError
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
