import itertools

import pytest

from shoal.theory.domains import (
    Block,
    at_most,
    choice,
    classes,
    differing_bits,
    flags,
    maximal,
    maximal_classes,
)
from shoal.theory.homogeneous import delta

from .oracle import triples_of

BLOCKS = [
    flags(3),
    choice(1),
    choice(2),
    choice(4),
    at_most(1, 4),
    at_most(2, 4),
    at_most(3, 5),
    Block(4, 2, 2),
    Block(5, 2, 2),
    Block(4, 1, 3),
    Block(5, 3, 4),
]


@pytest.mark.parametrize("block", BLOCKS)
def test_classes_and_distance_of_a_block(block):
    found = triples_of((block,))
    assert classes((block,)) == found
    assert differing_bits((block,)) == max(a + b for a, b, _ in found)


def test_classes_of_a_product_are_sums():
    domain = (flags(1), choice(3))
    assert classes(domain) == triples_of(domain)
    assert differing_bits(domain) == 3


def test_maximal_keeps_exactly_the_undominated():
    pool = classes((at_most(2, 5), choice(3)))
    kept = maximal(pool)
    for t in pool:
        dominated = any(u != t and all(x <= y for x, y in zip(t, u, strict=True)) for u in pool)
        assert (t in kept) != dominated


@pytest.mark.parametrize("domain", [(flags(40),), (at_most(20, 100),), (Block(1000, 0, 333),)])
def test_wide_candidates_are_feasible(domain):
    block = domain[0]
    for a, b, c in maximal_classes(domain):
        assert a + b + c <= block.bits
        assert max(a + b, a + c, b + c) <= min(2 * block.highest, block.bits)


def test_delta_does_not_fall_in_the_triple():
    # leaving a bit out of all reports is post-processing
    for q, epsilon in ((0.1, 0.5), (0.3, 0.2)):
        for a, b, c in itertools.product(range(2), repeat=3):
            here = delta((a, b, c), 6, q, epsilon)
            for larger in ((a + 1, b, c), (a, b + 1, c), (a, b, c + 1)):
                assert here.low <= delta(larger, 6, q, epsilon).high


@pytest.mark.parametrize("domain", [(), (Block(3, 2, 1),), (Block(0, 0, 0),), (Block(3, 0, 4),)])
def test_bad_domains_are_refused(domain):
    with pytest.raises(ValueError, match=r"a domain needs|a block needs"):
        differing_bits(domain)
