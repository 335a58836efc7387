"""Published bounds against the reference code of their authors, and where it is not right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import get_args

import pytest

from shoal.theory.domains import choice, flags
from shoal.theory.literature_bounds import PublishedBound, published_delta
from shoal.theory.proven import proven_delta

ROWS = json.loads((Path(__file__).parent.parent / "data" / "published_bounds.json").read_text())[
    "rows"
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['bits']}-{row['q']}-{row['crowd']}")
def test_clones_agree_with_the_reference(row):
    """The clones' upper end takes the same end point twice: loose, but here it is above.

    The stronger clones agree to its stated tolerance of 1e-12: below that it drops part of the sum.
    """
    given = (flags(row["bits"]),), row["crowd"], row["q"], row["epsilon"]
    low, high = row["clones"]
    clones = published_delta(*given, "clones")
    assert low <= clones.high
    assert clones.low <= high
    stronger = published_delta(*given, "stronger clones")
    assert stronger.low - 2e-12 <= row["stronger"] <= stronger.high + 2e-12


@pytest.mark.parametrize("crowd", [1000, 100_000])
@pytest.mark.parametrize("domain", [(flags(1),), (flags(2),), (flags(40),), (choice(100),)])
@pytest.mark.parametrize("epsilon", [math.log(2), 2.0])
def test_proven_is_never_above_the_published(domain, crowd, epsilon):
    q = {1: 0.02, 2: 0.1, 40: 0.43, 100: 0.05}[sum(block.bits for block in domain)]
    ours = proven_delta(domain, crowd, q, epsilon).delta
    for bound in get_args(PublishedBound):
        published = published_delta(domain, crowd, q, epsilon, bound)
        assert ours.low <= published.high * (1 + 1e-9)
