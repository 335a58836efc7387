"""The conjecture is false, the theorem is not: what a search finds, and what it never finds."""

import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from shoal import Choice, Flags, Survey
from shoal.cli import run
from shoal.errors import InputError
from shoal.lab import counterexamples as module
from shoal.lab.counterexamples import Search, Searching, proven_eta
from shoal.theory import homogeneous, mixed_crowds
from shoal.theory.domains import Triple, at_most, choice, classes, flags
from shoal.theory.enumeration import (
    AnswerPair,
    delta_of_pair,
    eta_of_pair,
    originals,
    worst_delta,
    worst_eta,
)
from shoal.theory.mixed_crowds import (
    Configuration,
    cell_chances,
    configurations,
    different_crowds,
    mixed_crowd,
    symmetries,
    witness,
)
from shoal.theory.worlds import FamilyWorld, SearchQuestion, SmallWorld


def triple_of(configuration: Configuration) -> Triple:
    """Count (a, b, c) of a homogeneous configuration."""
    x, x_prime, (z,) = configuration
    bits = list(zip(x, x_prime, z, strict=True))
    return Triple(
        sum(s == v != t for s, t, v in bits),
        sum(t == v != s for s, t, v in bits),
        sum(s == t != v for s, t, v in bits),
    )


def flags_survey(bits: int) -> Survey:
    return Survey("flags", (Flags("f", tuple(f"o{i}" for i in range(bits))),))


def choice_survey(options: int) -> Survey:
    return Survey("choice", (Choice("c", tuple(f"o{i}" for i in range(options))),))


def search_counterexamples(
    survey: Survey, *, progress: Callable[[int], None] | None = None, **options: Any
) -> Search:
    return Searching(survey, **options).run(progress)


SOME = Survey("some", (Flags("s", ("a", "b", "c"), 2),))
TWO_FLAGS: dict[str, Any] = {"crowd_size": 10, "q": "0.1", "epsilon": math.log(9)}


def test_two_flags():
    found = search_counterexamples(flags_survey(2), **TWO_FLAGS)
    assert found.exhaustive
    assert found.worst.others == (((0, 0), 5), ((1, 1), 4))
    assert (found.worst.x, found.worst.x_prime) == ((1, 1), (0, 0))
    records = tuple(vector for vector, count in found.worst.others for _ in range(count))
    exact = delta_of_pair(AnswerPair(records, (1, 1), (0, 0)), Fraction(1, 10), Fraction(9))
    assert found.worst.value.low <= exact <= found.worst.value.high
    assert round(float(exact), 4) == 0.1408
    assert round(found.forward.low, 4) == 0.0323
    assert round(found.reverse.low, 4) == 0.1081
    assert found.beats == ("forward", "reverse", "homogeneous")
    assert found.conjecture == "violated"
    assert not found.exceeds_proven


@pytest.mark.parametrize("eta", [False, True])
@pytest.mark.parametrize(
    ("domain", "n"),
    [((flags(2),), 4), ((choice(3),), 4), ((at_most(1, 2),), 5), ((flags(1), choice(2)), 3)],
)
def test_exhaustive_search_finds_what_brute_force_finds(domain, n, eta):
    q, lam = Fraction(1, 5), Fraction(math.exp(1.25))
    truth, _ = (worst_eta if eta else worst_delta)(domain, n, q, lam)
    world = SmallWorld(SearchQuestion(domain, n, 0.2, 1.25, eta))
    values = [world.step(index)[0].value for index in range(world.steps)]
    assert max(value.low for value in values) <= float(truth) * (1 + 1e-12)
    assert max(value.high for value in values) >= float(truth) * (1 - 1e-12)
    assert max(value.low for value in values) == pytest.approx(float(truth), rel=1e-9)


