"""Releases of complete crowds, and the results computed from them for pages and the API.

A release never changes, so results are cached. They are computed from releases and nothing else.
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
from shoal.reports.publication import results
from shoal.server.console.schemas import TextSearch
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.storage.records import CrowdRecord, Signature, UnverifiedError

if TYPE_CHECKING:
    from shoal.server.core.administration import Administration

__all__ = ["CrowdRelease", "Releases"]

R = TypeVar("R")

_CACHED = 256
"""Documents of each kind that are cached."""


class CrowdRelease(NamedTuple):
    """The release of a crowd: its tally, and its content as stored and signed."""

    plan: Plan
    number: int
    tally: Tally
    content: bytes
    unreadable: int | None
    signature: Signature


class Releases:
    """Reads the releases of a collector and computes their results."""

    def __init__(self, collector: Administration) -> None:
        self._collector = collector
        self._tally = lru_cache(_CACHED)(_read_tally)
        self._screen = lru_cache(4096)(_screening)
        self._results = lru_cache(_CACHED)(_results)
        self._trend = lru_cache(_CACHED)(_trend)
        self._difference = lru_cache(_CACHED)(_difference)

    async def get(self, plan: Plan, number: int) -> CrowdRelease:
        """Return the release of a crowd, if there is one."""
        record = await self.record(plan, number)
        if record.state == "open":
            raise Refusal(problems.CROWD_OPEN)
        store = self._collector.store
        release = await self._collector.in_store(store.signed_release, plan.id, number)
        if release is None:
            raise Refusal(problems.CROWD_GONE)
        return CrowdRelease(plan, number, self._tally(plan, release.content), *release)

    async def record(self, plan: Plan, number: int) -> CrowdRecord:
        """Return the record of a crowd in any state."""
        found = await self._collector.in_store(self._collector.store.crowd, plan.id, number)
        if found is None:
            raise Refusal(problems.UNKNOWN_CROWD)
        return found

    async def numbers(self, plan: Plan, length: int) -> list[int]:
        """Return the numbers of the last released crowds of a plan, in ascending order."""
        store = self._collector.store
        return await self._collector.in_store(store.released_numbers, plan.id, length)

    async def screening(self, release: CrowdRelease) -> Screening:
        """Return the traces of fake reports in a crowd."""
        return await self._computed(self._screen, release.plan, release.content)

    async def screenings(self, plan: Plan, numbers: Sequence[int]) -> dict[int, Screening]:
        """Return the traces of fake reports in several released crowds, by number.

        A release that does not match its signature is left out; a request for it is refused.
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

    async def results(
        self, release: CrowdRelease, level: float, kind: IntervalKind
    ) -> dict[str, Any]:
        """Return estimates, numbers and cross tables of a crowd."""
        return await self._computed(self._results, release.plan, release.content, level, kind)

    async def trend(
        self, plan: Plan, question: str, numbers: Sequence[int], level: float
    ) -> dict[str, Any]:
        """Return how one question changes over released crowds."""
        if len(numbers) < 2:
            raise Refusal(problems.TOO_FEW_CROWDS)
        releases = await self._releases(plan, numbers)
        return await self._computed(self._trend, plan, question, tuple(releases), level)

    async def _releases(self, plan: Plan, numbers: Sequence[int]) -> list[bytes]:
        """Return the contents of releases, read in one call of the store."""
        store = self._collector.store

        def read() -> list[bytes | None]:
            return [store.release(plan.id, number) for number in numbers]

        found = await self._collector.in_store(read)
        # A missing one is refused with the reason.
        return [
            (await self.get(plan, number)).content if release is None else release
            for number, release in zip(numbers, found, strict=True)
        ]

    async def difference(
        self, first: CrowdRelease, second: CrowdRelease, level: float
    ) -> dict[str, Any]:
        """Return how two released crowds differ, of one plan or of two."""
        sides = (first.plan, first.content), (second.plan, second.content)
        try:
            return await self._computed(self._difference, *sides, level)
        except InputError as error:
            raise Refusal(problems.NOTHING_IN_COMMON) from error

    async def decode(self, release: CrowdRelease, search: TextSearch) -> dict[str, Any]:
        """Return which candidates a crowd answered."""
        return await self._computed(_decode, release, search)

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


def _decode(release: CrowdRelease, search: TextSearch) -> dict[str, Any]:
    return decode(
        release.plan,
        release.tally,
        search.candidates,
        question=search.question,
        fdr=search.fdr,
        level=search.level,
    ).to_json()
