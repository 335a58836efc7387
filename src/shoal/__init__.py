"""Shoal: true statistics about a crowd without knowing anything about a person.

The way of the data, and the names for each step:

Agreed before any data exists
    `Survey` of `Flags`, `Choice`, `Choices`, `Number`, `Text`; `plan` makes the `Plan`: the
    `LieProbability` q, the crowd size and the `Promise`; `audit` gives its `Certificate`.
    Where the same people report again, `plan_with_memory` splits q and `statements` say what holds
    over time.

On the device, the only place where an Original exists
    `encode` turns an answer into an `Original`; `randomize` turns that into a `Synthetic`;
    `pack_reports` wraps it for the wire. An `Outbox` does all of that once and sends the same bytes
    until they are accepted, with an `HttpTransport`; `DeviceMemory` keeps permanent lies, the
    `Ledger` counts what was given away.

From here on only Synthetic
    `tally` counts reports into a `Tally` (tallies add), which knows each `Crowd` in it; `estimate`
    gives unbiased `Estimates` with an `Interval` each, and `sample_size` how many reports a wanted
    precision takes; `difference`, `total`, `ratio` and `compare` combine estimates; `publish` makes
    the `Publication` that others read. `associate` says whether two answers go together, as an
    `Association`; `screen` gives a `Screening`: whether a whole crowd shows traces of fake reports.

Text
    `decode` finds which candidates a crowd answered: `Decoded`, a `DecodedText` each; `propose`
    sizes the question, a `Proposal`. `discover` needs no candidates, only a survey made by
    `discovery_survey`; it gives a `Discovery`. `migrate` reads `RapporParameters` into a
    `Migration`.

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
    from shoal.associating import Association, associate
    from shoal.auditing import Certificate, audit
    from shoal.changing import Change, compare_plans
    from shoal.combining import compare, difference, ratio, total
    from shoal.crowds import Crowd
    from shoal.decoding.decode import Decoded, DecodedText, decode
    from shoal.decoding.sizing import Proposal, propose
    from shoal.discovering.finding import Discovery, discover
    from shoal.discovering.layout import discovery_survey
    from shoal.encoding import encode
    from shoal.errors import InputError, PrivacyRefusal, ShoalError
    from shoal.estimating import Estimate, Estimates, estimate, sample_size
    from shoal.faking import Poisoning, poisoning
    from shoal.inspecting import inspect_pairs, inspect_pipeline, inspect_randomizer
    from shoal.intervals import Interval
    from shoal.ledger import Ledger
    from shoal.lies import LieProbability
    from shoal.memory import DeviceMemory
    from shoal.migrating import Migration, RapporParameters, migrate
    from shoal.planning import plan
    from shoal.plans import Memory, Plan, Promise
    from shoal.publishing import Publication, publish
    from shoal.randomizing import randomize
    from shoal.randomness import SimulationBits, SystemBits
    from shoal.remembering import Statement, plan_with_memory, statements
    from shoal.reports import Batch, pack_reports, parse_batch
    from shoal.screening import Screening, screen
    from shoal.searching import search
    from shoal.sending import HttpTransport, Outbox
    from shoal.simulating import Simulation, simulate
    from shoal.studying import Study, study
    from shoal.survey import Choice, Choices, Flags, Number, Question, Survey, Text
    from shoal.tallying import Tally, Tallying, tally
    from shoal.vectors import Original, Synthetic

__version__ = "0.1.0"

# Names are loaded when they are first used, so that `shoal --help` is instant and a device loads
# only its own side.
_MODULES = {
    "associating": ["Association", "associate"],
    "auditing": ["Certificate", "audit"],
    "changing": ["Change", "compare_plans"],
    "combining": ["compare", "difference", "ratio", "total"],
    "crowds": ["Crowd"],
    "decoding.decode": ["Decoded", "DecodedText", "decode"],
    "decoding.sizing": ["Proposal", "propose"],
    "discovering.finding": ["Discovery", "discover"],
    "discovering.layout": ["discovery_survey"],
    "encoding": ["encode"],
    "errors": ["InputError", "PrivacyRefusal", "ShoalError"],
    "estimating": ["Estimate", "Estimates", "estimate", "sample_size"],
    "faking": ["Poisoning", "poisoning"],
    "inspecting": ["inspect_pairs", "inspect_pipeline", "inspect_randomizer"],
    "intervals": ["Interval"],
    "ledger": ["Ledger"],
    "lies": ["LieProbability"],
    "migrating": ["Migration", "RapporParameters", "migrate"],
    "memory": ["DeviceMemory"],
    "planning": ["plan"],
    "plans": ["Memory", "Plan", "Promise"],
    "publishing": ["Publication", "publish"],
    "randomizing": ["randomize"],
    "randomness": ["SimulationBits", "SystemBits"],
    "remembering": ["Statement", "plan_with_memory", "statements"],
    "reports": ["Batch", "pack_reports", "parse_batch"],
    "screening": ["Screening", "screen"],
    "searching": ["search"],
    "sending": ["HttpTransport", "Outbox"],
    "simulating": ["Simulation", "simulate"],
    "studying": ["Study", "study"],
    "survey": ["Choice", "Choices", "Flags", "Number", "Question", "Survey", "Text"],
    "tallying": ["Tally", "Tallying", "tally"],
    "vectors": ["Original", "Synthetic"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Association",
    "Batch",
    "Certificate",
    "Change",
    "Choice",
    "Choices",
    "Crowd",
    "Decoded",
    "DecodedText",
    "DeviceMemory",
    "Discovery",
    "Estimate",
    "Estimates",
    "Flags",
    "HttpTransport",
    "InputError",
    "Interval",
    "Ledger",
    "LieProbability",
    "Memory",
    "Migration",
    "Number",
    "Original",
    "Outbox",
    "Plan",
    "Poisoning",
    "PrivacyRefusal",
    "Promise",
    "Proposal",
    "Publication",
    "Question",
    "RapporParameters",
    "Screening",
    "ShoalError",
    "Simulation",
    "SimulationBits",
    "Statement",
    "Study",
    "Survey",
    "Synthetic",
    "SystemBits",
    "Tally",
    "Tallying",
    "Text",
    "associate",
    "audit",
    "compare",
    "compare_plans",
    "decode",
    "difference",
    "discover",
    "discovery_survey",
    "encode",
    "estimate",
    "inspect_pairs",
    "inspect_pipeline",
    "inspect_randomizer",
    "migrate",
    "pack_reports",
    "parse_batch",
    "plan",
    "plan_with_memory",
    "poisoning",
    "propose",
    "publish",
    "randomize",
    "ratio",
    "sample_size",
    "screen",
    "search",
    "simulate",
    "statements",
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
