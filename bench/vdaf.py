"""Prio3MultihotCountVec: shard, verify and add, with the C kernels and without; timing leaks."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from bench.measuring import Candidate, Options, Table, best_times
from bench.without_kernels import R, without_kernels
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.vdaf import AggregatorInput, PingPong, Prio3, field
from shoal.protocol.vdaf.circuits import MultihotCountVec

_CLIENT = Path(__file__).parent.parent / "clients" / "js" / "src" / "prio3.js"
_RANDOM = "random elements"
_LENGTHS = (10, 40, 100, 1000)
_CTX, _INFO, _AAD = b"bench", b"bench hpke", bytes(120)
_SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
_FRAME = 16 + 8 + 2 + 4 + 2 * (1 + 2 + 32 + 4 + 16 + 2 + 4)
"""What an upload of DAP has around the shares: id, time, extensions, lengths, keys and tags."""

_TEXT = (
    "One core, one report at a time, max_weight = length. Sharding makes both shares and the proof;"
    " encrypting adds HPKE (pyhpke) for leader and helper. The helper opens its share, verifies it"
    " and adds it; the leader does the same and its second step. An upload is a whole report of"
    " DAP: public share, both ciphertexts and their frame. The others are pure Python,"
    " as on a device without kernels, and JavaScript in Node.js; both without HPKE."
)


class _Party:
    """A client and two aggregators with one report of so many bits."""

    def __init__(self, length: int) -> None:
        draw = SystemBits().draw
        self.prio3 = Prio3(MultihotCountVec(length, length))
        self.topology = PingPong(self.prio3, _CTX, draw(32))
        self.measurement = [byte & 1 for byte in draw(length)]
        self.nonce, self.rand = draw(16), draw(self.prio3.rand_size)
        keys = [X25519PrivateKey.generate() for _ in range(2)]
        self.keys = [KEMKey.from_pyca_cryptography_key(key) for key in keys]
        self.public_keys = [KEMKey.from_pyca_cryptography_key(key.public_key()) for key in keys]
        self.public, self.inputs = self.shard()
        self.encrypted = self.encrypt()
        leader, helper = map(self.input, self.inputs)
        _, self.request = self.topology.leader_init(leader)
        _, self.response = self.topology.helper_init(helper, self.request)
        self.total = bytes(self.prio3.out_share_size)

    def input(self, share: bytes) -> AggregatorInput:
        return AggregatorInput(self.nonce, self.public, share)

    def shard(self) -> tuple[bytes, list[bytes]]:
        return self.prio3.shard(_CTX, self.measurement, self.nonce, self.rand)

    def encrypt(self) -> list[tuple[bytes, bytes]]:
        _, inputs = self.shard()
        encrypted = []
        for share, key in zip(inputs, self.public_keys, strict=True):
            encapsulated, sender = _SUITE.create_sender_context(key, info=_INFO)
            encrypted.append((encapsulated, sender.seal(share, aad=_AAD)))
        return encrypted

    def help(self, share: bytes) -> None:
        out, _ = self.topology.helper_init(self.input(share), self.request)
        self.total = self.prio3.aggregate([self.total, out])

    def lead(self, share: bytes) -> None:
        state, _ = self.topology.leader_init(self.input(share))
        self.total = self.prio3.aggregate(
            [self.total, self.topology.leader_finish(state, self.response)]
        )

    def open_and(self, party: Callable[[bytes], None], who: int) -> None:
        encapsulated, ciphertext = self.encrypted[who]
        receiver = _SUITE.create_recipient_context(encapsulated, self.keys[who], info=_INFO)
        party(receiver.open(ciphertext, aad=_AAD))

    @property
    def upload(self) -> int:
        return _FRAME + len(self.public) + sum(map(len, self.inputs))


def measure(options: Options) -> Table:
    """Measure each length, in reports a second."""
    rows, parties = [], {length: _Party(length) for length in _LENGTHS}
    for length, party in parties.items():
        plain = _plainly(lambda length=length: _Party(length))()
        work: dict[str, tuple[int, Callable[[], object]]] = {
            "shard": (2000, party.shard),
            "encrypt": (2000, party.encrypt),
            "open": (2000, partial(party.open_and, lambda _: None, 1)),
            "help": (2000, partial(party.open_and, party.help, 1)),
            "lead": (2000, partial(party.open_and, party.lead, 0)),
            "plain shard": (40, _plainly(plain.shard)),
            "plain help": (40, _plainly(partial(plain.help, plain.inputs[1]))),
        }
        candidates = [
            Candidate(name, size, partial(_repeat, run, size))
            for name, (reports, run) in work.items()
            for size in [max(1, options.size(reports) // length)]
        ]
        best = best_times(candidates, options.rounds)
        rates = [round(one.reports / best[one.name]) for one in candidates]
        chunk = party.prio3.circuit.gadget.arity // 2
        rows.append((length, chunk, party.upload, *rates, *_in_node(length, options.rounds)))
    columns = (
        *("bits", "chunk", "upload, bytes", "shard/s", "shard and encrypt/s", "HPKE open/s"),
        *("helper/s", "leader/s", "Python: shard/s", "Python: helper/s"),
        *("JavaScript: first shard, ms", "JavaScript: shard, ms"),
    )
    return Table("Prio3: shares, proofs and sums", columns, rows, _TEXT, [_leaks(options)])


def _in_node(length: int, rounds: int) -> tuple[float, float]:
    """Return the milliseconds of the first report and of a later one, the best of the rounds."""
    script = f"""
        import {{ randSize, shard }} from {json.dumps(_CLIENT.as_uri())};
        const bits = Array.from({{ length: {length} }}, (_, place) => place % 2);
        const [nonce, rand] = [new Uint8Array(16), new Uint8Array(randSize())];
        const times = Array.from({{ length: 30 }}, () => {{
          const start = performance.now();
          shard(nonce, bits, {length}, nonce, rand);
          return performance.now() - start;
        }});
        console.log(JSON.stringify([times[0], Math.min(...times)]));"""
    command = ["node", "--input-type=module", "--eval", script]
    found = [json.loads(subprocess.check_output(command)) for _ in range(rounds)]
    return min(first for first, _ in found), min(later for _, later in found)


def _repeat(run: Callable[[], object], times: int) -> None:
    for _ in range(times):
        run()


def _plainly(run: Callable[[], R]) -> Callable[[], R]:
    return without_kernels(field, run)


def _leaks(options: Options) -> str:
    """Compare the kernels' times on zeros, ones and random elements (the test of dudect)."""
    found, count = field.field128(), options.size(20_000)
    draw, size = SystemBits().draw, 46 * 16
    classes = {
        "zeros": bytes(size),
        "the largest element": found.vector([-1] * 46),
        _RANDOM: found.expand(draw(32), b"", b"", 46),
    }
    rows, factors = (found.expand(draw(32), b"", b"", 46) for _ in range(2))
    operations: dict[str, Callable[[bytes], object]] = {
        "sum": lambda vector: found.sum(vector + rows, 2),
        "subtract": lambda vector: found.subtract(rows, vector),
        "dots": lambda vector: found.dots(vector, factors),
        "pair_products": lambda vector: found.pair_products(vector, 23),
        "extend": lambda vector: found.extend(vector[: 32 * 16], 8, 16),
        "range_wires": lambda vector: found.range_wires(
            vector, 7, 8, rows[: 7 * 16], 2, rows[: 14 * 16]
        ),
    }
    worst = max(
        (statistics.median(abs(_welch(times[one], times[_RANDOM])) for times in runs), name, one)
        for name, operation in operations.items()
        for runs in [[_times(operation, classes, count) for _ in range(5)]]
        for one in classes
    )
    return (
        f"The kernels' times on secrets, as dudect tests them: {count:,} runs of each kernel on"
        " vectors of zeros, of the largest element and of random elements, in turns, without the"
        " slowest half; five times, and the median of |t| of Welch's test. The largest is"
        f" {worst[0]:.1f} ({worst[1]}, {worst[2]}); 10 would be a leak. Pure Python leaks."
    )


def _times(
    operation: Callable[[bytes], object], classes: dict[str, bytes], count: int
) -> dict[str, list[int]]:
    """Return the times of each class, on copies in different places of the memory."""
    copies = [
        (name, bytes(bytearray(vector))) for _ in range(16) for name, vector in classes.items()
    ]
    times: dict[str, list[int]] = {name: [] for name in classes}
    for byte in SystemBits().draw(count):
        name, vector = copies[byte % len(copies)]
        start = time.perf_counter_ns()
        operation(vector)
        times[name].append(time.perf_counter_ns() - start)
    return {name: sorted(found)[: len(found) // 2] for name, found in times.items()}


def _welch(one: list[int], other: list[int]) -> float:
    spread = sum(statistics.variance(times) / len(times) for times in (one, other))
    return (statistics.fmean(one) - statistics.fmean(other)) / spread**0.5
