"""The three lines of a tool: `Telemetry`, `record`, `flush`.

Nothing here opens a connection, waits for another process, or raises. A tool that runs pays for
reading two small files and, where the person said yes, for writing a line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from shoal.device.telemetry import environment, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from importlib.resources.abc import Traversable

    import click

    from shoal.protocol.plan import Plan


_PAUSE = 60
"""Seconds between two attempts to start the worker, if it does not say when it is needed next."""


class Telemetry:
    """Off until a person says yes; then one randomized report per window of the plan.

    Parameters
    ----------
    tool
        The tool's name: of its folder, its messages and the variable ``MYTOOL_TELEMETRY``.
    plan
        The plan that the tool ships: a file, something with `read_bytes`, its bytes, or a `Plan`.
        It needs a window. People say yes to exactly this plan.
    to
        The collector's address: ``https://host[:port][/path]``.
    limit
        The largest local epsilon that the device reveals, of one report, and of all reports of a
        plan without memory together. Without a limit the plan's promise must be local, or
        confirmed: computed where the whole of Shoal is installed, or signed with `public_key`.
    public_key
        The collector's key, for plans and certificates that must be signed.
    ask
        Whether `flush` may ask at a terminal. Without it, only ``mytool telemetry on`` turns it on.
    worker
        A command that calls `worker.main` with the words that are added to it, for a tool that was
        frozen into one file. Leave it out otherwise.
    environ, clock, folder
        The environment, the time and the place of the files; tests pass their own.

    Examples
    --------
    >>> telemetry = Telemetry("mytool", plan="plan.json", to="https://telemetry.example.org")
    >>> telemetry.record(command="build", platform="linux")
    >>> telemetry.flush()
    """

    def __init__(
        self,
        tool: str,
        *,
        plan: str | os.PathLike[str] | bytes | Plan | Traversable,
        to: str,
        limit: object = None,
        public_key: str | None = None,
        ask: bool = True,
        worker: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        folder: str | None = None,
    ) -> None:
        self.tool, self.to, self.limit, self.public_key = tool, to, limit, public_key
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.clock = clock
        self.folder = state.state_folder(tool, self.environ) if folder is None else folder
        self.problem: str | None = None
        """The reason why the last call failed; for the tool's own tests, and `status`."""
        self.ask = ask
        self._plan, self._worker = plan, worker
        self._held: list[bytes] = []
        self._child: int | None = None

    def record(self, **answers: object) -> None:
        """Record an event: a value, or several options, for each of some questions.

        The events of one window become one answer. Options of flags add up; of a choice, or a
        text, the first one counts; of numbers the largest; a yes stays a yes.
        """
        self._note("record", answers)

    def count(self, **amounts: float) -> None:
        """Add to the answer of number questions: the events of one window are summed."""
        self._note("count", amounts)

    def _note(self, kind: str, values: Mapping[str, object]) -> None:
        try:
            line = state.event_line(kind, values)
            choice = self.choice()
            if choice == "yes":
                self._write([line])
            elif choice in ("not asked", "changed"):
                self._held.append(line)  # in memory, until the person says yes
        except Exception as error:  # telemetry never disturbs the tool
            self.problem = f"{type(error).__name__}: {error}"

    def flush(self) -> None:
        """Ask, if the person was not asked yet; start the process that sends, if anything is due.

        Call it when the tool's own work is done.
        """
        try:
            environment.reap(self._child)
            if self._held and self.ask and environment.can_be_asked():
                self.ask = False
                if self.choice() in ("not asked", "changed"):
                    from shoal.device.telemetry.commands import ask

                    ask(self)
            if self.choice() == "yes":
                self._start_worker()
        except Exception as error:  # telemetry never disturbs the tool
            self.problem = f"{type(error).__name__}: {error}"

    def why_off(self) -> str | None:
        """Return the reason why telemetry is off in this run regardless of consent, or None."""
        return environment.why_off(self.tool, self.environ) or state.why_not_here(self.folder)

    def choice(self) -> state.Choice:
        """Return the choice in effect in this run: `yes`, `no`, `not asked`, or `changed`."""
        if self.why_off() is not None:
            return "no"
        assert self.folder is not None
        return state.read_choice(self.folder, self.agreement())

    def agreement(self) -> bytes:
        """Return the agreement as one text: the plan, the address and the limit."""
        limit, key = ("" if one is None else str(one) for one in (self.limit, self.public_key))
        return state.agreement_text(self._plan_bytes(), self.to, limit, key)

    def check(self, **answers: object) -> None:
        """Raise an error if the plan cannot be used, or if `record` would drop these answers.

        For the tests of the tool: nothing is written, and no prompt is shown.
        """
        from shoal.device.telemetry.describe import Terms
        from shoal.device.telemetry.worker import check_answers

        check_answers(Terms.read(self.agreement()).plan.survey, answers)

    def click_group(self) -> click.Group:
        """Return ``status|on|off|show|delete`` as a group of click commands, named telemetry."""
        from shoal.device.telemetry.commands import click_group

        return click_group(self)

    def add_commands(self, parser: ArgumentParser) -> None:
        """Add ``status|on|off|show|delete`` to a parser; `options.run(options)` does it."""
        from shoal.device.telemetry.commands import add_commands

        add_commands(self, parser)

    def turn_on(self) -> None:
        """Keep the person's yes; a plan that this device would not answer raises an error."""
        from shoal.device.telemetry.describe import Terms

        self.ask = False
        assert self.folder is not None
        agreement = self.agreement()
        window = Terms.read(agreement).window
        state.say_yes(self.folder, agreement, window)
        # Nothing is to be done before the window is over.
        self._store_due(int(self.clock() // window + 1) * window)
        self._write(self._held)
        self._held = []

    def _plan_bytes(self) -> bytes:
        plan = self._plan
        if isinstance(plan, bytes):
            return plan
        if isinstance(plan, (str, os.PathLike)):
            content = state.read_file(os.fspath(plan))
            if content is None:
                raise FileNotFoundError(f"there is no plan {os.fspath(plan)}.")
        elif hasattr(plan, "read_bytes"):
            content = plan.read_bytes()
        else:
            from shoal.support.files import canonical_json

            content = canonical_json(plan.to_json())
        self._plan = content  # it is compared often and never changes while the tool runs
        return content

    def _write(self, lines: list[bytes]) -> None:
        assert self.folder is not None
        window = state.agreed_window(self.folder, self.agreement())
        if window is not None:
            for line in lines:
                state.append_event(self._within(), int(self.clock() // window), line)

    def _within(self) -> str:
        assert self.folder is not None
        return state.agreement_folder(self.folder, self.agreement())

    def _start_worker(self) -> None:
        assert self.folder is not None
        folder, now = self._within(), self.clock()
        due, _, written = (state.read_file(folder, state.DUE) or b"0 0").partition(b" ")
        if int(written) <= now < int(due):  # a clock that was set back proves nothing
            return
        command = self._worker or environment.worker_command()
        if command is None:
            self.problem = "a frozen tool needs a worker= of its own to send anything."
            return
        # Before the start, so that a worker that fails at once is not started by every run.
        self._store_due(int(now) + _PAUSE)
        words = [*command, self.tool, self.folder, os.path.basename(folder)]
        self._child = environment.spawn(words, self.environ)

    def _store_due(self, due: int) -> None:
        state.store_file(self._within(), state.DUE, b"%d %d" % (due, self.clock()))
