"""Lets schemathesis send bodies of our own media types: any bytes."""

from __future__ import annotations

import schemathesis

from shoal.agreement.oblivious import REQUEST_TYPE
from shoal.agreement.sealed_wire import CHUNK_TYPE
from shoal.agreement.wire import SEALED_TYPE
from shoal.collector.intake.ingest import BINARY

schemathesis.serializer.alias(
    [REQUEST_TYPE, CHUNK_TYPE, SEALED_TYPE, *BINARY], "application/octet-stream"
)
