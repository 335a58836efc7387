"""The price of each trust model for a survey."""

from __future__ import annotations

from shoal.planning.costs import Comparison, compare

__all__ = ["Comparison", "compare"]
