"""Numbers and short sentences, written the same way on pages, in charts and in Markdown."""

from __future__ import annotations

import hashlib
import math
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.analysis.crowds import note_on
from shoal.planning.threats import single_report
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Flags, Number, Question
from shoal.support.rounding import text_near, text_up

SIMULATED = "simulated data"
"""Marks numbers that no real person is behind."""

FAR_MORE = "Anyone who sees single reports learns far more."

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
_DAY = 86_400


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


def number_text(value: float) -> str:
    """Write a number with about four digits, and commas between the thousands of a large one.

    >>> number_text(86_452.7), number_text(-2.5)
    ('86,450', '-2.5')
    """
    text = text_near(value)
    return f"{float(text):,.0f}" if abs(value) >= 10_000 and "e" not in text else text


def signed_points(difference: float) -> str:
    r"""Write a difference of shares in percentage points, with its sign.

    >>> signed_points(0.034), signed_points(0.0), signed_points(-0.1)
    ('+3.4', '0.0', '−10.0')
    """
    text = percent(difference).removesuffix(f"{THIN}%")
    return f"+{text}" if difference > 0 and any(digit in text for digit in "123456789") else text


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


class PlainShare(NamedTuple):
    """A possible share for people who know no statistics: its number, and how sure it is.

    The ends of its interval are moved outwards to contain the share where need be.
    """

    share: float
    low: float
    high: float
    decimals: int

    @property
    def number(self) -> str:
        return percent(self.share, self.decimals)

    @property
    def ends(self) -> tuple[str, str]:
        """The ends of the interval as percentages, rounded outwards, without a sign."""
        steps = 10 ** (self.decimals + 2)
        low, high = math.floor(self.low * steps + 1e-9), math.ceil(self.high * steps - 1e-9)
        return _digits(low / steps, self.decimals), _digits(high / steps, self.decimals)

    @property
    def is_unknown(self) -> bool:
        return self.low <= 0 and self.high >= 1

    @property
    def text(self) -> str:
        r"""The share and its interval, as short as is true.

        The symmetric form does not reach below 0 or above 100 %, and neither end is more than twice
        as far away as the other. Otherwise both ends are named, or the one that matters.

        >>> near = (.62, .59, .645), (.02, 0, .05), (.03, .02, .07), (0, 0, .03), (1, .97, 1)
        >>> for ends in near:
        ...     print(PlainShare(*ends, 0).text.replace("\u202f", " "))
        62 % ± 3
        2 % (0 to 5 %)
        3 % (2 to 7 %)
        at most 3 %
        at least 97 %
        >>> PlainShare(.3, 0, 1, 0).text
        'not known'
        """
        low, high = self.ends
        if self.is_unknown:
            return "not known"
        shown = _digits(self.share, self.decimals)
        if float(shown) == 0:
            return f"at most {high}{THIN}%"
        if float(shown) == 100:
            return f"at least {low}{THIN}%"
        middle = float(shown) / 100
        down, up = middle - self.low, self.high - middle
        margin = max(down, up, 10.0 ** -(self.decimals + 2))
        one_sided = min(down, up) * 2 < max(down, up) > 1.5 * 10.0 ** -(self.decimals + 2)
        if one_sided or margin > min(middle, 1 - middle):
            return f"{self.number} ({low} to {high}{THIN}%)"
        steps = 10 ** (self.decimals + 2)
        return f"{self.number} ± {_digits(math.ceil(margin * steps - 1e-9) / steps, self.decimals)}"

    @property
    def sentence(self) -> str:
        """The share and its interval in full, for a screen reader."""
        low, high = self.ends
        share = "not known" if self.is_unknown else self.number
        return f"{share}, interval from {low}{THIN}% to {high}{THIN}%"


def _digits(share: float, decimals: int) -> str:
    return f"{share * 100:.{decimals}f}"


def share_digits(intervals: Iterable[tuple[float, float]]) -> int:
    """Return how many decimals of a percentage the widest interval leaves meaningful."""
    widths = (min(high, 1.0) - max(low, 0.0) for low, high in intervals)
    widest = max((width for width in widths if width < 1), default=1.0) / 2
    return min(max(math.ceil(-math.log10(max(widest * 100, 1e-9))), 0), 4)


def plain_shares(
    shares: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    decimals: int | None = None,
    *,
    adds_up: bool,
) -> list[PlainShare]:
    """Round the possible shares of a question's options, by default as `share_digits` says.

    Shares that add to one also do so as printed (largest remainders).

    >>> thirds = plain_shares([1 / 3] * 3, [(0.3, 0.36)] * 3, adds_up=True)
    >>> [one.number.replace("\u202f", "") for one in thirds]
    ['34%', '33%', '33%']
    """
    digits = share_digits(intervals) if decimals is None else decimals
    printed = list(shares)
    if adds_up:
        steps = 10 ** (digits + 2)
        printed = [step / steps for step in _apportioned(shares, steps)]
    ends = [(min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)) for low, high in intervals]
    return [
        PlainShare(share, min(low, share), max(high, share), digits)
        for share, (low, high) in zip(printed, ends, strict=True)
    ]


