"""Exact tests on binomial counts, shared by all inspections."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_MOST_REASONS = 3


def convicting(
    sentence: str,
    counts: NDArray[np.int64],
    trials: NDArray[np.int64],
    rate: float | NDArray[np.float64],
    alpha: float,
    what: str = "reports",
    names: list[str] | None = None,
) -> Iterator[str]:
    """Say which counts are impossible at their rate, at `alpha` for all of them; worst first."""
    values = p_values(counts, trials, rate)
    rates = np.broadcast_to(rate, values.shape)
    guilty = np.argwhere(values <= alpha / max(values.size, 1))
    worst = sorted(map(tuple, guilty), key=lambda index: float(values[index]))
    for index in worst[:_MOST_REASONS]:
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
