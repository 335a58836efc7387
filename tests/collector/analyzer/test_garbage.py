"""Messages that cannot be read void no crowd: they count as nothing, and their number is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Plan, estimate
from shoal.agreement.crowd_keys import CrowdKey
from shoal.agreement.fragments import DUMMY
from shoal.agreement.random_bits import SystemBits
from shoal.agreement.sealing import message_bytes
from shoal.analysis.tallying import Tally
from tests.collector.analyzer.relay_help import (
    COUNTS,
    PLANS,
    WHOLE,
    FakeRelay,
    all_rows,
    beside_analyzer,
    contents_of,
    cut,
    dummy,
    sealed,
)
from tests.collector.store_help import counted_by_hand, make_plan, tally_of, together, upload

TEXT = PLANS["whole, text"]
THIRTEEN = PLANS["whole, 13 bits"]


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
        survey = f"/surveys/{plan.id}"
        pages = [(await relay.console(at)).text for at in (survey, f"{survey}/crowds/1")]
        listed = (await relay.console(at)).json()["crowds"]
        report = (await relay.console(f"{at}/1/report.html")).text
        text = relay.analyzer.metrics_text().decode()
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


class TestFragments:
    def test_every_kind_counts_as_a_dummy(self, tmp_path: Path):
        batch = upload(COUNTS, 16, 3)
        repeated = fragment(2)

        def messages(key: CrowdKey) -> list[bytes]:
            fine = sealed(COUNTS, key, [*contents_of(COUNTS, batch), dummy(), repeated])
            other_plan = make_plan(crowd=21, view="counts", parties=COUNTS.parties)
            bad = [
                *strangers(COUNTS, 2),
                *sealed(COUNTS, other_key(key), [fragment(1)] * 2),
                *sealed(COUNTS, replace(key, window=1), [fragment(1)]),
                *sealed(other_plan, key, [fragment(1)]),
                bytes(message_bytes(COUNTS)),  # the point of order 1 is no key
                *sealed(COUNTS, key, [fragment(5), fragment(DUMMY - 1)]),
                *sealed(COUNTS, key, [repeated, repeated]),
                fine[0],
            ]
            return [*fine, *bad, *sealed(COUNTS, key, [dummy() for _ in range(6)])]

        tally, shown, (listed, pages, metric) = released_with(COUNTS, messages, tmp_path)
        expected = counted_by_hand(COUNTS, batch)["by_bit"]
        expected[2] += 1
        assert tally.by_bit.tolist() == expected
        assert tally.reports == COUNTS.reports_needed
        assert shown["unreadable"] == listed[0]["unreadable"] == 12
        assert metric == "shoal_messages_unreadable_total 12.0"
        note = "12 messages could not be read. Each counts as a bit that is not set."
        assert [note in page for page in pages] == [True] * 3
        assert estimate(COUNTS, tally)["f"]["a"].count <= COUNTS.reports_needed

    def test_dummies_are_not_garbage(self, tmp_path: Path):
        tally, shown, _ = released_with(
            COUNTS, lambda key: sealed(COUNTS, key, [dummy() for _ in range(100)]), tmp_path
        )
        assert not tally.by_bit.any()
        assert shown["unreadable"] == 0

    def test_a_count_is_at_most_the_crowd(self, tmp_path: Path):
        """Fakes that send one position with all of their messages: the rest counts as dummies."""
        contents = [fragment(3) for _ in range(27)] + [dummy() for _ in range(73)]
        tally, shown, _ = released_with(COUNTS, lambda key: sealed(COUNTS, key, contents), tmp_path)
        assert tally.by_bit.tolist() == [0, 0, 0, 20, 0]
        assert shown["unreadable"] == 7

    def test_one_identifier_in_two_chunks(self, tmp_path: Path):
        same = fragment(0)
        contents = [same] * 50 + [dummy() for _ in range(50)]
        tally, shown, _ = released_with(
            COUNTS, lambda key: sealed(COUNTS, key, contents), tmp_path, chunks=25
        )
        assert tally.by_bit.tolist() == [1, 0, 0, 0, 0]
        assert shown["unreadable"] == 49


class TestWholeReports:
    def test_they_count_as_reports_that_set_no_bit(self, tmp_path: Path):
        fine = upload(THIRTEEN, 15, 5)
        repeated = contents_of(THIRTEEN, fine)
        padded = SystemBits().draw(16) + bytes([0, 0b0010_0000])

        def messages(key: CrowdKey) -> list[bytes]:
            good = sealed(THIRTEEN, key, repeated)
            return [
                *good,
                *strangers(THIRTEEN, 1),
                *sealed(THIRTEEN, key, [padded, repeated[3], repeated[4][:16] + bytes(2)]),
                good[0],
            ]

        tally, shown, (_, pages, _) = released_with(THIRTEEN, messages, tmp_path)
        # Which of two messages with one identifier counts depends on the shuffle: one does.
        assert tally.reports == 20
        assert shown["unreadable"] == 5
        note = "5 messages could not be read. Each counts as a report that sets no bit."
        assert [note in page for page in pages] == [True] * 3
        swapped = together(fine, all_rows(THIRTEEN, 0, 5))
        without = np.delete(fine.rows, 4, axis=0)
        other = tally_of(THIRTEEN, swapped)
        fewer = replace(fine, rows=np.concatenate([without, np.zeros((1, 2), np.uint8)]))
        less = tally_of(THIRTEEN, together(fewer, all_rows(THIRTEEN, 0, 5)))
        counts = [(one.by_bit.tolist(), one.by_set_bits.tolist()) for one in (tally, other, less)]  # type: ignore[union-attr]
        assert counts[0] in counts[1:]

    def test_cohorts_that_there_are_not(self, tmp_path: Path):
        """Each cohort gets as many of the empty reports as any other, but for one."""
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
        assert [a.reports - b.reports for a, b in pairs] == [3, 3, 2, 2, 2, 2, 2]

    def test_a_crowd_of_garbage_is_released_as_such(self, tmp_path: Path):
        tally, shown, _ = released_with(WHOLE, lambda key: strangers(WHOLE, 20), tmp_path)
        assert (tally.reports, tally.by_bit.sum(), shown["unreadable"]) == (20, 0, 20)


def test_the_log_says_how_many(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    released_with(WHOLE, lambda key: strangers(WHOLE, 20), tmp_path)
    found = [record for record in caplog.records if "could not be read" in record.getMessage()]
    assert [record.getMessage() for record in found] == ["20 messages could not be read"]
    facts = found[0].facts  # type: ignore[attr-defined]
    assert json.loads(json.dumps(facts))["unopened"] == 20
