"""A new plan: written, drawn and shown."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli._options import write_plan
from shoal.cli._printing import print_json, printer
from shoal.cli._waiting import COMPUTING, waiting
from shoal.planning.certificate import check_promise
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from shoal.planning.costs import PeopleNeeded
    from shoal.planning.guarantees import GuaranteeOverTime


def finish(
    plan: Plan,
    over_time: list[GuaranteeOverTime],
    output: Path | None,
    force: bool,
    plot: Path | None,
    picture: Any,
    as_json: bool,
    needed: PeopleNeeded | None = None,
) -> None:
    """Write the plan and its chart where they are wanted, and print the plan."""
    write_plan(plan, output, force)
    if plot is not None:
        from shoal.reports.plots import plot_picture, save

        with waiting("drawing"):
            save(plot_picture(picture, plan), plot)
    with waiting(COMPUTING):
        check_promise(plan)  # both are remembered, and printed below
        _other(plan)
        document = _document(plan, over_time) if as_json else None
    if document is not None:
        print_json(document | ({} if needed is None else {"people_needed": needed.to_json()}))
    else:
        if needed is not None:
            _show_needed(needed)
        _show(plan, over_time, output)


def _show_needed(needed: PeopleNeeded) -> None:
    """Print how many people each view needs for the error that was asked for."""
    console = printer()
    of = "of everybody who reports"
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


def _document(plan: Plan, over_time: list[GuaranteeOverTime]) -> dict[str, Any]:
    certificate = _certificate(plan)
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
        "other_view": _other(plan),
        "certificate": certificate,
    }
    if plan.memory is not None:
        document["memory"] = {"q1": float(plan.memory.q1), "q2": float(plan.memory.q2)}
        document["statements"] = [statement.to_json() for statement in over_time]
    return document


def _other(plan: Plan) -> dict[str, Any] | None:
    if plan.crowd_size is None:
        return None
    from shoal.planning.bounds import other_view

    other = other_view(plan)
    if other is None:
        return None
    return {
        "view": other.view,
        "q": other.q,
        "sigma_count": other.sigma,
        "reason": other.reason,
    }


def _certificate(plan: Plan) -> dict[str, Any] | None:
    if plan.crowd_size is None:
        return None
    from shoal.planning.certificate import certify

    return certify(plan).to_json(epsilon=float(plan.promise.epsilon))


def _show_views(plan: Plan, console: Any) -> None:
    """Print what a single report reveals, and what the other view would need."""
    from shoal.planning.threats import single_report

    console.print(f"local epsilon    {text_up(plan.local_epsilon)}, of a single report")
    warning = single_report(plan.local_epsilon, float(plan.q))
    if warning is not None:
        console.print(warning)
    other = _other(plan)
    if other is None:
        return
    words = other["reason"]
    if words is None:
        q, sigma = text_near(other["q"], 3), text_near(other["sigma_count"], 3)
        words = f"would take q = {q}, sigma {sigma} people"
    console.print(f"--view {other['view']:9} {words}")


def _show_parties(plan: Plan, console: Any) -> None:
    """Print who relays and who analyzes, and as how many messages a report is sent."""
    from shoal.planning.fragments import overflow_of

    assert plan.parties is not None
    console.print(f"relay            {plan.parties.relay}", soft_wrap=True)
    console.print(f"analyzer         {plan.parties.analyzer}", soft_wrap=True)
    overflow = overflow_of(plan)
    if overflow is None:
        console.print("messages         1, a whole report")
        return
    assert plan.crowd_size is not None
    price = overflow.price(plan.crowd_size, float(plan.q), float(plan.promise.epsilon))
    cost = f"what does not fit costs {text_up(price, 2)} of delta" if price else "every bit fits"
    console.print(f"messages         {overflow.messages} for {plan.bits} bits; {cost}")


def _show(plan: Plan, over_time: list[GuaranteeOverTime], output: Path | None) -> None:
    from rich.markup import escape

    from shoal.cli._certificate import show_statements

    console = printer()
    size = "1 bit" if plan.bits == 1 else f"{plan.bits} bits"
    console.print(f"[bold]{escape(plan.survey.name)}[/bold]: {size} a report")
    console.print(f"flip probability {plan.q}")
    if plan.memory is not None:
        console.print(f"  permanent      {plan.memory.q1}")
        console.print(f"  fresh on top   {plan.memory.q2}")
    console.print(f"promise          {check_promise(plan).in_words}")
    crowd = "none needed" if plan.crowd_size is None else f"{plan.crowd_size:,} reports"
    if plan.crowd_size is not None and plan.reports_needed > plan.crowd_size:
        crowd = f"{plan.crowd_size:,} honest reports, released with {plan.reports_needed:,} in all"
    console.print(f"crowd            {crowd}")
    if plan.parties is not None:
        _show_parties(plan, console)
    if plan.window is not None:
        console.print(f"window           {plan.window} seconds; a crowd must fill within one")
    if plan.crowd_size is not None:
        from shoal.planning.certificate import certify

        sigma = certify(plan).sigma
        console.print(
            f"precision        sigma of a count: {sigma:,.0f} of {plan.crowd_size:,} people"
        )
        if sigma > plan.crowd_size:
            console.print(
                "[yellow]counts will be mostly noise; use a larger crowd or epsilon[/yellow]"
            )
        _show_views(plan, console)
    console.print(f"plan id          {plan.id}", soft_wrap=True)
    if output is not None:
        console.print(f"written to       {escape(str(output))}", soft_wrap=True)
    if over_time:
        show_statements([statement.to_json() for statement in over_time])
