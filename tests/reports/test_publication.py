"""Publishing: one set of numbers in every form, and no name that does harm in any of them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape as html_escape
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from markupsafe import Markup, escape

import shoal
from shoal import Choice, Flags, Number, Plan, PrivacyRefusal, Survey, Tally, plan, simulate
from shoal.analysis.estimates import NUMBERS
from shoal.cli import run
from shoal.errors import InputError, TallyError
from shoal.planning.certificate import certify
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.survey import Text
from shoal.reports import Publication, publish
from shoal.reports.charts import bar_chart
from shoal.reports.formatting import Figures
from shoal.reports.page import environment
from shoal.reports.protection import facts
from shoal.reports.publication import notebook_html
from shoal.reports.svg import element, text_width, wrapped
from tests.strategies import bounded, labels

SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "vpn", "reader")),
        Choice("channel", ("release", "beta"), missing="option"),
        Flags("languages", ("en", "fr", "de"), at_most=2),
        Number("age", (18, 65)),
    ),
)
PLAN = plan(SURVEY, crowd_size=3000, epsilon=1, delta="1e-6")
LOCAL = plan(SURVEY, q="0.25")

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><!--",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt&amp<b>",
    "]]><svg onload=alert(1)>",
    "</style><style>*{display:none}",
    "</title></svg></td>",
    "x" * 200,
    "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} 1 < 2 \N{ARABIC LETTER ALEF}",
    "=1+1",
    "| a | **b** | `c` [d](http://example.org)",
    "漢字" * 60,
    "\N{ARABIC LIGATURE BISMILLAH AR-RAHMAN AR-RAHEEM}" * 20,
    "e" + "\N{COMBINING ACUTE ACCENT BELOW}" * 100,
)


def counted(agreed: Plan, reports: int, seed: int = 1, *, simulated: bool = False) -> Tally:
    made = simulate(agreed, users=reports, seed=seed).estimates.tally
    return replace(made, simulated=simulated)


@pytest.fixture(scope="module")
def real() -> Publication:
    return publish(PLAN, counted(PLAN, 3000), date="May 2026")


@pytest.fixture(scope="module")
def local() -> Publication:
    return publish(LOCAL, counted(LOCAL, 500, simulated=True), title="A trial")


class Reader(HTMLParser):
    """Reads a page as a browser does: elements, attributes, and the text below each element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        (self.scripts if inside == "script" else []).append(data)
        self.texts.append((inside, data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def said(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]


TAGS = set(
    "html head meta title style body main header h1 h2 h3 p ul li span bdi section figure div"
    " table caption thead tbody tr th td data dl dt dd blockquote footer script strong details"
    " summary"
    " svg desc g text line rect circle polygon polyline".split()
)
ATTRIBUTES = set(
    "lang charset name content http-equiv class id role aria-labelledby aria-label aria-hidden"
    " tabindex scope value type data-column xmlns viewbox width height style fill stroke"
    " stroke-width opacity x y x1 x2 y1 y2 cx cy r points text-anchor font-family font-size"
    " font-weight dominant-baseline unicode-bidi".split()
)


STYLES = {
    None,
    "max-width:100%;height:auto",
    "overflow-x:auto;margin:0.5em 0",
    "padding:0.1em 0.6em;text-align:left",
    "padding:0.1em 0.6em;text-align:right",
    "padding:0.1em 0.6em;text-align:right;white-space:nowrap",
}


def check_harmless(text: str) -> Reader:
    """Only known elements and attributes, everything closed, one block of data and no program."""
    page = Reader(text)
    assert page.open == []
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {name for _, given in page.elements for name in given} <= ATTRIBUTES
    for tag, given in page.elements:
        if tag == "script":
            assert given["type"] == "application/json"
        assert given.get("style") in STYLES
        if tag == "meta" and "http-equiv" in given:
            assert given["http-equiv"] == "Content-Security-Policy"
    return page


class TestMarkup:
    @pytest.mark.slow
    @bounded(200)
    @for_all(st.text(max_size=40), st.text(max_size=40))
    def test_what_goes_in_as_text_comes_out_as_text(self, text: str, value: str):
        text, value = (part.replace("\r", " ").replace("\0", "") for part in (text, value))
        page = Reader(element("p", text, class_=value))
        assert page.elements == [("p", {"class": value})]
        assert "".join(page.said("p")) == text

    def test_markup_stays_markup(self):
        assert element("p", element("b", "<"), Markup("<i></i>")) == "<p><b>&lt;</b><i></i></p>"
        assert element("p", id=None) == "<p></p>"

    @bounded(200)
    @for_all(st.recursive(st.text(max_size=20), lambda inner: st.lists(inner, max_size=3)))
    def test_a_block_of_data_holds_any_text(self, document: object):
        block = environment().from_string("<script>{{ document|tojson }}</script>")
        text = block.render(document=document)
        assert text.count("<") == 2
        (inside,) = Reader(text).scripts
        assert json.loads(inside) == document


class TestNumbers:
    @bounded(200)
    @for_all(st.floats(-1e6, 1e6), st.floats(1e-3, 1e5), st.floats(0, 1e5), st.integers(1, 10**6))
    def test_rounded_outwards(self, count: float, sigma: float, reach: float, reports: int):
        row = {"count": count, "share": count / reports, "sigma": sigma, "low": count - reach,
               "high": count + reach, "constrained": max(count, 0.0)}  # fmt: skip
        shown = [
            float(text.replace("−", "-").replace(",", "").replace("\u202f%", ""))
            for text in Figures.of(row, reports)
        ]
        assert shown[3] <= row["low"] < shown[3] + 1
        assert shown[4] - 1 < row["high"] <= shown[4]
        assert sigma <= shown[2] <= sigma * 1.01
        assert abs(shown[0] - count) <= 0.5
        assert abs(shown[1] / 100 - row["share"]) <= 0.0005001

    def test_the_largest_eta_found_is_not_called_a_bound(self, real: Publication):
        certificate = real.to_json()["certificate"]
        worst = certificate["homogeneous"]["worst"]
        for exhaustive, sign in ((True, "≤"), (False, "≈")):
            certificate["homogeneous"]["worst"] = worst | {"exhaustive": exhaustive}
            (fact,) = [one for one in facts(PLAN, certificate, 3000) if one.name == "Sufficient"]
            assert fact.value.split()[:2] == ["eta", sign]
            assert ("others may be worse" in fact.meaning) is not exhaustive

    def test_privacy_numbers_are_rounded_up(self, real: Publication):
        found = {fact.name: fact.value for fact in facts(PLAN, real.to_json()["certificate"], 3000)}
        certificate = certify(PLAN)
        proven = certificate.delta(epsilon=1).high
        assert proven <= float(found["Proven"].split()[-1]) <= min(1.01 * proven, 1e-6)
        attack = certificate.attack(1).delta.low
        assert 0.99 * attack <= float(found["Attack"].split()[-1]) <= attack
        assert PLAN.local_epsilon <= float(found["Local"].split()[-1]) <= PLAN.local_epsilon + 0.01
        assert certificate.shift_of_a_fake <= float(found["Fake reports"].split()[0])


class TestPage:
    def test_the_numbers_on_it_are_those_of_the_json(self, real: Publication, local: Publication):
        for made in (real, local):
            page = check_harmless(made.to_html())
            document = made.to_json()
            assert json.loads(page.scripts[0]) == document
            rows = [
                row for options in document["estimates"]["questions"].values()
                for row in options.values()
            ]  # fmt: skip
            shown = [text for row in rows for text in Figures.of(row, made.estimates.tally.reports)]
            assert page.said("td")[: len(shown)] == shown

    def test_the_json_is_that_of_the_estimates(self, real: Publication):
        document = real.to_json()
        assert document["estimates"] == real.estimates.to_json(0.95, "exact")
        assert Plan.from_json(document["plan"]) == PLAN
        assert document["certificate"] == certify(PLAN).to_json(epsilon=1.0)
        document["estimates"].clear()
        assert real.to_json()["estimates"]  # a copy was given away

    def test_it_loads_nothing(self, real: Publication):
        text = real.to_html()
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        assert f'content="{policy}"' in text
        assert "url(" not in text
        assert "@import" not in text
        assert set(re.findall(r"https?:[^\"]*", text)) == {"http://www.w3.org/2000/svg"}

    def test_the_banner_of_simulated_numbers(self, real: Publication, local: Publication):
        words = "simulated data"
        for text in (local.to_html(), local.to_markdown()):
            assert words in text
        for text in (real.to_html(), real.to_markdown()):
            assert words not in text
        assert "reports, simulated," in notebook_html(local)
        assert "simulated" not in notebook_html(real)

    def test_titles_and_dates(self, real: Publication, local: Publication):
        assert Reader(local.to_html()).said("title")[0] == "A trial"
        cited = local.to_json()["citation"]
        assert cited == (
            f"browser. Estimates from 500 simulated reports. Plan {LOCAL.id}. Shoal"
            f" {shoal.__version__}."
        )
        assert real.to_json()["citation"].endswith("May 2026.")
        for wrong in ("", "a\nb", "\u202eabc", 5):
            with pytest.raises(InputError, match="title"):
                publish(LOCAL, counted(LOCAL, 10), title=wrong)  # type: ignore[arg-type]
            with pytest.raises(InputError, match="date"):
                publish(LOCAL, counted(LOCAL, 10), date=wrong)  # type: ignore[arg-type]

    def test_the_same_page_every_time(self, real: Publication):
        again = publish(PLAN, counted(PLAN, 3000), date="May 2026")
        assert again.to_html() == real.to_html()

    def test_it_is_accessible(self, real: Publication):
        page = Reader(real.to_html())
        ids = [given["id"] for _, given in page.elements if "id" in given]
        assert len(set(ids)) == len(ids)
        for tag, given in page.elements:
            for name in (given.get("aria-labelledby") or "").split():
                assert name in ids
            if tag == "th":
                assert given["scope"] in ("row", "col")
        tags = [tag for tag, _ in page.elements]
        assert tags.count("h1") == tags.count("main") == 1
        # The unbiased estimates of each question, and the observers.
        assert tags.count("caption") == tags.count("table") == 4 + 1
        assert tags.count("desc") == 2 * 4  # shares, wide and narrow
        assert ("html", {"lang": "en"}) in page.elements

    def test_a_text_question_is_named_and_left_to_decoding(self):
        mixed = Survey("s", (Flags("f", ("a",)), Text("word", 4, 1, 2)))
        agreed = plan(mixed, q="0.25")
        table = Tally(agreed.id, 10, np.full(5, 4), np.array([0, 5, 0, 5, 0, 0]))
        made = publish(agreed, table)
        page = check_harmless(made.to_html())
        assert any("found with shoal decode" in text for text in page.said("p"))
        assert "found with shoal decode" in made.to_markdown()
        assert [tag for tag, _ in page.elements].count("table") == 1
        shown = notebook_html(made.estimates)
        assert "find its answers with shoal decode" in shown
        assert shown.count("<table") == 1
        alone = plan(Survey("s", (Text("word", 4, 1, 2),)), q="0.25")
        made = publish(alone, Tally(alone.id, 10, np.full(4, 4), np.array([0, 4, 6, 0, 0])))
        assert "found with shoal decode" in made.to_html()
        assert "find its answers with shoal decode" in notebook_html(made.estimates)


class TestPromises:
    @pytest.mark.parametrize(
        ("promise", "label", "guarantee"),
        [
            (Promise("proven", "1", "1e-6"), "proven: epsilon 1, delta 1e-6", True),
            (Promise("sufficient", "1", eta="0.01"), "sufficient: epsilon 1, eta 0.01", False),
            (Promise("three-sigma", "1"), "three-sigma: epsilon 1", False),
            (Promise("local", "9.9"), "local: epsilon 9.9 for each report by itself", True),
        ],
    )
    def test_each_is_named_as_it_is(self, promise: Promise, label: str, guarantee: bool):
        agreed = replace(PLAN, promise=promise)
        made = publish(agreed, counted(agreed, 3000))
        said = made.to_json()["promise"]
        assert said["kind"] == promise.kind
        assert said["guarantee"] is guarantee
        assert said["short"].startswith(label)
        for text in (said["short"], said["plain"]):
            assert ("not a guarantee" in text) is not guarantee
        assert (made.certificate is None) is (promise.kind == "local")
        shown = made.to_html()
        for text in (said["short"], said["plain"], *said["assumptions"]):
            assert escape(text) in shown
            assert text in made.to_markdown()

    def test_the_assumptions_are_the_certificate_s(self, real: Publication):
        assert real.to_json()["promise"]["assumptions"] == list(certify(PLAN).assumptions)
        more = publish(PLAN, counted(PLAN, 4000)).to_json()["promise"]["assumptions"]
        assert more[:-1] == list(certify(PLAN).assumptions)
        assert "4,000 reports, more than the crowd of 3,000" in more[-1]
        # every sentence is true of a release that is larger than the plan asks for
        assert "At least 3,000 reports are released together" in " ".join(more)
        assert "Exactly" not in " ".join(more)

    @pytest.mark.slow
    def test_several_reports_of_a_person_are_counted(self):
        # Two reports of a person take twice the epsilon and more delta.
        agreed = replace(PLAN, max_reports_per_person=2, promise=Promise("proven", "2", "1e-5"))
        made = publish(agreed, counted(agreed, 3000)).to_json()
        proven = made["certificate"]["proven"]["delta"][1]
        assert made["certificate"]["group_delta"] == proven
        assert proven > certify(PLAN).delta(epsilon=float(PLAN.promise.epsilon)).high
        names = [fact.name for fact in facts(agreed, made["certificate"], 3000)]
        assert "Several reports" in names

    def test_memory_says_what_holds_for_ever(self):
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 3))
        agreed = replace(LOCAL, q=memory.q, memory=memory)
        found = {fact.name: fact.value for fact in facts(agreed, None, 100)}
        # Memory's q1 is 1/4: every differing bit gives ln 3.
        assert float(found["For ever"].split()[1]) == pytest.approx(
            SURVEY.differing_bits * math.log(3), rel=1e-3
        )

    def test_an_open_crowd_is_refused(self):
        with pytest.raises(PrivacyRefusal, match="wait for the whole crowd"):
            publish(PLAN, counted(PLAN, 2999))

    def test_what_estimate_refuses_is_refused(self):
        with pytest.raises(TallyError, match="another plan"):
            publish(LOCAL, counted(PLAN, 10))
        wrong: dict[str, Any] = {"level": 95, "interval": "wide", "target": "all"}
        for name, value in wrong.items():
            with pytest.raises(InputError, match=name):
                publish(LOCAL, counted(LOCAL, 10), **{name: value})


