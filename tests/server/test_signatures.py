"""A stored release or certificate that does not match its signature is never served."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shoal.server.core.backup import back_up, restore
from shoal.server.doctor.data_folder import check_folder
from shoal.server.storage.database import NAME
from shoal.server.storage.key_file import SIGNING_FILE, Signer, change_key
from shoal.server.storage.records import UnverifiedError, signed_release
from shoal.server.storage.store import Store
from tests.server.privacy_help import FLAGS_PLAN, World, address_of, in_world, make_reports
from tests.server.store_help import PLANS, Clock, make_plan, upload
from tests.server.test_sessions import admin_secret, signed_in

COUNTS = PLANS["counts"]
FLAGS = make_plan(crowd=50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data with a release of a plan of each view."""
    data = tmp_path / "data"
    data.mkdir()
    with closing(Store(data, clock=Clock())) as store:
        for plan in (FLAGS, COUNTS):
            store.add_plan(plan)
            store.move(plan.id, "published", b"{}")
            store.accept([upload(plan, plan.reports_needed, 1)])
        store.sweep()
        assert store.release(FLAGS.id, 1) is not None
        assert store.release(COUNTS.id, 1) is not None
    return data


def change(folder: Path, statement: str, *values: object) -> None:
    """Change the database as somebody can who has no key."""
    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as database:
        for (trigger,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute(statement, values)


def release_in(folder: Path, plan_id: str) -> bytes:
    with closing(sqlite3.connect(folder / NAME)) as database:
        query = "SELECT release FROM crowds WHERE plan = ? AND number = 1"
        return bytes(database.execute(query, (plan_id,)).fetchone()[0])


@pytest.mark.parametrize("plan", [FLAGS, COUNTS], ids=["reports", "counts"])
def test_no_changed_byte_is_served(folder: Path, plan: Any) -> None:
    held, chance = release_in(folder, plan.id), random.Random(7)
    for _ in range(20):
        place = chance.randrange(len(held))
        other = bytearray(held)
        other[place] ^= chance.randrange(1, 256)
        change(folder, "UPDATE crowds SET release = ? WHERE plan = ?", bytes(other), plan.id)
        with (
            closing(Store(folder, clock=Clock())) as store,
            pytest.raises(UnverifiedError, match="does not match its signature"),
        ):
            store.release(plan.id, 1)
    change(folder, "UPDATE crowds SET release = ? WHERE plan = ?", held, plan.id)
    with closing(Store(folder, clock=Clock())) as store:
        assert store.release(plan.id, 1) == held


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE crowds SET release = NULL WHERE release IS NOT NULL",
        "UPDATE crowds SET unreadable = 3 WHERE release IS NOT NULL",
        "UPDATE crowds SET number = number + 10 WHERE release IS NOT NULL",
        "DELETE FROM signatures",
        "UPDATE signatures SET signature = ''",
        "UPDATE signatures SET signer = 'nobody'",
        "UPDATE signatures SET number = number + 10 WHERE number > 0",
    ],
)
def test_not_as_another_release_or_without_its_signature(folder: Path, statement: str) -> None:
    change(folder, statement)
    number = 11 if "crowds SET number" in statement else 1
    with closing(Store(folder, clock=Clock())) as store, pytest.raises(UnverifiedError):
        store.release(FLAGS.id, number)


def test_not_the_release_of_another_crowd(folder: Path) -> None:
    with closing(Store(folder, clock=Clock())) as store:
        store.accept([upload(FLAGS, 50, 2)])
        store.sweep()
        assert store.release(FLAGS.id, 2) is not None
    first = release_in(folder, FLAGS.id)
    change(folder, "UPDATE crowds SET release = ? WHERE plan = ? AND number = 2", first, FLAGS.id)
    with closing(Store(folder, clock=Clock())) as store, pytest.raises(UnverifiedError):
        store.release(FLAGS.id, 2)


