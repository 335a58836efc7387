"""Write the positions in `text_hash_vectors.json`, by a route that does not use Shoal.

Plain hashlib and integers, following the definition in the docstring of `shoal.protocol.text_hash`.
The cases stand in that file, as escapes, so that no editor changes their normal form.
Run from the repository: ``python tests/data/generate_text_hash_vectors.py``.
"""

from __future__ import annotations

import hashlib
import json
import struct
import unicodedata
from pathlib import Path


def positions(
    survey: str, question: str, bits: int, hashes: int, cohort: int, text: str
) -> list[int]:
    name = unicodedata.normalize("NFC", question).encode("utf-8")
    message = b"shoal-text-1\x00" + bytes.fromhex(survey)
    message += struct.pack("<H", len(name)) + name + struct.pack("<H", cohort)
    message += unicodedata.normalize("NFC", text).strip().encode("utf-8")
    words = struct.unpack("<8I", hashlib.sha256(message).digest())
    free = list(range(bits))
    return [free.pop(word * len(free) // 2**32) for word in words[:hashes]]


def main() -> None:
    path = Path(__file__).with_name("text_hash_vectors.json")
    vectors = json.loads(path.read_text("utf-8"))
    for vector in vectors:
        given = {name: value for name, value in vector.items() if name != "positions"}
        vector["positions"] = positions(**given)
    path.write_text(json.dumps(vectors, indent=1, ensure_ascii=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
