"""Local randomizers, to be accounted for by `shuffled` and `aggregated` (`theory.accounting`).

>>> from shoal.theory import channel, shuffled
>>> bound = shuffled(channel.k_ary(10, epsilon_0=2.0), 1000)
>>> round(bound.epsilon(1e-6).high, 3)
0.273

=====================  ===================================  ============  ======================
channel                its report                           `shuffled`    `aggregated`
=====================  ===================================  ============  ======================
`flags(L, q)`          L bits, each flipped with q          yes           yes
`unary(L, p, q)`       one of L options as bits (OUE)       yes           yes
`k_ary(k, epsilon_0)`  one of k options, or another         yes           the same as `shuffled`
`from_matrix(P)`       any finite randomizer                yes           the same as `shuffled`
`laplace(epsilon_0)`   a bit plus Laplace noise             in cells      refused
`gaussian(sigma)`      a number plus normal noise           refused       yes, exact
=====================  ===================================  ============  ======================

A channel lists the pairs of inputs (x, x') that may be the worst, each as classes of reports v with
their probabilities given x' and x and their mass ``m(v) = min_y P[y, v]``, the least over *all*
inputs y. That is the largest blanket that the inputs share, in closed form: no linear program is
needed. Classes are proportional, so they hide nothing and show nothing more (sufficiency).
Probabilities are exact fractions.

*Which pair is the worst* (theorems). k-RR and unary: all pairs are alike, by symmetry. Flags: the
pair that differs in every bit (`theory.blanket`). A matrix: every pair is tried. Laplace: there is
one, and swapping 0 and 1 mirrors it.

*Laplace noise in cells.* With ``S = e^(epsilon_0 / 2)`` and ``s = e^(v epsilon_0)``, a report v in
[0, 1/2] has ``P[0, v] / m(v) = S^2 / s^2`` and P[1, v] = m(v); a cell s in [a, b] has the masses
``(1/a - 1/b) / 2`` given 0 and ``(b - a) / (2 S^2)`` given 1. Reports below 0 are one class, and
v > 1/2 is the mirror image. For an upper bound each cell goes to its two ends with its mean kept: Y
is linear in the ratio, so it grows in convex order. For an attack, a cell is all that is seen.
"""

from __future__ import annotations

import functools
import itertools
import math
import numbers
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from shoal.theory.brackets import UNIT
from shoal.theory.calibration import MIN_Q

_CELLS = 48
"""Cells of Laplace noise between 0 and 1/2."""

_MAX_CROWDS = 512
"""Attacks that a channel lists at most."""


class Atom(NamedTuple):
    """Probabilities of one class of reports: given x', given x, and under a third measure."""

    second: Fraction
    first: Fraction
    base: Fraction


@dataclass(frozen=True, eq=False)
class InputPair:
    """A pair x, x' with the blanket, or with the distribution of z, as the third measure."""

    first: str
    second: str
    others: str
    atoms: tuple[Atom, ...]

    @functools.cached_property
    def largest(self) -> Fraction | None:
        """The largest odds of x' to x; None where they are infinite."""
        if any(atom.second and not atom.first for atom in self.atoms):
            return None
        return max((a.second / a.first for a in self.atoms if a.first), default=Fraction())


@dataclass(frozen=True, eq=False)
class Channel:
    """A local randomizer, as the pairs of inputs that may be the worst.

    `pairs` have the blanket, `crowds` the reports of others who all answer z. Where the report is
    bits with coins of their own, `coordinate` is the channel of one bit, two inputs differ in at
    most `differing` bits, and each of `sums` is one pair of crowds, as cases of its differing bits
    and how many are alike. `flip` is set for one bit whose lies are equally likely and not too
    rare for the exact engine, `sigma` for normal noise, `cells` for a continuous report in cells.
    """

    name: str
    pairs: tuple[InputPair, ...]
    crowds: tuple[InputPair, ...]
    coordinate: Channel | None = None
    differing: int = 1
    sums: tuple[tuple[tuple[InputPair, int], ...], ...] = ()
    flip: float = 0.0
    sigma: float = 0.0
    cells: bool = False

    @functools.cached_property
    def gamma(self) -> float:
        """Mass of the blanket that all inputs share: 0 for none, 1 for identical rows."""
        return float(sum((a.base for a in self.pairs[0].atoms), Fraction())) if self.pairs else 1.0

    @functools.cached_property
    def epsilon_0(self) -> float:
        """The local epsilon, rounded up; infinite where an input rules a report out."""
        if self.sigma:
            return math.inf
        worst = Fraction(1)
        for atom in itertools.chain.from_iterable(case.atoms for case in self.pairs):
            if (atom.first == 0) != (atom.second == 0):
                return math.inf
            if atom.first:
                ratio = atom.second / atom.first
                worst = max(worst, ratio, 1 / ratio)
        return log_of(worst) * (1.0 + 1e-14) + (4.0 * UNIT if worst > 1 else 0.0)

    def __repr__(self) -> str:
        return self.name


