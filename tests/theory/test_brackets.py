"""Brackets refuse what is no interval, and round outwards."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from shoal.theory.brackets import Bracket


def test_scaling_keeps_the_high_end_alive():
    assert Bracket(0.0, 5e-324).times(1e-9).high > 0.0
    assert Bracket(0.0, 0.0).times(1e-9).high == 0.0
    low, high = Bracket(0.1, 0.3).times(3.0)
    assert low < 0.3 < high or low < 0.30000000000000004 <= high


def test_widths():
    assert Bracket(0.0, 0.0).relative_width == 0.0
    assert Bracket(0.0, 1.0).relative_width == 1.0
    assert Bracket(0.0, math.inf).relative_width == 1.0
    assert Bracket(math.inf, math.inf).relative_width == 1.0
    assert Bracket(0.9999, 1.0).is_within(1e-3)
    assert Bracket(0.5, 2.0).capped(1.0) == (0.5, 1.0)


@pytest.mark.parametrize(
    "ends", [(math.nan, 1.0), (0.0, math.nan), (2, 1), (-4.3e-15, -4.3e-15), (-5e-324, 1.0)]
)
def test_what_is_no_bracket_cannot_be_made(ends):
    good = Bracket(0.0, 1.0)
    for make in (
        lambda: Bracket(*ends),
        lambda: Bracket._make(ends),
        lambda: good._replace(low=ends[0], high=ends[1]),
        lambda: good.times(math.nan),
        lambda: Bracket(0.0, math.inf).times(0.0),
        lambda: good.times(-1.0),
        lambda: Bracket(0.25, 0.5).capped(-1.0),
    ):
        with pytest.raises(ValueError, match="0 <= low <= high"):
            make()


def test_copies_are_brackets():
    good = Bracket(0.25, 0.5)
    for copied in (copy.deepcopy(good), pickle.loads(pickle.dumps(good)), good._replace()):
        assert type(copied) is Bracket
        assert copied == good
    assert repr(good) == "Bracket(low=0.25, high=0.5)"