def option_shares(
    question: Question, rows: Mapping[str, Mapping[str, Any]], reports: int
) -> dict[str, PlainShare]:
    """Return the possible share of each option, from the JSON of estimates."""
    shares = [row["constrained"] / reports for row in rows.values()]
    ends = [(row["low"] / reports, row["high"] / reports) for row in rows.values()]
    found = plain_shares(shares, ends, adds_up=question.takes_one)
    return dict(zip(rows, found, strict=True))


def shown_labels(question: Question, labels: Iterable[str]) -> dict[str, str]:
    """Return what people read in place of labels; a curator adds that of blank cells as it is."""
    words = dict(zip(question.labels, question.shown_labels, strict=True))
    return {label: words.get(label, label) for label in labels}


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
    if isinstance(question, Number):
        of = f" of {question.unit}" if question.unit else ""
        parts = "points" if question.grid else "ranges"
        count = question.bits - bool(question.missing)
        return f"A number{of}, reported as one of {count} {parts}."
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


def count_text(row: Mapping[str, Any], reports: int) -> str:
    """Return a count with its interval, rounded outwards, as short as is true.

    >>> count_text({"constrained": 1240.2, "low": 1230.9, "high": 1249.1}, 10_000)
    '1,240 ± 10'
    >>> count_text({"constrained": 3.0, "low": -20.0, "high": 30.0}, 10_000)
    '0 to 30'
    """
    low, high = max(math.floor(row["low"]), 0), min(math.ceil(row["high"]), reports)
    if row.get("incompatible") or (low <= 0 and high >= reports):
        return "not known"
    count = round(row["constrained"])
    low, high = min(low, count), max(high, count)
    margin = max(count - low, high - count)
    if count - margin < 0 or count + margin > reports:
        return f"{low:,} to {high:,}"
    return f"{count:,} ± {margin:,}"


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


def window_in_words(plan: Plan, window: int) -> str:
    """Return the days of a window, or its hours if it does not begin and end at midnight."""
    if plan.window is None:
        return "no window"
    first, last = window * plan.window, (window + 1) * plan.window
    if first % _DAY == 0 == last % _DAY:
        days = [_utc("%Y-%m-%d", first), _utc("%Y-%m-%d", last - _DAY)]
        return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    same = _utc("%Y-%m-%d", first) == _utc("%Y-%m-%d", last)
    end = _utc("%H:%M" if same else "%Y-%m-%d %H:%M", last)
    return f"{_utc('%Y-%m-%d %H:%M', first)} to {end} UTC"


def _utc(style: str, seconds: int) -> str:
    return time.strftime(style, time.gmtime(seconds))


def crowd_name(plan: Plan, crowd: Mapping[str, Any]) -> str:
    """Return the display name of a crowd: its number, and its window as dates."""
    number = f"crowd {crowd['name']}"
    return number if plan.window is None else f"{number}, {window_in_words(plan, crowd['window'])}"


def unreadable_note(unreadable: int) -> str:
    """Describe the reports that an analyzer could not read."""
    return f"{unreadable:,} reports could not be read, and are not counted."


def slug(name: str) -> str:
    """Return the part of an address that stands for a name: itself if it can, or else hashed.

    >>> slug("browser"), slug("Füße & Co")
    ('browser', 'fue-co-fd5da706')
    """
    if re.fullmatch("(?!(.*-)?[0-9a-f]{8}$)[a-z0-9]+(-[a-z0-9]+)*", name) and len(name) <= 60:
        return name
    return _hashed(name)


def short_slugs(names: Iterable[str]) -> dict[str, str]:
    """Return short addresses of names; those that would have the same one are hashed."""
    letters = {name: _letters(name) for name in names}
    count = Counter(letters.values())
    return {
        name: short if short and count[short] == 1 else _hashed(name)
        for name, short in letters.items()
    }


def _hashed(name: str) -> str:
    return f"{_letters(name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")


def _letters(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain)[:40].strip("-")


# Tables as templates show them

_LAYOUTS = {7: "slim", 11: "broad"}
"""Classes of a matrix with up to so many columns: where they have room side by side."""


class TableRow(NamedTuple):
    """A row of a table: its label, its cells, and a note below the label."""

    label: str
    cells: Sequence[Any]
    note: str = ""


class Table(NamedTuple):
    """A table with a caption; the first of the heads is that of the labels."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[TableRow]


class Cell(NamedTuple):
    """A number of a matrix with its interval, and how dark it is."""

    value: str
    interval: str = ""
    shade: int | None = None


class Matrix(NamedTuple):
    """Rows and columns of names; the first of the heads is that of the rows."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[TableRow]

    @property
    def layout(self) -> str:
        """The class that says how much room its columns need; more than eleven never have it."""
        columns = len(self.heads) - 1
        return next((name for most, name in _LAYOUTS.items() if columns <= most), "stacked")
