"""The same words and numbers for every form: what was asked, what is promised, how to cite it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.plans import Plan
from shoal.rounding import round_down, text_up
from shoal.survey import Choices, Question

if TYPE_CHECKING:
    from shoal.auditing import Certificate
    from shoal.promising import ComputedPromise

__all__ = [
    "SIMULATED",
    "Fact",
    "Figures",
    "asked",
    "assumptions",
    "citation",
    "facts",
    "plain_promise",
]

SIMULATED = "simulated: these numbers are about nobody"

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
            _whole(round(row["count"])),
            percent(row["share"], share_decimals(row["sigma"] / reports)),
            _grouped(text_up(row["sigma"], 4)),
            _whole(math.floor(row["low"])),
            _whole(math.ceil(row["high"])),
            _whole(round(row["constrained"])),
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


def _whole(number: int) -> str:
    return f"{number:,}".replace("-", MINUS)


def _grouped(number: str) -> str:
    return f"{int(number):,}" if number.isdigit() else number


def asked(question: Question) -> str:
    """Say in one sentence what people could answer.

    >>> from shoal import Choice
    >>> asked(Choice("channel", ("release", "beta")))
    'One of 2 options.'
    """
    if question.kind == "text":
        return f"Any text, hashed to {question.bits} bits; it is decoded with candidates, not here."
    if isinstance(question, Choices):
        return f"At most {question.at_most} of {question.bits} options."
    if question.kind == "number":
        return f"A number, reported as one of {question.bits} ranges."
    if question.takes_one:
        return f"One of {question.bits} options."
    return "Yes or no." if question.bits == 1 else f"Any of {question.bits} options."


def plain_promise(computed: ComputedPromise) -> str:
    """Say what a promise that was computed, and holds, means for one person."""
    promise = computed.promise
    ratio = _ratio(float(promise.epsilon))
    if promise.kind == "proven":
        return (
            "Suppose that one person had answered something else. Whatever all others answered,"
            " and whatever else somebody knows, anything that these counts can show would have been"
            f" at most {ratio} times as likely, plus a chance of {promise.delta}. This is a"
            " theorem about the counts of the whole crowd."
        )
    if promise.kind == "local":
        return (
            "Whoever sees one person's report, the collector too, finds it at most"
            f" {ratio} times as likely under one answer as under another. This holds for each"
            " report by itself; it needs no crowd and no trust in anybody."
        )
    chance = (
        f"with a chance of at most {promise.eta}" if promise.eta else "seldom, by a rule of thumb"
    )
    return (
        "In a crowd where all others gave one and the same answer, the counts make one answer of a"
        f" person more than {ratio} times as likely as another only {chance}. Other crowds can be"
        f" worse: this is not a guarantee.{_proven_instead(computed)}"
    )


def _proven_instead(computed: ComputedPromise) -> str:
    if computed.delta is None:
        return ""
    return (
        f" What is proven at epsilon {computed.promise.epsilon} is a delta of"
        f" {text_up(computed.delta, 3)}."
    )


def _ratio(epsilon: float) -> str:
    return text_up(math.exp(epsilon), 3) if epsilon < 700 else "very many"


class Fact(NamedTuple):
    """One number about the protection: what it is of, the number, what it means."""

    name: str
    value: str
    meaning: str


def facts(plan: Plan, certificate: Mapping[str, Any] | None, reports: int) -> list[Fact]:
    """List the numbers behind the promise, each rounded to the safe side."""
    found = []
    if certificate is not None:
        at = f"at epsilon {text_up(certificate['epsilon'])}"
        proven, attack = certificate["proven"], certificate["attack"]
        worst = certificate["homogeneous"]["worst"]
        where = (
            "in the worst homogeneous crowd"
            if worst["exhaustive"]
            else f"the largest found of {worst['kinds']} kinds of homogeneous crowds"
        )
        found += [
            Fact(
                "Proven",
                f"delta \N{LESS-THAN OR EQUAL TO} {text_up(proven['delta'][1], 3)}",
                f"{at}, whatever the others answered; a theorem ({proven['method']}).",
            ),
            Fact(
                "Attack",
                f"delta \N{GREATER-THAN OR EQUAL TO} {round_down(attack['delta'][0], 3):g}",
                f"{at}, in the worst crowd that was found. The truth lies between the two.",
            ),
            Fact(
                "Sufficient",
                f"eta \N{LESS-THAN OR EQUAL TO} {text_up(worst['eta'][1], 3)}",
                f"{at}, {where}; not a guarantee.",
            ),
        ]
        if "group_delta" in certificate:
            found.append(
                Fact(
                    "Several reports",
                    f"delta \N{LESS-THAN OR EQUAL TO} {text_up(certificate['group_delta'], 3)}",
                    f"{at}, for all of a person's reports; the plan allows"
                    f" {plan.max_reports_per_person:,} in one release.",
                )
            )
    found.append(
        Fact(
            "Local",
            f"epsilon {text_up(plan.local_epsilon)}",
            "What one report tells by itself, to the collector too.",
        )
    )
    if plan.memory is not None:
        q1 = float(plan.memory.q1)
        always = plan.survey.differing_bits * math.log((1 - q1) / q1)
        found.append(
            Fact(
                "For ever",
                f"epsilon {text_up(always)}",
                "For each different answer that a person ever gave, however often it was reported.",
            )
        )
    q = float(plan.q)
    sigma = math.sqrt(reports * q * (1 - q)) / (1 - 2 * q)
    return [
        *found,
        Fact("Lies", f"q = {q:.5g}", "The probability with which a device flips each bit."),
        Fact(
            "Precision",
            f"sigma {_grouped(text_up(sigma, 4))} people",
            f"The standard deviation that the lies of {reports:,} reports give every count.",
        ),
        Fact(
            "Fake reports",
            f"{text_up((1 - q) / (1 - 2 * q), 3)} people each",
            "The most that one made-up report shifts a count; nothing tells it from a real one.",
        ),
    ]


def assumptions(plan: Plan, certificate: Certificate | None, reports: int) -> list[str]:
    """List what the promise rests on."""
    if certificate is None:
        return [
            "Neighbours replace one person's answer by any other answer of the survey's domain.",
            "Each person sends one report, with fresh lies; the epsilons of more reports add up.",
            "The device does what the plan says; nobody else needs to be trusted.",
        ]
    found = list(certificate.assumptions)
    if reports > certificate.crowd_size:
        found.append(
            f"This release holds {reports:,} reports, more than the crowd of"
            f" {certificate.crowd_size:,} that the promise was made for; more hide better."
        )
    return found


def citation(document: Mapping[str, Any]) -> str:
    """Say how to cite a publication."""
    estimates = document["estimates"]
    reports = "simulated reports" if estimates["simulated"] else "randomized reports"
    parts = [
        document["survey"],
        f"Estimates from {estimates['reports']:,} {reports}",
        f"Plan {estimates['plan']}",
        f"Shoal {document['shoal']}",
        *([document["date"]] if document["date"] else []),
    ]
    return ". ".join(parts) + "."
