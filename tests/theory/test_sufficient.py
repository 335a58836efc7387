"""The largest eta of all homogeneous crowds, against every crowd of every small domain."""

import functools
import math
from fractions import Fraction

import pytest

from shoal.theory.domains import at_most, choice, flags
from shoal.theory.homogeneous import eta
from shoal.theory.sufficient import MAX_KINDS, sufficient_eta
from shoal.theory.worlds import homogeneous_best
from tests.adversary import oracle

from .oracle import triples_of


# dyadic q, and an e^epsilon that no sum of ratios meets
@functools.cache
def exact_eta(a, b, c, n, q, lam):
    """P[R > lam] for n - 1 reports of z and one of x', over all histograms of the reports."""
    return oracle.eta(*oracle.homogeneous_pair(a, b, c, n, q), lam)


def test_fewer_bits_can_be_worse():
    """Maximal triples do not suffice: (2, 0, 0) among three flags."""
    q, epsilon = 0.32920468, 0.29980668
    truth = exact_eta(2, 0, 0, 3, Fraction(q), Fraction(math.exp(epsilon)))
    found = sufficient_eta((flags(3),), 3, q, epsilon)
    assert found.crowd == (2, 0, 0)
    assert found.eta.low <= truth <= found.eta.high
    assert float(truth) == pytest.approx(0.5627, abs=5e-5)
    assert eta((2, 1, 0), 3, q, epsilon).high == pytest.approx(0.5303, abs=5e-5)
    assert homogeneous_best((flags(3),), 3, q, epsilon, eta=True)[0] == (2, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "n", "q", "epsilon"),
    [
        ((flags(3),), 5000, 0.15, math.log(2)),
        ((flags(2), choice(3)), 20, 0.3, 0.4),
        ((at_most(2, 4),), 100, 0.25, 0.7),
    ],
)
def test_what_is_left_out_is_not_worse(domain, n, q, epsilon):
    """The bound that spares most evaluations, against evaluating them all."""
    found = sufficient_eta(domain, n, q, epsilon)
    assert found.exhaustive
    every = {t: eta(t, n, q, epsilon) for t in triples_of(domain) if t[0] + t[1]}
    assert found.kinds == len(every)
    assert max(bracket.low for bracket in every.values()) <= found.eta.high
    assert found.eta.low <= max(bracket.high for bracket in every.values())


@pytest.mark.slow
def test_wide_domains_say_that_not_all_was_compared():
    found = sufficient_eta((flags(40),), 10**7, 0.351, 2.0)
    assert not found.exhaustive
    assert 1 < found.kinds < MAX_KINDS
    assert sufficient_eta((choice(1000),), 100, 0.2, 1.0).exhaustive


def test_a_single_original_has_nothing_to_tell():
    assert sufficient_eta((choice(1),), 10, 0.2, 1.0) == ((0, 0, 0), (0.0, 0.0), 1, True)
