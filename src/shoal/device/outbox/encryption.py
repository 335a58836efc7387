"""Reports that go through a relay: whether this outbox may send them, and their sealing."""

from __future__ import annotations

from shoal.device.encryption import seal_report
from shoal.device.outbox.queue import Folder
from shoal.device.outbox.records import Record
from shoal.device.outbox.transport import RelayTransport, Transport
from shoal.errors import PrivacyRefusal, ReportError, TransportError
from shoal.protocol.crowd_keys import CrowdKey
from shoal.protocol.parties import Parties
from shoal.support.addresses import parse_address

__all__ = ["Sealer", "check_parties"]


def check_parties(parties: Parties, transport: Transport, *, one_operator: bool = False) -> None:
    """Refuse a plan unless its reports would reach its relay, sealed for its analyzer."""
    if parties.share_a_host and not one_operator:
        raise PrivacyRefusal(
            f"the plan's relay and analyzer are on one host ({parties.relay},"
            f" {parties.analyzer}), so that one operator may see whose report it reads; to answer"
            " all the same: --one-operator, or one_operator=True."
        )
    if not isinstance(transport, RelayTransport):
        raise PrivacyRefusal("the plan's reports go through a relay, and this transport has none.")
    here, _ = parse_address(transport.address)
    if here != parse_address(parties.relay)[0]:
        raise PrivacyRefusal(
            f"the plan's reports go to the relay {parties.relay}, not to {here}; use --to"
            f" {parties.relay}."
        )
    if transport.pinned_key is None:
        raise PrivacyRefusal(
            "the plan's reports are sealed with a key that the analyzer signed; give the"
            " analyzer's public key: --key, or public_key=. Without it the relay could hand out a"
            " key of its own and read them."
        )


class Sealer:
    """Seals the reports of one folder for the crowds that are open at the relay."""

    def __init__(self, folder: Folder, transport: Transport) -> None:
        self._folder, self._transport = folder, transport

    def seal(self, record: Record) -> bytes:
        """Return a report sealed for the crowd that is open now; this asks the relay."""
        plan = self._folder.kept_plan(record.plan_id)
        if plan is None or not isinstance(self._transport, RelayTransport):
            raise TransportError("the plan of this report, or the way to its relay, is missing.")
        try:
            key = CrowdKey.from_bytes(
                self._transport.fetch_crowd_key(record.plan_id, record.window)
            )
            return seal_report(plan, record.batch, key).to_bytes()
        except ReportError as error:
            raise TransportError(f"the relay's key document cannot be used: {error}") from error
