"""The device's account: exact prices, no overspending, nothing lost."""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Choice, Flags, Plan, PrivacyRefusal
from shoal import Survey as SurveyOf
from shoal.cli import run
from shoal.device.ledger import Account, Ledger
from shoal.errors import InputError
from shoal.protocol.flip_probability import (
    FlipProbability,
    changing_epsilon,
    local_epsilon,
    repeated_epsilon,
)
from shoal.protocol.plan import Memory, Promise
from tests import strategies
from tests.device.outbox_help import run_together

Q = FlipProbability(1, 2)
MEMORY = Memory(FlipProbability(1, 2), FlipProbability(1, 3))
SURVEY = SurveyOf("browser", (Flags("features", ("sync", "vpn")), Choice("c", ("a", "b", "c"))))
FRESH = Plan(SURVEY, Q, Promise("local", "9"))
KEPT = Plan(SURVEY, MEMORY.q, Promise("local", "9"), memory=MEMORY)
ONE, TWO = "a" * 64, "b" * 64


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.json")


def pattern_law(answers: tuple[int, ...], memory: Memory) -> dict[tuple[int, ...], Fraction]:
    """The law of one person's reports of one bit, from the definition."""
    q1, q2 = memory.q1.fraction, memory.q2.fraction
    law: dict[tuple[int, ...], Fraction] = {}
    for kept in itertools.product((0, 1), repeat=2):  # the permanent bit of answer 0 and of 1
        weight = math.prod(q1 if kept[a] != a else 1 - q1 for a in set(answers))
        weight *= Fraction(1, 2) ** (2 - len(set(answers)))  # the vector that is never used
        for sent in itertools.product((0, 1), repeat=len(answers)):
            chance = math.prod(
                q2 if s != kept[a] else 1 - q2 for s, a in zip(sent, answers, strict=True)
            )
            law[sent] = law.get(sent, Fraction(0)) + weight * chance
    assert sum(law.values()) == 1
    return law


def largest_ratio(a: tuple[int, ...], b: tuple[int, ...], memory: Memory) -> Fraction:
    one, two = pattern_law(a, memory), pattern_law(b, memory)
    return max(max(one[s] / two[s], two[s] / one[s]) for s in one)


class TestPrices:
    @given(strategies.flips(blind=False), st.integers(1, 50))
    def test_one_report_is_the_local_epsilon_rounded_up(self, q: FlipProbability, bits: int):
        exact = bits * math.log((1 - float(q)) / float(q))
        assert exact - 1e-9 <= float(local_epsilon(bits, q)) <= exact + 1.1e-6

    @pytest.mark.parametrize("reports", [1, 2, 3, 5])
    @pytest.mark.parametrize("q2", [FlipProbability(1, 4), FlipProbability(3, 3)])
    def test_reports_of_one_answer_by_enumeration(self, reports: int, q2: FlipProbability):
        memory = Memory(FlipProbability(3, 4), q2)
        true = largest_ratio((0,) * reports, (1,) * reports, memory)
        said = repeated_epsilon(1, memory, reports)
        assert math.log(true) <= float(said) <= math.log(true) + 1.01e-6
        assert repeated_epsilon(7, memory, reports) == pytest.approx(7 * said, abs=Decimal("1e-5"))

    @given(strategies.flips(10, blind=False), strategies.flips(10, blind=False))
    def test_between_one_report_and_the_permanent_vector(
        self, q1: FlipProbability, q2: FlipProbability
    ):
        memory = Memory(q1, q2)
        prices = [repeated_epsilon(3, memory, n) for n in (1, 2, 3, 10, 100, 10**6)]
        assert prices == sorted(prices)
        assert prices[0] == local_epsilon(3, memory.q)
        assert prices[-1] <= local_epsilon(3, q1)

    @pytest.mark.parametrize("reports", [1, 2, 3])
    def test_any_answers_at_any_time_by_enumeration(self, reports: int):
        worst = max(
            largest_ratio(a, b, MEMORY)
            for a in itertools.product((0, 1), repeat=reports)
            for b in itertools.product((0, 1), repeat=reports)
        )
        assert math.log(worst) <= float(changing_epsilon(1, 1, MEMORY, reports))

    def test_the_price_of_what_was_answered_does_not_cover_when_it_changed(self):
        """Two equal answers against two different ones: with few fresh flips that shows.

        One bit each; the answers never take more than the two prices of two distinct answers, and
        still the reports say more than that.
        """
        memory = Memory(FlipProbability(1, 2), FlipProbability(1, 10))
        changed = largest_ratio((0, 0), (0, 1), memory)
        # Per distinct answer: (0, 1) has two of them.
        assert math.log(changed) > 2 * float(repeated_epsilon(1, memory, 1))
        assert math.log(changed) <= float(changing_epsilon(1, 1, memory, 2))

    def test_nothing_sent_costs_nothing(self):
        assert repeated_epsilon(5, MEMORY, 0) == changing_epsilon(5, 5, MEMORY, 0) == 0
        assert local_epsilon(5, FlipProbability(1, 1)) == 0


