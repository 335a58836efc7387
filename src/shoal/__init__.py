"""Shoal: true statistics about a crowd without knowing anything about a person.

The way of the data, and the names for each step:

Agreed before any data exists
    `Survey` of `Flags`, `Choice`, `Choices`, `Number`, `Text`; `plan` makes the `Plan`: the
    `LieProbability` q, the crowd size and the `Promise`; `audit` gives its `Certificate`.

On the device, the only place where an Original exists
    `encode` turns an answer into an `Original`; `randomize` turns that into a `Synthetic`;
    `pack_reports` wraps it for the wire.

From here on only Synthetic
    `tally` counts reports into a `Tally` (tallies add); `estimate` gives unbiased `Estimates` with
    an `Interval` each, and `sample_size` how many reports a wanted precision takes; `difference`,
    `total`, `ratio` and `compare` combine estimates; `publish` makes the `Publication` that others
    read. `screen` gives a `Screening`: whether a whole crowd shows traces of fake reports.

As a service
    `shoal.collector` takes reports over HTTP and shows whole crowds; `shoal.sending` is the
    device's outbox, and `shoal.demonstrating` runs both on one machine.

Beside the path
    `poisoning` says what fakes can do under a plan, a `Poisoning`; `compare_plans` what an edit of
    a plan means, a `Change`;
    `inspect_randomizer` and `inspect_pipeline` question what runs, ours or a peer's; `search` looks
    for crowds worse than the papers', `shoal.reproducing` recomputes their numbers and
    `shoal.plotting` draws pictures;
    `simulate` runs all of it on people who do not exist, `study` again and again; `SimulationBits`
    repeats itself from a seed and is marked as not for release; every error is a `ShoalError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.auditing import Certificate, audit
    from shoal.changing import Change, compare_plans
    from shoal.combining import compare, difference, ratio, total
    from shoal.encoding import encode
    from shoal.errors import InputError, PrivacyRefusal, ShoalError
    from shoal.estimating import Estimate, Estimates, estimate, sample_size
    from shoal.faking import Poisoning, poisoning
    from shoal.inspecting import inspect_pairs, inspect_pipeline, inspect_randomizer
    from shoal.intervals import Interval
    from shoal.lies import LieProbability
    from shoal.planning import plan
    from shoal.plans import Memory, Plan, Promise
    from shoal.publishing import Publication, publish
    from shoal.randomizing import randomize
    from shoal.randomness import SimulationBits, SystemBits
    from shoal.reports import Batch, pack_reports, parse_batch
    from shoal.screening import Screening, screen
    from shoal.searching import search
    from shoal.simulating import Simulation, simulate
    from shoal.studying import Study, study
    from shoal.survey import Choice, Choices, Flags, Number, Question, Survey, Text
    from shoal.tallying import Tally, Tallying, tally
    from shoal.vectors import Original, Synthetic

__version__ = "0.1.0"

# Names are loaded when they are first used, so that `shoal --help` is instant and a device loads
# only its own side.
_MODULES = {
    "auditing": ["Certificate", "audit"],
    "changing": ["Change", "compare_plans"],
    "combining": ["compare", "difference", "ratio", "total"],
    "encoding": ["encode"],
    "errors": ["InputError", "PrivacyRefusal", "ShoalError"],
    "estimating": ["Estimate", "Estimates", "estimate", "sample_size"],
    "faking": ["Poisoning", "poisoning"],
    "inspecting": ["inspect_pairs", "inspect_pipeline", "inspect_randomizer"],
    "intervals": ["Interval"],
    "lies": ["LieProbability"],
    "planning": ["plan"],
    "plans": ["Memory", "Plan", "Promise"],
    "publishing": ["Publication", "publish"],
    "randomizing": ["randomize"],
    "randomness": ["SimulationBits", "SystemBits"],
    "reports": ["Batch", "pack_reports", "parse_batch"],
    "screening": ["Screening", "screen"],
    "searching": ["search"],
    "simulating": ["Simulation", "simulate"],
    "studying": ["Study", "study"],
    "survey": ["Choice", "Choices", "Flags", "Number", "Question", "Survey", "Text"],
    "tallying": ["Tally", "Tallying", "tally"],
    "vectors": ["Original", "Synthetic"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Batch",
    "Certificate",
    "Change",
    "Choice",
    "Choices",
    "Estimate",
    "Estimates",
    "Flags",
    "InputError",
    "Interval",
    "LieProbability",
    "Memory",
    "Number",
    "Original",
    "Plan",
    "Poisoning",
    "PrivacyRefusal",
    "Promise",
    "Publication",
    "Question",
    "Screening",
    "ShoalError",
    "Simulation",
    "SimulationBits",
    "Study",
    "Survey",
    "Synthetic",
    "SystemBits",
    "Tally",
    "Tallying",
    "Text",
    "audit",
    "compare",
    "compare_plans",
    "difference",
    "encode",
    "estimate",
    "inspect_pairs",
    "inspect_pipeline",
    "inspect_randomizer",
    "pack_reports",
    "parse_batch",
    "plan",
    "poisoning",
    "publish",
    "randomize",
    "ratio",
    "sample_size",
    "screen",
    "search",
    "simulate",
    "study",
    "tally",
    "total",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(importlib.import_module(f"shoal.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
