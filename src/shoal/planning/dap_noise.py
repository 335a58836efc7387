"""Noise for a DAP task: how often clients flip bits, or how much noise each aggregator adds.

DAP (draft-ietf-ppm-dap) with Prio3 (draft-irtf-cfrg-vdaf) shows a collector the sum of a batch of
measurements and nothing else. draft-wang-ppm-differential-privacy makes the sum differentially
private in two ways, which are compared here:

*Clients flip bits.* Each of n clients flips each entry of its vector with probability
q = 1 / (1 + e^eps_0), and drops a random excess over max_weight. The sum is then the counts view of
a crowd of n, with its theorem (`shoal.theory.counts`, `shoal.theory.binomial`). It holds against
one aggregator and the collector, if n clients are honest (OAMC). The proof of the VDAF must accept
a flipped vector: that of Prio3MultihotCountVec does up to max_weight, that of Prio3Count does, and
that of Prio3Histogram, which accepts a single 1, does not. Sum and SumVec add up numbers, about
whose flipped bits nothing is proven here.

*Each aggregator adds noise* to its share, as much as would be enough alone, for the other may be
the attacker: so it holds if one aggregator and one client are honest (OAOC). If both add it, the
sum has twice the variance. Discrete Gaussian noise needs the L2 sensitivity and a delta
(`shoal.theory.discrete_gaussian`), discrete Laplace noise the L1 sensitivity and no delta.

What one report changes, by the neighbour relation (w is the largest number of ones before flips):

================  ====================================  ===================================
VDAF              replace: one report becomes another   add-remove: one report comes or goes
================  ====================================  ===================================
count             1 number by 1                         the same
sum               1 number by max_measurement           the same
sumvec            length numbers by max_measurement     the same
histogram         2 numbers by 1                        1 number by 1
multihotcountvec  min(2 w, length) numbers by 1         w numbers by 1
================  ====================================  ===================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.bounds import PART_OF_DELTA, CountsBound, Overflow
from shoal.protocol.plan import MAX_CROWD
from shoal.support.checks import check_decimal, check_integer, check_one_of
from shoal.support.results import Displayed, Section
from shoal.support.rounding import round_down, round_up, text_near, text_up
from shoal.theory import discrete_gaussian, laplace
from shoal.theory.randomized_response import count_sigma, local_epsilon, log_theta

Vdaf = Literal["count", "sum", "sumvec", "histogram", "multihotcountvec"]
Neighbours = Literal["replace", "add-remove"]

_NAMES = {
    "count": "Prio3Count",
    "sum": "Prio3Sum",
    "sumvec": "Prio3SumVec",
    "histogram": "Prio3Histogram",
    "multihotcountvec": "Prio3MultihotCountVec",
}
_NEEDS = {
    "count": (),
    "sum": ("max_measurement",),
    "sumvec": ("length", "max_measurement"),
    "histogram": ("length",),
    "multihotcountvec": ("length",),
}
_WHY_NOT = {
    "sum": "a measurement is a number, and nothing is proven about its flipped bits.",
    "sumvec": "a measurement holds numbers, and nothing is proven about their flipped bits.",
    "histogram": "its proof accepts a single 1, so it rejects a flipped vector; use"
    " multihotcountvec.",
}
_EPSILONS, _MAX_EPS0 = (1e-6, 50.0), 30.0
_HIGHEST = {"length": 2**16, "max_measurement": 2**48}
_DIGITS = 5
"""Digits of eps_0, which is rounded down: more flips."""


@dataclass(frozen=True)
class ClientNoise:
    """Flips of clients: what to configure, what is proven (OAMC), and the local epsilon (OC)."""

    eps0: float
    q: float
    max_weight: int
    epsilon: float
    delta: float
    dropped_delta: float
    bias: float
    sigma: float
    local_epsilon: float


@dataclass(frozen=True)
class AggregatorNoise:
    """Noise that each aggregator adds (OAOC); the sigmas are of a number of the sum."""

    distribution: str
    scale: float
    epsilon: float
    delta: float
    sigma_if_one_adds: float
    sigma_if_both_add: float


@dataclass(frozen=True, repr=False)
class DapNoise(Displayed):
    """The noise of a DAP task, both ways; `clients` is None where flips are not possible."""

    vdaf: Vdaf
    batch: int
    epsilon: float
    delta: float
    neighbours: Neighbours
    numbers: int
    moved_by: int
    clients: ClientNoise | None
    no_clients: str | None
    aggregators: tuple[AggregatorNoise, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the noise as plain JSON values."""
        return asdict(self) | {"aggregators": [asdict(one) for one in self.aggregators]}

    def _headline(self) -> str:
        many = "1 number" if self.numbers == 1 else f"{self.numbers:,} numbers"
        return (
            f"{_NAMES[self.vdaf]}, a batch of {self.batch:,}, epsilon {text_up(self.epsilon)},"
            f" delta {text_up(self.delta)}, {self.neighbours}: a report moves at most {many} of the"
            f" sum by {self.moved_by:,}"
        )

    def _sections(self) -> Iterable[Section]:
        if self.clients is not None:
            one = self.clients
            cost = text_up(one.dropped_delta, 3) if one.dropped_delta else "nothing"
            proven = f"epsilon {text_up(one.epsilon)}, delta {text_up(one.delta, 3)} (theorem)"
            rows = [
                ("eps_0", f"{one.eps0:g}"),
                ("flip probability", f"1 / (1 + e^eps_0) = {text_up(one.q, 6)}"),
                ("max_weight", f"{one.max_weight}; it costs {cost} of delta"),
                ("proven", proven),
                ("sigma of a count", text_near(one.sigma)),
                ("its bias", f"at most {text_up(one.bias, 3)}"),
                ("leader + helper", f"epsilon {text_up(one.local_epsilon)} (local, OC)"),
            ]
            yield Section(("", ""), rows, "Clients flip bits (OAMC)")
        heads = ("noise", "scale", "delta", "sigma: one adds", "both add")
        rows_of_noise = [
            (
                one.distribution,
                text_up(one.scale),
                text_up(one.delta, 3),
                text_near(one.sigma_if_one_adds),
                text_near(one.sigma_if_both_add),
            )
            for one in self.aggregators
        ]
        instead = "Each aggregator adds noise" + (" instead" if self.clients else "") + " (OAOC)"
        yield Section(heads, rows_of_noise, instead)

    def _remarks(self) -> Iterable[str]:
        if self.no_clients is not None:
            yield f"Clients cannot flip bits: {self.no_clients}"
        else:
            yield (
                "OAMC: holds against one aggregator and the collector, if the batch has"
                f" {self.batch:,} honest report{'s' * (self.batch > 1)}; against a malicious"
                " aggregator, which may forge or drop reports, only the local epsilon does."
            )
        yield (
            "OAOC: holds if one aggregator, which adds its noise, and one client are honest; both"
            " aggregators together see every report."
        )
        if self.neighbours == "add-remove":
            yield (
                "add-remove covers the sum alone: DAP tells the collector how many reports a batch"
                " has."
            )


