"""The device's memory: what is kept, against crashes, other processes and curious eyes.

False alarms: samplers are judged by exact binomial p-values below 1e-9 with seeded bits, so that a
test that passed once passes always.
"""

from __future__ import annotations

import base64
import itertools
import math
import os
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from shoal import Flags, Number, Plan, PrivacyRefusal, Survey, Tally, Text, estimate
from shoal.analysis.count_table import unpack
from shoal.analysis.tally import Tallying
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import OriginalVector, encode
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory, decrypt, encrypt, key_from_text, read_key
from shoal.device.randomize import flip
from shoal.errors import InputError, ShoalError
from shoal.planning.memory import linking_probability, plan_with_memory
from shoal.protocol.flip_probability import (
    FlipProbability,
    changing_epsilon,
    local_epsilon,
    repeated_epsilon,
    vector_epsilon,
)
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import Synthetic
from shoal.protocol.wording import permanent_key
from shoal.support.disk import Disk, SharedFile
from tests import checks
from tests.device.outbox_help import run_together

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
BITS = 24


def plan_of(q1: str = "0.125", q2: str = "0.25", bits: int = BITS, name: str = "s") -> Plan:
    memory = Memory(FlipProbability.at_least(q1), FlipProbability.at_least(q2))
    survey = Survey(name, (Flags("f", tuple(f"o{i}" for i in range(bits))),))
    return Plan(survey, memory.q, Promise("local", "9999"), 100, memory=memory)


PLAN = plan_of()


