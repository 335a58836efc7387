"""Only reports that can be read count, and a crowd with too few of them is discarded."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Flags, Plan, Text, estimate
from shoal.analysis.tally import Tally
from shoal.protocol.encryption import CrowdKey, message_bytes
from shoal.protocol.plan import Promise
from shoal.protocol.random_bits import SystemBits
from tests.server.analyzer.relay_help import (
    PARTIES,
    WHOLE,
    FakeRelay,
    beside_analyzer,
    contents_of,
    cut,
    sealed,
)
from tests.server.privacy_help import address_of
from tests.server.store_help import make_plan, tally_of, upload

HALF: dict[str, Any] = {"crowd": 10, "honest_fraction": "0.5", "parties": PARTIES}
"""Of 20 reports, 10 are honest: so many may be garbage."""
WIDE = make_plan(Flags("f", tuple("abcdefghijklm")), **HALF)
TEXT = make_plan(
    Text("t", bits=20, hashes=2, cohorts=7), **HALF | {"crowd": 2, "honest_fraction": "0.1"}
)


def released_with(
    plan: Plan, messages_for: Any, folder: Path, chunks: int = 3
) -> tuple[Tally, dict[str, Any], list[Any]]:
    """Forward a crowd whose messages a function makes from the key; return what is shown of it."""

    async def work(relay: FakeRelay) -> tuple[Any, Any, list[Any]]:
        key = await relay.crowd_key(plan)
        await relay.forward(cut(plan, key, messages_for(key), chunks))
        release = await relay.released(plan)
        at = f"/v1/plans/{plan.id}/crowds"
        shown = (await relay.console(f"{at}/1")).json()
        survey = f"/surveys/{address_of(plan)}"
        pages = [(await relay.console(at)).text for at in (survey, f"{survey}/crowds/1")]
        listed = (await relay.console(at)).json()["crowds"]
        report = (await relay.console(f"{at}/1/report.html")).text
        text = relay.analyzer.administration.metrics_text().decode()
        metric = next(x for x in text.splitlines() if x.startswith("shoal_messages_unreadable_"))
        return release, shown, [listed, [*pages, report], metric]

    release, shown, rest = beside_analyzer(work, folder, plan)
    assert shown["tally"] == release
    return Tally.from_json(release, plan), shown, rest


def strangers(plan: Plan, count: int) -> list[bytes]:
    """Return bytes that nobody sealed."""
    return [SystemBits().draw(message_bytes(plan)) for _ in range(count)]


def other_key(key: CrowdKey) -> CrowdKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    other = X25519PrivateKey.from_private_bytes(SystemBits().draw(32))
    return replace(key, public_key=other.public_key().public_bytes_raw())


def refused_with(plan: Plan, messages_for: Any, folder: Path) -> list[Any]:
    """Forward a crowd that is not released; return what is shown of it."""

    async def work(relay: FakeRelay) -> list[Any]:
        key = await relay.crowd_key(plan)
        await relay.forward(cut(plan, key, messages_for(key)))
        at = f"/v1/plans/{plan.id}/crowds"
        async with asyncio.timeout(60):
            while (listed := (await relay.console(at)).json()["crowds"])[0]["state"] == "open":
                await asyncio.sleep(0.01)
        survey = f"/surveys/{address_of(plan)}"
        paths = (f"{at}/1", f"{at}/1/report.html", f"{at}/1/results", f"{survey}/crowds/1")
        pages = [await relay.console(path) for path in paths]
        secret = await relay.analyzer.service.in_store(
            lambda: relay.analyzer.store.database.execute(
                "SELECT count(*) FROM wrapped_keys WHERE kind = 'crowd'"
            ).fetchone()[0]
        )
        metrics = relay.analyzer.administration.metrics_text().decode()
        chunks = [*(relay.analyzer.service.folder / "chunks").iterdir()]
        page = (await relay.console(survey)).text
        return [listed, pages, page, metrics, secret, chunks]

    return beside_analyzer(work, folder, plan)


class TestWholeReports:
    def test_nothing_that_was_encrypted_for_something_else_counts(self, tmp_path: Path):
        plan = replace(WIDE, promise=Promise("proven", "99", delta="1e-6"))
        fine, other_plan = upload(plan, 12, 5), replace(plan, crowd_size=11)

        def one() -> list[bytes]:
            return contents_of(upload(plan, 1, 7))

        def messages(key: CrowdKey) -> list[bytes]:
            return [
                *sealed(plan, key, contents_of(fine)),
                *strangers(plan, 2),
                *sealed(plan, other_key(key), [*one(), *one()]),
                *sealed(plan, replace(key, window=1), one()),
                *sealed(other_plan, key, one()),
                bytes(message_bytes(plan)),  # the point of order 1 is no key
                bytes([255]) * message_bytes(plan),
            ]

        tally, shown, (listed, pages, metric) = released_with(plan, messages, tmp_path)
        assert tally.by_bit.tolist() == tally_of(plan, fine).by_bit.tolist()
        assert tally.reports == listed[0]["reports"] == 12
        assert shown["unreadable"] == listed[0]["unreadable"] == 8
        assert metric == "shoal_messages_unreadable_total 8.0"
        assert "the analyzer could read 12." in pages[2]
        raw = tally.by_bit[0] - 12 * float(plan.q)
        counted = estimate(plan, tally)["f"]["a"].count
        assert counted == pytest.approx(raw / (1 - 2 * float(plan.q)))

    def test_one_identifier_in_many_chunks(self, tmp_path: Path):
        same, *others = contents_of(upload(WIDE, 12, 4))
        tally, shown, _ = released_with(
            WIDE, lambda key: sealed(WIDE, key, [same] * 9 + others), tmp_path, chunks=10
        )
        assert tally.by_bit.tolist() == tally_of(WIDE, upload(WIDE, 12, 4)).by_bit.tolist()
        assert (shown["unreadable"], tally.reports) == (8, 12)

    def test_only_those_that_can_be_read_are_counted(self, tmp_path: Path):
        fine = upload(WIDE, 15, 5)
        repeated = contents_of(fine)
        padded = SystemBits().draw(16) + bytes([0, 0b0010_0000])

        def messages(key: CrowdKey) -> list[bytes]:
            good = sealed(WIDE, key, repeated)
            return [
                *good,
                *strangers(WIDE, 1),
                *sealed(WIDE, key, [padded, repeated[3], repeated[4][:16] + bytes(2)]),
                good[0],
            ]

        tally, shown, (_, pages, _) = released_with(WIDE, messages, tmp_path)
        assert tally.reports == 15
        assert shown["unreadable"] == 5
        assert ["5 reports could not be read, and are not counted." in page for page in pages] == [
            True
        ] * 3
        # Which of two messages with one identifier counts depends on the shuffle: one does.
        without = np.delete(fine.rows, 4, axis=0)
        fewer = replace(fine, rows=np.concatenate([without, np.zeros((1, 2), np.uint8)]))
        found = [
            (one.by_bit.tolist(), one.by_set_bits.tolist())  # type: ignore[union-attr]
            for one in (tally, tally_of(WIDE, fine), tally_of(WIDE, fewer))
        ]
        assert found[0] in found[1:]

    def test_cohorts_that_there_are_not(self, tmp_path: Path):
        fine = upload(TEXT, 4, 6)
        outside = [SystemBits().draw(16) + cohort.to_bytes(2, "little") + bytes(3)
                   for cohort in (7, 8, 65_535)]  # fmt: skip

        def messages(key: CrowdKey) -> list[bytes]:
            return [*sealed(TEXT, key, [*contents_of(fine), *outside]), *strangers(TEXT, 13)]

        tally, shown, _ = released_with(TEXT, messages, tmp_path)
        assert shown["unreadable"] == 16
        known = tally_of(TEXT, fine)
        assert tally.by_bit.tolist() == known.by_bit.tolist()
        assert tally.cohorts is not None
        assert known.cohorts is not None
        pairs = zip(tally.cohorts, known.cohorts, strict=True)
        assert all(a.reports == b.reports for a, b in pairs)

    @pytest.mark.parametrize("readable", [1, 9])
    def test_a_hollow_crowd_is_discarded_and_promises_nothing(self, readable: int, tmp_path: Path):
        """Ten reports hide each other, by the plan's promise; of these fewer can be read."""

        def messages(key: CrowdKey) -> list[bytes]:
            good = sealed(WIDE, key, contents_of(upload(WIDE, readable, 2)))
            return [*good, *strangers(WIDE, 20 - readable)]

        listed, pages, page, metrics, secrets, chunks = refused_with(WIDE, messages, tmp_path)
        assert (listed[0]["state"], listed[0]["reason"]) == ("discarded", "unreadable")
        assert listed[0]["unreadable"] == 20 - readable
        assert "reports" not in listed[0]
        assert "too few of its reports could be read" in page
        assert {answer.status_code for answer in pages[:3]} == {410}
        assert not any("proven" in answer.text for answer in pages)
        assert "shoal_crowds_discarded_total 1.0" in metrics
        assert "shoal_crowds_released_total 0.0" in metrics
        assert (secrets, chunks) == (0, [])

    def test_of_a_plan_that_calls_all_honest_every_report_is_needed(self, tmp_path: Path):
        def messages(key: CrowdKey) -> list[bytes]:
            good = sealed(WHOLE, key, contents_of(upload(WHOLE, 19, 2)))
            return [*good, *strangers(WHOLE, 1)]

        listed, *_ = refused_with(WHOLE, messages, tmp_path)
        assert (listed[0]["state"], listed[0]["unreadable"]) == ("discarded", 1)


def test_the_log_says_how_many(tmp_path: Path, service_log: pytest.LogCaptureFixture):
    refused_with(WHOLE, lambda key: strangers(WHOLE, 20), tmp_path)
    found = [record for record in service_log.records if "could not be read" in record.getMessage()]
    assert [record.getMessage() for record in found] == ["20 messages could not be read"]
    facts = found[0].facts  # type: ignore[attr-defined]
    assert json.loads(json.dumps(facts))["unopened"] == 20
