"""Make `client_vectors.json`: what every client computes alike, by routes that do not use Shoal.

The package `rfc8785` writes canonical JSON; flips come from comparing fractions, bit by bit;
encrypted messages from RFC 9180 step by step, checked here against the RFC's own example (A.1.1);
surveys, answers and set bits under `encodings` are written there by hand; local epsilons are
mpmath's. `docs/clients.md` says what each part is.
Run from the repository: ``python tests/data/generate_client_vectors.py``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Json = dict[str, Any]


def stream(name: str, size: int) -> bytes:
    """Return bytes that look random and follow from a name."""
    return hashlib.shake_256(name.encode()).digest(size)


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def canonical() -> list[Json]:
    documents: list[Any] = [
        {"b": [1, 2], "a": "é\n"},
        {"": None, "€": True, "\u0080": False, "A": {"z": [], "a": {}}},
        ['"\\/\b\f\n\r\t\u0000\u001f\u007f', "𝒳 \u2028", 0, -1, 2**53 - 1],
        {"10": 1, "9": 2, "a": 3, "B": 4},
    ]
    texts = [rfc8785.dumps(document) for document in documents]
    return [
        {"document": document, "text": text.decode(), "sha256": hashlib.sha256(text).hexdigest()}
        for document, text in zip(documents, texts, strict=True)
    ]


def sizes(questions: list[Json]) -> int:
    """Return how many bits a survey of the kinds above has."""
    total = 0
    size: dict[str, int] = {}
    for question in questions:
        extra = ("missing" in question) + ("other" in question)
        if question["kind"] == "cross":
            bits = 1
            for side in question["questions"]:
                bits *= 2 if side not in size or size[side] == 1 else size[side]
        elif question["kind"] == "yes/no":
            bits = 3 if extra else 1
        elif question["kind"] == "number":
            edges = question.get("edges")
            bits = (len(edges) + 1 if edges else question["points"]) + extra
        elif question["kind"] == "date":
            bits = {"month": 12, "weekday": 7, "week": 53}[question["by"]] + extra
        elif question["kind"] == "retention":
            bits = question["periods"] + (question["design"] == "age") + extra
        else:
            names = {"arm": "arms", "funnel": "steps"}.get(question["kind"], "options")
            bits = len(question[names]) + extra
        size[question["name"]] = bits
        total += bits
    return total


def encodings(cases: list[Json]) -> list[Json]:
    """Count the bits; the set bits were written by hand, null where there is no answer."""
    return [case | {"bits": sizes(case["survey"]["questions"])} for case in cases]


def pair_bits() -> list[Json]:
    """Text whose pairs of letters are reported: the bit of the pair, by looking it up in a list."""
    alphabet, length = "abé𝒳", 4
    letters = list(alphabet)
    table = [a + b for a in letters for b in [*letters, "_"]] + ["__"]
    survey: Json = {
        "name": "words",
        "questions": [
            {"bits": 32, "cohorts": 6, "hashes": 2, "kind": "text", "name": "word",
             "pairs": {"alphabet": alphabet, "length": length}},
        ],
    }  # fmt: skip
    digest = hashlib.sha256(rfc8785.dumps(survey)).digest()
    rows = []
    for word in ("ab", "é𝒳ba", "baaab", "abc", "", " a "):
        for cohort in (0, 2, 4):
            plain = word.strip()
            filled = plain + "_" * (length - len(plain))
            known = plain and len(plain) <= length and set(plain) <= set(alphabet)
            at = cohort % (length - 1)
            pair = table.index(filled[at : at + 2]) if known else len(table)
            message = b"shoal-text-1\0" + digest + struct.pack("<H", 4) + b"word"
            message += struct.pack("<H", cohort) + plain.encode()
            words = struct.unpack("<8I", hashlib.sha256(message).digest())
            free = list(range(32))
            places = [free.pop(one * len(free) // 2**32) for one in words[:2]] if plain else []
            rows.append({"answer": word, "cohort": cohort, "set": sorted([*places, 32 + pair])})
    return [{"survey": survey, "bits": 32 + len(table) + 1, "rows": rows}]


def randomizer() -> list[Json]:
    """Flip a bit where 0.(1-r1)(1-r2)... is below q, with r1 the last fair bits that are drawn."""
    cases = []
    for bits, numerator, digits in (
        (1, 1, 2), (8, 3, 3), (40, 5751, 14), (65, 1, 52), (100, 2**51 - 1, 52), (130, 13, 5),
    ):  # fmt: skip
        q = Fraction(numerator, 2**digits)
        size = -(-bits // 64) * 8
        fair = stream(f"fair {bits} {digits}", size * digits)
        vector = int.from_bytes(stream(f"vector {bits}", size), "little") % 2**bits
        flips = 0
        for bit in range(bits):
            u = Fraction(0)
            for digit in range(1, digits + 1):
                word = fair[(digits - digit) * size :][:size]
                r = word[bit // 8] >> bit % 8 & 1
                u += Fraction(1 - r, 2**digit)
            flips |= (u < q) << bit
        width = -(-bits // 8)
        cases.append(
            {
                "bits": bits,
                "q": [numerator, digits],
                "fair": fair.hex(),
                "original": vector.to_bytes(width, "little").hex(),
                "synthetic": (vector ^ flips).to_bytes(width, "little").hex(),
            }
        )
    return cases


def below() -> list[Json]:
    """Numbers below a bound: 64 bits at a time, and again where they are not below a multiple."""
    return [
        {"bound": 10, "random": struct.pack("<Q", 123).hex(), "drawn": 3},
        {"bound": 3, "random": struct.pack("<QQ", 2**64 - 1, 7).hex(), "drawn": 1},
        {"bound": 65535, "random": struct.pack("<Q", 2**64 - 2).hex(), "drawn": 65534},
        {"bound": 1, "random": struct.pack("<Q", 5).hex(), "drawn": 0},
    ]


PLAN = hashlib.sha256(b"a plan").digest()


def wire() -> list[Json]:
    cases = []
    for cohort, row in ((None, b"\x05"), (513, b"\xff\x01")):
        identifier, window = stream(f"report {cohort}", 16), 20401
        report = identifier + struct.pack("<I", window)
        report += (b"" if cohort is None else struct.pack("<H", cohort)) + row
        batch = b"SHOAL\x01" + PLAN + struct.pack("<I", 1) + report
        cases.append(
            {
                "plan": PLAN.hex(),
                "id": identifier.hex(),
                "window": window,
                "cohort": cohort,
                "row": row.hex(),
                "batch": batch.hex(),
            }
        )
    return cases


def _extract(salt: bytes, suite: bytes, label: bytes, content: bytes) -> bytes:
    message = b"HPKE-v1" + suite + label + content
    return hmac.digest(salt or bytes(32), message, "sha256")


def _expand(key: bytes, suite: bytes, label: bytes, context: bytes, size: int) -> bytes:
    message = struct.pack(">H", size) + b"HPKE-v1" + suite + label + context + b"\x01"
    return hmac.digest(key, message, "sha256")[:size]


def hpke(content: bytes, to: bytes, info: bytes, secret: bytes, aad: bytes = b"") -> bytes:
    """Encrypt as RFC 9180 says, base mode, with this secret key for the encapsulation."""
    own = X25519PrivateKey.from_private_bytes(secret)
    sent = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(to))
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
    prk = _extract(b"", kem, b"eae_prk", shared)
    shared = _expand(prk, kem, b"shared_secret", sent + to, 32)
    context = b"\x00" + _extract(b"", suite, b"psk_id_hash", b"")
    context += _extract(b"", suite, b"info_hash", info)
    key_secret = _extract(shared, suite, b"secret", b"")
    key = _expand(key_secret, suite, b"key", context, 16)
    nonce = _expand(key_secret, suite, b"base_nonce", context, 12)
    return sent + AESGCM(key).encrypt(nonce, content, aad)


def check_rfc_9180() -> None:
    """Compare `hpke` with the first message of the example in RFC 9180, A.1.1."""
    encrypted = hpke(
        bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479"),
        bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"),
        bytes.fromhex("4f6465206f6e2061204772656369616e2055726e"),
        bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
        b"Count-0",
    )
    assert encrypted.hex() == (
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
        "6d8770ac83d07bea87e13c512a"
    )


def encryption() -> list[Json]:
    check_rfc_9180()
    cases = []
    for name, content in (("whole", stream("whole", 25)), ("fragment", stream("fragment", 20))):
        secret, ephemeral = stream(f"analyzer {name}", 32), stream(f"ephemeral {name}", 32)
        public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        sent = X25519PrivateKey.from_private_bytes(ephemeral).public_key().public_bytes_raw()
        info = b"shoal encrypted" + bytes(3) + b"\x01" + PLAN + struct.pack("<I", 20401)
        cases.append(
            {
                "plan": PLAN.hex(),
                "window": 20401,
                "info": info.hex(),
                "content": content.hex(),
                "secret_key": secret.hex(),
                "public_key": public.hex(),
                "ephemeral_secret": base64url(ephemeral),
                "ephemeral_public": base64url(sent),
                "encrypted": hpke(content, public, info, ephemeral).hex(),
                "key_digest": hashlib.sha256(public).hexdigest(),
            }
        )
    return cases


def signatures() -> Json:
    keys = [Ed25519PrivateKey.from_private_bytes(stream(f"key {i}", 32)) for i in range(3)]
    public = [base64url(key.public_key().public_bytes_raw()) for key in keys]
    content = rfc8785.dumps(
        {
            "crowd": 3,
            "key": base64url(stream("crowd key", 32)),
            "plan": PLAN.hex(),
            "suite": "X25519, HKDF-SHA256, AES-128-GCM",
            "version": 1,
            "window": 20401,
        }
    )
    return {
        "keys": public,
        "key_document": content.decode(),
        "signatures": [base64url(key.sign(content)) for key in keys],
    }


def local_epsilons() -> list[Json]:
    mpmath.mp.dps = 60
    cases = []
    for differing, numerator, digits in (
        (3, 1, 2), (5, 5751, 14), (2, 1, 52), (65536, 2**51 - 1, 52), (7, 460931799, 31),
    ):  # fmt: skip
        q = mpmath.mpf(numerator) / mpmath.mpf(2) ** digits
        value = differing * mpmath.log((1 - q) / q)
        cases.append(
            {"differing": differing, "q": [numerator, digits], "epsilon": mpmath.nstr(value, 40)}
        )
    return cases


def main() -> None:
    path = Path(__file__).with_name("client_vectors.json")
    document = {
        "canonical": canonical(),
        "encodings": encodings(json.loads(path.read_text("utf-8"))["encodings"]),
        "pairs": pair_bits(),
        "randomizer": randomizer(),
        "below": below(),
        "wire": wire(),
        "encryption": encryption(),
        "signatures": signatures(),
        "local_epsilons": local_epsilons(),
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
