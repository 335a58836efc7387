"""Prio3: sums are exact, and whatever is malformed or invalid is rejected."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from shoal.errors import InputError, VdafError
from shoal.protocol.vdaf import AggregatorInput, PingPong, Prio3
from shoal.protocol.vdaf.circuits import (
    Circuit,
    Count,
    Histogram,
    MultihotCountVec,
    Sum,
    SumVec,
    best_chunk_length,
)
from shoal.protocol.vdaf.field import SEED_SIZE, field64
from tests.test_imports import LIBRARIES, loaded_after

CTX, KEY = b"tests of Shoal", bytes(range(32))

CIRCUITS: dict[str, tuple[Callable[[], Circuit[Any, Any]], Callable[[random.Random], Any]]] = {
    "count": (Count, lambda r: r.randrange(2)),
    "sum": (lambda: Sum(1000), lambda r: r.randrange(1001)),
    "sumvec": (lambda: SumVec(5, 9), lambda r: [r.randrange(10) for _ in range(5)]),
    "histogram": (lambda: Histogram(11), lambda r: r.randrange(11)),
    "multihot": (lambda: MultihotCountVec(12, 7), lambda r: r.sample([1] * 7 + [0] * 9, 12)),
    "flags": (lambda: MultihotCountVec(40, 40), lambda r: [r.random() < 0.3 for _ in range(40)]),
}


class Report:
    """A sharded measurement, and its way through all aggregators."""

    def __init__(self, prio3: Prio3[Any, Any], measurement: Any, source: random.Random) -> None:
        self.prio3 = prio3
        self.nonce = source.randbytes(16)
        rand = source.randbytes(prio3.rand_size)
        self.public, self.inputs = prio3.shard(CTX, measurement, self.nonce, rand)
        self.sent: dict[str, bytes] = {}

    def verify(self, changes: dict[str, Any] | None = None) -> list[bytes]:
        """Return the output shares; note each message, or replace it by another."""

        def change(name: str, content: bytes) -> Any:
            self.sent[name] = content
            return (changes or {}).get(name, content)

        prio3, started = self.prio3, []
        public = change("public share", self.public)
        for i, share in enumerate(self.inputs):
            sent = change(f"input share {i}", share)
            started.append(prio3.verify_init(KEY, CTX, i, self.nonce, public, sent))
        shares = [change(f"verifier share {i}", share) for i, (_, share) in enumerate(started)]
        message = change("message", prio3.verifier_shares_to_message(CTX, shares))
        return [prio3.verify_next(CTX, state, message) for state, _ in started]


def test_devices_need_no_library():
    assert not loaded_after("import shoal.protocol.vdaf") & LIBRARIES


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", CIRCUITS)
@pytest.mark.parametrize(("shares", "proofs"), [(2, None), (3, 2)])
def test_the_result_is_the_sum(name: str, shares: int, proofs: int | None):
    make, draw = CIRCUITS[name]
    source = random.Random(f"{name} {shares}")
    prio3 = Prio3(make(), shares, proofs)
    measurements = [draw(source) for _ in range(3)]
    outputs = [Report(prio3, measurement, source).verify() for measurement in measurements]
    halves = [[prio3.aggregate(o[:1]), prio3.aggregate(o[1:])] for o in zip(*outputs, strict=True)]
    result = prio3.unshard([prio3.aggregate(half) for half in halves], len(measurements))
    if name == "histogram":
        assert result == [measurements.count(bucket) for bucket in range(11)]
    elif isinstance(measurements[0], list):
        assert result == [sum(column) for column in zip(*measurements, strict=True)]
    else:
        assert result == sum(measurements)


def test_sizes_are_those_of_the_messages():
    for make, draw in CIRCUITS.values():
        source, prio3 = random.Random(1), Prio3(make(), 3)
        report = Report(prio3, draw(source), source)
        outputs, seen = report.verify(), report.sent
        assert len(seen["public share"]) == prio3.public_share_size
        assert len(seen["verifier share 1"]) == prio3.verifier_share_size
        assert {len(output) for output in outputs} == {prio3.out_share_size}
        for i in range(3):
            assert len(seen[f"input share {i}"]) == prio3.input_share_size(i)


def with_modulus(prio3: Prio3[Any, Any], content: bytes) -> bytes:
    """Replace the first element by the same plus the modulus, or by the modulus itself."""
    field = prio3.circuit.field
    first, end = int.from_bytes(content[: field.size], "little") + field.modulus, 8 * field.size
    wrong = first if first < 1 << end else field.modulus
    return wrong.to_bytes(field.size, "little") + content[field.size :]


def malformed(prio3: Prio3[Any, Any], content: bytes, source: random.Random) -> Any:
    """Return something else than the content: damaged, cut, longer, or not bytes at all."""
    kind = source.randrange(8)
    if kind == 0:
        return content[: source.randrange(len(content))] if content else b"\0"
    if kind == 1:
        return content + source.randbytes(source.randrange(1, 40))
    if kind == 2:
        return source.choice([b"", None, 7, "text", bytearray(content)]) if content else None
    if kind == 3 and len(content) >= 64:
        return with_modulus(prio3, content)
    if kind == 4 and content:
        return source.randbytes(len(content))
    if kind == 5 and content:
        at = source.randrange(len(content))
        return content[:at] + bytes([content[at] ^ source.randrange(1, 256)]) + content[at + 1 :]
    if kind == 6 and any(content):
        return bytes(len(content))
    if content:
        bit = source.randrange(8 * len(content))
        flipped = int.from_bytes(content, "little") ^ 1 << bit
        return flipped.to_bytes(len(content), "little")
    return b"\1"


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_messages_are_rejected(count: int):
    """A change of any message, whatever it is, ends in the one error. Chance is below 2^-50."""
    source = random.Random(count)
    names = list(CIRCUITS)
    rejected: dict[str, int] = {}
    for number in range(count):
        make, draw = CIRCUITS[names[number % len(names)]]
        prio3 = Prio3(make(), 2 + number % 2)
        report = Report(prio3, draw(source), source)
        report.verify()
        chosen, content = source.choice(list(report.sent.items()))
        with pytest.raises(VdafError):
            report.verify({chosen: malformed(prio3, content, source)})
        rejected[chosen] = rejected.get(chosen, 0) + 1
    assert len(rejected) == 8
    assert sum(rejected.values()) == count


LIES: dict[str, tuple[Callable[[], Circuit[Any, Any]], list[int]]] = {
    "a count of 2": (Count, [2]),
    "a count of -1": (Count, [-1]),
    "a digit of 2": (lambda: Sum(7), [0, 2, 1]),
    "a digit of -1": (lambda: SumVec(2, 3), [0, -1, 1, 0]),
    "two buckets": (lambda: Histogram(4), [1, 1, 0, 0]),
    "no bucket": (lambda: Histogram(4), [0, 0, 0, 0]),
    "two buckets minus one": (lambda: Histogram(4), [1, 1, -1, 0]),
    "a bit of 5 with its weight": (lambda: MultihotCountVec(4, 4), [5, 0, 0, 0, 1, 0, 1]),
    "a weight too small": (lambda: MultihotCountVec(4, 2), [1, 1, 1, 0, 1, 1]),
    "a weight too large": (lambda: MultihotCountVec(4, 2), [1, 0, 0, 0, 1, 1]),
    "a weight with a digit of 2": (lambda: MultihotCountVec(4, 2), [1, 1, 1, 0, 2, 1]),
    "bits that cancel": (lambda: MultihotCountVec(4, 2), [1, -1, 0, 0, 0, 0]),
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("lie", LIES)
def test_a_client_that_lies_is_rejected(lie: str, monkeypatch: pytest.MonkeyPatch):
    """The client follows the protocol, but with a vector that is not a measurement."""
    make, claimed = LIES[lie]
    source, circuit = random.Random(lie), make()
    monkeypatch.setattr(circuit, "encode", lambda _: circuit.field.vector(claimed))
    report = Report(Prio3(circuit), None, source)
    with pytest.raises(VdafError, match="proof does not hold"):
        report.verify()


def test_the_same_client_telling_the_truth_is_accepted(monkeypatch: pytest.MonkeyPatch):
    """So that the lies are rejected for what they say, not for how the test says it."""
    circuit = MultihotCountVec(4, 2)
    monkeypatch.setattr(circuit, "encode", lambda _: circuit.field.vector([1, 1, 0, 0, 1, 1]))
    Report(Prio3(circuit), None, random.Random(1)).verify()


def test_one_proof_of_several_does_not_hold():
    prio3 = Prio3(SumVec(2, 3, field=field64()))
    report = Report(prio3, [1, 2], random.Random(3))
    end = len(report.inputs[0]) - 32  # the last element of the last proof, before the blind
    spoiled = report.inputs[0][: end - 8] + bytes(8) + report.inputs[0][end:]
    with pytest.raises(VdafError, match="proof does not hold"):
        report.verify({"input share 0": spoiled})


@pytest.mark.usefixtures("backend")
def test_a_point_that_would_open_a_wire(monkeypatch: pytest.MonkeyPatch):
    """With a negligible probability the random point is where a wire has an input's share."""
    prio3 = Prio3(MultihotCountVec(4, 2, 2))
    report, field = Report(prio3, [1, 0, 1, 0], random.Random(4)), prio3.circuit.field
    expand, roots = type(field).expand, field.roots(4)

    def expanded(self: Any, seed: bytes, tag: bytes, binder: bytes, length: int) -> bytes:
        drawn = expand(self, seed, tag, binder, length)
        return drawn[:-16] + self.vector([roots[3]]) if seed == KEY else drawn

    monkeypatch.setattr(type(field), "expand", expanded)
    with pytest.raises(VdafError, match="root of unity"):
        report.verify()


