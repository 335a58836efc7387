"""How much n shuffled reports, or their sums, tell about one person: certified from both sides.

>>> from shoal.theory import aggregated, channel, shuffled
>>> oue = channel.unary(10, p=0.5, q=0.25)
>>> shuffled(oue, 1000).epsilon(1e-6).high, aggregated(oue, 1000).epsilon(1e-6).high
(0.1159..., 0.0999...)

Neighbours differ in one person's answer, n is public, the others are honest and all random bits are
fresh; with t colluders use n - t. Every bound holds for every crowd.

*Shuffled reports, upper ends (theorem).* With ``m(v) = min_y P[y, v]`` and lam = e^epsilon (Balle,
Bell, Gascon and Nissim 2019, Lemmas 5.3 and 5.4, before any relaxation)::

    delta <= sum_{m(v) = 0} (P[x', v] - lam P[x, v])_+  +  (1/n) E[(Y_1 + ... + Y_n)_+]

with Y = (P[x', v] - lam P[x, v]) / m(v) at mass m(v), and 0 otherwise; the largest over all pairs.
A report v with m(v) = 0 is in no blanket, so it shows itself: the first sum. Every decomposition
into clones that is common to all inputs is a smaller blanket, so it is never tighter here (Feldman,
McMillan and Talwar 2021). One bit that is flipped alike is evaluated over all crowds instead.

*Sums, upper ends (theorem).* Given the answers, the counts of different bits are independent, and
those of equal bits drop out. So the sums are a composition of the bits that may differ, each of
them n shuffled reports of one bit (`theory.counts`). Sums of k-RR or of a matrix are the histogram
of the reports, which is all that shuffling leaves. Sums of normal noise are normal: exact.

One report with the answers to several questions is a channel of its own, the Kronecker product of
theirs. Questions whose reports are shuffled apart are several releases.

*Several releases, upper ends (theorem).* Bounds of single releases, joined by chords, are dominated
by a pair of measures, and dominating pairs compose (`theory.composition`).

*Lower ends* are attacks: the delta of one pair of neighbouring crowds, whose others all answer z
(one bit: any number of each). It is exact for one release of shuffled reports (SDP 3.3: the
formula above with the distribution of z in place of m). For several releases the attacker adds
scores of the reports, ``(P[x', v] - P[x, v]) / P[z, v]`` on a grid, which is post-processing; the
distribution of the total is transformed with certified round-off, P rounded down and Q up, which
can only lower the hockey stick; losses go to a grid as in `theory.counts`.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, Bracket, FloatArray, IntArray, bernstein_reach, dot
from shoal.theory.calibration import NoValueError, check_target, largest, smallest_epsilon
from shoal.theory.channel import Atom, Channel, InputPair, log_of
from shoal.theory.composition import (
    Losses,
    gaussian_bracket,
    joint_delta,
    losses_of_curve,
    mass_of_sum,
)
from shoal.theory.counts import attack_counts, proven_counts, spread_losses
from shoal.theory.counts.profile import Atoms
from shoal.theory.stop_loss import delta_of_draws
from shoal.theory.stop_loss.reduction import Draw

View = Literal["reports", "counts"]

_ROUGH, _FINE = 0.02, 1e-4
_FINALISTS = 24
"""Attacks that are evaluated, of those with the largest second moments."""

_MAX_EPSILON = 60.0
"""Where no local epsilon is finite, no larger epsilon is tried."""

_HUGE_EPSILON = 1e5
"""Beyond it e^epsilon has too many digits for a fraction."""

_NEGLIGIBLE = 1e-15
_NODES = 100.0
"""Nodes of a loss up to where its delta is 1e-4."""

_MAX_SCORE = 32
_EXPONENT = 80.0
"""Bernstein's exponent of what is outside the window of a total score: 2 e^-80 = 4e-35."""

_FINENESS = 4000.0
"""Nodes of an attack's losses in a standard deviation of their sum, for one release."""

_MAX_LENGTH = 1 << 22
_MAX_LOSS = 200.0
_SMALLEST, _LARGEST = 1e-290, Fraction(10**290)
"""Smaller masses are rounded to 0 or up to this, and larger ratios score alike."""

_NOTHING = Bracket(0.0, 0.0)


class Neighbours(NamedTuple):
    """Two crowds that differ in one person's answer; `others` counts the answers of the rest.

    For sums, one of these describes one bit, or several that are alike.
    """

    first: str
    second: str
    others: dict[str, int]

    def __str__(self) -> str:
        rest = " and ".join(f"{count:,} x {answer}" for answer, count in self.others.items())
        return f"{self.second} against {self.first} among {rest or 'nobody'}"


