"""The outbox: randomize an answer once, and send the same bytes until they are accepted.

`Outbox` keeps reports in a folder that survives crashes. A `Transport` carries plans to the device
and reports away from it: `HttpTransport` over HTTPS, and `ObliviousTransport` in
`shoal.device.outbox.oblivious` through a relay that hides the sender's address. A device runs
`check_plan` and `check_promise` or `check_certificate` before it answers.
"""

from __future__ import annotations

from shoal.device.outbox.http import HttpTransport
from shoal.device.outbox.outbox import Outbox
from shoal.device.outbox.plan_policy import check_certificate, check_plan, check_promise
from shoal.device.outbox.queue import Ticket
from shoal.device.outbox.retry import PostResult, Transport
from shoal.errors import TransportError
from shoal.protocol.plan import read_plan

__all__ = [
    "HttpTransport",
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
