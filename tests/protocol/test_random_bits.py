"""Random bits: fresh for every call, thread, process and copy, or not at all."""

from __future__ import annotations

import copy
import hashlib
import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.errors import EntropyError, InputError
from shoal.protocol import random_bits
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.random_bits import SystemBits

pytestmark = pytest.mark.real_random


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestFresh:
    def test_draws_differ(self):
        """False alarm: 100 * 99 / 2 / 2^256, none."""
        drawn = {SystemBits().draw(32) for _ in range(100)}
        assert len(drawn) == 100

    @pytest.mark.parametrize("shape", [1, 5, 8192, 8193, 100_000, (7, 10)])
    def test_all_words_are_filled(self, shape: Any):
        """A zero word is left with probability 2^-64. False alarm: below 1e-14 in all."""
        words = np.zeros(shape, np.uint64)
        SystemBits().fill(words)
        assert np.count_nonzero(words) == words.size
        for count in (0, words.size, words.size + 1):
            assert len(SystemBits().draw(count)) == count

    @pytest.mark.parametrize("size", [0, 1, 7, 100])
    def test_any_writable_buffer_is_filled(self, size: int):
        """Whole, and nothing beside it. False alarm: 2^-128 for each of four."""
        for source in (SystemBits(), SimulationBits(3)):
            out = bytearray(size + 40)
            source.fill(memoryview(out)[20 : 20 + size])
            assert not any(out[:20]) and not any(out[20 + size :])  # noqa: PT018
            for buffer in (bytearray(size), np.zeros(size, np.uint8), np.zeros((2, size), "<u2")):
                source.fill(buffer)
                assert size < 100 or len(set(bytes(buffer))) > 1

    def test_what_is_not_one_piece_of_memory_is_refused(self):
        """Words that went into a copy would leave the array as it was."""
        for source in (SystemBits(), SimulationBits(3)):
            with pytest.raises(TypeError):
                source.fill(np.zeros((4, 4), np.uint64)[:, ::2])
            with pytest.raises(TypeError):
                source.fill(bytes(8))

    def test_parent_and_children_differ_after_fork(self):
        lines = run(
            """
            import os
            from shoal.protocol.random_bits import SystemBits
            source = SystemBits()
            source.draw(16)               # the parent has a key before it forks
            for _ in range(3):
                reader, writer = os.pipe()
                child = os.fork()
                if child == 0:
                    os.write(writer, source.draw(16).hex().encode())
                    os._exit(0)
                os.waitpid(child, 0)
                print(os.read(reader, 64).decode())
                print(source.draw(16).hex())
            """
        ).split()
        assert len(lines) == 6
        assert len(set(lines)) == 6

    def test_threads_differ(self):
        drawn: list[bytes] = []
        source = SystemBits()
        threads = [threading.Thread(target=lambda: drawn.append(source.draw(32))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(drawn)) == 8

    def test_a_new_key_for_every_call(self, monkeypatch: pytest.MonkeyPatch):
        asked: list[bytes] = []
        real = random_bits._system_entropy

        def watched(count: int) -> bytes:
            asked.append(real(count))
            return asked[-1]

        monkeypatch.setattr(random_bits, "_system_entropy", watched)
        drawn = b"".join(SystemBits().draw(size) for size in 5 * (1 << 16, 1 << 12))
        assert len(asked) == len(set(asked)) == 10
        blocks = [drawn[i : i + 16] for i in range(0, len(drawn), 16)]
        assert len(set(blocks)) == len(blocks)  # no block of any key stream comes back

    def test_one_large_draw_changes_keys_on_the_way(self, monkeypatch: pytest.MonkeyPatch):
        keys = itertools.count()
        monkeypatch.setattr(random_bits, "REKEY_AFTER", 1 << 16)
        monkeypatch.setattr(random_bits, "_BLOCK", 1 << 16)
        monkeypatch.setattr(
            random_bits,
            "_system_entropy",
            lambda count: next(keys).to_bytes(1) + b"k" * (count - 1),
        )
        drawn = SystemBits().draw(1 << 18)
        assert next(keys) == 4
        assert len({drawn[i : i + 16] for i in range(0, len(drawn), 1 << 16)}) == 4


class TestKeyStreams:
    """What is drawn is the key stream of a published function: SHAKE-256, or AES for much."""

    KEY = bytes(range(32))

    @pytest.fixture(autouse=True)
    def _known_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(random_bits, "_fresh_key", lambda: self.KEY)

    @pytest.mark.parametrize("size", [1, 16, 136, random_bits.SMALL])
    def test_a_small_draw_needs_no_aes(self, size: int, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
        assert SystemBits().draw(size) == hashlib.shake_256(self.KEY + bytes(8)).digest(size)

    def test_a_large_draw_is_aes(self):
        size = random_bits.SMALL + 1
        expected = Cipher(algorithms.AES(self.KEY), modes.CTR(bytes(16))).encryptor()
        assert SystemBits().draw(size) == expected.update(bytes(size))

    def test_a_large_draw_without_aes(self, monkeypatch: pytest.MonkeyPatch):
        """No piece of the stream comes back."""
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
        monkeypatch.setattr(random_bits, "_BLOCK", 1 << 14)
        drawn = SystemBits().draw((1 << 15) + 5)
        numbers = [number.to_bytes(8, "little") for number in range(3)]
        pieces = [hashlib.shake_256(self.KEY + n).digest(1 << 14) for n in numbers]
        assert drawn == b"".join(pieces)[: len(drawn)]


State = dict[str, object]


def state_of_the_process() -> State:
    """All that a copy of the machine would take along of the module's memory."""
    plain = (bytes, int, float, dict, list, type(None))
    return {
        name: copy.deepcopy(value)
        for name, value in vars(random_bits).items()
        if isinstance(value, plain) and not name.startswith("__")
    }


def reports_of_two_copies(draw: Callable[[int], bytes]) -> list[bytes]:
    """Draw, then copy the machine, and let each copy draw as the first did not."""
    draw(1000)
    state = state_of_the_process()
    drawn = []
    for _ in range(2):
        vars(random_bits).update(copy.deepcopy(state))
        drawn.append(draw(32))
    return drawn


class TestClones:
    """A machine that is copied while it runs: no two copies may flip the same bits."""

    def test_copies_draw_differently(self):
        """False alarm: 2^-256, none."""
        first, second = reports_of_two_copies(SystemBits().draw)
        assert first != second

    def test_copies_of_the_kernel_too(self, monkeypatch: pytest.MonkeyPatch):
        """Without vmgenid the kernel's generator repeats as well; the clocks do not."""
        answers = itertools.chain([b"1" * 32], itertools.repeat(b"2" * 32))
        monkeypatch.setattr("os.urandom", lambda count: next(answers))
        first, second = reports_of_two_copies(SystemBits().draw)
        assert first != second

    def test_a_stream_that_goes_on_is_caught(self, monkeypatch: pytest.MonkeyPatch):
        """The judge convicts a source that draws one key and keeps it."""
        key = random_bits._system_entropy(32)
        memory = vars(random_bits)
        monkeypatch.setitem(memory, "_position", 0)

        def kept(count: int) -> bytes:
            start = memory["_position"]
            memory["_position"] += count
            return hashlib.shake_256(key).digest(start + count)[start:]

        first, second = reports_of_two_copies(kept)
        assert first == second

    def test_without_fresh_entropy_and_clocks_copies_repeat(self, monkeypatch: pytest.MonkeyPatch):
        """Both parts of the mixture are looked at: without either, the test above fails."""
        answers = itertools.chain([b"1" * 32], itertools.repeat(b"2" * 32))
        monkeypatch.setattr("os.urandom", lambda count: next(answers))
        monkeypatch.setattr("time.time_ns", lambda: 7)
        monkeypatch.setattr("time.perf_counter_ns", lambda: 7)
        first, second = reports_of_two_copies(SystemBits().draw)
        assert first == second

    def test_what_stays_in_memory_tells_no_key(self, monkeypatch: pytest.MonkeyPatch):
        """The pool is not the key, nor is any entropy left behind."""
        keys: list[bytes] = []
        real = random_bits._fresh_key

        def watched() -> bytes:
            keys.append(real())
            return keys[-1]

        monkeypatch.setattr(random_bits, "_fresh_key", watched)
        entropy = b"e" * 32
        monkeypatch.setattr("os.urandom", lambda count: entropy)
        SystemBits().draw(1)
        left = [value for value in state_of_the_process().values() if isinstance(value, bytes)]
        assert len(keys) == 1
        assert not any(secret in value for value in left for secret in (keys[0], entropy))


ORIGINAL = Original(np.zeros((4, 1), np.uint8), 2)
Q = FlipProbability(1, 2)


class TestNoFallback:
    @pytest.mark.parametrize("problem", [OSError("no device"), NotImplementedError("no source")])
    def test_no_entropy(self, problem: Exception, monkeypatch: pytest.MonkeyPatch):
        def broken(count: int) -> bytes:
            raise problem

        SystemBits().draw(64)
        monkeypatch.setattr("os.urandom", broken)
        for draw in 2 * (lambda: SystemBits().draw(1), lambda: flip(Q, ORIGINAL)):
            with pytest.raises(EntropyError, match="gave no random bits"):
                draw()

    @pytest.mark.parametrize("length", [0, 31, 33])
    def test_too_little_entropy(self, length: int, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("os.urandom", lambda count: b"x" * length)
        with pytest.raises(EntropyError, match="asked the system for 32"):
            flip(Q, ORIGINAL)

    def test_zeros_are_no_entropy(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("os.urandom", bytes)
        with pytest.raises(EntropyError, match="repeats itself"):
            SystemBits().draw(1)

    def test_a_source_that_repeats_itself_is_noticed(self, monkeypatch: pytest.MonkeyPatch):
        """At the next call, and within one call that takes two keys."""
        monkeypatch.setattr("os.urandom", lambda count: b"x" * count)
        SystemBits().draw(16)
        with pytest.raises(EntropyError, match="repeats itself"):
            SystemBits().draw(16)
        monkeypatch.setattr(random_bits, "REKEY_AFTER", random_bits._BLOCK)
        monkeypatch.setattr("os.urandom", lambda count: b"z" * count)
        with pytest.raises(EntropyError, match="repeats itself"):
            SystemBits().draw(2 * random_bits._BLOCK)

    def test_a_source_that_repeats_itself_is_noticed_in_the_next_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        """Else two threads would make the same flips."""
        monkeypatch.setattr("os.urandom", lambda count: b"y" * count)
        drawn: list[bytes] = []

        def draw() -> None:
            try:
                drawn.append(SystemBits().draw(32))
            except EntropyError:
                drawn.append(b"refused")

        for _ in range(2):
            thread = threading.Thread(target=draw)
            thread.start()
            thread.join()
        assert drawn[0] != drawn[1] or drawn == [b"refused"] * 2

    def test_report_ids_come_from_the_same_source(self, monkeypatch: pytest.MonkeyPatch):
        from shoal import Flags, Survey, plan
        from shoal.device.randomize import pack_reports

        two = plan(Survey("s", (Flags("f", ("a", "b")),)), q="0.25")
        reports = flip(two, ORIGINAL)
        monkeypatch.setattr("os.urandom", lambda count: b"")
        with pytest.raises(EntropyError):
            pack_reports(two, reports)


class Dealt:
    """Deals given words."""

    simulated = True

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def fill(self, out: Any) -> None:
        out[:] = self.words.pop(0).to_bytes(8, "little")


class TestDrawBelow:
    def test_what_does_not_divide_is_drawn_again(self):
        """2^64 leaves 1 when divided by 3, so that the largest word would favour 0."""
        assert random_bits.draw_below(3, Dealt(2**64 - 1, 5)) == 2
        assert random_bits.draw_below(3, Dealt(2**64 - 2)) == (2**64 - 2) % 3
        assert random_bits.draw_below(2**63 + 1, Dealt(2**63 + 1, 2**63)) == 2**63
        assert random_bits.draw_below(1, Dealt(2**64 - 1)) == 0


class TestSimulation:
    @pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
    def test_the_words_are_those_of_the_generator(self, seed: int):
        """Results that were seeded stay what they were, whichever buffer is filled."""
        wanted = np.random.SFC64(seed).random_raw(8)
        words, content = np.empty((2, 4), np.uint64), bytearray(59)
        SimulationBits(seed).fill(words)
        SimulationBits(seed).fill(content)
        assert (words.reshape(-1) == wanted).all()
        assert content == wanted.astype("<u8").tobytes()[:59]

    def test_it_repeats_itself_and_says_so(self):
        source, first, second, third = SimulationBits(5), *(np.empty(100, np.uint64) for _ in "123")
        source.fill(first)
        SimulationBits(5).fill(second)
        source.fill(third)
        assert (first == second).all()
        assert (first != third).any()
        assert source.simulated
        assert not SystemBits().simulated

    @pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "1", None, True])
    def test_a_seed_is_a_whole_number(self, seed: object):
        with pytest.raises(InputError, match="seed must be"):
            SimulationBits(seed)  # type: ignore[arg-type]
