"""Agreement, plan and report in plain words, for the person whose device it is.

All numbers are computed from the plan. A promise that needs a crowd is quoted, not confirmed.

The words are in the person's language: `catalogue.json` has one entry per language, all with the
same keys. A tool may add languages of its own. The language is that of the environment; where the
terminal cannot show it, English.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TextIO, TypeAlias

from shoal.device.outbox.http import HttpTransport
from shoal.device.outbox.plan_policy import check_plan, check_promise
from shoal.errors import InputError, PlanError, PrivacyRefusal, ReportError, require
from shoal.protocol.flip_probability import EXACT, local_epsilon
from shoal.protocol.plan import Aggregators, Plan
from shoal.protocol.questions import MISSING, OTHER, Question
from shoal.protocol.survey import Arm, Flags, Funnel, Number, Retention, RetentionOnce, Text, YesNo
from shoal.protocol.wire import ID_BYTES, MAGIC, row_bytes, split_batch
from shoal.support.checks import exact_fields
from shoal.support.files import first_line, strict_json
from shoal.support.results import wrapped
from shoal.support.rounding import float_up, text_up

Words: TypeAlias = "Mapping[str, Any]"
"""The texts of one language, by key."""

_ENGLISH = "en"


@cache
def catalogue() -> dict[str, Words]:
    """Return the texts of all languages that Shoal brings."""
    content = resources.files(__package__).joinpath("catalogue.json").read_text("utf-8")
    found: dict[str, Words] = json.loads(content)
    return found


def english() -> Words:
    return catalogue()[_ENGLISH]


def read_translations(given: object) -> dict[str, Words]:
    """Return the languages that a tool adds: a mapping like the catalogue, or a file with one."""
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        try:
            with open(given, encoding="utf-8") as file:
                given = json.load(file)
        except (OSError, ValueError) as problem:
            raise InputError(f"the translations {given} cannot be read.") from problem
    if not isinstance(given, Mapping):
        raise InputError("translations are a mapping from languages, or the path of a JSON file.")
    for language, words in given.items():
        _check(str(language), words)
    return {str(language): words for language, words in given.items()}


def _check(language: str, words: object) -> None:
    """Refuse a translation in which a text, or a value in a text, is missing."""
    what = f"the translation {language!r}"
    given = exact_fields(what, words, english().keys())
    for key, model in english().items():
        found = given[key]
        if type(found) is not type(model):
            raise InputError(f"{what} needs a {type(model).__name__} {key!r}.")
        parts = model.items() if isinstance(model, Mapping) else [("", model)]
        for name, text in parts:
            other = found.get(name) if isinstance(found, Mapping) else found
            if _fields(other) != _fields(text):
                where = f"{key!r}" if not name else f"{key!r}, {name!r}"
                fields = ", ".join(sorted(_fields(text))) or "of no value"
                raise InputError(f"{what}, {where}, needs the fields {fields}.")


def _fields(text: object) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text)) if isinstance(text, str) else set()


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language of messages, by the variables of POSIX in their order."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environ[name] for name in names if environ.get(name)), _ENGLISH)
    language = re.split(r"[_.@-]", locale, maxsplit=1)[0].lower()
    return _ENGLISH if language in ("c", "posix") else language


def words_for(
    environ: Mapping[str, str], translations: Mapping[str, Words], stream: TextIO
) -> tuple[str, Words]:
    """Return a language and its texts: the person's, if it is known and can be shown."""
    language, known = language_of(environ), {**catalogue(), **translations}
    if language not in known or not _can_show(known[language], stream):
        language = _ENGLISH
    return language, known[language]


def _can_show(words: Words, stream: TextIO) -> bool:
    try:
        json.dumps(dict(words), ensure_ascii=False).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def fitted(text: str) -> str:
    """Return a text whose lines fit the terminal, if it goes to one."""
    return wrapped(text, terminal_width(sys.stdout)) if sys.stdout.isatty() else text


_SPANS = ((7 * 86_400, "week"), (86_400, "day"), (3600, "hour"), (1, "second"))


