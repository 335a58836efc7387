"""Encrypt a report for a relay and an analyzer.

Encryption comes last and may be repeated: when a crowd is complete, the report goes to the next
one, which has another key. The report id outside stays, so that the relay counts the report once.
The identifier inside is new each time, so nothing links them.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.device.outbox.queue import Record
from shoal.device.outbox.retry import Transport
from shoal.errors import PrivacyRefusal, ReportError, TransportError
from shoal.protocol.encryption import (
    CrowdKey,
    EncryptedReports,
    encrypt_message,
    encrypted_report_bytes,
    encryption_info,
    public_key_of,
)
from shoal.protocol.plan import Aggregators, Parties, Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import ID_BYTES, split_batch
from shoal.support.connections import parse_address


def encrypt_report(plan: Plan, batch: bytes, key: CrowdKey) -> EncryptedReports:
    """Encrypt one report, packed by `pack_reports`, for the key of an open crowd."""
    reports = split_batch(plan, batch)
    if len(reports) != 1:
        raise ReportError(f"one report is encrypted at a time, got {len(reports)}.")
    window = reports.windows[0]
    if (key.plan_id, key.window) != (plan.id, window):
        raise ReportError("the key is of another plan or window than the report.")
    report_id, row = reports.content[:ID_BYTES], reports.content[ID_BYTES + 4 :]
    public_key, info = public_key_of(key.public_key), encryption_info(plan, window)
    message = encrypt_message(SystemBits().draw(ID_BYTES) + row, public_key, info)
    length = encrypted_report_bytes(plan)
    return EncryptedReports(plan.id, window, key.digest, length, report_id + message)


def check_parties(
    parties: Parties | Aggregators, transport: Transport, *, one_operator: bool = False
) -> None:
    """Refuse a plan unless its reports would reach its parties, encrypted for them."""
    shared = isinstance(parties, Aggregators)
    (first, there), (second, other) = parties.origins.items()
    if parties.one_operator and not one_operator:
        seen = "put every report together" if shared else "see whose report it reads"
        raise PrivacyRefusal(
            f"one operator runs the plan's {first} and {second} ({there}, {other}) and can {seen};"
            " to answer all the same: --one-operator, or one_operator=True."
        )
    address = getattr(transport, "address", None)
    if address is None or not hasattr(
        transport, "fetch_hpke_keys" if shared else "fetch_crowd_key"
    ):
        raise PrivacyRefusal(
            f"the plan's reports go to a {first}, and this transport does not lead to one."
        )
    here, _ = parse_address(address)
    if here != parse_address(there)[0]:
        raise PrivacyRefusal(
            f"the plan's reports go to the {first} {there}, not to {here}; use --to {there}."
        )
    if not shared and getattr(transport, "pinned_key", None) is None:
        raise PrivacyRefusal(
            "the plan's reports are encrypted with a key that the analyzer signed; give the"
            " analyzer's public key: --key, or public_key=. Without it the relay could hand out a"
            " key of its own and read them."
        )


def encrypt_record(plan: Plan, fetch: Callable[[str, int], bytes], record: Record) -> bytes:
    """Return a stored report, encrypted for the crowd that is open now; this asks the relay."""
    try:
        key = CrowdKey.from_bytes(fetch(record.plan_id, record.window))
        return encrypt_report(plan, record.batch, key).to_bytes()
    except ReportError as error:
        raise TransportError(f"the relay's key document cannot be used: {error}") from error
