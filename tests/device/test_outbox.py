"""The outbox: an answer is taken once, charged first, and stored before anything travels."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import PrivacyRefusal
from shoal.analysis.report_files import parse_batch
from shoal.device.ledger import Ledger
from shoal.device.outbox import Outbox
from shoal.device.outbox.queue import Record
from shoal.errors import AnswerError, InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.support.disk import Disk
from tests.device.outbox_help import ANSWER, PLAN, Charges, Collector, box
from tests.faults import Clock


class TestAnswering:
    def test_stored_before_it_returns(self, tmp_path):
        ticket = box(tmp_path, Collector()).answer(PLAN, ANSWER)
        (file,) = tmp_path.glob("*.waiting")
        record = Record.from_bytes(file.read_bytes())
        assert len(parse_batch(PLAN, record.batch)) == 1
        assert file.stat().st_mode & 0o077 == tmp_path.joinpath("lock").stat().st_mode & 0o077 == 0
        assert file.name == f"{ticket.name}.waiting"

    def test_an_outbox_is_closed_to_other_users(self, tmp_path):
        for name in ("new", "old", "shared"):
            folder = tmp_path / name
            if name != "new":
                folder.mkdir()
                (folder / "plans").mkdir()
                for loose in (folder, folder / "plans"):
                    loose.chmod(0o755)
            if name == "shared":  # somebody uses the folder for other things
                (folder / "letters").mkdir()
            box(folder, Collector()).answer(PLAN, ANSWER)
            box(folder, Collector())
            wanted = 0o755 if name == "shared" else 0o700
            assert folder.stat().st_mode & 0o777 == wanted
            assert (folder / "plans").stat().st_mode & 0o777 == 0o700
            files = [path for path in folder.rglob("*") if path.is_file()]
            assert files
            assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)

    def test_the_same_key_is_the_same_report(self, tmp_path):
        collector = Collector()
        first = box(tmp_path, collector).answer(PLAN, ANSWER, answer_key="a")
        again = box(tmp_path, collector).answer(PLAN, {"features": []}, answer_key="a")
        assert again == first
        box(tmp_path, collector).send_due()
        done = box(tmp_path, collector).answer(PLAN, ANSWER, answer_key="a")
        assert (done.name, done.state) == (first.name, "sent")
        assert box(tmp_path, collector).send_due() == []
        assert len(collector.posted) == 1

    def test_another_key_is_refused_where_one_report_is_agreed(self, tmp_path):
        outbox = box(tmp_path, Collector())
        outbox.answer(PLAN, ANSWER, answer_key="a")
        with pytest.raises(PrivacyRefusal, match=r"allows 1 report.*; no report was made\.$"):
            outbox.answer(PLAN, ANSWER, answer_key="b")
        outbox.send_due()
        for key in (None, "b"):
            with pytest.raises(PrivacyRefusal):
                outbox.answer(PLAN, ANSWER, answer_key=key)

    def test_a_second_day_names_what_it_takes(self, tmp_path):
        daily, clock = replace(PLAN, window=86_400), Clock()
        outbox = box(tmp_path, Collector(), clock=clock)
        outbox.answer(daily, ANSWER, answer_key="monday")
        clock.now += 86_400
        with pytest.raises(PrivacyRefusal, match=r"--ledger FILE.*--memory FILE\)\.$"):
            outbox.answer(daily, ANSWER, answer_key="tuesday")

    def test_without_a_key_a_plan_has_one_answer(self, tmp_path):
        clock = Clock()
        outbox = box(tmp_path, Collector(), clock)
        plan = replace(PLAN, window=86_400)
        first = outbox.answer(plan, ANSWER)
        clock.now += 10 * 86_400
        assert outbox.answer(plan, ANSWER) == first

    def test_nothing_of_the_answer_is_kept_once_it_is_sent(self, tmp_path):
        collector = Collector()
        outbox = box(tmp_path, collector)
        outbox.answer(PLAN, ANSWER, answer_key="visit 17")
        outbox.send_due()
        report = parse_batch(PLAN, collector.posted[0])
        for file in tmp_path.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                for secret in (report.ids.tobytes(), report.rows.tobytes(), b"visit 17"):
                    assert secret not in content
                    assert secret.hex().encode() not in content
        assert not (tmp_path / "part").exists()

    @pytest.mark.parametrize("answers", [[ANSWER], "f1", {"features": ["no"]}, {}])
    def test_wrong_answers_leave_nothing(self, tmp_path, answers):
        charges = Charges()
        with pytest.raises(AnswerError):
            box(tmp_path, Collector(), ledger=charges).answer(PLAN, answers)
        assert charges.made == []
        assert not list(tmp_path.glob("*.*"))

    @pytest.mark.parametrize("key", ["", " ", "a\n", "x" * 1001, 5])
    def test_wrong_keys(self, tmp_path, key):
        with pytest.raises(InputError, match="answer_key"):
            box(tmp_path, Collector()).answer(PLAN, ANSWER, answer_key=key)

    def test_counts_above_the_limit(self, tmp_path):
        promise = Promise("proven", "100", delta="1e-6")
        plan = replace(PLAN, view="counts", promise=promise, crowd_size=100)
        outbox = box(tmp_path, Collector(plans=(plan,)), limit=30)
        for ask in (lambda: outbox.plan(plan.id), lambda: outbox.answer(plan, ANSWER)):
            with pytest.raises(PrivacyRefusal, match="an observer of counts"):
                ask()
        assert outbox.tickets() == []

    def test_above_the_limit_with_several_reports(self, tmp_path):
        """A plan may take many reports of one person; the device's limit is on all of them."""
        plan = replace(PLAN, max_reports_per_person=1000)
        outbox = box(tmp_path, Collector(plans=(plan,)), limit=70)
        for key in ("a", "b", "a"):
            outbox.answer(plan, ANSWER, answer_key=key)
        with pytest.raises(PrivacyRefusal, match=r"3 reports of this plan reveal"):
            outbox.answer(plan, ANSWER, answer_key="c")
        outbox.finish(1e6)
        with pytest.raises(PrivacyRefusal, match=r"3 reports"):
            outbox.answer(plan, ANSWER, answer_key="c")
        charges = Charges()
        with pytest.raises(PrivacyRefusal, match=r"3 reports"):
            box(tmp_path, Collector(), limit=70, ledger=charges).answer(
                plan, ANSWER, answer_key="c"
            )
        assert charges.made == []
        box(tmp_path, Collector(), ledger=charges).answer(plan, ANSWER, answer_key="c")
        assert len(charges.made) == 1

    def test_above_the_limit_window_after_window(self, tmp_path):
        """A ledger without a limit of its own does not take the device's away."""
        plan, clock = replace(PLAN, window=86_400), Clock()
        ledger = Ledger(tmp_path / "ledger.json")
        outbox = box(tmp_path / "box", Collector(), limit=70, ledger=ledger, clock=clock)
        for _ in range(2):
            outbox.answer(plan, ANSWER)
            clock.now += 86_400
        with pytest.raises(PrivacyRefusal, match=r"3 reports"):
            outbox.answer(plan, ANSWER)
        assert ledger.read().epsilon < 70

    def test_a_link_in_our_place_is_not_followed(self, tmp_path):
        outbox = box(tmp_path / "box", Collector())
        (tmp_path / "precious").write_text("precious")
        (tmp_path / "box" / "part").symlink_to(tmp_path / "precious")
        with pytest.raises(InputError, match="cannot be used"):
            outbox.answer(PLAN, ANSWER)
        assert (tmp_path / "precious").read_text() == "precious"

    def test_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="cannot be used"):
            Outbox(tmp_path / "file", Collector())

    def test_a_full_disk(self, tmp_path):
        class Full(Disk):
            def write(self, path: Path, content: bytes) -> None:
                raise OSError(28, "No space left on device")

        with pytest.raises(InputError, match="No space left"):
            box(tmp_path, Collector(), disk=Full()).answer(PLAN, ANSWER)
        assert box(tmp_path, Collector()).answer(PLAN, ANSWER).state == "waiting"

    def test_the_spread_is_bounded(self, tmp_path):
        for spread in (-1.0, 1e9, float("nan")):
            with pytest.raises(InputError, match="spread"):
                box(tmp_path, Collector(), spread=spread)


