"""Notifications: never lost, told once, signed, and silent about open crowds."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import queue
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan
from shoal.cli import run
from shoal.errors import InputError
from shoal.server import Collector, Settings
from shoal.server.core import notifications, problems
from shoal.server.core.notifications import (
    Notice,
    Notifier,
    Webhook,
    make_channels,
    try_channels,
)
from shoal.server.core.problems import Problem
from shoal.server.doctor.examine import examine
from shoal.server.storage.database import StorageError
from tests.certificates import make_certificate
from tests.server.analyzer import relay_help as beside
from tests.server.crash_help import Served
from tests.server.notification_help import Received, mail_server, webhook
from tests.server.postgres_help import needs_postgres, the_server
from tests.server.privacy_help import NOW, World, in_world
from tests.server.relay import relay_help as relaying
from tests.server.serving_help import QuietHandler, handled_by
from tests.server.store_help import PLANS, Clock, make_plan, upload

FLAGS = PLANS["flags"]
PAGE = f"s~{FLAGS.id[:12]}"
DAY = 86_400
MAIL: dict[str, Any] = {
    "notify_email": "a@example.org, b@example.org",
    "notify_from": "shoal@example.org",
}


@pytest.fixture(autouse=True)
def turns_are_taken_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Notifier) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Notifier, "run", run)


@pytest.fixture
def hook() -> Iterator[Received]:
    with webhook() as received:
        yield received


async def turn(party: Any) -> None:
    await party.service.on_store_thread(party.sweep)
    await party.service.notifier.turn()


async def filled(world: World, plan: Plan = FLAGS, seed: int = 1, crowds: int = 1) -> None:
    """Publish a plan, and let some of its crowds fill."""
    if plan.id not in world.collector.administration.plans:
        await world.publish(plan)
    batch = upload(plan, crowds * plan.reports_needed, seed)
    assert (await world.upload(batch, await world.relay())).status_code == 202


def inside(
    story: Callable[[World], Any], folder: Path, clock: Clock | None = None, **more: Any
) -> None:
    chosen: dict[str, Any] = {"min_crowd": 1, "console_url": "https://console.example/"} | more
    in_world(story, folder, clock or Clock(), **chosen)


def hmac_sha256(key: bytes, content: bytes) -> bytes:
    """RFC 2104, from its definition."""
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(one ^ 0x36 for one in block) + content).digest()
    return hashlib.sha256(bytes(one ^ 0x5C for one in block) + inner).digest()


def verified(received: Received, folder: Path) -> list[dict[str, Any]]:
    """Check the signatures as Standard Webhooks asks receivers to, and return the documents."""
    secret = base64.b64decode((folder / "webhook-secret").read_text().strip().split("_")[1])
    documents = []
    for headers, body in received:
        name, moment = headers["webhook-id"], headers["webhook-timestamp"]
        version, _, signature = headers["webhook-signature"].partition(",")
        expected = hmac_sha256(secret, f"{name}.{moment}.".encode() + body)
        assert (version, base64.b64decode(signature)) == ("v1", expected)
        documents.append(json.loads(body))
        assert documents[-1]["id"] == name
    return documents


class TestReleases:
    def test_a_release_is_told_once(self, tmp_path: Path, hook: Received):
        """Several that come together are one notice."""

        async def story(world: World) -> None:
            await filled(world)
            for _ in range(3):
                await turn(world.collector)
            await filled(world, seed=2, crowds=3)
            await turn(world.collector)
            path = json.loads(hook[0][1])["data"]["url"].removeprefix("https://console.example")
            assert (await world.ask("console", "GET", path, world.admin())).status_code == 200

        inside(story, tmp_path, notify_webhook=hook.url)
        document, together = verified(hook, tmp_path)
        assert together["data"]["crowds"] == [2, 3, 4]
        assert hook.paths == ["/hook?key=canary"] * 2
        assert document["type"] == "release.ready"
        moment = datetime.fromisoformat(document["timestamp"]).timestamp()
        assert moment == Clock().now // 60 * 60
        assert document["text"] == "Crowd 1 of s is released."
        assert document["data"] == {
            "service": "collector",
            "survey": "s",
            "plan": FLAGS.id,
            "crowds": [1],
            "url": f"https://console.example/surveys/{PAGE}/crowds/1",
        }

    def test_a_crash_after_the_release_loses_none(self, tmp_path: Path, hook: Received):
        async def release(world: World) -> None:
            await filled(world)
            await world.collector.service.on_store_thread(world.collector.sweep)

        async def later(world: World) -> None:
            await turn(world.collector)

        inside(release, tmp_path, notify_webhook=hook.url)
        assert hook == []
        inside(later, tmp_path, notify_webhook=hook.url)
        inside(later, tmp_path, notify_webhook=hook.url)
        assert len(verified(hook, tmp_path)) == 1

    def test_a_crash_after_sending_repeats_the_id(
        self, tmp_path: Path, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        """While the data cannot be written, it is sent once; after a restart once more."""

        def fails(self: Notifier, notice: object) -> None:
            raise StorageError("the disk is full.")

        async def story(world: World) -> None:
            if FLAGS.id not in world.collector.administration.plans:
                await filled(world)
            for _ in range(3):
                await turn(world.collector)

        with monkeypatch.context() as broken:
            broken.setattr(Notifier, "_end", fails)
            inside(story, tmp_path, notify_webhook=hook.url)
            assert len(hook) == 1
        inside(lambda world: turn(world.collector), tmp_path, notify_webhook=hook.url)
        inside(lambda world: turn(world.collector), tmp_path, notify_webhook=hook.url)
        first, second = verified(hook, tmp_path)
        assert first == second

    @pytest.mark.slow
    def test_a_killed_process_repeats_the_id(self, tmp_path: Path):
        """It is killed while the receiver has the notice and has not responded."""
        ids: queue.Queue[str] = queue.Queue()
        goes_on = threading.Event()

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                ids.put(self.headers["webhook-id"])
                goes_on.wait(120)
                with suppress(OSError):  # the process may be gone
                    self.send_response_only(204)
                    self.end_headers()

        with handled_by(Handler) as port:
            options = ("--notify-webhook", f"http://127.0.0.1:{port}/")
            with Served(tmp_path / "data", FLAGS, *options) as served:
                served.start()
                try:
                    assert served.post(upload(FLAGS, 50, 1))[0] == 202
                    first = ids.get(timeout=120)
                    served.kill()
                finally:
                    goes_on.set()
                served.start()
                assert ids.get(timeout=120) == first
                assert served.stop() == 0

    def test_nothing_is_told_of_the_time_without_a_receiver(self, tmp_path: Path, hook: Received):
        async def story(world: World) -> None:
            await filled(world)
            await turn(world.collector)

        inside(story, tmp_path)
        inside(lambda world: turn(world.collector), tmp_path, notify_webhook=hook.url)
        assert hook == []
        assert not (tmp_path / "smtp-password").exists()

    def test_an_analyzer_tells_too(self, tmp_path: Path, hook: Received):
        plan = beside.WHOLE
        contents = beside.contents_of(upload(plan, 20, 1))

        async def story(relay: beside.FakeRelay) -> None:
            key = await relay.crowd_key(plan)
            await relay.forward(beside.cut(plan, key, beside.sealed(plan, key, contents)))
            await relay.released(plan)
            for _ in range(2):
                await turn(relay.analyzer)

        beside.beside_analyzer(story, tmp_path, plan, notify_webhook=hook.url)
        (document,) = verified(hook, tmp_path)
        assert document["data"]["service"] == "analyzer"
        assert document["data"]["url"] == f"http://127.0.0.1:8401/surveys/s~{plan.id[:12]}/crowds/1"

    @needs_postgres
    @pytest.mark.slow
    def test_collectors_that_share_a_database(self, tmp_path: Path, hook: Received):
        url = the_server().new_database()
        folders = [tmp_path / "one", tmp_path / "two"]

        async def release(world: World) -> None:
            await filled(world)
            settings = Settings(database=url, min_crowd=1, notify_webhook=hook.url)
            for name in ("crowd-key", "signing-key", "webhook-secret"):
                folders[1].mkdir(exist_ok=True)
                (folders[1] / name).write_bytes((folders[0] / name).read_bytes())
            async with Collector(folders[1], settings) as other:
                for _ in range(2):
                    await asyncio.gather(turn(world.collector), turn(other))

        in_world(release, folders[0], None, database=url, min_crowd=1, notify_webhook=hook.url)  # type: ignore[arg-type]
        (document,) = verified(hook, folders[0])
        assert document["data"]["crowds"] == [1]


class TestRetries:
    @pytest.mark.parametrize("status", [500, 302])
    def test_a_failure_is_retried_with_the_same_id(self, tmp_path: Path, status: int):
        clock = Clock()

        async def story(world: World) -> None:
            await filled(world)
            await turn(world.collector)
            for tried, wait in enumerate((30, 60), start=1):
                clock.now += wait - 1
                await turn(world.collector)
                assert len(received) == tried
                clock.now += 1
                await turn(world.collector)
                assert len(received) == tried + 1

        with webhook(status, status, headers={"Location": "/elsewhere"}) as received:
            inside(story, tmp_path, clock, notify_webhook=received.url)
            assert set(received.paths) == {"/hook?key=canary"}
            documents = verified(received, tmp_path)
        assert len(documents) == 3
        assert len({one["id"] for one in documents}) == 1

    def test_it_ends(self, tmp_path: Path):
        clock = Clock()

        async def story(world: World) -> None:
            await filled(world)
            await turn(world.collector)
            clock.now += notifications.MAX_AGE + 60
            await turn(world.collector)
            assert "a notice was dropped" in world.log.getvalue()
            clock.now += DAY
            await turn(world.collector)

        with webhook(500, 500) as hook:
            inside(story, tmp_path, clock, notify_webhook=hook.url)
        assert len(hook) == 2

    def test_a_receiver_that_hangs_holds_up_nobody(self, tmp_path: Path):
        arrived, goes_on = threading.Event(), threading.Event()

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                arrived.set()
                goes_on.wait(60)
                self.send_response_only(204)
                self.end_headers()

        async def story(world: World) -> None:
            await filled(world)
            sending = asyncio.create_task(turn(world.collector))
            await asyncio.to_thread(arrived.wait, 60)
            await filled(world, seed=2)
            await world.collector.service.on_store_thread(world.collector.sweep)
            assert not sending.done()
            sending.cancel()

        with handled_by(Handler) as port:
            try:
                url = f"http://127.0.0.1:{port}/"
                inside(story, tmp_path, notify_webhook=url, shutdown_timeout=5)
                assert not goes_on.is_set()
            finally:
                goes_on.set()


class TestMail:
    def test_a_mail_is_sent_and_retried(self, tmp_path: Path):
        clock = Clock()
        (tmp_path / "smtp-password").write_text("canary-password\n")

        async def story(world: World) -> None:
            await filled(world)
            await turn(world.collector)
            assert mail.messages == []
            assert "a notice was not sent" in world.log.getvalue()
            clock.now += 30
            for _ in range(2):
                await turn(world.collector)
            assert "canary" not in world.log.getvalue()

        with mail_server("canary-password") as mail:
            mail.refuses = 1
            smtp = f"smtp://robot%40example.org@127.0.0.1:{mail.port}"
            inside(story, tmp_path, clock, notify_smtp=smtp, **MAIL)
        (message,) = mail.messages
        assert message["Subject"] == "Shoal: Crowd 1 of s is released."
        assert (message["From"], message["To"]) == ("shoal@example.org", MAIL["notify_email"])
        assert message["Message-ID"].endswith("@example.org>")
        content = message.get_payload(decode=True)
        assert isinstance(content, bytes)
        lines = content.decode().splitlines()
        assert lines[:3] == [
            "Crowd 1 of s is released.",
            "",
            f"https://console.example/surveys/{PAGE}/crowds/1",
        ]
        assert {"survey: s", "crowds: 1"} <= set(lines)
        assert len(mail.recipients) == 2

    def test_one_channel_does_not_wait_for_the_other(self, tmp_path: Path):
        async def story(world: World) -> None:
            await filled(world)
            await turn(world.collector)
            await turn(world.collector)

        with webhook(500) as hook, mail_server() as mail:
            smtp = f"smtp://127.0.0.1:{mail.port}"
            inside(story, tmp_path, notify_webhook=hook.url, notify_smtp=smtp, **MAIL)
        assert (len(hook), len(mail.messages)) == (1, 1)
        name = json.loads(hook[0][1])["id"]
        assert mail.messages[0]["Message-ID"] == f"<{name}@example.org>"

    @pytest.mark.parametrize("scheme", ["smtp", "smtps"])
    def test_tls(self, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch):
        """Nothing is sent before the certificate is trusted; STARTTLS is not left out."""
        make_certificate(tmp_path)
        monkeypatch.setattr(notifications, "is_loopback", lambda host: False)
        (tmp_path / "smtp-password").write_text("secret")
        with mail_server("secret", tmp_path, over_tls=scheme == "smtps") as mail:
            url = f"{scheme}://robot@localhost:{mail.port}"
            settings = Settings(notify_smtp=url, **MAIL)
            assert try_channels(settings, tmp_path, send=True)["email"]
            assert mail.messages == []
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
            for send in (False, True):
                assert try_channels(settings, tmp_path, send=send) == {"email": ""}
        assert mail.encrypted == [True]

    def test_a_server_without_tls_gets_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(notifications, "is_loopback", lambda host: False)
        with mail_server() as mail:  # it has no certificate
            settings = Settings(notify_smtp=f"smtp://127.0.0.1:{mail.port}", **MAIL)
            assert try_channels(settings, tmp_path, send=True)["email"]
        assert (mail.messages, mail.recipients) == ([], [])

    @pytest.mark.parametrize("trusted", [False, True])
    def test_a_webhook_over_tls(
        self, tmp_path: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
    ):
        make_certificate(tmp_path)
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        with webhook(certificate=tmp_path) as received:
            settings = Settings(notify_webhook=received.url)
            told = try_channels(settings, tmp_path, send=True)["webhook"]
            assert try_channels(settings, tmp_path, send=False)["webhook"] == told
        assert (len(received), told == "") == (trusted, trusted)


class TestExpiringCrowds:
    def expiring(
        self, folder: Path, hook: Received, plan: Plan, days: list[float], count: int, **more: Any
    ) -> list[int]:
        """Return how many notices there were after each of these days, with a restart before."""
        clock, found = Clock(), []
        start = clock.now // DAY * DAY

        async def story(world: World) -> None:
            if plan.id not in world.collector.administration.plans:
                await world.publish(plan)
                window = 0 if plan.window is None else int(clock.now // plan.window)
                batch = upload(plan, count, 1, window)
                assert (await world.upload(batch, await world.relay())).status_code == 202
            for _ in range(2):
                await turn(world.collector)
            found.append(sum(b"crowd.expiring" in body for _, body in hook))

        for day in days:
            clock.now = start + day * DAY
            inside(story, folder, clock, notify_webhook=hook.url, **more)
        return found

    def test_before_the_deadline_once(self, tmp_path: Path, hook: Received):
        days = [0.5, 22.9, 23.1, 24, 29.9]
        found = self.expiring(tmp_path / "a", hook, FLAGS, days, 20, deadline_days=30)
        assert found == [0, 0, 1, 1, 1]
        (document,) = verified(hook, tmp_path / "a")
        assert document["data"]["crowds"] == [1]
        assert document["data"]["url"] == f"https://console.example/surveys/{PAGE}"
        assert "is incomplete and will be discarded at" in document["text"]
        hook.clear()
        later: dict[str, int] = {"deadline_days": 30, "notify_before_days": 2}
        found = self.expiring(tmp_path / "b", hook, FLAGS, [0.5, 27.9, 28.1], 20, **later)
        assert found == [0, 0, 1]
        hook.clear()
        never = self.expiring(tmp_path / "c", hook, FLAGS, [0.5, 400], 20, deadline_days=0)
        assert never == [0, 0]

    def test_a_window_is_told_of_if_it_has_no_release(self, tmp_path: Path, hook: Received):
        """Its first crowd is; the one after a complete crowd is usually discarded."""
        weekly = make_plan(*FLAGS.survey.questions, window=7 * DAY)
        start = -(Clock().now // DAY) % 7
        days = [start + day for day in (0.5, 6.5, 10.4, 10.6, 13.9)]
        for count, expected in ((20, [0, 0, 0, 1, 1]), (60, [0] * 5)):
            hook.clear()
            folder = tmp_path / str(count)
            assert self.expiring(folder, hook, weekly, days, count) == expected

    def test_it_says_nothing_about_the_reports_of_an_open_crowd(
        self, tmp_path: Path, hook: Received
    ):
        documents = []
        for count in (1, 49):
            folder = tmp_path / str(count)
            hook.clear()
            self.expiring(folder, hook, FLAGS, [0.5, 25], count, deadline_days=30)
            (document,) = verified(hook, folder)
            documents.append({**document, "id": None})
        assert documents[0] == documents[1]

    def test_a_relay_tells_too(self, tmp_path: Path, hook: Received):
        plan = relaying.WHOLE
        clock = Clock(NOW)

        async def story(world: relaying.RelayWorld) -> None:
            await world.publish(plan)
            await turn(world.relay)
            assert hook == []
            clock.now += 40 * DAY
            for _ in range(2):
                await turn(world.relay)

        analyzer = relaying.FakeAnalyzer(plan)
        relaying.in_relay(story, tmp_path, analyzer, clock, notify_webhook=hook.url)
        (document,) = verified(hook, tmp_path)
        assert document["data"]["service"] == "relay"
        assert document["data"]["crowds"] == [1]


class Health:
    """A party's health, as a test sets it."""

    def __init__(self, party: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.problem: Problem | None = None
        self._party = party

        async def obstacle() -> Problem | None:
            return self.problem

        monkeypatch.setattr(party, "obstacle", obstacle)

    async def becomes(self, problem: Problem | None) -> None:
        self.problem = problem
        for _ in range(2):
            await turn(self._party)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "SETTLED", 0.0)
    monkeypatch.setattr(notifications, "PAUSE", 0.0)


