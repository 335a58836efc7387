"""The public listener of a party: signed documents, one endpoint for reports or chunks, results."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Coroutine
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Protocol

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from shoal.analysis.tally import Tally
from shoal.protocol.plan import Plan
from shoal.reports.formatting import slug
from shoal.reports.site import MEDIA, SiteRelease, is_immutable, site_pages, write_pages
from shoal.server.core import problems
from shoal.server.core.administration import Administration
from shoal.server.core.http import App, Receive, Refusal, Scope, first, send_response, with_cors
from shoal.server.core.observability import LOG
from shoal.server.core.openapi import (
    Operation,
    Parameter,
    json_response,
    make_app,
    openapi,
    signed_response,
)
from shoal.server.core.problems import Problem, Send
from shoal.server.core.settings import RESULTS
from shoal.server.storage.key_file import Signer
from shoal.server.storage.records import PlanRecord, ReleaseLine

PlanId = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
PLAN = Parameter[str]("plan_id", "path", "The plan's id.", PlanId)
AN_HOUR = "public, max-age=3600"
"""How long a signed document may be cached; after that the signing key may have changed."""


class PublicEndpoint(Protocol):
    """The endpoint for reports or chunks; its operations are served by `handle`."""

    title: str
    summary: str

    @property
    def operations(self) -> tuple[Operation, ...]: ...

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request if its path is the endpoint's; return whether it was."""
        ...


def public_app(
    endpoint: PublicEndpoint,
    documents: tuple[Operation, ...],
    refused: Callable[[Problem], None],
    origins: Callable[[str | None], Collection[str]],
) -> App:
    """Return the ASGI app of an endpoint and of documents; for `origins` see `with_cors`."""

    async def document(request: Request) -> Response:
        return json_response(openapi(every, endpoint.title, endpoint.summary))

    served = (*documents, Operation("GET", "/openapi.json", None, "This document.", document))
    every = (*endpoint.operations, *served)
    others = make_app(served, lambda operation: operation.handler, refused)
    return with_cors(first(endpoint.handle, others), origins)


class PublishedPlans(Protocol):
    """The plans of a party that signs its documents."""

    @property
    def signer(self) -> Signer: ...

    def published(self, plan_id: str) -> PlanRecord | None:
        """Return a plan that was published at some time."""
        ...

    def refused(self, problem: Problem) -> None: ...

    def origins(self, plan_id: str | None) -> Collection[str]: ...


def make_public(administration: PublishedPlans, endpoint: PublicEndpoint) -> App:
    """Return the public app of a party that signs its documents."""
    signer = administration.signer

    def published(request: Request) -> PlanRecord:
        record = administration.published(request.path_params["plan_id"])
        if record is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def plan(request: Request) -> Response:
        document = published(request).document
        return signed_response(json.dumps(document, ensure_ascii=False).encode(), signer, AN_HOUR)

    async def certificate(request: Request) -> Response:
        content = published(request).certificate
        assert content is not None
        return signed_response(content, signer, AN_HOUR)

    async def keys(request: Request) -> Response:
        links = [link._asdict() for link in signer.links]
        signing = signer.signing_keys
        expired = [key for key in signer.public_keys if key not in signing]
        return json_response({"ed25519": signing, "expired": expired, "links": links})

    documents = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A published plan, signed.", plan, (PLAN,)
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None, "The signed certificate of the plan.",
            certificate, (PLAN,),
        ),
        Operation("GET", "/v1/keys", None, "The keys that sign, and the expired ones.", keys),
    )  # fmt: skip
    return public_app(endpoint, documents, administration.refused, administration.origins)


_SHORTLY = b"public, max-age=300"
_FOR_EVER = b"public, max-age=31536000, immutable"
_RESULT = re.compile(r"/results((?:/[a-z0-9-]{1,80}){0,4})(/|/[a-z0-9-]{1,80}\.[a-z]{1,5})?")
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)
_SAFE_RESULT = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"access-control-allow-origin", b"*"),  # it is for everybody
    (b"cross-origin-resource-policy", b"cross-origin"),
]


