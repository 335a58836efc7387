"""Questions on a page in the form of their kind, and several crowds as a folder of pages."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from shoal import Choice, Flags, Number, Survey, Text, YesNo, plan, publish, simulate
from shoal.analysis.cross_tables import cross_table
from shoal.analysis.text.decode import decode
from shoal.cli import run
from shoal.errors import InputError
from shoal.reports import Publication, sections
from shoal.reports.formatting import (
    PlainShare,
    plain_shares,
)
from shoal.reports.sections import lead
from shoal.reports.site import SiteRelease, site_pages
from tests.reports.test_publication import HOSTILE, check_harmless, counted
from tests.strategies import bounded

SURVEY = Survey(
    "people",
    (
        Flags("uses", ("sync", "vpn")),
        Choice("channel", ("release", "beta", "nightly")),
        Number("age", (18, 35, 65)),
        YesNo("smokes"),
    ),
).cross("channel", "smokes")
PLAN = plan(SURVEY, q="0.05")
WORDS = plan(Survey("words", (Text("word", bits=64, hashes=1, cohorts=8),)), q="0.05")


class TestShares:
    @bounded(300)
    @for_all(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(1e-6, 0.5))
    def test_what_is_printed_adds_to_a_hundred(self, counts: list[float], reach: float):
        total = sum(counts)
        if total == 0:
            counts, total = [1.0] * len(counts), float(len(counts))
        shares = [count / total for count in counts]
        ends = [(share - reach, share + reach) for share in shares]
        made = plain_shares(shares, ends, adds_up=True)
        decimals = made[0].decimals
        steps = [round(float(one.number.removesuffix("\u202f%")) * 10**decimals) for one in made]
        assert sum(steps) == 100 * 10**decimals
        for step, share in zip(steps, shares, strict=True):
            assert abs(step - share * 100 * 10**decimals) < 1 + 1e-6

    @bounded(500)
    @for_all(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3))
    def test_what_is_said_contains_the_interval(self, a: float, b: float, c: float, digits: int):
        """Whatever form it has: the range that is read off is possible and not too narrow."""
        low, share, high = sorted((a, b, c))
        one = PlainShare(share, low, high, digits)
        first, last = stated(one.text)
        assert 0 <= first <= last <= 1
        assert first <= low + 1e-12
        assert high - 1e-12 <= last
        ends = [float(end) / 100 for end in one.ends]
        assert ends[0] <= low + 1e-12
        assert high - 1e-12 <= ends[1]

    def test_differences_are_in_points(self):
        tallies = [counted(PLAN, 500, n) for n in range(2)]
        releases = [SiteRelease.of(PLAN, one, "") for one in tallies]
        text = unescape(site_pages(releases)[f"{PLAN.survey.name}/index.html"]().decode())
        assert "percentage points" in text
        assert re.search(r"[+\N{MINUS SIGN}]\d+\.\d points", text)
        assert not re.search(r"[+\N{MINUS SIGN}]\d+\.\d\u202f%", text)


def stated(text: str) -> tuple[float, float]:
    """Read a range off a plain share as a person would, in fractions of one."""
    plain = text.replace("\u202f", "").replace("%", "")
    if plain == "not known":
        return 0.0, 1.0
    numbers = [Decimal(number) for number in re.findall(r"[\d.]+", plain)]
    if "±" in plain:
        middle, margin = numbers
        ends = middle - margin, middle + margin
    elif "to" in plain:
        ends = numbers[1], numbers[2]
    else:
        ends = (Decimal(0), numbers[0]) if "most" in plain else (numbers[0], Decimal(100))
    return float(ends[0] / 100), float(ends[1] / 100)


class TestSections:
    def test_each_kind_has_its_form(self):
        made = publish(PLAN, counted(PLAN, 2000))
        document, page = made.to_json(), check_harmless(made.to_html())
        text = unescape(made.to_html())
        assert text.count("intervals and unbiased estimates</summary>") == 5
        assert "channel: share of each answer" in text
        assert "uses: share of each answer" in text
        assert "age: histogram" in text
        assert (
            document["crosses"]["channel x smokes"]
            == cross_table(PLAN, made.estimates.tally, "channel x smokes").to_json()
        )
        for cell in document["crosses"]["channel x smokes"]["table"]:
            assert f"{round(cell['constrained']):,}" in page.said("strong")
        assert "channel by smokes" in page.said("bdi")
        for quantile in document["numbers"]["age"]["quantiles"]:
            assert quantile["label"] in page.said("dd")

    def test_the_lead_is_the_largest_share(self):
        asked = YesNo("y", missing="option", titles={"no": "Never"})
        agreed = plan(Survey("s", (asked,)), q="0.25")
        rows = {
            label: {"constrained": count, "low": count - 20, "high": count + 20}
            for label, count in zip(asked.labels, (100, 700, 200), strict=True)
        }
        estimates = {"questions": {"y": rows}, "reports": 1000, "crowds": [], "people": None}
        found = lead(agreed.survey["y"], estimates)
        assert (found.number, found.answer) == ("70\u202f% ± 2", "Never")
        nothing = {label: row | {"low": -10, "high": 1010} for label, row in rows.items()}
        assert lead(asked, estimates | {"questions": {"y": nothing}}).number == "Not known"
        missing = {label: rows["no" if label == "(missing)" else "(missing)"] for label in rows}
        found = lead(asked, estimates | {"questions": {"y": missing}})
        assert (found.of, found.answer) == ("of people gave no answer", "")

    def test_a_mean_that_can_be_anything_is_not_known(self):
        agreed = plan(Survey("s", (Number("n", low=0, high=9, points=4),)), q="0.49")
        few = publish(agreed, counted(agreed, 3)).to_json()
        mean = few["numbers"]["n"]["mean"]
        assert (mean["low"], mean["high"]) == (0, 9)
        found = lead(agreed.survey["n"], few["estimates"], few["numbers"]["n"])
        assert found.number == "Not known"

    def test_an_unknown_share_is_no_bar_and_no_number(self):
        """Its interval is drawn in full."""
        asked = Survey("s", (Choice("c", ("a", "b")), YesNo("y"))).cross("c", "y")
        agreed = plan(asked, q="0.49")
        made = publish(agreed, counted(agreed, 3))
        document, found = made.to_json(), sections.question_sections(asked, made.to_json())
        wide = found[0]["charts"][0]
        assert wide.count("not known, interval from 0\u202f% to 100\u202f%") == 4
        assert wide.count('width="0.5"') == 2
        cells = [cell for row in found[2]["slices"][0]["matrix"].rows for cell in row.cells[:-1]]
        assert {(cell.value, cell.interval, cell.shade) for cell in cells} == {("?", "0–100", None)}
        assert document["estimates"]["reports"] == 3

    def test_labels_below_columns_are_whole(self):
        for edges in (3, 8, 12, 20):
            asked = Number("n", tuple(range(0, 10 * edges, 10)), unit="kg", missing="option")
            agreed = plan(Survey("s", (asked,)), q="0.05")
            found = publish(agreed, counted(agreed, 2000)).to_json()
            for drawn in sections.question_sections(agreed.survey, found)[0]["charts"]:
                words = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
                assert words.count("(missing)") == 1, edges
                assert any("below 0" in one or one == "below" for one in words), edges

    def test_many_cells_are_a_list(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sections, "MAX_CELLS", 5)
        made = publish(PLAN, counted(PLAN, 2000))
        assert made.to_json()["crosses"] == {}
        assert "channel by smokes: share of each answer" in made.to_html()

    def test_crowds_of_the_same_people_have_no_test(self):
        tallies = [counted(PLAN, 2000, seed).named(f"crowd {seed}") for seed in (1, 2)]
        made = publish(PLAN, tallies[0] + tallies[1])
        assert made.to_json()["crosses"] == {}
        assert "answers" in made.to_html()

    def test_three_crossed_questions_are_slices(self):
        agreed = plan(
            Survey("s", (YesNo("a"), YesNo("b"), YesNo("c"))).cross("a", "b", "c"), q="0.05"
        )
        text = unescape(publish(agreed, counted(agreed, 2000)).to_html())
        assert [f"a: {value}" in text for value in ("yes", "no")] == [True, True]
        assert text.count("b (rows) by c (columns)") == 2

    def test_many_ranges_are_bars_and_some_are_columns(self):
        for edges, histogram in ((10, True), (60, False)):
            agreed = plan(Survey("s", (Number("n", tuple(range(edges))),)), q="0.05")
            text = publish(agreed, counted(agreed, 2000)).to_html()
            assert ("n: histogram" in text) is histogram
            check_harmless(text)

    def test_texts_are_listed_with_their_rate(self):
        run_ = simulate(WORDS, users=3000, seed=1, texts={"tea": 2.0, "coffee": 1.0})
        tally = run_.estimates.tally
        decoded = decode(WORDS, tally, ["tea", "coffee", "cocoa", "<b>x"], fdr=0.1)
        made = publish(WORDS, tally, texts=[decoded])
        check_harmless(made.to_html())
        assert made.to_json()["texts"] == {"word": decoded.to_json()}
        text = unescape(made.to_html())
        assert "2 of 4 candidates were found. On average at most 10 %" in text
        assert re.findall(r'<th scope="row"><bdi>(\w+)</bdi>', text)[:2] == ["tea", "coffee"]
        other = simulate(WORDS, users=2000, seed=1, texts={"tea": 1.0}).estimates.tally
        with pytest.raises(InputError, match="decode this tally"):
            publish(WORDS, other, texts=[decoded])


class TestWords:
    """People read titles; JSON and files keep names, and carry the titles beside them."""

    TITLES: ClassVar = {"sync": "Sync across devices", "vpn": "\u05d0\u05d1 \U0001f41f"}
    SURVEY = Survey(
        "browser",
        (
            Flags("uses", ("sync", "vpn", "zoom"), title="Features", text="Which?", titles=TITLES),
            Number("age", (18, 35), unit="years", titles={"below 18": "minors"}),
            Number("online", low=0, high=12, points=4, unit="hours"),
            YesNo("smokes", title="Smoking", titles={"yes": "I do", "no": "I do not"}),
        ),
        title="What people use",
        text="First.\n\nSecond.",
    ).cross("uses=sync", "smokes")
    PLAN = plan(SURVEY, q="0.05")

    @pytest.fixture
    def made(self) -> Publication:
        return publish(self.PLAN, counted(self.PLAN, 2000))

    def test_the_page_has_them(self, made: Publication):
        page = check_harmless(made.to_html())
        said = page.said("bdi") + page.said("text")
        for words in ("What people use", "First.", "Second.", "Features", "Which?", "Smoking",
                      "I do", "I do not", "minors", "35 and above", *self.TITLES.values(),
                      "Features: Sync across devices by Smoking"):  # fmt: skip
            assert words in said, words
        assert "What people use" in page.said("title")
        assert any(text.endswith(" hours") for text in page.said("strong"))
        assert "years" in page.said("text")
        assert "uses" in said  # the name in files

    def test_files_have_names_and_titles(self, made: Publication):
        document = made.to_json()
        assert list(document["estimates"]["questions"]["uses"]) == ["sync", "vpn", "zoom"]
        assert document["words"]["uses"] == {
            "title": "Features",
            "options": self.TITLES | {"zoom": "zoom"},
        }
        rows = list(csv.DictReader(io.StringIO(made.to_csv())))
        first = rows[0]
        assert (first["question"], first["option"]) == ("uses", "sync")
        assert (first["question_title"], first["option_title"]) == (
            "Features",
            "Sync across devices",
        )
        assert made.to_arrow().column("option_title").to_pylist()[0] == "Sync across devices"
        text = made.to_markdown()
        assert "## Features" in text
        assert "Sync across devices (sync)" in text

    def test_hostile_words_are_text(self):
        words = {f"o{place}": text for place, text in enumerate(HOSTILE)}
        asked = Flags("f", tuple(words), title=HOSTILE[0], text=HOSTILE[1], titles=words)
        agreed = plan(Survey("s", (asked,), title=HOSTILE[2], text=HOSTILE[3]), q="0.25")
        made = publish(agreed, counted(agreed, 100))
        page = check_harmless(made.to_html())
        assert set(HOSTILE) <= set(page.said("bdi"))
        rows = list(csv.DictReader(io.StringIO(made.to_csv())))
        assert [row["option_title"] for row in rows if row["option"] == "o10"] == ["'=1+1"]


class TestCommands:
    @pytest.fixture
    def at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        PLAN.write("plan.json")
        for seed in (1, 2):
            counted(PLAN, 500, seed, simulated=True).write(f"t{seed}.json")
        return tmp_path

    def test_preview_writes_and_opens(self, at: Path, monkeypatch: pytest.MonkeyPatch):
        opened: list[str] = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        assert run(["preview", "plan.json", "t1.json", "t2.json", "-o", "site"]) == 0
        index = at / "site" / PLAN.survey.name / "index.html"
        assert opened == [index.as_uri()]
        assert "simulated data" in index.read_text()
        assert "over releases" in index.read_text()
        assert run(["preview", "plan.json", "t1.json", "-o", "site", "--no-open"]) == 2
        assert len(opened) == 1

    def test_preview_takes_a_temporary_folder(self, at: Path, capsys: pytest.CaptureFixture[str]):
        assert run(["preview", "plan.json", "t1.json", "--no-open", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert {"index.html", f"{PLAN.survey.name}/index.html"} <= set(document["pages"])
        assert Path(document["index"]).exists()

    def test_several_tallies_are_published_as_a_folder(
        self, at: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert run(["publish", "plan.json", "t1.json", "t2.json", "-o", "r.html"]) == 2
        assert "make a folder" in capsys.readouterr().err
        assert run(["publish", "plan.json", "t1.json", "t2.json", "-o", "pages"]) == 0
        assert (at / "pages" / PLAN.survey.name / "index.html").exists()

    def test_candidates(self, at: Path, capsys: pytest.CaptureFixture[str]):
        WORDS.write("words.json")
        run_ = simulate(WORDS, users=3000, seed=1, texts={"tea": 2.0, "coffee": 1.0})
        run_.estimates.tally.write("w.json")
        (at / "c.txt").write_text("tea\ncoffee\ncocoa\n")
        words = ["publish", "words.json", "w.json", "-o", "r.html", "--decode", "c.txt"]
        assert run(words) == 0
        assert "2 of 3 candidates were found" in (at / "r.html").read_text("utf-8")
        assert run([*words, "--question", "nothing"]) == 2

    def test_an_open_crowd_is_not_shown(self, at: Path, capsys: pytest.CaptureFixture[str]):
        agreed = plan(SURVEY, crowd_size=1000, epsilon=4, delta="1e-6")
        agreed.write("crowd.json")
        whole, part = counted(agreed, 1000), counted(agreed, 999)
        whole.write("whole.json")
        part.write("part.json")
        words = ["preview", "crowd.json", "whole.json", "part.json", "--no-open", "-o", "site"]
        assert run(words) == 3
        assert "wait for the whole crowd" in capsys.readouterr().err
        assert not (at / "site").exists()
