"""Any local randomizer: what `shoal.theory` says of its shuffled and summed reports, and the truth.

The oracle knows a randomizer as a matrix of fractions. It is given one person's rows and those of
the others, and looks at every outcome.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import mpmath

from shoal.theory import Bound, aggregated, channel, shuffled
from shoal.theory.accounting import Neighbours

from . import oracle
from .judging import Claim, at_least, at_most

Rows = list[list[Fraction]]
Pair = tuple[oracle.Law, oracle.Law]

OUTCOMES = 130
"""About how many outcomes a release may have."""

_SIZES = [1, 1, 2, 2, 3, 3, 4, 5, 7, 12, 30]


class Drawn(NamedTuple):
    """A randomizer of both sides, and how Shoal names the inputs of its attacks."""

    channel: channel.Channel
    rows: Rows
    names: dict[str, int]
    bits: int = 0
    """Of a report; 0 where it is not made of bits."""
    one: Rows | None = None
    """The randomizer of a single bit, where bits are flipped one by one."""


def _numbered(rows: Rows) -> dict[str, int]:
    return {str(x): x for x in range(len(rows))}


def rows_of_bits(chances: Iterable[Sequence[Fraction]]) -> Rows:
    """The reports of each input: bit j is set with its j-th chance, whatever the other bits are."""
    return [
        [
            math.prod((c if v >> j & 1 else 1 - c for j, c in enumerate(row)), start=Fraction(1))
            for v in range(2 ** len(row))
        ]
        for row in chances
    ]


def flags_rows(L: int, q: Fraction) -> Rows:
    """Bits that are flipped with probability q."""
    return rows_of_bits([[1 - q if x >> j & 1 else q for j in range(L)] for x in range(2**L)])


def unary_rows(L: int, p: Fraction, q: Fraction) -> Rows:
    """One of L options as bits."""
    return rows_of_bits([[p if j == x else q for j in range(L)] for x in range(L)])


def k_ary_rows(k: int, odds: Fraction) -> Rows:
    """One of k options, or each other one."""
    return [[(odds if x == v else 1) / (odds + k - 1) for v in range(k)] for x in range(k)]


def _probability(rng: random.Random) -> float:
    draw = rng.random()
    if draw < 0.6:
        return rng.randint(1, 63) / 64
    if draw < 0.8:
        return rng.randint(1, 999) / 1000
    if draw < 0.9:
        return rng.choice([0.0, 1.0, 0.5, 0.25])
    return rng.choice([2.0 ** -rng.randint(7, 60), 1.0 - 2.0 ** -rng.randint(7, 50)])


def flags(rng: random.Random) -> Drawn:
    """Flipped bits."""
    L = rng.choice([1, 1, 2, 2, 3])
    q = min(_probability(rng), rng.choice([0.5, rng.random() / 2]))
    lie = Fraction(q)
    names = {"0" * L: 0, "1" * L: 2**L - 1, "0": 0, "1": 2**L - 1}
    return Drawn(
        channel.flags(L, q), flags_rows(L, lie), names, L, [[1 - lie, lie], [lie, 1 - lie]]
    )


def k_ary(rng: random.Random) -> Drawn:
    """k-ary randomized response; its odds are next to e^epsilon_0."""
    k = rng.choice([2, 2, 3, 3, 4, 5, 6])
    local = rng.choice([0.0, rng.random() * 0.1, rng.random() * 3, rng.random() * 8, 40.0, 690.0])
    odds = Fraction(math.nextafter(math.exp(local), math.inf)) if local else Fraction(1)
    rows = k_ary_rows(k, odds)
    return Drawn(channel.k_ary(k, local), rows, _numbered(rows))


def unary(rng: random.Random) -> Drawn:
    """One of some options as bits, with any two probabilities."""
    L, p, q = rng.choice([2, 2, 3, 3, 4]), _probability(rng), _probability(rng)
    p, q = max(p, q), min(p, q)
    if rng.random() < 0.2:
        p = 0.5 if q < 0.5 else p
    elif rng.random() < 0.3 and q < 0.5:
        p = 1.0 - q
    hit, miss = Fraction(p), Fraction(q)
    if 0.0 < q < 0.5 and p < 1.0 and p == 1.0 - q:  # the same up to the round-off of 1 - q
        miss = min(miss, 1 - hit)
        hit = 1 - miss
    rows = unary_rows(L, hit, miss)
    one = [[1 - miss, miss], [1 - hit, hit]]
    return Drawn(channel.unary(L, p, q), rows, _numbered(rows), L, one)


def matrix(rng: random.Random) -> Drawn:
    """Any rows: zeros, equal rows, disjoint supports, reports that nobody sends, tiny entries."""
    inputs, reports = rng.choice([1, 2, 2, 3, 3, 4]), rng.choice([1, 2, 2, 3, 3, 4, 5])
    style = rng.random()
    rows: Rows = []
    for _ in range(inputs):
        if rows and rng.random() < 0.1:
            rows.append(rng.choice(rows))
            continue
        if style < 0.5:
            weights = [Fraction(rng.randint(1, 9)) for _ in range(reports)]
        elif style < 0.8:
            weights = [Fraction(rng.choice([0, 0, 1, 2, 5])) for _ in range(reports)]
        elif style < 0.9:
            weights = [Fraction(1, 2 ** rng.choice([0, 3, 60, 400])) for _ in range(reports)]
        else:
            weights = [Fraction(rng.random()) ** 4 for _ in range(reports)]
        if not sum(weights):
            weights[rng.randrange(reports)] = Fraction(1)
        rows.append([w / sum(weights) for w in weights])
    if rng.random() < 0.3:
        floats = [[float(entry) for entry in row] for row in rows]
        rows = [[Fraction(entry) / sum(map(Fraction, row)) for entry in row] for row in floats]
        return Drawn(channel.from_matrix(floats), rows, _numbered(rows))
    return Drawn(channel.from_matrix(rows), rows, _numbered(rows))


def any_channel(rng: random.Random, makers: str = "fkum") -> Drawn:
    """One of the finite channels."""
    return {"f": flags, "k": k_ary, "u": unary, "m": matrix}[rng.choice(makers)](rng)


def any_epsilon(rng: random.Random, rows: Rows) -> float:
    """An epsilon at random, at the logarithm of a ratio of the channel, next to that, or odd."""
    column = rng.randrange(len(rows[0]))
    a, b = (row[column] for row in rng.choices(rows, k=2))
    ratio = max(a, b) / min(a, b) if a and b else Fraction(rng.randint(1, 20))
    top = float(oracle.log_of(ratio)[0])
    draw = rng.random()
    if draw < 0.55:
        return rng.random() * rng.choice([1, 0.5, 0.1]) * (max(top, 0.0) or 2.0)
    epsilon = max(rng.choice([0.0, top, top / 2, 1e-9, 5e-324, 1e-17, 1.0, 30.0, 800.0]), 0.0)
    for _ in range(rng.choice([0, 0, 1, 2])):
        epsilon = math.nextafter(epsilon, rng.choice([0.0, 100.0]))
    return epsilon


def largest_ratio(rows: Rows) -> Fraction | None:
    """How much likelier one input makes a report than another; None for infinitely much."""
    worst = Fraction(1)
    for column in zip(*rows, strict=True):
        if max(column):
            if not min(column):
                return None
            worst = max(worst, max(column) / min(column))
    return worst


def law(row: list[Fraction], key: Callable[[int], int]) -> oracle.Law:
    """The law of what one report adds to a release, in whole weights."""
    whole = math.lcm(*(chance.denominator for chance in row))
    found: oracle.Law = {}
    for report, chance in enumerate(row):
        if chance:
            outcome = key(report)
            found[outcome] = found.get(outcome, 0) + int(chance * whole)
    return found


def whole_reports(report: int) -> int:
    """The key of the histogram of reports."""
    return 1 << oracle.DIGIT * (report - 1) if report else 0


def bits_of(drawn: Drawn) -> Callable[[int], int]:
    """The key of the sums of bits."""
    counted = oracle.counted(drawn.bits)
    return lambda report: counted(0, report)


def pair(laws: list[oracle.Law], others: list[int], x: int, y: int) -> Pair:
    """The laws of a release with y and with x among the same others."""
    rest = oracle.crowd(laws[z] for z in others)
    return oracle.together(rest, laws[y]), oracle.together(rest, laws[x])


def some_pairs(rng: random.Random, laws: list[oracle.Law], n: int, most: int) -> list[Pair]:
    """All pairs of neighbours if they are few, else some of them, most of them far from each other.

    Whether these are all decides if a lower bound can be judged.
    """
    inputs = range(len(laws))
    crowds = list(itertools.islice(itertools.combinations_with_replacement(inputs, n - 1), 200))
    cases = [(c, x, y) for c in crowds for x, y in itertools.permutations(inputs, 2)]
    if len(cases) > most:
        equal = [
            ((z,) * (n - 1), x, y) for z in inputs for x, y in itertools.permutations(inputs, 2)
        ]
        random_ones = []
        for _ in range(most // 2):
            others = tuple(rng.choices(inputs, k=n - 1))
            x, y = rng.sample(inputs, 2)
            random_ones.append((others, x, y))
        cases = rng.sample(equal, min(len(equal), most - most // 2)) + random_ones
    return [pair(laws, list(others), x, y) for others, x, y in cases]


def size_for(rng: random.Random, drawn: Drawn, sums: bool) -> int:
    """So many people that every outcome can be looked at."""
    reports = len(drawn.rows[0])

    def outcomes(n: int) -> int:
        return (n + 1) ** drawn.bits if sums else math.comb(n + reports - 1, n)

    return rng.choice([n for n in _SIZES if n <= 2 or outcomes(n) <= OUTCOMES])


def named(drawn: Drawn, neighbours: Neighbours) -> tuple[list[int], int, int]:
    """The others, x and x' of an attack."""
    others = [drawn.names[z] for z, count in neighbours.others.items() for _ in range(count)]
    return others, drawn.names[neighbours.first], drawn.names[neighbours.second]


