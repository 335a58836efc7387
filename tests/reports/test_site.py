"""A site of releases: its addresses, its pages, its feeds and badges, and what is written."""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shoal import Choice, Flags, Number, Plan, PrivacyRefusal, Survey, Tally, Text, plan
from shoal.analysis.crowds import Crowd
from shoal.cli import run
from shoal.errors import InputError, TallyError
from shoal.planning.certificate import certify
from shoal.planning.guarantees import guarantees_over_time
from shoal.protocol.plan import Promise
from shoal.reports.formatting import slug
from shoal.reports.protection import promise_of_releases
from shoal.reports.publication import publish
from shoal.reports.site import (
    MANIFEST,
    Pages,
    SiteRelease,
    check_crowds,
    check_public,
    is_immutable,
    site_pages,
    write_pages,
)
from tests.reports.test_publication import HOSTILE, Reader, counted

SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "dark mode"), titles={"sync": "Sync across devices"}),
        Choice("channel", ("release", "beta")),
        Number("age", (18, 65)),
        Text("word", bits=16, hashes=1, cohorts=2),
    ),
    title="What people use",
).cross("channel", "features=sync")
PLAN = plan(SURVEY, crowd_size=1000, epsilon=4, delta="1e-6", view="counts")
NEXT = plan(
    Survey("browser", (Choice("channel", ("release", "beta")), Choice("os", ("a", "b")))),
    crowd_size=1000,
    epsilon=1,
    delta="1e-6",
)
ATOM = "{http://www.w3.org/2005/Atom}"


def release(agreed: Plan, number: int, day: str = "") -> SiteRelease:
    made = replace(counted(agreed, 1000, number), crowds=(Crowd(1000, f"{number}", released=True),))
    return SiteRelease.of(agreed, made, day or f"2026-11-{number:02}")


def key(agreed: Plan, number: int) -> str:
    return f"browser/releases/{agreed.id[:12]}-{number}"


def made(pages: Pages) -> dict[str, str]:
    return {path: make().decode() for path, make in pages.items()}


