"""The whole way with one installation: plan, audit, randomize, tally, estimate, serve, send.

`python -m tests.whole_way PYTHON` runs it with the `shoal` of that Python, in a folder of its own.
Nothing of this repository is imported there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SURVEY = """\
name = "app"
[[question]]
name = "features"
kind = "flags"
options = ["sync", "vpn"]
"""
PEOPLE = 200


def whole_way(python: Path, folder: Path) -> dict[str, int]:
    """Run it, and return the estimate of each option, of a crowd of 200 of whom half use sync."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SHOAL_", "PYTHON", "COV_"))
    }

    def shoal(*words: str) -> str:
        done = subprocess.run(
            [str(python), "-I", "-W", "error", "-m", "shoal", *words],
            capture_output=True, text=True, cwd=folder, env=environment, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        return done.stdout

    (folder / "survey.toml").write_text(SURVEY)
    (folder / "answers.csv").write_text("features\n" + "sync\nvpn\n" * (PEOPLE // 2))
    shoal("plan", "survey.toml", "--crowd", str(PEOPLE), "--epsilon", "4", "--delta", "1e-6",
          "-o", "plan.json")  # fmt: skip
    assert "holds whatever the others answered" in shoal("audit", "plan.json")
    shoal("randomize", "plan.json", "answers.csv", "-o", "reports.parquet")
    shoal("tally", "plan.json", "reports.parquet", "-o", "tally.json")
    found = json.loads(shoal("estimate", "plan.json", "tally.json", "--json"))
    _serve(python, folder, environment, shoal)
    return {name: round(row["count"]) for name, row in found["questions"]["features"].items()}


def _serve(python: Path, folder: Path, environment: dict[str, str], shoal: object) -> None:
    command = [str(python), "-I", "-m", "shoal", "serve", "--data", "data", "--honest", "all"]
    command += ["--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--json", "plan.json"]
    with (folder / "log").open("w") as log:
        serving = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert serving.stdout is not None
        public = json.loads(serving.stdout.readline())["public"]
        said = shoal("send", "plan.json", "--answer", "features=sync", "--to", public,  # type: ignore[operator]
                     "--outbox", "outbox", "--now")  # fmt: skip
        assert "was sent and accepted" in said, said
        serving.terminate()
        assert serving.wait(120) == 0
    finally:
        serving.kill()
        serving.wait()
        assert serving.stdout is not None
        serving.stdout.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(whole_way(Path(sys.argv[1]).absolute(), Path(place)))
