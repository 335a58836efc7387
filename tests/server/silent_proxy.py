"""A TCP proxy behind which a host can vanish: nothing arrives any more, and nothing is closed."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class SilentProxy:
    """Forwards connections to a local port; use it as a context.

    While it is silent, it holds the bytes of both directions and the ends of connections, as a
    network that loses every packet. When it heals, they arrive late, in order. A host that vanished
    for ever is one that heals after `drop`.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._changed = threading.Condition()
        self._messages_left: int | None = None
        self._at_words: bytes | None = None
        self._refuses = False
        self._sockets: set[socket.socket] = set()
        self.is_silent = False

    def fall_silent(self, at_message: int | None = None, at_words: bytes | None = None) -> None:
        """Hold everything from now on, or from a client's n-th message or one with some words."""
        with self._changed:
            self._messages_left, self._at_words = at_message, at_words
            self.is_silent = at_message is None and at_words is None

    def heal(self) -> None:
        """Deliver what was held, and hold nothing."""
        with self._changed:
            self.is_silent, self._messages_left, self._at_words = False, None, None
            self._changed.notify_all()

    def refuse(self, refuses: bool = True) -> None:
        """Close new connections as they come, or stop doing so."""
        self._refuses = refuses

    def drop(self) -> None:
        """Close all connections, on both sides."""
        with self._changed:
            dropped = list(self._sockets)
        for one in dropped:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> SilentProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.drop()
        self.heal()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refuses:
                    client.close()
                else:
                    threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._pass()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        pair = (client, server)
        with self._changed:
            self._sockets.update(pair)
        for one in pair:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = threading.Thread(target=self._forward, args=(server, client, False), daemon=True)
        answers.start()
        self._forward(client, server, True)
        answers.join()
        with self._changed:
            self._sockets.difference_update(pair)
        for one in pair:
            one.close()

    def _forward(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 20):
                self._pass(content if from_client else None)
                target.sendall(content)
        self._pass()  # an end does not arrive before what was sent
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pass(self, message: bytes | None = None) -> None:
        """Return when something may be forwarded, such as a message of a client."""
        with self._changed:
            if message is not None and self._messages_left is not None:
                self._messages_left -= 1
                self.is_silent |= self._messages_left == 0
            if message is not None and self._at_words is not None:
                self.is_silent |= self._at_words in message
            self._changed.wait_for(lambda: not self.is_silent)