class BestAttack(NamedTuple):
    """How far some neighbours can be told apart at an epsilon, by the test of the likelihood ratio.

    The bracket holds the delta of the attack. Its low end is a lower bound on every true delta.
    """

    delta: Bracket
    neighbours: tuple[Neighbours, ...]

    def __str__(self) -> str:
        pairs = "; ".join(map(str, self.neighbours))
        return f"delta at least {self.delta.low:.3g}: {pairs or 'nothing to tell apart'}"


class ChannelRelease(NamedTuple):
    """One release of n people's reports."""

    channel: Channel
    n: int
    view: View

    @property
    def unit(self) -> tuple[Channel, int]:
        """Return the channel whose shuffled reports are seen, and how many independent ones."""
        channel = self.channel
        if self.view == "counts" and channel.coordinate is not None:
            return channel.coordinate, channel.differing
        return channel, 1


@functools.lru_cache(maxsize=1024)
def _lam(epsilon: float) -> tuple[Fraction, Fraction]:
    """Return two fractions that enclose e^epsilon."""
    if epsilon == 0.0:
        return Fraction(1), Fraction(1)
    pieces = max(math.ceil(epsilon / 700.0), 1)  # each fits a float
    near, doubt = Fraction(math.exp(epsilon / pieces)), Fraction(1, 2**50 if pieces == 1 else 2**40)
    return (near * (1 - doubt)) ** pieces, (near * (1 + doubt)) ** pieces


@functools.lru_cache(maxsize=4096)
def _draw_at_zero(case: InputPair) -> Draw | None:
    """Return the distribution of Y at epsilon 0; None if every report shows itself."""
    hidden = [atom for atom in case.atoms if atom.base]
    if not hidden:
        return None
    left = 1 - sum((atom.base for atom in hidden), Fraction())
    plus = [log_of(a.second / a.base) if a.second else -math.inf for a in hidden]
    minus = [log_of(a.first / a.base) if a.first else -math.inf for a in hidden]
    weight = [log_of(a.base) for a in hidden]
    return Draw(
        np.array([*plus, -math.inf]),
        np.array([*minus, -math.inf]),
        np.array([*weight, log_of(left) if left else -math.inf]),
    )


def _case_delta(case: InputPair, n: int, epsilon: float, rtol: float) -> Bracket:
    """Bracket delta for the third measure of a case: a bound for a blanket, exact for a crowd."""
    if epsilon > _HUGE_EPSILON:  # delta falls
        return Bracket(0.0, _case_delta(case, n, _HUGE_EPSILON, rtol).high)
    low_lam, high_lam = _lam(epsilon)
    if case.largest is not None and case.largest <= low_lam:
        return _NOTHING
    alone = [atom for atom in case.atoms if not atom.base]
    low, high = (
        sum((max(a.second - lam * a.first, Fraction()) for a in alone), Fraction())
        for lam in (high_lam, low_lam)
    )
    crowd = _NOTHING
    if (draw := _draw_at_zero(case)) is not None:
        crowd = delta_of_draws(draw._replace(log_minus=draw.log_minus + epsilon), n, rtol)
    down, up = math.nextafter(float(low), 0.0), math.nextafter(float(high), 2.0)
    return Bracket(
        (crowd.low + (down if low else 0.0)) * (1 - 4e-16),
        (crowd.high + (up if high else 0.0)) * (1 + 4e-16),
    ).capped(1.0)


def _worst(
    cases: Sequence[InputPair], n: int, epsilon: float, rtol: float = _FINE
) -> tuple[Bracket, InputPair | None]:
    """Bracket the largest delta of some cases, with one that has it."""
    rough = [_case_delta(case, n, epsilon, _ROUGH if cases[1:] else rtol) for case in cases]
    floor = max((bracket.low for bracket in rough), default=0.0)
    best, found = _NOTHING, None
    for case, bracket in zip(cases, rough, strict=True):
        if bracket.high > 0.0 and bracket.high >= floor:
            done = bracket.is_within(rtol)
            fine = bracket if done else _case_delta(case, n, epsilon, rtol)
            high = min(fine.high, bracket.high)
            if found is None or fine.low > best.low:
                found = case
            best = Bracket(max(best.low, min(fine.low, high)), max(best.high, high))
    return best, found


@functools.lru_cache(maxsize=8192)
def _proven(unit: Channel, n: int, count: int, epsilon: float) -> float:
    """Bound delta of independent releases of one kind: a single one, unless the report is a bit."""
    if unit.sigma:
        return gaussian_bracket(Fraction(count, n) / Fraction(unit.sigma) ** 2, epsilon).high
    if unit.flip:
        return proven_counts(count, n, unit.flip, epsilon)
    return _worst(unit.pairs, n, epsilon)[0].high