def _judged(
    rng: random.Random, bound: Bound, rows: Rows, pairs: list[Pair], epsilon: float, words: str
) -> Iterator[Claim]:
    """Delta at epsilon, and sometimes epsilon at a delta; attacks are judged by their crowd."""
    _, above = oracle.lam_between(epsilon)
    delta = bound.delta(epsilon)
    truth = max((oracle.delta(*each, above) for each in pairs), default=Fraction(0))
    yield at_least(delta.high, truth, f"delta of {words}")
    if rng.random() < 0.03:
        wanted = rng.choice([1e-12, 1e-4, float(truth) or 0.1, rng.random() * 0.5 + 1e-9])
        wanted = min(wanted, 0.999)
        found = bound.epsilon(wanted)
        if math.isfinite(found.high):
            _, above = oracle.lam_between(found.high)
            truth = max((oracle.delta(*each, above) for each in pairs), default=Fraction(0))
            yield at_least(wanted, truth, f"epsilon at {wanted} of {words}")
        if found.low > 0.0:
            attack = bound.attack(found.low)
            yield at_most(wanted, Fraction(attack.delta.low), f"epsilon's low end of {words}")
    local = bound.epsilon(0.0)
    ratio = largest_ratio(rows)
    if ratio is None:
        yield at_most(float(math.isfinite(local.low)), Fraction(0), f"no epsilon at 0 of {words}")
    else:
        yield at_least(local.high, oracle.log_of(ratio)[0], f"epsilon at 0 of {words}")
        yield at_most(local.low, oracle.log_of(ratio)[1], f"epsilon at 0 of {words}")


