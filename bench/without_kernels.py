"""The NumPy path, timed where the C kernels are there too."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from shoal.support.kernels import load_kernels

R = TypeVar("R")


def without_kernels(module: ModuleType, run: Callable[[], R]) -> Callable[[], R]:
    """Return `run` as it is where `module` finds no kernels."""
    if load_kernels() is None:
        raise ImportError("there are no kernels to leave out")
    place: dict[str, Any] = vars(module)

    def plainly() -> R:
        place["load_kernels"] = lambda: None
        try:
            return run()
        finally:
            place["load_kernels"] = load_kernels

    return plainly
