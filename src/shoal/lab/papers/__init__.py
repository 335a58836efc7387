"""Every number the papers print, computed again: `shoal paper`.

Each module belongs to a part of one document and yields a `Finding` for each statement in it:

* SDP: `sdp_claims` (1.2), `sdp_ratio` (1.3 to 3.2, 6), `sdp_rows` (3.3), `sdp_precision` (4),
  `sdp_sparse` (5)
* KR: `kr` (1, 2, 3 up to (3.1)), `kr_one_bit` (3.1), `kr_sums` (4, 5)
* LEC: `lec_response` (1), `lec_laplace` (2 and 3)
* BITVEC: `bitvec`

`figures` draws what the documents show. What is printed is data; verdicts are computed, see
`Finding`, and a wrong one is a failing test.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from shoal.lab.papers._finding import Case, Finding, Verdict, claim, number

__all__ = ["Case", "Finding", "Verdict", "claim", "findings", "number"]

_PARTS = (
    "sdp_claims",
    "sdp_ratio",
    "sdp_rows",
    "sdp_precision",
    "sdp_sparse",
    "kr",
    "kr_one_bit",
    "kr_sums",
    "lec_response",
    "lec_laplace",
    "bitvec",
)


def findings() -> Iterator[Finding]:
    """Yield the findings one by one, as they are computed."""
    for part in _PARTS:
        yield from importlib.import_module(f"shoal.lab.papers.{part}").findings()
