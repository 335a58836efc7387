"""`shoal plan`, `shoal plan over-time` and `shoal plan diff`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import check_promise
from shoal.planning.plan import plan as make_plan
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from shoal.planning.costs import PeopleNeeded
    from shoal.planning.guarantees import GuaranteeOverTime


@click.command(
    cls=cli.CommandOrGroup,
    example="shoal plan survey.toml --crowd 10000 --epsilon 1 --delta 1e-6 -o plan.json",
)
@cli.survey_options
@cli.promise_options()
@cli.option("--eta", "With --promise sufficient: the largest eta allowed.", metavar="H")
@cli.q_option()
@cli.option(
    "--promise",
    "Kind of guarantee.  [default: proven, or local without a crowd]",
    type=click.Choice(["proven", "sufficient", "three-sigma", "local"]),
)
@cli.view_option()
@cli.option("--local-epsilon", "The largest epsilon of a single report by itself.", metavar="E")
@cli.option(
    "--window",
    "Each person reports at most once in a window of this length, such as 1d.",
    type=cli.LENGTH,
    metavar="TIME",
)
@cli.option(
    "--honest",
    "honest_fraction",
    "The part of each crowd that is honest, such as 0.9.",
    metavar="PART",
)
@cli.option(
    "--within",
    "Instead of --crowd: how many people know every share within this, such as 2%.",
    type=cli.DECIMAL,
    metavar="PART",
)
@cli.option(
    "--share",
    "With --within: a share of a population that the people are a sample of.",
    type=cli.DECIMAL,
    metavar="PART",
)
@cli.level_option
@cli.parties_options
@cli.new_file_options("the plan")
@cli.chart_options("precision")
@cli.json_option
def plan(
    survey: Survey,
    crowd: int | None,
    within: float | None,
    share: float | None,
    level: float,
    parties: dict[str, Any],
    output: Path | None,
    force: bool,
    plot: Path | None,
    picture: Any,
    as_json: bool,
    **promise: Any,
) -> None:
    """Choose how often each device flips a bit.

    This plans one release. Leave out one of --q, --crowd, --epsilon and --delta: it is computed,
    rounded in the safe direction and certified. Devices and the analyst agree on the plan file.

    With --view counts the promise holds against observers who see only how many reports set each
    bit. That needs far less noise, but no observer may see a single report.

    With --relay and --analyzer two parties share the work: neither sees who sent which report.

    With --within the crowd is computed: as many people as it takes to know every share that well,
    in the chosen view. The number for the other view is printed beside it.
    """
    needed = None
    if within is not None:
        needed, crowd = _people_needed(survey, within, share, level, crowd, promise)
    elif share is not None:
        raise InputError("--share needs --within, how far off it may be.")
    with out.waiting():
        made = make_plan(survey, crowd_size=crowd, **promise, **parties)
    _finish(made, [], output, force, plot, picture, as_json, needed)


def _people_needed(
    survey: Survey,
    within: float,
    share: float | None,
    level: float,
    crowd: int | None,
    promise: dict[str, Any],
) -> tuple[PeopleNeeded, int]:
    from shoal.planning.costs import people_needed  # it loads SciPy

    epsilon, delta = promise["epsilon"], promise["delta"]
    if crowd is not None or promise["q"] is not None or epsilon is None or delta is None:
        raise InputError(
            "--within computes how many people are needed: give --epsilon and --delta, and neither"
            " --crowd nor --q."
        )
    with out.waiting():
        needed = people_needed(
            survey, epsilon=epsilon, delta=delta, within=within, share=share, level=level
        )
    size = needed.counts if promise["view"] == "counts" else needed.reports
    if size is None:
        raise InputError(
            f"no crowd of up to 10^12 people knows a share within {within:g} at this promise; allow"
            " a larger error, epsilon or delta."
        )
    return needed, size


@plan.command(
    "over-time",
    cls=cli.Command,
    example="shoal plan over-time survey.toml --horizon 'daily for a year' \\\n"
    "    --crowd 10000 --epsilon 1 --delta 1e-6 -o plan.json",
)
@cli.survey_options
@cli.promise_options(required=True)
@cli.option("--horizon", "How often and how long: 'daily for a year'.", metavar="WORDS")
@cli.releases_option
@cli.option(
    "--lifetime", "lifetime_epsilon", "The largest epsilon of all reports together.", metavar="E"
)
@cli.option(
    "--distinct-answers",
    "How many different answers one person may give.",
    type=cli.WHOLE,
    default=1,
    metavar="K",
)
@cli.option(
    "--fresh",
    "The part of the flips that is fresh in each report.",
    default="0.5",
    metavar="PART",
)
@cli.view_option()
@cli.parties_options
@cli.new_file_options("the plan")
@cli.chart_options("precision")
@cli.json_option
def over_time(
    survey: Survey,
    crowd: int,
    horizon: str | None,
    releases: int | None,
    parties: dict[str, Any],
    output: Path | None,
    force: bool,
    plot: Path | None,
    picture: Any,
    as_json: bool,
    **promise: Any,
) -> None:
    """Plan for people who report again and again.

    Some flips become permanent, so that they do not average away. The plan states the
    guarantees for one release and over time. Give --horizon or --releases.
    """
    from shoal.planning.guarantees import guarantees_over_time
    from shoal.planning.memory import parse_horizon, plan_with_memory

    if (horizon is None) == (releases is None):
        raise InputError("give one of --horizon and --releases.")
    with out.waiting():
        made = plan_with_memory(
            survey, crowd_size=crowd, releases=releases, horizon=horizon, **promise, **parties
        )
        count = releases if horizon is None else parse_horizon(horizon).releases
        assert count is not None
        guarantees = guarantees_over_time(made, count)
    _finish(made, guarantees, output, force, plot, picture, as_json)


@plan.command(cls=cli.Command, example="shoal plan diff old.json new.json")
@click.argument("old_file", type=cli.IN_FILE, metavar="OLD.json")
@click.argument("new_file", type=cli.IN_FILE, metavar="NEW.json")
@cli.option(
    "--weaker-is-intended",
    "Declare that the new plan may protect less under the same name.",
    is_flag=True,
)
@cli.json_option
def diff(old_file: Path, new_file: Path, weaker_is_intended: bool, as_json: bool) -> None:
    """Show how a change of a plan affects the people who answer.

    The result is one of: same, label, new plan (needs new consent), forbidden (protects less under
    the same name; exit code 3).

    If both surveys have the same name, the guarantees of both plans are computed: for one report,
    one release, a year, and without a time limit.
    """
    from shoal.planning.plan_diff import plan_diff

    old, new = Plan.read(old_file), Plan.read(new_file)
    with out.waiting():
        change = plan_diff(old, new, weaker_is_intended=weaker_is_intended)
    if as_json:
        out.print_json(change.to_json())
    else:
        console = out.printer()
        colour = {"forbidden": "red", "new plan": "yellow"}.get(change.kind, "green")
        ids = f"{change.old_id[:12]} to {change.new_id[:12]}"
        console.print(f"[bold {colour}]{change.kind}[/]: {ids}")
        out.show_bullets(console, change.reasons)
    if change.kind == "forbidden":
        raise PrivacyRefusal("the new plan protects less than the old one of the same name.")


def _finish(
    plan: Plan,
    guarantees: list[GuaranteeOverTime],
    output: Path | None,
    force: bool,
    plot: Path | None,
    picture: Any,
    as_json: bool,
    needed: PeopleNeeded | None = None,
) -> None:
    """Write the plan and its chart where they are wanted, and print the plan."""
    cli.write_plan(plan, output, force)
    if plot is not None:
        from shoal.reports.plots import plot_picture, save

        with out.waiting("drawing"):
            save(plot_picture(picture, plan), plot)
    with out.waiting():
        document = _document(plan, guarantees)
    if as_json:
        out.print_json(document | ({} if needed is None else {"people_needed": needed.to_json()}))
    else:
        if needed is not None:
            _show_needed(needed)
        _show(plan, document, output)


def _document(plan: Plan, guarantees: list[GuaranteeOverTime]) -> dict[str, Any]:
    certificate = other = None
    if plan.crowd_size is not None:
        from shoal.planning.bounds import other_view
        from shoal.planning.certificate import certify

        certificate = certify(plan).to_json(epsilon=float(plan.promise.epsilon))
        other = other_view(plan)
    promise = check_promise(plan).promise
    document = {
        "id": plan.id,
        "view": plan.view,
        "fragments": asdict(plan.fragments),
        "crosses": [[side.name for side in cross.sides] for cross in plan.survey.crosses],
        "q": float(plan.q),
        "q_fraction": plan.q.to_json(),
        "bits": plan.bits,
        "crowd_size": plan.crowd_size,
        "reports_needed": None if plan.crowd_size is None else plan.reports_needed,
        "window": plan.window,
        "parties": None if plan.parties is None else plan.parties.to_json(),
        "promise": promise.kind,
        "epsilon": float(promise.epsilon),
        "delta": None if promise.delta is None else float(promise.delta),
        "eta": None if promise.eta is None else float(promise.eta),
        "sigma_count": certificate["sigma_count"] if certificate else None,
        "local_epsilon": plan.local_epsilon,
        "other_view": None
        if other is None
        else {"view": other.view, "q": other.q, "sigma_count": other.sigma, "reason": other.reason},
        "certificate": certificate,
    }
    if plan.memory is not None:
        document["memory"] = {"q1": float(plan.memory.q1), "q2": float(plan.memory.q2)}
        document["statements"] = [one.to_json() for one in guarantees]
    return document


def _show_needed(needed: PeopleNeeded) -> None:
    """Print how many people each view needs for the wanted error."""
    console = out.printer()
    of = "of all who report"
    if needed.share is not None:
        of = f"of a population in which it is {text_near(100 * needed.share)} %"
    console.print(
        f"To know a share {of} within {text_near(100 * needed.within)} % of all, at"
        f" {text_near(needed.level)} (normal, approximate), to about 1 %:"
    )
    rows = [("--view reports", needed.reports), ("--view counts", needed.counts)]
    for name, people in [*rows, ("--promise local", needed.local)]:
        number = "more than 10^12" if people is None else f"{people:,}"
        console.print(f"{name:17}{number} people")
    console.print()


def _show(plan: Plan, document: dict[str, Any], output: Path | None) -> None:
    """Print a plan, one fact a line."""
    console = out.printer()
    out.show_title(console, plan.survey.name, f"{out.bits_in_words(plan.bits)} a report")
    for name, text in _facts(plan, document):
        console.print(f"{name:17}{text}" if name else text)
    console.print(f"plan id          {plan.id}", soft_wrap=True)
    out.show_written(console, output, "written to      ")
    if document.get("statements"):
        out.show_over_time(console, document["statements"])


def _facts(plan: Plan, document: dict[str, Any]) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [("flip probability", plan.q)]
    if plan.memory is not None:
        facts += [("  permanent", plan.memory.q1), ("  fresh on top", plan.memory.q2)]
    facts.append(("promise", check_promise(plan).in_words))
    crowd = "none needed" if plan.crowd_size is None else f"{plan.crowd_size:,} reports"
    if plan.crowd_size is not None and plan.reports_needed > plan.crowd_size:
        crowd = f"{plan.crowd_size:,} honest reports, released with {plan.reports_needed:,} in all"
    facts.append(("crowd", crowd))
    if plan.parties is not None:
        facts += [("relay", plan.parties.relay), ("analyzer", plan.parties.analyzer)]
        facts.append(("messages", _messages(plan)))
    if plan.window is not None:
        facts.append(("window", f"{plan.window} seconds; a crowd must fill within one"))
    if plan.crowd_size is None:
        return facts
    from shoal.planning.certificate import certify
    from shoal.planning.threats import single_report

    sigma = certify(plan).sigma
    facts.append(("precision", f"sigma of a count: {sigma:,.0f} of {plan.crowd_size:,} people"))
    if sigma > plan.crowd_size:
        noise = "counts will be mostly noise; use a larger crowd or epsilon"
        facts.append(("", f"[yellow]{noise}[/yellow]"))
    facts.append(("local epsilon", f"{text_up(plan.local_epsilon)}, of a single report"))
    warning = single_report(plan.local_epsilon, float(plan.q))
    if warning is not None:
        facts.append(("", warning))
    if (other := document["other_view"]) is not None:
        words = other["reason"]
        if words is None:
            q, sigma_of_other = text_near(other["q"], 3), text_near(other["sigma_count"], 3)
            words = f"would take q = {q}, sigma {sigma_of_other} people"
        facts.append((f"--view {other['view']}", words))
    return facts


def _messages(plan: Plan) -> str:
    """Describe the messages that a report is sent as."""
    from shoal.planning.bounds import overflow_of

    overflow = overflow_of(plan)
    if overflow is None:
        return "1, a whole report"
    assert plan.crowd_size is not None
    price = overflow.price(plan.crowd_size, float(plan.q), float(plan.promise.epsilon))
    cost = f"dropped bits cost {text_up(price, 2)} of delta" if price else "every bit fits"
    return f"{overflow.messages} for {plan.bits} bits; {cost}"
