"""Which texts a crowd answered: recall, false discoveries, coverage, and what is refused.

The words and their frequencies are real: those that the package `wordfreq` ships. All noise is
seeded, so a statistical test passes or fails for ever; the stated probability is that with which
another seed would have failed. `bench/decoding.py` runs twenty repetitions with a million people,
beside RAPPOR's method; here the same runs smaller.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.optimize import lsq_linear
from scipy.stats import binom, norm

from shoal import Flags, Survey, Text, plan, tally
from shoal.analysis.tally import CohortCounts, Tally
from shoal.analysis.text import decode
from shoal.analysis.text.decode import check_candidates, read_candidates
from shoal.analysis.text.inference import Jumps, Regression, conditional_low, excess
from shoal.analysis.text.least_squares import fit, hash_table, make_data, make_design
from shoal.analysis.text.results import DecodedTexts
from shoal.analysis.text.selection import FEW_DRAWS, discoveries, null_distribution, surplus
from shoal.cli import run
from shoal.device.arrays.simulation_bits import SimulationBits, simulation_generator
from shoal.device.encode import encode
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.lab.populations import simulate_texts
from shoal.lab.simulation import simulate
from shoal.planning.text_size import predicted_sigma, suggest_text_size
from shoal.protocol.text_hash import TextHash
from shoal.theory.blanket import blanket_delta
from shoal.theory.domains import at_most


@cache
def real_words() -> dict[str, float]:
    """English words by falling frequency."""
    pytest.importorskip("wordfreq", reason="real word frequencies need the extra `test`")
    from wordfreq import get_frequency_dict

    ranked = sorted(get_frequency_dict("en", "small").items(), key=lambda pair: (-pair[1], pair[0]))
    return dict(ranked)


def crowd(people: int, most: int, seed: int = 0) -> dict[str, int]:
    """People who answer one of the `most` most frequent words, as often as English has them."""
    weights = np.array(list(real_words().values()))[:most]
    drawn = simulation_generator(seed).multinomial(people, weights / weights.sum())
    return {word: int(n) for word, n in zip(real_words(), drawn, strict=False) if n}


def words(bits=128, hashes=1, cohorts=32, name="words") -> Survey:
    return Survey(name, (Text("word", bits=bits, hashes=hashes, cohorts=cohorts),))


def covered(decoded, counts) -> list[bool]:
    return [row.low <= counts.get(row.value, 0) <= row.high for row in decoded.discoveries]


def decoded_words(size, q, counts, candidates, seed=1, name="words", **options) -> DecodedTexts:
    """Decode a crowd's counts, drawn from their distribution; `size` as `words` takes it."""
    bits, hashes, cohorts = size
    made = plan(words(bits, hashes, cohorts, name), q=q)
    return decode(made, simulate_texts(made, counts, seed=seed), candidates, **options)


def is_near(decoded, counts) -> bool:
    return all(abs(decoded[w].count - n) < 4.5 * decoded[w].sigma for w, n in counts.items())


CANDIDATES = 2000
SIZE = {"bits": 128, "hashes": 1, "cohorts": 32}


@pytest.fixture(scope="module")
def repetitions() -> tuple[dict[str, int], list[DecodedTexts], float]:
    """Twenty times the same 100,000 people; each survey has another name and so other hashes."""
    counts = crowd(100_000, most=3000)
    real = list(real_words())[:300]
    candidates = [*real, *(f"no word {i}" for i in range(CANDIDATES - len(real)))]
    decoded = []
    for seed in range(20):
        survey = words(**SIZE, name=f"words {seed}")
        made = plan(survey, crowd_size=100_000, epsilon="2", delta="1e-6")
        decoded.append(decode(made, simulate_texts(made, counts, seed=seed), candidates))
    return counts, decoded, float(made.q)


