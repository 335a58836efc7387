"""Every number the papers print, computed again: `shoal paper`.

Each module recomputes parts of one document and yields a `PaperFinding` for each statement:
`sdp` with `sdp_ratio` (SDP 1.3 to 3.3 and 6), `kr`, `lec` and `bitvec`. `figures` draws
the figures of the documents.

The printed text is data. Verdicts are computed, never written down:

* `number`: does the computed value round to the printed digits?
* `claim`: does the statement hold in every case tried? If not, and the statement that was meant
  does, it is a misprint; if nothing repairs it, it is a false claim.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any, Literal

from shoal.support.rounding import round_down, text_up
from shoal.theory.brackets import Bracket

_PARTS = ("sdp", "kr", "lec", "bitvec")


def findings() -> Iterator[PaperFinding]:
    """Yield the findings one by one, as they are computed."""
    for part in _PARTS:
        yield from importlib.import_module(f"shoal.lab.papers.{part}").findings()


Verdict = Literal["agrees", "misprint", "false claim"]


@dataclass(frozen=True)
class PaperFinding:
    """A statement of a document, what it should say, and whether the two agree."""

    source: str
    """Short name of the document: SDP, KR, LEC or BITVEC."""
    where: str
    printed: str
    computed: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Case:
    """One instance of a statement: what its two sides come to, and where."""

    at: str
    left: Any
    right: Any


def equal(left: Any, right: Any) -> bool:
    """Whether two sides are the same: exactly for fractions, to ten digits for floats.

    >>> equal(Fraction(1, 3), Fraction(2, 6)), equal(0.1 + 0.2, 0.3), equal(0.1, 0.2)
    (True, True, False)
    """
    if isinstance(left, float) or isinstance(right, float):
        return bool(abs(left - right) <= 1e-10 * max(1.0, abs(left), abs(right)))
    return bool(left == right)


def at_most(left: Any, right: Any) -> bool:
    """Whether the left side is at most the right one, up to the rounding of floats.

    >>> at_most(0.1 + 0.2, 0.3), at_most(Fraction(1, 2), Fraction(1, 3))
    (True, False)
    """
    return bool(left <= right) or equal(left, right)


def show(value: Any, digits: int = 3) -> str:
    """Write a number for people; a bracket as one number in the digits that its ends share.

    >>> show(0.196343), show(1.6e-13), show(189678.4)
    ('0.196', '1.6e-13', '190,000')
    >>> show(Bracket(0.0426, 0.0428)), show(Bracket(0.0426, 0.0528))
    ('0.043', '[0.0426, 0.0528]')
    """
    if isinstance(value, Bracket):
        for fewer in range(digits, 1, -1):
            low, high = show(value.low, fewer), show(value.high, fewer)
            if low == high:
                return low
        return f"[{round_down(value.low, digits):g}, {text_up(value.high, digits)}]"
    if isinstance(value, Fraction | float):
        rounded = float(f"{float(value):.{digits}g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.{digits}g}"
    return str(value)


def number(
    source: str,
    where: str,
    printed: str,
    computed: float | Bracket,
    otherwise: Callable[[], str],
    *,
    digits: str | None = None,
    up: bool = False,
    unit: str = "",
) -> PaperFinding:
    """Compare a printed number with its recomputation, in the digits it is printed in.

    Of a bracket both ends must say the same. `otherwise` explains a difference in one sentence.
    `digits` is the printed number as a decimal, where `printed` says it in words: "2E+5" for 200K.
    `up` allows rounding up, as for a q that must satisfy a condition.

    >>> number("SDP", "4.3", "0.465", 0.46540, lambda: "never asked").verdict
    'agrees'
    >>> number("SDP", "4.3", "0.466", 0.46540, lambda: "it is not").verdict
    'misprint'
    """
    target = Decimal(digits or printed)
    ends = computed if isinstance(computed, Bracket) else Bracket(computed, computed)
    answers = {_rounds_to(end, target, up) for end in ends}
    if len(answers) == 2 or (not any(answers) and ends.low < target < ends.high):
        raise ArithmeticError(f"{computed} is too wide to be compared with {printed}.")
    text = show(computed, 3 if isinstance(computed, Bracket) else 5) + unit
    if answers == {True}:
        nearest = all(_rounds_to(end, target, up=False) for end in ends)
        why = f"{text} rounds to it." if nearest else f"{text} rounded up."
        return PaperFinding(source, where, printed, text, "agrees", why)
    return PaperFinding(source, where, printed, text, "misprint", otherwise())


def _rounds_to(value: float, target: Decimal, up: bool) -> bool:
    ways = [ROUND_HALF_EVEN, ROUND_CEILING] if up else [ROUND_HALF_EVEN]
    return any(Decimal(value).quantize(target, way) == target for way in ways)


def claim(
    source: str,
    where: str,
    printed: str,
    cases: Iterable[Case],
    how: str,
    *,
    holds: Callable[[Any, Any], bool] = at_most,
    meant: Iterable[Case] = (),
    instead: str = "",
    why: Callable[[Case], str] | None = None,
) -> PaperFinding:
    """Judge a statement by its cases; `meant` are the cases of the statement as it was meant.

    `how` says how the cases were computed, `holds` is the relation that the statement asserts,
    `instead` is the repaired statement in words, and `why` explains the worst broken case.

    >>> claim("KR", "x", "1 <= 2", [Case("one", 1, 2)], "by hand.").verdict
    'agrees'
    >>> claim("KR", "x", "2 <= 1", [Case("one", 2, 1)], "by hand.").verdict
    'false claim'
    """
    tried = list(cases)
    broken = [case for case in tried if not holds(case.left, case.right)]
    if not tried:
        raise ValueError(f"{source} {where}: a claim needs at least one case.")
    if not broken:
        text = f"holds in {len(tried)} {'cases' if len(tried) > 1 else 'case'}"
        return PaperFinding(source, where, printed, text, "agrees", how)
    worst = max(broken, key=_size)
    left, right = show(worst.left), show(worst.right)
    text = f"{left} > {right}" if holds is at_most else f"{right}, not {left}"
    repaired = list(meant)
    is_misprint = bool(repaired) and all(holds(case.left, case.right) for case in repaired)
    reason = why(worst) if why else f"{worst.at}: {text}."
    if is_misprint:
        return PaperFinding(source, where, printed, instead or text, "misprint", reason)
    return PaperFinding(source, where, printed, text, "false claim", reason)


def _size(case: Case) -> float:
    """How badly a case is broken, where that is a number."""
    try:
        return abs(float(case.left) - float(case.right)) / (abs(float(case.right)) or 1.0)
    except (TypeError, ValueError):
        return 0.0
