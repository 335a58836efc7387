"""The client for web pages: reports made and encrypted a second, in Node.js and in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bench.measuring import Options, Table
from shoal import Flags, Plan, Survey
from shoal.device.encode import encode
from shoal.device.encryption import encrypt_report
from shoal.device.randomize import flip, pack_reports
from shoal.protocol.encryption import CrowdKey
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.signatures import key_text

_DRIVER = Path(__file__).parent.parent / "clients" / "js" / "test" / "driver.js"
_BITS = 40
_WORK = ("encode and randomize", "the same, and encrypt it")
_KEY = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
_SURVEY = Survey("s", (Flags("f", tuple(f"o{place}" for place in range(_BITS))),))
_Q = FlipProbability(5751, 14)


def measure(options: Options) -> Table:
    """Measure one report at a time, as a device makes it; the best of the rounds."""
    rounds = options.size(300)
    best = {"JavaScript (Node.js)": [0.0] * 2, "Python": [0.0] * 2}
    if shutil.which("node") is None:
        del best["JavaScript (Node.js)"]
    speeds = {"JavaScript (Node.js)": _in_node, "Python": _in_python}
    for _ in range(options.rounds):
        for name, found in best.items():
            found[:] = map(max, found, speeds[name](rounds))
    rows = [(work, *(found[place] for found in best.values())) for place, work in enumerate(_WORK)]
    return Table(
        "Making reports in the browser's language",
        ("reports a second, one core", *best),
        rows,
        f"Reports of {_BITS} bits, one after the other, as a device makes them. Every encrypted"
        " report takes a key pair of its own.",
    )


def _in_node(rounds: int) -> list[float]:
    node = shutil.which("node")
    assert node is not None
    asked = {
        "survey": _SURVEY.to_json(),
        "answer": {"f": ["o1", "o7"]},
        "q": _Q.to_json(),
        "key": key_text(_KEY),
    }
    command = [node, str(_DRIVER), "speed", str(rounds)]
    done = subprocess.run(
        command, input=json.dumps(asked).encode(), capture_output=True, check=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def _in_python(rounds: int) -> list[float]:
    parties = Parties("https://relay.example", "https://analyzer.example")
    promise = Promise("proven", "1", delta="1e-6")
    plan = Plan(_SURVEY, _Q, promise, crowd_size=1000, parties=parties)
    key = CrowdKey(plan.id, 0, 1, _KEY)

    def make() -> bytes:
        synthetic = flip(plan, encode(plan, {"f": ["o1", "o7"]}))
        return pack_reports(plan, synthetic).to_bytes()

    works: list[Callable[[], object]] = [make, lambda: encrypt_report(plan, make(), key)]
    return [_speed(work, rounds) for work in works]


def _speed(work: Callable[[], object], rounds: int) -> float:
    work()
    start = time.perf_counter()
    for _ in range(rounds):
        work()
    return rounds / (time.perf_counter() - start)
