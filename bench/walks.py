"""Count the code, and the files that a reader walks through to follow one operation.

`python -m bench.walks` prints the figures; `--files` also names the files of each walk, and
`--check` exits with 1 if a figure is over its limit. CPU times include starting Python; they are
the best of several, and need an idle machine. A walk enters a file if a function of it is
called; code that runs because a module is imported does not count. Each walk has a process of its
own, and all of its threads are watched.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shoal"
LIMITS = {
    "source lines": 50_000,
    "source files": 280,
    "test lines": 45_000,
    "classes defined twice": 0,
    "shoal plan": 35,
    "one answer to a stored report": 18,
    "one report at the collector": 18,
    "a page of the console": 35,
    "one report, CPU ms": 60,
    "a tool with telemetry, CPU ms": 25,
}
SCRIPTS = {
    "one report, CPU ms": """
from shoal import Flags, Outbox, Plan, Survey
from shoal.device.outbox import HttpTransport
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
plan = Plan(Survey("s", (Flags("f", ("a",)),)), FlipProbability(1, 2), Promise("local", "2"))
Outbox(sys.argv[1], HttpTransport("http://127.0.0.1:9")).answer(plan, {"f": ["a"]})
""",
    "a tool with telemetry, CPU ms": f"""
from shoal import Telemetry
plan, to = {str(ROOT / "examples/telemetry/plan.json")!r}, "https://telemetry.example.org"
telemetry = Telemetry("t", plan=plan, to=to, limit=60, environ={{"HOME": "/nowhere"}})
telemetry.record(command="count")
telemetry.flush()
""",
}
SURVEY = """\
name = "app"
[[question]]
name = "features"
kind = "flags"
options = ["sync", "vpn", "reader", "sidebar", "profiles"]
"""
CROWD = 100
ANSWER = {"features": ["sync", "vpn"]}


class Recorder:
    """The files of ours that functions are called in, in all threads."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.on = False
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: Any, event: str, argument: object) -> None:
        if not self.on or event != "call":
            return
        file = frame.f_code.co_filename
        if file in self.entered or not file.startswith(str(SOURCE)):
            return
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # not a module, not a class
        if is_function and not _is_importing(frame):
            self.entered.add(file)

    def files(self) -> list[str]:
        """Return the files entered so far."""
        return sorted(str(Path(file).relative_to(SOURCE)) for file in self.entered.copy())


def _is_importing(frame: Any) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(str(SOURCE)):
            return True
        frame = frame.f_back
    return False


def command_walk(*words: str) -> list[str]:
    """Run one command."""
    from shoal.cli import main

    recorder = Recorder()
    recorder.on = True
    sys.argv = ["shoal", *words]
    with suppress(SystemExit):
        main()
    recorder.on = False
    return recorder.files()


def answer_walk() -> list[str]:
    """Answer once; the report is stored, and nothing is sent."""
    recorder = Recorder()
    from shoal import Flags, Outbox, Plan, Survey
    from shoal.device.outbox import HttpTransport
    from shoal.protocol.flip_probability import FlipProbability
    from shoal.protocol.plan import Promise

    survey = Survey("app", (Flags("features", ("sync", "vpn", "reader", "sidebar", "profiles")),))
    plan = Plan(survey, FlipProbability(1, 2), Promise("local", "11"))
    outbox = Outbox("outbox", HttpTransport("http://127.0.0.1:9"))
    recorder.on = True
    outbox.answer(plan, ANSWER)
    recorder.on = False
    return recorder.files()


def serve(*words: str) -> None:
    """Run a collector; a line on stdin starts recording, another prints the files."""
    recorder = Recorder()

    def obey() -> None:
        for line in sys.stdin:
            recorder.on = line.strip() == "start"
            if recorder.on:
                recorder.entered.clear()
            print(json.dumps(recorder.files()), flush=True)

    threading.Thread(target=obey, daemon=True).start()
    from shoal.cli import main
    from shoal.server.core import notifications, service

    # Housekeeping runs by itself every 20 seconds: it is no part of a walk that it falls into.
    service.SWEEP_SECONDS = notifications.TURN = 3600.0
    sys.argv = ["shoal", "serve", *words]
    main()


