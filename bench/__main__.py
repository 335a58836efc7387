"""Measure everything, or some of it, and write docs/benchmarks.md and bench/results.json."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from bench import (
    accounting,
    aggregating,
    answer_times,
    attacks,
    certifying,
    collecting,
    console,
    decoding,
    device,
    files,
    javascript,
    kernels,
    opening,
    postgres,
    randomizing,
    relaying,
    scale,
    spark,
    starting,
    tallying,
    telemetry,
    vdaf,
)
from bench.measuring import Options
from bench.reporting import machine, markdown, report, save

SECTIONS = {
    "randomizing-40": randomizing.short,
    "randomizing-1000": randomizing.long,
    "tallying-40": tallying.short,
    "tallying-1000": tallying.long,
    "kernels": kernels.measure,
    "files": files.measure,
    "scale": scale.measure,
    "spark": spark.measure,
    "certifying": certifying.measure,
    "certifying-wide": certifying.wide,
    "certifying-commands": certifying.commands,
    "decoding": decoding.measure,
    "collecting": collecting.measure,
    "postgres": postgres.measure,
    "opening": opening.measure,
    "vdaf": vdaf.measure,
    "aggregating": aggregating.measure,
    "relaying": relaying.measure,
    "console": console.measure,
    "attacks": attacks.measure,
    "answer-times": answer_times.measure,
    "starting": starting.measure,
    "device": device.measure,
    "telemetry": telemetry.measure,
    "javascript": javascript.measure,
    "accounting": accounting.measure,
}
"""Each section, in the order of the page: a function from Options to a Table."""


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help="rounds per section (default 15; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="less work; writes nothing")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="only these sections")
    parser.add_argument(
        "--report", action="store_true", help="write the page again; measure nothing"
    )
    arguments = parser.parse_args()
    if arguments.report:
        report()
        accounting.report()
        return
    rounds = arguments.rounds or (2 if arguments.quick else 15)
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    options = Options(rounds, arguments.quick)
    print(machine())
    tables = {}
    for name in arguments.only or SECTIONS:
        print(f"\n{name}")
        tables[name] = SECTIONS[name](options)
        print("\n" + markdown({"rounds": rounds, **asdict(tables[name])}))
    if arguments.quick:
        return
    if "accounting" in tables:  # numbers that do not depend on the machine, on a page of their own
        accounting.save(tables.pop("accounting"))
    if tables:
        save(tables, options, list(SECTIONS))


if __name__ == "__main__":
    main()
