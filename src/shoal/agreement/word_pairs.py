"""A survey that can be searched: the whole word, hashed, and one pair of its letters.

The word is a `Text` question. Beside it a `Choice` question reports the pair of letters at one of
the word's positions; which one follows from the report's cohort, so it is public, drawn afresh and
costs no field on the wire:

    position of the pair = cohort mod (length - 1), counted from 0: letters at it and after it

Everything is in the survey itself: the name of the pair question gives the word's question and the
length, its options the alphabet. A word shorter than `length` is filled up with the padding sign. A
word that is longer, or has a letter outside the alphabet, answers "other" to the pair question: it
cannot be discovered, and does not mislead.
"""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache

from shoal.agreement.hashing import normal_text
from shoal.agreement.survey import Choice, Survey, Text
from shoal.errors import SurveyError
from shoal.support.checks import check_integer

__all__ = ["Layout", "discovery_survey", "layout_in", "layout_of"]

PADDING = "_"
OTHER = "other"
LONGEST = 64
_NAME = re.compile(r"(?P<word>.+): pairs of (?P<length>[0-9]{1,3}) letters")


@dataclass(frozen=True)
class Layout:
    """How words of a survey are cut into pairs."""

    word: str
    pairs: str
    length: int
    alphabet: str

    @property
    def positions(self) -> int:
        """How many pairs a word has."""
        return self.length - 1

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Every pair a word can have: letter and letter, letter and padding, padding twice."""
        seconds = self.alphabet + PADDING
        return (*(a + b for a in self.alphabet for b in seconds), PADDING * 2)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {pair: place for place, pair in enumerate(self.options)}

    def position(self, cohort: int) -> int:
        """Return at which letter the pair of a report in this cohort begins."""
        return cohort % self.positions

    def option(self, word: str, position: int) -> int:
        """Return which option of the pair question a word sets at a position; "" is no word."""
        normal = normal_text(word)
        if not normal or len(normal) > self.length or set(normal) - set(self.alphabet):
            return len(self.options)  # other
        filled = normal.ljust(self.length, PADDING)
        return self._place[filled[position : position + 2]]

    def pair_bit(self, word: str | None, cohort: int) -> int:
        """Return which option of the pair question a report in this cohort sets for a word."""
        return self.option(word or "", self.position(cohort))


def discovery_survey(
    name: str,
    length: int,
    *,
    alphabet: str = string.ascii_lowercase,
    question: str = "word",
    bits: int = 1024,
    hashes: int = 1,
    cohorts: int | None = None,
) -> Survey:
    """Make a survey whose frequent words can be found without a list of candidates.

    Parameters
    ----------
    name
        What the survey is called.
    length
        The longest word that can be discovered, 2 to 64 letters.
    alphabet
        The letters that words are made of, each once; ``_`` is kept for padding.
    question
        What the question for the word is called.
    bits, hashes, cohorts
        Of the word's Bloom filter. One hash differs in the fewest bits and so needs the least
        noise; many bits cost nothing but length. Cohorts are a multiple of ``length - 1``, by
        default about 64.

    Examples
    --------
    >>> survey = discovery_survey("words", 10)
    >>> [(question.name, question.bits) for question in survey]
    [('word', 1024), ('word: pairs of 10 letters', 704)]
    >>> survey.differing_bits, survey.cohorts
    (4, 63)
    """
    check_integer("length", length, lowest=2, highest=LONGEST, error=SurveyError)
    _check_alphabet(alphabet)
    positions = length - 1
    if cohorts is None:
        cohorts = positions * max(1, round(64 / positions))
    check_integer("cohorts", cohorts, lowest=1, highest=65_535, error=SurveyError)
    if cohorts % positions:
        raise SurveyError(
            f"cohorts must be a multiple of {positions}, the pairs of a word of {length} letters,"
            f" got cohorts={cohorts}."
        )
    layout = Layout(question, f"{question}: pairs of {length} letters", length, alphabet)
    return Survey(
        name,
        (
            Text(question, bits=bits, hashes=hashes, cohorts=cohorts),
            Choice(layout.pairs, (*layout.options, OTHER)),
        ),
    )


def layout_of(survey: Survey) -> Layout:
    """Return how a survey's words are cut, or say that it is not one of `discovery_survey`."""
    layout = layout_in(survey)
    if layout is None:
        raise SurveyError(
            f"survey {survey.name!r} has no question for pairs of letters beside a text; make it"
            " with shoal discover --make, or discovery_survey."
        )
    return layout


@lru_cache(maxsize=16)
def layout_in(survey: Survey) -> Layout | None:
    """Return how a survey's words are cut into pairs; None if they are not."""
    for question in survey:
        named = _NAME.fullmatch(question.name)
        if named is None or not isinstance(question, Choice) or question.missing:
            continue
        length = int(named["length"])
        letters = "".join(dict.fromkeys(pair[0] for pair in question.options[:-1])).rstrip(PADDING)
        layout = Layout(named["word"], question.name, length, letters)
        if not 2 <= length <= LONGEST or question.options != (*layout.options, OTHER):
            continue
        text = any(isinstance(other, Text) and other.name == layout.word for other in survey)
        if text and (survey.cohorts or 0) % layout.positions == 0:
            return layout
    return None


def _check_alphabet(alphabet: str) -> None:
    letters = set(alphabet)
    if len(letters) < len(alphabet) or not 1 <= len(letters) <= 250:
        raise SurveyError("an alphabet is 1 to 250 letters, each once.")
    for letter in alphabet:
        # Two letters that Unicode would join into one could not be told apart in a table.
        joined = unicodedata.combining(letter) or unicodedata.normalize("NFC", letter) != letter
        if joined or not letter.isprintable() or letter.isspace() or letter in f";{PADDING}":
            raise SurveyError(
                f"an alphabet has printable letters other than blanks, ';' and {PADDING!r},"
                f" got {letter!r}."
            )