class TestHealth:
    def kinds(self, hook: Received, folder: Path) -> list[tuple[str, str]]:
        return [(one["type"], one["data"]["problem"]) for one in verified(hook, folder)]

    @pytest.mark.usefixtures("at_once")
    def test_problems_and_their_end(
        self, tmp_path: Path, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        async def story(world: World) -> None:
            health = Health(world.collector, monkeypatch)
            await health.becomes(None)
            for problem in (problems.CLOCK_HELD, problems.STORAGE_FULL, None):
                await health.becomes(problem)

        inside(story, tmp_path, notify_webhook=hook.url)
        assert self.kinds(hook, tmp_path) == [
            ("health.problem", "clock-held"),
            ("health.problem", "storage-full"),
            ("health.recovered", "storage-full"),
        ]

    @pytest.mark.usefixtures("at_once")
    def test_a_restart_remembers(
        self, tmp_path: Path, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        for problem in (problems.STORAGE_FULL, problems.STORAGE_FULL, None, None):

            async def story(world: World, problem: Problem | None = problem) -> None:
                await Health(world.collector, monkeypatch).becomes(problem)

            inside(story, tmp_path, notify_webhook=hook.url)
        kinds = [kind for kind, _ in self.kinds(hook, tmp_path)]
        assert kinds == ["health.problem", "health.recovered"]

    @pytest.mark.usefixtures("at_once")
    def test_it_is_sent_though_the_data_cannot_be_written(
        self, tmp_path: Path, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        async def story(world: World) -> None:
            def fails(self: Notifier, name: str, *statements: object) -> None:
                raise StorageError("the disk is full.")

            await filled(world)
            health = Health(world.collector, monkeypatch)
            with monkeypatch.context() as broken:
                broken.setattr(Notifier, "_end", fails)  # the notice of the release stays there
                await turn(world.collector)
                broken.setattr(Notifier, "_write", fails)
                await health.becomes(problems.UNAVAILABLE)
                assert len(hook) == 2
            await health.becomes(None)

        inside(story, tmp_path, notify_webhook=hook.url)
        kinds = [one["type"] for one in verified(hook, tmp_path)]
        assert kinds == ["release.ready", "health.problem", "health.recovered"]

    def test_short_problems_and_flapping(
        self, tmp_path: Path, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        async def story(world: World) -> None:
            health = Health(world.collector, monkeypatch)
            await health.becomes(problems.STORAGE_FULL)  # for less than a minute
            await health.becomes(None)
            assert hook == []
            monkeypatch.setattr(notifications, "SETTLED", 0.0)
            for _ in range(5):
                await health.becomes(problems.STORAGE_FULL)
                await health.becomes(None)

        inside(story, tmp_path, notify_webhook=hook.url)
        kinds = [kind for kind, _ in self.kinds(hook, tmp_path)]
        assert kinds == ["health.problem", "health.recovered"]

    @pytest.mark.usefixtures("at_once")
    def test_a_key_that_cannot_be_destroyed(
        self, tmp_path: Path, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        async def story(world: World) -> None:
            service = world.collector.service

            def fails() -> None:
                raise StorageError("the file cannot be written.")

            monkeypatch.setattr(service.key_files[0], "forget_expired", fails)
            service._forget_expired_keys()
            await turn(world.collector)
            monkeypatch.undo()

        inside(story, tmp_path, notify_webhook=hook.url)
        assert self.kinds(hook, tmp_path) == [("health.problem", "expired-key")]


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"notify_webhook": "ftp://canary.example"}, "notify_webhook is https"),
            ({"notify_webhook": "http://canary.example"}, "this machine only"),
            ({"notify_webhook": "https://user:canary@x.example"}, "notify_webhook is https"),
            (MAIL, "notify_smtp is smtps"),
            (MAIL | {"notify_smtp": "smtp://u:canary@mail.example"}, "smtp-password"),
            (MAIL | {"notify_smtp": "smtp://mail.example:port"}, "notify_smtp is smtps"),
            (
                MAIL | {"notify_smtp": "smtp://mail.example", "notify_from": "a@b\r\nBcc: c@d"},
                "notify_from is like",
            ),
            ({"notify_email": "nobody", "notify_smtp": "smtp://x"}, "notify_email is like"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, settings: dict[str, Any], message: str):
        with pytest.raises(InputError, match=message) as refused:
            make_channels(Settings(**settings), tmp_path)
        assert "canary" not in str(refused.value)

    def test_a_mistake_keeps_a_service_from_starting(self, tmp_path: Path):
        async def story(world: World) -> None:
            raise AssertionError("it started")

        for _ in range(2):  # and nothing is left locked
            with pytest.raises(InputError, match="notify_smtp"):
                inside(story, tmp_path, **MAIL)

    def test_the_secret_is_private_and_checked(self, tmp_path: Path):
        settings = Settings(notify_webhook="https://hook.example")
        make_channels(settings, tmp_path)
        path = tmp_path / "webhook-secret"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        before = path.read_text()
        make_channels(settings, tmp_path)
        assert path.read_text() == before
        path.write_text("whsec_c2hvcnQ=\n")
        with pytest.raises(InputError, match="24 to 64 bytes"):
            make_channels(settings, tmp_path)

    def test_signatures_are_those_of_standard_webhooks(
        self, hook: Received, monkeypatch: pytest.MonkeyPatch
    ):
        """The example of its reference implementations."""
        secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        body = '{"test": 2432232314}'
        monkeypatch.setattr("time.time", lambda: 1614265330.5)
        Webhook(hook.url, secret).send(Notice("msg_p5jXN8AQM9LWM0D4loKWxJek", "", "", body, 0))
        ((headers, received),) = hook
        assert received.decode() == body
        assert headers["webhook-timestamp"] == "1614265330"
        expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        assert headers["webhook-signature"] == expected


class TestTheCommandAndTheDoctor:
    def test_a_test_notice(
        self, tmp_path: Path, hook: Received, capsys: pytest.CaptureFixture[str]
    ):
        inside(lambda world: asyncio.sleep(0), tmp_path)
        with mail_server() as mail:
            lines = {"notify_webhook": hook.url, "notify_smtp": f"smtp://127.0.0.1:{mail.port}"}
            text = "".join(f'{name} = "{value}"\n' for name, value in (lines | MAIL).items())
            (tmp_path / "shoal.toml").write_text(text)
            assert run(["collector", "notify", str(tmp_path)]) == 0
            assert capsys.readouterr().out == "webhook: sent\nemail: sent\n"
            found = self.findings(tmp_path)
            assert [verdict for verdict, _ in found] == ["ok", "ok"]
        assert len(hook) == len(mail.messages) == 1
        (document,) = verified(hook, tmp_path)
        assert document["type"] == "test"
        assert run(["collector", "notify", str(tmp_path), "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert (told["webhook"], "no answer" in told["email"]) == ("", True)
        assert [verdict for verdict, _ in self.findings(tmp_path)] == ["ok", "fail"]

    def findings(self, folder: Path, **environment: str) -> list[tuple[str, str]]:
        found = examine(folder, environment=environment)
        return [(one.verdict, one.sentence) for one in found if one.check == "notifications"]

    def test_nothing_is_set(self, tmp_path: Path):
        inside(lambda world: asyncio.sleep(0), tmp_path)
        assert run(["collector", "notify", str(tmp_path)]) == 2
        assert self.findings(tmp_path) == []

    def test_the_doctor_finds_mistakes(self, tmp_path: Path):
        inside(lambda world: asyncio.sleep(0), tmp_path)
        url = {"SHOAL_NOTIFY_WEBHOOK": "http://127.0.0.1:9/"}
        ((verdict, sentence),) = self.findings(tmp_path, **url)
        assert (verdict, "no webhook-secret" in sentence) == ("fail", True)
        (tmp_path / "webhook-secret").write_text("x")
        (tmp_path / "webhook-secret").chmod(0o644)
        ((verdict, sentence),) = self.findings(tmp_path, **url)
        assert (verdict, "24 to 64 bytes" in sentence) == ("fail", True)
        found = {one.check: one.verdict for one in examine(tmp_path, environment=url)}
        assert found["webhook-secret"] == "fail"
