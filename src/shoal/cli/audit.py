"""`shoal audit`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import compute_promise
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_bracket, text_down, text_near, text_up

if TYPE_CHECKING:
    from shoal.audit import Verdict
    from shoal.planning.certificate import Certificate


@dataclass(frozen=True)
class _Certified:
    """What is certified: a plan as it is, or a survey with the rest given."""

    source: Plan | Survey = cli.PLAN_OR_SURVEY
    q: str | None = cli.Q.when("With a survey")
    crowd_size: int | None = cli.CROWD.when("With a survey")
    view: cli.View | None = cli.VIEW.when("With a survey").but(default=None)

    def certificate(self, colluders: int, rigorous: bool) -> Certificate:
        from shoal.planning.certificate import certify

        given: dict[str, Any] = {"q": self.q, "crowd_size": self.crowd_size, "view": self.view}
        if isinstance(self.source, Survey):
            certificate = certify(self.source, **given, rigorous=rigorous)
        elif given != dict.fromkeys(given):
            raise InputError(
                "a plan has its own q, crowd and view; leave out --q, --crowd and --view."
            )
        elif self.source.crowd_size is None:
            raise InputError("the plan has no crowd; give its survey with --q and --crowd.")
        else:
            certificate = certify(self.source, rigorous=rigorous)
        return certificate.with_colluders(colluders) if colluders else certificate


@dataclass(frozen=True)
class _Test:
    randomizer: str | None = opt("Test this randomizer instead.", "MODULE:FUNCTION")
    pairs: Path | None = opt("Test recorded pairs: a CSV of original,synthetic.")
    samples: int = opt("How many reports to ask the randomizer for.", default=100_000)
    confidence: float = opt(
        "One minus the chance of convicting a correct randomizer.", default=0.999
    )


@cli.command("shoal audit plan.json")
def audit(
    *,
    certified: _Certified,
    epsilon: float | None = opt("Certify delta at this epsilon.", "E"),
    delta: float | None = opt("Certify epsilon at this delta.", "D"),
    colluders: int = opt("How many people of the crowd reveal their own reports.", "T", default=0),
    releases: int | None = cli.RELEASES,
    rigorous: bool = opt(
        "Enclose the proven delta in ball arithmetic; takes longer.", default=False
    ),
    test: _Test,
    plot: Path | None = cli.PLOT,
    picture: cli.Picture = cli.PICTURE.but(default="privacy"),
) -> out.Result:
    """Certify the guarantees of a plan, or test a randomizer.

    Without --epsilon or --delta a plan is certified at the epsilon that it promises. The exit code
    is 3 if it does not keep its promise. With --releases the releases compose. For a plan with
    memory they do not: guarantees over time are stated instead, by default for a year.

    With --rigorous the proven delta of one release is computed a second time, in ball arithmetic,
    which encloses every error. Other numbers are those of the usual engine.

    With --randomizer, your function gets an array of 0 and 1 with one row per report (or one row
    at a time) and returns the randomized array. Its flips are tested against --q. With --pairs,
    recorded rows are tested. A convicted randomizer gives exit code 3.
    """
    plan = certified.source if isinstance(certified.source, Plan) else None
    if test.randomizer is not None or test.pairs is not None:
        claimed = plan.q.fraction if plan and certified.q is None else certified.q
        survey = certified.source.survey if isinstance(certified.source, Plan) else certified.source
        if claimed is None:
            raise InputError("give the --q that the randomizer claims.")
        with out.waiting("testing the randomizer"):
            verdict = _inspect(test, claimed, survey)
        return out.Result(verdict.to_json(), _show_verdict(verdict), 3 if verdict.convicted else 0)
    if rigorous and (releases is not None or (plan is not None and plan.memory is not None)):
        raise InputError("--rigorous is about one release without memory; leave it out here.")
    certificate = certified.certificate(colluders, rigorous)
    promised = plan is not None and epsilon is None and delta is None
    if plan is not None and promised:
        epsilon = float(plan.promise.epsilon)
    refusal = None
    with out.waiting():
        document = certificate.to_json(epsilon=epsilon, delta=delta)
        if plan is not None and promised:  # the delta that is promised, not the one reached
            document["warnings"] = list(plan.warnings)
        if plan is not None:
            refusal = compute_promise(plan).refusal
            alone = compute_promise(replace(plan, crowd_size=certificate.crowd_size))
            document["promise_kept"] = alone.holds
            if rigorous and promised and document["delta"] > float(plan.promise.delta or 1):
                document["promise_kept"] = False
                refusal = refusal or (
                    f"ball arithmetic does not confirm the promised delta of {plan.promise.delta};"
                    f" it proves {text_up(document['delta'])} ({document['proven']['method']})."
                )
        if plan is not None and plan.memory is not None:
            document["statements"] = _over_time(plan, certificate.crowd_size, releases, delta)
        elif releases is not None:
            document["composition"] = certificate.compose(releases).to_json(document["delta"])
    cli.draw(plot, picture, certificate, epsilon=document["epsilon"], delta=delta)
    error = None if refusal is None else PrivacyRefusal(refusal)
    return out.Result(document, _show(document, certificate.survey.name), error=error)


def _over_time(
    plan: Plan, crowd: int, releases: int | None, delta: float | None
) -> list[dict[str, Any]]:
    """Return the guarantees over time, by default for a report in each window of a year."""
    from shoal.planning.guarantees import guarantees_over_time
    from shoal.planning.memory import releases_in_a_year

    if releases is None:
        releases = 1 if plan.window is None else releases_in_a_year(plan.window)
    hiding = replace(plan, crowd_size=crowd)
    return [
        statement.to_json() for statement in guarantees_over_time(hiding, releases, delta=delta)
    ]


def _inspect(test: _Test, q: object, survey: Survey) -> Verdict:
    from shoal.audit import inspect_pairs, inspect_randomizer

    if test.pairs is not None:
        originals, synthetics = _read_pairs(test.pairs, survey.bits)
        return inspect_pairs(originals, synthetics, q=q, confidence=test.confidence)
    assert test.randomizer is not None
    with redirect_stdout(sys.stderr):  # the randomizer may print
        try:
            return inspect_randomizer(
                _load(test.randomizer),
                q=q,
                bits=survey.bits,
                differing_bits=survey.differing_bits,
                samples=test.samples,
                confidence=test.confidence,
            )
        except SystemExit as error:
            raise InputError(
                f"the randomizer {test.randomizer} ended the process; it must return an array."
            ) from error


def _load(name: str) -> Callable[[Any], Any]:
    if ":" not in name:
        raise InputError(f"--randomizer takes MODULE:FUNCTION, got {name!r}.")
    randomizer = cli.imported(name)
    if not callable(randomizer):
        raise InputError(f"{name} is not a function; --randomizer takes MODULE:FUNCTION.")
    return randomizer  # type: ignore[no-any-return]


def _read_pairs(path: Path, bits: int) -> tuple[Any, Any]:
    """Read a CSV of two texts of 0 and 1 a row: the original and the report made of it."""
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


def _show_verdict(verdict: Verdict) -> out.Pieces:
    word = "[bold red]convicted[/]" if verdict.convicted else "[bold green]passed[/]"
    yield f"{word} after {verdict.samples:,} reports, confidence {text_near(verdict.confidence, 6)}"
    yield out.bullets(verdict.reasons)
    yield (
        f"The claim is a local epsilon of {text_near(verdict.epsilon_claimed)}. The reports refute"
        f" every claim below {text_down(verdict.epsilon_refuted)}."
    )


def _show(document: dict[str, Any], name: str) -> out.Pieces:
    yield out.title(
        name,
        f"q = {text_near(document['q'], 6)}, crowd of {document['crowd_size']:,},"
        f" view {document['view']}, at epsilon {text_up(document['epsilon'])}",
    )
    yield out.statements(_rows(document))
    if document.get("promise_kept") is False:
        broken = "The plan does not keep its promise."
        if document["rigorous"]:
            broken = "Ball arithmetic does not confirm the promise."
        yield f"[bold red]{broken}[/bold red]"
    yield from out.warnings(document["warnings"])
    yield from _observers(document["observers"])
    if "statements" in document:
        yield from out.over_time(document["statements"])
    yield "\nAssumptions:"
    yield out.bullets(document["assumptions"])


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value and the meaning of each number of a certificate."""
    proven, attack, dropped = document["proven"], document["attack"], document["dropped"]
    enclosed = ", in ball arithmetic" if document["rigorous"] else ""
    theorem = f"holds whatever the others answered; a theorem ({proven['method']}{enclosed})"
    yield "proven", f"delta <= {text_up(proven['delta'][1], 3)}", theorem
    crowd = f"some crowd is this bad: {crowd_in_words(attack['crowd'])}"
    yield "attack", f"delta >= {text_down(attack['delta'][0], 3)}", crowd
    if document["homogeneous"] is not None:
        worst = document["homogeneous"]["worst"]
        low, high = worst["eta"]
        eta = text_bracket(low, high, 3)
        words = "" if eta.startswith("~") else "not resolved; "
        words += "if all others answered alike (paper SDP)"
        if not worst["exhaustive"]:
            words += f", the largest found of {worst['kinds']} kinds of such crowds"
        yield "sufficient", f"eta   {eta}", f"{words}; not a guarantee"
    parties = document["parties"]
    first, second = list(parties)[:2] if parties else ("", "")
    observer = f"{first} and {second} together" if parties else "the collector too"
    if parties and parties["one_operator"]:
        observer = "the operator of both parties"
    local = f"revealed by one report alone, to {observer}"
    yield "local", f"epsilon {text_up(document['local']['epsilon'])}", local
    if dropped is not None:
        cost = "every bit fits"
        if dropped["price"]:
            cost = f"dropped bits cost {text_up(dropped['price'], 3)} of the proven delta"
            if dropped["bias"] is not None:
                cost += f" and bias a count by at most {text_up(dropped['bias'], 3)} people"
        yield "max_weight", f"{dropped['max_weight']} set bits", cost
    if document["sigma_count"] is not None:
        gain = document["gain_over_local"]
        words = "would allow no estimate"
        if gain is not None:
            words = f"would be {text_near(gain, 3)} times less precise"
        words = f"of any count; a local promise of this epsilon {words}"
        yield "precision", f"sigma {document['sigma_count']:,.0f} people", words
        shift = f"{text_up(document['shift_of_a_fake'], 3)} people"
        words = "the most that one fake report can shift a count"
        if "leader" in (parties or {}):
            words += f"; it raises at most {dropped['max_weight']} of them"
        yield "fake reports", shift, words
    if "composition" in document:
        together = document["composition"]
        words = f"at delta {text_up(together['delta'], 3)}, all together; adding up would give"
        words += f" {text_up(together['basic_epsilon'])}"
        yield f"{together['releases']} releases", f"epsilon {text_up(together['epsilon'])}", words


