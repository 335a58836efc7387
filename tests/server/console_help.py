"""A survey with a question of every kind, people who answer it, and a browser that looks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import Choice, Flags, Number, Plan, Survey, Text, YesNo
from shoal.device.encode import encode
from shoal.device.randomize import flip, pack_reports
from shoal.protocol.wire import Reports
from shoal.server.console.app import OPERATIONS
from shoal.server.core.openapi import openapi

SURVEY = Survey(
    "people",
    (
        Flags("uses", ("sync", "vpn", "reader")),
        Choice("channel", ("release", "beta", "nightly")),
        Number("age", (18, 35, 65)),
        YesNo("smokes"),
        Text("word", bits=32, hashes=1, cohorts=2),
    ),
).cross("channel", "smokes")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    " --disable-background-networking --disable-component-update --disable-default-apps"
    " --disable-extensions"
).split()


def every_kind(crowd: int, **wanted: Any) -> Plan:
    """Return a plan of the survey, in the view of counts."""
    return shoal.plan(SURVEY, crowd_size=crowd, delta="1e-6", view="counts", **wanted)


def answers(seed: int, count: int) -> list[dict[str, Any]]:
    """Return what people answer; whoever smokes uses nightly builds more often."""
    random = np.random.default_rng(seed)
    found: list[dict[str, Any]] = []
    for _ in range(count):
        smokes = bool(random.random() < 0.3)
        parts = [0.45, 0.25, 0.3] if smokes else [0.75 - 0.02 * seed, 0.15 + 0.02 * seed, 0.1]
        found.append(
            {
                "uses": [name for name, part in (("sync", 0.5), ("vpn", 0.2), ("reader", 0.03))
                         if random.random() < part],
                "channel": str(random.choice(["release", "beta", "nightly"], p=parts)),
                "age": int(random.triangular(10, 30, 80)),
                "smokes": smokes,
                "word": str(random.choice(["tea", "coffee", "water"], p=[0.5, 0.4, 0.1])),
            }
        )  # fmt: skip
    return found


def reports(plan: Plan, seed: int, count: int) -> Reports:
    """Return the reports of so many people."""
    originals = encode(plan, answers(seed, count))
    return pack_reports(plan, flip(plan, originals))


def response_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the JSON Schema of each operation's JSON response, from the OpenAPI document."""
    described = openapi(OPERATIONS, "", "")
    return {
        (one.method, one.path): {"components": described["components"]}
        | described["paths"][one.path][one.method.lower()]["responses"][str(one.status)]["content"][
            "application/json"
        ]["schema"]
        for one in OPERATIONS
        if one.response is not None
    }


@contextmanager
def browser() -> Iterator[Any]:
    """Run Debian's Chromium; skip the test, with the reason, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium in PATH")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield running
        finally:
            running.close()