@pytest.mark.slow
class TestRealWords:
    def test_recall(self, repetitions):
        counts, decoded, q = repetitions
        sigma = predicted_sigma(100_000, q, **SIZE)
        wanted = [word for word, count in counts.items() if count > 6 * sigma]
        assert len(wanted) >= 20
        assert np.mean([one[word].found for one in decoded for word in wanted]) >= 0.95

    def test_false_discoveries(self, repetitions):
        counts, decoded, _ = repetitions
        shares = [
            sum(row.value not in counts for row in one.discoveries) / max(len(one.discoveries), 1)
            for one in decoded
        ]
        assert np.mean(shares) <= 0.05

    def test_coverage(self, repetitions):
        """Those found at the level given that they were found, the others on average."""
        counts, decoded, _ = repetitions
        hits = [hit for one in decoded for hit in covered(one, counts)]
        assert len(hits) > 800
        # P(Bin(n, 0.95) / n < 0.93) is below 0.005
        assert np.mean(hits) > 0.93
        rest = [
            row.low <= counts.get(row.value, 0) <= row.high
            for one in decoded
            for row in one
            if not row.found
        ]
        assert 0.94 < np.mean(rest) < 0.985

    def test_sigma(self, repetitions):
        """Errors of the well-known words are as large as sigma says, and as was predicted."""
        counts, decoded, q = repetitions
        top = [word for word, count in counts.items() if count > 1500]
        errors = np.array(
            [(one[w].count - counts[w]) / one[w].sigma for one in decoded for w in top]
        )
        assert len(errors) >= 100
        assert abs(errors.mean()) < 4 / math.sqrt(len(errors))
        assert 0.8 < errors.std() < 1.2
        sigma = predicted_sigma(100_000, q, **SIZE)
        measured = np.median([row.sigma for one in decoded for row in one.discoveries])
        assert 1 < measured / sigma < 1.35  # the prediction leaves out texts that are not found

    def test_unexplained(self, repetitions):
        counts, decoded, _ = repetitions
        errors = []
        for one in decoded:
            truth = one.reports - sum(counts.get(row.value, 0) for row in one.discoveries)
            errors.append((one.unexplained - truth) / one.unexplained_sigma)
        assert max(np.abs(errors)) < 4
        assert abs(np.mean(errors)) < 1.5

    def test_nobody_answered_any_candidate(self):
        """All candidates absent: something is found in at most 5 % of the runs, beside chance.

        Popular words that nobody asked about are in the crowd, which misleads other methods.
        P(Bin(20, 0.05) > 4) is 0.003.
        """
        counts = crowd(20_000, most=500)
        runs = 0
        for seed in range(20):
            candidates = [f"no word {i}" for i in range(1000)]
            size, name = (64, 1, 16), f"absent {seed}"
            decoded = decoded_words(size, "0.05", counts, candidates, seed, name)
            runs += bool(decoded.discoveries)
        assert runs <= 4


class TestSmallCrowds:
    COUNTS = {"tea": 3000, "coffee": 6000, "water": 1000}  # noqa: RUF012

    def decoded(self, candidates, hashes=2, q="0.1", seed=1, **options):
        made = plan(words(64, hashes, 16), q=q)
        return decode(made, simulate_texts(made, self.COUNTS, seed=seed), candidates, **options)

    def non_negative(self, decoded):
        """The nearest counts without negative ones, background included, by another solver."""
        fitted = decoded._regression.fit
        root = np.linalg.cholesky(np.linalg.inv(fitted.inverse)).T
        free = np.append(fitted.background, fitted.counts)
        found = lsq_linear(root, root @ free, bounds=(0, np.inf), tol=1e-14).x[1:]
        names = {place: word for word, place in decoded._pattern.items()}
        by_word = dict(zip([names[place] for place in fitted.chosen], found, strict=True))
        total = sum(by_word[row.value] for row in decoded.discoveries)
        return {word: x * min(1.0, decoded.reports / total) for word, x in by_word.items()}

    @pytest.mark.parametrize("hashes", [1, 2, 4])
    def test_everything_is_known(self, hashes):
        done: list[int] = []
        candidates = [*self.COUNTS, *(f"drink {i}" for i in range(200))]
        decoded = self.decoded(candidates, hashes, progress=done.append)
        assert sum(done) == 203
        assert {row.value for row in decoded.discoveries} >= set(self.COUNTS)
        assert is_near(decoded, self.COUNTS)
        nearest = self.non_negative(decoded)
        for row in decoded.discoveries:
            assert row.constrained == pytest.approx(nearest[row.value], abs=0.1)
        assert abs(decoded.unexplained) < 4.5 * decoded.unexplained_sigma
        absent = [one for one in decoded if not one.found]
        assert len(absent) >= 195
        assert all(one.constrained == 0 for one in absent)
        assert min(one.count for one in absent) < 0  # unbiased, not clipped
        assert all(0 <= one.low <= one.high for one in absent)

    def test_order_and_lookup(self):
        decoded = self.decoded(["water", "tea", "coffee", "cocoa"])
        assert [row.value for row in decoded[:3]] == ["coffee", "tea", "water"]
        assert len(decoded) == 4
        assert decoded["  tea"] is decoded[1]
        with pytest.raises(InputError, match="not among the candidates"):
            decoded["juice"]

    def test_a_popular_unknown_word_does_no_harm(self):
        """Coffee is not a candidate: its bits are left out, and nothing else is found for it."""
        decoded = self.decoded(["tea", "water", *(f"drink {i}" for i in range(300))], hashes=1)
        assert {row.value for row in decoded.discoveries} == {"tea", "water"}
        assert is_near(decoded, {"tea": 3000})
        assert abs(decoded.unexplained - 6000) < 4.5 * decoded.unexplained_sigma

    @pytest.mark.parametrize(
        "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
    )
    def test_one_unknown_text_of_half_the_crowd(self, seed):
        """It shares a bit with a known one in some cohort, where plain least squares is misled."""
        counts = {"salmon": 3_000_000, "trout": 1_500_000, "perch": 150_000, "grayling": 100_000}
        crowd, names = counts | {"unknown": 5_250_000}, [*counts, *(f"fish {i}" for i in range(20))]
        decoded = decoded_words(
            (1024, 1, 63), "0.0462", crowd, names, seed, f"half {seed}", fdr=0.001
        )
        assert [row.value for row in decoded.discoveries] == list(counts)
        assert is_near(decoded, counts)
        assert abs(decoded.unexplained - 5_250_000) < 4.5 * decoded.unexplained_sigma

    def test_covariance_and_total(self):
        decoded = self.decoded(["tea", "coffee", "water"])
        matrix = decoded.covariance(["tea", "coffee"])
        sigmas = [decoded["tea"].sigma, decoded["coffee"].sigma]
        assert np.sqrt(np.diag(matrix)) == pytest.approx(sigmas, rel=0.05)
        both = decoded.total(["tea", "coffee"])
        assert 9000 in both
        # The error is a sum over 64 bits and nothing hides, so its law is nearly normal.
        reach = norm.isf(0.025) * math.sqrt(matrix.sum())
        assert both.high - both.low == pytest.approx(2 * reach, rel=0.03)
        with pytest.raises(InputError, match="not found"):
            self.decoded(["tea", "cocoa"]).total(["cocoa"])

    def test_a_cohort_without_reports(self):
        counts = {"tea": 40, "coffee": 60}
        decoded = decoded_words((32, 1, 64), "0.05", counts, ["tea", "coffee", "x"])
        assert all(math.isfinite(row.count) and row.sigma > 0 for row in decoded)

    def test_beside_another_question(self):
        survey = Survey("both", (Flags("f", ("a", "b")), *words(64, 1, 16).questions))
        made, noise = plan(survey, q="0.05"), SimulationBits(2)
        answers = [{"f": ["a"], "word": "tea"}] * 600 + [{"f": [], "word": "coffee"}] * 400
        originals = encode(survey, answers, random_bits=noise)
        counted = tally(made, flip(made, originals, random_bits=noise))
        decoded = decode(made, counted, ["tea", "coffee", "cocoa"], question="word")
        assert abs(decoded["tea"].count - 600) < 4.5 * decoded["tea"].sigma
        with pytest.raises(InputError, match="does not ask for text"):
            decode(made, counted, ["tea"], question="f")