@pytest.mark.parametrize("what", ["key", "context", "nonce", "aggregator", "circuit"])
def test_aggregators_that_disagree_reject(what: str):
    source, prio3 = random.Random(what), Prio3(MultihotCountVec(4, 2))
    report = Report(prio3, [1, 0, 1, 0], source)

    def start(i: int, change: bool) -> bytes:
        used = Prio3(SumVec(6, 1, 3)) if change and what == "circuit" else prio3
        share = used.verify_init(
            bytes(32) if change and what == "key" else KEY,
            b"" if change and what == "context" else CTX,
            i,
            bytes(16) if change and what == "nonce" else report.nonce,
            report.public[::-1] if change and what == "aggregator" else report.public,
            report.inputs[i],
        )[1]
        return share

    shares = [start(0, False), start(1, True)]
    with pytest.raises(VdafError):
        prio3.verifier_shares_to_message(CTX, shares)


def test_what_is_no_measurement():
    nonce = bytes(16)
    wrong: list[tuple[Circuit[Any, Any], Any]] = [
        (Count(), 2),
        (Count(), 0.5),
        (Sum(7), 8),
        (Sum(7), -1),
        (Sum(7), "1"),
        (SumVec(2, 3), [1]),
        (SumVec(2, 3), None),
        (SumVec(2, 3), [1, 4]),
        (Histogram(4), 4),
        (Histogram(4), -1),
        (MultihotCountVec(4, 2), [1, 1, 1, 0]),
        (MultihotCountVec(4, 2), [1, 1, 0]),
        (MultihotCountVec(4, 2), [2, 0, 0, 0]),
        (MultihotCountVec(4, 2), [0.5, 0, 0, 0]),
    ]
    for circuit, measurement in wrong:
        prio3 = Prio3(circuit)
        with pytest.raises(VdafError):
            prio3.shard(CTX, measurement, nonce, bytes(prio3.rand_size))


