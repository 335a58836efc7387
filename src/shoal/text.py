"""Text questions: decode candidates, discover words, and choose sizes."""

from __future__ import annotations

from shoal.errors import missing_extra

try:
    from shoal.analysis.text.decode import decode
    from shoal.analysis.text.discovery import Discovery, discover
    from shoal.analysis.text.results import DecodedText, DecodedTexts
    from shoal.planning.text_size import Proposal, discovery_survey, suggest_text_size
    from shoal.protocol.survey import Pairs
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.text") from None

__all__ = [
    "DecodedText",
    "DecodedTexts",
    "Discovery",
    "Pairs",
    "Proposal",
    "decode",
    "discover",
    "discovery_survey",
    "suggest_text_size",
]
