"""Many files, one tally: what one process would have counted, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Flags, Survey, Tally, Text, plan, tally
from shoal.batch import tally_files as batch
from shoal.batch import work_on
from shoal.batch.tally_files import tally_files
from shoal.device.arrays.files import VectorWriter
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import encode
from shoal.device.randomize import flip, pack_reports
from shoal.errors import InputError, ReportError, ShoalError, TallyError
from shoal.protocol.wire import Synthetic

PLAN = plan(Survey("s", (Flags("f", tuple("abcdefghijklm")),)), q="0.25")
CHUNKS = [
    flip(PLAN.q, Original(np.zeros((n, 2), np.uint8), 13), random_bits=SimulationBits(n))
    for n in (700, 1, 300, 999)
]


PIECES = 8  # two row groups or batches go together where they are small enough; c.rows is cut in 2


def write(path: Path, *chunks: Synthetic, of=PLAN) -> Path:
    with VectorWriter(path, of, simulated=True) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight pieces of reports in three forms."""
    monkeypatch.setattr(batch, "_PIECE_ROWS", 1000)
    monkeypatch.setattr(batch, "_ALONE_ROWS", 0)
    inside = tmp_path / "reports"
    (inside / "below").mkdir(parents=True)
    for name in ("a.parquet", "below/b.arrow", "c.rows"):
        write(inside / name, *CHUNKS)
    (inside / "_SUCCESS").touch()
    (inside / ".hidden.parquet").write_bytes(b"not meant")
    return inside


WANTED = tally(PLAN, CHUNKS * 3)


class TestTheSameCounts:
    @pytest.mark.parametrize("processes", [1, 2])
    def test_a_folder_of_all_forms(self, folder: Path, processes: int):
        seen: list[tuple[int, int]] = []
        counted = tally_files(
            PLAN, [folder], processes=processes, progress=lambda *now: seen.append(now)
        )
        assert counted == WANTED
        assert seen[0] == (0, 6000)
        assert seen[-1][0] == 6000
        assert len(seen) > 6

    def test_what_else_is_counted(self, folder: Path):
        counted: Any = {"crowd": "wave", "window": 3, "joint": [(0, 12)], "vectors": True}
        ours = tally_files(PLAN, [folder], processes=1, **counted)
        assert ours == tally(PLAN, CHUNKS * 3, **counted)

    def test_batches_are_counted_once_across_files(self, tmp_path: Path):
        one = flip(PLAN, encode(PLAN, {"f": ["a"]}))
        batch = pack_reports(PLAN, one).to_bytes()
        for name in ("1.batch", "2.batch"):
            (tmp_path / name).write_bytes(batch)
        assert tally_files(PLAN, sorted(tmp_path.iterdir())).reports == 1

    def test_cohorts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(batch, "_PIECE_ROWS", 1)
        agreed = plan(Survey("t", (Text("w", 16, 2, 8),)), q="0.25")
        answers = [{"w": word} for word in ("tea", "milk", "tea")]
        words = flip(agreed, encode(agreed, answers), random_bits=SimulationBits(1))
        files = [write(tmp_path / f"{n}.arrow", words, words, of=agreed) for n in (1, 2)]
        assert tally_files(agreed, files, processes=1) == tally(agreed, [words] * 4)


class TestRefused:
    def test_files_that_cannot_be_meant(self, folder: Path, tmp_path: Path):
        assert tally_files(PLAN, []).reports == 0
        with pytest.raises(InputError, match="named twice"):
            tally_files(PLAN, [folder, folder / "a.parquet"])
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError, match=r"has no files ending in \.parquet"):
            tally_files(PLAN, [tmp_path / "empty"])
        os.truncate(folder / "c.rows", 20)
        with pytest.raises(ReportError, match="cut off in its header"):
            tally_files(PLAN, [folder])

    @pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
    def test_a_problem_in_one_piece(self, folder: Path, processes: int):
        with (folder / "c.rows").open("ab") as file:
            file.write(b"x")
        with pytest.raises(ReportError, match="cut off in the middle"):
            tally_files(PLAN, [folder], processes=processes)

    def test_simulated_and_real(self, tmp_path: Path):
        files = [write(tmp_path / "1.rows", CHUNKS[0]), tmp_path / "2.rows"]
        with VectorWriter(files[1], PLAN) as writer:
            writer.write(flip(PLAN.q, Original(np.zeros((9, 2), np.uint8), 13)))
        with pytest.raises(TallyError, match="simulated and real"):
            tally_files(PLAN, files, processes=1)

    @pytest.mark.slow
    def test_a_process_that_ends(self):
        with pytest.raises(ShoalError, match="run the same again"):
            list(work_on([(0, 1), (1, 1)], os._exit, 2))


