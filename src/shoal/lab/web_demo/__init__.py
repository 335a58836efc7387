"""One crowd in a browser: a visitor answers on a page, and simulated people fill the crowd.

The page uses the client for web pages, the collector is a `shoal serve` process, and every
simulated person has an outbox. The demonstration knows their answers and shows the truth beside the
estimates. It does not know the answer of the visitor, which never leaves the browser.

The page is served on this machine alone. Its content security policy lets it talk to this server
and to the collector's public endpoint only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from shoal.device.outbox import HttpTransport
from shoal.errors import InputError, ShoalError
from shoal.lab.demo import (
    Answer,
    admin_token,
    console_get,
    devices_folder,
    free_port,
    made_up_answers,
    running_collector,
    scratch_folder,
    send_all,
    send_one,
    with_truth,
)
from shoal.planning.certificate import check_promise
from shoal.protocol.plan import Plan

_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_INSTALLED = Path(__file__).parent / "client"
_CHECKOUT = Path(__file__).parents[4] / "clients" / "js"


@contextmanager
def web_demonstration(plan: Plan, *, seed: int) -> Iterator[str]:
    """Run a collector with a plan and a page with its survey, and yield the page's address.

    The crowd is the visitor and simulated people; the seed says who answers what.
    """
    host = f"127.0.0.1:{free_port()}"
    with (
        scratch_folder() as data,
        devices_folder() as devices,
        running_collector(data, plan, "--origins", f"http://{host}") as urls,
    ):
        token = admin_token(data)
        people = People(plan, seed, urls, token, devices)
        documents = _documents(plan, urls["public"], run=data.name)
        with _served(documents, people, urls["public"], host) as address:
            try:
                yield address
            finally:
                people.stop()


def _documents(plan: Plan, public: str, run: str) -> dict[str, tuple[str, bytes]]:
    """Return everything that does not change, by path, with its media type."""
    # Imported here: the other demonstrations need no page.
    from shoal.server.console.views import static_file

    own = files("shoal.lab.web_demo") / "static"
    contents = {name: (own / name).read_bytes() for name in ("index.html", "page.js", "page.css")}
    contents["page.css"] = static_file("console.css") + contents["page.css"]
    contents["icon.svg"] = static_file("icon.svg")
    contents |= client_files()
    shown = {
        f"/{name}": (f"{_TYPES[Path(name).suffix]}; charset=utf-8", content)
        for name, content in contents.items()
    }
    settings = json.dumps(_settings(plan, public, run)).encode()
    return shown | {"/": shown["/index.html"], "/settings.json": ("application/json", settings)}


def _settings(plan: Plan, public: str, run: str) -> dict[str, Any]:
    """Return what the page ships with it, and what it says about the plan.

    `run` tells one demonstration from another at the same address: a browser answers a plan once,
    and remembers that it did.
    """
    status, content = console_get(public, "/v1/keys", "")
    if status != 200:
        raise ShoalError(f"the collector answered {status} instead of its key.")
    client = {
        "plan": plan.id,
        "to": public,
        "key": json.loads(content)["ed25519"][0],
        "limit": plan.local_epsilon,
    }
    return {
        "client": client,
        "run": run,
        "promise": check_promise(plan).in_words,
        "crowd": plan.reports_needed,
        "q": float(plan.q),
        "flips": plan.to_json()["q"],
    }


@contextmanager
def _served(
    documents: dict[str, tuple[str, bytes]], people: People, collector: str, host: str
) -> Iterator[str]:
    """Serve the page at a port of this machine while the demonstration lasts."""
    name, _, port = host.partition(":")
    pages = _handler(documents, people, collector, host)
    with ThreadingHTTPServer((name, int(port)), pages) as server:
        thread = Thread(target=server.serve_forever, name="page")
        thread.start()
        try:
            yield f"http://{host}/"
        finally:
            server.shutdown()
            thread.join()


def _handler(
    documents: dict[str, tuple[str, bytes]], people: People, collector: str, host: str
) -> type[BaseHTTPRequestHandler]:
    policy = (
        "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self';"
        f" connect-src 'self' {collector}; form-action 'none'; frame-ancestors 'none';"
        " base-uri 'none'"
    )

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, visitor = self.path.partition("?visitor=")
            if not self._is_ours():
                self._send(403, "text/plain", b"this page has another address.\n")
            elif path == "/state.json":
                self._send_state(visitor)
            elif path == "/report.html":
                page = people.report_page()
                status, content = (200, page) if page else (409, b"the crowd is not complete.\n")
                media = "text/html; charset=utf-8" if page else "text/plain"
                self._send(status, media, content, _REPORT_POLICY)
            elif path in documents:
                self._send(200, *documents[path])
            else:
                self._send(404, "text/plain", b"there is no such page.\n")

        def do_POST(self) -> None:
            """Give the visitor's seat away, or let the others answer, if the page asks for it."""
            from_page = self.headers.get("Sec-Fetch-Site") == "same-origin"
            path, _, visitor = self.path.partition("?visitor=")
            actions = {"/seat": people.take_seat, "/begin": people.begin}
            if path not in actions or not (self._is_ours() and from_page):
                self._send(403, "text/plain", b"only the page itself may do that.\n")
                return
            actions[path](visitor)
            self._send_state(visitor)

        def _is_ours(self) -> bool:
            """Whether this was sent to our own name, and not to one that leads here."""
            return self.headers.get("Host") == host

        def _send_state(self, visitor: str) -> None:
            try:
                state = people.state(visitor)
            except ShoalError as error:
                state = {"state": "failed", "reason": str(error)}
            self._send(200, "application/json", json.dumps(state).encode())

        def _send(self, status: int, media: str, content: bytes, policy: str = policy) -> None:
            self.send_response(status)
            for name, text in (
                ("Content-Type", media),
                ("Content-Length", str(len(content))),
                ("Content-Security-Policy", policy),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
                ("Referrer-Policy", "no-referrer"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
            ):
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing about who looks at the page."""

    return Pages


class People:
    """A crowd without its last person, and the collector that counts it.

    `urls` are the collector's addresses `public` and `console`; `folder` holds the outboxes.
    """

    def __init__(
        self, plan: Plan, seed: int, urls: dict[str, str], token: str, folder: Path
    ) -> None:
        self.plan = plan
        self._people = list(made_up_answers(plan.survey, plan.reports_needed - 1, seed))
        self._urls, self._token, self._folder = urls, token, folder
        self._over = Event()
        self._guard = Lock()
        self._visitor = ""
        self._sending: Thread | None = None
        self._failure: str | None = None

    def take_seat(self, visitor: str) -> None:
        """Reserve the one place for a visitor; the first to ask keeps it."""
        with self._guard:
            self._visitor = self._visitor or visitor

    def _seat(self, visitor: str) -> str:
        if not self._visitor:
            return "free"
        return "yours" if visitor == self._visitor else "taken"

    def begin(self, visitor: str) -> None:
        """Start sending their answers, once, when the visitor's report has been sent."""
        with self._guard:
            if self._seat(visitor) != "yours" or self._over.is_set():
                return
            if self._sending is None:
                self._sending = Thread(target=self._send_all, name="people")
                self._sending.start()

    def stop(self) -> None:
        """Stop sending."""
        with self._guard:
            self._over.set()
        if self._sending is not None:
            self._sending.join()

    def _send_all(self) -> None:
        try:
            send_all(self._people, self._send, self._folder, lambda done: None)
        except ShoalError as error:
            self._failure = str(error)

    def _send(self, answer: Answer, folder: Path, over: Event) -> None:
        if self._over.is_set():
            raise ShoalError("the demonstration is over.")
        send_one(self.plan.id, answer, HttpTransport(self._urls["public"]), folder, over)

    def state(self, visitor: str) -> dict[str, Any]:
        """Return the progress of an open crowd in per cent, or the estimates of a complete one.

        `seat` says whether the visitor's place is free, theirs, or taken by somebody else.

        `early` is the status that the console answers about the estimates of an open crowd.
        """
        if self._failure is not None:
            return {"state": "failed", "reason": self._failure}
        status, content = self._ask("/crowds/1/estimates")
        if status == 200:
            estimates = with_truth(json.loads(content), self._people)
            return {"state": "complete", "seat": self._seat(visitor)} | estimates
        asked, content = self._ask("/progress")
        if asked != 200:
            raise ShoalError(f"the console answered {asked} instead of the progress.")
        state = "waiting" if self._sending is None else "filling"
        progress = json.loads(content)["progress"]
        seat = self._seat(visitor)
        return {"state": state, "seat": seat, "progress": progress, "early": status}

    def report_page(self) -> bytes | None:
        """Return the report page of the crowd, if it is complete."""
        status, content = self._ask("/crowds/1/report.html")
        return content if status == 200 else None

    def _ask(self, path: str) -> tuple[int, bytes]:
        return console_get(self._urls["console"], f"/v1/plans/{self.plan.id}{path}", self._token)


def client_files() -> dict[str, bytes]:
    """Return the files of the client for web pages, by their relative path."""
    for folder in (_INSTALLED, _CHECKOUT):
        entry = folder / "shoal.js"
        if entry.is_file():
            parts = sorted((folder / "src").glob("*.js"))
            return {
                path.relative_to(folder).as_posix(): path.read_bytes() for path in (entry, *parts)
            }
    raise InputError("the client for web pages is not installed here; install shoal again.")
