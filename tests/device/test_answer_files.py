"""Files of answers and reports: whole or not at all, of their plan or not at all."""

from __future__ import annotations

import functools
import itertools
import json
import struct
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import (
    Choice,
    Flags,
    Number,
    Plan,
    PrivacyRefusal,
    ShoalError,
    Survey,
    estimate,
    plan,
    tally,
)
from shoal.analysis.report_files import Batch, read_reports
from shoal.device.arrays.files import VectorWriter, read_answers
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import encode
from shoal.device.randomize import flip, pack_reports
from shoal.errors import AnswerError, InputError, ReportError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic
from shoal.support.table_format import TableFormat
from tests.strategies import bounded, mutated_bytes

SURVEY = Survey(
    "s", (Flags("f", ("a", "b", "c")), Choice("c", ("x", "y")), Number("n", ("1", "2")))
)
PLAN = plan(SURVEY, q="0.25")
OTHER = plan(SURVEY, q="0.25", crowd_size=10)
NAMES = ("r.parquet", "r.rows")
ROWS = pack(np.random.default_rng(1).random((1000, 8)) < 0.5)


def write(path: Path, *chunks: Any, **how: Any) -> Path:
    with VectorWriter(path, PLAN, **how) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return path


def read(path: Path, of: Any = PLAN) -> np.ndarray[Any, Any]:
    return np.concatenate([chunk.rows for chunk in read_reports(of, path)])


def answers(
    path: Path, survey: Survey = SURVEY, declared: TableFormat | None = None
) -> list[list[int]]:
    originals = read_answers(survey, path, declared or TableFormat())
    return [row.tolist() for original in originals for row in original.rows]


