"""What a device imports: one report, the telemetry of a tool, and sending."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import shoal

SOURCE = Path(shoal.__file__).parents[1]

ONE_REPORT = """
from shoal import Flags, Plan, Survey, randomize
from shoal.device.outbox import HttpTransport, Outbox
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
plan = Plan(Survey("s", (Flags("f", ("a",)),)), FlipProbability(1, 2), Promise("local", "2"))
randomize(plan, {"f": ["a"]})
box = Outbox(sys.argv[1], HttpTransport("http://127.0.0.1:9"), spread=0)
box.answer(plan, {"f": ["a"]})
"""

TELEMETRY = """
from shoal import Telemetry
t = Telemetry("t", plan=b"", to="", environ={"HOME": "/nowhere"})
t.record(a="b")
t.flush()
"""

LIBRARIES = {"numpy", "scipy", "pyarrow", "pandas", "rich", "click", "starlette", "cryptography"}


def loaded_by(script: str, folder: Path) -> set[str]:
    """The modules that a script loads in an interpreter of its own, without site-packages."""
    start = f"import sys; sys.path.append({str(SOURCE)!r}); before = set(sys.modules)"
    code = f"{start}\n{script}\nprint(*(set(sys.modules) - before))"
    command = [sys.executable, "-I", "-S", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_one_report_needs_the_standard_library_alone(tmp_path: Path):
    loaded = loaded_by(ONE_REPORT, tmp_path)
    assert not loaded & LIBRARIES
    # Sending needs these; making a report does not, and they take longer than all the rest.
    assert not loaded & {"ssl", "socket", "http.client", "email.utils", "tomllib", "argparse"}
    ours = {name.split(".")[1] for name in loaded if name.startswith("shoal.")}
    assert ours == {"device", "errors", "protocol", "support"}


def test_sending_loads_no_library(tmp_path: Path):
    send = ONE_REPORT + "(t,) = box.send_due()\nassert t.state == 'waiting'\n"
    assert not loaded_by(send, tmp_path) & LIBRARIES


def test_a_tool_with_telemetry_loads_next_to_nothing(tmp_path: Path):
    loaded = loaded_by(TELEMETRY, tmp_path)
    assert {name for name in loaded if name.startswith("shoal.")} == {
        "shoal.device",
        "shoal.device.telemetry",
        *(f"shoal.device.telemetry.{name}" for name in ("environment", "state", "telemetry")),
    }
    assert not loaded & {"dataclasses", "json", "argparse", "pathlib", "decimal", "hashlib"}
