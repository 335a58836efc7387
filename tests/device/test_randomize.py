"""Is the sampler exact, and would we notice if it were not?

False alarms: the checks that draw from the operating system convict below 1e-13 each
(`checks.ALARM`); there are fewer than 600 of them here, together below 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shoal import Flags, Survey, plan
from shoal.analysis.count_table import unpack
from shoal.device import randomize as sampler
from shoal.device.arrays.randomize import Original, fill_flips, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import OriginalVector
from shoal.device.randomize import draw_flips, flip
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.wire import Synthetic
from tests import checks
from tests.strategies import bounded

QS = ["0.5", "0.25", "0.1", "0.351", "0.49999", "0.001"]


class Enumerated:
    """Deals every combination of k fair bits once to the first 2^k lanes, then starts again."""

    simulated = True

    def __init__(self, digits: int) -> None:
        self.digits = digits

    def fill(self, out: Any) -> None:
        rows = np.frombuffer(out, np.uint64).reshape(self.digits, -1)
        lanes = np.arange(rows.shape[1] * 64) % (1 << self.digits)
        for place, words in enumerate(rows):
            words[:] = np.packbits(lanes >> place & 1, bitorder="little").view(np.uint64)


class Counting:
    """Deals 1, 2, 3, ...: no word twice."""

    simulated = True
    drawn = 0

    def fill(self, out: Any) -> None:
        out.reshape(-1)[:] = np.arange(self.drawn + 1, self.drawn + out.size + 1)
        self.drawn += out.size


def every_flip_probability(most_digits: int) -> list[FlipProbability]:
    return [
        FlipProbability(numerator, digits)
        for digits in range(1, most_digits + 1)
        for numerator in range(1, 2 ** (digits - 1) + 1, 2)
    ]


class TestExact:
    def test_of_all_combinations_of_fair_bits_exactly_the_numerator_flip(self):
        for q in every_flip_probability(10):
            words = np.empty(max(1, (1 << q.digits) // 64), np.uint64)
            fill_flips(words, q, Enumerated(q.digits))
            lanes = np.unpackbits(words.view(np.uint8), bitorder="little")
            assert int(lanes[: 1 << q.digits].sum()) == q.numerator
            one = draw_flips(1 << q.digits, q, Enumerated(q.digits))
            assert one.bit_count() == q.numerator

    def test_the_uniform_number_is_compared_with_q_as_the_module_says(self):
        q = FlipProbability(11, 5)
        words = np.empty(1, np.uint64)
        fill_flips(words, q, Enumerated(5))
        lanes = np.unpackbits(words.view(np.uint8), bitorder="little")[:32]
        # Lane i holds digit j of i as r_j; U is made of the complements.
        assert lanes.tolist() == [int(31 - i < 11) for i in range(32)]

    def test_a_report_is_the_original_with_the_flips_flipped(self):
        generator = np.random.default_rng(1)
        truth = generator.random((64, 40)) < 0.5
        q = FlipProbability(3, 3)
        synthetic = flip(q, Original(pack(truth), 40), random_bits=Enumerated(3))
        flips = np.empty(40, np.uint64)
        fill_flips(flips, q, Enumerated(3))
        wanted = pack(truth) ^ flips.view(np.uint8).reshape(64, 5)
        assert (synthetic.rows == wanted).all()

    @pytest.mark.parametrize("bits", [1, 2, 3])
    @pytest.mark.parametrize("q", QS)
    def test_the_law_of_small_vectors(self, q: str, bits: int):
        """False alarm: 1e-13 each."""
        assert checks.law(FlipProbability.at_least(q), bits) > checks.ALARM

    @pytest.mark.parametrize("first", range(1, 131, 26))
    def test_every_position_of_every_length(self, first: int):
        """False alarm: 1e-13 for each of 130 lengths."""
        for bits in range(first, first + 26):
            q = FlipProbability.at_least(QS[bits % 4])
            assert checks.rates(q, bits) > checks.ALARM

    @pytest.mark.parametrize("bits", [1, 8, 9, 40, 64, 65, 130, 1000])
    @pytest.mark.parametrize("q", ["0.25", "0.1", "0.351"])
    def test_bits_and_rows_are_independent(self, q: str, bits: int):
        """False alarm: 1e-13 each."""
        reports = 4_000 if bits < 1000 else 1_000
        assert checks.independence(FlipProbability.at_least(q), bits, reports) > checks.ALARM

    @pytest.mark.parametrize("q", QS[:-1])
    def test_two_runs_differ(self, q: str):
        """False alarm: 1e-13 each."""
        assert checks.fresh(FlipProbability.at_least(q)) > checks.ALARM


BLOCK = 8192 * 8 * 8
"""Bytes that `randomize` handles at a time."""


class TestBoundaries:
    @pytest.mark.parametrize(
        "size",
        [
            1, 7, 8, 9, 63, 64, 65, 8191 * 8, 8191 * 8 + 1, 8192 * 8 - 1, 8192 * 8, 8192 * 8 + 1,
            BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3, 3 * BLOCK,
        ],
    )  # fmt: skip
    def test_no_noise_is_used_twice(self, size: int):
        # At q = 1/2 the flips are the random words themselves.
        original = Original(np.zeros((size, 1), np.uint8), 8)
        source = Counting()
        half = FlipProbability(1, 1)
        synthetic = flip(half, original, random_bits=source)
        whole = synthetic.rows.reshape(-1)[: size - size % 8].view(np.uint64)
        assert len(np.unique(whole)) == len(whole)
        assert whole.size == 0 or whole.min() > 0
        assert source.drawn * 8 >= size

    @pytest.mark.parametrize("rows", [1, 2, 13_107, 13_108, 104_857, 104_858, 250_000])
    def test_every_block_is_randomized(self, rows: int):
        """The rate in each tenth of the file. False alarm: 1e-13 each."""
        truth = np.ones((rows, 37), bool)
        changed = checks.flips(truth, FlipProbability.at_least("0.25"))
        p_values = [
            np.atleast_1d(checks.two_sided(part.sum(), part.size, 0.25))
            for part in np.array_split(changed, 10)
            if part.size
        ]
        assert checks.bonferroni(*p_values) > checks.ALARM

    def test_no_rows_stay_no_rows(self):
        empty = flip(FlipProbability(1, 2), Original(np.zeros((0, 5), np.uint8), 40))
        assert (len(empty), empty.bits) == (0, 40)

    @given(st.integers(1, 130), st.integers(1, 40), st.integers(0, 2**32))
    @bounded(60)
    def test_padding_stays_zero_and_the_original_unchanged(self, bits, count, seed):
        truth = np.random.default_rng(seed).random((count, bits)) < 0.5
        rows = pack(truth)
        kept = rows.copy()
        synthetic = flip(FlipProbability(1, 1), Original(rows, bits))
        assert (rows == kept).all()
        assert not np.shares_memory(rows, synthetic.rows)
        padding = np.unpackbits(synthetic.rows, axis=1, bitorder="little")[:, bits:]
        assert not padding.any()

    def test_rows_that_are_a_slice_of_another_array(self):
        wide = np.zeros((1000, 9), np.uint8)
        original = Original(wide[::2, 2:7], 40)
        synthetic = flip(FlipProbability(1, 2), original, random_bits=SimulationBits(1))
        rate = unpack(synthetic.rows, 40).mean()
        assert 0.22 < rate < 0.28
        assert not wide.any()


class TestWhatIsRefused:
    def test_a_synthetic_is_not_randomized_again(self):
        with pytest.raises(InputError, match="takes encoded answers"):
            flip(FlipProbability(1, 2), Synthetic(np.zeros((1, 1), np.uint8), 2))  # type: ignore[call-overload]

    def test_a_plan_of_other_bits(self):
        three = plan(Survey("s", (Flags("f", ("a", "b", "c")),)), q="0.25")
        with pytest.raises(InputError, match="the plan has 3 bits, the original 2"):
            flip(three, Original(np.zeros((1, 1), np.uint8), 2))

    def test_an_original_with_padding_set(self):
        with pytest.raises(InputError, match="row 2 has padding bits set"):
            Original(np.array([[3], [4]], np.uint8), 2)

    def test_an_original_does_not_show_itself(self):
        for original in (Original(np.full((3, 1), 0xA5, np.uint8), 8), OriginalVector(0xA5, 8)):
            for text in (repr(original), str(original), f"{original}"):
                assert "165" not in text
                assert "a5" not in text.lower()

    def test_a_simulation_is_marked_and_repeats_itself(self):
        original = Original(np.zeros((1000, 5), np.uint8), 40)
        q = FlipProbability.at_least("0.351")
        made = [flip(q, original, random_bits=SimulationBits(seed)) for seed in (7, 7, 8)]
        assert all(one.simulated for one in made)
        assert not flip(q, original).simulated
        assert (made[0].rows == made[1].rows).all()
        assert (made[0].rows != made[2].rows).any()


HONEST = sampler.flip


def honest(original: Original, q: FlipProbability, **options: Any) -> Synthetic:
    return HONEST(q, original, **options)


Randomize = Callable[..., Synthetic]


def changed(original: Original, synthetic: Synthetic, keep: NDArray[np.bool_]) -> Synthetic:
    """The same with the flips outside `keep` taken back."""
    flips = (original.rows ^ synthetic.rows) & pack(keep)
    return Synthetic(original.rows ^ flips, original.bits)


def one_bit_never_flipped(original: Original, q: FlipProbability) -> Synthetic:
    keep = np.ones((len(original), original.bits), bool)
    keep[:, original.bits // 2] = False
    return changed(original, honest(original, q), keep)


def q_five_percent_low(original: Original, q: FlipProbability, percent: int = 95) -> Synthetic:
    return honest(original, FlipProbability.at_least(q.fraction * percent / 100))


def q_five_percent_high(original: Original, q: FlipProbability) -> Synthetic:
    return q_five_percent_low(original, q, 105)


def ones_never_cleared(original: Original, q: FlipProbability) -> Synthetic:
    return Synthetic(honest(original, q).rows | original.rows, original.bits)


def zeros_never_set(original: Original, q: FlipProbability) -> Synthetic:
    return Synthetic(honest(original, q).rows & original.rows, original.bits)


def seed_left_in(original: Original, q: FlipProbability) -> Synthetic:
    return honest(original, q, random_bits=SimulationBits(42))


def flipped_in_pairs(original: Original, q: FlipProbability) -> Synthetic:
    flips = unpack(honest(original, q).rows ^ original.rows, original.bits)
    flips[:, 1::2] = flips[:, 0 : flips.shape[1] - 1 : 2]
    return Synthetic(original.rows ^ pack(flips), original.bits)


def rows_in_pairs(original: Original, q: FlipProbability) -> Synthetic:
    flips = honest(original, q).rows ^ original.rows
    flips[1::2] = flips[0 : len(flips) - 1 : 2]
    return Synthetic(original.rows ^ flips, original.bits)


def last_byte_kept(original: Original, q: FlipProbability) -> Synthetic:
    rows = honest(original, q).rows
    rows[:, -1] = original.rows[:, -1]
    return Synthetic(rows, original.bits)


MUTANTS: dict[Randomize, str] = {
    one_bit_never_flipped: "rates",
    q_five_percent_low: "rates",
    q_five_percent_high: "rates",
    ones_never_cleared: "law",
    zeros_never_set: "law",
    seed_left_in: "fresh",
    flipped_in_pairs: "independence",
    rows_in_pairs: "independence",
    last_byte_kept: "rates",
}
"""Broken samplers, each with the check that is made for it."""


def verdict() -> dict[str, float]:
    """The checks of `TestExact`, on one vector of 40 bits and two small ones."""
    q = FlipProbability.at_least("0.25")
    return {
        "law": min(checks.law(q, bits) for bits in (1, 3)),
        "rates": checks.rates(q, 40, reports=20_000),
        "independence": checks.independence(q, 40),
        "fresh": checks.fresh(q),
    }


class TestMutants:
    def test_the_honest_sampler_is_acquitted(self):
        """False alarm: 5e-13."""
        assert min(verdict().values()) > checks.ALARM

    @pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
    def test_a_mutant_is_convicted(self, mutant: Randomize, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sampler, "flip", lambda q, original: mutant(original, q))
        found = verdict()
        assert found[MUTANTS[mutant]] <= checks.ALARM, found

    def test_a_wrong_digit_order_fails_the_exact_count(self):
        """The same enumeration as above convicts a sampler that reads the digits backwards."""
        q = FlipProbability(3, 4)
        words = np.empty((4, 1), np.uint64)
        Enumerated(4).fill(words)
        flips = np.zeros(1, np.uint64)
        for digit, word in zip(reversed(q.binary_digits()), words, strict=True):
            flips = flips | word if digit else flips & word
        lanes = np.unpackbits(flips.view(np.uint8), bitorder="little")[:16]
        assert int(lanes.sum()) != q.numerator
