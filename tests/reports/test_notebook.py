"""Every public result: one line, a text, HTML for notebooks, data frames, and a plot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import shoal
from shoal import Choice, Flags, Number, Survey, Text, YesNo
from shoal.analysis.association import associate
from shoal.analysis.cross_tables import cross_table
from shoal.analysis.number_summary import number_summary
from shoal.analysis.screening import screen
from shoal.analysis.text.decode import decode
from shoal.analysis.trends import crowd_difference, trend
from shoal.audit.randomizers import Verdict
from shoal.compare import compare
from shoal.curator import Curator, release
from shoal.device.arrays.infer_survey import infer_survey
from shoal.errors import InputError, MissingExtraError, UnknownNameError
from shoal.lab.populations import simulate_texts
from shoal.lab.study import study
from shoal.planning.certificate import certify
from shoal.planning.costs import survey_costs
from shoal.planning.plan_diff import plan_diff
from shoal.support.results import MAX_ROWS, Displayed, Section, TableExport, plain_table
from tests.doc_pages import ROOT
from tests.reports.test_publication import HOSTILE, check_harmless

EVIL = HOSTILE[0]
ASKED = (
    Choice("age", ("young", "old"), "option"),
    YesNo("car"),
    Number("hours", low=0, high=10, points=3, missing="option"),
    Flags(EVIL, HOSTILE[:4]),
)
SURVEY = Survey(HOSTILE[1], ASKED).cross("age", "car").cross("age", "car", "hours")
WORDS = Survey("words", (Text("word", bits=64, hashes=1, cohorts=16),))
LARGE = Survey("large", (Choice("one", tuple(f"option {n}" for n in range(1000))),))
TINY = Survey("tiny", (Flags("only", ("one",)),))


@cache
def crowd(seed: int = 1, users: int = 500) -> Any:
    return shoal.simulate(shoal.plan(SURVEY, q="0.1"), users=users, seed=seed)


def tallied(asked: Survey, users: int = 1, q: str = "0.1") -> Any:
    return shoal.simulate(shoal.plan(asked, q=q), users=users, seed=1).estimates


def empty() -> shoal.Tally:
    return shoal.tally(shoal.plan(TINY, q="0.1"), [])


def of_crowd(make: Callable[[Any, Any], Any]) -> Any:
    estimates = crowd().estimates
    return make(estimates.plan, estimates.tally)


def both(plan: Any, tally: Any) -> list[Any]:
    return [tally, crowd(2).estimates.tally]


def decoded() -> Any:
    plan = shoal.plan(WORDS, q="0.05")
    tally = simulate_texts(plan, {EVIL: 300, "coffee": 700}, seed=1)
    return decode(plan, tally, [EVIL, "coffee", "tea"])


RESULTS: dict[str, Callable[[], Any]] = {
    "survey": lambda: SURVEY,
    "survey, large": lambda: LARGE,
    "plan": lambda: crowd().estimates.plan,
    "plan with a crowd": lambda: shoal.plan(TINY, crowd_size=100, epsilon=1, delta="1e-3"),
    "plan, sufficient": lambda: shoal.plan(TINY, crowd_size=100, epsilon=1, eta="0.01"),
    "certificate": lambda: certify(TINY, q="0.2", crowd_size=100),
    "certificate, tiny q": lambda: certify(TINY, q="1e-9", crowd_size=100),
    "certificate, q = 1/2": lambda: certify(TINY, q="0.5", crowd_size=100, view="counts"),
    "composition": lambda: certify(TINY, q="0.2", crowd_size=100).compose(3),
    "tally": lambda: crowd().estimates.tally,
    "tally, empty": empty,
    "estimates": lambda: crowd().estimates,
    "estimates, one report": lambda: tallied(SURVEY),
    "estimates, one option": lambda: tallied(TINY),
    "estimates, large": lambda: tallied(LARGE, 50),
    "estimates, text only": lambda: tallied(WORDS, 20),
    "estimates, next to blind": lambda: tallied(SURVEY, 2, "0.49999"),
    "question": lambda: crowd().estimates["age"],
    "question, number": lambda: crowd().estimates["hours"],
    "question, number, one report": lambda: tallied(SURVEY)["hours"],
    "number summary": lambda: number_summary(crowd().estimates, "hours"),
    "simulation": crowd,
    "simulation, text": lambda: shoal.simulate(shoal.plan(WORDS, q="0.1"), users=9, seed=1),
    "cross table": lambda: of_crowd(lambda p, t: cross_table(p, t, "age", "car")),
    "cross table of three": lambda: of_crowd(lambda p, t: cross_table(p, t, "age", "car", "hours")),
    "association": lambda: of_crowd(lambda p, t: associate(p, t, "age", "car")),
    "joint": lambda: of_crowd(
        lambda p, t: shoal.estimate(p, counted(p)).joint(("car", "yes"), ("age", "old"))
    ),
    "trend": lambda: of_crowd(lambda p, t: trend(p, both(p, t))),
    "difference": lambda: of_crowd(lambda p, t: crowd_difference((p, t), (p, both(p, t)[1]))),
    "screening": lambda: of_crowd(screen),
    "publication": lambda: of_crowd(lambda p, t: shoal.publish(p, t, title=EVIL)),
    "decoded texts": decoded,
    "comparison": lambda: compare(
        TINY, crowd_size=100, epsilon=1, delta="1e-3", relative_error=100.0
    ),
    "survey costs": lambda: survey_costs(TINY, crowd_size=100, epsilon=1, delta="1e-3"),
    "plan diff": lambda: plan_diff(shoal.plan(TINY, q="0.1"), shoal.plan(TINY, q="0.2")),
    "proposal": lambda: infer_survey(pa.table({EVIL: ["yes", "no"] * 50}), name=EVIL),
    "study": lambda: study(shoal.plan(TINY, q="0.1"), users=50, repetitions=5, seed=1),
    "verdict": lambda: Verdict(True, (EVIL,), (), 10, 0.99, 1.0, 2.0),
    "curator, a survey": lambda: release(
        SURVEY, {one.name: [""] * 9 for one in ASKED}, epsilon="1", neighbours="replace"
    ),
    "curator, numbers": lambda: release(
        SURVEY, {one.name: [""] * 9 for one in ASKED}, epsilon="1", neighbours="replace"
    ).numbers["hours"],
    "curator, a count": lambda: Curator({"a": [1, 2]}, neighbours="replace").count(
        "a>1", epsilon="1"
    ),
}


def counted(plan: Any) -> shoal.Tally:
    bits = [plan.survey.bit("car", "yes"), plan.survey.bit("age", "old")]
    reports = shoal.randomize(plan, [{"age": "old", "car": "yes", "hours": 1, EVIL: []}] * 50)
    return shoal.tally(plan, reports, joint=[bits])


@cache
def made(name: str) -> Any:
    return RESULTS[name]()


@pytest.fixture(params=RESULTS)
def result(request: pytest.FixtureRequest) -> Any:
    return made(request.param)


def test_a_result_shows_itself(result: Any):
    line = repr(result)
    assert len(line) < 200
    assert "\n" not in line
    assert "array(" not in line
    assert line.startswith(f"{type(result).__name__}(")
    text = str(result)
    assert text.isascii() or all(one.isprintable() for one in text.replace("\n", ""))
    assert max(map(len, text.splitlines())) <= 130, "two cells beside each other"
    html = result._repr_html_()
    check_harmless(html)
    for outside in ("src=", "href", "url(", "@import", "<style", "<script"):
        assert outside not in html.replace("img src=x", "").replace("&lt;script", "")
    assert len(html) < 120_000


def test_tables_become_data_frames(result: Any):
    if not isinstance(result, TableExport):
        return
    table = result.to_arrow()
    assert list(result.to_pandas().columns) == table.column_names == result.to_polars().columns
    assert len(result.to_pandas()) == table.num_rows
    assert pa.table(result) == table


NOT_DRAWN = {
    "certificate, q = 1/2": "nothing to plot",
    "cross table of three": "take its slices",
    "estimates, text only": "no question to draw",
    "simulation, text": "no question to draw",
}


MANY_AXES = {
    "certificate",
    "certificate, tiny q",
    "estimates",
    "estimates, next to blind",
    "estimates, one report",
    "simulation",
    "trend",
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in MANY_AXES)) for one in RESULTS]
)
def test_a_result_is_drawn_or_says_why_not(name: str):
    result = made(name)
    if not hasattr(result, "plot"):
        return
    pytest.importorskip("matplotlib")
    if name in NOT_DRAWN:
        with pytest.raises(InputError, match=NOT_DRAWN[name]):
            result.plot()
        return
    figure = result.plot()
    picture, size = figure._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert size["width"] < 1000
    assert size["height"] < 3000
    assert figure.axes


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    from shoal.reports.plots import canvas

    canvas._figure_class.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"a chart needs matplotlib: .*shoal\[plots\]"):
        crowd().estimates.plot()
    canvas._figure_class.cache_clear()


def test_without_jinja_a_notebook_shows_the_line():
    script = """
