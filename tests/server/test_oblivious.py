"""Oblivious HTTP at the collector's door: what goes in, what comes out, and what a relay sees."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal import Plan
from shoal.analysis.report_files import Batch
from shoal.cli import run
from shoal.device.outbox import HttpTransport
from shoal.device.outbox.oblivious import ObliviousTransport
from shoal.errors import InputError, ReportError, TransportError
from shoal.lab.demo import free_port
from shoal.protocol.oblivious import BinaryRequest, BinaryResponse, GatewayKey, KeyConfiguration
from shoal.server.core.ingest import Sender
from shoal.server.core.settings import Settings
from tests.server.store_help import told

from .privacy_help import BINARY, COUNTS_PLAN, FLAGS_PLAN, NOW, World, in_world, make_reports
from .serving_help import QuietHandler, handled_by, served, small_plan

SEALED = {"content-type": "message/ohttp-req"}


async def key_of(world: World) -> KeyConfiguration:
    answer = await world.ask("public", "GET", "/v1/oblivious")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/ohttp-keys"
    return KeyConfiguration.read_list(answer.content)[0]


async def through(
    world: World, request: BinaryRequest | bytes, headers: dict[str, str] = SEALED
) -> tuple[httpx.Response, BinaryResponse]:
    """Send a request as a relay would forward it, and open the answer."""
    content = request if isinstance(request, bytes) else request.to_bytes()
    sealed, exchange = (await key_of(world)).encrypt(content)
    answer = await world.ask("public", "POST", "/v1/oblivious", headers, sealed)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "message/ohttp-res"
    return answer, BinaryResponse.from_bytes(exchange.decrypt(answer.content))


async def on_connection(world: World, sender: Sender, sealed: bytes) -> bytes:
    """Send a sealed request on a connection that has sent others before."""
    scope = {
        "type": "http", "method": "POST", "path": "/v1/oblivious",
        "state": {"connection": {"sender": sender}},
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

    @told(in_world, oblivious="reports")
    async def test_a_report_is_counted_once_whichever_way_it_comes(self, world: World):
        async def states() -> list[str]:
            path = f"/v1/plans/{FLAGS_PLAN.id}/crowds"
            answer = await world.ask("console", "GET", path, world.admin())
            return [crowd["state"] for crowd in answer.json()["crowds"]]

        await world.publish(FLAGS_PLAN)
        batch = some(FLAGS_PLAN, 99)
        for _ in range(2):
            _, inner = await through(world, of_reports(batch))
            assert (inner.status, inner.body) == (202, b"")
        assert (await world.upload(batch)).status_code == 202
        assert await states() == ["open"]
        outside = {"x-forwarded-for": "192.0.2.77", **SEALED}
        await through(world, of_reports(some(FLAGS_PLAN, 1, seed=1)), outside)
        await world.collector.service.in_store(world.collector.store.sweep)
        assert "released" in await states()
        assert "192.0.2.77" not in world.log.getvalue()

    @told(in_world, oblivious="reports")
    async def test_all_answers_are_equally_long(self, world: World):
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
        assert len(lengths) == 1

    def test_plans_for_counts_need_a_trusted_operator(self, tmp_path: Path):
        async def work(world: World) -> tuple[int, bytes]:
            await world.publish(COUNTS_PLAN)
            _, inner = await through(world, of_reports(some(COUNTS_PLAN)))
            return inner.status, inner.body

        status, body = in_world(work, tmp_path / "data", oblivious="reports")
        assert status == 403
        assert json.loads(body)["type"] == "urn:shoal:problem:counts-refused"
        assert in_world(work, tmp_path / "other", oblivious="trusted")[0] == 202

    @told(in_world, oblivious="reports")
    async def test_what_cannot_be_opened_is_refused_outside(self, world: World):
        key = await key_of(world)
        sealed, _ = key.encrypt(b"request")
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

    @told(in_world, oblivious="reports", reports_per_request=100, max_share_percent=1)
    async def test_the_limits_hold_inside(self, world: World):
        """What one connection may send is counted over all encrypted requests on it."""
        large = replace(FLAGS_PLAN, crowd_size=300)
        for plan in (FLAGS_PLAN, large):
            await world.publish(plan)
        _, inner = await through(world, of_reports(some(FLAGS_PLAN, 2)))
        assert inner.status == 413
        answer, inner = await through(world, of_reports(some(FLAGS_PLAN, 1)))
        assert inner.status == 202
        # The share of the connection is used up, and the relay must open another.
        assert answer.headers["connection"] == "close"
        key, sender, statuses = await key_of(world), Sender(0), []
        for seed in range(4):
            sealed, exchange = key.encrypt(of_reports(some(large, 1, seed)).to_bytes())
            opened = exchange.decrypt(await on_connection(world, sender, sealed))
            statuses.append(BinaryResponse.from_bytes(opened).status)
        assert statuses == [202, 202, 202, 429]

    @told(in_world, oblivious="reports", ingest="token")
    async def test_a_token_goes_inside(self, world: World):
        await world.publish(FLAGS_PLAN)
        request = of_reports(some(FLAGS_PLAN))
        outside = {"authorization": f"Bearer {await world.make_token('app')}"}
        assert (await through(world, request, SEALED | outside))[1].status == 401
        inside = {b"authorization": outside["authorization"].encode()}
        allowed = replace(request, headers=request.headers | inside)
        assert (await through(world, allowed))[1].status == 202

    def test_the_key_stays_and_is_signed(self, tmp_path: Path):
        async def work(world: World) -> bytes:
            answer = await world.ask("public", "GET", "/v1/oblivious")
            signer = world.collector.service.signer
            assert answer.headers["shoal-signature"] == signer.sign(answer.content)
            assert answer.headers["shoal-key"] == signer.public_key
            return answer.content

        first, second = (in_world(work, tmp_path / "data", oblivious="reports") for _ in range(2))
        assert first == second
        assert (tmp_path / "data" / "oblivious-key").stat().st_mode & 0o077 == 0

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
            assert "if all devices use one key" in row["assumption"]
            assert row["sees"].endswith("without its sender's address")
            assert (row["holds"], row["epsilon"]) == ("local", table["collector"]["epsilon"])
            assert "neither waits for a crowd nor shuffles" in row["assumption"]


@contextmanager
def relayed(collector: str, *, caches: bool = True, serves_keys: bool = True) -> Any:
    """Run an oblivious relay in front of a collector; yield its address and what it has seen."""
    seen: list[tuple[dict[str, str], bytes]] = []
    host = collector.partition("://")[2]
    copies: list[tuple[int, str, bytes]] = []

    def forwarded(method: str, body: bytes | None, headers: dict[str, str]) -> Any:
        forward = http.client.HTTPConnection(host)
        try:
            forward.request(method, "/v1/oblivious", body, headers)
            answer = forward.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read()
        except (OSError, http.client.HTTPException):  # the collector is being started again
            return 502, "text/plain", b""
        finally:
            forward.close()

    class Relay(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not serves_keys:
                self.answer(405, "text/plain", b"")
                return
            if not copies or not caches:
                copies[:] = [forwarded("GET", None, {})]
            self.answer(*copies[0])

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.answer(*forwarded("POST", body, {"Content-Type": self.headers["Content-Type"]}))

        def answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with handled_by(Relay) as port:
        yield f"http://127.0.0.1:{port}/forward", seen


class Dishonest:
    """A collector that answers each fetch of its key as `choose` says, and opens all requests.

    `choose` gets the number of the fetch and returns the private keys of the list.
    """

    def __init__(self, choose: Callable[[int], list[bytes]]) -> None:
        self._choose, self._fetches = choose, 0
        self.gateways: dict[bytes, GatewayKey] = {}
        self.used: list[bytes] = []
        """The public keys that requests were sealed for, in their order."""

    def _gateway(self, secret: bytes) -> GatewayKey:
        return self.gateways.setdefault(secret, GatewayKey(secret))

    def key_list(self) -> bytes:
        self._fetches += 1
        gateways = [self._gateway(secret) for secret in self._choose(self._fetches)]
        return b"".join(gateway.configuration.to_list() for gateway in gateways)

    def take(self, sealed: bytes) -> bytes:
        for gateway in list(self.gateways.values()):
            with suppress(ReportError):
                _, exchange = gateway.decrypt(sealed)
                self.used.append(gateway.configuration.public_key)
                return exchange.encrypt(BinaryResponse(202).to_bytes())
        raise AssertionError("sealed for a key that nobody was given")

    @contextmanager
    def serving(self) -> Iterator[str]:
        collector = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                self.answer("application/ohttp-keys", collector.key_list())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer("message/ohttp-res", collector.take(body))

            def answer(self, kind: str, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        with handled_by(Handler) as port:
            yield f"http://127.0.0.1:{port}"


def secret_of(number: int) -> bytes:
    return hashlib.sha256(b"key %d" % number).digest()


class TestConsistency:
    """A key that only some devices use would link their reports: 30 devices send two reports."""

    DEVICES = 30

    def sent(self, collector: str, relay: str, **options: Any) -> list[str]:
        """Let each device send two reports; return why those that did not send refused."""
        problems = []
        for _ in range(self.DEVICES):
            transport = ObliviousTransport(collector, relay, **options)
            try:
                for _ in range(2):
                    assert transport.post_report("0" * 64, b"report").status == 202
            except TransportError as error:
                problems.append(str(error))
        return problems

    @pytest.mark.parametrize("caches", [True, False])
    def test_a_key_for_each_fetch_is_refused(self, caches: bool):
        liar = Dishonest(lambda fetch: [secret_of(fetch)])
        with liar.serving() as collector, relayed(collector, caches=caches) as (relay, _):
            problems = self.sent(collector, relay)
        assert (len(problems), liar.used) == (self.DEVICES, [])
        assert all("a key that not all devices use would link reports" in one for one in problems)

    def test_the_relay_s_copy_decides(self):
        """Beside the key that the relay has, the collector puts one for each device."""
        common = secret_of(0)
        liar = Dishonest(lambda fetch: [common] if fetch == 1 else [secret_of(fetch), common])
        with liar.serving() as collector, relayed(collector) as (relay, _):
            assert self.sent(collector, relay) == []
        assert set(liar.used) == {GatewayKey(common).configuration.public_key}
        assert len(liar.used) == 2 * self.DEVICES

    def test_without_the_relay_s_copy_nothing_is_sent(self):
        liar = Dishonest(lambda fetch: [secret_of(fetch)])
        with liar.serving() as collector, relayed(collector, serves_keys=False) as (relay, _):
            problems = self.sent(collector, relay)
            assert (len(problems), liar.used) == (self.DEVICES, [])
            assert all("ship the key: --oblivious-keys" in one for one in problems)
            shipped = GatewayKey(secret_of(0)).configuration.to_list()
            liar._gateway(secret_of(0))
            assert self.sent(collector, relay, keys=shipped) == []
        assert len(set(liar.used)) == 1

    def test_a_key_of_the_relay_s_own_is_refused(self):
        """The relay could read what is sealed for it."""
        own = Dishonest(lambda fetch: [secret_of(2)])
        honest = Dishonest(lambda fetch: [secret_of(1)])
        with honest.serving() as collector, own.serving() as relay:
            problems = self.sent(collector, relay)
        assert (len(problems), own.used) == (self.DEVICES, [])


class TestRotation:
    def test_reports_arrive_before_in_and_after_an_overlap(self, tmp_path: Path):
        """Devices with a key of each age send all the time; the expired key alone is refused."""
        now = [float(NOW)]

        async def work(world: World) -> None:
            await world.publish(FLAGS_PLAN)
            keys = world.collector.service.key_files[1]
            held: list[KeyConfiguration] = []

            async def send_with_all(expired: int = 0) -> None:
                answer = await world.ask("public", "GET", "/v1/oblivious")
                held.append(KeyConfiguration.read_list(answer.content)[0])
                for place, key in enumerate(held):
                    request = of_reports(some(FLAGS_PLAN, 1, seed=len(held) * 100 + place))
                    sealed, exchange = key.encrypt(request.to_bytes())
                    answer = await world.ask("public", "POST", "/v1/oblivious", SEALED, sealed)
                    if place < expired:
                        assert answer.json()["type"].endswith("ohttp-key")
                    else:
                        inner = BinaryResponse.from_bytes(exchange.decrypt(answer.content))
                        assert inner.status == 202

            await send_with_all()
            keys.rotate(overlap=86_400, pending=7200)
            await send_with_all()
            listed = await world.ask("public", "GET", "/v1/oblivious")
            announced = KeyConfiguration.read_list(listed.content)
            assert announced[0] == held[0] == held[1]
            now[0] += 7200
            await send_with_all()
            assert held[2] == announced[1] != held[0]
            held.insert(0, announced[0])
            now[0] += 86_399
            await send_with_all()
            now[0] += 1
            held[:] = [held[0], held[-1]]
            await send_with_all(expired=1)
            world.collector.service._forget_expired_keys()
            assert sum(bool(key.secret) for key in keys.all) == 1

        in_world(work, tmp_path / "data", clock=lambda: now[0], oblivious="reports")

    @pytest.mark.slow
    def test_a_device_that_sends_all_the_time_notices_nothing(self, tmp_path: Path):
        """A collector is stopped, its key changed, and it is started again, twice."""
        agreed = small_plan()
        sent, stop = threading.Event(), threading.Event()
        refusals: list[str] = []

        def send(transport: ObliviousTransport, seed: int) -> int:
            count = 0
            while not stop.is_set():
                batch = make_reports(agreed, 1, np.random.default_rng([seed, count])).to_bytes()
                while not stop.is_set():
                    try:
                        assert transport.post_report(agreed.id, batch).status == 202
                    except TransportError as error:
                        refusals.append(str(error))
                        stop.wait(0.1)
                        continue
                    count += 1
                    sent.set()
                    stop.wait(0.02)
                    break
            return count

        def wait_for_report() -> None:
            sent.clear()
            assert sent.wait(60)

        port = free_port()
        address = f"http://127.0.0.1:{port}"
        words = ["--oblivious", "reports", "--public", f"127.0.0.1:{port}"]
        with relayed(address, caches=False) as (relay, _), ThreadPoolExecutor(2) as pool:
            tasks = []
            with served(tmp_path / "data", agreed, *words):
                shipped = httpx.get(f"{address}/v1/oblivious").content
                for seed, keys in enumerate((None, shipped)):
                    transport = ObliviousTransport(address, relay, keys=keys)
                    tasks.append(pool.submit(send, transport, seed))
                wait_for_report()
            assert run(["collector", "rotate", str(tmp_path / "data"), "--oblivious"]) == 0
            try:
                with served(tmp_path / "data", agreed, *words):
                    wait_for_report()
                    announced = KeyConfiguration.read_list(
                        httpx.get(f"{address}/v1/oblivious").content
                    )
                    assert len(announced) == 2
                    wait_for_report()
            finally:
                stop.set()
            assert all(task.result() > 0 for task in tasks)
        assert not [one for one in refusals if "answered 400" in one], "a key was not known"
        ended = ["collector", "rotate", str(tmp_path / "data"), "--oblivious", "--end"]
        assert run(ended) == 0
        with served(tmp_path / "data", agreed, *words), relayed(address) as (relay, _):
            batch = make_reports(agreed, 1, np.random.default_rng(9)).to_bytes()
            old = ObliviousTransport(address, relay, keys=shipped)
            with pytest.raises(TransportError, match="update the application, or give the new"):
                old.post_report(agreed.id, batch)
            assert ObliviousTransport(address, relay).post_report(agreed.id, batch).status == 202


class TestEndToEnd:
    @pytest.mark.slow
    def test_send_through_a_relay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
            batch = make_reports(agreed, 1, np.random.default_rng(4)).to_bytes()
            transport = ObliviousTransport(collector.public, relay, token="s3cret-of-an-app")
            assert transport.post_report(agreed.id, batch).status == 202
            content = httpx.get(f"{collector.public}/v1/oblivious").content
        (first, one), (_, two), (third, body) = seen
        assert "s3cret-of-an-app" not in str(third)
        assert b"s3cret-of-an-app" not in body
        assert len(one) == len(two)
        assert first["content-type"] == "message/ohttp-req"
        assert "authorization" not in first
        assert agreed.id.encode() not in one
        assert KeyConfiguration.read_list(content)[0].header == one[:7]

    @pytest.mark.slow
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
            with pytest.raises(TransportError, match="400 instead of an encrypted response"):
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
        with pytest.raises(InputError, match="the collector itself"):
            ObliviousTransport("https://collector.example", "https://collector.example/relay")
        with pytest.raises(InputError, match="https"):
            ObliviousTransport("https://collector.example", "http://relay.example")

    def test_keys_need_a_relay(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        (tmp_path / "keys").write_bytes(b"")
        words = ["send", "--to", "https://c.example", "--outbox", str(tmp_path / "box")]
        assert run([*words, "--oblivious-keys", str(tmp_path / "keys")]) == 2
        assert "--oblivious-keys needs --oblivious-relay" in capsys.readouterr().err
