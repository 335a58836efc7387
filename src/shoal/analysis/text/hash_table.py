"""The positions of many texts at once, as an array; `TextHash.positions` has those of one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from shoal.protocol.text_hash import TextHash, normal_text

__all__ = ["hash_table"]

_CHUNK = 1024


def hash_table(hashing: TextHash, texts: Iterable[str], cohorts: int) -> NDArray[np.uint16]:
    """Return the positions of texts in every cohort: shape (texts, cohorts, hashes).

    >>> hash_table(TextHash("00" * 32, "word", bits=256, hashes=2), ["shoal"], 1).tolist()
    [[[40, 248]]]
    """
    encoded = [normal_text(text).encode() for text in texts]
    out = np.empty((len(encoded), cohorts, hashing.hashes), np.uint16)
    for start in range(0, len(encoded), _CHUNK):
        chunk = encoded[start : start + _CHUNK]
        digests = b"".join(hashing.digest(text, c) for text in chunk for c in range(cohorts))
        words = np.frombuffer(digests, "<u4").reshape(len(chunk), cohorts, 8)
        out[start : start + _CHUNK] = _places(words, hashing.bits, hashing.hashes)
    return out


def _places(words: NDArray[np.uint32], bits: int, hashes: int) -> NDArray[np.uint64]:
    """Return the positions that digests choose, one after another among the free bits."""
    out = np.empty((*words.shape[:-1], hashes), np.uint64)
    for i in range(hashes):
        place = words[..., i].astype(np.uint64) * np.uint64(bits - i) >> np.uint64(32)
        for earlier in np.moveaxis(np.sort(out[..., :i], axis=-1), -1, 0):
            place = place + (place >= earlier)  # step over a bit that is taken
        out[..., i] = place
    return out
