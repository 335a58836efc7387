"""Compute plans in separate processes, with limits on time and memory.

A survey may come from anyone with access to the console. Parsing and planning it can take long,
so it never runs in the process that accepts reports. A computation ends, and its process with it,
when it exceeds a limit or when the client closes the connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from shoal.errors import InputError
from shoal.server.console import planning
from shoal.server.console.planning import PlanRequestError, check_request
from shoal.server.core import problems
from shoal.server.core.http import Refusal

SECONDS = 60
"""Wall-clock seconds of one computation."""
MEGABYTES = 1024
"""Memory of one computation, beside that of the program itself."""
AT_ONCE = 2
"""Computations at a time; more wait."""


class Planner:
    """Computes plans, one at a time for each token, within limits of time and memory."""

    def __init__(self, seconds: int = SECONDS, megabytes: int = MEGABYTES) -> None:
        self._seconds, self._megabytes = seconds, megabytes
        self._busy: set[str] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def prospect(
        self, wanted: object, token: str, hung_up: asyncio.Event | None = None
    ) -> dict[str, Any]:
        """Compute the plan for a request; `hung_up` is set when the client has gone."""
        check_request(wanted)
        if token in self._busy:
            raise Refusal(problems.PLANNER_BUSY)
        self._busy.add(token)
        work = asyncio.create_task(self._compute(wanted))
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

    async def _compute(self, wanted: object) -> dict[str, Any]:
        limits = (str(self._seconds), str(self._megabytes))
        async with self._room:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", planning.__name__, *limits),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(os.environ),
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(self._seconds):
                    out, errors = await process.communicate(json.dumps(wanted).encode())
            except TimeoutError:
                raise Refusal(problems.TOO_COSTLY) from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.communicate()
        code = process.returncode or 0
        if code == planning.OUT_OF_MEMORY or code < 0:  # negative: ended by a signal
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
