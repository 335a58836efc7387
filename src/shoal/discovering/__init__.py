"""Frequent texts without a list of candidates: pairs of letters lead to the words.

=====================  =====================================================================
`discovery_survey`     a survey of the word, hashed, and one pair of its letters
`layout_of`            how its words are cut; `shoal.encode` derives the pair from the word
`discover`             a tally to the frequent words
`simulate_words`       the tally of a crowd that does not exist, of any size
=====================  =====================================================================

Names are loaded when they are used, so that a device loads only its own side.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.discovering.finding import Discovery, discover
    from shoal.discovering.layout import Layout, discovery_survey, layout_of
    from shoal.discovering.simulating import simulate_words

__all__ = [
    "Discovery",
    "Layout",
    "discover",
    "discovery_survey",
    "layout_of",
    "simulate_words",
]

_HOME = {
    "Discovery": "finding",
    "Layout": "layout",
    "discover": "finding",
    "discovery_survey": "layout",
    "layout_of": "layout",
    "simulate_words": "simulating",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'shoal.discovering' has no attribute {name!r}")
    return getattr(importlib.import_module(f"shoal.discovering.{_HOME[name]}"), name)
