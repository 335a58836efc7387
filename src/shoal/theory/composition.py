r"""Many independent mechanisms: sums of privacy losses, certified from both sides.

The bits of a release of counts are such mechanisms, and so are releases with fresh flips.

*Theorem (Zhu, Dong and Wang 2022).* If ``H_lam`` of every pair of neighbours of a mechanism is, for
every lam >= 0, at most that of a pair (P, Q), then the product pair does the same for independent
mechanisms side by side. The proof replaces one factor at a time: ``H_lam(P x P2||Q x Q2)`` is the
integral of ``H_(lam Q2/P2)(P||Q)`` over P2. No factor needs a total mass of 1.

*Connecting the dots* (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022; theorem). Losses at
nodes x_i with masses ``mu_i >= 0`` under P and ``mu_i e^(-x_i)`` under Q have a hockey stick that
is linear in lam between nodes, and the change of its slope at a node is ``mu_i e^(-x_i)``:

    mu_i = (D_(i+1) - D_i) / (e^g - 1) + (D_(i-1) - D_i) / (1 - e^-g'),      D_i = H(e^(x_i)),

g and g' the gaps above and below the node. The true profile is convex in lam, hence below its
chords. A change that round-off has made negative is set to 0: more mass only lifts the curve. At
the top, flat from there on, D_n is the mass of an infinite loss. With the mirrored half
``D_-i = 1 - e^(-x_i) + e^(-x_i) D_i`` the masses are ``mu_-i = e^(-x_i) mu_i`` and
``mu_0 = 1 - ((1 + e^g) D_0 - 2 D_1) / (e^g - 1)``. Nodes are multiples of a step h.

*The sum of d losses.* ``delta(eps) = E_P[(1 - e^(eps - L))_+]``, L the sum. The masses are tilted
by ``e^(tL)`` to where delta is decided, which keeps its relative accuracy however small it is; then
one Fourier transform of length M, its d-th power, and back. Errors (theorems):

* *Aliasing*: the transform returns the sum over all places that agree modulo M. Other places only
  add; Chernoff's bound of the tilted distribution says how much, at both ends of the window.
* *Cut-off*: beyond the window the loss counts as infinite, again by Chernoff.
* *Round-off*: every output of a fast transform is reached from every input through log2 M
  butterflies of relative error below 8u, so it is off by at most ``16 u log2(M)`` times the sum of
  the inputs' sizes. A power is off by ``(|F| + e)^d - |F|^d`` where F is off by e, and each of its
  multiplications by 4u.

*The Gaussian mechanism* is the limit of many compositions (Dong, Roth and Su 2022), and a trusted
curator's noise: standard deviation sigma in every coordinate of a vector of l2 sensitivity D. With
``mu = D / sigma`` (Balle and Wang 2018, Theorem 8; theorem, and equality)

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu),

which rises with mu. Shoal computes it to compare, and draws none: the noise is continuous, and no
sampler of floats is exact.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, Bracket, FloatArray, IntArray, dot

_LEAK = 40.0
"""Tilted mass outside the window is at most e^-40 on either side."""

_LONGEST = 1 << 23

_BULK, _TAIL = 120, 16
"""Nodes of a curve: up to where it is small, and beyond."""

_NOTHING = -745.0
"""Logarithm of the smallest float."""

_MAX_SQUARE = 3000.0
"""Where a normal variable is e^-1500 likely, nothing fits a float."""

_MAX_LOSS = 500.0
"""Larger losses count as infinite."""


class Losses(NamedTuple):
    """Masses under P at losses ``node * step``, and the mass of an infinite loss."""

    step: float
    node: IntArray
    mass: FloatArray
    infinite: float


def losses_of_curve(
    curve: Callable[[float], float], bulk: float, top: float, step: float | None = None
) -> Losses:
    """Losses that dominate a mechanism whose delta at each epsilon >= 0 is at most the curve.

    The curve bounds both orders of every pair of neighbours. Nodes are even up to `bulk`, which
    holds most losses, and grow from there to `top`; losses of one `step` can be joined.

    >>> losses = losses_of_curve(lambda eps: max(0.75 - 0.25 * math.exp(eps), 0.0), 1.1, 1.1)
    >>> round(composed_delta(losses, 1, 0.5).high, 4), round(0.75 - 0.25 * math.exp(0.5), 4)
    (0.3378, 0.3378)
    """
    top = min(top, _MAX_LOSS)
    if step is None:
        even, steps = _BULK, math.ceil(_BULK * max(top / bulk, 1.0))
        step = top / steps
    else:
        steps = math.ceil(top / step)
        # a common step may be much finer than these losses need
        even = min(steps, math.ceil(bulk / step))
    stride = max(even // _BULK, 1)
    even -= even % stride
    node = np.arange(0, min(even, steps) + 1, stride)
    if steps > even:
        tail = np.geomspace(max(even, 1), steps, _TAIL).astype(np.int64)
        node = np.unique(np.concatenate((node, tail, [steps])))
    # rounded down: the curve falls
    places = (node * step * (1.0 - 2 * UNIT)).tolist()
    high = np.minimum.accumulate([min(curve(epsilon), 1.0) for epsilon in places])
    x = node * step
    excess = np.expm1(x) * (1.0 - UNIT * (8.0 + 4.0 * x))
    return dominating_losses(step, convex_profile(excess, high), node)


def convex_profile(excess: FloatArray, high: FloatArray) -> FloatArray:
    """Return the largest convex function below the points and their mirrored half, rounded up.

    The points are ``(lam - 1, H)``, the first at lam = 1. The truth is convex and below them, so it
    is below this too; it removes round-off and the joints of bounds of different quality. By
    symmetry the chord across lam = 1 goes from ``1/(1 + x)`` to ``1 + x`` for some x, where it is
    ``(x + 2 y) / (x + 2)``.
    """
    x, y = excess, high.copy()
    y[0] = min(y[0], float(np.min((x + 2.0 * y) / (x + 2.0))) * (1.0 + 8 * UNIT))
    slopes = np.diff(y) / np.diff(x)
    if (np.diff(slopes) >= 0.0).all():
        return y
    corner: list[int] = []
    for i in range(x.size):
        while len(corner) > 1:
            a, b = corner[-2], corner[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            corner.pop()
        corner.append(i)
    corners = np.array(corner)
    after = np.clip(np.searchsorted(corners, np.arange(x.size)), 1, corners.size - 1)
    left, right = corners[after - 1], corners[after]
    # shares first: the product of a tiny height and a tiny gap would vanish by underflow
    gap = x[right] - x[left]
    joined = y[left] * ((x[right] - x) / gap) + y[right] * ((x - x[left]) / gap)
    return np.asarray(np.minimum(joined * (1.0 + 16 * UNIT), y))


def dominating_losses(step: float, high: FloatArray, node: IntArray | None = None) -> Losses:
    """Losses whose hockey stick is at least a profile, for lam above and below 1.

    `high` bounds the profile at the losses ``node * step``, by default 0, step, 2 step and so on.
    """
    node = np.arange(high.size) if node is None else node
    gap = np.diff(node) * step
    rise, part = np.expm1(gap), -np.expm1(-gap)
    doubt = 8 * UNIT * (1.0 + gap)
    below, here, above = high[:-1], high[1:], np.append(high[2:], high[-1])
    over, under = np.append(rise[1:], math.inf), part
    mass = (above - here) / over + (below - here) / under
    mass += np.append(doubt[1:], 0.0) * (above + here) / over + doubt * (below + here) / under
    upper = np.maximum(mass, 0.0)
    x = node[1:] * step
    lower = upper * np.exp(-x) * (1.0 + 4 * UNIT * (1.0 + x))
    middle = 1.0 - ((2.0 + rise[0]) * high[0] - 2.0 * high[1]) / rise[0]
    middle += 2.0 * doubt[0] * (1.0 + 4.0 * high[0] / part[0])
    masses = np.concatenate((lower[::-1], [max(middle, 0.0)], upper))
    nodes = np.concatenate((-node[:0:-1], node))
    return Losses(step, nodes, masses, float(high[-1]))


class _Tilt(NamedTuple):
    """A point t > 0, K(t), and the tilted masses, which sum to 1."""

    t: float
    k: float
    mass: FloatArray


def composed_delta(losses: Losses, d: int, epsilon: float) -> Bracket:
    """Bracket ``E[(1 - e^(epsilon - L))_+]``, L the sum of d independent losses, of any total mass.

    >>> fair = Losses(1.0, np.array([-1, 1]), np.array([0.5, 0.5]), 0.0)
    >>> composed_delta(fair, 2, 1.0).high, 0.25 * (1 - np.exp(-1))
    (0.1580301397..., np.float64(0.1580301397...))
    """
    return joint_delta(((losses, d),), epsilon)


def joint_delta(parts: Sequence[tuple[Losses, int]], epsilon: float) -> Bracket:
    """Bracket the same where L adds up d losses of each part; all parts have one step.

    >>> fair = Losses(1.0, np.array([-1, 1]), np.array([0.5, 0.5]), 0.0)
    >>> joint_delta(((fair, 1), (fair, 1)), 1.0).high
    0.1580301397...
    """
    from scipy import fft  # here, so that other commands start sooner

    if len({losses.step for losses, _ in parts}) != 1:
        raise ValueError("losses that are added must have one step.")
    parts = [(_positive(losses), d) for losses, d in parts]
    # prod total^d - prod finite^d
    endless = log_whole = 0.0
    for losses, d in parts:
        finite = float(losses.mass.sum()) * (1.0 + UNIT * losses.mass.size)
        endless += d * losses.infinite
        log_whole += d * math.log(max(finite + losses.infinite, 1.0))
    endless *= math.exp(min(log_whole, 700.0)) * (1.0 + 1e-12)
    whole = min(math.exp(min(log_whole, 1.0)) * (1.0 + 1e-12), 1.0)
    h, top = parts[0][0].step, sum(d * int(losses.node[-1]) for losses, d in parts)
    if epsilon >= top * h * (1.0 + 1e-12):
        return Bracket(0.0, min(endless, 1.0))
    t = _saddle(parts, epsilon)
    tilts = [(_tilt(losses, t), losses.node, d) for losses, d in parts]
    first, last, leak_left, leak_right = _window(tilts, h)
    first, last = min(first, math.floor(epsilon / h) - 1), max(last, math.floor(epsilon / h) + 1)
    length = fft.next_fast_len(last - first + 2, real=True)
    if length > _LONGEST:
        return Bracket(0.0, 1.0)
    values, error = mass_of_sum([(node, tilt.mass, d) for tilt, node, d in tilts], length)
    place = np.arange(max(math.floor(epsilon / h), first), last + 1)
    g = values[np.mod(place, length)]
    x = place * h - epsilon
    k = sum(d * tilt.k for tilt, _, d in tilts)
    weight = np.exp(k - t * (place * h))
    factor = weight * -np.expm1(-np.maximum(x, 0.0))
    # rounding: of the tilted masses and their sum, d times; of the factor; of the sum
    slack = 8 * UNIT * place.size
    for tilt, node, d in tilts:
        size = float(np.abs(node).max()) * h * t
        slack += 8 * UNIT * (d * (8.0 + size + 2.0 * abs(tilt.k)) + node.size)
    slack += 8 * UNIT * t * float(np.abs(place[[0, -1]]).max()) * h
    # x itself is off by a few units, which matters where it is small
    moved = float(np.sum(np.maximum(g + error, 0.0) * weight * np.abs(place)))
    moved = 8 * UNIT * (h * moved + epsilon * float(np.sum(np.maximum(g + error, 0.0) * weight)))
    beyond = leak_right * math.exp(k - t * last * h)
    high = float(np.sum(np.maximum(g + error, 0.0) * factor)) * (1.0 + slack)
    high += beyond + moved + endless
    low = float(np.sum(np.maximum(g - error, 0.0) * factor)) * (1.0 - slack) - moved
    low -= (leak_left + leak_right) * float(factor.max(initial=0.0))
    high = min(max(high, 5e-324), whole)  # an upper end must not vanish by underflow
    return Bracket(min(max(low, 0.0), high), high)


def _positive(losses: Losses) -> Losses:
    """Leave out nodes without mass: a tilt towards one of them would leave nothing."""
    some = losses.mass > 0.0
    if not some.any():
        return losses
    return losses._replace(node=losses.node[some], mass=losses.mass[some])


def _log_sum(losses: Losses, t: float) -> float:
    exponents = losses.node * (losses.step * t)
    top = float(exponents.max())
    return top + math.log(dot(np.exp(exponents - top), losses.mass))


def _saddle(parts: Sequence[tuple[Losses, int]], epsilon: float) -> float:
    """Return the saddle point of ``M(t) e^(-t eps) / (t (t + 1))``, M of the sum."""
    from scipy import optimize

    def action(log_t: float) -> float:
        t = math.exp(log_t)
        log_m = sum(d * _log_sum(losses, t) for losses, d in parts)
        return log_m - t * epsilon - log_t - math.log1p(t)

    # where delta is nearly 1 no tilt is needed, and a large one would leave the floats
    step = parts[0][0].step
    mean = sum(
        d * step * abs(dot(losses.mass, losses.node.astype(np.float64))) for losses, d in parts
    )
    ends = (math.log(1e-3 / max(mean, 1.0)), math.log(50.0 / step))
    return math.exp(float(optimize.minimize_scalar(action, bounds=ends, method="bounded").x))


def _tilt(losses: Losses, t: float) -> _Tilt:
    k = _log_sum(losses, t)
    return _Tilt(t, k, losses.mass * np.exp(losses.node * (losses.step * t) - k))


def _window(
    tilts: Sequence[tuple[_Tilt, IntArray, int]], step: float
) -> tuple[int, int, float, float]:
    """Return places between which the tilted sum is, but for the two masses returned (Chernoff)."""
    variance = 0.0
    for tilt, node, d in tilts:
        x: FloatArray = (node * step).astype(np.float64)
        variance += d * dot(tilt.mass, (x - dot(tilt.mass, x)) ** 2)
    # a sum that is nearly always the same still moves by whole steps
    u = np.geomspace(0.02, 50.0, 60) / max(math.sqrt(variance), step)
    ends = []
    for sign, end in ((1, -1), (-1, 0)):
        logs = np.zeros(u.size)
        for tilt, node, d in tilts:
            positive = tilt.mass > 0.0
            exponents = np.outer(sign * u, node[positive] * step) + np.log(tilt.mass[positive])
            top = exponents.max(axis=1)
            logs += d * (top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))
        # one more than needed, for round-off; the hard ends of the sum may be nearer
        reach = math.ceil(float(np.min((logs + _LEAK + 1.0) / u)) / step)
        hard = sum(sign * int(node[end]) * d for _, node, d in tilts)
        leak = math.exp(-_LEAK) if reach < hard else 0.0
        ends.append((sign * min(reach, hard), leak))
    (last, leak_right), (first, leak_left) = ends
    return first, last, leak_left, leak_right


def mass_of_sum(
    parts: Sequence[tuple[IntArray, FloatArray, int]], length: int
) -> tuple[FloatArray, float]:
    """Return the circular convolution of d copies of the masses of each part.

    The second number is a bound on the error of each entry.
    """
    from scipy import fft

    whole, log_top, doubt = np.ones(1, dtype=complex), np.zeros(1), np.zeros(1)
    for node, mass, d in parts:
        cells = np.bincount(np.mod(node, length), weights=mass, minlength=length)
        one = fft.rfft(cells)
        wraps = 2.0 + float(node[-1] - node[0]) / length
        each = UNIT * (16 * math.log2(length) + wraps) * float(mass.sum())
        size = np.abs(one) + each
        result, square, bits = None, one, d
        while bits:
            if bits & 1:
                result = square if result is None else result * square
            bits >>= 1
            if bits:
                square = square * square
        assert result is not None
        # (s + e)^d - s^d <= d e (s + e)^(d-1); a power takes fewer than 2d multiplications
        whole, log_top = whole * result, log_top + d * np.log(size)
        doubt = doubt + d * (each / size + 8 * UNIT) * (1.0 + 8 * UNIT * d)
    top = np.exp(log_top)
    mean = 2.0 / length * float(np.sum(doubt * top))
    mean += 32 * UNIT * math.log2(length) / length * float(np.sum(top))
    return np.asarray(fft.irfft(whole, length)), mean


def _log_delta(mu: float, epsilon: float) -> float:
    from scipy.special import log_ndtr

    near = float(log_ndtr(mu / 2.0 - epsilon / mu))
    far = float(log_ndtr(-mu / 2.0 - epsilon / mu)) + epsilon
    if far >= near:  # lost in round-off
        return _NOTHING
    return max(near + math.log(-math.expm1(far - near)), _NOTHING)


def gaussian_bracket(mu_squared: Fraction, epsilon: float) -> Bracket:
    """Bracket delta at epsilon of a shift by mu standard deviations, in decimal arithmetic.

    ``Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/(3 5) + ...)``; from the term where x^2 is below half
    of the next odd number on, the rest is less than that term. Digits are added for what cancels.

    >>> gaussian_bracket(Fraction(1), 0.0).high, 2 * 0.19146246127401312
    (0.38292492254802..., 0.38292492254802624)
    """
    if not mu_squared:
        return Bracket(0.0, 0.0)
    # of the squares of both places; a product may be infinite, where a power would be an error
    size = float(mu_squared) / 4.0 + epsilon * (epsilon / float(mu_squared))
    if size > _MAX_SQUARE:
        return Bracket(0.0, 1.0 if epsilon < float(mu_squared) / 2.0 else 5e-324)
    with decimal.localcontext() as context:
        context.prec = 60 + int(0.5 * (size + epsilon))
        tiny = decimal.Decimal(10) ** (10 - context.prec)
        mu = (decimal.Decimal(mu_squared.numerator) / mu_squared.denominator).sqrt()
        at = decimal.Decimal(epsilon)
        near, far = (_phi(sign * mu / 2 - at / mu) for sign in (1, -1))
        delta, doubt = near - at.exp() * far, tiny * (1 + at.exp())
        low, high = float(max(delta - doubt, decimal.Decimal())), max(float(delta + doubt), 5e-324)
    return Bracket(low * (1.0 - 4 * UNIT), high * (1.0 + 4 * UNIT)).capped(1.0)


def _phi(x: decimal.Decimal) -> decimal.Decimal:
    """Return the normal cdf; its error is below 10^(5 - digits)."""
    term = total = x
    k = 1
    least = decimal.Decimal(10) ** -decimal.getcontext().prec
    while abs(term) > least or k < 2 * x * x:
        k += 2
        term *= x * x / k
        total += term
    return decimal.Decimal("0.5") + total * (-x * x / 2).exp() / (2 * _pi()).sqrt()


def _pi() -> decimal.Decimal:
    """Machin's formula: ``16 atan(1/5) - 4 atan(1/239)``."""
    digits: int = 10 ** (decimal.getcontext().prec + 10)

    def atan(n: int) -> int:
        term = total = digits // n
        k = 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    return decimal.Decimal(16 * atan(5) - 4 * atan(239)) / digits


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta at epsilon of a shift by `mu` > 0 standard deviations."""
    return math.exp(_log_delta(mu, epsilon))


def gaussian_mu(epsilon: float, delta: float, xtol: float = 1e-4) -> float:
    """Shift, in standard deviations, at which delta is reached at epsilon; to `xtol`."""
    from scipy.optimize import brentq

    def gap(log_mu: float) -> float:
        return _log_delta(math.exp(log_mu), epsilon) - math.log(delta)

    return math.exp(float(brentq(gap, -60.0, 7.0, xtol=xtol)))


def gaussian_sigma(differing_bits: int, epsilon: float, delta: float) -> float:
    """Smallest noise of counts of which a person changes at most `differing_bits`, each by one.

    >>> round(gaussian_sigma(5, 1.0, 1e-6), 2), round(gaussian_sigma(40, 2.0, 1e-6), 1)
    (9.45, 14.1)
    """
    return math.sqrt(differing_bits) / gaussian_mu(epsilon, delta, 1e-10)
