"""A survey of one text question whose words can be discovered, with sizes that suit most uses."""

from __future__ import annotations

import string

from shoal.protocol.survey import Survey, Text
from shoal.protocol.text_hash import Pairs

__all__ = ["discovery_survey"]

_COHORTS = 64


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
    """Return a survey whose frequent words can be found without a list of candidates.

    Parameters
    ----------
    name
        The name of the survey.
    length
        The longest word that can be discovered, 2 to 64 letters.
    alphabet
        The letters of the words, each once; ``_`` is reserved for padding.
    question
        The name of the question for the word.
    bits, hashes, cohorts
        The word's Bloom filter. With one hash two words differ in the fewest bits, so it needs the
        least noise; more bits only make a report longer. Cohorts are a multiple of ``length - 1``,
        by default about 64.

    Examples
    --------
    >>> survey = discovery_survey("words", 10)
    >>> survey["word"].parts
    (Part(bits=1024, fewest_set_bits=0, most_set_bits=1), Part(bits=704, fewest_set_bits=1, ...))
    >>> survey.differing_bits, survey.cohorts
    (4, 63)
    """
    pairs = Pairs(length, alphabet)
    if cohorts is None:
        cohorts = pairs.positions * max(1, round(_COHORTS / pairs.positions))
    return Survey(name, (Text(question, bits, hashes, cohorts, pairs),))
