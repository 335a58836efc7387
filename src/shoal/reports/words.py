"""The same words and numbers for every form: what was asked, what is promised, how to cite it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.analysis.crowds import in_crowds, note_on
from shoal.analysis.tally import Tally
from shoal.planning.threats import single_report
from shoal.protocol.flip_probability import EXACT, local_epsilon
from shoal.protocol.plan import Plan, View
from shoal.protocol.survey import Choices, Question
from shoal.support.rounding import float_up, text_bracket, text_down, text_up
from shoal.theory import randomized_response as coin

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate
    from shoal.protocol.promise import ComputedPromise

__all__ = [
    "SIMULATED",
    "Fact",
    "Figures",
    "assumptions",
    "citation",
    "count_unit",
    "facts",
    "flip_in_words",
    "one_crowd",
    "plain_promise",
    "possible_answers",
    "ratio_in_words",
    "release_note",
    "sum_note",
    "whole_number",
]

SIMULATED = "simulated: these numbers are about nobody"

_FAR_MORE = "Whoever sees single reports learns far more."

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"


class Figures(NamedTuple):
    """The numbers of one option as people read them; intervals are rounded outwards."""

    people: str
    share: str
    sigma: str
    low: str
    high: str
    constrained: str

    @classmethod
    def of(cls, row: Mapping[str, Any], reports: int) -> Figures:
        r"""Round one row of the estimates' JSON.

        >>> row = {"count": -3.2, "share": -0.0032, "sigma": 27.39, "low": -56.2, "high": 50.1,
        ...        "constrained": 0.0}
        >>> Figures.of(row, 1000)[:5]
        ('−3', '−0.3\u202f%', '27.39', '−57', '51')
        """
        return cls(
            whole_number(round(row["count"])),
            percent(row["share"], share_decimals(row["sigma"] / reports)),
            _grouped(text_up(row["sigma"], 4)),
            whole_number(math.floor(row["low"])),
            whole_number(math.ceil(row["high"])),
            whole_number(round(row["constrained"])),
        )


def percent(share: float, decimals: int = 1) -> str:
    r"""Write a share as a percentage.

    >>> percent(0.4821), percent(-0.00001)
    ('48.2\u202f%', '0.0\u202f%')
    """
    text = f"{abs(share) * 100:,.{decimals}f}"
    sign = MINUS if share < 0 and float(text.replace(",", "")) else ""
    return f"{sign}{text}{THIN}%"


def share_decimals(spread: float) -> int:
    """Return the decimals of a percentage that its spread leaves any meaning to, one at least."""
    return min(max(math.ceil(-math.log10(max(spread * 100, 1e-9))), 1), 4)


def whole_number(number: int) -> str:
    """Write a whole number, its thousands apart."""
    return f"{number:,}".replace("-", MINUS)


def _grouped(number: str) -> str:
    return f"{int(number):,}" if number.isdigit() else number


def possible_answers(question: Question) -> str:
    """Say in one sentence what people could answer.

    >>> from shoal import Choice
    >>> possible_answers(Choice("channel", ("release", "beta")))
    'One of 2 options.'
    """
    if question.kind == "text":
        return f"Any text, hashed to {question.bits} bits. Its answers are found with shoal decode."
    if isinstance(question, Choices):
        return f"At most {question.at_most} of {question.bits} options."
    if question.kind == "number":
        return f"A number, reported as one of {question.bits} ranges."
    if question.kind == "cross":
        return f"Not asked: it follows from other answers which of {question.bits} cells is set."
    if question.takes_one:
        return f"One of {question.bits} options."
    return "Yes or no." if question.bits == 1 else f"Any of {question.bits} options."


def plain_promise(computed: ComputedPromise) -> str:
    """Say what a promise that was computed, and holds, means for one person."""
    promise = computed.promise
    ratio = ratio_in_words(float(promise.epsilon))
    if promise.kind == "proven":
        return (
            "Suppose one person had given a different answer. Whatever the others answered, and"
            " whatever else an observer knows, any result of these counts would have been at most"
            f" {ratio} times as likely, plus a probability of {promise.delta}. This is a theorem."
            f" {_against(computed.view)}"
        )
    if promise.kind == "local":
        return (
            "To anyone who sees one person's report, the collector included, it is at most"
            f" {ratio} times as likely under one answer as under another. This holds for each"
            " report by itself. It needs no crowd and no trust in anyone."
        )
    chance = (
        f"with a probability of at most {promise.eta}"
        if promise.eta
        else "rarely, by a rule of thumb"
    )
    return (
        "In a crowd where all others gave the same answer, the counts make one answer of a person"
        f" more than {ratio} times as likely as another only {chance}. Other crowds can be worse:"
        f" this is not a guarantee.{_proven_instead(computed)}"
    )


def _against(view: View) -> str:
    """Return against whom the promise of a crowd holds."""
    if view == "counts":
        return "It holds against whoever sees the counts of the whole crowd, and no single report."
    return "It holds against whoever sees the reports of the whole crowd without their senders."


def _proven_instead(computed: ComputedPromise) -> str:
    if computed.delta is None:
        return ""
    return (
        f" What is proven at epsilon {computed.promise.epsilon} is a delta of"
        f" {text_up(computed.delta, 3)}."
    )


def ratio_in_words(epsilon: float) -> str:
    """Return how many times as likely an epsilon allows something to be."""
    return text_up(math.exp(epsilon), 3) if epsilon < 700 else "very many"


def flip_in_words(q: float) -> str:
    """Return a flip probability as people read it.

    >>> flip_in_words(0.25), flip_in_words(2.09212e-05)
    ('0.25', '0.00002092, once in 47,798 bits')
    """
    if q >= 1e-3:
        return f"{q:.4g}"
    digits = 3 - math.floor(math.log10(q))
    return f"{q:.{digits}f}, once in {round(1 / q):,} bits"


def release_note(plan: Plan) -> list[str]:
    """Return a sentence about what is released, if it is less than the reports."""
    if plan.view == "reports":
        return []
    each = "each bit of each cohort" if plan.cohorts else "each bit"
    alone = single_report(plan.local_epsilon, float(plan.q))
    return [
        f"This release holds how many reports set {each}, and nothing that links the bits of one"
        f" report. The noise was chosen for that. {alone or _FAR_MORE}"
    ]


def one_crowd(whole: Mapping[str, Any] | None) -> str:
    """Return that a statement is about one crowd, where a release is the sum of several."""
    return "" if whole is None else ", for one crowd by itself"


def count_unit(estimates: Mapping[str, Any]) -> str:
    """Return what the counts are of: people, or answers of people who may be the same."""
    return "answers" if len(estimates["crowds"]) > 1 and not estimates["people"] else "people"


def sum_note(estimates: Mapping[str, Any]) -> list[str]:
    """Return a sentence about what the counts of a sum of crowds are of, if it is one."""
    note = note_on(len(estimates["crowds"]), estimates["people"])
    return [] if note is None else [note[0].upper() + note[1:]]


class Fact(NamedTuple):
    """One number about the protection: what it is of, the number, what it means."""

    name: str
    value: str
    meaning: str


def facts(
    plan: Plan,
    certificate: Mapping[str, Any] | None,
    reports: int,
    whole: Mapping[str, Any] | None = None,
) -> list[Fact]:
    """List the numbers behind the promise, each rounded to the safe side.

    `whole` is what holds for a sum of crowds, if the release is one.
    """
    rows = [] if whole is None else _facts_of_sum(whole)
    if certificate is not None:
        at = f"at epsilon {text_up(certificate['epsilon'])}"
        at += one_crowd(whole)
        proven, attack = certificate["proven"], certificate["attack"]
        rows += [
            Fact(
                "Proven",
                f"delta \N{LESS-THAN OR EQUAL TO} {text_up(proven['delta'][1], 3)}",
                f"{at}, whatever the others answered; a theorem ({proven['method']}).",
            ),
            Fact(
                "Attack",
                f"delta \N{GREATER-THAN OR EQUAL TO} {text_down(attack['delta'][0], 3)}",
                f"{at}, in the worst crowd known. The true delta is between the two.",
            ),
        ]
        if certificate["homogeneous"] is not None:
            rows.append(_sufficient(certificate["homogeneous"]["worst"], at))
        if "group_delta" in certificate:
            rows.append(
                Fact(
                    "Several reports",
                    f"delta \N{LESS-THAN OR EQUAL TO} {text_up(certificate['group_delta'], 3)}",
                    f"{at}, for all of a person's reports; the plan allows"
                    f" {plan.max_reports_per_person:,} in one release.",
                )
            )
    rows.append(
        Fact(
            "Local",
            f"epsilon {text_up(plan.local_epsilon)}",
            single_report(plan.local_epsilon, float(plan.q))
            or "What one report reveals by itself, to the collector too.",
        )
    )
    if plan.memory is not None:
        differ = plan.survey.differing_bits
        always = float_up(local_epsilon(differ, plan.memory.q1, places=EXACT))
        rows.append(
            Fact(
                "For ever",
                f"epsilon {text_up(always)}",
                "For each different answer a person ever gives, however often it is reported.",
            )
        )
    q = float(plan.q)
    sigma = coin.count_sigma(reports, q)
    return [
        *rows,
        Fact("Flips", f"q = {flip_in_words(q)}", "The probability that a device flips a bit."),
        Fact(
            "Precision",
            f"sigma {_grouped(text_up(sigma, 4))} {'people' if whole is None else 'answers'}",
            f"The standard deviation of every count, due to the flips in {reports:,} reports.",
        ),
        Fact(
            "Fake reports",
            f"{text_up(coin.shift_of_a_fake(q), 3)} people each",
            "The most by which one fake report shifts a count; a single fake report cannot be"
            " recognized.",
        ),
    ]


def _sufficient(worst: Mapping[str, Any], at: str) -> Fact:
    if worst["exhaustive"]:
        eta = f"\N{LESS-THAN OR EQUAL TO} {text_up(worst['eta'][1], 3)}"
        where = "in the worst homogeneous crowd"
    else:
        low, high = worst["eta"]
        eta = text_bracket(low, high, 3).replace("~ ", "\N{ALMOST EQUAL TO}")
        where = (
            f"the largest found of {worst['kinds']} kinds of homogeneous crowds; others may be"
            " worse"
        )
    return Fact("Sufficient", f"eta {eta}", f"{at}, {where}; not a guarantee.")


def _facts_of_sum(whole: Mapping[str, Any]) -> list[Fact]:
    person = f"For a person who is in all {whole['crowds']:,} crowds"
    rows = [
        Fact(
            "Sum of crowds",
            f"epsilon {text_up(whole['epsilon'], 4)}",
            f"{person}, at delta {text_up(whole['delta'], 3)}; a theorem ({whole['method']}).",
        )
    ]
    delta, at = whole["delta_at_promised"], f"at epsilon {text_up(whole['promised_epsilon'])}"
    if delta is not None and delta >= 1:
        rows.append(Fact("Sum of crowds", "nothing is proven", f"{person}, {at}."))
    elif delta is not None:
        rows.append(
            Fact(
                "Sum of crowds",
                f"delta \N{LESS-THAN OR EQUAL TO} {text_up(delta, 3)}",
                f"{person}, {at}; a theorem ({whole['method']}).",
            )
        )
    return rows


def assumptions(plan: Plan, certificate: Certificate | None, tally: Tally) -> list[str]:
    """List what the promise rests on."""
    if certificate is None:
        sentences = [
            "The promise compares any two answers that one person could give.",
            "Each person sends one report, with fresh flips; the epsilons of more reports add up.",
            "The device does what the plan says; nobody else needs to be trusted.",
        ]
    else:
        sentences = list(certificate.assumptions)
    crowds = len(tally.crowds)
    if tally.people_may_repeat:
        sentences.append(
            f"This is a sum of {crowds:,} crowds whose people may be the same. Statements about one"
            " report or one crowd hold for each by itself; statements about the sum hold for a"
            " person who is in all of them."
        )
    elif certificate is not None and tally.reports > plan.reports_needed:
        sentences.append(
            f"This release has {tally.reports:,} reports, more than the crowd of"
            f" {plan.reports_needed:,} that the promise assumes; a larger crowd hides at least as"
            " well."
        )
    if certificate is not None and tally.crowds and not tally.simulated:
        readable = min(crowd.reports for crowd in tally.crowds)
        if plan.parties is not None and readable < plan.reports_needed:
            sentences.append(
                f"Of the {plan.reports_needed:,} reports of a crowd, the analyzer could read"
                f" {readable:,}. The {plan.crowd_size or 0:,} honest reports that the promise needs"
                " are assumed to be among them: honest devices send reports that can be read, and"
                " the relay forwards them unchanged."
            )
    if crowds > 1 and not tally.people_may_repeat:
        sentences.append(
            f"Whoever published this declares that no person is in two of the {crowds:,} crowds"
            " that were added; it was not checked."
        )
    for crowd in tally.crowds:
        if not (crowd.sealed or crowd.unnamed):
            sentences.append(
                f"Whoever counted the reports declares that all reports of {crowd} are of one"
                " crowd, with none counted twice; it was not checked."
            )
    return sentences


def citation(document: Mapping[str, Any]) -> str:
    """Say how to cite a publication."""
    estimates = document["estimates"]
    reports = "simulated reports" if estimates["simulated"] else "randomized reports"
    reports += in_crowds(estimates)
    parts = [
        document["survey"],
        f"Estimates from {estimates['reports']:,} {reports}",
        f"Plan {estimates['plan']}",
        f"Shoal {document['shoal']}",
        *([document["date"]] if document["date"] else []),
    ]
    return ". ".join(parts) + "."
