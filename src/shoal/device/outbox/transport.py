"""How plans reach the device and reports leave it: two calls, whatever carries them.

Only who asks whether something is a transport loads this module, and `typing` with it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from shoal.device.outbox.replies import Reply

__all__ = ["CertifyingTransport", "Posting", "RelayTransport", "Reply", "Transport"]


class Posting(Protocol):
    """Takes reports away."""

    def post_report(self, plan_id: str, content: bytes) -> Reply:
        """Hand over reports in the binary form; status 202 means that they were accepted for good.

        Sealed reports (`shoal.protocol.encrypted_wire`) go to the relay's own door for them.
        """
        ...


class Transport(Posting, Protocol):
    """Carries plans and reports: over HTTP, through a relay, or within a test.

    A transport may have an `address`: a report that was made for one is sent to no other. It may
    have `kept_open()`, a context that gives a `Posting` for the reports that are sent in one go.
    Both calls raise `shoal.errors.TransportError` or `OSError` where nobody can say what happened.
    One that can check signatures is a `CertifyingTransport`, and one that leads to a relay is a
    `RelayTransport`.
    """

    def fetch_plan(self, plan_id: str) -> bytes:
        """Return the plan's JSON; the caller checks it."""
        ...


@runtime_checkable
class CertifyingTransport(Transport, Protocol):
    """A transport that brings certificates too, each signed with the key that is pinned."""

    @property
    def pinned_key(self) -> str | None:
        """The key that certificates are checked against, or None: then there are none."""
        ...

    def fetch_certificate(self, plan_id: str) -> bytes:
        """Return a plan's certificate after its signature was checked."""
        ...


@runtime_checkable
class RelayTransport(CertifyingTransport, Protocol):
    """A transport to a relay, which also brings the keys that reports are sealed for."""

    @property
    def address(self) -> str:
        """Where reports go."""
        ...

    def fetch_crowd_key(self, plan_id: str, window: int) -> bytes:
        """Return the key document of a window's open crowd after its signature was checked."""
        ...
