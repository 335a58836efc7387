"""Decoding text: what is found among real words, beside RAPPOR's method on the same reports.

Run by itself: ``python -m bench.decoding [--repetitions 20] [--candidates 10000]``; ``--alone``
leaves RAPPOR's method out, ``--large`` only measures time and memory with 100,000 candidates. The
words and their frequencies are those of the package `wordfreq`. Half of the candidates are real
words, half are made up. The size of the question is what `propose` says. In every repetition the
same people draw cohorts and flips afresh, under a survey of another name and so with other hashes;
the counts are drawn from their exact law (`shoal.lab.populations.simulate_texts`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse, stats

from bench.measuring import Options, Table
from shoal import Plan, Survey, Tally, Text, plan
from shoal.analysis.text import decode
from shoal.analysis.text.least_squares import hash_table
from shoal.analysis.text.results import DecodedTexts
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.lab.populations import simulate_texts
from shoal.planning.text_size import suggest_text_size

CROWD = 1_000_000
EPSILON, DELTA = "2", "1e-6"
PENALTIES = (0.001, 0.003, 0.01)


@dataclass
class Decoding:
    """What one method found, with its estimates and, where it has them, intervals."""

    counts: dict[str, float]
    intervals: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, decoded: DecodedTexts) -> Decoding:
        return cls(
            {row.value: row.count for row in decoded.discoveries},
            {row.value: (row.low, row.high) for row in decoded.discoveries},
        )


def word_frequencies() -> dict[str, float]:
    """English words by falling frequency, with their share."""
    from wordfreq import get_frequency_dict

    shares = get_frequency_dict("en", "small")
    total = sum(shares.values())
    ranked = sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))
    return {word: share / total for word, share in ranked}


def crowd_of_words(people: int, seed: int = 0) -> dict[str, int]:
    """How many people answer each word, drawn once from the real frequencies."""
    shares = word_frequencies()
    drawn = simulation_generator(seed).multinomial(people, list(shares.values()))
    return {word: int(n) for word, n in zip(shares, drawn, strict=True) if n}


def rappor_decode(
    agreed: Plan, tally: Tally, candidates: Sequence[str], penalty: float
) -> Decoding:
    """RAPPOR 4: LASSO selects, least squares estimates, Bonferroni at 0.05 decides.

    `penalty` is LASSO's alpha as a share of the smallest one that selects nothing.
    """
    from sklearn.linear_model import Lasso

    (question,) = agreed.survey.questions
    assert isinstance(question, Text)
    assert tally.cohorts is not None
    q, m, c = float(agreed.q), question.bits, question.cohorts
    sizes = np.array([cohort.reports for cohort in tally.cohorts], float)[:, None]
    ones = np.array([cohort.by_bit for cohort in tally.cohorts], float)
    y = ((ones - q * sizes) / (1 - 2 * q)).ravel() * c
    table = hash_table(agreed.survey.text_hash(question.name), candidates, c).astype(np.int64)
    rows = (table + m * np.arange(c)[None, :, None]).reshape(len(candidates), -1)
    columns = np.repeat(np.arange(len(candidates)), rows.shape[1])
    X = sparse.csc_array((np.ones(rows.size), (rows.ravel(), columns)), (m * c, len(candidates)))
    X.data[:] = 1.0  # a bit that two hashes set is set once
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    largest = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    lasso = Lasso(alpha=penalty * largest, positive=True, max_iter=2000, tol=1e-4).fit(X, y)
    chosen = np.flatnonzero(lasso.coef_)
    A = sparse.csc_array(sparse.hstack((np.ones((len(y), 1)), X[:, chosen])))
    inverse = np.linalg.inv((A.T @ A).toarray())
    beta = inverse @ (A.T @ y)
    freedom = len(y) - A.shape[1]
    sigma = np.sqrt(((y - A @ beta) ** 2).sum() / freedom * np.diag(inverse))[1:]
    estimates = beta[1:]
    kept = stats.t.sf(estimates / sigma, freedom) < 0.05 / len(candidates)
    reach = 1.959964 * sigma
    names = [candidates[i] for i in chosen]
    return Decoding(
        {w: float(d) for w, d, k in zip(names, estimates, kept, strict=True) if k},
        {
            w: (float(d - r), float(d + r))
            for w, d, r, k in zip(names, estimates, reach, kept, strict=True)
            if k
        },
    )


def shoal_decode(
    agreed: Plan, tally: Tally, candidates: Sequence[str], fdr: float = 0.05
) -> Decoding:
    """Our method."""
    return Decoding.of(decode(agreed, tally, candidates, fdr=fdr))


def scores(found: Decoding, truth: dict[str, int], candidates: Sequence[str], above: float) -> dict:
    """Recall of the words above a count, false discoveries, error and coverage of those found."""
    wanted = [word for word in candidates if truth.get(word, 0) > above]
    errors = [found.counts.get(word, 0.0) - truth[word] for word in wanted]
    covered = [low <= truth.get(w, 0) <= high for w, (low, high) in found.intervals.items()]
    false = sum(word not in truth for word in found.counts)
    return {
        "wanted": len(wanted),
        "recall %": 100 * float(np.mean([word in found.counts for word in wanted])),
        "found": len(found.counts),
        "false": false,
        "false %": 100 * false / max(len(found.counts), 1),
        "rmse": float(np.sqrt(np.mean(np.square(errors)))),
        "coverage %": 100 * float(np.mean(covered)) if covered else float("nan"),
    }


def candidate_list(count: int) -> list[str]:
    """The most frequent words, and as many that do not exist."""
    words = list(word_frequencies())[: count // 2]
    return words + [f"no such word {number}" for number in range(count - len(words))]


def text_plan(people: int, bits: int, hashes: int, cohorts: int, name: str) -> Plan:
    """A text question under a proven promise."""
    survey = Survey(name, (Text("word", bits=bits, hashes=hashes, cohorts=cohorts),))
    return plan(survey, crowd_size=people, epsilon=EPSILON, delta=DELTA)


def measure(
    options: Options,
    repetitions: int | None = None,
    candidates: int = 10_000,
    peers: bool = True,
) -> Table:
    """Decode the same reports with both methods."""
    repetitions = repetitions or (2 if options.quick else 20)
    people, texts = options.size(CROWD), candidate_list(candidates)
    truth = crowd_of_words(people)
    size = suggest_text_size(candidates, people, EPSILON, DELTA)
    ways = {
        "shoal, false discoveries 5 %": partial(shoal_decode, fdr=0.05),
        "shoal, false discoveries 0.1 %": partial(shoal_decode, fdr=0.001),
    }
    for penalty in PENALTIES if peers else ():
        name = f"LASSO {penalty}, least squares, Bonferroni"
        ways[name] = partial(rappor_decode, penalty=penalty)
    results: dict[str, list[dict]] = {name: [] for name in ways}
    for number in range(repetitions):
        agreed = text_plan(people, size.bits, size.hashes, size.cohorts, f"words {number}")
        tally = simulate_texts(agreed, truth, seed=number)
        for name, way in ways.items():
            began = time.perf_counter()
            result = scores(way(agreed, tally, texts), truth, texts, 6 * size.sigma)
            result["s"] = time.perf_counter() - began
            results[name].append(result)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in result.items())
            print(f"  {number + 1} of {repetitions}, {name}: {shown}", flush=True)
    columns = ("recall %", "found", "false", "false %", "rmse", "coverage %", "s")
    rows = [
        (name, *(float(np.mean([run[key] for run in runs])) for key in columns))
        for name, runs in results.items()
    ]
    wanted = results["shoal, false discoveries 5 %"][0]["wanted"]
    text = (
        f"{people:,} people answer English words under a proven promise of epsilon {EPSILON} and"
        f" delta {DELTA} (q = {float(agreed.q):.4g}); {size.bits} bits, {size.hashes} hash,"
        f" {size.cohorts} cohorts, as proposed; {candidates:,} candidates, half of them answered"
        f" by nobody; means of {repetitions} repetitions. Recall and error are of the {wanted}"
        f" words answered by more than six predicted sigmas, {6 * size.sigma:.0f} people; coverage"
        " is of the 95 % intervals of the texts found. LASSO's penalty is a share of the smallest"
        " one that selects nothing."
    )
    return Table("Decoding text", ("method", *columns), rows, text, [large_note()], best=False)


def large_note() -> str:
    """Time and memory of 100,000 candidates, in a process of their own."""
    command = [sys.executable, "-m", "bench.decoding", "--large"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def large() -> str:
    """Decode 100,000 candidates in 64 cohorts of 256 bits."""
    agreed = text_plan(CROWD, 256, 1, 64, "words")
    tally, texts = simulate_texts(agreed, crowd_of_words(CROWD), seed=0), candidate_list(100_000)
    before = _peak_memory()
    began, busy = time.perf_counter(), time.process_time()
    found = decode(agreed, tally, texts).discoveries
    peak = _peak_memory()
    return (
        f"100,000 candidates, 256 bits, 64 cohorts: {time.perf_counter() - began:.1f} s"
        f" ({time.process_time() - busy:.1f} s of one core), {len(found)} found, peak {peak:.0f}"
        f" MB, of which {before:.0f} MB before decoding."
    )


def _peak_memory() -> float:
    """In MB. `getrusage` would count the process that started this one."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.decoding", description=__doc__)
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.large:
        print(large())
        return
    options = Options(2, arguments.quick)
    table = measure(options, arguments.repetitions, arguments.candidates, not arguments.alone)
    print(table.text)
    print(" | ".join(table.columns))
    for row in table.rows:
        print(" | ".join(v if isinstance(v, str) else f"{v:.4g}" for v in row))
    print(*table.notes, sep="\n")


if __name__ == "__main__":
    main()
