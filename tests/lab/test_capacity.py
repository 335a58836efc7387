"""What a machine can take is measured, and what many devices need follows from it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from shoal import Flags, Plan, Survey, Text
from shoal.cli import run
from shoal.errors import InputError
from shoal.lab import capacity as package
from shoal.lab import capacity_probes as probes
from shoal.lab.capacity import Capacity, _plans, measure_capacity
from shoal.lab.capacity_probes import Work
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.server.storage.store import Store
from tests.server.postgres_help import needs_postgres, the_server

COSTS = {"sync": 0.0001, "http": 0.0008, "store": 0.0003, "relay": 0.0004, "opened": 0.0002}


def made_up(**more: float) -> Capacity:
    """Ten thousand units of each work, of which each leaves 100 bytes."""
    work = {
        name: Work(f"work {name}", "report", 10_000, 20.0, 10_000 * cost, 100.0)
        for name, cost in (COSTS | more).items()
    }
    return Capacity(40, 3.0, 2, 500, 900, 70, work)


class TestNeeds:
    def test_by_hand(self):
        """A million devices a day are 11.57 a second, and 34.72 in the busiest time."""
        collector, relay, analyzer, postgres = made_up().needs_of(1_000_000)
        peak = Fraction(3_000_000, 86_400)
        assert collector.cores == pytest.approx(float(peak * Fraction(8, 10_000)))
        assert relay.cores == pytest.approx(float(peak * Fraction(8 - 3 + 4, 10_000)))
        assert analyzer.cores == pytest.approx(float(Fraction(1_000_000 * 2, 86_400 * 10_000)))
        for party in (collector, relay, analyzer):
            assert party.disk_bytes_a_day == pytest.approx(100_000_000)
        assert collector.network_bits_a_second == pytest.approx(float(peak * 8 * 500))
        forwarded = Fraction(1_000_000 * 8 * 70, 86_400)
        assert analyzer.network_bits_a_second == pytest.approx(float(forwarded))
        assert relay.network_bits_a_second == pytest.approx(float(peak * 8 * 900 + forwarded))
        assert (postgres.cores, postgres.disk_bytes_a_day) == (None, None)
        *_, postgres = made_up(database=0.0006).needs_of(1_000_000)
        assert postgres.cores == pytest.approx(float(peak * Fraction(8 - 3 + 6, 10_000)))


@pytest.mark.slow
class TestMeasuring:
    def test_everything_once(self, tmp_path: Path):
        steps: list[tuple[int, int]] = []
        found = measure_capacity(
            folder=tmp_path, seconds=1, database=Store, step=lambda *now: steps.append(now)
        )
        assert [*found.work] == [
            *("sync", "http", "store", "relay", "hpke", "opened", "tally", "database")
        ]
        assert steps == [(done, 8) for done in range(9)]
        assert all(work.count > 0 and work.seconds > 0 for work in found.work.values())
        # A digest has 8 bytes, and a sealed report its 69; both are encrypted and have spare room.
        assert 8 < found.work["store"].disk_bytes_each < 80
        assert all(found.work[name].disk_bytes_each > 69 for name in ("relay", "opened"))
        # A sealed message of 21 bytes has 48 more; a report over HTTP is at least its own bytes.
        assert found.message_bytes == 16 + 5 + 48
        assert found.exchange_bytes > 16 + 4 + 5
        assert found.encrypted_exchange_bytes > found.exchange_bytes
        assert all(need.cores is not None for need in found.needs())
        assert [*tmp_path.iterdir()] == []

    def test_reports_of_other_shapes(self, tmp_path: Path):
        """Words in cohorts, of a number of bits that fills no byte; and a plan with parties."""
        words = Survey("w", (Text("word", bits=21, hashes=2, cohorts=4),))
        flags = Survey("f", (Flags("f", tuple("abcdefghi")),))
        parties = Parties("https://relay.example", "https://analyzer.example")
        texts = Plan(words, FlipProbability(1, 2), Promise("local", "99"))
        relayed = Plan(flags, texts.q, texts.promise, 1000, parties=parties)
        for number, plan in enumerate((texts, relayed)):
            plain, sealed = _plans(plan)
            folder = tmp_path / str(number)
            for name in ("store", "relay", "opened"):
                (folder / name).mkdir(parents=True)
            assert probes.store(plain, folder / "store", 0).count == 64
            assert probes.relay_store(sealed, folder / "relay", 0).count == 64
            small = Plan(sealed.survey, sealed.q, sealed.promise, 20, parties=sealed.parties)
            assert probes.analyzer(small, folder / "opened").count == 20
            assert probes.tally(plain, 0).count > 0

    def test_refused(self):
        wrong: list[dict[str, Any]] = [{"seconds": 0.5}, {"peak": 0}, {"folder": Path("/nowhere")}]
        messages = ("1 to 3600 seconds, got 0.5", "1 to 1000, got 0", "is no folder")
        for given, message in zip(wrong, messages, strict=True):
            with pytest.raises(InputError, match=message):
                measure_capacity(**given)


class TestCommand:
    @pytest.fixture(autouse=True)
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def measure(plan: Plan | None, **words: Any) -> Capacity:
            asked.append({"plan": plan} | words)
            return made_up(hpke=2e-5, tally=1e-9)

        monkeypatch.setattr(package, "measure_capacity", measure)
        monkeypatch.setenv("COLUMNS", "80")
        return asked

    def test_the_table_fits(self, capsys: pytest.CaptureFixture[str]):
        assert run(["capacity"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert [line.split()[-2:] for line in lines if "PostgreSQL  " in line] == [
            ["not", "measured"]
        ] * 3
        (first,) = [
            line.split() for line in lines if line.split()[:2] == ["collector", "1,000,000"]
        ]
        assert first == ["collector", "1,000,000", "0.028", "100", "MB", "139", "kbit/s"]

    def test_json_is_one_document(self, tmp_path: Path, capsys, measured: list[dict[str, Any]]):
        words = ["--json", "--data", str(tmp_path), "--peak", "5", "--seconds", "9"]
        assert run(["capacity", *words]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["needs"][0]["cores"] == pytest.approx(0.02777, abs=1e-4)
        assert document["formulas"]["collector"].startswith("cores = ")
        assert measured[0]["folder"] == tmp_path
        assert (measured[0]["peak"], measured[0]["seconds"]) == (5, 9)


@needs_postgres
@pytest.mark.slow
def test_a_database_is_measured_beside_what_it_holds(tmp_path: Path):
    from shoal.server.storage.postgres import trial_schema
    from shoal.server.storage.store import Store

    url = the_server().new_database()
    name = url.rpartition("/")[2]
    the_server().execute("CREATE TABLE facts (mine TEXT)", name)
    with trial_schema(url) as place:
        found = probes.store(_plans(None)[0], tmp_path, 0, lambda at: Store(at, url=place))
    assert found.count == 64
    assert found.disk_bytes_each > 8
    query = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT LIKE 'pg_%'"
    others = [row for row in the_server().execute(query, name) if row[0] != "information_schema"]
    assert others == [("public", "facts")]
