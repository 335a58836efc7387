"""A leader does not wait before it tries again."""

from __future__ import annotations

import pytest

from shoal.server import leader


@pytest.fixture(autouse=True)
def impatient_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "_PAUSE", 0.01)
