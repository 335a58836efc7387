"""Published bounds for shuffled reports, written from the papers for comparison.

`n` people, each with a randomizer that is `local`-differentially private; epsilon and delta are of
the shuffled reports, and neighbours differ in one person's answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from shoal.theory.stop_loss import delta_of_draws
from shoal.theory.stop_loss.reduction import Draw

Curve = Callable[[float], float]
"""Epsilon to delta."""


def epsilon_of(curve: Curve, delta: float, most: float) -> float:
    """Return the smallest epsilon, rounded up by at most 1e-6 of `most`, where the curve is low."""
    low, high = 0.0, most
    while high - low > 1e-6 * most:
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def k_ary_moments(k: int, local: float, epsilon: float) -> tuple[float, float, float, float]:
    """Return gamma, the largest and the smallest value, and the second moment of Balle's variable.

    It is L = (P_x(W) - e^epsilon P_x'(W)) / w(W), where W has the blanket's distribution w.
    """
    gamma = k / (math.exp(local) + k - 1)
    mine, other, factor = k * (1 - gamma) + gamma, gamma, math.exp(epsilon)
    values = [mine - factor * other, other - factor * mine, other - factor * other]
    weights = [1 / k, 1 / k, (k - 2) / k]
    second = sum(weight * value**2 for weight, value in zip(weights, values, strict=True))
    return gamma, values[0], values[1], second


def any_moments(local: float, epsilon: float) -> tuple[float, float, float, float]:
    """Return the same for any randomizer; its second moment is not known, so only that of 1."""
    gamma, factor = math.exp(-local), math.exp(epsilon)
    high, low = math.exp(local) - factor * gamma, gamma - factor * math.exp(local)
    return gamma, high, low, max(high, -low) ** 2


def hoeffding(moments: tuple[float, float, float, float], n: int, epsilon: float) -> float:
    """Bound delta by Hoeffding's inequality (Balle, Bell, Gascon and Nissim 2019)."""
    gamma, high, low, _ = moments
    mean, width = math.expm1(epsilon), high - low
    if mean <= 0:
        return 1.0
    many = np.arange(n + 1)
    exponents = -2 * many * mean**2 / width**2 + stats.binom.logpmf(many, n, gamma)
    return float(width**2 / (4 * mean) * np.exp(exponents[1:]).sum() / (gamma * n))


def bennett(moments: tuple[float, float, float, float], n: int, epsilon: float) -> float:
    """Bound delta by Bennett's inequality (the same paper)."""
    gamma, high, _, second = moments
    mean = math.expm1(epsilon)
    if mean <= 0:
        return 1.0
    reach = high + mean
    ratio = reach * mean / second
    rate = second / reach**2 * ((1 + ratio) * math.log1p(ratio) - ratio)
    many = np.arange(n + 1)
    exponents = -many * rate + stats.binom.logpmf(many, n, gamma)
    return float(reach / math.log1p(ratio) * np.exp(exponents[1:]).sum() / (gamma * n))


def clones_closed_form(local: float, n: int, delta: float) -> float:
    """Bound epsilon in closed form (Feldman, McMillan and Talwar 2021, Theorem 3.1)."""
    if local > math.log(n / (16 * math.log(2 / delta))):
        return local
    root = 8 * math.sqrt(math.exp(local) * math.log(4 / delta) / n)
    rest = 8 * math.exp(local) / n
    return min(local, math.log1p(math.tanh(local / 2) * (root + rest)))


def stronger_clones_closed_form(local: float, n: int, delta: float) -> float:
    """Bound epsilon in closed form (Feldman, McMillan and Talwar 2023, Theorem 3.2)."""
    if local > math.log(n / (8 * math.log(2 / delta)) - 1):
        return local
    root = 4 * math.sqrt(2 * math.log(4 / delta) / ((math.exp(local) + 1) * n))
    return min(local, math.log1p(math.expm1(local) * (root + 4 / n)))


def three_symbols(local: float, n: int, *, variation: float, each: float) -> Curve:
    """Return delta of three symbols: what clones, stronger clones and variation ratios reduce to.

    The victim says 0 or 1 with odds e^local to 1 and total variation `variation`, else nothing; the
    others say 0 or 1 with probability `each`. The upper end of the engine's bracket is returned.
    """
    seldom = variation / math.expm1(local)
    often = seldom * math.exp(local)
    silent, others = max(1 - often - seldom, 0.0), max(1 - 2 * each, 0.0)
    if silent > 1e-12 and others <= 1e-12:
        raise ValueError("The victim says nothing but nobody else does.")

    def logs(values: list[float], weights: list[float]) -> np.ndarray:
        return np.array(
            [
                math.log(value / weight) if value > 1e-300 and weight > 1e-300 else -math.inf
                for value, weight in zip(values, weights, strict=True)
            ]
        )

    weights = [each, each, others]

    def delta(epsilon: float) -> float:
        draw = Draw(
            logs([often, seldom, silent], weights),
            epsilon + logs([seldom, often, silent], weights),
            np.array([math.log(each), math.log(each), math.log(others) if others else -math.inf]),
        )
        return delta_of_draws(draw, n, 1e-4).high

    return delta


def clones(local: float, n: int) -> Curve:
    """Return delta of the clones, evaluated exactly (2021)."""
    return three_symbols(local, n, variation=math.tanh(local / 2), each=math.exp(-local) / 2)


def stronger_clones(local: float, n: int) -> Curve:
    """Return delta of the stronger clones, evaluated exactly (2023)."""
    return three_symbols(local, n, variation=math.tanh(local / 2), each=1 / (math.exp(local) + 1))


def variation_ratio(local: float, n: int, variation: float) -> Curve:
    """Return delta of Wang et al. 2024 with p = q = e^local and their total variation."""
    return three_symbols(local, n, variation=variation, each=variation / math.expm1(local))
