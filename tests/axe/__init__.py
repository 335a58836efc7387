"""axe-core, which looks at a page for what keeps people out: contrast, names, structure.

It is installed from npm in the version that `package-lock.json` pins, once for each run of the
tests, and is no part of Shoal. A test that needs it is skipped, with the reason, where npm is not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GRAVE = ("serious", "critical")


@cache
def axe_script() -> str:
    """Return the text of axe-core, installed in a folder that goes."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm in PATH")
    environment = os.environ | {"npm_config_fund": "false", "npm_config_audit": "false"}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        done = subprocess.run(
            [npm, "ci", "--prefer-offline", "--ignore-scripts"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm cannot install axe-core: {done.stderr[-200:]}")
        return Path(folder, "node_modules", "axe-core", "axe.min.js").read_text("utf-8")


def obstacles(page: Any) -> list[str]:
    """Return what axe-core finds serious or critical on a page: the rule, and where."""
    # Evaluated by the browser's debugger, which the page's policy does not forbid.
    page.evaluate(axe_script())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe-core looked at nothing"
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]
