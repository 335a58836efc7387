"""The outbox: an answer is randomized once, and the same bytes are sent until they are accepted.

`Outbox` keeps what is to be sent in a folder that survives crashes; a `Transport` carries plans to
the device and reports away from it. `HttpTransport` does so over HTTPS, and `ObliviousTransport`
through a relay that hides the sender's address. `read_plan`,
`check_plan`, `check_promise` and `check_certificate` are what a device checks before it answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.device.outbox.http import HttpTransport
from shoal.device.outbox.outbox import Outbox
from shoal.device.outbox.plan_checks import check_certificate, check_plan, check_promise, read_plan
from shoal.device.outbox.records import Ticket
from shoal.device.outbox.replies import Reply
from shoal.errors import TransportError

if TYPE_CHECKING:
    from shoal.device.outbox.oblivious import ObliviousTransport
    from shoal.device.outbox.transport import CertifyingTransport, Transport

__all__ = [
    "CertifyingTransport",
    "HttpTransport",
    "ObliviousTransport",
    "Outbox",
    "Reply",
    "Ticket",
    "Transport",
    "TransportError",
    "check_certificate",
    "check_plan",
    "check_promise",
    "read_plan",
]


def __getattr__(name: str) -> object:
    """Load what most devices do not need when it is asked for."""
    if name == "ObliviousTransport":
        from shoal.device.outbox.oblivious import ObliviousTransport

        return ObliviousTransport
    if name in ("CertifyingTransport", "Transport"):
        from shoal.device.outbox import transport

        return getattr(transport, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