class TestHiddenTexts:
    """A popular unknown text meets a popular known one on some bits, and does not stand out."""

    COUNTS = {"coffee": 3600, "tea": 2400, "mate": 1200}  # noqa: RUF012
    UNKNOWN = {"my own blend": 800}  # noqa: RUF012

    def decoded(self, number):
        """Each survey has another name and so other hashes."""
        counts, candidates = self.COUNTS | self.UNKNOWN, [*self.COUNTS, "water", "juice"]
        return decoded_words((64, 1, 16), "0.05", counts, candidates, number, f"drinks {number}")

    @pytest.mark.slow
    def test_coverage(self):
        """Of each text and of two together, at least the level less three standard errors.

        A normal law with the sigma of the fit covered coffee in 84 % of these, the two in 83 %.
        """
        surveys = 120
        hits = dict.fromkeys((*self.COUNTS, "two"), 0)
        errors = []
        for number in range(surveys):
            decoded = self.decoded(number)
            for word, count in self.COUNTS.items():
                assert decoded[word].found
                hits[word] += decoded[word].low <= count <= decoded[word].high
            hits["two"] += 6000 in decoded.total(["coffee", "tea"])
            errors.append((decoded["coffee"].count - 3600, decoded["coffee"].sigma))
        least = 0.95 - 3 * math.sqrt(0.95 * 0.05 / surveys)
        assert all(hit / surveys > least for hit in hits.values()), hits
        # The sigma is that of the errors, hidden texts included: 7 % is one standard error of it.
        wrong, sigma = np.array(errors).T
        assert np.sqrt((wrong**2).mean() / (sigma**2).mean()) == pytest.approx(1, abs=0.21)

    def test_without_unknown_texts_nothing_hides(self):
        """Then the interval is about as wide as the flips alone make it."""
        decoded = decoded_words((64, 1, 16), "0.05", self.COUNTS, [*self.COUNTS, "water"])
        row = decoded["coffee"]
        flips = math.sqrt(7200 * 0.05 * 0.95) / 0.9
        assert row.high - row.low == pytest.approx(2 * 1.96 * flips, rel=0.15)

    def test_jumps_by_drawing(self):
        """Ends of a normal error plus rare jumps, beside a million draws of it.

        A share of 0.025 among a million is within 0.001 with a probability above 1 - 1e-9.
        """
        generator = simulation_generator(8)
        jumps = Jumps(np.array([0.1, 0.02, 0.3]), np.array([40.0, -95.0, 11.0]))
        drawn = 10 * generator.standard_normal(1_000_000)
        for rate, size in zip(jumps.rates, jumps.sizes, strict=True):
            drawn += size * generator.poisson(rate, len(drawn))
        low, high = jumps.ends(10.0, 0.025)
        assert (drawn < low).mean() == pytest.approx(0.025, abs=0.001)
        assert (drawn > high).mean() == pytest.approx(0.025, abs=0.001)
        assert drawn.mean() == pytest.approx(jumps.mean, abs=0.1)
        assert drawn.var() == pytest.approx(100 + jumps.variance, rel=0.02)

    def test_jumps_far_beyond_the_rest(self):
        """A thousand sigmas: the lattice is as coarse as two sigmas, and the ends are right to it.

        With no jump at all, of chance exp(-0.5), the error is normal.
        """
        low, high = Jumps(np.array([0.5]), np.array([1000.0])).ends(1.0, 0.025)
        assert low == pytest.approx(norm.ppf(0.025 / math.exp(-0.5)), abs=2)
        # P(more than two jumps) is 0.014 and P(more than one) 0.09: the end is at the second.
        assert high == pytest.approx(2000, abs=3)

    def test_leverage_is_the_hat_matrix(self):
        made = plan(words(16, 2, 4), q="0.1")
        counts = {"a": 900, "b": 300, "c": 100}
        design = make_design(made.survey.text_hash("word"), list(counts), 4)
        cohorts = simulate_texts(made, counts, seed=1).cohorts
        assert cohorts is not None
        fitted = fit(make_data(cohorts, slice(0, 16), 0.1, 2), design, np.arange(3), 0.0)
        columns, weight = fitted.columns.toarray(), np.diag(fitted.weight.ravel())
        normal = np.linalg.inv(columns.T @ weight @ columns)
        hat = np.diag(columns @ normal @ columns.T @ weight)
        assert fitted.leverage().ravel() == pytest.approx(hat, abs=1e-6)

    def test_one_cohort(self):
        """One bit tells no text from another: nothing is found, and the intervals say at most.

        They said at most 150 of 9,000 people, because single bits far off are clipped.
        """
        counts = {"coffee": 9000, "tea": 6000, "mate": 3000}
        candidates = [*counts, *(f"drink {i}" for i in range(60))]
        decoded = decoded_words((128, 1, 1), "0.05", counts, candidates)
        for word, count in counts.items():
            row = decoded[word]
            assert not row.found
            assert row.low == 0
            assert count < row.high < 1.05 * count
        assert [row.value for row in decoded][:3] == list(counts)


