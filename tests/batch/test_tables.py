"""Tables of others in and out, and results as their tables."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shoal
from shoal import Choice, Flags, Plan, PrivacyRefusal, Survey, plan
from shoal.analysis.association import associate
from shoal.analysis.cross_tables import cross_table
from shoal.batch.tables import randomize_table, tally_table
from shoal.device.arrays.randomize import Original
from shoal.errors import AnswerError, InputError, ReportError
from shoal.protocol.plan import Promise
from shoal.support.table_format import TableFormat

SURVEY = Survey("s", (Flags("f", ("a", "b", "c")), Choice("c", ("x", "y"))))
PLAN = plan(SURVEY, q="0.01")
ANSWERS = {"f": ["a", "b;c", ""] * 100, "c": ["x", "y", "y"] * 100, "more": [1] * 300}


class Stream:
    """Anything with the Arrow C stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


TABLES = {
    "pandas": lambda: pd.DataFrame(ANSWERS),
    "polars": lambda: pl.DataFrame(ANSWERS),
    "arrow": lambda: pa.table(ANSWERS),
    "batches": lambda: pa.table(ANSWERS).to_reader(7),
    "stream": lambda: Stream(pa.table(ANSWERS)),
}


class TestRandomizeAndTally:
    @pytest.mark.parametrize("library", TABLES)
    def test_answers_of_any_library(self, library: str):
        counted = tally_table(PLAN, randomize_table(PLAN, TABLES[library]()))
        assert counted.reports == 300
        # 100 or 200 true answers, one in a hundred flipped; the bits repeat.
        assert np.abs(counted.by_bit - [100, 100, 100, 100, 200]).max() < 15

    @pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
    def test_reports_in_any_library(self, library: str):
        table = randomize_table(PLAN, pa.table(ANSWERS)).read_all()
        wanted = tally_table(PLAN, table, crowd="one")
        held = {
            "pandas": lambda: table.to_pandas(),
            "polars": lambda: pl.DataFrame(table),
            "arrow": lambda: table.cast(pa.schema([("report", pa.large_binary())])),
        }[library]()
        assert tally_table(PLAN, held, crowd="one") == wanted

    def test_an_answer_is_randomized_once(self):
        reader = randomize_table(PLAN, pa.table(ANSWERS))
        assert reader.read_all().num_rows == 300
        assert reader.read_all().num_rows == 0

    def test_a_row_is_named_as_in_the_whole_table(self):
        wrong = pa.table({"f": ["a"] * 10 + ["z"], "c": ["x"] * 11}).to_reader(4)
        with pytest.raises(AnswerError, match="row 11"):
            randomize_table(PLAN, wrong).read_all()

    def test_a_column_of_objects_is_read_cell_by_cell(self):
        """Its type would follow from all rows: one row would change how the others are read."""
        asked = Survey("s", (Choice("c", ("1", "x"), missing="option"),))
        agreed = plan(asked, q="1e-6")
        others: tuple[object, ...] = (None, "x", 2.5, [1], b"1", True, {})
        for strange in others:
            frame = pd.DataFrame({"c": [1, 1, strange, 1], "more": [object()] * 4})
            reports = randomize_table(agreed, frame, table_format=TableFormat(invalid="missing"))
            bits = [row[0] for row in reports.read_all()["report"].to_pylist()]
            assert bits == [1, 1, 2 if strange == "x" else 4, 1]
        with pytest.raises(
            AnswerError, match="row 3, question 'c': the answer is not one option's name"
        ):
            randomize_table(agreed, pd.DataFrame({"c": [1, 1, 2.5]})).read_all()
        with pytest.raises(InputError, match='needs missing = "option"'):
            randomize_table(PLAN, pa.table(ANSWERS), table_format=TableFormat(invalid="missing"))

    def test_what_is_refused(self):
        other = plan(SURVEY, q="0.02")
        reports = randomize_table(other, pa.table(ANSWERS)).read_all()
        with pytest.raises(ReportError, match="of plan"):
            tally_table(PLAN, reports)
        for name, cells, why in (
            ("original", [b"x"], "exactly one column"),
            ("report", [b"xy"], "1 bytes each"),
            ("report", [b"x", None], "null"),
            ("report", [b"\xff"], "padding"),
        ):
            with pytest.raises(InputError, match=why):
                tally_table(PLAN, pl.DataFrame({name: cells}))
        with pytest.raises(InputError, match="__arrow_c_stream__"):
            tally_table(PLAN, 7)
        with pytest.raises(InputError, match="Arrow"):
            tally_table(PLAN, Original(np.zeros((1, 1), np.uint8), 5))
        with pytest.raises(AnswerError, match="no column 'c'"):
            randomize_table(PLAN, pd.DataFrame({"f": ["a"]}))

    def test_whole_reports_under_view_counts(self):
        promise = Promise("proven", "3", delta="1e-6")
        seen = Plan(SURVEY, PLAN.q, promise, crowd_size=1000, view="counts")
        with pytest.raises(PrivacyRefusal, match="whole_reports=True"):
            randomize_table(seen, pa.table(ANSWERS))
        reader = randomize_table(seen, pa.table(ANSWERS), whole_reports=True)
        assert tally_table(seen, reader).by_set_bits is None

    def test_simulated_reports_stay_marked(self):
        from shoal.device.arrays.files import column_of, report_schema

        rows = np.zeros((3, 1), np.uint8)
        table = pa.table([column_of(rows)], schema=report_schema(PLAN, simulated=True))
        assert tally_table(PLAN, table).simulated


CROSSED = plan(
    Survey("s", (Choice("os", ("mac", "linux")), Choice("new", ("yes", "no")))).cross("os", "new"),
    q="0.1",
)
RUN = shoal.simulate(CROSSED, users=2000, seed=1)
TALLY = RUN.estimates.tally


class TestResults:
    def test_numbers_of_frames_are_those_of_results(self):
        estimates = RUN.estimates
        frame = estimates.to_polars()
        assert frame.height == 8
        for row in frame.to_dicts():
            one = estimates[row["question"]][row["option"]]
            assert (row["count"], row["sigma"], row["share"]) == (one.count, one.sigma, one.share)
            assert (row["low"], row["high"]) == (one.interval().low, one.interval().high)
            assert row["simulated"]
        wide = estimates.to_pandas(level=0.999)
        assert (wide["high"] - wide["low"] > (frame["high"] - frame["low"]).to_numpy()).all()
        table = cross_table(CROSSED, TALLY, "os", "new")
        for row in table.to_polars(level=0.9).to_dicts():
            cell = table[row["os"], row["new"]]
            assert (row["count"], row["low"]) == (cell.count, cell.interval(0.9).low)
        both = associate(CROSSED, TALLY, "os", "new")
        for row in both.to_polars().to_dicts():
            assert row["count"] == both[row["first"], row["second"]].count

    def test_whoever_takes_streams_takes_results(self):
        table = cross_table(CROSSED, TALLY, "os", "new")
        assert pl.DataFrame(table).height == pa.table(table).num_rows == 4
        assert pa.RecordBatchReader.from_stream(RUN.estimates).read_all().num_rows == 8

    def test_a_library_that_is_missing(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(InputError, match="pip install polars"):
            RUN.estimates.to_polars()
