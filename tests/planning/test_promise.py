"""A plan that breaks its own promise gets no theorem, from anybody."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal import (
    Choice,
    Flags,
    Plan,
    PrivacyRefusal,
    Survey,
    Tally,
    Text,
    estimate,
    plan,
    publish,
    simulate,
)
from shoal.analysis.association import associate
from shoal.analysis.screening import screen
from shoal.analysis.text.decode import decode
from shoal.analysis.text.discovery import discover
from shoal.cli import run
from shoal.device.encode import encode
from shoal.device.randomize import flip, pack_reports
from shoal.errors import InputError, PlanError
from shoal.lab.study import study
from shoal.planning import certificate as auditing
from shoal.planning.certificate import check_promise, compute_promise
from shoal.planning.text_size import discovery_survey
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.promise import read_certificate
from shoal.reports import Publication
from shoal.server.console.views import promise_in_words
from shoal.server.core import administration as publication
from shoal.server.core.settings import Settings
from shoal.server.storage.records import PlanRecord
from shoal.theory.domains import flags
from shoal.theory.enumeration import worst_delta
from tests.strategies import bounded

SURVEY = Survey("browser", (Flags("features", ("sync", "vpn")), Choice("os", ("mac", "linux"))))
KEPT = plan(SURVEY, crowd_size=1000, epsilon=1, delta="1e-6")
SUFFICIENT = plan(SURVEY, crowd_size=1000, epsilon=1, eta="1e-3")
RULE = plan(SURVEY, crowd_size=1000, epsilon=1, promise="three-sigma")
WORDS = plan(Survey("w", (Text("word", 16, 1, 4),)), crowd_size=1000, epsilon=1, delta="1e-6")
LITTLE = FlipProbability(1, 3)
LAYERS = Memory(FlipProbability(1, 2), FlipProbability(1, 2))

BROKEN = {
    "q": replace(KEPT, q=LITTLE),
    "one digit of q": replace(KEPT, q=FlipProbability.of_fraction(KEPT.q.fraction * 99 / 128)),
    "crowd": replace(KEPT, crowd_size=900),
    "crowd of one": replace(KEPT, crowd_size=1),
    "epsilon": replace(KEPT, promise=Promise("proven", "0.9", "1e-6")),
    "delta": replace(KEPT, promise=Promise("proven", "1", "1e-7")),
    "no delta": replace(KEPT, promise=Promise("proven", "1", "0")),
    "reports": replace(KEPT, max_reports_per_person=2),
    "memory and reports": replace(KEPT, q=LAYERS.q, memory=LAYERS, max_reports_per_person=2),
    "memory and cohorts": replace(WORDS, q=LAYERS.q, memory=LAYERS),
    "eta": replace(SUFFICIENT, q=LITTLE),
    "eta of several reports": replace(SUFFICIENT, max_reports_per_person=2),
    "three-sigma": replace(RULE, q=LITTLE),
    "three-sigma of several reports": replace(RULE, max_reports_per_person=2),
}


@cache
def certificate(plan: Plan) -> bytes:
    return publication.certificate(plan, Settings())


def counted(agreed: Plan, reports: int = 1000) -> Tally:
    """Return a tally in which every bit is set half of the time."""
    by_set_bits = np.zeros(agreed.bits + 1, np.int64)
    by_set_bits[agreed.bits // 2] = reports
    half = np.full(agreed.bits, reports // 2)
    return Tally(agreed.id, reports, half, by_set_bits)


class TestComputing:
    @pytest.mark.parametrize("case", BROKEN)
    def test_a_broken_plan_is_refused(self, case: str):
        broken = BROKEN[case]
        assert Plan.from_json({"id": broken.id} | broken.to_json()) == broken  # its id is valid
        computed = compute_promise(broken)
        assert not computed.holds
        assert not computed.is_guarantee
        assert computed.in_words.startswith("broken: ")
        with pytest.raises(PrivacyRefusal):
            check_promise(broken)

    @pytest.mark.parametrize(
        ("kept", "words", "guarantee"),
        [
            (KEPT, "proven: epsilon 1, delta 1e-6, for the reports of every crowd", True),
            (replace(KEPT, honest_fraction="0.5"), "proven: epsilon 1, delta 1e-6,", True),
            (replace(KEPT, crowd_size=2000), "proven: epsilon 1, delta 1e-6,", True),
            (plan(SURVEY, q="0.25"), "local: epsilon 4.3945 for each report", True),
            (
                SUFFICIENT,
                "sufficient: epsilon 1, eta 0.001, on homogeneous crowds only; not",
                False,
            ),
            (RULE, "three-sigma: epsilon 1, a rule of thumb; not a guarantee", False),
        ],
    )
    def test_what_holds_is_said(self, kept: Plan, words: str, guarantee: bool):
        computed = check_promise(kept)
        assert computed.in_words.startswith(words)
        assert computed.is_guarantee is guarantee
        assert ("proven at this epsilon is delta" in computed.in_words) is not guarantee

    def test_group_privacy_by_hand(self):
        """Two reports of a person: delta at epsilon / 2, times 1 + e^(epsilon / 2)."""
        twice = replace(KEPT, max_reports_per_person=2, promise=Promise("proven", "2", "0.5"))
        single = auditing.certify(KEPT).delta(epsilon=1.0).high
        assert compute_promise(twice).delta == pytest.approx(single * (1 + np.exp(1)))
        assert compute_promise(twice).holds

    @given(st.integers(1, 31), st.integers(2, 3), st.sampled_from(["0.5", "1", "2"]))
    @bounded(30)
    def test_no_plan_that_holds_is_worse_than_it_says(self, numerator, crowd, epsilon):
        """Against every collection of a small world, enumerated."""
        q = FlipProbability.of_fraction(Fraction(numerator, 64))
        small = Survey("s", (Flags("f", ("a", "b")),))
        truth, _ = worst_delta((flags(2),), crowd, float(q), math.exp(float(epsilon)))
        for delta in ("0.001", "0.1", "0.5"):
            agreed = Plan(small, q, Promise("proven", epsilon, delta), crowd)
            if compute_promise(agreed).holds:
                assert truth <= float(delta)

    def test_a_near_miss_is_computed_more_finely(self, monkeypatch: pytest.MonkeyPatch):
        """A bound that is a little too high is no reason to refuse a plan that keeps its word."""
        tolerances: list[float] = []
        coarse = auditing.Certificate.delta

        def rough(self: Any, *, epsilon: float, rtol: float = 1e-4) -> Any:
            tolerances.append(rtol)
            found = coarse(self, epsilon=epsilon, rtol=rtol)
            factor = 1.0005e-6 / found.high if rtol == 1e-4 else 1.0
            return found.times(factor)

        monkeypatch.setattr(auditing.Certificate, "delta", rough)
        assert compute_promise(replace(KEPT, window=8888)).holds
        assert tolerances == [1e-4, 1e-6]


class TestVerbs:
    """Each was silent before, or called it a theorem."""

    @pytest.mark.parametrize("verb", [publish, screen, estimate])
    def test_nothing_from_a_tally(self, verb: Any):
        broken = BROKEN["q"]
        with pytest.raises(PrivacyRefusal, match=r"delta is .*; make a new plan"):
            verb(broken, counted(broken))

    def test_nothing_else(self):
        broken = BROKEN["q"]
        text = replace(WORDS, q=LITTLE)
        survey = discovery_survey("d", 3, bits=8)
        made = plan(survey, crowd_size=1000, epsilon=2, delta="1e-6")
        words = replace(made, q=LITTLE)
        for verb in (
            lambda: decode(text, counted(text), ["a"]),
            lambda: discover(words, counted(words)),
            lambda: associate(BROKEN["crowd"], counted(BROKEN["crowd"]), "features", "os"),
            lambda: simulate(broken, users=1000, seed=1),
            lambda: study(broken, users=1000, repetitions=2, seed=1),
            lambda: certificate(broken),
        ):
            with pytest.raises(PrivacyRefusal):
                verb()

    def test_a_publication_made_by_hand(self):
        broken = BROKEN["q"]
        made = Publication(
            shoal.Estimates(broken, counted(broken), "crowd"), auditing.certify(broken)
        )
        for form in (made.to_json, made.to_html, made.to_markdown, made.to_csv):
            with pytest.raises(PrivacyRefusal):
                form()

    def test_what_is_no_guarantee_is_published_as_that(self):
        for agreed in (SUFFICIENT, RULE):
            said = publish(agreed, counted(agreed)).to_json()["promise"]
            assert said["guarantee"] is False
            assert "At epsilon 1 a delta of" in said["plain"]
            assert "theorem" not in said["plain"]


class TestCommands:
    @pytest.fixture
    def at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return tmp_path

    @pytest.mark.parametrize(
        "case",
        ["q", *(pytest.param(one, marks=pytest.mark.slow) for one in ("reports", "three-sigma"))],
    )
    def test_every_command_refuses(self, at: Path, capsys: pytest.CaptureFixture[str], case: str):
        broken = BROKEN[case]
        broken.write("p.json")
        counted(broken).write("t.json")
        Path("a.csv").write_text("features,os\nsync,mac\n")
        for words in (
            ["estimate", "p.json", "t.json"],
            ["estimate", "p.json", "t.json", "--json"],
            ["screen", "p.json", "t.json"],
            ["publish", "p.json", "t.json", "-o", "r.html"],
            ["publish", "p.json", "t.json", "-o", "r.json", "--json"],
            ["associate", "p.json", "t.json", "features", "os"],
            ["encode", "p.json", "a.csv", "-o", "o.parquet"],
            ["randomize", "p.json", "a.csv", "-o", "o.rows"],
            ["simulate", "p.json", "--users", "1000"],
            ["simulate", "p.json", "--users", "1000", "--repeat", "2"],
            ["audit", "p.json"],
        ):
            assert run(words) == 3, words
            out, err = capsys.readouterr()
            assert "does not confirm it" in err
            assert "proven: epsilon" not in out + err
        assert sorted(path.name for path in at.iterdir()) == ["a.csv", "p.json", "t.json"]

    def test_counting_is_not_silent(self, at: Path, capsys: pytest.CaptureFixture[str]):
        Path("a.csv").write_text("features,os\nsync,mac\n")
        for name, agreed in (("kept", KEPT), ("broken", BROKEN["q"])):
            agreed.write("p.json")
            reports = flip(agreed, encode(agreed, [{"features": [], "os": "mac"}]))
            Path("r.bin").write_bytes(pack_reports(agreed, reports).to_bytes())
            assert run(["tally", "p.json", "r.bin", "--json"]) == 0
            out, err = capsys.readouterr()
            assert json.loads(out)["reports"] == 1
            assert ("warning: the plan promises" in err) is (name == "broken")

    def test_an_audit_counts_colluders(self, at: Path, capsys: pytest.CaptureFixture[str]):
        KEPT.write("p.json")
        assert run(["audit", "p.json", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["promise_kept"] is True
        assert run(["audit", "p.json", "--colluders", "500"]) == 0
        assert "The plan does not keep its promise" in capsys.readouterr().out


class TestCertificates:
    @pytest.mark.slow
    def test_what_a_collector_computed(self):
        for agreed in (KEPT, SUFFICIENT, RULE, replace(plan(SURVEY, q="0.25"), crowd_size=200)):
            found, computed = read_certificate(agreed, certificate(agreed)), compute_promise(agreed)
            assert found.refusal is computed.refusal is None
            assert found.delta == pytest.approx(computed.delta)
            assert found.in_words == computed.in_words

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("plan",), "0" * 64),
            (("plan",), None),
            (("certificate", "q"), 0.5),
            (("certificate", "crowd_size"), 10**6),
            (("certificate", "epsilon"), 3.0),
            (("certificate", "proven"), None),
            (("certificate", "proven", "delta"), [0.0]),
            (("certificate", "proven", "delta"), [0.0, True]),
            (("certificate", "proven", "delta"), [0.0, "0"]),
            (("certificate", "proven", "delta"), [0.0, -1.0]),
            (("certificate",), []),
        ],
    )
    def test_what_is_no_certificate_of_the_plan(self, path: tuple[str, ...], value: object):
        document = json.loads(certificate(KEPT))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(PlanError, match="certificate"):
            read_certificate(KEPT, json.dumps(document).encode())

    @given(st.one_of(st.binary(max_size=40), st.sampled_from([b"[]", b"0", b"{}", b"[" * 5000])))
    @bounded(60)
    def test_whatever_comes(self, content: bytes):
        with pytest.raises(InputError):
            read_certificate(KEPT, content)

    def test_a_signed_delta_above_the_promised_one(self):
        document = json.loads(certificate(KEPT))
        document["certificate"]["proven"]["delta"][1] = 1.1e-6
        found = read_certificate(KEPT, json.dumps(document).encode())
        assert "delta is 1.1e-6" in (found.refusal or "") or "1.1e-06" in (found.refusal or "")

    def test_the_console_says_what_was_computed(self):
        draft = promise_in_words(PlanRecord(KEPT, "draft", None))
        assert draft == "asks for: proven, epsilon 1, delta 1e-6"
        kept = promise_in_words(PlanRecord(KEPT, "published", certificate(KEPT)))
        assert kept == "proven: epsilon 1, delta 1e-6, for the reports of every crowd"

    def test_reading_one_needs_no_mathematics(self):
        script = (
            "import sys; from shoal.protocol.promise import read_certificate;"
            " from shoal import Plan;"
            " import json; plan = Plan.from_json(json.loads(sys.argv[1]));"
            " assert read_certificate(plan, sys.argv[2].encode()).holds;"
            " print(*sys.modules)"
        )
        words = [json.dumps(KEPT.to_json()), certificate(KEPT).decode()]
        done = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
        )
        assert not {"scipy", "shoal.planning.certificate", "shoal.theory"} & set(
            done.stdout.split()
        )


def test_the_cache_is_by_content():
    """Two plans with one id are one plan; a plan of another id is computed by itself."""
    compute_promise.cache_clear()
    check_promise(KEPT)
    check_promise(Plan.from_json(KEPT.to_json()))
    assert compute_promise.cache_info().misses == 1
    with pytest.raises(PrivacyRefusal):
        check_promise(BROKEN["q"])
