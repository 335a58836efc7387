"""A certificate in plain words."""

from __future__ import annotations

from typing import Any

from shoal.cli._printing import printer, show_bullets
from shoal.support.rounding import text_bracket, text_down, text_near, text_up


def show_certificate(document: dict[str, Any], name: str) -> None:
    """Print a certificate for somebody who decides on it."""
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    at = text_up(document["epsilon"])
    console.print(
        f"[bold]{escape(name)}[/bold]: q = {text_near(document['q'], 6)},"
        f" crowd of {document['crowd_size']:,}, view {document['view']}, at epsilon {at}"
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    proven, attack = document["proven"], document["attack"]
    table.add_row(
        "proven",
        f"delta <= {text_up(proven['delta'][1], 3)}",
        f"holds whatever the others answered; a theorem ({proven['method']})",
    )
    table.add_row(
        "attack",
        f"delta >= {text_down(attack['delta'][0], 3)}",
        f"some crowd is this bad: {_crowd_in_words(attack['crowd'])}",
    )
    if document["homogeneous"] is not None:
        worst = document["homogeneous"]["worst"]
        low, high = worst["eta"]
        eta = text_bracket(low, high, 3)
        known = "" if eta.startswith("~") else "not resolved; "
        table.add_row(
            "sufficient", f"eta   {eta}", f"{known}{_eta_in_words(worst)}; not a guarantee"
        )
    table.add_row(
        "local",
        f"epsilon {text_up(document['local']['epsilon'])}",
        "what one report alone reveals, to the collector too"
        if document["parties"] is None
        else "what one report alone reveals, to relay and analyzer together",
    )
    if document["pieces"] is not None:
        pieces = document["pieces"]
        table.add_row(
            "messages",
            f"{pieces['messages']} a report",
            f"what does not fit costs {text_up(pieces['price'], 3)} of the proven delta, and biases"
            f" a count by at most {text_up(pieces['bias'], 3)} people"
            if pieces["price"]
            else "every bit fits",
        )
    if document["sigma_count"] is not None:
        gain = document["gain_over_local"]
        local = (
            f"would be {text_near(gain, 3)} times less precise"
            if gain is not None
            else "would allow no estimate"
        )
        table.add_row(
            "precision",
            f"sigma {document['sigma_count']:,.0f} people",
            f"of any count; a local promise of this epsilon {local}",
        )
        table.add_row(
            "fake reports",
            f"{text_up(document['shift_of_a_fake'], 3)} people",
            "the most that one fake report can shift a count"
            if document["pieces"] is None
            else "the most that one fake report can shift a count, all messages on it",
        )
    if "composition" in document:
        together = document["composition"]
        table.add_row(
            f"{together['releases']} releases",
            f"epsilon {text_up(together['epsilon'])}",
            f"at delta {text_up(together['delta'], 3)}, all together; adding up would give"
            f" {text_up(together['basic_epsilon'])}",
        )
    console.print(table)
    if document.get("promise_kept") is False:
        console.print("[bold red]The plan does not keep its promise.[/bold red]")
    _show_observers(document["observers"])
    if "statements" in document:
        show_statements(document["statements"])
    console.print("\nAssumptions:")
    show_bullets(console, document["assumptions"])


def _show_observers(observers: list[dict[str, Any]]) -> None:
    """Print who sees what, and what holds against each."""
    from rich.padding import Padding

    console = printer()
    console.print("\nWho sees what, and what holds against them:")
    for one in observers:
        delta = f", delta {text_up(one['delta'], 3)}" if one["delta"] else ""
        who, epsilon = f"[bold]{one['who']:30}[/bold]", text_up(one["epsilon"])
        console.print(f"{one['holds']:8} {who}  epsilon {epsilon}{delta}")
        console.print(Padding(f"sees {one['sees']}. {one['assumption']}", (0, 0, 0, 9)))


def show_statements(statements: list[dict[str, Any]]) -> None:
    """Print what holds over time: the number in one line, what it covers below it.

    The sentences are long, so a column beside the numbers would be a few letters wide.
    """
    from rich.padding import Padding

    console = printer()
    console.print("\nOver time, for people who report again:")
    for statement in statements:
        delta = f", delta {text_up(statement['delta'], 3)}" if statement["delta"] else ""
        epsilon = f"epsilon {text_up(statement['epsilon'])}{delta}"
        title = f"[bold]{statement['holds_for']:34}[/bold]"
        console.print(f"{statement['kind']:6}  {title}  {epsilon}")
        console.print(Padding(statement["words"], (0, 0, 0, 8)))


def _eta_in_words(worst: dict[str, Any]) -> str:
    if worst["exhaustive"]:
        return "if all others answered alike (paper SDP)"
    return (
        f"if all others answered alike (paper SDP), the largest found of {worst['kinds']} kinds of"
        " such crowds"
    )


def _crowd_in_words(crowd: dict[str, int]) -> str:
    if "second" in crowd:
        return _two_answers_in_words(crowd["first"], crowd["second"])
    if "ones" in crowd:
        return f"{crowd['ones']} of the others have the bit set"
    same, other, third = crowd["a"], crowd["b"], crowd["c"]
    return (
        f"all others give one same answer; of its bits, {same} as in this person's first answer"
        f" only, {other} as in the second only, {third} as in neither"
    )


def _two_answers_in_words(first: int, second: int) -> str:
    if not first and not second:
        return "a person alone"
    if not first or not second:
        return f"all others give this person's {'second' if second else 'first'} answer"
    return (
        f"{second:,} of the others give this person's second answer, the other {first:,} the first"
    )
