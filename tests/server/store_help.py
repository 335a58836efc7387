"""Plans, uploads and ways to look inside a store that its tests share."""

from __future__ import annotations

import functools
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Flags, Plan, Survey, Text, tally
from shoal.analysis.count_table import unpack
from shoal.analysis.report_files import Batch
from shoal.analysis.tally import Tally
from shoal.device.arrays.randomize import pack
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic
from shoal.server.storage.database import NAME, SqlConnection
from shoal.server.storage.encryption import FileKey, Keyring
from shoal.server.storage.open_plan import OpenCrowd, OpenPlan
from shoal.server.storage.store import Store

DAY = 86_400
NOON = 20_000 * DAY + DAY // 2
"""A time in the middle of a day, in seconds since 1970."""

_FLAGS = Flags("f", tuple("abcdefghijklm"))


def make_plan(*questions: Any, crowd: int = 50, name: str = "s", **fields: Any) -> Plan:
    survey = Survey(name, questions or (Flags("f", tuple("abcde")),))
    promise = Promise("local", "99")
    if fields.get("view") == "counts":  # more than the local epsilon, so that it holds
        promise = Promise("proven", "99", delta="1e-6")
    return Plan(survey, FlipProbability(1, 2), promise, crowd_size=crowd, **fields)


PLANS = {
    "one flag": make_plan(Flags("f", ("a",))),
    "flags": make_plan(Flags("f", tuple("abcde"))),
    "twelve bits": make_plan(Flags("f", tuple("abcdefghi")), Choice("c", tuple("xyz"))),
    "thirteen bits": make_plan(_FLAGS),
    "choice": make_plan(Choice("c", tuple("uvwxyz"))),
    "joint": make_plan(
        _FLAGS, joint=((("f", "a"), ("f", "m")), (("f", "k"), ("f", "b"), ("f", "c")))
    ),
    "joint of few bits": make_plan(joint=((("f", "e"), ("f", "a")),)),
    "text": make_plan(Text("t", bits=20, hashes=2, cohorts=7)),
    "text and flags": make_plan(
        Text("t", bits=9, hashes=1, cohorts=3),
        Flags("f", ("a", "b")),
        joint=((("f", "a"), ("f", "b")),),
    ),
    "cohorts alone": make_plan(cohorts=4),
    "honest fraction": make_plan(honest_fraction="0.7"),
    "counts": make_plan(Flags("f", tuple("abcde")), Choice("c", tuple("xyz")), view="counts"),
    "counts of text": make_plan(Text("t", bits=9, hashes=1, cohorts=3), view="counts"),
}

_FEW = ("flags", "honest fraction", "counts of text")
EVERY_PLAN = [
    name if name in _FEW else pytest.param(name, marks=pytest.mark.slow) for name in PLANS
]
"""The names of all plans; the fast tests try a few of them."""