def answer(*positions: int, plan: Plan = PLAN) -> OriginalVector:
    return encode(plan, {"f": [f"o{i}" for i in positions]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory"


class TestRemember:
    def test_the_same_answer_has_the_same_vector_tomorrow(self, path: Path):
        first = DeviceMemory(path, KEY).remember(PLAN, answer(1, 5))
        again = DeviceMemory(path, KEY).remember(PLAN, answer(1, 5))
        assert first == again

    def test_another_answer_and_another_plan_have_their_own(self, path: Path):
        device = DeviceMemory(path, KEY)
        vectors = {
            device.remember(plan, answer(i, plan=plan)).row
            for plan in (plan_of(name="a"), plan_of(name="b"))
            for i in range(6)
        }
        # Two of 12 vectors that differ in two or no true bits coincide with a chance below 1e-2;
        # all of them with a chance that needs no number.
        assert len(vectors) > 6
        assert sorted(device.counts().values()) == [6, 6]

    def test_a_permanent_vector_flips_with_q1(self, tmp_path: Path):
        plan = plan_of("0.125", "0.25", bits=4000)
        device = DeviceMemory(tmp_path / "m", KEY)
        kept = device.remember(plan, answer(plan=plan), random_bits=SimulationBits(1))
        assert kept.simulated
        assert checks.two_sided(kept.value.bit_count(), 4000, 0.125) > 1e-9

    def test_a_report_flips_with_q2_on_top_and_with_q_in_all(self, tmp_path: Path):
        plan = plan_of("0.125", "0.25", bits=4000)
        device = DeviceMemory(tmp_path / "m", KEY)
        bits = SimulationBits(2)
        kept = device.remember(plan, answer(plan=plan), random_bits=bits).value
        sent = device.report(plan, answer(plan=plan), random_bits=bits).value
        assert checks.two_sided((kept ^ sent).bit_count(), 4000, 0.25) > 1e-9
        assert checks.two_sided(sent.bit_count(), 4000, float(plan.q)) > 1e-9
        again = device.report(plan, answer(plan=plan), random_bits=bits).value
        assert checks.two_sided((again ^ sent).bit_count(), 4000, 2 * 0.25 * 0.75) > 1e-9

    def test_the_mark_of_a_simulation_is_kept(self, path: Path):
        DeviceMemory(path, KEY).remember(PLAN, answer(1), random_bits=SimulationBits(1))
        assert DeviceMemory(path, KEY).report(PLAN, answer(1)).simulated
        assert not DeviceMemory(path, KEY).report(PLAN, answer(2)).simulated

    def test_without_memory_a_report_is_just_randomized(self, path: Path):
        plan = Plan(PLAN.survey, FlipProbability(1, 2), Promise("local", "9999"))
        device = DeviceMemory(path, KEY)
        sent = device.report(plan, answer(1), random_bits=SimulationBits(3))
        assert sent == flip(plan, answer(1), random_bits=SimulationBits(3))
        assert not path.exists()
        with pytest.raises(InputError, match="no memory"):
            device.remember(plan, answer(1))

    def test_what_is_refused(self, path: Path):
        device = DeviceMemory(path, KEY)
        with pytest.raises(InputError, match="one answer at a time, an OriginalVector, got Origi"):
            device.report(PLAN, encode(PLAN, [{"f": []}, {"f": []}]))  # type: ignore[arg-type]
        with pytest.raises(InputError, match="24 bits, the original 8"):
            device.report(PLAN, OriginalVector(0, 8))
        with pytest.raises(InputError, match="an OriginalVector, got Synth"):
            device.report(PLAN, device.report(PLAN, answer(1)))  # type: ignore[arg-type]
        memory = PLAN.memory
        assert memory is not None
        text = Survey("t", (Text("word", 16, 2, 4),))
        plan = Plan(text, memory.q, Promise("local", "9999"), memory=memory)
        with pytest.raises(InputError, match="splits the crowd"):
            device.report(plan, encode(plan, {"word": "shoal"}))


class TestKeys:
    def test_made_once_for_its_owner_only(self, tmp_path: Path, path: Path):
        made = read_key(tmp_path / "key", path)
        assert read_key(tmp_path / "key", path) == made
        assert len(made) == 32
        assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
        DeviceMemory(path, made).remember(PLAN, answer(1))
        assert DeviceMemory(path, read_key(tmp_path / "key", path)).counts() == {
            permanent_key(PLAN): 1
        }

        (tmp_path / "key").chmod(0o640)
        with pytest.raises(InputError, match="others can read"):
            read_key(tmp_path / "key", path)

    def test_none_is_made_for_a_memory_that_has_one(self, tmp_path: Path, path: Path):
        DeviceMemory(path, KEY).remember(PLAN, answer(1))
        with pytest.raises(InputError, match="does not open; find the key"):
            read_key(tmp_path / "key", path)
        assert not (tmp_path / "key").exists()

    def test_what_is_no_key_is_not_shown(self, path: Path):
        for text in ("", "00" * 31, "0" * 65, "zz" * 32, "00" * 32):
            with pytest.raises(InputError) as error:
                key_from_text(text, "there")
            assert not text or text not in str(error.value)
        for key in (b"short", bytes(32), "a" * 32, None):
            with pytest.raises(InputError, match="32"):
                DeviceMemory(path, key)  # type: ignore[arg-type]


WORDED = Memory(FlipProbability(1, 2), FlipProbability(1, 3))


def worded(
    *options: str, question: str = "f", memory: Memory = WORDED, name: str = "browser", **more: Any
) -> Plan:
    """A plan with these options, in this order."""
    survey = Survey(name, (Flags(question, options),))
    return Plan(survey, memory.q, Promise("local", "9999"), memory=memory, **more)


class TestEdits:
    """Permanent flips survive an edit of words, and nothing else that could move an answer."""

    OPTIONS = tuple(f"option {i}" for i in range(64))

    def edited(self, place: int, word: str) -> tuple[str, ...]:
        return (*self.OPTIONS[:place], word, *self.OPTIONS[place + 1 :])

    def test_five_labels_have_one_vector_that_is_charged_once(self, tmp_path: Path, path: Path):
        device, ledger = DeviceMemory(path, KEY), Ledger(tmp_path / "ledger")
        edits = [self.OPTIONS, *(self.edited(i, f"new word {i}") for i in range(3))]
        plans = [worded(*options) for options in edits] + [worded(*self.OPTIONS, question="g")]
        vectors = set()
        for plan in plans:
            original = OriginalVector(5, 64)
            vectors.add(device.remember(plan, original).row)
            device.report(plan, original, ledger=ledger)
        assert len({plan.id for plan in plans}) == 5
        assert len(vectors) == 1
        account = ledger.read()
        assert account.epsilon == repeated_epsilon(64, WORDED, 5)
        assert account.epsilon < local_epsilon(64, WORDED.q1)
        assert account.epsilon < sum(one.epsilon for one in account.plans)
        assert account.epsilon_of_changes == changing_epsilon(64, 64, WORDED, 5)
        assert device.counts() == {permanent_key(plans[0]): 1}

    @pytest.mark.parametrize(
        "edited",
        [
            worded(*OPTIONS, crowd_size=1000),
            worded(*OPTIONS, window=86_400),
            worded(*OPTIONS, memory=WORDED._replace(q2=FlipProbability(1, 4))),
        ],
        ids=["crowd", "window", "fresh flips"],
    )
    def test_other_edits_that_leave_answers_on_their_bits(self, path: Path, edited: Plan):
        device, original = DeviceMemory(path, KEY), OriginalVector(5, 64)
        before = device.remember(worded(*self.OPTIONS), original)
        assert device.remember(edited, original) == before

    REDRAWN: ClassVar = {
        "options reordered": worded(*OPTIONS[::-1]),
        "a label taken by another option": worded("option 7", *OPTIONS[1:7], "x", *OPTIONS[8:]),
        "one option more": worded(*OPTIONS, "option 64"),
        "permanent flips with another probability": worded(
            *OPTIONS, memory=WORDED._replace(q1=FlipProbability(1, 3))
        ),
        "another name": worded(*OPTIONS, name="web browser"),
        "other rules": replace(
            worded(*OPTIONS), survey=Survey("browser", (Flags("f", OPTIONS, at_most=64),))
        ),
    }

    @pytest.mark.parametrize("name", REDRAWN)
    def test_new_flips_are_charged_again(self, tmp_path: Path, path: Path, name: str):
        """Also where an answer happens to set the same bits: kept flips would say that it did."""
        device, ledger = DeviceMemory(path, KEY), Ledger(tmp_path / "ledger")
        old, new = worded(*self.OPTIONS), self.REDRAWN[name]
        before = device.remember(old, OriginalVector(0, 64))
        after = device.remember(new, OriginalVector(0, new.bits))
        assert before.row != after.row[:8]
        first = ledger.charge(old, device.digest(old, OriginalVector(0, 64)))
        second = ledger.charge(new, device.digest(new, OriginalVector(0, new.bits)))
        assert second >= local_epsilon(new.survey.differing_bits, new.q)
        assert ledger.read().epsilon == first + second

    def test_no_word_moves_in_several_edits(self, path: Path):
        """Each edit renames one option; together they swap two, and leave one alone."""
        edits = [("x", "y", "z"), ("x", "t", "z"), ("y", "t", "z"), ("y", "x", "z")]
        plans = [worded(*(self.edited(9, "last")[3:]), *options) for options in edits]
        vectors = [
            DeviceMemory(path, KEY).remember(plan, OriginalVector(0, 64)).row for plan in plans
        ]
        assert vectors[0] == vectors[1] != vectors[2] == vectors[3]

    def test_plans_that_take_turns_keep_their_flips(self, path: Path):
        """Two orders of options, and words of each that change: two vectors in all."""
        turns = [
            worded(*order)
            for words in ("x", "y", "x")
            for order in (self.edited(3, words), self.edited(3, words)[::-1])
        ]
        vectors = [
            DeviceMemory(path, KEY).remember(plan, OriginalVector(0, 64)).row for plan in turns
        ]
        assert vectors == [vectors[0], vectors[1]] * 3
        assert vectors[0] != vectors[1]

    def test_reports_with_two_kinds_of_fresh_flips_by_enumeration(self):
        """One permanent bit and one report with each q2: the largest ratio of all outcomes."""
        q1, first, second = FlipProbability(3, 4), FlipProbability(1, 3), FlipProbability(3, 5)

        def chance(truth: int, sent: tuple[int, ...]) -> Fraction:
            total = Fraction(0)
            for kept in (0, 1):
                weight = q1.fraction if kept != truth else 1 - q1.fraction
                for bit, q2 in zip(sent, (first, second), strict=True):
                    weight *= q2.fraction if bit != kept else 1 - q2.fraction
                total += weight
            return total

        outcomes = itertools.product((0, 1), repeat=2)
        largest = max(chance(1, sent) / chance(0, sent) for sent in outcomes)
        said = float(vector_epsilon(1, q1, [(first, 1), (second, 1)]))
        assert math.log(largest) <= said <= math.log(largest) + 1.01e-6


class TestForget:
    def test_one_plan_or_all(self, path: Path):
        device = DeviceMemory(path, KEY)
        assert device.forget() == 0
        assert not path.exists()
        for plan in (one := plan_of(name="a"), plan_of(name="b")):
            device.remember(plan, answer(1, plan=plan))
            device.remember(plan, answer(2, plan=plan))
        assert device.forget(one) == 2
        assert list(device.counts().values()) == [2]
        assert device.forget() == 2
        assert device.counts() == {}

    def test_a_new_vector_has_a_new_name_in_the_ledger(self, path: Path):
        device = DeviceMemory(path, KEY)
        name = device.digest(PLAN, answer(1))
        device.remember(PLAN, answer(1))
        assert device.digest(PLAN, answer(1)) == name
        device.forget()
        assert device.digest(PLAN, answer(1)) != name
        path.unlink()
        assert device.digest(PLAN, answer(1)) != name


class TestSecrecy:
    def test_nothing_readable_is_written(self, path: Path):
        device = DeviceMemory(path, KEY)
        rows = answer(*range(0, BITS, 2))
        kept = device.remember(PLAN, rows)
        content = path.read_bytes()
        for secret in (rows.row, kept.row, str(permanent_key(PLAN)).encode(), b"answers"):
            assert secret not in content
        assert (path.stat().st_mode & 0o777) == 0o600
        assert "key not shown" in repr(device)

    def test_inside_the_file_there_is_a_keyed_digest_and_no_answer(self, path: Path):
        """So many bits that some are flipped: without any, what is kept would be the answer."""
        device, plan = DeviceMemory(path, KEY), plan_of(bits=1000)
        rows = answer(*range(0, 1000, 2), plan=plan)
        device.remember(plan, rows)
        inside = decrypt(device._file_key, path.read_bytes(), path)
        assert str(permanent_key(plan)).encode() in inside
        for secret in (rows.row.hex().encode(), base64.b64encode(rows.row)):
            assert secret not in inside

    @pytest.mark.parametrize("salted", [True, False])
    def test_names_need_the_key(self, tmp_path: Path, monkeypatch, salted: bool):
        """With the salt alone somebody could try all answers until a name fits."""
        if not salted:
            monkeypatch.setattr(SystemBits, "draw", lambda self, count: bytes(count))
        names = set()
        for i, key in enumerate((KEY, KEY, OTHER_KEY)):
            device = DeviceMemory(tmp_path / str(i), key)
            names |= {device.digest(plan, answer(1)) for plan in (plan_of(), plan_of(name="b"))}
        assert len(names) == (6 if salted else 2)

    def test_no_nonce_is_used_twice(self):
        """Two contents under one nonce tell their difference."""
        assert len({encrypt(KEY, b"the same")[9:21] for _ in range(100)}) == 100

    def test_the_length_tells_little(self, path: Path):
        device = DeviceMemory(path, KEY)
        sizes = set()
        for i in range(8):
            device.remember(PLAN, answer(i))
            sizes.add(path.stat().st_size)
        assert len(sizes) == 1

    def test_a_file_that_does_not_open_is_not_a_fresh_start(self, path: Path):
        """Whichever byte was changed, wherever it was cut, whatever else is in it."""
        device = DeviceMemory(path, KEY)
        device.remember(PLAN, answer(1))
        good = path.read_bytes()
        other = (b"", b"{}", b'{"surveys": 1}', b'{"surveys": {"a": [["x", [], {}]]}}')
        damaged = [
            *(
                good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
                for at in (*range(30), 100, len(good) - 1)
            ),
            *(good[:size] for size in (0, 5, 20, 21, 30, 4000)),
            *(encrypt(device._file_key, content) for content in other),
            encrypt(DeviceMemory(path, OTHER_KEY)._file_key, b'{"surveys": {}}'),
        ]
        for content in damaged:
            path.write_bytes(content)
            for act in (lambda: device.report(PLAN, answer(1)), device.forget, device.counts):
                with pytest.raises(InputError, match=r"not touched|has version|holds no memory"):
                    act()
            assert path.read_bytes() == content


class TestFiles:
    def test_the_disk_is_told_before_and_after_the_replacement(self, path: Path, monkeypatch):
        done: list[str] = []
        real = {name: getattr(os, name) for name in ("fsync", "replace")}

        def noted(name: str) -> object:
            def act(*args: object) -> None:
                done.append(name)
                real[name](*args)

            return act

        for name in real:
            monkeypatch.setattr(os, name, noted(name))
        Disk().store(path, b"x", "part")
        assert done == ["fsync", "replace", "fsync"]

    def test_an_unwritable_place(self, tmp_path: Path):
        with pytest.raises(InputError, match="cannot open"):
            DeviceMemory(tmp_path / "none" / "m", KEY).report(PLAN, answer(1))


SCRIPT = """
import sys
from pathlib import Path
from shoal import Plan
from shoal.device.encode import encode
from shoal.device.memory import DeviceMemory
plan = Plan.read(sys.argv[1])
device = DeviceMemory(sys.argv[2], bytes(range(32)))
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    kept = device.remember(plan, encode(plan, {"f": [f"o{i}"]}))
    print(i, kept.row.hex(), flush=True)
"""


class TestProcesses:
    @pytest.mark.slow
    def test_processes_that_start_together_agree(self, tmp_path: Path, path: Path):
        PLAN.write(tmp_path / "plan.json")
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "plan.json"), str(path), "12"]
        said = run_together([command] * 4)
        assert len(set(said)) == 1
        assert len(said[0].splitlines()) == 12
        assert DeviceMemory(path, KEY).counts() == {permanent_key(PLAN): 12}

    def test_a_lock_that_is_not_let_go(self, path: Path):
        with (
            SharedFile(path, "memory", 1, None).changing(),
            pytest.raises(ShoalError, match=r"in use by another process for 0\.05 seconds"),
        ):
            DeviceMemory(path, KEY, timeout=0.05).report(PLAN, answer(1))
        DeviceMemory(path, KEY).report(PLAN, answer(1))


