"""How often intervals of decoded text cover: ``python -m bench.text_coverage [--surveys 150]``.

Every survey has another name, and so other hashes; the same people draw cohorts and flips afresh
from their exact law (`shoal.lab.populations`). Prints the table of docs/text.md. ``--only``
takes some rows of it by number, ``--jobs`` more than one process, ``--counts`` the second table.

A text counts where it was found: its interval is meant to hold given that. The columns are of all
that were found, of the most popular candidate, and of the worst text among those found in at least
a tenth of the surveys, where the ones that nobody answered are one text; then of
`DecodedTexts.total`, and of all texts that people answered. After ± stands a standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from shoal import Plan, Survey, Text, plan
from shoal.analysis.text import decode
from shoal.lab.populations import simulate_texts

LEVEL = 0.95
NOBODY, TOGETHER = "nobody", "two together"
ABSENT = 60
"""How many candidates nobody answered, unless the setting says otherwise."""


@dataclass(frozen=True)
class Crowd:
    """How many people answer each text; texts named ``unknown ...`` are no candidates."""

    name: str
    people: dict[str, int]
    absent: int = ABSENT

    @property
    def known(self) -> list[str]:
        """The texts that are candidates."""
        return [text for text in self.people if not text.startswith("unknown")]

    @property
    def candidates(self) -> list[str]:
        """The known texts, and some that nobody answered."""
        return self.known + [f"nobody {number}" for number in range(self.absent)]


@dataclass(frozen=True)
class Setting:
    """A crowd and the size of the question that it is asked."""

    crowd: Crowd
    bits: int
    hashes: int
    cohorts: int
    q: str

    @property
    def name(self) -> str:
        """What the table calls it."""
        people = sum(self.crowd.people.values())
        return (
            f"{self.crowd.name} | {people:,} | {self.bits} | {self.hashes} | {self.cohorts}"
            f" | {self.q}"
        )


def ranked(people: int, words: int, power: float, unknown: Callable[[int], bool]) -> dict[str, int]:
    """Return counts that fall off like rank ** -power; `unknown` says which ranks are."""
    shares = np.arange(1, words + 1) ** -power
    counts = np.floor(people * shares / shares.sum()).astype(int)
    counts[0] += people - counts.sum()
    return {
        f"{'unknown' if unknown(rank) else 'word'} {rank}": int(count)
        for rank, count in enumerate(counts)
        if count
    }


def never(_: int) -> bool:
    """All texts are candidates."""
    return False


def drinks(people: int) -> Crowd:
    """The crowd of docs/text.md."""
    shares = {"coffee": 45, "tea": 30, "mate": 15, "unknown blend": 10}
    return Crowd("drinks", {text: people * share // 100 for text, share in shares.items()})


def one_over_rank(people: int) -> Crowd:
    """200 texts, all of them candidates."""
    return Crowd("1 / rank", ranked(people, 200, 1.0, never))


def half_missing(people: int) -> Crowd:
    """200 texts, every other one no candidate, among them the most popular."""
    return Crowd("1 / rank, every other unknown", ranked(people, 200, 1.0, lambda r: r % 2 == 0))


def equal(people: int) -> Crowd:
    """Twenty texts of the same count, five of them unknown."""
    return Crowd("20 equal, 5 unknown", ranked(people, 20, 0.0, lambda r: r >= 15))


def dominant(people: int) -> Crowd:
    """One text of 90 %, and ten others of which half are unknown."""
    counts = {f"{'unknown' if r % 2 else 'word'} {r}": people // 100 for r in range(1, 11)}
    return Crowd(
        "one of 90 %, 5 of 1 % unknown", {"word 0": people - 10 * (people // 100)} | counts
    )


def unknown_heavy(people: int) -> Crowd:
    """Three unknown texts have more than half of the crowd."""
    counts = {f"unknown {r}": people // 5 for r in range(3)}
    known = {f"word {r}": people * share // 100 for r, share in enumerate((20, 10, 5, 3, 2))}
    return Crowd("3 of 20 % unknown", counts | known)


def few_known(people: int) -> Crowd:
    """Four texts, all of them candidates."""
    shares = {"word 0": 50, "word 1": 30, "word 2": 15, "word 3": 5}
    return Crowd("4 known", {text: people * share // 100 for text, share in shares.items()})


def long_list(people: int) -> Crowd:
    """As `half_missing`, with more candidates than there are rows."""
    return Crowd("1 / rank, 3,000 candidates", half_missing(people).people, 2_900)


def known_list(people: int) -> Crowd:
    """As `one_over_rank`, among more than ten times as many candidates."""
    return Crowd("1 / rank, 3,100 candidates", one_over_rank(people).people, 2_900)


SETTINGS = (
    Setting(drinks(20_000), 256, 1, 32, "0.0283"),
    Setting(drinks(20_000), 256, 1, 64, "0.0283"),
    Setting(drinks(20_000), 128, 2, 32, "0.1"),
    Setting(drinks(2_000), 64, 1, 16, "0.05"),
    Setting(drinks(1_000_000), 256, 1, 32, "0.0042"),
    Setting(few_known(2_000), 64, 1, 16, "0.001"),
    Setting(few_known(20_000), 64, 1, 16, "0.2"),
    Setting(few_known(20_000), 128, 4, 32, "0.3"),
    Setting(one_over_rank(100_000), 128, 1, 32, "0.02"),
    Setting(one_over_rank(20_000), 32, 1, 64, "0.05"),
    Setting(half_missing(100_000), 256, 1, 32, "0.02"),
    Setting(half_missing(100_000), 64, 2, 64, "0.05"),
    Setting(half_missing(1_000_000), 256, 1, 64, "0.0042"),
    Setting(long_list(100_000), 64, 1, 32, "0.02"),
    Setting(equal(50_000), 128, 1, 32, "0.02"),
    Setting(equal(50_000), 32, 1, 64, "0.1"),
    Setting(dominant(20_000), 256, 1, 32, "0.0283"),
    Setting(dominant(200_000), 64, 1, 16, "0.01"),
    Setting(unknown_heavy(50_000), 128, 1, 32, "0.02"),
    Setting(unknown_heavy(50_000), 32, 1, 64, "0.02"),
    Setting(unknown_heavy(50_000), 256, 4, 32, "0.1"),
    Setting(few_known(20_000), 128, 1, 1, "0.05"),
    Setting(drinks(20_000), 256, 1, 1, "0.05"),
    Setting(one_over_rank(20_000), 256, 1, 1, "0.05"),
    Setting(few_known(20_000), 128, 1, 2, "0.05"),
    Setting(drinks(20_000), 256, 1, 2, "0.05"),
    Setting(half_missing(100_000), 256, 2, 2, "0.02"),
    Setting(drinks(20_000), 256, 1, 8, "0.0283"),
    Setting(half_missing(100_000), 256, 1, 8, "0.02"),
    Setting(unknown_heavy(50_000), 128, 2, 8, "0.02"),
)

COUNTS = (
    Setting(drinks(20_000), 1024, 1, 4, "0.01043"),
    Setting(drinks(20_000), 1024, 3, 4, "0.02402"),
    Setting(drinks(1_000_000), 1024, 1, 4, "0.0002047"),
    Setting(few_known(20_000), 1024, 1, 4, "0.01043"),
    Setting(few_known(20_000), 4096, 1, 1, "0.002487"),
    Setting(known_list(20_000), 1024, 1, 4, "0.01043"),
    Setting(known_list(20_000), 1024, 3, 4, "0.02402"),
    Setting(long_list(20_000), 1024, 1, 4, "0.01043"),
    Setting(long_list(20_000), 1024, 3, 4, "0.02402"),
)
"""Few cohorts and few flips: q is what epsilon 1 and delta 1e-6 need in the view of counts."""


def text_plan(setting: Setting, number: int) -> Plan:
    """Return the plan of one survey; its name decides its hashes."""
    question = Text("word", bits=setting.bits, hashes=setting.hashes, cohorts=setting.cohorts)
    return plan(Survey(f"survey {number}", (question,)), q=setting.q)


@dataclass(frozen=True)
class Outcome:
    """One number of one survey: whether its interval holds the truth, and how wide it is."""

    survey: int
    name: str
    found: bool
    covered: bool
    width: float


def outcomes(setting: Setting, number: int) -> list[Outcome]:
    """Return what one survey says of the texts that were found or that people answered."""
    made = text_plan(setting, number)
    people = setting.crowd.people
    tally = simulate_texts(made, people, seed=number)
    decoded = decode(made, tally, setting.crowd.candidates, level=LEVEL)
    rows = []
    for row in decoded:
        truth = sum(people.get(text, 0) for text in (row.value, *row.same_as))
        if row.found or truth:
            covered = row.low <= truth <= row.high
            name = row.value if truth else NOBODY
            rows.append(Outcome(number, name, row.found, covered, row.high - row.low))
    first, second = sorted(setting.crowd.known, key=lambda text: -people[text])[:2]
    if decoded[first].found and decoded[second].found and decoded[first] != decoded[second]:
        whole = decoded.total((first, second))
        alone = not decoded[first].same_as and not decoded[second].same_as
        if alone:
            covered = people[first] + people[second] in whole
            rows.append(Outcome(number, TOGETHER, True, covered, whole.high - whole.low))
    return rows


@dataclass(frozen=True)
class Share:
    """A share of intervals that cover, its standard error, and of how many."""

    value: float
    error: float
    times: int

    @classmethod
    def of(cls, hits: list[bool]) -> Share:
        """Take the share of hits; the error is at least that of the level."""
        value = float(np.mean(hits)) if hits else float("nan")
        variance = max(LEVEL * (1 - LEVEL), value * (1 - value))
        return cls(value, (variance / max(len(hits), 1)) ** 0.5, len(hits))

    @property
    def gap(self) -> float:
        """How many standard errors it is above the level."""
        return (self.value - LEVEL) / self.error

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} ± {100 * self.error:.1f}" if self.times else "–"


@dataclass(frozen=True)
class Coverage:
    """Coverage in many surveys of one setting."""

    found: Share
    """Of all texts that were found; words of a survey share their noise, and the error knows."""
    top: Share
    """Of the most popular candidate, where it was found."""
    worst: Share
    """Of the text that is most standard errors below the level, of those found often."""
    together: Share
    """Of the sum of the two most popular candidates."""
    answered: Share
    """Of all texts that people answered, found or not."""
    false: float
    """The mean share, over surveys, of texts that nobody answered among those found."""


def coverage(setting: Setting, rows: list[Outcome], surveys: int) -> Coverage:
    """Sum up the outcomes of many surveys."""
    texts = [row for row in rows if row.name != TOGETHER]
    by_text: dict[str, list[bool]] = {}
    by_survey: dict[int, list[bool]] = {}
    for row in texts:
        if row.found:
            by_text.setdefault(row.name, []).append(row.covered)
            by_survey.setdefault(row.survey, []).append(row.covered)
    popular = max(setting.crowd.known, key=lambda text: setting.crowd.people[text])
    often = [Share.of(hits) for hits in by_text.values() if len(hits) >= surveys / 10]
    return Coverage(
        found=_clustered(list(by_survey.values())),
        top=Share.of(by_text.get(popular, [])),
        worst=min(often, key=lambda share: share.gap, default=Share.of([])),
        together=Share.of([row.covered for row in rows if row.name == TOGETHER]),
        answered=Share.of([row.covered for row in texts if row.name != NOBODY]),
        false=_false_share(texts, surveys),
    )


def _false_share(texts: list[Outcome], surveys: int) -> float:
    finds: dict[int, list[bool]] = {}
    for row in texts:
        if row.found:
            finds.setdefault(row.survey, []).append(row.name == NOBODY)
    return sum(float(np.mean(names)) for names in finds.values()) / surveys


def _clustered(surveys: list[list[bool]]) -> Share:
    sizes = np.array([len(hits) for hits in surveys], float)
    if not sizes.size:
        return Share.of([])
    hits = np.array([sum(hits) for hits in surveys], float)
    value = hits.sum() / sizes.sum()
    error = float(np.sqrt(((hits - value * sizes) ** 2).sum())) / sizes.sum()
    return Share(value, error, int(sizes.sum()))


def study(setting: Setting, surveys: int, jobs: int = 1) -> list[Outcome]:
    """Return the outcomes of many surveys."""
    one = partial(outcomes, setting)
    if jobs == 1:
        return [row for number in range(surveys) for row in one(number)]
    with ProcessPoolExecutor(jobs) as pool:
        return [row for rows in pool.map(one, range(surveys), chunksize=16) for row in rows]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.text_coverage", description=__doc__)
    parser.add_argument("--surveys", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", type=int, help="these rows of the table, from 0")
    parser.add_argument("--counts", action="store_true", help="the rows of the view of counts")
    arguments = parser.parse_args()
    print(
        "| crowd | people | bits | hashes | cohorts | q | found | false | those found"
        " | most popular | worst text | two together | found or not |"
    )
    print("|---|" + "---:|" * 12)
    settings = COUNTS if arguments.counts else SETTINGS
    for number in arguments.only or range(len(settings)):
        setting = settings[number]
        rows = study(setting, arguments.surveys, arguments.jobs)
        result = coverage(setting, rows, arguments.surveys)
        found = result.found.times / arguments.surveys
        shares = (result.found, result.top, result.worst, result.together, result.answered)
        print(
            f"| {setting.name} | {found:.1f} | {100 * result.false:.1f}"
            f" | {' | '.join(map(str, shares))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
