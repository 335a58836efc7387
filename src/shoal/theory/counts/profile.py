r"""The profile of one bit: the largest hockey stick over every crowd, for all lam at once.

*One crowd.* Among others with noise Y the count of a 1 has pmf ``P(t) = p b(t-1) + q b(t)``, that
of a 0 ``Q(t) = q b(t-1) + p b(t)``, b the pmf of Y (shifted by what is known; KR (3.2), (3.3)).

*Theorem.* ``H_lam(P||Q) = max_t F_t(lam)`` with ``F_t(lam) = A b(t-1) - (lam - 1) P[Y >= t]``,
``A = p - lam q``, and it equals F_t(lam) exactly where lam is between P(t-1)/Q(t-1) and
``lam_t = P(t)/Q(t)``. Proof: a sum of independent bits is log-concave (a convolution of log-concave
sequences), so b(t-1)/b(t) rises in t, and with it ``P/Q = (p x + q) / (q x + p)``,
x = b(t-1)/b(t), since p >= q. So P - lam Q is positive on an upper set {s >= t}, and
``sum_{s >= t} (P - lam Q) = p b(t-1) + P[Y >= t] - lam (q b(t-1) + P[Y >= t]) = F_t(lam)``.

*From above.* H is convex and falls in lam. So ``H(lam_t) = F_t(lam_t)`` at any places t one likes,
joined by chords, with H(0) = 1 and H(p/q) = 0, is an upper bound for every lam. Where only
``low <= lam_t <= high`` is known, ``H(high) <= H(lam_t) = F_t(lam_t) <= F_t(low)``: the point
(high, F_t(low)) is above.

*From below.* The points ``(Q[S >= t], P[S >= t])`` at any places t are on the trade-off curve of
the pair; joined by chords they are the curve of what is left when the counts between are merged,
which is post-processing. Points to the right and below are dominated by it too.

Everything is in terms of ``x = lam - 1``, which does not cancel for lam near 1.

*All crowds.* Write d(k, l) for the hockey stick of a record that goes from 0 to 1 among k ones and
l zeros; going from 1 to 0 among them is d(l, k), by exchanging 0 and 1. So

    delta*(lam) = max over k of d(k, o - k),  o = N - 1,       lam >= 1

is the largest of *both* orders of every pair of neighbours, and ``H_lam(P||Q) = 1 - lam + lam
H_{1/lam}(Q||P)`` gives its mirrored half, ``delta*(lam) = 1 - lam + lam delta*(1/lam)``.

*Theorem (branch and bound).* d falls in k and in l: one more person adds independent noise, which
is post-processing. So for k in [k1, k2] it is at most d(k1, o - k2). Stretches of k whose bound is
near enough to the best value found are settled, the others are halved; the largest bound is valid
at any moment. Each bound is convex in lam, and so is the largest of them.

Near enough means: at the loss eps the bound is at most ``1 + tolerance`` times the best value at
``eps / (1 + tolerance)``. A profile that is off by so much belongs to noise that is smaller by the
factor ``1 + tolerance``. At losses well below a standard deviation all crowds are nearly alike and
little depends on them: there nine times the tolerance saves two thirds of the work.

*The noise of one bit's count*, ``Y = Bin(l, q) - Bin(k, q)`` of l zeros and k ones. A hockey stick
needs ``P[Y = t-1]``, ``P[Y = t]`` and ``P[Y >= t]`` at places t far into the upper tail, each with
a bound on its error.

*Little noise* (variance below 900): both binomials by the exact ratios of their terms, convolved
term by term. All terms are positive, so errors stay relative; Bernstein's inequality bounds what is
outside the windows, far below 1e-60.

*Much noise*: the distribution tilted by ``e^(theta y)`` is again one of independent bits, with flip
probabilities ``q e^theta / (p + q e^theta)`` for zeros and ``q e^-theta / (p + q e^-theta)`` for
ones, and its characteristic function is negligible but for a few dozen frequencies, whatever N is:

.. math:: P_\theta[Y = y] = \frac1W \sum_f \varphi(v_f) e^{-i v_f y}, \quad
    \sum_{r \ge 0} e^{-\theta r} P_\theta[Y = y + r] =
    \frac1W \sum_f \frac{\varphi(v_f) e^{-i v_f y}}{1 - e^{-\theta - i v_f}}, \quad
    v_f = 2 \pi f / W .

One tilt is accurate around its own mean; eight of them, two standard deviations apart, reach
probabilities of 1e-40. Errors (theorems):

* frequencies left out: ``|1 + a(e^iv - 1)|^2 = 1 - 4a(1-a) sin^2(v/2)``, so ``|phi(v)| <=
  exp(-2 V sin^2(v/2))``, V the variance; this falls up to v = pi, and there are at most W of them;
* aliasing: sampling frequencies makes it periodic with period W; what comes from elsewhere
  is positive, and bounded by Bernstein's inequality. In the tail sum the copies from the left carry
  a factor of at most ``e^(-theta r)``, r their distance;
* round-off as in `theory.brackets`, term by term.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from shoal.theory.binomial import BinomialWindow, window_of_width
from shoal.theory.brackets import (
    UNIT,
    ComplexArray,
    FloatArray,
    IntArray,
    bernstein,
    bernstein_reach,
    log_one_plus,
    power_error,
)
from shoal.theory.composition import convex_profile
from shoal.theory.randomized_response import log_theta

NEGLIGIBLE = 1e-40
"""Beyond the loss where the profile is below this, losses are taken to be infinite."""

_MAX_CROWDS = 1500
"""Where all crowds are alike everywhere, the tolerance is too slow: then it doubles."""

_FEW = 32
"""Up to this many stretches may always be cut further."""

_MAX_NODES = 4000
"""Little noise and a tiny q make a long tail; its chords may be longer."""

_PER_DEVIATION = 50
"""Nodes in a standard deviation of the loss."""

_TRIED = 8
"""Crowds tried in each round, in the middle of the worst stretches."""

_MAX_NOISE = 1e11
"""People beyond this variance are left out: round-off would eat what they add."""

_USABLE = 1e-6
"""Relative error up to which a step is worth a point of the curve."""

_LITTLE_NOISE = 900.0
"""Variance up to which two binomials are convolved term by term."""

_EXPONENT = 140.0
"""Bernstein's exponent of what is outside a window: e^-140 = 1.6e-61."""

