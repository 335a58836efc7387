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
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["TextHash", "normal_text"]

_LABEL = b"shoal-text-1\0"
_CHUNK = 1024


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
        words = np.frombuffer(self._digest(normal_text(text).encode(), cohort), "<u4")
        return tuple(self._places(words).tolist())

    def table(self, texts: Iterable[str], cohorts: int) -> NDArray[np.uint16]:
        """Return the positions of many texts in every cohort: shape (texts, cohorts, hashes)."""
        encoded = [normal_text(text).encode() for text in texts]
        out = np.empty((len(encoded), cohorts, self.hashes), np.uint16)
        for start in range(0, len(encoded), _CHUNK):
            chunk = encoded[start : start + _CHUNK]
            digests = b"".join(self._digest(t, c) for t in chunk for c in range(cohorts))
            words = np.frombuffer(digests, "<u4").reshape(len(chunk), cohorts, 8)
            out[start : start + _CHUNK] = self._places(words)
        return out

    def _places(self, words: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the positions that digests choose, one after another among the free bits."""
        out = np.empty((*words.shape[:-1], self.hashes), np.uint64)
        for i in range(self.hashes):
            place = words[..., i].astype(np.uint64) * np.uint64(self.bits - i) >> np.uint64(32)
            for earlier in np.moveaxis(np.sort(out[..., :i], axis=-1), -1, 0):
                place = place + (place >= earlier)  # step over a bit that is taken
            out[..., i] = place
        return out

    def _digest(self, text: bytes, cohort: int) -> bytes:
        message = self._start.copy()
        message.update(cohort.to_bytes(2, "little") + text)
        return message.digest()