@functools.lru_cache(maxsize=256)
def flags(L: int, q: float) -> Channel:
    """Any `L` bits, each flipped with probability `q` in [0, 1/2].

    >>> round(flags(5, 0.25).gamma, 5)
    0.03125
    """
    if L < 1 or L % 1 or not 0.0 <= q <= 0.5:
        raise ValueError(
            f"flags need a whole L >= 1 and q in [0, 1/2], got L={L} and q={q}."
            " If you have RAPPOR's f, use q = f / 2."
        )
    L, lie = int(L), _exact(q)
    truth = 1 - lie
    second = [math.comb(L, i) * truth**i * lie ** (L - i) for i in range(L + 1)]
    first = second[::-1]
    least = [math.comb(L, i) * lie**L for i in range(L + 1)]
    x, y = "0" * L, "1" * L

    def case(others: str, base: Sequence[Fraction]) -> InputPair:
        atoms = map(Atom, second, first, base)
        return InputPair(x, y, others, tuple(atom for atom in atoms if any(atom)))

    pairs, crowds = (case("", least),), (case(x, first), case(y, second))
    name = f"{L} flag{'s' if L > 1 else ''}, q = {q:g}"
    if q == 0.5:
        return Channel(name, (), ())
    if L == 1:
        return Channel(name, pairs, crowds, flip=q if q >= MIN_Q else 0.0)
    one = flags(1, q)
    sums = tuple(((crowd, L),) for crowd in one.crowds)
    return Channel(name, pairs, crowds, one, L, sums)


@functools.lru_cache(maxsize=256)
def k_ary(k: int, epsilon_0: float) -> Channel:
    """k-ary randomized response: the odds of the truth to each lie are ``e^epsilon_0``.

    The odds are rounded up to a float: fewer lies than asked for, by a few units of round-off.

    >>> round(k_ary(4, math.log(3)).gamma, 6)
    0.666667
    """
    if k < 2 or k % 1 or not 0.0 <= epsilon_0 < 700.0:
        raise ValueError(
            "k-RR needs a whole k >= 2 and epsilon_0 in [0, 700),"
            f" got k={k} and epsilon_0={epsilon_0}."
            " For answers without noise, use from_matrix with an identity matrix."
        )
    name = f"{k}-RR, epsilon_0 = {epsilon_0:g}"
    if not epsilon_0:
        return Channel(name, (), ())
    odds = Fraction(math.nextafter(math.exp(epsilon_0), math.inf))
    lie = 1 / (odds + k - 1)
    if k == 2:  # one bit, whose worst crowd is known exactly
        return replace(flags(1, math.nextafter(float(lie), 0.0)), name=name)
    truth = odds * lie

    def case(others: str, *bases: Fraction) -> InputPair:
        # the reports 0, 1, perhaps 2, and all others
        seconds, firsts = [lie, truth, lie][: len(bases)], [truth, lie, lie][: len(bases)]
        rest = lie * (k - len(bases))
        atoms = [*map(Atom, seconds, firsts, bases), Atom(rest, rest, rest)]
        return InputPair("0", "1", others, merged(atoms))

    crowds = (case("0", truth, lie), case("1", lie, truth), case("2", lie, lie, truth))
    return Channel(name, (case("", lie, lie),), crowds)