def _score(case: InputPair, epsilon: float) -> float:
    """Second moment of the difference of the likelihood ratios, which decides for large n."""
    lam = math.exp(min(epsilon, 300.0))
    return sum(
        (float(a.second) - lam * float(a.first)) ** 2 / max(float(a.base), 1e-300)
        for a in case.atoms
    )


def _neighbours(case: InputPair, n: int) -> Neighbours:
    return Neighbours(case.first, case.second, {case.others: n - 1} if n > 1 else {})


@functools.lru_cache(maxsize=4096)
def _attacked(unit: Channel, n: int, count: int, epsilon: float) -> BestAttack:
    """Attack independent releases of one kind: a single one, unless the report is one bit."""
    if unit.sigma:
        delta = gaussian_bracket(Fraction(count, n) / Fraction(unit.sigma) ** 2, epsilon)
        return BestAttack(delta, (Neighbours("0", "1", {"0": n - 1} if n > 1 else {}),))
    if unit.flip:
        scale = _proven(unit, n, count, epsilon)
        bits = attack_counts(count, n, unit.flip, epsilon, scale)
        split = {"1": bits.ones, "0": n - 1 - bits.ones}
        pair = Neighbours("0", "1", {z: k for z, k in split.items() if k})
        return BestAttack(Bracket(min(bits.delta, scale), scale), (pair,))
    likely = sorted(unit.crowds, key=lambda case: -_score(case, epsilon))[:_FINALISTS]
    delta, case = _worst(likely, n, epsilon)
    return BestAttack(delta, (_neighbours(case, n),) if case else ())


def _down(part: Fraction) -> float:
    return float(part) if part > _SMALLEST else 0.0


def _up(part: Fraction) -> float:
    return max(float(part), _SMALLEST) if part else 0.0


@functools.lru_cache(maxsize=256)
def _case_atoms(case: InputPair, n: int) -> Atoms:
    """Outcomes of a pair of crowds when only a total score is seen; delta is rounded down."""
    alone = [a for a in case.atoms if not a.base and a.second]
    mass = [_down(a.second) for a in alone]
    loss = [min(log_of(a.second / a.first), _MAX_LOSS) if a.first else _MAX_LOSS for a in alone]
    score, hidden = _scored([a for a in case.atoms if a.base])
    length = 0
    if any(_down(a.second) for a in hidden):
        top = int(score[-1])
        base = np.array([float(a.base) for a in hidden])
        mean = dot(base, score.astype(np.float64))
        variance = dot(base, np.asarray((score - mean) ** 2, dtype=np.float64))
        width = max(top, 1)
        reach = width * bernstein_reach(_EXPONENT, n * variance / width**2) + 2.0 * width
        from_, to = max(0, math.floor(n * mean - reach)), min(n * top, math.ceil(n * mean + reach))
        length = to - from_ + 1

    def total(
        mine: list[Fraction], rounded: Callable[[Fraction], float]
    ) -> tuple[FloatArray, float]:
        parts = [(score, np.array([rounded(part) for part in mine]), 1)]
        if not parts[0][1].any():
            return np.zeros(length), 0.0
        if n > 1:
            parts.append((score, np.array([rounded(a.base) for a in hidden]), n - 1))
        return mass_of_sum(parts, length)

    if 0 < length <= _MAX_LENGTH:
        p, p_error = total([a.second for a in hidden], _down)
        q, q_error = total([a.first for a in hidden], _up)
        # places that agree modulo the length only add to q
        alias = 2.0 * math.exp(-_EXPONENT) if length < n * top + 1 else 0.0
        slack = 8 * UNIT * (n + 2)
        least = np.maximum(p - p_error - alias, 0.0) * (1.0 - slack)
        most = np.maximum(q + q_error, _SMALLEST) * (1.0 + slack)
        good = least > 0.0
        mass += least[good].tolist()
        loss += np.minimum(np.log(least[good] / most[good]), _MAX_LOSS).tolist()
    return Atoms(np.array(mass) * (1.0 - 8 * UNIT), np.array(loss) - 16 * UNIT * (1.0 + _MAX_LOSS))


