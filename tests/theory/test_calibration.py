"""The smallest value that keeps a promise: exact where it says so, and always asked."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.theory.brackets import Bracket
from shoal.theory.calibration import NoValueError, Point, edge, judge, largest, smallest

TINY = 5e-324
FLOATS = st.floats(allow_nan=False)


class Asked:
    """A predicate that remembers what it was asked."""

    def __init__(self, keeps: Callable[[float], bool]) -> None:
        self.keeps = keeps
        self.answers: dict[float, bool] = {}
        self.times = 0

    def __call__(self, value: float) -> bool:
        self.times += 1
        self.answers[value] = self.keeps(value)
        return self.answers[value]


def halvings(values: int) -> int:
    """Questions that bisection needs to tell `values` answers and 'none' apart."""
    return math.ceil(math.log2(values + 1))


class TestWholeNumbers:
    @pytest.mark.parametrize("size", range(1, 19))
    def test_every_edge_from_every_start(self, size: int):
        low, high = -4, size - 5
        for first in range(low, high + 2):
            for start in (None, *range(low - 2, high + 3)):
                for step in (1, 3, 100):
                    asked = Asked(float(first).__le__)
                    if first > high:
                        with pytest.raises(NoValueError, match=f"from {low} to {high} keeps"):
                            smallest(asked, low, high, start=start, step=step)
                        assert asked.answers[high] is False
                    else:
                        answer = smallest(asked, low, high, start=start, step=step)
                        assert answer == first
                        assert type(answer) is int
                        assert asked.answers[answer] is True
                    assert all(low <= value <= high for value in asked.answers)
                    most = halvings(size) if start is None else 2 * halvings(size) + 1
                    assert asked.times == len(asked.answers) <= most

    def test_any_predicate_at_all(self):
        """What is returned keeps the promise and the value before it does not, monotone or not."""
        for table, start in itertools.product(range(2**7), (None, 0, 3, 6)):
            kept = {float(value): bool(table >> value & 1) for value in range(7)}
            asked = Asked(kept.__getitem__)
            try:
                answer = smallest(asked, 0, 6, start=start)
            except NoValueError:
                assert asked.answers[6] is False, (table, start)
            else:
                assert asked.answers[answer] is True, (table, start)
                assert answer == 0 or asked.answers[answer - 1] is False, (table, start)

    def test_tolerance_never_replaces_the_question(self):
        """An upper end within the tolerance is asked before it is returned, or refused."""
        asked = Asked(lambda value: value >= 1000)
        assert smallest(asked, 0, 1000, rtol=0.1) == 1000
        assert asked.answers[1000]
        with pytest.raises(NoValueError):
            smallest(Asked(lambda value: value > 1000), 0, 1000, rtol=0.1)

    @given(st.integers(-50, 50), st.integers(0, 40), st.integers(0, 41))
    def test_largest_is_smallest_turned_round(self, low: int, size: int, cut: int):
        last = low - 1 + min(cut, size + 1)
        asked = Asked(lambda value: value <= last)
        if last < low:
            with pytest.raises(NoValueError):
                largest(asked, low, low + size)
        else:
            assert largest(asked, low, low + size, start=low + 3) == last
            assert asked.answers[last] is True


class TestFloats:
    @given(FLOATS)
    @example(0.0)
    @example(-0.0)
    @example(TINY)
    @example(-TINY)
    @example(2.2250738585072014e-308)
    @example(1.7976931348623157e308)
    @example(math.inf)
    @example(-math.inf)
    def test_every_float_is_found_exactly(self, first: float):
        for start in (None, 0.0, 1.0, -1e300):
            asked = Asked(lambda value: value >= first)
            answer = smallest(asked, -math.inf, math.inf, start=start)
            assert answer == first
            assert asked.answers[answer] is True
            assert asked.times <= (65 if start is None else 90)
            asked = Asked(lambda value: value <= first)
            assert largest(asked, -math.inf, math.inf, start=start) == first
            assert asked.answers[first] is True

    @given(
        st.floats(1e-300, 1e300),
        st.sampled_from([0.5, 1e-2, 1e-6, 1e-12]),
        st.sampled_from([None, 1.0]),
    )
    def test_tolerance(self, first: float, rtol: float, start: float | None):
        asked = Asked(lambda value: value >= first)
        answer = smallest(asked, 0.0, math.inf, start=start, rtol=rtol)
        assert first <= answer <= first * (1 + rtol) * (1 + 1e-15)
        assert asked.answers[answer] is True
        assert asked.times <= 26 - math.log2(rtol)

    def test_a_tolerance_does_not_stop_at_infinity(self):
        assert smallest(lambda x: x >= 3, 1.0, math.inf, rtol=1e-3) == pytest.approx(3, rel=1e-3)
        assert smallest(lambda x: x >= 3, -math.inf, math.inf, rtol=1e-3) < 3.01
        with pytest.raises(NoValueError):
            smallest(lambda x: False, -math.inf, math.inf, rtol=0.5)

    def test_zero_has_no_sign(self):
        for answer in (
            smallest(lambda x: x >= 0, -1.0, 1.0),
            largest(lambda x: x <= 0, -1.0, 1.0),
            smallest(lambda x: True, 0.0, 1.0),
        ):
            assert struct.pack("<d", answer) == struct.pack("<d", 0.0)

    def test_floats_are_asked_where_an_end_is_one(self):
        asked = Asked(lambda value: value >= 0.3)
        assert smallest(asked, 0, 0.5) == 0.3
        assert all(type(value) is float for value in asked.answers)

    @pytest.mark.parametrize("ends", [(1, 0), (math.nan, 1.0), (0.0, math.nan), (math.inf, 0.0)])
    def test_an_empty_range_is_refused(self, ends: tuple[float, float]):
        with pytest.raises(ValueError, match="low must be at most high"):
            smallest(lambda value: True, *ends)


class TestEdge:
    """The same question to a quantity in brackets."""

    @given(st.floats(0.01, 20), st.floats(1e-9, 0.5), st.floats(0, 0.02))
    def test_the_passing_end_was_asked_and_is_near(self, rate: float, target: float, doubt: float):
        asked: dict[float, Bracket] = {}

        def curve(x: float, rtol: float) -> Bracket:
            exact = math.exp(-rate * x)
            asked[x] = Bracket(exact * (1 - rtol * doubt), exact * (1 + rtol * doubt))
            return asked[x]

        root = -math.log(target) / rate
        good, bad = (judge(curve, x, target, 0.05, 1e-4) for x in (3 * root, 0.0))
        assert good.passed
        assert not bad.passed
        answer = edge(curve, good, bad, target, 1e-6)
        assert asked[answer].high <= target
        assert root <= answer * (1 + 1e-12) <= root * (1 + 3e-6) + doubt * 1e-4 / rate
        assert len(asked) <= 60

    def test_what_stays_open_does_not_pass(self):
        point = judge(lambda x, rtol: Bracket(0.1 - rtol, 0.1 + rtol), 1.0, 0.1, 0.05, 1e-4)
        assert point == Point(1.0, point.gap, False)
        assert point.gap > 0
