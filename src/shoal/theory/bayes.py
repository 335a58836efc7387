"""What one report reveals about its sender: the posterior of LEC Example 1."""

from __future__ import annotations

__all__ = ["posterior"]


def posterior(prior: float, q: float, reported: int) -> float:
    """Return P[bit = 1 | report], for a reader who believed `prior` before.

    By Bayes' rule with flip probability q (LEC Example 1): at q = 1/2 the report changes nothing,
    at q = 0 it says everything.

    >>> posterior(0.5, 0.5, reported=1)
    0.5
    >>> round(posterior(0.01, 0.25, reported=1), 4)
    0.0294
    """
    given_one, given_zero = (1 - q, q) if reported else (q, 1 - q)
    return given_one * prior / (given_one * prior + given_zero * (1 - prior))
