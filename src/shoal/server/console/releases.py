"""Sealed crowds and what is computed from them: the same documents for pages and for programs.

Everything here starts from a release, which does not change; so what was computed once is kept, as
long as there is room. What a release says is never computed from anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shoal.analysis.estimates import estimate
from shoal.analysis.intervals import IntervalKind
from shoal.analysis.screening import Screening, screen
from shoal.analysis.tally import Tally
from shoal.analysis.text import decode
from shoal.analysis.trends import crowd_difference, trend
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.results import results
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.storage.records import CrowdRecord, Signature, UnverifiedError

if TYPE_CHECKING:
    from shoal.server.collector.service import Collector

__all__ = ["SealedCrowd", "SealedCrowds"]

R = TypeVar("R")

_KEPT = 256
"""Documents that are kept of each kind."""


class SealedCrowd(NamedTuple):
    """A sealed crowd, with its release as it is stored and signed."""

    plan: Plan
    number: int
    tally: Tally
    release: bytes
    unreadable: int | None
    signature: Signature


class SealedCrowds:
    """Reads the sealed crowds of a collector and computes what they say."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._tally = lru_cache(_KEPT)(_read_tally)
        self._screen = lru_cache(4096)(_screening)
        self._results = lru_cache(_KEPT)(_results)
        self._trend = lru_cache(_KEPT)(_trend)
        self._difference = lru_cache(_KEPT)(_difference)

    async def crowd(self, plan: Plan, number: int) -> SealedCrowd:
        """Return a crowd, if it is sealed."""
        record = await self.record(plan, number)
        if record.state == "open":
            raise Refusal(problems.CROWD_OPEN)
        store = self._collector.store
        release = await self._collector.in_store(store.signed_release, plan.id, number)
        if release is None:
            raise Refusal(problems.CROWD_GONE)
        return SealedCrowd(plan, number, self._tally(plan, release.content), *release)

    async def record(self, plan: Plan, number: int) -> CrowdRecord:
        """Return what is known of a crowd, sealed or not."""
        found = await self._collector.in_store(self._collector.store.crowd, plan.id, number)
        if found is None:
            raise Refusal(problems.UNKNOWN_CROWD)
        return found

    async def numbers(self, plan: Plan, length: int) -> list[int]:
        """Return the numbers of the last sealed crowds of a plan, rising."""
        store = self._collector.store
        return await self._collector.in_store(store.sealed_numbers, plan.id, length)

    async def screening(self, crowd: SealedCrowd) -> Screening:
        """Return the traces of fake reports in a crowd."""
        return await self._computed(self._screen, crowd.plan, crowd.release)

    async def screenings(self, plan: Plan, numbers: Sequence[int]) -> dict[int, Screening]:
        """Return the traces of fake reports in several sealed crowds, by number.

        A crowd whose release does not match its signature is left out; a request for it says
        so.
        """
        store = self._collector.store

        def read() -> dict[int, bytes | None]:
            found: dict[int, bytes | None] = {}
            for number in numbers:
                with suppress(UnverifiedError):
                    found[number] = store.release(plan.id, number)
            return found

        releases = await self._collector.in_store(read)
        return await self._computed(
            lambda: {
                number: self._screen(plan, release)
                for number, release in releases.items()
                if release is not None
            }
        )

    async def results(self, crowd: SealedCrowd, level: float, kind: IntervalKind) -> dict[str, Any]:
        """Return estimates, numbers and cross tables of a crowd."""
        return await self._computed(self._results, crowd.plan, crowd.release, level, kind)

    async def trend(
        self, plan: Plan, question: str, numbers: Sequence[int], level: float
    ) -> dict[str, Any]:
        """Return how one question changes over sealed crowds."""
        if len(numbers) < 2:
            raise Refusal(problems.TOO_FEW_CROWDS)
        releases = await self._releases(plan, numbers)
        return await self._computed(self._trend, plan, question, tuple(releases), level)

    async def _releases(self, plan: Plan, numbers: Sequence[int]) -> list[bytes]:
        """Return the releases of sealed crowds, all read in one turn of the store."""
        store = self._collector.store

        def read() -> list[bytes | None]:
            return [store.release(plan.id, number) for number in numbers]

        found = await self._collector.in_store(read)
        # One that is missing is refused with its reason.
        return [
            (await self.crowd(plan, number)).release if release is None else release
            for number, release in zip(numbers, found, strict=True)
        ]

    async def difference(
        self, first: SealedCrowd, second: SealedCrowd, level: float
    ) -> dict[str, Any]:
        """Return how two sealed crowds differ, of one plan or of two."""
        sides = (first.plan, first.release), (second.plan, second.release)
        try:
            return await self._computed(self._difference, *sides, level)
        except InputError as error:
            raise Refusal(problems.NOTHING_IN_COMMON) from error

    async def decode(
        self,
        crowd: SealedCrowd,
        candidates: Sequence[str],
        question: str | None,
        fdr: float,
        level: float,
    ) -> dict[str, Any]:
        """Return which candidates a crowd answered."""

        def work() -> dict[str, Any]:
            found = decode(
                crowd.plan, crowd.tally, candidates, question=question, fdr=fdr, level=level
            )
            return found.to_json()

        return await self._collector.compute(work)

    async def _computed(self, work: Callable[..., R], *about: Any) -> R:
        return await self._collector.compute(work, *about)


def _read_tally(plan: Plan, release: bytes) -> Tally:
    return Tally.from_json(json.loads(release), plan)


def _screening(plan: Plan, release: bytes) -> Screening:
    return screen(plan, _read_tally(plan, release))


def _results(plan: Plan, release: bytes, level: float, kind: IntervalKind) -> dict[str, Any]:
    estimates = estimate(plan, _read_tally(plan, release))
    return {"estimates": estimates.to_json(level, kind), **results(estimates, level)}


def _trend(plan: Plan, question: str, releases: Sequence[bytes], level: float) -> dict[str, Any]:
    tallies = [_read_tally(plan, release) for release in releases]
    return trend(plan, tallies, level).to_json([question])


def _difference(
    first: tuple[Plan, bytes], second: tuple[Plan, bytes], level: float
) -> dict[str, Any]:
    sides = [(plan, _read_tally(plan, release)) for plan, release in (first, second)]
    return crowd_difference(sides[0], sides[1], level).to_json()