import sys
sys.modules["jinja2"] = None
from shoal import Flags, Plan, Survey
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
plan = Plan(Survey("s", (Flags("f", ("a",)),)), FlipProbability(1, 2), Promise("local", "2"))
assert plan._repr_html_() is None and plan.survey._repr_html_() is None
print(repr(plan))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith("Plan(s: plan "), done.stderr


def test_promises_are_those_that_were_computed():
    """A plan that breaks its promise says so, wherever it is shown."""
    from dataclasses import replace

    from shoal.protocol.flip_probability import FlipProbability

    agreed = shoal.plan(TINY, crowd_size=100, epsilon=1, delta="1e-3")
    broken = replace(agreed, q=FlipProbability(1, 9))
    assert "proven: epsilon 1, delta 0.001" in str(agreed)
    assert "against anyone who sees these reports without senders" in " ".join(str(agreed).split())
    for shown in (str(broken), str(broken._repr_html_())):
        assert "broken: the plan promises" in shown
        assert "against anyone who sees these reports" not in shown
    for line in (repr(agreed), repr(agreed.certificate())):
        assert "epsilon" not in line
    certificate = str(agreed.certificate())
    assert "at epsilon 1\n" in certificate
    assert "(theorem)" in certificate
    assert "(local)" in certificate


