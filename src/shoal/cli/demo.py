"""`shoal demo`: a short story for a newcomer."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli._common import json_option, print_json, printer, progress
from shoal.plans import Plan
from shoal.survey import Choice, Flags, Survey

SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "dark mode", "reader", "vpn", "screen reader")),
        Choice("channel", ("release", "beta", "nightly")),
    ),
)


@click.command()
@click.option("--users", type=int, default=100_000, show_default=True, help="How many people.")
@click.option("--seed", type=int, default=2017, show_default=True, help="Whose story it is.")
@json_option
def command(users: int, seed: int, as_json: bool) -> None:
    """Show the whole path in a minute: a survey, a crowd, their reports, the estimates."""
    from shoal.planning import plan
    from shoal.simulating import simulate

    agreed = plan(SURVEY, crowd_size=users, epsilon="1", delta="1e-6")
    with progress("asking", users) as advance:
        run = simulate(agreed, users=users, seed=seed, progress=advance)
    document = run.to_json()
    if as_json:
        print_json(document)
    else:
        _tell(agreed, document, seed)


def _tell(agreed: Plan, document: dict[str, Any], seed: int) -> None:
    from shoal.auditing import audit
    from shoal.cli._certificate import promise_in_words
    from shoal.cli._estimates import show_estimates
    from shoal.planning import plan

    console = printer()
    users = document["reports"]
    alone = plan(SURVEY, epsilon=agreed.promise.epsilon, promise="local")
    gain = audit(agreed).gain_over_local(float(agreed.promise.epsilon))
    console.rule("[bold]1. The question")
    console.print(
        f"A browser maker wants to know which features {users:,} people use, and who is on which"
        " channel. It must not learn anything about any one of them."
    )
    console.rule("[bold]2. One device")
    _tell_one_device(console, agreed, seed)
    console.rule("[bold]3. The promise")
    console.print(
        f"{promise_in_words(agreed.promise)}. Whatever everybody else answered, the counts of"
        f" {users:,} reports come out nearly alike whether Ada's answer is hers or any other. To"
        f" promise the same for each report by itself her device would have to flip each bit with"
        f" probability {float(alone.q):.4g}, and counts would be {gain:.0f} times less precise: the"
        " crowd does most of the hiding."
    )
    console.rule("[bold]4. The crowd")
    console.print(
        f"Each lie is worthless by itself, but {users:,} of them are lies at a known rate. The"
        " reports are counted, and the rate is taken out again:\n"
    )
    show_estimates(document, "what the browser maker sees, beside the truth it never sees")
    inside = [
        row["low"] <= row["truth"] <= row["high"]
        for options in document["questions"].values()
        for row in options.values()
    ]
    console.print(
        f"\n{sum(inside)} of {len(inside)} intervals hold the truth; 95 % of them should."
    )
    console.rule("[bold]5. Your turn")
    console.print(
        "shoal plan survey.toml --crowd 100000 --epsilon 1 --delta 1e-6 -o plan.json\n"
        "shoal randomize plan.json answers.csv -o reports.parquet\n"
        "shoal tally plan.json reports.parquet -o tally.json\n"
        "shoal estimate plan.json tally.json"
    )


def _tell_one_device(console: Any, agreed: Plan, seed: int) -> None:
    """Show an answer, the report made of it, and what the report tells a curious reader."""
    from shoal.encoding import encode
    from shoal.randomizing import randomize
    from shoal.randomness import SimulationBits
    from shoal.theory.bayes import posterior
    from shoal.vectors import unpack

    q = float(agreed.q)
    original = encode(agreed, {"features": ["sync", "screen reader"], "channel": "beta"})
    synthetic = randomize(original, agreed, random_bits=SimulationBits(seed))
    truth = unpack(original.rows, agreed.bits)[0]
    sent = unpack(synthetic.rows, agreed.bits)[0]
    console.print("Ada uses sync and a screen reader, on the beta channel. As bits:")
    console.print(f"   her answer   {' '.join(map(str, truth))}")
    shown = [
        f"[bold red]{b}[/bold red]" if a != b else str(b) for a, b in zip(truth, sent, strict=True)
    ]
    console.print(f"   her report   {' '.join(shown)}     only this leaves her device")
    console.print(
        f"Her device flipped each bit with probability {q:.4g}; the flipped ones are red."
    )
    prior = 0.1
    believed = posterior(prior, q, reported=int(sent[4]))
    console.print(
        f"One person in ten uses a screen reader. Whoever sees this one report, with that bit"
        f" {'set' if sent[4] else 'clear'}, now believes {believed:.0%} instead of {prior:.0%} that"
        " Ada does. In the counts of a crowd nobody can even find her report."
    )
