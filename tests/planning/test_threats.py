"""The table of observers, and the documents that show it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal import Choice, Flags, Plan, Survey, estimate, plan, tally
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.planning.threats import observers, poisoning
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Promise
from shoal.protocol.wire import Synthetic

ROOT = Path(__file__).parents[2]
FIVE = Survey("browser", (Flags("features", tuple("abcde")),))


TWO = Parties("https://relay.example", "https://analyzer.example")


@pytest.mark.parametrize(
    ("page", "head", "parties"),
    [
        ("README.md", "observer ", None),
        ("docs/views.md", "observer ", None),
        ("docs/views.md", "with a relay", TWO),
        ("docs/parties.md", "with a relay", TWO),
    ],
)
def test_documents_list_the_same_observers(page: str, head: str, parties: Parties | None):
    text = (ROOT / page).read_text("utf-8")
    (table,) = re.findall(rf"^\| {head}.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    listed = [row.split("|")[1].strip() for row in table.splitlines()]
    for view in ("reports", "counts"):
        certificate = certify(FIVE, q="0.2", crowd_size=100, view=view)
        certificate = replace(certificate, parties=parties)
        assert listed == [one.who for one in observers(certificate, 1.0)]


SURVEY = Survey("s", (Flags("f", ("a", "b", "c")),))


@pytest.mark.parametrize("q", ["0.01", "0.25", "0.45"])
def test_one_report_moves_an_estimate_by_so_many_people(q: str):
    agreed = plan(SURVEY, q=q)
    can = poisoning(agreed)
    rows = np.array([[0], [3], [5]], np.uint8)
    before = estimate(agreed, tally(agreed, Synthetic(rows, bits=3)))["f"]
    for sent, moves in ((7, can.up), (0, can.down)):
        more = np.concatenate((rows, np.array([[sent]], np.uint8)))
        after = estimate(agreed, tally(agreed, Synthetic(more, bits=3)))["f"]
        for label in ("a", "b", "c"):
            assert after[label].count - before[label].count == pytest.approx(moves)


def test_no_share_of_fakes_moves_a_share_by_more():
    """People of any truth, a part of them replaced by fakes that all send ones or zeros."""
    can = poisoning(plan(SURVEY, q="0.25"))
    for truth in (0.0, 0.3, 1.0):
        for share in (0.0, 0.01, 0.5, 1.0):
            for sent in (can.up, can.down):
                moved = (1 - share) * truth + share * sent - truth
                assert abs(moved) <= can.shift(share) + 1e-12
    assert can.shift(0.1) == pytest.approx(0.1 * can.up)  # reached where nobody has it
    assert -can.shift(0.1) == pytest.approx(0.9 + 0.1 * can.down - 1)  # and where all have it


def test_against_local_privacy():
    """At the same epsilon a crowd needs fewer flips, so that a fake weighs less."""
    agreed = plan(SURVEY, crowd_size=10_000, epsilon="1", delta="1e-6")
    can = poisoning(agreed)
    local_q = 1 / (1 + math.exp(1 / 3))
    assert can.up_if_local == pytest.approx((1 - local_q) / (1 - 2 * local_q))
    assert can.up < can.up_if_local
    q = float(agreed.q)
    assert can.fakes_for_one_sigma == pytest.approx(math.sqrt(10_000 * q / (1 - q)))
    assert "10,000" in can.sentences[-1]
    half = poisoning(replace(agreed, honest_fraction="0.5"))
    alone = poisoning(plan(SURVEY, promise="local", epsilon="1"))
    assert (alone.up_if_local, alone.fakes_for_one_sigma) == (alone.up, None)
    assert half.reports == 20_000
    assert half.fakes_for_one_sigma == pytest.approx(math.sqrt(20_000 * q / (1 - q)))


def test_blind():
    can = poisoning(Plan(SURVEY, FlipProbability(1, 1), Promise("local", "1")))
    assert math.isinf(can.up)
    document = can.to_json()
    assert document["up"] is document["down"] is document["one_percent_of_fakes"] is None
    assert "nothing" in document["sentences"][0]
    assert can.shift(0.0) == 0.0


def test_json_is_rounded_the_safe_way():
    agreed = plan(Survey("s", (Choice("c", ("a", "b")),)), q="0.3")
    can = poisoning(agreed)
    document = can.to_json()
    assert document["up"] >= can.up
    assert document["down"] <= can.down
    assert document["options"] == 2
    assert document["sentences"] == list(can.sentences)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "1"])
def test_shares(share: object):
    with pytest.raises(InputError, match="share"):
        poisoning(plan(SURVEY, q="0.25")).shift(share)  # type: ignore[arg-type]
