"""Telemetry in Go and Node.js: one report per window, a no is a no."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple

import pytest

from shoal import Plan
from shoal.device.telemetry import Telemetry, consent, state
from shoal.device.telemetry.state import CI_VARIABLES
from shoal.protocol.wire import split_batch
from tests.clients.go_help import CLIENT, GO, go
from tests.clients.js_help import NODE
from tests.server.serving_help import QuietHandler, clean_environment, handled_by, served

CLIENTS = Path(__file__).parents[2] / "clients"
EXAMPLE = Path(__file__).parents[2] / "examples" / "telemetry" / "plan.json"
PATIENCE = 60.0

pytestmark = [
    pytest.mark.skipif(GO is None or NODE is None, reason="no go or no node in PATH"),
    pytest.mark.slow,
]


class Tool(NamedTuple):
    """The example of a client, and the command and variables of its detached process."""

    command: list[str]
    worker: list[str]
    is_go: bool


@pytest.fixture(scope="module", params=["go", "node"])
def wordy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    if request.param == "node":
        assert NODE is not None
        js = CLIENTS / "js"
        worker = [NODE, str(js / "src" / "node" / "worker.js")]
        return Tool([NODE, str(js / "example" / "wordy.js")], worker, is_go=False)
    path = tmp_path_factory.mktemp("go") / "wordy"
    go("build", "-o", str(path), "./example")
    return Tool([str(path)], [str(path)], is_go=True)


def test_the_shared_vectors_and_its_form() -> None:
    go("test", "-count=1", ".")
    assert subprocess.run(["gofmt", "-l", CLIENT], capture_output=True, check=True).stdout == b""
    for system in ("linux", "darwin", "windows"):
        go("vet", "./...", GOOS=system)
    assert (CLIENT / "example" / "plan.json").read_bytes() == EXAMPLE.read_bytes()


def test_all_clients_speak_the_same_words() -> None:
    ours = Path(consent.__file__).with_name("catalogue.json").read_bytes()
    assert (CLIENT / "catalogue.json").read_bytes() == ours
    assert (CLIENTS / "js" / "src" / "node" / "catalogue.json").read_bytes() == ours


class Person:
    """A person who uses the example at a home of their own."""

    def __init__(self, tool: Tool, home: Path, to: str) -> None:
        self.tool, self.home = tool, home
        unset = {*CI_VARIABLES, "DO_NOT_TRACK", "XDG_STATE_HOME"}
        clean = {name: text for name, text in clean_environment().items() if name not in unset}
        self.environ = clean | {"HOME": str(home), "WORDY_COLLECTOR": to}

    @property
    def folder(self) -> Path:
        return self.home / ".local" / "state" / "wordy" / "telemetry"

    def run(self, words: str, days_ago: int = 0, before: tuple[str, ...] = ()) -> str:
        done = subprocess.run(
            [*before, *self.tool.command, *words.split()],
            env=self.environ | {"WORDY_DAYS_AGO": str(days_ago)},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def use_last_week(self) -> None:
        self.run("telemetry on", days_ago=7)
        self.run(f"count {EXAMPLE}", days_ago=7)

    def kept(self) -> Iterator[tuple[Path, Any]]:
        """The files in which a client keeps reports, and their documents."""
        for file in [*self.folder.glob("reports.json"), *self.folder.glob("*/report.*")]:
            yield file, json.loads(file.read_text())

    def reports(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _, document in self.kept():
            plans = document["reports"].values() if "reports" in document else [{"": document}]
            found += [one for made in plans for one in made.values()]
        return found

    def is_sent(self) -> bool:
        return any(one["state"] == "sent" for one in self.reports())

    def wait_until_sent(self) -> None:
        end = time.monotonic() + PATIENCE
        while not self.is_sent():
            assert time.monotonic() < end, self.run("telemetry status")
            time.sleep(0.05)

    def make_due(self) -> None:
        """Let the next attempt come now; what else is stored stays."""
        for file, document in self.kept():
            plans = document["reports"].values() if "reports" in document else [{"": document}]
            for made in plans:
                for one in made.values():
                    one.pop("due", None)
            file.write_text(json.dumps(document))

    def worker(self) -> subprocess.Popen[bytes]:
        (agreed,) = self.folder.glob("*/agreed")
        words = ["wordy", str(self.folder), agreed.parent.name]
        if self.tool.is_go:
            environ = self.environ | {"SHOAL_TELEMETRY_WORKER": json.dumps(words)}
            return subprocess.Popen(self.tool.worker, env=environ)
        return subprocess.Popen([*self.tool.worker, *words], env=self.environ)

    def send_between_kills(self, moments: Iterator[float]) -> None:
        """Report last week; two workers at a time are killed at each moment, then one may end."""
        self.home.mkdir()
        self.use_last_week()
        for moment in moments:
            workers = [self.worker(), self.worker()]
            time.sleep(moment)
            for worker in workers:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            self.make_due()
        for _ in range(40):
            if self.is_sent():
                break
            assert self.worker().wait(PATIENCE) == 0
            self.make_due()
        assert [one["state"] for one in self.reports()] == ["sent"]


def test_a_report_reaches_the_collector(wordy: Tool, tmp_path: Path) -> None:
    with served(tmp_path / "c", Plan.read(EXAMPLE)) as collector:
        person = Person(wordy, tmp_path, collector.public)
        person.run(f"count {EXAMPLE}", days_ago=7)
        assert person.run("telemetry show") == "Nothing has left this machine.\n"
        assert not person.folder.exists()
        person.use_last_week()
        person.run(f"count {EXAMPLE}")
        person.wait_until_sent()
        assert "the response was 202." in person.run("telemetry show")
        assert "Reports: 1 sent, 0 waiting" in person.run("telemetry status")
        person.run("telemetry delete")
        left = {one.name for one in person.folder.iterdir()}
        assert left == ({"off", "reports.json", "working"} if wordy.is_go else {"off", "quiet"})


def test_python_and_the_others_share_consent(wordy: Tool, tmp_path: Path) -> None:
    """A yes to one is a yes to the other, to the same plan, address and limit; and so is a no."""
    to = "https://telemetry.example.org"
    person = Person(wordy, tmp_path, to)
    person.run("telemetry on")
    tool = Telemetry("wordy", plan=EXAMPLE, to=to, limit=60, folder=str(person.folder), environ={})
    assert tool.choice() == "yes"
    state.say_no(str(person.folder))
    assert "You said no." in person.run("telemetry status")
    tool.turn_on()
    assert "You said yes." in person.run("telemetry status")


class Collecting(QuietHandler):
    """Accepts about every second report, and keeps what it got."""

    bodies: ClassVar[list[bytes]] = []
    accepted: ClassVar[list[bytes]] = []
    lock: ClassVar[Lock] = Lock()
    chance: ClassVar[random.Random] = random.Random(4)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            self.bodies.append(body)
            is_accepted = self.chance.random() < 0.5
            self.accepted.extend([body] * is_accepted)
        self.send_response(202 if is_accepted else 503)
        self.end_headers()


@contextmanager
def collecting() -> Iterator[str]:
    Collecting.bodies.clear()
    Collecting.accepted.clear()
    with handled_by(Collecting) as port:
        yield f"http://127.0.0.1:{port}"


def test_kills_leave_one_report_per_window(wordy: Tool, tmp_path: Path) -> None:
    """Killed at any moment, started several times at once: one report, the same bytes each time."""
    chance = random.Random(11)
    with collecting() as to:
        for home in range(8):
            before = len(Collecting.bodies)
            longest = 0.03 if wordy.is_go else 0.25  # Node.js takes longer to start than Go.
            moments = (chance.random() * longest for _ in range(12))
            Person(wordy, tmp_path / str(home), to).send_between_kills(moments)
            sent = set(Collecting.bodies[before:])
            assert len(sent) == 1
            batch = split_batch(Plan.read(EXAMPLE), sent.pop())
            assert len(batch) == 1


def test_a_no_means_no_network_and_no_file_but_the_answer(wordy: Tool, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    person = Person(wordy, tmp_path, "https://telemetry.example.org")
    person.use_last_week()
    person.run("telemetry off")
    files = {path: path.stat().st_mtime_ns for path in person.folder.rglob("*")}
    trace = tmp_path / "trace"
    person.run(
        f"count {EXAMPLE}", before=("strace", "-f", "-e", "trace=network,process", "-o", str(trace))
    )
    calls = trace.read_text()
    assert "exit_group" in calls
    assert "socket(" not in calls
    assert calls.count("execve(") == 1
    assert files == {path: path.stat().st_mtime_ns for path in person.folder.rglob("*")}


def test_go_adds_little_to_a_program_that_speaks_http(tmp_path: Path) -> None:
    go("build", "-o", str(tmp_path / "wordy"), "./example")
    source = tmp_path / "main.go"
    source.write_text(
        'package main\n\nimport (\n\t"fmt"\n\t"net/http"\n\t"os"\n)\n\nfunc main() {\n'
        "\treply, err := http.Get(os.Args[1])\n\tfmt.Println(reply, err)\n}\n"
    )
    go("build", "-o", str(tmp_path / "plain"), str(source))
    assert (tmp_path / "wordy").stat().st_size - (tmp_path / "plain").stat().st_size < 1_000_000


@pytest.mark.parametrize(("typed", "choice"), [(b"?\nja\n", "agreed"), (b"y\n", "off")])
def test_a_person_is_asked_once_in_their_language(
    wordy: Tool, tmp_path: Path, typed: bytes, choice: str
) -> None:
    """At a terminal; a yes of another language is no yes."""
    pty = pytest.importorskip("pty", reason="no terminals here")
    person = Person(wordy, tmp_path, "https://telemetry.example.org")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", IN_TERMINAL, *wordy.command, "count", str(EXAMPLE)]
    environ = person.environ | {"TERM": "xterm", "LC_ALL": "de_DE.UTF-8"}
    process = subprocess.Popen(
        command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown, answers = b"", typed.splitlines(keepends=True)
    try:
        while piece := os.read(ours, 4096):
            shown += piece
            if shown.count(b"[j/N/?] ") > len(typed.splitlines()) - len(answers) and answers:
                os.write(ours, answers.pop(0))
    except OSError:  # how a terminal ends
        pass
    os.close(ours)
    assert process.wait(PATIENCE) == 0, shown
    assert (b"Gefragt:" in shown or b"DO_NOT_TRACK" in shown) == typed.startswith(b"?"), shown
    assert "We want to know which commands deserve our time." in shown.decode()
    assert [path.name for path in person.folder.rglob("*") if path.name in ("agreed", "off")] == [
        choice
    ]


IN_TERMINAL = (
    "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal that of the process, as a shell does."""
