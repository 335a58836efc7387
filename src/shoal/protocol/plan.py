"""A plan: the agreement before any data exists.

A plan is immutable. Its id is the SHA-256 of its canonical JSON (RFC 8785), by which reports and
tallies name it. The JSON holds no floats and all fields, with null where there is no value, and
every number has one spelling: so every language computes the same id.
"""

from __future__ import annotations

import decimal
import fractions
import hashlib
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from shoal.errors import InputError, PlanError, SurveyError, require
from shoal.protocol.flip_probability import EXACT, FlipProbability, local_epsilon
from shoal.protocol.survey import Survey
from shoal.support.checks import (
    check_decimal_text,
    check_integer,
    check_one_of,
    check_origin,
    exact_fields,
    shown,
)
from shoal.support.files import (
    canonical_json,
    explain_wrong_file,
    first_line,
    read_json,
    strict_json,
    write_json,
)
from shoal.support.results import Displayed, Section

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate

__all__ = [
    "Aggregators",
    "Fragments",
    "Memory",
    "Parties",
    "Plan",
    "Promise",
    "PromiseKind",
    "ShareNoise",
    "View",
]

VERSION = 2
MAX_CROWD = 10**12
MAX_PLAN_BYTES = 16 << 20
MIN_WINDOW = 3600
"""Devices take no shorter window: a report carries its number, which tells the time as exactly."""

PromiseKind: TypeAlias = "Literal['proven', 'sufficient', 'three-sigma', 'local']"
PROMISES: tuple[PromiseKind, ...] = ("proven", "sufficient", "three-sigma", "local")

View: TypeAlias = "Literal['reports', 'counts']"
EXPERIMENTAL = (
    "A leader and a helper are experimental: their protocol (DAP) is a draft, and nobody outside"
    " has reviewed this implementation."
)

NoiseKind: TypeAlias = "Literal['laplace', 'gaussian']"
NOISE_KINDS: tuple[NoiseKind, ...] = ("laplace", "gaussian")
MAX_NOISE = 2**16

RELAY_SHOWS_REPORTS = (
    "view must be reports with a relay and an analyzer, got view=counts: the analyzer sees whole"
    " reports; for counts name a leader and a helper, or use a single collector."
)

VIEWS: tuple[View, ...] = ("reports", "counts")
"""What the observer sees against whom a promise of a crowd holds: all anonymized reports, each
whole, or only how many of them set each bit."""

ONE_OPERATOR = "one operator: local epsilon only"
"""The mark of a relay and an analyzer that the same people run, and of all that is made of them."""

_FRAGMENTS = {"reports": "report", "counts": "bit"}
"""How a report is cut in each view. A release holds the histogram of each fragment, no more."""


class Fragments(NamedTuple):
    """Into how many fragments a report is cut, and in how many of them two answers can differ."""

    count: int  # type: ignore[assignment]  # a tuple's method of this name is not needed
    differing: int


@dataclass(frozen=True)
class Promise:
    """What was promised; each decimal is kept in its one spelling.

    `proven` and `sufficient` hold for the released tally of a whole crowd; `local` holds for each
    report by itself. Only `sufficient` has an eta.
    """

    kind: PromiseKind
    epsilon: str
    delta: str | None = None
    eta: str | None = None

    def __post_init__(self) -> None:
        check_one_of("promise", self.kind, PROMISES, error=PlanError)
        epsilon = check_decimal_text("epsilon", self.epsilon, above=0, error=PlanError)
        object.__setattr__(self, "epsilon", epsilon)
        for name, kind in (("delta", "proven"), ("eta", "sufficient")):
            value = getattr(self, name)
            if (value is not None) != (self.kind == kind):
                needs = "needs" if self.kind == kind else "takes no"
                raise PlanError(f"a {self.kind} promise {needs} {name}.")
            if value is not None and value != "0":  # 0 is what a local bound proves
                text = check_decimal_text(name, value, above=0, below=1, error=PlanError)
                object.__setattr__(self, name, text)

    @property
    def in_words(self) -> str:
        """The requested promise in one line; `Plan.certificate` computes whether it holds."""
        numbers = {"epsilon": self.epsilon, "delta": self.delta, "eta": self.eta}
        present = [f"{name} {value}" for name, value in numbers.items() if value is not None]
        return ", ".join([f"asks for: {self.kind}", *present])

    def to_json(self) -> dict[str, Any]:
        """Return the promise as plain JSON values."""
        return asdict(self)


