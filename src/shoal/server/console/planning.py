"""The planner's numbers: the promise of a survey, and its precision.

They are computed by the same functions as `shoal plan`, `shoal audit` and `shoal compare`. The
console runs this module as a process (see `planner`): a request comes in and the numbers go out, as
JSON.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from shoal.analysis.independence import InteractionTest
from shoal.errors import InputError, ShoalError
from shoal.planning.certificate import certify
from shoal.planning.costs import compare
from shoal.planning.plan import plan
from shoal.planning.threats import observers, single_report
from shoal.protocol.plan import VIEWS, Plan, Promise
from shoal.protocol.survey import Cross, Survey
from shoal.server.core.openapi import INVALID, invalid_field
from shoal.support.checks import shown
from shoal.theory.randomized_response import count_sigma, normal_factor

MAX_SURVEY_LENGTH = 64 << 10
"""Characters of a survey's TOML that the planner reads; `shoal plan` reads longer ones."""

MAX_REQUEST_SIZE = 4 * MAX_SURVEY_LENGTH
"""Bytes of a request: a character of the survey may be written as several."""

OUT_OF_MEMORY = 3
"""The exit code of the process when it runs out of memory."""

MAX_BITS = 512
"""The longest report that the planner computes with; `shoal plan` takes longer ones."""

EXAMPLE = """name = "browser"

[[question]]
name = "channel"
kind = "choice"
options = ["release", "beta", "nightly"]

[[question]]
name = "sync"
kind = "yes/no"

[[cross]]
questions = ["channel", "sync"]
"""

R = TypeVar("R")

_POWER = 0.8


