"""Build wheel and source distribution of both packages, and try the wheels alone.

`python -m tests.build_distributions dist` does both; `make dist` calls it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.whole_way import whole_way

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT, ROOT / "packages" / "shoal-device")


def build(folder: Path, *targets: str, **environment: str) -> list[Path]:
    """Build with the hatchling that is installed here, all or some targets; return the files."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        for target in targets:
            command += ["-t", target]
        given = os.environ | environment
        done = subprocess.run(command, cwd=package, capture_output=True, text=True, env=given)
        assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


def try_alone(files: list[Path]) -> None:
    """Install the wheels, with what they need from the package index, and go the whole way."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "venv"
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        # With kernels, if they were compiled: their wheel's name comes last.
        wheels = {path.name.split("-")[0]: path for path in files if path.suffix == ".whl"}
        what = [str(wheels["shoal_device"]), f"{wheels['shoal']}[server]"]
        command = [str(python), "-m", "pip", "install", "--quiet", *what]
        subprocess.run(command, check=True)
        print("the whole way, alone:", whole_way(python, Path(place)))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    build(folder, "wheel", SHOAL_KERNELS="off")
    built = build(folder)
    print(*built, sep="\n")
    try_alone(built)