class TestCannotBeToldApart:
    def test_one_cohort(self):
        """With 8 bits and one cohort texts of the same bit are one row, the others named in it."""
        made = plan(words(8, 1, 1), q="0.05")
        candidates = [f"text {i}" for i in range(40)]
        decoded = decode(
            made, simulate_texts(made, {"text 3": 5000, "text 4": 2000}, seed=1), candidates
        )
        assert len(decoded) <= 8
        assert sorted(v for row in decoded for v in (row.value, *row.same_as)) == sorted(candidates)
        table = hash_table(made.survey.text_hash("word"), candidates, 1).ravel()
        same = {t for t, place in zip(candidates, table, strict=True) if place == table[3]}
        row = decoded["text 3"]
        assert {row.value, *row.same_as} == same
        assert any(f"counted with it: {40 - len(decoded)}" in note for note in decoded.notes)

    def test_nearly_alike(self):
        """Candidates that share four of five bits with one that was found are listed with it."""
        made = plan(words(8, 1, 5), q="0.02")
        pool = [f"text {i}" for i in range(20_000)]
        table = hash_table(made.survey.text_hash("word"), pool, 5)[:, :, 0]
        shared = (table == table[0]).sum(axis=1)
        near = {pool[i] for i in np.flatnonzero(shared == 4)[:3]}
        candidates = ["text 0", *near, *(pool[i] for i in np.flatnonzero(shared < 3)[:100])]
        decoded = decode(made, simulate_texts(made, {"text 0": 20_000}, seed=1), candidates)
        assert decoded["text 0"].found
        listed = next(group for group in decoded.alike if "text 0" in group)
        assert len(near) == 3
        assert {v for t in listed for v in (t, *decoded[t].same_as)} >= near
        assert decoded.to_json()["alike"]
        assert any("hard to tell apart" in note for note in decoded.notes)


