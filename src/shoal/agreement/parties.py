"""Who receives reports, where a relay and an analyzer share the work and not what they see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import PlanError
from shoal.support.checks import check_origin
from shoal.support.documents import exact_fields

__all__ = ["Parties"]


@dataclass(frozen=True)
class Parties:
    """The https origins of the relay, which sees who sends, and of the analyzer, which reads.

    >>> Parties("https://relay.example", "https://analyzer.example:8443").relay
    'https://relay.example'
    """

    relay: str
    analyzer: str

    def __post_init__(self) -> None:
        check_origin("relay", self.relay, error=PlanError)
        check_origin("analyzer", self.analyzer, error=PlanError)
        if self.relay == self.analyzer:
            raise PlanError(
                f"relay and analyzer must be two parties, got {self.relay} for both: one that is"
                " both sees whose report it reads."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the parties as plain JSON values."""
        return {"analyzer": self.analyzer, "relay": self.relay}

    @classmethod
    def from_json(cls, document: object) -> Parties:
        """Read the parties from plain JSON values."""
        return cls(**exact_fields("parties", document, {"relay", "analyzer"}, error=PlanError))
