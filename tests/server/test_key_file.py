"""Keys that follow one another: states, overlap, and what is left of an expired key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli import run
from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.storage.database import StorageError
from shoal.server.storage.key_file import (
    DAY,
    OBLIVIOUS_FILE,
    SIGNING_FILE,
    KeyFile,
    Signer,
    open_keys,
)
from tests.server.privacy_help import NOW
from tests.server.store_help import Clock


def keys_of(folder: Path, clock: Clock, name: str = SIGNING_FILE) -> KeyFile:
    return open_keys(folder, name, clock)


def states(keys: KeyFile) -> list[str | None]:
    return [key["state"] for key in keys.to_json()]


def test_old_and_new_are_active_until_the_overlap_ends(tmp_path: Path):
    clock = Clock(NOW)
    keys = keys_of(tmp_path, clock)
    (first,) = keys.active()
    second = keys.rotate(overlap=30 * DAY)
    assert [key.public for key in keys.active()] == [second.public, first.public]
    clock.now += 30 * DAY - 1
    assert states(keys) == ["active", "active"]
    clock.now += 1
    assert keys.active() == [second]
    assert first.secret.hex() in (tmp_path / SIGNING_FILE).read_text()
    keys.forget_expired()
    assert first.secret.hex() not in (tmp_path / SIGNING_FILE).read_text()
    again = keys_of(tmp_path, clock)
    assert again.all == keys.all
    assert [key.public for key in again.all] == [second.public, first.public]
    assert (tmp_path / SIGNING_FILE).stat().st_mode & 0o077 == 0


def test_a_pending_key_is_announced_before_it_is_used(tmp_path: Path):
    clock = Clock(NOW)
    keys = keys_of(tmp_path, clock, OBLIVIOUS_FILE)
    (first,) = keys.all
    second = keys.rotate(overlap=DAY, pending=7200)
    assert ([key.public for key in keys.active()], keys.pending()) == ([first.public], [second])
    clock.now += 7200
    assert [key.public for key in keys.active()] == [second.public, first.public]
    assert keys.pending() == []
    clock.now += DAY
    assert keys.active() == [second]


def test_one_overlap_at_a_time(tmp_path: Path):
    clock = Clock(NOW)
    keys = keys_of(tmp_path, clock)
    keys.rotate(overlap=DAY)
    with pytest.raises(InputError, match="--end"):
        keys.rotate(overlap=DAY)
    keys.end_overlap()
    assert states(keys) == ["active", "expired"]
    keys.rotate(overlap=0)
    assert states(keys) == ["active", "expired", "expired"]
    assert sum(bool(key.secret) for key in keys.all) == 1


def test_a_clock_that_was_set_back_leaves_a_key(tmp_path: Path):
    clock = Clock(NOW)
    keys = keys_of(tmp_path, clock)
    second = keys.rotate(overlap=0)
    clock.now -= 1000 * DAY
    assert keys.active() == [second]
    assert keys.pending() == []


def test_two_active_keys_do_not_begin_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Oblivious HTTP names a key by one byte. Here chance draws the same key again at first."""
    keys = keys_of(tmp_path, Clock(NOW), OBLIVIOUS_FILE)
    (first,) = keys.active()
    drawn = [first.secret, first.secret, *(bytes([n] * 32) for n in range(1, 9))]
    monkeypatch.setattr(SystemBits, "draw", lambda self, size: drawn.pop(0))
    keys.rotate(overlap=DAY)
    assert len({key.public[0] for key in keys.active()}) == 2
    assert len(drawn) < 8


@pytest.mark.parametrize(
    "content", ["", "nonsense", "ab " * 4, f"{'ab' * 31} {'A' * 43} 0 0", f"- {'A' * 43} 0 0"]
)
def test_a_damaged_file(tmp_path: Path, content: str):
    (tmp_path / SIGNING_FILE).write_text(content)
    with pytest.raises(StorageError, match="holds no key"):
        keys_of(tmp_path, Clock(NOW))


def test_the_old_key_signs_the_new_one_while_both_are_active(tmp_path: Path):
    clock = Clock(NOW)
    signer = Signer(tmp_path, clock)
    old = signer.public_key
    assert (signer.links, signer.signing_keys) == ([], [old])
    signer.keys.rotate(overlap=DAY)
    (link,) = signer.links
    assert (link.key, link.next) == (old, signer.public_key)
    assert signer.headers(b"x")["Shoal-Key"].split(", ") == [signer.public_key, old]
    assert signer.headers(b"x")["Shoal-Signature"].split(", ")[0] == signer.sign(b"x")
    clock.now += DAY
    assert (signer.links, signer.signing_keys) == ([], [signer.public_key])
    assert signer.public_keys == [signer.public_key, old]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    old = Signer(tmp_path).public_key
    assert run(["collector", "rotate", str(tmp_path), "--overlap", "30"]) == 0
    new, before = capsys.readouterr().out.splitlines()
    assert new == f"{Signer(tmp_path).public_key}  active"
    assert before.startswith(f"{old}  active until ")
    assert run(["collector", "rotate", str(tmp_path)]) == 2
    assert "end the overlap first: --end" in capsys.readouterr().err
    assert run(["collector", "rotate", str(tmp_path), "--end", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["keys"]
    assert [(key["key"], key["state"]) for key in listed] == [
        (Signer(tmp_path).public_key, "active"), (old, "expired"),
    ]  # fmt: skip
    assert run(["collector", "rotate", str(tmp_path), "--oblivious"]) == 2
    assert "no oblivious-key" in capsys.readouterr().err
    open_keys(tmp_path, OBLIVIOUS_FILE)
    assert run(["collector", "rotate", str(tmp_path), "--oblivious"]) == 0
    assert "  pending from " in capsys.readouterr().out