_TILTS = 8
_FINENESS = 24
"""Tilts, and places per standard deviation, where there is much noise."""

_HALF = 1.25
"""Places of one tilt reach this many standard deviations to both sides of its mean."""

_PERIODS = {1: 48.0, 3: 26.0}
"""Standard deviations after which a tilted distribution repeats; 20 where it is tilted more."""

_HIGHEST = 10.0
"""Frequencies go up to this, times a standard deviation."""


class Profile(NamedTuple):
    """Upper bounds `high` of delta* at the losses 0, step, 2 step, ..., and the crowds behind it.

    `best` is the largest value found at a single crowd, `ones` how many of its others hold a 1.
    """

    step: float
    high: FloatArray
    best: FloatArray
    ones: FloatArray


def loss_scale(N: int, q: float) -> float:
    """Roughly the standard deviation of the loss of one bit."""
    sigma = math.sqrt((N - 1) * q * (1.0 - q) + 0.25)
    return min((1.0 - 2.0 * q) / sigma, log_theta(q))


@functools.lru_cache(maxsize=64)
def bit_profile(N: int, q: float, tolerance: float = 2.5e-4) -> Profile:
    """Bound delta* of one bit among N people, q < 1/2, to within a relative `tolerance` of noise.

    >>> profile = bit_profile(3, 0.25)
    >>> at = int(np.ceil(np.log(1.1) / profile.step))
    >>> bool(profile.high[at] <= 89 / 320 <= profile.high[at - 1]), int(profile.ones[at])
    (True, 1)
    """
    others = N - 1
    if others * q * (1.0 - q) > _MAX_NOISE:
        others = math.ceil(_MAX_NOISE / (q * (1.0 - q)))
    nodes, whole = _nodes(others, q)
    # rounded down: the values are then valid at the exact nodes, for they fall
    excess = np.expm1(nodes) * (1.0 - UNIT * (8.0 + 4.0 * nodes))
    # dropping a share of the people takes half that share from the noise
    leaves = 1.0 / (1.9 * tolerance)
    rounds = max(0, round(math.log(leaves / 12.0, 4)))
    first, last = _cut(np.array([0]), np.array([others]), math.ceil(leaves / 4**rounds))
    settled, best, ones = np.zeros((3, nodes.size))
    tried = np.array([0, others // 2, others])
    tried_crowds = 0
    while True:
        bounds = upper_curves(first, others - last, q, excess)
        single = first == last
        values = np.concatenate((bounds[single], upper_curves(tried, others - tried, q, excess)))
        top = np.argmax(values, axis=0)
        largest = values[top, np.arange(nodes.size)]
        ones = np.where(largest > best, np.concatenate((first[single], tried))[top], ones)
        best = np.maximum(best, largest)
        tried_crowds += first.size
        while True:
            enough = _near_enough(nodes / loss_scale(N, q), best, tolerance)
            ratio = (bounds / enough).max(axis=1)
            done = single | (ratio <= 1.0)
            open_ = np.count_nonzero(~done)
            if open_ <= _FEW or tried_crowds + 4 * open_ <= _MAX_CROWDS:
                break
            tolerance *= 2.0
        done |= tried_crowds > 4 * _MAX_CROWDS
        settled = np.maximum(settled, bounds[done].max(axis=0, initial=0.0))
        if done.all():
            # a value at a single crowd can exceed a bound by round-off only
            high = np.maximum(settled, best)
            if whole:
                high[-1] = 0.0
            return Profile(float(nodes[1]), convex_profile(excess, high), best, ones)
        first, last = first[~done], last[~done]
        tried = ((first + last) // 2)[np.argsort(-ratio[~done])[:_TRIED]]
        first, last = _cut(first, last, 4)


def _near_enough(scaled: FloatArray, best: FloatArray, tolerance: float) -> FloatArray:
    """Return the bound at each loss, in standard deviations, that settles a stretch."""
    shrunk = np.interp(scaled / (1.0 + tolerance), scaled, best)
    factor = 1.0 + tolerance * (1.0 + 8.0 * np.exp(-((2.0 * scaled) ** 2)))
    return factor * shrunk + NEGLIGIBLE


def _cut(first: IntArray, last: IntArray, parts: int) -> tuple[IntArray, IntArray]:
    """Cut each stretch into `parts` parts, or into single numbers."""
    size = last - first + 1
    share = np.arange(parts + 1)
    # size * share // parts, which must not overflow
    edges = first[:, None] + size[:, None] // parts * share + size[:, None] % parts * share // parts
    left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel() - 1
    return left[left <= right], right[left <= right]


def _nodes(others: int, q: float) -> tuple[FloatArray, bool]:
    """Losses from 0 up to where the profile is negligible, or ends: no loss is above ln(p/q)."""
    step = loss_scale(others + 1, q) / _PER_DEVIATION
    end = largest = log_theta(q) * (1.0 + 1e-14)
    sigma = math.sqrt(others * q * (1.0 - q))
    if sigma >= 30.0:
        end = min(end, 20.0 * loss_scale(others + 1, q))
    trial = np.linspace(0.0, end, 256)
    few = np.array([0, others // 2, others])
    size = upper_curves(few, others - few, q, np.expm1(trial)).max(axis=0)
    small = np.flatnonzero(size <= NEGLIGIBLE)
    end = float(trial[small[0]]) if small.size else end
    count = min(max(math.ceil(end / step), 2), _MAX_NODES)
    return end / count * np.arange(count + 1, dtype=np.float64), end == largest


class Atoms(NamedTuple):
    """Masses under P and losses ``ln(P/Q)``, both rounded down."""

    mass: FloatArray
    loss: FloatArray


def largest_excess(q: float) -> float:
    """``p/q - 1``, rounded up: H is 0 from here on, for without others the loss is ln(p/q)."""
    return (1.0 - 2.0 * q) / q * (1.0 + 8 * UNIT)


def upper_curves(ones: IntArray, zeros: IntArray, q: float, excess: FloatArray) -> FloatArray:
    """Upper bounds of ``H_lam(P||Q)``, one row per crowd, at rising ``lam = 1 + excess >= 1``.

    >>> float(upper_curves(np.array([1]), np.array([1]), 0.25, np.array([0.1])).item() * 320)
    89.0000000...
    """
    rows = [_on_nodes(*_upper_points(entry, q), excess) for entry in steps(ones, zeros, q)]
    return np.array(rows).reshape(ones.size, excess.size)


def _upper_points(entry: Steps, q: float) -> tuple[FloatArray, FloatArray]:
    """Points ``(lam - 1, H)`` on or above the curve, lam rising."""
    usable = np.ones(entry.here.size, dtype=bool)
    for part, error in zip(entry[1:4], entry[4:], strict=True):
        usable &= error <= _USABLE * part
    usable &= entry.before + entry.here > 0.0
    before, here, above, before_error, here_error, above_error = (
        part[usable] for part in entry[1:]
    )
    p, open_ = 1.0 - q, 1.0 - 2.0 * q
    low, high = before - before_error, before + before_error
    here_low, here_high = here - here_error, here + here_error
    excess_high = open_ * (high - here_low) / (q * high + p * here_low)
    excess_low = open_ * (low - here_high) / (q * low + p * here_high)
    excess_high += 8 * UNIT * np.abs(excess_high)
    excess_low -= 8 * UNIT * np.abs(excess_low)
    # A = p - lam q, rounded up
    rise = np.maximum(open_ - q * excess_low + 4 * UNIT * (open_ + q * np.abs(excess_low)), 0.0)
    tail = np.where(excess_low > 0.0, above - above_error, above + above_error)
    gain, loss = rise * high, excess_low * tail
    value = gain - loss + 4 * UNIT * (gain + np.abs(loss))
    top = largest_excess(q)
    inside = excess_high < top
    x = np.concatenate(([-1.0], excess_high[inside], [top]))
    y = np.concatenate(([1.0], np.clip(value[inside], 0.0, 1.0), [0.0]))
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _on_nodes(x: FloatArray, y: FloatArray, nodes: FloatArray) -> FloatArray:
    """Chords at the nodes, as sums of positive terms; 0 beyond the last point."""
    right = np.minimum(np.searchsorted(x, nodes, side="right"), x.size - 1)
    left = right - 1
    width = x[right] - x[left]
    fall = np.clip(x[right] - nodes, 0.0, None)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (y[left] * fall + y[right] * np.clip(nodes - x[left], 0.0, width)) / width
    value = np.where(width > 0.0, value, y[left])
    return np.asarray(np.where(nodes >= x[-1], 0.0, np.minimum(value * (1.0 + 16 * UNIT), 1.0)))


def merged_atoms(ones: int, zeros: int, q: float) -> Atoms:
    """Outcomes of what is left of ``(P, Q)`` after counts are merged: from below.

    The upper half is that of the crowd. The lower half is that of the crowd with ones and zeros
    exchanged, which has 1 - S in place of the count S, and in which P and Q change places.
    """
    forward, backward = steps(np.array([ones, zeros]), np.array([zeros, ones]), q)
    above, above_p, above_q = _tails(forward, q)
    below, below_q, below_p = _tails(backward, q)
    # {1 - S >= t} is {S <= 1 - t}; a place between the two halves ends the lower one
    keep = 1.0 - below < above[0]
    below_p, below_q = below_p[:, keep], below_q[:, keep]
    middle_p, middle_q = (
        np.array([1.0 - a[1, :1] - b[1, :1] - 4 * UNIT, 1.0 - a[0, :1] - b[0, :1] + 4 * UNIT])
        for a, b in ((above_p, below_p), (above_q, below_q))
    )
    p = np.concatenate((_between(below_p)[:, ::-1], middle_p, _between(above_p)), axis=1)
    q_ = np.concatenate((_between(below_q)[:, ::-1], middle_q, _between(above_q)), axis=1)
    good = p[0] > 0.0
    least, most = p[0, good], q_[1, good]
    return Atoms(least * (1.0 - 8 * UNIT), np.log(least / most) - 16 * UNIT)


def _tails(entry: Steps, q: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Places t where P(t) >= Q(t), and both ends of P[S >= t] and Q[S >= t] there."""
    place, before, here, above, before_error, _, above_error = entry
    usable = (before > here) & (before_error <= _USABLE * before)
    usable &= above_error <= _USABLE * above
    order = np.flatnonzero(usable)[np.argsort(place[usable], kind="stable")]
    # tilts overlap
    order = order[np.diff(place[order], prepend=-np.inf) > 0.0]
    b, e = before[order], before_error[order] + 4 * UNIT * before[order]
    a, f = above[order], above_error[order] + 4 * UNIT * above[order]
    one, zero = (
        np.array([a - f + share * (b - e), a + f + share * (b + e)]) for share in (1.0 - q, q)
    )
    return place[order], one, zero


def _between(tails: FloatArray) -> FloatArray:
    """Both ends of the masses between places that rise, and beyond the last one."""
    low, high = tails
    return np.array([low - np.append(high[1:], 0.0), high - np.append(low[1:], 0.0)])


class Steps(NamedTuple):
    """``P[Y = t-1]``, ``P[Y = t]``, ``P[Y >= t]`` at some places t, and bounds on their errors."""

    place: FloatArray
    before: FloatArray
    here: FloatArray
    above: FloatArray
    before_error: FloatArray
    here_error: FloatArray
    above_error: FloatArray


def steps(ones: IntArray, zeros: IntArray, q: float) -> list[Steps]:
    """Return the steps of each crowd of others: ``ones[i]`` ones and ``zeros[i]`` zeros.

    Places begin at the mode or a little before it: below it P is less likely than Q.
    """
    variance = (ones + zeros) * (q * (1.0 - q))
    little = variance < _LITTLE_NOISE
    result: list[Steps | None] = [None] * ones.size
    for i in np.flatnonzero(little):
        result[i] = _convolved(int(ones[i]), int(zeros[i]), q)
    much = np.flatnonzero(~little)
    # distributions of one batch share their grids, so they should be alike
    order = much[np.argsort(variance[much], kind="stable")]
    for start in range(0, order.size, 256):
        batch = order[start : start + 256]
        rows = _transformed(ones[batch], zeros[batch], q)
        for row, i in enumerate(batch):
            result[i] = Steps(*(part[row] for part in rows))
    return [entry for entry in result if entry is not None]


def _window(n: int, q: float) -> BinomialWindow:
    width = bernstein_reach(_EXPONENT, n * q * (1.0 - q)) + 1.0
    window = window_of_width(n, q, width)
    # dividing by the sum of the window adds what is omitted
    return window._replace(error=window.error + 2.0 * window.omitted)


def _convolved(ones: int, zeros: int, q: float) -> Steps:
    up, down = _window(zeros, q), _window(ones, q)
    pmf = np.convolve(up.mass, down.mass[::-1])
    relative = up.error + down.error + 4 * UNIT * pmf.size
    # products below the smallest floats vanish
    omitted = up.omitted + down.omitted + (1e-300 if pmf.min() < 1e-280 else 0.0)
    mode = int(np.argmax(pmf))
    before: FloatArray = np.append(0.0, pmf)[mode:]
    here = np.append(pmf[mode:], 0.0)
    above: FloatArray = np.cumsum(here[::-1])[::-1]
    place: FloatArray = np.arange(here.size, dtype=np.float64) + float(
        mode + up.first - down.first - down.mass.size + 1
    )
    errors = [relative * part + omitted for part in (before, here, above)]
    if down.first == 0 and up.first + up.mass.size == zeros + 1:
        # nobody is left above the last place: its zeros are exact
        errors[1][-1] = errors[2][-1] = 0.0
    return Steps(place, before, here, above, *errors)


def _transformed(ones: IntArray, zeros: IntArray, q: float) -> Steps:
    k, m = ones[:, None].astype(np.float64), zeros[:, None].astype(np.float64)
    sigma = math.sqrt(float((ones + zeros).max()) * q * (1.0 - q))
    parts = [_tilted(k, m, q, (2 * j + 1) / sigma, 2 * j + 1) for j in range(_TILTS)]
    return Steps(*(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))


def _tilted(k: FloatArray, m: FloatArray, q: float, theta: float, standard: int) -> Steps:
    """Return the steps around the tilted mean, which is `standard` deviations out."""
    p, grow, shrink = 1.0 - q, math.exp(theta), math.exp(-theta)
    up, down = q * grow / (p + q * grow), q * shrink / (p + q * shrink)
    variance = m * (up * (1.0 - up)) + k * (down * (1.0 - down))
    narrow, wide = math.sqrt(float(variance.min())), math.sqrt(float(variance.max()))
    pitch = max(1, int(narrow / _FINENESS))
    half = math.ceil(_HALF * narrow / pitch)
    place = pitch * np.arange(-half, half + 1)
    period = math.ceil(wide * _PERIODS.get(standard, 20.0))
    # fewer than half of them, since narrow is at least 10 here
    count = math.ceil(_HIGHEST / narrow * period / (2.0 * math.pi)) + 1
    v = 2.0 * math.pi / period * np.arange(count)
    turn = -2.0 * np.sin(v / 2.0) ** 2 + 1j * np.sin(v)
    spoiled = 16 * UNIT * np.abs(turn)
    log_up, doubt_up = log_one_plus(up * turn, up * spoiled)
    log_down, doubt_down = log_one_plus(down * np.conj(turn), down * spoiled)
    start = np.floor(m * up - k * down)
    exponent = m * log_up + k * log_down - 1j * v * start
    size = np.exp(exponent.real)
    reach = float(place[-1]) + 2.0
    wobble = 8 * UNIT * (8.0 + v * (np.abs(start) + reach))
    wobble = wobble + m * (doubt_up + 8 * UNIT * np.abs(log_up))
    wobble = wobble + k * (doubt_down + 8 * UNIT * np.abs(log_down))
    wobble = wobble + 4 * UNIT * (count + 8)  # the sum over frequencies
    doubt = power_error(size, wobble)
    weight = np.full(count, 2.0 / period)
    weight[0] /= 2.0
    terms = weight * np.exp(exponent)
    # 1 / (1 - e^(-theta - iv)), without cancelling
    tail = 1.0 / (-math.expm1(-theta) + shrink * (2.0 * np.sin(v / 2.0) ** 2 + 1j * np.sin(v)))
    angle = np.outer(v, place)
    cosine, sine = np.cos(angle), np.sin(angle)

    def at(values: ComplexArray) -> FloatArray:
        # einsum, not @: a threaded matrix library spends its time waiting on a busy machine
        real = np.einsum("ij,jk->ik", np.ascontiguousarray(values.real), cosine)
        return np.asarray(real + np.einsum("ij,jk->ik", np.ascontiguousarray(values.imag), sine))

    missing = np.exp(-2.0 * variance * math.sin(math.pi / period * count) ** 2)
    alias = bernstein(period - reach, variance)
    sure = 9.5 * wide
    left = math.exp(-theta * (period - reach - sure)) + bernstein(sure, variance)
    error = np.sum(weight * doubt, axis=1, keepdims=True) + missing + alias
    tail_error = np.sum(weight * np.abs(tail) * doubt, axis=1, keepdims=True)
    tail_error += missing / -math.expm1(-theta) + alias + left / -math.expm1(-theta * period)
    # back: P[Y = y] = M(theta) e^(-theta y) times the tilted one
    log_mgf = m * math.log1p(q * math.expm1(theta)) + k * math.log1p(q * math.expm1(-theta))
    y: FloatArray = start + place
    factor = np.exp(log_mgf - theta * y)
    mgf_size = m * q * math.expm1(theta) - k * q * math.expm1(-theta)
    slack = 16 * UNIT * (4.0 + mgf_size + theta * np.abs(y))
    here, before = at(terms), at(terms * np.exp(1j * v))
    above = at(terms * tail)
    back = factor * grow
    return Steps(
        y,
        np.maximum(before, 0.0) * back,
        np.maximum(here, 0.0) * factor,
        np.maximum(above, 0.0) * factor,
        back * (error + slack * np.abs(before)) * (1.0 + slack),
        factor * (error + slack * np.abs(here)) * (1.0 + slack),
        factor * (tail_error + slack * np.abs(above)) * (1.0 + slack),
    )