def test_parameters_that_are_refused():
    for wrong in (
        lambda: Prio3(Count(), 1),
        lambda: Prio3(Count(), 256),
        lambda: Prio3(Count(), 2, 0),
        lambda: Prio3(Count(), 2, 256),
        lambda: Prio3(SumVec(2, 3, field=field64()), 2, 2),  # forgeries become feasible
        lambda: Sum(0),
        lambda: Sum(2**64 - 2**32 + 1),  # would wrap around
        lambda: SumVec(0, 3),
        lambda: Histogram(0),
        lambda: Histogram(3, 0),
        lambda: MultihotCountVec(4, 0),
        lambda: MultihotCountVec(4, 5),
    ):
        with pytest.raises(InputError):
            wrong()


def test_sums_that_do_not_fit():
    prio3 = Prio3(Sum(2**40))
    with pytest.raises(VdafError, match="may not fit"):
        prio3.unshard([bytes(8)] * 2, 2**24)
    assert prio3.unshard([bytes(8)] * 2, 2**23) == 0
    with pytest.raises(VdafError, match="2 aggregate shares"):
        prio3.unshard([bytes(8)] * 3, 1)
    with pytest.raises(VdafError, match="8 bytes"):
        prio3.aggregate([bytes(7)])
    assert prio3.aggregate([]) == bytes(8)


def test_an_aggregator_that_is_not_there_and_a_context_that_is_too_long():
    prio3 = Prio3(Count())
    for number in (-1, 2):
        with pytest.raises(VdafError, match="from 0 to 1"):
            prio3.verify_init(KEY, CTX, number, bytes(16), b"", bytes(32))
    with pytest.raises(VdafError, match="2 verifier shares"):
        prio3.verifier_shares_to_message(CTX, [bytes(32)])
    with pytest.raises(VdafError, match="context"):
        prio3.shard(bytes(65_528), 1, bytes(16), bytes(prio3.rand_size))
    prio3.shard(bytes(65_527), 1, bytes(16), bytes(prio3.rand_size))


def test_nothing_secret_is_shown():
    source, prio3 = random.Random(1), Prio3(Count())
    report = Report(prio3, 1, source)
    state, _ = prio3.verify_init(KEY, CTX, 0, report.nonce, report.public, report.inputs[0])
    for shown in (repr(state), repr(AggregatorInput(b"nonce", b"public", report.inputs[0]))):
        assert "share=" not in shown


