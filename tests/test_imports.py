"""What is loaded when Shoal is used, and where random bits come from.

Who may import whom is checked by import-linter (`make lint`); its contracts are in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import shoal

ROOT = Path(shoal.__file__).parent
GENERATORS = {"secrets", "random", "numpy.random", "os.urandom", "os.getrandom", "uuid.uuid1"}
GENERATORS |= {"np.random", "uuid.uuid4"}
SOURCES_OF_BITS = {"protocol/random_bits.py", "device/arrays/simulation_bits.py"}


def generators_in(source: str) -> list[str]:
    """Return the random generators that a source imports or calls."""
    if not re.search(r"\b(u?random|getrandom|secrets|uuid[14]?|rvs)\b", source):
        return []  # the name of none of them, and parsing takes long
    used = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                used += [alias.name for alias in node.names]
            case ast.ImportFrom():
                used += [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
            case ast.Call():
                called = ast.unparse(node.func)
                used += ["random"] if called.endswith(".rvs") else []
                used += [called, called.rpartition(".")[0]]
    return [name for name in used if name in GENERATORS]


def test_random_bits_come_from_one_place():
    """The operating system for people, a seeded generator for simulated ones."""
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).as_posix() not in SOURCES_OF_BITS:
            assert generators_in(path.read_text("utf-8")) == [], path


def test_another_generator_is_found():
    for source in (
        "import random",
        "from os import urandom",
        "from numpy.random import default_rng",
        "def f(): return np.random.default_rng()",
        "uuid.uuid4()",
        "norm.rvs(3)",
    ):
        assert generators_in(source), source


def loaded_after(script: str, *flags: str, cwd: Path | None = None) -> set[str]:
    """Return the modules that a script loads in a new process."""
    start = f"import sys; sys.path.append({str(ROOT.parent)!r})"
    script = f"{start}\n{script}\nprint(' '.join(sys.modules))"
    command = [sys.executable, *flags, "-c", script]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def folders_of(loaded: set[str]) -> set[str]:
    return {name.split(".")[1] for name in loaded if name.startswith("shoal.")}


LIBRARIES = {"numpy", "scipy", "pyarrow", "pandas", "polars", "rich", "click", "starlette"}
LIBRARIES |= {"cryptography"}

ONE_REPORT = """
from shoal import Flags, Plan, Survey, randomize
from shoal.device.outbox import HttpTransport, Outbox
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
plan = Plan(Survey("s", (Flags("f", ("a",)),)), FlipProbability(1, 2), Promise("local", "2"))
randomize(plan, {"f": ["a"]})
box = Outbox(FOLDER, HttpTransport("http://127.0.0.1:9"), spread=0)
box.answer(plan, {"f": ["a"]})
"""

TELEMETRY = f"""
from shoal import Telemetry
plan = {str(Path(__file__).parent.parent / "examples" / "telemetry" / "plan.json")!r}
to = "https://telemetry.example.org"
t = Telemetry("t", plan=plan, to=to, limit=60, environ={{"HOME": "/nowhere"}})
t.record(command="count")
t.flush()
"""

WHOLE_DEVICE = """
from pathlib import Path
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Plan, Promise
from shoal.protocol.survey import Choice, Flags, Number, Survey, Text
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory
from shoal.device.outbox import HttpTransport, Outbox, PostResult

folder, posted = Path(FOLDER), []

class Transport:
    def fetch_plan(self, plan_id): raise OSError
    def post_report(self, plan_id, content):
        posted.append(content)
        return PostResult(202)

q, local = FlipProbability(23003, 16), Promise("local", "100")
questions = (Flags("f", ("a", "b")), Choice("c", ("x", "y"), "option"), Number("n", (1, 2)),
             Flags("m", ("u", "v", "w"), at_most=2))
answer = {"f": ["a"], "c": None, "n": 1.5, "m": "u;w"}
text = Plan(Survey("t", (*questions, Text("t", 64, 2, 8))), q, local)
memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
kept = Plan(Survey("k", questions), memory.q, local, memory=memory, window=86_400)
outbox = Outbox(folder / "outbox", Transport(), spread=0, ledger=Ledger(folder / "ledger"),
                memory=DeviceMemory(folder / "memory", bytes(range(32))))
