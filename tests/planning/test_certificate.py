"""The certificate: its numbers against independent routes, and what it says in words."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

import shoal
from shoal.cli import run
from shoal.cli.audit import crowd_in_words
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning import certificate as certificates
from shoal.planning.certificate import certify
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Memory, Promise, ShareNoise
from shoal.theory.brackets import Bracket
from shoal.theory.proven import Proven

URLS = ("https://a.example", "https://b.example")


def flags(count):
    return shoal.Survey("s", (shoal.Flags("f", tuple(map(str, range(count)))),))


@pytest.mark.parametrize(
    ("q", "view", "step"),
    [
        pytest.param("0.2147", "reports", 2e-2, marks=pytest.mark.slow),
        ("0.00997", "counts", 1e-4),
    ],
)
def test_delta_and_epsilon_invert_each_other(q, view, step):
    """Adapted blankets, in the view `reports`, are solved to 3 % of delta."""
    certificate = certify(flags(5), q=q, crowd_size=10_000, view=view)
    for delta in (1e-2, 1e-3, 1e-6, 1e-9):
        epsilon = certificate.epsilon(delta=delta)
        assert certificate.delta(epsilon=epsilon).high <= delta
        assert certificate.delta(epsilon=epsilon * (1 - step)).high > delta
    local = 5 * math.log(float(1 / certificate.q - 1))
    assert local <= certificate.epsilon(delta=0) <= local * (1 + 1e-9)


def test_crowd_of_one_is_the_local_pair():
    """delta of the pair by hand: one flag, q = 1/4: p - lam q."""
    certificate = certify(flags(1), q="0.25", crowd_size=1)
    assert certificate.delta(epsilon=0).high == pytest.approx(0.5)
    assert certificate.attack(0).delta.low == pytest.approx(0.5)


def test_colluders_make_the_crowd_smaller():
    certificate = certify(flags(5), q="0.2147", crowd_size=10_000)
    fewer = certificate.with_colluders(5000)
    assert fewer.crowd_size == 5000
    assert fewer.delta(epsilon=1).low > certificate.delta(epsilon=1).high
    assert any("At least 10,000 reports are released" in one for one in fewer.assumptions)
    assert any("5,000 people reveal their reports" in one for one in fewer.assumptions)
    with pytest.raises(InputError):
        certificate.with_colluders(10_000)


def test_a_colluder_tells_all_that_they_sent():
    """With three reports each, a hundred colluders are three hundred reports."""
    made = shoal.plan(flags(2), crowd_size=1000, epsilon=1, delta="1e-6")
    certificate = certify(replace(made, max_reports_per_person=3))
    assert certificate.with_colluders(100).crowd_size == 700
    assert certificate.with_colluders(333).crowd_size == 1
    with pytest.raises(InputError):
        certificate.with_colluders(334)
    assert any("smaller by 3 t." in line for line in certificate.assumptions)


def test_memory_and_cohorts_are_not_certified():
    """A device that remembers a vector keeps its cohort, and N reports are no crowd of N then."""
    memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
    words = shoal.Survey("t", (shoal.Text("word", 16, 1, 4),))
    promise = Promise("proven", "1", "1e-6")
    for survey, cohorts in ((words, None), (flags(2), 4)):
        made = shoal.Plan(survey, memory.q, promise, 10**5, cohorts=cohorts, memory=memory)
        with pytest.raises(PrivacyRefusal, match="splits the crowd"):
            certify(made)
    with pytest.raises(PrivacyRefusal, match="share permanent flips"):
        certify(shoal.Plan(flags(2), memory.q, promise, 10**5, 2, memory=memory))


def test_sigma_gain_and_fakes_by_hand():
    certificate = certify(flags(40), q="0.351", crowd_size=10_000_000)
    assert certificate.sigma == pytest.approx(math.sqrt(1e7 * 0.351 * 0.649) / 0.298)
    assert certificate.shift_of_a_fake == pytest.approx(0.649 / 0.298)
    local = 1 / (1 + math.exp(2 / 40))
    gain = math.sqrt(local * (1 - local)) / (1 - 2 * local) / (certificate.sigma / math.sqrt(1e7))
    assert certificate.gain_over_local(2) == pytest.approx(gain)


def test_questions_that_make_no_sense_are_refused():
    certificate = certify(flags(2), q="0.25", crowd_size=10)
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(InputError):
            certificate.delta(epsilon=wrong)
    with pytest.raises(InputError):
        certificate.epsilon(delta=1)
    with pytest.raises(InputError):
        certificate.to_json()
    with pytest.raises(InputError):
        certify(shoal.plan(flags(2), q="0.25"))
    for q in (0, 0.6, "x", float("nan")):
        with pytest.raises(InputError):
            certify(flags(2), q=q, crowd_size=10)


def test_json_contract(capsys):
    command = "audit --flags 3 --q 0.2 --crowd 500 --epsilon 1 --json".split()
    assert run(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"q", "crowd_size", "epsilon", "delta", "local", "proven", "attack"} <= set(document)
    assert {"homogeneous", "ratio", "assumptions"} <= set(document)
    assert set(document["homogeneous"]) == {"forward", "reverse", "worst"}
    assert list(document["homogeneous"]["worst"]) == [
        "a", "b", "c", "delta", "eta", "kinds", "exhaustive",
    ]  # fmt: skip
    assert {"a", "b", "c"} <= set(document["attack"]["crowd"])
    for low, high in (document["proven"]["delta"], document["attack"]["delta"]):
        assert 0 <= low <= high <= 1
    assert document["q"] == 0.2
    assert len(document["assumptions"]) >= 5
    assert run("audit --flags 3 --q 0.2 --crowd 500 --delta 1e-5 --json".split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["proven"]["delta"][1] <= document["delta"] == 1e-5


@pytest.mark.parametrize(
    ("q", "epsilon"),
    [
        ("0.25", "0.5108256237659907"),
        ("0.25", "1.0986122886681098"),
        ("0.499999999999", "0"),
        ("0.5", "0.1"),
        ("0.25", "1000"),
    ],
)
def test_where_formulas_meet_numbers_are_printed(q, epsilon, capsys):
    """A tilted coin that is fair, p = lam q, no epsilon at all, and e^epsilon beyond any float."""
    command = ["audit", "--flags", "1", "--crowd", "100", "--q", q, "--epsilon", epsilon]
    assert run(command) == 0
    assert "nan" not in capsys.readouterr().out.lower().split()
    assert run([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    low, high = document["proven"]["delta"]
    assert 0.0 <= low <= high <= 1.0
    assert document["attack"]["delta"][0] <= high


@pytest.mark.parametrize(
    ("crowd", "words"),
    [
        ((0, 0), "a person alone"),
        ((9, 0), "all others give this person's first answer"),
        ((0, 9), "all others give this person's second answer"),
        ((4000, 5), "5 of the others give this person's second answer, the other 4,000 the first"),
    ],
)
def test_crowds_of_two_answers_in_words(crowd, words):
    assert crowd_in_words({"first": crowd[0], "second": crowd[1]}) == words


@pytest.mark.parametrize(
    "command",
    [
        "audit --flags 5 --epsilon 1",
        "audit --flags 5 --q 0.2 --crowd 0 --epsilon 1",
        "audit --flags 5 --q 0.2 --crowd 100",
        "audit --flags 5 --q 0.2 --crowd 100 --epsilon 1 --delta 1e-6",
        "audit",
        "audit nothing.json --epsilon 1",
        "audit --flags 5 --randomizer nothing:here --q 0.2",
        "audit --flags 5 --randomizer nothing --q 0.2",
    ],
)
def test_bad_usage_exits_2(command, capsys):
    assert run(command.split()) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_several_reports_per_person_are_counted():
    """Group privacy, by the formula: replace them one after another."""
    plan = shoal.plan(flags(5), crowd_size=10_000, epsilon="1", delta="1e-6")
    several = replace(plan, max_reports_per_person=3)
    single = certify(plan).delta(epsilon=0.5).high
    expected = single * sum(math.exp(0.5 * i) for i in range(3))
    assert certify(several).delta(epsilon=1.5).high == pytest.approx(expected, rel=1e-9)
    epsilon = certify(several).epsilon(delta=1e-6)
    assert certify(several).delta(epsilon=epsilon).high <= 1e-6


@pytest.mark.parametrize("reports", [3, 7])
def test_the_parts_of_an_epsilon_are_not_more_than_it(reports, monkeypatch):
    """The delta of each report is taken at a part of epsilon that is rounded down."""
    asked: list[float] = []

    def proven(domain, crowd, q, epsilon, rtol) -> Proven:
        asked.append(epsilon)
        return Proven(Bracket(0.0, 0.0), "local")

    monkeypatch.setattr("shoal.planning.bounds.proven_delta", proven)
    certificate = certify(flags(2), q="0.2", crowd_size=1000)
    epsilons = [k / 10 for k in range(1, 40)]
    for epsilon in epsilons:
        certificate.group_delta(epsilon=epsilon, reports=reports)
    for epsilon, part in zip(epsilons, asked, strict=True):
        assert epsilon / reports * (1 - 1e-15) <= part
        assert Fraction(part) * reports <= Fraction(epsilon)


def test_an_honest_fraction_needs_more_reports():
    plan = shoal.plan(flags(5), crowd_size=10_000, epsilon="1", delta="1e-6")
    half = replace(plan, honest_fraction="0.3")
    assert half.reports_needed == 33_334
    assert any("0.3" in assumption for assumption in certify(half).assumptions)


@pytest.mark.parametrize("bits", [300, 512])
def test_a_ratio_beyond_floats_is_left_out(bits: int) -> None:
    survey = shoal.Survey("long", (shoal.Flags("uses", tuple(f"f{i}" for i in range(bits))),))
    promise, q = Promise("local", "600"), FlipProbability(1, 2)
    promised = shoal.Plan(survey, q, promise, crowd_size=100)
    document = certify(promised).to_json(epsilon=600.0)
    assert (document["ratio"]["mean"] is None) == (bits == 512)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


class TestRigorous:
    def test_delta_and_epsilon_are_those_of_ball_arithmetic(self):
        usual = certify(flags(2), q="0.2", crowd_size=500)
        rigorous = certify(flags(2), q="0.2", crowd_size=500, rigorous=True)
        assert rigorous.delta(epsilon=0.5).high == pytest.approx(
            usual.delta(epsilon=0.5).high, rel=2e-4
        )
        epsilon = rigorous.epsilon(delta=1e-4)
        assert rigorous.delta(epsilon=epsilon).high <= 1e-4
        assert epsilon == pytest.approx(usual.epsilon(delta=1e-4), rel=1e-3)

    def test_a_plan_gives_one(self):
        agreed = shoal.plan(flags(1), crowd_size=100, epsilon=1, delta="1e-3", view="counts")
        assert agreed.certificate(rigorous=True).delta(epsilon=1).high <= 1e-3

    def test_texts_in_cohorts_have_one(self):
        text = shoal.Survey("s", (shoal.Text("t", 16, 2, 4),))
        usual, rigorous = (
            certify(text, q="0.2", crowd_size=100, rigorous=one).delta(epsilon=3)
            for one in (False, True)
        )
        assert rigorous.high == pytest.approx(usual.high, rel=2e-4)

    def test_other_kinds_are_an_error(self):
        parties = Aggregators(*URLS, 2, noise=ShareNoise("gaussian", "60000"))
        certificate = replace(
            certify(flags(2), q="0.2", crowd_size=100, view="counts", rigorous=True),
            parties=parties,
        )
        with pytest.raises(InputError, match="not possible here: a sum has too many terms"):
            certificate.delta(epsilon=1)
        with pytest.raises(InputError, match="about one release"):
            certify(flags(1), q="0.2", crowd_size=100, rigorous=True).compose(2)

    def test_the_command_says_so(self, capsys):
        words = ["audit", "--flags", "2", "--q", "0.2", "--crowd", "100", "--epsilon", "1"]
        assert run([*words, "--rigorous"]) == 0
        assert "in ball arithmetic" in " ".join(capsys.readouterr().out.split())
        assert run([*words, "--rigorous", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rigorous"] is True
        assert run([*words, "--rigorous", "--releases", "2"]) == 2
        assert "one release" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("method", "more"),
        [
            pytest.param("adapted blankets", {}, marks=pytest.mark.slow),
            (
                "noise of one aggregator",
                {
                    "view": "counts",
                    "window": "1w",
                    "leader": URLS[0],
                    "helper": URLS[1],
                    "noise": "gaussian",
                },
            ),
        ],
    )
    def test_what_the_verifier_declines_is_confirmed(self, method, more, tmp_path, capsys):
        path = str(tmp_path / "plan.json")
        shoal.plan(flags(3), crowd_size=1000, epsilon=1, delta="1e-6", **more).write(path)
        assert run(["audit", path, "--rigorous"]) == 0
        assert f"({method}, in ball arithmetic)" in " ".join(capsys.readouterr().out.split())

    def test_what_is_not_confirmed_may_still_hold(self, tmp_path, capsys, monkeypatch):
        """The usual engine confirms the promise, so nobody may read that it is broken."""
        path = str(tmp_path / "plan.json")
        shoal.plan(flags(2), crowd_size=1000, epsilon=1, delta="1e-6").write(path)
        monkeypatch.setattr(certificates, "rigorous_delta", lambda claim: Bracket(0.0, 2e-6))
        assert run(["audit", path, "--rigorous"]) == 3
        shown, error = capsys.readouterr()
        assert "not keep its promise" not in shown
        assert "Ball arithmetic does not confirm the promise." in shown
        assert "does not confirm the promised delta of 1e-6; it proves" in error
