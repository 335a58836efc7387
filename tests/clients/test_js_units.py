"""The JavaScript client's own tests, the shared vectors among them."""

from __future__ import annotations

import subprocess

import pytest

from tests.clients.js_help import CLIENT, NODE, needs_node

pytestmark = pytest.mark.slow


@needs_node
def test_the_client_passes_its_own_tests() -> None:
    files = sorted((CLIENT / "test").glob("*.test.js"))
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--test", *map(str, files)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "# fail 0" in done.stdout
