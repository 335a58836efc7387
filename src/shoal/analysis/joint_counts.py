"""Joint values of chosen bits: which groups can be counted, and their tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.errors import TallyError
from shoal.protocol.plan import Plan
from shoal.protocol.wire import Rows
from shoal.support.checks import check_integer

MOST_JOINT_BITS = 16
"""The most bits whose joint values are counted: 65,536 counts."""

Counts = NDArray[np.int64]
Bits = tuple[int, ...]


def marginal(table: Counts, places: Sequence[int]) -> Counts:
    """Return the joint table of some bits of a joint table, in the order asked for."""
    values = np.arange(table.size)
    reduced = np.zeros_like(values)
    for new, old in enumerate(places):
        reduced |= (values >> old & 1) << new
    counts = np.zeros(1 << len(places), np.int64)
    np.add.at(counts, reduced, table)
    return counts


def joint_values(rows: Rows, bits: Bits) -> NDArray[np.int64]:
    """Return the joint value of some bits in each row, the first bit least significant."""
    places = np.array(bits)
    chosen = rows[:, places // 8] >> (places % 8).astype(np.uint8) & 1
    packed = np.packbits(chosen, axis=1, bitorder="little")
    return np.asarray(packed @ (1 << 8 * np.arange(packed.shape[1])))


def checked_bits(bits: Sequence[int], length: int) -> Bits:
    """Return the positions of a group that can be counted jointly."""
    chosen = tuple(check_integer("a bit", b, lowest=0, highest=length - 1) for b in bits)
    if not 1 <= len(set(chosen)) == len(chosen) <= MOST_JOINT_BITS:
        raise TallyError(f"joint counts take 1 to {MOST_JOINT_BITS} different bits, got {chosen}.")
    return chosen


def plan_groups(plan: Plan) -> list[Bits]:
    """Return the bit positions of the groups that a plan declares."""
    groups = (tuple(plan.survey.bit(*bit) for bit in group) for group in plan.joint)
    return [checked_bits(group, plan.bits) for group in groups]
