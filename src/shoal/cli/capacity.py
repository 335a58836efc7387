"""`shoal capacity`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.lab.capacity import Capacity, Need
    from shoal.lab.capacity_probes import Work

_REST = (
    "Not measured: TLS, which runs in a proxy; the overhead of TCP; the shuffling and forwarding of"
    " a relay; the database server. A process uses one core: to use more, run several collectors or"
    " relays, each with a share of the devices."
)
_UNITS = ("", "k", "M", "G", "T", "P")


@cli.command("shoal capacity plan.json --data /srv")
def capacity(
    plan_file: Path | None = arg("[PLAN.json]"),
    data: cli.InFolder | None = opt("Measure the disk of this folder.  [default: here]"),
    seconds: float = opt(
        "About how long all measurements take together.", default=40.0, type=click.FLOAT
    ),
    peak: float = opt(
        "How many times the average comes in the busiest time.", default=3.0, type=click.FLOAT
    ),
    database: str | None = opt(
        "Measure this PostgreSQL database too: postgresql://USER@HOST/NAME.", "URL"
    ),
) -> out.Result:
    """Measure this machine, and size it for many devices a day.

    Real reports go through the real code: a collector over HTTP, the stores of a collector and a
    relay, the decryption of messages, and the tally. The needs of a million, a hundred million and
    a billion devices a day follow by formulas that are printed too.

    The plan determines the length of a report and its number of messages; without a plan, a
    report has 40 flags and one message. All files that are written are deleted, and existing data
    in a database are not touched.
    """
    from shoal.lab.capacity import measure_capacity
    from shoal.server.storage.postgres import trial_schema
    from shoal.server.storage.store import Store

    plan = None if plan_file is None else Plan.read(plan_file)
    trial = nullcontext() if database is None else trial_schema(database)
    with trial as url, out.progress_to("measuring") as step:
        opening = None if url is None else (lambda folder: Store(folder, url=url))
        measured = measure_capacity(
            plan, folder=data, seconds=seconds, peak=peak, database=opening, step=step
        )
    return out.Result(measured.to_json(), _show(measured))


def _show(capacity: Capacity) -> out.Pieces:
    from shoal.lab.capacity import FORMULAS

    messages = "1 message" if capacity.messages == 1 else f"{capacity.messages} messages"
    yield (
        f"[bold]measured here[/bold] ({capacity.cores} cores; reports of {capacity.bits} bits,"
        f" encrypted as {messages})"
    )
    rows = [
        (out.bold(f"[{key}]"), work.name, *_work_cells(work)) for key, work in capacity.work.items()
    ]
    yield out.table(["", "work", "a second", "core time", "disk"], rows, left=2)
    yield (
        f"\n[bold]needed[/bold] (the busiest time is {text_near(capacity.peak_factor, 3)} times the"
        " average)"
    )
    needs: list[tuple[Any, ...]] = []
    before = 0
    for need in capacity.needs():
        devices = f"{need.devices_a_day:,}" if need.devices_a_day != before else ""
        needs.append((f"{devices:>13}", out.bold(need.deployment), *_need_cells(need)))
        before = need.devices_a_day
    columns = ["devices a day", "deployment", "cores", "disk a day", "network"]
    yield out.table(columns, needs, left=2)
    yield ""
    yield out.bullets([*(f"{name}: {formula}." for name, formula in FORMULAS.items()), _REST])


def _work_cells(work: Work) -> tuple[str, str, str]:
    disk = f"{work.disk_bytes_each:,.0f} B" if work.disk_bytes_each else ""
    return _scaled(work.rate), f"{_time(work.core_seconds_each)}", disk


def _need_cells(need: Need) -> tuple[str, str, str]:
    if need.cores is None:
        return ("not measured", "", "")
    disk, network = need.disk_bytes_a_day, need.network_bits_a_second
    return (
        text_near(need.cores, 2),
        "not measured" if disk is None else f"{_scaled(disk)}B",
        "" if network is None else f"{_scaled(network)}bit/s",
    )


def _scaled(number: float) -> str:
    """Write a number with a prefix for its size, and a space before the unit."""
    place = 0
    while number >= 999.5 and place < len(_UNITS) - 1:
        number, place = number / 1000, place + 1
    return f"{text_near(number, 3)} {_UNITS[place]}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{text_near(seconds / size, 3)} {unit}"
    return f"{text_near(seconds / 1e-9, 3)} ns"
