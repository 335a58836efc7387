"""The table of two answers: undone exactly, its covariance, and the likeliest table.

With u the debiased bits of one side and w those of the other, u = (bit - q)/(p - q), the flips of
different bits are independent, so the sum of u_i w_j over the reports counts the people who have
both without bias; this is the Kronecker inverse of the channel on these bits.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.analysis.association.sides import Matrix, Side

__all__ = ["cross_moments", "likeliest_table", "noise_covariance", "unbiased_table"]

_MOST_STEPS = 5000


def cross_moments(
    both: Matrix, ones_first: Matrix, ones_second: Matrix, reports: int, q: float
) -> Matrix:
    """Return the sums over reports of 1, u_i, w_j and u_i w_j; the 1 stands first."""
    scale = 1 - 2 * q
    moments = np.empty((len(ones_first) + 1, len(ones_second) + 1))
    moments[0, 0] = reports
    moments[1:, 0] = (ones_first - q * reports) / scale
    moments[0, 1:] = (ones_second - q * reports) / scale
    flips = q * (ones_first[:, None] + ones_second[None, :]) - q * q * reports
    moments[1:, 1:] = (both - flips) / scale**2
    return moments


def unbiased_table(first: Side, second: Side, moments: Matrix) -> Matrix:
    """Return the unbiased count of each pair of categories."""
    return np.asarray(first.affine @ moments @ second.affine.T)


def noise_covariance(
    first: Side, second: Side, rows: Matrix, columns: Matrix, reports: int, q: float
) -> Matrix:
    """Return the covariance of the unbiased table, row by row, given the people (theorem).

    `rows` and `columns` are how many people each category has. One person in row a and column b
    adds Cov(g_c h_d, g_e h_f) = v^2 S_ce T_df + v S_ce y_d y_f + v T_df x_c x_e, where v is
    pq/(p-q)^2, S and T the spreads of the two sides and x, y the person's indicators.
    """
    v = q * (1 - q) / (1 - 2 * q) ** 2
    S, T = first.spread, second.spread  # noqa: N806
    return np.asarray(
        reports * v * v * np.kron(S, T)
        + v * (np.kron(S, np.diag(columns)) + np.kron(np.diag(rows), T))
    )


def likeliest_table(first: Side, second: Side, counts: Matrix, q: float) -> Matrix:
    """Return the table without negative counts that makes the reports likeliest.

    Expectation maximization, extrapolated (SQUAREM); the likelihood is concave, so that there is
    one maximum. Inside the simplex it agrees with the exact inverse where that exists.
    """
    left, right = first.likelihood(q), second.likelihood(q)
    reports = counts.sum()

    def step(shares: Matrix) -> Matrix:
        fit = left @ shares @ right.T
        return np.asarray(shares * (left.T @ (counts / fit) @ right) / reports)

    def value(shares: Matrix) -> float:
        return float((counts * np.log(left @ shares @ right.T)).sum())

    shares = np.full((left.shape[1], right.shape[1]), 1 / (left.shape[1] * right.shape[1]))
    for _ in range(_MOST_STEPS):
        once = step(shares)
        twice = step(once)
        change, bend = once - shares, twice - 2 * once + shares
        if float(np.abs(twice - shares).max()) < 1e-12:
            break
        length = max(math.sqrt(float((change**2).sum() / max((bend**2).sum(), 1e-300))), 1.0)
        far = np.maximum(shares + 2 * length * change + length**2 * bend, twice * 1e-3)
        far = step(far / far.sum())
        shares = far if value(far) >= value(twice) else twice
    return np.asarray(shares * reports)
