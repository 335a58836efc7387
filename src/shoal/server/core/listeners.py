"""Runs a party's listeners in one process until a signal arrives."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from shoal.errors import InputError
from shoal.server.core.http_server import HttpServer
from shoal.server.core.observability import LOG, log_to
from shoal.server.core.service import Party
from shoal.server.core.settings import address, own_url, remove_addresses, write_addresses

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
