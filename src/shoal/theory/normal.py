"""The normal law."""

from __future__ import annotations

from statistics import NormalDist

__all__ = ["normal_factor"]


def normal_factor(level: float) -> float:
    """Return how many sigmas a normal interval at the level reaches.

    >>> round(normal_factor(0.95), 4)
    1.96
    """
    return -NormalDist().inv_cdf((1 - level) / 2)
