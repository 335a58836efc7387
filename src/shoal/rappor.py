"""RAPPOR collections: plans that they mean, and decoding them."""

from __future__ import annotations

from shoal.errors import missing_extra

try:
    from shoal.analysis.text.rappor import RapporDecoded, decode_rappor
    from shoal.planning.rappor import Migration, RapporParameters, migrate
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.rappor") from None

__all__ = ["Migration", "RapporDecoded", "RapporParameters", "decode_rappor", "migrate"]
