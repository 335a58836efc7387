"""A real analyzer changes its key while devices send to a real relay, with the old and the new key.

Every device's report is accepted, and each is in exactly one crowd. When the overlap is over, the
old key is refused with a sentence that says what to do.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shoal.device.outbox import HttpTransport
from shoal.errors import TransportError
from shoal.lab.demo import console_get, run_command
from shoal.protocol.plan import Parties as RelayAndAnalyzer
from tests.server.serving_help import LONGEST
from tests.server.test_two_parties import CROWD, Devices, Parties, planned


class _WithKey:
    """Parties as devices see them that pin a certain key."""

    def __init__(self, parties: Parties, key: str) -> None:
        self.plan, self.key = parties.plan, key


def devices_of(folder: Path, parties: Parties, key: str, count: int) -> Devices:
    """Return devices that pin a key; their answers wait, and none is sent yet."""
    return Devices(folder, _WithKey(parties, key), count)  # type: ignore[arg-type]


def rotate(parties: Parties, *options: str) -> list[str]:
    """Change the analyzer's key as its operator does; return the keys, the newest first."""
    parties.analyzer.stop()
    done = run_command("collector", "rotate", str(parties.analyzer.folder), *options, "--json")
    parties.analyzer.start()
    return [key["key"] for key in json.loads(done)["keys"]]


def signers_at_relay(parties: Parties) -> list[str]:
    assert isinstance(parties.plan.parties, RelayAndAnalyzer)
    status, content = console_get(parties.plan.parties.relay, "/v1/keys", "")
    return json.loads(content)["ed25519"] if status == 200 else []


@pytest.mark.slow
@pytest.mark.real_random
def test_the_analyzer_s_key_changes_under_load(tmp_path: Path):
    agreed, relay, analyzer = planned()
    crowds = 3
    with Parties(tmp_path, agreed, relay, analyzer) as parties:
        assert isinstance(agreed.parties, RelayAndAnalyzer)
        old = parties.key
        # Crowds are open, and documents are cached, from before the change.
        early = devices_of(tmp_path / "early", parties, old, CROWD // 2)
        early.send()
        steady = devices_of(tmp_path / "steady", parties, old, CROWD)
        with ThreadPoolExecutor(2) as pool:
            sending = pool.submit(send_one_by_one, steady)
            new, former = rotate(parties)
            assert former == old
            # From the first moment, devices with the new key try, beside those with the old one.
            fresh = made_soon(tmp_path / "fresh", parties, new, CROWD)
            others = pool.submit(send_one_by_one, fresh)
            for task in (sending, others):
                task.result()
        both = devices_of(tmp_path / "both", parties, old, CROWD // 4)
        last = devices_of(tmp_path / "last", parties, new, CROWD // 4)
        for devices in (both, last):
            devices.send()
        everybody = [early, steady, fresh, both, last]
        tallies = parties.tallies(crowds)
        assert [tally["reports"] for tally in tallies] == [CROWD] * crowds
        counts = np.sum([tally["by_bit"] for tally in tallies], axis=0)
        bits = np.sum([devices.bits for devices in everybody], axis=0)
        assert counts.tolist() == bits.tolist()

        assert rotate(parties, "--end") == [new, old]
        end = time.monotonic() + LONGEST
        while signers_at_relay(parties) != [new]:
            assert time.monotonic() < end, "the relay did not notice the end of the overlap"
            threading.Event().wait(0.2)
        assert HttpTransport(agreed.parties.relay, public_key=new).fetch_certificate(agreed.id)
        refused = HttpTransport(agreed.parties.relay, public_key=old)
        wait_for_refusal(refused, agreed.id)


def send_one_by_one(devices: Devices) -> None:
    """Send at a steady pace, so that devices send before, during and after a change."""
    end = time.monotonic() + LONGEST
    for box in devices._boxes:
        while [one.state for one in box.tickets()] != ["sent"]:
            assert time.monotonic() < end, "a report was not accepted"
            box.send_due(hurry=True)
            threading.Event().wait(0.1)


def made_soon(folder: Path, parties: Parties, key: str, count: int) -> Devices:
    """Return devices as soon as the relay's documents have a signature of their key."""
    assert isinstance(parties.plan.parties, RelayAndAnalyzer)
    transport = HttpTransport(parties.plan.parties.relay, public_key=key)
    end = time.monotonic() + LONGEST
    while True:
        try:
            transport.fetch_certificate(parties.plan.id)
        except TransportError:
            assert time.monotonic() < end, "devices with the new key are locked out"
            threading.Event().wait(0.2)
        else:
            return devices_of(folder, parties, key, count)


def wait_for_refusal(transport: HttpTransport, plan_id: str) -> None:
    """Wait until a device with the expired key is refused, with advice."""
    end = time.monotonic() + LONGEST
    while True:
        assert time.monotonic() < end, "the expired key is still good"
        try:
            transport.fetch_certificate(plan_id)
        except TransportError as error:
            if "If the operator changed the key, update the application" in str(error):
                return
        threading.Event().wait(0.2)
