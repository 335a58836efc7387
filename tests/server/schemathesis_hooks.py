"""Lets schemathesis send bodies of our own media types: any bytes."""

from __future__ import annotations

import schemathesis

from shoal.protocol.encryption import CHUNK_TYPE
from shoal.protocol.oblivious import REQUEST_TYPE
from shoal.protocol.wire import ENCRYPTED_TYPE
from shoal.server.collector.ingest import BINARY

schemathesis.serializer.alias(
    [REQUEST_TYPE, CHUNK_TYPE, ENCRYPTED_TYPE, *BINARY], "application/octet-stream"
)
