"""Group commit: uploads that arrive during one transaction go into the next.

A write to the disk takes as long for one report as for a thousand. So uploads wait while a commit
is under way and then go together; they are answered when they are on the disk. If too many wait,
new ones are refused at once. Small uploads do not queue behind large ones: a single report gets
through however many full batches others send.

Every commit does the same work, except when reports fall into two crowds, which cannot be avoided.
By measuring response times one could count the reports of others. So a commit behind which no other
upload waits is answered at a tick, whatever it had to do.

The data may be slow, or not respond at all. So every upload gets a response within `timeout`
seconds: one that still waits is removed from the queue; for one that is being committed, it is
unknown whether it counts. Its sender retries with the same bytes, and duplicates are recognized.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import StorageError, StorageFull

__all__ = ["Committer"]

MAX_PER_COMMIT = 10_000
"""Reports in one commit; a larger upload goes by itself."""

SHORTEST_TICK, LONGEST_TICK = 2**-8, 2**-4
"""Seconds between two moments at which a lone commit is answered: 4 to 62 milliseconds."""

_LONE = 4
"""Uploads of a commit that is answered at a tick; larger ones take longer by themselves."""


_WATCH = 0.5
"""Seconds between two checks for uploads that have waited too long."""

U = TypeVar("U")


class Waiting(NamedTuple, Generic[U]):
    """An upload, its answer to come, and when it is answered at the latest."""

    upload: U
    answer: asyncio.Future[Problem | None]
    due: float


Accept = Callable[[Sequence[U]], Awaitable[list[Problem | None]]]


class Committer(Generic[U]):
    """Gathers uploads and hands them on in groups, one group at a time.

    Parameters
    ----------
    accept
        Takes a group of uploads durably and answers for each.
    max_queued_reports
        How many reports may wait before new ones are refused.
    size
        The size of an upload: its reports, or another limited quantity.
    timeout
        Seconds until an upload is answered at the latest.
    """

    def __init__(
        self,
        accept: Accept[U],
        max_queued_reports: int,
        size: Callable[[U], int],
        timeout: float,
    ) -> None:
        self._accept, self._max_queued, self._size = accept, max_queued_reports, size
        self._timeout = timeout
        self._uploads: list[Waiting[U]] = []
        self._group: list[Waiting[U]] = []
        self._waiting = 0
        self._smallest_first = False
        self._wake = asyncio.Event()
        self._stopping = False
        self._times: deque[float] = deque(maxlen=63)

    @property
    def fill(self) -> float:
        """Which part of the reports that may wait are waiting."""
        return self._waiting / self._max_queued

    async def submit(self, upload: U) -> Problem | None:
        """Return when the upload is on the disk, or with the problem why it is not."""
        if self._stopping:
            return problems.STOPPING
        count = self._size(upload)
        if self._waiting + count > self._max_queued and self._is_full_for(count):
            return problems.BUSY
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Problem | None] = loop.create_future()
        self._uploads.append(Waiting(upload, answer, loop.time() + self._timeout))
        self._waiting += count
        self._wake.set()
        return await answer

    async def run(self) -> None:
        """Commit group after group until stopped and empty."""
        try:
            while not self._stopping or self._uploads:
                await self._wake.wait()
                self._wake.clear()
                while self._uploads:
                    await self._commit(self._next_group())
        finally:  # if it is cancelled, no upload is left waiting
            self._expire(math.inf)

    def stop(self) -> None:
        """Accept no more uploads; queued ones are still committed."""
        self._stopping = True
        self._wake.set()

    def _is_full_for(self, size: int) -> bool:
        """Whether too many reports wait; those of larger uploads do not keep a small one out."""
        sizes = [self._size(one.upload) for one in self._uploads]
        waiting = sum(one for one in sizes if one <= size)
        return waiting > 0 and waiting + size > self._max_queued

    def _next_group(self) -> list[Waiting[U]]:
        """Return the uploads of the next commit: the smallest and the oldest in turn."""
        queue = self._uploads
        self._smallest_first = not self._smallest_first
        if self._waiting <= MAX_PER_COMMIT:
            self._uploads, self._waiting = [], 0
            return queue
        if self._smallest_first:
            queue = sorted(queue, key=lambda waiting: self._size(waiting.upload))
        group, size = [queue[0]], self._size(queue[0].upload)
        for one in queue[1:]:
            more = self._size(one.upload)
            if size + more > MAX_PER_COMMIT:
                break
            group.append(one)
            size += more
        chosen = set(map(id, group))
        self._uploads = [one for one in self._uploads if id(one) not in chosen]
        self._waiting -= size
        return group

    async def _commit(self, group: list[Waiting[U]]) -> None:
        answers: Sequence[Problem | None]
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._group = group
        self._watching = loop.call_later(_WATCH, self._watch)
        try:
            answers = await self._accept([one.upload for one in group])
        except StorageFull:
            answers = [problems.STORAGE_FULL] * len(group)
        except StorageError:
            answers = [problems.UNAVAILABLE] * len(group)
        except Exception:
            answers = [problems.INTERNAL] * len(group)
        finally:
            self._watching.cancel()
        self._group = []
        if self._uploads or len(group) > _LONE:
            _answer(group, answers)
            return
        took = loop.time() - began
        tick = self._tick(took)
        loop.call_at(began + math.ceil(took / tick) * tick, _answer, group, answers)

    def _watch(self) -> None:
        """Answer uploads that have waited too long, and check again soon."""
        loop = asyncio.get_running_loop()
        self._expire(loop.time())
        self._watching = loop.call_later(_WATCH, self._watch)

    def _expire(self, now: float) -> None:
        """Answer uploads that are due; those that have not begun are never committed."""
        late = [one for one in self._group if one.due <= now]
        if self._uploads and self._uploads[0].due <= now:  # the oldest is first
            late += [one for one in self._uploads if one.due <= now]
            self._uploads = [one for one in self._uploads if one.due > now]
            self._waiting = sum(self._size(one.upload) for one in self._uploads)
        _answer(late, [problems.UNAVAILABLE] * len(late))

    def _tick(self, took: float) -> float:
        """Return the time between answers: twice what a commit usually takes, or a little more."""
        self._times.append(took)
        usual = sorted(self._times)[len(self._times) // 2]
        tick = SHORTEST_TICK
        while tick < min(2 * usual, LONGEST_TICK):
            tick *= 2
        return tick


def _answer(group: Sequence[Waiting[U]], answers: Sequence[Problem | None]) -> None:
    for one, answer in zip(group, answers, strict=True):
        if not one.answer.done():  # the sender may have gone, or the time was over
            one.answer.set_result(answer)