class PublicResults:
    """Writes the releases of public plans to a folder as a site, and serves its files.

    Pages are made when a crowd is released or a plan changes. A request reads one file.
    """

    def __init__(self, administration: Administration, folder: Path) -> None:
        self._administration, self._service = administration, administration.service
        self._folder, self._stopped = folder, False
        self._shown: object = None

    async def run(self) -> None:
        thread, changed = self._service.add_thread("results"), self._administration.changed
        changed.set()
        try:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    listed = await self._service.on_store_thread(self._releases)
                    if listed != self._shown:
                        await thread.run(self._write, listed)
                        self._shown = listed
                except Exception as error:  # the next sweep tries again
                    LOG.error("public results were not written", exc_info=error)
        finally:
            self._stopped = True

    def remove(self) -> None:
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def _releases(self) -> list[tuple[Plan, ReleaseLine]]:
        store = self._administration.store
        return [
            (record.plan, line)
            for record in self._administration.public_plans()
            for line in store.release_lines(record.plan.id)
        ]

    def _write(self, listed: list[tuple[Plan, ReleaseLine]]) -> None:
        releases = [
            SiteRelease.of_crowd(
                plan,
                line._asdict(),
                time.strftime("%Y-%m-%d", time.gmtime(line.day * 86_400)),
                partial(self._read, plan, line.number),
            )
            for plan, line in listed
        ]
        change = write_pages(self._folder, site_pages(releases), stopped=lambda: self._stopped)
        facts = {"written": len(change.written), "removed": len(change.removed)}
        LOG.info("public results written", extra={"facts": facts})

    def _read(self, plan: Plan, number: int) -> Tally:
        content = self._service.wait_for_store(self._administration.store.release, plan.id, number)
        if content is None:
            raise Refusal(problems.CROWD_GONE)
        return Tally.from_json(json.loads(content), plan)

    # Requests

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request for a file of the site; return whether it was one."""
        path: str = scope["path"]
        if not (path == f"/{RESULTS}" or path.startswith(f"/{RESULTS}/")):
            return False
        found = _RESULT.fullmatch(path)
        problem = problems.NOT_FOUND
        if scope["method"] not in ("GET", "HEAD"):
            problem = problems.ONLY_GET
        elif found is not None and self._is_public(path.split("/")[2:]):
            folder, last = found[1], found[2]
            if last is None:  # a relative redirect does not repeat the request's host
                location = f"{path.rpartition('/')[2]}/".encode()
                await send_response(send, 308, b"", [(b"location", location)])
                return True
            address = f"{folder}/index.html" if last == "/" else f"{folder}{last}"
            if await self._send_file(address[1:], dict(scope["headers"]), send):
                return True
        self._service.refused(problem)
        await problem.send(send)
        return True

    def _is_public(self, parts: list[str]) -> bool:
        """Whether an address is the site's, or that of a plan that is public now."""
        if len(parts) < 2:
            return True
        plans = [one.plan for one in self._administration.public_plans()]
        plans = [one for one in plans if slug(one.survey.name) == parts[0]]
        if len(parts) > 2 and is_immutable("/".join(parts)):
            return any(parts[2].startswith(f"{one.id[:12]}-") for one in plans)
        return bool(plans)

    async def _send_file(self, address: str, headers: dict[bytes, bytes], send: Send) -> bool:
        """Send a file of the site, or that it has not changed; return whether there is one."""
        media = MEDIA.get(Path(address).suffix)
        if media is None:
            return False
        try:
            content, tag, policy = await asyncio.to_thread(_read_result, self._folder / address)
        except (FileNotFoundError, NotADirectoryError):
            return False
        kept = _FOR_EVER if is_immutable(address) else _SHORTLY
        cached = [(b"etag", tag), (b"cache-control", kept), *_SAFE_RESULT]
        known = re.findall(rb'\*|"[^"]*"', headers.get(b"if-none-match", b""))
        if tag in known or b"*" in known:
            await send({"type": "http.response.start", "status": 304, "headers": cached})
            await send({"type": "http.response.body", "body": b""})
            return True
        about = [(b"content-type", media.encode()), (b"content-security-policy", policy)]
        await send_response(send, 200, content, [*about, *cached])
        return True


def with_results(
    public: App, administration: Administration, folder: Path, *, on: bool, writes: bool = True
) -> tuple[App, list[Coroutine[Any, Any, None]]]:
    """Return the public app with the results in a folder if they are on, and what writes them."""
    results = PublicResults(administration, folder)
    if not on:
        if writes:
            results.remove()
        return public, []
    return first(results.handle, public), [results.run()] if writes else []


def _read_result(path: Path) -> tuple[bytes, bytes, bytes]:
    known = path.stat()
    return _cached_result(path, known.st_mtime_ns, known.st_size)


@lru_cache(64)
def _cached_result(path: Path, *version: int) -> tuple[bytes, bytes, bytes]:
    content = path.read_bytes()
    return content, b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode(), _policy(content)


def _policy(content: bytes) -> bytes:
    """Return the policy of a page: nothing but its own style, which is named by its hash."""
    style = _STYLE.search(content)
    allowed = b""
    if style is not None:
        digest = base64.b64encode(hashlib.sha256(style[1]).digest())
        allowed = b"; style-src 'sha256-%s'" % digest
    rest = b"; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    return b"default-src 'none'" + allowed + rest