class TestCollaborators:
    def test_the_ledger_is_charged_first(self, tmp_path, monkeypatch):
        charges = Charges(0)
        drawn: list[object] = []
        monkeypatch.setattr("shoal.device.outbox.flip", lambda *a: drawn.append(a))
        with pytest.raises(PrivacyRefusal, match="full"):
            box(tmp_path, Collector(), ledger=charges).answer(PLAN, ANSWER)
        assert drawn == []
        assert not list(tmp_path.glob("*.waiting"))

    def test_charged_once_for_one_key(self, tmp_path):
        charges = Charges()
        outbox = box(tmp_path, Collector(), ledger=charges)
        for _ in range(3):
            outbox.answer(PLAN, ANSWER, answer_key="a")
        assert charges.made == [None]

    def test_with_a_ledger_each_window_has_an_answer(self, tmp_path):
        clock, charges = Clock(), Charges()
        plan = replace(PLAN, window=86_400)
        outbox = box(tmp_path, Collector(plans=(plan,)), clock, ledger=charges)
        names = {outbox.answer(plan, ANSWER).name for _ in range(2)}
        clock.now += 86_400
        names |= {outbox.answer(plan, ANSWER).name for _ in range(2)}
        assert len(names) == len(charges.made) == 2

    def test_a_plan_with_memory_needs_one(self, tmp_path):
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
        plan = replace(PLAN, q=memory.q, memory=memory)
        with pytest.raises(PrivacyRefusal, match="no memory"):
            box(tmp_path, Collector(), memory=None).answer(plan, ANSWER)


def test_threads_that_share_an_outbox(tmp_path):
    plan = replace(PLAN, max_reports_per_person=100)
    collector = Collector(plans=(plan,))
    outbox = box(tmp_path, collector)

    def work() -> None:
        for key in range(10):
            outbox.answer(plan, ANSWER, answer_key=str(key))
            outbox.send_due()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outbox.finish(1e6)
    assert len(set(collector.posted)) == len(collector.accepted) == 10
