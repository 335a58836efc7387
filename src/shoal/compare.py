"""The price of each trust model for a survey."""

from __future__ import annotations

from shoal.errors import missing_extra

try:
    from shoal.planning.costs import Comparison, compare
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.compare") from None

__all__ = ["Comparison", "compare"]
