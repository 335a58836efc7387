"""Notifications by webhook and e-mail: a release is ready, a crowd expires, a service is unwell.

A notice is queued in the data before it is sent; that a release has none yet is written with the
release. It is sent until a receiver accepts it, or for `MAX_AGE` seconds. After a crash between the
two it is sent again, with the same id. Webhooks are signed as Standard Webhooks 1.0.0 says
(https://www.standardwebhooks.com): HMAC-SHA256 over the id, the time and the body.

Whatever waits for a network runs on threads of its own, for which reports never wait.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from shoal.errors import InputError, TransportError
from shoal.protocol.random_bits import SystemBits
from shoal.server.core.observability import LOG
from shoal.server.core.settings import ServiceSettings, own_url
from shoal.server.storage.database import Database, StorageError, read_fact, storage_errors
from shoal.server.storage.key_file import private_file
from shoal.support.checks import is_loopback, shown
from shoal.support.connections import connected, cut_off_at, network_errors, parse_address

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from smtplib import SMTP

    from shoal.protocol.plan import Plan
    from shoal.server.core.service import Party

WEBHOOK_SECRET, SMTP_PASSWORD = "webhook-secret", "smtp-password"
TURN = 20.0
"""Seconds between two looks for something to send."""
TIMEOUT = 15.0
"""Seconds that a receiver has for one notice."""
FIRST_RETRY, LAST_RETRY, MAX_AGE = 30, 3600, 3 * 86_400
"""Seconds until the first retry, between the last ones, and until a notice is dropped."""
SETTLED = 60.0
"""Seconds for which a problem must last, or be over, before a notice says so."""
PAUSE = 1800.0
"""Seconds between two notices of problems: one that comes and goes must not fill a mailbox."""
_AT_ONCE = 20
"""Notices that a channel gets in one turn."""
_MAX_CROWDS = 100
"""Crowds that notices of one turn name; a busy plan releases many at once."""
_CLAIM = "notifications"
_DAY = 86_400

Statement = tuple[str, Sequence[Any]]


@dataclass(frozen=True)
class Notice:
    """A notice for a channel; there is never a second one of the same `topic`, unless it is ""."""

    id: str
    channel: str
    topic: str
    document: str
    made: int
    attempts: int = 0

    @classmethod
    def about(cls, kind: str, text: str, now: float, topic: str = "", **data: object) -> Notice:
        """Return a new notice; `text` is for people, `data` for programs."""
        name = f"msg_{SystemBits().draw(16).hex()}"
        moment = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime(now))
        document = {"type": kind, "id": name, "timestamp": moment, "text": text, "data": data}
        return cls(name, "", topic, json.dumps(document), int(now) // 60 * 60)

    @property
    def insert(self) -> Statement:
        return (
            "INSERT INTO notices (id, channel, topic, document, made, due)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (self.id, self.channel, self.topic, self.document, self.made, self.made),
        )


class Webhook:
    """Posts notices as signed JSON. Redirects are not followed, and no response body is read."""

    name = "webhook"

    def __init__(self, url: str, secret: bytes) -> None:
        try:
            self._origin, self._path = parse_address(url, query=True)
        except InputError:  # it would repeat the address, which may contain a secret
            raise InputError("notify_webhook is https://host[:port][/path].") from None
        if self._origin.scheme == "http" and not is_loopback(self._origin.host):
            raise InputError("notify_webhook is https://...; http is for this machine only.")
        self._secret = secret

    def send(self, notice: Notice) -> None:
        body, moment = notice.document.encode(), int(time.time())
        signed = f"{notice.id}.{moment}.".encode() + body
        signature = base64.b64encode(hmac.digest(self._secret, signed, hashlib.sha256)).decode()
        headers = {
            "Content-Type": "application/json",
            "Connection": "close",
            "webhook-id": notice.id,
            "webhook-timestamp": str(moment),
            "webhook-signature": f"v1,{signature}",
        }
        with self.connected() as connection:
            connection.request("POST", self._path or "/", body, headers)
            with connection.getresponse() as response:
                status = response.status
        if not 200 <= status < 300:
            raise TransportError(f"the webhook responded with {status}.")

    @contextmanager
    def connected(self) -> Iterator[HTTPConnection]:
        with connected(self._origin, TIMEOUT) as connection:
            yield connection


class Mail:
    """Sends notices as e-mails: smtps:// over TLS, smtp:// with STARTTLS."""

    name = "email"

    def __init__(self, settings: ServiceSettings, password: str) -> None:
        wrong = InputError(
            "notify_smtp is smtps://[USER@]host[:port], or smtp://... with STARTTLS; the password"
            f" is in the file {SMTP_PASSWORD}."
        )
        try:
            url = urlsplit(settings.notify_smtp)
            self._host, self._over_tls = url.hostname or "", url.scheme == "smtps"
            self._port = url.port or (465 if self._over_tls else 587)
        except ValueError:
            raise wrong from None
        if url.scheme not in ("smtp", "smtps") or not self._host or url.password is not None:
            raise wrong
        self._to = [one.strip() for one in settings.notify_email.split(",")]
        self._from, self._user = settings.notify_from, unquote(url.username or "")
        self._password = password
        for setting, addresses in (("notify_email", self._to), ("notify_from", [self._from])):
            for one in addresses:
                if not one.isascii() or len(one.split("@")) != 2 or set(one) & set(' ,<>"\r\n'):
                    raise InputError(f"{setting} is like ops@example.org, got {shown(one)}.")

    def send(self, notice: Notice) -> None:
        from email.message import EmailMessage
        from email.utils import formatdate

        document = json.loads(notice.document)
        facts = {"time": document["timestamp"], **document["data"]}
        message = EmailMessage()
        message["Subject"] = f"Shoal: {' '.join(document['text'].split())}"
        message["From"], message["To"] = self._from, ", ".join(self._to)
        message["Date"], message["Auto-Submitted"] = formatdate(), "auto-generated"
        message["Message-ID"] = f"<{notice.id}@{self._from.partition('@')[2]}>"
        where = [facts.pop("url"), ""] if facts.get("url") else []
        lines = [
            f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in facts.items()
        ]
        message.set_content("\n".join([document["text"], "", *where, *lines, ""]))
        with self.connected() as server:
            if server.send_message(message):
                LOG.warning("the mail server refused some addresses for notifications")

    @contextmanager
    def connected(self) -> Iterator[SMTP]:
        from smtplib import SMTP, SMTP_SSL, SMTPException

        deadline, context = time.monotonic() + TIMEOUT, ssl.create_default_context()
        try:
            with network_errors(self._host):
                if self._over_tls:
                    server: SMTP = SMTP_SSL(
                        self._host, self._port, timeout=TIMEOUT, context=context
                    )
                else:
                    server = SMTP(self._host, self._port, timeout=TIMEOUT)
                with server:
                    # A mail server on this machine needs no TLS, and rarely has a certificate.
                    if not self._over_tls and not is_loopback(self._host):
                        with cut_off_at(deadline, _socket(server)):
                            server.starttls(context=context)
                    with cut_off_at(deadline, _socket(server)):
                        if self._user:
                            server.login(self._user, self._password)
                        yield server
        except TransportError as error:
            if isinstance(error.__cause__, SMTPException):  # its text may repeat addresses
                kind = type(error.__cause__).__name__
                raise TransportError(f"the mail server refused it ({kind}).") from None
            raise


