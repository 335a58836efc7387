"""Many files: what is done once, and what was done before a crash."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RANDOMIZING = "batch/randomize_files.py"
KILLS = "batch/test_randomizing.py::TestKills"

MUTANTS = (
    Mutant(
        "reports are published before the journal says so",
        RANDOMIZING,
        "            journal.record(number, [hidden, reports, marks[number]])\n"
        "            _publish(folder, hidden, names[number])\n",
        "            _publish(folder, hidden, names[number])\n"
        "            journal.record(number, [hidden, reports, marks[number]])\n",
        f"{KILLS}::test_no_answer_is_published_twice",
    ),
    Mutant(
        "what was recorded and not yet published is lost",
        RANDOMIZING,
        "            _publish(folder, hidden, names[number])\n        _clean(folder)\n",
        "            pass\n        _clean(folder)\n",
        f"{KILLS}::test_no_answer_is_published_twice",
    ),
    Mutant(
        "reports that were never published stay in the folder",
        RANDOMIZING,
        "        path.unlink(missing_ok=True)\n",
        "        pass\n",
        f"{KILLS}::test_no_answer_is_published_twice",
    ),
    Mutant(
        "what was taken away is randomized again",
        RANDOMIZING,
        "            if number not in journal.done\n",
        "            if number not in journal.done or not (folder / names[number]).exists()\n",
        f"{KILLS}::test_reports_that_were_taken_away_are_not_made_again",
    ),
    Mutant(
        "answers that changed are taken for the same",
        RANDOMIZING,
        "if mark != marks[number]:",
        "if False:",
        "batch/test_randomizing.py::TestRefused"
        "::test_answers_that_changed_after_they_were_published",
    ),
    Mutant(
        "a line of the journal that was cut off stays",
        "batch/jobs.py",
        "            os.truncate(self._path, len(whole))\n",
        "            pass\n",
        "batch/test_tallying.py::TestJournal::test_a_line_that_was_cut_off_is_not_there",
    ),
    Mutant(
        "two processes write one journal",
        "batch/jobs.py",
        "if not self._held.enter_context(self._disk.lock(lock, patience=0)):",
        "if False:",
        "batch/test_tallying.py::TestJournal::test_one_process_at_a_time",
    ),
    Mutant(
        "the parts of one crowd become several crowds",
        "batch/tally_files.py",
        "[renamed(one, None, _SAME_CROWD) for one in parts]",
        "parts",
        "batch/test_tallying.py::TestTheSameCounts::test_a_folder_of_all_forms",
    ),
    Mutant(
        "the mark of simulated reports is lost in a table",
        "batch/tables.py",
        'simulated = metadata.get(b"shoal.simulated") == b"true"',
        "simulated = False",
        "batch/test_tables.py::TestRandomizeAndTally::test_simulated_reports_stay_marked",
    ),
    Mutant(
        "all attempts of a part are published",
        "batch/spark.py",
        "            os.rename(reports, self._folder)\n",
        "            os.rename(self.attempts, self._folder)\n",
        "batch/test_staging.py::test_one_attempt_of_each_part_appears",
    ),
    Mutant(
        "reports that are there are replaced by others",
        "batch/spark.py",
        "            self._check_free()\n",
        "            shutil.rmtree(self._folder, ignore_errors=True)\n",
        "batch/test_staging.py::test_killed_at_every_step",
    ),
    Mutant(
        "what a killed driver left stays on the disk",
        "batch/spark.py",
        "                _remove(left)\n",
        "                pass\n",
        "batch/test_staging.py::test_killed_at_every_step",
    ),
    Mutant(
        "an attempt has the name of the one before it",
        "batch/spark.py",
        'return attempts / f"part-{part:05}-{_token()}.parquet"',
        'return attempts / f"part-{part:05}.parquet"',
        "batch/test_staging.py::test_an_attempt_that_still_writes_is_not_seen",
    ),
    Mutant(
        "the reports of Spark are a recipe that is computed at every look",
        "batch/spark.py",
        "    assert reports is not None\n    return reports\n",
        "    assert reports is not None\n"
        "    from shoal.device.arrays.report_files import column_of, file_rows\n"
        "    from shoal.batch.tables import randomize_batches\n\n"
        "    def recipe(batches: Any) -> Any:\n"
        "        for made in randomize_batches(plan, batches):\n"
        "            column = column_of(file_rows(made)).cast(pa.binary())\n"
        "            yield pa.RecordBatch.from_arrays([column], ['report'])\n\n"
        "    return df.select(*columns).mapInArrow(recipe, 'report binary')\n",
        "batch/test_spark.py::TestSpark::test_on_one_machine",
    ),
    Mutant(
        "rows that were dealt out twice are published",
        "batch/spark.py",
        "    if answers and _repeated_stages(context, group):\n",
        "    if False:\n",
        "batch/test_spark.py::TestSpark::test_on_a_cluster_whose_executors_are_killed",
    ),
)