def test_chunks_make_the_smallest_upload():
    """Against all chunk lengths, and the proof's length as Prio3 computes it."""
    for length in [*range(1, 80), 107, 250]:
        best = Prio3(Histogram(length)).input_share_size(0)
        sizes = [Prio3(Histogram(length, c)).input_share_size(0) for c in range(1, length + 1)]
        assert best == min(sizes)
        assert best_chunk_length(length) == 1 + sizes.index(best)


class TwoFaced(Prio3[Any, Any]):
    """A client whose public share lies about the helper's part of the joint randomness.

    Leader and helper draw different randomness, and the proof is made for the mixture.
    """

    def shard(
        self, ctx: bytes, measurement: Any, nonce: bytes, rand: bytes
    ) -> tuple[bytes, list[bytes]]:
        public, inputs = super().shard(ctx, measurement, nonce, rand)
        lie = public[:SEED_SIZE] + bytes(SEED_SIZE)
        field, flp, size = self._field, self._flp, self._flp.prove_rand_length * self._field.size
        (leader, (own,), blind), (helper, (other,), _) = (
            self._expand_input_share(ctx, i, share) for i, share in enumerate(inputs)
        )
        wires = b"".join(
            self.circuit.wires(
                share,
                proof[:size],
                self._joint_rands(ctx, self._joint_rand_seed(ctx, told))[0],
                flp._wire,
                2,
            )
            for share, proof, told in ((leader, own, lie), (helper, other, public))
        )
        extended = field.extend(field.sum(wires, 2), flp._wire, flp._values)
        values = self.circuit.gadget.evaluate(field, extended, flp._values)
        proved = field.subtract(values[: len(own) - size], other[size:])
        return lie, [leader + own[:size] + proved + blind, inputs[1]]


class TestPingPong:
    def setup_method(self) -> None:
        source = random.Random(7)
        self.prio3 = Prio3(MultihotCountVec(4, 2))
        report = Report(self.prio3, [1, 0, 0, 1], source)
        self.leader, self.helper = (
            AggregatorInput(report.nonce, report.public, share) for share in report.inputs
        )
        self.topology = PingPong(self.prio3, CTX, KEY)

    def test_one_round_trip(self):
        state, request = self.topology.leader_init(self.leader)
        helper_share, response = self.topology.helper_init(self.helper, request)
        leader_share = self.topology.leader_finish(state, response)
        assert self.prio3.unshard([leader_share, helper_share], 1) == [1, 0, 0, 1]
        # initialize (0) and finish (2), each with one field whose length has four bytes
        size = self.prio3.verifier_share_size
        assert request[:5] == bytes([0]) + size.to_bytes(4, "big")
        assert response[:5] == bytes([2, 0, 0, 0, 32])
        assert (len(request), len(response)) == (size + 5, 37)

    @pytest.mark.parametrize("change", ["type", "length", "cut", "longer", "empty", "content"])
    def test_malformed(self, change: str):
        def spoil(message: bytes) -> bytes:
            return {
                "type": bytes([1]) + message[1:],
                "length": message[:4] + bytes([message[4] ^ 1]) + message[5:],
                "cut": message[:-1],
                "longer": message + b"\0",
                "empty": b"",
                "content": message[:-1] + bytes([message[-1] ^ 1]),
            }[change]

        state, request = self.topology.leader_init(self.leader)
        _, response = self.topology.helper_init(self.helper, request)
        with pytest.raises(VdafError):
            self.topology.helper_init(self.helper, spoil(request))
        with pytest.raises(VdafError):
            self.topology.leader_finish(state, spoil(response))

    def test_it_is_for_two(self):
        with pytest.raises(VdafError, match="2 aggregators"):
            PingPong(Prio3(Count(), 3), CTX, KEY)

    def test_the_helper_accepts_nothing_that_the_leader_would_refuse(self):
        """All ones pass with any randomness, so the helper could not tell from the proof."""
        source = random.Random(8)
        prio3 = TwoFaced(MultihotCountVec(4, 4))
        report = Report(prio3, [1, 1, 1, 1], source)
        leader, helper = (
            AggregatorInput(report.nonce, report.public, share) for share in report.inputs
        )
        topology = PingPong(prio3, CTX, KEY)
        state, request = topology.leader_init(leader)
        with pytest.raises(VdafError, match="another part of the joint randomness"):
            topology.helper_init(helper, request)
        shares = [request[5:], topology._init(1, helper)[1]]
        message = prio3.verifier_shares_to_message(CTX, shares)  # the proof holds
        with pytest.raises(VdafError, match="same joint randomness"):
            prio3.verify_next(CTX, state, message)
