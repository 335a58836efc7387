"""`shoal experiment`, `shoal retention` and `shoal study`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.cli.tally import read_tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan

_TALLIES = arg("TALLY.json|REPORTS...")


@cli.command("shoal experiment plan.json tally.json")
def experiment(
    plan: Plan = cli.PLAN,
    tally_files: tuple[Path, ...] = _TALLIES,
    arm: str | None = opt("The arm question, if the survey has several.", "NAME"),
    level: float = cli.LEVEL,
) -> out.Result:
    """Compare the arms of an experiment with control.

    Each outcome that the survey crosses with the arm has a share or a mean in every arm, and its
    difference and ratio to control, for the population. Holm's p-values allow for all comparisons.
    Several tallies are releases in their order: their confidence sequence may be looked at after
    each. It is refused for plans in which devices report again and again.
    """
    from shoal.analysis.experiments import experiment, monitor

    tallies = [read_tally(plan, file) for file in tally_files]
    if len(tallies) == 1:
        one = experiment(plan, tallies[0], arm, level=level)
        return out.Result(one.to_json(), str(one))
    several = monitor(plan, tallies, arm, level=level)
    return out.Result(several.to_json(), str(several))


@cli.command("shoal retention plan.json week1.json week2.json week3.json")
def retention(
    plan: Plan = cli.PLAN,
    tally_files: tuple[Path, ...] = _TALLIES,
    group: str | None = opt("Only people with this answer to a crossed question.", "Q=OPTION"),
    level: float = cli.LEVEL,
    target: cli.Target = cli.TARGET.but(default="population"),
) -> out.Result:
    """Show which part of the people who started is active later.

    Give a tally for each window, in the order of time. All intervals of the curve hold together.
    """
    from shoal.analysis.retention import retention

    named = None
    if group is not None:
        question, equals, option = group.partition("=")
        if not equals:
            raise InputError(f"--group takes a question and its answer as Q=OPTION, got {group!r}.")
        named = question.strip(), option.strip()
    tallies = [read_tally(plan, file) for file in tally_files]
    curve = retention(plan, tallies, group=named, level=level, target=target)
    return out.Result(curve.to_json(), str(curve))


@cli.command("shoal study --repetitions 20000")
def study(
    *,
    repetitions: int = opt("Repetitions of each case.", "R", default=20_000),
    crowds: str = opt("Sizes of crowds.", "A,B,...", default="2000,20000"),
    shares: str = opt("Shares of control.", "A,B,...", default="0,0.01,0.1,0.5,0.9,1"),
    only: str | None = opt("Some statistics only, such as difference,funnel.", "A,B,..."),
    views: str = opt("Views of the plans.", "A,B", default="counts,reports"),
    epsilon: str = cli.EPSILON.but(default="1"),
    delta: str = cli.DELTA.but(default="1e-6"),
    level: float = cli.LEVEL,
    seed: int = opt("Seed of the simulated data.", default=1),
) -> out.Result:
    """Measure how often intervals of experiments hold the truth.

    Those of retention and funnels too. People are drawn from a population, and their counts from
    the exact distribution of the flips. Without an effect, a test should raise a false alarm in at
    most 1 - level of the cases: in one look, and in any of 52 looks of a confidence sequence.
    """
    from shoal.lab.experiment_study import Statistic, experiment_study
    from shoal.support.checks import check_one_of

    chosen: Any = get_args(Statistic)
    if only is not None:
        chosen = [one.strip() for one in only.split(",")]
        for one in chosen:
            check_one_of("only", one, get_args(Statistic))
    wanted: Any = [one.strip() for one in views.split(",")]
    for one in wanted:
        check_one_of("views", one, ("counts", "reports"))
    with out.progress("repeating") as advance:
        done = experiment_study(
            repetitions=repetitions,
            people=[cli.WHOLE.convert(one, None, None) for one in crowds.split(",")],
            shares=[cli.DECIMAL.convert(one, None, None) for one in shares.split(",")],
            views=wanted,
            statistics=chosen,
            epsilon=epsilon,
            delta=delta,
            level=level,
            seed=seed,
            progress=advance,
        )
    return out.Result(done.to_json(), str(done))
