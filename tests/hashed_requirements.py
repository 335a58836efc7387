"""Write requirements for the container and the release, with the SHA-256 of each file.

`make requirements` calls it, after `make constraints`. It asks the package index that pip is set up
with for the versions of `constraints.txt`, for Linux on x86-64 and on ARM64, and writes no address.
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

ROOT = Path(__file__).parent.parent
PYTHON = "3.13"
"""The Python of deploy/Dockerfile."""
LIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17")
MACHINES = ("x86_64", "aarch64")
FILES = {
    "deploy/requirements.txt": "What the container runs",
    "deploy/build-requirements.txt": "What builds Shoal's wheels for the container",
    "deploy/sbom-requirements.txt": "What `make sbom` writes the bill of materials with",
}


def wanted(file: str) -> list[str]:
    """Return the requirements that a file is written for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    if file == "deploy/sbom-requirements.txt":
        return ["cyclonedx-bom>=7"]
    if file == "deploy/build-requirements.txt":
        return list(project["build-system"]["requires"])
    extras = project["project"]["optional-dependencies"]
    lines = [*project["project"]["dependencies"], *extras["server"]]
    return [line for line in lines if not line.startswith("shoal")]


def resolved(lines: Iterable[str], machine: str) -> list[tuple[str, str, str]]:
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


def hashed(lines: Iterable[str]) -> str:
    """Return the lines of a file of requirements: each version with the hashes of its files."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for machine in MACHINES:
        for name, version, digest in resolved(list(lines), machine):
            found[f"{name}=={version}"].add(digest)
    text = ""
    for pin, digests in sorted(found.items()):
        hashes = " \\\n    ".join(f"--hash=sha256:{digest}" for digest in sorted(digests))
        text += f"{pin} \\\n    {hashes}\n"
    return text


def main() -> None:
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        sys.exit(f"run it with Python {PYTHON}: pip looks at the markers of the one that runs it.")
    for file, what in FILES.items():
        head = f"# {what}, with the hashes of the files. Written by `make requirements`.\n"
        (ROOT / file).write_text(head + hashed(wanted(file)), "utf-8")
        print(file)


if __name__ == "__main__":
    main()