THREE = [release(PLAN, number) for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def three() -> dict[str, str]:
    return made(site_pages(THREE))


class TestAddresses:
    def test_names_are_never_alike(self):
        """A name is its own address if it can be, and hashed if not."""
        assert [slug(name) for name in ("browser", "a-b-2")] == ["browser", "a-b-2"]
        names = [*HOSTILE, "Browser", "browser ", "BROWSER", "a b", "a_b", "..", "/", "\u4e00"]
        names += [slug(name) for name in names]  # which look like addresses of other names
        found = {slug(name) for name in names}
        assert len(found) == len(names)
        assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", one) for one in found)

    def test_each_release_has_its_own(self, three: dict[str, str]):
        for number in (1, 2, 3):
            folder = key(PLAN, number)
            files = {path.removeprefix(f"{folder}/") for path in three if folder in path}
            assert files == {"index.html", "estimates.json", "estimates.csv", "certificate.json"}
        assert all(is_immutable(path) == ("/releases/" in path) for path in three)

    def test_options_that_look_alike_have_two_badges(self):
        asked = Survey("s", (Flags("a b", ("x y", "x-y", "z", "!")), Flags("a-b", ("releases",))))
        agreed = plan(asked, q="0.25")
        pages = site_pages([SiteRelease.of(agreed, counted(agreed, 100), "")])
        badges = [path for path in pages if "/badge/" in path]
        assert len(badges) == len(set(badges)) == 2 + 4 + 1
        assert sum(path.endswith("/z.svg") for path in badges) == 1
        assert not any(is_immutable(path) for path in badges)


class TestPages:
    def test_numbers_are_those_of_the_publication(self, three: dict[str, str]):
        last = publish(PLAN, THREE[-1].read())
        assert json.loads(three["browser/latest.json"]) == last.to_json()
        assert three["browser/latest.csv"] == last.to_csv()
        for number in (1, 2, 3):
            document = publish(PLAN, THREE[number - 1].read()).to_json()
            assert json.loads(three[f"{key(PLAN, number)}/estimates.json"]) == document
            rows = list(csv.DictReader(io.StringIO(three[f"{key(PLAN, number)}/estimates.csv"])))
            assert {row["question"] for row in rows} >= {"features", "channel", "age"}
            certificate = json.loads(three[f"{key(PLAN, number)}/certificate.json"])
            assert certificate["certificate"] == document["certificate"]
            assert certificate["promise"] == document["promise"]
        shown = unescape(three["browser/index.html"])
        assert last.to_json()["promise"]["short"] in shown
        assert "reader of a release" in shown
        assert "What people use" in shown
        assert "Of the people in each row" in shown, "a cross table"

    def test_no_page_has_a_script_or_loads_anything(self, three: dict[str, str]):
        for path, text in three.items():
            if path.endswith(".html"):
                page = Reader(text)
                tags = {tag for tag, _ in page.elements}
                assert not tags & {"script", "img", "iframe", "object", "form", "base"}, path
                assert not any("src" in given or "style" in given for _, given in page.elements)

    def test_links_lead_to_files_of_the_site(self, three: dict[str, str]):
        followed = set()
        for path, text in three.items():
            for link in re.findall(r'href="([^"]+)"', text):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
                assert target in three, (path, link)
                followed.add(target)
        assert set(three) - followed == {"index.html"} - followed

    def test_a_later_release_changes_no_earlier_one(self, three: dict[str, str]):
        before = made(site_pages(THREE[:2]))
        for path, text in before.items():
            assert (three[path] == text) == is_immutable(path) or path == "browser/badge/age.svg"

    def test_trends_only_over_the_same_questions(self):
        releases = [*THREE, release(NEXT, 1, "2026-11-20"), release(NEXT, 2, "2026-11-21")]
        page = unescape(site_pages(releases)["browser/index.html"]().decode())
        headings = re.findall(r'<h2 id="trend-[^"]+"><bdi>([^<]+)</bdi>', page)
        assert headings == ["channel", "os"]
        tables = dict(re.findall(r'id="trend-(\d)-table"(.*?)</table>', page, re.DOTALL)[:])
        assert [tables[number].count('role="rowheader"') for number in ("1", "2")] == [5, 2]
        assert "The survey had 2 plans" in page

    def test_the_newest_comes_first_whatever_its_number(self):
        releases = [release(PLAN, number, "2026-11-01") for number in (9, 10)]
        page = site_pages(releases)["browser/index.html"]().decode()
        found = re.findall(r'href="releases/[0-9a-f]{12}-(\d+)/index', page)
        assert found == ["10", "9"]

    def test_hostile_names_are_text_everywhere(self):
        words = {f"o{place}": text for place, text in enumerate(HOSTILE)}
        asked = Flags(HOSTILE[0], tuple(words), title=HOSTILE[1], text=HOSTILE[2], titles=words)
        agreed = plan(Survey(HOSTILE[3], (asked,), title=HOSTILE[4]), q="0.25")
        both = [SiteRelease.of(agreed, counted(agreed, 100, n).named(HOSTILE[0]), "2026-11-01")
                for n in (1,)]  # fmt: skip
        both.append(replace(both[0], name="x", label=HOSTILE[2]))
        for path, text in made(site_pages(both)).items():
            if path.endswith((".atom", ".svg")):
                ElementTree.fromstring(text)
            elif path.endswith(".html"):
                page = Reader(text)
                assert page.open == []
                assert not {tag for tag, _ in page.elements} & {"script", "img", "b"}
                assert not any(name.startswith("on") for _, at in page.elements for name in at)

    def test_a_release_is_given_once(self):
        with pytest.raises(InputError, match="given twice"):
            site_pages([THREE[0], THREE[0]])

    def test_an_empty_site(self):
        pages = made(site_pages([]))
        assert set(pages) == {"index.html", "feed.atom"}
        assert "There is no release yet" in pages["index.html"]


class TestPromise:
    def test_of_several_releases_is_that_of_their_composition(self, three: dict[str, str]):
        composed = guarantees_over_time(PLAN, 3)[-1]
        certificate = certify(PLAN).compose(3)
        assert (composed.kind, composed.delta) == ("proven", 1e-6)
        assert composed.epsilon >= certificate.epsilon(delta=1e-6) * (1 - 1e-6)
        page = unescape(three["browser/index.html"])
        found = re.search(r"is in all 3 releases, the promises compose: epsilon ([\d.]+)", page)
        assert found is not None
        assert composed.epsilon <= float(found[1]) <= composed.epsilon * 1.001
        for number in (1, 2, 3):
            assert "releases, the promises compose" not in three[f"{key(PLAN, number)}/index.html"]

    def test_plans_add_up(self):
        parts = [guarantees_over_time(one, count)[-1] for one, count in ((PLAN, 2), (NEXT, 1))]
        words = promise_of_releases({PLAN: 2, NEXT: 1})
        found = re.search(r"all 3 releases.*epsilon ([\d.]+), delta ([\de.-]+),", words)
        assert found is not None
        assert sum(one.epsilon for one in parts) <= float(found[1])
        assert float(found[2]) >= 2e-6

    def test_without_a_crowd_only_local_bounds_are_claimed(self):
        words = promise_of_releases({plan(NEXT.survey, q="0.25"): 4})
        assert "no crowd is relied on" in words
        assert "(local)" in words

    def test_what_is_no_guarantee_is_not_public(self):
        unproven = plan(NEXT.survey, crowd_size=1000, epsilon=1, promise="three-sigma")
        with pytest.raises(PrivacyRefusal, match="no guarantee for readers"):
            check_public(unproven)
        check_public(replace(NEXT, promise=Promise("local", "40")))

    def test_crowds_are_published_once(self):
        first, second = (counted(NEXT, 1000, seed).named("a") for seed in (1, 2))
        with pytest.raises(TallyError, match="crowd a is in two tallies"):
            check_crowds([first, second])
        check_crowds([first, counted(NEXT, 1000, 2).named("b"), counted(NEXT, 1000)])


class TestFeedsAndBadges:
    def test_a_feed_is_atom(self, three: dict[str, str]):
        for path, prefix in (("feed.atom", ""), ("browser/feed.atom", "../")):
            feed = ElementTree.fromstring(three[path])
            assert feed.tag == f"{ATOM}feed"
            for name in ("id", "title", "updated", "author"):
                assert feed.find(f"{ATOM}{name}") is not None
            entries = feed.findall(f"{ATOM}entry")
            days = [entry.findtext(f"{ATOM}updated") for entry in entries]
            assert days == [f"2026-11-0{number}T00:00:00Z" for number in (3, 2, 1)]
            links = [entry.find(f"{ATOM}link") for entry in entries]
            assert links[0] is not None
            assert links[0].get("href") == f"{prefix}{key(PLAN, 3)}/index.html"
            assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == 3

    def test_links_are_absolute_if_the_address_is_known(self):
        for url in ("https://x.example/r", "https://x.example/r/"):
            for path in ("feed.atom", "browser/feed.atom"):
                text = site_pages(THREE[:1], url)[path]().decode()
                hrefs = re.findall(r'href="([^"]+)"', text)
                where = "https://x.example/r/"
                assert hrefs == [f"{where}{path}", f"{where}{key(PLAN, 1)}/index.html"]

    def test_a_badge_says_count_and_interval(self, three: dict[str, str]):
        row = json.loads(three["browser/latest.json"])["estimates"]["questions"]["features"]
        badge = ElementTree.fromstring(three["browser/badge/features/dark-mode.svg"])
        name, value = (one.text or "" for one in badge.findall("{http://www.w3.org/2000/svg}text"))
        assert name == "dark mode"
        count, _, reports = value.partition(" of ")
        assert reports == "1,000"
        middle, margin = (int(part.replace(",", "")) for part in count.split(" ± "))
        low, high = row["dark mode"]["low"], row["dark mode"]["high"]
        assert middle - margin <= low <= high <= middle + margin
        assert middle == round(row["dark mode"]["constrained"])
        told = badge.findtext("{http://www.w3.org/2000/svg}title") or ""
        assert value in told
        assert badge.get("aria-label") == told
        assert "Sync across devices" in three["browser/badge/features/sync.svg"]

    def test_simulated_data_say_so(self):
        agreed = plan(Survey("s", (Flags("f", ("a",)),)), q="0.25")
        one = SiteRelease.of(agreed, counted(agreed, 100, simulated=True), "")
        pages = made(site_pages([one]))
        for path in ("s/index.html", "s/badge/f.svg", "s/badge/f/a.svg"):
            assert "simulated data" in pages[path]


class TestFolders:
    def test_it_writes_what_changed_and_no_release_again(self, tmp_path: Path):
        first = write_pages(tmp_path, site_pages(THREE[:2]))
        assert set(first.written) == set(site_pages(THREE[:2]))
        assert write_pages(tmp_path, site_pages(THREE[:2])).written == []
        kept = tmp_path / key(PLAN, 1) / "index.html"
        kept.write_text("as it was written by an earlier version")
        change = write_pages(tmp_path, site_pages(THREE))
        assert {path for path in change.written if is_immutable(path)} == {
            path for path in site_pages(THREE) if key(PLAN, 3) in path
        }
        assert kept.read_text().startswith("as it was")
        assert change.removed == []

    def test_it_removes_its_own_files_only(self, tmp_path: Path):
        write_pages(tmp_path, site_pages(THREE))
        mine = [tmp_path / "CNAME", tmp_path / key(PLAN, 1) / "note.txt"]
        for path in mine:
            path.write_text("mine")
        change = write_pages(tmp_path, site_pages(THREE[1:]))
        assert sorted(change.removed) == [path for path in sorted(site_pages(THREE))
                                          if key(PLAN, 1) in path]  # fmt: skip
        write_pages(tmp_path, {})
        left = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert left == {*mine, tmp_path / MANIFEST}
        assert not (tmp_path / key(PLAN, 2)).exists()

    def test_a_hidden_release_is_on_no_page_though_the_next_step_fails(self, tmp_path: Path):
        write_pages(tmp_path, site_pages(THREE))

        def fail() -> bytes:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_pages(tmp_path, dict.fromkeys(site_pages(THREE[:2]), fail))
        text = "".join(one.read_text() for one in tmp_path.rglob("*.html"))
        assert "crowd 1" in text
        assert "crowd 3" not in text
        assert not (tmp_path / "browser" / "latest.json").exists()

    def test_a_file_in_the_way_is_refused_before_anything_is_written(self, tmp_path: Path):
        (tmp_path / "index.html").write_text("mine")
        with pytest.raises(InputError, match="exists and is not of a site"):
            write_pages(tmp_path, site_pages(THREE))
        assert [path.name for path in tmp_path.iterdir()] == ["index.html"]

    @pytest.mark.slow
    def test_an_interrupted_site_is_completed(self, tmp_path: Path):
        def fail() -> bytes:
            raise KeyboardInterrupt

        pages = site_pages(THREE)
        broken = pages | {f"{key(PLAN, 2)}/index.html": fail}
        with pytest.raises(KeyboardInterrupt):
            write_pages(tmp_path, broken)
        write_pages(tmp_path, site_pages([*THREE, release(PLAN, 4)]))
        write_pages(tmp_path, pages)
        for path, text in made(pages).items():
            assert (tmp_path / path).read_bytes() == text.encode()
        assert not list(tmp_path.rglob("*.part"))

    def test_a_list_of_files_elsewhere_is_refused(self, tmp_path: Path):
        for path in ("../secret.txt", "/etc/passwd", "a/../../b.html"):
            (tmp_path / MANIFEST).write_text(json.dumps({"pages": [path], "days": {}}))
            with pytest.raises(InputError, match="damaged"):
                write_pages(tmp_path, {})


class TestCommand:
    @pytest.fixture
    def at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        PLAN.write("plan.json")
        NEXT.write("next.json")
        for name, agreed, seed in (("t1", PLAN, 1), ("t2", PLAN, 2), ("n1", NEXT, 1)):
            counted(agreed, 1000, seed).named(name).write(f"{name}.json")
        Path("results.json").write_text(json.dumps({"plan": PLAN.to_json(), "estimates": {}}))
        return tmp_path

    def files(self, folder: Path) -> dict[str, bytes]:
        found = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    def test_files_of_several_plans_in_any_order(self, at: Path):
        assert run(["site", "out", "t1.json", "next.json", "plan.json", "n1.json"]) == 0
        written = self.files(at / "out")
        assert {".nojekyll", "index.html", "browser/index.html"} <= set(written)
        assert f"browser/releases/{NEXT.id[:12]}-n1/index.html" in written
        assert run(["site", "out", "t1.json", "n1.json", "plan.json", "next.json"]) == 0
        assert self.files(at / "out") == written, "the same site again"

    def test_a_release_keeps_its_day(self, at: Path, monkeypatch: pytest.MonkeyPatch):
        for day in ("2026-11-01", "2026-11-09"):
            monkeypatch.setattr("shoal.cli.publish._today", lambda day=day: day)
            more = ["t2.json"] if day.endswith("9") else []
            assert run(["site", "out", "plan.json", "t1.json", *more]) == 0
        feed = (at / "out" / "feed.atom").read_text()
        assert re.findall("<updated>(.*)T", feed) == ["2026-11-09", "2026-11-09", "2026-11-01"]

    def test_mistakes(self, at: Path, capsys: pytest.CaptureFixture[str]):
        for words, sentence in (
            ("", "give the files of plans and tallies, or --collector"),
            ("t1.json", "add its plan"),
            ("plan.json results.json", "is not a tally of one of the plans"),
            ("plan.json t1.json t1.json", "in two tallies"),
            ("plan.json t1.json --url ftp://x", "--url must begin with"),
            ("--collector http://127.0.0.1:1", "--token-file"),
            ("plan.json t1.json --collector http://127.0.0.1:1", "or --collec"),
        ):
            assert run(["site", "out", *words.split()]) == 2, words
            assert sentence in capsys.readouterr().err
        assert not (at / "out").exists()

    def test_an_unproven_plan_is_refused(self, at: Path, capsys: pytest.CaptureFixture[str]):
        unproven = plan(NEXT.survey, crowd_size=1000, epsilon=1, promise="three-sigma")
        unproven.write("u.json")
        counted(unproven, 1000).write("tu.json")
        assert run(["site", "out", "u.json", "tu.json"]) == 3
        assert "no guarantee for readers" in capsys.readouterr().err


def test_a_tally_of_several_crowds_counts_each(tmp_path: Path):
    tallies = [counted(NEXT, 1000, seed).named(f"{seed}") for seed in (1, 2)]
    both: Tally = tallies[0] + tallies[1]
    releases = [
        SiteRelease.of(NEXT, both, ""),
        SiteRelease.of(NEXT, counted(NEXT, 1000, 3).named("3"), ""),
    ]
    page = unescape(site_pages(releases)["browser/index.html"]().decode())
    assert "is in all 3 releases" in page
