r"""Many independent fragments: sums of privacy losses, certified from both sides.

*Theorem (Zhu, Dong and Wang 2022).* If ``H_lam`` of every pair of neighbours of a mechanism is, for
every lam >= 0, at most that of a pair (P, Q), then the product pair does the same for independent
mechanisms side by side. The proof replaces one factor at a time: ``H_lam(P x P2||Q x Q2)`` is the
integral of ``H_(lam Q2/P2)(P||Q)`` over P2. It needs no factor to have total mass 1.

*Connecting the dots* (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022; theorem). Losses on the
grid i h with masses ``mu_i >= 0`` under P and ``mu_i e^(-ih)`` under Q have a hockey stick that is
linear in lam between nodes, and its second difference at a node is mu_i:

    mu_i = (D_(i+1) - (1 + e^h) D_i + e^h D_(i-1)) / (e^h - 1),      D_i = H(e^(ih)).

The true profile is convex in lam, hence below its chords. A second difference that round-off has
made negative is set to 0: more mass only lifts the curve. At the top, flat from there on, D_n is
the mass of an infinite loss. With the mirrored half ``D_-i = 1 - e^(-ih) + e^(-ih) D_i`` the masses
are ``mu_-i = e^(-ih) mu_i`` and ``mu_0 = 1 - ((1 + e^h) D_0 - 2 D_1) / (e^h - 1)``.

*The sum of d losses.* ``delta(eps) = E_P[(1 - e^(eps - L))_+]``, L the sum. The masses are tilted
by ``e^(tL)`` to where delta is decided, which keeps its relative accuracy however small it is; then
one Fourier transform of length M, its d-th power, and back. Errors (theorems):

* *Aliasing*: the transform returns the sum over all places that agree modulo M. Other places only
  add; how much, Chernoff's bound of the tilted law says at both ends of the window.
* *Cut-off*: beyond the window the loss counts as infinite, again by Chernoff.
* *Round-off*: every output of a fast transform is reached from every input through log2 M
  butterflies of relative error below 8u, so it is off by at most ``16 u log2(M)`` times the sum of
  the inputs' sizes. A power is off by ``(|F| + e)^d - |F|^d`` where F is off by e, and each of its
  multiplications by 4u.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.counts.curve import Atoms
from shoal.theory.counts.profile import Profile
from shoal.theory.stop_loss.bracket import Bracket
from shoal.theory.stop_loss.law import FloatArray, dot
from shoal.theory.stop_loss.reduction import UNIT

__all__ = ["Losses", "composed_delta", "dominating_losses", "spread_losses"]

_LEAK = 40.0
"""Tilted mass outside the window is at most e^-40 on either side."""

_LONGEST = 1 << 23


class Losses(NamedTuple):
    """Masses under P at losses ``node * step``, and the mass of an infinite loss."""

    step: float
    node: npt.NDArray[np.int64]
    mass: FloatArray
    infinite: float


def dominating_losses(profile: Profile) -> Losses:
    """Losses whose hockey stick is at least the profile, for lam above and below 1.

    Examples
    --------
    >>> from shoal.theory.counts.profile import bit_profile
    >>> losses = dominating_losses(bit_profile(1, 0.25))
    >>> bool(1.0 <= losses.mass.sum() + losses.infinite < 1.0 + 1e-9)
    True
    """
    h, high = profile.step, profile.high
    rise, n = math.expm1(h), high.size - 1
    left, right = np.append(0.0, high[:-1]), np.append(high[1:], high[-1])
    grow = 1.0 + rise
    mass = ((right - high) + grow * (left - high)) / rise
    doubt = 8 * UNIT * (right + 3.0 * high + 2.0 * left) / rise
    mass = np.maximum(mass + doubt, 0.0)
    index = np.arange(1, n + 1)
    upper = mass[1:]
    lower = upper * np.exp(-h * index) * (1.0 + 4 * UNIT * (1.0 + h * index))
    middle = 1.0 - ((2.0 + rise) * high[0] - 2.0 * high[1]) / rise
    middle += 16 * UNIT * (1.0 + 4.0 * high[0] / rise)
    masses = np.concatenate((lower[::-1], [max(middle, 0.0)], upper))
    return Losses(h, np.arange(-n, n + 1), np.asarray(masses), float(high[-1]))


def spread_losses(atoms: Atoms, step: float) -> Losses:
    """Losses on a grid, of the same mean as those of the atoms: each goes to its two neighbours.

    Masses are rounded down.

    Examples
    --------
    >>> spread_losses(Atoms(np.array([1.0]), np.array([0.25])), 1.0).mass.round(9).tolist()
    [0.75, 0.25]
    """
    place = atoms.loss / step
    below = np.floor(place)
    share = place - below
    near = np.concatenate((below, below + 1.0)).astype(np.int64)
    mass = np.concatenate((atoms.mass * (1.0 - share), atoms.mass * share))
    node, where = np.unique(near, return_inverse=True)
    summed: FloatArray = np.bincount(where, weights=mass).astype(np.float64)
    summed *= 1.0 - UNIT * (8.0 + mass.size)
    return Losses(step, node, summed, 0.0)


class _Tilt(NamedTuple):
    """A point t > 0, K(t), and the tilted masses, which sum to 1."""

    t: float
    k: float
    mass: FloatArray


def composed_delta(losses: Losses, d: int, epsilon: float) -> Bracket:
    """Bracket ``E[(1 - e^(epsilon - L))_+]``, L the sum of d independent losses.

    Nothing is assumed of `losses` but that masses are not negative: this is a number about them.

    Examples
    --------
    >>> fair = Losses(1.0, np.array([-1, 1]), np.array([0.5, 0.5]), 0.0)
    >>> composed_delta(fair, 2, 1.0).high, 0.25 * (1 - np.exp(-1))
    (0.1580301397..., np.float64(0.1580301397...))
    """
    from scipy import fft  # here, so that commands that need none of this begin sooner

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
    high = min(high, whole)
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

    ends = (math.log(1e-3), math.log(50.0 / losses.step))
    t = math.exp(float(optimize.minimize_scalar(action, bounds=ends, method="bounded").x))
    k = _log_sum(losses, t)
    return _Tilt(t, k, losses.mass * np.exp(losses.node * (losses.step * t) - k))


def _window(losses: Losses, tilt: _Tilt, d: int) -> tuple[int, int, float, float]:
    """Places between which the tilted sum is, but for the two masses returned (Chernoff).

    The hard ends of the sum are better where they are nearer.
    """
    x: FloatArray = (losses.node * losses.step).astype(np.float64)
    mean = dot(tilt.mass, x)
    sigma = math.sqrt(max(dot(tilt.mass, (x - mean) ** 2), 1e-300) * d)
    positive = tilt.mass > 0.0
    log_mass = np.log(tilt.mass[positive])
    ends = []
    for sign, hard in ((1.0, int(losses.node[-1])), (-1.0, int(losses.node[0]))):
        u = np.geomspace(0.02, 50.0, 60) / sigma
        exponents = np.outer(sign * u, x[positive]) + log_mass
        top = exponents.max(axis=1)
        logs = top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
        # one more than needed, for round-off
        reach = float(np.min((d * logs + _LEAK + 1.0) / u))
        reach = min(math.ceil(reach / losses.step), sign * hard * d)
        leak = 0.0 if reach == sign * hard * d else math.exp(-_LEAK)
        ends.append((int(sign * reach), leak))
    (last, leak_right), (first, leak_left) = ends
    return first, last, leak_left, leak_right


def _power(
    node: npt.NDArray[np.int64], mass: FloatArray, d: int, length: int
) -> tuple[FloatArray, float]:
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
