"""`shoal audit`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    chart_options,
    crowd_option,
    json_option,
    q_option,
    releases_option,
    survey_options,
    view_option,
)
from shoal.cli._printing import print_json, printer, show_bullets
from shoal.cli._types import DECIMAL, WHOLE
from shoal.cli._waiting import COMPUTING, waiting
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import compute_promise
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_down, text_near

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate


@click.command(cls=Command, example="shoal audit plan.json")
@survey_options
@q_option(when="With a survey")
@crowd_option(when="With a survey")
@view_option(default=None, when="With a survey")
@click.option("--epsilon", type=DECIMAL, metavar="E", help="Certify delta at this epsilon.")
@click.option("--delta", type=DECIMAL, metavar="D", help="Certify epsilon at this delta.")
@click.option(
    "--colluders",
    type=WHOLE,
    default=0,
    show_default=True,
    metavar="T",
    help="How many people of the crowd reveal their own reports.",
)
@releases_option
@click.option("--randomizer", metavar="MODULE:FUNCTION", help="Test this randomizer instead.")
@click.option("--pairs", type=IN_FILE, help="Test recorded pairs: a CSV of original,synthetic.")
@click.option(
    "--samples",
    type=WHOLE,
    default=100_000,
    show_default=True,
    help="How many reports to ask the randomizer for.",
)
@click.option(
    "--confidence",
    type=DECIMAL,
    default=0.999,
    show_default=True,
    help="One minus the chance of convicting a correct randomizer.",
)
@chart_options("privacy")
@json_option
@click.pass_context
def command(
    context: click.Context,
    survey: Survey | None,
    plan: Plan | None,
    q: str | None,
    crowd: int | None,
    view: Any,
    epsilon: float | None,
    delta: float | None,
    colluders: int,
    releases: int | None,
    randomizer: str | None,
    pairs: Path | None,
    samples: int,
    confidence: float,
    plot: Path | None,
    picture: Any,
    as_json: bool,
) -> None:
    """Certify what a plan guarantees, or test a randomizer.

    Without --epsilon or --delta a plan is certified at the epsilon that it promises. The exit code
    is 3 if it does not keep its promise. With --releases the releases compose. For a plan with
    memory they do not: what holds over time is stated instead, by default for a year.

    With --randomizer, your function gets an array of 0 and 1 with one row per report (or one row
    at a time) and returns the randomized array. Its flips are tested against --q. With --pairs,
    recorded rows are tested. A convicted randomizer gives exit code 3.
    """
    if randomizer is not None or pairs is not None:
        questions = plan.survey if plan else survey
        assert questions is not None
        claimed = q if q is not None else plan.q.fraction if plan else None
        if claimed is None:
            raise InputError("give the --q that the randomizer claims.")
        with waiting("testing the randomizer"):
            verdict = _question(randomizer, pairs, claimed, questions, samples, confidence)
        _show_verdict(verdict, as_json)
        context.exit(3 if verdict.convicted else 0)
    certificate = _certificate(plan, survey, q, crowd, view, colluders)
    if plan is not None and epsilon is None and delta is None:
        epsilon = float(plan.promise.epsilon)
    with waiting(COMPUTING):
        document = certificate.to_json(epsilon=epsilon, delta=delta)
        computed = None if plan is None else compute_promise(plan)
        if plan is not None:
            alone = compute_promise(replace(plan, crowd_size=certificate.crowd_size))
            document["promise_kept"] = alone.holds
        if plan is not None and plan.memory is not None:
            document["statements"] = _statements(plan, certificate.crowd_size, releases, delta)
        elif releases is not None:
            document["composition"] = certificate.compose(releases).to_json(document["delta"])
    if plot is not None:
        from shoal.reports.plots import plot_picture, save

        with waiting("drawing"):
            figure = plot_picture(picture, certificate, epsilon=document["epsilon"], delta=delta)
            save(figure, plot)
    if as_json:
        print_json(document)
    else:
        from shoal.cli._certificate import show_certificate

        show_certificate(document, certificate.survey.name)
    if computed is not None and computed.refusal is not None:
        raise PrivacyRefusal(computed.refusal)


def _certificate(
    plan: Plan | None,
    survey: Survey | None,
    q: str | None,
    crowd: int | None,
    view: Any,
    colluders: int,
) -> Certificate:
    from shoal.planning.certificate import certify

    if plan is not None:
        if q is not None or crowd is not None or view is not None:
            raise InputError(
                "a plan has its own q, crowd and view; leave out --q, --crowd and --view."
            )
        if plan.crowd_size is None:
            raise InputError("the plan has no crowd; give its survey with --q and --crowd.")
        certificate = certify(plan)
    else:
        assert survey is not None
        certificate = certify(survey, q=q, crowd_size=crowd, view=view)
    return certificate.with_colluders(colluders) if colluders else certificate


def _statements(
    plan: Plan, crowd: int, releases: int | None, delta: float | None
) -> list[dict[str, Any]]:
    """Return what holds over time; without a number, for a report in each window of a year."""
    from shoal.planning.guarantees import guarantees_over_time
    from shoal.planning.memory import releases_in_a_year

    if releases is None:
        releases = 1 if plan.window is None else releases_in_a_year(plan.window)
    hiding = replace(plan, crowd_size=crowd)
    return [
        statement.to_json() for statement in guarantees_over_time(hiding, releases, delta=delta)
    ]


def _question(
    randomizer: str | None,
    pairs: Path | None,
    q: object,
    survey: Survey,
    samples: int,
    confidence: float,
) -> Any:
    from shoal.audit import inspect_pairs, inspect_randomizer

    if pairs is not None:
        originals, synthetics = _read_pairs(pairs, survey.bits)
        return inspect_pairs(originals, synthetics, q=q, confidence=confidence)
    assert randomizer is not None
    with redirect_stdout(sys.stderr):  # what the randomizer prints is not our output
        try:
            return inspect_randomizer(
                _load(randomizer),
                q=q,
                bits=survey.bits,
                differing_bits=survey.differing_bits,
                samples=samples,
                confidence=confidence,
            )
        except SystemExit as error:
            raise InputError(
                f"the randomizer {randomizer} ended the process; it must return an array."
            ) from error


def _load(name: str) -> Callable[[Any], Any]:
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"--randomizer takes MODULE:FUNCTION, got {name!r}.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        randomizer = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load the randomizer {name}: {error}.") from error
    if not callable(randomizer):
        raise InputError(f"{name} is not a function; --randomizer takes MODULE:FUNCTION.")
    return randomizer  # type: ignore[no-any-return]


def _read_pairs(path: Path, bits: int) -> tuple[Any, Any]:
    """Read a CSV whose rows are two texts of 0 and 1: the original and what was sent for it."""
    import csv

    import numpy as np

    sides: tuple[list[list[int]], list[list[int]]] = ([], [])
    try:
        with path.open(newline="", encoding="ascii") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if number == 1 and row == ["original", "synthetic"]:
                    continue
                if len(row) != 2 or any(len(t) != bits or set(t) - {"0", "1"} for t in row):
                    raise InputError(
                        f"line {number} of {path} must be two texts of {bits} characters 0 and 1."
                    )
                for side, text in zip(sides, row, strict=True):
                    side.append([int(character) for character in text])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read pairs {path}: {error}.") from error
    return np.array(sides[0], np.uint8), np.array(sides[1], np.uint8)


def _show_verdict(verdict: Any, as_json: bool) -> None:
    if as_json:
        print_json(verdict.to_json())
        return
    console = printer()
    word = "[bold red]convicted[/]" if verdict.convicted else "[bold green]passed[/]"
    console.print(
        f"{word} after {verdict.samples:,} reports, confidence {text_near(verdict.confidence, 6)}"
    )
    show_bullets(console, verdict.reasons)
    console.print(
        f"The claim is a local epsilon of {text_near(verdict.epsilon_claimed)}. The reports refute"
        f" every claim below {text_down(verdict.epsilon_refuted)}."
    )