class TestCharging:
    def test_without_memory_reports_add_up(self, ledger: Ledger):
        costs = [ledger.charge(FRESH) for _ in range(3)]
        assert set(costs) == {local_epsilon(4, Q)}
        account = ledger.read()
        assert account.epsilon == account.epsilon_of_changes == sum(costs)
        assert account.plans[0].distinct_answers is None

    def test_with_memory_repeating_costs_less_and_less(self, ledger: Ledger):
        costs = [ledger.charge(KEPT, ONE) for _ in range(40)]
        assert costs == sorted(costs, reverse=True)
        assert sum(costs) == repeated_epsilon(4, MEMORY, 40) <= local_epsilon(4, MEMORY.q1)
        assert ledger.charge(KEPT, TWO) == costs[0]
        account = ledger.read().of(KEPT)
        assert (account.reports, account.distinct_answers) == (41, 2)
        assert account.epsilon_of_changes == changing_epsilon(4, 5, MEMORY, 41)

    def test_plans_add_up(self, ledger: Ledger):
        assert ledger.read() == Account()  # without a file
        total = ledger.charge(FRESH) + ledger.charge(KEPT, ONE) + ledger.charge(FRESH)
        assert ledger.read().epsilon == total
        assert len(ledger.read().plans) == 2

    def test_a_limit_refuses_before_it_is_passed_and_counts_nothing(self, ledger: Ledger):
        price = local_epsilon(4, Q)
        ledger.set_limit(str(2 * price))
        ledger.charge(FRESH)
        ledger.charge(FRESH)  # exactly the limit
        before = ledger.path.read_bytes()
        with pytest.raises(PrivacyRefusal, match=r"above the limit 8\.7889; nothing was sent"):
            ledger.charge(FRESH)
        assert ledger.path.read_bytes() == before
        assert ledger.read().left == 0
        ledger.set_limit("1")  # below what is spent: nothing more leaves
        with pytest.raises(PrivacyRefusal):
            ledger.charge(KEPT, ONE)
        ledger.set_limit(None)
        ledger.charge(FRESH)

    def test_a_digest_is_needed_with_memory_and_may_be_bytes(self, ledger: Ledger):
        with pytest.raises(InputError, match="answer's digest"):
            ledger.charge(KEPT)
        with pytest.raises(InputError, match="16 to 128"):
            ledger.charge(KEPT, "short")
        ledger.charge(KEPT, bytes(32))
        ledger.charge(KEPT, bytes(32).hex())
        assert ledger.read().of(KEPT).distinct_answers == 1

    def test_a_token_is_charged_once_until_it_is_settled(self, ledger: Ledger):
        token = "t" * 16
        first = ledger.charge(KEPT, ONE, token=token)
        assert ledger.charge(KEPT, ONE, token=token) == 0
        assert ledger.charge(KEPT, TWO, token=token) == first  # another answer is another report
        assert ledger.charge(FRESH, token=token) > 0  # and so is another plan
        assert ledger.read().of(KEPT).reports == 2
        ledger.settle(token)
        assert ledger.read().pending == ()
        assert 0 < ledger.charge(KEPT, ONE, token=token) < first
        ledger.settle("u" * 16)  # of nobody
        assert len(ledger.read().pending) == 1

    def test_a_charge_that_stands_is_not_refused_again(self, ledger: Ledger):
        ledger.set_limit(str(local_epsilon(4, Q)))
        ledger.charge(FRESH, token="t" * 16)
        assert ledger.charge(FRESH, token="t" * 16) == 0
        with pytest.raises(PrivacyRefusal):
            ledger.charge(FRESH, token="u" * 16)
        assert len(ledger.read().pending) == 1

    def test_a_path_means_the_same_file_after_moving_or_through_a_link(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(tmp_path)
        ledger = Ledger("ledger.json")
        ledger.charge(FRESH)
        (tmp_path / "link").symlink_to("ledger.json")
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        ledger.charge(FRESH)
        Ledger(tmp_path / "link").charge(FRESH)
        assert ledger.read().of(FRESH).reports == 3
        assert (tmp_path / "link").is_symlink()

    def test_a_bad_token_or_limit(self, ledger: Ledger):
        for token in ("", "short", "x" * 129, 5):
            with pytest.raises(InputError, match="16 to 128"):
                ledger.charge(FRESH, token=token)  # type: ignore[arg-type]
        for limit in ("0", "-1", "NaN", "much", True):
            with pytest.raises(InputError, match="limit must be a decimal"):
                ledger.set_limit(limit)

    @pytest.mark.parametrize(
        "content",
        [
            "", "{", "[]", "{}", '{"version": 2, "limit": null, "plans": {}}',
            '{"version": 1, "limit": 3, "plans": {}}', '{"version": 1, "limit": null, "plans": {}}',
            '{"version": 1, "limit": null, "pending": [1], "plans": {}}',
            '{"version": 1, "limit": null, "plans": []}',
            '{"version": 1, "limit": null, "plans": {"x": {"reports": -1}}}',
        ],
    )  # fmt: skip
    def test_a_damaged_file_is_not_a_fresh_start(self, ledger: Ledger, content: str):
        ledger.path.write_text(content)
        for act in (ledger.read, lambda: ledger.charge(FRESH), lambda: ledger.set_limit(1)):
            with pytest.raises(InputError):
                act()
        assert ledger.path.read_text() == content

    def test_counts_that_do_not_add_up(self, ledger: Ledger):
        ledger.charge(KEPT, ONE)
        document = json.loads(ledger.path.read_text())
        document["plans"][KEPT.id]["reports"] = 5
        ledger.path.write_text(json.dumps(document))
        with pytest.raises(InputError, match="not a ledger"):
            ledger.read()


SCRIPT = """
import sys
from shoal import Plan, PrivacyRefusal
from shoal.device.ledger import Ledger
plan, ledger = Plan.read(sys.argv[1]), Ledger(sys.argv[2], timeout=60)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    try:
        ledger.charge(plan)
    except PrivacyRefusal:
        continue
    print("sent", flush=True)
"""


def test_processes_together_do_not_overspend(tmp_path: Path, ledger: Ledger):
    FRESH.write(tmp_path / "plan.json")
    price = local_epsilon(4, Q)
    ledger.set_limit(str(20 * price + price / 2))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "plan.json"), str(ledger.path), "10"]
    said = run_together([command] * 4)
    assert sum(one.count("sent") for one in said) == 20
    assert ledger.read().of(FRESH).reports == 20