class TestLedgerFirst:
    def test_a_refused_report_draws_nothing(self, tmp_path: Path, path: Path):
        ledger = Ledger(tmp_path / "ledger")
        ledger.set_limit("0.001")

        class Broken:
            simulated = False

            def fill(self, out: object) -> None:
                raise AssertionError("nothing may be drawn")

        device = DeviceMemory(path, KEY)
        for plan in (PLAN, Plan(PLAN.survey, FlipProbability(1, 2), Promise("local", "9999"))):
            with pytest.raises(PrivacyRefusal):
                device.report(plan, answer(1), ledger=ledger, random_bits=Broken())
        assert device.counts() == {permanent_key(PLAN): 0}
        assert ledger.read().plans == ()

    def test_the_account_follows_what_is_sent(self, tmp_path: Path, path: Path):
        ledger, device = Ledger(tmp_path / "ledger"), DeviceMemory(path, KEY)
        for positions in ((1,), (1,), (2,), (1,)):
            device.report(PLAN, answer(*positions), ledger=ledger)
        (account,) = ledger.read().plans
        assert (account.reports, account.distinct_answers) == (4, 2)
        assert sorted(account.answers.values()) == [1, 3]
        device.forget()
        device.report(PLAN, answer(1), ledger=ledger)
        assert ledger.read().of(PLAN).distinct_answers == 3


