"""Telemetry that people accept: off until asked, one randomized report per window, no id.

A tool adds three lines: `Telemetry`, `record`, `flush`. Recorded events stay in a folder of the
person until the window is over. Then a detached process makes one report of them, flips its bits,
sends it, and logs every byte that was sent.

Nothing here opens a connection or waits for another process. A tool that runs pays for reading two
small files and, where the person said yes, for writing a line. Mistakes of the maintainer raise in
the constructor; the condition of a person's machine never raises.

This module and `state` run inside the tool. They import only modules that Python has already
loaded, but for `json`. `worker` and `log` run in the detached process. `consent` and `describe` are
for the person.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from shoal.device.telemetry import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from importlib.resources.abc import Traversable

    import click

    from shoal.device.telemetry.worker import SimulatedReport
    from shoal.protocol.plan import Plan

__all__ = ["Telemetry"]

_PAUSE = 60
"""Seconds between two attempts to start the worker, if it does not say when it is needed next."""

_MAX_REMEMBERED = 1000
"""How many different events of this run `problem` and `simulate_next_window` look at."""


class Telemetry:
    """Off until a person says yes; then one randomized report per window of the plan.

    A plan, a limit, a key and an address under which no report would ever be sent raise an error
    here, wherever the tool runs. An offline machine, a home that cannot be written or a wrong clock
    never do: see `problem`.

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
        The largest local epsilon that all reports of this tool on this device may reveal together,
        over all windows and all plans that the tool has shipped. Each report adds its own local
        epsilon; with memory, each different answer does. A report that would pass the limit is not
        made. Without a limit there is no such end, and the plan's promise must be local, or
        certified with `public_key`.
    public_key
        The collector's key, for plans and certificates that must be signed.
    why
        What the reports are for: a sentence for the person who is asked, or one per language.
    translations
        More languages for the prompt: a mapping like the package's ``catalogue.json``, or the path
        of a JSON file.
    ask
        Whether `flush` may ask at a terminal. Without it, only ``mytool telemetry on`` turns it on.
    worker
        A command that calls `worker.main` with the words that are added to it, for a tool that was
        frozen into one file. Leave it out otherwise.
    environ, clock, folder
        The environment, the time and the place of the files; tests pass their own.

    Examples
    --------
    >>> from shoal import Flags, Plan, Survey
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Promise
    >>> plan = Plan(Survey("mytool", (Flags("command", ("build", "test")),)),
    ...             FlipProbability(1, 2), Promise("local", "2.2"), window=604_800)
    >>> telemetry = Telemetry("mytool", plan=plan, to="https://telemetry.example.org", limit=22)
    >>> telemetry.record(command="build")
    >>> telemetry.flush()
    >>> Telemetry("mytool", plan=plan, to="https://telemetry.example.org", limit=2)
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: one report of this plan reveals up to a local epsilon of 2.1973,...
    """

    def __init__(
        self,
        tool: str,
        *,
        plan: str | os.PathLike[str] | bytes | Plan | Traversable,
        to: str,
        limit: object = None,
        public_key: str | None = None,
        why: str | Mapping[str, str] | None = None,
        translations: str | os.PathLike[str] | Mapping[str, Mapping[str, object]] | None = None,
        ask: bool = True,
        worker: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        folder: str | None = None,
    ) -> None:
        self.tool, self.to, self.limit, self.public_key = tool, to, limit, public_key
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.clock, self.why, self.translations = clock, why, translations
        self.folder = state.state_folder(tool, self.environ) if folder is None else folder
        self.ask = ask
        self._plan, self._worker = plan, worker
        self._held: list[bytes] = []
        self._recorded: dict[bytes, int] = {}
        self._arms: dict[str, str] = {}
        self._simulated = 0
        self._child: int | None = None
        self._error: str | None = None
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        """Raise if nothing would ever be sent; a yes is kept for terms that were checked."""
        if self._worker is None and state.is_frozen():
            from shoal.errors import InputError

            raise InputError(
                "a tool that is frozen into one file has no Python to start; give worker= a"
                " command of the tool that calls shoal.device.telemetry.worker.main."
            )
        try:
            if self.choice() == "yes" or state.is_plainly_sendable(self.agreement()):
                return
        except OSError as error:
            self._error = f"{type(error).__name__}: {error}"
            return
        from shoal.device.telemetry.describe import Terms
        from shoal.errors import MissingExtraError

        try:
            Terms.read(self.agreement())
        except MissingExtraError as error:  # on this machine; the maintainer's has it
            self._error = str(error)

    @property
    def problem(self) -> str | None:
        """What went wrong last, or None; for the tool's own tests, and `status`.

        The error that kept a call from its work, answers of this run that will not be counted, or
        the reason why answers of the last report were not counted, or why there was no report.
        """
        if self._error is not None:
            return self._error
        try:
            from shoal.device.telemetry.describe import Terms
            from shoal.device.telemetry.worker import dropped, read_events

            survey = Terms.read(self.agreement()).plan.survey
            problems = dropped(survey, read_events(b"".join(self._recorded)))
            note = b"" if self.folder is None else state.read_file(self._within(), state.NOTE)
            return " ".join(problems) or (note or b"").decode("utf-8", "replace") or None
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def record(self, **answers: object) -> None:
        """Record an event: a value, or several options, for each of some questions.

        The events of one window become one answer. Options of flags add up; of a choice, or a
        text, the first one counts; of numbers the largest; a yes stays a yes; of the steps of a
        funnel the furthest.
        """
        self._note("record", answers)

    def count(self, **amounts: float) -> None:
        """Add to the answer of number questions: the events of one window are summed."""
        self._note("count", amounts)

    def arm(self, question: str) -> str:
        """Return this device's arm of an experiment: drawn once, kept, and part of its report.

        Without the person's yes it is the first arm, control, and nothing is stored. A name that is
        no arm question of the plan is an error.
        """
        declared = state.declared_arms(self._plan_bytes())
        if question not in declared:
            from shoal.errors import UnknownNameError
            from shoal.support.checks import did_you_mean

            raise UnknownNameError(
                f"the plan has no arm question {question!r}.{did_you_mean(question, declared)}"
            )
        arms, weights = declared[question]
        arm = arms[0]
        try:
            if self.choice() == "yes":
                arm = self._kept_arm(question, arms, weights)
        except Exception as error:  # telemetry never disturbs the tool
            self._error = f"{type(error).__name__}: {error}"
        self._arms[question] = arm
        return arm

    def _kept_arm(self, question: str, arms: list[str], weights: list[int]) -> str:
        assert self.folder is not None
        name = state.arm_name(question, arms)
        known = state.read_file(self.folder, name)
        if known is None:
            from itertools import accumulate

            from shoal.protocol.random_bits import SystemBits, draw_below

            drawn = draw_below(sum(weights), SystemBits())
            place = next(i for i, end in enumerate(accumulate(weights)) if drawn < end)
            known = state.keep_first(self.folder, name, arms[place].encode())
        return arms[arms.index(known.decode())]

    def _note(self, kind: str, values: Mapping[str, object]) -> None:
        try:
            line = state.event_line(kind, values)
            if line in self._recorded or len(self._recorded) < _MAX_REMEMBERED:
                self._recorded[line] = self._recorded.get(line, 0) + 1
            choice = self.choice()
            if choice == "yes":
                self._write([line])
            elif choice in ("not asked", "changed"):
                self._held.append(line)  # in memory, until the person says yes
        except Exception as error:  # telemetry never disturbs the tool
            self._error = f"{type(error).__name__}: {error}"

    def flush(self) -> None:
        """Ask, if the person was not asked yet; start the process that sends, if anything is due.

        Call it when the tool's own work is done.
        """
        try:
            state.reap(self._child)
            if self._held and self.ask and state.can_be_asked():
                self.ask = False
                if self.choice() in ("not asked", "changed"):
                    from shoal.device.telemetry.consent import Consent

                    Consent(self, sys.stderr).ask()
            if self.choice() == "yes":
                self._start_worker()
        except Exception as error:  # telemetry never disturbs the tool
            self._error = f"{type(error).__name__}: {error}"

    def why_off(self) -> str | None:
        """Return the reason why telemetry is off in this run regardless of consent, or None."""
        return state.why_off(self.tool, self.environ) or state.why_not_here(self.folder)

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
        """Raise an error if no report would ever be sent, or if `record` would drop these answers.

        For the tests of the tool: nothing is written, and no prompt is shown. A proven promise is
        computed where SciPy is installed.
        """
        from shoal.device.telemetry.describe import Terms, read_translations
        from shoal.device.telemetry.worker import check_answers

        read_translations(self.translations)
        terms = Terms.read(self.agreement())
        terms.check_here()
        terms.check_promise()
        check_answers(terms.plan.survey, answers)

    def simulate_next_window(self) -> SimulatedReport:
        """Return the report of this run's events, as if the window were over, and begin the next.

        For the tests of the tool: it works in CI too, asks nobody, writes nothing and sends
        nothing. An error says why there would be no report: a question without an answer, or the
        limit, once as many windows were simulated as it allows.
        """
        from shoal.device.telemetry.describe import Terms
        from shoal.device.telemetry.worker import simulate

        terms = Terms.read(self.agreement())
        events = b"".join(line * times for line, times in self._recorded.items())
        found = simulate(terms, events, self.clock(), self._simulated + 1, self._arms)
        self._simulated += 1
        self._recorded = {}
        return found

    def click_group(self) -> click.Group:
        """Return ``status|on|off|show|delete`` as a group of click commands, named telemetry."""
        from shoal.device.telemetry.consent import click_group

        return click_group(self)

    def add_commands(self, parser: ArgumentParser) -> None:
        """Add ``status|on|off|show|delete`` to a parser; `options.run(options)` does it."""
        from shoal.device.telemetry.consent import add_commands

        add_commands(self, parser)

    def turn_on(self) -> None:
        """Keep the person's yes; a plan that this device would not answer raises an error."""
        from shoal.device.telemetry.describe import Terms

        self.ask = False
        assert self.folder is not None
        agreement = self.agreement()
        terms = Terms.read(agreement)
        terms.check_here()
        window = terms.window
        state.say_yes(self.folder, agreement, window)
        now, ends = int(self.clock()), int(self.clock() // window + 1) * window
        if terms.plan.survey.about_past:
            quiet = int(state.read_file(self.folder, state.QUIET) or b"0")
            began = quiet if now < quiet <= ends else now
            state.keep_first(self.folder, state.began_name(terms.plan.survey.name), b"%d" % began)
        # Ages are reported in the period itself; else nothing is due before the window is over.
        self._store_due(now if terms.plan.survey.has_ages else ends)
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
                if not state.append_event(self._within(), int(self.clock() // window), line):
                    self._error = "the events of this window take a mebibyte; more are dropped."

    def _within(self) -> str:
        assert self.folder is not None
        return state.agreement_folder(self.folder, self.agreement())

    def _start_worker(self) -> None:
        assert self.folder is not None
        folder, now = self._within(), self.clock()
        due, _, written = (state.read_file(folder, state.DUE) or b"0 0").partition(b" ")
        if int(written) <= now < int(due):  # a clock that was set back proves nothing
            return
        command = self._worker or state.worker_command()
        if command is None:
            self._error = "this Python does not say where it is, so that no worker can be started."
            return
        # Before the start, so that a worker that fails at once is not started by every run.
        self._store_due(int(now) + _PAUSE)
        words = [*command, self.tool, self.folder, os.path.basename(folder)]
        self._child = state.spawn(words, self.environ)

    def _store_due(self, due: int) -> None:
        state.store_file(self._within(), state.DUE, b"%d %d" % (due, self.clock()))
