"""Every test draws the same random bits in every run, so that none fails by chance.

Only the source is replaced, and only in this process: a test of the source itself is marked
`real_random`, and a process that a test starts draws from the system as always.

Hypothesis measures no time, so that no test fails because the machine is busy, and tries half as
many examples in the fast tests. With `--no-skips`, as in continuous integration, a test that would
be skipped fails.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from shoal.protocol import random_bits

settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", settings.get_profile("patient"), max_examples=50)
settings.load_profile("patient")

SLOW_EXAMPLES = {
    "shoal.analysis.power.people_to_detect",
    "shoal.lab.experiment_study.experiment_study",
    "shoal.planning.bounds.bound_of",
    "shoal.planning.costs.compare",
    "shoal.planning.costs.people_needed",
    "shoal.planning.costs.survey_costs",
    "shoal.planning.dap_noise.dap_noise",
    "shoal.planning.guarantees.guarantees_over_time",
    "shoal.planning.plan.plan",
    "shoal.planning.text_size.suggest_text_size",
    "shoal.theory.accounting",
}
"""Docstrings whose examples take seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-skips`."""
    parser.addoption("--no-skips", action="store_true", help="fail tests that would be skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples in the fast tests, before any test is imported."""
    if config.option.markexpr == "not slow":
        settings.load_profile("fast")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the examples that take long."""
    for item in items:
        if item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a skipped test if no skips are allowed."""
    return _fail_if_skipped((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Fail a skipped module if no skips are allowed."""
    return _fail_if_skipped((yield), collector.config)


def _fail_if_skipped(report: Any, config: pytest.Config) -> Any:
    expected = hasattr(report, "wasxfail")
    if report.skipped and not expected and config.getoption("--no-skips"):
        report.outcome, report.longrepr = "failed", f"skipped: {report.longrepr}"
    return report


@contextmanager
def _bits_of(name: str) -> Iterator[None]:
    """Draw from key streams that follow from a name."""
    home, calls = os.getpid(), itertools.count()

    def repeatable_key() -> bytes:
        if os.getpid() != home:  # a fork would repeat its parent
            return before()
        return hashlib.sha256(f"{name} {next(calls)}".encode()).digest()

    before = random_bits._fresh_key
    random_bits._fresh_key = repeatable_key
    try:
        yield
    finally:
        random_bits._fresh_key = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give each test bits of its own."""
    if item.get_closest_marker("real_random"):
        return (yield)
    with _bits_of(item.nodeid):
        return (yield)


@pytest.fixture(autouse=True, scope="session")
def files_do_not_wait() -> Iterator[None]:
    """Files of this process do not wait for the disk: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Give what several tests share the same bits, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with _bits_of(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param', '')}"):
        return (yield)
