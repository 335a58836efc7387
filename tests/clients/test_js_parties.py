"""Clients in JavaScript, a real collector, and a real relay with a real analyzer behind it.

What is released is the sum of the very bits that the clients sent.
"""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Plan, plan
from shoal.lab.demo import console_get
from shoal.protocol.plan import Parties as RelayAndAnalyzer
from tests.clients.js_help import needs_node, run_driver
from tests.server.serving_help import LONGEST, served
from tests.server.test_two_parties import CROWD, SURVEY, Parties, answer_of, planned

pytestmark = [needs_node, pytest.mark.slow]


def send_all(agreed: Plan, to: str, key: str) -> list[int]:
    """Let a whole crowd of clients send, and return how often each bit was sent."""
    options = {"plan": agreed.id, "to": to, "key": key, "limit": agreed.local_epsilon}
    answers = [answer_of(number) for number in range(CROWD)]
    people = json.dumps({"options": options, "answers": answers}).encode()
    told: list[Any] = json.loads(run_driver(people, "people"))
    assert [(state, reason) for _, state, reason in told] == [("sent", None)] * CROWD
    counts = np.zeros(agreed.bits, int)
    for places, _, _ in told:
        counts[places] += 1
    assert counts.sum() > 0
    found: list[int] = counts.tolist()
    return found


def wait_for_key(relay: str, agreed: Plan) -> None:
    """Wait until the analyzer has given the relay a key for the first crowd."""
    end = time.monotonic() + LONGEST
    while console_get(relay, f"/v1/plans/{agreed.id}/crowd-key", "")[0] != 200:
        assert time.monotonic() < end, "no key came"
        time.sleep(0.05)


def test_through_a_relay_and_an_analyzer(tmp_path: Path) -> None:
    agreed, relay, analyzer = planned()
    with Parties(tmp_path, agreed, relay, analyzer) as parties:
        assert isinstance(agreed.parties, RelayAndAnalyzer)
        wait_for_key(agreed.parties.relay, agreed)
        sent = send_all(agreed, agreed.parties.relay, parties.key)
        (tally,) = parties.tallies(1)
    assert tally["reports"] == CROWD
    assert tally["by_bit"] == sent


def test_through_a_collector(tmp_path: Path) -> None:
    agreed = plan(SURVEY, crowd_size=CROWD, epsilon="4", delta="1e-4")
    with served(tmp_path / "data", agreed) as collector:
        with urllib.request.urlopen(f"{collector.public}/v1/keys") as answer:
            key = json.load(answer)["ed25519"][0]
        sent = send_all(agreed, collector.public, key)
        crowd = f"{collector.console}/v1/plans/{agreed.id}/crowds/1"
        headers = {"Authorization": f"Bearer {collector.token}"}
        with urllib.request.urlopen(urllib.request.Request(crowd, headers=headers)) as answer:
            tally = json.load(answer)["tally"]
    assert (tally["reports"], tally["by_bit"]) == (CROWD, sent)