class TestReports:
    @pytest.mark.parametrize("name", [*NAMES, "R.PARQUET", "r.arrow"])
    def test_round_trip(self, name: str, tmp_path: Path):
        for rows in (ROWS, ROWS[:0]):
            parts = np.split(rows, [1, 17, 17, 900])
            path = write(tmp_path / name, *(Synthetic(part, 8) for part in parts))
            assert (
                b"".join(one.rows.tobytes() for one in read_reports(PLAN, path)) == rows.tobytes()
            )
            assert [p.name for p in tmp_path.iterdir()] == [name]
            assert not any(chunk.simulated for chunk in read_reports(PLAN, path))

    @pytest.mark.parametrize("form", ["to_bytes", "to_json"])
    def test_a_batch_of_the_wire_form(self, form: str, tmp_path: Path):
        batch = pack_reports(PLAN, Synthetic(ROWS, 8))
        (tmp_path / "batch").write_bytes(getattr(batch, form)())
        assert (read(tmp_path / "batch") == ROWS).all()

    def test_parquet_as_agreed(self, tmp_path: Path):
        """One fixed-size binary column, no dictionary, no compression, and its plan by name."""
        path = write(tmp_path / "r.parquet", Synthetic(ROWS, 8))
        file = pq.ParquetFile(path)
        assert file.schema_arrow.names == ["report"]
        assert file.schema_arrow.field("report").type == pa.binary(1)
        assert file.schema_arrow.metadata[b"shoal.plan"].decode() == PLAN.id
        column = file.metadata.row_group(0).column(0)
        assert column.compression == "UNCOMPRESSED"
        assert not any("DICTIONARY" in encoding for encoding in column.encodings)
        file.close()

    def test_raw_rows_as_agreed(self, tmp_path: Path):
        content = write(tmp_path / "r.rows", Synthetic(ROWS, 8)).read_bytes()
        header = struct.pack("<8sII32s16x", b"SHOALROW", 1, 0, bytes.fromhex(PLAN.id))
        assert content == header + ROWS.tobytes()

    def test_the_mark_of_simulation_travels(self, tmp_path: Path):
        """randomize, file, tally, estimate: marked all the way."""
        simulated = flip(PLAN.q, Original(ROWS, 8), random_bits=SimulationBits(1))
        for name in NAMES:
            path = write(tmp_path / name, simulated, simulated=True)
            counted = tally(PLAN, read_reports(PLAN, path))
            assert counted.simulated
            assert estimate(PLAN, counted).to_json()["simulated"] is True

    def test_what_does_not_belong_is_not_written(self, tmp_path: Path):
        simulated = flip(PLAN.q, Original(ROWS, 8), random_bits=SimulationBits(1))
        for name in NAMES:
            for chunk, how in ((simulated, False), (Synthetic(ROWS, 8), True)):
                with pytest.raises(InputError, match="do not go into one file"):
                    write(tmp_path / name, chunk, simulated=how)
            for width, bits in ((2, 9), (1, 5)):
                with pytest.raises(InputError, match="the plan has 8 bits"):
                    write(tmp_path / name, Synthetic(np.zeros((3, width), np.uint8), bits))
        assert not list(tmp_path.iterdir())

    def test_originals_are_no_reports(self, tmp_path: Path):
        with pytest.raises(InputError, match="takes no Original"):
            write(tmp_path / "r.parquet", Original(ROWS, 8))
        path = write(tmp_path / "o.parquet", Original(ROWS, 8), kind="original")
        with pytest.raises(ReportError, match="holds originals, the truth"):
            read(path)
        with pytest.raises(InputError, match=r"originals are written as \.parquet"):
            VectorWriter(tmp_path / "o.rows", PLAN, kind="original")

    @pytest.mark.parametrize("name", NAMES)
    def test_a_file_is_of_one_plan_and_survives_an_error(self, name: str, tmp_path: Path):
        path = write(tmp_path / name, Synthetic(ROWS, 8))
        with pytest.raises(ReportError, match=f"reports of plan {PLAN.id[:12]}"):
            read(path, OTHER)
        before = path.read_bytes()

        def interrupted() -> None:
            with VectorWriter(path, PLAN) as writer:
                writer.write(Synthetic(ROWS[:5], 8))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == [name]

    def test_whole_reports_of_view_counts_must_be_asked_for(self, tmp_path: Path):
        """Each is nearly the truth: at q = .001 a report of 8 bits is the answer, 99.2 %."""
        promise = Promise("proven", "60", delta="1e-6")
        seen = Plan(SURVEY, FlipProbability.at_least("0.001"), promise, 10, view="counts")
        for name in NAMES:
            path = tmp_path / name
            with pytest.raises(PrivacyRefusal, match="only local epsilon"):
                VectorWriter(path, seen)
            assert not path.exists()
            with VectorWriter(path, seen, whole_reports=True) as writer:
                writer.write(Synthetic(ROWS, 8))
            assert (read(path, seen) == ROWS).all()
        with VectorWriter(tmp_path / "o.parquet", seen, kind="original") as writer:
            writer.write(Original(ROWS, 8))  # nobody takes originals for reports

    def test_places_that_cannot_be_written(self, tmp_path: Path):
        for name in NAMES:
            with pytest.raises(InputError, match="cannot write"):
                write(tmp_path / "none" / name)
            (tmp_path / name).mkdir()
            with pytest.raises(InputError, match="cannot write"):
                write(tmp_path / name, Synthetic(ROWS, 8))
        with pytest.raises(InputError, match=r"\.parquet, \.arrow or \.rows"):
            VectorWriter(tmp_path / "r.csv", PLAN)

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"x", b"PAR1", b"SHOALROW", b"SHOALROW" + bytes(56), b"{}", b"SHOAL\x01"),
            struct.pack("<8sII32s16xB", b"SHOALROW", 1, 2, bytes.fromhex(PLAN.id), 1),
        ],
    )
    def test_files_that_hold_no_reports(self, content: bytes, tmp_path: Path):
        (tmp_path / "r").write_bytes(content)
        with pytest.raises(ReportError):
            read(tmp_path / "r")
        for path in (tmp_path / "none", tmp_path):
            with pytest.raises(ReportError, match="cannot read"):
                read(path)

    @pytest.mark.parametrize("name", NAMES)
    def test_padding_bits(self, name: str, tmp_path: Path):
        """A file from elsewhere with padding set: the error names the file."""
        five = plan(Survey("s", (Flags("f", tuple("abcde")),)), q="0.25")
        path = tmp_path / name
        if name == "r.rows":
            header = struct.pack("<8sII32s16x", b"SHOALROW", 1, 0, bytes.fromhex(five.id))
            path.write_bytes(header + b"\x01\xff")
        else:
            schema = pa.schema([("report", pa.binary(1))], metadata={"shoal.plan": five.id})
            pq.write_table(pa.table([pa.array([b"\x01", b"\xff"], pa.binary(1))], schema), path)
        with pytest.raises(ReportError, match="padding"):
            read(path, five)

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([b"\x01", None], pa.binary(1)),
            pa.array([b"\x01\x01"], pa.binary(2)),
            pa.array([b"\x01"], pa.binary()),
            pa.array([1], pa.int64()),
        ],
        ids=["null", "long", "variable", "integer"],
    )
    def test_other_columns(self, column: Any, tmp_path: Path):
        for metadata in ({"shoal.plan": PLAN.id}, None):
            schema = pa.schema([("report", column.type)], metadata=metadata)
            pq.write_table(pa.table([column], schema), tmp_path / "r.parquet")
            with pytest.raises(ReportError, match=None if metadata else "reports of no plan"):
                read(tmp_path / "r.parquet")

    def test_more_rows_than_a_buffer_has(self, tmp_path: Path):
        """Each number of rows in the file is made larger, alone and with the others."""
        held = write(tmp_path / "r.arrow", Synthetic(ROWS[:777], 8)).read_bytes()
        parts = held.split(struct.pack("<q", 777))
        assert len(parts) > 2
        refused = 0
        for chosen in itertools.product((777, 777_000), repeat=len(parts) - 1):
            content = parts[0]
            for number, part in zip(chosen, parts[1:], strict=True):
                content += struct.pack("<q", number) + part
            (tmp_path / "r.arrow").write_bytes(content)
            if content != held:
                try:
                    read(tmp_path / "r.arrow")
                except ReportError:
                    refused += 1
        assert refused > 0

    def test_many_chunks_of_one_row_group(self, tmp_path: Path):
        rows = pack(np.random.default_rng(2).random((600_000, 8)) < 0.5)
        path = write(tmp_path / "r.parquet", Synthetic(rows, 8))
        chunks = list(read_reports(PLAN, path))
        assert len(chunks) > 1
        assert (np.concatenate([chunk.rows for chunk in chunks]) == rows).all()


