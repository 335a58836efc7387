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

import math
from collections.abc import Callable
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

_MAX_LOSS = 500.0
"""Larger losses count as infinite."""


class Losses(NamedTuple):
    """Masses under P at losses ``node * step``, and the mass of an infinite loss."""

    step: float
    node: IntArray
    mass: FloatArray
    infinite: float


def losses_of_curve(curve: Callable[[float], float], bulk: float, top: float) -> Losses:
    """Losses that dominate a mechanism whose delta at each epsilon >= 0 is at most the curve.

    The curve bounds both orders of every pair of neighbours. Nodes are even up to `bulk`, which
    holds most losses, and grow from there to `top`.

    >>> losses = losses_of_curve(lambda eps: max(0.75 - 0.25 * math.exp(eps), 0.0), 1.1, 1.1)
    >>> round(composed_delta(losses, 1, 0.5).high, 4), round(0.75 - 0.25 * math.exp(0.5), 4)
    (0.3378, 0.3378)
    """
    top = min(top, _MAX_LOSS)
    steps = math.ceil(_BULK * max(top / bulk, 1.0))
    step = top / steps
    node = np.arange(min(_BULK, steps) + 1)
    if steps > _BULK:
        tail = np.geomspace(_BULK, steps, _TAIL).astype(np.int64)
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
    joined = (y[left] * (x[right] - x) + y[right] * (x - x[left])) / (x[right] - x[left])
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
    from scipy import fft  # here, so that other commands start sooner

    # a tilt towards a node without mass would leave nothing
    some = losses.mass > 0.0
    if some.any():
        losses = losses._replace(node=losses.node[some], mass=losses.mass[some])
    finite = float(losses.mass.sum()) * (1.0 + UNIT * losses.mass.size)
    total = finite + losses.infinite
    # total^d - finite^d
    endless = d * losses.infinite * math.exp(min((d - 1) * math.log(max(total, 1.0)), 700.0))
    endless *= 1.0 + 1e-12
    whole = min(math.exp(min(d * math.log(max(total, 1.0)), 1.0)) * (1.0 + 1e-12), 1.0)
    h, top = losses.step, int(losses.node[-1])
    if epsilon >= d * top * h * (1.0 + 1e-12):
        return Bracket(0.0, min(endless, 1.0))
    tilt = _tilt(losses, d, epsilon)
    first, last, leak_left, leak_right = _window(losses, tilt, d)
    first, last = min(first, math.floor(epsilon / h) - 1), max(last, math.floor(epsilon / h) + 1)
    length = fft.next_fast_len(last - first + 2, real=True)
    if length > _LONGEST:
        return Bracket(0.0, 1.0)
    values, error = _power(losses.node, tilt.mass, d, length)
    place = np.arange(max(math.floor(epsilon / h), first), last + 1)
    g = values[np.mod(place, length)]
    x = place * h - epsilon
    weight = np.exp(d * tilt.k - tilt.t * (place * h))
    factor = weight * -np.expm1(-np.maximum(x, 0.0))
    # rounding: of the tilted masses and their sum, d times; of the factor; of the sum
    size = float(np.abs(losses.node).max()) * h * tilt.t
    slack = 8 * UNIT * (d * (8.0 + size + abs(tilt.k)) + losses.mass.size + place.size)
    slack += 8 * UNIT * (abs(d * tilt.k) + tilt.t * float(np.abs(place[[0, -1]]).max()) * h)
    # x itself is off by a few units, which matters where it is small
    moved = float(np.sum(np.maximum(g + error, 0.0) * weight * np.abs(place)))
    moved = 8 * UNIT * (h * moved + epsilon * float(np.sum(np.maximum(g + error, 0.0) * weight)))
    beyond = leak_right * math.exp(d * tilt.k - tilt.t * last * h)
    high = float(np.sum(np.maximum(g + error, 0.0) * factor)) * (1.0 + slack)
    high += beyond + moved + endless
    low = float(np.sum(np.maximum(g - error, 0.0) * factor)) * (1.0 - slack) - moved
    low -= (leak_left + leak_right) * float(factor.max(initial=0.0))
    high = min(max(high, 5e-324), whole)  # an upper end must not vanish by underflow
    return Bracket(min(max(low, 0.0), high), high)


def _log_sum(losses: Losses, t: float) -> float:
    exponents = losses.node * (losses.step * t)
    top = float(exponents.max())
    return top + math.log(dot(np.exp(exponents - top), losses.mass))


def _tilt(losses: Losses, d: int, epsilon: float) -> _Tilt:
    """Tilt to the saddle point of ``M(t)^d e^(-t eps) / (t (t + 1))``."""
    from scipy import optimize

    def action(log_t: float) -> float:
        t = math.exp(log_t)
        return d * _log_sum(losses, t) - t * epsilon - log_t - math.log1p(t)

    # where delta is nearly 1 no tilt is needed, and a large one would leave the floats
    mean = d * losses.step * abs(dot(losses.mass, losses.node.astype(np.float64)))
    ends = (math.log(1e-3 / max(mean, 1.0)), math.log(50.0 / losses.step))
    t = math.exp(float(optimize.minimize_scalar(action, bounds=ends, method="bounded").x))
    k = _log_sum(losses, t)
    return _Tilt(t, k, losses.mass * np.exp(losses.node * (losses.step * t) - k))


def _window(losses: Losses, tilt: _Tilt, d: int) -> tuple[int, int, float, float]:
    """Return places between which the tilted sum is, but for the two masses returned (Chernoff)."""
    x: FloatArray = (losses.node * losses.step).astype(np.float64)
    mean = dot(tilt.mass, x)
    # a sum that is nearly always the same still moves by whole steps
    sigma = max(math.sqrt(dot(tilt.mass, (x - mean) ** 2) * d), losses.step)
    positive = tilt.mass > 0.0
    log_mass = np.log(tilt.mass[positive])
    ends = []
    for sign, hard in ((1.0, int(losses.node[-1])), (-1.0, int(losses.node[0]))):
        u = np.geomspace(0.02, 50.0, 60) / sigma
        exponents = np.outer(sign * u, x[positive]) + log_mass
        top = exponents.max(axis=1)
        logs = top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
        # one more than needed, for round-off; the hard ends of the sum may be nearer
        reach = float(np.min((d * logs + _LEAK + 1.0) / u))
        reach = min(math.ceil(reach / losses.step), sign * hard * d)
        leak = 0.0 if reach == sign * hard * d else math.exp(-_LEAK)
        ends.append((int(sign * reach), leak))
    (last, leak_right), (first, leak_left) = ends
    return first, last, leak_left, leak_right


def _power(node: IntArray, mass: FloatArray, d: int, length: int) -> tuple[FloatArray, float]:
    """Return the d-fold circular convolution of the masses, and a bound on each entry's error."""
    from scipy import fft

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
    top = np.exp((d - 1) * np.log(size))
    doubt = d * (each + 8 * UNIT * size) * top * (1.0 + 8 * UNIT * d)
    mean = 2.0 / length * float(np.sum(doubt))
    mean += 32 * UNIT * math.log2(length) / length * float(np.sum(top * size))
    return np.asarray(fft.irfft(result, length)), mean


def _log_delta(mu: float, epsilon: float) -> float:
    from scipy.special import log_ndtr

    near = float(log_ndtr(mu / 2.0 - epsilon / mu))
    far = float(log_ndtr(-mu / 2.0 - epsilon / mu)) + epsilon
    if far >= near:  # lost in round-off
        return _NOTHING
    return max(near + math.log(-math.expm1(far - near)), _NOTHING)


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
