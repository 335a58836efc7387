"""What the papers print, recomputed once; every error that we know of must be found again."""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli import run
from shoal.cli.evidence import markdown_table
from shoal.errors import InputError
from shoal.lab.papers import Case, PaperFinding, claim, findings, number
from shoal.lab.papers import sdp_ratio as rows
from shoal.lab.papers.figures import FIGURES, plot_figures
from shoal.reports.plots import canvas
from shoal.theory.brackets import Bracket
from shoal.theory.randomized_response import phi
from shoal.theory.sufficient import three_sigma_q

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"


@pytest.fixture(scope="module")
def found():
    return list(findings())


@pytest.fixture
def quick(found, monkeypatch):
    """Let the command print what was already computed."""
    monkeypatch.setattr("shoal.lab.papers.findings", lambda: iter(found))
    return found


def at(found: Iterable[PaperFinding], source: str, where: str) -> PaperFinding:
    """The first finding whose place begins like this."""
    return next(f for f in found if f.source == source and f.where.startswith(where))


@pytest.mark.slow
def test_the_errors_found_are_those_of_the_page(found):
    """Regenerate with `shoal paper --errors --markdown`."""
    assert Counter(f.verdict for f in found) == {"agrees": 67, "misprint": 20, "false claim": 10}
    table = markdown_table([f for f in found if f.verdict != "agrees"])
    assert table in PAGE.read_text("utf-8")


def mean_plus_three_sigma(bits: int, crowd: int, q: float) -> float:
    """E R + 3 sqrt(Var R) by direct summation over the set bits of each vector."""
    p = 1 - q
    value = [(p / q) ** (2 * ones - bits) for ones in range(bits + 1)]
    zero = [math.comb(bits, ones) * q**ones * p ** (bits - ones) for ones in range(bits + 1)]
    moments = []
    for law in (zero, zero[::-1]):
        mean = sum(w * v for w, v in zip(law, value, strict=True))
        moments.append((mean, sum(w * (v - mean) ** 2 for w, v in zip(law, value, strict=True))))
    (mean_0, var_0), (mean_1, var_1) = moments
    mean = ((crowd - 1) * mean_0 + mean_1) / crowd
    return mean + 3 * math.sqrt((crowd - 1) * var_0 + var_1) / crowd


@pytest.mark.slow
def test_the_misprinted_q_belongs_to_ten_thousand(found):
    crowds = rows.crowds_with("0.1778", math.log(2))
    assert rows.roundest(crowds) == 10_000
    assert "N = 10000" in at(found, "SDP", "3.3, lambda = 2, N = 5000").why
    assert abs(mean_plus_three_sigma(5, 10_000, 0.1778) - 2) < 1e-3
    assert mean_plus_three_sigma(5, 5000, 0.1778) > 2.5
    for crowd, is_solution in ((crowds[0] - 1, False), (10_000, True), (crowds[-1] + 1, False)):
        low, high = (mean_plus_three_sigma(5, crowd, q) for q in (0.17785, 0.17775))
        assert (low <= 2 <= high) is is_solution


@given(st.floats(1e-6, 0.5))
def test_q_from_phi_undoes_phi(q):
    # near 1/2 phi is flat: its rounding moves q by a square root
    assert rows.q_from_phi(phi(q)) == pytest.approx(q, rel=1e-7)


@pytest.mark.slow
def test_claimed_maxima_are_exceeded_by_certified_ends(found):
    """The text of a false claim shows a value above the claimed maximum."""
    texts = [f.computed for f in found if f.verdict == "false claim" and " > " in f.computed]
    assert len(texts) == 8
    for text in texts:
        value, limit = map(float, text.split(" > "))
        assert value > limit


# Mutations: what is printed decides the verdict, so a wrong print must change it.


@pytest.mark.parametrize("index", [0, 3])
def test_a_changed_q_changes_the_verdict(monkeypatch, index):
    row = rows.ROWS[index]
    right = f"{three_sigma_q(5, row.crowd, row.epsilon):.4f}"
    wrong = f"{float(right) - 0.0002:.4f}"
    for q, verdict in ((right, "agrees"), (wrong, "misprint")):
        monkeypatch.setattr(rows, "ROWS", (row._replace(q=q),))
        assert at(rows.findings(), "SDP", "3.3, lambda =").verdict == verdict


@pytest.mark.parametrize(("mass", "verdict"), [("0.0037", "agrees"), ("0.0038", "misprint")])
def test_a_changed_mass_changes_the_verdict(monkeypatch, mass, verdict):
    monkeypatch.setattr(rows, "ROWS", (rows.ROWS[3]._replace(mass=mass),))
    found = at(rows.findings(), "SDP", "3.3, lambda = e^2, N = 1000, P[R")
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("printed", "computed", "up", "verdict"),
    [
        ("0.2446", 0.24454, True, "agrees"),
        ("0.2446", 0.24454, False, "misprint"),
        ("0.2444", 0.24454, True, "misprint"),
        ("2E+5", 189_720.0, False, "agrees"),
        ("1E+5", 189_720.0, False, "misprint"),
        ("0.006", Bracket(0.0057, 0.0058), False, "agrees"),
        ("0.006", Bracket(0.0071, 0.0072), False, "misprint"),
    ],
)
def test_number_compares_in_the_printed_digits(printed, computed, up, verdict):
    finding = number("SDP", "here", printed, computed, lambda: "because.", up=up)
    assert finding.verdict == verdict
    assert (finding.why == "because.") is (verdict == "misprint")


@pytest.mark.parametrize("wide", [Bracket(0.0062, 0.0068), Bracket(0.004, 0.008)])
def test_number_refuses_a_bracket_that_decides_nothing(wide):
    with pytest.raises(ArithmeticError, match="too wide"):
        number("SDP", "here", "0.006", wide, lambda: "because.")


def test_claim_tells_misprints_from_false_claims():
    third, half = Fraction(1, 3), Fraction(1, 2)
    good, bad = [Case("a", half, half)], [Case("a", half, half), Case("b", third, half)]
    verdicts = [
        claim("KR", "here", "x", cases, "how.", meant=meant).verdict
        for cases, meant in ((good, ()), (bad, good), (bad, bad), (bad, ()))
    ]
    assert verdicts == ["agrees", "misprint", "false claim", "false claim"]
    with pytest.raises(ValueError, match="at least one case"):
        claim("KR", "here", "x", [], "how.")


# The command.


def test_json_and_markdown_exclude_each_other(capsys):
    assert run(["paper", "--json", "--markdown"]) == 2
    assert "one of --json and --markdown" in capsys.readouterr().err


@pytest.mark.slow
def test_figures(quick, capsys, tmp_path):
    assert run(["paper", "--errors", "--figures", str(tmp_path / "new")]) == 0
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == sorted(f"{name}.{end}" for name in FIGURES for end in ("png", "svg"))
    for path in (tmp_path / "new").iterdir():
        start = path.read_bytes()[:8]
        assert start.startswith(b"<?xml" if path.suffix == ".svg" else b"\x89PNG")
        assert path.stat().st_size > 5_000
    assert "written to" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no directory"):
        plot_figures(tmp_path / "file" / "below")


def test_figures_without_matplotlib(monkeypatch, tmp_path):
    # Another test may have drawn before.
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    canvas._figure_class.cache_clear()
    with pytest.raises(InputError, match=re.escape("pip install 'shoal[plots]'")):
        plot_figures(tmp_path)
