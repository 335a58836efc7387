"""A search for texts: the candidates that somebody asks about, read from a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.parameters import LEVELS

__all__ = ["FDR", "MOST_CANDIDATES", "SEARCH", "read_search"]

MOST_CANDIDATES = 100_000
"""Candidates of one search; `shoal decode` takes more."""

FDR = 0.05

SEARCH: dict[str, Any] = {
    "type": "object",
    "required": ["candidates"],
    "additionalProperties": False,
    "properties": {
        "candidates": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_CANDIDATES,
            "items": {"type": "string"},
        },
        "question": {"type": ["string", "null"]},
        "fdr": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "level": {"type": "number", "minimum": LEVELS[0], "maximum": LEVELS[1]},
    },
}
"""The schema of the document."""


def read_search(document: object) -> tuple[list[str], str | None, float, float]:
    """Return candidates, question, false-discovery rate and level of a search."""
    if not isinstance(document, Mapping) or not set(document) <= set(SEARCH["properties"]):
        raise Refusal(problems.BAD_REQUEST)
    candidates, question = document.get("candidates"), document.get("question")
    if not isinstance(candidates, list) or not 1 <= len(candidates) <= MOST_CANDIDATES:
        raise Refusal(problems.BAD_PARAMETER.about("candidates"))
    if not all(isinstance(text, str) for text in candidates):
        raise Refusal(problems.BAD_PARAMETER.about("candidates"))
    if not isinstance(question, str | None):
        raise Refusal(problems.BAD_PARAMETER.about("question"))
    level = _part(document, "level", 0.95)
    if not LEVELS[0] <= level <= LEVELS[1]:
        raise Refusal(problems.BAD_PARAMETER.about("level"))
    return candidates, question, _part(document, "fdr", FDR), level


def _part(document: Mapping[str, object], name: str, default: float) -> float:
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise Refusal(problems.BAD_PARAMETER.about(name))
    return float(value)
