"""Runs tests twice: with the C kernels of the sources under test, and in pure Python."""

from __future__ import annotations

import pytest

from shoal.protocol.vdaf import field
from tests.kernels_help import compiled_kernels


@pytest.fixture(params=["kernels", "python"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    found = compiled_kernels() if request.param == "kernels" else None
    monkeypatch.setattr(field, "load_kernels", lambda: found)
    return str(request.param)
