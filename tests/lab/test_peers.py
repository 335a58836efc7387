"""Peers under question: one that is honest now, one that never was, one as it used to be.

The honest run uses the peer's own entropy at a confidence of 1 - 1e-11.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from shoal.audit import inspect_randomizer

EXAMPLES = Path(__file__).parents[2] / "examples"
SURE = 1 - 1e-11


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # the peers' own imports warn
@pytest.mark.slow
def test_opendp_passes():
    pytest.importorskip("opendp")
    randomizer = example("audit_opendp").randomizer
    verdict = inspect_randomizer(
        randomizer, q="0.25", bits=16, samples=4000, confidence=SURE, seed=1
    )
    assert verdict.reasons == ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_opendp_as_it_was_for_twenty_months_is_convicted():
    """opendp#2707: the last bit of each record was never sampled."""
    pytest.importorskip("opendp")
    today = example("audit_opendp").randomizer

    def as_it_was(row):
        return np.concatenate([today(row)[:-1], row[-1:]])

    verdict = inspect_randomizer(as_it_was, q="0.25", bits=16, confidence=SURE, seed=1)
    assert verdict.convicted
    assert any("bit 15 " in reason for reason in verdict.reasons)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_pure_ldp_rappor_is_convicted():
    """Its client never clears a one, so that a reported zero proves a zero."""
    pytest.importorskip("pure_ldp")
    randomizer = example("audit_pure_ldp").randomizer
    verdict = inspect_randomizer(randomizer, q="0.25", bits=16, confidence=SURE, seed=1)
    assert verdict.convicted
    assert "bits that were 1 were flipped in 0 of" in verdict.reasons[0]
