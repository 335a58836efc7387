"""How long promises take: an audit, and plans solved for q."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import Candidate, Options, Table, best_times
from shoal import Choice, Flags, Plan, Survey, Text, plan
from shoal.planning.certificate import certify
from shoal.support.rounding import text_up

_TEXT = (
    "One audit computes the proven delta, the attack, and delta and eta of three homogeneous"
    " crowds, all as certified brackets. A plan is solved for q, rounded up and certified again."
    " Nothing is remembered from the round before."
    " The last row is one NumPy FFT of 2^20 complex numbers in the same run."
)


_WIDE_TEXT = (
    "Seconds of one core (CPU time, one run) for surveys of up to 2,000 bits, epsilon 1 and delta"
    " 1e-6. An audit is as above, at the plan's q and at q = .25."
)


def wide(options: Options) -> Table:
    """Measure plans and audits of wide surveys."""
    kinds = [(Flags, 64), (Flags, 200), (Flags, 1000), (Flags, 2000), (Choice, 2000)]
    rows: list[Sequence[Any]] = []
    for kind, bits in kinds:
        survey = Survey("s", (kind("answer", tuple(map(str, range(bits)))),))
        for exponent in [6] if options.quick else [4, 6, 8]:
            crowd = 10**exponent
            start = time.process_time()
            agreed = plan(survey, crowd_size=crowd, epsilon="1", delta="1e-6")
            planned = time.process_time()
            certify(agreed).to_json(epsilon=1)
            audited = time.process_time()
            certify(survey, q="0.25", crowd_size=crowd).to_json(epsilon=1)
            end = time.process_time()
            name = f"{bits:,} flags" if kind is Flags else f"one of {bits:,}"
            rows.append(
                (
                    f"{name}, N = 1e{exponent}",
                    text_up(float(agreed.q), 5),
                    planned - start,
                    audited - planned,
                    end - audited,
                )
            )
            print(f"\r  {rows[-1][0]}", end="", flush=True)
    print()
    columns = ("survey", "q", "plan, s", "audit, s", "audit at .25, s")
    return Table("Certifying wide surveys", columns, rows, _WIDE_TEXT, best=False)


_COMMANDS_TEXT = (
    "User CPU seconds of the processes `shoal plan` (epsilon 1, delta 1e-6) and `shoal audit` of"
    " the plan, or of the given q, with Python's start and all imports, in each view. The plan is"
    " solved for q, and then, at that q, for the crowd and for epsilon."
)


def commands(options: Options) -> Table:
    """Measure the commands on wide surveys, in both views."""
    surveys: list[tuple[str, Survey, int, str | None]] = [
        ("200 flags, N = 1e6", _flags(200), 10**6, None),
        ("64 flags, N = 1e8, q = .25", _flags(64), 10**8, "0.25"),
        ("2,000 flags, N = 1e6", _flags(2000), 10**6, None),
        (
            "500 questions, one of 4, N = 1e6",
            Survey("s", tuple(Choice(f"question {i}", tuple("abcd")) for i in range(500))),
            10**6,
            None,
        ),
        (
            "1,000 questions, one of 2, N = 1e6",
            Survey("s", tuple(Choice(f"question {i}", tuple("ab")) for i in range(1000))),
            10**6,
            None,
        ),
        (
            "500 questions, at most 2 of 4, N = 1e6",
            Survey("s", tuple(Flags(f"question {i}", tuple("abcd"), 2) for i in range(500))),
            10**6,
            None,
        ),
        (
            "60 flags, 100 of one of 8, 20 of at most 3 of 20, N = 1e6",
            Survey(
                "s",
                (
                    Flags("flags", tuple(map(str, range(60)))),
                    *(Choice(f"choice {i}", tuple("abcdefgh")) for i in range(100)),
                    *(Flags(f"choices {i}", tuple(map(str, range(20))), 3) for i in range(20)),
                ),
            ),
            10**6,
            None,
        ),
        (
            "text of 128 bits, 8 cohorts, N = 1e6",
            Survey("s", (Text("answer", bits=128, hashes=1, cohorts=8),)),
            10**6,
            None,
        ),
    ]
    rows: list[Sequence[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        survey_file, plan_file = Path(folder, "survey.toml"), Path(folder, "plan.json")
        for name, survey, crowd, q in surveys[: 1 if options.quick else None]:
            survey_file.write_text(survey.to_toml())
            for view in ("reports", "counts"):
                crowded, wished = ["--crowd", str(crowd)], ["--epsilon", "1"]
                given: list[str | Path] = [survey_file, "--view", view]
                if q is not None:
                    audited = _cpu_seconds("audit", *given, *crowded, *wished, "--q", q)
                    rows.append((name, view, "", "", "", audited))
                else:
                    given += ["--delta", "1e-6", "-o", plan_file, "--force"]
                    planned = _cpu_seconds("plan", *given, *crowded, *wished)
                    audited = _cpu_seconds("audit", plan_file)
                    chosen = ["--q", str(float(Plan.read(plan_file).q))]
                    others = [_cpu_seconds("plan", *given, *chosen, *rest)
                              for rest in (wished, crowded)]  # fmt: skip
                    rows.append((name, view, planned, *others, audited))
                print(f"\r  {name}, {view}", end="", flush=True)
    print()
    columns = ("survey", "view", "plan: q, s", "plan: crowd, s", "plan: epsilon, s", "audit, s")
    return Table("Commands on wide surveys", columns, rows, _COMMANDS_TEXT, best=False)


def _flags(bits: int) -> Survey:
    return Survey("s", (Flags("answer", tuple(map(str, range(bits)))),))


def _cpu_seconds(*words: str | Path) -> float:
    """Return the user time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, "-m", "shoal", *words], check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def measure(options: Options) -> Table:
    """Measure audit and plan beside a fast Fourier transform."""
    forty = Survey("s", (Flags("answer", tuple(map(str, range(40)))),))
    thousand = Survey("s", (Choice("answer", tuple(map(str, range(1000)))),))
    five = Survey("s", (Flags("answer", tuple("12345")),))
    numbers = np.exp(1j * np.arange(1 << 20))
    certificate = certify(forty, q="0.351", crowd_size=10_000_000)
    candidates = [
        Candidate("audit: 40 flags, N = 1e7, q = .351", 1, lambda: certificate.to_json(epsilon=2)),
        Candidate(
            "plan: 40 flags, N = 1e7, epsilon 2, delta 1e-6",
            1,
            lambda: plan(
                forty, crowd_size=10_000_000, epsilon="2", delta="1e-6", accept_weak_promise=True
            ),
        ),
        Candidate(
            "plan: one of 1000, N = 1e6, epsilon 1, delta 1e-6",
            1,
            lambda: plan(
                thousand, crowd_size=1_000_000, epsilon="1", delta="1e-6", accept_weak_promise=True
            ),
        ),
        Candidate(
            "plan: 5 flags, N = 5000, epsilon ln 2, delta .005",
            1,
            lambda: plan(
                five, crowd_size=5000, epsilon=math.log(2), delta="0.005", accept_weak_promise=True
            ),
        ),
        Candidate("NumPy FFT of 2^20", 1, lambda: np.fft.fft(numbers)),
    ]
    candidates = [replace(one, run=_anew(one.run)) for one in candidates]
    best = best_times(candidates, max(2, options.rounds // 3))
    reference = best["NumPy FFT of 2^20"]
    rows = [(name, seconds, seconds / reference) for name, seconds in best.items()]
    width = certificate.delta(epsilon=2)
    notes = [f"The audit's proven bracket is {width.relative_width:.1e} wide, relatively."]
    return Table("Certifying", ("what", "s", "/ FFT"), rows, _TEXT, notes)


def _anew(run: Callable[[], object]) -> Callable[[], object]:
    """Return `run` as it is in a new process: the theory remembers nothing."""

    def forgetful() -> object:
        for name, module in list(sys.modules.items()):
            if name.startswith("shoal.theory"):
                for function in list(vars(module).values()):
                    getattr(function, "cache_clear", lambda: None)()
        return run()

    return forgetful
