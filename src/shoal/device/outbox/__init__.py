"""The outbox: an answer is randomized once, and the same bytes are sent until they are accepted.

`Outbox` keeps what is to be sent in a folder that survives crashes; a `Transport` carries plans to
the device and reports away from it. `HttpTransport` does so over HTTPS, and `ObliviousTransport`
through a relay that hides the sender's address. `read_plan`,
`check_plan`, `check_promise` and `check_certificate` are what a device checks before it answers.
"""

from __future__ import annotations

from shoal.device.outbox.http import HttpTransport
from shoal.device.outbox.oblivious import ObliviousTransport
from shoal.device.outbox.outbox import Outbox
from shoal.device.outbox.plan_policy import check_certificate, check_plan, check_promise
from shoal.device.outbox.queue import Ticket
from shoal.device.outbox.retry import CertifyingTransport, PostResult, Transport
from shoal.errors import TransportError
from shoal.protocol.plan import read_plan

__all__ = [
    "CertifyingTransport",
    "HttpTransport",
    "ObliviousTransport",
    "Outbox",
    "PostResult",
    "Ticket",
    "Transport",
    "TransportError",
    "check_certificate",
    "check_plan",
    "check_promise",
    "read_plan",
]
