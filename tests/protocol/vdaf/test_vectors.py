"""The draft's test vectors, byte for byte, with the C kernels and without."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import VdafError
from shoal.protocol.vdaf import Prio3
from shoal.protocol.vdaf.circuits import (
    Circuit,
    Count,
    Histogram,
    MultihotCountVec,
    Polynomial,
    Sum,
    SumVec,
)
from shoal.protocol.vdaf.field import derive_seed, field64, field128

VECTORS = Path(__file__).parents[2] / "vectors" / "vdaf"
FILES = sorted(path.stem for path in VECTORS.glob("Prio3*.json"))
TESTING = 0xFFFFFFFF


class HigherDegree(Circuit[int, int]):
    """0, 1 or 2; a circuit that is not one of ours, with a gadget of degree 3."""

    algorithm = TESTING
    scalar = True
    calls = measurement_length = output_length = 1

    def __init__(self) -> None:
        self.field, self.gadget = field64(), Polynomial((0, 2, -3, 1))  # x (x - 1) (x - 2)

    def encode(self, measurement: int) -> bytes:
        return self.field.vector([measurement])

    def wires(self, measurement: bytes, seeds: bytes, joint: bytes, n: int, shares: int) -> bytes:
        return seeds + measurement

    def outputs(self, measurement: bytes, results: bytes, shares: int) -> bytes:
        return results


def instance(name: str, vector: dict[str, Any]) -> Prio3[Any, Any]:
    chosen = {
        key: vector[key]
        for key in ("length", "max_measurement", "max_weight", "chunk_length")
        if key in vector
    }
    shares = vector["shares"]
    match name.split("_")[0].removeprefix("Prio3"):
        case "Count":
            return Prio3(Count(), shares)
        case "Sum":
            return Prio3(Sum(**chosen), shares)
        case "SumVec":
            return Prio3(SumVec(**chosen), shares)
        case "SumVecWithMultiproof":
            return Prio3(SumVec(**chosen, field=field64()), shares, algorithm=TESTING)
        case "Histogram":
            return Prio3(Histogram(**chosen), shares)
        case "MultihotCountVec":
            return Prio3(MultihotCountVec(**chosen), shares)
        case "HigherDegree":
            return Prio3(HigherDegree(), shares)
    raise AssertionError(name)


class Run:
    """Carries out the operations of one file and compares what comes out."""

    def __init__(self, name: str) -> None:
        self.vector = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
        self.prio3 = instance(name, self.vector)
        self.ctx = bytes.fromhex(self.vector["ctx"])
        self.states: dict[tuple[int, int], Any] = {}

    def operate(self, operation: str, **at: int) -> tuple[object, object]:
        """Return what an operation gives and what it should give."""
        report = self.vector["reports"][at.get("report_index", 0)]
        aggregator = at.get("aggregator_id", 0)
        state = at.get("report_index", 0), aggregator
        nonce, public = bytes.fromhex(report["nonce"]), bytes.fromhex(report["public_share"])
        match operation:
            case "shard":
                rand = bytes.fromhex(report["rand"])
                made = self.prio3.shard(self.ctx, report["measurement"], nonce, rand)
                got = (made[0].hex(), [share.hex() for share in made[1]])
                return got, (report["public_share"], report["input_shares"])
            case "verify_init":
                key = bytes.fromhex(self.vector["verify_key"])
                share = bytes.fromhex(report["input_shares"][aggregator])
                self.states[state], sent = self.prio3.verify_init(
                    key, self.ctx, aggregator, nonce, public, share
                )
                return sent.hex(), report["verifier_shares"][0][aggregator]
            case "verifier_shares_to_message":
                sent_by_all = [bytes.fromhex(share) for share in report["verifier_shares"][0]]
                message = self.prio3.verifier_shares_to_message(self.ctx, sent_by_all)
                return message.hex(), report["verifier_messages"][0]
            case "verify_next":
                message = bytes.fromhex(report["verifier_messages"][0])
                out_share = self.prio3.verify_next(self.ctx, self.states[state], message)
                return out_share.hex(), "".join(report["out_shares"][aggregator])
            case "aggregate":
                reports = self.vector["reports"]
                out_shares = [bytes.fromhex("".join(r["out_shares"][aggregator])) for r in reports]
                total = self.prio3.aggregate(out_shares)
                return total.hex(), self.vector["agg_shares"][aggregator]
            case "unshard":
                agg_shares = [bytes.fromhex(share) for share in self.vector["agg_shares"]]
                result = self.prio3.unshard(agg_shares, len(self.vector["reports"]))
                return result, self.vector["agg_result"]
        raise AssertionError(operation)


def test_all_files_are_there():
    assert len(FILES) == 25


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", FILES)
def test_prio3(name: str):
    run = Run(name)
    for step in run.vector["operations"]:
        at = {key: value for key, value in step.items() if key not in ("operation", "success")}
        if step["success"]:
            got, wanted = run.operate(step["operation"], **at)
            assert got == wanted, step
        else:
            with pytest.raises(VdafError):
                run.operate(step["operation"], **at)


@pytest.mark.usefixtures("backend")
def test_xof():
    vector = json.loads((VECTORS / "XofTurboShake128.json").read_text("utf-8"))
    seed, tag, binder = (bytes.fromhex(vector[key]) for key in ("seed", "dst", "binder"))
    assert derive_seed(seed, tag, binder).hex() == vector["derived_seed"]
    expanded = field128().expand(seed, tag, binder, vector["length"])
    assert expanded.hex() == vector["expanded_vec_field128"]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("one", json.loads((VECTORS / "reference_sizes.json").read_text("utf-8")))
def test_sizes_that_are_used(one: dict[str, Any]):
    """What the draft's reference implementation computes for 1 to 1,000 bits."""
    prio3 = Prio3(MultihotCountVec(one["length"], one["max_weight"]))
    ctx, key, nonce, rand = (bytes.fromhex(one[k]) for k in ("ctx", "verify_key", "nonce", "rand"))
    public, inputs = prio3.shard(ctx, [int(bit) for bit in one["measurement"]], nonce, rand)
    assert [len(public), *map(len, inputs)] == one["sizes"]
    assert hashlib.sha256(b"".join([public, *inputs])).hexdigest() == one["shard_sha256"]
    started = [prio3.verify_init(key, ctx, i, nonce, public, inputs[i]) for i in (0, 1)]
    shares = [share for _, share in started]
    assert hashlib.sha256(b"".join(shares)).hexdigest() == one["verifier_shares_sha256"]
    message = prio3.verifier_shares_to_message(ctx, shares)
    assert message.hex() == one["verifier_message"]
    outputs = b"".join(prio3.verify_next(ctx, state, message) for state, _ in started)
    assert hashlib.sha256(outputs).hexdigest() == one["out_shares_sha256"]
