"""The oracle can fail: each mutant of what Shoal says is caught by a case that holds without it."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pytest

from shoal import Certificate, Plan, Survey
from shoal.analysis.estimates import Estimate
from shoal.curator import Release
from shoal.device import memory
from shoal.device.arrays import encode as tables
from shoal.planning import bounds, guarantees
from shoal.planning import certificate as certificates
from shoal.planning.composition import Composition
from shoal.protocol.flip_probability import FlipProbability, local_epsilon
from shoal.protocol.wording import Wording
from shoal.support import csv_rows
from shoal.theory.brackets import Bracket

from . import counts, crowds, edits, plans, times, views
from .judging import judge
from .kinds import KINDS

Mutate = Callable[[pytest.MonkeyPatch], None]

MOST = 120
"""How many cases a mutant may survive."""


def parsed_otherwise(change: Callable[[str], str]) -> Mutate:
    """Change the text of many rows before it is cut into cells."""
    return changed(csv_rows, "_parsed", lambda real, text, *rest: real(change(text), *rest))


def guessed_encoding(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return text


def without_empty_lines(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip())


def rows_across_lines(_: Any, lines: list[str], delimiter: str) -> list[Any]:
    rows: list[Any] = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
    return rows + [None] * (len(lines) - len(rows))


def value(owner: type, name: str, change: Callable[[Any, Any], Any]) -> Mutate:
    """Change a property: a function of the object and the real value."""
    attribute = getattr(owner, name)
    real = attribute.func if isinstance(attribute, cached_property) else attribute.fget
    changed = property(lambda self: change(self, real(self)))
    return lambda patch: patch.setattr(owner, name, changed)


def changed(owner: Any, name: str, change: Callable[..., Any]) -> Mutate:
    """Change a function of a module or a method: a function of the real one and its arguments."""
    real = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *a, **k: change(real, *a, **k))


proven = partial(changed, bounds, "proven_delta")
proven_counts = partial(changed, bounds, "proven_counts")
of_certificate = partial(changed, Certificate)


def one_release_fewer(real: Any, self: Certificate, releases: int) -> Any:
    return real(self, max(releases - 1, 1))


def scaled(field: str, factor: float) -> Callable[..., Any]:
    """Multiply a field of what a function returns."""

    def change(real: Any, *given: Any) -> Any:
        found = real(*given)
        old = getattr(found, field)
        if isinstance(old, Bracket):
            return found._replace(**{field: Bracket(*(min(end * factor, 1.0) for end in old))})
        return found._replace(**{field: old * factor})

    return change


def zero_where(meets: Callable[[float, float], bool]) -> Mutate:
    """A NaN, or a difference that is 0 in floats only, taken for a delta of 0."""

    def change(real: Any, domain: Any, size: int, q: float, epsilon: float, *rest: Any) -> Any:
        found = real(domain, size, q, epsilon, *rest)
        return found._replace(delta=Bracket(0.0, 0.0)) if meets(q, math.exp(epsilon)) else found

    return proven(change)


def shorter_interval(real: Any, self: Estimate, *given: Any) -> Any:
    found = real(self, *given)
    return replace(found, low=found.low + 1)


def one_sided(real: Any, self: Estimate, level: float, kind: Any) -> Any:
    return real(self, max(1 - 2 * (1 - level), 1e-3), kind)


def said_of(holds_for: str, kind: str) -> Mutate:
    """Give one statement the epsilon of the first statement of a kind instead."""

    def mutant(real: Any, *given: Any, **named: Any) -> list[Any]:
        stated = real(*given, **named)
        wrong = next(one.epsilon for one in stated if one.kind == kind)
        return [
            replace(one, epsilon=wrong) if one.holds_for == holds_for else one for one in stated
        ]

    return changed(times, "guarantees_over_time", mutant)


@dataclass
class Repeated:
    """A publication that repeats what the plan says of itself."""

    plan: Plan

    def to_json(self) -> dict[str, Any]:
        promise = self.plan.promise
        short = f"proven: epsilon {promise.epsilon}, delta {promise.delta}, whatever happens"
        return {"promise": {"short": short}}

    def to_markdown(self) -> str:
        return (
            f"| Proven | delta \N{LESS-THAN OR EQUAL TO} {self.plan.promise.delta} |"
            f" at epsilon {self.plan.promise.epsilon}, x |\n"
            "| Attack | delta \N{GREATER-THAN OR EQUAL TO} 0 | at epsilon 1, x |\n"
            "| Local | epsilon 99 | x |\n"
        )


def repeats(_: Any, plan: Plan, *__: Any) -> Repeated:
    return Repeated(plan)


def two_crowds(real: Any, survey: Survey, *, q: Any, crowd_size: int) -> Any:
    return real(survey, q=q, crowd_size=2 * crowd_size)


def less_noise(real: Any, *given: Any, **named: Any) -> Plan:
    made: Plan = real(*given, **named)
    half = made.q.fraction / 2
    return replace(made, q=FlipProbability.of_fraction(half)) if "q" not in named else made


def one_window_fewer(real: Any, words: str) -> Any:
    horizon = real(words)
    return horizon._replace(releases=horizon.releases - 1)


def meeting(q: float, lam: float) -> bool:
    return math.isclose(lam, ((1 - q) ** 2 + q**2) / (2 * q * (1 - q)), rel_tol=1e-9)


def at_theta(q: float, lam: float) -> bool:
    return lam < (1 - q) / q <= lam * (1 + 1e-9)


BY_KIND: dict[str, dict[str, Mutate]] = {
    "small world": {
        "proven with one person more": proven(lambda real, d, n, *rest: real(d, n + 1, *rest)),
        "eta a hundredth too small": changed(certificates, "sufficient_eta", scaled("eta", 0.99)),
        "one bit less that differs": value(Survey, "differing_bits", lambda _, bits: bits - 1),
    },
    "one bit": {
        "proven a millionth too small": proven(scaled("delta", 1 - 1e-6)),
        "attack a hundredth too large": changed(bounds, "attack_delta", scaled("delta", 1.01)),
        "epsilon a hundredth too small": of_certificate(
            "epsilon", lambda real, self, **k: 0.99 * real(self, **k)
        ),
        "q a thousandth too large": value(Certificate, "_q", lambda _, q: q * 1.001),
    },
    "colluders": {
        "NaN as 0 where formulas meet": zero_where(meeting),
        "0 where the difference is round-off": zero_where(at_theta),
        "colluders counted as cover": of_certificate("with_colluders", lambda _, self, count: self),
        "the dishonest counted as cover": value(
            Plan, "reports_needed", lambda self, _: self.crowd_size
        ),
    },
    "flags in whole reports": {
        "four times the crowd": proven(lambda real, d, n, *rest: real(d, 4 * n, *rest)),
    },
    "counts of a crowd": {
        "one bit less that differs, counts": proven_counts(
            lambda real, d, *rest: real(d - 1, *rest)
        ),
        "counts a thousandth too small": proven_counts(lambda real, *a: real(*a) * (1 - 1e-3)),
        "an attack on counts too large": changed(bounds, "attack_counts", scaled("delta", 1.01)),
    },
    "releases of one person": {
        "one release of a person fewer": of_certificate("compose", one_release_fewer),
        "releases composed with round-off": changed(
            Composition, "delta", lambda real, self, **k: max(real(self, **k) - 4e-15, 0.0)
        ),
    },
    "composition": {"one release fewer": of_certificate("compose", one_release_fewer)},
    "plan": {"half the flips that were planned": changed(plans, "plan", less_noise)},
    "plan for counts": {"half the flips for counts": changed(views, "plan", less_noise)},
    "several reports": {
        "group privacy without its factor": changed(certificates, "group_factor", lambda *_: 1.0)
    },
    "dropped bits": {
        "too small a weight for the largest original": changed(
            bounds.Overflow, "chance", lambda real, self, q: real(replace(self, max_set=0), q)
        )
    },
    "text with cohorts": {
        "a cohort taken for a crowd of its own": changed(crowds, "certify", two_crowds)
    },
    "larger crowd": {
        "a price that rises with the crowd": proven_counts(
            lambda real, d, n, *rest: min(real(d, n, *rest) + 0.05 * n, 1.0)
        ),
        "twice the crowd that there is": proven(
            lambda real, d, n, *rest: real(d, 2 * n + 2, *rest)
        ),
    },
    "sum of windows": {"a sum promised like one crowd": changed(times, "publish", repeats)},
    "publication": {"a plan believed on its word": changed(plans, "publish", repeats)},
    "memory": {
        "all reports of an answer like one": said_of("one answer, every release", "local"),
        "all releases like one": said_of("same crowd, every release", "proven"),
        "changes hidden like answers": said_of("answers that change, every release", "local"),
        "changing crowds like one release": said_of("changing crowds, every release", "proven"),
    },
    "plan edits": {
        "a year that counts as one release": changed(
            guarantees, "releases_in_a_year", lambda real, *_: 1
        ),
        "another survey's number of bits that differ": changed(
            guarantees, "local_epsilon", lambda real, _, q: local_epsilon(1, q)
        ),
    },
    "labels": {
        "permanent flips that belong to a plan": changed(
            memory, "permanent_key", lambda real, plan: plan.id
        ),
        "a new order that keeps permanent flips": changed(Wording, "moved", lambda *_: iter(())),
    },
    "horizons": {
        "a horizon without the window that it cuts": changed(
            edits, "parse_horizon", one_window_fewer
        )
    },
    "crowd's interval": {
        "an interval's end off by one": changed(Estimate, "interval", shorter_interval),
        "simultaneous like single": changed(
            Estimate, "interval", lambda real, self, level, _: real(self, level, "exact")
        ),
    },
    "population's interval": {"both tails taken for one": changed(Estimate, "interval", one_sided)},
    "screening": {
        "a p-value fifty times too small": changed(
            counts, "screen", lambda real, *a: replace(real(*a), p_value=real(*a).p_value / 50)
        )
    },
    "curator": {
        "sensitivity 1 for a replaced row": changed(
            counts, "Curator", lambda real, *a, **k: real(*a, **k | {"neighbours": "add-remove"})
        ),
        "the continuous tail for whole noise": changed(
            Release,
            "accuracy",
            lambda real, self, miss: replace(real(self, miss), alpha=real(self, miss).lecture),
        ),
    },
    "row-wise reading": {
        "an encoding guessed from all rows": parsed_otherwise(guessed_encoding),
        "an empty line that is nobody's": parsed_otherwise(without_empty_lines),
        "a quote that reaches into the next row": changed(csv_rows, "_rows", rows_across_lines),
        "one type for a column of objects": changed(tables, "python_series", lambda *_: None),
    },
}
MUTANTS = [(kind, name) for kind, mutants in BY_KIND.items() for name in mutants]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), MUTANTS)
def test_mutant_is_caught(kind, name):
    mutate, (make, _) = BY_KIND[kind][name], KINDS[kind]
    for number in range(MOST):
        only = range(number, number + 1)
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            suspected = judge(kind, make, only).violations
        if suspected and not judge(kind, make, only).violations:
            return
    pytest.fail(f"no case of {kind!r} notices: {name}")