def test_different_crowds_leaves_one_of_each_kind():
    domain, size = (flags(2),), 5
    vectors, moves = originals(domain), symmetries(domain)
    kinds = set()
    for records in itertools.combinations_with_replacement(range(len(vectors)), size):
        counts = [records.count(i) for i in range(len(vectors))]
        kinds.add(max(tuple(counts[i] for i in move) for move in moves))
    assert sorted(map(tuple, different_crowds(domain, size).tolist())) == sorted(kinds)


@pytest.mark.parametrize(
    "domain", [(flags(3),), (choice(4),), (at_most(2, 5),), (flags(2), choice(3))]
)
def test_every_class_has_a_witness(domain):
    vectors = set(originals(domain))
    for triple in classes(domain):
        found = witness(domain, triple)
        assert {found.x, found.x_prime, *found.values} <= vectors
        assert triple_of(found) == triple
    kinds = {triple_of(kind) for kind in configurations(domain, 1)}
    assert kinds == {t for t in classes(domain) if t.a + t.b > 0}


# Mixed crowds, the two ways of computing them


@pytest.mark.parametrize("eta", [False, True])
@pytest.mark.parametrize(
    ("others", "x", "x_prime"),
    [
        ({(0, 0): 2, (1, 1): 3}, (0, 0), (1, 1)),
        ({(0, 1): 1, (1, 1): 2, (0, 0): 1}, (0, 1), (1, 0)),
        ({(1, 0, 0): 2, (0, 1, 0): 1}, (0, 1, 0), (0, 0, 1)),
        ({}, (0, 1), (1, 0)),
    ],
)
def test_mixed_crowd_is_exact(others, x, x_prime, eta):
    records = tuple(vector for vector, count in others.items() for _ in range(count))
    lam = Fraction(math.exp(0.75))
    measure = eta_of_pair if eta else delta_of_pair
    truth = float(measure(AnswerPair(records, x, x_prime), Fraction(1, 4), lam))
    bracket = mixed_crowd(others, x, x_prime, 0.25, 0.75, eta)
    assert bracket.low <= truth * (1 + 1e-14)
    assert bracket.high >= truth * (1 - 1e-14)
    assert bracket.high - bracket.low < 1e-11


@pytest.mark.parametrize("eta", [False, True])
def test_transform_agrees_with_recursion(monkeypatch, eta):
    crowd: Any = ({(0, 0): 60, (1, 1): 39}, (0, 0), (1, 1), 0.2, 0.5, eta)
    by_recursion = mixed_crowd(*crowd)
    monkeypatch.setattr(mixed_crowds, "_FEW_STEPS", 0)
    by_transform = mixed_crowd(*crowd)
    assert by_transform != by_recursion
    assert by_transform.low <= by_recursion.high
    assert by_recursion.low <= by_transform.high
    assert by_transform.high - by_transform.low < 1e-9


@pytest.mark.parametrize("measure", ["delta", "eta"])
def test_large_homogeneous_crowd_agrees_with_the_stop_loss_engine(measure):
    eta = measure == "eta"
    mine = mixed_crowd({(0, 0): 2999}, (0, 0), (1, 1), 0.1, 0.3, eta)
    theirs = getattr(homogeneous, measure)((2, 0, 0), 3000, 0.1, 0.3)
    assert mine.low <= theirs.high
    assert theirs.low <= mine.high


def test_cells_are_as_few_as_can_be_and_huge_crowds_are_refused():
    assert cell_chances([(0,) * 9, (1,) * 9], 0.2).shape == (2, 10)
    assert cell_chances([(1, 0, 0), (0, 1, 0), (0, 0, 1)], 0.2).shape == (3, 7)
    with pytest.raises(ValueError, match="too large"):
        mixed_crowd({(0,) * 5: 10**6, (1,) * 5: 10**6}, (0,) * 5, (1,) * 5, 0.2, 0.5)


# Never above the proven bound


