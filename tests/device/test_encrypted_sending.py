"""Reports for two parties: made once, encrypted for the keys in use, counted once.

The same tests for a relay and an analyzer, and for a leader and a helper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from shoal import Outbox, PrivacyRefusal
from shoal.device.arrays.randomize import Original
from shoal.device.encode import SyntheticVector
from shoal.device.encryption import check_parties, encrypt_report
from shoal.device.outbox import HttpTransport, PostResult, TransportError
from shoal.device.outbox.retry import KEY_CHANGED
from shoal.device.randomize import fit_to_weight, flip, pack_reports
from shoal.errors import ReportError
from shoal.protocol.encryption import CrowdKey
from shoal.protocol.plan import Aggregators, Parties
from tests.device.outbox_help import ANSWER
from tests.device.parties_help import WEIGHT, WHOLE, Pair, Relay, TwoParties
from tests.faults import Crash, Faults, FaultyDisk

LATER = 7 * 3600


@pytest.fixture(params=[Relay, Pair], ids=["relay and analyzer", "leader and helper"])
def make(request: pytest.FixtureRequest) -> Callable[..., TwoParties]:
    return request.param  # type: ignore[no-any-return]


def states(outbox: Outbox) -> list[str]:
    return [one.state for one in outbox.send_due()]


class TestSending:
    def test_what_arrives_is_what_was_stored_and_nothing_of_it_stays(self, tmp_path, make):
        parties = make()
        outbox = parties.box(tmp_path)
        outbox.answer(parties.plan, ANSWER)
        report_id, bits = parties.stored(tmp_path)
        assert bits.bit_count() <= (parties.plan.max_weight or 64)
        assert states(outbox) == ["sent"]
        assert parties.accepted == {report_id: bits}
        assert len(parties.asked) == parties.fetches
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert parties.posted[0][10:] not in kept
        assert report_id not in kept

    def test_the_same_bytes_until_accepted(self, tmp_path, make):
        parties = make(TransportError("no."), PostResult(503), PostResult(200))
        parties.box(tmp_path).answer(parties.plan, ANSWER)
        for _ in range(4):  # each time another process
            parties.box(tmp_path).send_due()
            parties.clock.now += LATER
        assert len(parties.posted) == 4
        assert len(set(parties.posted)) == len(parties.accepted) == 1
        assert len(parties.asked) == parties.fetches

    def test_a_key_that_was_replaced(self, tmp_path, make):
        parties = make(TransportError("no."))
        outbox = parties.box(tmp_path)
        outbox.answer(parties.plan, ANSWER)
        stored = parties.stored(tmp_path)
        outbox.send_due()
        parties.replace_key()
        parties.clock.now += LATER
        assert states(outbox) == ["sent"]
        first, again, anew = parties.posted
        assert first == again != anew
        assert parties.report_id(first) == parties.report_id(anew)
        assert parties.accepted == dict([stored])

    def test_a_report_is_encrypted_for_three_crowds_at_most(self, tmp_path, make):
        """A party that says again and again that the key has changed gets no more of them."""
        parties = make(*[PostResult(KEY_CHANGED)] * 100)
        outbox = parties.box(tmp_path)
        outbox.answer(parties.plan, ANSWER)
        for _ in range(10):
            parties.replace_key()
            parties.box(tmp_path).send_due()
            parties.clock.now += LATER
        assert len(set(parties.posted)) == len(parties.asked) // parties.fetches == 3
        (ticket,) = outbox.tickets()
        assert ticket.state == "expired"
        assert ticket.reason == "it was encrypted for 3 keys in turn, each too old when it arrived"
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert not any(body[10:] in kept for body in parties.posted)

    def test_an_accepted_report_is_not_encrypted_again(self, tmp_path, make):
        parties = make()
        outbox = parties.box(tmp_path)
        outbox.answer(parties.plan, ANSWER)
        parties.faults = Faults(parties.fetches + 1)  # the answer to the first post is lost
        with pytest.raises(Crash):
            outbox.send_due()
        parties.faults = Faults()
        parties.replace_key()
        parties.clock.now += LATER
        assert states(parties.box(tmp_path)) == ["sent"]
        assert len(parties.accepted) == len(set(parties.posted)) == 1

    @pytest.mark.parametrize("keys", [b"", b"<html>", b"{}", TransportError("no network.")])
    def test_without_keys_nothing_is_sent(self, tmp_path, make, monkeypatch, keys):
        parties = make()

        def fetch(*_: object) -> bytes:
            if isinstance(keys, Exception):
                raise keys
            return bytes(keys)

        name = "fetch_crowd_key" if isinstance(parties, Relay) else "fetch_hpke_keys"
        outbox = parties.box(tmp_path)
        outbox.answer(parties.plan, ANSWER)
        with monkeypatch.context() as patch:
            patch.setattr(parties, name, fetch)
            (ticket,) = outbox.send_due()
        assert ticket.state == "waiting"
        assert "cannot be used" in str(ticket.reason) or "network" in str(ticket.reason)
        assert not parties.posted
        parties.clock.now += LATER
        assert states(outbox) == ["sent"]

    def test_a_key_of_another_window(self, tmp_path, monkeypatch):
        relay = Relay()
        good = relay.fetch_crowd_key
        monkeypatch.setattr(relay, "fetch_crowd_key", lambda one, at: good(one, at + 1))
        relay.box(tmp_path).answer(WHOLE, ANSWER)
        assert states(relay.box(tmp_path)) == ["waiting"]
        assert not relay.posted

    @pytest.mark.slow
    def test_a_crash_at_every_step(self, tmp_path, make):
        """One version arrives once, also if the key is replaced in between."""
        at = 0
        while True:
            folder, parties = tmp_path / str(at), make()
            parties.faults = faults = Faults(at)
            try:
                outbox = parties.box(folder, disk=FaultyDisk(faults))
                outbox.answer(parties.plan, ANSWER)
                outbox.send_due()
                break
            except Crash:
                pass
            parties.faults = Faults()
            parties.replace_key()
            parties.clock.now += LATER
            outbox = parties.box(folder)
            outbox.answer(parties.plan, ANSWER)
            for _ in range(2):
                outbox.send_due()
                parties.clock.now += LATER
            assert [one.state for one in outbox.tickets()] == ["sent"]
            assert len(parties.accepted) == 1
            at += 1
        assert at > 20


class TestRefusals:
    @pytest.mark.parametrize("said", [False, True])
    def test_one_operator(self, tmp_path, make, said: bool):
        host = make().address.removesuffix(":443")
        two = host, f"{host}:8443"
        parties = Parties(*two) if make is Relay else Aggregators(*two, WEIGHT)
        plan = replace(make().plan, parties=parties)
        outbox = make(plan=plan).box(tmp_path, one_operator=said)
        if said:
            assert outbox.answer(plan, ANSWER).state == "waiting"
        else:
            with pytest.raises(PrivacyRefusal, match="one operator"):
                outbox.answer(plan, ANSWER)

    def test_another_address(self, tmp_path, make):
        parties = make()
        parties.address = "https://other.example:443"
        first = "relay" if make is Relay else "leader"
        with pytest.raises(PrivacyRefusal, match=f"go to the {first} https://{first}.example, not"):
            parties.box(tmp_path).answer(parties.plan, ANSWER)

    def test_no_pinned_key(self, tmp_path):
        relay = Relay()
        relay.pinned_key = None
        transport = HttpTransport("https://relay.example")
        for outbox in (relay.box(tmp_path), Outbox(tmp_path, transport, limit=1000)):
            with pytest.raises(PrivacyRefusal, match="analyzer's public key"):
                outbox.answer(WHOLE, ANSWER)

    def test_a_transport_that_knows_no_party(self, make):
        with pytest.raises(PrivacyRefusal, match="does not lead to one"):
            check_parties(make().plan.parties, object())  # type: ignore[arg-type]

    def test_several_reports_are_not_encrypted_at_once(self):
        rows = Original(np.zeros((2, 8), np.uint8), 64)
        batch = pack_reports(WHOLE, flip(WHOLE.q, rows)).to_bytes()
        with pytest.raises(ReportError, match="one report"):
            encrypt_report(WHOLE, batch, CrowdKey(WHOLE.id, 0, 1, bytes(range(32))))


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
