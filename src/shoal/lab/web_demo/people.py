"""The rest of the visitor's crowd: simulated people who answer once the visitor has.

The demonstration knows their answers and shows the truth beside the estimates. It does not know the
answer of the visitor, which never leaves the browser.
"""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from shoal.device.outbox import HttpTransport
from shoal.errors import InputError, ShoalError
from shoal.lab.demo import Answer, made_up_people, send_all, send_one, with_truth
from shoal.lab.services import console_get
from shoal.protocol.plan import Plan


class People:
    """A crowd without its last person, and the collector that counts it.

    `urls` are the collector's addresses `public` and `console`; `folder` holds the outboxes.
    """

    def __init__(
        self, plan: Plan, seed: int, urls: dict[str, str], token: str, folder: Path
    ) -> None:
        self.plan = plan
        self._people = list(made_up_people(plan.survey, plan.reports_needed - 1, seed))
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


_INSTALLED = Path(__file__).parent / "client"
_CHECKOUT = Path(__file__).parents[4] / "clients" / "js"


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
