"""A real relay and a real analyzer, each in a process of its own, and devices that go on sending.

Every acknowledged report is in exactly one crowd, whoever is killed, and the releases add up to the
very bits that the devices made.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Flags, Outbox, Plan, Survey, plan
from shoal.device.outbox import HttpTransport
from shoal.device.outbox.queue import Record
from shoal.errors import ShoalError
from shoal.lab.demo import console_get, free_port, run_command
from shoal.protocol.plan import Parties as RelayAndAnalyzer
from shoal.protocol.wire import ID_BYTES, split_batch
from tests.faults import QuickDisk
from tests.server.postgres_help import needs_postgres, the_server
from tests.server.serving_help import LONGEST, ServiceProcess

KILLS = int(os.environ.get("SHOAL_PARTY_KILLS", "2"))
SURVEY = Survey(
    "browser", (Flags("features", ("sync", "vpn", "reader")), Choice("channel", ("a", "b", "c")))
)
CROWD, CROWDS = 100, max(2, KILLS // 20)


def planned() -> tuple[Plan, int, int]:
    """A plan with free ports for both parties."""
    relay, analyzer = free_port(), free_port()
    agreed = plan(
        SURVEY,
        crowd_size=CROWD,
        epsilon="4",
        delta="1e-4",
        relay=f"http://127.0.0.1:{relay}",
        analyzer=f"http://localhost:{analyzer}",  # another host, as far as names tell
    )
    return agreed, relay, analyzer


class Party(ServiceProcess):
    """One of the two, which can be killed and started again."""

    def __init__(self, folder: Path, url: str, *words: str) -> None:
        super().__init__(folder.with_suffix(".log"), *words, "--data", str(folder))
        self.folder = folder
        setup = ["parties", "setup", "--data", str(folder), "--json"]
        made = json.loads(run_command(*setup, "--role", words[0], "--url", url))
        self.public, self._setup = made["public_file"], setup
        self.fingerprint, self.key = made["own"]["fingerprint"], made["own"]["signing_key"]

    def meet(self, other: Party, *options: str) -> None:
        """Accept the other party's public file, whose fingerprint was told by telephone."""
        told = ("--other", other.public, "--fingerprint", other.fingerprint)
        run_command(*self._setup, *told, *options)


class Parties:
    """A relay and an analyzer that know each other."""

    def __init__(self, folder: Path, agreed: Plan, relay: int, analyzer: int) -> None:
        assert isinstance(agreed.parties, RelayAndAnalyzer)
        self.plan = agreed
        plan_file = folder / "plan.json"
        agreed.write(plan_file)
        self._folder, self._relay_port, self._relays = folder, relay, 0
        self.analyzer = Party(
            folder / "analyzer",
            agreed.parties.analyzer,
            *("analyzer", "--public", f"127.0.0.1:{analyzer}", "--console", "127.0.0.1:0"),
            *("--honest", "all", str(plan_file)),
        )
        self.relay = self.new_relay()

    def new_relay(self, *options: str) -> Party:
        """A relay in a folder of its own, not started yet."""
        assert isinstance(self.plan.parties, RelayAndAnalyzer)
        self._relays += 1
        return Party(
            self._folder / f"relay{self._relays}",
            self.plan.parties.relay,
            *("relay", "--public", f"127.0.0.1:{self._relay_port}", "--console", "127.0.0.1:0"),
            *("--max-share-percent", "100"),
            *(*options, str(self._folder / "plan.json")),
        )

    def introduce(self, *options: str) -> None:
        """Exchange the public files, before either starts."""
        self.analyzer.meet(self.relay, *options)
        self.relay.meet(self.analyzer)

    def ready(self) -> bool:
        """Whether the relay says that it is ready."""
        return console_get(self.relay.urls["console"], "/readyz", "")[0] == 200

    def __enter__(self) -> Parties:
        self.introduce()
        self.analyzer.start()
        self.relay.start()
        self.key = self.analyzer.key
        return self

    def __exit__(self, *_: object) -> None:
        for party in (self.relay, self.analyzer):
            party.stop()

    def tallies(self, count: int) -> list[dict[str, Any]]:
        """The releases, as soon as there are so many."""
        token = (self.analyzer.folder / "admin-token").read_text().strip()
        end = time.monotonic() + LONGEST
        at, console = f"/v1/plans/{self.plan.id}/crowds", self.analyzer.urls["console"]
        while True:
            assert time.monotonic() < end, "the crowds were not released"
            crowds = json.loads(console_get(console, at, token)[1])["crowds"]
            numbers = [one["number"] for one in crowds if one["state"] == "released"]
            if len(numbers) >= count:
                break
            time.sleep(0.2)
        paths = [f"{at}/{number}" for number in sorted(numbers)]
        found = [json.loads(console_get(console, path, token)[1]) for path in paths]
        return [one["tally"] for one in found]


def answer_of(number: int) -> dict[str, object]:
    flags = [label for place, label in enumerate(("sync", "vpn", "reader")) if number >> place & 1]
    return {"features": flags, "channel": "abc"[number % 3]}


