"""Edits of a plan: less protection that passes, permanent flips drawn again, windows left out."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal import Flags, Plan, Survey
from shoal.cli import run as cli
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import OriginalVector
from shoal.device.ledger import Ledger
from shoal.device.memory import DeviceMemory
from shoal.planning.memory import parse_horizon, releases_in_a_year
from shoal.planning.plan_diff import plan_diff
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Memory, Parties, Promise
from shoal.support.disk import Disk

from . import oracle, worlds
from .judging import Claim, at_least, at_most, equal
from .worlds import World

DAY = 86_400
WINDOWS = (None, None, 3600, 7200, DAY, 7 * DAY, 1_000_000)
NONE, INFINITE = Fraction(0), Fraction(10**30)


@dataclass(frozen=True)
class Draft:
    """The fields of a plan that an edit may change; q1 is 0 without memory."""

    world: World
    q1: Fraction
    q2: Fraction
    window: int | None
    reports: int
    crowd: int | None
    epsilon: str
    delta: str
    view: Any = "reports"
    parties: bool = False
    honest: str | None = None

    @property
    def q(self) -> Fraction:
        """The flip probability of one report."""
        return self.q1 + self.q2 - 2 * self.q1 * self.q2

    @property
    def releases(self) -> int:
        """Windows that a year of 366 days touches from the last second of a window on."""
        if self.window is None:
            return 1
        return (self.window - 1 + 366 * DAY - 1) // self.window + 1

    def plan(self) -> Plan:
        """The plan with these fields."""
        promise = Promise("local", "999")
        if self.crowd is not None:
            promise = Promise("proven", self.epsilon, delta=self.delta)
        layers = [FlipProbability.of_fraction(q) for q in (self.q1, self.q2) if q]
        return Plan(
            self.world.survey,
            FlipProbability.of_fraction(self.q),
            promise,
            self.crowd,
            self.reports,
            window=self.window,
            memory=Memory(*layers) if self.q1 else None,
            honest_fraction=self.honest,
            view=self.view,
            parties=self._parties() if self.has_parties else None,
        )

    @property
    def has_parties(self) -> bool:
        """Whether there are two parties; those of counts need a window."""
        fits = self.view == "reports" or self.window is not None
        return self.parties and self.crowd is not None and fits

    def _parties(self) -> Parties | Aggregators:
        ends = ("https://first.example", "https://second.example")
        return Parties(*ends) if self.view == "reports" else Aggregators(*ends, self.world.bits)

    def costs(self, raised: bool = False) -> dict[str, tuple[Fraction, Fraction]]:
        """Lower and upper ends of what is revealed without a crowd, from the definitions.

        With `raised`, of flips that are more frequent by one unit of rounding.
        """
        q1, q2 = (self._raised(q) if raised else q for q in (self.q1, self.q2))
        q, year = q1 + q2 - 2 * q1 * q2, self.releases * self.reports
        differ, bits = self.world.distance, self.world.bits

        def price(size: int, flips: Fraction) -> tuple[Fraction, Fraction]:
            low, high = oracle.log_of((1 - flips) / flips)
            return size * low, size * high

        def times(count: int, ends: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
            return count * ends[0], count * ends[1]

        one = price(differ, q)
        if not q1:
            ever = times(self.reports, one) if self.window is None else (INFINITE, INFINITE)
            return {
                "one report": one,
                "a year of reports": times(year, one),
                "a year of reports, with times": times(year, one),
                "all reports of one answer": ever,
            }
        faded = (q2 / (1 - q2)) ** min(year, 400)  # beyond that it is below all digits
        low, high = oracle.log_of((1 - q1 + q1 * faded) / (q1 + (1 - q1) * faded))
        later = times(year - 1, price(bits, q2))
        return {
            "one report": one,
            "a year of reports": (differ * low, differ * high),
            "a year of reports, with times": (one[0] + later[0], one[1] + later[1]),
            "all reports of one answer": price(differ, q1),
        }

    @staticmethod
    def _raised(q: Fraction) -> Fraction:
        return q + min(Fraction(1, 2**16), q / 2048)


def weaker_fields(old: Draft, new: Draft) -> list[str]:
    """Which fields protect less."""
    found = {
        "reports": new.reports > old.reports,
        "memory": bool(old.q1) and not new.q1,
        "honest": Fraction(new.honest or "1") > Fraction(old.honest or "1"),
    }
    if old.world.survey == new.world.survey:
        found["flips"] = new.q < old.q
        if old.q1 and new.q1:
            found["layers"] = new.q1 < old.q1 or new.q2 < old.q2
    if old.crowd is not None and new.crowd is not None:
        found |= {
            "crowd": new.crowd < old.crowd,
            "epsilon": Fraction(new.epsilon) > Fraction(old.epsilon),
            "delta": Fraction(new.delta) > Fraction(old.delta),
            "view": (old.view, new.view) == ("reports", "counts"),
            "parties": old.has_parties and not new.has_parties,
        }
    return [name for name, less in found.items() if less]


def _flips(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(1, 31), 64)


def _edited(rng: random.Random, draft: Draft) -> Draft:
    """The draft with one to three other fields."""
    changes: dict[str, Any] = {
        "world": lambda: worlds.any_world(rng),
        "q2": lambda: _flips(rng),
        "window": lambda: rng.choice(WINDOWS) if draft.crowd is None else draft.window,
        "reports": lambda: rng.randint(1, 3),
        "q1": lambda: rng.choice([NONE, _flips(rng)]),
    }
    if draft.crowd is not None:
        changes |= {
            "crowd": lambda: rng.randint(5, 60),
            "epsilon": lambda: f"{rng.randint(1, 40) / 10}",
            "delta": lambda: rng.choice(["0.1", "0.01", "1e-4"]),
            "view": lambda: rng.choice(["reports", "counts"]),
            "parties": lambda: rng.random() < 0.5,
            "honest": lambda: rng.choice([None, "0.9", "0.5"]),
        }
    chosen = rng.sample(sorted(changes), rng.choice([1, 1, 2, 3]))
    return replace(draft, **{name: changes[name]() for name in chosen})


def plan_edits(rng: random.Random) -> Iterator[Claim]:
    """Every weakening is refused and shown; without a crowd nothing else is refused."""
    alone = rng.random() < 0.7
    world = worlds.any_world(rng) if alone or rng.random() < 0.6 else worlds.one_bit()
    first = Draft(
        world,
        rng.choice([NONE, _flips(rng)]),
        _flips(rng),
        rng.choice(WINDOWS) if alone else None,
        1,
        None if alone else rng.randint(5, 60),
        f"{rng.randint(1, 40) / 10}",
        "0.01",
    )
    if not alone and rng.random() < 0.1:
        first = replace(first, window=30 * DAY)
    second = _edited(rng, first)
    old, new = first.plan(), second.plan()
    if old.id == new.id:
        return
    where = f"{first} to {second}"
    before, after, rounded = first.costs(), second.costs(), second.costs(raised=True)
    numbers = [name for name in after if rounded[name][0] > before[name][1]]
    fields = weaker_fields(first, second)
    diff = plan_diff(old, new)
    refused = diff.kind == "forbidden"
    if rng.random() < 0.25:
        code, shown = _command(old, new)
        yield from equal(code == 3, refused, f"exit code {code}, {where}")
        yield from equal(shown == json.loads(json.dumps(diff.to_json())), 1, where)
        code, _ = _command(old, new, "--accept-weak-promise")
        yield at_most(Fraction(code), NONE, f"declared, {where}")
    if numbers or fields:
        yield at_least(Fraction(refused), Fraction(1), f"{numbers} {fields} pass: {where}")
    elif alone:
        yield at_most(Fraction(refused), NONE, f"{diff.reasons} refused: {where}")
    for name in numbers:
        low, high = after[name]
        room = Fraction(second.releases * second.reports + 1, 10**5)
        seen = [
            one
            for one in diff.changes
            if one.weaker
            and one.words in diff.reasons
            and _between(one.new.epsilon, low, high, room)
        ]
        yield at_least(Fraction(bool(seen)), Fraction(1), f"{name} not shown: {where}")
    for one in diff.changes:
        if one.new.kind == "proven" and second.world.bits == 1 and not second.q1:
            yield from _true_of_one_bit(one, second, where)


def _between(said: Any, low: Fraction, high: Fraction, room: Fraction) -> bool:
    if low == INFINITE:
        return not said.is_finite()
    return bool(said.is_finite()) and low <= Fraction(said) <= high + room


def _true_of_one_bit(change: Any, draft: Draft, where: str) -> Iterator[Claim]:
    """A proven number of one bit, at the worst crowd; adding releases up is post-processing."""
    assert draft.crowd is not None
    if draft.reports > 1:
        return
    epsilon = Fraction(change.new.epsilon)
    _, lam = oracle.lam_between(epsilon)
    delta = Fraction(change.new.delta)
    _, m, up = oracle.worst_m(draft.crowd, float(draft.q), math.exp(float(epsilon)))[0]
    if change.covers == "one release":
        truth = oracle.delta(*oracle.one_bit_pair(draft.crowd, m, up, draft.q), lam)
    else:
        many = draft.releases
        laws = [
            dict(enumerate(oracle.one_bit(draft.crowd * many, many * ones, draft.q)))
            for ones in ((m + 1, m) if up else (m, m + 1))
        ]
        truth = oracle.delta(laws[0], laws[1], lam)
    yield at_least(delta, truth, f"{change.covers}, epsilon {float(epsilon)}, {where}")


def _command(old: Plan, new: Plan, *words: str) -> tuple[int, Any]:
    """The exit code of `shoal plan diff`, and the JSON that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("old.json", "new.json")]
        for plan, file in zip((old, new), files, strict=True):
            plan.write(file)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = cli(["plan", "diff", *map(str, files), "--json", *words])
    return code, json.loads(out.getvalue())