def shuffled_reports(rng: random.Random) -> Iterator[Claim]:
    """Shuffled reports of any finite channel."""
    if rng.random() < 0.005:
        yield from _laplace(rng)
        return
    drawn = any_channel(rng)
    n, epsilon = size_for(rng, drawn, False), any_epsilon(rng, drawn.rows)
    bound = shuffled(drawn.channel, n)
    words = f"{bound} with rows {drawn.rows}, epsilon {epsilon!r}"
    laws = [law(row, whole_reports) for row in drawn.rows]
    pairs = some_pairs(rng, laws, n, 14)
    yield from _judged(rng, bound, drawn.rows, pairs, epsilon, words)
    attack = bound.attack(epsilon)
    if attack.neighbours:
        below, above = oracle.lam_between(epsilon)
        crowd = pair(laws, *named(drawn, attack.neighbours[0]))
        yield at_most(attack.delta.low, oracle.delta(*crowd, below), f"attack on {words}")
        yield at_least(attack.delta.high, oracle.delta(*crowd, above), f"attack's high on {words}")


def summed_reports(rng: random.Random) -> Iterator[Claim]:
    """Sums of bits, one by one; histograms; sums of normal noise."""
    if rng.random() < 0.1:
        yield from _gaussian(rng)
        return
    drawn = any_channel(rng, "ffffffffum")
    sums = drawn.bits > 0
    n, epsilon = size_for(rng, drawn, sums), any_epsilon(rng, drawn.rows)
    bound = aggregated(drawn.channel, n)
    words = f"{bound} with rows {drawn.rows}, epsilon {epsilon!r}"
    key = bits_of(drawn) if sums else whole_reports
    laws = [law(row, key) for row in drawn.rows]
    yield from _judged(rng, bound, drawn.rows, some_pairs(rng, laws, n, 14), epsilon, words)
    attack = bound.attack(epsilon)
    if attack.neighbours:
        below, _ = oracle.lam_between(epsilon)
        alike = [len(bits) == 1 for bits in drawn.channel.sums]  # one description for all bits
        unit = drawn.channel.coordinate or drawn.channel
        if len(attack.neighbours) == 1 and (unit.flip or any(alike)):
            crowd = pair(laws, *named(drawn, attack.neighbours[0]))
            truth = oracle.delta(*crowd, below)
        else:
            one = drawn.one if sums and drawn.one else drawn.rows
            single = [law(row, whole_reports) for row in one]
            numbered = Drawn(drawn.channel, one, _numbered(one))
            bits = [pair(single, *named(numbered, each)) for each in attack.neighbours]
            truth = oracle.product(bits, below)
        yield at_most(attack.delta.low, truth, f"attack on {words}")


