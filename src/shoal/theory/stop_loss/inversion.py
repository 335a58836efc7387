r"""The inversion integral, sampled, with a bound on every error it makes.

For a sum S of n iid draws, t > 0 and independent noise e,

.. math:: E[(S+e)_+] = \frac1{2\pi i}\int_{t-i\infty}^{t+i\infty} M(z)^n \hat e(z) z^{-2} dz,

M the generating function of one draw. Three facts turn a finite sum into a certified bracket.

*Noise (theorem).* Let e be a sum of m uniforms on [-h/2, h/2]. By Jensen ``U_h = E[(S+e)_+]`` is
an upper bound of ``C = E[S_+]``. The gap is ``U_h - C = E[G_h(S)]`` with ``G_h(s) =
E[(e-|s|)_+]``, and ``G_2h(s) = 2 G_h(s/2) >= 2 G_h(s)`` since G falls in |s|. Hence
``U_2h - C >= 2 (U_h - C)``, that is ``2 U_h - U_2h <= C <= U_h``. The noise is added once, not
once per draw, so that the width is of order h^2 whatever n is.

*Aliasing (theorem, Poisson summation).* Sampling the line at spacing 2 pi / P gives
``sum_k e^(tkP) E[(S+e-kP)_+]`` instead of its k = 0 term; all terms are non-negative, so the sum
is still an upper bound, and the others are bounded by `tilt.reach`.

*Cut-off (theorem).* ``|M(z)| <= M(t)`` and ``|sinh(zh/2)| <= cosh(th/2)``, so the terms beyond
frequency W sum to at most ``M(t)^n (2 cosh(th/2) / h)^m W^-(m+1) / (pi (m+1))``.

*Round-off (proved from unit round-off u, and 4u for the elementary functions).* With tilted
weights w and A = M(t+iv)/M(t) - 1 the computed A is off by at most the sum of

* ``sum w |dw/w|``: the weights' own errors, see `tilt.pivoted`,
* ``|z| sum w dx``: the atoms' own errors,
* ``(k + 8) u sum w |e^(ivx) - 1| <= (k + 8) u sqrt(-2 Re A)``, k terms in the sum, by
  Cauchy-Schwarz,
* ``6 u v sum w |x|``: rounding of the arguments vx,
* for the factored sum, ``(k + 16) u sum w`` in place of the Cauchy-Schwarz term,
* for the gridded sum, ``16 u log2(M)`` times the l1 norm of each transformed array: every output
  of a fast Fourier transform is reached from every input through log2(M) butterflies, each of
  relative error below 8u,

and `brackets.power_error` turns this into a bound of the n-th power of 1 + A, term by term.
The bounds are summed along with the terms, so the certificate is a posteriori.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, ComplexArray, FloatArray, dot, log_one_plus, power_error
from shoal.theory.stop_loss.reduction import Reduced
from shoal.theory.stop_loss.tilt import Tilt, pivoted

ORDER = 10
"""Uniforms in the noise: the integrand falls like frequency^-(ORDER + 2)."""

_CHUNK = 1 << 17
_FEW_ATOMS = 64
_MANY_ATOMS = 600
_TAYLOR_ORDER = 17


class Samples(NamedTuple):
    """``M(t+iv)/M(t) - 1`` at v = 0, step, 2 step, ... and a bound on the error of each.

    M is that of the atoms less `shift`; `k` is ln M(t) of the atoms themselves.
    """

    frequency: FloatArray
    deviation: ComplexArray
    error: FloatArray
    shift: float
    k: float


class Inverted(NamedTuple):
    """Both smoothed values in units of ``M(t)^n``; bounds on their round-off and on the cut-off.

    `log_unit` is ``n ln M(t)``, whose error is part of the round-off.

    The bounds hold for ``2 narrow - wide``, and so for each of the two.
    """

    narrow: float
    wide: float
    roundoff: float
    cutoff: float
    log_unit: float


def sample(problem: Reduced, n: int, t: float, step: float, count: int) -> Samples:
    """Evaluate the generating function at `count` frequencies, directly or on a grid."""
    base = pivoted(problem, t)
    y, dx, weights = problem.x - problem.x[base.pivot], problem.dx, base.weights
    order = np.argsort(weights)
    negligible = np.cumsum(weights[order]) < 1e-18 / n
    lost = 2.0 * float(weights[order[negligible]].sum())
    keep = np.sort(order[~negligible])
    v: FloatArray = step * np.arange(count, dtype=np.float64)
    error = np.full(count, base.own + base.rounding + lost)
    error += np.hypot(t, v) * (dot(weights, dx) + float(dx[base.pivot]))
    weights, y = weights[keep], y[keep]
    error += 6 * UNIT * v * dot(weights, np.abs(y))
    mass = float(weights.sum())
    if y.size <= _MANY_ATOMS and n * (y.size + 16) * UNIT * mass < 1e-6:
        deviation = _factored(weights, y, v)
        error += (y.size + 16) * UNIT * mass
    elif y.size <= _FEW_ATOMS:
        deviation = _direct(weights, y, v)
    else:
        deviation, gridding = _gridded(weights, y, step, count)
        error += gridding
    error += (y.size + 8) * UNIT * np.sqrt(2.0 * np.maximum(-deviation.real, 0.0))
    error += 8 * UNIT * np.abs(deviation)
    return Samples(v, deviation, error, float(problem.x[base.pivot]), base.k)


def _factored(weights: FloatArray, x: FloatArray, v: FloatArray) -> ComplexArray:
    """Sum exponentials by one matrix product: ``e^(i(r+s)x) = e^(irx) e^(isx)``.

    Ten times faster than sines and cosines; the error is relative to the total weight instead
    of to each ``e^(ivx) - 1``.
    """
    block = 1 << math.ceil(math.log2(math.sqrt(v.size)))
    near = np.exp(1j * np.outer(v[:block], x))
    far = np.exp(1j * np.outer(v[::block], x)) * weights
    # einsum instead of @: a threaded matrix library spends its time waiting on a busy machine
    total = np.einsum("ik,jk->ij", far, near).ravel()[: v.size]
    return np.asarray(total - weights.sum())


def _direct(weights: FloatArray, x: FloatArray, v: FloatArray) -> ComplexArray:
    deviation = np.empty(v.size, dtype=np.complex128)
    rows = max(1, _CHUNK // x.size)
    half = 0.5 * x
    for start in range(0, v.size, rows):
        angle = v[start : start + rows, None] * half
        sine = np.sin(angle)
        # e^(iy) - 1 = 2i sin(y/2) e^(iy/2): relative accuracy also for tiny y
        deviation.real[start : start + rows] = -2.0 * np.einsum("ij,ij,j->i", sine, sine, weights)
        np.cos(angle, out=angle)
        deviation.imag[start : start + rows] = 2.0 * np.einsum("ij,ij,j->i", sine, angle, weights)
    return deviation


def _gridded(
    weights: FloatArray, x: FloatArray, step: float, count: int
) -> tuple[ComplexArray, FloatArray]:
    """Sum many exponentials: Taylor series around the nodes of a grid, one transform per order.

    The grid has at least 4 nodes per sample, so ``|v r| <= pi/4`` for the distance r of an atom to
    its node and the series is cut below round-off at order 17 (remainder under 5e-17).
    """
    nodes = 1 << max(8, math.ceil(math.log2(4 * count)))
    pitch = 2.0 * math.pi / (step * nodes)
    index = np.rint(x / pitch)
    rest = (x - index * pitch) / pitch
    where = np.mod(index, nodes).astype(np.int64)
    scaled = 2.0 * math.pi / nodes * np.arange(count)  # v * pitch
    deviation = np.zeros(count, dtype=np.complex128)
    factor = np.ones(count, dtype=np.complex128)
    term = weights.copy()
    norms = 0.0
    outside = float(weights[where != 0].sum())
    for r in range(_TAYLOR_ORDER):
        cells = np.bincount(where, weights=term, minlength=nodes)
        if r == 0:
            cells[0] = -outside  # minus 1 without cancelling the bulk
        else:
            norms += float(np.abs(term).sum()) * (scaled[-1] ** r)
        deviation += factor * np.conj(np.fft.rfft(cells)[:count])
        factor *= 1j * scaled
        term = term * rest / (r + 1)
    fraction = scaled / scaled[-1]
    error = 16 * UNIT * math.log2(nodes) * (2.0 * outside + fraction * norms) + 5e-17 * fraction
    return deviation, error


def invert(
    problem: Reduced, n: int, tilt: Tilt, width: float, period: float, cut: float
) -> Inverted:
    """Compute ``U_h`` and ``U_2h``, h = `width`, from the frequencies up to ``2 cut / h``."""
    t = tilt.t
    step = 2.0 * math.pi / period
    count = terms(width, period, cut)
    v, a, error, shift, k = sample(problem, n, t, step, count)
    log, wobble = log_one_plus(a, error)
    modulus, angle = log.real, log.imag
    power = np.exp(n * modulus)
    doubt = power_error(power, n * wobble)
    phase = n * angle + (n * shift) * v
    size = np.abs(modulus) + np.abs(angle) + abs(shift) * np.hypot(t, v) + abs(k)
    doubt += power * (8 * UNIT * (4.0 + n * size))
    z = t + 1j * v
    kernel = 1.0 / (z * z)
    narrow, wide = _noise(t, v, width)
    turned = power * np.exp(1j * phase) * kernel
    weight = np.full(count, step / math.pi)
    weight[0] *= 0.5
    values = [float(np.sum(weight * (turned * noise).real)) for noise in (narrow, wide)]
    size = weight * np.abs(kernel) * (2.0 * np.abs(narrow) + np.abs(wide))
    roundoff = float(np.sum(size * doubt))
    roundoff += 64 * UNIT * math.log2(count + 2) * float(np.sum(size * power))
    cutoff = 0.0
    last = float(v[-1])
    for h, copies in ((width, 2.0), (2.0 * width, 1.0)):
        decay = math.log(2.0 / (h * last)) + math.log(math.cosh(min(t * h / 2.0, 300.0)))
        cutoff += copies * math.exp(min(ORDER * decay, 700.0)) / (math.pi * (ORDER + 1) * last)
    return Inverted(values[0], values[1], roundoff, cutoff, n * k)


def _noise(t: float, v: FloatArray, width: float) -> tuple[ComplexArray, ComplexArray]:
    """Evaluate ``(sinh(zh/2) / (zh/2))^ORDER``, the noise, at widths h and 2h."""
    a, b = t * width / 2.0, v * (width / 2.0)
    sine, cosine = np.sin(b), np.cos(b)
    sinh = math.sinh(a) * cosine + 1j * (math.cosh(a) * sine)
    cosh = math.cosh(a) * cosine + 1j * (math.sinh(a) * sine)
    narrow = _tenth_power(sinh / (a + 1j * b))
    return narrow, narrow * _tenth_power(cosh)  # sinh 2x / 2x = (sinh x / x) cosh x


def _tenth_power(x: ComplexArray) -> ComplexArray:
    square = x * x
    fourth = square * square
    return fourth * fourth * square


def terms(width: float, period: float, cut: float) -> int:
    """Count the samples up to the frequency ``2 cut / width``."""
    return 2 + math.ceil(2.0 * cut / width * period / (2.0 * math.pi))
