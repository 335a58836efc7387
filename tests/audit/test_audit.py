"""Evidence from the outside: the honest pass, every mutant is convicted.

This file guards the whole product: a change that breaks the randomizer or the path to a released
tally must fail here. The honest runs use the operating system's random bits at a confidence of
1 - 1e-11 each, so that a false alarm of the file has probability below 1e-10.
"""

import dataclasses
import json
import sys
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.analysis.count_table import unpack
from shoal.analysis.report_files import parse_batch
from shoal.audit import inspect_pairs, inspect_pipeline, inspect_randomizer
from shoal.audit.randomizers import lower, p_values, upper
from shoal.cli import run
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip, pack_reports
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.wire import Synthetic

SURE = 1 - 1e-11
Q = "0.25"
NOISE = np.random.default_rng(20261115)


def ours(rows):
    q = FlipProbability.at_least(Q)
    return unpack(flip(q, Original(pack(rows), rows.shape[1])).rows, rows.shape[1])


def flips(shape, q=0.25):
    return (NOISE.random(shape) < q).astype(np.uint8)


def ours_row_by_row(row):
    assert row.ndim == 1
    return ours(row[None])[0]


def last_bit_never_flipped(rows):
    noise = flips(rows.shape)
    noise[:, -1] = 0
    return rows ^ noise


def ones_never_cleared(rows):
    return rows | flips(rows.shape)


