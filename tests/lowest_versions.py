"""The lowest version of each library that pyproject.toml allows, as constraints for pip.

`python -m tests.lowest_versions` asks the package index which versions there are. Libraries that
only others need are left to pip, as in any installation. Libraries for the documents, for style
and for comparing with peers are not part of what Shoal promises, and are left out.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
EXTRAS = ("curator", "ohttp", "plots", "server")


def declared() -> list[Requirement]:
    """The libraries that Shoal itself needs, and those of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    found = [Requirement(line) for line in lines]
    return [one for one in found if one.name not in ("shoal", "shoal-device")]


def lowest(requirement: Requirement, versions: list[str]) -> str:
    """Return the lowest of the versions that is allowed."""
    return str(min(requirement.specifier.filter(map(Version, versions))))


def versions_of(name: str) -> list[str]:
    """Ask the index, as pip does."""
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return listed(done.stdout)


def listed(told: str) -> list[str]:
    """Return the versions in what `pip index versions` prints."""
    (line,) = [one for one in told.splitlines() if one.startswith("Available versions: ")]
    return line.removeprefix("Available versions: ").split(", ")


def main() -> None:
    """Print the constraints."""
    for requirement in declared():
        print(
            f"{requirement.name}=={lowest(requirement, versions_of(requirement.name))}", flush=True
        )


if __name__ == "__main__":
    main()