def collector_walks(folder: Path) -> dict[str, list[str]]:
    """Send one report to a collector, and ask its console for the page of a crowd."""
    from shoal import Plan, randomize
    from shoal.device.outbox import HttpTransport
    from shoal.device.randomize import pack_reports

    words = ["--data", "data", "--public", "127.0.0.1:0", "--console", "127.0.0.1:0", "--json"]
    words += ["--honest", "all"]
    command = [sys.executable, "-m", "bench.walks", "--child", "serve", *words, "plan.json"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        urls = json.loads(server.stdout.readline())
        token = (folder / "data" / "admin-token").read_text().strip()
        plan = Plan.read(folder / "plan.json")

        def recorded(action: Callable[[], object]) -> list[str]:
            for word in ("start", "stop"):
                server.stdin.write(f"{word}\n")  # type: ignore[union-attr]
                server.stdin.flush()  # type: ignore[union-attr]
                found = json.loads(server.stdout.readline())  # type: ignore[union-attr]
                if word == "start":
                    action()
            return list(found)

        def send() -> None:  # each from a connection of its own, as devices do
            transport = HttpTransport(urls["public"])
            report = pack_reports(plan, randomize(plan, ANSWER))
            assert transport.post_report(plan.id, report.to_bytes()).status < 300

        def ask(path: str = f"/surveys/{plan.survey.name}/crowds/1") -> None:
            address = f"{urls['console']}{path}"
            headers = {"Authorization": f"Bearer {token}"}
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as got:
                assert got.read()

        send()  # the first report opens the crowd; the second is like all others
        report = recorded(send)
        for _ in range(CROWD - 2):
            send()
        time.sleep(1)
        # The first look at a complete crowd releases it; home would also compute its results.
        for path in (f"/v1/plans/{plan.id}/crowds", "/tokens"):
            ask(path)
        return {
            "one report at the collector": report,
            "a page of the console": recorded(ask),
        }
    finally:
        server.terminate()
        server.wait(60)


def environment() -> dict[str, str]:
    """Return an environment for children: this checkout, no settings of Shoal."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SHOAL_")}
    return clean | {"PYTHONPATH": f"{SOURCE.parent}:{ROOT}", "COLUMNS": "80"}


def run(*words: str, cwd: Path, module: str = "shoal") -> str:
    """Run a module with the words, and return what it prints."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def walks() -> dict[str, list[str]]:
    """Return the files of each walk."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "survey.toml").write_text(SURVEY)
        plan = ("plan", "survey.toml", "--crowd", str(CROWD), "--epsilon", "8", "--delta", "1e-6")
        run(*plan, "-o", "plan.json", cwd=folder)

        def child(*words: str) -> list[str]:
            printed = run("--child", *words, cwd=folder, module="bench.walks")
            return list(json.loads(printed.splitlines()[-1]))

        return {
            "shoal plan": child("command", *plan),
            "one answer to a stored report": child("answer"),
            **collector_walks(folder),
        }


def cpu_times() -> dict[str, float]:
    """Return the CPU time of each script in milliseconds, the best of several processes."""
    best = dict.fromkeys(SCRIPTS, float("inf"))
    with tempfile.TemporaryDirectory() as place:
        for turn in range(15):
            for name, script in SCRIPTS.items():
                code = f"import sys; sys.path.append({str(SOURCE.parent)!r}){script}"
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, "-ISc", code, f"{place}/{turn}"], check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                best[name] = min(best[name], 1000 * used)
    return best


def sizes() -> dict[str, float]:
    """Return counts of lines, files and classes."""
    lengths = [len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")]
    tests = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")]
    classes = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    return {
        "source lines": sum(lengths),
        "source files": len(lengths),
        "median file length": median(lengths),
        "test lines": sum(len(text.splitlines()) for text in tests),
        "classes defined twice": sum(count > 1 for count in classes.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the code and the files of each walk.")
    parser.add_argument("--files", action="store_true", help="name the files of each walk")
    parser.add_argument("--check", action="store_true", help="fail if a figure is over its limit")
    options = parser.parse_args()
    found = walks()
    figures = sizes() | {name: len(files) for name, files in found.items()} | cpu_times()
    over = False
    for name, figure in figures.items():
        limit = LIMITS.get(name)
        over |= limit is not None and figure > limit
        print(f"{name:<32}{figure:>8,.0f}" + (f"   at most {limit:,}" if limit is not None else ""))
        if options.files:
            for file in found.get(name, ()):
                print(f"    {file}")
    return int(over and options.check)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        walk, *rest = sys.argv[2:]
        if walk == "serve":
            serve(*rest)
        else:
            print(json.dumps(command_walk(*rest) if walk == "command" else answer_walk()))
        sys.exit()
    sys.exit(main())
