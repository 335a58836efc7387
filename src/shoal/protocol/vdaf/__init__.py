"""Prio3 of draft-irtf-cfrg-vdaf-20: sums of measurements that no aggregator sees.

Section 7.2. The client *shards* a measurement into one input share for each aggregator, the leader
(0) and the helpers, and a public share. Each aggregator starts to *verify* its share, and the
verifier shares of all make one verifier message, with which each gets its output share. Output
shares are *aggregated*; the collector *unshards* the sums. `circuits` say what a measurement is and
prove that it is valid, and `field` computes. The standard library is enough; the C kernels are
faster, and their time does not depend on secrets.

Shares and messages are the bytes that are sent. Malformed ones and proofs that do not hold raise
`VdafError` and nothing else. Prio3 has no aggregation parameter, so no method has that argument.

`PingPong` is the verification by two aggregators in one request and one response (section 5.7.1):
the leader sends its verifier share, and the helper answers with the verifier message. Services send
these messages in the aggregation jobs of DAP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Generic, cast

from shoal.errors import InputError, VdafError
from shoal.protocol.vdaf.circuits import Circuit, Flp, M, R
from shoal.protocol.vdaf.field import SEED_SIZE, derive_seed

VERSION = 18
"""The version in each domain separation tag; draft 20 says 18."""

NONCE_SIZE = 16
VERIFY_KEY_SIZE = SEED_SIZE

_MEASUREMENT_SHARE, _PROOF_SHARE, _JOINT_RANDOMNESS, _PROVE_RANDOMNESS = 1, 2, 3, 4
_QUERY_RANDOMNESS, _JOINT_RAND_SEED, _JOINT_RAND_PART = 5, 6, 7


@dataclass(frozen=True, repr=False)
class VerifyState:
    """What an aggregator keeps until the verifier message arrives. It is secret."""

    out_share: bytes
    joint_rand_seed: bytes


class Prio3(Generic[M, R]):
    """Prio3 for one circuit.

    Parameters
    ----------
    circuit
        What a measurement is: `Count`, `Sum`, `SumVec`, `Histogram` or `MultihotCountVec`.
    shares
        The number of aggregators, 2 to 255.
    proofs
        How many proofs a report has, 1 to 255. The default is enough against forgery: 3 for a
        circuit with joint randomness over Field64, else 1; fewer are refused.
    algorithm
        The identifier of another variant, for circuits that are not the draft's.

    Examples
    --------
    >>> from shoal.protocol.vdaf.circuits import MultihotCountVec
    >>> prio3 = Prio3(MultihotCountVec(length=4, max_weight=2))
    >>> nonce, key, context = bytes(16), bytes(32), b"an example"
    >>> public, inputs = prio3.shard(context, [0, 1, 1, 0], nonce, bytes(prio3.rand_size))
    >>> started = [prio3.verify_init(key, context, i, nonce, public, inputs[i]) for i in (0, 1)]
    >>> message = prio3.verifier_shares_to_message(context, [share for _, share in started])
    >>> outputs = [prio3.verify_next(context, state, message) for state, _ in started]
    >>> prio3.unshard([prio3.aggregate([output]) for output in outputs], 1)
    [0, 1, 1, 0]
    """

    def __init__(
        self,
        circuit: Circuit[M, R],
        shares: int = 2,
        proofs: int | None = None,
        *,
        algorithm: int | None = None,
    ) -> None:
        joint = circuit.joint_rand_length > 0
        needed = 3 if joint and circuit.field.size == 8 else 1
        self.proofs = needed if proofs is None else proofs
        if not 2 <= shares <= 255:
            raise InputError(f"shares must be from 2 to 255, got {shares}.")
        if not needed <= self.proofs <= 255:
            raise InputError(f"proofs must be from {needed} to 255, got {self.proofs}.")
        self.circuit, self.shares = circuit, shares
        number = circuit.algorithm if algorithm is None else algorithm
        self._tag = bytes([VERSION, 0]) + number.to_bytes(4, "big")
        self._flp, self._field, size = Flp(circuit), circuit.field, circuit.field.size
        self._blind_size = SEED_SIZE * joint
        self._measurement_size = circuit.measurement_length * size
        self._proof_size = self._flp.proof_length * size
        self._verifier_size = self._flp.verifier_length * size
        self.rand_size = SEED_SIZE * shares * (1 + joint)
        self.public_share_size = self._blind_size * shares
        self.verifier_share_size = self._verifier_size * self.proofs + self._blind_size
        self.out_share_size = circuit.output_length * size

    def input_share_size(self, aggregator: int) -> int:
        """Return the bytes of an input share; only the leader's is longer than seeds."""
        leader = self._measurement_size + self._proof_size * self.proofs
        return (SEED_SIZE if aggregator else leader) + self._blind_size

    def shard(
        self, ctx: bytes, measurement: M, nonce: bytes, rand: bytes
    ) -> tuple[bytes, list[bytes]]:
        """Return the public share and the input shares of a measurement.

        `nonce` (16 bytes) and `rand` (`rand_size` bytes) must be fresh random bytes.
        """
        _expect("the nonce", nonce, NONCE_SIZE)
        _expect("the randomness", rand, self.rand_size)
        *seeds, prove_seed = _parts(rand, SEED_SIZE)
        helper_seeds, blinds = seeds, [b""] * self.shares
        if self._blind_size:
            helper_seeds, blinds = seeds[:-1:2], [seeds[-1], *seeds[1:-1:2]]

        encoded = leader = self.circuit.encode(measurement)
        shares = []
        for helper, seed in enumerate(helper_seeds, 1):
            shares.append(self._helper_measurement(ctx, helper, seed))
            leader = self._field.subtract(leader, shares[-1])
        public = b"".join(
            self._joint_rand_part(ctx, aggregator, blinds[aggregator], share, nonce)
            for aggregator, share in enumerate([leader, *shares])
        )

        joint_rands = self._joint_rands(ctx, self._joint_rand_seed(ctx, public))
        prove_rands = self._expand(
            ctx, _PROVE_RANDOMNESS, prove_seed, b"", self._flp.prove_rand_length
        )
        proofs = b"".join(
            self._flp.prove(encoded, prove_rand, joint_rand)
            for prove_rand, joint_rand in zip(prove_rands, joint_rands, strict=True)
        )
        for helper, seed in enumerate(helper_seeds, 1):
            proofs = self._field.subtract(proofs, b"".join(self._helper_proofs(ctx, helper, seed)))
        vectors = [leader + proofs, *helper_seeds]
        return public, [vector + blind for vector, blind in zip(vectors, blinds, strict=True)]

    def verify_init(
        self,
        verify_key: bytes,
        ctx: bytes,
        aggregator: int,
        nonce: bytes,
        public_share: bytes,
        input_share: bytes,
    ) -> tuple[VerifyState, bytes]:
        """Return the state of an aggregator and its verifier share."""
        _expect("the verification key", verify_key, VERIFY_KEY_SIZE)
        _expect("the nonce", nonce, NONCE_SIZE)
        _expect("the public share", public_share, self.public_share_size)
        if not 0 <= aggregator < self.shares:
            raise VdafError(f"an aggregator is from 0 to {self.shares - 1}, got {aggregator}.")
        _expect("the input share", input_share, self.input_share_size(aggregator))
        measurement, proofs, blind = self._expand_input_share(ctx, aggregator, input_share)

        part = self._joint_rand_part(ctx, aggregator, blind, measurement, nonce)
        parts = _parts(public_share, SEED_SIZE)
        parts[aggregator : aggregator + 1] = [part]  # whatever the client says it is
        corrected = self._joint_rand_seed(ctx, b"".join(parts))
        query_rands = self._expand(
            ctx, _QUERY_RANDOMNESS, verify_key, nonce, self._flp.query_rand_length
        )
        verifiers = [
            self._flp.query(measurement, proof, query_rand, joint_rand, self.shares)
            for proof, query_rand, joint_rand in zip(
                proofs, query_rands, self._joint_rands(ctx, corrected), strict=True
            )
        ]
        state = VerifyState(self.circuit.truncate(measurement), corrected)
        return state, b"".join(verifiers) + part

    def verifier_shares_to_message(self, ctx: bytes, verifier_shares: Sequence[bytes]) -> bytes:
        """Return the verifier message of all verifier shares, in the order of the aggregators."""
        if len(verifier_shares) != self.shares:
            raise VdafError(f"there are {self.shares} verifier shares, got {len(verifier_shares)}.")
        size = self._verifier_size * self.proofs
        for share in verifier_shares:
            _expect("a verifier share", share, self.verifier_share_size)
            self._field.check(share[:size], "a verifier share")
        total = self._field.sum(b"".join(share[:size] for share in verifier_shares), self.shares)
        if not all(map(self._flp.decide, _parts(total, self._verifier_size))):
            raise VdafError("the proof does not hold.")
        return self._joint_rand_seed(ctx, b"".join(share[size:] for share in verifier_shares))

    def verify_next(self, ctx: bytes, state: VerifyState, verifier_message: bytes) -> bytes:
        """Return the output share, now known to be one of a valid measurement."""
        _expect("the verifier message", verifier_message, self._blind_size)
        if not compare_digest(verifier_message, state.joint_rand_seed):
            raise VdafError("the aggregators did not use the same joint randomness.")
        return state.out_share

    def aggregate(self, out_shares: Iterable[bytes]) -> bytes:
        """Return the sum of output shares, or of aggregate shares, of one aggregator."""
        shares = list(out_shares)
        for share in shares:
            _expect("an output share", share, self.out_share_size)
            self._field.check(share, "an output share")
        if not shares:
            return bytes(self.out_share_size)
        return self._field.sum(b"".join(shares), len(shares))

    def add_numbers(self, agg_share: bytes, numbers: Sequence[int]) -> bytes:
        """Return an aggregate share with whole numbers added, which may be negative."""
        return self.aggregate([agg_share, self._field.vector(numbers)])

    def unshard(self, agg_shares: Sequence[bytes], count: int) -> R:
        """Return the result for `count` measurements from the aggregators' aggregate shares.

        With noise in them a sum may be below 0, and is then above half of the field's modulus:
        `signed` reads it.
        """
        if len(agg_shares) != self.shares:
            raise VdafError(f"there are {self.shares} aggregate shares, got {len(agg_shares)}.")
        if count * self.circuit.largest >= self._field.modulus:
            raise VdafError(f"a sum over {count} measurements may not fit into the field.")
        sums = self._field.integers(self.aggregate(agg_shares))
        return cast("R", sums[0] if self.circuit.scalar else sums)

    def signed(self, total: int) -> int:
        """Return the whole number nearest to 0 that an element of the field stands for."""
        modulus = self._field.modulus
        return total - modulus if 2 * total > modulus else total

    def _expand_input_share(
        self, ctx: bytes, aggregator: int, share: bytes
    ) -> tuple[bytes, list[bytes], bytes]:
        """Return an aggregator's measurement share, its shares of the proofs, and its blind."""
        if aggregator:
            seed, blind = share[:SEED_SIZE], share[SEED_SIZE:]
            measurement = self._helper_measurement(ctx, aggregator, seed)
            return measurement, self._helper_proofs(ctx, aggregator, seed), blind
        end = len(share) - self._blind_size
        vectors, blind = share[:end], share[end:]
        self._field.check(vectors, "the input share")
        proofs = _parts(vectors[self._measurement_size :], self._proof_size)
        return vectors[: self._measurement_size], proofs, blind

    def _helper_measurement(self, ctx: bytes, helper: int, seed: bytes) -> bytes:
        tag, length = self._usage(_MEASUREMENT_SHARE, ctx), self.circuit.measurement_length
        return self._field.expand(seed, tag, bytes([helper]), length)

    def _helper_proofs(self, ctx: bytes, helper: int, seed: bytes) -> list[bytes]:
        return self._expand(ctx, _PROOF_SHARE, seed, bytes([helper]), self._flp.proof_length)

    def part_of_joint_rand(self, verifier_share: bytes) -> bytes:
        """Return the part of the joint randomness that its sender computed; empty if none."""
        return verifier_share[self._verifier_size * self.proofs :]

    def _joint_rand_part(
        self, ctx: bytes, aggregator: int, blind: bytes, share: bytes, nonce: bytes
    ) -> bytes:
        """Return an aggregator's part of the joint randomness; empty if the circuit needs none."""
        if not self._blind_size:
            return b""
        tag = self._usage(_JOINT_RAND_PART, ctx)
        return derive_seed(blind, tag, bytes([aggregator]) + nonce + share)

    def _joint_rand_seed(self, ctx: bytes, parts: bytes) -> bytes:
        """Return the seed of all aggregators' parts; empty if the circuit needs none."""
        if not self._blind_size:
            return b""
        return derive_seed(bytes(SEED_SIZE), self._usage(_JOINT_RAND_SEED, ctx), parts)

    def _joint_rands(self, ctx: bytes, seed: bytes) -> list[bytes]:
        if not self._blind_size:
            return [b""] * self.proofs
        return self._expand(ctx, _JOINT_RANDOMNESS, seed, b"", self.circuit.joint_rand_length)

    def _expand(
        self, ctx: bytes, usage: int, seed: bytes, binder: bytes, length: int
    ) -> list[bytes]:
        tag, binder = self._usage(usage, ctx), bytes([self.proofs]) + binder
        vector = self._field.expand(seed, tag, binder, length * self.proofs)
        return _parts(vector, length * self._field.size)

    def _usage(self, usage: int, ctx: bytes) -> bytes:
        return self._tag + usage.to_bytes(2, "big") + ctx


def _parts(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def _expect(what: str, content: bytes, size: int) -> None:
    if not isinstance(content, bytes) or len(content) != size:
        length = f"{len(content)}" if isinstance(content, bytes) else type(content).__name__
        raise VdafError(f"{what} must have {size} bytes, got {length}.")


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
        """Return the helper's output share and its message to the leader.

        A report whose public share lies about the helper's own part is refused here. With that
        part the leader draws other joint randomness than the helper, and all ones pass with any:
        the helper would count the report, and the leader would refuse it.
        """
        leader_share = _decode(_INITIALIZE, inbound)
        state, share = self._init(1, report)
        if not report.public_share.endswith(self._prio3.part_of_joint_rand(share)):
            raise VdafError("the public share has another part of the joint randomness.")
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
