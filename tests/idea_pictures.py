"""The pictures of ideas and of trust models, with numbers that Shoal computes.

`python -m tests.idea_pictures` writes them to docs/pictures.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
from bench.svg import PICTURES, Drawing, Scheme, bars, write
from scipy.stats import binom

import shoal
from shoal import Flags, Plan, Survey, randomize
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.planning.costs import Comparison, compare

FEATURES = ("sync", "dark mode", "reader", "vpn", "notes")
SURVEY = Survey("browser", (Flags("features", FEATURES),))
PEOPLE = 10_000
EPSILON, DELTA = "1", "1e-6"


@cache
def planned(view: str = "reports") -> Plan:
    return shoal.plan(SURVEY, crowd_size=PEOPLE, epsilon=EPSILON, delta=DELTA, view=view)  # type: ignore[arg-type]


@cache
def compared() -> Comparison:
    return compare(SURVEY, crowd_size=PEOPLE, epsilon=EPSILON, delta=DELTA)


def flip(scheme: Scheme) -> Drawing:
    """An answer on the device, and the report that leaves it."""
    plan = planned()
    answer = ("sync", "reader")
    report = randomize(plan, {"features": list(answer)}, random_bits=SimulationBits(6))
    sent = report.value
    drawing = Drawing(190, scheme, "A device flips some bits of its answer")
    for index, name in enumerate(FEATURES):
        x = 92 + 78 * index
        bit = name in answer
        after = bool(sent >> index & 1)
        drawing.text(x + 32, 16, name, anchor="middle", size=13, color="quiet")
        for y, value in ((30, bit), (112, after)):
            flipped = y > 100 and after != bit
            edge = "alarm" if flipped else None
            drawing.box(x, y, 64, 38, fill="accent" if value else "wash", stroke=edge)
            drawing.text(x + 32, y + 25, str(int(value)), anchor="middle", size=17, bold=True,
                         color="wash" if value else "ink")  # fmt: skip
        changed = after != bit
        drawing.text(x + 32, 96, "flipped" if changed else "kept", anchor="middle", size=12,
                     color="alarm" if changed else "quiet", bold=changed)  # fmt: skip
    drawing.text(0, 54, "answer", bold=True)
    drawing.text(0, 136, "report", bold=True)
    drawing.caption(
        180, f"Each bit is flipped with probability {float(plan.q):.3f}. Only the report leaves."
    )
    return drawing


def crowd(scheme: Scheme) -> Drawing:
    """The law of a count with one person's yes and with a no: hardly apart."""
    q = float(planned().q)
    people, others = 1000, 300
    counts = np.arange(people + 1)

    def law(yes: int) -> np.ndarray:
        flipped = np.convolve(binom.pmf(counts[: yes + 1], yes, 1 - q),
                              binom.pmf(counts[: people - yes + 1], people - yes, q))  # fmt: skip
        return np.asarray(flipped)

    no, yes = law(others), law(others + 1)
    centre = int(np.argmax(no))
    shown = range(centre - 45, centre + 47)
    drawing = Drawing(214, scheme, "The count of a crowd, whether Ada says yes or no")
    top = max(no.max(), yes.max())

    def curve(values: np.ndarray) -> list[tuple[float, float]]:
        return [
            (20 + 440 * (n - shown[0]) / (len(shown) - 1), 164 - 130 * values[n] / top)
            for n in shown
        ]

    drawing.text(0, 14, f"How many of {people:,} reports say “sync”", bold=True)
    drawing.line(curve(no), color="quiet", width=3)
    drawing.line(curve(yes), color="accent", width=2, dashes="7 4")
    drawing.line([(20, 164), (460, 164)], color="rule", width=1)
    for n in (centre - 40, centre, centre + 40):
        drawing.text(
            20 + 440 * (n - shown[0]) / (len(shown) - 1),
            182,
            f"{n}",
            anchor="middle",
            size=12,
            color="quiet",
        )
    drawing.text(330, 60, "Ada says no", size=13, color="quiet")
    drawing.text(330, 80, "Ada says yes", size=13, color="accent", bold=True)
    share = 1 - 0.5 * float(np.abs(no - yes).sum())
    drawing.caption(
        206, f"The two curves share {math.floor(1000 * share) / 10:.1f} % of their area."
    )
    return drawing


