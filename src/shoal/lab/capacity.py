"""Capacity: measured costs of one report, and the needs of many devices a day.

Every number is measured in this run, or follows from measured ones by a formula of `FORMULAS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.lab import capacity_probes as probes
from shoal.lab.capacity_probes import Work, scaled
from shoal.lab.demo import scratch_folder
from shoal.protocol.encryption import encrypted_batch_bytes, message_bytes
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Parties, Plan, Promise
from shoal.protocol.survey import Flags, Survey
from shoal.protocol.wire import batch_bytes
from shoal.server.storage.store import Store
from shoal.support.checks import check_number
from shoal.support.results import Displayed, Section
from shoal.support.rounding import text_near

_REST = (
    "Not measured: TLS, which runs in a proxy; the overhead of TCP; the shuffling and forwarding of"
    " a relay; the database server. A process uses one core: to use more, run several collectors or"
    " relays, each with a share of the devices."
)

DEVICES = (10**6, 10**8, 10**9)
DAY = 86_400

FORMULAS = {
    "peak": "devices x peak factor / 86,400: reports a second in the busiest time",
    "collector": "cores = peak x [http]; disk = devices x bytes of [store]",
    "relay": "cores = peak x ([http] - [store] + [relay]); disk = devices x bytes of [relay]",
    "analyzer": "cores = devices x [opened] / 86,400; disk = devices x bytes of [opened]",
    "PostgreSQL": "cores = peak x ([http] - [store] + [database]), at the collectors",
    "network": "bytes of a report's exchange x 8 x peak; at the relay also what it forwards, and at"
    " the analyzer only that, over the whole day",
}
"""How each number follows; [name] is the processor time of one unit of a measurement."""


@dataclass(frozen=True)
class Need:
    """The needs of a deployment for a number of devices a day; None was not measured."""

    deployment: str
    devices_a_day: int
    cores: float | None
    disk_bytes_a_day: float | None
    network_bits_a_second: float | None

    @property
    def cells(self) -> tuple[str, str, str]:
        if self.cores is None:
            return "not measured", "", ""
        disk, network = self.disk_bytes_a_day, self.network_bits_a_second
        return (
            text_near(self.cores, 2),
            "not measured" if disk is None else f"{scaled(disk)}B",
            "" if network is None else f"{scaled(network)}bit/s",
        )


@dataclass(frozen=True, repr=False)
class Capacity(Displayed):
    """The measurements of a machine, and the needs that follow from them.

    `exchange_bytes` is the size of a report's HTTP exchange, `message_bytes` that of an encrypted
    report as the relay forwards it, and `work` has the measurements by their short names.
    """

    bits: int
    peak_factor: float
    cores: int
    exchange_bytes: int
    encrypted_exchange_bytes: int
    message_bytes: int
    work: dict[str, Work]

    def _headline(self) -> str:
        return f"{self.cores} cores; reports of {self.bits} bits"

    def _sections(self) -> list[Section]:
        rows = [(f"[{key}]", work.name, *work.cells) for key, work in self.work.items()]
        needs, before = [], 0
        for need in self.needs():
            devices = f"{need.devices_a_day:,}" if need.devices_a_day != before else ""
            needs.append((need.deployment, devices, *need.cells))
            before = need.devices_a_day
        busiest = f"the busiest time is {text_near(self.peak_factor, 3)} times the average"
        heads = "deployment", "devices a day", "cores", "disk a day", "network"
        return [
            Section(("", "work", "a second", "core time", "disk"), rows, "measured here"),
            Section(heads, needs, f"needed ({busiest})"),
        ]

    def _remarks(self) -> tuple[str, ...]:
        return (*(f"{name}: {formula}." for name, formula in FORMULAS.items()), _REST)

    def needs(self) -> Iterator[Need]:
        """Yield what each deployment needs for a million, a hundred million and a billion."""
        for devices in DEVICES:
            yield from self.needs_of(devices)

    def needs_of(self, devices: int) -> Iterator[Need]:
        """Yield what each deployment needs for so many devices a day."""
        cost = {name: work.core_seconds_each for name, work in self.work.items()}
        peak = devices * self.peak_factor / DAY
        # The store of the collector ran alone too; the rest of a request is the same for all.
        request = max(cost["http"] - cost["store"], 0.0)
        disk = {name: work.disk_bytes_each for name, work in self.work.items()}
        plain, encrypted = (
            8 * peak * size for size in (self.exchange_bytes, self.encrypted_exchange_bytes)
        )
        forwarded = 8 * devices * self.message_bytes / DAY
        yield Need("collector", devices, peak * cost["http"], devices * disk["store"], plain)
        relay, traffic = peak * (request + cost["relay"]), encrypted + forwarded
        yield Need("relay", devices, relay, devices * disk["relay"], traffic)
        analyzer, stored = devices * cost["opened"] / DAY, devices * disk["opened"]
        yield Need("analyzer", devices, analyzer, stored, forwarded)
        if "database" in cost:
            yield Need("PostgreSQL", devices, peak * (request + cost["database"]), None, plain)
        else:
            yield Need("PostgreSQL", devices, None, None, None)

    def to_json(self) -> dict[str, Any]:
        """Return all numbers, and the formulas behind those that were not measured."""
        numbers = {name: value for name, value in vars(self).items() if name != "work"}
        return numbers | {
            "measured": {name: work.to_json() for name, work in self.work.items()},
            "needs": [vars(need) for need in self.needs()],
            "formulas": FORMULAS,
        }


def measure_capacity(
    plan: Plan | None = None,
    *,
    folder: Path | None = None,
    seconds: float = 40.0,
    peak: float = 3.0,
    database: Callable[[Path], Store] | None = None,
    step: Callable[[int, int], object] = lambda done, total: None,
) -> Capacity:
    """Measure this machine, and size it for many devices a day.

    The plan's bits and cohorts matter; by default it has 40 flags. All of it takes about `seconds`,
    without the starts of a service, and the files in `folder` are deleted. `database`
    opens another store; `step` gets how many measurements are done and how many there are.
    """
    if not 1 <= check_number("seconds", seconds) <= 3600:
        raise InputError(f"measuring takes 1 to 3600 seconds, got {seconds:g}.")
    if not 1 <= check_number("peak", peak) <= 1000:
        raise InputError(f"the peak factor is 1 to 1000, got {peak:g}.")
    folder = Path.cwd() if folder is None else folder
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name one on the disk that is to be measured.")
    plain, encrypted = _plans(plan)
    total = 7 if database is None else 8
    share = seconds / total
    work: dict[str, Work] = {}

    def measured(name: str, found: Work) -> None:
        work[name] = found
        step(len(work), total)

    with scratch_folder(folder) as scratch:
        names = ("http", "store", "relay", "opened", "database")
        places = {name: scratch / name for name in names}
        for place in places.values():
            place.mkdir()
        step(0, total)
        measured("sync", probes.synced_writes(scratch, share))
        found, exchange = probes.collector_over_http(plain, places["http"], share)
        measured("http", found)
        measured("store", probes.store(plain, places["store"], share))
        measured("relay", probes.relay_store(encrypted, places["relay"], share))
        measured("hpke", probes.hpke_opens(encrypted, share / 2))
        # Encryption takes about as long as decryption, and is not measured.
        crowd = max(int(work["hpke"].rate * share / 2), 16)
        measured("opened", probes.analyzer(replace(encrypted, crowd_size=crowd), places["opened"]))
        measured("tally", probes.tally(plain, share))
        if database is not None:
            measured("database", probes.store(plain, places["database"], share, database))
    encrypted_exchange = exchange + encrypted_batch_bytes(encrypted, 1) - batch_bytes(plain, 1)
    return Capacity(
        plain.bits,
        peak,
        os.cpu_count() or 1,
        exchange,
        encrypted_exchange,
        message_bytes(encrypted),
        work,
    )


def _plans(plan: Plan | None) -> tuple[Plan, Plan]:
    """Return plans of the same survey for a collector, and for a relay and an analyzer.

    Nobody answers them: their promises are void, and their crowds as large as possible.
    """
    survey = Survey("capacity", (Flags("answer", tuple(map(str, range(40)))),))
    if plan is not None:
        survey = plan.survey
    often = FlipProbability.at_least("0.45")
    plain = Plan(survey, often, Promise("local", "1000000"), crowd_size=10**6)
    parties = Parties("https://relay.example", "https://analyzer.example")
    return plain, replace(plain, parties=parties)
