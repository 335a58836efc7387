"""Build hook: what is in the wheel beside the Python sources.

The C kernels are compiled if there is a compiler, else left out. A wheel with kernels runs on any
Python 3 of its platform, since they do not use Python's headers. An editable install gets them
beside their source. The client for web pages is put beside the demonstration that serves it, which
finds it in `clients/js` where nothing is installed.
"""

from __future__ import annotations

import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CLIENT = {"clients/js/shoal.js": "shoal.js", "clients/js/src": "src"}
"""The client for web pages, and where it is below `shoal/evidence/web_demo/client`."""


class WheelHook(BuildHookInterface):
    """Compile `src/shoal/support/kernels.c`, and bring the client for web pages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell the builder what came of it and what else is in the wheel."""
        support = Path(self.root, "src", "shoal", "support")
        compile_kernels = runpy.run_path(str(support / "kernel_compiler.py"))["compile_kernels"]
        self._folder = tempfile.TemporaryDirectory()
        editable = version == "editable"
        if not editable:
            for source, target in CLIENT.items():
                where = f"shoal/evidence/web_demo/client/{target}"
                build_data["force_include"][str(Path(self.root, source))] = where
        library = (support if editable else Path(self._folder.name)) / "_kernels.so"
        problem = compile_kernels(library)
        if problem is not None:
            self.app.display_warning(f"without C kernels, NumPy does their work: {problem}")
        elif not editable:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"
            build_data["pure_python"] = False
            build_data["force_include"][str(library)] = "shoal/support/_kernels.so"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled for the wheel."""
        self._folder.cleanup()