def test_large_tables_are_cut():
    large = tallied(LARGE, 50)
    for shown in (str(large), large._repr_html_()):
        assert "950 more rows are not shown." in shown
        assert shown.count("option ") == MAX_ROWS
    assert len(large.to_pandas()) == 1000


def test_columns_that_do_not_fit_follow_below():
    wide = Section(("name", *(f"column {n}" for n in range(9))), [("a", *["1,234,567"] * 9)])
    lines = plain_table(wide).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line] == ["name", "a"] * 2
    assert "\n".join(lines).count("1,234,567") == 9


def test_control_characters_do_not_reach_the_terminal():
    class Odd(Displayed):
        def _headline(self) -> str:
            return "a\x1b[2Jb"

        def _sections(self) -> list[Section]:
            return [Section(("x\x07",), [("y\u202ez",)])]

    assert str(Odd()) == "a?[2Jb\n\nx?\ny?z"
    assert repr(Odd()) == "Odd(a?[2Jb)"


class TestQuestion:
    def test_numbers_have_a_mean_and_quantiles(self):
        estimates = crowd().estimates
        summary = number_summary(estimates, "hours", 0.9)
        assert estimates["hours"].mean(0.9) == summary.mean
        assert estimates["hours"].variance(0.9) == summary.variance
        assert estimates["hours"].quantile(0.5, 0.9) == summary.quantile(0.5)

    def test_other_kinds_say_why_not(self):
        estimates = crowd().estimates
        with pytest.raises(InputError, match="'age' is of kind choice; only a number has a mean"):
            estimates["age"].mean()
        with pytest.raises(InputError, match="only a number has a quantile"):
            estimates["car"].quantile(0.5)
        bins = tallied(Survey("s", (Number("age", (18, 65)),)), 20)
        with pytest.raises(InputError, match="has bins, and the outer ones have no end"):
            bins["age"].mean()
        assert bins["age"].quantile(0.5).label in bins["age"]

    def test_shares_fit_the_question(self):
        estimates = crowd().estimates
        assert sum(estimates["age"].shares().values()) == pytest.approx(1)
        assert all(0 <= share <= 1 for share in estimates[EVIL].shares().values())

    def test_unknown_names(self):
        estimates = crowd().estimates
        with pytest.raises(UnknownNameError, match=r"it has 'age', .* Did you mean 'hours'\?"):
            estimates["hour"]
        with pytest.raises(KeyError, match=r"no option 'Young'; it has .* Did you mean 'young'\?"):
            estimates["age"]["Young"]
        assert "hour" not in estimates
        assert estimates.get("hour") is None
        assert "Young" not in estimates["age"]
        assert estimates._ipython_key_completions_() == list(estimates)
        assert estimates["age"]._ipython_key_completions_() == list(estimates["age"])