def dap_noise(
    vdaf: Vdaf,
    *,
    batch: int,
    delta: object,
    epsilon: object = None,
    eps0: object = None,
    length: int | None = None,
    max_measurement: int | None = None,
    weight: int | None = None,
    max_weight: int | None = None,
    neighbours: Neighbours = "replace",
) -> DapNoise:
    """Return the noise that makes a DAP task (epsilon, delta)-differentially private, both ways.

    Parameters
    ----------
    vdaf
        Which Prio3.
    batch
        How many honest reports a batch has at least.
    epsilon, delta
        The privacy wanted.
    eps0
        Instead of epsilon: the eps_0 with which clients flip; epsilon is what is proven for it.
    length, max_measurement
        The parameters of the VDAF, where it has them.
    weight
        How many ones a measurement of multihotcountvec has at most before it is flipped; 1 if None.
    max_weight
        How many ones the proof allows after the flips. By default the fewest for which dropped
        ones cost at most 1 % of delta.
    neighbours
        ``"replace"`` or ``"add-remove"``; flips of clients are proven for ``"replace"``.

    >>> wish = {"batch": 100_000, "epsilon": ".906", "delta": "1e-9"}
    >>> noise = dap_noise("multihotcountvec", length=100, **wish)
    >>> noise.clients.eps0, noise.clients.max_weight, round(noise.clients.sigma, 2)
    (6.9223, 10, 9.94)
    >>> [(one.scale, round(one.sigma_if_one_adds, 2)) for one in noise.aggregators]
    [(8.536, 8.54), (2.208, 3.1)]
    """
    check_one_of("vdaf", vdaf, get_args(Vdaf))
    check_one_of("neighbours", neighbours, get_args(Neighbours))
    check_integer("batch", batch, lowest=1, highest=MAX_CROWD)
    wanted = _number("delta", delta, 1e-100, 1.0)
    if (epsilon is None) == (eps0 is None):
        raise InputError("give one of epsilon= and eps0=.")
    given = {"length": length, "max_measurement": max_measurement}
    given |= {"weight": weight, "max_weight": max_weight}
    _check_parameters(vdaf, given)
    size, ones = length or 1, weight or 1
    numbers = {"sumvec": size, "histogram": 2, "multihotcountvec": min(2 * ones, size)}.get(vdaf, 1)
    clients, reason = None, _WHY_NOT.get(vdaf)
    if reason is None and neighbours == "add-remove":
        reason = "their theorem is about replace: the number of reports is public."
    if reason is None:
        flips = _ClientFlips(numbers, size, ones, batch, max_weight)
        clients = flips.for_eps0(eps0, wanted) if eps0 is not None else flips.for_(epsilon, wanted)
    elif eps0 is not None:
        raise InputError(f"with eps0= clients flip bits, but {reason}")
    reached = _number("epsilon", epsilon, *_EPSILONS) if clients is None else clients.epsilon
    if neighbours == "add-remove":
        numbers = {"histogram": 1, "multihotcountvec": ones}.get(vdaf, numbers)
    moved_by = max_measurement or 1
    noise = aggregator_noise(numbers, moved_by, reached, wanted)
    return DapNoise(
        vdaf, batch, reached, wanted, neighbours, numbers, moved_by, clients, reason, noise
    )


