"""KR 4: bounding and comparing ratios of sums. All theorems."""

from hypothesis import given, settings
from hypothesis import strategies as st

from .strategies import dyadic_q, positive

some = settings(max_examples=60, deadline=None)


def ratio(a, lam, mu):
    above = sum(x * y for x, y in zip(a, lam, strict=True))
    return above / sum(x * y for x, y in zip(a, mu, strict=True))


@some
@given(st.lists(st.tuples(st.fractions(-9, 9), positive), min_size=1, max_size=6))
def test_lemma_4_1_a_ratio_of_sums_is_at_most_the_largest_ratio(pairs):
    assert sum(a for a, _ in pairs) / sum(b for _, b in pairs) <= max(a / b for a, b in pairs)


@some
@given(st.data(), st.integers(2, 5))
def test_lemma_4_2_ordered_ratios_order_the_sums(data, m):
    """(4.3) reads a_i/a_j >= a_i'/a_j' for i < j, (4.2) lam_i/mu_i >= lam_j/mu_j."""

    def column():
        return data.draw(st.lists(positive, min_size=m, max_size=m))

    mu, a = column(), column()
    falling = sorted(column(), reverse=True)
    rising = sorted(column())
    lam = [x * y for x, y in zip(mu, falling, strict=True)]
    a_prime = [x * y for x, y in zip(a, rising, strict=True)]
    assert ratio(a, lam, mu) >= ratio(a_prime, lam, mu)


@some
@given(dyadic_q, positive, positive, positive, positive)
def test_corollary_4_1(q, a1, a2, b1, b2):
    p = 1 - q
    if a2 / a1 >= b2 / b1:
        assert (q * a1 + p * a2) / (p * a1 + q * a2) >= (q * b1 + p * b2) / (p * b1 + q * b2)


@some
@given(st.tuples(*[positive] * 8))
def test_lemma_4_3(numbers):
    a, a1, lam, mu, b, b1, c, c1 = numbers
    if a * c1 >= a1 * c and a * b1 <= a1 * b and b * c1 >= b1 * c:
        left = (a * lam + b * mu) / (c * lam + a * mu)
        assert left >= (a1 * lam + b1 * mu) / (c1 * lam + a1 * mu)
