"""The whole thing on one machine, from made-up people to a page, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan, ShoalError, plan
from shoal.analysis.count_table import unpack
from shoal.cli import output
from shoal.cli.demo import SURVEY, show_parties
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.device.outbox import PostResult
from shoal.errors import InputError
from shoal.lab import demo as module
from shoal.lab.demo import count_again, demonstrate
from shoal.lab.parties_demo import demonstrate_relay, demonstrate_shares
from shoal.lab.populations import populate
from shoal.protocol.encryption import encrypted_batch_bytes

pytestmark = pytest.mark.slow
USERS = 150


@pytest.fixture(scope="module")
def agreed() -> Plan:
    return plan(SURVEY, crowd_size=USERS, epsilon="1", delta="1e-6")


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for everything temporary, so that what is left behind is seen."""
    monkeypatch.chdir(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(module, "_IN_MEMORY", scratch)
    return tmp_path


def left_behind(at: Path) -> list[str]:
    return sorted(path.name for path in (at / "scratch").iterdir())


class TestDemonstrate:
    @pytest.mark.slow
    def test_a_crowd_from_devices_to_estimates(
        self, agreed: Plan, at: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Settings of another collector are in the environment and are not read.

        By Hoeffding a count of ones is off by 4 sqrt(n) with probability at most 2 exp(-32).
        False alarm: 2.1e-13 for the 8 counts together.
        """
        monkeypatch.setenv("SHOAL_INGEST", "token")
        done: list[int] = []
        shown = demonstrate(agreed, seed=3, progress=done.append)
        assert sum(done) == USERS
        assert shown.early == 409
        assert shown.estimates["reports"] == USERS
        assert not shown.estimates["simulated"]
        (people,) = populate(SURVEY, USERS, simulation_generator(3))
        truth = unpack(people.rows, SURVEY.bits).sum(axis=0)
        reach = 4 * USERS**0.5 / (1 - 2 * float(agreed.q))
        for (question, label), count in zip(SURVEY.labels, truth, strict=True):
            row = shown.estimates["questions"][question][label]
            assert row["truth"] == count
            assert abs(row["count"] - count) < reach
        assert shown.page.startswith("<!doctype html>")
        assert "a demonstration" in shown.page
        assert left_behind(at) == []

    def test_the_same_people_in_the_view_of_counts(self, agreed: Plan):
        """By Hoeffding, as above, with other flips. False alarm: 2.1e-13."""
        counted = plan(SURVEY, crowd_size=USERS, epsilon="1", delta="1e-6", view="counts")
        assert float(counted.q) < float(agreed.q)
        again = count_again(counted, seed=3)
        assert (again["reports"], again["simulated"]) == (USERS, False)
        (people,) = populate(SURVEY, USERS, simulation_generator(3))
        truth = unpack(people.rows, SURVEY.bits).sum(axis=0)
        reach = 4 * USERS**0.5 / (1 - 2 * float(counted.q))
        for (question, label), count in zip(SURVEY.labels, truth, strict=True):
            row = again["questions"][question][label]
            assert row["truth"] == count
            assert abs(row["count"] - count) < reach

    def test_a_collector_that_refuses_the_plan(self, at: Path):
        small = plan(SURVEY, crowd_size=50, epsilon="1", delta="1e-6")
        with pytest.raises(InputError, match=r"did not start: plan .* minimum is 100"):
            demonstrate(small, seed=1)
        assert left_behind(at) == []

    def test_a_device_that_does_not_get_through(
        self, agreed: Plan, at: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(module, "TIMEOUT", 0.1)
        monkeypatch.setattr(
            "shoal.device.outbox.http._Flush.post_report", lambda *_: PostResult(503)
        )
        with pytest.raises(ShoalError, match="report is waiting: it was not accepted"):
            demonstrate(agreed, seed=1)
        assert left_behind(at) == []


@pytest.mark.slow
class TestParties:
    @pytest.mark.parametrize(
        ("demonstration", "early", "party"),
        [(demonstrate_relay, 409, "the analyzer"), (demonstrate_shares, 404, "the helper")],
    )
    def test_a_crowd_through_two_parties(
        self,
        at: Path,
        capsys: pytest.CaptureFixture[str],
        demonstration: Any,
        early: int,
        party: str,
    ):
        """By Hoeffding as above: false alarm at most 2.1e-13 for the 8 counts together."""
        shown = demonstration(SURVEY, 100, seed=3)
        assert shown.early == early
        assert shown.estimates["reports"] == 100
        if demonstration is demonstrate_relay:
            assert shown.plan.view == "reports"
            assert len(shown.request) == encrypted_batch_bytes(shown.plan, 1)
        reach = 4 * 100**0.5 / (1 - 2 * float(shown.plan.q))
        for options in shown.estimates["questions"].values():
            for row in options.values():
                assert abs(row["count"] - row["truth"]) < reach
        assert left_behind(at) == []
        output.show(show_parties(shown))
        said = capsys.readouterr().out
        assert party in said
        assert max(map(len, said.splitlines())) <= 80


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to read processes from")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_the_collector(number: signal.Signals, at: Path):
    command = [sys.executable, "-m", "shoal", "demo", "--users", "100000"]
    scratch = at / "scratch"
    demo = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    try:
        while not list(scratch.glob("*/admin-token")):
            assert demo.poll() is None
            time.sleep(0.05)
        servers = children(demo.pid)
        assert len(servers) == 1
        demo.send_signal(number)
        said = demo.communicate(timeout=60)[1]
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 1
    assert said.strip() == "shoal: interrupted; no file is half written."
    assert not any(Path(f"/proc/{server}").exists() for server in servers)
    assert list(scratch.iterdir()) == []
    assert not (at / "shoal-demo.html").exists()