class TestEstimates:
    @pytest.mark.slow
    def test_with_the_planner_s_layers_sigma_is_as_predicted(self):
        """300 crowds of 1000 people, five bits, four releases each; seeded.

        Each of the four statistics is a mean of 1500 or 6000 z-scores or of their squares and fails
        by chance with probability below 1e-6.
        """
        survey = Survey("s", (Flags("f", tuple("abcde")),))
        plan = plan_with_memory(
            survey, crowd_size=1000, epsilon=1, delta="1e-6", releases=4, lifetime_epsilon=6
        )
        memory = plan.memory
        assert memory is not None
        assert memory.q1.fraction > memory.q2.fraction > 0
        people, crowds, releases, bits = 1000, 300, 4, SimulationBits(11)
        truth = np.zeros((people, 5), np.uint8)
        truth[:300, 0] = truth[:700, 3] = 1
        everybody = Original(pack(np.tile(truth, (crowds, 1))), 5)
        kept = flip(memory.q1, everybody, random_bits=bits)
        q1, q2, q = float(memory.q1), float(memory.q2), float(plan.q)
        errors = []
        for _release in range(releases):
            sent = flip(memory.q2, Original(kept.rows, 5), random_bits=bits)
            ones = unpack(sent.rows, 5).reshape(crowds, people, 5).sum(axis=1)
            errors.append((ones - people * q) / (1 - 2 * q) - truth.sum(axis=0))
        sigma = math.sqrt(people * q * (1 - q)) / (1 - 2 * q)
        one = estimate(plan, _tally_of(plan, sent, people))["f"]["a"]
        assert one.sigma == pytest.approx(sigma, rel=1e-9)
        single, mean = np.array(errors) / sigma, np.mean(errors, axis=0)
        # The four releases of a crowd are correlated, so that they count as one.
        assert abs(single.mean()) < 5 / math.sqrt(single[0].size)
        assert abs((single**2).mean() - 1) < 5 * math.sqrt(2 / single[0].size)
        whole = (1 - 2 * q2) ** 2 * q1 * (1 - q1) + q2 * (1 - q2) / releases
        of_mean = math.sqrt(people * whole) / (1 - 2 * q)
        assert abs((mean / of_mean).mean()) < 5 / math.sqrt(mean.size)
        assert abs(((mean / of_mean) ** 2).mean() - 1) < 5 * math.sqrt(2 / mean.size)
        # Four fresh releases would have half the sigma; the permanent flips stay.
        assert of_mean > 0.7 * sigma