class TestAnswers:
    def test_an_empty_line_is_a_row(self, tmp_path: Path):
        """With one column a person with no flags; else invalid, and still one row."""
        one = Survey("s", (Flags("f", ("a", "b")),))
        (tmp_path / "a.csv").write_text("f\na\n\nb\n\n", "utf-8")
        assert answers(tmp_path / "a.csv", one) == [[1], [0], [2], [0]]
        two = Survey("s", (Flags("f", ("a", "b")), Flags("g", ("c",))))
        (tmp_path / "a.csv").write_text("f,g\na,c\n\n,\n", "utf-8")
        with pytest.raises(AnswerError, match="row 2 has 1 columns, the header 2"):
            answers(tmp_path / "a.csv", two)
        lenient = TableFormat(invalid="missing")
        assert answers(tmp_path / "a.csv", two, lenient) == [[5], [0], [0]]

    def test_csv_details(self, tmp_path: Path):
        """A byte-order mark, Windows line ends, quotes, other columns, any order, NA as text."""
        text = '\ufeffname,n,c,f\r\nAnn,"1",x," a ; c"\r\n"B, ob",0.5,"y",\r\n'
        (tmp_path / "a.csv").write_bytes(text.encode())
        assert answers(tmp_path / "a.csv") == [[0b01001101], [0b00110000]]
        named = Survey("s", (Choice("c", ("NA", "null", "nan")),))
        (tmp_path / "b.csv").write_text("c\nNA\nnull\nnan\n", "utf-8")
        assert answers(tmp_path / "b.csv", named) == [[1], [2], [4]]

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", "is empty"),
            (b"f,c\na,x\n", "n"),
            (b"f,c,n\na,x\n", "columns"),
            (b"f,c,n\na,x,1,2\n", "columns"),
            (b"f,c,n\na,x,1\n\xff\x81,x,1\n", "row 2, column 'f' is not valid utf-8"),
            (b"f,c,n\n\0,x,1\n", "row 1, question 'f'"),
            (b"\xff\xfef\0,\0", "is in UTF-16; save it as UTF-8"),
            (b"f,\xff,n\na,x,1\n", "the first line of .* cannot be read as utf-8"),
            (b'f,c,n\na,x,1\n"a,x,1\na,x,1\n', "row 2 has a quote that is not closed"),
            (b'f,c,n\na,x,1\n"a"b,x,1\na,x,1\n', "row 2 has a quote that is not closed"),
            (b"f,c,n\na,x,1\nb,z,1\n", "row 2, question 'c': the answer is not one of"),
            (b"g;h,c,n\na,x,1\n", r"it has 'g;h', 'c', 'n'\.$"),
            (b"f;c;n\na;x;1\n", "semicolons separated the columns; declare --delimiter ';'"),
            (b"f,c,n\n", "there are no answers in .*a.csv"),
            (b"f,c,n", "there are no answers"),
        ],
    )
    def test_csv_that_is_none(self, content: bytes, why: str, tmp_path: Path):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(AnswerError, match=why):
            answers(tmp_path / "a.csv")

    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "windows-1252", "iso-8859-15"])
    def test_csv_as_spreadsheets_write_it(self, separator: str, encoding: str, tmp_path: Path):
        """The declared encoding, delimiter and decimal sign."""
        survey = Survey("s", (Choice("cäfé", ("thé", "café")), Number("price", ("2.5",))))
        comma = "." if separator == "," else ","
        lines = ["cäfé,price", f"thé,2{comma}49", f"café,2{comma}5"]
        text = "\r\n".join(line.replace(",", separator, 1) for line in lines)
        (tmp_path / "a.csv").write_bytes(text.encode(encoding))
        declared = TableFormat(encoding.removesuffix("-sig"), separator, comma)
        assert answers(tmp_path / "a.csv", survey, declared) == [[0b0101], [0b1010]]

    def test_points_for_thousands(self, tmp_path: Path):
        survey = Survey("s", (Choice("c", ("x", "y")), Number("price", ("1000",))))
        (tmp_path / "a.csv").write_text("c;price\nx;1.234,50\nx;999,5\nx;1.234.567\n", "utf-8")
        declared = TableFormat(delimiter=";", decimal=",")
        assert answers(tmp_path / "a.csv", survey, declared) == [[0b1001], [0b0101], [0b1001]]
        (tmp_path / "a.csv").write_text("c;price\nx;999\nx;1.678\n", "utf-8")
        with pytest.raises(
            AnswerError,
            match=r"row 2, question 'price': .* can be whole or a fraction; .* set thousands",
        ):
            answers(tmp_path / "a.csv", survey, declared)

    def test_a_decimal_comma_between_commas_is_no_number(self, tmp_path: Path):
        survey = Survey("s", (Number("price", ("2.5",)),))
        (tmp_path / "a.csv").write_text('price\n"2,5"\n', "utf-8")
        with pytest.raises(AnswerError, match="has another decimal sign"):
            answers(tmp_path / "a.csv", survey)

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", [".csv", ".ndjson", ".parquet", ".arrow"])
    def test_all_wrong_answers_are_named_together(self, suffix: str, tmp_path: Path):
        """By question and reason, most frequent first, with the first rows and no content."""
        survey = Survey("s", (Choice("c", ("x", "y")), Number("n", (1, 2))))
        rows = [{"c": "x", "n": "1"} for _ in range(40_000)]
        for place in (7, 9, 30_000, 39_999):
            rows[place]["c"] = "z"
        for place in range(20, 30):
            rows[place]["n"] = "many"
        rows[9]["n"] = ""
        path = tmp_path / f"a{suffix}"
        if suffix == ".csv":
            content = "".join(f"{row['c']},{row['n']}\n" for row in rows)
            path.write_text("c,n\n" + content, "utf-8")
        elif suffix == ".ndjson":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        elif suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            table = pa.Table.from_pylist(rows)
            with pa.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table, 1000)
        with pytest.raises(AnswerError) as refused:
            answers(path, survey)
        lines = str(refused.value).splitlines()
        assert lines == [
            "15 answers are not allowed, so nothing was written:",
            "  question 'n': 10 cells are not a number (rows 21, 22, 23, ...)",
            "  question 'c': 4 cells are not one of its options; if others are allowed, set other ="
            " true in the question (rows 8, 10, 30,001, ...)",
            "  question 'n': 1 cell is missing; declare missing = \"option\" in the survey if that"
            " may happen (row 10)",
        ]

    def test_files_with_nobody_in_them(self, tmp_path: Path):
        (tmp_path / "a.ndjson").write_text("", "utf-8")
        nobody = pa.table({name: pa.array([], pa.string()) for name in "fcn"})
        pq.write_table(nobody, tmp_path / "a.parquet")
        for name in ("a.ndjson", "a.parquet"):
            with pytest.raises(AnswerError, match="there are no answers"):
                answers(tmp_path / name)

    def test_ndjson_details(self, tmp_path: Path):
        text = '{"f": ["a"], "c": "x", "n": 1, "name": "Ann"}\n{"f": "", "c": "y", "n": 0}\n'
        for name in ("a.ndjson", "a.jsonl"):
            (tmp_path / name).write_text(text, "utf-8")
            assert answers(tmp_path / name) == [[0b01001001], [0b00110000]]

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("{", "row 2 is not valid JSON"),
            ("", "row 2 is not valid JSON"),
            ("\udcff", "row 2 is not valid JSON"),
            ("[1]", "row 2"),
            ("null", "row 2"),
            ('{"f": [], "c": "x", "n": NaN}', "row 2, question 'n': .* finite"),
            ('{"f": [], "c": "x", "n": true}', "row 2, question 'n': .* not a number"),
            ('{"f": [], "c": "x"}', "row 2, question 'n'"),
            ('{"c": "x", "n": 1}', "row 2, question 'f': the answer is left out"),
            ('{"f": [], "c": "x", "n": 1, "c": "y"}', "row 2 is not valid JSON"),
            ('{"f": [], "c": "x", "n": ' + "1" * 5000 + "}", "row 2 is not valid JSON"),
            ("[" * 100_000, "row 2 is not valid JSON"),
        ],
    )
    def test_ndjson_that_is_none(self, line: str, why: str, tmp_path: Path):
        good = '{"f": [], "c": "x", "n": 1}\n'
        content = (good + line + "\n" + good).encode("utf-8", "surrogateescape")
        (tmp_path / "a.ndjson").write_bytes(content)
        with pytest.raises(AnswerError, match=why):
            answers(tmp_path / "a.ndjson")

    def test_parquet_columns(self, tmp_path: Path):
        twice = pa.table([pa.array(["a"]), pa.array(["b"])], names=["f", "f"])
        without = pa.table({"f": ["a"], "c": ["x"]})
        for table, why in ((without, "no column 'n'"), (twice, "has column 'f' twice")):
            pq.write_table(table, tmp_path / "a.parquet")
            with pytest.raises(AnswerError, match=why):
                answers(tmp_path / "a.parquet")

    def test_a_question_with_a_dot_in_its_name(self, tmp_path: Path):
        dotted = Survey("s", (Flags("a.b", ("x", "y")),))
        pq.write_table(pa.table({"a.b": ["x"], "a": [1]}), tmp_path / "a.parquet")
        assert answers(tmp_path / "a.parquet", dotted) == [[1]]

    def test_originals_in_a_file(self, tmp_path: Path):
        """Taken for their own survey only, and only if they are in its domain."""
        original = encode(SURVEY, [{"f": ["a"], "c": "y", "n": 5}] * 3)
        path = write(tmp_path / "o.parquet", original, kind="original")
        assert answers(path) == original.rows.tolist()
        with pytest.raises(AnswerError, match="originals of another survey"):
            answers(path, Survey("t", (Flags("g", tuple("abcdefgh")),)))
        write(path, Original(np.array([[0xFF]], np.uint8), 8), kind="original")
        with pytest.raises(AnswerError, match="original 1 sets 2 bits of question 'c'"):
            answers(path)

    def test_other_files(self, tmp_path: Path):
        (tmp_path / "a.txt").write_text("x", "utf-8")
        with pytest.raises(AnswerError, match=r"\.csv, \.xlsx, \.ndjson, \.arrow or \.parquet"):
            answers(tmp_path / "a.txt")
        for name in ("none.csv", "none.ndjson", "none.parquet"):
            with pytest.raises(AnswerError, match="cannot read"):
                answers(tmp_path / name)


