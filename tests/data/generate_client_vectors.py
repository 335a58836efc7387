"""Make `client_vectors.json`: what every client computes alike, by routes that do not use Shoal.

The package `rfc8785` writes canonical JSON; flips come from comparing fractions, bit by bit;
encrypted
messages from RFC 9180 step by step, checked here against the RFC's own example (A.1.1); set bits
were written down by hand; local epsilons are mpmath's. `docs/clients.md` says what each part is.
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


COLOURS = {"kind": "choice", "name": "colour", "options": ["red", "Straße", "new york"]}
PETS = {"kind": "flags", "name": "pets", "options": ["cat", "dog", "fish"]}

MONTH = {"by": "month", "kind": "date", "name": "day"}
WEEKDAY = {"by": "weekday", "kind": "date", "missing": "option", "name": "day"}
ISO_WEEK = {"by": "week", "kind": "date", "name": "day"}
ARM = {"arms": ["control", "tour", "video"], "kind": "arm", "name": "start", "weights": [2, 1, 1]}
FUNNEL = {"kind": "funnel", "missing": "option", "name": "setup", "steps": ["installed", "invited"]}
AGES = {"design": "age", "kind": "retention", "name": "weeks", "period": 604800, "periods": 4}
ONCE = {"design": "once", "kind": "retention", "name": "weeks", "period": 604800, "periods": 4}

ENCODINGS: list[tuple[str, list[Json], Json, list[int] | None]] = [
    # what it shows, questions, answers, the bits that are set (None: not an answer)
    ("a month", [MONTH], {"day": "2026-03-31"}, [2]),
    ("a month of a day with a time", [MONTH], {"day": " 2026-12-31T23:59:59"}, [11]),
    ("a weekday", [WEEKDAY], {"day": "2026-11-18"}, [2]),
    ("a Sunday", [WEEKDAY], {"day": "2024-02-29T00:00"}, [3]),
    ("no day", [WEEKDAY], {"day": None}, [7]),
    ("the first week of a year", [ISO_WEEK], {"day": "2024-12-30"}, [0]),
    ("the last week of a year", [ISO_WEEK], {"day": "2027-01-03"}, [52]),
    ("a week in the middle", [ISO_WEEK], {"day": "2026-11-18"}, [46]),
    ("a day that is none", [MONTH], {"day": "2026-02-30"}, None),
    ("a month that is none", [MONTH], {"day": "2026-13-01"}, None),
    ("a text that is no day", [MONTH], {"day": "March"}, None),
    ("an arm", [ARM], {"start": "video"}, [2]),
    ("an arm that is none", [ARM], {"start": "other"}, None),
    ("no arm", [ARM], {}, None),
    ("a step", [FUNNEL], {"setup": "invited"}, [1]),
    ("no step", [FUNNEL], {"setup": None}, [2]),
    ("an age", [AGES], {"weeks": "3"}, [3]),
    ("an age as a number", [AGES], {"weeks": 0}, [0]),
    ("an age that is not asked for", [AGES], {"weeks": 5}, None),
    ("active periods", [ONCE], {"weeks": ["1", "4"]}, [0, 3]),
    ("no active period", [ONCE], {"weeks": []}, []),
    ("an arm by age", [ARM, AGES, {"kind": "cross", "name": "c", "questions": ["start", "weeks"]}],
     {"start": "tour", "weeks": "2"}, [1, 5, 15]),
    ("an arm by a period", [ARM, ONCE,
     {"kind": "cross", "name": "c", "questions": ["start", "weeks=2"]}],
     {"start": "tour", "weeks": "2;3"}, [1, 4, 5, 9]),
    ("yes sets the bit", [{"kind": "yes/no", "name": "q"}], {"q": True}, [0]),
    ("no sets nothing", [{"kind": "yes/no", "name": "q"}], {"q": "No "}, []),
    ("1 and 0 are yes and no", [{"kind": "yes/no", "name": "q"}], {"q": 1}, [0]),
    ("2 is neither", [{"kind": "yes/no", "name": "q"}], {"q": 2}, None),
    ("yes of three", [{"kind": "yes/no", "missing": "option", "name": "q"}], {"q": "TRUE"}, [0]),
    ("no of three", [{"kind": "yes/no", "missing": "option", "name": "q"}], {"q": False}, [1]),
    ("missing of three", [{"kind": "yes/no", "missing": "option", "name": "q"}], {}, [2]),
    ("missing undeclared", [{"kind": "yes/no", "name": "q"}], {"q": ""}, None),
    ("flags as a list", [PETS], {"pets": ["fish", "cat"]}, [0, 2]),
    ("flags as text", [PETS], {"pets": " dog;fish "}, [1, 2]),
    ("no flag", [PETS], {"pets": []}, []),
    ("an empty text is no flag", [PETS], {"pets": "\u3000"}, []),
    ("flags cannot be left out", [PETS], {}, None),
    ("a flag twice", [PETS], {"pets": ["cat", "cat "]}, None),
    ("a flag that is none", [PETS], {"pets": ["cow"]}, None),
    ("a flag is no yes", [PETS], {"pets": True}, None),
    ("a list within a list", [PETS], {"pets": [["cat"]]}, None),
    ("flags up to the most", [{**PETS, "kind": "flags", "at_most": 2}],
     {"pets": ["dog", "cat"]}, [0, 1]),
    ("flags above the most", [{**PETS, "kind": "flags", "at_most": 1}],
     {"pets": ["dog", "cat"]}, None),
    ("a choice", [COLOURS], {"colour": "Straße"}, [1]),
    ("case counts", [COLOURS], {"colour": "Red"}, None),
    ("blanks at the ends do not", [COLOURS], {"colour": "\u0085\u001cred\u00a0"}, [0]),
    ("but this is no blank", [COLOURS], {"colour": "\ufeffred"}, None),
    ("folded case", [{**COLOURS, "fold": True}], {"colour": "STRASSE"}, [1]),
    ("folded blanks", [{**COLOURS, "fold": True}], {"colour": " New \u2003\n York"}, [2]),
    ("a code", [{"kind": "choice", "name": "c", "options": ["7", "08"]}], {"c": 7}, [0]),
    ("a code with a zero", [{"kind": "choice", "name": "c", "options": ["7", "08"]}],
     {"c": 8}, None),
    ("anything else is other", [{**COLOURS, "other": True}], {"colour": "blue"}, [3]),
    ("true is no option's name", [{**COLOURS, "other": True}], {"colour": True}, None),
    ("missing after other", [{**COLOURS, "missing": "option", "other": True}],
     {"colour": None}, [4]),
    ("normal form C", [{"kind": "choice", "name": "c", "options": ["caf\u00e9", "x"]}],
     {"c": "cafe\u0301"}, [0]),
    ("below the first edge", [{"edges": ["-1.5", "10"], "kind": "number", "name": "n"}],
     {"n": -2}, [0]),
    ("an edge is above", [{"edges": ["-1.5", "10"], "kind": "number", "name": "n"}],
     {"n": " -1.5 "}, [1]),
    ("a number as text", [{"edges": ["-1.5", "10"], "kind": "number", "name": "n"}],
     {"n": "1e1"}, [2]),
    ("a number that is missing",
     [{"edges": ["0"], "kind": "number", "missing": "option", "name": "n"}], {"n": " "}, [2]),
    ("not a number", [{"edges": ["0"], "kind": "number", "name": "n"}], {"n": "0x1"}, None),
    ("not finite", [{"edges": ["0"], "kind": "number", "name": "n"}], {"n": "1e999"}, None),
    ("not a list", [{"edges": ["0"], "kind": "number", "name": "n"}], {"n": [1]}, None),
    ("grouped digits", [{"edges": ["0"], "kind": "number", "name": "n"}], {"n": "1_0"}, None),
    ("a point of a grid",
     [{"high": "1", "kind": "number", "low": "-1", "name": "n", "points": 5}], {"n": "0.5"}, [3]),
    ("beyond a grid",
     [{"high": "1", "kind": "number", "low": "-1", "name": "n", "points": 5}], {"n": 7}, [4]),
    ("missing from a grid",
     [{"high": "3", "kind": "number", "low": "1", "missing": "option", "name": "n", "points": 3}],
     {"n": ""}, [3]),
    ("a question that is not asked", [PETS], {"pets": [], "x": 1}, None),
    ("blocks follow each other", [PETS, COLOURS, {"kind": "yes/no", "name": "q"}],
     {"pets": ["dog"], "colour": "new york", "q": "yes"}, [1, 5, 6]),
    ("a cross of a choice and a number",
     [COLOURS, {"edges": ["18", "65"], "kind": "number", "name": "age"},
      {"kind": "cross", "name": "both", "questions": ["colour", "age"]}],
     {"colour": "Straße", "age": 70}, [1, 5, 6 + 1 * 3 + 2]),
    ("a cross of a flag and a yes/no",
     [PETS, {"kind": "yes/no", "name": "q"},
      {"kind": "cross", "name": "both", "questions": ["pets=dog", "q"]}],
     {"pets": ["dog"], "q": "no"}, [1, 4 + 1]),
    ("a cross is not answered",
     [PETS, {"kind": "yes/no", "name": "q"},
      {"kind": "cross", "name": "both", "questions": ["pets=dog", "q"]}],
     {"pets": [], "q": True, "both": "x"}, None),
    ("a cross with a missing answer",
     [{"kind": "yes/no", "missing": "option", "name": "q"}, COLOURS,
      {"kind": "cross", "name": "both", "questions": ["q", "colour"]}],
     {"colour": "red"}, [2, 3, 6 + 2 * 3 + 0]),
    ("a name with an equals sign is a name first",
     [{"kind": "yes/no", "name": "pets=dog"}, PETS,
      {"kind": "cross", "name": "both", "questions": ["pets=dog", "pets=cat"]}],
     {"pets=dog": True, "pets": ["dog"]}, [0, 2, 4 + 0 * 2 + 1]),
]  # fmt: skip


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


def encodings() -> list[Json]:
    return [
        {
            "shows": shows,
            "survey": {"name": "vectors", "questions": questions},
            "answers": answers,
            "bits": sizes(questions),
            "set": places,
        }
        for shows, questions, answers, places in ENCODINGS
    ]


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


def fragments() -> list[Json]:
    cases = []
    for positions, messages in (([0, 3, 17], 5), ([], 2), ([65535], 1)):
        ids = stream(f"ids {messages}", 16 * messages)
        draws = [
            int.from_bytes(stream(f"draw {messages} {i}", 7), "little") for i in range(messages)
        ]
        every = [*positions, *([2**32 - 1] * (messages - len(positions)))]
        for i, drawn in enumerate(draws):
            other = i + drawn % (messages - i)
            every[i], every[other] = every[other], every[i]
        contents = [ids[16 * i :][:16] + struct.pack("<I", one) for i, one in enumerate(every)]
        cases.append(
            {
                "positions": positions,
                "messages": messages,
                "random": (ids + b"".join(struct.pack("<Q", one) for one in draws)).hex(),
                "contents": [content.hex() for content in contents],
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
    document = {
        "canonical": canonical(),
        "encodings": encodings(),
        "pairs": pair_bits(),
        "randomizer": randomizer(),
        "below": below(),
        "wire": wire(),
        "fragments": fragments(),
        "encryption": encryption(),
        "signatures": signatures(),
        "local_epsilons": local_epsilons(),
    }
    path = Path(__file__).with_name("client_vectors.json")
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
