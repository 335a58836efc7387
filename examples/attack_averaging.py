"""Averaging: whoever sees many reports of one device recovers the answer, unless it has memory.

Fresh flips of the same answer are independent, so the majority of n reports is wrong about a bit
with probability P[Bin(n, q) > n/2], which falls exponentially. With memory, the majority finds the
permanent vector, which is wrong about a bit with probability q1 however many reports there are.

Run ``python attack_averaging.py [PICTURE.png]``.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.count_table import unpack
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory

MEMORY = Memory(FlipProbability.at_least("0.1"), FlipProbability.at_least("0.15"))
"""Permanent and fresh flips; together they flip a bit as often as the device without memory."""

REPORTS = (1, 3, 5, 9, 15, 25, 41, 61)


def majority_error(reports: int, q: FlipProbability) -> float:
    """Return the probability that the majority of an odd number of fresh reports is wrong."""
    flip = q.fraction
    wrong = sum(
        (comb(reports, k) * flip**k * (1 - flip) ** (reports - k)
         for k in range(reports // 2 + 1, reports + 1)),
        Fraction(0),
    )  # fmt: skip
    return float(wrong)


def majority_error_with_memory(reports: int, memory: Memory) -> float:
    """Return the same for reports with memory: never below q1."""
    kept, fresh = float(memory.q1), majority_error(reports, memory.q2)
    return kept * (1 - fresh) + (1 - kept) * fresh


def reports_needed(q: FlipProbability, error: float) -> int:
    """Return the smallest odd number of fresh reports whose majority errs at most `error`."""
    reports = 1
    while majority_error(reports, q) > error:
        reports += 2
    return reports


def attack(reports: int, memory: Memory | None, people: int, bits: int, seed: int) -> float:
    """Return the share of bits that the majority of each person's reports gets wrong."""
    noise = SimulationBits(seed)
    truth = np.zeros((people, bits), np.uint8)
    truth[:, ::3] = 1
    original = Original(pack(truth), bits)
    q = MEMORY.q
    if memory is not None:
        original = Original(flip(memory.q1, original, random_bits=noise).rows, bits)
        q = memory.q2
    ones = np.zeros((people, bits), np.int64)
    for _ in range(reports):
        ones += unpack(flip(q, original, random_bits=noise).rows, bits)
    guess: NDArray[np.bool_] = ones > reports // 2
    return float((guess != truth).mean())


def draw(path: str) -> None:
    """Draw the predictions as lines and the simulated attacks as points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    odd = range(1, REPORTS[-1] + 1, 2)
    for label, memory, colour in (("fresh flips", None, "#D55E00"), ("memory", MEMORY, "#0072B2")):
        predicted = [
            majority_error(n, MEMORY.q) if memory is None else majority_error_with_memory(n, memory)
            for n in odd
        ]
        axes.plot(odd, predicted, color=colour, label=f"{label}, predicted")
        found = [attack(n, memory, 2000, 20, n) for n in REPORTS]
        axes.plot(REPORTS, found, "o", color=colour, label=f"{label}, simulated")
    axes.axhline(float(MEMORY.q1), color="#666666", linestyle=":", label="q1")
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 1)
    axes.set_xlabel("reports of one device")
    axes.set_ylabel("share of bits guessed wrong")
    axes.legend(frameon=False)
    figure.savefig(path)


def main(arguments: list[str]) -> None:
    """Print what is predicted and what the attack achieves; draw it if a file is named."""
    print(
        f"each bit of a report is flipped with probability {float(MEMORY.q):.4f};"
        f" the permanent part is q1 = {float(MEMORY.q1):.4f}"
    )
    needed = reports_needed(MEMORY.q, 0.01)
    print(f"without memory, the majority of {needed} reports gets at most 1 % of the bits wrong")
    print("reports  fresh flips: predicted  simulated  memory: predicted  simulated")
    for n in REPORTS:
        print(
            f"{n:7d}  {majority_error(n, MEMORY.q):22.4f}"
            f"  {attack(n, None, 2000, 20, n):9.4f}"
            f"  {majority_error_with_memory(n, MEMORY):17.4f}"
            f"  {attack(n, MEMORY, 2000, 20, n):9.4f}"
        )
    if arguments:
        draw(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
