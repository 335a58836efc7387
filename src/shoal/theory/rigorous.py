"""A second evaluation of proven bounds, in ball arithmetic (Arb, through python-flint).

It shares no code with the rest of `shoal.theory`. It is `tools/verify_certificate.py`, the file
that anyone can run on a certificate without Shoal: its documentation states and proves every
bound. Here the same functions are called from Python. A wheel has the file beside this module.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

from shoal.theory.brackets import Bracket

_NAME = "verify_certificate.py"
_INSTALLED = Path(__file__).with_name(_NAME)
_CHECKOUT = Path(__file__).parents[3] / "tools" / _NAME

_AIM = 1.0 - 1.9e-4
"""The verifier stops within 2e-4 of a claim; a claim this much smaller asks for a closer bound."""


class NotCoveredError(NotImplementedError):
    """The rigorous evaluation does not cover this kind of certificate."""


@functools.cache
def verifier() -> ModuleType:
    """Return the verifier of certificates; needs python-flint."""
    path = _INSTALLED if _INSTALLED.is_file() else _CHECKOUT
    spec = importlib.util.spec_from_file_location("shoal.theory._verifier", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rigorous_delta(claim: dict[str, Any]) -> Bracket:
    """Enclose the bound on delta that is proven for a certificate.

    `claim` has the fields of a certificate that the verifier reads. Its delta is only a guess: the
    search for a close bound ends near it. The low end is 0 where only the high end is computed.
    """
    return _enclosed(json.dumps({**claim, "delta": claim["delta"] * _AIM}, sort_keys=True))


@functools.lru_cache(maxsize=64)
def _enclosed(claim: str) -> Bracket:
    try:
        low, high = verifier().bounds(json.loads(claim, parse_float=Fraction))
    except NotImplementedError as reason:
        raise NotCoveredError(str(reason)) from reason
    high = _as_float(high, up=True)
    return Bracket(min(_as_float(low, up=False), high), high)


def _as_float(ball: Any, *, up: bool) -> float:
    """Return an exact ball as a float, rounded up or down."""
    mantissa, exponent = (int(part) for part in ball.man_exp())
    shift = max(mantissa.bit_length() - 53, 0)
    whole = -(-mantissa >> shift) if up else mantissa >> shift
    return float(Fraction(whole) * Fraction(2) ** (exponent + shift))