@functools.lru_cache(maxsize=256)
def unary(L: int, p: float, q: float) -> Channel:
    """One of `L` options as bits: its own is set with probability `p`, each other with `q`.

    OUE has p = 1/2 and q = 1 / (e^epsilon_0 + 1), symmetric RAPPOR p = 1 - q. Where p and 1 - q are
    the same but for the round-off of 1 - q, the smaller flip probability is taken for both.

    >>> round(unary(10, 0.5, 0.25).epsilon_0, 4) == round(math.log(3), 4)
    True
    """
    if L < 2 or L % 1 or not 0.0 <= q <= p <= 1.0:
        raise ValueError(
            f"unary needs a whole L >= 2 and 0 <= q <= p <= 1, got L={L}, p={p}, q={q}."
            " If p < q, send the complement of each bit."
        )
    name = f"one of {L} options as bits, p = {p:g}, q = {q:g}"
    if p == q:
        return Channel(name, (), ())
    L, hit, miss = int(L), _exact(p), _exact(q)
    if symmetric := 0.0 < q < 0.5 and p < 1.0 and (p == 1.0 - q or q == 1.0 - p):
        q = float(min(miss, 1 - hit))
        hit, miss = 1 - Fraction(q), Fraction(q)
    own, other = {1: hit, 0: 1 - hit}, {1: miss, 0: 1 - miss}
    pair: list[Atom] = []
    crowds: dict[str, list[Atom]] = {z: [] for z in ("0", "1", "2")[:L]}
    for a, b in itertools.product((0, 1), repeat=2):
        first, second, neither = own[a] * other[b], other[a] * own[b], other[a] * other[b]
        crowds["0"].append(Atom(second, first, first))
        crowds["1"].append(Atom(second, first, second))
        if L == 2:
            pair.append(Atom(second, first, min(first, second)))
            continue
        for c in (0, 1):
            crowds["2"].append(Atom(second * other[c], first * other[c], neither * own[c]))
        # the other bits are all 1, or p >= q makes an option whose bit is 0 the least likely
        for rest, least in (
            (miss ** (L - 2), hit * miss ** (L - 3)),
            (1 - miss ** (L - 2), (1 - miss ** (L - 2)) * (1 - hit) / (1 - miss)),
        ):
            base = min(first * rest, second * rest, neither * least)
            pair.append(Atom(second * rest, first * rest, base))
    cases = tuple(InputPair("0", "1", z, merged(atoms)) for z, atoms in crowds.items())
    one = flags(1, q) if symmetric else from_matrix([[1 - miss, miss], [1 - hit, hit]])
    up = {case.others: case for case in one.crowds if case.second == "1"}
    down = {z: InputPair("1", "0", z, _swapped(case.atoms)) for z, case in up.items()}
    # the bit of x' rises and that of x falls, among others who all answer x, x' or a third option
    sums = [((up["0"], 1), (down["1"], 1)), ((up["1"], 1), (down["0"], 1))]
    if L > 2:
        sums.append(((up["0"], 1), (down["0"], 1)))
    return Channel(name, (InputPair("0", "1", "", merged(pair)),), cases, one, 2, tuple(sums))


