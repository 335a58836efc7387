"""Runs a collector, or an analyzer, until a signal comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.errors import PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server.collector.service import Collector
from shoal.server.collector.workers import Workers, check_workers
from shoal.server.core.listeners import Listener, bind, leave, run
from shoal.server.core.settings import Settings
from shoal.server.storage.records import Declaration

__all__ = ["serve"]


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
        bind("public", settings.public) as bound,
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


async def _publish(collector: Collector, plan: Plan, declaration: Declaration | None) -> None:
    problem = await collector.add_plan(plan)
    record = collector.plan(plan.id)
    if problem is None and record is not None and record.state == "draft":
        problem = await collector.move_plan(plan.id, "published", declaration)
    if problem is not None:
        raise PrivacyRefusal(f"plan {plan.id[:12]} is not published: {problem.title}")
