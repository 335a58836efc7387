"""The report of a window that is not over, for the tests of a tool: nothing is stored or sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.device.encode import encode
from shoal.device.outbox.plan_policy import check_plan
from shoal.device.randomize import flip, pack_reports
from shoal.device.telemetry.describe import Terms, report_in_words
from shoal.device.telemetry.worker import merge, read_events
from shoal.errors import AnswerError
from shoal.protocol.plan import Plan
from shoal.protocol.wire import current_window


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


def simulate(terms: Terms, events: bytes, now: float, reports: int) -> SimulatedReport:
    """Return the report of some events as the last of `reports`, or raise if it would not be made.

    >>> from shoal import Flags, Survey
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Promise
    >>> plan = Plan(Survey("mytool", (Flags("command", ("build", "test")),)),
    ...             FlipProbability(1, 2), Promise("local", "2.2"), window=604_800)
    >>> terms = Terms(plan, "https://telemetry.example.org", "5", None)
    >>> event = b"('record', {'command': 'test'})"
    >>> simulate(terms, event, 0.0, reports=1).answer
    {'command': ['test']}
    >>> simulate(terms, event, 0.0, reports=3)
    Traceback (most recent call last):
    ...
    shoal.errors.PrivacyRefusal: 3 reports of this plan reveal up to a local epsilon of 6.5917,...
    """
    plan = terms.plan
    found = read_events(events)
    if not found:
        raise AnswerError("nothing was recorded, and a window without events has no report.")
    merged = merge(plan.survey, found)
    check_plan(plan, limit=terms.limit, reports=reports)
    window = current_window(plan, now) + reports
    batch = pack_reports(plan, flip(plan, encode(plan, merged.answer)), window=window)
    return SimulatedReport(merged.answer, tuple(merged.problems), batch.to_bytes(), plan)
