"""Many files of answers: each answer becomes one report, whatever is killed in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from shoal import Flags, Plan, PrivacyRefusal, Survey, plan
from shoal.batch import randomize_files as batch
from shoal.batch.randomize_files import JOURNAL, randomize_files
from shoal.batch.tally_files import tally_files
from shoal.errors import AnswerError, InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise

SURVEY = Survey("s", (Flags("f", tuple("abcdefgh")),))
PLAN = plan(SURVEY, q="0.25")
NEARLY_TRUE = plan(SURVEY, q="0.001")  # counts are in order with probability above 1 - 1e-20
FILES, ROWS = 3, 40
SLOW = pytest.mark.slow


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    folder = tmp_path / "answers"
    folder.mkdir()
    for number in range(FILES - 1):
        (folder / f"{number}.csv").write_text("f\n" + "a;c\n" * ROWS)
    table = pa.table({"f": ["b"] * ROWS, "more": [1] * ROWS})
    with pa.ipc.new_file(str(folder / "2.arrow"), table.schema) as file:
        file.write(table)
    return folder


@pytest.fixture
def folder(answers: Path) -> Path:
    return answers.parent / "reports"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


class TestAFolder:
    @pytest.mark.parametrize(
        ("processes", "form"),
        [(1, "parquet"), (1, "arrow"), (1, "rows"), pytest.param(2, "parquet", marks=SLOW)],
    )
    def test_each_answer_becomes_a_report(
        self, form: str, processes: int, answers: Path, folder: Path, monkeypatch
    ):
        monkeypatch.setattr(batch, "_ALONE_BYTES", 0)
        seen: list[tuple[int, int]] = []
        result = randomize_files(
            NEARLY_TRUE, [answers], folder, form=form, processes=processes,
            progress=lambda *now: seen.append(now),
        )  # fmt: skip
        assert result == (folder, FILES, FILES * ROWS, FILES)
        assert seen[-1][0] == seen[-1][1]
        assert len(contents(folder)) == FILES
        counted = tally_files(NEARLY_TRUE, [folder])
        assert counted.reports == FILES * ROWS
        assert not counted.simulated
        # Two thirds said a and c, one third b; the others nobody.
        assert min(counted.by_bit[[0, 2]]) > counted.by_bit[1] > max(counted.by_bit[3:])


class TestRefused:
    def test_answers_that_changed_after_they_were_published(self, answers: Path, folder: Path):
        randomize_files(PLAN, [answers], folder)
        before = contents(folder)
        assert randomize_files(PLAN, [answers], folder).new_files == 0
        assert contents(folder) == before
        (answers / "0.csv").write_text("f\n" + "b\n" * ROWS)
        with pytest.raises(InputError, match="changed since its reports were published"):
            randomize_files(PLAN, [answers], folder)
        assert contents(folder) == before

    def test_an_answer_that_is_not_allowed_can_be_corrected(self, answers: Path, folder: Path):
        (answers / "1.csv").write_text("f\nnonsense\n")
        with pytest.raises(AnswerError, match=r"row 1, question .f.: the answer is not one of"):
            randomize_files(PLAN, [answers], folder)
        before = contents(folder)
        assert [*before] == ["part-00000.parquet"]
        (answers / "1.csv").write_text("f\na\n")
        assert randomize_files(PLAN, [answers], folder).reports == 2 * ROWS + 1
        assert contents(folder).items() >= before.items()

    def test_other_work_in_the_same_folder(self, answers: Path, folder: Path):
        randomize_files(PLAN, [answers], folder)
        for agreed, path, form in (
            (plan(SURVEY, q="0.26"), answers, "parquet"),
            (PLAN, answers, "rows"),
            (PLAN, answers / "0.csv", "parquet"),
        ):
            with pytest.raises(InputError, match="no answer may be reported in two versions"):
                randomize_files(agreed, [path], folder, form=form)

    def test_a_folder_with_other_files(self, answers: Path):
        (answers.parent / "reports").mkdir()
        (answers.parent / "reports" / "note.txt").touch()
        with pytest.raises(InputError, match="has other files in it"):
            randomize_files(PLAN, [answers], answers.parent / "reports")
        with pytest.raises(InputError, match=r"are in .* themselves"):
            randomize_files(PLAN, [answers], answers)

    def test_whole_reports_under_view_counts(self, answers: Path, folder: Path):
        promise = Promise("proven", "3", delta="1e-6")
        seen = Plan(SURVEY, FlipProbability(1, 2), promise, crowd_size=1000, view="counts")
        with pytest.raises(PrivacyRefusal, match="whole_reports"):
            randomize_files(seen, [answers], folder)
        assert not folder.exists()
        assert randomize_files(seen, [answers], folder, whole_reports=True).files == FILES


RUN = """
import os, signal, sys
from shoal import Plan
from shoal.batch import Journal
from shoal.batch import randomize_files as batch

batch._ALONE_BYTES = 0
step, left = sys.argv[4], int(sys.argv[5])

def killing(owner, name, before):
    real = getattr(owner, name)

    def wrapped(*args):
        global left
        left -= 1
        if before and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*args)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, wrapped)

if step.endswith("journal"):
    killing(Journal, "record", step == "before the journal")
else:
    killing(batch, "_publish", step == "before publishing")
batch.randomize_files(Plan.read(sys.argv[1]), [sys.argv[2]], sys.argv[3], processes=2)
"""
STEPS = ["before the journal", "after the journal", "before publishing", "after publishing"]


@pytest.mark.real_random
@pytest.mark.slow
class TestKills:
    """Every process draws its own bits, so a second version of a report would differ.

    False alarm: 2^-250, none.
    """

    def killed(self, answers: Path, folder: Path, step: str, piece: int) -> None:
        PLAN.write(answers.parent / "plan.json")
        arguments = [str(answers.parent / "plan.json"), str(answers), str(folder)]
        done = subprocess.run([sys.executable, "-c", RUN, *arguments, step, str(piece)])
        assert done.returncode == -signal.SIGKILL

    @pytest.mark.parametrize("step", STEPS)
    def test_no_answer_is_published_twice(self, step: str, answers: Path, folder: Path):
        published: dict[str, bytes] = {}
        for kill in (2, 1):  # killed again while it goes on; what was done is published first
            piece = kill if step.endswith("journal") else kill + len(published)
            self.killed(answers, folder, step, piece)
            now = contents(folder)
            assert now.items() >= published.items()
            published = now
        assert randomize_files(PLAN, [answers], folder).files == FILES
        assert contents(folder).items() >= published.items()
        assert tally_files(PLAN, [folder]).reports == FILES * ROWS
        left = {path.name for path in folder.iterdir()} - contents(folder).keys()
        assert left == {JOURNAL, JOURNAL + ".lock"}

    def test_reports_that_were_taken_away_are_not_made_again(self, answers: Path, folder: Path):
        self.killed(answers, folder, "after publishing", 1)
        (taken,) = folder.glob("part-*")
        taken.rename(answers.parent / "taken.parquet")
        randomize_files(PLAN, [answers], folder)
        assert len(contents(folder)) == FILES - 1
        assert taken.name not in contents(folder)

    def test_every_process_draws_its_own_bits(self, answers: Path):
        """The same answers twice, in two processes: the reports differ."""
        made: list[bytes] = []
        for name in ("one", "two"):
            folder = answers.parent / name
            randomize_files(PLAN, [answers / "0.csv", answers / "1.csv"], folder, processes=2)
            made += contents(folder).values()
        assert len(set(made)) == 4