api: Any = shoal  # these calls are wrong, which a type checker says too


WRONG_CALLS: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda p, t: api.estimate(t, p), "takes a Plan as plan, got a Tally; call estimate"),
    (lambda p, t: api.estimate(p), r"estimate needs tally; call estimate\(plan, tally, "),
    (lambda p, t: api.publish(t, p), r"call publish\(plan, tally, \.\.\.\)"),
    (
        lambda p, t: api.publish(p, p),
        "a Tally as tally, got a Plan; count reports with tally",
    ),
    (lambda p, t: api.randomize({"a": 1}, p), r"got a dict; call randomize\(plan, answers, "),
    (lambda p, t: api.randomize(p.survey, {}), r"make one with shoal.plan\(survey, \.\.\.\)"),
    (lambda p, t: api.tally([], p), "takes a Plan as plan, got a list; call tally"),
    (lambda p, t: api.tally(p, "reports.bin"), "counts the reports that randomize returns"),
    (lambda p, t: api.plan(10_000), "takes a Survey as survey, got an int; make one with"),
    (lambda p, t: api.plan(p), "takes a Survey as survey, got a Plan"),
    (lambda p, t: api.plan(p.survey, 10), "takes survey and then names such as q, crowd_s"),
    (lambda p, t: api.plan(p.survey, crowd=10), r"no argument 'crowd'.*mean 'crowd_size'\?"),
    (lambda p, t: api.simulate(p.survey), "takes a Plan as plan, got a Survey"),
    (lambda p, t: api.estimate("plan.json", "t"), r"got a str; .*Plan\.read\(path\)"),
    (lambda p, t: api.estimate(ROOT, t), r"got a path; .*Plan\.read\(path\)"),
    (lambda p, t: cross_table(t, p, "a", "b"), "takes a Plan as plan, got a Tally"),
    (lambda p, t: decode(t, p, []), "takes a Plan as plan, got a Tally"),
    (lambda p, t: certify(t), "takes a Plan or a Survey as plan, got a Tally"),
    (lambda p, t: api.Survey("s", YesNo("a")), "questions are a list of questions"),
]


def test_a_wrong_call_is_told_the_right_one():
    estimates = crowd().estimates
    for call, says in WRONG_CALLS:
        with pytest.raises(InputError, match=says) as raised:
            call(estimates.plan, estimates.tally)
        assert "\n" not in str(raised.value)


def test_a_simulation_takes_a_table():
    plan = shoal.plan(Survey("s", (YesNo("car"), Number("n", low=0, high=4, points=5))), q="0.01")
    table = pa.table({"car": [True, False] * 100, "n": [1.0, 3.0] * 100})
    run = shoal.simulate(plan, answers=table, seed=1)
    assert run.true_count("car", "yes") == run.true_count("n", "1") == 100
    again = shoal.simulate(plan, answers=table.to_pylist(), seed=1)
    assert again.to_json() == run.to_json()
    with pytest.raises(InputError, match="answers must be a mapping"):
        shoal.simulate(plan, answers=3)


@pytest.mark.slow
def test_the_notebook_of_the_documents_runs():
    pytest.importorskip("statsmodels")
    path = ROOT / "docs" / "_extensions" / "notebook.py"
    spec = importlib.util.spec_from_file_location("notebook", path)
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    text = (ROOT / "docs" / "tutorial-notebook.md").read_text("utf-8")
    cells = notebook.run_page(text)
    assert len(cells) == text.count("```{code-cell}") > 15
    kinds = [kind for _, outputs in cells for one in outputs for kind in one.data]
    assert kinds.count("image/png") == 4
    assert kinds.count("text/html") >= 7
    for _, outputs in cells:
        for one in outputs:
            if "shoal-" in one.data.get("text/html", ""):
                check_harmless(one.data["text/html"])
