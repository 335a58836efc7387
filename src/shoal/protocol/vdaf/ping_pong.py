"""Verification by two aggregators in one request and one response.

The ping-pong topology of draft-irtf-cfrg-vdaf-20, section 5.7.1, for Prio3, which has one round:
the leader sends its verifier share, and the helper answers with the verifier message. Whatever
cannot be accepted raises `VdafError`; then the report is rejected. Services send these messages in
the aggregation jobs of DAP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import VdafError
from shoal.protocol.vdaf.prio3 import Prio3, VerifyState

_INITIALIZE, _FINISH = 0, 2
_HEADER = 5
"""A message is its type, the length of its only field in four bytes, and the field."""


@dataclass(frozen=True, repr=False)
class AggregatorInput:
    """What one aggregator knows of one report; its share is secret."""

    nonce: bytes
    public_share: bytes
    input_share: bytes


class PingPong:
    """Two aggregators verify the reports of one task.

    `ctx` and `verify_key` are those of the task; both aggregators have the same key, and no client
    knows it.
    """

    def __init__(self, prio3: Prio3[Any, Any], ctx: bytes, verify_key: bytes) -> None:
        if prio3.shares != 2:
            raise VdafError(f"ping-pong is for 2 aggregators, got {prio3.shares}.")
        self._prio3, self._ctx, self._verify_key = prio3, ctx, verify_key

    def leader_init(self, report: AggregatorInput) -> tuple[VerifyState, bytes]:
        """Return the leader's state and its message to the helper."""
        state, share = self._init(0, report)
        return state, _encode(_INITIALIZE, share)

    def helper_init(self, report: AggregatorInput, inbound: bytes) -> tuple[bytes, bytes]:
        """Return the helper's output share and its message to the leader."""
        leader_share = _decode(_INITIALIZE, inbound)
        state, share = self._init(1, report)
        message = self._prio3.verifier_shares_to_message(self._ctx, [leader_share, share])
        out_share = self._prio3.verify_next(self._ctx, state, message)
        return out_share, _encode(_FINISH, message)

    def leader_finish(self, state: VerifyState, inbound: bytes) -> bytes:
        """Return the leader's output share."""
        return self._prio3.verify_next(self._ctx, state, _decode(_FINISH, inbound))

    def _init(self, aggregator: int, report: AggregatorInput) -> tuple[VerifyState, bytes]:
        sent = report.nonce, report.public_share, report.input_share
        return self._prio3.verify_init(self._verify_key, self._ctx, aggregator, *sent)


def _encode(kind: int, field: bytes) -> bytes:
    return bytes([kind]) + len(field).to_bytes(4, "big") + field


def _decode(kind: int, message: bytes) -> bytes:
    """Return the field of a message of this type."""
    field = message[_HEADER:]
    if message[:_HEADER] != _encode(kind, field)[:_HEADER]:
        raise VdafError("a message of the other aggregator is malformed.")
    return field
