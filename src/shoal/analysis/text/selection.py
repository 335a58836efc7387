"""Which candidates are there: p-values that hold for any crowd, and false discoveries.

In every cohort, the positions of a text that nobody answered are a uniform draw, independent of the
reports. So the distribution of its score, the sum of the residuals at its bits, is known from the
residuals themselves, whatever they are made of (`null_distribution`).

Given the residuals, the p-values of absent candidates are independent, since their hashes are;
Benjamini and Hochberg's rule then bounds the expected share of absent texts among those found.
Fitting what was found and looking again is an approximation to that; `bench/decoding.py` measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from shoal.analysis.text.least_squares import CLIP, Data, Design, Fit, Floats, Places, fit

_ROUNDS = 24
_SETTLED = 0.02
_FITTED = 0.05


@dataclass(frozen=True, eq=False)
class Selection:
    """The last fit, and the count and sigma of every pattern.

    `z` are the p-values as normal quantiles, `cutoff` their threshold. `blur` is the part of a
    variance that choosing adds. Patterns `shared` stand out and still may be nobody's: with one or
    two cohorts another text may have all their bits.
    """

    fit: Fit
    counts: Floats
    sigmas: Floats
    z: Floats
    blur: float
    discoveries: Places
    cutoff: float
    shared: Places


def discoveries(log_p: Floats, fdr: float) -> tuple[Places, float]:
    """Return those found by Benjamini and Hochberg's rule, and the logarithm of its cutoff.

    >>> places, cutoff = discoveries(np.log([0.001, 0.02, 0.03, 0.8]), 0.05)
    >>> places.tolist(), round(float(np.exp(cutoff)), 4)
    ([0, 1, 2], 0.0375)
    """
    order = np.argsort(log_p, kind="stable")
    ranks = np.arange(1, len(log_p) + 1)
    under = np.flatnonzero(log_p[order] <= np.log(fdr * ranks / len(log_p)))
    most = int(under[-1]) + 1 if under.size else 0
    return np.sort(order[:most]), float(np.log(fdr * max(most, 1) / len(log_p)))


def select(data: Data, design: Design, fdr: float) -> Selection:
    """Fit what is found and look again, until hardly anything changes; then fit once more.

    At a strict `fdr` more is fitted than found: better in the fit than in the noise.
    """
    chosen: Places = np.empty(0, np.int64)
    most = data.debiased.size // 4  # more texts than that cannot be told apart anyway
    fitted = fit(data, design, chosen, 0.0)
    for number in range(_ROUNDS):
        _, _, z = _tested(data, design, fitted)
        log_p = log_ndtr(-z)
        fits, _ = discoveries(log_p, max(fdr, _FITTED))
        fits = np.sort(fits[np.argsort(-z[fits], kind="stable")[:most]])
        if number > _ROUNDS // 2:  # it goes back and forth: only leave out from here on
            fits = np.intersect1d(fits, chosen)
        changed = len(np.setxor1d(fits, chosen))
        if changed:
            chosen = fits
            fitted = fit(data, design, chosen, fitted.extra)
        if changed <= _SETTLED * len(fits):
            break
    places, log_cutoff = discoveries(log_p, fdr)
    more = surplus(z, float(z[chosen].min())) if len(chosen) else 0.0
    fitted = fit(data, design, chosen, fitted.extra, more)
    counts, sigmas, _ = _tested(data, design, fitted)
    shared, people = _shared(data, design, fitted)
    counts[shared] = people
    return Selection(
        fit=fitted,
        counts=counts,
        sigmas=sigmas,
        z=z,
        blur=more / data.debiased.size,
        discoveries=np.intersect1d(places, chosen),
        cutoff=float(-ndtri(np.exp(log_cutoff))),
        shared=shared,
    )


def surplus(z: Floats, cutoff: float) -> float:
    """Return how much more than one each the squared errors of chosen z-values add up to.

    For a normal z with mean mu, E[((z - mu)^2 - 1) 1(z > t)] = (t - mu) phi(t - mu): minus the
    slope of its density at t. Summed over all candidates, minus the slope of the density of their
    z-values, here from how many fall just below and just above the cutoff.
    """
    window = 0.5
    below = float(((z > cutoff - window) & (z <= cutoff)).sum())
    above = float(((z > cutoff) & (z < cutoff + window)).sum())
    return max(below - above, 0.0) / window**2


def _tested(data: Data, design: Design, fitted: Fit) -> tuple[Floats, Floats, Floats]:
    """Return count, sigma and the p-value, as a normal quantile, of every pattern."""
    spreads = np.sqrt(fitted.variance)
    factor = data.shares[:, None] / spreads * data.used
    clipped = np.clip(fitted.residual / spreads, -CLIP, CLIP)
    table = factor * clipped
    centre = table.mean(axis=1, keepdims=True)
    table -= centre
    null = null_distribution(table, design.hashes)
    scores = design.adjoint(table)
    # The slope of a score in its own count: the part of a bit that the mean does not take away.
    slope = (np.abs(clipped) < CLIP).mean() * (1 - data.density)
    information = np.maximum(design.adjoint(factor**2), 1e-300) * max(slope, 1e-3)
    counts, sigmas = scores / information, null.sigma / information
    z = null.normal_score(scores)
    if len(fitted.chosen):
        sigma = np.sqrt(np.diag(fitted.inverse)[1:])
        again = null.normal_score(_scores_of_fitted(data, design, fitted, sigma, centre))
        # This sigma is somewhat too large for popular texts; they are found anyway.
        z[fitted.chosen] = np.minimum(again, fitted.counts / sigma)
        counts[fitted.chosen], sigmas[fitted.chosen] = fitted.counts, sigma
    return counts, sigmas, z


def _shared(data: Data, design: Design, fitted: Fit) -> tuple[Places, Floats]:
    """Return patterns not fitted although most of their bits are far up, and the people there.

    Clipping is for single bits far off. It must not hide a text all of whose bits are, so the count
    is that of plain least squares.
    """
    far = (fitted.residual > CLIP * np.sqrt(fitted.variance)) * data.used
    most = design.adjoint(far) > design.adjoint(np.broadcast_to(data.used, far.shape)) / 2
    most[fitted.chosen] = False
    factor = data.shares[:, None] / fitted.variance * data.used
    scores = design.adjoint(factor * fitted.residual)[most]
    information = design.adjoint(factor * data.shares[:, None])[most]
    return np.flatnonzero(most), np.asarray(scores / np.maximum(information, 1e-300))


def _scores_of_fitted(
    data: Data, design: Design, fitted: Fit, sigma: Floats, centre: Floats
) -> Floats:
    """Return the scores that fitted texts would have if they had not been fitted.

    Their own count is put back into the residuals, and what their own people add to the variance is
    taken out, of people who are there beyond doubt: with the whole count of doubtful texts half as
    many false ones again were found (observed).
    """
    chosen, share = fitted.chosen, data.shares[None, :, None]
    # The sigma of the fit holds the cohorts that a text's own people drew; its count is not blurred
    # by them.
    own = np.maximum(fitted.counts, 0) * (1 - 1 / design.cohorts) / design.hashes
    doubt = CLIP * np.sqrt(np.maximum(sigma**2 - own, 0))
    sure = np.maximum(fitted.counts - doubt, 0)[:, None, None]
    variance = design.at(chosen, fitted.variance) - sure * share * (1 - share)
    spreads = np.sqrt(np.maximum(variance, design.at(chosen, fitted.fixed(data))))
    residual = design.at(chosen, fitted.residual) + share * fitted.counts[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):  # places that are nowhere
        clipped = np.clip(residual / spreads, -CLIP, CLIP)
        score = np.where(spreads > 0, share / spreads * clipped - centre[None], 0.0)
    # Fitting others takes a share of its own bits away from a text, and fitting it gives them back;
    # the null distribution has not got them back (approximation). Where that share
    # is large, texts are nearly alike, and it is the sigma of least squares that tells.
    alone = (fitted.columns.multiply(fitted.columns)).T @ fitted.weight.ravel()
    shrink = 1 / np.clip(alone * np.diag(fitted.inverse), 1.0, 1.25)[1:]
    return np.asarray(score.sum(axis=(1, 2)) * shrink)


FEW_DRAWS = 8  # up to which draws are added up one by one
_LATTICE = 1 << 12  # places for one draw
_ROUND_OFF = 1e-15  # more than a Fourier transform adds to a probability


class NullDistribution:
    """Scores that rise, and the standard normal quantile whose tail is that of each score."""

    def __init__(self, sigma: float, scores: Floats, normal: Floats) -> None:
        self.sigma = sigma
        self._scores, self._normal = scores, normal

    def normal_score(self, scores: Floats) -> Floats:
        inside = np.interp(scores, self._scores, self._normal)
        beyond = np.maximum(scores - self._scores[-1], 0) / self.sigma
        return np.asarray(inside + beyond)


def null_distribution(table: Floats, hashes: int) -> NullDistribution:
    """Return the distribution of the sum of draws, `hashes` from each row of a centred table.

    With many draws the tail is a saddlepoint approximation (Barndorff-Nielsen's r*) from the exact
    cumulants: residuals are skew and the tails needed are far out. A sum of few draws has atoms
    instead of a smooth tail: a text that sets one bit of m has no p-value below 1 / m, however many
    people stand at that bit. So few draws are added up one by one on a lattice, each rounded up,
    which can only make the tail heavier.

    >>> table = np.array([[3.0] + [0.0] * 99]) - 0.03
    >>> null = null_distribution(table, 1)     # one bit in a hundred: p = .01
    >>> round(float(null.normal_score(np.array([2.97]))[0]), 2)
    2.33
    """
    sigma = math.sqrt(max(hashes * float((table**2).mean(axis=1).sum()), 1e-300))
    if len(table) * hashes <= FEW_DRAWS and (added := _added(table, hashes)) is not None:
        return NullDistribution(sigma, *added)
    return NullDistribution(sigma, *_saddlepoints(table, hashes, sigma))


def _added(table: Floats, hashes: int) -> tuple[Floats, Floats] | None:
    """Return lattice places and P[sum >= place] as normal quantiles; interpolation is safe."""
    lowest, span = table.min(axis=1, keepdims=True), float(np.ptp(table, axis=1).max())
    if span <= 0:
        return None
    step = span / (_LATTICE - 1)
    # a value on the lattice stays where it is, in spite of round-off
    places = np.ceil((table - lowest) / step - 1e-6).astype(np.int64)
    draws = len(table) * hashes
    length = 1 << math.ceil(math.log2(draws * _LATTICE + 1))
    transform = np.ones(length // 2 + 1, complex)
    for row in places:
        chances = np.bincount(row, minlength=length) / row.size
        transform *= np.fft.rfft(chances) ** hashes
    tail = np.cumsum(np.fft.irfft(transform, length)[::-1])[::-1]
    last = int(places.max(axis=1).sum()) * hashes
    chance = np.clip(tail[: last + 1] + _ROUND_OFF * length, 0.0, 1.0 - 1e-12)
    scores = float(lowest.sum()) * hashes + step * np.arange(last + 1, dtype=np.float64)
    return scores, -ndtri(np.minimum.accumulate(chance))


def _saddlepoints(table: Floats, hashes: int, sigma: float) -> tuple[Floats, Floats]:
    points = []
    for tilt in np.arange(-5.75, 14, 0.5) / sigma:
        power = np.exp(tilt * table)
        mass = power.mean(axis=1)
        first = (power * table).mean(axis=1) / mass
        second = (power * table**2).mean(axis=1) / mass - first**2
        score = hashes * first.sum()
        root = 2 * (tilt * score - hashes * np.log(mass).sum())
        w = np.sign(tilt) * np.sqrt(max(root, 1e-300))
        u = tilt * np.sqrt(max(hashes * second.sum(), 1e-300))
        if u / w > 0.02:  # else the tilt has reached the largest values there are
            points.append((score, w + np.log(u / w) / w))
    scores, normal = np.maximum.accumulate(np.array(points), axis=0).T
    return scores, normal
