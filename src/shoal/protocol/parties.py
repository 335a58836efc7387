"""Who receives reports, where a relay and an analyzer share the work and not what they see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import PlanError
from shoal.support.checks import check_integer, check_origin
from shoal.support.documents import exact_fields

__all__ = ["Parties"]


@dataclass(frozen=True)
class Parties:
    """The origins of the relay, which sees who sends, and of the analyzer, which reads.

    `messages` is how many sealed messages one report is sent as: one for a whole report, and more
    where the analyzer may see single bits only (`shoal.protocol.fragments`).

    >>> Parties("https://relay.example", "https://analyzer.example:8443").relay
    'https://relay.example'
    """

    relay: str
    analyzer: str
    messages: int = 1

    def __post_init__(self) -> None:
        check_origin("relay", self.relay, error=PlanError)
        check_origin("analyzer", self.analyzer, error=PlanError)
        check_integer("messages", self.messages, lowest=1, highest=2**16, error=PlanError)
        if self.relay == self.analyzer:
            raise PlanError(
                f"relay and analyzer must be two parties, got {self.relay} for both: one that is"
                " both sees whose report it reads."
            )

    @property
    def share_a_host(self) -> bool:
        """Whether both are on one machine by their names, so that one operator is likely both."""
        return _host(self.relay) == _host(self.analyzer)

    def to_json(self) -> dict[str, Any]:
        """Return the parties as plain JSON values."""
        return {"analyzer": self.analyzer, "messages": self.messages, "relay": self.relay}

    @classmethod
    def from_json(cls, document: object) -> Parties:
        """Read the parties from plain JSON values."""
        needed = {"analyzer", "messages", "relay"}
        return cls(**exact_fields("parties", document, needed, error=PlanError))


def _host(origin: str) -> str:
    host = origin.partition("://")[2]
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
