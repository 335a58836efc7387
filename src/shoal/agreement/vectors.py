"""Bit vectors in packed rows, before (`Original`) and after (`Synthetic`) randomizing.

Bit j of a vector is bit ``j % 8``, least significant first, of byte ``j // 8`` of its row. The
padding bits of the last byte are zero, always, and are checked wherever rows come in from outside.

The two classes hold the same kind of array and nothing converts one to the other but
`shoal.device.randomizing.randomize`: a type checker and the import rules see to it that an Original
stays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError

__all__ = ["Cohorts", "Original", "Rows", "Synthetic", "check_rows", "pack", "row_bytes", "unpack"]

Rows = NDArray[np.uint8]
"""Packed rows: shape (vectors, bytes of a row)."""


Cohorts = NDArray[np.uint16]
"""The cohort of each vector, where the survey has cohorts: public, drawn afresh for each report."""


def _check_cohorts(cohorts: Cohorts | None, count: int) -> None:
    if cohorts is not None and (cohorts.shape != (count,) or cohorts.dtype != np.uint16):
        raise InputError(f"{count} vectors need {count} cohorts, as uint16.")


def row_bytes(bits: int) -> int:
    """Return how many bytes a packed vector of `bits` bits takes.

    >>> row_bytes(40), row_bytes(41)
    (5, 6)
    """
    return -(-bits // 8)


def pack(vectors: NDArray[np.bool_ | np.integer]) -> Rows:
    """Pack an array of 0 and 1, shape (vectors, bits), into rows.

    >>> pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 1]]))
    array([[1, 1]], dtype=uint8)
    """
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or (vectors.dtype != bool and not np.isin(vectors, (0, 1)).all()):
        raise InputError("vectors must be an array of 0 and 1 with one row per vector.")
    return np.packbits(vectors.astype(bool), axis=1, bitorder="little")


def unpack(rows: Rows, bits: int) -> NDArray[np.uint8]:
    """Unpack rows into an array of 0 and 1, shape (vectors, bits).

    >>> unpack(np.array([[1, 1]], dtype=np.uint8), bits=9)
    array([[1, 0, 0, 0, 0, 0, 0, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(rows, axis=1, count=bits, bitorder="little")


def padding_mask(bits: int) -> int:
    """Return the mask of the bits of a row's last byte that belong to the vector."""
    return 0xFF >> (-bits % 8)


def check_rows(rows: Rows, bits: int, *, error: type[InputError] = InputError) -> Rows:
    """Return `rows` if they are packed rows of `bits` bits with clear padding bits."""
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != row_bytes(bits):
        raise error(
            f"rows of {bits} bits must be uint8 of shape (vectors, {row_bytes(bits)}),"
            f" got {rows.dtype} of shape {rows.shape}."
        )
    if bits % 8 and bool((rows[:, -1] & (0xFF ^ padding_mask(bits))).any()):
        bad = int(np.flatnonzero(rows[:, -1] & (0xFF ^ padding_mask(bits)))[0])
        raise error(f"row {bad + 1} has padding bits set; rows of {bits} bits end in zeros.")
    return rows


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
        _check_cohorts(self.cohorts, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Original({len(self)} x {self.bits} bits, not shown)"


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """Vectors after randomizing: what may leave the device.

    `simulated` marks vectors whose noise came from a seeded generator. They protect nobody, and
    whatever is computed from them carries the mark on. `window` is the window that all of them were
    reported in, where that is known.
    """

    rows: Rows
    bits: int
    simulated: bool = False
    cohorts: Cohorts | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows, self.bits)
        _check_cohorts(self.cohorts, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        mark = ", simulated: not for release" if self.simulated else ""
        return f"Synthetic({len(self)} x {self.bits} bits{mark})"