class QuickDisk(Disk):
    """A disk that waits for nothing; nobody pulls the plug here."""

    def sync_file(self, path: Path) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


@dataclass(frozen=True)
class Worded:
    """A plan with memory by its words; `encoding` numbers the ways to set bits."""

    encoding: int
    options: tuple[str, ...]
    question: str = "f"
    name: str = "w"
    q1: int = 16
    q2: int = 16
    window: int | None = None

    def plan(self) -> Plan:
        """The plan with these words."""
        memory = Memory(*(FlipProbability.of_fraction(Fraction(q, 64)) for q in (self.q1, self.q2)))
        survey = Survey(self.name, (Flags(self.question, self.options),))
        return Plan(survey, memory.q, Promise("local", "9999"), memory=memory, window=self.window)

    @property
    def flips(self) -> tuple[int, int]:
        """Which permanent flips a device must have."""
        return self.encoding, self.q1

    def edited(self, rng: random.Random, number: int) -> Worded:
        """The next version: other words leave every answer on its bits."""
        moves = {"order", "more", "name"}
        kind = rng.choice(["option", "option", "question", "window", "q2", "q1", *sorted(moves)])
        words, place = list(self.options), rng.randrange(len(self.options))
        changes: dict[str, dict[str, Any]] = {
            "option": {"options": (*words[:place], f"word {number}", *words[place + 1 :])},
            "question": {"question": f"question {number}"},
            "window": {"window": 3600 * (number + 1)},
            "q2": {"q2": rng.choice([8, 24])},
            "q1": {"q1": rng.choice([12, 20])},
            "order": {"options": (*words[1:], words[0])},
            "more": {"options": (*words, f"word {number}")},
            "name": {"name": f"survey {number}"},
        }
        encoding = number if kind in moves else self.encoding
        return replace(self, encoding=encoding, **changes[kind])


