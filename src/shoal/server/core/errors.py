"""Errors of a request become problem documents, whatever went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.core import problems
from shoal.server.core.logs import LOG
from shoal.server.core.problems import Problem
from shoal.server.storage.database import StorageError, StorageFull
from shoal.server.storage.signatures import UnverifiedError

__all__ = ["Refusal", "exception_handlers", "problem_of"]


class Refusal(Exception):  # noqa: N818  it is an answer
    """Ends a request with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.name)
        self.problem = problem


def _problem_response(problem: Problem) -> Response:
    """Return a problem as Starlette's response."""
    response = Response(problem.body, problem.status)
    response.raw_headers = list(problem.headers)
    return response


def exception_handlers(
    refused: Callable[[Problem], None],
) -> dict[Any, Callable[[Request, Exception], Response]]:
    """Return Starlette's handlers: each kind of exception becomes a problem document.

    `refused` is called with each problem.
    """

    def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        refused(problem)
        response = _problem_response(problem)
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)  # which methods an address allows
        return response

    return dict.fromkeys((HTTPException, Refusal, StorageError, Exception), answer)


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception is answered with."""
    if isinstance(error, Refusal):
        return error.problem
    if isinstance(error, UnverifiedError):
        LOG.error("%s", error)
        return problems.UNVERIFIED
    if isinstance(error, StorageFull):
        return problems.STORAGE_FULL
    if isinstance(error, StorageError):
        return problems.UNAVAILABLE
    if isinstance(error, HTTPException):
        known = {
            404: problems.NOT_FOUND,
            405: problems.WRONG_METHOD,
            413: problems.TOO_LARGE,
        }
        return known.get(error.status_code, problems.BAD_REQUEST)
    LOG.error("a request failed", exc_info=error)
    return problems.INTERNAL