class PlanRequestError(InputError):
    """A field of a request that is invalid."""

    def __init__(self, parameter: str, sentence: str) -> None:
        super().__init__(sentence)
        self.parameter = parameter


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A survey, the size of its crowd, and the promise it should have.

    `share` is the group of interest, as a part of the crowd. `compare` also asks for a trusted
    curator and for how many people are needed, which takes longer.
    """

    survey: Annotated[str, Meta(max_length=MAX_SURVEY_LENGTH, description="The survey as TOML.")]
    crowd: Annotated[int, Meta(ge=1)]
    epsilon: str
    delta: str
    view: Literal["reports", "counts"] = "reports"
    share: Annotated[float, Meta(gt=0, le=1)] = 0.01
    compare: bool = False


_RULES = {
    "survey": f"survey is TOML of at most {MAX_SURVEY_LENGTH:,} characters; use shoal plan for"
    " longer ones.",
    "crowd": "crowd is a whole number of people, at least 1.",
    "epsilon": "epsilon is a text.",
    "delta": "delta is a text.",
    "view": f"view is one of {', '.join(VIEWS)}.",
    "share": "share is a part of the crowd, above 0 and at most 1.",
    "compare": "compare is true or false.",
}


def check_request(document: object) -> PlanRequest:
    """Return a request from JSON values, all checked but the survey, which may take long."""
    try:
        wanted = msgspec.convert(document, PlanRequest)
    except INVALID as error:
        name = invalid_field(PlanRequest, error)
        if name is None:
            raise InputError(f"a plan to be computed has {', '.join(_RULES)}.") from error
        raise PlanRequestError(name, _RULES[name]) from error
    _about("epsilon", lambda: Promise("proven", wanted.epsilon, delta="1e-6"))
    _about("delta", lambda: Promise("proven", "1", delta=wanted.delta))
    return wanted


def _survey(wanted: PlanRequest) -> Survey:
    survey = _about("survey", lambda: Survey.from_toml(wanted.survey))
    if survey.bits > MAX_BITS:
        raise PlanRequestError(
            "survey",
            f"the planner takes reports of at most {MAX_BITS} bits, this survey has"
            f" {survey.bits:,}; use shoal plan.",
        )
    return survey


def form_request(fields: Mapping[str, str]) -> dict[str, object]:
    """Return the fields of a form, which are texts, as the values of a request."""
    crowd, share = fields["crowd"], fields["share"]
    try:
        numbers: dict[str, object] = {"crowd": int(crowd[:20]), "share": float(share)}
    except ValueError:
        raise InputError(
            f"crowd and share are numbers, got {shown(crowd)} and {shown(share)}."
        ) from None
    return dict(fields) | numbers | {"compare": fields.get("compare") == "yes"}


def _about(name: str, read: Callable[[], R]) -> R:
    """Read a field by the rules that plans have; an error is about this field."""
    try:
        return read()
    except InputError as error:
        raise PlanRequestError(name, str(error)) from error


def prospect(wanted: PlanRequest) -> dict[str, Any]:
    """Return the plan for a request, its precision, and the cost of other trust models."""
    survey = _survey(wanted)
    asked: dict[str, Any] = {
        "crowd_size": wanted.crowd, "epsilon": wanted.epsilon, "delta": wanted.delta
    }  # fmt: skip
    agreed = plan(survey, **asked, view=wanted.view)
    certificate = certify(agreed)
    visible = (normal_factor(0.95) + normal_factor(2 * _POWER - 1)) * certificate.sigma
    return {
        "plan": {"id": agreed.id} | agreed.to_json(),
        "q": float(agreed.q),
        "sigma": certificate.sigma,
        "local_epsilon": agreed.local_epsilon,
        "warnings": list(agreed.warnings),
        "single_report": single_report(agreed.local_epsilon, float(agreed.q)),
        "smallest_group": {
            "people": math.ceil(visible),
            "level": 0.95,
            "power": _POWER,
            "status": "approximate",
        },
        "observers": [one.to_json() for one in observers(certificate, float(wanted.epsilon))],
        "views": {
            "local": _cost(wanted, lambda: plan(survey, epsilon=wanted.epsilon, promise="local")),
            "reports": _cost(wanted, lambda: plan(survey, **asked, view="reports")),
            "counts": _cost(wanted, lambda: plan(survey, **asked, view="counts")),
        },
        "compare": (
            compare(survey, **asked, share=wanted.share).to_json() if wanted.compare else None
        ),
        "crosses": {cross.name: _power(agreed, cross) for cross in survey.crosses},
    }


def _cost(wanted: PlanRequest, make: Callable[[], Plan]) -> dict[str, Any]:
    """Return the noise of a plan for one trust model, or why there is none."""
    try:
        agreed = make()
    except ShoalError as error:
        return {"q": None, "sigma": None, "half_width": None, "reason": str(error)}
    q = float(agreed.q)
    sigma = count_sigma(wanted.crowd, q) if q < 0.5 else math.inf
    if not math.isfinite(sigma):
        return {"q": q, "sigma": None, "half_width": None, "reason": "reports would say nothing."}
    return {"q": q, "sigma": sigma, "half_width": normal_factor(0.95) * sigma, "reason": None}


def _power(agreed: Plan, cross: Cross) -> dict[str, Any] | None:
    """Return which effect the test of a cross would see, if all its cells were equally large."""
    if len(cross.sizes) != 2 or agreed.crowd_size is None:
        return None
    q, people = float(agreed.q), agreed.crowd_size
    table = np.full(cross.sizes, people / cross.bits)
    noise = np.eye(cross.bits) * people * q * (1 - q) / (1 - 2 * q) ** 2
    return InteractionTest(table, noise).sensitivity(0.05, _POWER).to_json()


def main(seconds: int, megabytes: int) -> None:
    _limit(seconds, megabytes)
    try:
        result = prospect(check_request(json.load(sys.stdin.buffer)))
    except ShoalError as error:
        parameter = error.parameter if isinstance(error, PlanRequestError) else None
        result = {"error": str(error), "parameter": parameter}
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.write(json.dumps(result))


def _limit(seconds: int, megabytes: int) -> None:
    """Limit the resources of this process; it also ends if its parent is gone."""
    with suppress(OSError):  # a service may not be allowed to
        os.nice(5)  # reports go first
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    statm = Path("/proc/self/statm")
    if statm.exists():  # memory can be limited on Linux only
        used = int(statm.read_text("ascii").split()[5]) * resource.getpagesize()
        most = used + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
