"""Both listeners in one process, until a signal comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvicorn

from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server.collector.service import Collector
from shoal.server.collector.workers import Workers, check_workers
from shoal.server.core.connections import Connection, Door, close_slow_ones
from shoal.server.core.observability import LOG, log_to
from shoal.server.core.problems import Problem
from shoal.server.core.service import App, Running
from shoal.server.core.settings import Settings, address, own_url, remove_addresses, write_addresses
from shoal.server.storage.records import Declaration

__all__ = ["Listener", "leave", "run", "serve"]


def serve(
    folder: Path | str,
    settings: Settings | None = None,
    *,
    plans: Sequence[Plan] = (),
    declaration: Declaration | None = None,
    origins: Sequence[str] | None = None,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
    kind: type[Collector] = Collector,
) -> None:
    """Run a collector until it is told to stop.

    Parameters
    ----------
    folder, settings
        Where its data are, and how it runs.
    plans
        Plans to publish at the start, if they are not yet.
    declaration
        What is stated about these plans when they are published.
    origins
        Origins of the web pages that may send reports for these plans; None leaves them as set.
    ready
        Called with the two addresses, as URLs by the names `public` and `console`.
    kind
        What runs: a collector, or an analyzer.
    """
    settings = settings or Settings()
    check_workers(settings)
    collector = kind(folder, settings)
    with (
        _bind("public", settings.public) as bound,
        Workers(Path(folder), settings, bound) as workers,
    ):

        async def begin() -> None:
            for plan in plans:
                await _publish(collector, plan, declaration)
                if origins is not None:
                    await collector.set_origins(plan.id, origins)
            workers.start()

        listeners = [
            Listener("public", settings.public, lambda: collector.public, bound),
            Listener("console", settings.console, lambda: collector.console),
        ]
        run(collector, settings, listeners, begin=begin, ready=ready, stopping=workers.stop)
    leave(collector)


class ServerSettings(Protocol):
    """What settings say about listeners."""

    @property
    def most_connections(self) -> int:
        """Most connections of one listener."""
        ...

    @property
    def patience(self) -> int:
        """Seconds that a request may take."""
        ...

    @property
    def shutdown_timeout(self) -> int:
        """Seconds within which the process ends."""
        ...

    @property
    def log_level(self) -> str:
        """From which level on lines are logged."""
        ...


class Listener(NamedTuple):
    """A listener: its name, its address, and the app, which exists when the service runs.

    `bound` is its socket, if there is one already.
    """

    name: str
    where: str
    app: Callable[[], App]
    bound: socket.socket | None = None


def run(
    service: Running,
    settings: ServerSettings,
    listeners: Sequence[Listener],
    *,
    begin: Callable[[], Awaitable[None]],
    ready: Callable[[dict[str, str]], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run a service until it is told to stop; the process then calls `leave`.

    Parameters
    ----------
    service, settings, listeners
        What runs, how, and where it answers.
    begin
        Called when the service runs, before anybody can reach it.
    ready
        Called with the addresses of the listeners, as URLs by their names.
    stopping
        Called when it is told to stop.
    """
    log_to(settings.log_level)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(_serve(service, settings, listeners, begin, ready, stopping))


def leave(service: Running) -> None:
    """End the process at once if a thread of the service did not end: Python waits for threads."""
    if service.is_stuck:
        LOG.error("stopped with work that did not end")
        logging.shutdown()
        os._exit(1)


async def _serve(
    service: Running,
    settings: ServerSettings,
    listeners: Sequence[Listener],
    begin: Callable[[], Awaitable[None]],
    ready: Callable[[dict[str, str]], None],
    stopping: Callable[[], None],
) -> None:
    async with AsyncExitStack() as held:
        sockets = {
            name: bound or held.enter_context(_bind(name, where))
            for name, where, _, bound in listeners
        }
        await held.enter_async_context(service)
        await begin()
        servers = {
            name: _Server(_config(app(), settings, service.refused))
            for name, _, app, _ in listeners
        }

        def stop() -> None:
            service.stop_soon()
            stopping()
            for server in servers.values():
                server.should_exit = True

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        running = [
            asyncio.create_task(server.serve(sockets=[sockets[name]]))
            for name, server in servers.items()
        ]
        while not all(server.started for server in servers.values()):
            await asyncio.sleep(0.01)
            for task in running:
                if task.done():
                    task.result()
        watching = asyncio.create_task(_watch(servers, settings.patience))
        LOG.info("ready")
        urls = {name: _url(bound) for name, bound in sockets.items()}
        held.callback(remove_addresses, service.folder)
        write_addresses(
            service.folder, {name: own_url(_address(bound)) for name, bound in sockets.items()}
        )
        ready(urls)
        await asyncio.gather(*running)
        watching.cancel()
    LOG.info("stopped")


class _Server(uvicorn.Server):
    """A server that leaves signals to us, since there are two of them."""

    def capture_signals(self) -> Any:
        return nullcontext()


def _config(
    app: App, settings: ServerSettings, refused: Callable[[Problem], None]
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection.at(Door(refused)),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=settings.most_connections,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=max(1, settings.shutdown_timeout // 2),
        backlog=4096,
    )


async def _watch(servers: dict[str, _Server], patience: int) -> None:
    while True:
        await asyncio.sleep(1)
        for server in servers.values():
            close_slow_ones(server.server_state.connections, patience)


async def _publish(collector: Collector, plan: Plan, declaration: Declaration | None) -> None:
    problem = await collector.add_plan(plan)
    record = collector.plan(plan.id)
    if problem is None and record is not None and record.state == "draft":
        problem = await collector.move_plan(plan.id, "published", declaration)
    if problem is not None:
        raise PrivacyRefusal(f"plan {plan.id[:12]} is not published: {problem.title}")


def _bind(name: str, where: str) -> socket.socket:
    host, port = address(where)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        raise InputError(f"cannot listen at {name} = {where}: {error.strerror}.") from error


def _url(bound: socket.socket) -> str:
    return f"http://{_address(bound)}"


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every system; the ordinary loop does the same
        return None
    return uvloop.new_event_loop
