"""One anonymous host against a collector: what each attack costs it, and what honest people notice.

Honest people send at a steady rate, each report on a connection of its own. Their rate is measured
alone, then under each attack, then once more when it is over. Everything is bounded in time and
number and stays on this machine's loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.attacker import ATTACKS, Attack
from bench.measuring import Options, Table
from bench.serving import LOAD_CORE, Running, collector, pin, running
from shoal import Flags, Plan, Survey, plan

RATE = 100.0
"""Honest reports a second."""


class Effect(NamedTuple):
    """What honest people noticed, and what it cost the attacker and the collector."""

    kept: float
    p99: float
    after: float
    memory: int
    megabytes: float
    connections: int


def measure(options: Options) -> Table:
    """Run every attack, and keep the worst of the rounds."""
    seconds = 3.0 if options.quick else 8.0
    rounds = min(options.rounds, 3)
    worst: dict[str, Effect] = {}
    alone = {"rate": 0.0, "p99": 0.0}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = [folder / f"{number}.json" for number in range(len(_plans()))]
        for agreed, file in zip(_plans(), files, strict=True):
            agreed.write(file)
        words = list(map(str, files))
        for settings in dict.fromkeys(attack.settings for attack in ATTACKS):
            data = folder / f"data{len(settings)}"
            with running(collector(data, *settings, *words)) as server:
                undisturbed = _honest(files[0], server.port, seconds)
                alone = {
                    "rate": max(alone["rate"], undisturbed["rate"]),
                    "p99": max(alone["p99"], undisturbed["p99"]),
                }
                for number in range(rounds):
                    for attack in ATTACKS:
                        if attack.settings != settings:
                            continue
                        effect = _attacked(attack, server, files, seconds, undisturbed["rate"])
                        before = worst.get(attack.name, effect)
                        worst[attack.name] = _worse(before, effect)
                        print(f"  {attack.name}, round {number + 1}: {effect}", flush=True)
    rows = [
        [name, one.megabytes, one.connections, 100 * one.kept, 1000 * one.p99, one.memory,
         100 * one.after]
        for name, one in worst.items()
    ]  # fmt: skip
    return Table(
        "One host against the collector",
        ["attack", "MB sent", "connections", "honest rate kept, %", "honest p99, ms",
         "collector's peak, MiB", "rate after it, %"],
        rows,
        f"An anonymous host attacks for {seconds:g} s, without a proxy in front of the collector."
        f" Meanwhile {RATE:g} honest reports a second arrive, each on its own connection. A report"
        " that is refused, or not answered within 10 s, does not count as kept. Without an attack"
        f" the rate was {alone['rate']:.0f} and the p99 {1000 * alone['p99']:.0f} ms. The worst of"
        f" {rounds} rounds.",
        [
            "The collector runs on one core; the attacker and the honest senders share the other.",
            "deploy/nginx.conf stops most of this before it reaches the collector: twenty"
            " connections and five requests a second per address.",
        ],
        best=False,
    )  # fmt: skip


def _plans() -> list[Plan]:
    """Return a plan of many people, one of few, and some more of many."""

    def agreed(name: str, crowd: int) -> Plan:
        survey = Survey(name, (Flags("answer", tuple(map(str, range(40)))),))
        return plan(survey, crowd_size=crowd, epsilon="1", delta="1e-6")

    return [agreed("many", 100_000), agreed("few", 100)] + [
        agreed(f"more {number}", 100_000) for number in range(6)
    ]


def _attacked(
    attack: Attack, server: Running, files: list[Path], seconds: float, alone: float
) -> Effect:
    server.forget_peak()
    command = [sys.executable, "-m", "bench.attacker", attack.run.__name__, str(server.port)]
    command += ["--seconds", str(seconds + 3), *map(str, files)]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=_beside)
    assert attacker.stdout is not None
    attacker.stdout.readline()  # it has begun
    time.sleep(1)
    during = _honest(files[0], server.port, seconds)
    cost = json.loads(attacker.communicate()[0])
    memory = server.memory(peak=True)
    after = _honest(files[0], server.port, max(seconds / 2, 2))
    assert server.process.poll() is None, "the collector is gone"
    return Effect(
        during["rate"] / alone, during["p99"], after["rate"] / alone, memory,
        cost["bytes"] / 1e6, cost["connections"],
    )  # fmt: skip


def _worse(one: Effect, other: Effect) -> Effect:
    return Effect(
        min(one.kept, other.kept),
        max(one.p99, other.p99),
        min(one.after, other.after),
        max(one.memory, other.memory),
        max(one.megabytes, other.megabytes),
        max(one.connections, other.connections),
    )


def _honest(plan_file: Path, port: int, seconds: float) -> dict[str, float]:
    """Return the rate of honest reports that were accepted, and the p99 of all answers."""
    command = [sys.executable, "-m", "bench.load", str(plan_file), str(port)]
    command += ["--rate", str(RATE), "--requests", str(int(RATE * seconds))]
    out = subprocess.run(
        command, check=True, capture_output=True, preexec_fn=lambda: pin(LOAD_CORE)
    )
    found: Any = json.loads(out.stdout)
    return {"rate": found["statuses"].get("202", 0) / found["seconds"], "p99": found["p99"]}


def _beside() -> None:
    pin(LOAD_CORE)
    os.nice(5)  # it shall slow the collector down, not the honest ones beside it