def together(rng: random.Random) -> Iterator[Claim]:
    """Several releases about a person: the same channel again, or two channels."""
    releases: list[tuple[Drawn, int, bool]] = []
    for _ in range(2):
        drawn = any_channel(rng)
        sums = drawn.bits > 0 and rng.random() < 0.5
        n = rng.choice([1, 2, 2, 3] if len(drawn.rows[0]) < 5 else [1, 2])
        releases.append((drawn, n, sums))
    bounds = [(aggregated if sums else shuffled)(d.channel, n) for d, n, sums in releases]
    k = rng.choice([1, 1, 2])
    if rng.random() < 0.4:
        releases, bounds, k = releases[:1], bounds[:1], 2
        bound = bounds[0].compose(2)
    else:
        bound = bounds[0].compose(k).parallel(bounds[1])
    epsilon = any_epsilon(rng, releases[0][0].rows) * rng.choice([1, 1, 2])
    words = f"{bound} with {[d.rows for d, _, _ in releases]}, epsilon {epsilon!r}"
    choices = []
    for place, (drawn, n, sums) in enumerate(releases):
        laws = [law(row, bits_of(drawn) if sums else whole_reports) for row in drawn.rows]
        choices += [some_pairs(rng, laws, n, 4)] * (k if place == 0 else 1)
    _, above = oracle.lam_between(epsilon)
    worst = Fraction(0)
    for pairs in itertools.islice(itertools.product(*choices), 24):
        worst = max(worst, oracle.product(list(pairs), above))
    delta = bound.delta(epsilon)
    yield at_least(delta.high, worst, f"delta of {words}")
    if all(len(d.rows) == 2 and n <= 2 for d, n, _ in releases):
        below, _ = oracle.lam_between(epsilon)
        every = itertools.product(*choices)
        truth = max((oracle.product(list(pairs), below) for pairs in every), default=Fraction(0))
        yield at_most(delta.low, truth, f"attack on {words}")


