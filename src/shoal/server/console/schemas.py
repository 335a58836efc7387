"""The API's parameters and documents.

One type makes a response, its OpenAPI schema and the check of a body. A field that is `UNSET` is
left out. A number is null where it would be infinite or is unknown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field

from shoal.analysis.intervals import IntervalKind
from shoal.analysis.number_summary import NumberEstimate, Quantile
from shoal.planning.threats import Observer
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.http import MOST_ORIGINS
from shoal.server.core.openapi import Parameter
from shoal.server.core.public import PlanId
from shoal.server.core.tokens import LABEL, MOST_PLANS, Action, Role, Token
from shoal.server.storage.records import CrowdRecord, PlanRecord, Reason, State
from shoal.server.storage.windows import DAY

MAX_CROWDS = 60
"""Crowds of one trend."""
FORMATS = {
    "json": "application/json",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}
"""Media types of the formats of estimates."""

Json = dict[str, Any]
"""A document with a format of its own: a plan, a tally, a cross table."""
Progress = Annotated[int, Meta(ge=0, le=100, multiple_of=10)]
"""How full a crowd is in per cent; rounded, to hide the arrival of a single report."""
Part = Annotated[float, Meta(gt=0, lt=1)]
ConfidenceLevel = Annotated[float, Meta(ge=0.5, le=0.999999)]
"""A level is split between the options of a question, and its complement is the level of tests:
closer to 0 or 1, one of them would vanish."""
_CrowdNumber = Annotated[int, Meta(ge=1, le=2**53)]

NUMBER = Parameter[int](
    "number", "path", "The crowd's number.", _CrowdNumber, problem=problems.UNKNOWN_CROWD
)
TOKEN = Parameter[str]("token_id", "path", "The token's id.")
FORMAT = Parameter[str](
    "format", "query", "The format of the response.", Literal[tuple(FORMATS)], "json"
)
INTERVAL = Parameter[IntervalKind](
    "interval", "query", "The kind of interval.", IntervalKind, "exact"
)
LEVEL = Parameter[float]("level", "query", "The confidence level.", ConfidenceLevel, 0.95)
HONEST = Parameter[str](
    "honest", "query", "The honest part of a crowd: as the plan states, or all of it.",
    Literal["plan", "all"], "plan",
)  # fmt: skip
NEVER_PUBLISHED = Parameter[str](
    "never_published", "query", "After a restore: states that the plan was not published before.",
    Literal["no", "yes"], "no",
)  # fmt: skip
PAGE = Parameter[int](
    "page", "query", "The number of the page, from 0.", Annotated[int, Meta(ge=0, lt=10**9)], 0
)
QUESTION = Parameter[str]("question", "query", "The name of a question; by default the first.")
CROWDS = Parameter[int](
    "crowds", "query", "How many of the last released crowds.",
    Annotated[int, Meta(ge=2, le=MAX_CROWDS)], 12,
)  # fmt: skip
FIRST = Parameter[int](
    "first", "query", "The number of a crowd; by default the last released one.", _CrowdNumber
)
SECOND = Parameter[int](
    "second", "query", "The number of the other; by default the one before.", _CrowdNumber
)
OTHER = Parameter[str]("with_plan", "query", "The plan of the second crowd, if it is of another.")


class JsonObject(Struct, forbid_unknown_fields=True):
    """A JSON object with exactly these fields."""


def _document(name: str, /, **fields: Any) -> type[Struct]:
    """Return a document with one field or two."""
    return defstruct(name, list(fields.items()), forbid_unknown_fields=True)


# Plans


class PlanLine(JsonObject):
    """A plan in a list."""

    id: PlanId
    survey: str
    state: State
    reports_needed: int
    promise: Json
    view: str
    local_epsilon: float
    public: bool


def plan_fields(record: PlanRecord) -> Json:
    plan = record.plan
    return {
        "id": plan.id,
        "survey": plan.survey.name,
        "state": record.state,
        "reports_needed": plan.reports_needed,
        "promise": plan.promise.to_json(),
        "view": plan.view,
        "local_epsilon": plan.local_epsilon,
        "public": record.is_public,
    }


PlanList = _document("PlanList", plans=list[PlanLine])


class PlanDetail(PlanLine):
    observers: list[Observer] | None
    origins: list[str]
    plan: Json


OriginList = _document("OriginList", origins=Annotated[list[str], Meta(max_length=MOST_ORIGINS)])


class Publicity(JsonObject):
    """Whether the releases of a plan are public."""

    public: bool


# Crowds


class PlanProgress(JsonObject):
    state: State
    progress: Progress | None


class CrowdLine(JsonObject):
    """A crowd in a list; of an open one no more than its rounded progress."""

    number: int
    window: int
    state: Literal["open", "released", "discarded", "destroyed"]
    progress: Progress
    reports: int | UnsetType = UNSET
    unreadable: int | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    from_: str | UnsetType = field(name="from", default=UNSET)
    until: str | UnsetType = UNSET
    opened: date | UnsetType = UNSET


def crowd_fields(plan: Plan, crowd: CrowdRecord) -> Json:
    line = dict(vars(crowd))
    opened = line.pop("opened_day")
    line["opened"] = None if opened is None else time.strftime("%F", time.gmtime(opened * DAY))
    if plan.window is not None:
        for name, edge in (("from", crowd.window), ("until", crowd.window + 1)):
            moment = time.gmtime(edge * plan.window)
            line[name] = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    return {name: value for name, value in line.items() if value is not None}


CrowdList = _document("CrowdList", crowds=list[CrowdLine])


# Releases and their results


class ScreeningDocument(JsonObject):
    plan: PlanId
    reports: int
    crowds: int
    p_value: float
    alarm: float
    suspicious: bool
    smallest_share_of_fakes: float
    findings: list[str]


class ReleaseDocument(JsonObject):
    """A released crowd with its signed tally."""

    plan: PlanId
    number: int
    reports: int
    sha256: str
    signature: str
    signer: str
    screening: ScreeningDocument
    tally: Json
    state: Literal["released"] = "released"
    unreadable: int | UnsetType = UNSET


class CrowdOfTally(JsonObject):
    name: str | None
    window: int | None
    reports: int
    released: bool


class OptionEstimate(JsonObject):
    count: float
    share: float
    sigma: float
    low: float
    high: float
    constrained: float
    incompatible: bool | UnsetType = UNSET


class EstimatesDocument(JsonObject):
    plan: PlanId
    crowd_size: int | None
    reports: int
    crowds: list[CrowdOfTally]
    people: str | None
    q: float
    level: float
    interval: str
    target: str
    simulated: bool
    questions: dict[str, dict[str, OptionEstimate]]
    notes: list[str]


class NumberDocument(JsonObject):
    level: float
    limits: list[float] | None
    mean: NumberEstimate | None
    variance: NumberEstimate | None
    quantiles: list[Quantile]


class TextEstimate(JsonObject):
    value: str
    count: float
    sigma: float
    low: float
    high: float
    found: bool
    constrained: float
    same_as: list[str] | UnsetType = UNSET


class TextsDocument(JsonObject):
    question: str
    reports: int
    fdr: float
    level: float
    simulated: bool
    unexplained: float
    unexplained_sigma: float
    notes: list[str]
    alike: list[list[str]]
    candidates: list[TextEstimate]


class ResultsDocument(JsonObject):
    plan: PlanId
    number: int
    screening: ScreeningDocument
    estimates: EstimatesDocument
    numbers: dict[str, NumberDocument]
    crosses: dict[str, Json]
    texts: dict[str, TextsDocument]
    experiments: dict[str, Json]
    funnels: dict[str, Json]
    unreadable: int | UnsetType = UNSET


class TrendCrowd(JsonObject):
    reports: int
    crowds: list[CrowdOfTally]


class TrendShare(JsonObject):
    share: float
    constrained: float
    low: float
    high: float


class TrendDocument(JsonObject):
    plan: PlanId
    level: float
    interval: str
    simulated: bool
    crowds: list[TrendCrowd]
    questions: dict[str, dict[str, list[TrendShare]]]


class DifferenceSide(JsonObject):
    plan: PlanId
    reports: int
    crowds: list[CrowdOfTally]


class OptionDifference(JsonObject):
    first: float
    second: float
    first_constrained: float
    second_constrained: float
    difference: float
    sigma: float
    low: float
    high: float
    differs: bool


class DifferenceDocument(JsonObject):
    level: float
    interval: str
    simulated: bool
    first: DifferenceSide
    second: DifferenceSide
    questions: dict[str, dict[str, OptionDifference]]


class TextSearch(JsonObject):
    """Candidates for the answers to a text question; `shoal decode` takes more of them."""

    candidates: Annotated[list[str], Meta(min_length=1, max_length=100_000)]
    question: str | None = None
    fdr: Part = 0.05
    level: ConfidenceLevel = 0.95


# Planner


class SmallestGroup(JsonObject):
    people: int
    level: float
    power: float
    status: str


class ViewCost(JsonObject):
    q: float | None
    sigma: float | None
    half_width: float | None
    reason: str | None


class EffectDocument(JsonObject):
    level: float
    power: float
    least: float
    most: float
    in_words: str


class Prospect(JsonObject):
    """The promise of a prospective plan, and the cost of other trust models."""

    plan: Json
    q: float
    sigma: float
    reports_needed: int
    local_epsilon: float
    warnings: list[str]
    single_report: str | None
    smallest_group: SmallestGroup
    observers: list[Observer]
    views: dict[str, ViewCost]
    compare: Json | None
    crosses: dict[str, EffectDocument | None]


# Tokens, actions, backups, the service


@dataclass(frozen=True)
class TokenLine(Token):
    """A token in a list."""

    last_used: date | None = None


TokenList = _document("TokenList", tokens=list[TokenLine])


@dataclass(frozen=True)
class MadeToken(Token):
    """A new token with its secret."""

    token: str = ""


class NewToken(JsonObject):
    """A token to be made; only a relay's has a key."""

    role: Role
    label: Annotated[str, Meta(min_length=1, max_length=80, pattern=f"^{LABEL.pattern}$")]
    expires: date | None = None
    plans: Annotated[list[PlanId], Meta(min_length=1, max_length=MOST_PLANS)] | None = None
    key: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$")] | None = None


NEW_TOKEN = Annotated[
    NewToken,
    Meta(
        extra_json_schema={
            "if": {"required": ["key"], "properties": {"key": {"type": "string"}}},
            "then": {"properties": {"role": {"const": "relay"}}},
        }
    ),
]


ActionList = _document("ActionList", actions=list[Action])
BackupList = _document("BackupList", backups=list[str])

MadeBackup = _document("MadeBackup", name=str)


class ClockState(JsonObject):
    held: bool
    trusted: str
    shown: str


Health = _document("Health", status=str)
