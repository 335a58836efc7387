"""Numbers and short sentences, written the same way on pages, in charts and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.analysis.crowds import note_on
from shoal.planning.threats import single_report
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Flags, Question
from shoal.support.rounding import text_up

SIMULATED = "simulated data"
"""Marks numbers that no real person is behind."""

FAR_MORE = "Anyone who sees single reports learns far more."

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"


class Figures(NamedTuple):
    """The rounded numbers of one option; intervals are rounded outwards."""

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
            whole_number(row["count"]),
            percent(row["share"], share_decimals(row["sigma"] / reports)),
            grouped(text_up(row["sigma"], 4)),
            round_low(row["low"]),
            round_high(row["high"]),
            whole_number(row["constrained"]),
        )


def percent(share: float, decimals: int = 1) -> str:
    r"""Write a share as a percentage.

    >>> percent(0.4821), percent(-0.00001)
    ('48.2\u202f%', '0.0\u202f%')
    """
    text = f"{abs(share) * 100:,.{decimals}f}"
    sign = MINUS if share < 0 and float(text.replace(",", "")) else ""
    return f"{sign}{text}{THIN}%"


def signed_percent(share: float) -> str:
    r"""Write a difference of shares with its sign.

    >>> signed_percent(0.034), signed_percent(0.0)
    ('+3.4\u202f%', '0.0\u202f%')
    """
    text = percent(share)
    return f"+{text}" if share > 0 and any(digit in text for digit in "123456789") else text


def level_in_words(document: Mapping[str, Any]) -> str:
    return f"{document['level'] * 100:.6g}{THIN}%"


def share_decimals(spread: float) -> int:
    """Return how many decimals of a percentage are meaningful at this spread; at least one."""
    return min(max(math.ceil(-math.log10(max(spread * 100, 1e-9))), 1), 4)


def whole_number(number: float) -> str:
    return f"{round(number):,}".replace("-", MINUS)


def round_low(number: float) -> str:
    return whole_number(math.floor(number))


def round_high(number: float) -> str:
    return whole_number(math.ceil(number))


def grouped(number: str) -> str:
    """Add thousands separators to a number without a fraction."""
    return f"{int(number):,}" if number.isdigit() else number


def whole_shares(rows: Mapping[str, Mapping[str, Any]], reports: int) -> dict[str, str]:
    r"""Write the constrained shares of a question's options so that they add to 100 % as printed.

    Each share is rounded down; the remainder goes to those that lost most (largest remainders).

    >>> thirds = {name: {"constrained": 100 / 3, "sigma": 5.0} for name in "abc"}
    >>> [text.replace("\u202f", "") for text in whole_shares(thirds, 100).values()]
    ['33.4%', '33.3%', '33.3%']
    """
    decimals = max((share_decimals(row["sigma"] / reports) for row in rows.values()), default=1)
    shares = [row["constrained"] / reports for row in rows.values()]
    steps = _apportioned(shares, 10 ** (decimals + 2))
    return {
        label: percent(step / 10 ** (decimals + 2), decimals)
        for label, step in zip(rows, steps, strict=True)
    }


def _apportioned(shares: Sequence[float], whole: int) -> list[int]:
    """Return integers in proportion to shares that add to one; they add to `whole`."""
    exact = [share * whole for share in shares]
    steps = [int(one) for one in exact]
    left = whole - sum(steps)
    order = sorted(range(len(exact)), key=lambda place: (steps[place] - exact[place], place))
    for place in order[: max(left, 0)]:
        steps[place] += 1
    return steps


def possible_answers(question: Question) -> str:
    """Return what people could answer, in one sentence.

    >>> from shoal import Choice
    >>> possible_answers(Choice("channel", ("release", "beta")))
    'One of 2 options.'
    """
    if question.kind == "text":
        return f"Any text, hashed to {question.bits} bits. Its answers are found with shoal decode."
    if isinstance(question, Flags) and question.at_most:
        return f"At most {question.at_most} of {question.bits} options."
    if question.kind == "number":
        return f"A number, reported as one of {question.bits} ranges."
    if question.kind == "cross":
        return f"Not asked: other answers determine which of {question.bits} cells is set."
    if question.takes_one:
        return f"One of {question.bits} options."
    return "Yes or no." if question.bits == 1 else f"Any of {question.bits} options."


def flip_in_words(q: float) -> str:
    """Return a flip probability for people.

    >>> flip_in_words(0.25), flip_in_words(2.09212e-05)
    ('0.25', '0.00002092, once in 47,798 bits')
    """
    if q >= 1e-3:
        return f"{q:.4g}"
    digits = 3 - math.floor(math.log10(q))
    return f"{q:.{digits}f}, once in {round(1 / q):,} bits"


def count_unit(estimates: Mapping[str, Any]) -> str:
    """Return what is counted: people, or the answers of people who may be in several crowds."""
    return "answers" if len(estimates["crowds"]) > 1 and not estimates["people"] else "people"


def sum_note(estimates: Mapping[str, Any]) -> list[str]:
    """Return a sentence about what a sum of crowds counts, if it is one."""
    note = note_on(len(estimates["crowds"]), estimates["people"])
    return [] if note is None else [note[0].upper() + note[1:]]


def release_note(plan: Plan) -> list[str]:
    """Return a sentence about what is released, if it is less than the reports."""
    if plan.view == "reports":
        return []
    each = "each bit of each cohort" if plan.cohorts else "each bit"
    alone = single_report(plan.local_epsilon, float(plan.q))
    return [
        f"This release holds how many reports set {each}, and nothing that links the bits of one"
        f" report. The noise was chosen for that. {alone or FAR_MORE}"
    ]
