"""A second evaluation of proven bounds, in ball arithmetic (Arb, through python-flint).

It shares no evaluation with the rest of `shoal.theory`. Most of it is
`tools/verify_certificate.py`, the file that anyone can run on a certificate without Shoal: its
documentation states and proves every bound. Here the same functions are called from Python. A wheel
has the file beside this module. What that file declines is evaluated here:

* *Whole reports with cohorts.* The bound is that of reports without them (docs/text.md).
* *Adapted blankets* (docs/theorem-adapted-blankets.md). The search proposes distributions, weights
  and people. Here coverages come from all reports, in fractions; where they fall short of the
  condition, fewer people are relied on; and the verifier's stop-loss encloses d.
* *Noise of one aggregator* (`shoal.planning.share_noise`), by adding up the losses of all numbers.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import math
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shoal.theory.brackets import Bracket

if TYPE_CHECKING:
    from shoal.theory.adapted import Cover, CoverMixture, Shape

_NAME = "verify_certificate.py"
_INSTALLED = Path(__file__).with_name(_NAME)
_CHECKOUT = Path(__file__).parents[3] / "tools" / _NAME

_AIM = 1.0 - 1.9e-4
"""The verifier stops within 2e-4 of a claim; a claim this much smaller asks for a closer bound."""

_SIGMAS = (0.0, 0.4, 0.9, 1.6, 2.6)
"""Where the price of the cap is evaluated, in standard deviations above the people."""

_FAR, _MAX_PLACES = 15, 200_000
"""Normal noise is added up to 15 sigma, where it is 1e-49 likely, if the sums are not too many."""

Ratios = dict[tuple[Fraction, Fraction], Fraction]
"""Masses of the values of p(v|x') / omega(v) and p(v|x) / omega(v), v ~ omega."""


class NotCoveredError(NotImplementedError):
    """The rigorous evaluation does not cover this kind of certificate."""


@functools.cache
def verifier() -> ModuleType:
    """Return the verifier of certificates; needs python-flint."""
    path = _INSTALLED if _INSTALLED.is_file() else _CHECKOUT
    spec = importlib.util.spec_from_file_location("shoal.theory._verifier", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rigorous_delta(claim: dict[str, Any]) -> Bracket:
    """Enclose the bound on delta that is proven for a certificate.

    `claim` has the fields of a certificate that the verifier reads. Its delta is only a guess: the
    search for a close bound ends near it. The low end is 0 where only the high end is computed.
    """
    return _enclosed(json.dumps({**claim, "delta": claim["delta"] * _AIM}, sort_keys=True))


@functools.lru_cache(maxsize=64)
def _enclosed(text: str) -> Bracket:
    claim, bounds = json.loads(text, parse_float=Fraction), verifier().bounds
    if claim["proven"]["method"] == "adapted blankets":
        bounds = _adapted
    elif (claim["parties"] or {}).get("noise"):
        bounds = _noise
    elif claim["view"] == "reports":
        claim["cohorts"] = 1
    try:
        low, high = bounds(claim)
    except NotImplementedError as reason:
        raise NotCoveredError(str(reason)) from reason
    high = _as_float(high, up=True)
    return Bracket(min(_as_float(low, up=False), high), high)


def _as_float(ball: Any, *, up: bool) -> float:
    """Return an exact ball as a float, rounded up or down."""
    mantissa, exponent = (int(part) for part in ball.man_exp())
    shift = max(mantissa.bit_length() - 53, 0)
    whole = -(-mantissa >> shift) if up else mantissa >> shift
    return float(Fraction(whole) * Fraction(2) ** (exponent + shift))


def _of_reports(claim: dict[str, Any]) -> tuple[Fraction, Any]:
    """Return the epsilon of one report, and the factor of delta for all of a person's reports."""
    count = claim["reports_per_person"]
    epsilon = (claim["epsilon"] + Fraction()) / count
    lam = verifier().ball(epsilon).exp()
    return epsilon, sum(lam**i for i in range(count))


def _adapted(claim: dict[str, Any]) -> tuple[Any, Any]:
    from shoal.theory.adapted_search import adapted_delta  # here, so that commands start sooner

    tool, q = verifier(), claim["q"] + Fraction()
    epsilon, factor = _of_reports(claim)
    bits, n = sum(size for size, _, _ in claim["domain"]), claim["crowd_size"]
    low = high = tool.ZERO
    found = adapted_delta(bits, n, float(q), float(epsilon))
    for r, mixture in enumerate(found.certificates, 1):
        alone = tool.alone(r, q, epsilon).upper()
        ends = [(alone, alone)]
        if mixture is not None:
            parts, lam = _parts(mixture, q), tool.ball(epsilon).exp()
            ends = [_hidden(ratios, people, n, lam, high) for ratios, people in parts]
        low = max(low, min(alone, max(one for one, _ in ends)))
        high = max(high, min(alone, max(one for _, one in ends)))
    return (low * factor).lower(), min((high * factor).upper(), tool.arb(1))


def _parts(mixture: CoverMixture, q: Fraction) -> list[tuple[Ratios, Fraction]]:
    """Return the distribution and the people of each part, so few that all crowds are covered."""
    parts = [(*_cover(cover, q), weight, Fraction(f)) for cover, weight, f in mixture.parts]
    scale = Fraction(mixture.N - 1, sum(part.weight for part in mixture.parts))
    terms = ([scale * weight * c / people for c in cs] for _, cs, weight, people in parts)
    slack = min(1, *map(sum, zip(*terms, strict=True)))
    return [(ratios, people * slack) for ratios, _, _, people in parts]


@functools.lru_cache(maxsize=256)
def _cover(cover: Cover, q: Fraction) -> tuple[Ratios, list[Fraction]]:
    ratios: Ratios = defaultdict(Fraction)
    (one, first), (other, second) = _shape(cover.differing, q, True), _shape(cover.common, q, False)
    for ((a, b), mass), ((c, d), more) in itertools.product(one.items(), other.items()):
        ratios[a * c, b * d] += mass * more
    return ratios, [a * b for a, b in itertools.product(first, second)]


def _shape(shape: Shape, q: Fraction, differ: bool) -> tuple[Ratios, list[Fraction]]:
    """Return the distribution of a shape, or of one of an orbit, and c_y for 0, 1, ... ones."""
    cube = list(itertools.product((0, 1), repeat=shape.bits))
    powers = [q**i * (1 - q) ** (shape.bits - i) for i in range(shape.bits + 1)]

    def p(v: tuple[int, ...], y: tuple[int, ...]) -> Fraction:
        return powers[sum(map(int.__ne__, v, y))]

    some = [y for y in cube if shape.fewest <= sum(y) <= shape.most]
    sets = [[z] for z in some] if shape.orbit else [some]
    minima = [{v: min(p(v, y) for y in inside) for v in cube} for inside in sets]
    omegas = [{v: m / sum(least.values()) for v, m in least.items()} for least in minima]
    ones = [(1,) * s + (0,) * (shape.bits - s) for s in range(shape.bits + 1)]
    coverage = [
        sum((min(p(v, y) / m for v, m in omega.items()) for omega in omegas), Fraction())
        / len(omegas)
        for y in ones
    ]
    ratios: Ratios = defaultdict(Fraction)
    for v, mass in omegas[0].items():
        ratios[p(v, ones[-1] if differ else ones[0]) / mass, p(v, ones[0]) / mass] += mass
    return ratios, coverage


def _hidden(ratios: Ratios, people: Fraction, n: int, lam: Any, enough: Any) -> tuple[Any, Any]:
    """Enclose E[d(1 + B)] from below and G from above; one of at most `enough` may be rough."""
    tool, share = verifier(), people / (n - 1)
    ball, worth = tool.ball, [(mass, a, b) for (a, b), mass in ratios.items()]

    def hidden(share: Fraction, draws: int, *kappas: float) -> tuple[Any, Any]:
        atoms = [(ball(share * mass), ball(a) - lam * ball(b)) for mass, a, b in worth]
        if all(y <= 0 for _, y in atoms):
            return tool.ZERO, tool.ZERO
        for kappa in kappas:
            low, high = tool.stop_loss(atoms, draws, kappa)
            if not 0 <= low <= high:
                raise NotImplementedError("a sum is not finite")
            if (high - low).upper() <= 2e-4 * low:
                break
        return low / ball(share), high / ball(share)

    low, high = hidden(share, n, 0.006, 0.0015)
    if share == 1:
        return low.lower(), high.upper()
    pmf, first = tool.binomial(n - 1, share)
    whole, sigma = math.floor(people), math.sqrt(people * (1 - share))
    chain = sorted({min(whole + round(x * sigma), n - 1) for x in _SIGMAS})
    beyond = [ball(1 - Fraction(sum(pmf[: max(b + 1 - first, 0)]), tool.ONE)) for b in chain]
    ends = [hidden(Fraction(1), whole + 1, 0.02)]
    if not high + beyond[0] * ends[0][1] <= enough:
        ends += [hidden(Fraction(1), b + 1, 0.02) for b in chain[1:]]
    falls = itertools.pairwise([*ends, (tool.ZERO, tool.ZERO)])
    for chance, (here, there) in zip(beyond, falls, strict=False):
        high += chance * max((here[1] - there[0]).upper(), tool.ZERO)
    return low.lower(), high.upper()


def _noise(claim: dict[str, Any]) -> tuple[Any, Any]:
    """Add up the losses of all numbers, and the price of dropped bits: delta_0 + 2 k tau."""
    tool, q, noise = verifier(), claim["q"] + Fraction(), claim["parties"]["noise"]
    epsilon, factor = _of_reports(claim)
    (bits, _, most), releases = map(sum, zip(*claim["domain"], strict=True)), claim["releases"]
    price, scale = tool.ZERO, Fraction(float(noise["scale"]))
    if claim["dropped"] and (most_sent := claim["dropped"]["max_weight"]) < bits:
        pmf, first = tool.count_pmf(most, bits - most, q)
        fit = sum(pmf[: max(most_sent + 1 - first, 0)])
        price += 2 * releases * tool.ball(1 - Fraction(fit, tool.ONE))
    count = releases * sum(
        max(min(both, 2 * k - both) for both in range(2 * a, 2 * b + 1))
        for k, a, b in claim["domain"]
    )
    if noise["kind"] == "laplace":  # a loss is 1 / scale or -1 / scale
        middle, step, masses = count, 1 / scale, [1, tool.ball(1 / scale).exp()]
    else:  # if Z = -k it is 2 k + 1 steps
        far, step = math.ceil(_FAR * scale) + 1, 1 / (2 * scale**2)
        if 2 * far * count > _MAX_PLACES:
            raise NotImplementedError("a sum has too many terms")
        middle = (2 * far - 1) * count
        masses = [(-tool.ball(k * k * step)).exp() for k in range(-far, far + 1)]
        # what is further out falls faster than a geometric series, and counts as endless losses
        rest = 2 * masses[0] / (1 - (-tool.ball(2 * far * step)).exp())
        price += count * rest / sum(masses)
    total, lam = sum(masses) ** count, tool.ball(epsilon).exp()
    for i, mass in enumerate((tool.arb_poly(masses) ** count).coeffs()):
        if (loss := (2 * i - middle) * step) > epsilon:
            price += mass / total * (1 - lam / tool.ball(loss).exp())
    high = min(price.upper(), tool.alone(count, q, epsilon).upper())
    return tool.ZERO, min((high * factor).upper(), tool.arb(1))
