import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.theory.randomized_response import count_sigma, local_epsilon, local_q, log_theta


@given(st.floats(1e-6, 0.5), st.integers(1, 40))
def test_local_q_undoes_local_epsilon(q, bits):
    assert local_q(bits, local_epsilon(bits, q)) == pytest.approx(q, rel=1e-12)


def test_log_theta_keeps_its_digits_near_one_half():
    q = 0.5 - 2.0**-40
    assert log_theta(q) == pytest.approx(2.0**-38, rel=1e-11)


def test_paper_figures_of_section_4():
    assert round(local_q(5, math.log(2)), 3) == 0.465
    assert round(local_q(40, 2.0), 4) == 0.4875
    # SDP prints 7.5 sqrt N at q = .465
    assert 7.1 < count_sigma(1, 0.465) < 7.2
    assert count_sigma(10, 0.5) == math.inf


@pytest.mark.parametrize("q", [0.0, -0.1, 0.6, math.nan])
def test_a_bad_q_is_refused(q):
    with pytest.raises(ValueError, match="q must be in"):
        log_theta(q)
