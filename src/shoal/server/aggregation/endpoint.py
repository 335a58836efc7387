"""HTTP of DAP below its resources: addresses, media types, who may ask, responses, problems."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from shoal.errors import ReportError
from shoal.protocol.dap import bytes_of
from shoal.protocol.dap.messages import (
    MEDIA_TYPE,
    TASK_ID_BYTES,
    BatchMode,
    CollectionJobReq,
    HpkeConfigList,
    Message,
    are_in_order,
)
from shoal.protocol.signatures import key_text
from shoal.server.aggregation.store import OpenTask
from shoal.server.core import problems
from shoal.server.core.http import (
    BodyBudget,
    Headers,
    Receive,
    Refusal,
    Scope,
    problem_of,
    read_body,
    send_response,
)
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import Service
from shoal.server.core.tokens import bearer_token

M = TypeVar("M", bound=Message)

BUDGET = 64 << 20
"""Bytes of all requests under way, beyond small ones."""

_PATH = re.compile(
    r"/dap/([A-Za-z0-9_-]{43})/(?:(hpke_config)|tasks/([A-Za-z0-9_-]{43})/(\w+)"
    r"(?:/([A-Za-z0-9_-]{1,64}))?)"
)


@dataclass(frozen=True)
class DapProblem(Problem):
    """A problem whose type the draft defines; it names the task if it is one of ours."""

    task: str = ""

    @cached_property
    def body(self) -> bytes:
        document = {
            "type": f"urn:ietf:params:ppm:dap:error:{self.name}",
            "title": self.title,
            "status": self.status,
        }
        return json.dumps(document | ({"taskid": self.task} if self.task else {})).encode()


INVALID_MESSAGE = DapProblem(400, "invalidMessage", "The message cannot be parsed.")
UNRECOGNIZED_TASK = DapProblem(404, "unrecognizedTask", "There is no such task here.")
STEP_MISMATCH = DapProblem(
    400, "stepMismatch", "Prio3 has one step: an aggregation job is not continued."
)
UNSUPPORTED_EXTENSION = DapProblem(
    400, "unsupportedExtension", "An extension of the request is not known."
)
INVALID_EXTENSION = DapProblem(
    400, "invalidExtension", "The extensions are out of order, or one of them is malformed."
)
INVALID_PARAMETER = DapProblem(
    400, "invalidAggregationParameter", "Prio3 has no aggregation parameter."
)
BATCH_INVALID = DapProblem(
    400, "batchInvalid", "There is no such batch, or its reports are not of one open window."
)
INVALID_BATCH_SIZE = DapProblem(
    400, "invalidBatchSize", "The batch has fewer reports than the crowd needs."
)
BATCH_MISMATCH = DapProblem(
    400, "batchMismatch", "The aggregators have different reports in this batch."
)
BATCH_OVERLAP = DapProblem(400, "batchOverlap", "The batch was collected before, or discarded.")


class DapRequest(NamedTuple):
    """A request for a resource of a task; `name` is empty where one is created."""

    plan_id: str
    resource: str
    name: str
    method: str
    headers: Headers


class DapResponse(NamedTuple):
    """A response; without a message it is empty, and says where to ask again."""

    message: Message | bytes | None = None
    media_type: str = ""
    location: str = ""
    retry_after: int | None = None
    cache: str = "no-store"


Answer = Callable[[DapRequest, Receive], Awaitable[DapResponse]]


class DapEndpoint:
    """Responds to requests of DAP; a role adds its resources."""

    def __init__(self, service: Service, tasks: Callable[[str], OpenTask | None]) -> None:
        self._service, self._tasks = service, tasks
        self._budget = BodyBudget(BUDGET)
        self.resources: dict[tuple[str, str], Answer] = {("GET", "hpke_config"): self._keys}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request if its path is DAP's; return whether it was."""
        path = _PATH.fullmatch(scope["path"])
        if path is None:
            return False
        try:
            response = await self._answer(path, scope, receive)
        except ReportError:
            await self._refuse(INVALID_MESSAGE, path[1], send)
        except Exception as error:
            await self._refuse(problem_of(error), path[1], send)
        else:
            await self._respond(response, send)
        return True

    async def _answer(self, path: re.Match[str], scope: Scope, receive: Receive) -> DapResponse:
        base, keys, task, resource, name = path.groups()
        task_id = bytes_of(base, TASK_ID_BYTES)
        if task_id is None or (keys is None and task != base):
            raise Refusal(UNRECOGNIZED_TASK)
        kind = f"{resource}/" if name else keys or resource
        answer = self.resources.get((scope["method"], kind))
        if answer is None:
            allowed = ", ".join(method for method, one in self.resources if one == kind)
            wrong = replace(problems.WRONG_METHOD, allow=allowed)
            raise Refusal(wrong if allowed else problems.NOT_FOUND)
        request = DapRequest(
            task_id.hex(),
            kind,
            name or "",
            scope["method"],
            dict(scope["headers"]),
        )
        return await answer(request, receive)

    async def _respond(self, response: DapResponse, send: Send) -> None:
        headers = [(b"cache-control", response.cache.encode())]
        content, media = b"", response.media_type
        if isinstance(response.message, bytes):
            content = response.message
        elif response.message is not None:
            content, media = response.message.to_bytes(), response.message.media_type
        if content:
            headers.append((b"content-type", f"{MEDIA_TYPE};message={media}".encode()))
        if response.location:
            headers.append((b"location", response.location.encode()))
        if response.retry_after is not None:
            headers.append((b"retry-after", b"%d" % response.retry_after))
        await send_response(send, 200, content, headers)

    async def _refuse(self, problem: Problem, task: str, send: Send) -> None:
        self._service.refused(problem)
        task_id = bytes_of(task, TASK_ID_BYTES)
        if isinstance(problem, DapProblem) and task_id and self._tasks(task_id.hex()):
            problem = replace(problem, task=task)
        await problem.send(send, last=True)  # the rest of a body is not read

    def task(self, request: DapRequest) -> OpenTask:
        found = self._tasks(request.plan_id)
        if found is None:
            raise Refusal(UNRECOGNIZED_TASK)
        return found

    async def _keys(self, request: DapRequest, receive: Receive) -> DapResponse:
        """Give out the keys of open windows, that of this window first."""
        opened = self.task(request)
        if not opened.keys:  # it is closed, or its windows have not begun since a restore
            raise Refusal(UNRECOGNIZED_TASK)
        window = opened.task.plan.window
        assert window is not None
        now = int(self._service.clock() // window)
        order = sorted(opened.keys, key=lambda one: (one != now, one))
        keys = HpkeConfigList(tuple(opened.keys[one].public for one in order))
        # A device that kept the list for longer might take it for that of the next window.
        left = window - int(self._service.clock()) % window
        return DapResponse(keys, cache=f"public, max-age={min(left, 3600)}")

    async def read(
        self, request: DapRequest, receive: Receive, kind: type[M], largest: int
    ) -> tuple[M, bytes]:
        """Read the body of a request: a message of one kind, and its bytes."""
        declared = request.headers.get(b"content-type", b"").decode("latin-1")
        words = [word.strip() for word in declared.lower().split(";")]
        if words != [MEDIA_TYPE, f"message={kind.media_type}"]:
            raise Refusal(problems.WRONG_TYPE)
        with self._budget.share() as share:
            body = await read_body(receive, request.headers, largest, share)
            if isinstance(body, Problem):
                raise Refusal(body)
            return await self._service.upload_thread.run(kind.from_bytes, body), body


def digest_of(request: DapRequest, content: bytes) -> bytes:
    """Return the digest by which a request to a task is recognized when it comes again."""
    return hashlib.sha256(bytes.fromhex(request.plan_id) + content).digest()


def location(request: DapRequest, name: bytes) -> str:
    """Return where a resource is that a request created."""
    task = key_text(bytes.fromhex(request.plan_id))
    return f"/dap/{task}/tasks/{task}/{request.resource}/{key_text(name)}"


def check_secret(request: DapRequest, expected: str) -> None:
    """Refuse a request that does not show the secret of the other aggregator."""
    shown = bearer_token(request.headers) or ""
    digests = [hashlib.sha256(text.encode()).digest() for text in (shown, expected)]
    if not hmac.compare_digest(*digests):
        raise Refusal(problems.NO_TOKEN)


def check_collection(request: CollectionJobReq) -> None:
    """Refuse to collect anything but the next batch."""
    if request.query.batch_mode != BatchMode.LEADER_SELECTED or request.query.config:
        raise Refusal(INVALID_MESSAGE)
    if request.agg_param:
        raise Refusal(INVALID_PARAMETER)
    if request.extensions:
        known = are_in_order(request.extensions)
        raise Refusal(UNSUPPORTED_EXTENSION if known else INVALID_EXTENSION)
