"""What a running tool asks for telemetry: the person's consent, recorded events, the environment.

The folder belongs to one person. Where it cannot be written, telemetry is off. Consent is a yes to
one agreement (plan, address and limit, byte for byte), or a no to all of them: a tool whose next
version asks something else has to ask again.

Events are lines in one file per window. A line is written at once and in one piece, so that a
killed process loses nothing and several can write at a time. They hold true answers, stay in a
folder that only its owner reads, and are deleted when the window's report is made, or, for
questions about the device's past, its last report.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from binascii import crc32
from collections.abc import Iterator, Mapping, Sequence


def state_folder(tool: str, environ: Mapping[str, str]) -> str | None:
    """Return where a tool keeps its telemetry, or None where this user has no home."""
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA", "")
    else:
        base = environ.get("XDG_STATE_HOME", "")
        home = environ.get("HOME", "")
        if not os.path.isabs(base) and os.path.isabs(home):  # a relative path means nothing here
            within = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
            base = os.path.join(home, within)
    return os.path.join(base, tool, "telemetry") if os.path.isabs(base) else None


def why_not_here(folder: str | None) -> str | None:
    """Return why this user should not touch a folder, or None."""
    if folder is None:
        return "this user has no home folder"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Files of root in a person's home would keep the person from writing there.
        above = os.path.abspath(folder)
        while not os.path.exists(above):
            above = os.path.dirname(above)
        if os.stat(above).st_uid != 0:
            return "root is writing to another user's home folder"
    return None


def agreement_folder(home: str, agreement: bytes) -> str:
    return os.path.join(home, f"{crc32(agreement):08x}")


def make_private(folder: str) -> None:
    """Make a folder and its parents for its owner alone (`os.makedirs`: the last one only)."""
    if folder and not os.path.isdir(folder):
        make_private(os.path.dirname(folder))
        try:  # noqa: SIM105  contextlib takes longer to load than all of this
            os.mkdir(folder, 0o700)
        except FileExistsError:  # another process was faster
            pass


def read_file(*parts: str) -> bytes | None:
    """Return a small file's content, or None if there is none."""
    try:
        with open(os.path.join(*parts), "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def store_file(folder: str, name: str, content: bytes, *, durable: bool = False) -> None:
    """Write a small file atomically; a power cut may undo it unless `durable`, a crash does not."""
    make_private(folder)
    scratch = _scratch(folder, name)
    _write(scratch, os.O_TRUNC, content, durable)
    os.replace(scratch, os.path.join(folder, name))


def _scratch(folder: str, name: str) -> str:
    """Return the path of a file that no other process or thread writes."""
    return os.path.join(folder, f".{name}.{os.getpid()}.{get_ident()}")


def keep_first(folder: str, name: str, content: bytes) -> bytes:
    """Store a small file for good unless there is one; return what it holds from then on.

    Of several processes one decides. A power cut does not undo it.
    """
    if (known := read_file(folder, name)) is not None:
        return known
    make_private(folder)
    scratch, path = _scratch(folder, name), os.path.join(folder, name)
    _write(scratch, os.O_TRUNC, content, durable=True)
    try:
        # Neither replaces a file, except a rename on Unix, for disks that know no links.
        (os.rename if sys.platform == "win32" else os.link)(scratch, path)
    except FileExistsError:
        pass
    except OSError:
        os.rename(scratch, path)
    if os.path.exists(scratch):
        os.unlink(scratch)
    return read_file(path) or content


def _write(path: str, how: int, content: bytes, durable: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    try:
        os.write(handle, content)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


Choice = str
"""`yes`, `no`, `not asked`, or `changed`: a yes was given to another plan, address or limit."""

_HEAD = b"What was agreed to, and nothing else: a plan, an address, a limit.\n"
AGREED, OFF, DUE = "agreed", "off", "due"
QUIET = "quiet"
"""Name of the file with the time until which no report is made: one may have been deleted."""

NOTE = "note"
"""Name of the file that says why the last report was not made, or what it left out."""


def agreement_text(plan: bytes, to: str, limit: str, public_key: str) -> bytes:
    """Return an agreement as one text that ends with the plan's bytes."""
    fields = f"to: {to}\nlimit: {limit}\nkey: {public_key}\n\n"
    return _HEAD + fields.encode() + plan


def is_plainly_sendable(agreement: bytes) -> bool:
    """Whether a glance at an agreement shows that its limit allows a report.

    That is so for a local promise within the limit: a plan is not read unless it keeps it. Reading
    the whole plan takes longer than all else that telemetry does in a run of the tool.
    """
    import json

    head, _, plan = agreement.partition(b"\n\n")
    to, limit, key = (line.partition(b": ")[2] for line in head.splitlines()[1:4])
    try:
        fields = json.loads(plan)
        promise, window = fields["promise"], fields["window"]
        within = not limit or float(promise["epsilon"]) < float(limit) < float("inf")
        plain = fields["memory"] is None and fields["parties"] is None and not key
        known = promise["kind"] == "local" and window >= 3600 and fields["q"] != [1, 1]
        one_report = b'"retention"' not in plan  # else all of them must be within the limit
        return bool(within and plain and known and one_report and to.startswith(b"https://"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def read_choice(home: str, agreement: bytes) -> Choice:
    if os.path.exists(os.path.join(home, OFF)):
        return "no"
    if agreed_window(home, agreement) is not None:
        return "yes"
    try:
        names = os.listdir(home)
    except OSError:
        return "not asked"
    others = any(os.path.exists(os.path.join(home, name, AGREED)) for name in names)
    return "changed" if others else "not asked"


def agreed_window(home: str, agreement: bytes) -> int | None:
    """Return the length of the plan's windows in seconds, if the person said yes to it."""
    window, agreed = stored_agreement(agreement_folder(home, agreement))
    return window if agreed == agreement and window else None


def stored_agreement(folder: str) -> tuple[int, bytes]:
    """Return the length of windows and the agreement in a folder; 0 and nothing without one."""
    window, _, agreed = (read_file(folder, AGREED) or b"").partition(b"\n")
    return int(window) if window.isdigit() else 0, agreed


def say_yes(home: str, agreement: bytes, window: int) -> None:
    """Keep a yes to this agreement; it overrides an earlier no."""
    content = b"%d\n%s" % (window, agreement)
    store_file(agreement_folder(home, agreement), AGREED, content)
    try:  # noqa: SIM105  contextlib takes longer to load than all of this
        os.unlink(os.path.join(home, OFF))
    except FileNotFoundError:
        pass


def say_no(home: str) -> None:
    """Keep a no, to this and every other agreement."""
    store_file(home, OFF, b"Telemetry is off.\n")


MAX_EVENT_BYTES = 1 << 20
"""Largest size of a window's events; later events are dropped."""

PREFIX = "events."
"""The start of the name of a file of events; the window's number follows."""


def event_line(kind: str, values: Mapping[str, object]) -> bytes:
    """Return one event as a line: a Python literal, which needs no library to write."""
    plain = {str(name): _plain(value) for name, value in values.items()}
    return ascii((kind, plain)).encode() + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted(str(one) for one in value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def append_event(folder: str, window: int, line: bytes) -> bool:
    """Write an event into its window's file, unless it is there already; False if it is full."""
    path = os.path.join(folder, f"{PREFIX}{window}")
    known = read_file(path) or b""
    if not line.startswith(b"('count'") and (known.startswith(line) or b"\n" + line in known):
        return True
    if len(known) + len(line) > MAX_EVENT_BYTES:
        return False
    _write(path, os.O_APPEND, line)
    return True


def event_windows(folder: str) -> Iterator[int]:
    for name in os.listdir(folder):
        number = name.removeprefix(PREFIX)
        if name != number and number.isdigit():
            yield int(number)


def began_name(survey: str) -> str:
    """Return the name of the file with the time at which a device began to answer a survey."""
    return f"began.{crc32(survey.encode()):08x}"


def arm_name(question: str, arms: Sequence[str]) -> str:
    """Return the name of the file with the arm that was drawn; other arms are drawn anew."""
    return f"arm.{crc32(ascii((question, tuple(arms))).encode()):08x}"


def declared_arms(plan: bytes) -> dict[str, tuple[list[str], list[int]]]:
    """Return the arms and weights of each question that has them, in the text of a plan."""
    import json

    questions = json.loads(plan)["survey"]["questions"]
    return {
        one["name"]: (one["arms"], one.get("weights") or [1] * len(one["arms"]))
        for one in questions
        if one["kind"] == "arm"
    }


_NO = {"0", "false", "no", "off"}

CI_VARIABLES = (
    "CI",
    "CONTINUOUS_INTEGRATION",
    "APPVEYOR",
    "BITBUCKET_BUILD_NUMBER",
    "BUILDKITE",
    "BUILD_NUMBER",
    "CIRCLECI",
    "CODEBUILD_BUILD_ID",
    "DRONE",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
    "TRAVIS",
    "PYTEST_CURRENT_TEST",
    "TOX_ENV_NAME",
)
"""Variables that CI services and test runners set: no person is present."""


def switch_name(tool: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in tool.upper()) + "_TELEMETRY"


def why_off(tool: str, environ: Mapping[str, str]) -> str | None:
    """Return the reason why telemetry is off in this run, or None."""
    if _is_set("DO_NOT_TRACK", environ):
        return "DO_NOT_TRACK is set"
    switch = switch_name(tool)
    if environ.get(switch, "").strip().lower() in _NO:
        return f"{switch} is {environ[switch].strip()}"
    for name in CI_VARIABLES:
        if _is_set(name, environ):
            return f"{name} is set, so no person is at work here"
    return None


def _is_set(name: str, environ: Mapping[str, str]) -> bool:
    return environ.get(name, "").strip().lower() not in _NO | {""}


def can_be_asked() -> bool:
    """Whether a person is at a terminal; reading from it would stop a background process."""
    try:
        terminal = sys.stdin.isatty() and sys.stderr.isatty()
        if not terminal or sys.platform == "win32" or os.environ.get("TERM") == "dumb":
            return False
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no stdin at all, or one that is closed
        return False


_RUN = (
    "import sys; sys.path.append(sys.argv[1]);"
    " from shoal.device.telemetry.worker import main; main(sys.argv[2:])"
)


def is_frozen() -> bool:
    """Whether the tool was made into one file, without a Python that could be started."""
    return bool(getattr(sys, "frozen", False))


def worker_command() -> list[str] | None:
    """Return the command that runs the worker, or None where Python does not say where it is."""
    if is_frozen() or not sys.executable:
        return None
    parts = os.path.abspath(__file__).split(os.sep)[:-4]  # the folder that holds `shoal`
    return [sys.executable, "-I", "-c", _RUN, os.sep.join(parts)]


def reap(child: int | None) -> None:
    """Reap the worker, in a tool that runs for long."""
    if child is not None and hasattr(os, "WNOHANG"):
        try:  # noqa: SIM105  contextlib takes longer to load than all of this
            os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # the tool itself has waited for it
            pass


def spawn(command: list[str], environ: Mapping[str, str]) -> int | None:
    """Start a detached process; return its id, where it must be reaped."""
    if sys.platform == "win32":
        import subprocess

        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        nothing = subprocess.DEVNULL
        subprocess.Popen(  # noqa: S603  the Python that runs this very tool
            command, env=environ, creationflags=flags, stdin=nothing, stdout=nothing, stderr=nothing
        )
        return None
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
    try:
        try:
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setsid=True)
        except NotImplementedError:  # a system without setsid
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setpgroup=0)
    finally:
        os.close(null)
