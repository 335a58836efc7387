"""Tables to docs/benchmarks.md, for people, and to results.json, for programs."""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.conclusion import conclusion, save_picture
from bench.measuring import Options, Table

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
RESULTS = HERE / "results.json"

_LIBRARIES = (
    "shoal",
    "numpy",
    "scipy",
    "cryptography",
    "pyarrow",
    "opendp",
    "pure-ldp",
    "multi-freq-ldpy",
    "numba",
    "duckdb",
    "polars",
    "pyspark",
    "scikit-learn",
    "wordfreq",
    "starlette",
    "uvicorn",
)

_HEAD = """\
# Benchmarks

{conclusion}
`make bench` writes this page from `bench/results.json`; do not edit it.

{machine}.

Measured on {date} with {libraries}.

In each table every candidate runs once per round, in turns, on one thread; the table shows the best
round. On a busy machine, trust the ratios, which were taken under the same load, more than the
rates. Other libraries are used as their documentation says; if we found a faster way, it is shown
too. Before they are timed, randomizers must show the right share of ones, and tallies the right
counts. *LIMIT* rows do only the work that cannot be avoided, so they show the best that the machine
could do. A note below a table also holds for the table after it.
"""

_TAIL = """\
## Run it again

`make bench` installs the other libraries (the extra `bench`) and writes this page and
`bench/results.json`. It takes about half an hour. `python -m bench --report` writes the page again
without measuring. `python -m bench --only tallying-40 --rounds 30` measures one section more
carefully. `python -m bench --quick` tries everything with less work and writes nothing. Each
section is a small module in `bench/`.
"""


def save(tables: dict[str, Table], options: Options, order: list[str]) -> None:
    """Write the tables, beside those that an earlier run on this machine left, and the page."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    results: dict[str, Any] = {"machine": machine(), "libraries": libraries(), "sections": {}}
    if RESULTS.exists():
        earlier = json.loads(RESULTS.read_text())
        # What was measured earlier stays if none of its libraries is another one now.
        same = set(earlier["libraries"].split(", ")) <= set(libraries().split(", "))
        if earlier["machine"] == machine() and same:
            results |= {"sections": earlier["sections"]}
    results["date"] = date
    for name, table in tables.items():
        results["sections"][name] = {"rounds": options.rounds, **asdict(table)}
    kept = {name: results["sections"][name] for name in order if name in results["sections"]}
    results["sections"] = kept
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    report()


def report() -> None:
    """Write the page and its picture from the results that are stored, without measuring."""
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(page(results))
    save_picture(results)


def machine() -> str:
    """Return the machine in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()},"
        f" Python {platform.python_version()}"
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def libraries() -> str:
    """Return the versions of the libraries measured."""
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def markdown(table: dict[str, Any]) -> str:
    """Return a table of `results.json` as a section of the page."""
    names = list(table["columns"])
    lines = [
        f"## {table['title']}\n",
        f"| {' | '.join(names)} |",
        f"|---|{'---:|' * (len(names) - 1)}",
    ]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in table["rows"]]
    best = f" Best of {table['rounds']} rounds." if table.get("best", True) else ""
    lines += ["", table["text"] + best, ""]
    lines += [f"- {note}" for note in table["notes"]]
    return "\n".join(lines).rstrip() + "\n"


def _cell(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def page(results: dict[str, Any]) -> str:
    """Return the page of these results."""
    parts = [_HEAD.format(**results, conclusion=conclusion(results))]
    parts += [markdown(table) for table in results["sections"].values()]
    return "\n".join([*parts, _TAIL])