class Clock:
    """Time that a test sets."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def upload(plan: Plan, count: int, seed: int, window: int = 0) -> Batch:
    """Make an upload of random reports, the same for the same seed."""
    chance = np.random.default_rng([seed, count])
    rows = pack(chance.random((count, plan.bits)) < chance.random(plan.bits))
    cohorts = None
    if plan.cohorts is not None:
        cohorts = chance.integers(0, plan.cohorts, count, np.uint16)
    ids = chance.integers(0, 256, (count, 16), np.uint8)
    return Batch(plan.id, ids, np.full(count, window, np.uint32), cohorts, rows)


def chosen(batch: Batch, places: Sequence[int]) -> Batch:
    """Return some reports of an upload, in the given order."""
    return batch.take(np.asarray(places, np.intp))


def together(*batches: Batch) -> Batch:
    """Return the reports of several uploads as one."""
    cohorts = [batch.cohorts for batch in batches if batch.cohorts is not None]
    return Batch(
        batches[0].plan_id,
        np.concatenate([batch.ids for batch in batches]),
        np.concatenate([batch.windows for batch in batches]),
        np.concatenate(cohorts) if cohorts else None,
        np.concatenate([batch.rows for batch in batches]),
    )


def published(folder: Path, *plans: Plan, **options: Any) -> Store:
    """Open a store in which plans are published."""
    store = Store(folder, clock=options.pop("clock", Clock()), **options)
    for plan in plans:
        store.add_plan(plan)
        assert store.move(plan.id, "published", b"{}")
    return store


def stored_tally(store: Store, plan_id: str, number: int) -> tuple[Plan, Tally] | None:
    """Return a plan and the tally of one of its releases; None if there is none."""
    plan, release = store.plan(plan_id), store.release(plan_id, number)
    if plan is None or release is None:
        return None
    return plan.plan, Tally.from_json(json.loads(release), plan.plan)


def all_blocks(crowd: OpenCrowd) -> list[tuple[int, bytes]]:
    """Return all blocks of an open crowd, as they would be written."""
    crowd._touch(0, crowd._table.numbers.size)
    return list(crowd.changes())


def tally_of(plan: Plan, *batches: Batch) -> Tally:
    """Count reports the way the rest of Shoal does."""
    return tally(plan, [Synthetic(b.rows, plan.bits, cohorts=b.cohorts) for b in batches])


def counted_by_hand(plan: Plan, *batches: Batch) -> dict[str, Any]:
    """Count reports in plain Python: what the first release of a plan without a window must be."""
    vectors: list[tuple[int, ...]] = []
    cohorts: list[int] = []
    for batch in batches:
        vectors += [tuple(row) for row in unpack(batch.rows, plan.bits).tolist()]
        cohorts += [] if batch.cohorts is None else batch.cohorts.tolist()

    def by_bit(some: list[tuple[int, ...]]) -> list[int]:
        return [sum(vector[bit] for vector in some) for bit in range(plan.bits)]

    joint = []
    for group in plan.joint:
        bits = [plan.survey.bit(*name) for name in group]
        values = Counter(sum(v[bit] << place for place, bit in enumerate(bits)) for v in vectors)
        joint.append({"bits": bits, "counts": [values[v] for v in range(1 << len(bits))]})
    set_bits = Counter(sum(vector) for vector in vectors)
    whole = Counter(pack(np.array([vector])).tobytes().hex() for vector in vectors)
    linked = plan.view == "reports"
    return {
        "plan": plan.id,
        "reports": len(vectors),
        "simulated": False,
        "by_bit": by_bit(vectors),
        "by_set_bits": [set_bits[count] for count in range(plan.bits + 1)] if linked else None,
        "by_vector": dict(sorted(whole.items())) if linked and plan.bits <= 12 else None,
        "joint": sorted(joint, key=lambda table: table["bits"]),
        "cohorts": None
        if plan.cohorts is None
        else [
            {
                "reports": cohorts.count(cohort),
                "by_bit": by_bit(
                    [v for v, mine in zip(vectors, cohorts, strict=True) if mine == cohort]
                ),
            }
            for cohort in range(plan.cohorts)
        ],
        "crowds": [{"name": "1", "window": None, "reports": len(vectors), "released": True}],
        "people": None,
    }


def released(store: Store, plan: Plan) -> list[Tally]:
    """Return the counts of all sealed crowds, without their names."""
    found = [stored_tally(store, plan.id, crowd.number) for crowd in store.crowds(plan.id)]
    return [nameless(one[1]) for one in found if one is not None]


def nameless(some: Tally) -> Tally:
    """Return a tally as one unnamed crowd, to compare its counts."""
    return replace(some, crowds=())


def summed(tallies: Sequence[Tally]) -> Tally:
    """Return the counts of several crowds together, without their names."""
    total = nameless(tallies[0])
    for one in tallies[1:]:
        total = nameless(total + one)
    return total


TABLES = ("facts", "plans", "crowds", "counts", "wrapped_keys", "seen")


def content(database: SqlConnection) -> dict[str, list[Any]]:
    """Return everything the database holds about plans and reports."""
    return {
        table: database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
        for table in TABLES
    }


def file_keys(store: Store) -> Keyring:
    """Return the keys of open crowds, as the file of the collector opens them."""
    connection = store.database.connection
    if not store.database.is_shared:
        return Keyring(connection, FileKey(store.folder, connection))
    from shoal.server.storage.postgres import Ratchet

    root = Ratchet(store.folder, connection)
    root.follow()
    return Keyring(connection, root)


def on_the_disk(store: Store, plan: Plan) -> OpenPlan:
    """Read a plan's open crowds from the database, with the key that only the owner has."""
    database: Any = SimpleNamespace(connection=store.database.connection, keys=file_keys(store))
    found = OpenPlan.read(database, store._records, plan.id)
    assert found is not None
    return found


def open_crowds(store: Store, plan: Plan) -> dict[int, int]:
    """Return how many reports the open crowd of each window has: only a test looks there."""
    store.crowds(plan.id)  # seals what is whole
    found = on_the_disk(store, plan).reports()
    query = "SELECT window FROM crowds WHERE plan = ? AND state = 'open'"
    windows = [window for (window,) in store.database.execute(query, (plan.id,))]
    assert sorted(windows) == sorted(found), "a window has one open crowd"
    return found


def open_reports(store: Store, plan: Plan) -> int:
    """Return how many reports the open crowds have together."""
    crowds = open_crowds(store, plan)
    assert crowds, "a plan that takes reports has an open crowd"
    return sum(crowds.values())


def data_bytes(folder: Path) -> bytes:
    """Return the raw bytes of the database and its log."""
    files = [folder / f"{NAME}{suffix}" for suffix in ("", "-wal")]
    return b"".join(path.read_bytes() for path in files if path.exists())


def json_of(release: bytes | None) -> Any:
    assert release is not None
    return json.loads(release)


def told(helper: Callable[..., Any], *options: Any, **more: Any) -> Callable[[Any], Any]:
    """Run an asynchronous test in the world that a helper opens in the temporary folder.

    That is the argument `world`, or the last one: `helper(test, tmp_path, *options, **more)`.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        others = list(signature.parameters.values())
        world = signature.parameters.get("world", others[-1])
        others.remove(world)
        wants_folder = "tmp_path" in signature.parameters

        @functools.wraps(test)
        def run(*args: Any, **given: Any) -> None:
            folder = given["tmp_path"] if wants_folder else given.pop("tmp_path")

            async def work(opened: Any) -> None:
                await test(*args, **given, **{world.name: opened})

            helper(work, folder, *options, **more)

        if not wants_folder:
            others.append(world.replace(name="tmp_path", annotation=Path))
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