class TestParts:
    def test_design_is_the_matrix(self):
        hashing = TextHash("00" * 32, "word", 16, 3)
        texts = [f"text {i}" for i in range(50)]
        design = make_design(hashing, texts, 5)
        matrix = np.zeros((50, 5, 16))
        for text, cohort in itertools.product(range(50), range(5)):
            matrix[text, cohort, list(hashing.positions(texts[text], cohort))] = 1
        table = np.arange(80.0).reshape(5, 16) ** 1.5
        chosen = np.array([3, 41, 7])
        assert design.patterns == 50
        assert design.adjoint(table) == pytest.approx((matrix * table).sum(axis=(1, 2)))
        shares = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
        expected = (matrix[chosen] * shares[None, :, None]).reshape(3, -1).T
        assert design.columns(chosen, shares).toarray() == pytest.approx(expected)
        assert design.at(chosen, table).sum(axis=(1, 2)) == pytest.approx(
            design.adjoint(table)[chosen]
        )

    @pytest.mark.slow
    def test_spread_by_brute_force(self):
        """Sigma and covariance beside the spread of the estimates over 400 drawn tallies.

        A standard deviation from 400 draws is within 15 % with a probability above 0.9999.
        """
        made = plan(words(16, 1, 8), q="0.1")
        counts = {"a": 900, "b": 300, "c": 100}
        hashing = made.survey.text_hash("word")
        design = make_design(hashing, list(counts), 8)
        generator = simulation_generator(5)
        fits = []
        table = hash_table(hashing, counts, 8)[:, :, 0]
        for _ in range(400):
            ones, sizes = np.zeros((8, 16), int), np.zeros(8, int)
            for place, count in enumerate(counts.values()):
                drawn = generator.multinomial(count, np.full(8, 1 / 8))
                sizes += drawn
                np.add.at(ones, (np.arange(8), table[place]), drawn)
            shown = generator.binomial(ones, 0.9) + generator.binomial(sizes[:, None] - ones, 0.1)
            pairs = zip(sizes, shown, strict=True)
            cohorts = tuple(CohortCounts(int(n), row) for n, row in pairs)
            data = make_data(cohorts, slice(0, 16), 0.1, 1)
            fitted = fit(data, design, np.arange(3), 0.0)
            fits.append(fitted.counts)
        estimates = np.array(fits)
        combinations = np.vstack((np.eye(4)[1:], [0, 1, 1, 1]))
        regression = Regression(data, design, fitted, 0.0)
        sigmas = regression.errors(combinations, 0.95).sigmas
        measured = [*estimates.std(axis=0), estimates.sum(axis=1).std()]
        assert sigmas == pytest.approx(measured, rel=0.15)
        assert np.sqrt(np.diag(regression.covariance(combinations))) == pytest.approx(sigmas)
        assert abs(estimates.mean(axis=0) - list(counts.values())) == pytest.approx(0, abs=15)

    @pytest.mark.parametrize("rows", [6, 20])
    def test_null_law(self, rows: int):
        """The tail of a sum of draws from skew rows, beside 400,000 draws.

        Few draws are added up on a lattice; for more the tail is a saddlepoint approximation.
        """
        assert (rows <= FEW_DRAWS) == (rows == 6)
        generator = simulation_generator(3)
        table = generator.exponential(size=(rows, 50))
        table -= table.mean(axis=1, keepdims=True)
        places = generator.integers(50, size=(rows, 400_000))
        drawn = table[np.arange(rows)[:, None], places].sum(axis=0)
        law = null_distribution(table, 1)
        for score in np.array([0.2, 1.2, 2.2, 2.8]) * math.sqrt(rows):
            share = (drawn >= score).mean()
            assert norm.sf(law.normal_score(np.array([score])))[0] == pytest.approx(share, rel=0.1)

    def test_discoveries_by_the_definition(self):
        generator = simulation_generator(4)
        for _ in range(50):
            p = generator.random(30) ** 3
            most = max([k for k in range(31) if (p <= 0.1 * k / 30).sum() >= k])
            found, _ = discoveries(np.log(p), 0.1)
            assert set(found) == set(np.argsort(p)[:most])

    def test_conditional_interval_covers_what_is_found(self):
        """Means from 0 to 8, z found above 3; 95 % of the found ones are covered, at each mean.

        With n found the share is within 4 standard errors with a probability above 0.9999.
        """
        generator = simulation_generator(6)
        for mean in (0.0, 1.0, 2.0, 3.0, 4.0, 8.0):
            z = generator.standard_normal(400_000) + mean
            z = z[z > 3][:20_000]
            low, high = conditional_low(z, 3.0, 0.95), z + norm.isf(0.025)
            share = ((low <= mean) & (mean <= high)).mean()
            assert share > 0.95 - 4 * math.sqrt(0.05 * 0.95 / len(z))

    def test_excess_and_surplus(self):
        """Sums of errors of what passes a cutoff, from the density at it; known by simulation."""
        generator = simulation_generator(7)
        means = np.concatenate((np.zeros(50_000), generator.exponential(2.0, 20_000)))
        z = generator.standard_normal(len(means)) + means
        passed = z > 3
        bias, sigma = excess(z * 10, np.full(len(z), 10.0), z, 3.0)
        truth = 10 * (z - means)[passed].sum()
        assert bias == pytest.approx(truth, rel=0.1)
        assert 0 < sigma < 0.5 * bias
        assert excess(z[:1] * 0, np.ones(1), z[:1] * 0, 5.0) == (0.0, 0.0)
        assert surplus(z, 3.0) == pytest.approx(((z - means)[passed] ** 2 - 1).sum(), rel=0.35)


