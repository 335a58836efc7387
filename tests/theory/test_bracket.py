from shoal.theory.bracket import Bracket


def test_scaling_keeps_the_high_end_alive():
    assert Bracket(0.0, 5e-324).times(1e-9).high > 0.0
    assert Bracket(0.0, 0.0).times(1e-9).high == 0.0
    low, high = Bracket(0.1, 0.3).times(3.0)
    assert low < 0.3 < high or low < 0.30000000000000004 <= high


def test_widths():
    assert Bracket(0.0, 0.0).relative_width == 0.0
    assert Bracket(0.0, 1.0).relative_width == 1.0
    assert Bracket(0.9999, 1.0).is_within(1e-3)
    assert Bracket(0.5, 2.0).capped(1.0) == (0.5, 1.0)
