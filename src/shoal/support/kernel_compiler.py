"""Compiling `kernels.c`, where there is a compiler: for the build of the package, and for tests.

The build runs this file by itself, before the package can be imported, so it imports nothing of
ours. Where compiling fails the package is built without kernels.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-std=c11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-Wno-psabi")


def compile_kernels(target: Path, *flags: str) -> str | None:
    """Compile the kernels to `target`, whole or not at all; return what was in the way, or None.

    The compiler is ``CC`` of the environment, or else cc, gcc or clang.
    """
    if os.environ.get("SHOAL_KERNELS") == "off":
        return "SHOAL_KERNELS is off"
    if sys.platform == "win32":
        return "on Windows NumPy does the work"
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        return f"there is no compiler ({', '.join(names)})"
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command = [
            compiler,
            *FLAGS,
            *flags,
            f'-DSHOAL_SOURCE="{digest}"',
            "-o",
            str(made),
            str(SOURCE),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            return f"{compiler} failed: {done.stderr.strip()}"
        made.replace(target)
    return None