outbox.answer(text, answer | {"t": "shoal"})
outbox.answer(kept, answer)
states = [ticket.state for ticket in outbox.send_due(hurry=True)]
assert states == ["sent", "sent"], states
assert sorted(map(len, posted)) == [42 + 20 + 2, 42 + 20 + 2 + 10], posted
"""


class TestDevice:
    def test_one_report_needs_the_standard_library_alone(self, tmp_path: Path):
        loaded = loaded_after(f"FOLDER = {str(tmp_path)!r}\n{ONE_REPORT}", "-IS")
        tops = {name.partition(".")[0] for name in loaded}
        assert tops - sys.stdlib_module_names == {"shoal", "__main__"}
        # Sending needs these; making a report does not, and they take longer than all the rest.
        assert not loaded & {"ssl", "socket", "http.client", "email.utils", "tomllib", "argparse"}
        assert folders_of(loaded) == {"protocol", "device", "errors", "support"}

    def test_sending_loads_no_library(self, tmp_path: Path):
        send = ONE_REPORT + "(t,) = box.send_due()\nassert t.state == 'waiting'\n"
        send += "import shoal.device.memory, shoal.device.telemetry.worker\n"
        assert not loaded_after(f"FOLDER = {str(tmp_path)!r}\n{send}", "-IS") & LIBRARIES

    def test_a_tool_with_telemetry_loads_next_to_nothing(self):
        loaded = loaded_after(TELEMETRY, "-IS")
        assert {name for name in loaded if name.startswith("shoal.")} == {
            "shoal.device",
            "shoal.device.telemetry",
            "shoal.device.telemetry.state",
        }
        assert not loaded & {"dataclasses", "argparse", "pathlib", "typing", "hashlib", "decimal"}

    def test_all_of_it_runs_without_numpy(self, tmp_path: Path):
        """From answers to the wire, with text, memory, ledger and outbox."""
        heavy = LIBRARIES - {"cryptography"}
        blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in sorted(heavy))
        loaded = loaded_after(f"{blocked}FOLDER = {str(tmp_path)!r}\n{WHOLE_DEVICE}")
        assert folders_of(loaded) == {"protocol", "device", "errors", "support"}
        assert "shoal.device.memory" in loaded
        assert not {name for name in loaded if name.startswith("shoal.device.arrays")}


class TestServer:
    def test_services_and_what_they_publish_load_no_device(self):
        start = "from shoal import tally, estimate, Tally, publish\n"
        loaded = loaded_after(f"{start}from shoal.server import Analyzer, Collector, Relay")
        assert {"shoal.server.collector", "shoal.server.console.app"} <= loaded
        assert "analysis" in folders_of(loaded)
        assert not folders_of(loaded) & {"device", "lab", "cli"}

    def test_settings_and_doctor_need_no_web_server(self):
        for script in ("from shoal.server import Settings", "import shoal.server.doctor"):
            loaded = loaded_after(script)
            assert not loaded & {"starlette", "httptools", "scipy"}
            assert "device" not in folders_of(loaded)


class TestCommands:
    def test_tally_loads_no_device(self, tmp_path: Path):
        from shoal import Flags, Survey, plan

        plan(Survey("s", (Flags("f", ("a",)),)), q="0.25").write(tmp_path / "p.json")
        loaded = loaded_after(
            f"import shoal.cli; shoal.cli.run(['tally', {str(tmp_path / 'p.json')!r}, 'none'])"
        )
        assert "shoal.analysis.tally" in loaded
        assert "device" not in folders_of(loaded)

    def test_a_plan_with_a_given_q_loads_no_scipy(self):
        words = ["plan", "--flags", "5", "--q", "0.2"]
        assert "scipy" not in loaded_after(f"import shoal.cli; assert not shoal.cli.run({words!r})")
