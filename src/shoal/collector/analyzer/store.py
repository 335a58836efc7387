"""The transactions of an analyzer: keys out, chunks in, whole crowds sealed.

A chunk is written to its file, durably, before the database notes that it came. Interrupted between
the two, it has not come, and the relay sends it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from shoal.agreement.plan import Plan
from shoal.agreement.sealed_wire import Chunk
from shoal.agreement.sealing import sealing_info
from shoal.collector import problems
from shoal.collector.analyzer.chunk_files import ChunkFiles
from shoal.collector.analyzer.counting import OpenedCrowd
from shoal.collector.analyzer.sealed_plan import Place, SealedPlan
from shoal.collector.intake.database import storage_errors
from shoal.collector.intake.open_plan import release_bytes
from shoal.collector.intake.store import Store
from shoal.collector.problems import Problem

__all__ = ["AnalyzerStore", "Receipt", "WholeCrowd"]


class Receipt(NamedTuple):
    """What a relay is told about a chunk; `completes` is whether the crowd is whole with it."""

    document: dict[str, Any]
    completes: bool


class WholeCrowd(NamedTuple):
    """A crowd that has all its chunks: what is needed to open it."""

    plan: Plan
    number: int
    window: int
    secret: bytes
    info: bytes
    chunks: list[tuple[Path, str]]
    """The file of each chunk, and its SHA-256."""


class AnalyzerStore(Store):
    """Plans, keys of crowds, chunks and releases in one folder.

    `spare` is how many bytes of the disk chunks leave free, and `unreadable` is called when a crowd
    was sealed: with its plan's id, its number and what was in it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        spare: int = 0,
        opened: Callable[[str, int, OpenedCrowd], None] = lambda plan_id, number, crowd: None,
        **options: Any,
    ) -> None:
        self._files, self._spare, self._tell_opened = ChunkFiles(folder), spare, opened
        super().__init__(folder, **options)
        self._files.clear_scratch()
        self._sweep_files()

    @property
    def scratch(self) -> Path:
        """The folder for what is written while a crowd is opened."""
        return self._files.scratch

    def _forget_crowds(self) -> None:
        super()._forget_crowds()
        for table in ("sealing_keys", "chunks"):
            self._database.execute(f"DELETE FROM {table}")  # noqa: S608  two names

    def _read_plan(self, plan_id: str) -> SealedPlan | None:
        plan = SealedPlan.read(self._database, self._keys, self._signatures, plan_id)
        return cast(SealedPlan | None, plan)

    def _sealed_plan(self, plan_id: str) -> SealedPlan | None:
        return cast(SealedPlan | None, self._opened(plan_id))

    # Keys

    def crowd_key(self, plan_id: str, place: Place) -> bytes | Problem:
        """Return the document with the key of a crowd, made now if need be, or why there is none.

        It has the same bytes every time.
        """
        with self._transaction():
            plan = self._sealed_plan(plan_id)
            if plan is None:
                return problems.UNKNOWN_PLAN
            time = self._time(plan.plan)
            problem = plan.objection_to_key(place, time)
            if problem is not None:
                return problem
            crowd = plan.find(place)
            if crowd is None:
                return plan.begin(place, time.day).to_bytes()
            if crowd.state not in ("open", "sealed"):
                return problems.CROWD_GONE
            return crowd.key.to_bytes()

    # Chunks

    def keep_chunk(self, place: Place, chunk: Chunk, content: bytes) -> Receipt | Problem:
        """Keep a chunk, or return why not; when this returns it is on the disk.

        `content` are the bytes that came. A chunk that came before gets the same answer again.
        """
        digest = hashlib.sha256(content)
        with storage_errors():
            plan = self._sealed_plan(chunk.plan_id)
            crowd = None if plan is None else plan.find(place)
            if plan is None or plan.state == "draft":
                return problems.UNKNOWN_PLAN
            if crowd is None:
                expired = place.window < max(self._time(plan.plan).first_window, plan.oldest_window)
                return problems.WINDOW_EXPIRED if expired else problems.UNKNOWN_CROWD
            problem = plan.objection_to_chunk(crowd, chunk, digest.digest())
            if problem is not None:
                return problem
            came_before = plan.has_chunk(crowd, chunk.number)
        if not came_before:
            missing = plan.crowd_bytes * (plan.messages - crowd.messages) // plan.messages
            self._files.check_space(missing, self._spare)
            self._files.write(plan.plan.id, crowd.number, chunk.number, content)
            with self._transaction():
                crowd = plan.note_chunk(crowd, chunk, digest.digest())
        document = {
            "plan": plan.plan.id,
            "window": place.window,
            "crowd": place.crowd,
            "chunk": chunk.number,
            "digest": digest.hexdigest(),
            "state": "complete" if crowd.is_whole else "receiving",
        }
        return Receipt(document, not came_before and crowd.is_whole)

    # Crowds

    def next_whole(self, but: set[tuple[str, int]]) -> WholeCrowd | None:
        """Return a crowd that is whole and waits to be opened, but none of some."""
        with storage_errors():
            rows = self._database.execute(
                "SELECT plan, number, crowds.window FROM crowds"
                " JOIN sealing_keys USING (plan, number) WHERE state = 'open' AND chunks = arrived"
                " ORDER BY plan, number"
            ).fetchall()
            waiting = [row for row in rows if (row[0], row[1]) not in but]
            if not waiting:
                return None
            plan_id, number, window = waiting[0]
            plan = self._sealed_plan(plan_id)
            assert plan is not None
            secret = plan.secret(number)
            assert secret is not None, "the key of an open crowd is there"
            chunks = self._database.execute(
                "SELECT chunk, digest FROM chunks WHERE plan = ? AND number = ? ORDER BY chunk",
                (plan_id, number),
            ).fetchall()
        return WholeCrowd(
            plan.plan,
            number,
            window,
            secret,
            sealing_info(plan.plan, window),
            [
                (self._files.path(plan_id, number, chunk), bytes(digest).hex())
                for chunk, digest in chunks
            ],
        )

    def seal(self, crowd: WholeCrowd, opened: OpenedCrowd) -> bool:
        """Write the release of a crowd and destroy its key and its messages.

        Returns False if the crowd was destroyed meanwhile.
        """
        plan_id, number = crowd.plan.id, crowd.number
        release = release_bytes(crowd.plan, opened.tally, number, crowd.window)
        with self._changing_key(scrub=True):
            plan = self._sealed_plan(plan_id)
            assert plan is not None
            was_there = plan.seal(number, release, opened.unreadable)
        self._sweep_files()
        if was_there:
            self._tell_opened(plan_id, number, opened)
            self._tell({plan_id: [number]})
        return was_there

    def sweep(self) -> None:
        """Close windows that are over, and give up crowds past their deadline, with their keys."""
        super().sweep()
        self._sweep_files()

    def _sweep_files(self) -> None:
        """Remove the chunks of crowds that have ended."""
        with storage_errors():
            rows = self._database.execute("SELECT plan, number FROM crowds WHERE state = 'open'")
            self._files.sweep(rows.fetchall())
