"""What an operator can see: tokens with an end, refusals of every kind, who did what."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from shoal.server.analyzer.service import AnalyzerMetrics
from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock
from shoal.server.core.tokens import Token, Tokens
from shoal.server.relay.forwarding import RelayMetrics
from shoal.server.storage.store import Store

from .crash_help import LONGEST
from .privacy_help import FLAGS_PLAN, World, address_of, in_world, with_world
from .serving_help import served, small_plan
from .store_help import Clock, make_plan, upload

OTHER = make_plan(*FLAGS_PLAN.survey, crowd=FLAGS_PLAN.reports_needed)
TODAY = date.fromtimestamp(int(Clock().now // 86_400) * 86_400)


def headers(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def events(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in world.log.getvalue().splitlines()]


class TestTokens:
    def test_its_last_day(self, tmp_path: Path):
        clock = Clock()
        with closing(Store(tmp_path, clock=clock)) as store:
            tokens = Tokens(store.database.connection, clock)
            secret = tokens.add(Token.new("viewer", "for a day", expires=TODAY))
            for days, holds in ((0, True), (1, False), (400, False), (-1, True)):
                clock.now = Clock().now + days * 86_400
                assert (tokens.find(secret) is not None) is holds
            assert tokens.failures == 2
            again = Tokens(store.database.connection, clock)
            assert next(iter(again)).expires == TODAY

    def test_it_ends_by_either_time(self, tmp_path: Path):
        """A clock that jumped is not believed, but a token does not live longer by that."""
        wall = [Clock().now]
        clock = GuardedClock(wall=lambda: wall[0], uptime=lambda: 1.0, boot=lambda: "b")
        with closing(Store(tmp_path, clock=clock)) as store:
            tokens = Tokens(store.database.connection, clock)
            secret = tokens.add(Token.new("viewer", "for a day", expires=TODAY))
            assert tokens.find(secret) is not None
            wall[0] += 4 * 86_400
            assert clock.is_held
            assert tokens.find(secret) is None

    def test_an_admin_without_an_end_must_stay(self, tmp_path: Path):
        with closing(Store(tmp_path)) as store:
            tokens = Tokens(store.database.connection)
            last = Token.new("admin", "last")
            tokens.add(last)
            tokens.add(Token.new("admin", "ends", expires=TODAY + timedelta(days=9)))
            tokens.add(Token.new("admin", "limited", plans=[FLAGS_PLAN.id]))
            problem = tokens.remove(last.id)
            assert problem is not None
            assert problem.name == "last-admin"

    @with_world(reports_per_request=50)
    async def test_some_plans_only(self, world: World) -> None:
        for plan in (FLAGS_PLAN, OTHER):
            await world.publish(plan)
        collector = world.collector

        async def make(role: Any) -> dict[str, str]:
            token = Token.new(role, role, plans=[FLAGS_PLAN.id])
            return headers(await collector.service.in_store(collector.service.tokens.add, token))

        async def status(who: dict[str, str], method: str, path: str) -> int:
            return (await world.ask("console", method, path, who)).status_code

        admin, viewer = await make("admin"), await make("viewer")
        mine, others = (f"/v1/plans/{plan.id}" for plan in (FLAGS_PLAN, OTHER))
        assert await status(viewer, "GET", mine) == 200
        assert await status(viewer, "GET", others) == 403
        listed = (await world.ask("console", "GET", "/v1/plans", viewer)).json()["plans"]
        assert [one["id"] for one in listed] == [FLAGS_PLAN.id]
        home = (await world.ask("console", "GET", "/", viewer)).text
        assert f"/surveys/{address_of(FLAGS_PLAN)}" in home
        assert f"/surveys/{address_of(OTHER)}" not in home
        assert await status(viewer, "GET", f"/surveys/{address_of(OTHER)}") == 403
        with_other = f"/surveys/{address_of(FLAGS_PLAN)}/difference?with_plan={OTHER.id}"
        assert await status(viewer, "GET", with_other) == 403
        assert await status(admin, "POST", f"{mine}/pause") == 200
        assert await status(admin, "POST", f"{others}/pause") == 403
        for method, path in (
            ("GET", "/v1/tokens"), ("POST", "/v1/tokens"), ("POST", "/v1/plans"),
            ("DELETE", "/v1/tokens/x"), ("POST", "/v1/clock/accept"),
        ):  # fmt: skip
            assert await status(admin, method, path) == 403
        relay = await make("relay")
        batch = upload(OTHER, 60, 1)
        assert (await world.upload(batch, relay)).status_code == 413
        assert (await world.upload(batch, await world.relay())).status_code == 202

    @with_world(ingest="token")
    async def test_an_app_of_another_plan_may_not_send(self, world: World) -> None:
        await world.publish(OTHER)
        token = Token.new("app", "elsewhere", plans=[FLAGS_PLAN.id])
        secret = await world.collector.service.in_store(world.collector.service.tokens.add, token)
        answer = await world.upload(upload(OTHER, 1, 1), headers(secret))
        assert answer.status_code == 401

    @with_world()
    async def test_made_over_http(self, world: World) -> None:
        wanted: dict[str, Any] = {"role": "analyst", "label": "b", "expires": "2999-12-31"}
        wanted |= {"plans": [FLAGS_PLAN.id]}
        json_type = {"content-type": "application/json"}
        made = await world.ask(
            "console", "POST", "/v1/tokens", world.admin() | json_type,
            json.dumps(wanted).encode(),
        )  # fmt: skip
        document = made.json()
        assert made.status_code == 201
        assert {name: document[name] for name in wanted} == wanted
        listed = (await world.ask("console", "GET", "/v1/tokens", world.admin())).json()
        assert document["expires"] in [one["expires"] for one in listed["tokens"]]
        for wrong in ({"expires": "soon"}, {"expires": 5}, {"plans": "x"}, {"plans": [1]},
                      {"x": 1}):  # fmt: skip
            refused = await world.ask(
                "console", "POST", "/v1/tokens", world.admin() | json_type,
                json.dumps({"role": "viewer", "label": "a"} | wrong).encode(),
            )  # fmt: skip
            assert refused.status_code == 400
        gone = await world.ask("console", "DELETE", f"/v1/tokens/{document['id']}", world.admin())
        assert gone.status_code == 204
        told = [(one["event"], one["label"], one["by"]) for one in events(world) if "by" in one]
        assert told == [("token made", "b", "first"), ("token revoked", "b", "first")]
        assert document["token"] not in world.log.getvalue()


class TestLogs:
    @with_world()
    async def test_failed_sign_ins_are_one_line(self, world: World) -> None:
        for _ in range(50):
            answer = await world.ask("console", "GET", "/v1/plans", headers("guess"))
            assert answer.status_code == 401
        world.collector.service._log_failures()
        world.collector.service._log_failures()
        told = [one for one in events(world) if one["event"] == "sign-ins failed"]
        # The collector may have swept once meanwhile.
        assert sum(one["times"] for one in told) == 50
        assert len(told) <= 2


class TestMetrics:
    def test_every_metric_of_the_dashboard_exists(self, tmp_path: Path):
        """What deploy/ draws and alerts on is what the services tell."""

        async def story(world: World) -> bytes:
            await world.publish(FLAGS_PLAN)
            world.collector.service.refused(problems.BUSY)
            return world.collector.administration.metrics_text()

        text = in_world(story, tmp_path / "data").decode()
        for others in (RelayMetrics(), AnalyzerMetrics()):
            text += others.text(plans={}, queue=0, data_bytes=0, clock_is_held=False).decode()
        known = set(re.findall(r"^(shoal_\w+)", text, re.M))
        deploy = Path(__file__).parents[2] / "deploy"
        for name in ("grafana-dashboard.json", "alerts.yaml"):
            used = set(re.findall(r"\bshoal_\w+", (deploy / name).read_text()))
            assert used
            assert used <= known, used - known

    def test_what_could_show_an_open_crowd_is_rounded(self, tmp_path: Path):
        async def story(world: World) -> list[bytes]:
            await world.publish(FLAGS_PLAN)
            relay, texts = await world.relay(), []
            for seed in range(3):
                await world.upload(upload(FLAGS_PLAN, 5, seed), relay)
                texts.append(world.collector.administration.metrics_text())
            return texts

        texts = in_world(story, tmp_path / "data")
        assert len(set(texts)) == 1

    @with_world()
    async def test_crowds_are_counted_without_the_data(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A connection that is lost right after a commit does not make the change look failed."""
        await world.publish(FLAGS_PLAN)
        needed = FLAGS_PLAN.reports_needed
        await world.upload(upload(FLAGS_PLAN, needed * 3 // 2, 1), await world.relay())
        connection = world.collector.store.database.connection
        assert isinstance(connection, sqlite3.Connection)
        tell = Store._tell

        def without_data(self: Store, changes: Any) -> None:
            connection.set_authorizer(lambda *statement: sqlite3.SQLITE_DENY)
            try:
                tell(self, changes)
            finally:
                connection.set_authorizer(None)

        monkeypatch.setattr(Store, "_tell", without_data)
        closed = await world.collector.administration.move_plan(FLAGS_PLAN.id, "closed")
        assert closed is None
        text = world.collector.administration.metrics_text().decode()
        assert f"shoal_reports_released_total {needed}.0" in text
        assert f"shoal_reports_discarded_total {needed // 2}.0" in text

    @pytest.mark.slow
    def test_refusals_at_the_connection_are_counted(self, tmp_path: Path):
        with served(tmp_path / "data", small_plan()) as collector:
            host, port = collector.public.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=LONGEST) as connection:
                connection.sendall(b"this is not HTTP\r\n\r\n")
                assert connection.recv(20).startswith(b"HTTP/1.1 400")
            host, port = collector.console.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=LONGEST) as connection:
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                text = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert b'shoal_refusals_total{problem="bad-request"} 1.0' in text
