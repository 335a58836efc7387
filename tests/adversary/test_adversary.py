"""2,310 cases against the oracle; SHOAL_ADVERSARY_CASES=54000 before a release.

The fast tests run a third of them.

Nothing here is left to chance: a case is made from its kind and number. Where Shoal refuses, no
claim is made; whatever it states is held against the exact truth.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest

from shoal import Flags, Survey
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
    assert sum(share for _, share in KINDS.values()) == 2310


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