class Devices:
    """Outboxes that answer once and send until they are accepted."""

    def __init__(self, folder: Path, parties: Parties, count: int) -> None:
        self.plan = parties.plan
        assert isinstance(self.plan.parties, RelayAndAnalyzer)
        transport = HttpTransport(self.plan.parties.relay, public_key=parties.key)
        self.bits = np.zeros(self.plan.bits, np.int64)
        self._boxes = []
        for number in range(count):
            at = folder / str(number)
            box = Outbox(
                at,
                transport,
                spread=0.0,
                jitter=lambda: 0.0,
                limit=1000,
                recompute=False,
                disk=QuickDisk(),
            )
            box.answer(self.plan, answer_of(number))
            (record,) = (Record.from_bytes(path.read_bytes()) for path in at.glob("*.waiting"))
            row = split_batch(self.plan, record.batch).content[ID_BYTES + 4 :]
            value = int.from_bytes(row, "little")
            self.bits += [value >> place & 1 for place in range(self.plan.bits)]
            self._boxes.append(box)

    def send(self, allowed: Callable[[], int] | None = None) -> None:
        """Send until every report was accepted, at each moment no more than are allowed."""
        end = time.monotonic() + LONGEST
        waiting, total = self._boxes, len(self._boxes)
        while waiting:
            assert time.monotonic() < end, "reports were not accepted"
            free = total if allowed is None else allowed() - (total - len(waiting))
            for box in waiting[: max(free, 0)]:
                box.send_due(hurry=True)
            left = [box for box in waiting if [one.state for one in box.tickets()] != ["sent"]]
            if len(left) < len(waiting):
                end = time.monotonic() + LONGEST
            elif free <= 0:
                time.sleep(0.05)
            waiting = left


@pytest.mark.slow
@pytest.mark.real_random
def test_every_bit_arrives_once_whoever_is_killed(tmp_path: Path):
    agreed, relay, analyzer = planned()
    chance = random.Random("reports")
    with Parties(tmp_path, agreed, relay, analyzer) as parties:
        devices = Devices(tmp_path / "devices", parties, CROWD * CROWDS)
        allowed = CROWD * CROWDS // (KILLS + 1)

        def kill() -> None:
            nonlocal allowed
            for number in range(KILLS):
                time.sleep(chance.uniform(0.1, 1.0))
                chosen = chance.choice(
                    [[parties.relay], [parties.analyzer], [parties.relay, parties.analyzer]]
                )
                for party in chosen:
                    party.kill()
                for party in reversed(chosen):
                    party.start()
                # Reports come all the time, so that every kill meets some.
                allowed = CROWD * CROWDS * (number + 2) // (KILLS + 1)

        with ThreadPoolExecutor(1) as killing:
            killed = killing.submit(kill)
            devices.send(lambda: allowed)
            killed.result()
        tallies = parties.tallies(CROWDS)
    assert [tally["reports"] for tally in tallies] == [CROWD] * CROWDS
    counts = np.sum([tally["by_bit"] for tally in tallies], axis=0)
    assert counts.tolist() == devices.bits.tolist()


def replace_relay(parties: Parties, *options: str) -> None:
    """Put a new relay in the place of the present one, as the operators do."""
    parties.relay.stop()
    parties.relay = parties.new_relay(*options)
    with pytest.raises(ShoalError, match="has another key than the relay that is known"):
        parties.introduce()
    parties.introduce("--replace")
    parties.analyzer.stop()
    parties.analyzer.start()
    parties.relay.start()


@pytest.mark.slow
@pytest.mark.parametrize("data", ["folder", pytest.param("database", marks=needs_postgres)])
def test_a_relay_is_replaced_as_documented(data: str, tmp_path: Path):
    """A relay with new data and keys takes its place: every report counts."""
    agreed, relay, analyzer = planned()
    options = [("--database", the_server().new_database()) for _ in range(2)] * (data == "database")
    with Parties(tmp_path, agreed, relay, analyzer) as parties:
        if options:
            replace_relay(parties, *options[0])
        first = Devices(tmp_path / "first", parties, CROWD)
        first.send()
        parties.tallies(1)
        assert parties.ready()

        replace_relay(parties, *(options[1] if options else ()))
        second = Devices(tmp_path / "second", parties, CROWD)
        second.send()
        assert parties.ready()
        tallies = parties.tallies(2)
    assert [tally["reports"] for tally in tallies] == [CROWD] * 2
    assert [tally["by_bit"] for tally in tallies] == [first.bits.tolist(), second.bits.tolist()]


@pytest.mark.slow
def test_a_relay_whose_deadline_does_not_fit_does_not_start(tmp_path: Path):
    agreed, relay, analyzer = planned()
    with Parties(tmp_path, agreed, relay, analyzer) as parties:
        parties.relay.stop()
        with pytest.raises(
            AssertionError, match=r"deadline_days = 46.* at most half of the analyz"
        ):
            parties.relay.start("--deadline-days", "46")
        parties.relay.start()