class TestCommand:
    def test_table(self, ledger: Ledger, capsys):
        ledger.charge(FRESH)
        ledger.charge(KEPT, ONE)
        ledger.set_limit("10")
        assert run(["ledger", str(ledger.path)]) == 0
        shown = capsys.readouterr().out
        for part in ("browser", KEPT.id[:12], "all new", "limit            10, left", "4.394450"):
            assert part in shown

    def test_plans_that_share_permanent_flips_count_once(self, ledger: Ledger, capsys):
        words = SurveyOf("browser", (Flags("f", ("on", "off")), Choice("c", ("x", "y", "z"))))
        edited = replace(KEPT, survey=words)
        costs = [ledger.charge(plan, ONE) for plan in (KEPT, edited, KEPT)]
        assert ledger.read().epsilon == sum(costs) == repeated_epsilon(4, MEMORY, 3)
        assert ledger.read().epsilon_of_changes == changing_epsilon(4, 5, MEMORY, 3)
        assert run(["ledger", str(ledger.path)]) == 0
        shown = capsys.readouterr().out
        assert "Plans that share permanent flips count once in the total." in shown
        assert f"total epsilon    {repeated_epsilon(4, MEMORY, 3)}" in shown

    @pytest.mark.slow
    def test_json(self, ledger: Ledger, capsys):
        ledger.charge(KEPT, ONE)
        assert run(["ledger", str(ledger.path), "--json", "--set-limit", "2.5"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["limit"] == "2.5"
        assert document["plans"][0]["distinct_answers"] == 1
        assert ONE not in str(document)
        assert Decimal(document["epsilon"]) == repeated_epsilon(4, MEMORY, 1)
        assert run(["ledger", str(ledger.path), "--no-limit"]) == 0
        assert ledger.read().limit is None

    def test_errors(self, tmp_path: Path, ledger: Ledger, capsys):
        assert run(["ledger", str(tmp_path / "none")]) == 2
        assert run(["ledger", str(ledger.path), "--set-limit", "no"]) == 2
        assert run(["ledger", str(ledger.path), "--set-limit", "1", "--no-limit"]) == 2
        assert capsys.readouterr().err.count("\n") == 3
