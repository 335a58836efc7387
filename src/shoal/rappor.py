"""RAPPOR collections: plans that they mean, and decoding them."""

from __future__ import annotations

from shoal.analysis.text.rappor import RapporDecoded, decode_rappor
from shoal.planning.rappor import Migration, RapporParameters, migrate

__all__ = ["Migration", "RapporDecoded", "RapporParameters", "decode_rappor", "migrate"]
