"""Text to bit positions: a public family of hash functions, one for each survey and cohort.

A text answer sets `hashes` bits of a Bloom filter of `bits` bits. Which ones depends on the survey,
the question and the cohort, so that two texts that share bits in one cohort do not in the next, and
tables made for one survey are useless for another. Version 1, for every language:

    message   = "shoal-text-1" NUL  survey digest (32)  length of the name (u16 LE)  name
                cohort (u16 LE)  text
    digest    = SHA-256(message), read as eight u32, little endian
    place i   = word i * (bits - i) / 2^32, rounded down, for i = 0 .. hashes - 1
    position  = the place i among the bits that the earlier positions leave free, in order

So the positions of a text differ, and every text sets the same number of bits in every cohort: that
is what the promise of several hashes rests on. Names and texts are UTF-8 in Unicode normal form C,
texts without blanks at their ends (Unicode's White_Space, and U+001C to U+001F).
"""

from __future__ import annotations

import hashlib
import struct
import unicodedata

__all__ = ["TextHash", "normal_text"]

_LABEL = b"shoal-text-1\0"
_WORDS = struct.Struct("<8I")


def normal_text(text: str) -> str:
    r"""Return the one form of a text that is hashed.

    >>> normal_text(" cafe\u0301 ") == "café"
    True
    """
    return unicodedata.normalize("NFC", text).strip()


class TextHash:
    """The hash functions of one text question.

    >>> TextHash("00" * 32, "word", bits=256, hashes=2).positions("shoal", cohort=0)
    (40, 248)
    """

    def __init__(self, survey_digest: str, question: str, bits: int, hashes: int) -> None:
        name = unicodedata.normalize("NFC", question).encode()
        self._start = hashlib.sha256(
            _LABEL + bytes.fromhex(survey_digest) + len(name).to_bytes(2, "little") + name
        )
        self.bits, self.hashes = bits, hashes

    def positions(self, text: str, cohort: int) -> tuple[int, ...]:
        """Return which bits a text sets in a cohort; they differ."""
        words = _WORDS.unpack(self.digest(normal_text(text).encode(), cohort))
        chosen: list[int] = []
        for i in range(self.hashes):
            place = words[i] * (self.bits - i) >> 32
            for earlier in sorted(chosen):
                place += place >= earlier  # step over a bit that is taken
            chosen.append(place)
        return tuple(chosen)

    def digest(self, text: bytes, cohort: int) -> bytes:
        """Return the 32 bytes that choose the positions of a text: in normal form, as UTF-8."""
        message = self._start.copy()
        message.update(cohort.to_bytes(2, "little") + text)
        return message.digest()
