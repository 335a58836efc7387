"""Verify shares of Shoal with another implementation of Prio3, and the other way round.

    python tools/interoperate.py FOLDER

FOLDER has the package `vdaf_poc`, the reference implementation of draft-irtf-cfrg-vdaf, which is
not a part of this project: fetch it into a folder of its own. It needs Python 3.12 or later and
pycryptodomex; Shoal's part needs no library. Each of the three parties (client,
leader, helper) is played by either implementation, in all eight combinations; all that passes
between them are bytes. For each combination, reports with valid measurements are verified and
summed, and a report whose leader's share was changed must be rejected by both aggregators.
"""

from __future__ import annotations

import itertools
import secrets
import sys
from typing import Any

from shoal.errors import VdafError
from shoal.protocol.vdaf import AggregatorInput, PingPong, Prio3
from shoal.protocol.vdaf.circuits import MultihotCountVec

CONTEXT = b"dap-18" + bytes(range(32))
LENGTH, MAX_WEIGHT, CHUNK = 40, 12, 7
REPORTS = 5


class Ours:
    """Shoal's implementation."""

    name = "Shoal"

    def __init__(self) -> None:
        self.prio3 = Prio3(MultihotCountVec(LENGTH, MAX_WEIGHT, CHUNK))

    def shard(self, measurement: list[int], nonce: bytes) -> tuple[bytes, list[bytes]]:
        rand = secrets.token_bytes(self.prio3.rand_size)
        return self.prio3.shard(CONTEXT, measurement, nonce, rand)

    def leader_init(self, key: bytes, nonce: bytes, public: bytes, share: bytes) -> Any:
        ping_pong = PingPong(self.prio3, CONTEXT, key)
        state, message = ping_pong.leader_init(AggregatorInput(nonce, public, share))
        return (ping_pong, state), message

    def leader_finish(self, state: Any, message: bytes) -> bytes:
        ping_pong, verify_state = state
        return bytes(ping_pong.leader_finish(verify_state, message))

    def helper(
        self, key: bytes, nonce: bytes, public: bytes, share: bytes, inbound: bytes
    ) -> tuple[bytes, bytes]:
        report = AggregatorInput(nonce, public, share)
        return PingPong(self.prio3, CONTEXT, key).helper_init(report, inbound)

    def aggregate(self, shares: list[bytes]) -> bytes:
        return self.prio3.aggregate(shares)

    def unshard(self, shares: list[bytes], count: int) -> list[int]:
        return self.prio3.unshard(shares, count)


class Reference:
    """The reference implementation, called through its public methods."""

    name = "reference"

    def __init__(self) -> None:
        from vdaf_poc.vdaf_ping_pong import PingPong as ReferencePingPong  # type: ignore
        from vdaf_poc.vdaf_prio3 import Prio3MultihotCountVec  # type: ignore

        class TwoParties(Prio3MultihotCountVec, ReferencePingPong):  # type: ignore[misc]
            pass

        self.vdaf = TwoParties(2, LENGTH, MAX_WEIGHT, CHUNK)

    def shard(self, measurement: list[int], nonce: bytes) -> tuple[bytes, list[bytes]]:
        vdaf, rand = self.vdaf, secrets.token_bytes(self.vdaf.RAND_SIZE)
        public, shares = vdaf.shard(CONTEXT, [bool(bit) for bit in measurement], nonce, rand)
        return vdaf.encode_public_share(public), [vdaf.encode_input_share(one) for one in shares]

    def leader_init(self, key: bytes, nonce: bytes, public: bytes, share: bytes) -> Any:
        state = self.vdaf.ping_pong_leader_init(key, CONTEXT, b"", nonce, public, share)
        return state, _outbound(state)

    def leader_finish(self, state: Any, message: bytes) -> bytes:
        state = self.vdaf.ping_pong_leader_continued(CONTEXT, b"", state, message)
        return self._out_share(state)

    def helper(
        self, key: bytes, nonce: bytes, public: bytes, share: bytes, inbound: bytes
    ) -> tuple[bytes, bytes]:
        state = self.vdaf.ping_pong_helper_init(key, CONTEXT, b"", nonce, public, share, inbound)
        return self._out_share(state), _outbound(state)

    def _out_share(self, state: Any) -> bytes:
        if not hasattr(state, "out_share"):
            raise VdafError("the reference implementation rejects the report.")
        return bytes(self.vdaf.encode_out_share(state.out_share))

    def aggregate(self, shares: list[bytes]) -> bytes:
        total = self.vdaf.agg_init(None)
        for one in shares:
            total = self.vdaf.agg_update(None, total, self.vdaf.decode_out_share(None, one))
        return bytes(self.vdaf.encode_agg_share(total))

    def unshard(self, shares: list[bytes], count: int) -> list[int]:
        decoded = [self.vdaf.decode_agg_share(None, one) for one in shares]
        return list(self.vdaf.unshard(None, decoded, count))


def _outbound(state: Any) -> bytes:
    if not hasattr(state, "outbound"):
        raise VdafError("the reference implementation rejects the report.")
    return bytes(state.outbound)


def verify(client: Any, leader: Any, helper: Any) -> None:
    """Raise an error unless valid reports are summed, and a changed one is rejected."""
    key, sums = secrets.token_bytes(32), [0] * LENGTH
    leaders, helpers = [], []
    for _ in range(REPORTS):
        ones = set(secrets.SystemRandom().sample(range(LENGTH), secrets.randbelow(MAX_WEIGHT + 1)))
        measurement = [int(place in ones) for place in range(LENGTH)]
        sums = [total + bit for total, bit in zip(sums, measurement, strict=True)]
        nonce = secrets.token_bytes(16)
        public, shares = client.shard(measurement, nonce)
        state, outbound = leader.leader_init(key, nonce, public, shares[0])
        out_share, inbound = helper.helper(key, nonce, public, shares[1], outbound)
        leaders.append(leader.leader_finish(state, inbound))
        helpers.append(out_share)
    result = client.unshard([leader.aggregate(leaders), helper.aggregate(helpers)], REPORTS)
    if result != sums:
        raise AssertionError(f"the sums are {sums}, got {result}.")
    changed = bytearray(shares[0])
    changed[0] ^= 1
    try:
        _, outbound = leader.leader_init(key, nonce, public, bytes(changed))
        helper.helper(key, nonce, public, shares[1], outbound)
    except VdafError:
        return
    raise AssertionError("a changed share was accepted.")


def main(folder: str) -> None:
    """Print one line for each combination of parties."""
    sys.path.insert(0, folder)
    print(f"{'client':10} {'leader':10} {'helper':10} {REPORTS} reports, 1 changed")
    for parties in itertools.product((Ours(), Reference()), repeat=3):
        verify(*parties)
        print(*(f"{one.name:10}" for one in parties), "summed, rejected")


if __name__ == "__main__":
    main(*sys.argv[1:])
