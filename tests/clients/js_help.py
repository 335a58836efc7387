"""Runs the JavaScript client's driver, where Node.js is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "js"
NODE = shutil.which("node")
NPM = shutil.which("npm")

needs_node = pytest.mark.skipif(NODE is None, reason="no node in PATH")
needs_npm = pytest.mark.skipif(NODE is None or NPM is None, reason="no node and npm in PATH")


def run_driver(content: bytes, *arguments: object, client: Path = CLIENT) -> bytes:
    """Give bytes to the driver and return what it writes."""
    assert NODE is not None
    command = [NODE, str(client / "test" / "driver.js"), *map(str, arguments)]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