def test_not_signed_with_a_key_of_somebody_else(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, release = Signer(tmp_path / "other"), release_in(folder, FLAGS.id)
    content = signed_release(FLAGS.id, 1, None, release)
    change(
        folder,
        "UPDATE signatures SET signer = ?, signature = ? WHERE number = 1",
        other.public_key,
        other.sign(content),
    )
    with closing(Store(folder, clock=Clock())) as store, pytest.raises(UnverifiedError):
        store.release(FLAGS.id, 1)


def test_a_changed_plan_or_certificate_is_not_used(folder: Path) -> None:
    for column in ("document", "certificate"):
        with closing(sqlite3.connect(folder / NAME)) as database:
            query = f"SELECT {column} FROM plans WHERE id = ?"
            held = bytes(database.execute(query, (FLAGS.id,)).fetchone()[0])
        other = held.replace(b'"crowd_size":50', b'"crowd_size":51')
        for content in (other, held[:-1], b"[" * 100_000, b"[]"):
            if content == held:
                continue
            change(folder, f"UPDATE plans SET {column} = ? WHERE id = ?", content, FLAGS.id)
            with closing(Store(folder, clock=Clock())) as store:
                with pytest.raises(UnverifiedError):
                    store.plan(FLAGS.id)
                with pytest.raises(UnverifiedError):
                    store.plans()
        change(folder, f"UPDATE plans SET {column} = ? WHERE id = ?", held, FLAGS.id)


def test_old_releases_verify_after_changes_of_the_key(folder: Path, tmp_path: Path) -> None:
    first = Signer(folder).public_key
    for _ in range(2):
        change_key(folder, overlap_days=0)
    with closing(Store(folder, clock=Clock())) as store:
        store.accept([upload(FLAGS, 50, 2)])
        store.sweep()
        signers = [store.signed_release(FLAGS.id, number) for number in (1, 2)]
    assert [one.signature.signer for one in signers if one] == [first, Signer(folder).public_key]
    restore(back_up(folder, tmp_path / "kept", clock=Clock()), tmp_path / "new", clock=Clock())
    with closing(Store(tmp_path / "new", clock=Clock())) as store:
        assert store.signed_release(FLAGS.id, 1) == signers[0]
        assert store.signed_release(FLAGS.id, 2) == signers[1]


def test_destroyed_releases_leave_no_signature(folder: Path) -> None:
    with closing(Store(folder, clock=Clock())) as store:
        store.move(FLAGS.id, "closed")
        store.move(FLAGS.id, "destroyed")
        rows = store.database.execute("SELECT plan, number FROM signatures").fetchall()
    assert (FLAGS.id, 1) not in rows
    assert (COUNTS.id, 1) in rows


class TestConsole:
    def test_everybody_can_verify_a_release(self, folder: Path):
        async def work(world: World) -> Any:
            path = f"/v1/plans/{FLAGS.id}/crowds/1"
            answer = (await world.ask("console", "GET", path, world.admin())).json()
            keys = (await world.ask("public", "GET", "/v1/keys")).json()
            return answer, keys

        answer, keys = in_world(work, folder)
        assert answer["signer"] in keys["ed25519"]
        about = {"number": 1, "plan": FLAGS.id, "sha256": answer["sha256"], "unreadable": None}
        content = b"shoal release\0" + json.dumps(about, separators=(",", ":")).encode()
        key, signature = (
            base64.urlsafe_b64decode(answer[name] + "==") for name in ("signer", "signature")
        )
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)

    def test_a_changed_release_is_refused_logged_and_counted(self, folder: Path):
        held = release_in(folder, COUNTS.id)
        place = held.index(b'"by_bit":[') + 10
        other = held[:place] + bytes([held[place] ^ 1]) + held[place + 1 :]
        json.loads(other)  # it is still a tally
        change(folder, "UPDATE crowds SET release = ? WHERE plan = ?", other, COUNTS.id)

        async def work(world: World) -> Any:
            answers = {}
            for path in ("", "/estimates", "/results", "/report.html", "/estimates?format=csv"):
                found = f"/v1/plans/{COUNTS.id}/crowds/1{path}"
                answers[path] = await world.ask("console", "GET", found, world.admin())
            good = f"/v1/plans/{FLAGS.id}/crowds/1"
            answers["good"] = await world.ask("console", "GET", good, world.admin())
            metrics = await world.ask("console", "GET", "/metrics")
            return answers, metrics.text, world.log.getvalue()

        answers, metrics, log = in_world(work, folder)
        assert answers.pop("good").status_code == 200
        for answer in answers.values():
            assert answer.status_code == 500
            assert answer.json()["type"] == "urn:shoal:problem:unverified"
            assert other not in answer.content
        assert f'shoal_refusals_total{{problem="unverified"}} {len(answers)}.0' in metrics
        assert f"release 1 of plan {COUNTS.id[:12]} does not match its signature" in log

    def test_the_page_of_the_survey_stays(self, tmp_path: Path):
        """It lists the crowd; only the page of the crowd is refused."""

        async def work(world: World) -> Any:
            await world.publish(FLAGS_PLAN)
            some = make_reports(FLAGS_PLAN, FLAGS_PLAN.reports_needed, np.random.default_rng(1))
            assert (await world.upload(some, await world.relay())).status_code == 202
            await world.collector.service.in_store(world.collector.store.sweep)
            change(tmp_path, "UPDATE crowds SET unreadable = 1 WHERE release IS NOT NULL")
            mine = await signed_in(world, admin_secret(world))
            path = f"/surveys/{address_of(FLAGS_PLAN)}"
            return [
                await world.ask("console", "GET", path + more, mine) for more in ("", "/crowds/1")
            ]

        page, crowd = in_world(work, tmp_path)
        assert page.status_code == 200
        assert f"/surveys/{address_of(FLAGS_PLAN)}/crowds/1" in page.text
        assert crowd.status_code == 500
        assert "do not match their signature" in crowd.text


class TestDoctor:
    def finding(self, folder: Path) -> Any:
        return {one.check: one for one in check_folder(folder, 0)}["signatures"]

    def test_all_is_well(self, folder: Path):
        assert self.finding(folder).verdict == "ok"

    def test_changed_releases(self, folder: Path):
        change(folder, "UPDATE crowds SET unreadable = 1 WHERE release IS NOT NULL")
        found = self.finding(folder)
        assert found.verdict == "fail"
        assert "release 1 of plan" in found.sentence
        assert "1 more" in found.sentence

    def test_it_makes_no_key(self, folder: Path):
        (folder / SIGNING_FILE).unlink()
        assert "signatures" not in {one.check for one in check_folder(folder, 0)}
        assert not (folder / SIGNING_FILE).exists()
