"""How Starlette answers: a problem document whatever went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from shoal.collector import problems
from shoal.collector.intake.database import StorageError, StorageFull
from shoal.collector.logs import LOG
from shoal.collector.problems import Problem

__all__ = ["Refusal", "make_app", "problem_response"]


class Refusal(Exception):  # noqa: N818  it is an answer
    """Ends a request with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.name)
        self.problem = problem


def problem_response(problem: Problem) -> Response:
    """Return a problem as Starlette's response."""
    response = Response(problem.body, problem.status)
    response.raw_headers = list(problem.headers)
    return response


def _answers_of_problems(
    refused: Callable[[Problem], None],
) -> dict[Any, Callable[[Request, Exception], Response]]:
    """Return what Starlette shall answer to each kind of exception."""

    def answer(request: Request, error: Exception) -> Response:
        problem = _problem(error)
        refused(problem)
        response = problem_response(problem)
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)  # which methods an address takes
        return response

    return dict.fromkeys((HTTPException, Refusal, StorageError, Exception), answer)


def make_app(
    routes: Sequence[BaseRoute], refused: Callable[[Problem], None] = lambda problem: None
) -> Starlette:
    """Return an app that answers at its routes and nowhere else.

    An address with a slash too many is none of them: a redirect would repeat the request's host.
    """
    app = Starlette(routes=list(routes), exception_handlers=_answers_of_problems(refused))
    app.router.redirect_slashes = False
    return app


def _problem(error: Exception) -> Problem:
    if isinstance(error, Refusal):
        return error.problem
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
