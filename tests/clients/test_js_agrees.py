"""The clients in JavaScript and Go agree with Python: originals, flips, messages that open."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from shoal import Flags, Plan, Survey
from shoal.audit import Verdict, inspect_randomizer
from shoal.device.encode import answer_bits
from shoal.errors import AnswerError
from shoal.protocol.encryption import (
    decrypt_message,
    encryption_info,
    key_digest,
    split_encrypted,
)
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.signatures import key_text
from shoal.protocol.wire import ID_BYTES
from tests.clients.go_help import drive
from tests.clients.js_help import CLIENT, needs_node, run_driver
from tests.clients.surveys import cases

pytestmark = [needs_node, pytest.mark.slow]


def original_of(case: dict[str, Any]) -> list[Any]:
    survey = Survey.from_json(case["survey"])
    assert survey.to_json() == case["survey"]
    facts = [survey.bits, survey.differing_bits, survey.cohorts]
    try:
        bits = answer_bits(survey, case["answers"], case["cohort"])
    except AnswerError:
        return [*facts, None]
    row = sum(1 << bit for bit in bits).to_bytes(-(-survey.bits // 8), "little")
    return [*facts, row.hex()]


Driver = Callable[..., bytes]
"""Gives a task with bytes and settings to the driver of a client, and returns what it writes."""


@pytest.fixture(params=["JavaScript", "Go"])
def driven(request: pytest.FixtureRequest) -> Driver:
    if request.param == "Go":
        return partial(drive, request.getfixturevalue("driver"))
    return lambda task, content, **settings: run_driver(content, task, *settings.values())


def test_10_000_random_surveys_and_answers_give_equal_originals(driven: Driver) -> None:
    """Without a normalizer Go may refuse letters beyond ASCII; they never set another bit."""
    asked = cases(10_000, seed=17)
    lines = "\n".join(json.dumps(case) for case in asked)
    answered = [json.loads(line) for line in driven("encode", lines.encode()).splitlines()]
    equal = letters = 0
    for case, theirs in zip(asked, answered, strict=True):
        ours = original_of(case)
        if theirs[-1] == "letters":
            assert ours[:-1] == theirs[:-1], case
            assert not json.dumps(case, ensure_ascii=False).isascii(), case
            letters += 1
        else:
            assert ours == theirs, case
            equal += ours[-1] is not None
    # Most answers are answers, and many are not.
    assert equal > 3_000
    assert letters < 5_000
    assert equal + letters < 9_000


def test_folding_agrees_on_letters() -> None:
    """Letters that one of the two Unicode versions does not have are left out."""
    letters = [
        chr(code)
        for code in range(0x20, 0x20000)
        if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "So", "Mn")
        and unicodedata.normalize("NFC", chr(code)) == chr(code)
    ]
    asked: list[dict[str, Any]] = []
    for letter in Random(1).sample(letters, 3_000):
        options = [f"{letter}b", "z"]
        question = {"fold": True, "kind": "choice", "name": "c", "options": options, "other": True}
        survey = {"name": "s", "questions": [question]}
        for answer in (f"{letter}b".upper(), f"{letter}b".lower(), f"{letter}b".title()):
            asked.append({"survey": survey, "answers": {"c": answer}, "cohort": None})
    lines = "\n".join(json.dumps(case) for case in asked)
    answered = [json.loads(line) for line in run_driver(lines.encode(), "encode").splitlines()]
    assert answered == [original_of(case) for case in asked]


BITS = 40
Q = FlipProbability(5751, 14)


def verdict_on(driven: Driver, samples: int, numerator: int = Q.numerator) -> Verdict:
    settings = {"bits": BITS, "numerator": numerator, "digits": Q.digits}

    def randomizer(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        packed = np.packbits(rows, axis=1, bitorder="little")
        made = driven("randomize", packed.tobytes(), **settings)
        out = np.frombuffer(made, np.uint8).reshape(packed.shape)
        return np.unpackbits(out, axis=1, bitorder="little", count=BITS)

    return inspect_randomizer(
        randomizer, q=Q.fraction, bits=BITS, samples=samples, confidence=1 - 1e-11, seed=5
    )


def of_copy(client: Path) -> Driver:
    return lambda task, content, **settings: run_driver(
        content, task, *settings.values(), client=client
    )


@pytest.mark.real_random
def test_200_000_reports_are_flipped_as_often_as_the_plan_says(driven: Driver) -> None:
    """False alarm: 1e-11. A q that is 3 % off escapes with probability below 1e-12."""
    verdict = verdict_on(driven, 200_000)
    assert not verdict.convicted, verdict
    assert verdict.samples >= 200_000
    assert verdict_on(driven, 64_000, numerator=5579).convicted


class JsMutant(NamedTuple):
    name: str
    old: str
    new: str


MUTANTS = [
    JsMutant("a bit never flipped", "return byte ^ flips;", "return byte ^ (flips & 127);"),
    JsMutant("and for or", "? flips | drawn", "? flips & drawn"),
]  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    target = tmp_path / "js"
    unneeded = shutil.ignore_patterns("node_modules", "types")
    shutil.copytree(CLIENT, target, ignore=unneeded)
    return target


@pytest.mark.real_random
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_of_the_randomizer_are_convicted(mutant: JsMutant, copy: Path) -> None:
    source = copy / "src" / "random.js"
    text = source.read_text("utf-8")
    assert text.count(mutant.old) == 1
    changed = text.replace(mutant.old, mutant.new)
    source.write_text(changed, "utf-8")
    assert verdict_on(of_copy(copy), 64_000).convicted


def depends_on_the_system_alone(driven: Driver) -> bool:
    """Whether zeros from the system flip nothing, as they must if all random bits are its own."""
    rows = Random(3).randbytes(5_000)
    settings = {"bits": BITS, "numerator": Q.numerator, "digits": Q.digits, "zeros": "zeros"}
    return driven("randomize", rows, **settings) == rows


def test_all_random_bits_are_the_system_s(driven: Driver, copy: Path) -> None:
    """Math.random passes every test of rates; zeros from the system show whether it was asked."""
    assert depends_on_the_system_alone(driven)
    source = copy / "src" / "random.js"
    text = source.read_text("utf-8")
    drawn = "crypto.getRandomValues(new Octets(size));"
    assert text.count(drawn) == 1
    other = "new Octets(size).map(() => 256 * Math.random());"
    source.write_text(text.replace(drawn, other), "utf-8")
    assert not depends_on_the_system_alone(of_copy(copy))


SECRET = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = SECRET.public_key().public_bytes_raw()


def test_python_opens_what_javascript_seals() -> None:
    survey = Survey("s", (Flags("f", tuple(f"o{place}" for place in range(20))),))
    parties = Parties("https://relay.example", "https://analyzer.example")
    promise = Promise("proven", "1", delta="1e-6")
    plan = Plan(survey, Q, promise, crowd_size=1000, parties=parties)
    rows = [0b1011, 0, 2**20 - 1, 1 << 19]
    same = {"plan": plan.id, "window": 7, "key": key_text(PUBLIC)}
    asked = [same | {"row": row.to_bytes(3, "little").hex()} for row in rows]
    info, seen = encryption_info(plan, 7), set()
    for row, content in zip(
        rows, json.loads(run_driver(json.dumps(asked).encode(), "encrypt")), strict=True
    ):
        batch = split_encrypted(plan, bytes.fromhex(content))
        assert (len(batch), batch.window, batch.key) == (1, 7, key_digest(PUBLIC))
        opened = decrypt_message(batch.content[ID_BYTES:], SECRET, info)
        assert int.from_bytes(opened[ID_BYTES:], "little") == row
        seen |= {opened[:ID_BYTES], *batch.ids}
    # No identifier is used twice.
    assert len(seen) == 2 * len(rows)