class TestCharts:
    def test_all_of_it_is_in_the_picture(self, local: Publication):
        numbers = local.to_json()["estimates"]
        for width in (768, 328):
            for question in SURVEY:
                drawn = bar_chart(question, numbers, width, name="c")
                page = Reader(drawn)
                for tag, given in page.elements:
                    for name in ("x", "x1", "x2", "cx"):
                        assert 0 <= float(given.get(name) or 0) <= width, tag

    def test_what_does_not_fit_the_plan_is_marked(self):
        odd = plan(Survey("s", (Flags("f", ("a",)),)), q="0.3")
        made = publish(odd, Tally(odd.id, 50, np.array([2]), np.array([48, 2])))
        page = Reader(made.to_html())
        assert "no true count fits these reports" in page.said("span")
        assert "no true count fits these reports" in made.to_markdown()
        assert next(csv.DictReader(io.StringIO(made.to_csv())))["compatible"] == "false"

    @bounded(200)
    @for_all(st.text(max_size=200), st.floats(20, 300))
    def test_labels_are_broken_and_nothing_is_lost(self, text: str, room: float):
        lines = wrapped(text, room, max_lines=10**6)
        assert all(text_width(line) <= room or len(line) == 1 for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        short = wrapped(text, room)
        assert len(short) <= 4
        assert short == lines or short[-1].endswith("…")


@st.composite
def hostile_plans(draw: st.DrawFn) -> Plan:
    names = st.sampled_from(HOSTILE) | labels
    options = st.lists(names, min_size=2, max_size=5, unique=True)
    asked_names = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    questions = tuple(Flags(name, tuple(draw(options))) for name in asked_names)
    return plan(Survey(draw(names), questions), q="0.25")


def unescaped(cell: str) -> str:
    return re.sub(r"\\(.)", r"\1", cell)


def as_text(name: str) -> str:
    """Return a name as a cell holds it: a spreadsheet must not compute it."""
    return f"'{name}" if name[0] in "=+-@\uff1d\uff0b\uff0d\uff20" else name


class TestHostileNames:
    @pytest.mark.parametrize("first", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
    def test_no_cell_of_text_is_a_formula(self, first: str):
        name = f"{first}cmd|' /C calc'!A0"
        agreed = plan(Survey("s", (Flags(name, (name, "a=b", "1")),)), q="0.45")
        read = list(csv.DictReader(io.StringIO(publish(agreed, counted(agreed, 50)).to_csv())))
        assert {row["question"] for row in read} == {f"'{name}"}
        assert [row["option"] for row in read] == [f"'{name}", "a=b", "1"]
        numbers = [float(row[column]) for row in read for column in NUMBERS]
        assert min(numbers) < 0  # an estimate may be, and stays a number

    @pytest.mark.slow
    @bounded(60)
    @for_all(hostile_plans(), st.sampled_from(HOSTILE))
    def test_no_name_does_harm_in_any_form(self, agreed: Plan, title: str):
        made = publish(agreed, counted(agreed, 50, simulated=True), title=title, date=title)
        page = check_harmless(made.to_html())
        assert json.loads(page.scripts[0]) == made.to_json()
        for inside in ("bdi", "title", "text", "desc"):
            assert page.said(inside)
        names = {name for pair in agreed.survey.labels for name in pair}
        assert names | {title} <= set(page.said("bdi"))
        check_harmless(notebook_html(made))
        check_harmless(notebook_html(made.estimates))
        read = list(csv.DictReader(io.StringIO(made.to_csv(), newline="")))
        written = [(row["question"], row["option"]) for row in read]
        assert written == [tuple(map(as_text, pair)) for pair in agreed.survey.labels]
        table = made.to_arrow()
        assert table["option"].to_pylist() == [label for _, label in agreed.survey.labels]
        markdown = made.to_markdown()
        assert not re.search(r"(?<!\\)<", markdown)
        cells = [
            re.split(r"(?<!\\)\|", line)[1].strip()
            for line in markdown.split("## How one")[0].splitlines()
            if line.startswith("| ") and not line.startswith("| option | count")
        ]
        assert [unescaped(cell) for cell in cells] == [label for _, label in agreed.survey.labels]


class TestFiles:
    def test_they_read_back(self, real: Publication, tmp_path: Path):
        document = real.to_json()
        wanted = [
            (question, label, *(row[name] for name in NUMBERS))
            for question, options in document["estimates"]["questions"].items()
            for label, row in options.items()
        ]
        for kind in ("html", "csv", "json", "parquet", "arrow", "md"):
            real.write(tmp_path / f"r.{kind}")
        assert sorted(path.suffix for path in tmp_path.iterdir()) == sorted(
            [".html", ".csv", ".json", ".parquet", ".arrow", ".md"]
        )
        assert json.loads((tmp_path / "r.json").read_text("utf-8")) == document
        assert (tmp_path / "r.html").read_text("utf-8") == real.to_html()
        with (tmp_path / "r.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [
            (row["question"], row["option"], *(float(row[name]) for name in NUMBERS))
            for row in rows
        ] == wanted
        assert {row["plan"] for row in rows} == {PLAN.id}
        assert {row["simulated"] for row in rows} == {"false"}
        for table in (
            pq.read_table(tmp_path / "r.parquet"),
            feather.read_table(tmp_path / "r.arrow"),
        ):
            columns = ("question", "option", *NUMBERS)
            assert list(zip(*(table[name].to_pylist() for name in columns), strict=True)) == wanted
            assert json.loads(table.schema.metadata[b"shoal"]) == document
        lines = (tmp_path / "r.md").read_text("utf-8").split("## How one")[0].splitlines()
        cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
        shown = [tuple(row) for row in cells if row[0] != "option"]
        rows_of = [row for o in document["estimates"]["questions"].values() for row in o.items()]
        assert shown == [(label, *Figures.of(row, 3000)) for label, row in rows_of]

    def test_names_that_cannot_be_written(self, real: Publication, tmp_path: Path):
        for name in ("r", "r.pdf", "r.htm"):
            with pytest.raises(InputError, match="must end in"):
                real.write(tmp_path / name)
        for kind in ("html", "json", "parquet"):
            with pytest.raises(InputError, match="cannot write"):
                real.write(tmp_path / "none" / f"r.{kind}")
        assert list(tmp_path.iterdir()) == []

    def test_notebooks(self, real: Publication):
        check_harmless(notebook_html(real))
        shown = notebook_html(real.estimates)
        page = check_harmless(shown)
        for question, options in real.estimates.items():
            for label, one in options.items():
                assert {label, f"{one.count:,.0f}", f"{one.share:.2%}"} <= set(page.said("bdi"))
            assert question in page.said("bdi")
        assert "<style" not in shown


class TestCommand:
    @pytest.fixture
    def at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        LOCAL.write("plan.json")
        counted(LOCAL, 200, simulated=True).write("tally.json")
        return tmp_path

    def test_it_writes_by_suffix(self, at: Path, capsys: pytest.CaptureFixture[str]):
        words = ["publish", "plan.json", "tally.json", "-o"]
        for kind in ("html", "csv", "json", "parquet", "arrow", "md"):
            assert run([*words, f"r.{kind}", "--title", "[bold]", "--date", "today"]) == 0
            said = capsys.readouterr()
            assert "[bold]: local: epsilon" in said.out
            assert "simulated data" in said.out
            assert (at / f"r.{kind}").stat().st_size > 500
        more = ["--level", "0.9", "--interval", "normal", "--target", "population", "--json"]
        assert run([*words, "r.json", *more]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document == json.loads((at / "r.json").read_text("utf-8"))
        assert document["estimates"]["interval"] == "normal"

    @pytest.mark.parametrize(
        "words",
        [
            ["plan.json", "tally.json"],
            ["plan.json", "tally.json", "-o", "r.pdf"],
            ["plan.json", "tally.json", "-o", "plan.json"],
            ["plan.json", "tally.json", "-o", "tally.json"],
            ["plan.json", "none.json", "-o", "r.html"],
            ["plan.json", "plan.json", "-o", "r.html"],
            ["plan.json", "tally.json", "-o", "none/r.html"],
            ["plan.json", "tally.json", "-o", "r.html", "--level", "95"],
            ["plan.json", "tally.json", "-o", "r.html", "--title", ""],
        ],
    )
    def test_bad_usage(self, at: Path, words: list[str], capsys: pytest.CaptureFixture[str]):
        before = (at / "plan.json").read_bytes()
        assert run(["publish", *words]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
        assert (at / "plan.json").read_bytes() == before
        assert not (at / "r.html").exists()


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    " --disable-background-networking --disable-component-update --disable-default-apps"
    " --disable-extensions --virtual-time-budget=3000"
).split()


@pytest.fixture(scope="module")
def hostile() -> Publication:
    half = len(HOSTILE) // 2
    questions = (Flags(HOSTILE[0], HOSTILE[:half]), Flags(HOSTILE[2], HOSTILE[half:]))
    agreed = plan(Survey(HOSTILE[1], questions), q="0.25")
    return publish(agreed, counted(agreed, 100, simulated=True), title=HOSTILE[0])


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium in PATH")
class TestBrowser:
    def browse(self, at: Path, *flags: str) -> str:
        assert CHROMIUM is not None
        nowhere = "--host-resolver-rules=MAP * ~NOTFOUND"
        words = [CHROMIUM, *FLAGS, nowhere, f"--user-data-dir={at / 'profile'}", *flags]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    def requests_of(self, at: Path, file: Path) -> tuple[str, set[str]]:
        """Open a file; return its DOM and what it asked for, not what the browser itself did."""
        log = at / f"{file.stem}.json"
        dom = self.browse(at, f"--log-net-log={log}", "--dump-dom", file.as_uri())
        written = json.loads(log.read_text("utf-8"))
        started = [event.get("params", {}) for event in written["events"]]
        urls = {
            params["url"]
            for params in started
            if "url" in params and params.get("initiator", "not an origin") != "not an origin"
        }
        return dom, urls

    def test_it_asks_nobody_for_anything(self, hostile: Publication, tmp_path: Path):
        control = tmp_path / "control.html"
        control.write_text('<img src="http://127.0.0.1:9/x.png">', "utf-8")
        assert "http://127.0.0.1:9/x.png" in self.requests_of(tmp_path, control)[1]
        hostile.write(tmp_path / "report.html")
        dom, urls = self.requests_of(tmp_path, tmp_path / "report.html")
        assert urls <= {(tmp_path / "report.html").as_uri()}
        assert html_escape(HOSTILE[0], quote=False) in dom
        assert "<img" not in dom

    @pytest.mark.parametrize("width", [360, 1200])
    def test_it_fits_the_screen(self, hostile: Publication, tmp_path: Path, width: int):
        """A page around it measures it, from outside: the report itself runs no script."""
        hostile.write(tmp_path / "report.html")
        around = f"""<!doctype html><iframe id="f" width="{width}" height="800"
        srcdoc="{escape(hostile.to_html())}" style="border:0"></iframe><script>
        f.onload = () => {{
          const inner = f.contentDocument, root = inner.documentElement;
          const beyond = [...inner.querySelectorAll("main *")].filter(e =>
            !e.closest(".scroll") && e.getClientRects().length
            && e.getBoundingClientRect().right > {width} + 1).length;
          document.body.dataset.found = JSON.stringify([root.scrollWidth, beyond,
            inner.querySelectorAll("svg").length, inner.querySelectorAll("img, b, iframe").length,
            inner.querySelector("h1").textContent, inner.title]);
        }};</script>"""
        (tmp_path / "around.html").write_text(around, "utf-8")
        dom = self.browse(
            tmp_path, "--window-size=1400,1000", "--dump-dom", (tmp_path / "around.html").as_uri()
        )
        (found,) = re.findall(r'<body data-found="([^"]*)"', dom)
        scroll, beyond, charts, intruders, title, name = json.loads(unescape(found))
        assert scroll <= width
        assert beyond == 0
        assert charts == 4  # the shares of each question
        assert intruders == 0
        assert title == name == HOSTILE[0]
