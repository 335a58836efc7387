"""Reports that go to a relay: made once, sealed for the crowd that is open, counted once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from shoal import Outbox, PrivacyRefusal
from shoal.device.encode import SyntheticVector
from shoal.device.encryption import check_parties, encrypt_report
from shoal.device.outbox import HttpTransport, PostResult, TransportError
from shoal.device.randomize import fit_to_weight, flip, pack_reports
from shoal.errors import ReportError
from shoal.protocol.encryption import CrowdKey
from shoal.protocol.plan import Parties
from shoal.protocol.wire import ENCRYPTED_MAGIC, ID_BYTES, split_batch
from tests.device.outbox_help import ANSWER, box, stored_record
from tests.device.relay_help import WHOLE, Relay, vector
from tests.faults import Clock, Crash, Faults, FaultyDisk

TRUSTED: dict[str, Any] = {"limit": 1000, "recompute": False}


def sent_vector(folder: Any) -> int:
    """The bits of the report that waits in a folder."""
    batch = split_batch(WHOLE, stored_record(folder).batch)
    return int.from_bytes(batch.content[ID_BYTES + 4 :], "little")


class TestSending:
    def test_the_identifier_inside_is_another_one(self, tmp_path):
        relay = Relay(WHOLE)
        outbox = box(tmp_path, relay, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        bits = sent_vector(tmp_path)
        assert [one.state for one in outbox.send_due()] == ["sent"]
        ((report_id, content),) = relay.accepted.items()
        assert vector(content) == bits  # what arrives is what was randomized
        assert report_id != content[:ID_BYTES]

    def test_the_same_bytes_until_accepted(self, tmp_path):
        clock, relay = Clock(), Relay(WHOLE, TransportError("no."), PostResult(503))
        outbox = box(tmp_path, relay, clock, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        for _ in range(3):
            outbox.send_due()
            clock.now += 7 * 3600
        assert len(relay.posted) == 3
        assert len(set(relay.posted)) == 1
        assert relay.asked == 1
        assert [one.state for one in outbox.tickets()] == ["sent"]

    def test_a_complete_crowd_leaves_the_report_to_the_next_one(self, tmp_path):
        clock, relay = Clock(), Relay(WHOLE, TransportError("no."))
        outbox = box(tmp_path, relay, clock, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        outbox.send_due()
        bits = sent_vector(tmp_path)
        relay.next_crowd()
        clock.now += 7 * 3600
        assert [one.state for one in outbox.send_due()] == ["sent"]
        first, again, resealed = relay.posted
        assert first == again != resealed
        start = len(ENCRYPTED_MAGIC) + 32 + 4
        assert first[start : start + 32] != resealed[start : start + 32]  # the key
        report = slice(start + 36, start + 36 + ID_BYTES)
        assert first[report] == resealed[report]  # the relay counts it once
        (content,) = relay.accepted.values()
        assert vector(content) == bits

    def test_a_report_is_encrypted_for_three_crowds_at_most(self, tmp_path):
        """A relay that says again and again that the crowd is complete gets no more of them."""
        clock, relay = Clock(), Relay(WHOLE, *[PostResult(412)] * 100)
        outbox = box(tmp_path, relay, clock, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        for _ in range(10):
            relay.next_crowd()
            box(tmp_path, relay, clock, **TRUSTED).send_due()
            clock.now += 7 * 3600
        assert relay.asked == len(set(relay.posted)) == 3
        (ticket,) = outbox.tickets()
        assert ticket.state == "expired"
        assert ticket.reason == "it was encrypted for 3 keys in turn, each too old when it arrived"
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert not any(body in kept for body in relay.posted)

    def test_an_accepted_report_is_not_sealed_again(self, tmp_path):
        clock, relay = Clock(), Relay(WHOLE)
        outbox = box(tmp_path, relay, clock, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        relay.faults = Faults(2)  # the answer to the first post is lost
        with pytest.raises(Crash):
            outbox.send_due()
        relay.faults = Faults()
        relay.next_crowd()
        clock.now += 7 * 3600
        assert [one.state for one in box(tmp_path, relay, clock, **TRUSTED).send_due()] == ["sent"]
        assert len(relay.accepted) == 1
        assert len(set(relay.posted)) == 1

    @pytest.mark.parametrize("kind", ["nonsense", "of another window"])
    def test_a_key_that_cannot_be_used(self, tmp_path, kind):
        relay = Relay(WHOLE)
        good = relay.fetch_crowd_key
        keys = {
            "nonsense": lambda *_: b"{}",
            "of another window": lambda one, at: good(one, at + 1),
        }
        relay.fetch_crowd_key = keys[kind]  # type: ignore[method-assign]
        outbox = box(tmp_path, relay, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        (ticket,) = outbox.send_due()
        assert ticket.state == "waiting"
        assert "key document" in str(ticket.reason)
        assert not relay.posted

    def test_nothing_stays_of_a_sent_report(self, tmp_path):
        relay = Relay(WHOLE)
        outbox = box(tmp_path, relay, **TRUSTED)
        outbox.answer(WHOLE, ANSWER)
        batch = stored_record(tmp_path).batch
        outbox.send_due()
        content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert batch not in content
        assert relay.posted[0] not in content


class TestCrashes:
    @pytest.mark.slow
    def test_at_every_step_one_version_arrives_once(self, tmp_path):
        """A crash at each step of answering and sending, with a crowd that ends in between."""
        at = 0
        while True:
            folder, relay, clock = tmp_path / str(at), Relay(WHOLE), Clock()
            faults = Faults(at)
            relay.faults = faults
            options = TRUSTED | {"disk": FaultyDisk(faults)}
            try:
                outbox = box(folder, relay, clock, **options)
                outbox.answer(WHOLE, ANSWER)
                outbox.send_due()
                break
            except Crash:
                pass
            relay.faults = Faults()
            relay.next_crowd()
            clock.now += 7 * 3600
            outbox = box(folder, relay, clock, **TRUSTED)
            outbox.answer(WHOLE, ANSWER)
            outbox.send_due()
            clock.now += 7 * 3600
            outbox.send_due()
            assert [one.state for one in outbox.tickets()] == ["sent"]
            assert len(relay.accepted) == 1
            at += 1
        assert at > 20


class TestRefusals:
    def test_one_host_for_both(self, tmp_path):
        parties = Parties("https://relay.example", "https://relay.example:8443")
        plan = replace(WHOLE, parties=parties)
        with pytest.raises(PrivacyRefusal, match="one operator"):
            box(tmp_path, Relay(plan), **TRUSTED).answer(plan, ANSWER)
        outbox = box(tmp_path, Relay(plan), one_operator=True, **TRUSTED)
        assert outbox.answer(plan, ANSWER).state == "waiting"

    def test_another_address_than_the_relay(self, tmp_path):
        relay = Relay(WHOLE)
        relay.address = "https://collector.example:443"
        with pytest.raises(PrivacyRefusal, match="go to the relay"):
            box(tmp_path, relay, **TRUSTED).answer(WHOLE, ANSWER)

    def test_no_pinned_key(self, tmp_path):
        relay = Relay(WHOLE)
        relay.pinned_key = None
        with pytest.raises(PrivacyRefusal, match="analyzer's public key"):
            box(tmp_path, relay, **TRUSTED).answer(WHOLE, ANSWER)
        with pytest.raises(PrivacyRefusal, match="analyzer's public key"):
            Outbox(tmp_path, HttpTransport("https://relay.example"), limit=1000).answer(
                WHOLE, ANSWER
            )

    def test_a_transport_that_knows_no_relay(self):
        assert isinstance(WHOLE.parties, Parties)
        with pytest.raises(PrivacyRefusal, match="go to a relay"):
            check_parties(WHOLE.parties, object())  # type: ignore[arg-type]


def test_what_fits_stays():
    assert fit_to_weight(SyntheticVector(0b1011, 64), 3).value == 0b1011
    assert fit_to_weight(SyntheticVector(2**64 - 1, 64), None).value == 2**64 - 1


def test_a_random_excess_is_dropped():
    synthetic = SyntheticVector(0b11111, 64)
    seen: Counter[int] = Counter()
    for _ in range(2000):
        fitted = fit_to_weight(synthetic, 2).value
        assert fitted & ~0b11111 == 0
        assert fitted.bit_count() == 2
        seen[fitted] += 1
    # Ten subsets, 200 each; 7 standard deviations are 94: false with less than 1e-10.
    assert len(seen) == 10
    assert max(abs(count - 200) for count in seen.values()) < 100


class TestSealing:
    def test_several_reports_are_not_sealed_at_once(self):
        import numpy as np

        from shoal.device.arrays.randomize import Original

        rows = Original(np.zeros((2, 8), np.uint8), 64)
        batch = pack_reports(WHOLE, flip(WHOLE.q, rows)).to_bytes()
        key = CrowdKey(WHOLE.id, 0, 1, bytes(range(32)))
        with pytest.raises(ReportError, match="one report"):
            encrypt_report(WHOLE, batch, key)
