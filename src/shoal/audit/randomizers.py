"""Black-box tests of whether a randomizer flips every bit at the claimed rate.

Other systems have shipped a last bit that was never randomized and a client that never clears a
one; both show when the flips of each position and value are counted. Under the claim all of these
counts are binomial, so every test is exact:

* flips of all bits that were 0, and of all that were 1;
* flips of each bit, for either value of the bit and of the bit before it;
* flips of two bits of one report together, rate q^2;
* flips of one bit in two consecutive reports, rate q^2;
* flips of one bit of the same report in two calls, rate q^2 (a fixed seed makes it q).

It looks after 1,000 rows, 2,000, 4,000 and so on, and stops when a look convicts. An honest
randomizer is convicted with probability at most 1 - confidence: the looks share it evenly, and
within a look the tests share it by Bonferroni's inequality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.device.arrays.simulation_bits import fresh_seed, simulation_generator
from shoal.errors import InputError
from shoal.protocol.flip_probability import exact_fraction
from shoal.support.checks import check_integer, check_level
from shoal.support.results import Displayed
from shoal.theory.randomized_response import local_epsilon

__all__ = ["BitRate", "Verdict", "inspect_pairs", "inspect_randomizer"]

Vectors = NDArray[np.uint8]
Randomizer = Callable[[Any], Any]

_FIRST_LOOK = 1000
_MAX_PAIRED_BITS = 256


@dataclass(frozen=True)
class BitRate:
    """How often one bit was flipped when it was 0 and when it was 1; None if it never was that."""

    bit: int
    rate_0: float | None
    rate_1: float | None
    p_value: float


@dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """The result of a test of a randomizer.

    `epsilon_refuted` is a lower bound of the local epsilon at the confidence: every claim below it
    is wrong. The true value may be larger.
    """

    convicted: bool
    reasons: tuple[str, ...]
    bits: tuple[BitRate, ...]
    samples: int
    confidence: float
    epsilon_claimed: float
    epsilon_refuted: float

    def _headline(self) -> str:
        found = "convicted" if self.convicted else "passed"
        return f"{found}: {self.samples:,} samples, confidence {self.confidence:.6g}"

    def _remarks(self) -> tuple[str, ...]:
        return self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        fields = vars(self) | {
            "reasons": list(self.reasons),
            "bits": [vars(rate) for rate in self.bits],
        }
        return {"verdict": "convict" if fields.pop("convicted") else "pass", **fields}


def inspect_randomizer(
    randomizer: Randomizer,
    *,
    q: object,
    bits: int,
    differing_bits: int | None = None,
    samples: int = 100_000,
    confidence: float = 0.999,
    seed: int | None = None,
) -> Verdict:
    """Test a randomizer from the outside.

    Parameters
    ----------
    randomizer
        Takes an array of 0 and 1 of shape (n, bits) and returns the randomized array, or does the
        same for one row of shape (bits,).
    q
        The claimed flip probability.
    bits
        The length of a vector.
    differing_bits
        In how many bits two answers can differ, by default all; sets the claimed local epsilon.
    samples
        How many rows to randomize at most.
    confidence
        An honest randomizer is convicted with probability at most 1 - confidence.
    seed
        Fixes the choice of the originals (not the randomizer's own noise).

    Examples
    --------
    >>> generator = np.random.default_rng(1)
    >>> def honest(rows):
    ...     return rows ^ (generator.random(rows.shape) < 0.25)
    >>> inspect_randomizer(honest, q=0.25, bits=8, samples=4000, seed=1).convicted
    False
    >>> def lazy(rows):
    ...     noise = generator.random(rows.shape) < 0.25
    ...     noise[:, -1] = False
    ...     return rows ^ noise
    >>> verdict = inspect_randomizer(lazy, q=0.25, bits=8, samples=4000, seed=1)
    >>> verdict.convicted, "bit 7 (a 0 after a 0) was flipped in 0 of" in " ".join(verdict.reasons)
    (True, True)
    """
    check_integer("bits", bits, lowest=1, highest=65_536)
    check_integer("samples", samples, lowest=100)
    check_level(confidence)
    generator = simulation_generator(fresh_seed() if seed is None else seed)
    looks = list(_looks(samples))
    share = (1 - confidence) / (len(looks) + 1)  # one more for the refuted epsilon
    evidence = _Evidence(bits, float(exact_fraction(q)), differing_bits or bits)
    reasons: list[str] = []
    done = 0
    for size in looks:
        reasons = evidence.call_twice(randomizer, _originals(size - done, bits, generator))
        done = size
        reasons += evidence.reasons(share)
        if reasons:
            break
    return evidence.verdict(reasons, share, confidence)


def inspect_pairs(
    originals: Vectors, synthetics: Vectors, *, q: object, confidence: float = 0.999
) -> Verdict:
    """Test recorded pairs of an original and the report sent for it, row by row."""
    check_level(confidence)
    before, after = np.asarray(originals), np.asarray(synthetics)
    if before.ndim != 2 or before.shape != after.shape or not before.size:
        raise InputError("originals and synthetics must be two arrays of the same rows of bits.")
    for name, rows in (("originals", before), ("synthetics", after)):
        if not np.isin(rows, (0, 1)).all():
            raise InputError(f"{name} must hold nothing but 0 and 1.")
    bits = before.shape[1]
    evidence = _Evidence(bits, float(exact_fraction(q)), bits)
    evidence.add(before.astype(np.uint8), after.astype(np.uint8))
    share = (1 - confidence) / 2
    return evidence.verdict(evidence.reasons(share), share, confidence)


class _Evidence:
    def __init__(self, bits: int, q: float, differing_bits: int) -> None:
        self.bits, self.q, self.differing_bits = bits, q, differing_bits
        self.samples = 0
        # By bit, its value, and the value of the bit before it.
        self.trials = np.zeros((bits, 2, 2), np.int64)
        self.flips = np.zeros((bits, 2, 2), np.int64)
        self.paired = min(bits, _MAX_PAIRED_BITS)
        self.together = np.zeros((self.paired, self.paired), np.int64)
        self.row_pairs = 0
        self.in_both_rows = np.zeros(bits, np.int64)
        self.call_pairs = 0
        self.in_both_calls = 0
        self.extreme_outputs: list[list[Vectors]] = [[], []]

    def call_twice(self, randomizer: Randomizer, originals: Vectors) -> list[str]:
        half = originals[: max(len(originals) // 2, 1)]
        noise: list[Vectors] = []
        for _ in range(2):
            rows = half.copy()
            synthetic = _call(randomizer, rows)
            if synthetic is None:
                return ["the output is not an array of 0 and 1 of the shape of the input."]
            if not np.array_equal(rows, half):
                return ["the randomizer changes its input, so that it may carry answers over."]
            self.add(half, synthetic)
            noise.append(half ^ synthetic)
        self.in_both_calls += int((noise[0] & noise[1]).sum())
        self.call_pairs += half.size
        return []

    def add(self, original: Vectors, synthetic: Vectors) -> None:
        flipped = original ^ synthetic
        before = np.concatenate((np.zeros((len(original), 1), np.uint8), original[:, :-1]), axis=1)
        for own in (0, 1):
            for previous in (0, 1):
                here = (original == own) & (before == previous)
                self.trials[:, own, previous] += here.sum(axis=0)
                self.flips[:, own, previous] += (here & (flipped == 1)).sum(axis=0)
        narrow = flipped[:, : self.paired].astype(np.float32)
        self.together += np.rint(narrow.T @ narrow).astype(np.int64)
        even = len(flipped) // 2 * 2
        self.in_both_rows += (flipped[0:even:2] & flipped[1:even:2]).sum(axis=0, dtype=np.int64)
        self.row_pairs += even // 2
        weight = original.sum(axis=1)
        for extreme, chosen in enumerate((weight == 0, weight == self.bits)):
            self.extreme_outputs[extreme].append(synthetic[chosen])
        self.samples += len(original)

    def reasons(self, alpha: float) -> list[str]:
        """Return reasons for a conviction at false-alarm probability `alpha`, simplest first."""
        q, n, share = self.q, self.samples, alpha / 5
        by_value = self.flips.sum(axis=(0, 2)), self.trials.sum(axis=(0, 2))
        first, second = np.triu_indices(self.paired, 1)
        both = self.together[first, second]
        names = [
            f"{bit} (a {own} after a {before})"
            for bit in range(self.bits)
            for own in (0, 1)
            for before in (0, 1)
        ]
        pairs = [f"{j} and {k}" for j, k in zip(first, second, strict=True)]
        calls, twice = np.array([self.call_pairs]), np.array([self.in_both_calls])
        running = np.full(self.bits, self.row_pairs)
        return [
            *convicting("bits that were {} were flipped", *by_value, q, share, "bits"),
            *convicting("bit {} was flipped", self.flips, self.trials, q, share, names=names),
            *convicting("bits {} were flipped together", both, n, q**2, share, names=pairs),
            *convicting(
                "bit {} was flipped in two reports running",
                self.in_both_rows, running, q**2, share,
            ),
            *convicting("two calls made the same flip", twice, calls, q**2, share, "bits"),
        ]  # fmt: skip

    def verdict(self, reasons: list[str], alpha: float, confidence: float) -> Verdict:
        values = p_values(
            self.flips.reshape(self.bits, -1), self.trials.reshape(self.bits, -1), self.q
        )
        trials, flips = self.trials.sum(axis=2), self.flips.sum(axis=2)
        rates = [
            [float(f / t) if t else None for f, t in zip(flips[bit], trials[bit], strict=True)]
            for bit in range(self.bits)
        ]
        smallest = np.minimum(values.min(axis=1) * values.shape[1], 1.0)
        return Verdict(
            convicted=bool(reasons),
            reasons=tuple(reasons),
            bits=tuple(
                BitRate(bit, rates[bit][0], rates[bit][1], float(smallest[bit]))
                for bit in range(self.bits)
            ),
            samples=self.samples,
            confidence=confidence,
            epsilon_claimed=local_epsilon(self.differing_bits, self.q),
            epsilon_refuted=self.refuted_epsilon(alpha),
        )

    def refuted_epsilon(self, alpha: float) -> float:
        """Return an epsilon that the local privacy exceeds, at false-alarm probability `alpha`.

        For any event E and any two originals, epsilon >= ln(P[E | x] / P[E | x']). The events are
        "bit j comes out as v", and "at least t bits come out as all-ones has them" for the two
        extreme originals, with t chosen on one half of the rows and judged on the other.
        """
        bounds = [0.0]
        part = alpha / 2 / (4 * self.bits)
        unflipped = (self.trials - self.flips).sum(axis=2)
        flipped, total = self.flips.sum(axis=2), self.trials.sum(axis=2)
        # Bit j comes out as v: it was v and kept, or was not and flipped.
        for v in (0, 1):
            same = (unflipped[:, v], total[:, v])
            other = (flipped[:, 1 - v], total[:, 1 - v])
            for more, less in ((same, other), (other, same)):
                ratios = log_ratio(lower(*more, part), upper(*less, part))
                bounds.append(float(np.max(ratios)))
        zeros, ones = (np.concatenate(rows) if rows else None for rows in self.extreme_outputs)
        if zeros is not None and ones is not None and min(len(zeros), len(ones)) >= 4:
            bounds.append(_refuted_by_extremes(zeros, ones, alpha / 2))
        return max(bounds)


def _refuted_by_extremes(zeros: Vectors, ones: Vectors, alpha: float) -> float:
    counts = [rows.sum(axis=1, dtype=np.int64) for rows in (ones, zeros)]

    def bound(t: int, sign: int, half: int, level: float) -> float:
        """Bound epsilon by the event of many set bits, or few, on one half of the rows."""
        sides = [sign * side[half::2] for side in counts][::sign]
        hits = [np.array([np.count_nonzero(side >= t)]) for side in sides]
        sizes = [np.array([len(side)]) for side in sides]
        low, high = lower(hits[0], sizes[0], level), upper(hits[1], sizes[1], level)
        return float(log_ratio(low, high)[0])

    seen = np.concatenate([side[::2] for side in counts])
    events = [(int(t), sign) for sign in (1, -1) for t in np.unique(sign * seen)]
    t, sign = max(events, key=lambda event: bound(event[0], event[1], 0, alpha))
    return bound(t, sign, 1, alpha / 2)


def _looks(samples: int) -> Iterator[int]:
    size = min(_FIRST_LOOK, samples)
    while size < samples:
        yield size
        size *= 2
    yield samples


def _originals(count: int, bits: int, generator: np.random.Generator) -> Vectors:
    """Return all zeros, all ones, one bit set, two bits set, any bits: a fifth each, mixed."""
    rows = generator.integers(0, 2, (count, bits), np.uint8)
    kind = generator.permuted(np.arange(count) % 5)
    rows[kind != 4] = 0
    rows[kind == 1] = 1
    for chosen, set_bits in ((kind == 2, 1), (kind == 3, 2)):
        index = np.flatnonzero(chosen)
        for _ in range(set_bits):
            rows[index, generator.integers(0, bits, index.size)] = 1
    return rows


def _call(randomizer: Randomizer, rows: Vectors) -> Vectors | None:
    """Call with all rows, or row by row if the randomizer only does that."""
    try:
        output = np.asarray(randomizer(rows))
    except Exception:
        output = np.empty(0)
    if output.shape != rows.shape:
        try:
            output = np.array([np.asarray(randomizer(row)) for row in rows])
        except Exception as error:
            if output.size:  # it takes whole arrays, and returns something else
                return None
            raise InputError(f"the randomizer fails on rows of bits: {error!r}.") from error
    if output.shape != rows.shape or not np.isin(output, (0, 1)).all():
        return None
    return output.astype(np.uint8)


_MAX_REASONS = 3


def convicting(
    sentence: str,
    counts: NDArray[np.int64],
    trials: NDArray[np.int64] | int,
    rate: float | NDArray[np.float64],
    alpha: float,
    what: str = "reports",
    names: list[str] | None = None,
) -> Iterator[str]:
    """Name the counts that are impossible at their rate, at `alpha` for all; worst first.

    With `names` there is one for each count, and they are taken in their order.
    """
    trials, rates = np.broadcast_to(trials, counts.shape), np.broadcast_to(rate, counts.shape)
    if names:
        counts, trials, rates = counts.ravel(), trials.ravel(), rates.ravel()
    values = p_values(counts, trials, rates)
    guilty = np.argwhere(values <= alpha / max(values.size, 1))
    worst = sorted(map(tuple, guilty), key=lambda index: float(values[index]))
    for index in worst[:_MAX_REASONS]:
        named = sentence.format(names[index[0]] if names else index[0])
        count, tried, p = int(counts[index]), int(trials[index]), float(values[index])
        due = f"{rates[index] * tried:.1f} are due (p = {p:.3g})"
        yield f"{named} in {count} of {tried} {what} where {due}."


def p_values(
    counts: NDArray[np.int64], trials: NDArray[np.int64], rate: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return two-sided exact binomial p-values; 1 where nothing was tried."""
    from scipy.special import bdtr, bdtrc

    n = np.maximum(trials, 1)
    k = np.minimum(counts, n)
    at_most = bdtr(k.astype(float), n, rate)
    at_least = np.where(k > 0, bdtrc(np.maximum(k - 1, 0).astype(float), n, rate), 1.0)
    return np.where(trials == 0, 1.0, np.minimum(1.0, 2 * np.minimum(at_most, at_least)))


def lower(k: NDArray[np.int64], n: NDArray[np.int64], alpha: float) -> NDArray[np.float64]:
    """Clopper and Pearson's lower bound of a rate."""
    from scipy.special import betaincinv

    safe = np.maximum(k, 1)
    return np.where(k == 0, 0.0, betaincinv(safe, np.maximum(n - safe + 1, 1), alpha))


def upper(k: NDArray[np.int64], n: NDArray[np.int64], alpha: float) -> NDArray[np.float64]:
    """Clopper and Pearson's upper bound of a rate."""
    from scipy.special import betaincinv

    return np.where(k >= n, 1.0, betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha))


def log_ratio(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln(low / high), minus infinity where low is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(low) - np.log(high))
