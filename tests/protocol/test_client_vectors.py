"""Python computes what `tests/data/client_vectors.json` says that every client computes."""

from __future__ import annotations

import base64
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from shoal import Survey
from shoal.device.encode import OriginalVector, answer_bits
from shoal.device.randomize import flip
from shoal.errors import AnswerError, TransportError
from shoal.protocol import encryption
from shoal.protocol.encryption import CrowdKey, decrypt_message, key_digest
from shoal.protocol.flip_probability import EXACT, FlipProbability, local_epsilon
from shoal.protocol.random_bits import draw_below
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.protocol.wire import Reports, join_report
from shoal.support.files import canonical_json
from tests.data import generate_client_vectors

PATH = Path(__file__).parents[1] / "data" / "client_vectors.json"
SHARED: dict[str, Any] = json.loads(PATH.read_text("utf-8"))


class GivenBits:
    """The random bytes that are given, and no others."""

    simulated = True

    def __init__(self, content: str) -> None:
        self._rest = bytes.fromhex(content)

    def fill(self, out: Any) -> None:
        view = memoryview(out).cast("B")
        assert len(view) <= len(self._rest), "more random bytes are drawn than expected"
        view[:], self._rest = self._rest[: len(view)], self._rest[len(view) :]


def test_the_file_is_what_its_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / PATH.name).write_text(json.dumps({"encodings": SHARED["encodings"]}), "utf-8")
    monkeypatch.setattr(generate_client_vectors, "__file__", str(tmp_path / "script.py"))
    generate_client_vectors.main()
    assert (tmp_path / PATH.name).read_bytes() == PATH.read_bytes()


def test_canonical_json() -> None:
    # Python sorts keys by code point; Shoal's keys are ASCII, where that is the same.
    for one in SHARED["canonical"]:
        text = canonical_json(one["document"])
        assert text.decode() == one["text"]
        assert hashlib.sha256(text).hexdigest() == one["sha256"]


@pytest.mark.parametrize("one", SHARED["encodings"], ids=lambda one: one["shows"])
def test_encodings(one: dict[str, Any]) -> None:
    survey = Survey.from_json(one["survey"])
    assert survey.to_json() == one["survey"]
    assert survey.bits == one["bits"]
    if one["set"] is None:
        with pytest.raises(AnswerError):
            answer_bits(survey, one["answers"], None)
    else:
        assert sorted(answer_bits(survey, one["answers"], None)) == one["set"]


def test_pairs_of_letters() -> None:
    for one in SHARED["pairs"]:
        survey = Survey.from_json(one["survey"])
        assert survey.bits == one["bits"]
        for row in one["rows"]:
            bits = answer_bits(survey, {"word": row["answer"]}, row["cohort"])
            assert sorted(bits) == row["set"]


def test_randomizer() -> None:
    for one in SHARED["randomizer"]:
        value = int.from_bytes(bytes.fromhex(one["original"]), "little")
        original = OriginalVector(value, one["bits"])
        bits = GivenBits(one["fair"])
        synthetic = flip(FlipProbability(*one["q"]), original, random_bits=bits)
        assert synthetic.row.hex() == one["synthetic"]


def test_numbers_below_a_bound() -> None:
    for one in SHARED["below"]:
        assert draw_below(one["bound"], GivenBits(one["random"])) == one["drawn"]


def test_wire() -> None:
    for one in SHARED["wire"]:
        identifier, row = bytes.fromhex(one["id"]), bytes.fromhex(one["row"])
        report = join_report(identifier, one["window"], one["cohort"], row)
        assert Reports(one["plan"], len(report), report).to_bytes().hex() == one["batch"]


def test_sealing() -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    for one in SHARED["encryption"]:
        label = b"shoal encrypted\0\0\0"
        info = encryption._INFO.pack(
            label, encryption.VERSION, bytes.fromhex(one["plan"]), one["window"]
        )
        assert info.hex() == one["info"]
        secret = X25519PrivateKey.from_private_bytes(bytes.fromhex(one["secret_key"]))
        assert (
            decrypt_message(bytes.fromhex(one["encrypted"]), secret, info).hex() == one["content"]
        )
        assert key_digest(bytes.fromhex(one["public_key"])).hex() == one["key_digest"]


def test_signatures_and_key_documents() -> None:
    shared = SHARED["signatures"]
    content = shared["key_document"].encode()
    keys = [check_public_key(text) for text in shared["keys"]]
    for place, key in enumerate(keys):
        check_signature(key, content, shared["signatures"][place])
        with pytest.raises(TransportError):
            check_signature(key, content + b" ", shared["signatures"][place])
        check_signature(key, content, f"{shared['signatures'][place]}, {'A' * 86}")
        check_signature(key, content, f"{'A' * 86}, {shared['signatures'][place]}")
    document = CrowdKey.from_bytes(content)
    assert document.to_bytes() == content
    assert (
        base64.urlsafe_b64encode(document.public_key).decode().rstrip("=") in shared["key_document"]
    )


def test_local_epsilons() -> None:
    for one in SHARED["local_epsilons"]:
        exact = local_epsilon(one["differing"], FlipProbability(*one["q"]), places=EXACT)
        assert abs(exact / Decimal(one["epsilon"]) - 1) < Decimal("1e-38")
