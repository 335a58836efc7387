"""Shoal: true statistics about a crowd without knowing anything about a person.

The way of the data, and the names for each step:

Agreed before any data exists
    `Survey` of `Flags`, `Choice`, `Choices`, `Number`, `Text`; `plan` makes the `Plan`: the
    `FlipProbability` q, the crowd size and the `Promise`; `audit` gives its `Certificate`.
    Where the same people report again, `plan_with_memory` splits q and `statements` say what holds
    over time.

On the device, the only place where an Original exists
    `encode` turns an answer into an `Original`; `randomize` turns that into a `Synthetic`;
    `pack_reports` wraps it for the wire. An `Outbox` does all of that once and sends the same bytes
    until they are accepted, with an `HttpTransport`; `DeviceMemory` keeps permanent flips, the
    `Ledger` counts what was given away.

From here on only Synthetic `tally` counts reports into a `Tally` (tallies add), which knows each
`Crowd` in it; `estimate` gives unbiased `Estimates` with an `Interval` each, and `sample_size` how
many reports a wanted precision takes; `difference`, `total`, `ratio` and `share_difference` combine
estimates; `publish` makes the `Publication` that others read. `associate` says whether two answers
go together, as an `Association`; `screen` gives a `Screening`: whether a whole crowd shows traces
of fake reports.

Text
    `decode` finds which candidates a crowd answered: `DecodedTexts`, a `DecodedText` each;
    `propose` sizes the question, a `Proposal`. `discover` needs no candidates, only a text question
    with `Pairs`, as `discovery_survey` makes it; it gives a `Discovery`. `migrate` reads
    `RapporParameters` into a `Migration`.

As a service
    `shoal.collector` takes reports over HTTP and shows whole crowds; `shoal.device.outbox` is the
    device's outbox, and `shoal.evidence.demo` runs both on one machine.

Beside the path
    `poisoning` says what fakes can do under a plan, a `Poisoning`; `compare_plans` what an edit of
    a plan means, a `Change`;
    `inspect_randomizer` and `inspect_pipeline` question what runs, ours or a peer's; `search` looks
    for crowds worse than the papers', `shoal.evidence.papers` recomputes their numbers and
    `shoal.charts` draws pictures;
    `simulate` runs all of it on people who do not exist, `study` again and again; `SimulationBits`
    repeats itself from a seed and is marked as not for release; every error is a `ShoalError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.agreement.flip_probability import FlipProbability
    from shoal.agreement.plan import Memory, Plan, Promise
    from shoal.agreement.random_bits import SystemBits
    from shoal.agreement.survey import (
        Choice,
        Choices,
        Flags,
        Number,
        Pairs,
        Question,
        Survey,
        Text,
    )
    from shoal.agreement.vectors import Original, Synthetic
    from shoal.agreement.wire import Batch, pack_reports, parse_batch
    from shoal.analysis.association import Association, associate
    from shoal.analysis.contrasts import difference, ratio, share_difference, total
    from shoal.analysis.crowds import Crowd
    from shoal.analysis.estimating import Estimate, Estimates, estimate, sample_size
    from shoal.analysis.intervals import Interval
    from shoal.analysis.publishing import Publication, publish
    from shoal.analysis.screening import Screening, screen
    from shoal.analysis.tallying import Tally, Tallying, tally
    from shoal.analysis.text.decode import DecodedText, DecodedTexts, decode
    from shoal.analysis.text.discovery import Discovery, discover
    from shoal.device.encoding import encode
    from shoal.device.ledger import Ledger
    from shoal.device.memory import DeviceMemory
    from shoal.device.outbox import HttpTransport, Outbox
    from shoal.device.randomizing import randomize
    from shoal.errors import InputError, PrivacyRefusal, ShoalError
    from shoal.evidence.black_box import inspect_pairs, inspect_pipeline, inspect_randomizer
    from shoal.evidence.simulation import Simulation, simulate
    from shoal.evidence.simulation_bits import SimulationBits
    from shoal.evidence.study import Study, study
    from shoal.evidence.worst_crowds import search
    from shoal.planning.certificate import Certificate, audit
    from shoal.planning.discovery_survey import discovery_survey
    from shoal.planning.over_time import Statement, plan_with_memory, statements
    from shoal.planning.plan import plan
    from shoal.planning.plan_diff import Change, compare_plans
    from shoal.planning.poisoning import Poisoning, poisoning
    from shoal.planning.rappor import Migration, RapporParameters, migrate
    from shoal.planning.text_size import Proposal, propose
    from shoal.planning.trust_costs import Comparison, compare

__version__ = "0.1.0"

# Names are loaded when they are first used, so that `shoal --help` is instant and a device loads
# only its own side.
_MODULES = {
    "agreement.flip_probability": ["FlipProbability"],
    "agreement.plan": ["Memory", "Plan", "Promise"],
    "agreement.random_bits": ["SystemBits"],
    "evidence.simulation_bits": ["SimulationBits"],
    "agreement.survey": [
        "Choice",
        "Choices",
        "Flags",
        "Number",
        "Pairs",
        "Question",
        "Survey",
        "Text",
    ],
    "agreement.vectors": ["Original", "Synthetic"],
    "agreement.wire": ["Batch", "pack_reports", "parse_batch"],
    "analysis.association": ["Association", "associate"],
    "analysis.contrasts": ["difference", "ratio", "share_difference", "total"],
    "analysis.crowds": ["Crowd"],
    "analysis.estimating": ["Estimate", "Estimates", "estimate", "sample_size"],
    "analysis.intervals": ["Interval"],
    "analysis.publishing": ["Publication", "publish"],
    "analysis.screening": ["Screening", "screen"],
    "analysis.tallying": ["Tally", "Tallying", "tally"],
    "analysis.text.decode": ["DecodedTexts", "DecodedText", "decode"],
    "analysis.text.discovery": ["Discovery", "discover"],
    "device.encoding": ["encode"],
    "device.ledger": ["Ledger"],
    "device.memory": ["DeviceMemory"],
    "device.outbox": ["HttpTransport", "Outbox"],
    "device.randomizing": ["randomize"],
    "errors": ["InputError", "PrivacyRefusal", "ShoalError"],
    "evidence.black_box": ["inspect_pairs", "inspect_pipeline", "inspect_randomizer"],
    "evidence.simulation": ["Simulation", "simulate"],
    "evidence.study": ["Study", "study"],
    "evidence.worst_crowds": ["search"],
    "planning.certificate": ["Certificate", "audit"],
    "planning.discovery_survey": ["discovery_survey"],
    "planning.over_time": ["Statement", "plan_with_memory", "statements"],
    "planning.plan": ["plan"],
    "planning.plan_diff": ["Change", "compare_plans"],
    "planning.poisoning": ["Poisoning", "poisoning"],
    "planning.trust_costs": ["Comparison", "compare"],
    "planning.rappor": ["Migration", "RapporParameters", "migrate"],
    "planning.text_size": ["Proposal", "propose"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Association",
    "Batch",
    "Certificate",
    "Change",
    "Choice",
    "Choices",
    "Comparison",
    "Crowd",
    "DecodedText",
    "DecodedTexts",
    "DeviceMemory",
    "Discovery",
    "Estimate",
    "Estimates",
    "Flags",
    "FlipProbability",
    "HttpTransport",
    "InputError",
    "Interval",
    "Ledger",
    "Memory",
    "Migration",
    "Number",
    "Original",
    "Outbox",
    "Pairs",
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
    "share_difference",
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