def _swapped(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    return tuple(Atom(a.first, a.second, a.base) for a in atoms)


def from_matrix(P: Sequence[Sequence[float | Fraction]]) -> Channel:
    """Any finite randomizer: ``P[x][v]`` is the probability of report v given input x.

    Each row must sum to 1 up to 1e-9; it is divided by its exact sum. The report of two questions
    together has the Kronecker product of their matrices.

    >>> from_matrix([[0.75, 0.25], [0.25, 0.75]]).gamma
    0.5
    """
    given = [list(row) for row in P]
    if not given or len({len(row) for row in given}) != 1 or not given[0]:
        lengths = [len(row) for row in given]
        raise ValueError(
            "a channel needs a row for each input and an entry for each report,"
            f" got rows of lengths {lengths}."
        )
    rows: list[list[Fraction]] = []
    for x, row in enumerate(given):
        finite = all(math.isfinite(entry) for entry in row)
        exact = [_exact(entry) for entry in row] if finite else [Fraction(-1)]
        total = sum(exact, Fraction())
        if min(exact) < 0 or abs(total - 1) > Fraction(1, 10**9):
            raise ValueError(
                f"row {x} must have finite entries >= 0 that sum to 1, got {row}."
                " P[x][v] is the probability of report v given input x; divide a row by its sum."
            )
        rows.append([entry / total for entry in exact])
    least = [min(column) for column in zip(*rows, strict=True)]

    def case(x: int, y: int, base: Sequence[Fraction], others: str) -> InputPair:
        return InputPair(str(x), str(y), others, merged(map(Atom, rows[y], rows[x], base)))

    # equal rows and equal classes of reports need one case only
    pairs: dict[tuple[Atom, ...], InputPair] = {}
    crowds: list[InputPair] = []
    for x, y in itertools.permutations(range(len(rows)), 2):
        if rows[x] != rows[y]:
            blanket = case(x, y, least, "")
            pairs.setdefault(blanket.atoms, blanket)
            if len(crowds) < _MAX_CROWDS:
                crowds += [case(x, y, row, str(z)) for z, row in enumerate(rows)]
    name = f"{len(rows)} x {len(rows[0])} matrix"
    return Channel(name, tuple(pairs.values()), tuple(crowds))


@functools.lru_cache(maxsize=256)
def laplace(epsilon_0: float) -> Channel:
    """Encode a bit as 0 or 1 plus Laplace noise of scale ``1 / epsilon_0``; sums are refused.

    ``e^(epsilon_0 / 2)`` is rounded up to a float.

    >>> round(laplace(2.0).gamma, 6), round(math.exp(-1), 6)
    (0.367879, 0.367879)
    """
    if not 0.0 < epsilon_0 < 700.0:
        raise ValueError(
            f"epsilon_0 must be in (0, 700), got epsilon_0={epsilon_0}."
            " For noise of scale b, use epsilon_0 = 1 / b."
        )
    top = Fraction(math.nextafter(math.exp(epsilon_0 / 2.0), math.inf))
    inner = (Fraction(math.exp(epsilon_0 / 2.0 * i / _CELLS)) for i in range(1, _CELLS))
    ends = sorted({Fraction(1), *(end for end in inner if 1 < end < top), top})
    # given 0 and given 1, of the left half
    cells = [(Fraction(1, 2), 1 / (2 * top**2))]
    spread = list(cells)
    for a, b in itertools.pairwise(ends):
        zero, one = (1 / a - 1 / b) / 2, (b - a) / (2 * top**2)
        cells.append((zero, one))
        steep, flat = (top / a) ** 2, (top / b) ** 2
        share = (zero - flat * one) / (steep - flat)
        spread += [(steep * share, share), (flat * (one - share), one - share)]
    pair = [Atom(one, zero, one) for zero, one in spread]
    pair += [Atom(zero, one, one) for zero, one in spread]
    seen = [Atom(one, zero, zero) for zero, one in cells]
    seen += [Atom(zero, one, one) for zero, one in cells]
    one_z = tuple(Atom(a.second, a.first, a.second) for a in seen)
    zero_z = tuple(Atom(a.second, a.first, a.first) for a in seen)
    crowds = (InputPair("0", "1", "0", zero_z), InputPair("0", "1", "1", one_z))
    name = f"bit plus Laplace noise, epsilon_0 = {epsilon_0:g}"
    return Channel(name, (InputPair("0", "1", "", merged(pair)),), crowds, cells=True)


@functools.lru_cache(maxsize=256)
def gaussian(sigma: float) -> Channel:
    """Encode a number in [0, 1] plus normal noise of deviation `sigma`; only sums are accounted.

    >>> gaussian(2.0).epsilon_0
    inf
    """
    if not 1e-100 <= sigma <= 1e100:
        raise ValueError(
            f"sigma must be between 1e-100 and 1e100, got sigma={sigma}."
            " For numbers in [0, b], divide the noise by b."
        )
    return Channel(f"number in [0, 1] plus normal noise, sigma = {sigma:g}", (), (), sigma=sigma)


def _exact(number: float | Fraction) -> Fraction:
    if isinstance(number, numbers.Rational):  # whole numbers of NumPy overflow
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(float(number))  # the floats of NumPy are no rationals


def merged(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    """Add up reports whose three probabilities are in the same proportion."""
    classes: dict[tuple[Fraction, ...], list[Atom]] = defaultdict(list)
    for atom in atoms:
        if total := sum(atom):
            classes[tuple(part / total for part in atom)].append(atom)
    added = (
        Atom(*(sum(parts, Fraction()) for parts in zip(*same, strict=True)))
        for same in classes.values()
    )
    return tuple(sorted(added))


def log_of(ratio: Fraction) -> float:
    """Logarithm of a positive fraction of any size, right to a few units of round-off."""
    shift = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return math.log(float(ratio / Fraction(2) ** shift)) + shift * math.log(2.0)
