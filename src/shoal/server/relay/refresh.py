"""Keeps what devices are told in step with what other relays on the same database do.

Another relay may have published a plan, and a device that is told that there is no such plan gives
its report up. So a plan that is not known here is looked up. And another relay may have filled the
crowd whose key is handed out here. So the keys are read again when somebody asks for one, at most
once a second; a report for an old key is refused with 412, and its sender asks again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress

from shoal.server.core import problems
from shoal.server.core.http import Receive, Scope
from shoal.server.core.limits import Allowance
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import App
from shoal.server.relay.plan_cache import Notices
from shoal.server.storage.database import StorageError

__all__ = ["following"]

LOOKUPS = 100
"""Plans in a second that the database is asked for because this relay does not know them."""
STALE_SECONDS = 1.0

_PLAN_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})(/crowd-key)?(?:/|$)")


def following(
    public: App,
    notices: Notices,
    refused: Callable[[Problem], None],
    clock: Callable[[], float] = time.monotonic,
) -> App:
    """Return the app of devices' listener that looks at the database where it must.

    Parameters
    ----------
    public
        The app that answers.
    notices
        What devices are told, and what reads it again.
    refused
        Called with each problem that is answered.
    clock
        Seconds, to tell how old keys are.
    """
    lookups, looked = Allowance(LOOKUPS, clock), [clock()]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        named = _PLAN_PATH.match(scope.get("path", ""))
        is_new = named is not None and not notices.knows(named[1])
        if named is not None and is_new:
            can_be_told = lookups.take(1)  # anybody can make up names
            if can_be_told:
                try:
                    await notices.look_up(named[1])
                except StorageError:
                    can_be_told = False  # it may have been published
            if not can_be_told:
                refused(problems.NOT_KNOWN_YET)
                await problems.NOT_KNOWN_YET.send(send, last=True)
                return
        elif named is not None and named[2] and clock() - looked[0] > STALE_SECONDS:
            looked[0] = clock()
            with suppress(StorageError):
                await notices.look_again()
        await public(scope, receive, send)

    return answer