def labels(rng: random.Random) -> Iterator[Claim]:
    """A device follows edits: words keep a permanent vector, and the ledger has every other one."""
    versions = [Worded(0, tuple(f"option {j}" for j in range(48)))]
    for number in range(1, rng.randint(2, 6)):
        versions.append(versions[-1].edited(rng, number))
    bits = SimulationBits(rng.getrandbits(60))
    rows: dict[object, set[bytes]] = {}
    uses: dict[tuple[object, int, int], list[Fraction]] = {}
    where = f"{[replace(one, options=()) for one in versions]}"
    with tempfile.TemporaryDirectory() as folder:
        disk = QuickDisk()
        device = DeviceMemory(Path(folder) / "memory", bytes(range(32)), disk=disk)
        ledger = Ledger(Path(folder) / "ledger", disk=disk)
        for turn in [*versions, *rng.choices(versions, k=2)]:
            plan = turn.plan()
            nothing = OriginalVector(0, plan.bits)
            device.report(plan, nothing, ledger=ledger, random_bits=bits)
            row = device.remember(plan, nothing, random_bits=bits).row
            rows.setdefault(turn.flips, set()).add(row)
            uses.setdefault((turn.flips, turn.q1, plan.bits), []).append(Fraction(turn.q2, 64))
        said = Fraction(ledger.read().epsilon)
    for found in rows.values():
        yield at_most(Fraction(len(found)), Fraction(1), f"vectors of one answer, {where}")
    different = len(set().union(*rows.values()))
    yield at_least(Fraction(different), Fraction(len(rows)), f"redraws, {where}")
    low = high = NONE
    for (_, numerator, differ), fresh in uses.items():
        q1, faded = Fraction(numerator, 64), Fraction(1)
        for q2 in fresh:
            faded *= q2 / (1 - q2)
        ends = oracle.log_of((1 - q1 + q1 * faded) / (q1 + (1 - q1) * faded))
        low, high = low + differ * ends[0], high + differ * ends[1]
    yield at_least(said, low, f"the ledger, {where}")
    yield at_most(said, high + Fraction(len(uses), 10**5), f"the ledger, {where}")
    for old, new in itertools.pairwise(versions):
        named = plan_diff(old.plan(), new.plan(), accept_weak_promise=True).redraws
        yield from equal(named, old.flips != new.flips, f"redraws are named, {old} to {new}")


