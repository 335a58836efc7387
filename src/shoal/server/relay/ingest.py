"""`POST /v1/plans/{id}/encrypted`: sealed reports of devices."""

from __future__ import annotations

import re

from shoal.protocol.encryption import EncryptedReports, encrypted_batch_bytes, split_encrypted
from shoal.protocol.plan import Plan
from shoal.protocol.wire import ENCRYPTED_TYPE
from shoal.server.core.ingest import DeviceIngest

__all__ = ["SealedIngest", "kilobytes"]


class SealedIngest(DeviceIngest[EncryptedReports]):
    """Accepts sealed reports, within the same limits as the collector."""

    path = re.compile(r"/v1/plans/([0-9a-f]{64})/encrypted")
    media = frozenset({ENCRYPTED_TYPE.encode()})

    @staticmethod
    def parse(plan: Plan, body: bytes) -> EncryptedReports:
        """Return the reports in a body."""
        return split_encrypted(plan, body)

    @staticmethod
    def bytes_of(plan: Plan, count: int) -> int:
        """Return how many bytes so many reports have."""
        return encrypted_batch_bytes(plan, count)


def kilobytes(upload: EncryptedReports) -> int:
    """Return how much memory an upload takes while it waits, in kilobytes."""
    return 1 + (len(upload.content) >> 10)
