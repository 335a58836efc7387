"""Both listeners of a relay in one process, until a signal comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.protocol.plan import Plan
from shoal.server.core.listeners import Listener, leave, run
from shoal.server.relay.analyzer_client import HttpAnalyzer
from shoal.server.relay.service import Relay
from shoal.server.relay.settings import RelaySettings

__all__ = ["serve_relay"]


def serve_relay(
    folder: Path | str,
    analyzer: str,
    settings: RelaySettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    analyzer_key: str | None = None,
    token_file: Path | None = None,
    allow_plain: bool = False,
    never_published: bool = False,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run a relay until it is told to stop.

    Parameters
    ----------
    folder, analyzer, settings
        Where its data are, the analyzer's URL, and how it runs.
    plans
        Plans whose reports it takes.
    analyzer_key, token_file
        The analyzer's signing key, and a file with the relay's token there.
    allow_plain
        Reach the analyzer over http on other machines too, where the network is trusted.
    never_published
        After a restore: states that these plans were not published before.
    ready
        Called with the two addresses, as URLs by the names `public` and `ops`, and the relay's own
        signing key by the name `key`.
    """
    settings = settings or RelaySettings()
    transport = HttpAnalyzer(analyzer, settings.forward_patience, allow_plain=allow_plain)
    relay = Relay(folder, transport, settings, analyzer_key=analyzer_key, token_file=token_file)

    async def begin() -> None:
        for plan in plans:
            await relay.publish(plan, never_published=never_published)
        await relay.check_deadlines()

    listeners = [
        Listener("public", settings.listen, lambda: relay.public),
        Listener("ops", settings.ops, lambda: relay.ops),
    ]
    run(
        relay,
        settings,
        listeners,
        begin=begin,
        ready=lambda urls: ready(urls | {"key": relay.signer.public_key}),
    )
    leave(relay)
