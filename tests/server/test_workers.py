"""Several processes at one address: each report once, and the others end with the first."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from shoal.cli.commands import shoal
from shoal.errors import InputError
from shoal.server import AnalyzerSettings, Settings, serve
from shoal.server.doctor.examine import examine
from shoal.server.storage.encryption import CROWD_KEY_FILE
from tests.server.crash_help import Devices, Served, all_made
from tests.server.postgres_help import needs_postgres, store_in, the_server, wait_for
from tests.server.store_help import open_reports, released, summed, tally_of
from tests.server.test_crashes import WIDE, filled_up


def test_a_folder_is_for_one_process(tmp_path: Path):
    with pytest.raises(InputError, match="2 workers need a database"):
        serve(tmp_path, Settings(workers=2))


@pytest.mark.parametrize("options", [{"workers": 2}, {"database": "postgresql:///x"}])
def test_an_analyzer_has_a_folder(options: dict[str, object]):
    with pytest.raises(InputError, match="there is no setting"):
        AnalyzerSettings.read({}, None, **options)


def workers_of(served: Served) -> list[int]:
    """Return the processes beside the first one that are ready."""
    assert served.process is not None
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text()
    return [
        int(child)
        for child in children.split()
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.slow
@needs_postgres
@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
class TestWorkers:
    def test_each_report_once_though_one_is_killed(self, tmp_path: Path):
        url = the_server().new_database()
        with Served(tmp_path / "data", WIDE, "--database", url, "--workers", "2") as served:
            served.start()
            ready = served.folder / "worker-2" / "addresses.json"
            wait_for(ready.exists)
            devices = [Devices(served, seed) for seed in range(4)]
            for one in devices:
                one.start()
            time.sleep(0.5)
            (first,) = workers_of(served)
            os.kill(first, signal.SIGKILL)
            ready.unlink()
            wait_for(ready.exists)  # it was started again
            for one in devices:
                one.finish()
            made = all_made(devices)
            made.append(filled_up(WIDE, made))
            assert served.post(made[-1]) == (202, "")
            assert served.stop() == 0
        assert [one.surprises for one in devices] == [[]] * 4
        store = store_in(url, served.folder, clock=time.time)
        assert open_reports(store, WIDE) == 0
        assert summed(released(store, WIDE)) == tally_of(WIDE, *made)
        store.close()

    def test_the_others_end_with_the_first(self, tmp_path: Path):
        url = the_server().new_database()
        with Served(tmp_path / "data", WIDE, "--database", url, "--workers", "2") as served:
            served.start()
            wait_for((served.folder / "worker-2" / "addresses.json").exists)
            (other,) = workers_of(served)
            served.kill()
            wait_for(lambda: not Path(f"/proc/{other}").exists() or is_dead(other))

    def test_no_key_of_a_worker_is_left(self, tmp_path: Path):
        """It would open later copies of the database, since nobody turns it on."""
        url = the_server().new_database()
        with Served(tmp_path / "data", WIDE, "--database", url, "--workers", "2") as served:
            served.start()
            ready = served.folder / "worker-2" / "addresses.json"
            wait_for(ready.exists)
            killed = served.folder / "worker-3"
            killed.mkdir()
            (killed / CROWD_KEY_FILE).write_text("1 00\n")
            served.kill()
            served.start()
            assert not killed.exists()
            wait_for(ready.exists)
            assert served.stop() == 0
        assert [path.parent for path in served.folder.rglob(CROWD_KEY_FILE)] == [served.folder]


def is_dead(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@needs_postgres
@pytest.mark.system
def test_the_doctor_looks_at_the_database(tmp_path: Path):
    url = the_server().new_database()
    store_in(url, tmp_path / "data").close()

    def found(database: str) -> dict[str, str]:
        findings = examine(tmp_path / "data", environment={"SHOAL_DATABASE": database})
        return {one.check: one.verdict for one in findings}

    fine = found(url)
    assert fine["database"] == fine["database connection"] == "ok"
    assert "data" not in fine
    assert found(the_server().new_database())["database"] == "fail"
    assert found("postgresql://shoal@127.0.0.1:1/x")["database"] == "fail"
    words = ["collector", "doctor", str(tmp_path / "data"), "--database", url, "--json"]
    told = CliRunner().invoke(shoal, words, env={"SHOAL_DATABASE": ""})
    by_option = {one["check"]: one["verdict"] for one in json.loads(told.stdout)["findings"]}
    assert by_option["database"] == by_option["database connection"] == "ok"
