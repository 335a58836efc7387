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
from shoal.protocol.encryption import DUMMY, CrowdKey, message_bytes
from shoal.protocol.random_bits import SystemBits
from shoal.server.core.observability import LOG
from tests.server.analyzer.relay_help import (
    COUNTS,
    PARTIES,
    WHOLE,
    FakeRelay,
    beside_analyzer,
    contents_of,
    cut,
    dummy,
    fragments,
    sealed,
)
from tests.server.privacy_help import address_of
from tests.server.store_help import counted_by_hand, make_plan, tally_of, upload

HALF: dict[str, Any] = {"crowd": 10, "honest_fraction": "0.5", "parties": PARTIES}
"""Of 20 reports, 10 are honest: so many may be garbage."""
WIDE = make_plan(Flags("f", tuple("abcdefghijklm")), **HALF)
TEXT = make_plan(
    Text("t", bits=20, hashes=2, cohorts=7), **HALF | {"crowd": 2, "honest_fraction": "0.1"}
)
PIECES = make_plan(
    Flags("f", tuple("abcde")),
    **HALF | {"parties": fragments(5), "crowd": 8, "honest_fraction": "0.4"},
    view="counts",
)


def fragment(position: int) -> bytes:
    return SystemBits().draw(16) + position.to_bytes(4, "little")


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


class TestFragments:
    def test_every_kind_makes_a_report_incomplete(self, tmp_path: Path):
        batch = upload(PIECES, 16, 3)
        repeated = fragment(2)

        def messages(key: CrowdKey) -> list[bytes]:
            fine = sealed(PIECES, key, [*contents_of(PIECES, batch), dummy(), repeated])
            other_plan = make_plan(crowd=21, view="counts", parties=PIECES.parties)
            bad = [
                *strangers(PIECES, 2),
                *sealed(PIECES, other_key(key), [fragment(1)] * 2),
                *sealed(PIECES, replace(key, window=1), [fragment(1)]),
                *sealed(other_plan, key, [fragment(1)]),
                bytes(message_bytes(PIECES)),  # the point of order 1 is no key
                *sealed(PIECES, key, [fragment(5), fragment(DUMMY - 1)]),
                *sealed(PIECES, key, [repeated, repeated]),
                fine[0],
            ]
            return [*fine, *bad, *sealed(PIECES, key, [dummy() for _ in range(6)])]

        tally, shown, (listed, pages, metric) = released_with(PIECES, messages, tmp_path)
        expected = counted_by_hand(PIECES, batch)["by_bit"]
        expected[2] += 1
        assert tally.reports == 88 // 5
        assert tally.by_bit.tolist() == expected
        assert shown["unreadable"] == listed[0]["unreadable"] == 12
        assert listed[0]["reports"] == 17
        assert metric == "shoal_messages_unreadable_total 12.0"
        note = "12 messages could not be read; each may have made a report incomplete."
        assert [note in page for page in pages] == [True] * 3
        assert "the analyzer could read 17." in pages[2]
        raw = tally.by_bit[0] - 17 * 0.25
        assert estimate(PIECES, tally)["f"]["a"].count == pytest.approx(raw / 0.5)

    def test_one_message_more_and_the_crowd_is_too_small(self, tmp_path: Path):
        """13 messages may be of 13 reports, and then 7 of the 8 that are needed are complete."""

        def messages(key: CrowdKey) -> list[bytes]:
            return [*sealed(PIECES, key, [dummy() for _ in range(87)]), *strangers(PIECES, 13)]

        listed, *_ = refused_with(PIECES, messages, tmp_path)
        assert (listed[0]["state"], listed[0]["reason"]) == ("discarded", "unreadable")

    def test_dummies_are_not_garbage(self, tmp_path: Path):
        tally, shown, _ = released_with(
            COUNTS, lambda key: sealed(COUNTS, key, [dummy() for _ in range(100)]), tmp_path
        )
        assert not tally.by_bit.any()
        assert (shown["unreadable"], tally.reports) == (0, 20)

    def test_a_count_is_at_most_the_crowd(self, tmp_path: Path):
        """Fakes that send one position with all of their messages: the rest counts as dummies."""
        contents = [fragment(3) for _ in range(27)] + [dummy() for _ in range(73)]
        tally, shown, _ = released_with(COUNTS, lambda key: sealed(COUNTS, key, contents), tmp_path)
        assert tally.by_bit.tolist() == [0, 0, 0, 20, 0]
        assert shown["unreadable"] == 0

    def test_one_identifier_in_two_chunks(self, tmp_path: Path):
        same = fragment(0)
        contents = [same] * 13 + [dummy() for _ in range(87)]
        tally, shown, _ = released_with(
            PIECES, lambda key: sealed(PIECES, key, contents), tmp_path, chunks=25
        )
        assert tally.by_bit.tolist() == [1, 0, 0, 0, 0]
        assert (shown["unreadable"], tally.reports) == (12, 17)


class TestWholeReports:
    def test_only_those_that_can_be_read_are_counted(self, tmp_path: Path):
        fine = upload(WIDE, 15, 5)
        repeated = contents_of(WIDE, fine)
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
            return [*sealed(TEXT, key, [*contents_of(TEXT, fine), *outside]), *strangers(TEXT, 13)]

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
            good = sealed(WIDE, key, contents_of(WIDE, upload(WIDE, readable, 2)))
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
            good = sealed(WHOLE, key, contents_of(WHOLE, upload(WHOLE, 19, 2)))
            return [*good, *strangers(WHOLE, 1)]

        listed, *_ = refused_with(WHOLE, messages, tmp_path)
        assert (listed[0]["state"], listed[0]["unreadable"]) == ("discarded", 1)


def test_the_log_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LOG, "propagate", True)  # a server in this process may have changed it
    refused_with(WHOLE, lambda key: strangers(WHOLE, 20), tmp_path)
    found = [record for record in caplog.records if "could not be read" in record.getMessage()]
    assert [record.getMessage() for record in found] == ["20 messages could not be read"]
    facts = found[0].facts  # type: ignore[attr-defined]
    assert json.loads(json.dumps(facts))["unopened"] == 20
