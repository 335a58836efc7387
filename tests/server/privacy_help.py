"""Plans, reports, worlds and servers for those who test the collector as an adversary would."""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np

from shoal import Choice, Flags, Plan, Survey, Text
from shoal.analysis.report_files import Batch
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Reports
from shoal.reports.formatting import slug
from shoal.server import Collector, Settings
from shoal.server.core.observability import log_to
from shoal.server.core.tokens import Role, Token
from shoal.server.storage.records import Declaration

from .serving_help import ServiceProcess
from .store_help import told

R = TypeVar("R")

NOW = 1_800_000_000.0
BINARY = {"content-type": "application/vnd.shoal.reports"}
Headers = dict[str, str]
WIDE = {"reports_per_request": 1 << 20, "max_share_percent": 100}
"""Settings that let anybody fill a crowd at once, for tests that are about something else."""

FLAGS_PLAN = Plan(
    Survey("browser", (Flags("uses", ("sync", "vpn", "tor")), Choice("os", ("linux", "mac")))),
    FlipProbability.at_least(0.25),
    Promise("local", "6"),
    crowd_size=100,
    joint=((("uses", "sync"), ("os", "mac")),),
)
TEXT_PLAN = Plan(
    Survey("word", (Text("colour", bits=16, hashes=2, cohorts=4),)),
    FlipProbability.at_least(0.25),
    Promise("local", "40"),
    crowd_size=100,
    window=3600,
)
COUNTS_PLAN = Plan(
    Survey("counted", (Flags("uses", ("sync", "vpn", "tor")), Choice("os", ("linux", "mac")))),
    FlipProbability.at_least(0.001),
    Promise("proven", "40", delta="1e-6"),
    crowd_size=100,
    view="counts",
)
"""Its epsilon is above the local one, so that so small a crowd keeps the promise."""

LONG_PLAN = Plan(
    Survey("long", (Flags("uses", tuple(f"f{i}" for i in range(512))),)),
    FlipProbability.at_least(0.25),
    Promise("local", "600"),
    crowd_size=100,
)
"""Its vectors have 64 bytes, which turn up nowhere by chance."""


def address_of(plan: Plan, *, several: bool = False) -> str:
    """Return the address of a plan's page below /surveys/, with its id where there are several."""
    name = slug(plan.survey.name)
    return f"{name}~{plan.id[:12]}" if several else name