def _scored(atoms: Sequence[Atom]) -> tuple[IntArray, list[Atom]]:
    """Return scores from 0, few where these are exact, and the sum of the atoms of each."""
    ratios = [(a.second - a.first) / a.base for a in atoms]
    ratio = np.array([float(min(max(r, -_LARGEST), _LARGEST)) for r in ratios])
    apart = float(np.ptp(ratio)) if atoms else 0.0
    place = (ratio - ratio.min()) / apart if apart else np.zeros(ratio.size)
    fits = (k for k in range(1, _MAX_SCORE) if np.abs(place * k - np.rint(place * k)).max() < 1e-9)
    score = np.rint(place * (next(fits, _MAX_SCORE) if apart else 1)).astype(np.int64)
    sums: dict[int, list[Atom]] = defaultdict(list)
    for one, atom in zip(score.tolist(), atoms, strict=True):
        sums[one].append(atom)
    added = [
        Atom(*(sum(parts, Fraction()) for parts in zip(*sums[one], strict=True)))
        for one in sorted(sums)
    ]
    return np.array(sorted(sums), dtype=np.int64), added


def _from_below(parts: Sequence[tuple[Atoms, int]], epsilon: float, scale: float) -> float:
    """Lower bound of the delta of independent pairs (`theory.counts`, the attack from below)."""
    number = sum(count for _, count in parts)
    if not all(atoms.mass.size for atoms, _ in parts):
        return 0.0
    variance, widest = 0.0, 0.0
    for atoms, count in parts:
        mean = dot(atoms.mass, atoms.loss)
        variance += count * dot(atoms.mass, (atoms.loss - mean) ** 2)
        widest = max(widest, float(np.ptp(atoms.loss)))
    # where a loss is nearly always the same, its range decides
    step = max(math.sqrt(variance / number) / _FINENESS, 2e-6 * widest, 1e-12)
    chance = 1e-5 * scale
    width = step * math.sqrt(0.5 * number * math.log(1.0 / chance)) + number * 1e-15 * _MAX_LOSS
    losses = [(spread_losses(atoms, step), count) for atoms, count in parts]
    return max(joint_delta(losses, epsilon + width).low - chance, 0.0)


@dataclass(frozen=True)
class Bound:
    """A certified privacy bound of one or several independent releases; a theorem.

    Numbers are brackets: an attack reaches the low end, the high end is the promise.
    """

    releases: tuple[tuple[ChannelRelease, int], ...]

    status = "theorem"

    @property
    def view(self) -> View:
        """The strongest view among the releases."""
        views = {release.view for release, _ in self.releases}
        return "reports" if "reports" in views else "counts"

    @property
    def observer(self) -> str:
        """Against whom the bound holds."""
        if self.view == "counts":
            return "a reader of the sums, who sees no report"
        return "an observer of all shuffled reports, who cannot link one to its sender"

    @property
    def epsilon_0(self) -> float:
        """Epsilon without any crowd, rounded up; that of delta = 0."""
        total = sum(count * release.channel.epsilon_0 for release, count in self.releases)
        return total * (1.0 + 1e-14)

    def delta(self, epsilon: float) -> Bracket:
        """Bracket delta at `epsilon` >= 0."""
        high = self._high(epsilon)
        return Bracket(min(self.attack(epsilon).delta.low, high), high)

    def epsilon(self, delta: float) -> Bracket:
        """Bracket the smallest epsilon at which `delta` holds.

        That of 0 is the local epsilon: n equal reports tell as much as one (theorem).
        """
        local = self.epsilon_0
        if delta == 0.0:
            return Bracket(max(local * (1.0 - 1e-12) - 1e-15, 0.0), local)
        check_target(delta)
        top = min(local, _MAX_EPSILON)
        high = smallest_epsilon(self._high, delta, top)
        if high == top < local and self._high(top) > delta:
            high = local
        end = min(high, top)
        try:
            # the attack still passes delta here
            low = largest(
                lambda at: self.attack(at).delta.low > delta, 0.0, end, start=end, rtol=1e-4
            )
        except NoValueError:
            low = 0.0
        return Bracket(min(low, high), high)

    def attack(self, epsilon: float) -> BestAttack:
        """Return the best attack found."""
        _check_epsilon(epsilon)
        parts = self._parts()
        if epsilon >= self.epsilon_0:
            return BestAttack(_NOTHING, ())
        if len(parts) == 1 and (parts[0][2] == 1 or parts[0][0].flip or parts[0][0].sigma):
            unit, n, count = parts[0]
            return _attacked(unit, n, count, epsilon)
        singles = [_attacked(unit, n, 1, epsilon) for unit, n, _ in parts]
        best = max(singles, key=lambda attack: attack.delta.low)
        cases: list[tuple[InputPair, int, int]] = []
        for release, count in self.releases:
            alternatives = release.channel.sums
            if release.unit[0] is release.channel:
                alternatives = tuple(((case, 1),) for case in release.channel.crowds)
            if alternatives:  # a release that is left out is post-processing too
                worst = max(
                    alternatives, key=lambda bits: sum(k * _score(case, 0.0) for case, k in bits)
                )
                cases += [(case, release.n, k * count) for case, k in worst]
        if not cases:
            return best
        high = max(self._high(epsilon), 1e-300)
        low = _from_below([(_case_atoms(case, n), k) for case, n, k in cases], epsilon, high)
        if low <= best.delta.low:
            return best
        pairs = tuple(_neighbours(case, n) for case, n, _ in cases)
        return BestAttack(Bracket(min(low, high), high), pairs)

    def compose(self, k: int) -> Bound:
        """Return the bound of `k` releases about the same person, with fresh random bits."""
        if k < 1 or k % 1:
            raise ValueError(f"k must be a whole number of releases, at least 1, got k={k}.")
        return Bound(tuple((release, count * int(k)) for release, count in self.releases))

    def parallel(self, other: Bound) -> Bound:
        """Return the bound of both together, if one person's answers to both may change."""
        counts: dict[ChannelRelease, int] = defaultdict(int)
        for release, count in self.releases + other.releases:
            counts[release] += count
        return Bound(tuple(counts.items()))

    def _parts(self) -> list[tuple[Channel, int, int]]:
        """Return channels whose shuffled reports are seen, their n, and how often."""
        counts: dict[tuple[Channel, int], int] = defaultdict(int)
        for release, count in self.releases:
            unit, number = release.unit
            if unit.epsilon_0 > 0.0:
                counts[unit, release.n] += count * number
        return [(unit, n, count) for (unit, n), count in counts.items()]

    def _high(self, epsilon: float) -> float:
        _check_epsilon(epsilon)
        parts = self._parts()
        if epsilon >= self.epsilon_0:
            return 0.0
        if len(parts) == 1 and (parts[0][2] == 1 or parts[0][0].flip or parts[0][0].sigma):
            return _proven(*parts[0], epsilon)
        return joint_delta(_losses(tuple(parts)), epsilon).high

    def __repr__(self) -> str:
        lines = []
        for (channel, n, view), count in self.releases:
            seen = "shuffled reports" if view == "reports" else "sums of the reports"
            often = f", {count:,} times" if count > 1 else ""
            people = "1 person" if n == 1 else f"{n:,} people"
            lines.append(f"{channel.name}: {seen} of {people}{often}")
        return "\n".join(lines)


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and at least 0, got epsilon={epsilon}.")


