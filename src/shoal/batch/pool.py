"""Processes that work on pieces, one piece at a time each, and end with whoever started them.

Each has a pipe of its own to the process that gives out the pieces. If that one is killed, the pipe
closes, and they end after the piece in hand: no process is left over.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from shoal.errors import ShoalError
from shoal.support.checks import check_integer

__all__ = ["processes_of", "work_on"]

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def processes_of(asked: int | None) -> int:
    """Return how many processes to use: as many as asked for, or one for each core we may use."""
    if asked is not None:
        return check_integer("processes", asked, lowest=1, highest=1024)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def work_on(
    pieces: Iterable[tuple[int, Piece]], work: Callable[[Piece], Result], processes: int
) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each piece, in the order in which they are done.

    With one process the work is done in this one. `work` and the pieces are sent to others, so
    `work` is a function of a module, or a partial of one.
    """
    if processes == 1:
        for number, piece in pieces:
            yield number, work(piece)
        return
    waiting = iter(pieces)
    context = multiprocessing.get_context("spawn")  # a fork would copy threads of Arrow
    workers: dict[Connection, Any] = {}
    try:
        for _, first in zip(range(processes), waiting, strict=False):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_worker, args=(work, theirs), daemon=True)
            worker.start()
            theirs.close()
            workers[ours] = worker
            ours.send(first)
        busy = set(workers)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                number, problem, result = _received(pipe)
                if problem is not None:
                    raise problem
                following = next(waiting, None)
                if following is None:
                    busy.discard(pipe)
                else:
                    pipe.send(following)
                yield number, result
    finally:
        for pipe, worker in workers.items():
            pipe.close()
            worker.terminate()
            worker.join()


def _received(pipe: Connection) -> tuple[int, ShoalError | None, Any]:
    try:
        answer: tuple[int, ShoalError | None, Any] = pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise ShoalError(
            "a process that did part of the work has ended, perhaps for lack of memory; run the"
            " same again, with fewer --processes."
        ) from error
    return answer


def _worker(work: Callable[[Any], Any], pipe: Connection) -> None:
    while True:
        try:
            number, piece = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer: tuple[int, ShoalError | None, Any] = (number, None, work(piece))
        except ShoalError as error:
            answer = (number, error, None)
        try:
            pipe.send(answer)
        except ConnectionError:
            return