def make_reports(plan: Plan, count: int, random: np.random.Generator) -> Batch:
    """Return reports with random contents, of the window that is open at `NOW`."""
    width = -(-plan.bits // 8)
    rows = random.integers(0, 256, (count, width), np.uint8)
    rows[:, -1] &= (1 << ((plan.bits - 1) % 8 + 1)) - 1
    window = 0 if plan.window is None else int(NOW // plan.window)
    return Batch(
        plan.id,
        random.integers(0, 256, (count, 16), np.uint8),
        np.full(count, window, np.uint32),
        None if plan.cohorts is None else random.integers(0, plan.cohorts, count, np.uint16),
        rows,
    )


def some_of(batch: Batch, rows: Any) -> Batch:
    """Return some of a batch's reports."""
    return batch.take(rows)


class World:
    """A collector in process, with a clock that stands still and a log that is kept."""

    def __init__(self, collector: Collector, log: io.StringIO) -> None:
        self.collector, self.log = collector, log
        self.clients: dict[str, httpx.AsyncClient] = {}

    @classmethod
    async def open(
        cls, stack: AsyncExitStack, folder: Path, clock: Callable[[], float], **settings: Any
    ) -> World:
        log = io.StringIO()
        stack.enter_context(logged_to(log, clock))
        chosen: dict[str, Any] = {"min_free_megabytes": 0, "log_level": "debug"} | WIDE
        collector = Collector(folder, Settings(**chosen | settings), clock=clock)
        # How long a commit takes is the machine's; test_timing.py looks at that.
        setattr(collector.metrics, "committed", lambda seconds: None)  # noqa: B010
        await stack.enter_async_context(collector)
        world = cls(collector, log)
        for side, app in (("public", collector.public), ("console", collector.console)):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://collector")
            world.clients[side] = await stack.enter_async_context(client)
        return world

    def admin(self) -> Headers:
        token = (self.collector.service.folder / "admin-token").read_text().strip()
        return {"authorization": f"Bearer {token}"}

    async def ask(
        self, side: str, method: str, path: str, headers: Headers | None = None, body: bytes = b""
    ) -> httpx.Response:
        return await self.clients[side].request(method, path, headers=headers, content=body)

    async def make_token(self, role: Role) -> str:
        """Return the secret of a new token."""
        collector = self.collector
        return await collector.service.in_store(collector.service.tokens.add, Token.new(role, role))

    async def publish(self, plan: Plan) -> None:
        assert await self.collector.administration.add_plan(plan) is None
        assert (
            await self.collector.administration.move_plan(
                plan.id, "published", Declaration(all_honest=True)
            )
            is None
        )

    async def upload(
        self, batch: Batch | Reports, headers: Headers | None = None
    ) -> httpx.Response:
        path = f"/v1/plans/{batch.plan_id}/reports"
        return await self.ask("public", "POST", path, BINARY | (headers or {}), batch.to_bytes())

    async def relay(self) -> Headers:
        """Return the headers of a new relay, which may send any number of reports at once."""
        return {"authorization": f"Bearer {await self.make_token('relay')}"}


@contextmanager
def logged_to(stream: io.StringIO, clock: Callable[[], float]) -> Iterator[None]:
    """Keep the collector's log in a stream, and leave the loggers as they were."""
    names = ("shoal.server", "asyncio")
    before = {
        name: (list(logger.handlers), logger.level, logger.propagate)
        for name in names
        if (logger := logging.getLogger(name))
    }
    log_to("debug", stream, clock)
    try:
        yield
    finally:
        for name, (handlers, level, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def in_world(
    work: Callable[[World], Awaitable[R]],
    folder: Path,
    clock: Callable[[], float] = lambda: NOW,
    **settings: Any,
) -> R:
    """Do something with a collector in process."""

    async def inside() -> R:
        async with AsyncExitStack() as stack:
            return await work(await World.open(stack, folder, clock, **settings))

    return asyncio.run(inside())


def with_world(clock: Callable[[], float] = lambda: NOW, **settings: Any) -> Callable[[Any], Any]:
    """Make a test of an asynchronous function of a `world`; its other arguments are fixtures."""
    return told(lambda work, folder: in_world(work, folder / "data", clock, **settings))


class Server(ServiceProcess):
    """A collector in a process of its own."""

    def __init__(self, folder: Path, log: Path, *words: str, program: str = "") -> None:
        super().__init__(log, "serve", "--data", str(folder), *words, program=program)
        self.folder = folder
        self.client = httpx.Client(timeout=60, verify=False)

    @property
    def public(self) -> httpx.URL:
        return httpx.URL(self.urls["public"])

    @property
    def console(self) -> httpx.URL:
        return httpx.URL(self.urls["console"])

    def admin(self) -> Headers:
        token = (self.folder / "admin-token").read_text().strip()
        return {"authorization": f"Bearer {token}"}

    def relay(self) -> Headers:
        """Return the headers of a new relay, which may send any number of reports at once."""
        document = {"role": "relay", "label": "test"}
        answer = self.client.post(f"{self.console}/v1/tokens", json=document, headers=self.admin())
        return {"authorization": f"Bearer {answer.json()['token']}"}


@contextmanager
def serving(folder: Path, *plans: Plan, before: str = "", **settings: Any) -> Iterator[Server]:
    """Run a collector as a process; `before` is Python that it runs first."""
    files = []
    for plan in plans:
        files.append(folder / f"{plan.id[:12]}.json")
        plan.write(files[-1])
    options = {"public": "127.0.0.1:0", "console": "127.0.0.1:0", "min_free_megabytes": 0} | WIDE
    words = ["--honest", "all", *map(str, files)]
    for name, value in (options | settings).items():
        flag = f"--{name.replace('_', '-')}"
        words.append(flag if value is True else f"{flag}={value}")
    program = f"{before}\nimport sys\nfrom shoal.cli import main\nsys.exit(main())"
    server = Server(folder / "data", folder / "stderr", *words, program=program)
    with server, server.client:
        server.start()
        yield server
        server.stop()


def copied(folder: Path, to: Path) -> Path:
    """Copy a data folder: the same keys, the same tokens, the same crowds."""
    shutil.copytree(folder, to)
    return to
