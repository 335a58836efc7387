"""2,340 cases against the oracle; SHOAL_ADVERSARY_CASES=54000 before a release.

The fast tests run a third of them.

Nothing here is left to chance: a case is made from its kind and number. Where Shoal refuses, no
claim is made; whatever it states is held against the exact truth.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest

from shoal import Flags, PrivacyRefusal, Survey
from shoal.cli import run as cli
from shoal.planning.certificate import certify

from . import oracle
from .judging import CASES
from .kinds import KINDS, run

SLOW = {"plan for a larger crowd": pytest.mark.slow}


@pytest.mark.parametrize("name", [pytest.param(kind, marks=SLOW.get(kind, ())) for kind in KINDS])
def test_no_claim_is_false(name, capsys, request):
    fast = request.config.option.markexpr == "not slow"
    result = run(name, CASES // 3 if fast else CASES)
    with capsys.disabled():
        print(f"\n{result}", end="")
    assert not result.violations, "\n".join(result.violations)
    assert result.claims >= result.cases / 2  # a kind that claims nothing says nothing


def test_there_are_as_many_cases_as_the_documents_say():
    assert sum(share for _, share in KINDS.values()) == 2340


def test_the_oracle_shares_no_code_with_shoal():
    source = Path(oracle.__file__).read_text("utf-8")
    assert "import shoal" not in source
    assert "from shoal" not in source


def test_the_oracle_agrees_with_hand_calculations():
    """MATH's own examples in fractions: three people, q = 1/4, lam = 11/10, and one-hot, N = 2."""
    q, lam = Fraction(1, 4), Fraction(11, 10)
    ups = [oracle.delta(*oracle.one_bit_pair(3, m, True, q), lam) for m in (0, 1, 2)]
    assert ups == [Fraction(143, 640), Fraction(89, 320), Fraction(171, 640)]
    key = oracle.histogram(3)
    one_hot = {x: oracle.person((x,), 3, Fraction(2, 5), key) for x in (1, 2, 4)}
    third = oracle.delta(
        oracle.together(one_hot[1], one_hot[4]),
        oracle.together(one_hot[1], one_hot[2]),
        Fraction(7, 4),
    )
    assert third == Fraction(354, 15625)


def test_the_oracle_agrees_with_itself():
    """Four ways to one law: polynomials, people one by one, kinds of reports, and lattices."""
    q, n = Fraction(3, 16), 7
    for m in range(n):
        people = oracle.crowd(
            oracle.person((x,), 1, q, oracle.histogram(1)) for x in [1] * m + [0] * (n - m)
        )
        assert people == dict(enumerate(oracle.one_bit(n, m, q)))
    lam = Fraction(3, 2)
    for a, b, c in ((1, 0, 0), (0, 1, 0), (2, 0, 0), (1, 1, 0), (1, 1, 1)):
        exact = oracle.delta(*oracle.homogeneous_pair(a, b, c, n, q), lam)
        bits = a + b + c
        z, x = 0, ((1 << b) - 1) << a | ((1 << c) - 1) << (a + b)
        y = ((1 << a) - 1) | ((1 << c) - 1) << (a + b)
        key = oracle.histogram(bits)
        rest = oracle.crowd([oracle.person((z,), bits, q, key)] * (n - 1))
        towards, away = (oracle.together(rest, oracle.person((v,), bits, q, key)) for v in (y, x))
        assert oracle.delta(towards, away, lam) == exact
        floor = oracle.homogeneous_floor(a, b, c, n, float(q), float(lam))
        assert exact * Fraction(999, 1000) - Fraction(1, 10**4) <= Fraction(floor) <= exact


def test_eta_is_that_of_the_worst_homogeneous_crowd():
    """Flags 3, N = 3: (2, 0, 0) is worse than the maximal (2, 1, 0)."""
    q, epsilon = Fraction("0.32920468"), 0.29980668
    _, lam = oracle.lam_between(epsilon)
    truth = oracle.eta(*oracle.homogeneous_pair(2, 0, 0, 3, q), lam)
    assert math.isclose(truth, 0.5627, abs_tol=5e-5)
    survey = Survey("w", (Flags("f", ("a", "b", "c")),))
    assert Fraction(certify(survey, q=q, crowd_size=3).eta(epsilon=epsilon).high) >= truth


@pytest.mark.parametrize("command", ["audit", "search"])
def test_the_command_line_states_no_falsehood_where_formulas_meet(command, tmp_path, capsys):
    """q = 1/4, N = 100 and lam = (p^2 + q^2) / (2 p q) = 5/3."""
    survey = tmp_path / "survey.toml"
    survey.write_text('name = "w"\n[[question]]\nname = "f"\nkind = "flags"\noptions = ["a"]\n')
    epsilon = 0.5108256237659907
    given = ["--q", "0.25", "--crowd", "100", "--epsilon", repr(epsilon), "--json"]
    assert cli([command, str(survey), *given]) == 0
    assert "nan" not in capsys.readouterr().out.lower()
    _, lam = oracle.lam_between(epsilon)
    worst = oracle.worst_m(100, 0.25, math.exp(epsilon))[0]
    truth = oracle.delta(*oracle.one_bit_pair(100, worst[1], worst[2], Fraction(1, 4)), lam)
    one = Survey("w", (Flags("f", ("a",)),))
    assert Fraction(certify(one, q="0.25", crowd_size=100).delta(epsilon=epsilon).high) >= truth


def test_text_with_memory_is_refused_by_statements_as_by_audit():
    """A kept cohort splits the crowd, so that nothing is proven."""
    from shoal import Plan, Text
    from shoal.planning.guarantees import guarantees_over_time
    from shoal.protocol.flip_probability import FlipProbability
    from shoal.protocol.plan import Memory, Promise

    kept = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
    survey = Survey("w", (Text("t", bits=8, hashes=2, cohorts=2),))
    agreed = Plan(survey, kept.q, Promise("proven", "1", delta="0.1"), 100, memory=kept)
    with pytest.raises(PrivacyRefusal):
        certify(agreed)
    with pytest.raises(PrivacyRefusal):
        guarantees_over_time(agreed, 3)