def _check_parameters(vdaf: Vdaf, given: dict[str, int | None]) -> None:
    needed = _NEEDS[vdaf]
    optional = ("weight", "max_weight") if vdaf == "multihotcountvec" else ()
    for name, value in given.items():
        if value is None:
            if name in needed:
                raise InputError(f"{vdaf} needs {name}=.")
            continue
        if name not in (*needed, *optional):
            raise InputError(f"{name} is not a parameter of {vdaf}.")
        lowest = 2 if name == "length" and vdaf == "histogram" else 1
        highest = _HIGHEST.get(name) or given["length"] or 1
        check_integer(name, value, lowest=lowest, highest=highest)


@dataclass(frozen=True)
class _ClientFlips:
    """The flips of a batch of vectors with at most `ones` ones, two of which differ in so many."""

    differing: int
    length: int
    ones: int
    batch: int
    max_weight: int | None

    def _bound(self, max_weight: int | None) -> CountsBound:
        if max_weight is None:
            return CountsBound(self.differing)
        overflow = Overflow(self.length, self.ones, max_weight)
        return CountsBound(self.differing, overflow=overflow)

    def _left(self, delta: float) -> float:
        return delta if self.max_weight is not None else delta * (1.0 - PART_OF_DELTA)

    def _noise(self, eps0: float, epsilon: float, delta: float) -> ClientNoise:
        """Return the flips with eps_0, and with the fewest ones that are worth it, certified."""
        q, weight = _flip_probability(eps0), self.max_weight
        if weight is None:
            every = Overflow(self.length, self.ones, self.length)
            weight = every.smallest_weight(self.batch, q, epsilon, delta)
        bound = self._bound(weight)
        assert bound.overflow is not None
        proven = bound.proven(self.batch, q, epsilon).delta.high
        people = bound.hiding(self.batch, q, epsilon)
        return ClientNoise(
            eps0,
            q,
            weight,
            epsilon,
            proven,
            # an epsilon that holds for a single report costs no delta
            bound.overflow.price(people, q, epsilon) if proven else 0.0,
            bound.overflow.bias(self.batch, q),
            count_sigma(self.batch, q),
            round_up(local_epsilon(self.differing, q)),
        )

    def for_(self, epsilon: object, delta: float) -> ClientNoise:
        wanted = _number("epsilon", epsilon, *_EPSILONS)
        least = self._bound(self.max_weight).q(self.batch, wanted, self._left(delta))
        eps0 = round_down(min(log_theta(least), _MAX_EPS0), _DIGITS) if least < 0.5 else 0.0
        for _ in range(64):
            if eps0 <= 0.0:
                break
            noise = self._noise(eps0, wanted, delta)
            if noise.delta <= delta:
                return noise
            eps0 = round_down(eps0 * (1.0 - 10.0 ** (1 - _DIGITS)), _DIGITS)
        raise PrivacyRefusal(
            f"with epsilon {epsilon} in a batch of {self.batch:,} every bit would be a coin toss;"
            " choose a larger epsilon or batch."
        )

    def for_eps0(self, eps0: object, delta: float) -> ClientNoise:
        given = _number("eps0", eps0, 1e-6, _MAX_EPS0)
        q = _flip_probability(given)
        kept = self._bound(self.max_weight).epsilon(self.batch, q, self._left(delta))
        first = max(kept, _EPSILONS[0])
        # the price of dropped ones rises with epsilon, so that rounding it up may cost too much
        for epsilon in (round_up(first), first):
            if (noise := self._noise(given, epsilon, delta)).delta <= delta:
                return noise
        return self._noise(given, round_up(local_epsilon(self.differing, q)), delta)


