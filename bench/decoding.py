"""Decoding text: what is found among real words, beside RAPPOR's method on the same reports.

Run by itself: ``python -m bench.decoding [--repetitions 20] [--candidates 10000]``; ``--alone``
leaves RAPPOR's method out, ``--large`` measures time and memory with 100,000 candidates. The words
and their frequencies are those that the package `wordsegment` ships. Half of the candidates are
real words, half are made up. In every repetition the same people draw cohorts and lies afresh,
under a survey of another name and so with other hashes.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources

import numpy as np
from scipy import sparse, stats

from bench.measuring import Options, Table
from shoal import Original, Plan, SimulationBits, Survey, Tally, Tallying, Text, plan, randomize
from shoal.decoding import decode
from shoal.decoding.sizing import predicted_sigma
from shoal.randomness import simulation_generator
from shoal.vectors import pack

CROWD = 1_000_000
_CHUNK = 1 << 17


@dataclass
class Found:
    """What one method found, with its estimates and, where it has them, intervals."""

    counts: dict[str, float]
    intervals: dict[str, tuple[float, float]]


def word_frequencies() -> dict[str, float]:
    """Words of the web by falling frequency, with their share."""
    text = (resources.files("wordsegment") / "unigrams.txt").read_text("utf-8")
    pairs = [line.split("\t") for line in text.splitlines()]
    total = sum(float(count) for _, count in pairs)
    return {word: float(count) / total for word, count in pairs}


def crowd_of_words(people: int, seed: int = 0) -> dict[str, int]:
    """How many people answer each word, drawn once from the real frequencies."""
    shares = word_frequencies()
    drawn = simulation_generator(seed).multinomial(people, list(shares.values()))
    return {word: int(n) for word, n in zip(shares, drawn, strict=True) if n}


class Crowd:
    """People whose words stay the same; each tally has fresh cohorts and lies."""

    def __init__(self, made: Plan, counts: dict[str, int]) -> None:
        (question,) = made.survey.questions
        assert isinstance(question, Text)
        self.plan, self.question, self.counts = made, question, counts
        self._table = made.survey.text_hash(question.name).table(counts, question.cohorts)
        self._people = np.repeat(np.arange(len(counts)), list(counts.values()))

    def tally(self, seed: int) -> Tally:
        """Randomize and count everybody: the real path, with seeded bits."""
        generator, noise = simulation_generator(seed), SimulationBits(seed + 1_000_000)
        tallying = Tallying(self.plan)
        for start in range(0, len(self._people), _CHUNK):
            people = self._people[start : start + _CHUNK]
            cohorts = generator.integers(self.question.cohorts, size=len(people)).astype(np.uint16)
            vectors = np.zeros((len(people), self.plan.bits), bool)
            positions = self._table[people, cohorts].astype(np.int64)
            np.put_along_axis(vectors, positions, True, axis=1)
            original = Original(pack(vectors), self.plan.bits, cohorts)
            report = randomize(original, self.plan, random_bits=noise)
            tallying.add(report.rows, simulated=True, cohorts=report.cohorts)
        return tallying.result()


def rappor_decode(made: Plan, tally: Tally, candidates: Sequence[str], penalty: float) -> Found:
    """RAPPOR 4: LASSO selects, least squares estimates, Bonferroni at 0.05 decides.

    `penalty` is LASSO's alpha as a share of the smallest one that selects nothing.
    """
    from sklearn.linear_model import Lasso

    (question,) = made.survey.questions
    assert isinstance(question, Text)
    assert tally.cohorts is not None
    q, m, c = float(made.q), question.bits, question.cohorts
    sizes = np.array([cohort.reports for cohort in tally.cohorts], float)[:, None]
    ones = np.array([cohort.by_bit for cohort in tally.cohorts], float)
    y = ((ones - q * sizes) / (1 - 2 * q)).ravel() * c
    table = made.survey.text_hash(question.name).table(candidates, c).astype(np.int64)
    rows = (table + m * np.arange(c)[None, :, None]).reshape(len(candidates), -1)
    columns = np.repeat(np.arange(len(candidates)), rows.shape[1])
    X = sparse.csc_array((np.ones(rows.size), (rows.ravel(), columns)), (m * c, len(candidates)))
    X.data[:] = 1.0  # a bit that two hashes set is set once
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    largest = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    lasso = Lasso(alpha=penalty * largest, positive=True, max_iter=2000, tol=1e-4)
    chosen = np.flatnonzero(lasso.fit(X, y).coef_)
    A = np.column_stack((np.ones(len(y)), X[:, chosen].toarray()))
    inverse = np.linalg.pinv(A.T @ A)
    beta = inverse @ (A.T @ y)
    freedom = len(y) - A.shape[1]
    sigma = np.sqrt(((y - A @ beta) ** 2).sum() / freedom * np.diag(inverse))[1:]
    estimates = beta[1:]
    kept = stats.t.sf(estimates / sigma, freedom) < 0.05 / len(candidates)
    reach = 1.959964 * sigma
    names = [candidates[i] for i in chosen]
    return Found(
        {w: float(d) for w, d, k in zip(names, estimates, kept, strict=True) if k},
        {
            w: (float(d - r), float(d + r))
            for w, d, r, k in zip(names, estimates, reach, kept, strict=True)
            if k
        },
    )


def shoal_decode(made: Plan, tally: Tally, candidates: Sequence[str], fdr: float = 0.05) -> Found:
    """Our method."""
    found = decode(made, tally, candidates, fdr=fdr).found
    return Found(
        {row.value: row.count for row in found},
        {row.value: (row.low, row.high) for row in found},
    )


def scores(found: Found, truth: dict[str, int], candidates: Sequence[str], above: float) -> dict:
    """Recall of the words above a count, false discoveries, error and coverage of those found."""
    wanted = [word for word in candidates if truth.get(word, 0) > above]
    errors = [found.counts.get(word, 0.0) - truth[word] for word in wanted]
    covered = [low <= truth.get(w, 0) <= high for w, (low, high) in found.intervals.items()]
    false = sum(word not in truth for word in found.counts)
    return {
        "wanted": len(wanted),
        "recall": float(np.mean([word in found.counts for word in wanted])),
        "found": len(found.counts),
        "false": false,
        "false share": false / max(len(found.counts), 1),
        "rmse": float(np.sqrt(np.mean(np.square(errors)))),
        "coverage": float(np.mean(covered)) if covered else float("nan"),
    }


def make_crowd(people: int, bits: int, hashes: int, cohorts: int, name: str = "words") -> Crowd:
    """Words of the web answered under a proven promise of epsilon 2 and delta 1e-6."""
    survey = Survey(name, (Text("word", bits=bits, hashes=hashes, cohorts=cohorts),))
    made = plan(survey, crowd_size=people, epsilon="2", delta="1e-6")
    return Crowd(made, crowd_of_words(people))


def candidate_list(count: int) -> list[str]:
    """The most frequent words, and as many that do not exist."""
    words = list(word_frequencies())[: count // 2]
    return words + [f"no such word {number}" for number in range(count - len(words))]


PENALTIES = (0.003, 0.01, 0.03)


def measure(
    options: Options, repetitions: int = 3, candidates: int = 10_000, peers: bool = True
) -> Table:
    """Decode the same reports with both methods."""
    people, texts = options.size(CROWD), candidate_list(candidates)
    results: dict[str, list[dict]] = {}
    for number in range(repetitions):
        crowd = make_crowd(people, 256, 1, 64, f"words {number}")
        tally, q = crowd.tally(number), float(crowd.plan.q)
        sigma = predicted_sigma(people, q, bits=256, hashes=1, cohorts=64)
        ways = {
            "shoal, false discoveries 5 %": partial(shoal_decode, fdr=0.05),
            "shoal, false discoveries 0.1 %": partial(shoal_decode, fdr=0.001),
        }
        for penalty in PENALTIES if peers else ():
            name = f"LASSO {penalty}, least squares, Bonferroni"
            ways[name] = partial(rappor_decode, penalty=penalty)
        for name, way in ways.items():
            began = time.perf_counter()
            result = scores(way(crowd.plan, tally, texts), crowd.counts, texts, 6 * sigma)
            result["s"] = time.perf_counter() - began
            results.setdefault(name, []).append(result)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in result.items())
            print(f"  {number + 1} of {repetitions}, {name}: {shown}", flush=True)
    columns = ("recall", "found", "false", "false share", "rmse", "coverage", "s")
    rows = [
        (name, *(float(np.mean([run[key] for run in runs])) for key in columns))
        for name, runs in results.items()
    ]
    text = (
        f"{people:,} people answer words of the web, promise epsilon 2 and delta 1e-6"
        f" (q = {q:.4g}), 256 bits, 1 hash, 64 cohorts, {candidates:,} candidates of which half do"
        f" not exist; means of {repetitions} repetitions. Recall and error are of the words"
        f" answered by more than six predicted sigmas, {6 * sigma:.0f} people. LASSO's penalty is"
        " a share of the smallest one that selects nothing."
    )
    return Table("Decoding text", ("method", *columns), rows, text)


def large() -> None:
    """Time and memory of 100,000 candidates."""
    crowd = make_crowd(CROWD, 256, 1, 64)
    tally, texts = crowd.tally(0), candidate_list(100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began, busy = time.perf_counter(), time.process_time()
    found = decode(crowd.plan, tally, texts).found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"100,000 candidates: {time.perf_counter() - began:.1f} s"
        f" ({time.process_time() - busy:.1f} s of one core), {len(found)} found,"
        f" peak {peak:.0f} MB, {before:.0f} MB before decoding"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.decoding", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.large:
        large()
        return
    options = Options(quick=arguments.quick)
    table = measure(options, arguments.repetitions, arguments.candidates, not arguments.alone)
    print(table.text)
    print(" | ".join(table.columns))
    for row in table.rows:
        print(" | ".join(v if isinstance(v, str) else f"{v:.4g}" for v in row))


if __name__ == "__main__":
    main()
