"""The noise that an aggregator adds to its share of a full batch, drawn by OpenDP.

OpenDP samples both distributions exactly (Canonne, Kamath, Steinke, NeurIPS 2020), with random bits
of a cryptographic generator that the operating system seeds. An aggregator draws once for a batch,
in the transaction that adds its last reports: a second draw would let noise average out.
"""

from __future__ import annotations

from typing import Any

from shoal.errors import missing_extra
from shoal.protocol.plan import ShareNoise


def draw_noise(noise: ShareNoise, count: int) -> list[int]:
    """Return independent whole numbers of the distribution.

    >>> len(draw_noise(ShareNoise("gaussian", "2.5"), 4))
    4
    """
    dp = check_sampler()
    whole = dp.vector_domain(dp.atom_domain(T="i64"))
    if noise.kind == "laplace":
        draw = dp.m.make_laplace(whole, dp.l1_distance(T="i64"), scale=noise.value)
    else:
        draw = dp.m.make_gaussian(whole, dp.l2_distance(T="f64"), scale=noise.value)
    drawn: list[int] = draw([0] * count)
    return drawn


def check_sampler() -> Any:
    """Return OpenDP; without it an aggregator refuses to publish a plan with noise."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise missing_extra(error, "noise of aggregators") from None
    dp.enable_features("contrib")
    return dp
