"""Prio3 of draft-irtf-cfrg-vdaf-20: sums of measurements that no aggregator sees.

Two aggregators hold secret shares of every report, check a proof that it is valid, and publish only
sums. `prio3` is the protocol, `circuits` say what a measurement is, `flp` proves that it is valid,
and `field` and `xof` compute. The standard library is enough; the C kernels are faster, and their
time does not depend on secrets.
"""

from shoal.protocol.vdaf.circuits import (
    Circuit,
    Count,
    Histogram,
    MultihotCountVec,
    Sum,
    SumVec,
    best_chunk_length,
)
from shoal.protocol.vdaf.ping_pong import AggregatorInput, PingPong
from shoal.protocol.vdaf.prio3 import NONCE_SIZE, VERIFY_KEY_SIZE, Prio3, VerifyState

__all__ = [
    "NONCE_SIZE",
    "VERIFY_KEY_SIZE",
    "AggregatorInput",
    "Circuit",
    "Count",
    "Histogram",
    "MultihotCountVec",
    "PingPong",
    "Prio3",
    "Sum",
    "SumVec",
    "VerifyState",
    "best_chunk_length",
]
