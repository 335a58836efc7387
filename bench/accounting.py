"""Published bounds and cells for shuffled reports beside ours: docs/accounting.md."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import published_bounds as published
from bench.measuring import Options, Table
from bench.reporting import markdown
from bench.svg import Drawing, Scheme, write
from shoal import Choice, Survey, plan
from shoal.theory import Bound, aggregated, shuffled
from shoal.theory.channel import Channel, flags, k_ary, unary
from shoal.theory.counts.profile import bit_profile

HERE = Path(__file__).parent
RESULTS = HERE / "accounting.json"
PAGE = HERE.parent / "docs" / "accounting.md"
_BEGIN, _END = "<!-- written by python -m bench --only accounting -->", "<!-- end -->"

_TEXT = (
    "Epsilon of the shuffled reports at the cell's delta; smaller is better. *Theirs* is a number"
    " that the authors printed or stored with their code (P), or their formula evaluated by us (F)."
    " *Proven* and *attack* are the two ends of our bracket: no epsilon below the attack can hold,"
    " so a published number below it is wrong. The time is that of our bracket, in seconds of one"
    " processor."
)


@dataclass(frozen=True)
class PublishedCell:
    """One published number, and what of ours answers the same question."""

    source: str
    name: str
    delta: float
    theirs: Callable[[], float] | float | None
    """A stored number, a formula, or nothing where the source gives none."""
    ours: Callable[[], Bound]


def rappor(options: int, local: float) -> Channel:
    """Return one-hot reports of which each bit is flipped: RAPPOR with its whole local epsilon."""
    q = 1 / (1 + math.exp(local / 2))
    return unary(options, 1 - q, q)


def _epsilon(curve: published.Curve, delta: float, local: float) -> Callable[[], float]:
    return lambda: published.epsilon_of(curve, delta, local)


def _balle(name: str, k: int, inequality: Callable[..., float]) -> PublishedCell:
    local, n, delta = 0.4, 5000, 1e-6

    def curve(epsilon: float) -> float:
        return inequality(published.k_ary_moments(k, local, epsilon), n, epsilon)

    cell = f"{k}-RR, eps_0 .4, n 5,000 ({name})"
    theirs = _epsilon(curve, delta, local)
    return PublishedCell(
        "Balle et al. 2019", cell, delta, theirs, lambda: shuffled(k_ary(k, local), n)
    )


def _koskela(exponent: float, rounds: int, theirs: float) -> PublishedCell:
    # Each report of 4-RR is a uniform draw with probability 1/4.
    cell = f"4-RR, e^eps_0 13, n 1,000, {rounds} time{'s' if rounds > 1 else ''}"

    def ours() -> Bound:
        return shuffled(k_ary(4, math.log(13)), 1000).compose(rounds)

    return PublishedCell("Koskela et al. 2023", cell, 10**exponent, theirs, ours)


def _formula(source: str, name: str, curve: Any, k: int, local: float, n: int) -> PublishedCell:
    theirs = _epsilon(curve, 1e-6, local)
    cell = f"{k}-RR, eps_0 {local:g}, n {n:,} ({name})"
    return PublishedCell(source, cell, 1e-6, theirs, lambda: shuffled(k_ary(k, local), n))


def cells() -> list[PublishedCell]:
    """Return the cells, in the order of the table."""
    two = lambda: shuffled(k_ary(2, 4.0), 10**5)  # noqa: E731
    feldman, stronger, wang = "Feldman et al. 2021", "Feldman et al. 2023", "Wang et al. 2024"
    half = math.tanh(0.25)
    return [
        _balle("Hoeffding", 2, published.hoeffding),
        _balle("Bennett", 2, published.bennett),
        _balle("Hoeffding", 100, published.hoeffding),
        _balle("Bennett", 100, published.bennett),
        PublishedCell(
            feldman, "2-RR, eps_0 4, n 100,000 (closed form)", 1e-6, 0.5378040242374512, two
        ),
        PublishedCell(
            feldman, "2-RR, eps_0 4, n 100,000 (numerical)", 1e-6, 0.172790550755978, two
        ),
        _formula(feldman, "clones", published.clones(2.0, 10**4), 10, 2.0, 10**4),
        _formula(stronger, "stronger clones", published.stronger_clones(4.0, 10**5), 2, 4.0, 10**5),
        _formula(
            stronger, "stronger clones", published.stronger_clones(2.0, 10**4), 10, 2.0, 10**4
        ),
        PublishedCell(
            stronger,
            "10-RR, eps_0 2, n 10,000 (closed form)",
            1e-6,
            lambda: published.stronger_clones_closed_form(2.0, 10**4, 1e-6),
            lambda: shuffled(k_ary(10, 2.0), 10**4),
        ),
        _formula(
            wang,
            "variation ratio",
            published.variation_ratio(2.0, 10**4, math.expm1(2) / (math.exp(2) + 9)),
            10,
            2.0,
            10**4,
        ),
        PublishedCell(
            wang,
            "RAPPOR, one of 10, eps_0 1, n 1,000",
            1e-6,
            _epsilon(published.variation_ratio(1.0, 1000, half), 1e-6, 1.0),
            lambda: shuffled(rappor(10, 1.0), 1000),
        ),
        PublishedCell(
            wang,
            "RAPPOR, one of 3, e^eps_0 9/4, n 2",
            0.0128,
            _epsilon(
                published.variation_ratio(math.log(2.25), 2, 0.2), 0.0128 + 1e-12, math.log(2.25)
            ),
            lambda: shuffled(rappor(3, math.log(2.25)), 2),
        ),
        PublishedCell(
            wang,
            "4-RR, e^eps_0 4, n 3",
            0.0743,
            _epsilon(published.variation_ratio(math.log(4), 3, 3 / 7), 0.0743, math.log(4)),
            lambda: shuffled(k_ary(4, math.log(4)), 3),
        ),
        PublishedCell(
            "Su et al. 2025",
            "RAPPOR, one of 10, eps_0 1, n 1,000",
            1e-6,
            0.105882,
            lambda: shuffled(rappor(10, 1.0), 1000),
        ),
        *(
            _koskela(exponent, rounds, theirs)
            for exponent, rounds, theirs in [
                (-4, 1, 0.38951635360717773),
                (-5.5, 1, 0.5191445350646973),
                (-7, 1, 0.6296396255493164),
                (-5.5, 4, 1.0845065116882324),
                (-5.5, 16, 2.311873435974121),
            ]
        ),
        PublishedCell(
            "draft-wang-ppm-dp",
            "sums of 10 flags, q .1, n 10,000",
            1e-6,
            None,
            lambda: aggregated(flags(10, 0.1), 10**4),
        ),
    ]


def row_of(cell: PublishedCell) -> list[Any]:
    """Return a row of the table: their number, our bracket, the time, and whether theirs holds."""
    theirs = cell.theirs() if callable(cell.theirs) else cell.theirs
    for remembered in (flags, k_ary, unary, bit_profile):
        remembered.cache_clear()  # a cell may be the one of the row before
    start = time.process_time()
    ours = cell.ours().epsilon(cell.delta)
    seconds = time.process_time() - start
    if theirs is None:
        kind, words = "", "gives none"
    else:
        kind = " (F)" if callable(cell.theirs) else " (P)"
        words = "**below the truth**" if theirs < ours.low else "holds"
        if theirs >= ours.low and theirs < ours.high:
            words = "undecided"
    return [
        cell.source,
        cell.name,
        f"{cell.delta:.3g}",
        "none" if theirs is None else f"{theirs:.6f}{kind}",
        words,
        f"{math.ceil(ours.high * 1e6) / 1e6:.6f}",
        f"{math.floor(ours.low * 1e6) / 1e6:.6f}",
        f"{seconds:.2f} s",
    ]


def measure(options: Options) -> Table:
    """Evaluate every cell."""
    columns = ["source", "cell", "delta", "theirs", "theirs is", "proven", "attack", "time"]
    rows: list[Sequence[Any]] = [row_of(cell) for cell in cells()]
    return Table("Cells", columns, rows, _TEXT, best=False)


_SIZES = [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]


def curves() -> dict[str, list[float]]:
    """Return epsilon over n of every method, for 10-RR with eps_0 2 and delta 1e-6."""
    k, local, delta = 10, 2.0, 1e-6
    ratio = math.expm1(local) / (math.exp(local) + k - 1)
    methods: dict[str, Callable[[int], float]] = {
        "clones, closed form": lambda n: published.clones_closed_form(local, n, delta),
        "stronger clones, closed": lambda n: published.stronger_clones_closed_form(local, n, delta),
        "blanket, Hoeffding": lambda n: published.epsilon_of(
            lambda e: published.hoeffding(published.k_ary_moments(k, local, e), n, e), delta, local
        ),
        "blanket, Bennett": lambda n: published.epsilon_of(
            lambda e: published.bennett(published.k_ary_moments(k, local, e), n, e), delta, local
        ),
        "clones": lambda n: published.epsilon_of(published.clones(local, n), delta, local),
        "stronger clones": lambda n: published.epsilon_of(
            published.stronger_clones(local, n), delta, local
        ),
        "variation ratio": lambda n: published.epsilon_of(
            published.variation_ratio(local, n, ratio), delta, local
        ),
        "ours, proven": lambda n: shuffled(k_ary(k, local), n).epsilon(delta).high,
        "ours, attack": lambda n: shuffled(k_ary(k, local), n).epsilon(delta).low,
    }
    return {name: [method(n) for n in _SIZES] for name, method in methods.items()}


_DATA = {"RFID": (75_128, 4), "localization": (164_860, 11), "census": (602_325, 915)}
"""Data sets of Murakami et al. 2025: people and possible answers."""


def _flips(people: int, answers: int, epsilon: str, delta: str) -> float:
    """Return the variance of a count when devices flip bits and a leader and helper add them up."""
    survey = Survey("s", (Choice("answer", tuple(map(str, range(answers)))),))
    agreed = plan(
        survey,
        crowd_size=people,
        epsilon=epsilon,
        delta=delta,
        view="counts",
        window="1w",
        leader="https://leader.example",
        helper="https://helper.example",
    )
    q = float(agreed.q)
    return people * q * (1 - q) / (1 - 2 * q) ** 2


def geometric_variance(epsilon: float) -> float:
    """Return the variance of two-sided geometric noise of that epsilon for a count."""
    decay = math.exp(-epsilon)
    return 2 * decay / (1 - decay) ** 2


def squared_errors() -> Table:
    """Return the expected squared error of all frequencies: flips, and noise of the parties."""
    rows: list[Sequence[Any]] = []
    geometric = geometric_variance(0.5)
    for name, (people, answers) in _DATA.items():
        flips = _flips(people, answers, "1", "1e-12")
        errors = [answers * one / people**2 for one in (geometric, 2 * geometric, flips)]
        rows.append([name, f"{people:,}", f"{answers:,}", *(f"{error:.2e}" for error in errors)])
    columns = ["data", "people", "answers", "shuffler's dummies", "both parties' noise", "flips"]
    text = (
        "Expected squared error, summed over all frequencies, at epsilon 1 and delta 1e-12."
        " The first column is the model of Murakami et al. 2025, evaluated by us: a shuffler adds"
        " dummies whose number is two-sided geometric, with epsilon / 2 in each of the two counts"
        " that an answer changes; everyone trusts the shuffler to add them. In the second a leader"
        " and a helper each add such noise: the promise holds if one of them is honest. In the"
        " third devices flip bits, and no party has to add noise; the promise holds if leader and"
        " helper do not share what they see."
    )
    return Table("Frequencies of one answer", columns, rows, text, best=False)


def save(table: Table) -> None:
    """Store the table and the curves, and write the page and its picture."""
    found = {"cells": asdict(table), "errors": asdict(squared_errors()), "curves": curves()}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    report()


def report() -> None:
    """Write the tables of the page and the picture from what is stored."""
    found = json.loads(RESULTS.read_text("utf-8"))
    PAGE.write_text(page(PAGE.read_text("utf-8"), found), "utf-8")
    write("accounting", lambda scheme: picture(found["curves"], scheme))


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with the stored tables in it."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    tables = "\n".join(markdown(found[name]) for name in ("cells", "errors"))
    return f"{before}{_BEGIN}\n{tables}{_END}{after}"


_COLORS = {
    "ours, proven": ("accent", 2.5),
    "ours, attack": ("accent", 2.5),
    "variation ratio": ("alarm", 1.0),
}


def picture(found: dict[str, list[float]], scheme: Scheme) -> Drawing:
    """Draw epsilon over n, both on logarithmic scales."""
    drawing = Drawing(380, scheme, "Epsilon over the number of people, for every method")
    left, right, top, bottom = 44.0, 266.0, 24.0, 320.0
    low, high = 0.005, 2.0

    def x(n: float) -> float:
        return left + (right - left) * math.log(n / _SIZES[0]) / math.log(_SIZES[-1] / _SIZES[0])

    def y(epsilon: float) -> float:
        return bottom - (bottom - top) * math.log(epsilon / low) / math.log(high / low)

    drawing.text(0, 12, "epsilon", size=12, color="quiet")
    for tick in (0.01, 0.1, 1.0):
        drawing.line([(left, y(tick)), (right, y(tick))], color="rule", width=1)
        drawing.text(left - 6, y(tick) + 4, f"{tick:g}", size=12, color="quiet", anchor="end")
    for n in (1000, 10_000, 100_000, 1_000_000):
        drawing.text(x(n), bottom + 18, f"{n:,}", size=12, color="quiet", anchor="middle")
    drawing.text(right, bottom + 34, "people", size=12, color="quiet", anchor="end")
    place = bottom + 14
    for value, name in sorted((values[-1], name) for name, values in found.items()):
        color, weight = _COLORS.get(name, ("quiet", 1.2))
        points = [(x(n), y(epsilon)) for n, epsilon in zip(_SIZES, found[name], strict=True)]
        dashes = "4 3" if name == "ours, attack" else None
        drawing.line(points, color=color, width=weight, dashes=dashes)
        # a thin line leads from the end of each curve to its name
        place = min(place - 18, y(value))
        drawing.line([(right + 2, y(value)), (right + 34, place)], color="rule", width=1)
        words = name + (" (no bound)" if name == "variation ratio" else "")
        drawing.text(right + 38, place + 4, words, size=12, color=color if weight > 2 else "ink",
                     bold=weight > 2)  # fmt: skip
    drawing.caption(372, "10-ary randomized response, eps_0 = 2, delta = 1e-6.")
    return drawing
