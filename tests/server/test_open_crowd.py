"""An open crowd is seen by nobody: two different ones look the same, byte for byte.

Two worlds start from copies of one folder, so they have the same keys and tokens and one sealed
crowd. Then they are sent different reports in the same steps. After each step all that can be read
is read, by every role: addresses of both listeners with their headers, the log, the files beside
the database, and the sizes of the database's files.
"""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal import Plan
from shoal.analysis.report_files import Batch
from shoal.server.console.app import OPERATIONS, PAGES
from shoal.server.core import service
from shoal.server.core.http import App
from shoal.server.core.tokens import ROLES
from shoal.server.storage.database import NAME
from shoal.server.storage.encryption import CROWD_KEY_FILE

from .privacy_help import (
    COUNTS_PLAN,
    FLAGS_PLAN,
    NOW,
    TEXT_PLAN,
    Headers,
    World,
    address_of,
    copied,
    in_world,
    make_reports,
    some_of,
)
from .store_help import Clock, together

Seen = dict[str, bytes]


@dataclass(frozen=True)
class Contents:
    """What a world is sent: two uploads that are part of the same steps, and a repetition."""

    first: Batch
    second: Batch
    again: Batch


def pairs_of_contents(plan: Plan) -> dict[str, tuple[Contents, Contents]]:
    """Contents that nobody may tell apart."""
    random = np.random.default_rng(8)
    fresh = [make_reports(plan, 35, random) for _ in range(4)]
    first = Contents(fresh[0], some_of(fresh[1], slice(20)), some_of(fresh[0], slice(12)))
    other = Contents(fresh[2], some_of(fresh[3], slice(20)), some_of(fresh[2], slice(12)))
    constant = fresh[2].rows * 0
    # The same tenth of the crowd, though one has 55 reports and the other 51.
    repeating = replace(first, second=together(some_of(fresh[1], slice(16)),
                                               some_of(fresh[0], slice(4))))  # fmt: skip
    return {
        "other reports": (first, other),
        "all bits zero": (first, replace(other, first=replace(other.first, rows=constant),
                                         again=some_of(replace(other.first, rows=constant),
                                                       slice(12)))),
        "four of them repeated": (first, repeating),
    }  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def nothing_is_swept_meanwhile() -> Iterator[None]:
    """A slow machine would empty the log of one history, and not of the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "SWEEP_SECONDS", 10**6)
        yield


@pytest.fixture(
    scope="module", params=[FLAGS_PLAN, TEXT_PLAN, COUNTS_PLAN], ids=["flags", "text", "counts"]
)
def base(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Base:
    return Base.make(request.param, tmp_path_factory.mktemp("base") / "data")


@pytest.fixture(scope="module")
def flags_base(tmp_path_factory: Any) -> Base:
    return Base.make(FLAGS_PLAN, tmp_path_factory.mktemp("base") / "data")


@dataclass(frozen=True)
class Base:
    """A folder with a token of each role, a draft, and a plan with a sealed crowd."""

    plan: Plan
    folder: Path
    readers: dict[str, Headers]

    @classmethod
    def make(cls, plan: Plan, folder: Path) -> Base:
        async def begin(world: World) -> dict[str, Headers]:
            await world.publish(plan)
            assert (
                await world.collector.administration.add_plan(replace(plan, crowd_size=200)) is None
            )
            sealed = make_reports(plan, 100, np.random.default_rng(1))
            assert (await world.upload(sealed)).status_code == 202
            made = {role: await world.make_token(role) for role in ROLES}
            return {"nobody": {}} | {
                role: {"authorization": f"Bearer {secret}"} for role, secret in made.items()
            }

        return cls(plan, folder, in_world(begin, folder))

    def addresses(self) -> list[tuple[str, str]]:
        """Every address that can be read, those of crowds sealed, open and unknown."""
        found = []
        for operation in (*OPERATIONS, *PAGES):
            if operation.method != "GET":
                continue
            for number in "12345" if "{number}" in operation.path else ("",):
                path = operation.path.replace("{number}", number)
                path = path.replace("{survey}", address_of(self.plan, several=True))
                found.append(("console", path.replace("{plan_id}", self.plan.id)))
        found += [
            ("console", f"/v1/plans/{self.plan.id}/crowds/{number}/estimates?format={form}")
            for number, form in itertools.product("124", ("csv", "parquet", "arrow"))
        ]
        ends = ("", "/certificate", "/reports")
        found += [("public", f"/v1/plans/{self.plan.id}{end}") for end in ends]
        return [*found, ("public", "/v1/keys"), ("public", "/openapi.json")]


async def look(base: Base, world: World, readers: list[str]) -> Seen:
    """Read all that can be read."""
    seen = {}
    for reader, (side, address) in itertools.product(readers, base.addresses()):
        app = getattr(world.collector, side)
        seen[f"{reader} GET {side} {address}"] = await read(app, address, base.readers[reader])
    seen["log"] = world.log.getvalue().encode()
    for path in sorted(world.collector.service.folder.iterdir()):
        about = path.stat()
        seen[f"mode and size of {path.name}"] = f"{about.st_mode:o} {about.st_size}".encode()
        assert stat.S_ISREG(about.st_mode)
        # The database is for those who have the key, and the key is drawn by chance.
        if not path.name.startswith((NAME, CROWD_KEY_FILE)):
            seen[f"file {path.name}"] = path.read_bytes()
    return seen


async def read(app: App, address: str, headers: Headers) -> bytes:
    """Return the whole answer to a GET; without a client in between, since there are many."""
    path, _, query = address.partition("?")
    answer: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.append(b"%d %r\n" % (message["status"], message["headers"]))
        else:
            answer.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": None,
        "server": None,
    }
    with suppress(Exception):  # Starlette raises what it has answered
        await app(scope, receive, send)
    return b"".join(answer)


def whole(answer: httpx.Response) -> bytes:
    return b"%d %r\n" % (answer.status_code, answer.headers.raw) + answer.content


def history(
    base: Base, folder: Path, contents: Contents, readers: list[str] | None = None, steps: int = 10
) -> list[Seen]:
    """Live through all steps with these contents, and look around after each of the first ones."""
    clock, chosen = Clock(NOW), list(base.readers) if readers is None else readers
    plan = base.plan

    async def live(world: World) -> list[Seen]:
        looks: list[Seen] = []

        async def after(step: str, *answers: httpx.Response) -> None:
            if len(looks) == steps:
                return
            seen = await look(base, world, chosen)
            looks.append({f"{step}: {name}": content for name, content in seen.items()})
            looks[-1] |= {f"{step}: answer {n}": whole(one) for n, one in enumerate(answers)}

        async def move(word: str) -> httpx.Response:
            return await world.ask(
                "console", "POST", f"/v1/plans/{plan.id}/{word}", base.readers["admin"]
            )

        thirds = np.array_split(np.arange(len(contents.first)), 3)
        await after("upload", *[await world.upload(some_of(contents.first, t)) for t in thirds])
        await after("repeat", await world.upload(contents.again))
        await after("second upload", await world.upload(contents.second))
        bad = contents.second.to_bytes()[:-1]
        path = f"/v1/plans/{plan.id}/reports"
        await after("bad upload", await world.ask("public", "POST", path, {}, bad))
        await after("pause", await move("pause"))
        await after("upload while paused", await world.upload(contents.again))
        await after("go on", await move("publish"), await world.upload(contents.again))
        await world.collector.service.in_store(world.collector.store.sweep)
        await after("sweep")
        clock.now += 3600
        await world.collector.service.in_store(world.collector.store.sweep)
        await after("an hour later")
        await after("close", await move("close"), await world.upload(contents.second))
        return looks

    return in_world(live, copied(base.folder, folder), clock)


def first_difference(one: list[Seen], other: list[Seen]) -> str | None:
    """Return where two histories differ first."""
    assert len(one) == len(other)
    for before, after in zip(one, other, strict=True):
        assert before.keys() == after.keys()
        for name, content in before.items():
            if content != after[name]:
                return name
    return None


@pytest.mark.slow
@pytest.mark.parametrize("which", ["other reports", "all bits zero", "four of them repeated"])
def test_different_open_crowds_look_the_same(base: Base, which: str, tmp_path: Path) -> None:
    one, other = pairs_of_contents(base.plan)[which]
    readers = None if which == "other reports" and base.plan is FLAGS_PLAN else ["admin"]
    looks = [history(base, tmp_path / name, contents, readers)
             for name, contents in (("one", one), ("other", other))]  # fmt: skip
    assert first_difference(*looks) is None


@pytest.mark.slow
def test_there_is_something_to_see(flags_base: Base, tmp_path: Path) -> None:
    """The looks hold what they are meant to hold: otherwise equality says nothing."""
    looks = history(flags_base, tmp_path / "one", pairs_of_contents(FLAGS_PLAN)["other reports"][0])
    names = {name: content for seen in looks for name, content in seen.items()}
    base = f"GET console /v1/plans/{FLAGS_PLAN.id}"
    assert names[f"upload: admin {base}/crowds/1"].startswith(b"200")
    assert names[f"upload: admin {base}/crowds/2"].startswith(b"409")
    assert names[f"upload: viewer {base}/crowds/1"].startswith(b"403")
    assert names[f"upload: nobody {base}/crowds"].startswith(b"401")
    page = f"GET console /surveys/{address_of(FLAGS_PLAN, several=True)}"
    assert names[f"upload: admin {page}/crowds/1"].startswith(b"200")
    assert names[f"upload: admin {page}/crowds/2"].startswith(b"409")
    assert names[f"upload: viewer {page}/crowds/1"].startswith(b"403")
    assert names[f"upload: nobody {page}"].startswith(b"303")
    assert "open, about 30\u202f%".encode() in names[f"upload: viewer {page}"]
    assert (
        "its plan was closed; it was about 50\u202f% complete".encode()
        in names[f"close: viewer {page}"]
    )
    assert "Crowd 2: about 30\u202f%".encode() in names["upload: viewer GET console /"]
    assert names[f"upload: nobody GET public /v1/plans/{FLAGS_PLAN.id}"].startswith(b"200")
    assert names[f"close: admin {base}/crowds/2"].startswith(b"410")
    assert b'"progress": 30' in names[f"upload: viewer {base}/progress"]
    assert b'"progress": 50' in names[f"second upload: viewer {base}/progress"]
    assert b"plan paused" in names["pause: log"]
    assert b"shoal_" in names["upload: admin GET console /metrics"]
    assert b"content-type" in names["upload: admin GET console /metrics"]
    assert b"retry-after" in names["upload while paused: answer 0"].lower()
    assert names["upload: answer 2"] == names["repeat: answer 0"]
    assert names["upload while paused: answer 0"].startswith(b"503")
    assert names["close: answer 1"].startswith(b"410")
    read = {"file admin-token", "file signing-key", "file lock"}
    assert read <= {name.partition(": ")[2] for name in names}


@pytest.mark.slow
def test_there_is_something_to_see_of_windows(tmp_path: Path) -> None:
    """Number 2 was sealed in its window, and 4 is the one that fills there now."""
    base = Base.make(TEXT_PLAN, tmp_path / "base")
    contents = pairs_of_contents(TEXT_PLAN)["other reports"][0]
    looks = history(base, tmp_path / "one", contents, ["admin"])
    names = {name: content for seen in looks for name, content in seen.items()}
    path = f"admin GET console /v1/plans/{TEXT_PLAN.id}"
    found = [names[f"second upload: {path}/crowds/{number}"][:3] for number in "12345"]
    assert found == [b"409", b"200", b"409", b"409", b"404"]
    assert b'"progress": 50' in names[f"second upload: {path}/progress"]
    assert names[f"close: {path}/crowds/4"].startswith(b"410")
    # An hour later that is the window before, whose crowd stays; the one before it is given up.
    assert names[f"an hour later: {path}/crowds/1"].startswith(b"410")
    assert names[f"an hour later: {path}/crowds/4"].startswith(b"409")
    assert names[f"an hour later: {path}/crowds/5"].startswith(b"409")