class TestSimulateTexts:
    @pytest.mark.parametrize("hashes", [pytest.param(1, marks=pytest.mark.slow), 3])
    def test_the_law_of_reports(self, hashes):
        """Means and variances of the counts, beside those of reports: 300 draws of each.

        Over the 24 counts the largest difference of means is beyond 5 standard errors with a
        probability below 2e-5; a ratio of variances is outside (0.5, 2) with one below 1e-7.
        """
        made = plan(words(8, hashes, 3), q="0.2")
        counts = {"tea": 120, "coffee": 30, " tea": 20, "": 30}
        answers = [{"word": text} for text, count in counts.items() for _ in range(count)]
        tallies: list[list[Tally]] = [[], []]
        for seed in range(300):
            originals = encode(made, answers, random_bits=SimulationBits(seed))
            report = flip(made, originals, random_bits=SimulationBits(seed + 10_000))
            tallies[0].append(simulate_texts(made, counts, seed=seed))
            tallies[1].append(tally(made, report))
        assert {counted.reports for way in tallies for counted in way} == {200}
        drawn, real = (
            np.array([[cohort.by_bit for cohort in counted.cohorts or ()] for counted in way])
            for way in tallies
        )
        error = np.sqrt((drawn.var(axis=0) + real.var(axis=0)) / 300)
        assert (np.abs(drawn.mean(axis=0) - real.mean(axis=0)) < 5 * error).all()
        ratio = drawn.var(axis=0) / real.var(axis=0)
        assert (ratio > 0.5).all()
        assert (ratio < 2).all()

    def test_refused(self):
        survey = Survey("both", (Flags("f", ("a", "b")), *words(64, 1, 16).questions))
        with pytest.raises(InputError, match="one text question only"):
            simulate_texts(plan(survey, q="0.1"), {"tea": 1}, seed=1)
        with pytest.raises(InputError, match="count of 'tea'"):
            simulate_texts(plan(words(), q="0.1"), {"tea": -1}, seed=1)


class TestPrivacy:
    """A cohort drawn afresh and sent along keeps the promise of "at most h of m" bits."""

    @pytest.mark.parametrize("epsilon", [0.2, 0.7])
    @pytest.mark.parametrize(
        ("bits", "people", "texts"),
        [
            # The bits of a text in each of two cohorts; the first two texts are the pair in doubt.
            (2, 3, [({0}, {0}), ({1}, {1}), ({1}, {0}), None]),
            (2, 3, [({0}, {0}), ({0}, {1}), ({1}, {0}), None]),
            (2, 3, [({0}, {0}), ({0}, {0}), ({1}, {0}), None]),
            (4, 2, [({0, 1}, {0, 1}), ({2, 3}, {2, 3}), None]),
            (4, 2, [({0, 1}, {0, 1}), ({0, 2}, {2, 3}), None]),
            (4, 2, [({0, 1}, {0, 1}), ({2}, {0, 3}), None]),
            (4, 2, [({0, 1}, {0}), ({2, 3}, {1, 2}), None]),
        ],
    )
    def test_small_worlds_by_enumeration(self, bits, people, texts, epsilon):
        """Texts that share all, some or none of their bits, differently in two cohorts.

        The exact hockey-stick divergence of the histogram of (cohort, bits), over all others.
        """
        q, lam = 0.2, math.exp(epsilon)

        def law(text):
            shares = {}
            for cohort, shown in itertools.product(
                range(2), itertools.product((0, 1), repeat=bits)
            ):
                truth = [int(text is not None and place in text[cohort]) for place in range(bits)]
                flips = sum(a != b for a, b in zip(shown, truth, strict=True))
                shares[cohort, shown] = q**flips * (1 - q) ** (bits - flips) / 2
            return shares

        worst = 0.0
        for others in itertools.combinations_with_replacement(texts, people - 1):
            crowds = [released([law(t) for t in (*others, own)]) for own in texts[:2]]
            for one, two in (crowds, crowds[::-1]):
                worst = max(worst, sum(max(one[k] - lam * two[k], 0.0) for k in one))
        hashes = max(len(places) for text in texts if text for places in text)
        assert worst <= blanket_delta((at_most(hashes, bits),), people, q, epsilon).high
        assert (worst > 1e-12) == (texts[0] != texts[1])


def released(laws):
    """The law of the histogram of independent reports."""
    crowds: dict[tuple[object, ...], float] = {(): 1.0}
    for law in laws:
        grown: defaultdict[tuple[object, ...], float] = defaultdict(float)
        for seen, mass in crowds.items():
            for report, share in law.items():
                grown[tuple(sorted((*seen, report)))] += mass * share
        crowds = grown
    return crowds