def _number(name: str, value: object, low: float, high: float) -> float:
    number = float(check_decimal(name, value, above=0))
    if not low <= number <= high or number == 1.0 == high:
        raise InputError(f"{name} must be between {low:g} and {high:g}, got {name}={value}.")
    return number


def _flip_probability(eps0: float) -> float:
    """Return 1 / (1 + e^eps_0), rounded down: fewer flips promise no more."""
    return (1.0 - 1e-15) / (1.0 + math.exp(eps0))


def aggregator_noise(
    numbers: int, moved_by: int, epsilon: float, delta: float
) -> tuple[AggregatorNoise, ...]:
    """Return Gaussian and Laplace noise for `numbers` that one report moves by `moved_by`.

    At a delta of 0 there is no Gaussian noise.
    """
    # scale * epsilon must be at least the L1 sensitivity, in decimals
    scale, least = round_up(numbers * moved_by / epsilon), Fraction(numbers * moved_by)
    if Fraction(str(scale)) * Fraction(str(epsilon)) < least:
        scale = round_up(scale * (1.0 + 1e-12))
    found = [("Laplace", scale, 0.0, laplace.discrete_sigma(scale))]
    if delta > 0.0:
        gaussian = discrete_gaussian.sigma_of_shifts(moved_by, numbers, epsilon, delta)
        found.insert(0, ("Gaussian", gaussian, delta, discrete_gaussian.deviation(gaussian)))
    made = []
    for kind, parameter, paid, sigma in found:
        both = math.sqrt(2.0) * sigma
        made.append(AggregatorNoise(f"discrete {kind}", parameter, epsilon, paid, sigma, both))
    return tuple(made)
