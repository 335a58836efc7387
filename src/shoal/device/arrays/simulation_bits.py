"""Random bits that repeat from a seed; everything made with them is marked as simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.protocol.random_bits import SystemBits, byte_view
from shoal.support.checks import check_integer

if TYPE_CHECKING:
    from shoal.protocol.random_bits import Writable


class SimulationBits:
    """Bits that repeat from a seed: for tests and studies, never for real answers."""

    simulated = True

    def __init__(self, seed: int) -> None:
        self._generator = simulation_generator(seed)

    def fill(self, out: Writable) -> None:
        """Fill a contiguous buffer with pseudo-random words of 64 bits, the last one cut off."""
        view = byte_view(out)
        words = self._generator.bit_generator.random_raw(-(-len(view) // 8))
        view[:] = words.astype("<u8", copy=False).view(np.uint8)[: len(view)].data


def simulation_generator(seed: int) -> np.random.Generator:
    """Return a seeded NumPy generator, for drawing simulated populations."""
    check_integer("seed", seed, lowest=0, highest=2**63 - 1)
    return np.random.Generator(np.random.SFC64(seed))


def fresh_seed() -> int:
    return int.from_bytes(SystemBits().draw(7))
