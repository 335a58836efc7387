"""What the tests of the theory draw from: flip probabilities, laws, small domains."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from shoal.theory.domains import Block, at_most, choice, flags

# Dyadic, so that a float and a Fraction are the same number.
dyadic_q = st.integers(1, 63).map(lambda a: Fraction(a, 128))

positive = st.fractions(min_value=Fraction(1, 50), max_value=50, max_denominator=50)

SMALL_DOMAINS: list[tuple[tuple[Block, ...], int]] = [
    # each with the largest crowd whose worst case is enumerated in a moment
    ((flags(1),), 9),
    ((flags(2),), 5),
    ((flags(3),), 2),
    ((choice(2),), 4),
    ((choice(3),), 4),
    ((choice(4),), 2),
    ((at_most(1, 2),), 4),
    ((at_most(1, 3),), 3),
    ((at_most(2, 3),), 3),
    ((at_most(2, 4),), 2),
    ((Block(4, 2, 2),), 2),
    ((Block(3, 1, 2),), 3),
    ((flags(1), choice(2)), 3),
    ((flags(2), choice(3)), 1),
    ((flags(1), at_most(1, 2)), 3),
    ((choice(2), at_most(1, 2)), 2),
]
