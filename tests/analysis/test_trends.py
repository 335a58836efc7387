"""Several crowds side by side: levels that hold together, and differences of two."""

from __future__ import annotations

import numpy as np
import pytest

from shoal import Choice, Flags, PrivacyRefusal, Survey, estimate, plan, simulate
from shoal.analysis.contrasts import share_difference
from shoal.analysis.trends import crowd_difference, trend
from shoal.errors import InputError

SURVEY = Survey("s", (Flags("f", ("a", "b")), Choice("c", ("x", "y", "z"))))
PLAN = plan(SURVEY, q="0.2")
RUNS = [simulate(PLAN, users=800, seed=seed) for seed in range(4)]
TALLIES = [run.estimates.tally for run in RUNS]


def test_every_interval_is_at_its_part_of_the_miss() -> None:
    """Three options in four crowds at 90 %: each interval at 1 - 0.1 / 12."""
    document = trend(PLAN, TALLIES, 0.9).to_json()
    for name, options in (("c", 3), ("f", 2)):
        for label, rows in document["questions"][name].items():
            for row, run in zip(rows, RUNS, strict=True):
                one = run.estimates[name][label]
                bounds = one.interval(1 - 0.1 / (4 * options))
                assert (row["low"], row["high"]) == (bounds.low / 800, bounds.high / 800)
                assert row["share"] == one.share
    assert document["simulated"]
    assert [one["reports"] for one in document["crowds"]] == [800] * 4


def test_they_cover_together() -> None:
    """100 seeded trends of two crowds at 80 %: all of a question's intervals hold in most."""
    missed = 0
    for seed in range(100):
        runs = [simulate(PLAN, users=300, seed=1000 + 2 * seed + k) for k in range(2)]
        shown = trend(PLAN, [run.estimates.tally for run in runs], 0.8).to_json(["c"])
        rows = [
            (row, run.true_count("c", label) / 300)
            for label, found in shown["questions"]["c"].items()
            for row, run in zip(found, runs, strict=True)
        ]
        missed += not all(row["low"] <= truth <= row["high"] for row, truth in rows)
    assert missed <= 20 + 3 * 4


def test_a_difference_is_that_of_the_shares() -> None:
    document = crowd_difference((PLAN, TALLIES[0]), (PLAN, TALLIES[1]), 0.9).to_json()
    for name, options in (("c", 3), ("f", 2)):
        for label, row in document["questions"][name].items():
            one, other = (run.estimates[name][label] for run in RUNS[:2])
            expected = share_difference(one, other, 1 - 0.1 / options)
            assert (row["low"], row["high"]) == (expected.low, expected.high)
            assert row["difference"] == one.share - other.share
            assert row["differs"] == expected.differs


def test_of_two_plans_the_common_options_are_compared() -> None:
    other = plan(Survey("t", (Choice("c", ("y", "w")), Flags("g", ("a",)))), q="0.1")
    tally = simulate(other, users=500, seed=1).estimates.tally
    document = crowd_difference((PLAN, TALLIES[0]), (other, tally)).to_json()
    assert {name: list(rows) for name, rows in document["questions"].items()} == {"c": ["y"]}
    nothing = plan(Survey("t", (Flags("g", ("a",)),)), q="0.1")
    tally = simulate(nothing, users=500, seed=1).estimates.tally
    with pytest.raises(InputError, match="no option in common"):
        crowd_difference((PLAN, TALLIES[0]), (nothing, tally))


def test_a_part_of_a_crowd_is_refused() -> None:
    agreed = plan(SURVEY, crowd_size=1000, epsilon=2, delta="1e-6")
    tallies = [simulate(agreed, users=users, seed=1).estimates.tally for users in (1000, 999)]
    from dataclasses import replace

    whole, part = (replace(one, simulated=False) for one in tallies)
    with pytest.raises(PrivacyRefusal, match="wait for the whole crowd"):
        trend(agreed, [whole, part])
    with pytest.raises(PrivacyRefusal, match="wait for the whole crowd"):
        crowd_difference((agreed, whole), (agreed, part))
    with pytest.raises(InputError, match="two crowds or more"):
        trend(PLAN, TALLIES[:1])
    assert estimate(agreed, whole)
    assert np.isfinite(trend(agreed, [whole, whole]).to_json()["questions"]["f"]["a"][0]["low"])


def test_a_difference_prints_as_a_table_and_becomes_a_data_frame() -> None:
    apart = crowd_difference((PLAN, TALLIES[0]), (PLAN, TALLIES[1]))
    rows = apart.to_json()["questions"]
    shown = [line.split()[0] for line in str(apart).splitlines() if line.count("%") == 2]
    assert shown == list(apart.to_pandas()["option"])
    assert apart.to_polars()["difference"].to_list()[0] == rows["f"]["a"]["difference"]
