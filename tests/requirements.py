"""Versions of libraries: the lowest that pyproject.toml allows, and the hashes of those deployed.

`python -m tests.requirements lowest` prints constraints for `make lowest`. Libraries that only
others need are left to pip.

`python -m tests.requirements hashes` writes `deploy/*requirements.txt` for `make requirements`:
the versions of `constraints.txt` with the SHA-256 of each file, for Linux on x86-64 and ARM64.
Both ask the package index that pip is configured with.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PYTHON = "3.13"
"""The Python of deploy/Dockerfile."""
LIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17")
MACHINES = ("x86_64", "aarch64")
FILES = {
    "deploy/requirements.txt": "What the container runs",
    "deploy/build-requirements.txt": "What builds Shoal's wheel for the container",
    "deploy/sbom-requirements.txt": "What `make sbom` writes the bill of materials with",
}


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def declared(*extras: str) -> list[str]:
    """Return the requirements of extras, with those of the extras that they include."""
    table = project()["project"]["optional-dependencies"]
    found: set[str] = set()
    for line in (line for extra in extras for line in table[extra]):
        included = re.fullmatch(r"shoal\[(.*)\]", line)
        found |= set(declared(*included[1].split(","))) if included else {line}
    return sorted(found)


def wanted(file: str) -> list[str]:
    """Return the requirements that a file is written for."""
    if file == "deploy/sbom-requirements.txt":
        return ["cyclonedx-bom>=7"]
    if file == "deploy/build-requirements.txt":
        return list(project()["build-system"]["requires"])
    return declared("server")


def resolve(lines: Iterable[str], machine: str) -> list[tuple[str, str, str]]:
    """Return name, version and SHA-256 of each file that pip would install on a machine."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
    command += ["--ignore-installed", "--only-binary", ":all:", "--python-version", PYTHON]
    for libc in (*LIBC, "manylinux2014"):
        command += ["--platform", f"{libc}_{machine}"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--target", folder, "-c", str(ROOT / "constraints.txt"), *lines]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pip finds no files for {machine}: {done.stderr.strip().splitlines()[-1]}")
    return [
        (
            re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower(),
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in json.loads(done.stdout)["install"]
    ]


def write_hashes() -> None:
    """Write every file of requirements with hashes."""
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        sys.exit(f"run it with Python {PYTHON}: pip evaluates markers for the Python that runs it.")
    for file, purpose in FILES.items():
        found: defaultdict[str, set[str]] = defaultdict(set)
        for machine in MACHINES:
            for name, version, digest in resolve(wanted(file), machine):
                found[f"{name}=={version}"].add(f"--hash=sha256:{digest}")
        text = f"# {purpose}, with the hashes of the files. Written by `make requirements`.\n"
        for pin, hashes in sorted(found.items()):
            text += " \\\n    ".join([pin, *sorted(hashes)]) + "\n"
        (ROOT / file).write_text(text, "utf-8")
        print(file)


def print_lowest() -> None:
    """Print the lowest allowed version of each library that people install with Shoal."""
    from packaging.requirements import Requirement
    from packaging.version import Version

    for requirement in map(Requirement, declared("all")):
        if requirement.name != "pyspark":  # half a gigabyte, and tested with one version
            command = [sys.executable, "-m", "pip", "index", "versions", requirement.name]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            listed = re.findall(r"^Available versions: (.*)$", told, re.M)[0].split(", ")
            allowed = requirement.specifier.filter(map(Version, listed))
            print(f"{requirement.name}=={min(allowed)}", flush=True)


if __name__ == "__main__":
    {"hashes": write_hashes, "lowest": print_lowest}[sys.argv[1]]()
