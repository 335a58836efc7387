"""Receivers of notifications: a webhook that keeps requests, and a small mail server."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from io import BufferedIOBase
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

from tests.server.serving_help import QuietHandler, handled_by


class Received(list[tuple[dict[str, str], bytes]]):
    """Requests to a webhook: headers, with small names, and bodies; `statuses` come first."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.paths = list(statuses), list[str]()
        self.url = ""


@contextmanager
def webhook(*statuses: int, headers: dict[str, str] | None = None) -> Iterator[Received]:
    """Run a webhook that responds with these statuses, one after another, and then with 204."""
    received = Received(*statuses)

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(({name.lower(): text for name, text in self.headers.items()}, body))
            received.paths.append(self.path)
            self.send_response_only(received.statuses.pop(0) if received.statuses else 204)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.end_headers()

        do_GET = do_POST  # noqa: N815  its name

    with handled_by(Handler) as port:
        received.url = f"http://127.0.0.1:{port}/hook?key=canary"
        yield received


class MailServer:
    """A mail server on this machine, as far as RFC 5321 needs it for one client."""

    def __init__(self, password: str = "") -> None:
        self.messages: list[Message[str, str]] = []
        self.recipients: list[str] = []
        self.refuses, self._password, self.port = 0, password, 0

    def serve(self, incoming: BufferedIOBase, say: Callable[[str], None]) -> None:
        say("220 mail.example")
        signed_in = not self._password
        while line := incoming.readline().decode().strip():
            word = line.split()[0].upper()
            if word == "EHLO":
                say("250-mail.example\r\n250 AUTH PLAIN")
            elif word == "AUTH":
                secret = base64.b64decode(line.split()[2]).decode().split("\0")[2]
                signed_in = secret == self._password
                say("235 fine" if signed_in else "535 no")
            elif word == "MAIL":
                self.refuses -= 1
                say("250 fine" if signed_in and self.refuses < 0 else "451 later")
            elif word == "RCPT":
                self.recipients.append(line)
                say("250 fine")
            elif word == "DATA":
                say("354 go on")
                lines = list(iter(incoming.readline, b".\r\n"))
                self.messages.append(message_from_bytes(b"".join(lines)))
                say("250 fine")
            else:
                say("221 bye" if word == "QUIT" else "250 fine")


@contextmanager
def mail_server(password: str = "") -> Iterator[MailServer]:
    mail = MailServer(password)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            mail.serve(self.rfile, self.say)

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        mail.port = server.server_address[1]
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield mail
        finally:
            server.shutdown()
            thread.join()
