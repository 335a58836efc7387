"""Make `text_hash_vectors.json`: positions of texts, by a route that does not use Shoal.

Plain hashlib and integers, following the definition in the docstring of `shoal.protocol.text_hash`.
Texts are written as escapes, so that no editor changes their normal form. Run from the repository:
``python tests/data/generate_text_hash_vectors.py``.
"""

from __future__ import annotations

import hashlib
import json
import struct
import unicodedata
from pathlib import Path

ZEROS = "00" * 32
ONES = hashlib.sha256(b"one survey").hexdigest()

CASES: list[tuple[str, str, int, int, int, str]] = [
    # survey digest, question, bits, hashes, cohort, text
    (ZEROS, "word", 256, 2, 0, "shoal"),
    (ZEROS, "word", 256, 2, 1, "shoal"),
    (ZEROS, "word", 256, 2, 65_534, "shoal"),
    (ONES, "word", 256, 2, 0, "shoal"),
    (ZEROS, "words", 256, 2, 0, "hoal"),
    (ZEROS, "W\u00f6rter", 1000, 8, 7, "na\u00efve"),
    (ZEROS, "Wo\u0308rter", 1000, 8, 7, "nai\u0308ve"),
    (ZEROS, "word", 65_536, 8, 3, "\u03a3\u03bf\u03c6\u03af\u03b1"),
    (ZEROS, "word", 65_536, 8, 3, "\ud55c\uae00"),
    (ZEROS, "word", 65_536, 8, 3, "\u1112\u1161\u11ab\u1100\u1173\u11af"),
    (ZEROS, "word", 4096, 4, 3, "\U0001f41f\u200d\U0001f41f"),
    (ZEROS, "word", 4096, 4, 3, "two words"),
    (ZEROS, "word", 4096, 4, 3, "\t two words \u00a0\n"),
    (ZEROS, "word", 4096, 4, 3, "Two Words"),
    (ZEROS, "word", 4096, 4, 3, "\u212b"),
    (ZEROS, "word", 4096, 4, 3, "\ufb01sh"),
    (ZEROS, "word", 4096, 4, 3, ""),
    (ZEROS, "word", 4096, 4, 3, "x" * 65_536),
    (ZEROS, "word", 1, 1, 0, "anything"),
    (ZEROS, "word", 3, 3, 0, "anything"),
]


def positions(
    digest: str, question: str, bits: int, hashes: int, cohort: int, text: str
) -> list[int]:
    name = unicodedata.normalize("NFC", question).encode("utf-8")
    message = b"shoal-text-1\x00" + bytes.fromhex(digest)
    message += struct.pack("<H", len(name)) + name + struct.pack("<H", cohort)
    message += unicodedata.normalize("NFC", text).strip().encode("utf-8")
    words = struct.unpack("<8I", hashlib.sha256(message).digest())
    free = list(range(bits))
    return [free.pop(word * len(free) // 2**32) for word in words[:hashes]]


def main() -> None:
    names = ("survey", "question", "bits", "hashes", "cohort", "text")
    vectors = [
        dict(zip(names, case, strict=True)) | {"positions": positions(*case)} for case in CASES
    ]
    path = Path(__file__).with_name("text_hash_vectors.json")
    path.write_text(json.dumps(vectors, indent=1, ensure_ascii=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
