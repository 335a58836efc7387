"""A missing library is one sentence that names the extra, in the command and in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

CROWD = ["--flags", "3", "--crowd", "100", "--epsilon", "1", "--delta", "1e-3"]
SERVE = ["serve", "--data", "x", "--honest", "all"]
PLOT = ["plan", *CROWD, "--plot", "x.png"]
AUDIT = ["audit", "--flags", "3", "--q", "0.2", "--crowd", "100", "--epsilon", "1", "--rigorous"]
RENEW = ["collector", "renew", "d", "--database", "postgresql://x@localhost/y"]
AGREED = """
from shoal import Flags, Plan, Survey, randomize
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise

survey, promise = Survey("s", (Flags("f", ("a", "b")),)), Promise("local", "2.2")
agreed = Plan(survey, FlipProbability.at_least(0.25), promise, crowd_size=100)
assert randomize(agreed, {'f': ['a']})
"""
RANDOMIZE = "randomize(agreed, [{'f': ['a']}])"


def without(libraries: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which some libraries cannot be imported."""
    block = f"import sys\nsys.modules.update(dict.fromkeys({libraries.split()!r}))\n"
    command = [sys.executable, "-c", block + code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)


MISSING = {
    "click rich": (["plan", *CROWD], "click: pip install 'shoal[cli]'"),
    "numpy scipy": (["plan", *CROWD], "numpy: pip install 'shoal[analysis]'"),
    "starlette": (SERVE, "starlette: pip install 'shoal[server]'"),
    "rich": (["plan", *CROWD], "rich: pip install 'shoal[cli]'"),
    "matplotlib": (PLOT, "matplotlib: pip install 'shoal[plots]'"),
    "flint": (AUDIT, "flint: pip install 'shoal[rigorous]'"),
    "httptools": (["demo"], "httptools: pip install 'shoal[server]'"),
    "psycopg": (RENEW, "psycopg: pip install 'shoal[postgres]'"),
}
FAST = ("numpy scipy", "starlette")


@pytest.mark.parametrize(
    "libraries",
    [pytest.param(one, marks=[pytest.mark.slow] * (one not in FAST)) for one in MISSING],
)
def test_a_command_names_the_extra(libraries: str, tmp_path: Path):
    words, extra = MISSING[libraries]
    done = without(libraries, f"from shoal.cli import run; sys.exit(run({words!r}))", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("shoal: ")
    assert done.stderr.endswith(f" needs {extra}.\n")
    assert done.stderr.count("\n") == 1


def test_the_version_needs_no_library(tmp_path: Path):
    code = "from shoal.cli import run; sys.exit(run(['--version']))"
    done = without("click rich numpy scipy pyarrow cryptography", code, tmp_path)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "shoal", "")


CALLS = {
    "numpy": {
        "import shoal; shoal.estimate": "shoal.estimate needs numpy",
        "import shoal.text": "shoal.text needs numpy",
        "import shoal.compare": "shoal.compare needs numpy",
        "import shoal.audit": "shoal.audit needs numpy",
        f"{AGREED}agreed.certificate()": "a certificate needs numpy",
        f"{AGREED}{RANDOMIZE}": "encoding a table of answers needs numpy",
    },
    "jinja2": {"import shoal.reports": "shoal.reports needs jinja2"},
    "starlette": {"from shoal.server import serve": "shoal.server.serve needs starlette"},
    "scipy": {f"{AGREED}agreed.certificate()": "a certificate needs scipy"},
    "pyarrow": {f"{AGREED}{RANDOMIZE}": "encoding a table of answers needs pyarrow"},
}


@pytest.mark.parametrize(
    "libraries", [pytest.param(one, marks=[pytest.mark.slow] * (one != "numpy")) for one in CALLS]
)
def test_python_names_the_extra(libraries: str, tmp_path: Path):
    calls = CALLS[libraries]
    script = "from shoal.errors import InputError\n"
    for code in calls:
        script += f"try:\n{indent(code, '    ')}\nexcept InputError as error:\n"
        script += "    assert isinstance(error, ModuleNotFoundError)\n    print(error)\n"
    done = without(libraries, script, tmp_path)
    assert done.stderr == ""
    for line, extra in zip(done.stdout.splitlines(), calls.values(), strict=True):
        assert line.startswith(f"{extra}: pip install 'shoal[")
