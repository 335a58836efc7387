"""Build hook: what is in the wheel beside the Python sources.

The C kernels are compiled if there is a compiler, else left out. A wheel with kernels runs on any
Python 3 of its platform, since they do not use Python's headers; one without them, or with
`SHOAL_KERNELS=off` in the environment, runs everywhere. An editable install gets them
beside their source. The client for web pages is put beside the demonstration that serves it, which
finds it in `clients/js` where nothing is installed.
"""

from __future__ import annotations

import re
import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CLIENT = ("shoal.js", "src/*.js")
"""The files of `clients/js` that a web page needs; they are copied below `shoal/lab/web_demo`."""

VERIFIER = "tools/verify_certificate.py"
"""It runs by itself, and `shoal.theory.rigorous` calls it: a wheel has it beside that module."""

OLDEST_GLIBC = 17
"""Every Linux that Python 3.11 runs on has glibc 2.17 or newer, or another C library."""


def platform_tag(library: Path) -> str:
    """Return the platform of a wheel with this library.

    On Linux that is the oldest glibc with all symbols that the library needs (PEP 600), as long as
    it needs nothing else. The names and versions are plain texts in an ELF file.
    """
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    content = library.read_bytes()
    needed = set(re.findall(rb"(?<=\0)lib[\w.+-]+\.so[\w.]*(?=\0)", content))
    versions = [int(minor) for minor in re.findall(rb"(?<=\0)GLIBC_2\.(\d+)", content)]
    if not here.startswith("linux_") or needed != {b"libc.so.6"} or not versions:
        return here
    return f"manylinux_2_{max(OLDEST_GLIBC, *versions)}_{here.removeprefix('linux_')}"


class WheelHook(BuildHookInterface):
    """Compile the C files of `src/shoal/support`, and bring the client for web pages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell the builder what came of it and what else is in the wheel."""
        support = Path(self.root, "src", "shoal", "support")
        compile_kernels = runpy.run_path(str(support / "kernels.py"))["compile_kernels"]
        self._folder = tempfile.TemporaryDirectory()
        editable = version == "editable"
        if not editable:
            scripts = Path(self.root, "clients", "js")
            for path in (found for pattern in CLIENT for found in scripts.glob(pattern)):
                where = Path("shoal/lab/web_demo/client", path.relative_to(scripts))
                build_data["force_include"][str(path)] = str(where)
            build_data["force_include"][str(Path(self.root, VERIFIER))] = (
                f"shoal/theory/{Path(VERIFIER).name}"
            )
        library = (support if editable else Path(self._folder.name)) / "_kernels.so"
        problem = compile_kernels(library)
        if problem is not None:
            self.app.display_warning(f"without C kernels, NumPy does their work: {problem}")
        elif not editable:
            build_data["tag"] = f"py3-none-{platform_tag(library)}"
            build_data["pure_python"] = False
            build_data["force_include"][str(library)] = "shoal/support/_kernels.so"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled for the wheel."""
        self._folder.cleanup()
