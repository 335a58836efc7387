"""Logs: one JSON object a line, about the service and never about a report.

Times are told to the minute, since a line may mark the report that completed a crowd.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["LOG", "log_to"]

LOG = logging.getLogger("shoal.server")


class _Lines(logging.Formatter):
    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        minute = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(self._clock() // 60 * 60))
        # The event loop's messages show the objects at hand, which hold what somebody sent.
        event = record.getMessage() if record.name != "asyncio" else "the event loop complains"
        line = {"time": minute, "level": record.levelname.lower(), "event": event}
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0] is not None:
            # Where it failed, but no message: it might hold what somebody sent.
            line["error"] = record.exc_info[0].__name__
            line["at"] = _place(record)
        return json.dumps(line, ensure_ascii=False)


def _place(record: logging.LogRecord) -> str:
    assert record.exc_info
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"


def log_to(
    level: str, stream: TextIO | None = None, clock: Callable[[], float] = time.time
) -> logging.Handler:
    """Send the collector's log, and the errors of what it runs on, to a stream.

    What uvicorn warns of are bad requests: whoever sends them could fill the disk with warnings.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(clock))
    for name in ("shoal.server", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper() if name == "shoal.server" else "ERROR")
        logger.propagate = False
    return handler