class TestSizing:
    def test_one_hash_and_a_promise_that_is_kept(self):
        proposal = suggest_text_size(10_000, 100_000, 1, "1e-6", max_bits=256)
        made = plan(
            Survey("s", (proposal.question("word"),)), crowd_size=100_000, epsilon=1, delta="1e-6"
        )
        assert proposal.hashes == 1
        assert proposal.bits <= 256
        assert proposal.report_bytes * 8 >= proposal.bits
        assert proposal.q == pytest.approx(float(made.q), rel=1e-3)

    def test_more_hashes_are_worse(self):
        """Each at the q that its promise needs."""
        sigmas = []
        for hashes in (1, 2, 3):
            made = plan(words(256, hashes, 64), crowd_size=10**6, epsilon=2, delta="1e-7")
            q = float(made.q)
            sigmas.append(predicted_sigma(10**6, q, bits=256, hashes=hashes, cohorts=64))
        assert sigmas == sorted(sigmas)

    def check_detectable(self, proposal, crowd, **view):
        """A text at the predicted smallest count is found about 95 times in 100.

        Among 50 texts at it, fewer than 42 with a probability below 0.005.
        """
        survey = Survey("s", (proposal.question("word"),))
        made = plan(survey, crowd_size=crowd, epsilon=2, delta="1e-6", **view)
        assert proposal.q == pytest.approx(float(made.q), rel=1e-3)
        counts = {f"text {i}": proposal.detectable for i in range(50)}
        counts |= {f"rare {i}": 10 for i in range((crowd - sum(counts.values())) // 10)}
        candidates = [f"text {i}" for i in range(50)] + [f"no word {i}" for i in range(950)]
        decoded = decode(made, simulate_texts(made, counts, seed=1), candidates)
        assert sum(decoded[f"text {i}"].found for i in range(50)) >= binom.ppf(0.005, 50, 0.95)

    @pytest.mark.slow
    def test_detectable_is_detected(self):
        self.check_detectable(suggest_text_size(1000, 50_000, 2, "1e-6", max_bits=128), 50_000)

    @pytest.mark.slow
    def test_counts_want_few_cohorts(self):
        """A cohort hides a person among its own reports only; what is proposed is also found."""
        reports = suggest_text_size(1000, 20_000, 2, "1e-6", max_bits=128)
        proposal = suggest_text_size(1000, 20_000, 2, "1e-6", max_bits=128, view="counts")
        assert proposal.cohorts < reports.cohorts
        assert proposal.sigma < reports.sigma
        self.check_detectable(proposal, 20_000, view="counts")

    @pytest.mark.parametrize(
        "wrong", [{"fdr": 0}, {"fdr": 1}, {"max_bits": 8}, {"max_cohorts": 0}, {"view": "each"}]
    )
    def test_wrong(self, wrong):
        with pytest.raises(InputError):
            suggest_text_size(100, 1000, 1, "1e-6", **wrong)


DRINKS = {"coffee": 9_000, "tea": 6_000, "mate": 3_000, "blend": 2_000}
DRINK_CANDIDATES = ["coffee", "tea", "mate", *(f"nobody {i}" for i in range(60))]


class TestFewFlips:
    """The view of counts: few cohorts, few flips, and counts by cohort and bit only."""

    def test_law_of_few_draws(self):
        """Against all pairs of draws from two rows: never lighter, and nearly the same."""
        generator = np.random.default_rng(5)
        table = np.round(generator.exponential(size=(2, 30)), 1)
        table -= table.mean(axis=1, keepdims=True)
        law = null_distribution(table, 1)
        sums = np.add.outer(table[0], table[1]).ravel()
        scores = np.unique(sums)
        exact = np.array([(sums >= score - 1e-9).mean() for score in scores])
        chances = norm.sf(law.normal_score(scores))
        assert (chances >= exact - 1e-9).all()
        assert chances == pytest.approx(exact, rel=0.05)

    @pytest.mark.parametrize(("bits", "hashes"), [(8192, 1), (1024, 2)])
    def test_one_cohort(self, bits, hashes):
        """In a survey of another name the unknown text could share a bit with a candidate."""
        size = bits, hashes, 1
        decoded = decoded_words(size, "0.0025", DRINKS, DRINK_CANDIDATES, 3, "drinks")
        assert {"coffee", "tea", "mate"} <= {text.value for text in decoded.discoveries}
        assert not any("no text can be found" in note for note in decoded.notes)

    def test_too_few_bits_are_said(self):
        decoded = decoded_words((256, 1, 1), "0.0025", DRINKS, DRINK_CANDIDATES, 3)
        assert not decoded.discoveries
        assert any("no text can be found at a rate of 0.05" in note for note in decoded.notes)

    @pytest.mark.slow
    def test_coverage_and_false_discoveries(self):
        """40 crowds, epsilon 1 and delta 1e-6 in counts; `bench/text_coverage.py` has more."""
        inside: list[bool] = []
        false = []
        for number in range(40):
            size, name = (1024, 1, 4), f"survey {number}"
            decoded = decoded_words(size, "0.0105", DRINKS, DRINK_CANDIDATES, number, name)
            rows = decoded.discoveries
            inside += covered(decoded, DRINKS)
            false.append(sum(row.value not in DRINKS for row in rows) / len(rows))
        assert len(inside) >= 115
        # 0.05 of all are expected outside, and false ones are at most 0.05 in the mean
        assert sum(inside) >= binom.ppf(0.001, len(inside), 0.95)
        assert np.mean(false) <= 0.05


class TestCandidates:
    def test_normal_form_empty_and_repeated(self):
        checked = check_candidates(["a", " a", "", None, "\u00e9", "e\u0301"])
        assert checked == (("a", "\u00e9"), 2, 2)

    def test_columns(self):
        import pandas as pd
        import polars as pl

        for column in (pa.array(["a", "b"]), pd.Series(["a", "b"]), pl.Series(["a", "b"])):
            assert check_candidates(column).texts == ("a", "b")

    @pytest.mark.parametrize("wrong", ["text", 5, [5], [], ["", " "], ["\ud800"]])
    def test_refused(self, wrong):
        with pytest.raises(InputError):
            check_candidates(wrong)

    def test_files(self, tmp_path: Path):
        (tmp_path / "c.txt").write_text("\ufefftea\r\ncaf\u00e9\n\n", "utf-8")
        assert read_candidates(tmp_path / "c.txt") == ["tea", "caf\u00e9", ""]
        (tmp_path / "c.csv").write_text("id,word\n1,null\n2,1e5\n", "utf-8")
        assert read_candidates(tmp_path / "c.csv", "word") == ["null", "1e5"]
        pq.write_table(pa.table({"word": ["tea", None]}), tmp_path / "c.parquet")
        assert read_candidates(tmp_path / "c.parquet") == ["tea", ""]
        (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
        for name, column, problem in (
            ("c.csv", None, "2 columns"),
            ("c.csv", "text", "no column"),
            ("none.txt", None, "cannot read"),
            ("bad.txt", None, "UTF-8"),
        ):
            with pytest.raises(InputError, match=problem):
                read_candidates(tmp_path / name, column)


class TestRefusals:
    def test_no_text(self):
        made = plan(Survey("s", (Flags("f", ("a", "b")),)), q="0.25")
        counted = simulate(made, users=10, seed=1).estimates.tally
        with pytest.raises(InputError, match="no text"):
            decode(made, counted, ["tea"])

    def test_several_texts(self):
        questions = [Text(name, bits=16, hashes=1, cohorts=4) for name in ("one", "two")]
        made = plan(Survey("s", tuple(questions)), q="0.25")
        counted = simulate(made, users=100, seed=1).estimates.tally
        with pytest.raises(InputError, match="say which"):
            decode(made, counted, ["tea"])
        assert decode(made, counted, ["tea"], question="two").question == "two"


class TestCommand:
    @pytest.fixture
    def at(self, tmp_path: Path, monkeypatch) -> Path:
        monkeypatch.chdir(tmp_path)
        made = plan(words(64, 1, 16), crowd_size=2000, epsilon=2, delta="1e-6")
        made.write("plan.json")
        simulate_texts(made, {"tea": 2000, "coffee": 3000}, seed=1).write("tally.json")
        Path("candidates.txt").write_text("tea\ncoffee\ncocoa\n\ntea \n", "utf-8")
        return tmp_path

    @pytest.mark.slow
    def test_json(self, at, capsys):
        assert run(["decode", "plan.json", "tally.json", "candidates.txt", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        first, *others = document["candidates"]
        assert (first["value"], first["found"]) == ("coffee", True)
        assert {"value", "count", "sigma", "low", "high", "found"} <= set(first)
        assert first["count"] > others[0]["count"] > others[1]["count"]
        left_out = ["empty candidates left out: 1", "repeated candidates left out: 1"]
        assert document["notes"] == left_out
        assert abs(document["unexplained"]) < 4.5 * document["unexplained_sigma"]

    @pytest.mark.parametrize(
        "arguments",
        [
            "plan.json tally.json",
            "plan.json tally.json none.txt",
            "plan.json tally.json candidates.txt --fdr 2",
            "plan.json tally.json candidates.txt --question other",
            "plan.json tally.json candidates.txt --column word",
            "--propose",
            "plan.json --propose",
        ],
    )
    def test_refused(self, at, capsys, arguments):
        assert run(["decode", *arguments.split()]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1

    def test_privacy_refusal(self, at, capsys):
        made = plan(words(64, 1, 16), crowd_size=2000, epsilon=2, delta="1e-6")
        tally(made, flip(made, encode(made, [{"word": "tea"}] * 5))).write("few.json")
        assert run(["decode", "plan.json", "few.json", "candidates.txt"]) == 3
        assert "whole crowd" in capsys.readouterr().err