def horizons(rng: random.Random) -> Iterator[Claim]:
    """Windows of 1970 that a span touches, counted one by one from any second on."""
    every = rng.choice([None, rng.randint(1, 400)])
    rate, length = rng.choice(
        [("hourly", 3600), ("daily", DAY), ("weekly", 7 * DAY), ("monthly", 30 * DAY)]
    )
    if every is not None:
        rate, length = f"every {every} days", every * DAY
    span, days = rng.choice([("day", 1), ("week", 7), ("month", 31), ("year", 366)])
    count = rng.randint(1, 3)
    how_long = f"a {span}" if count == 1 else f"{count} {span}s"
    planned = parse_horizon(f"{rate} for {how_long}")
    seconds, words = count * days * DAY, f"{rate} for {how_long}"
    yield from equal(planned.window, length, words)
    starts = [0, length - 1, *(rng.randrange(2 * 10**9) for _ in range(4))]
    seen = [touched(start, seconds, length) for start in starts]
    for start, number in zip(starts, seen, strict=True):
        yield at_least(Fraction(planned.releases), Fraction(number), f"{words} from {start}")
    yield at_most(Fraction(planned.releases), Fraction(max(seen)), f"{words}: attained")
    window = rng.choice([3600, 5000, DAY, 7 * DAY, rng.randint(3600, 10**8)])
    year = touched(window - 1, 366 * DAY, window)
    yield from equal(releases_in_a_year(window), year, f"a year of {window}")


def touched(start: int, seconds: int, window: int) -> int:
    """How many windows have a second in common with those from `start` on, one by one."""
    begin, count = start - start % window, 0
    while begin < start + seconds:
        begin, count = begin + window, count + 1
    return count