def _tally_of(plan: Plan, sent: Synthetic, people: int) -> Tally:
    tallying = Tallying(plan)
    tallying.add(sent.rows[:people], simulated=True)
    return tallying.result()


class TestLinking:
    def test_a_guess_is_the_least(self):
        blind = Memory(FlipProbability(1, 1), FlipProbability(1, 1))
        assert linking_probability(8, blind, 50) == pytest.approx(1 / 50)
        assert linking_probability(300, blind, 50) == 1.0

    def test_more_fresh_flips_hide_better(self):
        values = [
            linking_probability(40, Memory(FlipProbability(1, 2), FlipProbability(n, 8)), 1000)
            for n in (1, 9, 33, 65, 99, 127)
        ]
        assert values == sorted(values, reverse=True)
        assert values[0] > 0.9

    @pytest.mark.parametrize("crowd", [2, 3, 4])
    def test_by_brute_force(self, crowd: int):
        """All reports of all people, with fractions, for two bits."""
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 3))
        q1, q2, q = memory.q1.fraction, memory.q2.fraction, memory.q.fraction

        def flips(a: tuple[int, ...], b: tuple[int, ...], flip: Fraction) -> Fraction:
            wrong = sum(s != t for s, t in zip(a, b, strict=True))
            return flip**wrong * (1 - flip) ** (len(a) - wrong)

        vectors = list(itertools.product((0, 1), repeat=2))
        truth = (0, 0)
        total = Fraction(0)
        for held in vectors:
            again = {
                v: sum(flips(truth, p, q1) * flips(p, held, q2) * flips(p, v, q2) for p in vectors)
                for v in vectors
            }
            fresh = {v: flips(truth, v, q) for v in vectors}
            score = {v: again[v] / fresh[v] for v in vectors}
            for own in vectors:
                for others in itertools.product(vectors, repeat=crowd - 1):
                    chance = again[own] * math.prod((fresh[v] for v in others), start=Fraction(1))
                    best = max(score[own], *(score[v] for v in others))
                    if score[own] == best:
                        ties = 1 + sum(score[v] == best for v in others)
                        total += chance / ties
        assert linking_probability(2, memory, crowd) == pytest.approx(float(total), rel=1e-12)


def test_a_number_is_rounded_the_same_way_every_time(tmp_path):
    """Between two points of a grid, so that fresh draws would round it both ways."""
    survey = Survey("s", (Number("n", low=0, high=1, points=2),))
    memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
    agreed = Plan(survey, memory.q, Promise("local", "8"), memory=memory)
    device, other = (DeviceMemory(tmp_path / name, SystemBits().draw(32)) for name in "ab")
    for _ in range(64):
        device.report(agreed, encode(agreed, {"n": 0.5}, rounding=device.rounding))
    assert list(device.counts().values()) == [1]
    with pytest.raises(InputError, match=r"rounding=memory\.rounding"):
        encode(agreed, {"n": 0.5})
    draws = [[memory.rounding(place) for place in range(100)] for memory in (device, other)]
    assert draws[0] != draws[1]
    assert all(0 <= drawn < 1 for drawn in draws[0])
    assert 0.3 < np.mean(draws[0]) < 0.7  # seven sigma
