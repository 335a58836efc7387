"""The outbox: an answer is randomized once, and the same bytes are sent until they are accepted.

`Outbox` keeps what is to be sent in a folder that survives crashes; a `Transport` carries plans to
the device and reports away from it, and `HttpTransport` does so over HTTPS. `read_plan`,
`check_plan`, `check_promise` and `check_certificate` are what a device checks before it answers.
"""

from shoal.errors import TransportError
from shoal.sending.checking import check_certificate, check_plan, check_promise, read_plan
from shoal.sending.http import HttpTransport
from shoal.sending.outbox import Outbox
from shoal.sending.records import Ticket
from shoal.sending.transport import CertifyingTransport, Reply, Transport

__all__ = [
    "CertifyingTransport",
    "HttpTransport",
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