def _laplace(rng: random.Random) -> Iterator[Claim]:
    """A bit plus Laplace noise, in a few cells, which tell less than the report."""
    local, n = rng.choice([0.1, 0.5, 1.0, 2.0, 4.0, 9.0, rng.random() * 6]), rng.choice([1, 2, 3])
    ends = sorted(rng.random() * 1.5 - 0.25 for _ in range(4))
    epsilon = rng.choice([0.0, 1.0, 0.5, rng.random()]) * local * rng.choice([1.0, 0.5])
    with mpmath.workdps(50):

        def below(v: mpmath.mpf) -> mpmath.mpf:
            tail = mpmath.exp(-local * abs(v)) / 2
            return tail if v < 0 else 1 - tail

        rows = []
        for x in (0, 1):
            cdf = [mpmath.mpf(0), *(below(mpmath.mpf(end) - x) for end in ends), mpmath.mpf(1)]
            # down to 45 digits: the law of a part of the reports
            rows.append(
                [Fraction(int((b - a) * 10**45), 10**45) for a, b in itertools.pairwise(cdf)]
            )
    rows = [[*row[:-1], 1 - sum(row[:-1], Fraction())] for row in rows]
    bound = shuffled(channel.laplace(local), n)
    laws = [law(row, whole_reports) for row in rows]
    _, above = oracle.lam_between(epsilon)
    truth = max(oracle.delta(*each, above) for each in some_pairs(rng, laws, n, 12))
    words = f"{bound}, cells at {ends}, epsilon {epsilon!r}"
    slack = Fraction(1, 10**40)
    delta = bound.delta(epsilon)
    yield at_least(delta.high, truth - slack, f"delta of {words}")
    if n == 1:
        with mpmath.workdps(50):
            exact = max(-mpmath.expm1((mpmath.mpf(epsilon) - local) / 2), 0)
            truth = Fraction(int(exact * 10**45), 10**45)
        # the channel's own epsilon_0 is a few units above
        yield at_most(delta.low, truth + Fraction(1, 10**13), f"attack on {words}")
        yield at_least(delta.high, truth - slack, f"all reports of {words}")


def _gaussian(rng: random.Random) -> Iterator[Claim]:
    """Sums of normal noise, one or several of them: the formula of Balle and Wang in 60 digits."""
    sigma, n = (
        rng.choice([0.1, 0.5, 1.0, 3.0, 10.0]) * rng.uniform(0.5, 2),
        rng.choice([1, 5, 1000]),
    )
    k, epsilon = rng.choice([1, 1, 2, 30]), rng.choice([0.0, 0.1, 1.0, 5.0 * rng.random()])
    with mpmath.workdps(80):
        mu = mpmath.sqrt(mpmath.mpf(k) / n) / mpmath.mpf(sigma)
        at = mpmath.mpf(epsilon)
        near, far = mpmath.ncdf(mu / 2 - at / mu), mpmath.ncdf(-mu / 2 - at / mu)
        man, exp = (near - mpmath.exp(at) * far).man_exp
    truth = Fraction(int(man)) * Fraction(2) ** int(exp)
    bound = aggregated(channel.gaussian(sigma), n).compose(k)
    delta, words = bound.delta(epsilon), f"{bound}, epsilon {epsilon!r}"
    slack = Fraction(1, 10**60)
    yield at_least(delta.high, truth - slack, f"delta of {words}")
    yield at_most(delta.low, truth + slack, f"delta of {words}")