@functools.cache
def valid(name: str) -> bytes:
    """A valid file of each kind, the same every time."""
    batch = Batch(PLAN.id, np.ones((3, 16), np.uint8), np.zeros(3, np.uint32), None, ROWS[:3])
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch) / name
        if name == "a.csv":
            return b"f,c,n\na;b,x,1\n,y,2.5\n"
        if name == "a.ndjson":
            return (json.dumps({"f": ["a"], "c": "y", "n": 5.0}) + "\n").encode() * 3
        if name in ("r.batch", "r.json"):
            return batch.to_bytes() if name == "r.batch" else batch.to_json()
        table = pa.table({"f": ["a;b"] * 9, "c": ["x"] * 9, "n": [1.5] * 9})
        if name == "a.parquet":
            pq.write_table(table, at)
        elif name == "a.arrow":
            feather.write_feather(table, at, compression="uncompressed")
        else:
            write(at, Synthetic(ROWS[:20], 8))
        return at.read_bytes()


class TestFuzz:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name",
        [
            *("a.csv", "a.ndjson", "a.parquet", "a.arrow"),
            *("r.parquet", "r.arrow", "r.rows", "r.batch", "r.json"),
        ],
    )
    @given(data=st.data())
    @bounded(120)
    def test_broken_files(self, name: str, tmp_path: Path, data: st.DataObject):
        content = data.draw(mutated_bytes(valid(name)))
        self.attempt(tmp_path / name, content)

    @pytest.mark.parametrize("name", [pytest.param("a.arrow", marks=pytest.mark.slow), "r.arrow"])
    def test_every_byte_of_an_arrow_file(self, name: str, tmp_path: Path):
        """Arrow does not look whether offsets and lengths lead out of a buffer."""
        held = valid(name)
        for place in range(len(held)):
            other = held[:place] + bytes([held[place] ^ 0xFF]) + held[place + 1 :]
            self.attempt(tmp_path / name, other)

    @given(st.binary(max_size=60), st.sampled_from(["a.csv", "a.ndjson", "a.parquet", "r.x"]))
    @bounded(80)
    def test_any_bytes(self, tmp_path: Path, content: bytes, name: str):
        self.attempt(tmp_path / name, content)

    def attempt(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        said = ""
        try:
            read = read_answers(SURVEY, path) if path.name[0] == "a" else read_reports(PLAN, path)
            for chunk in read:
                assert chunk.bits == 8
        except ShoalError as error:
            said = str(error)
        first, *rest = said.splitlines() or [""]
        assert not rest or first.endswith("are not allowed, so nothing was written:")


MEASURE = """
    import sys
    from pathlib import Path
    from shoal.analysis.report_files import read_reports
    from shoal.protocol.plan import Plan
    from shoal.analysis.tally import tally

    plan = Plan.read(sys.argv[1])
    counted = tally(plan, read_reports(plan, Path(sys.argv[2])))
    # Not ru_maxrss: that remembers the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    print(counted.reports, peak)
"""


class TestMemory:
    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's VmHWM")
    @pytest.mark.parametrize(
        "layout", ["one row group", pytest.param("as written", marks=pytest.mark.slow)]
    )
    def test_a_long_file_takes_no_more_memory_than_a_short_one(self, layout: str, tmp_path: Path):
        """40-bit rows, 1 and 4 million: under 200 MB, and not 20 MB apart."""
        forty = plan(Survey("s", (Flags("f", tuple(map(str, range(40)))),)), q="0.25")
        forty.write(tmp_path / "plan.json")
        peaks = []
        for millions in (1, 4):
            path = tmp_path / f"r{millions}.parquet"
            rows = np.random.default_rng(1).integers(0, 256, (millions * 1_000_000, 5), np.uint8)
            chunks = [rows] if layout == "one row group" else np.array_split(rows, millions * 8)
            with VectorWriter(path, forty) as writer:
                for chunk in chunks:
                    writer.write(Synthetic(chunk, 40))
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(MEASURE), tmp_path / "plan.json", path],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            reports, peak = map(int, done.stdout.split())
            assert reports == millions * 1_000_000
            peaks.append(peak / 1000)
        assert max(peaks) < 200, peaks
        assert peaks[1] - peaks[0] < 20, peaks
