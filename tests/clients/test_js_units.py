"""The JavaScript client's own tests, the shared vectors among them."""

from __future__ import annotations

import json
import subprocess

import pytest

import shoal
from tests.clients.js_help import CLIENT, NODE, needs_node


def test_the_client_has_the_version_of_the_protocol_that_it_speaks() -> None:
    package, lock = (
        json.loads((CLIENT / name).read_text()) for name in ("package.json", "package-lock.json")
    )
    versions = (package["version"], lock["version"], lock["packages"][""]["version"])
    assert set(versions) == {shoal.__version__}


@needs_node
@pytest.mark.slow
def test_the_client_passes_its_own_tests() -> None:
    files = sorted((CLIENT / "test").glob("*.test.js"))
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--test", *map(str, files)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "# fail 0" in done.stdout
