"""Runs the Go compiler and the test program of the Go client, where Go is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "go"
GO = shutil.which("go")

needs_go = pytest.mark.skipif(GO is None, reason="no go in PATH")


def go(*words: str, **environ: str) -> str:
    """Run the compiler in the client's folder, without a network."""
    assert GO is not None
    done = subprocess.run(
        [GO, *words],
        cwd=CLIENT,
        env=os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def drive(driver: Path, task: str, content: bytes, **settings: object) -> bytes:
    environ = {f"SHOAL_{name.upper()}": str(value) for name, value in settings.items()}
    done = subprocess.run(
        [driver],
        input=content,
        env=os.environ | environ | {"SHOAL_DRIVER": task},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
