"""The detached process: make one report of the last complete window, send it, log it.

Several workers may run at once, be killed, or find the clock changed. A window has one report:

1. The worker renames the events of the last window before this one: they become this window's.
2. The outbox makes the report, under a key that names the window, and stores it.
3. The worker deletes the events.

A worker killed after 2 leaves a stored report of the window in the events' name; the next worker
deletes the events. After a kill before 2 there is no report, and the next worker goes on with 2.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from shoal.device.encode import encode, is_missing, set_bits, text_bits
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory, read_key
from shoal.device.outbox import Outbox
from shoal.device.outbox.plan_policy import check_plan
from shoal.device.randomize import flip, pack_reports
from shoal.device.telemetry import state
from shoal.device.telemetry.describe import Terms, report_in_words
from shoal.device.telemetry.log import Log, LoggedTransport
from shoal.device.telemetry.past import Past
from shoal.errors import AnswerError, PlanError, PrivacyRefusal, ShoalError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import (
    Arm,
    Choice,
    Date,
    Flags,
    Funnel,
    Number,
    Question,
    Retention,
    RetentionOnce,
    Survey,
    Text,
    YesNo,
)
from shoal.protocol.wire import current_window
from shoal.support.checks import shown
from shoal.support.disk import Disk

MAX_SECONDS = 120
"""Seconds after which the process ends in any case."""

_TAKEN = "taken."
WORKING = "working"
"""Name of the lock file of the process."""


class TelemetryWorker:
    """Makes and sends the reports that are due, for one tool and one agreement.

    `folder` is that of the tool's telemetry, `name` that of the agreement within.
    """

    def __init__(
        self,
        tool: str,
        folder: Path,
        name: str,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tool, self._home, self._folder = tool, folder, folder / name
        self._environ, self._clock = environ, clock
        _, self._agreement = state.stored_agreement(str(self._folder))

    def permitted(self) -> bool:
        """Whether the person's yes stands, and nothing in the environment forbids telemetry."""
        off = state.why_off(self._tool, self._environ)
        return off is None and state.read_choice(str(self._home), self._agreement) == "yes"

    def work(self) -> None:
        """Make the report that is due, send queued reports, and store when to run again."""
        if not self.permitted():
            return
        for folder in (self._home, self._folder):
            Disk().close_folder(folder)
        # One for each tool, whatever was agreed to: they share a log.
        with Disk().lock(self._home / WORKING, patience=0.0) as mine:
            if not mine:
                return
            terms = Terms.read(self._agreement)
            outbox = self._outbox(terms)
            self._report(terms, outbox)
            outbox.send_due(hurry=True)
            self._store_due(terms, outbox)

    def _outbox(self, terms: Terms) -> Outbox:
        log = Log(self._home / "log", self._clock)
        transport = LoggedTransport(
            terms.to, log, self.permitted, public_key=terms.public_key, clock=self._clock
        )
        ledger = Ledger(self._home / "ledger.json")
        if ledger.read().limit != terms.limit:
            ledger.set_limit(terms.limit)  # it counts the reports of earlier agreements too
        memory = None
        if terms.plan.memory is not None:
            file = self._home / "memory"
            memory = DeviceMemory(file, read_key(self._home / "memory.key", file))
        return Outbox(
            self._folder / "outbox",
            transport,
            ledger=ledger,
            memory=memory,
            limit=terms.limit,
            # The same on every machine, and no SciPy in the background of a person's work.
            recompute=False,
            # The report is about a window that is over; waiting would lose rare users.
            spread=0.0,
            clock=self._clock,
        )

    def _report(self, terms: Terms, outbox: Outbox) -> None:
        if terms.plan.survey.about_past:
            self._report_past(terms, outbox)
            return
        plan, window = terms.plan, current_window(terms.plan, self._clock())
        reported = {one.window for one in outbox.tickets() if one.plan_id == plan.id}
        for taken in self._folder.glob(f"{_TAKEN}*"):
            if int(taken.suffix[1:]) in reported:  # a crash came before it could be deleted
                taken.unlink()
        if window in reported or self._is_quiet(terms):
            return
        problems: list[str] = []
        mine = self._take(window, problems)
        if mine is None:
            return
        self._answer(plan, outbox, f"window {window}", mine.read_bytes(), {}, problems)
        mine.unlink()

    def _answer(
        self,
        plan: Plan,
        outbox: Outbox,
        key: str,
        events: bytes,
        kept: Mapping[str, object],
        problems: list[str],
    ) -> bool:
        """Make a report of events and of answers that the device keeps; note all problems."""
        refused = False
        try:
            merged = merge(plan.survey, read_events(events), kept)
            outbox.answer(plan, merged.answer, answer_key=key)
            problems += merged.problems
        except (AnswerError, PlanError, PrivacyRefusal) as refusal:
            problems.append(str(refusal))
            refused = True
        if problems:
            state.store_file(str(self._folder), state.NOTE, " ".join(problems).encode())
        else:
            (self._folder / state.NOTE).unlink(missing_ok=True)
        return not refused

    def _report_past(self, terms: Terms, outbox: Outbox) -> None:
        """Make the report that is due about the time since the person's yes, if there is one."""
        past = Past.read(self._home, terms.plan, self._clock())
        if past is None or self._is_quiet(terms):
            return
        files = {one: self._folder / f"{state.PREFIX}{one}" for one in self._event_windows()}
        if (number := past.number) is not None and past.claim(number):
            windows = past.windows(list(files))
            events = b"".join(files[window].read_bytes() for window in windows)
            kept = past.answers(windows)
            made = self._answer(terms.plan, outbox, f"report {number}", events, kept, [])
            if not made and past.is_over:
                past.claim(number + 1)  # an arm that is drawn later is not about these windows
        if past.is_over:
            for file in files.values():
                file.unlink(missing_ok=True)

    def _event_windows(self) -> list[int]:
        return sorted(state.event_windows(str(self._folder)))

    def _is_quiet(self, terms: Terms) -> bool:
        until = int(state.read_file(str(self._home), state.QUIET) or b"0")
        return 0 < until - self._clock() <= terms.window

    def _take(self, window: int, problems: list[str]) -> Path | None:
        """Return the events that become this window's report; those before them are dropped.

        If a killed worker has taken them already, events that came since wait for the next window.
        """
        mine = self._folder / f"{_TAKEN}{window}"
        if mine.exists():
            return mine
        windows = [one for one in self._event_windows() if one != window]
        past = [self._folder / f"{state.PREFIX}{one}" for one in windows]
        found = [*self._folder.glob(f"{_TAKEN}*"), *past]
        if not found:
            return None
        *older, last = found
        last.replace(mine)
        for file in older:
            file.unlink()
        if older:
            problems.append(
                f"The answers of {len(older)} earlier window{'s' * (len(older) > 1)} were dropped:"
                " they were not reported in time."
            )
        return mine

    def _store_due(self, terms: Terms, outbox: Outbox) -> None:
        now = self._clock()
        waiting = [one.due for one in outbox.tickets() if one.due is not None]
        due = min([(now // terms.window + 1) * terms.window, *waiting])
        state.store_file(str(self._folder), state.DUE, b"%d %d" % (int(due) + 1, now))


def main(words: Sequence[str]) -> None:
    """Run as the detached process; it prints nothing."""
    tool, folder, name = words
    os.chdir(folder)
    if sys.platform != "win32":
        import signal

        signal.alarm(MAX_SECONDS)
        os.nice(10)
    try:
        TelemetryWorker(tool, Path(folder), name, os.environ).work()
    except (ShoalError, OSError) as error:
        state.store_file(os.path.join(folder, name), state.NOTE, str(error).encode())


Event = tuple[str, Mapping[str, object]]
"""The call, `record` or `count`, and its arguments."""


def read_events(content: bytes) -> list[Event]:
    """Return the events in a file; invalid lines, such as one that a crash cut off, are skipped."""
    found: list[Event] = []
    for line in content.splitlines():
        try:
            kind, values = ast.literal_eval(line.decode())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if kind in ("record", "count") and isinstance(values, dict):
            found.append((kind, values))
    return found


class Merged(NamedTuple):
    """One answer to a survey, and a sentence about each question with values not in it."""

    answer: dict[str, object]
    problems: list[str]


def merge(
    survey: Survey, events: Iterable[Event], kept: Mapping[str, object] | None = None
) -> Merged:
    """Merge a window's events, and answers that the device keeps, into one answer to a survey.

    Values that do not fit their question are left out. A choice that nobody made, and that may not
    be missing, is an `AnswerError`. A problem names the question, never a value.
    """
    given, sums, problems = _collect(survey, events)
    for name, value in (kept or {}).items():
        given[name] = [] if value is None else [value]
    answer = {
        question.name: _merged(question, given[question.name], sums[question.name])
        for question in survey.asked
    }
    return Merged(answer, problems)


def dropped(survey: Survey, events: Iterable[Event]) -> list[str]:
    """Return a sentence about each question with values that no answer will have."""
    return _collect(survey, events)[2]


def _collect(
    survey: Survey, events: Iterable[Event]
) -> tuple[dict[str, list[object]], dict[str, float], list[str]]:
    """Return the values that were recorded, the sums that were counted, and the problems."""
    given: dict[str, list[object]] = {question.name: [] for question in survey.asked}
    sums = dict.fromkeys(given, 0.0)
    problems: dict[str, None] = {}
    for kind, values in events:
        for name, value in values.items():
            if name not in given:
                problems[f"Question {shown(name)} is not asked; its value was dropped."] = None
            elif isinstance(survey[name], _KEPT):
                problems[f"Question {name!r}: {_WHY_KEPT}; a value was dropped."] = None
            elif not _fits(survey, survey[name], value, kind):
                problems[f"Question {name!r}: a value that does not fit it was dropped."] = None
            elif kind == "count":
                assert isinstance(value, (int, float))
                sums[name] += value
            elif not is_missing(value):
                given[name].append(value)
    for question in survey.asked:
        if (overwritten := _overwritten(question, given[question.name])) is not None:
            problems[f"Question {question.name!r}: {overwritten}"] = None
    return given, sums, list(problems)


_KEPT = Arm, Retention, RetentionOnce
_WHY_KEPT = "the device answers it itself"


def _overwritten(question: Question, given: list[object]) -> str | None:
    """Return why some values that fit are not in the answer, or None if all are."""
    if isinstance(question, Flags):
        options = {bit for one in given for bit in map(_bit_of(question), _options(one))}
        most = question.max_set_bits
        return None if len(options) <= most else f"only the first {most} options were kept."
    if isinstance(question, Funnel):
        return None
    if isinstance(question, (Choice, Date, Text)) and len(set(map(str, given))) > 1:
        return "only the first value was kept; a different one came later."
    return None


def _bit_of(question: Flags) -> Callable[[object], int]:
    return lambda option: next(iter(set_bits(question, [option])))


def check_answers(survey: Survey, answers: Mapping[str, object]) -> None:
    """Raise `AnswerError` for the first of some answers that `merge` would leave out."""
    names = {question.name for question in survey.asked}
    for name, value in answers.items():
        if name not in names:
            raise AnswerError(f"question {shown(name)} is not asked; leave it out.")
        if isinstance(survey[name], _KEPT):
            raise AnswerError(f"question {name!r}: {_WHY_KEPT}; leave it out.")
        _check(survey, survey[name], value)


def _check(survey: Survey, question: Question, value: object) -> None:
    if isinstance(question, Text):
        text_bits(survey, question, value, 0)
    elif isinstance(question, Flags):
        for option in _options(value):
            set_bits(question, [option])
    else:
        set_bits(question, value)


def _fits(survey: Survey, question: Question, value: object, kind: str) -> bool:
    if is_missing(value):
        return kind == "record"
    if kind == "count" and not isinstance(question, Number):
        return False
    try:
        _check(survey, question, value)
    except AnswerError:
        return False
    return True


def _options(value: object) -> list[object]:
    if isinstance(value, str):
        return [name.strip() for name in value.split(";") if name.strip()]
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _merged(question: Question, given: list[object], total: float) -> object:
    if isinstance(question, Flags):
        options: dict[int, object] = {}
        for option in (one for value in given for one in _options(value)):
            options.setdefault(_bit_of(question)(option), option)
        return list(options.values())[: question.max_set_bits]
    if isinstance(question, Number):
        largest = max((float(str(value)) for value in given), default=0.0)
        silent = not given and not total and question.missing is not None
        return None if silent else largest + total
    if isinstance(question, YesNo):
        if not given:
            return None if question.missing else "no"
        return "yes" if any(0 in set_bits(question, value) for value in given) else "no"
    if isinstance(question, Text):
        return given[0] if given else ""
    assert isinstance(question, (Choice, Date))
    if not given and question.missing is None:
        raise AnswerError(_nothing_for(question))
    if isinstance(question, Funnel) and given:
        return max(given, key=lambda step: set_bits(question, step))
    return given[0] if given else None


def _nothing_for(question: Question) -> str:
    if isinstance(question, Arm):
        return f"no arm of question {question.name!r} was drawn: the tool did not call arm()."
    if isinstance(question, Retention):
        return f"the device is older than question {question.name!r} asks for."
    return f"nothing was recorded for question {question.name!r} in this window."


@dataclass(frozen=True)
class SimulatedReport:
    """What a device would send about one window.

    `answer` is what the events say, before any bit is flipped, and stays on the device. `problems`
    has a sentence for each question of which a value was dropped. `body` is the message that would
    leave; with a relay, before it is encrypted. `print` shows its bytes and their meaning.
    """

    answer: Mapping[str, object]
    problems: tuple[str, ...]
    body: bytes
    plan: Plan = field(repr=False)

    def __str__(self) -> str:
        return "\n".join([*report_in_words(self.plan, self.body), *self.problems])


def simulate(
    terms: Terms, events: bytes, now: float, reports: int, arms: Mapping[str, str] | None = None
) -> SimulatedReport:
    """Return the report of some events as the last of `reports`, or raise if it would not be made.

    An arm is the one that the tool was given; an age is the number of reports before.
    """
    plan = terms.plan
    found = read_events(events)
    if not found and not plan.survey.about_past:
        raise AnswerError("nothing was recorded, and a window without events has no report.")
    kept: dict[str, object] = dict(arms or {})
    for one in plan.survey.retention:
        periods = range(1, min(reports, one.periods + 1))
        age = str(reports - 1) if reports <= one.periods + 1 else None
        kept[one.name] = age if isinstance(one, Retention) else [str(k) for k in periods]
    merged = merge(plan.survey, found, kept)
    check_plan(plan, limit=terms.limit, reports=reports)
    if (most := plan.reports_per_device) is not None and reports > most:
        raise PrivacyRefusal(f"a device makes {most} of these reports, and no more.")
    window = current_window(plan, now) + reports
    batch = pack_reports(plan, flip(plan, encode(plan, merged.answer)), window=window)
    return SimulatedReport(merged.answer, tuple(merged.problems), batch.to_bytes(), plan)
