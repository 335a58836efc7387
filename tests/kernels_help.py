"""The C kernels compiled from the sources under test, whatever was installed."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest

from shoal.support.kernels import Kernels, compile_kernels


@cache
def _compiled() -> Kernels | str:
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
