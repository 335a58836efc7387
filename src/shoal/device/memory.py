"""The device's memory: one permanent vector for each answer, in one encrypted file.

Fresh flips of the same answer average away. With memory the flips come in two layers (RAPPOR): a
*permanent* one, drawn once for each answer with probability q1 and kept by the device, and a
*fresh* one with probability q2 on top, drawn for each report. The memory holds randomized vectors.

The file: ``SHOALMEM`` (8 bytes), version (1), nonce (12), then AES-256-GCM of the content, with
everything before it as associated data. The content is padded to whole pages, so that the length of
a file reveals little. Keys for each purpose are HMAC-SHA256(key, purpose).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.device.encode import OriginalVector, SyntheticVector, check_vector
from shoal.device.randomize import flip
from shoal.errors import InputError, missing_extra
from shoal.protocol.plan import Memory, Plan
from shoal.protocol.random_bits import RandomBits, SystemBits
from shoal.protocol.wording import Wording, permanent_key
from shoal.support.checks import check_number
from shoal.support.disk import Disk, SharedFile
from shoal.support.files import canonical_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from shoal.device.ledger import Ledger

_MAGIC, _VERSION = b"SHOALMEM", 2
_NONCE, _PAGE = 12, 4096


class _Flips(NamedTuple):
    """Permanent vectors of one survey; the salt is new whenever they are drawn anew.

    `wordings` are all that the survey had while they were used: with the latest alone, a word could
    move to another bit in two edits, each of which moves none. `answers` maps an answer's digest to
    its row in hexadecimal, and whether the row is simulated.
    """

    salt: str
    wordings: tuple[Wording, ...]
    answers: dict[str, tuple[str, bool]]


_Remembered = dict[str, list[_Flips]]
"""By `permanent_key`. There are several where words of a survey moved to other bits, the latest
last."""


class DeviceMemory:
    """Permanent vectors of one person, in a file that survives crashes and concurrent use.

    Parameters
    ----------
    path
        The file; it is made when something is first remembered.
    key
        32 random bytes that the host application keeps where it keeps secrets. It encrypts the
        file, in which answers stand as keyed digests only.
    timeout
        Seconds to wait while another process uses the file.
    disk
        The file system; tests pass their own.

    Examples
    --------
    >>> import tempfile
    >>> from shoal import Flags, Plan, Survey
    >>> from shoal.device.encode import encode
    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> from shoal.protocol.plan import Memory, Promise
    >>> memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
    >>> plan = Plan(Survey("browser", (Flags("features", ("sync", "vpn")),)), memory.q,
    ...             Promise("local", "3"), memory=memory)
    >>> device = DeviceMemory(tempfile.mkdtemp() + "/memory", SystemBits().draw(32))
    >>> answer = encode(plan, {"features": ["sync"]})
    >>> device.remember(plan, answer) == device.remember(plan, answer)
    True
    >>> device.report(plan, answer)
    SyntheticVector(2 bits)
    >>> list(device.counts().values())
    [1]
    """

    def __init__(
        self,
        path: pathlib.Path | str,
        key: bytes,
        *,
        timeout: float = 10.0,
        disk: Disk | None = None,
    ) -> None:
        self._file = SharedFile(path, "memory", check_number("timeout", timeout), disk)
        self._file_key = derive(check_key(key), b"file")
        self._answer_key = derive(key, b"answers")
        self._rounding_key = derive(key, b"rounding")

    @property
    def path(self) -> pathlib.Path:
        """Where the memory is kept."""
        return self._file.path

    def __repr__(self) -> str:
        return f"DeviceMemory({str(self.path)!r}, key not shown)"

    def rounding(self, place: int) -> float:
        """Return the draw that rounds the numbers of one question to their grid, always the same.

        The question is known by its place in the survey, so that a new name draws nothing anew. One
        draw for all its numbers: a number that drifts does not go back and forth between points.
        """
        drawn = hmac.new(self._rounding_key, str(place).encode(), hashlib.sha256).digest()
        return (int.from_bytes(drawn[:8], "little") >> 11) * 2.0**-53

    def remember(
        self, plan: Plan, original: OriginalVector, *, random_bits: RandomBits | None = None
    ) -> SyntheticVector:
        """Return the permanent vector of an answer, drawing and keeping it the first time.

        When this returns the vector is on the disk. A permanent vector sent without fresh flips
        identifies its sender: send the result of `report`.
        """
        self._check(plan, original)
        if plan.memory is None:
            raise InputError("the plan has no memory: nothing is remembered, use report.")
        with self._changing() as remembered:
            return self._permanent(remembered, plan, plan.memory, original, random_bits)

    def report(
        self,
        plan: Plan,
        original: OriginalVector,
        *,
        ledger: Ledger | None = None,
        token: str | None = None,
        random_bits: RandomBits | None = None,
    ) -> SyntheticVector:
        """Return a report to send: the permanent vector with fresh flips on top.

        Where the plan has no memory, each report gets fresh flips with the plan's q. With a
        `ledger` the report is charged to it, durably, before anything is randomized; `token` is
        then what `Ledger.charge` takes.
        """
        self._check(plan, original)
        if plan.memory is None:
            if ledger is not None:
                ledger.charge(plan, token=token)
            return flip(plan, original, random_bits=random_bits)
        with self._changing() as remembered:
            if ledger is not None:
                # Under the lock, so that what is charged is the vector that is used.
                name = self._digest(self._flips(remembered, plan), original)
                ledger.charge(plan, name, token=token)
            permanent = self._permanent(remembered, plan, plan.memory, original, random_bits)
        # The second flips fall on the permanent vector as the first fell on the truth.
        again = OriginalVector(permanent.value, permanent.bits)
        sent = flip(plan.memory.q2, again, random_bits=random_bits)
        return replace(sent, simulated=sent.simulated or permanent.simulated)

    def digest(self, plan: Plan, original: OriginalVector) -> str:
        """Return the name under which a ledger counts this answer's permanent vector.

        Plans that share permanent flips share it. It changes when the memory is forgotten or lost,
        since the device then draws a new vector.
        """
        self._check(plan, original)
        with self._changing() as remembered:
            return self._digest(self._flips(remembered, plan), original)

    def forget(self, plan: Plan | None = None) -> int:
        """Forget the vectors of one plan and those that share them, or all; return how many.

        The next report of the same answer gets a new permanent vector, which reveals as much again.
        """
        if self._read() is None:
            return 0
        wanted = None if plan is None else permanent_key(plan)
        with self._changing() as remembered:
            gone = [key for key in remembered if plan is None or key == wanted]
            count = sum(len(flips.answers) for key in gone for flips in remembered.pop(key))
            self._write(remembered)
            return count

    def counts(self) -> dict[str, int]:
        """Return how many answers are remembered for each `permanent_key`, and nothing else."""
        remembered = self._read() or {}
        return {key: sum(len(one.answers) for one in all_) for key, all_ in remembered.items()}

    def _check(self, plan: Plan, original: OriginalVector) -> None:
        if not isinstance(original, OriginalVector):
            raise InputError(
                f"a device's memory is one person's and takes one answer at a time, an"
                f" OriginalVector, got {type(original).__name__}; two people who share a vector"
                " do not hide each other."
            )
        if plan.bits != original.bits:
            raise InputError(f"the plan has {plan.bits} bits, the original {original.bits}.")
        check_vector(original.value, plan.survey)
        if plan.memory is None:
            return
        if plan.survey.cohorts is not None or original.cohort is not None:
            raise InputError(
                "text and memory do not go together yet: a remembered vector belongs to one"
                " cohort, and a cohort that a device keeps splits the crowd. Plan without memory."
            )

    @contextmanager
    def _changing(self) -> Iterator[_Remembered]:
        with self._file.changing():
            yield self._read() or {}

    def _permanent(
        self,
        remembered: _Remembered,
        plan: Plan,
        memory: Memory,
        original: OriginalVector,
        random_bits: RandomBits | None,
    ) -> SyntheticVector:
        flips = self._flips(remembered, plan)
        name = self._digest(flips, original)
        if name not in flips.answers:
            drawn = flip(memory.q1, original, random_bits=random_bits)
            flips.answers[name] = drawn.row.hex(), drawn.simulated
            self._write(remembered)
        row, simulated = flips.answers[name]
        value = int.from_bytes(bytes.fromhex(row), "little")
        return SyntheticVector(value, plan.bits, simulated=simulated)

    def _flips(self, remembered: _Remembered, plan: Plan) -> _Flips:
        """Return the permanent flips of a plan: those it had, those of an older wording, or new.

        Words that moved put the same answer on other bits, except answers that the move leaves
        alone. Kept flips would tell these from the others, so all are drawn anew.
        """
        key, wording = permanent_key(plan), Wording.of(plan.survey)
        assert key is not None
        known = remembered.setdefault(key, [])
        for flips in known:
            if wording in flips.wordings:
                return flips
        fits = [
            flips for flips in known if not any(any(old.moved(wording)) for old in flips.wordings)
        ]
        if fits:
            flips = fits[-1]._replace(wordings=(*fits[-1].wordings, wording))
            known.remove(fits[-1])
        else:
            flips = _Flips(SystemBits().draw(32).hex(), (wording,), {})
        known.append(flips)
        self._write(remembered)  # a ledger may be told a name made with this salt
        return flips

    def _digest(self, flips: _Flips, original: OriginalVector) -> str:
        message = b"answer\0" + bytes.fromhex(flips.salt) + original.row
        return hmac.new(self._answer_key, message, hashlib.sha256).hexdigest()

    def _read(self) -> _Remembered | None:
        encrypted = self._file.read()
        if encrypted is None:
            return None
        content = decrypt(self._file_key, encrypted, self.path)
        try:
            document = json.loads(content)["surveys"]
            return {
                key: [_parsed(*entry) for entry in entries] for key, entries in document.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise InputError(f"{self.path} holds no memory that this Shoal reads.") from problem

    def _write(self, remembered: _Remembered) -> None:
        # Named tuples are lists in JSON.
        self._file.write(encrypt(self._file_key, canonical_json({"surveys": remembered})))


def _parsed(salt: str, wordings: list[list[list[str]]], answers: dict[str, Any]) -> _Flips:
    bytes.fromhex(salt)
    return _Flips(
        salt,
        tuple(Wording(*map(tuple, words)) for words in wordings),
        {name: (bytes.fromhex(row).hex(), bool(flag)) for name, (row, flag) in answers.items()},
    )


def key_from_text(text: str, where: str) -> bytes:
    """Return a key that is written as 64 hexadecimal digits; the error does not show it."""
    digits = text.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise InputError(f"{where} must hold a key of 64 hexadecimal digits.")
    return check_key(bytes.fromhex(digits))


def read_key(path: pathlib.Path, memory: pathlib.Path) -> bytes:
    """Return the key in a file that only its owner reads, for applications without a key store.

    The first call makes it. It protects a memory whose file alone leaks, such as from a backup, and
    not against an attacker who reads the device.
    """
    file = SharedFile(path, "key", 10.0, None)
    with file.changing():
        content = file.read()
        if content is None:
            if memory.exists():
                raise InputError(
                    f"there is no key {path}, and without it {memory} does not open; find the key,"
                    " or remove the memory; the device then draws new permanent flips, which"
                    " reveals more."
                )
            content = SystemBits().draw(32).hex().encode() + b"\n"
            file.write(content)
    if os.name == "posix" and stat.S_IMODE(file.path.stat().st_mode) & 0o077:
        raise InputError(f"others can read the key {path}; chmod 600 it, or use a new one.")
    return key_from_text(content.decode("ascii", "replace"), str(path))


def check_key(key: object) -> bytes:
    if not isinstance(key, bytes) or len(key) != 32:
        size = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InputError(f"key must be 32 bytes from the host application's key store, got {size}.")
    if len(set(key)) == 1:
        raise InputError("key must be 32 random bytes, got one byte repeated.")
    return key


def derive(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"shoal-memory-1\0" + purpose, hashlib.sha256)


def encrypt(key: bytes, content: bytes) -> bytes:
    header = _MAGIC + bytes([_VERSION])
    nonce = SystemBits().draw(_NONCE)
    size = len(content).to_bytes(4, "little")
    padded = size + content + bytes(-(len(size) + len(content)) % _PAGE)
    return header + nonce + _cipher(key).encrypt(nonce, padded, header + nonce)


def decrypt(key: bytes, encrypted: bytes, where: object) -> bytes:
    """Decrypt; a wrong key or a changed byte is an error, never an empty content."""
    start = len(_MAGIC) + 1
    if len(encrypted) < start + _NONCE or not encrypted.startswith(_MAGIC):
        raise InputError(f"{where} is not a device's memory, or was cut short; it was not touched.")
    if encrypted[start - 1] != _VERSION:
        raise InputError(
            f"{where} has version {encrypted[start - 1]}; this Shoal reads {_VERSION}."
        )
    aside, body = encrypted[: start + _NONCE], encrypted[start + _NONCE :]
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        padded = cipher.decrypt(aside[start:], body, aside)
    except InvalidTag:
        raise InputError(
            f"{where} does not open: the key is not the one it was written with, or the file was"
            " changed; it was not touched. To start anew, remove it; the device then draws new"
            " permanent flips, which reveals more."
        ) from None
    return padded[4 : 4 + int.from_bytes(padded[:4], "little")]


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise missing_extra(error, "a device's memory") from None
    return AESGCM(key)