def estimate(scheme: Scheme) -> Drawing:
    """What is counted, what is estimated, and the truth, of a simulated crowd."""
    plan = planned()
    run = shoal.simulate(plan, users=PEOPLE, seed=4)
    counted = run.estimates.tally.by_bit
    most = 1.02 * float(max(counted))
    drawing = Drawing(62 + 44 * len(FEATURES), scheme, "The flips are taken out of the counts")

    def at(number: float) -> float:
        return 84 + 380 * max(number, 0) / most

    for index, name in enumerate(FEATURES):
        y = 10 + 44 * index
        one = run.estimates["features"][name]
        interval = one.interval(0.95)
        drawing.text(0, y + 20, name, size=13)
        drawing.box(84, y, at(float(counted[index])) - 84, 12, fill="rule")
        drawing.box(84, y + 14, at(one.count) - 84, 14, fill="accent")
        drawing.line(
            [(at(interval.low), y + 21), (at(interval.high), y + 21)], color="ink", width=2
        )
        truth = at(run.true_count("features", name))
        drawing.line([(truth, y + 10), (truth, y + 32)], color="alarm", width=3)
    y = 24 + 44 * len(FEATURES)
    legend = {
        0: ("rule", "reports that say so"),
        160: ("accent", "estimate, 95 % interval"),
        350: ("alarm", "truth (simulated)"),
    }
    for x, (color, words) in legend.items():
        drawing.box(x, y, 12, 12, fill=color, radius=2)
        drawing.text(x + 18, y + 11, words, size=12, color="quiet")
    return drawing


def views(scheme: Scheme) -> Drawing:
    """The guarantee against each observer, with a relay and an analyzer."""
    plan = shoal.plan(
        SURVEY,
        crowd_size=PEOPLE,
        epsilon=EPSILON,
        delta=DELTA,
        relay="https://relay.example",
        analyzer="https://analyzer.example",
    )
    local = f"{math.ceil(10 * plan.local_epsilon) / 10:.1f}"
    drawing = Drawing(206, scheme, "Observers, and the guarantee against each")
    boxes = (
        ("device", "the answer", "stays here"),
        ("relay", "who, encrypted", "no answer"),
        ("analyzer", "no names", f"ε = {EPSILON}"),
        ("reader", "the counts", f"ε = {EPSILON}"),
    )
    for index, (who, sees, holds) in enumerate(boxes):
        x = 124 * index
        drawing.box(x, 30, 108, 84, stroke="rule")
        drawing.text(x + 54, 52, who, anchor="middle", bold=True)
        drawing.text(x + 54, 74, sees, anchor="middle", size=12, color="quiet")
        drawing.text(x + 54, 100, holds, anchor="middle", size=14, color="accent", bold=True)
        if index:
            drawing.arrow(x - 15, 72, x - 1)
    drawing.line([(124, 132), (124, 140), (356, 140), (356, 132)], color="alarm")
    together = f"relay and analyzer together: only the local ε = {local}"
    drawing.text(240, 160, together, anchor="middle", size=13, color="alarm", bold=True)
    drawing.text(0, 14, "What each observer sees, and the guarantee against it", bold=True)
    drawing.caption(
        196, f"{len(FEATURES)} flags, {PEOPLE:,} people, δ = {DELTA}. A small ε reveals little."
    )
    return drawing


def trust(scheme: Scheme) -> Drawing:
    """How far a count is off, for each trust model."""
    costs = compared()
    kinds = {
        "local": "trust no one",
        "proven": "anonymized reports",
        "counts": "only counts are seen",
        "curator": "a curator sees all",
    }
    sigmas = {kind: costs[kind].sigma or 0.0 for kind in kinds}
    rows = [(words, sigmas[kind], f"± {sigmas[kind]:.3g} people") for kind, words in kinds.items()]
    drawing = Drawing(64 + 34 * len(rows), scheme, "The cost of trust")
    drawing.text(0, 14, "How far a count is off (one σ), by whom you trust", bold=True)
    bars(drawing, rows, position=lambda sigma: 190 * math.log10(sigma) / math.log10(rows[0][1]),
         top=30, main={kinds["proven"], kinds["counts"]})  # fmt: skip
    asked = f"{len(FEATURES)} flags, {PEOPLE:,} people, ε = {EPSILON}, δ = {DELTA}"
    drawing.caption(56 + 34 * len(rows), f"{asked}; logarithmic scale")
    return drawing


MODELS_PAGE = Path(__file__).parent.parent / "docs" / "trust-models.md"
MODELS_PEOPLE, MODELS_DELTA = 20_000, "1e-9"


