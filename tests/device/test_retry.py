"""The same bytes are sent until they are accepted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shoal.analysis.report_files import parse_batch
from shoal.device.outbox import PostResult, Ticket, TransportError
from shoal.device.outbox.queue import Record
from shoal.device.outbox.retry import MAX_BACKOFF, MAX_WAIT, uniform
from shoal.errors import InputError
from tests.device.outbox_help import ANSWER, PLAN, Collector, box, stored_record, waiting
from tests.faults import Clock, Crash, Faults, FaultyDisk

DAILY = replace(PLAN, window=86_400)


class TestSending:
    def test_the_first_wait_is_spread(self, tmp_path):
        outbox, _, clock = waiting(tmp_path, spread=3600.0, jitter=lambda: 0.25)
        assert outbox.tickets()[0].due == clock.now + 900
        clock.now += 899
        assert outbox.send_due() == []
        clock.now += 1
        assert [one.state for one in outbox.send_due()] == ["sent"]

    def test_what_is_due_at_once_is_sent_at_once(self, tmp_path):
        """Files have whole milliseconds."""
        outbox, _, _ = waiting(tmp_path, clock=Clock(1_800_000_000.00025))
        assert [one.state for one in outbox.send_due()] == ["sent"]

    def test_in_a_hurry(self, tmp_path):
        outbox, _, _ = waiting(tmp_path, PostResult(503, 100.0), spread=3600.0)
        assert [one.state for one in outbox.send_due(hurry=True)] == ["waiting"]
        assert outbox.send_due(hurry=True) == []  # what the collector asked for is kept

    def test_backoff_doubles_up_to_a_bound_with_full_jitter(self, tmp_path):
        offline = [TransportError("no.")] * 14
        outbox, collector, clock = waiting(tmp_path, *offline, jitter=lambda: 1 - 2**-53)
        waits = []
        for _ in range(14):
            (ticket,) = outbox.send_due()
            assert ticket.state == "waiting"
            assert ticket.reason == "no"
            assert ticket.due is not None
            waits.append(round(ticket.due - clock.now))
            clock.now = ticket.due + 0.01
        assert waits[:4] == [30, 60, 120, 240]
        assert max(waits) == waits[-1] == MAX_BACKOFF
        assert len(set(collector.posted)) == 1

    def test_jitter_is_uniform(self):
        drawn = [uniform() for _ in range(2000)]
        assert 0 <= min(drawn) < 0.01
        assert 0.99 < max(drawn) < 1
        # The mean of 2000 is off by 0.04 with probability 6e-10.
        assert abs(sum(drawn) / 2000 - 0.5) < 0.04

    @pytest.mark.parametrize("status", [429, 503, 408, 425, 507])
    def test_retry_after_is_honoured(self, tmp_path, status):
        outbox, collector, clock = waiting(tmp_path, PostResult(status, 500.0))
        (ticket,) = outbox.send_due()
        assert ticket.due == clock.now + 500 + 15
        clock.now += 514
        assert box(tmp_path, collector, clock).send_due() == []
        clock.now += 2
        assert box(tmp_path, collector, clock).send_due()[0].state == "sent"
        assert len(set(collector.posted)) == 1

    def test_nobody_is_told_to_wait_for_ever(self, tmp_path):
        outbox, _, clock = waiting(tmp_path, PostResult(503, 1e12), PostResult(503, -5.0))
        (ticket,) = outbox.send_due()
        assert ticket.due == clock.now + MAX_WAIT + 15
        assert [one.state for one in outbox.finish(1e7)] == ["sent"]

    @pytest.mark.parametrize("status", [200, 201, 204, 301, 307, 500, 502, 100, 999])
    def test_only_202_is_an_acknowledgment(self, tmp_path, status):
        outbox, collector, _ = waiting(tmp_path, PostResult(status))
        assert [one.state for one in outbox.send_due()] == ["waiting"]
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]
        assert len(set(collector.posted)) == 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 422])
    def test_refused_for_good_is_kept_aside(self, tmp_path, status):
        collector = Collector(PostResult(status))
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER, answer_key="a")
        (ticket,) = outbox.finish(1e6)
        assert ticket.state == "failed"
        assert str(status) in (ticket.reason or "")
        assert box(tmp_path, collector).tickets() == [ticket]
        assert outbox.answer(PLAN, ANSWER, answer_key="a") == ticket
        assert len(collector.posted) == 1
        outbox.retry(ticket)
        assert [one.state for one in outbox.finish(1e6)] == ["sent"]
        assert len(set(collector.posted)) == 1
        with pytest.raises(InputError, match="only a failed"):
            outbox.retry(ticket)

    @pytest.mark.parametrize("status", [409, 410])
    def test_closed_is_dropped_with_a_note(self, tmp_path, status):
        outbox, _, _ = waiting(tmp_path, PostResult(status))
        (ticket,) = outbox.send_due()
        assert ticket.reason == f"the collector no longer takes it ({status})"
        assert ticket.state == "expired"
        (file,) = tmp_path.glob("*.expired")
        assert Record.from_bytes(file.read_bytes()).batch == b""

    @pytest.mark.parametrize("status", [410, 425])
    def test_a_collector_with_a_wrong_clock_loses_no_report(self, tmp_path, status):
        """It says that the window has passed, or not begun; by the device's clock it is open."""
        outbox, collector, clock = waiting(tmp_path, *[PostResult(status)] * 3, plan=DAILY)
        (ticket,) = outbox.tickets()
        for _ in range(3):
            (tried,) = outbox.send_due()
            assert tried.state == "waiting"
            clock.now = (tried.due or clock.now) + 1
        assert clock.now < (ticket.window + 2) * 86_400
        (sent,) = outbox.send_due()
        assert sent.state == "sent"
        assert len(set(collector.posted)) == 1

    def test_refused_bytes_are_kept_until_their_window_ends(self, tmp_path):
        clock = Clock()
        outbox = box(tmp_path, Collector(PostResult(404), plans=(DAILY,)), clock)
        outbox.answer(DAILY, ANSWER, answer_key="a")
        (ticket,) = outbox.send_due()
        assert ticket.reason == "the collector refused it (404: it does not know the plan)"
        (file,) = tmp_path.glob("*.failed")
        assert Record.from_bytes(file.read_bytes()).batch
        clock.now = (ticket.window + 2) * 86_400 - 1
        outbox.send_due()
        assert file.exists()
        clock.now += 1
        outbox.send_due()
        assert not file.exists()
        (note,) = outbox.tickets()
        assert (note.state, note.reason) == ("expired", ticket.reason)
        (left,) = tmp_path.glob("*.expired")
        assert Record.from_bytes(left.read_bytes()).batch == b""
        assert outbox.answer(DAILY, ANSWER, answer_key="a") == note

    def test_without_a_window_they_are_kept_for_a_month(self, tmp_path):
        outbox, _, clock = waiting(tmp_path, PostResult(400))
        for days, state in ((0, "failed"), (29, "failed"), (2, "expired")):
            clock.now += days * 86_400
            outbox.send_due()
            assert outbox.tickets()[0].state == state

    def test_a_crash_while_they_are_deleted(self, tmp_path):
        for k in range(12):
            outbox, _, clock = waiting(tmp_path / str(k), PostResult(400))
            outbox.send_due()
            clock.now += 31 * 86_400
            disk = FaultyDisk(Faults())
            other = box(tmp_path / str(k), Collector(), clock, disk=disk)
            disk.faults.crash_at, disk.faults.labels = k, []
            try:
                other.send_due()
            except Crash:
                disk.power_cut()
            outbox.send_due()
            assert [one.state for one in outbox.tickets()] == ["expired"]
            assert not list((tmp_path / str(k)).glob("*.failed"))

    def test_a_report_goes_to_the_address_it_was_made_for(self, tmp_path):
        class Addressed(Collector):
            def __init__(self, address: str) -> None:
                super().__init__()
                self.address = address

        here, there = Addressed("https://a.example:443"), Addressed("https://b.example:443")
        box(tmp_path, here).answer(PLAN, ANSWER)
        assert box(tmp_path, there).send_due() == []
        assert there.posted == []
        assert [one.state for one in box(tmp_path, here).send_due()] == ["sent"]

        box(tmp_path, here).answer(replace(PLAN, max_reports_per_person=2), ANSWER)
        clock = Clock()
        box(tmp_path, there, clock).finish(1e6)  # ends at once: nothing here is its own
        assert clock.now == Clock().now

    @pytest.mark.parametrize("answer", [TransportError("offline."), PostResult(410)])
    def test_a_window_that_passed(self, tmp_path, answer):
        """Whether the collector was away, or said that the plan was closed."""
        clock = Clock(1_800_000_000 // 86_400 * 86_400 + 86_399.0)
        outbox, _, _ = waiting(tmp_path, *[answer] * 99, plan=DAILY, clock=clock)
        (ticket,) = outbox.tickets()
        assert parse_batch(DAILY, stored_record(tmp_path).batch).windows.tolist() == [ticket.window]
        clock.now += 86_400  # the next window: still taken
        assert outbox.send_due()[0].state == "waiting"
        clock.now += 2
        assert outbox.send_due()[0].state == "expired"
        assert [one.reason for one in outbox.tickets()] == ["its window has passed"]

    def test_a_clock_that_was_set_back(self, tmp_path):
        outbox, _, clock = waiting(tmp_path)
        clock.now -= 10 * 365 * 86_400
        assert outbox.send_due()[0].state == "sent"

    @pytest.mark.parametrize("field", ["batch", "version", "reason"])
    def test_damaged_records_are_kept_aside(self, tmp_path, field):
        outbox, collector, _ = waiting(tmp_path)
        (file,) = tmp_path.glob("*.waiting")
        content = json.loads(file.read_bytes())
        changed = {"batch": content["batch"][:-8] + "AAAAAAA=", "version": 3, "reason": 5}
        content[field] = changed[field]
        file.write_text(json.dumps(content))
        assert outbox.send_due() == []
        (ticket,) = outbox.tickets()
        assert (ticket.state, ticket.reason) == ("failed", "a stored report is damaged")
        with pytest.raises(InputError, match="damaged"):
            outbox.retry(ticket)
        assert collector.posted == []

    @pytest.mark.parametrize("state", ["waiting", "failed", "sent"])
    def test_a_deeply_nested_record_does_not_stop_the_others(self, tmp_path, state):
        outbox, collector, _ = waiting(tmp_path)
        name = f"{'0' * 64}.0.{'0' * 32}"  # it comes first
        (tmp_path / f"{name}.{state}").write_bytes(b"[" * 100_000)
        assert [ticket.state for ticket in outbox.send_due()] == ["sent"]
        damaged = outbox.tickets()[0]
        settled = "failed" if state == "waiting" else state
        assert (damaged.state, damaged.reason) == (settled, "a stored report is damaged")
        assert len(collector.posted) == 1

    def test_files_of_others_are_left_alone(self, tmp_path):
        outbox = box(tmp_path, Collector())
        for name in ("a.b.c.waiting", "part", f"{'0' * 64}.x.{'0' * 32}.waiting"):
            (tmp_path / name).write_text("not ours")
        assert outbox.send_due() == outbox.tickets() == []
        with pytest.raises(InputError, match="no ticket"):
            outbox.retry(Ticket("a.b.c", PLAN.id, 0, "failed"))

    def test_one_sends_at_a_time(self, tmp_path):
        inner: list[list[Ticket]] = []

        class Slow(Collector):
            def post_report(self, plan_id: str, content: bytes) -> PostResult:
                inner.append(box(tmp_path, self).send_due())
                box(tmp_path, self).tickets()  # answering goes on meanwhile
                return super().post_report(plan_id, content)

        collector = Slow()
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER)
        assert [one.state for one in outbox.send_due()] == ["sent"]
        assert inner == [[]]
        assert len(collector.posted) == 1