def _socket(server: SMTP) -> socket.socket:
    assert server.sock is not None, "it is connected"
    return server.sock


def make_channels(settings: ServiceSettings, folder: Path) -> list[Webhook | Mail]:
    """Return the channels that are set; a missing secret of the webhook is made."""
    channels: list[Webhook | Mail] = []
    if settings.notify_webhook:
        path = folder / WEBHOOK_SECRET
        if not path.exists():
            private_file(path, f"whsec_{base64.b64encode(SystemBits().draw(32)).decode()}\n")
        text, secret = _read(path), b""
        with suppress(ValueError):
            secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
        if not 24 <= len(secret) <= 64:
            raise InputError(f"{path} is not whsec_ with the base64 of 24 to 64 bytes.")
        channels.append(Webhook(settings.notify_webhook, secret))
    if settings.notify_email:
        path = folder / SMTP_PASSWORD
        channels.append(Mail(settings, _read(path) if path.exists() else ""))
    return channels


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read.") from error


class Notifier:
    """Queues and sends the notices of a party; a task of its service."""

    def __init__(self, party: Party, channels: Sequence[Webhook | Mail]) -> None:
        self._party, self._service, self._channels = party, party.service, channels
        self._settings = party.service.settings
        self._database: Database = party.store.database
        # Several services may share a database, and each has problems of its own.
        here = f" {socket.gethostname()} {self._service.folder}" * self._service.is_shared
        self._fact = f"problem{here}"
        self._problem, self._since = "", time.monotonic()
        self._told: str | None = None
        """The problem of the last notice, "" after its end; None until it was read."""
        self._told_at = -PAUSE
        self._unsaved: list[Notice] = []
        """Notices of problems that the data could not take; they are sent from memory."""
        self._sent: set[tuple[str, str]] = set()
        """Notices that were sent, and could not be removed from the data."""
        self._threads: dict[str, threading.Thread] = {}
        self._plans: dict[str, Plan] = {}
        self._old_topics: set[str] = set()

    async def run(self) -> None:
        while True:
            try:
                await self.turn()
            except Exception as error:
                LOG.error("notifications failed", exc_info=error)
            await asyncio.sleep(TURN)

    async def turn(self) -> None:
        """Look for something to tell, and send the notices that are due."""
        if not self._channels:
            await self._service.in_store(self._forget_releases)
            return
        await self._watch_health()
        due: list[Notice] = []
        try:
            due = await self._service.in_store(self._due)
        except StorageError as error:
            LOG.warning("notices cannot be queued", exc_info=error)
        try:
            for channel in self._channels:
                for notice in (*self._unsaved, *due):
                    if notice.channel == channel.name and not await self._deliver(channel, notice):
                        break  # the next one would fail too
        finally:
            if due:
                await self._service.in_store(self._database.unclaim, _CLAIM)

    # Sending

    async def _deliver(self, channel: Webhook | Mail, notice: Notice) -> bool:
        """Try to send a notice, and note the result; return whether it was sent."""
        key = (notice.id, channel.name)
        if key not in self._sent:
            try:
                await self._on_thread(channel, notice)
            except Exception as error:
                known = isinstance(error, TransportError)
                facts = {"channel": channel.name, "notice": notice.id, "error": str(error)}
                LOG.warning("a notice was not sent", exc_info=not known, extra={"facts": facts})
                if self._service.clock() - notice.made < MAX_AGE:
                    await self._note(self._postpone, notice)
                    return False
                LOG.error("a notice was dropped", extra={"facts": facts})
            self._sent.add(key)
        if notice in self._unsaved:
            self._unsaved.remove(notice)
        if await self._note(self._end, notice):
            self._sent.discard(key)
        return True

    async def _note(self, work: Callable[[Notice], None], notice: Notice) -> bool:
        """Note in the data what became of a notice; return whether that was possible."""
        with suppress(StorageError):  # `_sent` knows it; after a restart it is sent again
            await self._service.in_store(work, notice)
            return True
        return False

    async def _on_thread(self, channel: Webhook | Mail, notice: Notice) -> None:
        """Send a notice on a thread that the end of the process does not wait for."""
        last = self._threads.get(channel.name)
        if last is not None and last.is_alive():
            raise TransportError("the last attempt has not ended.")
        result: Future[None] = Future()
        result.set_running_or_notify_cancel()

        def work() -> None:
            try:
                result.set_result(channel.send(notice))
            except Exception as error:
                result.set_exception(error)

        thread = self._threads[channel.name] = threading.Thread(target=work, daemon=True)
        thread.start()
        sending = asyncio.wrap_future(result)
        await asyncio.wait([sending], timeout=2 * TIMEOUT)
        if not sending.done():
            sending.cancel()
            raise TransportError("the receiver takes too long.")
        sending.result()

    # The queue, on the store's thread

    def _write(self, name: str, *statements: Statement) -> None:
        def work() -> None:
            for statement, values in statements:
                self._database.execute(statement, values)

        self._database.run(name, work, exclusive=False)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with storage_errors():
            return list(self._database.execute(query, values).fetchall())

    def _postpone(self, notice: Notice) -> None:
        wait = min(FIRST_RETRY << min(notice.attempts, 20), LAST_RETRY)
        change = "UPDATE notices SET attempts = attempts + 1, due = ? WHERE id = ? AND channel = ?"
        values = (int(self._service.clock()) + wait, notice.id, notice.channel)
        self._write("postpone a notice", (change, values))

    def _end(self, notice: Notice) -> None:
        """Forget a notice, except that its topic was told."""
        change = "UPDATE notices SET due = NULL" if notice.topic else "DELETE FROM notices"
        values = (notice.id, notice.channel)
        self._write("end a notice", (f"{change} WHERE id = ? AND channel = ?", values))

    def _due(self) -> list[Notice]:
        """Queue new notices, and return those that are to be sent now."""
        if unsaved := list(self._unsaved):
            inserts = (notice.insert for notice in unsaved)
            self._write("queue notices", *inserts, *self._remember_problem())
            self._unsaved = [one for one in self._unsaved if one not in unsaved]
        due: list[Notice] = []
        if self._database.claim(_CLAIM):
            try:
                due = self._queue_and_read(self._service.clock())
            finally:
                if not due:
                    self._database.unclaim(_CLAIM)
        return due

    def _queue_and_read(self, now: float) -> list[Notice]:
        oldest = int(now) - (self._settings.notify_before_days + 30) * _DAY
        new = [*self._releases(now), *self._queued(self._expiring(now))]
        if self._rows("SELECT 1 FROM notices WHERE made < ? LIMIT 1", oldest):
            new.append(("DELETE FROM notices WHERE made < ?", (oldest,)))
        if new:
            self._write("queue notices", *new)
        query = (
            "SELECT id, channel, topic, document, made, attempts FROM notices"
            " WHERE channel = ? AND due <= ? ORDER BY made, id LIMIT ?"
        )
        found = [self._rows(query, one.name, int(now), _AT_ONCE) for one in self._channels]
        return [Notice(*row) for rows in found for row in rows]

    def _queued(self, notices: Iterable[Notice]) -> list[Statement]:
        return [
            replace(notice, channel=channel.name).insert
            for notice in notices
            for channel in self._channels
        ]

    def _forget_releases(self) -> None:
        if self._rows("SELECT 1 FROM unannounced LIMIT 1"):
            self._write("forget releases", ("DELETE FROM unannounced", ()))

    def _releases(self, now: float) -> Iterator[Statement]:
        query = "SELECT plan, number FROM unannounced ORDER BY plan, number LIMIT ?"
        rows = self._rows(query, _MAX_CROWDS)
        for plan_id, group in groupby(rows, key=lambda row: row[0]):
            plan, crowds = self._plan(plan_id), [number for _, number in group]
            text = f"Crowd {crowds[0]} of {plan.survey.name} is released."
            if len(crowds) > 1:
                text = f"{len(crowds)} crowds of {plan.survey.name} are released."
            page = f"/crowds/{crowds[-1]}"
            notice = Notice.about("release.ready", text, now, **self._subject(plan, crowds, page))
            yield from self._queued([notice])
        for row in rows:
            yield "DELETE FROM unannounced WHERE plan = ? AND number = ?", row

    def _subject(self, plan: Plan, crowds: list[int], page: str = "") -> dict[str, Any]:
        path = ""
        if self._party.has_pages:
            from shoal.reports.formatting import slug  # it loads the pages

            path = f"/surveys/{slug(plan.survey.name)}~{plan.id[:12]}{page}"
        about = {"survey": plan.survey.name, "plan": plan.id, "crowds": crowds}
        return {"service": self._kind, **about, "url": self._url + path}

    @property
    def _kind(self) -> str:
        return type(self._party).__name__.lower()

    @property
    def _url(self) -> str:
        settings: Any = self._settings
        return str(settings.console_url or own_url(settings.console)).rstrip("/")

    def _expiring(self, now: float) -> Iterator[Notice]:
        """Yield notices of crowds that are incomplete shortly before they are discarded."""
        # Only whether a crowd is complete decides, which everybody knows who reads releases.
        columns, days = self._party.crowd_columns, self._settings.notify_before_days
        if columns is None or not days:
            return
        rows = self._rows(
            f"SELECT plan, window, min({columns[0]}), min({columns[1]}) FROM crowds"  # noqa: S608  fixed
            " WHERE state = 'open' GROUP BY plan, window"
        )
        for plan_id, window, crowd, day in rows:
            plan, topic = self._plan(plan_id), f"crowd.expiring {plan_id} {window} {crowd}"
            begins, ends = lifetime(plan, window, day, self._settings.deadline_days)
            if now < ends - min(days * _DAY, (ends - begins) / 4) or topic in self._old_topics:
                continue
            if self._is_no_news(plan, window, begins, topic):
                self._old_topics.add(topic)
                continue
            end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends))
            text = (
                f"Crowd {crowd} of {plan.survey.name} is incomplete and will be discarded at {end}"
                " unless it fills."
            )
            yield Notice.about("crowd.expiring", text, now, topic, **self._subject(plan, [crowd]))

    def _is_no_news(self, plan: Plan, window: int, begins: float, topic: str) -> bool:
        """Whether a crowd was told of before, or is discarded as usual.

        The last crowd of each window is, and that of a window which was over at the publication.
        """
        if self._rows("SELECT 1 FROM notices WHERE topic = ? LIMIT 1", topic):
            return True
        complete = (
            "SELECT 1 FROM crowds WHERE plan = ? AND window = ?"
            " AND state NOT IN ('open', 'discarded') LIMIT 1"
        )
        return plan.window is not None and (
            begins >= (window + 1) * plan.window or bool(self._rows(complete, plan.id, window))
        )

    def _plan(self, plan_id: str) -> Plan:
        if plan_id not in self._plans:
            self._plans[plan_id] = self._party.store.plan(plan_id).plan
        return self._plans[plan_id]

    # Health

    async def _watch_health(self) -> None:
        """Make a notice of a problem that lasts, or of its end."""
        if self._told is None:
            with suppress(StorageError):
                self._told = await self._service.in_store(self._last_told)
        found = await self._party.obstacle()
        name, title = ("", "") if found is None else (found.name, found.title)
        if not name and self._service.has_expired_secret:
            name, title = "expired-key", "The secret of an expired key cannot be destroyed."
        now = time.monotonic()
        if name != self._problem:
            self._problem, self._since = name, now
        is_too_soon = name and now - self._told_at < PAUSE
        if name == (self._told or "") or now - self._since < SETTLED or is_too_soon:
            return
        kind, text = "health.recovered", f"This {self._kind} is well again."
        if name:
            kind, text = "health.problem", f"This {self._kind} has a problem: {title}"
            self._told_at = now
        about = {"service": self._kind, "problem": name or self._told or "", "url": self._url}
        notice = Notice.about(kind, text, self._service.clock(), **about)
        self._unsaved += [replace(notice, channel=one.name) for one in self._channels]
        self._told = name

    def _last_told(self) -> str:
        with storage_errors():
            return read_fact(self._database.connection, self._fact) or ""

    def _remember_problem(self) -> Iterator[Statement]:
        yield "DELETE FROM facts WHERE name = ?", (self._fact,)
        if self._told:
            yield "INSERT INTO facts (name, value) VALUES (?, ?)", (self._fact, self._told)


def lifetime(plan: Plan, window: int, day: int, deadline_days: int) -> tuple[float, float]:
    """Return when a crowd that was opened on a day begins, and when it is discarded if open."""
    begins, ends = float(day * _DAY), float("inf")
    if plan.window is not None:
        begins, ends = max(begins, window * plan.window), (window + 2.0) * plan.window
    if deadline_days:
        ends = min(ends, float((day + deadline_days) * _DAY))
    return begins, ends


def try_channels(settings: ServiceSettings, folder: Path, *, send: bool) -> dict[str, str]:
    """Reach every channel, or send a test notice; return what went wrong on each, or ""."""
    notice = Notice.about("test", "This is a test notice.", time.time())
    failures = {}
    for channel in make_channels(settings, folder):
        failures[channel.name] = ""
        try:
            if send:
                channel.send(notice)
            else:
                with channel.connected():
                    pass
        except TransportError as error:
            failures[channel.name] = str(error)
    return failures