def _observers(observers: list[dict[str, Any]]) -> out.Pieces:
    yield "\nObservers, and the guarantee against each:"
    width = max(8, *(len(one["holds"]) for one in observers))
    widest = max(30, *(len(one["who"]) for one in observers))
    for one in observers:
        delta = f", delta {text_up(one['delta'], 3)}" if one["delta"] else ""
        who, epsilon = f"[bold]{one['who']:{widest}}[/bold]", text_up(one["epsilon"])
        yield f"{one['holds']:{width}} {who}  epsilon {epsilon}{delta}"
        yield out.indented(f"sees {one['sees']}. {one['assumption']}", width + 1)


def crowd_in_words(crowd: dict[str, int]) -> str:
    if "ones" in crowd:
        return f"{crowd['ones']} of the others have the bit set"
    if "second" not in crowd:
        return (
            f"all others give one same answer; of its bits, {crowd['a']} as in this person's first"
            f" answer only, {crowd['b']} as in the second only, {crowd['c']} as in neither"
        )
    first, second = crowd["first"], crowd["second"]
    if not first and not second:
        return "a person alone"
    if not first or not second:
        return f"all others give this person's {'second' if second else 'first'} answer"
    return (
        f"{second:,} of the others give this person's second answer, the other {first:,} the first"
    )