@functools.lru_cache(maxsize=64)
def _losses(parts: tuple[tuple[Channel, int, int], ...]) -> list[tuple[Losses, int]]:
    """Losses that dominate each part, on one grid."""
    curves = []
    for unit, n, count in parts:
        local = min(unit.epsilon_0, _MAX_EPSILON)
        curve = functools.partial(_proven, unit, n, 1)
        last = curve(local)  # what no epsilon hides
        small = min(1e-4, 0.01 * curve(0.0))
        bulk = smallest_epsilon(curve, last + small, local, 0.05) or local
        top = max(smallest_epsilon(curve, last + _NEGLIGIBLE, local, 0.05), bulk)
        curves.append((curve, bulk, top, count))
    step = min(bulk for _, bulk, _, _ in curves) / _NODES
    step = max(step, max(top for _, _, top, _ in curves) / 20_000.0)
    return [(losses_of_curve(curve, bulk, top, step), count) for curve, bulk, top, count in curves]


def _bound(channel: Channel, n: int, view: View) -> Bound:
    if n < 1 or n % 1:
        raise ValueError(f"n must be a whole number of people, at least 1, got n={n}.")
    return Bound(((ChannelRelease(channel, int(n), view), 1),))


def shuffled(channel: Channel, n: int) -> Bound:
    """Bound how much n shuffled reports, whole and without their senders, tell about one person.

    >>> from shoal.theory.channel import flags
    >>> shuffled(flags(5, 0.25), 1000)
    5 flags, q = 0.25: shuffled reports of 1,000 people
    """
    if channel.sigma and n > 1:
        raise ValueError(
            f"no bound of shuffled reports is certified for {channel}: use aggregated."
        )
    return _bound(channel, n, "reports")


def aggregated(channel: Channel, n: int) -> Bound:
    """Bound how much the sums of n reports tell: of each bit; of k-RR or a matrix, the histogram.

    >>> from shoal.theory.channel import flags
    >>> aggregated(flags(5, 0.25), 1000)
    5 flags, q = 0.25: sums of the reports of 1,000 people
    """
    if channel.cells and n > 1:
        raise ValueError(f"no bound of sums is certified for {channel}: use shuffled.")
    return _bound(channel, n, "counts")
