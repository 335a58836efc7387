"""The analyzer's store: keys out, chunks in, releases of complete crowds.

A chunk is written to its file, durably, before the database notes that it came. Interrupted between
the two, it has not come, and the relay sends it again.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shoal.analysis.tally import Tally
from shoal.protocol.encryption import Chunk, encryption_info
from shoal.protocol.plan import Plan
from shoal.server.analyzer.plan import AnalyzerPlan, Place
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import StorageFull, own_files, storage_errors
from shoal.server.storage.open_plan import release_bytes
from shoal.server.storage.records import State
from shoal.server.storage.schema import ANALYZER
from shoal.server.storage.store import Store
from shoal.support.disk import Disk


class Receipt(NamedTuple):
    """What a relay is told about a chunk.

    `crowd` is the crowd if it is complete and waits to be opened.
    """

    document: dict[str, Any]
    crowd: CompleteCrowd | None = None


class CompleteCrowd(NamedTuple):
    """A crowd that has all its chunks, with the data needed to open it."""

    plan: Plan
    number: int
    window: int
    secret: bytes
    info: bytes
    chunks: list[ChunkFile]


@dataclass(frozen=True)
class OpenedCrowd:
    """The tally of a crowd that was opened, and how many of its messages could not be read.

    `unopened` were not encrypted for the crowd; `out_of_range` set a bit beyond the plan's, or name
    no cohort of the plan; `repeated` have the identifier of another message.
    """

    tally: Tally
    unopened: int
    out_of_range: int
    repeated: int

    @property
    def unreadable(self) -> int:
        """How many messages do not count towards the size of the crowd."""
        return self.unopened + self.out_of_range + self.repeated


class AnalyzerStore(Store):
    """Plans, keys of crowds, chunks and releases of an analyzer, in one folder.

    `spare` is how many bytes of the disk chunks leave free. `opened` is called when a crowd was
    opened: with its plan, its number, what was in it, and whether it was released.
    `damaged` is called with how many chunks were found damaged and how many of them are whole
    again.
    """

    schema, plan_type = ANALYZER, AnalyzerPlan

    def __init__(
        self,
        folder: Path,
        *,
        spare: int = 0,
        opened: Callable[[Plan, int, OpenedCrowd, bool], None] = lambda *about: None,
        damaged: Callable[[int, int], None] = lambda found, healed: None,
        **options: Any,
    ) -> None:
        self._files, self._spare, self._tell_opened = ArrivedChunks(folder), spare, opened
        self._tell_damaged = damaged
        super().__init__(folder, **options)
        self._files.clear_scratch()
        self._sweep_files()

    @property
    def scratch(self) -> Path:
        """The folder for temporary files while a crowd is opened."""
        return self._files.scratch

    def _plan(self, plan_id: str) -> AnalyzerPlan | None:
        plan: AnalyzerPlan | None = self._plans.get(plan_id)
        return plan

    # Keys

    def crowd_key(self, plan_id: str, place: Place, relay: str) -> bytes | Problem:
        """Return the document of `AnalyzerPlan.crowd_key`; `relay` names the data that ask."""

        def work() -> bytes | Problem:
            plan = self._plan(plan_id)
            if plan is None:
                return problems.UNKNOWN_PLAN
            key = plan.crowd_key(place, relay, self._time(plan.plan))
            return key if isinstance(key, Problem) else key.to_bytes()

        return self.database.run("give out a crowd's key", work)

    # Chunks

    def keep_chunk(self, place: Place, chunk: Chunk, content: bytes) -> Receipt | Problem:
        """Keep a chunk, durably, or return why not; a repeated one replaces a damaged file."""
        digest = hashlib.sha256(content)
        with storage_errors():
            plan = self._plan(chunk.plan_id)
            crowd = None if plan is None else plan.find(place)
            if plan is None or plan.state == "draft":
                return problems.UNKNOWN_PLAN
            if crowd is None:
                expired = place.window < max(self._time(plan.plan).first_window, plan.oldest_window)
                return problems.WINDOW_EXPIRED if expired else problems.UNKNOWN_CROWD
            known_digest = plan.digest_of(crowd, chunk.number)
            came_before = known_digest is not None
            if came_before and known_digest != digest.digest():
                return problems.OTHER_CHUNK
            problem = None if came_before else plan.objection_to_chunk(crowd, chunk)
            if problem is not None:
                return problem
        if came_before and crowd.state == "open":
            file = self._file(plan.plan.id, crowd.number, chunk.number, digest.digest())
            if file.is_damaged:
                self._files.write(plan.plan.id, crowd.number, chunk.number, content)
                self._heal(plan, crowd.number, [file])
                crowd = plan.find(place)
                assert crowd is not None
        elif not came_before:
            missing = plan.plan.reports_needed - crowd.messages
            self._files.check_space(missing * plan.message_bytes, self._spare)
            self._files.write(plan.plan.id, crowd.number, chunk.number, content)
            known, arrived = plan, crowd
            crowd = self.database.run(
                "note a chunk", lambda: known.note_chunk(arrived, chunk, digest.digest())
            )
        document = {
            "plan": plan.plan.id,
            "window": place.window,
            "crowd": place.crowd,
            "chunk": chunk.number,
            "digest": digest.hexdigest(),
            "state": "complete" if crowd.is_complete else "receiving",
        }
        waits = crowd.is_complete and crowd.state == "open"
        return Receipt(
            document, self._complete(plan, crowd.number, place.window) if waits else None
        )

    def note_damage(self, plan_id: str, number: int, chunks: Sequence[int]) -> bool:
        """Note damaged chunks of a complete crowd; return whether it still waits for them."""
        # The relay sends them again if it has not been told that the crowd is complete.

        def work() -> set[int] | None:
            plan = self._plan(plan_id)
            assert plan is not None
            if plan.secret(number) is None:  # it was opened before they were lost
                return None
            known = {file.number for file in self._damaged(plan_id, number)}
            plan.note_damage(number, sorted(known.union(chunks)))
            return known

        known = self.database.run("note damaged chunks", work)
        if known is not None:
            self._tell_damaged(len(set(chunks) - known), 0)
        return known is not None

    def _heal(self, plan: AnalyzerPlan, number: int, files: Sequence[ChunkFile]) -> None:
        """Note that chunks on the disk are intact."""
        damaged = {file.number for file in self._damaged(plan.plan.id, number)}
        healed = {file.number for file in files}
        left = sorted(damaged - healed)
        self.database.run("note intact chunks", lambda: plan.note_damage(number, left))
        self._tell_damaged(len(healed - damaged), len(healed))

    def _file(self, plan_id: str, number: int, chunk: int, digest: bytes) -> ChunkFile:
        return ChunkFile(chunk, self._files.path(plan_id, number, chunk), digest.hex())

    def _damaged(self, plan_id: str, number: int) -> list[ChunkFile]:
        rows = self._connection.execute(
            "SELECT chunk, digest FROM damaged_chunks JOIN chunks USING (plan, number, chunk)"
            " WHERE plan = ? AND number = ? ORDER BY chunk",
            (plan_id, number),
        ).fetchall()
        return [self._file(plan_id, number, chunk, bytes(digest)) for chunk, digest in rows]

    # Crowds

    def next_complete(self) -> CompleteCrowd | None:
        """Return a crowd that is complete and waits to be opened."""
        with storage_errors():
            row = self._connection.execute(
                "SELECT plan, number, crowds.window FROM crowds"
                " JOIN crowd_keys USING (plan, number) WHERE state = 'open' AND chunks = arrived"
                " AND (plan, number) NOT IN (SELECT plan, number FROM damaged_chunks)"
                " ORDER BY plan, number LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            plan_id, number, window = row
            plan = self._plan(plan_id)
            assert plan is not None
            return self._complete(plan, number, window)

    def _complete(self, plan: AnalyzerPlan, number: int, window: int) -> CompleteCrowd:
        secret = plan.secret(number)
        assert secret is not None, "the key of an open crowd is there"
        rows = self._connection.execute(
            "SELECT chunk, digest FROM chunks WHERE plan = ? AND number = ? ORDER BY chunk",
            (plan.plan.id, number),
        ).fetchall()
        chunks = [self._file(plan.plan.id, number, one, bytes(digest)) for one, digest in rows]
        info = encryption_info(plan.plan, window)
        return CompleteCrowd(plan.plan, number, window, secret, info, chunks)

    def discard(self, plan_id: str, place: Place) -> str | Problem:
        """Discard a crowd that its relay discarded, unless it is complete; return its state."""
        with storage_errors():
            plan = self._plan(plan_id)
            crowd = None if plan is None else plan.find(place)
        if plan is None or crowd is None:
            return problems.UNKNOWN_CROWD
        if crowd.state != "open" or crowd.arrived == crowd.chunks:
            return "complete" if crowd.state in ("open", "released") else "discarded"
        known, number = plan, crowd.number
        ended = self.database.run(
            "discard a crowd", lambda: known.discard(number, "relay"), new_key=True, scrub=True
        )
        self._sweep_files()
        self._discarded(plan.plan, ended)
        return "discarded"

    def move(self, plan_id: str, wanted: State, *more: Any, **options: Any) -> bool:
        """Change the state of a plan; the chunks of crowds that end with it are removed at once."""
        moved = super().move(plan_id, wanted, *more, **options)
        self._sweep_files()
        return moved

    def release_crowd(self, crowd: CompleteCrowd, opened: OpenedCrowd) -> bool:
        """Write the release of a crowd and destroy its key and its messages.

        There is no release if fewer reports could be read than the honest reports that the plan's
        promise needs. Returns False if the crowd was destroyed meanwhile.
        """
        plan_id, number, reports = crowd.plan.id, crowd.number, opened.tally.reports
        release = None
        if reports >= max(crowd.plan.crowd_size or 0, 1):
            release = release_bytes(crowd.plan, opened.tally, number, crowd.window)

        def work() -> bool:
            plan = self._plan(plan_id)
            assert plan is not None
            return plan.release(number, release, reports, opened.unreadable)

        was_there = self.database.run("release a crowd", work, new_key=True, scrub=True)
        self._sweep_files()
        if was_there:
            self._tell_opened(crowd.plan, number, opened, release is not None)
        return was_there

    def sweep(self) -> None:
        """Close windows that are over, and discard crowds past their deadline, with their keys.

        A damaged chunk that was put back is detected.
        """
        super().sweep()
        self._sweep_files()
        with storage_errors():
            query = "SELECT DISTINCT plan, number FROM damaged_chunks"
            crowds = self._connection.execute(query).fetchall()
        for plan_id, number in crowds:
            plan = self._plan(plan_id)
            assert plan is not None
            found = [file for file in self._damaged(plan_id, number) if not file.is_damaged]
            if found:
                self._heal(plan, number, found)

    def _sweep_files(self) -> None:
        """Remove the chunks of crowds that have ended."""
        with storage_errors():
            rows = self._connection.execute("SELECT plan, number FROM crowds WHERE state = 'open'")
            self._files.sweep(rows.fetchall())


CHUNK_FOLDER = "chunks"
SCRATCH_FOLDER = "opening"
"""What is written while a crowd is opened, under a key that is in memory only."""

_CROWD_NAME = re.compile("[0-9a-f]{64}-[0-9]+")


class ChunkFile(NamedTuple):
    """A chunk on the disk: its number, its path, and its SHA-256 when it arrived."""

    number: int
    path: Path
    digest: str

    @property
    def is_damaged(self) -> bool:
        """Whether the file is missing or has changed since it arrived."""
        try:
            content = self.path.read_bytes()
        except OSError:  # a chunk that cannot be read is as bad as a lost one
            return True
        return hashlib.sha256(content).hexdigest() != self.digest


def damaged_chunks(files: Iterable[ChunkFile]) -> list[int]:
    """Return the numbers of the damaged chunks; reads all chunks."""
    return [file.number for file in files if file.is_damaged]


class ArrivedChunks:
    """The chunks of crowds that are not decrypted yet, as files: a crowd can have gigabytes.

    They hold ciphertexts only, and the private key is in the database. So it does no harm if a disk
    keeps a block of a deleted file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._disk = folder / CHUNK_FOLDER, Disk()
        self._foreign: set[str] = set()
        self.scratch = folder / SCRATCH_FOLDER

    def path(self, plan_id: str, number: int, chunk: int) -> Path:
        return self._crowd(plan_id, number) / str(chunk)

    def _crowd(self, plan_id: str, number: int) -> Path:
        return self._folder / f"{plan_id}-{number}"

    def write(self, plan_id: str, number: int, chunk: int, content: bytes) -> None:
        """Write a chunk durably, whole or not at all."""
        path = self.path(plan_id, number, chunk)
        with storage_errors():
            self._disk.make_folder(path.parent)
            self._disk.store(path, content, "part")

    def check_space(self, wanted: int, spare: int) -> None:
        """Refuse work that would leave less than `spare` bytes of the disk."""
        with storage_errors():
            free = shutil.disk_usage(self._folder.parent).free
        if free - wanted < spare:
            raise StorageFull("no space is left for a crowd's chunks.")

    def sweep(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Remove the chunks of all crowds except some: crowds that have ended, or never began."""
        kept = {self._crowd(*crowd) for crowd in wanted}
        with storage_errors():
            for path, _ in own_files(self._folder, _CROWD_NAME, self._foreign):
                if path not in kept:
                    shutil.rmtree(path)

    def clear_scratch(self) -> None:
        """Remove leftovers of an interrupted opening, unless one of its processes still writes."""
        shutil.rmtree(self.scratch, ignore_errors=True)