class Memory(NamedTuple):
    """Permanent flips with q1, kept by the device, and fresh ones with q2 on top."""

    q1: FlipProbability
    q2: FlipProbability

    @property
    def q(self) -> FlipProbability:
        """The flip probability that a single report shows: q1 + q2 - 2 q1 q2."""
        a, b = self.q1.fraction, self.q2.fraction
        return FlipProbability.of_fraction(a + b - 2 * a * b)

    def to_json(self) -> dict[str, Any]:
        """Return the two flip probabilities as plain JSON values."""
        return {"q1": self.q1.to_json(), "q2": self.q2.to_json()}


@dataclass(frozen=True, repr=False)
class Plan(Displayed):
    """The agreement between those who ask and those who answer.

    Parameters
    ----------
    survey
        The questions.
    q
        The probability with which a device flips each bit.
    promise
        The privacy that q was chosen for.
    crowd_size
        How many reports are released together, or None if the promise needs no crowd.
    max_reports_per_person
        How many reports of one person a release may hold.
    cohorts
        How many cohorts reports are spread over; by default what the survey's text needs.
    window
        The length, in seconds, of the windows in which a person is asked once: reports of one
        window are released apart from those of others. None if a person is asked once for all. A
        retention question brings its period.
    memory
        How q is split between permanent and fresh flips, or None.
    joint
        Groups of bits, each a tuple of (question, label), whose joint counts are kept.
    honest_fraction
        The part of every crowd that is assumed to be honest, as a decimal, or None for all.
    view
        What a release shows: whole anonymized `reports`, or only the `counts` of single bits, which
        needs far less noise. A `counts` plan has a proven promise, and no joint counts.
    parties
        The origins of a relay and an analyzer (`Parties`), or of a leader and a helper
        (`Aggregators`), or None where one collector does everything.

    Examples
    --------
    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, FlipProbability.at_least(0.25), Promise("local", "2.2"))
    >>> plan.id[:16], plan.local_epsilon
    ('725ec51999689290', 2.1972245773362196)
    """

    how_to_get: ClassVar[str] = "make one with shoal.plan(survey, ...) or Plan.read(path)"

    survey: Survey
    q: FlipProbability
    promise: Promise
    crowd_size: int | None = None
    max_reports_per_person: int = 1
    cohorts: int | None = None
    window: int | None = None
    memory: Memory | None = None
    joint: tuple[tuple[tuple[str, str], ...], ...] = ()
    honest_fraction: str | None = None
    view: View = "reports"
    parties: Parties | Aggregators | None = None

    def __post_init__(self) -> None:
        for name, highest in _HIGHEST.items():
            if (value := getattr(self, name)) is not None:
                whole = check_integer(name, value, lowest=1, highest=highest, error=PlanError)
                object.__setattr__(self, name, whole)
        if self.cohorts is None:
            object.__setattr__(self, "cohorts", self.survey.cohorts)
        if self.survey.cohorts is not None and self.cohorts != self.survey.cohorts:
            raise PlanError(f"the survey has {self.survey.cohorts} cohorts, not {self.cohorts}.")
        if self.crowd_size is None and self.promise.kind != "local":
            raise PlanError(f"a {self.promise.kind} promise needs a crowd_size.")
        exact = local_epsilon(self.survey.differing_bits, self.q, places=EXACT)
        if self.promise.kind == "local" and exact > decimal.Decimal(self.promise.epsilon):
            raise PlanError(
                f"q = {self.q} has a local epsilon of {self.local_epsilon:.6g}, more than the"
                f" {self.promise.epsilon} that is promised."
            )
        if self.memory is not None and self.memory.q != self.q:
            raise PlanError(f"memory's q1 and q2 give q = {self.memory.q}, the plan has {self.q}.")
        if self.honest_fraction is not None:
            share = self.honest_fraction
            share = check_decimal_text("honest_fraction", share, above=0, below=1, error=PlanError)
            object.__setattr__(self, "honest_fraction", share)
        self._check_view()
        self._check_parties()
        for one in self.survey.retention:
            if self.window not in (None, one.period):
                raise PlanError(
                    f"question {one.name!r} counts periods of {one.period} seconds, so windows"
                    f" have the same length: leave window out, got window={self.window}."
                )
            object.__setattr__(self, "window", one.period)
        for group in self.joint:
            positions = {self.survey.bit(question, label) for question, label in group}
            if not 2 <= len(positions) == len(group) <= 16:
                raise PlanError("a joint group holds 2 to 16 different bits.")

    def _headline(self) -> str:
        crowd = "no crowd" if self.crowd_size is None else f"a crowd of {self.crowd_size:,}"
        return (
            f"{self.survey.name}: plan {self.id[:12]}, q = {float(self.q):.5g}, {crowd}, view"
            f" {self.view}"
        )

    def _sections(self) -> list[Section]:
        from shoal.support.rounding import text_up

        alone = f"local epsilon {text_up(self.local_epsilon)} (theorem), against anyone who sees it"
        rows = [("promise", self._computed()), ("single report", f"{alone} with its sender")]
        if self.window is not None:
            rows.append(("window", f"{self.window:,} seconds"))
        if self.memory is not None:
            rows.append(("memory", "flips are partly permanent"))
        if self.parties is not None:
            rows += self.parties.origins.items()
        if self.noise is not None:
            rows.append(("noise", f"{self.noise}, added by each of the two"))
        if isinstance(self.parties, Aggregators):
            rows.append(("state", EXPERIMENTAL))
        return [Section(("", ""), rows, prose=True), *self.survey._sections()]

    def _computed(self) -> str:
        """Say what became of the promise when it was computed; nothing is said unless it was."""
        try:
            from shoal.planning.certificate import compute_promise
        except ModuleNotFoundError as missing:
            return f"not computed, which needs {missing.name}"
        computed = compute_promise(self)
        words = computed.in_words
        local = self.promise.kind == "local" or computed.one_operator
        if not computed.is_guarantee or local:
            return words
        seen = "only these counts" if self.view == "counts" else "these reports without senders"
        return f"{words}, against anyone who sees {seen}"

    def _check_view(self) -> None:
        check_one_of("view", self.view, VIEWS, error=PlanError)
        if self.view == "counts" and self.promise.kind != "proven":
            raise PlanError(f"a plan with view counts is proven, got {self.promise.kind!r}.")
        if self.view == "counts" and self.joint:
            raise PlanError(
                "a plan with view counts has no joint counts, which would show more than the"
                " counts of single bits; cross the questions in the survey instead."
            )

    def _check_parties(self) -> None:
        if self.parties is None:
            return
        first, _ = self.parties.origins
        if self.crowd_size is None:
            raise PlanError(
                f"a plan with a {first} needs a crowd_size: the {first} waits for a crowd."
            )
        if isinstance(self.parties, Aggregators):
            if self.view == "reports":
                raise PlanError("a leader and a helper need view counts: nobody sees a report.")
            if self.window is None and not self.survey.retention:
                raise PlanError(
                    "a plan with a leader and a helper needs a window, such as a week: their keys,"
                    " and which reports they have counted, are forgotten with it."
                )
            if self.parties.max_weight > self.bits:
                raise PlanError(f"max_weight of a report of {self.bits} bits is at most that.")
            if self.noise is not None and self.memory is not None:
                raise PlanError("aggregators draw new noise for every crowd; plan without memory.")
            if self.noise is not None and self.cohorts is not None:
                raise PlanError(
                    "texts are decoded from flips; noise of aggregators is not for them."
                )
            if self.cohorts not in (None, 1):
                raise PlanError(
                    "with a leader and a helper text has one cohort: counts of bits say nothing"
                    " about how large a cohort is."
                )
        elif self.view == "counts":
            raise PlanError(RELAY_SHOWS_REPORTS)

    @property
    def noise(self) -> ShareNoise | None:
        """The noise that a leader and a helper each add, or None."""
        return self.parties.noise if isinstance(self.parties, Aggregators) else None

    def batches(self, reports: int) -> int:
        """Return how many crowds so many reports are, at least one: each has noise of its own."""
        return max(reports // self.reports_needed, 1) if self.reports_needed else 1

    def possible_counts(self, reports: int) -> tuple[int, int]:
        """Return the least and the largest count of a bit, with the noise of aggregators."""
        reach = 0 if self.noise is None else self.batches(reports) * self.noise.reach
        return -reach, reports + reach

    @property
    def bits(self) -> int:
        """How many bits a report has."""
        return self.survey.bits

    @property
    def fragments(self) -> Fragments:
        """Into how many fragments a report is cut, and in how many two answers can differ."""
        if self.view == "reports":
            return Fragments(1, 1)
        return Fragments(self.bits, self.survey.differing_bits)

    @property
    def max_weight(self) -> int | None:
        """How many bits of a report may be set when it is sent, or None if all may be."""
        return self.parties.max_weight if isinstance(self.parties, Aggregators) else None

    @cached_property
    def id(self) -> str:
        """The SHA-256 of the plan's canonical JSON, in hexadecimal."""
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()

    @cached_property
    def reports_needed(self) -> int:
        """How many reports make a whole crowd: crowd_size honest ones among all, rounded up."""
        honest = fractions.Fraction(self.honest_fraction or "1")
        return math.ceil((self.crowd_size or 0) / honest)

    @property
    def reports_per_device(self) -> int | None:
        """How many reports a device ever makes; None if one in every window, without an end."""
        if self.window is None:
            return self.max_reports_per_person
        found = self.survey.reports_per_device
        return None if found is None else found * self.max_reports_per_person

    @property
    def devices_return(self) -> bool:
        """Whether one device may be in several releases, which are then not independent."""
        return self.reports_per_device != self.max_reports_per_person

    @property
    def local_epsilon(self) -> float:
        """The local epsilon of one report, with no crowd and no trust in anyone, rounded up."""
        from shoal.support.rounding import float_up

        return float_up(local_epsilon(self.survey.differing_bits, self.q, places=EXACT))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What weakens the promise, each a sentence: one operator, a large epsilon or delta."""
        return (*operator_warnings(self.parties), *self.weak_numbers)

    @property
    def weak_numbers(self) -> tuple[str, ...]:
        from shoal.protocol.promise import promise_warnings

        promise = self.promise
        return tuple(promise_warnings(float(promise.epsilon), promise.delta, self.crowd_size))

    def certificate(self, *, rigorous: bool = False) -> Certificate:
        """Return what the plan guarantees, and against whom; needs a plan with a crowd.

        With `rigorous` the proven delta is enclosed in ball arithmetic (the extra `rigorous`).

        >>> from shoal import Flags, plan
        >>> survey = Survey("browser", (Flags("features", ("a", "b")),))
        >>> certificate = plan(survey, crowd_size=1000, epsilon=1, delta="1e-6").certificate()
        >>> certificate.delta(epsilon=1).high <= 1e-6, certificate.epsilon(delta=1e-6) <= 1
        (True, True)
        """
        require("numpy", "scipy", purpose="a certificate")
        from shoal.planning.certificate import certify  # a plan itself needs no library

        return certify(self, rigorous=rigorous)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values; its id is the hash of exactly these."""
        return {
            "cohorts": self.cohorts,
            "crowd_size": self.crowd_size,
            "fragments": _FRAGMENTS[self.view],
            "honest_fraction": self.honest_fraction,
            "joint": [[list(bit) for bit in group] for group in self.joint],
            "max_reports_per_person": self.max_reports_per_person,
            "memory": self.memory.to_json() if self.memory else None,
            "parties": self.parties.to_json() if self.parties else None,
            "promise": self.promise.to_json(),
            "q": self.q.to_json(),
            "survey": self.survey.to_json(),
            "version": VERSION,
            "view": self.view,
            "window": self.window,
        }

    @classmethod
    def from_json(cls, document: object) -> Plan:
        """Read a plan from plain JSON values; if they name an id, it must be theirs."""
        version = document.get("version", VERSION) if isinstance(document, Mapping) else VERSION
        if version != VERSION or type(version) is not int:  # other versions have other fields
            raise PlanError(
                f"this Shoal reads plans of version {VERSION}, got version {version!r:.64}; make"
                " the plan anew from its survey, or use the Shoal that made it."
            )
        needed = {"fragments", "version"} | {one.name for one in fields(cls)}
        given = exact_fields("a plan", document, needed, {"id"}, error=PlanError)
        try:
            plan = cls(
                **{
                    one.name: _PARSERS.get(one.name, lambda value: value)(given[one.name])
                    for one in fields(cls)
                }
            )
        except SurveyError as error:
            raise PlanError(f"the plan's survey is not valid: {error}") from error
        except (PlanError, RecursionError):
            raise
        except InputError as error:
            raise PlanError(str(error)) from error
        for name, value in plan.to_json().items():
            _check_canonical(name, given[name], value)
        if "id" in given and given["id"] != plan.id:
            raise PlanError(
                f"the plan says its id is {str(given['id'])[:64]!r} but its content has"
                f" {plan.id}; it was changed after it was made."
            )
        return plan

    @classmethod
    def read(cls, path: pathlib.Path | str) -> Plan:
        """Read a plan from a JSON file, which must name the plan's id."""
        document = read_json(pathlib.Path(path), "plan", PlanError)
        if isinstance(document, Mapping) and "survey" in document and "id" not in document:
            raise PlanError(f"{path} has no field 'id', so a change would go unnoticed.")
        try:
            return cls.from_json(document)
        except PlanError as error:
            raise PlanError(explain_wrong_file(pathlib.Path(path), "plan") or str(error)) from error

    def write(self, path: pathlib.Path | str) -> None:
        """Write the plan, with its id, as JSON for people to read."""
        write_json(pathlib.Path(path), {"id": self.id} | self.to_json())


_HIGHEST = {
    "crowd_size": MAX_CROWD,
    "max_reports_per_person": 10**6,
    "cohorts": 2**16,
    "window": 10**9,
}
"""The largest value of each whole number in a plan."""


def _check_canonical(place: str, given: object, canonical: object) -> None:
    """Refuse a document that is not what its plan would write: one plan has one text."""
    if isinstance(given, Mapping) and isinstance(canonical, dict) and given.keys() == {*canonical}:
        for name in canonical:
            _check_canonical(f"{place}.{name}", given[name], canonical[name])
    elif isinstance(given, list) and isinstance(canonical, list) and len(given) == len(canonical):
        for one, other in zip(given, canonical, strict=True):
            _check_canonical(place, one, other)
    elif type(given) is not type(canonical) or given != canonical:
        raise PlanError(
            f"the plan is not in its canonical form: {place} must be {shown(canonical)}, got"
            f" {shown(given)}."
        )


def _flip_probability(name: str, value: object) -> FlipProbability:
    if not isinstance(value, list) or len(value) != 2:
        raise PlanError(f"{name} must be [numerator, digits], got {name}={str(value)[:80]}.")
    return FlipProbability(value[0], value[1])


def _memory(value: object) -> Memory:
    fields = exact_fields("memory", value, {"q1", "q2"}, error=PlanError)
    return Memory(_flip_probability("q1", fields["q1"]), _flip_probability("q2", fields["q2"]))


def _joint(value: object) -> tuple[tuple[tuple[str, str], ...], ...]:
    def is_group(group: object) -> bool:
        return isinstance(group, list) and all(
            isinstance(bit, list) and [type(part) for part in bit] == [str, str] for bit in group
        )

    if not isinstance(value, list) or not all(map(is_group, value)):
        raise PlanError("joint must be a list of groups, each a list of [question, label] pairs.")
    return tuple(tuple((bit[0], bit[1]) for bit in group) for group in value)


@dataclass(frozen=True)
class Parties:
    """The origins of the relay, which sees who sends, and of the analyzer, which reads.

    With `one_operator` the same people run both, as on one host, and only the local epsilon holds
    against them.

    >>> Parties("https://relay.example", "https://analyzer.example:8443").one_operator
    False
    >>> Parties("https://example.org", "https://example.org:8443").one_operator
    True
    """

    relay: str
    analyzer: str
    one_operator: bool = False

    def __post_init__(self) -> None:
        _check_two(self, "sees whose report it reads")

    @property
    def origins(self) -> dict[str, str]:
        """The origin of each party, by its name."""
        return {"relay": self.relay, "analyzer": self.analyzer}

    def to_json(self) -> dict[str, Any]:
        """Return the parties as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class ShareNoise:
    """Noise that the leader and the helper each add to every count of their share of a crowd.

    ``P[Z = k]`` is proportional to ``exp(-|k| / scale)`` (laplace) or ``exp(-k^2 / (2 scale^2))``
    (gaussian).
    `scale` is a decimal; it stands for the double next to it, which is drawn with and certified.

    >>> ShareNoise("laplace", "2").value
    2.0
    """

    kind: NoiseKind
    scale: str

    def __post_init__(self) -> None:
        check_one_of("noise", self.kind, NOISE_KINDS, error=PlanError)
        scale = check_decimal_text("scale", self.scale, above=0, error=PlanError)
        if not 2**-10 <= float(scale) <= MAX_NOISE:
            raise PlanError(f"scale must be between 2^-10 and 2^16, got scale={scale}.")
        object.__setattr__(self, "scale", scale)

    @property
    def value(self) -> float:
        """The scale that is drawn with."""
        return float(self.scale)

    @property
    def reach(self) -> int:
        """No sum of two draws is farther from 0, except with a probability below 1e-30."""
        return math.ceil(160 * self.value) + 160

    def __str__(self) -> str:
        return f"discrete {self.kind.capitalize()}, scale {self.scale}"


@dataclass(frozen=True)
class Aggregators:
    """The origins of the two aggregators of DAP; each receives a secret share of every report.

    At most `max_weight` bits of a report may be set: a proof shows it (Prio3MultihotCountVec).
    `one_operator` as of `Parties`. With `noise` each adds noise to its share of a crowd.

    >>> Aggregators("https://leader.example", "https://helper.example", 16).max_weight
    16
    """

    leader: str
    helper: str
    max_weight: int = 1
    one_operator: bool = False
    noise: ShareNoise | None = None

    def __post_init__(self) -> None:
        _check_two(self, "has both shares of every report")
        check_integer("max_weight", self.max_weight, lowest=1, highest=2**16, error=PlanError)

    @property
    def origins(self) -> dict[str, str]:
        """The origin of each aggregator, by its name."""
        return {"leader": self.leader, "helper": self.helper}

    def to_json(self) -> dict[str, Any]:
        """Return the aggregators as plain JSON values."""
        return asdict(self)


def _check_two(parties: Parties | Aggregators, if_one: str) -> None:
    """Check the origins of two parties; those on one host have one operator."""
    origins = parties.origins
    for name, origin in origins.items():
        check_origin(name, origin, error=PlanError)
    (first, one), (second, other) = origins.items()
    if one == other:
        raise PlanError(
            f"{first} and {second} must be two parties, got {one} for both: one that is both"
            f" {if_one}."
        )
    if not isinstance(parties.one_operator, bool):
        raise PlanError(f"one_operator must be true or false, got {shown(parties.one_operator)}.")
    if _host(one) == _host(other):
        object.__setattr__(parties, "one_operator", True)


def operator_warnings(parties: Parties | Aggregators | None) -> tuple[str, ...]:
    """Return the warning that one operator runs both parties, if so."""
    if parties is None or not parties.one_operator:
        return ()
    return (f"{ONE_OPERATOR}, against those who run both parties.",)


def _parties(value: object) -> Parties | Aggregators:
    kind = Aggregators if isinstance(value, Mapping) and "leader" in value else Parties
    given = _fields_of(kind, "parties", value)
    if given.get("noise") is not None:
        given["noise"] = ShareNoise(**_fields_of(ShareNoise, "noise", given["noise"]))
    return kind(**given)


def _fields_of(kind: type[Any], what: str, value: object) -> dict[str, Any]:
    return exact_fields(what, value, {one.name for one in fields(kind)}, error=PlanError)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "survey": Survey.from_json,
    "q": lambda value: _flip_probability("q", value),
    "promise": lambda value: Promise(**_fields_of(Promise, "a promise", value)),
    "memory": lambda value: None if value is None else _memory(value),
    "joint": _joint,
    "parties": lambda value: None if value is None else _parties(value),
}
"""How fields are read that are more than a number or a text."""


def _host(origin: str) -> str:
    host = origin.partition("://")[2]
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


def check_plan_id(plan_id: object) -> str:
    """Return a plan's id if it is one: 64 hexadecimal digits."""
    if not isinstance(plan_id, str) or not re.fullmatch("[0-9a-f]{64}", plan_id):
        raise PlanError(f"a plan's id is 64 hexadecimal digits, got {shown(plan_id)}.")
    return plan_id


def read_plan(content: bytes, plan_id: str) -> Plan:
    """Read a plan from bytes of whatever origin; it must be the plan that was asked for."""
    check_plan_id(plan_id)
    if len(content) > MAX_PLAN_BYTES:
        raise PlanError(f"a plan takes at most {MAX_PLAN_BYTES >> 20} MiB, got more.")
    try:
        document = strict_json(content)
        plan = Plan.from_json(document)
        actual_id = plan.id
    except InputError:
        raise
    except (ValueError, RecursionError) as problem:
        raise PlanError(f"the response is not a plan: {first_line(problem)}.") from problem
    if actual_id != plan_id:
        raise PlanError(f"asked for plan {plan_id}, got plan {actual_id}.")
    return plan