def flipped_in_pairs(rows):
    noise = flips(rows.shape)
    noise[:, 1::2] = noise[:, : noise.shape[1] // 2 * 2 : 2]
    return rows ^ noise


def same_noise_twice_running(rows):
    return rows ^ np.repeat(flips((len(rows) // 2 + 1, rows.shape[1])), 2, axis=0)[: len(rows)]


def flips_depend_on_the_neighbour(rows):
    before = np.roll(rows, 1, axis=1)
    return rows ^ (NOISE.random(rows.shape) < np.where(before == 1, 0.2, 0.3))


def one_set_bit_in_clear(rows):
    noise = flips(rows.shape)
    noise[rows.sum(axis=1) == 1] = 0
    return rows ^ noise


def changes_its_input(rows):
    rows ^= flips(rows.shape)
    return rows


MUTANTS = {
    "off by five percent": lambda rows: rows ^ flips(rows.shape, 0.2375),
    "last bit never flipped": last_bit_never_flipped,
    "ones never cleared": ones_never_cleared,
    "flipped in pairs": flipped_in_pairs,
    "fixed seed": lambda rows: rows ^ (np.random.default_rng(1).random(rows.shape) < 0.25),
    "same noise twice running": same_noise_twice_running,
    "flips depend on the neighbour": flips_depend_on_the_neighbour,
    "one set bit in clear": one_set_bit_in_clear,
    "changes its input": changes_its_input,
    "returns too few": lambda rows: rows[:, :-1],
    "returns noise that is no bit": lambda rows: rows * 2,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("randomizer", "bits"), [(ours, 1), (ours, 2), (ours, 9), (ours, 40), (ours_row_by_row, 9)]
)
def test_our_randomizer_passes(randomizer, bits):
    verdict = inspect_randomizer(
        randomizer, q=Q, bits=bits, samples=8000, confidence=SURE, seed=bits
    )
    assert verdict.reasons == ()
    assert verdict.epsilon_refuted <= verdict.epsilon_claimed


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_convicted(mutant):
    found = inspect_randomizer(
        MUTANTS[mutant], q=Q, bits=10, samples=64_000, confidence=SURE, seed=1
    )
    assert found.convicted
    assert found.reasons
    if "last bit" in mutant:  # a gross fault stops the test early
        assert found.samples == 1000


@pytest.mark.slow
def test_false_alarms_come_at_most_at_the_stated_rate():
    """1000 seeded honest runs at confidence 0.9: 100 alarms at most are expected.

    Bonferroni makes the true rate smaller; 145 is beyond a binomial(1000, 0.1) at 1e-5, and the
    runs are seeded, so that the test gives the same answer every time.
    """
    generator = np.random.default_rng(5)

    def honest(rows):
        return rows ^ (generator.random(rows.shape) < 0.25)

    alarms = sum(
        inspect_randomizer(honest, q=Q, bits=6, samples=2000, confidence=0.9, seed=seed).convicted
        for seed in range(1000)
    )
    assert alarms <= 145


def test_refuted_epsilon_is_a_valid_bound_and_finds_a_hole():
    """A bit that is never cleared: a reported 0 proves a 0, so every epsilon is too small."""
    honest = inspect_randomizer(ours, q=Q, bits=3, samples=40_000, confidence=SURE, seed=1)
    assert 1.5 < honest.epsilon_refuted < honest.epsilon_claimed
    hole = inspect_randomizer(
        ones_never_cleared, q=Q, bits=3, samples=40_000, confidence=SURE, seed=1
    )
    assert hole.convicted
    zero_proves_zero = inspect_pairs(
        np.repeat([[0], [1]], 20_000, axis=0),
        np.repeat([[0], [1]], 20_000, axis=0) | flips((40_000, 1)),
        q=Q,
    )
    assert zero_proves_zero.epsilon_refuted > 5 > zero_proves_zero.epsilon_claimed


def test_pairs_from_a_file(tmp_path, capsys):
    originals = NOISE.integers(0, 2, (3000, 4)).astype(np.uint8)
    for name, synthetic in (("good", ours(originals)), ("bad", last_bit_never_flipped(originals))):
        lines = [
            "".join(map(str, a)) + "," + "".join(map(str, b))
            for a, b in zip(originals, synthetic, strict=True)
        ]
        (tmp_path / name).write_text("original,synthetic\n" + "\n".join(lines) + "\n")
    arguments = ["audit", "--flags", "4", "--q", Q, "--confidence", "0.99999999999"]
    assert run([*arguments, "--pairs", str(tmp_path / "good")]) == 0
    assert run([*arguments, "--pairs", str(tmp_path / "bad")]) == 3
    capsys.readouterr()
    (tmp_path / "ugly").write_text("0101,0101\n01,0101\n")
    assert run([*arguments, "--pairs", str(tmp_path / "ugly")]) == 2
    assert "line 2" in capsys.readouterr().err


@pytest.mark.slow
def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "suspects.py").write_text(
        "import numpy as np\n"
        "noise = np.random.default_rng(1)\n"
        "def honest(rows): return rows ^ (noise.random(rows.shape) < 0.25)\n"
        "def lazy(rows):\n"
        "    flips = noise.random(rows.shape) < 0.25\n"
        "    flips[..., -1] = False\n"
        "    return rows ^ flips\n"
    )
    arguments = ["audit", "--flags", "8", "--q", Q, "--json", "--randomizer"]
    assert run([*arguments, "suspects:honest", "--samples", "4000"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"
    assert run([*arguments, "suspects:lazy"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "convict"
    assert any("bit 7" in reason for reason in document["reasons"])
    assert set(document["bits"][0]) == {"bit", "rate_0", "rate_1", "p_value"}
    assert {"epsilon_claimed", "epsilon_refuted"} <= set(document)


def test_exact_tests_against_direct_sums():
    """p-values and bounds by summing the binomial law term by term."""
    from math import comb

    n, rate = 20, 0.3
    law = [comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
    for k in range(n + 1):
        expected = min(1.0, 2 * min(sum(law[: k + 1]), sum(law[k:])))
        assert p_values(np.array([k]), np.array([n]), rate)[0] == pytest.approx(expected)
    for k in (0, 3, 20):
        low, high = (float(f(np.array([k]), np.array([n]), 0.01)[0]) for f in (lower, upper))
        above = sum(comb(n, j) * low**j * (1 - low) ** (n - j) for j in range(k, n + 1))
        below = sum(comb(n, j) * high**j * (1 - high) ** (n - j) for j in range(k + 1))
        assert above == pytest.approx(0.01) if k else low == 0
        assert below == pytest.approx(0.01) if k < n else high == 1


BITS, CROWD = 3, 30
SURVEY = shoal.Survey("s", (shoal.Flags("f", ("1", "2", "3")),))
PLAN = shoal.plan(SURVEY, q="0.2", crowd_size=CROWD, epsilon="1", accept_weak_promise=True)
DELTA = float(PLAN.promise.delta or 1)


def release(rows):
    tally = shoal.tally(PLAN, Synthetic(np.ascontiguousarray(rows), BITS))
    shoal.estimate(PLAN, tally)  # refuses a crowd that is not whole
    return tally


def honest_pipeline(original):
    """The product's own path, over the wire and back."""
    batch = pack_reports(PLAN, flip(PLAN, original))
    return release(parse_batch(PLAN, batch.to_bytes()).rows)


def randomized(original):
    return flip(PLAN, original).rows


def q_off_by_five_percent(original):
    q = FlipProbability.at_least(float(PLAN.q) * 0.95)
    return release(flip(q, original).rows)


def bits_flipped_in_pairs(original):
    noise = NOISE.random((len(original), BITS)) < float(PLAN.q)
    noise[:, 1] = noise[:, 0]
    return release(original.rows ^ pack(noise))


def seed_left_in(original):
    return release(flip(PLAN, original, random_bits=SimulationBits(7)).rows)


def first_report_again(original, *, replacing: bool):
    rows = randomized(original)
    return release(np.concatenate([rows[:-1] if replacing else rows, rows[:1]]))


def one_report_early(original):
    rows = randomized(original)
    if len(rows) < CROWD - 1:
        raise shoal.PrivacyRefusal("not yet")
    return shoal.tally(PLAN, Synthetic(rows, BITS))


PIPELINES = {
    "q off by five percent": q_off_by_five_percent,
    "last bit untouched": lambda one: release((randomized(one) & 3) | (one.rows & 4)),
    "ones kept": lambda one: release(randomized(one) | one.rows),
    "bits flipped in pairs": bits_flipped_in_pairs,
    "seed left in": seed_left_in,
    "first report counted twice": lambda one: first_report_again(one, replacing=False),
    "first report in place of the last": lambda one: first_report_again(one, replacing=True),
    "one report early": one_report_early,
}


def question(pipeline, runs=2400):
    return inspect_pipeline(
        pipeline, PLAN, epsilon=1.0, delta=DELTA, runs=runs, confidence=SURE, seed=1
    )


def test_a_counts_pipeline_passes_and_one_that_releases_set_bits_does_not():
    seen = dataclasses.replace(PLAN, view="counts")

    def counted(original):
        tally = shoal.tally(seen, flip(seen, original))
        shoal.estimate(seen, tally)
        return tally

    def with_set_bits(original):
        counts = counted(original)
        whole = shoal.tally(PLAN, flip(PLAN, original))
        return dataclasses.replace(counts, by_set_bits=whole.by_set_bits)

    how: Any = {"epsilon": 1.0, "delta": DELTA, "runs": 200, "confidence": SURE, "seed": 1}
    assert inspect_pipeline(counted, seen, **how).reasons == ()
    assert inspect_pipeline(with_set_bits, seen, **how).reasons == (
        "a release is of view reports, the plan's view is counts.",
    )


@pytest.mark.parametrize("runs", [400, pytest.param(2400, marks=pytest.mark.slow)])
def test_the_path_of_the_product_passes(runs):
    verdict = question(honest_pipeline, runs)
    assert verdict.reasons == ()
    assert verdict.delta_refuted <= DELTA


@pytest.mark.slow
@pytest.mark.parametrize("mutant", PIPELINES)
def test_mutated_pipelines_are_convicted(mutant):
    assert question(PIPELINES[mutant]).convicted


@pytest.mark.slow
def test_a_noiseless_pipeline_refutes_its_delta():
    verdict = question(lambda original: release(original.rows))
    assert verdict.delta_refuted > 0.5


def test_pipelines_are_inspected_on_flags_with_a_crowd():
    with pytest.raises(InputError):
        inspect_pipeline(honest_pipeline, shoal.plan(SURVEY, q="0.2"), epsilon=1, delta=0.1)
