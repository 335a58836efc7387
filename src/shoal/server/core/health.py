"""What every service answers about itself: whether it works, its clock, its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from shoal.server.console.responses import json_answer
from shoal.server.core.errors import Refusal
from shoal.server.core.metrics import Metrics
from shoal.server.core.requests import token_of

if TYPE_CHECKING:
    from shoal.server.core.service import Running

__all__ = ["ServiceHandlers"]


class ServiceHandlers:
    """One method for each operation: a request to its answer."""

    def __init__(self, service: Running) -> None:
        self._service = service

    async def healthz(self, request: Request) -> Response:
        """Show that the process answers."""
        return json_answer({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """Show whether reports can be accepted."""
        problem = await self._service.obstacle()
        if problem is not None:
            raise Refusal(problem)
        return json_answer({"status": "ready"})

    async def clock(self, request: Request) -> Response:
        """Show whether the clock is trusted."""
        return json_answer(self._service.clock_line())

    async def accept_clock(self, request: Request) -> Response:
        """Trust the clock."""
        self._service.accept_clock(by=token_of(request).label)
        return json_answer(self._service.clock_line())

    async def metrics(self, request: Request) -> Response:
        """Show the metrics."""
        return Response(self._service.metrics_text(), media_type=Metrics.media_type)
