"""An HTTP server for the tests that send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.device.outbox_help import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()