RUN = """
import os, signal, sys
from pathlib import Path
from typing import Any
from shoal import Plan
from shoal.batch import tally_files as batch

batch._PIECE_ROWS, batch._ALONE_ROWS = 1000, 0
calls = 0

def progress(done, total):
    global calls
    calls += 1
    if calls == 1 + int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

batch.tally_files(
    Plan.read(sys.argv[1]), [sys.argv[2]], processes=2, journal=sys.argv[3], progress=progress
)
"""


class TestJournal:
    @pytest.mark.parametrize("pieces", [0, 1, 4])
    @pytest.mark.slow
    def test_it_goes_on_after_a_kill(self, folder: Path, tmp_path: Path, pieces: int):
        PLAN.write(tmp_path / "plan.json")
        journal = tmp_path / "journal"
        mark = f"{os.getpid()}-{tmp_path}"
        arguments = [str(tmp_path / "plan.json"), str(folder), str(journal), str(pieces)]
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments], env=os.environ | {"SHOAL_TEST_MARK": mark}
        )
        assert done.returncode == -signal.SIGKILL
        assert len(journal.read_bytes().splitlines()) == 1 + pieces
        self.wait_for_the_end_of(mark)
        counted: list[tuple[int, int]] = []
        how: dict[str, Any] = {"processes": 1, "progress": lambda *now: counted.append(now)}
        assert tally_files(PLAN, [folder], journal=journal, **how) == WANTED
        assert len(counted) == 1 + PIECES - pieces  # what was counted before is not counted again
        assert counted[-1] == (6000, 6000)

    @staticmethod
    def wait_for_the_end_of(mark: str) -> None:
        """No process is left over when the one that started it was killed."""
        if sys.platform != "linux":
            return
        until = time.monotonic() + 120
        while time.monotonic() < until:
            left = []
            for place in Path("/proc").glob("[0-9]*/environ"):
                try:
                    left += [place] if mark.encode() in place.read_bytes() else []
                except OSError:
                    continue
            if not left:
                return
            time.sleep(0.05)
        raise AssertionError(f"{left} still run")

    def test_a_line_that_was_cut_off_is_not_there(self, folder: Path, tmp_path: Path):
        journal = tmp_path / "journal"
        tally_files(PLAN, [folder], journal=journal, processes=1)
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:3]) + lines[3][:20])
        for _ in range(2):  # and what is written then can be read again
            assert tally_files(PLAN, [folder], journal=journal, processes=1) == WANTED
        assert len(journal.read_bytes().splitlines()) == 1 + PIECES

    def test_damage_and_other_work(self, folder: Path, tmp_path: Path):
        journal = tmp_path / "journal"
        tally_files(PLAN, [folder], journal=journal, processes=1)
        whole = journal.read_bytes()
        for line in (b"{]\n", b"7\n", b"[1]\n"):
            journal.write_bytes(whole + line)
            with pytest.raises(InputError, match="is damaged; remove it"):
                tally_files(PLAN, [folder], journal=journal, processes=1)
        journal.write_bytes(whole)
        write(folder / "a.parquet", CHUNKS[0])
        with pytest.raises(InputError, match="is of other work; remove it"):
            tally_files(PLAN, [folder], journal=journal, processes=1)

    def test_one_process_at_a_time(self, folder: Path, tmp_path: Path):
        journal = tmp_path / "journal"

        def again(done: int, total: int) -> None:
            with pytest.raises(InputError, match="another process works on"):
                tally_files(PLAN, [folder], journal=journal, processes=1)

        tally_files(PLAN, [folder], journal=journal, processes=1, progress=again)

    def test_the_command_leaves_nothing_behind(self, folder: Path, tmp_path: Path, capsys):
        from shoal.cli import run

        PLAN.write(tmp_path / "plan.json")
        output = tmp_path / "tally.json"
        before = {*tmp_path.iterdir()}
        command = ["tally", str(tmp_path / "plan.json"), str(folder), "-o", str(output)]
        assert run([*command, "--processes", "1"]) == 0
        assert {*tmp_path.iterdir()} - before == {output}
        assert Tally.from_json(json.loads(output.read_text()), PLAN) == WANTED
        assert "6,000 reports" in capsys.readouterr().out
