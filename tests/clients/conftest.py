"""The npm package and the Go client's test program, built once for all tests that use them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.go_help import GO, go
from tests.clients.js_help import CLIENT, NODE, NPM, run


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built in a copy of the sources; the copy is the folder `js` beside it."""
    if NODE is None or NPM is None:
        pytest.skip("no node and npm in PATH")
    folder = tmp_path_factory.mktemp("npm")
    copy = folder / "js"
    unneeded = shutil.ignore_patterns("node_modules", "types", "shoal.min.js")
    shutil.copytree(CLIENT, copy, ignore=unneeded)
    environment = os.environ | {"npm_config_fund": "false", "npm_config_audit": "false"}
    command = [NPM, "ci", "--prefer-offline", "--ignore-scripts"]
    installed = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    if installed.returncode:
        pytest.skip(f"npm cannot install what builds the package: {installed.stderr[-200:]}")
    run(copy, NPM, "pack", "--pack-destination", str(folder))
    (archive,) = folder.glob("shoal-*.tgz")
    return archive


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test program of the Go client, which also reads what other programs ask."""
    if GO is None:
        pytest.skip("no go in PATH")
    path = tmp_path_factory.mktemp("go") / "driver"
    go("test", "-c", "-o", str(path), ".")
    return path
