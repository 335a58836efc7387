"""The cells of crossed questions, for many people at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.protocol.survey import Survey

__all__ = ["set_cells"]


def set_cells(survey: Survey, vectors: NDArray[np.bool_]) -> None:
    """Set the bit of each cross that follows from the other bits of each row.

    `shoal.device.answers.cell_of` does so for one person.

    >>> from shoal import Choice, YesNo
    >>> survey = Survey("s", (YesNo("a"), Choice("b", ("x", "y")))).cross("a", "b")
    >>> people = np.array([[1, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]], bool)
    >>> set_cells(survey, people)
    >>> people[:, survey.slice_of("a x b")].astype(int)
    array([[0, 1, 0, 0],
           [0, 0, 1, 0]])
    """
    for cross in survey.crosses:
        cells = np.zeros(len(vectors), np.int64)
        for side, size in zip(cross.sides, cross.sizes, strict=True):
            block = vectors[:, survey.slice_of(side.question.name)]
            value = block.argmax(axis=1) if side.bit is None else ~block[:, side.bit]
            cells = cells * size + value
        vectors[np.arange(len(vectors)), survey.slice_of(cross.name).start + cells] = True
