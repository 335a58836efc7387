"""Bits flipped with probability q: Shoal, its peers, and the cipher that makes the random bits."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bench.measuring import (
    LIMIT,
    Candidate,
    Options,
    Table,
    candidates_of,
    compare_rates,
)
from bench.without_kernels import without_kernels
from shoal.device.arrays import randomize as randomizing
from shoal.device.arrays.randomize import Original
from shoal.device.randomize import flip
from shoal.protocol.flip_probability import FlipProbability
from shoal.support.kernels import load_kernels

Q = FlipProbability(23003, 16)
_BLOCK = 1 << 16

_NOTES = [
    "OpenDP is documented for one bit vector per call. One call on all vectors, concatenated, flips"
    " the same bits and is the fairest use of it; its privacy map is then about the whole.",
    "OpenDP and Shoal draw from a cryptographic generator and are exact. pure-ldp, multi-freq-ldpy"
    " and NumPy compare floating-point numbers from generators whose output can be predicted:"
    " neither exact nor safe.",
    "pure-ldp and multi-freq-ldpy handle one answer per call and return unpacked vectors; NumPy"
    " works on blocks that fit the cache and packs the result, as Shoal does.",
    f"q = {Q.numerator}/2^{Q.digits} for all, which makes Shoal draw its usual 16 random bits per"
    " bit; the limit is as many rounds of AES-256, on registers, without counters and without"
    " storing anything (`bench/aes_limit.c`).",
    "The C kernel uses VAES or AES-NI, whichever the processor has. NumPy alone is what runs where"
    " there is no compiler, or a processor without either.",
]


def short(options: Options) -> Table:
    """Measure vectors of 40 bits."""
    return _measure(40, options.size(2_000_000), options)


def long(options: Options) -> Table:
    """Measure vectors of 1000 bits."""
    return _measure(1000, options.size(100_000), options)


def _measure(bits: int, reports: int, options: Options) -> Table:
    answers = np.random.default_rng(1).integers(bits, size=reports)
    vectors = np.zeros((reports, bits), bool)
    vectors[np.arange(reports), answers] = True
    packed = np.packbits(vectors, axis=1, bitorder="little")
    few = max(50, options.size(4_000_000) // (2000 + 20 * bits))
    some = options.size(2_000_000) // bits
    makers = [
        ("**Shoal `randomize`**", reports, lambda: shoal_randomize(packed, bits)),
        ("**Shoal**, AES-NI without VAES", reports, lambda: aes_ni(packed, bits)),
        (
            "**Shoal**, NumPy alone",
            reports,
            lambda: without_kernels(randomizing, shoal_randomize(packed, bits)),
        ),
        (
            "NumPy `rng.random() < q` and packbits",
            reports // 4,
            lambda: _numpy(vectors[: reports // 4]),
        ),
        ("multi-freq-ldpy `UE_Client`", some, lambda: _multi_freq(answers[:some], bits)),
        ("pure-ldp `UEClient`", some // 4, lambda: _pure_ldp(answers[: some // 4], bits)),
        ("OpenDP, one call for all", few * 5, lambda: _opendp_at_once(packed[: few * 5])),
        ("OpenDP, one call a report", few, lambda: _opendp(packed[:few])),
    ]
    candidates = candidates_of(makers, partial(_check, bits))
    size = packed.size * Q.digits
    candidates.append(
        Candidate("AES-256-CTR of `cryptography`, 16 bits per bit", reports, _cipher(size))
    )
    with tempfile.TemporaryDirectory() as folder:
        rounds = aes_rounds(size, Path(folder))
    if rounds is not None:
        candidates.append(Candidate(LIMIT + "AES-256, 16 bits per bit", reports, rounds))
    text = (
        f"Synthetic vectors of {bits} bits made from one-hot answers. Making random bits is nearly"
        " all of the work. The last column says how much of the cipher's speed is left after they"
        " have been turned into flips of probability q and applied to the data."
    )
    title = f"Randomizing vectors of {bits} bits"
    return compare_rates(title, candidates, options, text, _NOTES if bits == 40 else [])


def _check(bits: int, name: str, result: np.ndarray) -> None:
    """Stop if the share of ones is 7 standard deviations from where it must be."""
    packed = result.dtype == np.uint8
    ones = float(np.bitwise_count(result).sum() if packed else result.sum())
    q, total = float(Q), result.size * (8 if packed else 1)
    expected = total / bits * ((1 - q) + (bits - 1) * q)
    if abs(ones - expected) > 7 * math.sqrt(total * q * (1 - q)):
        raise SystemExit(f"{name} set {ones} of {total} bits, expected about {expected:.0f}.")


def shoal_randomize(packed: np.ndarray, bits: int) -> Callable[[], np.ndarray]:
    original = Original(packed, bits)
    return lambda: flip(Q, original).rows


def aes_ni(packed: np.ndarray, bits: int) -> Callable[[], np.ndarray]:
    """The same kernel as on a processor that has no VAES."""
    kernels = load_kernels()
    if kernels is None or kernels.aes < 2:
        raise ImportError("no kernel with VAES to compare with")
    run = shoal_randomize(packed, bits)

    def with_aes_ni() -> np.ndarray:
        kernels.aes = 1
        try:
            return run()
        finally:
            kernels.aes = 2

    return with_aes_ni


def _numpy(vectors: np.ndarray) -> Callable[[], np.ndarray]:
    generator, q = np.random.default_rng(2), float(Q)
    block = max(1, 40_000 // vectors.shape[1])

    def run() -> np.ndarray:
        pieces = []
        for start in range(0, len(vectors), block):
            piece = vectors[start : start + block]
            flips = generator.random(piece.shape) < q
            pieces.append(np.packbits(piece ^ flips, axis=1, bitorder="little"))
        return np.concatenate(pieces)

    return run


def _epsilon() -> float:
    return 2 * math.log((1 - float(Q)) / float(Q))


def _multi_freq(answers: np.ndarray, bits: int) -> Callable[[], np.ndarray]:
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

    epsilon, values = _epsilon(), answers.tolist()
    return lambda: np.array([UE_Client(value, bits, epsilon, False) for value in values])


def _pure_ldp(answers: np.ndarray, bits: int) -> Callable[[], np.ndarray]:
    from pure_ldp.frequency_oracles.unary_encoding import UEClient

    client = UEClient(_epsilon(), bits, use_oue=False, index_mapper=lambda value: value)
    values = answers.tolist()
    return lambda: np.array([client.privatise(value) for value in values])


def _opendp_measurement(bits: int) -> Callable[[bytes], bytes]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=bits), dp.discrete_distance(), f=2 * float(Q)
    )


def _opendp(packed: np.ndarray) -> Callable[[], np.ndarray]:
    randomizer = _opendp_measurement(packed.shape[1] * 8)
    rows = [row.tobytes() for row in packed]
    return lambda: np.frombuffer(b"".join(randomizer(row) for row in rows), np.uint8)


def _opendp_at_once(packed: np.ndarray) -> Callable[[], np.ndarray]:
    randomizer = _opendp_measurement(packed.size * 8)
    content = packed.tobytes()
    return lambda: np.frombuffer(randomizer(content), np.uint8)


def _cipher(size: int) -> Callable[[], None]:
    zeros, out = memoryview(bytes(_BLOCK)), memoryview(bytearray(_BLOCK))

    def run() -> None:
        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        for start in range(0, size, _BLOCK):
            length = min(_BLOCK, size - start)
            cipher.update_into(zeros[:length], out[:length])

    return run


def aes_rounds(size: int, folder: Path) -> Callable[[], object] | None:
    """Return what runs the rounds alone, or None without a compiler and AES instructions."""
    kernels, compiler = load_kernels(), shutil.which("cc")
    if kernels is None or not kernels.aes or compiler is None:
        return None
    source, library = Path(__file__).with_name("aes_limit.c"), folder / "aes_limit.so"
    subprocess.run([compiler, "-O3", "-shared", "-fPIC", "-o", library, source], check=True)
    rounds = ctypes.CDLL(str(library)).aes_rounds
    rounds.argtypes, rounds.restype = [ctypes.c_size_t, ctypes.c_int], ctypes.c_uint64
    return lambda: rounds(size, kernels.aes == 2)
