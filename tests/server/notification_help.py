"""Receivers of notifications: a webhook that keeps requests, and a small mail server."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.message import Message
from io import BufferedIOBase
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

from tests.server.serving_help import QuietHandler, handled_by


class Received(list[tuple[dict[str, str], bytes]]):
    """Requests to a webhook: headers, with small names, and bodies; `statuses` come first."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.paths = list(statuses), list[str]()
        self.url = ""


@contextmanager
def webhook(
    *statuses: int, headers: dict[str, str] | None = None, certificate: Path | None = None
) -> Iterator[Received]:
    """Run a webhook that responds with these statuses, one after another, and then with 204."""
    received = Received(*statuses)
    context = None if certificate is None else server_context(certificate)

    class Handler(QuietHandler):
        def setup(self) -> None:
            if context is not None:
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

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
        origin = "http://127.0.0.1" if context is None else "https://localhost"
        received.url = f"{origin}:{port}/hook?key=canary"
        yield received


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


class MailServer:
    """A mail server on this machine, as far as RFC 5321 needs it for one client."""

    def __init__(self, password: str = "", certificate: Path | None = None) -> None:
        self.messages: list[Message[str, str]] = []
        self.recipients: list[str] = []
        self.refuses, self._password, self.port = 0, password, 0
        self.encrypted: list[bool] = []
        self.context = None if certificate is None else server_context(certificate)

    def serve(self, wire: socket.socket) -> None:
        """Talk to one client, from the greeting to its end."""
        with wire.makefile("rb") as incoming:
            wire.sendall(b"220 mail.example\r\n")
            goes_on = self._talk(incoming, wire)
        if goes_on:
            assert self.context is not None
            with (
                self.context.wrap_socket(wire, server_side=True) as hidden,
                hidden.makefile("rb") as incoming,
            ):
                self._talk(incoming, hidden)

    def _talk(self, incoming: BufferedIOBase, wire: socket.socket) -> bool:
        """Answer commands; return whether the client wants to go on with TLS."""

        def say(line: str) -> None:
            wire.sendall(f"{line}\r\n".encode())

        signed_in = not self._password
        while line := incoming.readline().decode().strip():
            word = line.split()[0].upper()
            if word == "EHLO":
                tls = "" if self.context is None else "250-STARTTLS\r\n"
                say(f"250-mail.example\r\n{tls}250 AUTH PLAIN")
            elif word == "STARTTLS":
                say("220 go on")
                return True
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
                self.encrypted.append(isinstance(wire, ssl.SSLSocket))
                lines = list(iter(incoming.readline, b".\r\n"))
                self.messages.append(message_from_bytes(b"".join(lines)))
                say("250 fine")
            else:
                say("221 bye" if word == "QUIT" else "250 fine")
        return False


@contextmanager
def mail_server(
    password: str = "", certificate: Path | None = None, *, over_tls: bool = False
) -> Iterator[MailServer]:
    """Run a mail server; with a certificate it knows STARTTLS, or begins with TLS."""
    mail = MailServer(password, certificate)

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # a client that does not trust it is gone
                if not over_tls or mail.context is None:
                    mail.serve(self.request)
                    return
                with mail.context.wrap_socket(self.request, server_side=True) as wire:
                    mail.serve(wire)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        mail.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.01,))  # it stops that soon
        thread.start()
        try:
            yield mail
        finally:
            server.shutdown()
            thread.join()
