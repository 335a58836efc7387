"""Documents of a tool's telemetry, computed from its plan: notice, label, DPIA draft, self-check.

Generated text stands between two marks; what a maintainer writes outside them stays. So documents
can be compared with the plan and the code at any time, and written again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.planning.threats import observers, single_report, what_holds
from shoal.protocol.flip_probability import EXACT, local_epsilon
from shoal.protocol.plan import Aggregators, Plan
from shoal.reports.page import environment
from shoal.reports.protection import observer_rows
from shoal.support.files import write_text
from shoal.support.results import wrapped
from shoal.support.rounding import text_up

BEGIN = "<!-- Written by `shoal telemetry docs`: do not edit between here and the end mark. -->"
END = "<!-- End of what `shoal telemetry docs` writes. Text below is yours, and stays. -->"

TEMPLATES = {
    "PRIVACY.md": "telemetry_privacy.md",
    "DPIA.md": "telemetry_dpia.md",
    "CNIL.md": "telemetry_cnil.md",
    "privacy-label.svg": "telemetry_label.svg",
    "privacy-label.html": "telemetry_label.html",
}
"""The documents, each with its template."""

_SHOWN_DIFFERENCES = 6
_LABEL_COLUMNS = 62
"""Letters in a line of the label's picture."""


@dataclass(frozen=True)
class WorkedExample:
    """A made-up answer and its report, with seeded flips; `rows`: answer, bits before and after."""

    rows: tuple[tuple[str, str, str, str], ...]
    message: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class TelemetryFacts:
    """What the documents say of a tool; sentences about the device are those of the prompt."""

    tool: str
    plan: Plan
    to: str
    limit: str | None
    why: str | None
    switch: str
    often: str
    asked: tuple[tuple[str, str], ...]
    revealed: tuple[str, ...]
    factor: str
    example: WorkedExample

    @property
    def aggregators(self) -> Aggregators | None:
        """The leader and the helper of the plan, if it has them."""
        return self.plan.parties if isinstance(self.plan.parties, Aggregators) else None

    @property
    def recipients(self) -> list[str]:
        """The addresses that reports, or shares of them, go to."""
        return [self.to] if self.aggregators is None else [*self.aggregators.origins.values()]

    @property
    def hosts(self) -> list[str]:
        return [one.partition("://")[2].partition("/")[0] for one in self.recipients]

    @property
    def q(self) -> str:
        return f"{float(self.plan.q.fraction):.4g}"

    @property
    def epsilon(self) -> str:
        """The local epsilon of one report, rounded up."""
        return text_up(self.plan.local_epsilon)

    @property
    def warning(self) -> str | None:
        """A sentence for a plan whose flips alone protect little; None for others."""
        return single_report(self.plan.local_epsilon, float(self.plan.q.fraction))

    @property
    def max_reports(self) -> int | None:
        """How many reports limit and survey allow; with memory the limit's depend on answers."""
        most = self.plan.survey.reports_per_device
        if self.limit is None or self.plan.memory is not None:
            return most
        one = local_epsilon(self.plan.survey.differing_bits, self.plan.q, places=EXACT)
        allowed = int(Decimal(self.limit) // one)
        return allowed if most is None else min(allowed, most)

    @cached_property
    def observers(self) -> list[dict[str, Any]]:
        """Who sees what, from the certificate; without a crowd, of a single report."""
        if self.plan.crowd_size is not None:
            at = float(self.plan.promise.epsilon)
            return [one.to_json() for one in observers(certify(self.plan), at)]
        return [
            {
                "who": "anyone who sees a report",
                "sees": "each report and its sender",
                "epsilon": self.plan.local_epsilon,
                "delta": 0.0,
                "holds": "local",
                "assumption": "Devices flip bits as the plan says; no other party is trusted.",
            }
        ]

    @property
    def label(self) -> list[tuple[str, str]]:
        """The rows of the privacy label."""
        plan = self.plan
        sees = "the operator sees" if len(self.hosts) == 1 else "the operators of both see"
        reports = "" if self.max_reports is None else f"at most {self.max_reports:,} reports; "
        total = (
            "no limit: the local epsilons of all reports add up"
            if self.limit is None
            else f"{reports}together a local epsilon of at most {self.limit} (theorem)"
        )
        people, added = plan.crowd_size, ""
        if plan.noise is not None:
            added = "; the leader and the helper add noise to the counts of a crowd"
        published = (
            "the plan has no crowd: only the flips protect a report"
            if people is None
            else f"statistics of {people:,} reports or more"
        )
        return [
            ("Consent", "off until you say yes; off in CI and with DO_NOT_TRACK=1"),
            ("Questions", ", ".join(name for name, _ in self.asked)),
            ("Sent", f"{self.often}, {plan.bits} bits, to {' and '.join(self.hosts)}"),
            ("Noise", f"your device flips each bit with probability {self.q}{added}"),
            (
                "One report",
                f"changes the odds between two answers by a factor of at most {self.factor}"
                f" (local epsilon {self.epsilon}; theorem, against everyone who sees it)",
            ),
            *([] if self.warning is None else [("Warning", self.warning)]),
            ("All reports", total),
            ("Identifiers", f"none; {sees} network addresses"),
            ("Published", published),
            ("Stop", f"{self.tool} telemetry off"),
        ]


def documents(facts: TelemetryFacts) -> dict[str, str]:
    """Return each document by the name of its file."""
    made = environment()
    values = {
        "facts": facts,
        "plan": facts.plan,
        "observers": observer_rows(facts.observers),
        "readers": what_holds(facts.observers[0]),
        "lines": list(_label_lines(facts)),
        "BEGIN": BEGIN,
        "END": END,
    }
    found = {}
    for name, template in TEMPLATES.items():
        markup = not name.endswith(".md")
        chosen = made if markup else made.overlay(autoescape=False)
        found[name] = chosen.get_template(f"reports/{template}").render(values).rstrip() + "\n"
    return found


def _label_lines(facts: TelemetryFacts) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of the label, with values in lines that fit its picture."""
    for name, value in facts.label:
        yield name, wrapped(value, _LABEL_COLUMNS).split("\n")


def write_documents(made: Mapping[str, str], folder: Path) -> list[str]:
    """Write documents into a folder; text outside the marks stays. Return the changed names."""
    changed = []
    for name, text in made.items():
        file = folder / name
        before = file.read_text("utf-8") if file.exists() else None
        after = text if before is None else _replaced(before, text, file)
        if after != before:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, after)
            changed.append(name)
    return changed


def differences(made: Mapping[str, str], folder: Path) -> list[str]:
    """Return what documents in a folder say otherwise, a few lines for each of them."""
    found = []
    for name, text in made.items():
        file = folder / name
        if not file.exists():
            found.append(f"{file} is missing.")
            continue
        before = file.read_text("utf-8")
        after = _replaced(before, text, file)
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
        changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        if changed:
            shown = [f"  {line}" for line in changed[:_SHOWN_DIFFERENCES]]
            more = len(changed) - len(shown)
            shown += [f"  and {more} more lines"] * (more > 0)
            found.append("\n".join([f"{file} differs (- there, + computed):", *shown]))
    return found


def _replaced(before: str, text: str, file: Path) -> str:
    """Return a document with the part between the marks replaced."""
    if (
        before.count(BEGIN) != 1
        or before.count(END) != 1
        or before.index(BEGIN) > before.index(END)
    ):
        raise InputError(
            f"{file} has not the two marks of shoal telemetry docs; move it away to write a new"
            " one."
        )
    head, _, rest = before.partition(BEGIN)
    tail = rest.partition(END)[2]
    block = text.partition(BEGIN)[2].partition(END)[0]
    return head + BEGIN + block + END + tail