@cache
def models_survey() -> Survey:
    """The survey that the page about trust models shows."""
    found = re.search(r"```toml\n(.*?)```", MODELS_PAGE.read_text("utf-8"), re.S)
    assert found is not None
    return Survey.from_toml(found[1])


@cache
def models_compared() -> Comparison:
    wish = {"crowd_size": MODELS_PEOPLE, "epsilon": EPSILON, "delta": MODELS_DELTA}
    return compare(models_survey(), **wish)  # type: ignore[arg-type]


@cache
def models_local_epsilon(view: str) -> str:
    """The local epsilon of a report of a plan in a view, rounded up."""
    wish = {"crowd_size": MODELS_PEOPLE, "epsilon": EPSILON, "delta": MODELS_DELTA, "view": view}
    return str(math.ceil(shoal.plan(models_survey(), **wish).local_epsilon))  # type: ignore[arg-type]


Party = tuple[str, str, str, str]
"""A name, two lines of what it does and sees, and the guarantee against it."""

TRUSTED = "trusted"
KEPT = "the answer stays"
HOLDS = f"ε = {EPSILON}"


MODELS: dict[str, tuple[str, str, list[Party]]] = {
    "curator": ("A trusted curator", "curator", [
        ("people", "give you", "their answers", ""),
        ("curator (you)", "sees every answer,", "adds noise once", TRUSTED),
        ("reader", "sees", "noisy results", HOLDS),
    ]),
    "collector": ("A collector that only counts", "counts", [
        ("device", "flips", "a few bits", KEPT),
        ("collector", "sees each report,", "keeps counts", f"{TRUSTED}: ε = COUNTS"),
        ("reader", "sees", "counts", HOLDS),
    ]),
    "relay": ("A relay and an analyzer", "proven", [
        ("device", "flips bits,", "encrypts", "answer stays"),
        ("relay", "sees senders,", "cannot read", "no answer"),
        ("analyzer", "sees reports,", "not whose", HOLDS),
        ("reader", "sees", "counts", HOLDS),
    ]),
    "local": ("A local promise", "local", [
        ("device", "flips nearly", "half of the bits", KEPT),
        ("collector", "sees each report", "and its sender", HOLDS),
        ("reader", "sees", "counts", HOLDS),
    ]),
}  # fmt: skip
"""The title of each picture, whose noise it names, and the parties."""


def model(name: str, scheme: Scheme) -> Drawing:
    """Draw the parties from the people to the reader; those that must be trusted stand out."""
    title, kind, parties = MODELS[name]
    note = ""
    if name == "relay":
        note = f"Relay and analyzer together: only ε = {models_local_epsilon('reports')}."
    cost = models_compared()[kind]
    drawing = Drawing(198 if note else 172, scheme, title)
    drawing.text(0, 14, title, bold=True)
    gap = 20
    width = (480 - gap * (len(parties) - 1)) / len(parties)
    for index, (who, first, second, holds) in enumerate(parties):
        x, alarm = (width + gap) * index, holds.startswith(TRUSTED)
        middle = x + width / 2
        drawing.box(x, 28, width, 102, stroke="alarm" if alarm else "rule")
        drawing.text(middle, 50, who, anchor="middle", bold=True)
        for y, words in ((72, first), (89, second)):
            drawing.text(middle, y, words, anchor="middle", size=13, color="quiet")
        if "COUNTS" in holds:
            holds = holds.replace("COUNTS", models_local_epsilon("counts"))
        drawing.text(middle, 116, holds, anchor="middle", size=13, bold=True,
                     color="alarm" if alarm else "accent")  # fmt: skip
        if index:
            drawing.arrow(x - gap + 2, 79, x - 2)
    if note:
        drawing.text(0, 152, note, size=13, color="alarm", bold=True)
    people = cost.people_needed or 0
    drawing.caption(
        192 if note else 166,
        f"Of {MODELS_PEOPLE:,} people, a count is off by ± {cost.sigma:,.0f} (σ)."
        f" People needed: {people:,}.",
    )
    return drawing


IDEAS: dict[str, Callable[[Scheme], Drawing]] = {
    "flip": flip,
    "crowd": crowd,
    "estimate": estimate,
    "views": views,
    "trust": trust,
    **{name: partial(model, name) for name in MODELS},
}


def write_all(folder: Path = PICTURES) -> None:
    for name, draw in IDEAS.items():
        write(f"idea-{name}", draw, folder)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