@pytest.mark.parametrize("measure", ["delta", "eta"])
@pytest.mark.parametrize(
    ("survey", "crowd_size"),
    [
        (flags_survey(1), 30),
        (flags_survey(2), 7),
        pytest.param(flags_survey(3), 4, marks=pytest.mark.slow),
        (choice_survey(3), 5),
        pytest.param(SOME, 3, marks=pytest.mark.slow),
        (flags_survey(2), 1),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_nothing_exceeds_the_proven_bound(survey, crowd_size, measure):
    for q, part in itertools.product(("0.02", "0.1", "0.3", "0.45"), (0.1, 0.4, 0.9)):
        local = survey.differing_bits * math.log((1 - float(q)) / float(q))
        found = search_counterexamples(
            survey, crowd_size=crowd_size, q=q, epsilon=part * local, measure=measure
        )
        assert found.exhaustive
        assert not found.exceeds_proven, (q, part)
        # the exhaustive worst is at least each homogeneous crowd
        for rival in (found.forward, found.reverse, found.best[1]):
            assert found.worst.value.high >= rival.low * (1 - 1e-9), (q, part)


def test_proven_eta_edges():
    assert proven_eta((flags(2),), 10, 0.25, 5.0).high == 0.0
    assert proven_eta((flags(2),), 10, 0.25, 0.0).high == 1.0
    assert 0 < proven_eta((flags(2),), 1000, 0.25, 0.5).high < 0.1


# Families


def test_families_are_searched_where_not_everything_can_be():
    found = search_counterexamples(flags_survey(2), crowd_size=3000, q="0.1", epsilon=0.3)
    assert not found.exhaustive
    assert "two values" in found.description
    assert found.searched > 10
    assert not found.exceeds_proven
    assert found.worst.value.high >= found.best[1].low


def test_families_find_the_mixed_crowd_too():
    world = FamilyWorld(SearchQuestion((flags(2),), 10, 0.1, math.log(9), False))
    best = max((world.step(index)[0] for index in range(world.steps)), key=lambda f: f.value.low)
    assert best.value.low == pytest.approx(0.1408, abs=1e-4)


# State


class StopError(Exception):
    pass


@pytest.mark.parametrize("measure", ["delta", "eta"])
def test_search_continues_where_it_stopped(tmp_path, measure):
    whole = search_counterexamples(flags_survey(2), **TWO_FLAGS, measure=measure)
    for stop in (1, 34, 35):
        same: Any = TWO_FLAGS | {"measure": measure, "state": tmp_path / f"{stop}.json"}
        left = itertools.count(stop - 1, -1)

        def stopping(done: int, left: Any = left) -> None:
            if next(left) <= 0:
                raise StopError

        with pytest.raises(StopError):
            search_counterexamples(flags_survey(2), **same, progress=stopping)
        assert json.loads(same["state"].read_text())["done"] == stop
        steps: list[int] = []
        resumed = search_counterexamples(flags_survey(2), **same, progress=steps.append)
        assert len(steps) == 35 - stop
        assert resumed == whole
        # and a finished search is not run again
        again = Searching(flags_survey(2), **same)
        assert again.done == again.steps
        assert again.run() == whole


def test_state_is_saved_on_the_way(tmp_path, monkeypatch):
    state = tmp_path / "state.json"
    seen = []
    monkeypatch.setattr(module, "_SAVE_EVERY", -1.0)
    search_counterexamples(
        flags_survey(2),
        **TWO_FLAGS,
        state=state,
        progress=lambda done: seen.append(json.loads(state.read_text())["done"]),
    )
    assert seen == list(range(1, 36))
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_state_of_another_search_or_a_damaged_one_is_refused(tmp_path):
    state = tmp_path / "state.json"
    search_counterexamples(flags_survey(2), **TWO_FLAGS, state=state)
    before = state.read_text()
    for change in ({"q": "0.11"}, {"crowd_size": 9}, {"epsilon": 1.0}, {"measure": "eta"}):
        with pytest.raises(InputError, match="another search"):
            Searching(flags_survey(2), **TWO_FLAGS | change, state=state)
    with pytest.raises(InputError, match="another search"):
        Searching(choice_survey(3), **TWO_FLAGS, state=state)
    assert state.read_text() == before
    damaged = ["", "[]", "{}", '{"search": 1}', "null"]
    for field, value in itertools.product(
        ("done", "searched", "worst"), ("x", -1, {"value": [1]}, None)
    ):
        damaged.append(json.dumps(json.loads(before) | {field: value}))
    for text in damaged:
        state.write_text(text)
        with pytest.raises(InputError):
            Searching(flags_survey(2), **TWO_FLAGS, state=state)


# Input


def test_bad_input_is_refused():
    wrong: list[dict[str, Any]] = [
        *({"q": q} for q in ("0", "0.6")),
        *({"epsilon": epsilon} for epsilon in (-1.0, math.nan, 1e4)),
        {"crowd_size": 0},
        {"measure": "gamma"},
    ]
    for change in wrong:
        with pytest.raises(InputError):
            Searching(flags_survey(2), **TWO_FLAGS | change)
    with pytest.raises(InputError, match="200 bits"):
        Searching(flags_survey(201), **TWO_FLAGS)


def test_half_says_nothing():
    found = search_counterexamples(flags_survey(2), crowd_size=4, q="0.5", epsilon=0.5)
    assert found.worst.value.high == pytest.approx(0.0, abs=1e-12)
    assert found.conjecture == "not violated here"


# The command


MEETING = {
    "0.5108256237659907": "0.25",  # e^epsilon = (p^2 + q^2) / (2pq): a fair coin after tilting
    "1.0986122886681098": "0.25",  # e^epsilon = p / q
    "0": "0.499999999999",
    "0.0": "0.5",
}


@pytest.mark.parametrize("measure", ["delta", "eta"])
def test_command_prints_numbers_where_formulas_meet(measure, capsys):
    for flag, (epsilon, q) in itertools.product("12", MEETING.items()):
        arguments = ["--flags", flag, "--crowd", "6", "--q", q, "--epsilon", epsilon]
        assert run(["search", *arguments, "--measure", measure, "--json"]) == 0
        document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        ends = [document["worst"]["value"], document["proven"]]
        ends += [document["homogeneous"][name] for name in ("forward", "reverse")]
        assert all(0.0 <= low <= high <= 1.0 for low, high in ends), arguments
        # forward and reverse are among all crowds
        assert document["exhaustive"]
        assert all(low <= document["worst"]["value"][1] for low, _ in ends[2:]), arguments


def test_a_fair_coin_after_tilting_hides_no_violation():
    found = search_counterexamples(
        flags_survey(1), crowd_size=100, q="0.25", epsilon=0.5108256237659907
    )
    assert found.exhaustive
    assert found.conjecture == "violated"
    assert found.worst.value.low >= found.reverse.low * (1 - 1e-9)


def test_command_shouts_if_the_theorem_is_broken(capsys, monkeypatch):
    from shoal.theory.brackets import Bracket
    from shoal.theory.proven import Proven

    broken = Proven(Bracket(0.0, 1e-9), "blanket")
    monkeypatch.setattr(module, "proven_delta", lambda *_: broken)
    assert run(["search", "--flags", "1", "--crowd", "3", "--q", "0.1", "--epsilon", "1"]) == 1
    assert "BUG" in capsys.readouterr().err


def test_interrupted_command_says_how_to_continue(tmp_path, capsys, monkeypatch):
    def interrupt(self, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Searching, "run", interrupt)
    arguments = ["--flags", "1", "--crowd", "3", "--q", "0.1", "--epsilon", "1"]
    state = str(tmp_path / "state.json")
    assert run(["search", *arguments, "--state", state]) == 1
    assert "continues from" in capsys.readouterr().err