def terms_in_words(terms: Terms, words: Words | None = None) -> list[str]:
    """Describe the questions, the reports and their privacy loss, one line each."""
    plan, words = terms.plan, english() if words is None else words
    asked = [
        "  " + words["question"].format(name=question.name, text=asked_in_words(question, words))
        for question in plan.survey.asked
    ]
    sent = words["sent"].format(
        often=often(plan, words),
        about=words["since"] if plan.survey.about_past else words["about"][_unit(terms.window)],
        bits=plan.bits,
        q=probability(plan),
    )
    to = words["to"].format(to=terms.to)
    if isinstance(plan.parties, Aggregators):
        to = words["shares"].format(leader=plan.parties.leader, helper=plan.parties.helper)
    return [words["asked"], *asked, sent, *revealed_in_words(terms, words), to]


def report_in_words(plan: Plan | None, body: bytes) -> list[str]:
    """Return every byte of a sent report and its meaning, then its content after the flips."""
    try:
        if plan is None:
            raise ReportError("its plan is not known here any more.")
        reports = split_batch(plan, body)
    except ReportError:
        return _bytes_and_meaning(body, "encrypted, or of a plan that is not here any more")
    size = row_bytes(plan.bits)
    value = int.from_bytes(reports.content[-size:], "little")
    window = reports.windows[0]
    cohort = [] if plan.cohorts is None else [(2, "cohort, drawn by the device")]
    meanings = [
        (len(MAGIC), f"format: {MAGIC[:-1].decode()}, version {MAGIC[-1]}"),
        (32, "id of the plan; everybody sends the same"),
        (4, "number of reports, 1"),
        (ID_BYTES, "id of this report, drawn at random; no other report has it"),
        (4, f"window: {window}"),
        *cohort,
        (size, f"the {plan.bits} answer bits, each flipped with probability {probability(plan)}"),
    ]
    lines, place = [], 0
    for length, meaning in meanings:
        lines += _bytes_and_meaning(body[place : place + length], meaning)
        place += length
    said = [f"  {one.name}: {_set_options(plan, one, value)}" for one in plan.survey]
    return [*lines, "These bits say, though each may have been flipped:", *said]


def _bytes_and_meaning(content: bytes, meaning: str) -> list[str]:
    """Return lines of 16 bytes in hexadecimal; the meaning is below them."""
    rows = [content[place : place + 16] for place in range(0, len(content), 16)]
    return [*(f"  {row.hex()}" for row in rows), f"    {meaning}"]


def probability(plan: Plan) -> str:
    return f"{float(plan.q.fraction):.4g}"


_PAST = {Arm: "variant", Retention: "age", RetentionOnce: "periods", Funnel: "step"}
"""The words for each kind of question about the device's past."""


def asked_in_words(question: Question, words: Words) -> str:
    if isinstance(question, Text):
        return str(words["text"].format(bits=question.bits))
    if isinstance(question, YesNo):
        return str(words["yes or no"])
    labels = words["separator"].join(_labels(question, words))
    for kind, key in _PAST.items():
        if isinstance(question, kind):
            return str(words[key].format(labels=labels))
    if isinstance(question, Flags):
        key = "at most" if question.at_most else "flags"
        return str(words[key].format(labels=labels, count=question.at_most))
    return str(words["number" if isinstance(question, Number) else "one"].format(labels=labels))


def _labels(question: Question, words: Words) -> list[str]:
    ours = {OTHER: words["other"], MISSING: words["missing"]}
    labels = list(question.labels)
    if isinstance(question, Number) and question.edges:
        edges = question.edges
        between = [words["between"].format(*pair) for pair in pairwise(edges)]
        ends = words["below"].format(edges[0]), words["above"].format(edges[-1])
        labels = [ends[0], *between, ends[1], *labels[len(edges) + 1 :]]
    return [ours.get(label, label) for label in labels]


def often(plan: Plan, words: Words) -> str:
    """Return "one report a week", "one report every 3 days", or "one report in all"."""
    assert plan.window is not None
    most = plan.survey.reports_per_device
    if most == 1:
        return str(words["once"])
    regularly = _regularly(plan.window, words)
    return regularly if most is None else str(words["ages"].format(often=regularly, count=most))


def _regularly(seconds: int, words: Words) -> str:
    length, name = next(span for span in _SPANS if seconds % span[0] == 0)
    count = seconds // length
    unit = name if count == 1 and name in words["often"] else f"{name}s"
    return str(words["often"][unit].format(count=count))


