"""Runs the JavaScript client's driver and npm, where they are installed."""

from __future__ import annotations

import os
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


def run(folder: Path, *command: str) -> str:
    """Run a command in a folder and return what it writes."""
    environment = os.environ | {"npm_config_update_notifier": "false", "npm_config_audit": "false"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
