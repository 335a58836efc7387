"""The planner's numbers, and drafts of surveys, computed in processes with limits.

The numbers are those of `shoal plan`, `shoal audit` and `shoal compare`. A survey may come from
anyone with access to the console. Parsing and planning it can take long, so it never runs in the
process that accepts reports: `Planner` runs this module as a process, which gets a job as JSON and
writes its result. It ends when it exceeds a limit or when the client closes the connection.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from shoal.errors import InputError, PrivacyRefusal, ShoalError, WeakPromiseWarning
from shoal.protocol.plan import VIEWS, Plan, Promise
from shoal.protocol.survey import Cross, Survey
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.openapi import INVALID, invalid_field
from shoal.support.checks import seconds

if TYPE_CHECKING:
    from shoal.server.console.builder import Draft

SECONDS = 60
"""Wall-clock seconds of one computation."""
MEGABYTES = 1024
"""Memory of one computation, beside that of the program itself."""
AT_ONCE = 2
"""Computations at a time; more wait."""

MAX_SURVEY_LENGTH = 64 << 10
"""Characters of a survey's TOML that the planner reads; `shoal plan` reads longer ones."""
MAX_REQUEST_SIZE = 4 * MAX_SURVEY_LENGTH
"""Bytes of a request: a character of the survey may be written as several."""
MAX_BITS = 512
"""The longest report that the planner computes with; `shoal plan` takes longer ones."""

OUT_OF_MEMORY = 3
"""The exit code of the process when it runs out of memory."""

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
    """A survey, the size of its crowd, the promise it should have, and how it is deployed.

    `share` is the group of interest, as a part of the crowd. `compare` also asks for a trusted
    curator and for how many people are needed, which takes longer.
    """

    survey: Annotated[str, Meta(max_length=MAX_SURVEY_LENGTH, description="The survey as TOML.")]
    crowd: Annotated[int, Meta(ge=1)]
    epsilon: str
    delta: str
    view: Literal["reports", "counts"] = "reports"
    window: Annotated[str, Meta(description="How often a person is asked, such as 7d.")] | None = (
        None
    )
    honest: Annotated[str, Meta(description="The part of each crowd that is honest.")] | None = None
    relay: str | None = None
    analyzer: str | None = None
    accept_weak_promise: bool = False
    share: Annotated[float, Meta(gt=0, le=1)] = 0.01
    compare: bool = False


_RULES = {
    "survey": f"survey is TOML of at most {MAX_SURVEY_LENGTH:,} characters; use shoal plan for"
    " longer ones.",
    "crowd": "crowd is a whole number of people, at least 1.",
    "epsilon": "epsilon is a number above 0.",
    "delta": "delta is a number above 0 and below 1.",
    "view": f"view is one of {', '.join(VIEWS)}.",
    "share": "share is a part of the crowd, above 0 and at most 1.",
}


def check_request(document: object) -> PlanRequest:
    """Return a request from JSON values, all checked but the survey, which may take long."""
    wanted = _request(document)
    _about("epsilon", lambda: Promise("proven", wanted.epsilon, delta="1e-6"))
    _about("delta", lambda: Promise("proven", "1", delta=wanted.delta))
    if wanted.window is not None:
        _about("window", lambda: seconds(wanted.window or ""))
    return wanted


def _request(document: object, *, strict: bool = True) -> PlanRequest:
    try:
        return msgspec.convert(document, PlanRequest, strict=strict)
    except INVALID as error:
        name = invalid_field(PlanRequest, error)
        if name is None:
            fields = ", ".join(PlanRequest.__struct_fields__)
            raise InputError(f"a plan to be computed has {fields}.") from error
        raise PlanRequestError(name, _RULES.get(name, f"{name} is not of its type.")) from error


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
    given: dict[str, object] = {name: text for name, text in fields.items() if text}
    # Origins that are left in the form count only with the deployment that has them.
    apart = given.pop("deployment", "") == "relay"
    for name in ("relay", "analyzer"):
        if apart and name not in given:
            origin = f"https://{name}.example"
            raise PlanRequestError(name, f"give the origin of the {name}, as {origin}.")
        if not apart:
            given.pop(name, None)
    ticked = {name: given.get(name) == "yes" for name in ("compare", "accept_weak_promise")}
    return dict(msgspec.to_builtins(_request(given | ticked, strict=False)))


def _about(name: str, read: Callable[[], R]) -> R:
    """Read a field by the rules that plans have; an error is about this field."""
    try:
        return read()
    except InputError as error:
        raise PlanRequestError(name, str(error)) from error


