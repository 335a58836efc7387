"""Many vectors before randomizing, in packed rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.protocol.vectors import Cohorts, Rows, check_cohorts, check_rows

__all__ = ["Original", "pack"]


@dataclass(frozen=True, slots=True, eq=False)
class Original:
    """Vectors before randomizing: they exist on the device and nowhere else.

    Its `repr` does not show them.
    """

    rows: Rows
    bits: int
    cohorts: Cohorts | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows, self.bits)
        check_cohorts(self.cohorts, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Original({len(self)} x {self.bits} bits, not shown)"


def pack(vectors: NDArray[np.bool_ | np.integer]) -> Rows:
    """Pack an array of 0 and 1, shape (vectors, bits), into rows.

    >>> pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 1]]))
    array([[1, 1]], dtype=uint8)
    """
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or (vectors.dtype != bool and not np.isin(vectors, (0, 1)).all()):
        raise InputError("vectors must be an array of 0 and 1 with one row per vector.")
    return np.packbits(vectors.astype(bool), axis=1, bitorder="little")
