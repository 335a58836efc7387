"""`tools/verify_certificate.py` accepts certificates and refuses those that claim too much."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from flint import arb

from shoal import Choice, Flags, Survey
from shoal.planning.bounds import Overflow
from shoal.planning.certificate import Certificate, certify
from shoal.protocol.plan import Aggregators
from shoal.theory.brackets import Bracket
from shoal.theory.rigorous import verifier
from tests.requirements import ROOT

TOOL = ROOT / "tools" / "verify_certificate.py"
CERTIFICATES, ZERO = 200, arb(0)
LESS = 1.01
"""A tampered certificate claims a delta that is at least this factor too small."""
KINDS = ("flags", "choice", "at most", "several", "one bit", "counts", "shares", "person")


def labels(count: int) -> tuple[str, ...]:
    return tuple(f"option {number}" for number in range(count))


@functools.cache
def counted(number: int) -> tuple[str, int]:
    """Return the q and the crowd of a counts certificate: few, so that profiles are shared."""
    draw = Random(f"counts {number // len(KINDS) % 4}")
    return str(round(draw.uniform(0.04, 0.12), 3)), draw.randint(60, 200)


@functools.lru_cache(maxsize=64)
def certificate(number: int) -> tuple[Certificate, float]:
    """Return one of many certificates, and the epsilon at which it is given."""
    draw, kind = Random(f"certificate {number}"), KINDS[number % len(KINDS)]
    q, crowd = str(round(draw.uniform(0.05, 0.4), 4)), draw.randint(20, 3000)
    some = Choice("c", labels(draw.randint(2, 12)))
    survey = {
        "choice": Survey("s", (some,)),
        "at most": Survey("s", (Flags("f", labels(draw.randint(4, 8)), at_most=2),)),
        "several": Survey("s", (Flags("f", labels(draw.randint(1, 3))), some)),
        "one bit": Survey("s", (Flags("f", labels(1)),)),
        "shares": Survey("s", (Choice("c", labels(12)),)),
    }.get(kind, Survey("s", (Flags("f", labels(draw.choice((2, 7, 8)))),)))
    if kind == "counts":
        survey = Survey("s", (Flags("f", labels(draw.randint(2, 4))),))
    if kind in ("counts", "shares"):
        q, crowd = counted(number)
    made = certify(survey, q=q, crowd_size=crowd, view="counts" if kind == "counts" else "reports")
    if kind == "counts" and draw.random() < 0.5:
        made = replace(made, releases=2)
    if kind == "shares":
        largest = Overflow.of(survey, survey.bits)
        weight = largest.smallest_weight(crowd, float(q), 2.0, 1e-4)
        parties = Aggregators("https://a.example", "https://b.example", weight)
        overflow = Overflow.of(survey, weight)
        made = replace(made, view="counts", parties=parties, overflow=overflow)
    if kind == "person":
        made = replace(made, reports_per_person=draw.randint(2, 3))
    if made.view == "counts":
        return made, round(made.epsilon(delta=10 ** draw.uniform(-5, -3)), 4)
    epsilon = round(made.local_epsilon * made.reports_per_person * draw.uniform(0.1, 0.6), 3)
    while made.delta(epsilon=epsilon).high < 1e-9:
        epsilon = round(0.7 * epsilon, 4)
    return made, epsilon


@functools.lru_cache(maxsize=64)
def document(number: int) -> dict[str, Any]:
    """Return the part of a certificate's document that a verifier reads; the rest takes seconds."""
    made, epsilon = certificate(number)
    proven = made.proven(epsilon)
    claim = made._claim(epsilon, proven.delta.high, proven.method)
    return json.loads(json.dumps(claim))  # type: ignore[no-any-return]


def too_small(bracket: Bracket) -> float:
    """Return a delta that claims 1 % too much; counts have a high end only."""
    return (bracket.low or bracket.high) / (1.001 * LESS)


