"""A TCP proxy that cuts a connection at a message of its client, once."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Forwards connections to a local port; use it as a context.

    The n-th message from now is the n-th stretch of bytes that the client sends. It is cut before
    the server gets it, after half of it, or after the server has answered and before the client
    gets the answer.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._left: int | None = None
        self._when = "before"
        self.has_cut = False

    def cut(self, message: int, when: str) -> None:
        """Cut at the n-th message from now."""
        self.has_cut, self._when, self._left = False, when, message

    def leave_alone(self) -> None:
        """Cut nothing."""
        self._left = None

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for one in (client, server):  # as libpq does: no message waits for another
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, selectors.DefaultSelector() as waiting, suppress(OSError):
            waiting.register(client, selectors.EVENT_READ)
            waiting.register(server, selectors.EVENT_READ)
            is_due = False
            while True:
                for key, _ in waiting.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    content = source.recv(1 << 20)
                    if not content:
                        return
                    is_due = is_due or (source is client and self._is_the_one())
                    if is_due and (source is server or self._when != "after"):
                        if self._when == "within":
                            server.sendall(content[: len(content) // 2])
                        self.has_cut = True
                        return
                    (server if source is client else client).sendall(content)

    def _is_the_one(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        return self._left == 0