def prospect(wanted: PlanRequest) -> dict[str, Any]:
    """Return the plan for a request, its precision, and the cost of other trust models."""
    from shoal.planning.certificate import certify
    from shoal.planning.costs import compare
    from shoal.planning.plan import plan
    from shoal.planning.threats import observers, single_report
    from shoal.theory.randomized_response import normal_factor

    survey = _survey(wanted)
    promised: dict[str, Any] = {
        "crowd_size": wanted.crowd, "epsilon": wanted.epsilon, "delta": wanted.delta
    }  # fmt: skip
    # Whether a weak promise is accepted is decided once, about the plan itself.
    asked = promised | {"accept_weak_promise": True}
    deployed: dict[str, Any] = {
        "relay": wanted.relay, "analyzer": wanted.analyzer, "window": wanted.window
    }  # fmt: skip
    try:
        agreed = plan(survey, **asked, **deployed, view=wanted.view, honest_fraction=wanted.honest)
    except InputError as error:
        for name in ("view", "window", "honest", "relay", "analyzer"):
            if str(error).startswith((name, f"{name}_")):
                raise PlanRequestError(name, str(error)) from error
        raise
    if not wanted.accept_weak_promise:
        _refuse_weak_promise(agreed)
    certificate = certify(agreed)
    visible = (normal_factor(0.95) + normal_factor(2 * _POWER - 1)) * certificate.sigma
    return {
        "plan": {"id": agreed.id} | agreed.to_json(),
        "q": float(agreed.q),
        "sigma": certificate.sigma,
        "reports_needed": agreed.reports_needed,
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
            "local": _cost(
                wanted,
                lambda: plan(
                    survey, epsilon=wanted.epsilon, promise="local", accept_weak_promise=True
                ),
            ),
            "reports": _cost(wanted, lambda: plan(survey, **asked, view="reports")),
            "counts": _cost(wanted, lambda: plan(survey, **asked, view="counts")),
        },
        "compare": (
            compare(survey, **promised, share=wanted.share).to_json() if wanted.compare else None
        ),
        "crosses": {cross.name: _power(agreed, cross) for cross in survey.crosses},
    }


def _refuse_weak_promise(agreed: Plan) -> None:
    """Refuse the promises that `shoal plan` refuses; the sentence says how to accept them."""
    from shoal.planning.plan import check_strength

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakPromiseWarning)  # the result has them
            check_strength(agreed, accept_weak_promise=False)
    except PrivacyRefusal as refusal:
        sentence = agreed.warnings[0].removesuffix(".")
        raise PlanRequestError(
            "accept_weak_promise", f"{sentence}, or accept this weak promise."
        ) from refusal


def _cost(wanted: PlanRequest, make: Callable[[], Plan]) -> dict[str, Any]:
    """Return the noise of a plan for one trust model, or why there is none."""
    from shoal.theory.randomized_response import count_sigma, normal_factor

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
    import numpy as np

    from shoal.analysis.independence import InteractionTest

    if len(cross.sizes) != 2 or agreed.crowd_size is None:
        return None
    q, people = float(agreed.q), agreed.crowd_size
    table = np.full(cross.sizes, people / cross.bits)
    noise = np.eye(cross.bits) * people * q * (1 - q) / (1 - 2 * q) ** 2
    return InteractionTest(table, noise).sensitivity(0.05, _POWER).to_json()


class Planner:
    """Computes plans and drafts, one at a time for each token, within limits."""

    def __init__(self, seconds: int = SECONDS, megabytes: int = MEGABYTES) -> None:
        self._seconds, self._megabytes = seconds, megabytes
        self._busy: set[str] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def prospect(
        self, wanted: object, token: str, hung_up: asyncio.Event | None = None
    ) -> dict[str, Any]:
        """Compute the plan for a request; `hung_up` is set when the client has gone."""
        check_request(wanted)
        return await self._run({"plan": wanted}, token, hung_up)

    async def draft(
        self, draft: Draft | str, token: str, hung_up: asyncio.Event | None = None
    ) -> dict[str, Any]:
        """Read a survey, from a form or as TOML; see `builder.checked`."""
        return await self._run({"draft": draft}, token, hung_up)

    async def _run(
        self, job: dict[str, Any], token: str, hung_up: asyncio.Event | None
    ) -> dict[str, Any]:
        if token in self._busy:
            raise Refusal(problems.PLANNER_BUSY)
        self._busy.add(token)
        work = asyncio.create_task(self._compute(job))
        gone = asyncio.create_task((hung_up or asyncio.Event()).wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Refusal(problems.HUNG_UP)
            result = work.result()
        finally:
            try:
                for task in (work, gone):
                    task.cancel()
                await asyncio.wait({work, gone})  # the process is gone before the next may start
            finally:
                self._busy.discard(token)
        if "error" not in result:
            return result
        if result["parameter"] is not None:
            raise PlanRequestError(result["parameter"], result["error"])
        raise InputError(result["error"])

    async def _compute(self, job: object) -> dict[str, Any]:
        limits = (str(self._seconds), str(self._megabytes))
        async with self._room:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", __name__, *limits),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(os.environ),
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(self._seconds):
                    out, errors = await process.communicate(json.dumps(job).encode())
            except TimeoutError:
                raise Refusal(problems.TOO_COSTLY) from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.communicate()
        code = process.returncode or 0
        if code == OUT_OF_MEMORY or code < 0:  # negative: ended by a signal
            raise Refusal(problems.TOO_COSTLY)
        if code:
            raise RuntimeError(f"the planner failed: {errors.decode(errors='replace')[-2000:]}")
        result: dict[str, Any] = json.loads(out)
        return result


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: no settings of the service, our modules, one thread."""
    kept = {name: text for name, text in own.items() if not name.startswith("SHOAL_")}
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return kept | threads | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def main(seconds: int, megabytes: int) -> None:
    _limit(seconds, megabytes)
    try:
        job = json.load(sys.stdin.buffer)
        if "plan" in job:
            result = prospect(check_request(job["plan"]))
        else:
            from shoal.server.console.builder import checked

            result = checked(job["draft"])
    except ShoalError as error:
        result = {"error": str(error), "parameter": getattr(error, "parameter", None)}
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
