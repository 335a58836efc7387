"""Bit vectors in packed rows, and what is in them once they may leave the device: `Synthetic`.

Bit j of a vector is bit ``j % 8``, least significant first, of byte ``j // 8`` of its row. The
padding bits of the last byte are zero, always, and are checked wherever rows come in from outside.
One vector by itself is an integer: bit j of the vector is bit j of the number.

Vectors before randomizing are in `shoal.device`, and only there. Nothing makes a `Synthetic` of
them but `shoal.device.randomize.randomize`: a type checker and the import rules see to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:  # whoever brings arrays has loaded NumPy; one report needs none
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Cohorts", "Rows", "Synthetic", "check_cohorts", "check_rows", "row_bytes"]

Rows: TypeAlias = "NDArray[np.uint8]"
"""Packed rows: shape (vectors, bytes of a row)."""

Cohorts: TypeAlias = "NDArray[np.uint16]"
"""The cohort of each vector, where the survey has cohorts: public, drawn afresh for each report."""


def row_bytes(bits: int) -> int:
    """Return how many bytes a packed vector of `bits` bits takes.

    >>> row_bytes(40), row_bytes(41)
    (5, 6)
    """
    return -(-bits // 8)


def padding_mask(bits: int) -> int:
    """Return the mask of the bits of a row's last byte that belong to the vector."""
    return 0xFF >> (-bits % 8)


def check_rows(rows: Rows, bits: int, *, error: type[InputError] = InputError) -> Rows:
    """Return `rows` if they are packed rows of `bits` bits with clear padding bits."""
    if rows.dtype != "uint8" or rows.ndim != 2 or rows.shape[1] != row_bytes(bits):
        raise error(
            f"rows of {bits} bits must be uint8 of shape (vectors, {row_bytes(bits)}),"
            f" got {rows.dtype} of shape {rows.shape}."
        )
    if bits % 8:
        padding = rows[:, -1] & (0xFF ^ padding_mask(bits))
        if bool(padding.any()):
            bad = int(padding.nonzero()[0][0])
            raise error(f"row {bad + 1} has padding bits set; rows of {bits} bits end in zeros.")
    return rows


def check_cohorts(cohorts: Cohorts | None, count: int) -> None:
    """Refuse cohorts that are not one for each vector."""
    if cohorts is not None and (cohorts.shape != (count,) or cohorts.dtype != "uint16"):
        raise InputError(f"{count} vectors need {count} cohorts, as uint16.")


@dataclass(frozen=True, eq=False)
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
        check_cohorts(self.cohorts, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        mark = ", simulated: not for release" if self.simulated else ""
        return f"Synthetic({len(self)} x {self.bits} bits{mark})"