def _unit(seconds: int) -> str:
    return dict(_SPANS[:3]).get(seconds, "period")


def revealed_in_words(terms: Terms, words: Words) -> list[str]:
    """State the privacy loss of reports to an observer who knows their sender; a theorem."""
    plan, epsilon = terms.plan, terms.plan.local_epsilon
    factor = odds_factor(epsilon, words)
    lines = [words["odds"].format(factor=factor, epsilon=text_up(epsilon)), words["several"]]
    if plan.memory is not None:
        differing = plan.survey.differing_bits
        largest = float_up(local_epsilon(differing, plan.memory.q1, places=EXACT))
        lines[1] = words["memory"].format(factor=odds_factor(largest, words))
    if plan.promise.kind != "local":
        promise = plan.promise.in_words.partition(": ")[2]
        lines.append(words["crowd"].format(size=plan.crowd_size, promise=promise))
    if terms.limit is not None:
        lines.append(words["limit"].format(limit=terms.limit))
    return lines


def odds_factor(epsilon: float, words: Words) -> str:
    if epsilon > 30:
        return str(words["bare"].format(epsilon=text_up(epsilon)))
    return text_up(math.nextafter(math.exp(epsilon), math.inf), 3)


def _set_options(plan: Plan, question: Question, value: int) -> str:
    start = plan.survey.slice_of(question.name).start
    on = [bit for bit in range(question.bits) if value >> start + bit & 1]
    if isinstance(question, Text):
        return f"{len(on)} of {question.bits} bits are set"
    if not on:
        return "no bit is set"
    return "set: " + ", ".join(question.labels[number] for number in on)


@dataclass(frozen=True)
class Terms:
    """The plan that is answered, where reports go, and how much they may reveal."""

    plan: Plan
    to: str
    limit: str | None
    public_key: str | None

    @property
    def window(self) -> int:
        """The length of the plan's windows in seconds."""
        assert self.plan.window is not None
        return self.plan.window

    @classmethod
    def read(cls, agreement: bytes) -> Terms:
        """Read the output of `agreement_text`; a plan that this device refuses is an error."""
        head, _, content = agreement.partition(b"\n\n")
        lines = head.decode("utf-8", "replace").splitlines()[1:]
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        try:
            plan = Plan.from_json(strict_json(content))
        except InputError:
            raise
        except (ValueError, RecursionError) as problem:
            raise PlanError(f"telemetry needs a plan: {first_line(problem)}.") from problem
        terms = cls(plan, fields["to"], fields["limit"] or None, fields["key"] or None)
        if plan.window is None:
            raise PlanError(
                "telemetry needs a plan with a window, in which a device reports once: shoal plan"
                " --window."
            )
        check_plan(plan, limit=terms.limit, reports=plan.reports_per_device or 1)
        transport = HttpTransport(terms.to, public_key=terms.public_key)  # an address, and a key
        terms._check_confirmable()
        if plan.parties is not None:
            from shoal.device.encryption import check_parties  # most plans have one collector

            check_parties(plan.parties, transport)
        return terms

    def _check_confirmable(self) -> None:
        """Refuse a promise that devices could not confirm; a limit makes that unnecessary."""
        kind = self.plan.promise.kind
        if kind == "local" or self.limit is not None:
            return
        if self.public_key is None or kind == "three-sigma":
            raise PrivacyRefusal(
                f"the plan's promise ({kind}) needs a crowd, and a person's device cannot confirm"
                " it; give limit=, the largest local epsilon that all reports together may reveal,"
                " or plan with --promise local"
                f"{'' if kind == 'three-sigma' else ', or give public_key= of the collector'}."
            )

    def check_here(self) -> None:
        """Raise `MissingExtraError` if this machine has not all that the plan needs."""
        if self.plan.memory is not None or self.plan.parties is not None:
            require("cryptography", purpose="this telemetry")

    def check_promise(self) -> None:
        """Compute a proven promise where SciPy is installed, or refuse the plan."""
        if self.plan.promise.kind == "proven" and find_spec("scipy") is not None:
            check_promise(self.plan)
