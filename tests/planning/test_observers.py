"""The table of observers, and the documents that show it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import Flags, Survey
from shoal.planning.certificate import certify
from shoal.planning.threats import observers, single_report
from shoal.protocol.plan import Parties

ROOT = Path(__file__).parents[2]
FIVE = Survey("browser", (Flags("features", tuple("abcde")),))


@pytest.mark.parametrize("page", ["README.md", "docs/views.md"])
def test_documents_list_the_same_observers(page: str):
    text = (ROOT / page).read_text("utf-8")
    (table,) = re.findall(r"^\| observer \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    listed = [row.split("|")[1].strip() for row in table.splitlines()]
    for view in ("reports", "counts"):
        certificate = certify(FIVE, q="0.2", crowd_size=100, view=view)
        assert listed == [one.who for one in observers(certificate, 1.0)]


@pytest.mark.parametrize("page", ["docs/views.md", "docs/parties.md"])
def test_documents_list_the_observers_of_two_parties(page: str):
    text = (ROOT / page).read_text("utf-8")
    (table,) = re.findall(r"^\| with a relay.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    listed = [row.split("|")[1].strip() for row in table.splitlines()]
    two = Parties("https://relay.example", "https://analyzer.example")
    certificate = replace(certify(FIVE, q="0.2", crowd_size=100), parties=two)
    assert listed == [one.who for one in observers(certificate, 1.0)]


@pytest.mark.parametrize(
    ("local_epsilon", "q", "words"),
    [
        (23.0, 0.00997, "learns the answer"),
        (6.9, 0.001, "learns the answer"),  # one bit
        (20.0, 0.3775, "learns much"),
        (5.0, 0.075, ""),
    ],
)
def test_what_a_single_report_tells(local_epsilon: float, q: float, words: str):
    warning = single_report(local_epsilon, q)
    assert words in (warning or "")
    assert bool(warning) == bool(words)
