"""The study of coverage: its own arithmetic, and the coverage that it measures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from shoal.analysis.power import _comparison
from shoal.errors import InputError
from shoal.lab.experiment_study import (
    _SURVEYS,
    ExperimentStudy,
    StudyCase,
    _World,
    experiment_study,
)


@pytest.mark.slow
def test_repeats_exactly_and_shows_itself() -> None:
    wanted: dict[str, Any] = {
        "repetitions": 50,
        "people": [2_000],
        "shares": [0.1],
        "views": ["counts"],
    }
    first, again = (experiment_study(**wanted, looks=3, seed=7) for _ in range(2))
    assert first.cases == again.cases
    # Three comparisons with an effect and without one, two curves, two kinds of false alarms.
    assert len(first.cases) == 3 * 2 + 2 + 2
    assert max(map(len, str(first).splitlines())) <= 80
    assert first.to_arrow().num_rows == len(first.cases)
    assert first.to_json()["looks"] == 3


def test_what_fails_is_told() -> None:
    bad = StudyCase("difference", "counts", 100, 0.5, 0.0, 0.9, 1.0)
    study = ExperimentStudy(20_000, 0.95, "1", "1e-6", 52, 1, (bad,))
    assert study.least == pytest.approx(0.95 - 3 * math.sqrt(0.0475 / 20_000))
    assert study.failed == (bad,)
    assert "1 of 1 cases" in str(study)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="shares"):
        experiment_study(repetitions=10, shares=[1.5], seed=1)
    with pytest.raises(InputError, match="people"):
        experiment_study(repetitions=10, people=[3], seed=1)


def test_the_spread_of_differences_is_that_of_planning() -> None:
    """4,000 draws: a variance is within six of its standard errors, sqrt(2 / 4,000) of it."""
    q, people = 0.1, 5_000
    world = _World(people, q, 0.3, 0.1, 0.95, 1, np.random.default_rng(1))
    noisy, plain = world._shares(4_000)
    compared = _comparison(_SURVEYS["arms"], None, 0.95, 0.8)
    flips, drawn = compared.variances(0.3, 0.1)
    noise = q * (1 - q) / (1 - 2 * q) ** 2
    for pair, expected in ((noisy, flips * noise + drawn), (plain, drawn)):
        assert pair.difference.mean() == pytest.approx(0.1, abs=0.002)
        within = 6 * math.sqrt(2 / 4_000)
        assert pair.difference.var() == pytest.approx(expected / people, rel=within)


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_should() -> None:
    """Coverage in every world is above the level less seven standard errors (chance below 1e-9).

    Seven, since about a hundred worlds are tried; `shoal study` runs ten times as many repetitions.
    """
    repetitions = 4_000
    study = experiment_study(repetitions=repetitions, looks=12, seed=11)
    least = 0.95 - 7 * math.sqrt(0.95 * 0.05 / repetitions)
    assert [one for one in study.cases if one.coverage < least] == []
    narrow = [
        one.width
        for one in study.cases
        if one.statistic == "difference"
        and (one.view, one.people) == ("counts", 20_000)
        and 0.1 <= one.share <= 0.9
    ]
    assert len(narrow) == 6
    assert max(width for width in narrow if width is not None) <= 1.10
