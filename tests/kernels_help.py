"""The C kernels of the sources under test: those that were installed, or compiled anew."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest

from shoal.support.kernels import Kernels, compile_kernels, load_kernels


@cache
def _compiled() -> Kernels | str:
    if (installed := load_kernels()) is not None:  # only if it is of these sources
        return installed
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "_kernels.so"
        problem = compile_kernels(library, "-Wall", "-Wextra")
        return Kernels(library) if problem is None else problem


def compiled_kernels() -> Kernels:
    """Return the kernels, or skip the test and say what is missing."""
    kernels = _compiled()
    if isinstance(kernels, str):
        pytest.skip(kernels)
    return kernels


def ways_of_aes() -> list[int]:
    """Return the ways in which this processor can do AES, to go through all of them."""
    return list(range(1, compiled_kernels().aes + 1))