def tampered(number: int) -> dict[str, Any]:
    """Change one number by a per cent, and further until its delta claims 1 % too much.

    Where delta hardly depends on that number, delta itself is changed.
    """
    made, epsilon = certificate(number)
    claim = dict(document(number))
    other = made.proven(epsilon).delta
    name = ("delta", "epsilon", "q", "crowd_size", "max_weight")[number // len(KINDS) % 5]
    if name == "max_weight" and (made.overflow is None or made.overflow.max_weight < 2):
        name = "delta"
    if name == "delta":
        return claim | {"delta": too_small(other)}
    for step in range(1, 60):
        part = 1.0 - 0.01 * step
        if name == "epsilon":
            claim |= {"epsilon": round(epsilon * part, 6)}
            other = made.delta(epsilon=claim["epsilon"])
        elif name == "q":
            claim |= {"q": round(float(made.q) * part, 8)}
            made_so = replace(made, q=Fraction(str(claim["q"])))
            claim["local"] = {"epsilon": made_so.local_epsilon * 1.001}
            other = made_so.delta(epsilon=epsilon)
        elif name == "crowd_size":
            fewer = min(int(made.crowd_size * part), made.crowd_size - step)
            claim |= {"crowd_size": fewer, "relies_on": min(fewer, claim["relies_on"])}
            other = replace(made, crowd_size=fewer).delta(epsilon=epsilon)
        else:
            assert made.overflow is not None
            weight = made.overflow.max_weight - step
            claim["dropped"] = {**claim["dropped"], "max_weight": weight}
            other = replace(made, overflow=replace(made.overflow, max_weight=weight)).delta(
                epsilon=epsilon
            )
        if claim["delta"] <= too_small(other):
            return claim
    return document(number) | {"delta": too_small(made.proven(epsilon).delta)}


def verdict(claim: dict[str, Any], folder: Path) -> int:
    path = folder / "certificate.json"
    path.write_text(json.dumps(claim), "utf-8")
    code = verifier().main(str(path))
    assert isinstance(code, int)
    return code


class TestCertificates:
    """All kinds in turn; a certificate and its tampered copy at a time."""

    def check(self, numbers: range, folder: Path) -> int:
        for number in numbers:
            assert verdict(document(number), folder) == 0, document(number)
            assert verdict(tampered(number), folder) == 1, tampered(number)
        return len(numbers)

    def test_one_of_each(self, tmp_path: Path):
        assert self.check(range(len(KINDS)), tmp_path) == 8

    @pytest.mark.slow
    @pytest.mark.parametrize("part", range(5))
    def test_200_are_accepted_and_200_refused(self, part: int, tmp_path: Path):
        each = CERTIFICATES // 5
        assert self.check(range(part * each, (part + 1) * each), tmp_path) == each


class TestTool:
    def test_it_stands_alone_and_is_short(self):
        source = TOOL.read_text("utf-8")
        assert len(source.splitlines()) <= 300
        imported = {
            (node.module if isinstance(node, ast.ImportFrom) else name.name)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        assert imported - set(sys.stdlib_module_names) == {"flint"}

    def run(self, *words: object) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-I", TOOL, *map(str, words)], capture_output=True, text=True
        )
        return done.returncode, done.stdout

    def test_it_runs_as_a_command(self, tmp_path: Path):
        path = tmp_path / "certificate.json"
        made, epsilon = certificate(0)
        whole = made.to_json(epsilon=epsilon)
        assert {name: whole[name] for name in document(0)} | {"proven": 0} == (
            document(0) | {"proven": 0}
        )
        path.write_text(json.dumps(whole), "utf-8")
        code, words = self.run(path)
        assert code == 0
        assert words.startswith("accepted: at most ")
        path.write_text(json.dumps({**document(0), "view": "each"}), "utf-8")
        assert self.run(path)[0] == 2
        path.write_text("[]", "utf-8")
        assert self.run(path)[0] == self.run(tmp_path / "missing.json")[0] == self.run()[0] == 2

    @pytest.mark.parametrize(
        "changes",
        [
            {"cohorts": 3},
            {"dropped": {"max_weight": 2}},
            {"proven": {"method": "something new"}},
            {"parties": {"noise": {"kind": "geometric"}}},
        ],
    )
    def test_other_kinds_are_declined(
        self, changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert verdict({**document(0), **changes}, tmp_path) == 2
        assert capsys.readouterr().out.startswith("declined: ")

    @pytest.mark.parametrize(
        "changes",
        [
            {"q": 0.6},
            {"q": 0},
            {"epsilon": -1},
            {"crowd_size": 0},
            {"crowd_size": 10.5},
            {"relies_on": 10**9},
            {"delta": 1.5},
            {"domain": [[3, 2, 1]]},
            {"domain": []},
            {"view": "all"},
            {"epsilon": "1"},
            {"epsilon": "\N{ARABIC-INDIC DIGIT NINE}"},
            {"local": {"epsilon": "9"}},
            {"parties": "none"},
        ],
    )
    def test_invalid_numbers_are_named_invalid(
        self, changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert verdict({**document(0), **changes}, tmp_path) == 2
        assert capsys.readouterr().out.startswith("invalid: ")

    def test_adapted_blankets_are_accepted_or_declined(self, tmp_path: Path):
        claim = {**document(0), "proven": {"method": "adapted blankets"}}
        assert verdict(claim, tmp_path) == 0
        assert verdict({**claim, "delta": 0.5 * claim["delta"]}, tmp_path) == 2

    def test_a_smaller_proven_number_is_verified_too(self, tmp_path: Path):
        claim, method = document(0), document(0)["proven"]["method"]
        for high, code in ((claim["delta"], 0), (0.98 * claim["delta"], 1), (-1.0, 2)):
            proven = {"delta": [0.0, high], "method": method}
            assert verdict({**claim, "proven": proven}, tmp_path) == code

    def test_a_sum_that_is_not_finite_proves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        for nothing in (arb("nan"), arb(-1)):
            monkeypatch.setattr(verifier(), "stop_loss", lambda *about, n=nothing: (ZERO, n))
            assert verdict(document(0), tmp_path) == 1

    def test_a_false_local_epsilon_is_refused(self, tmp_path: Path):
        claim = document(0)
        local = {"epsilon": 0.99 * claim["local"]["epsilon"]}
        assert verdict({**claim, "local": local}, tmp_path) == 1
        assert verdict({**claim, "local": local, "delta": 1.0}, tmp_path) == 1

    @pytest.mark.parametrize("number", [0, KINDS.index("one bit")])
    def test_whole_reports_that_rely_on_fewer_people_need_a_larger_delta(
        self, number: int, tmp_path: Path
    ):
        assert verdict({**document(number), "relies_on": 1}, tmp_path) == 1

    def test_a_field_that_comes_twice_is_invalid(self, tmp_path: Path):
        """Readers may take either of the two."""
        path = tmp_path / "certificate.json"
        for twice in ('"delta": 1e-9, "delta"', '"domain": [[1, 0, 1]], "domain"'):
            path.write_text(json.dumps(document(0)).replace(twice.split()[-1], twice, 1), "utf-8")
            assert verifier().main(str(path)) == 2
