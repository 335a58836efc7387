"""Runs a party's listeners in one process until a signal arrives.

A party without pages has the same API for its operators as others of its kind: plans, progress,
closing, clock and health.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import InputError
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.http_server import HttpServer
from shoal.server.core.observability import LOG, log_to
from shoal.server.core.openapi import Operated, Operation, ServiceHandlers, guarded_app, openapi
from shoal.server.core.problems import Problem
from shoal.server.core.public import PLAN
from shoal.server.core.service import Party
from shoal.server.core.settings import address, own_url, remove_addresses, write_addresses
from shoal.server.core.tokens import token_of
from shoal.server.storage.records import PlanRecord

Listeners = Mapping[str, str | socket.socket]
"""Where a party listens: the name of each of its apps, with an address or a socket."""


def run(
    party: Party,
    listeners: Listeners,
    *,
    begin: Callable[[], Awaitable[None]],
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run a party until a signal stops it; `begin` is called before it can be reached."""
    service, settings = party.service, party.service.settings

    async def serve() -> None:
        async with AsyncExitStack() as held:
            sockets = {
                name: held.enter_context(bind(name, where)) if isinstance(where, str) else where
                for name, where in listeners.items()
            }
            await held.enter_async_context(party)
            await begin()
            stopped = asyncio.Event()

            def stop() -> None:
                service.stop_soon()
                stopping()
                stopped.set()

            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop)
            urls = {name: f"http://{_address(bound)}" for name, bound in sockets.items()}
            local = {name: own_url(_address(bound)) for name, bound in sockets.items()}
            servers = []
            for name, bound in sockets.items():
                server = HttpServer(
                    getattr(party, name),
                    max_connections=settings.max_connections,
                    timeout=settings.request_timeout,
                    refused=service.refused,
                )
                await server.start(bound)
                servers.append(server)
            LOG.info("ready")
            held.callback(remove_addresses, service.folder)
            write_addresses(service.folder, local)
            ready(urls)
            await stopped.wait()
            grace = max(1, settings.shutdown_timeout // 2)
            await asyncio.gather(*(server.stop(grace) for server in servers))
        LOG.info("stopped")

    log_to(settings.log_level)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(serve())


def leave(party: Party) -> None:
    """End the process at once if a thread of the party did not end: Python waits for threads."""
    if party.service.is_stuck:
        LOG.error("stopped with work that did not end")
        logging.shutdown()
        os._exit(1)


def bind(name: str, where: str) -> socket.socket:
    host, port = address(where)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        raise InputError(f"cannot listen at {name} = {where}: {error.strerror}.") from error


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every system; the ordinary loop does the same
        return None
    return uvloop.new_event_loop


class OperatedParty(Operated, Protocol):
    @property
    def title(self) -> str: ...

    @property
    def plans(self) -> Mapping[str, PlanRecord]: ...

    async def crowds(self, plan_id: str) -> list[Any]: ...

    async def close_plan(self, plan_id: str, *, by: str) -> bool: ...

    async def read_metrics(self) -> None: ...


class OperatorHandlers(ServiceHandlers):
    """Handlers of the operations; `crowds` is the party's word for crowds."""

    def __init__(self, party: OperatedParty, crowds: str, ready: tuple[Problem, ...]) -> None:
        super().__init__(party)
        self._operated, self._crowds = party, crowds
        self.operations = _operations(crowds, ready)

    async def plans(self, request: Request) -> object:
        token = token_of(request)
        lines = [
            {"id": record.plan.id, "survey": record.plan.survey.name, "state": record.state}
            for record in self._operated.plans.values()
            if token.covers(record.plan.id)
        ]
        return {"plans": lines}

    def _plan_id(self, request: Request) -> str:
        plan_id: str = request.path_params["plan_id"]
        if plan_id not in self._operated.plans:
            raise Refusal(problems.UNKNOWN_PLAN)
        return plan_id

    async def crowds(self, request: Request) -> object:
        return {self._crowds: await self._operated.crowds(self._plan_id(request))}

    async def close(self, request: Request) -> object:
        plan_id = self._plan_id(request)
        if not await self._operated.close_plan(plan_id, by=token_of(request).label):
            raise Refusal(problems.WRONG_STATE)
        return {"id": plan_id, "state": "closed"}

    async def metrics(self, request: Request) -> Response:
        await self._operated.read_metrics()
        return await super().metrics(request)

    async def openapi(self, request: Request) -> object:
        summary = f"Health, metrics, and the progress of {self._crowds}."
        return openapi(self.operations, self._operated.title, summary)


def _operations(crowds: str, ready: tuple[Problem, ...]) -> tuple[Operation, ...]:
    handlers, plan = OperatorHandlers, "/v1/plans/{plan_id}"
    return (
        Operation("GET", "/v1/plans", "viewer", "List plans and their states.", handlers.plans),
        Operation(
            "GET", f"{plan}/{crowds}", "viewer",
            f"A plan's {crowds}; of an open one only its progress in per cent.",
            handlers.crowds, (PLAN,), problems=(problems.UNKNOWN_PLAN,),
        ),
        Operation(
            "POST", f"{plan}/close", "admin",
            f"Close: take no more reports, and discard incomplete {crowds}.",
            handlers.close, (PLAN,), problems=(problems.UNKNOWN_PLAN, problems.WRONG_STATE),
        ),
        Operation("GET", "/v1/clock", "viewer", "Whether the clock is trusted.", handlers.clock),
        Operation(
            "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
            handlers.accept_clock,
        ),
        Operation("GET", "/openapi.json", None, "This document.", handlers.openapi),
        Operation("GET", "/healthz", None, "Whether the process answers.", handlers.healthz),
        Operation(
            "GET", "/readyz", None, "Whether reports can be accepted.", handlers.readyz,
            problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD, *ready),
        ),
        Operation("GET", "/metrics", None, "Prometheus metrics.", handlers.metrics,
                  media=("text/plain",)),
    )  # fmt: skip


def operator_app(party: OperatedParty, crowds: str, ready: tuple[Problem, ...] = ()) -> Starlette:
    """Return the app of a party's operators; `ready` are its own reasons for not being ready."""
    handlers = OperatorHandlers(party, crowds, ready)
    return guarded_app(handlers.operations, handlers, party.service)
