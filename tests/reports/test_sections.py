"""Questions on a page in the form of their kind, and several crowds as a folder of pages."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from shoal import Choice, Flags, Number, Survey, Text, YesNo, plan, publish, simulate
from shoal.analysis.cross_tables import cross_table
from shoal.analysis.text.decode import decode
from shoal.analysis.trends import trend
from shoal.cli import run
from shoal.errors import InputError
from shoal.reports import sections
from shoal.reports.formatting import whole_shares
from shoal.reports.page import site
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
    @for_all(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0.01, 1e4))
    def test_what_is_printed_adds_to_a_hundred(self, counts: list[float], sigma: float):
        total = sum(counts)
        if total == 0:
            counts, total = [1.0] * len(counts), float(len(counts))
        reports = 10_000
        rows = {
            str(place): {"constrained": count / total * reports, "sigma": sigma}
            for place, count in enumerate(counts)
        }
        shown = [text.removesuffix("\u202f%") for text in whole_shares(rows, reports).values()]
        decimals = len(shown[0].partition(".")[2])
        steps = [round(float(text) * 10**decimals) for text in shown]
        assert sum(steps) == 100 * 10**decimals
        for step, row in zip(steps, rows.values(), strict=True):
            exact = row["constrained"] / reports * 100 * 10**decimals
            assert abs(step - exact) < 1 + 1e-6


class TestSections:
    def test_each_kind_has_its_form(self):
        made = publish(PLAN, counted(PLAN, 2000))
        document, page = made.to_json(), check_harmless(made.to_html())
        text = unescape(made.to_html())
        assert text.count("Unconstrained estimates") == 3
        assert "channel: shares that add to 100 %" in text
        assert "age: histogram" in text
        assert (
            document["crosses"]["channel x smokes"]
            == cross_table(PLAN, made.estimates.tally, "channel x smokes").to_json()
        )
        for cell in document["crosses"]["channel x smokes"]["table"]:
            assert f"{round(cell['constrained']):,}" in page.said("strong")
        for quantile in document["numbers"]["age"]["quantiles"]:
            assert quantile["label"] in page.said("dd")

    def test_many_cells_are_a_list(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sections, "MAX_CELLS", 5)
        made = publish(PLAN, counted(PLAN, 2000))
        assert made.to_json()["crosses"] == {}
        assert "channel x smokes: shares that add to 100 %" in made.to_html()

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
        assert [f"a: {value}" in text for value in ("a", "not a")] == [True, True]
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


class TestSite:
    def test_its_pages_are_those_of_the_documents(self):
        tallies = [counted(PLAN, 1000, seed) for seed in (1, 2, 3)]
        made = {f"week {n}": publish(PLAN, tally) for n, tally in enumerate(tallies)}
        pages = site(made)
        assert sorted(pages) == [
            "crowd-1.html", "crowd-2.html", "crowd-3.html", "difference-2-1.html",
            "difference-3-2.html", "index.html", "trend.html",
        ]  # fmt: skip
        (block,) = re.findall(r'id="document">(.*?)</script>', pages["trend.html"])
        assert json.loads(block) == trend(PLAN, tallies).to_json()
        links = set(re.findall(r'href="([^"]+)"', pages["index.html"]))
        assert links == set(pages) - {"index.html"}
        assert pages["crowd-2.html"] == made["week 1"].to_html()
        ids = re.findall(r' id="([^"]+)"', pages["trend.html"])
        assert len(set(ids)) == len(ids)

    def test_names_are_text(self):
        agreed = plan(Survey(HOSTILE[0], (Flags(HOSTILE[1], HOSTILE[2:5]),)), q="0.25")
        made = {
            name: publish(agreed, counted(agreed, 200, seed))
            for seed, name in enumerate(HOSTILE[:3])
        }
        plain = plan(Survey("s", (Flags("f", ("a", "b", "c")),)), q="0.25")
        usual = {f"{n}": publish(plain, counted(plain, 200, n)) for n in range(3)}
        for name, text in site(made).items():
            model = site(usual)[name]
            tags = [set(re.findall(r"<(\w+)", page)) for page in (text, model)]
            assert tags[0] == tags[1], name

    def test_what_a_site_is_made_of(self):
        with pytest.raises(InputError, match="at least one"):
            site({})
        other = plan(Survey("s", (YesNo("a"),)), q="0.25")
        both = {"a": publish(PLAN, counted(PLAN, 100)), "b": publish(other, counted(other, 100))}
        with pytest.raises(InputError, match="of one plan"):
            site(both)


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
        assert opened == [(at / "site" / "index.html").as_uri()]
        assert "simulated data" in (at / "site/trend.html").read_text()
        assert run(["preview", "plan.json", "t1.json", "-o", "site", "--no-open"]) == 2
        assert len(opened) == 1

    def test_preview_takes_a_temporary_folder(self, at: Path, capsys: pytest.CaptureFixture[str]):
        assert run(["preview", "plan.json", "t1.json", "--no-open", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["pages"] == ["crowd-1.html", "index.html"]
        assert Path(document["index"]).exists()

    def test_several_tallies_are_published_as_a_folder(
        self, at: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert run(["publish", "plan.json", "t1.json", "t2.json", "-o", "r.html"]) == 2
        assert "make a folder" in capsys.readouterr().err
        assert run(["publish", "plan.json", "t1.json", "t2.json", "-o", "pages"]) == 0
        assert (at / "pages" / "difference-2-1.html").exists()

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
