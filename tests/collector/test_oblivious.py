"""Oblivious HTTP at the collector's door: what goes in, what comes out, and what a relay sees."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal import Batch, Plan
from shoal.agreement.binary_http import BinaryRequest, BinaryResponse
from shoal.agreement.oblivious import KeyConfiguration
from shoal.cli import run
from shoal.collector.intake.limits import Sender
from shoal.collector.settings import Settings
from shoal.device.outbox import HttpTransport, ObliviousTransport
from shoal.errors import InputError, TransportError

from .privacy_help import BINARY, COUNTS_PLAN, FLAGS_PLAN, World, in_world, make_reports
from .serving_help import QuietHandler, handled_by, served, small_plan

SEALED = {"content-type": "message/ohttp-req"}


async def key_of(world: World) -> KeyConfiguration:
    answer = await world.ask("public", "GET", "/v1/oblivious")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/ohttp-keys"
    return KeyConfiguration.from_list(answer.content)


async def through(
    world: World, request: BinaryRequest | bytes, headers: dict[str, str] = SEALED
) -> tuple[httpx.Response, BinaryResponse]:
    """Send a request as a relay would forward it, and open the answer."""
    content = request if isinstance(request, bytes) else request.to_bytes()
    sealed, exchange = (await key_of(world)).seal(content)
    answer = await world.ask("public", "POST", "/v1/oblivious", headers, sealed)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "message/ohttp-res"
    return answer, BinaryResponse.from_bytes(exchange.open(answer.content))


async def on_connection(world: World, sender: Sender, sealed: bytes) -> bytes:
    """Send a sealed request on a connection that has sent others before."""
    scope = {
        "type": "http", "method": "POST", "path": "/v1/oblivious", "state": {"sender": sender},
        "headers": [(b"content-type", b"message/ohttp-req")],
    }  # fmt: skip
    answer = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": sealed, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal answer
        answer += message.get("body", b"")

    await world.collector.public(scope, receive, send)
    return answer


def of_reports(batch: Batch, **changes: Any) -> BinaryRequest:
    headers = {b"content-type": BINARY["content-type"].encode()}
    path = f"/v1/plans/{batch.plan_id}/reports"
    request = BinaryRequest("POST", "https", "collector", path, headers, batch.to_bytes())
    return replace(request, **changes)


def some(plan: Plan, count: int = 1, seed: int = 0) -> Batch:
    return make_reports(plan, count, np.random.default_rng(seed))


class TestGateway:
    def test_it_is_off_by_default(self, tmp_path: Path):
        assert Settings().oblivious == "off"

        async def work(world: World) -> None:
            assert (await world.ask("public", "GET", "/v1/oblivious")).status_code == 404
            answer = await world.ask("public", "POST", "/v1/oblivious", SEALED, b"x")
            assert answer.status_code == 404

        in_world(work, tmp_path / "data")
        assert not (tmp_path / "data" / "oblivious-key").exists()

    def test_a_report_is_counted_once_whichever_way_it_comes(self, tmp_path: Path):
        async def work(world: World) -> None:
            await world.publish(FLAGS_PLAN)
            batch = some(FLAGS_PLAN, 99)
            for _ in range(2):
                _, inner = await through(world, of_reports(batch))
                assert (inner.status, inner.body) == (202, b"")
            assert (await world.upload(batch)).status_code == 202
            assert await states(world) == ["open"]
            await through(world, of_reports(some(FLAGS_PLAN, 1, seed=1)))
            await world.collector.in_store(world.collector.store.sweep)
            assert "sealed" in await states(world)

        async def states(world: World) -> list[str]:
            path = f"/v1/plans/{FLAGS_PLAN.id}/crowds"
            answer = await world.ask("console", "GET", path, world.admin())
            return [crowd["state"] for crowd in answer.json()["crowds"]]

        in_world(work, tmp_path / "data", oblivious="reports")

    def test_all_answers_are_equally_long(self, tmp_path: Path):
        async def work(world: World) -> set[int]:
            await world.publish(FLAGS_PLAN)
            await world.publish(COUNTS_PLAN)
            good = of_reports(some(FLAGS_PLAN))
            asked: list[tuple[BinaryRequest | bytes, int]] = [
                (good, 202),
                (good, 202),
                (replace(good, body=b"no batch"), 400),
                (replace(good, method="GET"), 405),
                (replace(good, headers={b"content-type": b"text/html"}), 415),
                (replace(good, path="/v1/plans/" + "0" * 64 + "/reports"), 404),
                (replace(good, path="/v1/keys"), 404),
                (of_reports(some(COUNTS_PLAN)), 403),
                (b"\7 no binary HTTP", 400),
            ]
            lengths = set()
            for request, status in asked:
                answer, inner = await through(world, request)
                assert inner.status == status
                lengths.add(len(answer.content))
            return lengths

        assert len(in_world(work, tmp_path / "data", oblivious="reports")) == 1

    def test_plans_for_counts_need_a_trusted_operator(self, tmp_path: Path):
        async def work(world: World) -> tuple[int, bytes]:
            await world.publish(COUNTS_PLAN)
            _, inner = await through(world, of_reports(some(COUNTS_PLAN)))
            return inner.status, inner.body

        status, body = in_world(work, tmp_path / "data", oblivious="reports")
        assert status == 403
        assert json.loads(body)["type"] == "urn:shoal:problem:counts-refused"
        assert in_world(work, tmp_path / "other", oblivious="trusted")[0] == 202

    def test_what_cannot_be_opened_is_refused_outside(self, tmp_path: Path):
        async def work(world: World) -> None:
            key = await key_of(world)
            sealed, _ = key.seal(b"request")
            other = bytes([key.number ^ 1]) + sealed[1:]
            damaged = sealed[:-1] + bytes([sealed[-1] ^ 1])
            for content, headers, status, name in (
                (other, SEALED, 400, "ohttp-key"),
                (damaged, SEALED, 400, "ohttp-unopened"),
                (key.header, SEALED, 400, "ohttp-unopened"),
                (sealed, BINARY, 415, "unsupported-media-type"),
                (bytes(65 << 10), SEALED, 413, "too-large"),
            ):
                answer = await world.ask("public", "POST", "/v1/oblivious", headers, content)
                assert answer.status_code == status
                assert answer.json()["type"].endswith(name)
            wrong = await world.ask("public", "PUT", "/v1/oblivious", SEALED, sealed)
            assert wrong.status_code == 405

        in_world(work, tmp_path / "data", oblivious="reports")

    def test_the_door_s_limits_hold_inside(self, tmp_path: Path):
        narrow: dict[str, Any] = {"reports_per_request": 100, "largest_share": 1}

        async def work(world: World) -> None:
            await world.publish(FLAGS_PLAN)
            _, inner = await through(world, of_reports(some(FLAGS_PLAN, 2)))
            assert inner.status == 413
            answer, inner = await through(world, of_reports(some(FLAGS_PLAN, 1)))
            assert inner.status == 202
            # the share of a connection is used up, and the relay must open another
            assert answer.headers["connection"] == "close"

        in_world(work, tmp_path / "data", oblivious="reports", **narrow)

    def test_a_relay_s_connection_has_a_share(self, tmp_path: Path):
        """What one connection may send is counted over all sealed requests on it."""
        large = replace(FLAGS_PLAN, crowd_size=300)
        sender = Sender()

        async def work(world: World) -> list[int]:
            await world.publish(large)
            key = await key_of(world)
            statuses = []
            for seed in range(4):
                sealed, exchange = key.seal(of_reports(some(large, 1, seed)).to_bytes())
                answer = await on_connection(world, sender, sealed)
                statuses.append(BinaryResponse.from_bytes(exchange.open(answer)).status)
            return statuses

        narrow: dict[str, Any] = {"reports_per_request": 100, "largest_share": 1}
        found = in_world(work, tmp_path / "data", oblivious="reports", **narrow)
        assert found == [202, 202, 202, 429]

    def test_a_token_goes_inside(self, tmp_path: Path):
        async def work(world: World) -> None:
            await world.publish(FLAGS_PLAN)
            request = of_reports(some(FLAGS_PLAN))
            outside = {"authorization": f"Bearer {await world.make_token('app')}"}
            assert (await through(world, request, SEALED | outside))[1].status == 401
            inside = {b"authorization": outside["authorization"].encode()}
            allowed = replace(request, headers=request.headers | inside)
            assert (await through(world, allowed))[1].status == 202

        in_world(work, tmp_path / "data", oblivious="reports", ingest="token")

    def test_the_key_stays_and_is_signed(self, tmp_path: Path):
        async def work(world: World) -> bytes:
            answer = await world.ask("public", "GET", "/v1/oblivious")
            signer = world.collector.signer
            assert answer.headers["shoal-signature"] == signer.sign(answer.content)
            assert answer.headers["shoal-key"] == signer.public_key
            return answer.content

        first, second = (in_world(work, tmp_path / "data", oblivious="reports") for _ in range(2))
        assert first == second
        assert (tmp_path / "data" / "oblivious-key").stat().st_mode & 0o077 == 0

    def test_nothing_about_a_request_is_logged(self, tmp_path: Path):
        async def work(world: World) -> str:
            await world.publish(FLAGS_PLAN)
            secret = {"x-forwarded-for": "192.0.2.77", **SEALED}
            await through(world, of_reports(some(FLAGS_PLAN)), secret)
            return world.log.getvalue()

        assert "192.0.2.77" not in in_world(work, tmp_path / "data", oblivious="reports")

    @pytest.mark.parametrize(("setting", "listed"), [("off", False), ("reports", True)])
    def test_the_certificate_says_what_it_gains(self, tmp_path: Path, setting: str, listed: bool):
        async def work(world: World) -> list[dict[str, Any]]:
            await world.publish(FLAGS_PLAN)
            path = f"/v1/plans/{FLAGS_PLAN.id}/certificate"
            answer = await world.ask("public", "GET", path)
            observers: list[dict[str, Any]] = answer.json()["certificate"]["observers"]
            return observers

        table = {one["who"]: one for one in in_world(work, tmp_path / "data", oblivious=setting)}
        assert ("collector, oblivious relay" in table) == listed
        if listed:
            row = table["collector, oblivious relay"]
            assert row["sees"].endswith("without its sender's address")
            assert (row["holds"], row["epsilon"]) == ("local", table["collector"]["epsilon"])
            assert "neither waits for a crowd nor shuffles" in row["assumption"]


@contextmanager
def relayed(collector: str) -> Any:
    """Run an oblivious relay in front of a collector; yield its address and what it has seen."""
    seen: list[tuple[dict[str, str], bytes]] = []
    host = collector.partition("://")[2]

    class Relay(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
            forward = http.client.HTTPConnection(host)
            kind = self.headers["Content-Type"]
            forward.request("POST", "/v1/oblivious", body, {"Content-Type": kind})
            answer = forward.getresponse()
            content = answer.read()
            forward.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with handled_by(Relay) as port:
        yield f"http://127.0.0.1:{port}/forward", seen


class TestEndToEnd:
    def test_send_through_a_relay(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ):
        monkeypatch.chdir(tmp_path)
        agreed = small_plan()
        agreed.write("plan.json")
        with (
            served(tmp_path / "data", agreed, "--oblivious", "reports") as collector,
            relayed(collector.public) as (relay, seen),
        ):
            words = ["send", "plan.json", "--to", collector.public, "--oblivious-relay", relay]
            for name, channel in (("one", "beta"), ("two", "release")):
                answers = ["--answer", "features=sync", "--answer", f"channel={channel}"]
                box = ["--outbox", name, "--now", "--json"]
                assert run([*words, *answers, *box]) == 0
                assert json.loads(capsys.readouterr().out)["answer"]["state"] == "sent"
            content = httpx.get(f"{collector.public}/v1/oblivious").content
        (first, one), (_, two) = seen
        assert len(one) == len(two)
        assert first["content-type"] == "message/ohttp-req"
        assert "authorization" not in first
        assert agreed.id.encode() not in one
        assert KeyConfiguration.from_list(content).header == one[:7]

    def test_the_relay_sees_no_token(self, tmp_path: Path):
        agreed = small_plan()
        with (
            served(tmp_path / "data", agreed, "--oblivious", "reports") as collector,
            relayed(collector.public) as (relay, seen),
        ):
            batch = make_reports(agreed, 1, np.random.default_rng(4)).to_bytes()
            transport = ObliviousTransport(collector.public, relay, token="s3cret-of-an-app")
            assert transport.post_report(agreed.id, batch).status == 202
        ((headers, body),) = seen
        assert "s3cret-of-an-app" not in str(headers)
        assert b"s3cret-of-an-app" not in body

    def test_a_key_that_changed_is_fetched_again(self, tmp_path: Path):
        agreed = small_plan()
        with (
            served(tmp_path / "data", agreed, "--oblivious", "reports") as collector,
            relayed(collector.public) as (relay, _),
        ):
            batch = make_reports(agreed, 1, np.random.default_rng(3)).to_bytes()
            pinned = httpx.get(f"{collector.public}/v1/keys").json()["ed25519"][0]
            transport = ObliviousTransport(collector.public, relay, public_key=pinned)
            old = KeyConfiguration(transport._known_key().number ^ 1, bytes([9]) + bytes(31))
            transport._key = old
            with pytest.raises(TransportError, match="400 instead of a sealed answer"):
                transport.post_report(agreed.id, batch)
            assert transport.post_report(agreed.id, batch).status == 202
            fixed = ObliviousTransport(collector.public, relay, keys=old.to_list())
            for _ in range(2):
                with pytest.raises(TransportError, match="400"):
                    fixed.post_report(agreed.id, batch)
            assert HttpTransport(collector.public).fetch_plan(agreed.id) == transport.fetch_plan(
                agreed.id
            )
            strange = ObliviousTransport(collector.public, relay, public_key=b"k" * 32, keys=None)
            with pytest.raises(TransportError, match="sign"):
                strange.post_report(agreed.id, batch)

    def test_an_answer_that_is_not_the_collectors(self):
        class Liar(QuietHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "message/ohttp-res")
                self.send_header("Content-Length", "64")
                self.end_headers()
                self.wfile.write(bytes(64))

        key = KeyConfiguration(1, bytes([9]) + bytes(31))
        with handled_by(Liar) as port:
            transport = ObliviousTransport(
                "https://collector.example", f"http://127.0.0.1:{port}", keys=key.to_list()
            )
            with pytest.raises(TransportError, match="not the collector's"):
                transport.post_report("0" * 64, b"report")

    def test_the_relay_is_somebody_else(self):
        with pytest.raises(InputError, match="somebody else"):
            ObliviousTransport("https://collector.example", "https://collector.example/relay")
        with pytest.raises(InputError, match="https"):
            ObliviousTransport("https://collector.example", "http://relay.example")

    def test_keys_need_a_relay(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        (tmp_path / "keys").write_bytes(b"")
        words = ["send", "--to", "https://c.example", "--outbox", str(tmp_path / "box")]
        assert run([*words, "--oblivious-keys", str(tmp_path / "keys")]) == 2
        assert "--oblivious-keys needs --oblivious-relay" in capsys.readouterr().err
