"""Words to Originals, on the device: the pair that is reported follows from the cohort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.discovering.layout import layout_of
from shoal.errors import AnswerError
from shoal.plans import Plan
from shoal.randomness import RandomBits, SystemBits, draw_below
from shoal.survey import Survey
from shoal.vectors import Original, pack

__all__ = ["encode_words"]


def encode_words(
    survey: Survey | Plan,
    words: Sequence[str | None],
    *,
    random_bits: RandomBits | None = None,
) -> Original:
    """Encode the words of a `discovery_survey`, each in a cohort of its own drawing.

    Parameters
    ----------
    survey
        A survey made by `discovery_survey`, or the plan that asks it.
    words
        One word per person; None or blank for somebody without.
    random_bits
        Where cohorts come from. Leave it out, except in simulations.

    Examples
    --------
    >>> from shoal.discovering import discovery_survey
    >>> encode_words(discovery_survey("words", 5), ["shoal", "fish"])
    Original(2 x 1728 bits, not shown)
    """
    asked = survey.survey if isinstance(survey, Plan) else survey
    layout = layout_of(asked)
    if len(asked.questions) != 2:
        raise AnswerError("words are encoded for a survey that asks for the word and nothing else.")
    source = SystemBits() if random_bits is None else random_bits
    assert asked.cohorts is not None
    cohorts = draw_below(asked.cohorts, len(words), source).astype(np.uint16)
    hashing = asked.text_hash(layout.word)
    text, pairs = asked.slice_of(layout.word).start, asked.slice_of(layout.pairs).start
    vectors = np.zeros((len(words), asked.bits), bool)
    for row, (word, cohort) in enumerate(zip(words, cohorts.tolist(), strict=True)):
        if word is not None and not isinstance(word, str):
            raise AnswerError(f"row {row + 1}: a word must be text, got {type(word).__name__}.")
        given = word or ""
        if given.strip():
            vectors[row, [text + bit for bit in hashing.positions(given, cohort)]] = True
        vectors[row, pairs + layout.option(given, layout.position(cohort))] = True
    return Original(pack(vectors), asked.bits, cohorts)
