"""Shoal: learn how a crowd answers, without collecting what each person answers.

Each device flips each bit of its answer with a known probability before anything leaves the device.
The reports of a crowd are counted together, and the effect of the flips is taken out of the counts.
The public names, in the order of the data's way:

Before any data exists
    A `Survey` is a list of questions, each a `Question`: `YesNo`, `Flags`, `Choice`, `Choices`,
    `Number` or `Text`, and a `Cross` of several, whose answer follows from theirs. `plan` turns a
    survey into a `Plan`: the `FlipProbability` q, the crowd size, the `Promise`, and the `Parties`
    if a relay and an analyzer share the work. `audit` computes the `Certificate` of a plan: what it
    promises, and against whom. `propose_survey` makes a `SurveyProposal` of a table of answers.
    A `TableFormat` declares how such a table is written. For people who report again,
    `plan_with_memory` splits q into permanent and fresh flips (a `Memory`), and `statements` lists
    what holds over time, each as a `Statement`.

    `plan_diff` says what an edit of a plan means, as a `PlanDiff`. `compare` shows what each
    kind of trust costs, as a `Comparison`. `poisoning` says what fake reports can do, as a
    `Poisoning`. `migrate` reads `RapporParameters` and gives a `Migration`. `propose` suggests the
    size of a text question, as a `Proposal`. `discovery_survey` makes a survey for `discover`.

On the device, the only place where an Original exists
    `encode` turns one answer into an `OriginalVector`, the unrandomized bits as an integer.
    `randomize` turns it into a `SyntheticVector`, with random bits from `SystemBits`.
    `pack_reports` puts it into `Reports` for the wire. Many answers become an `Original` and a
    `Synthetic`, rows in arrays. An `Outbox` does all three once for each answer, and sends the same
    bytes through an `HttpTransport` until they are accepted. A `DeviceMemory` keeps permanent
    flips, and a `Ledger` counts what the device has revealed. `Telemetry` is all of it for a tool:
    three lines, off until a person says yes.

At the collector
    `shoal.server` takes reports over HTTP and releases complete crowds. `parse_batch` reads what
    came into a `Batch`.

From reports to results
    `tally` counts reports into a `Tally`, and `Tallying` does so in pieces. Tallies add, and each
    knows its crowds, each a `Crowd`. `estimate` gives `Estimates`: for each option an unbiased
    `Estimate`, with an `Interval`. `difference`, `total`, `ratio` and `share_difference` combine
    estimates. `sample_size` says how many reports a precision needs.

    `decode` finds which candidates a crowd answered with text: `DecodedTexts`, one
    `DecodedText` for each candidate. `decode_rappor` does so for a collection that RAPPOR made, as
    a `RapporDecoded`. `discover` finds frequent words without candidates, as a
    `Discovery`, if the text question has `Pairs`.
    `associate` tests whether two answers go together, as an `Association`. `cross_table` shows the
    cells of questions that a survey crosses, as a `CrossTable`. `screen` looks for signs of fake
    reports in a complete crowd, as a `Screening`. `publish` makes a `Publication`: a page, tables
    or files for others.

Evidence
    `simulate` tries a plan on simulated people, as a `Simulation`, and `study` does so many times,
    as a `Study`. Their random bits come from `SimulationBits`, which a seed repeats; what is made
    with them is marked and cannot be sent. `inspect_randomizer`, `inspect_pairs` and
    `inspect_pipeline` test a randomizer or a whole pipeline from the outside. `search` looks for
    crowds that are worse than those of the papers. `shoal.lab.papers` recomputes the papers'
    numbers, `shoal.lab.demo` runs a collector and its devices on one machine, and
    `shoal.reports.plots` draws plots.

Errors
    Every error is a `ShoalError`. An `InputError` is about what was given, and a `PrivacyRefusal`
    says that privacy would not hold.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without loading `typing`
if TYPE_CHECKING:
    from shoal.analysis.association import Association, associate
    from shoal.analysis.contrasts import difference, ratio, share_difference, total
    from shoal.analysis.cross_tables import CrossTable, cross_table
    from shoal.analysis.crowds import Crowd
    from shoal.analysis.estimates import Estimate, Estimates, estimate, sample_size
    from shoal.analysis.intervals import Interval
    from shoal.analysis.report_rows import Batch, parse_batch
    from shoal.analysis.screening import Screening, screen
    from shoal.analysis.tally import Tally, Tallying, tally
    from shoal.analysis.text.decode import DecodedText, DecodedTexts, decode
    from shoal.analysis.text.discovery import Discovery, discover
    from shoal.analysis.text.rappor import RapporDecoded, decode_rappor
    from shoal.audit import inspect_pairs, inspect_pipeline, inspect_randomizer
    from shoal.device.arrays.infer_survey import SurveyProposal, propose_survey
    from shoal.device.arrays.vectors import Original
    from shoal.device.encode import encode
    from shoal.device.ledger import Ledger
    from shoal.device.memory import DeviceMemory
    from shoal.device.outbox import HttpTransport, Outbox
    from shoal.device.packing import pack_reports
    from shoal.device.randomize import randomize
    from shoal.device.telemetry import Telemetry
    from shoal.device.vectors import OriginalVector, SyntheticVector
    from shoal.errors import InputError, PrivacyRefusal, ShoalError
    from shoal.lab.simulation import Simulation, simulate
    from shoal.lab.simulation_bits import SimulationBits
    from shoal.lab.study import Study, study
    from shoal.lab.worst_crowds import search
    from shoal.planning.certificate import Certificate, audit
    from shoal.planning.discovery_survey import discovery_survey
    from shoal.planning.over_time import Statement, plan_with_memory, statements
    from shoal.planning.plan import plan
    from shoal.planning.plan_diff import PlanDiff, plan_diff
    from shoal.planning.poisoning import Poisoning, poisoning
    from shoal.planning.rappor import Migration, RapporParameters, migrate
    from shoal.planning.text_size import Proposal, propose
    from shoal.planning.trust_costs import Comparison, compare
    from shoal.protocol.flip_probability import FlipProbability
    from shoal.protocol.parties import Parties
    from shoal.protocol.plan import Memory, Plan, Promise
    from shoal.protocol.random_bits import SystemBits
    from shoal.protocol.survey import (
        Choice,
        Choices,
        Cross,
        Flags,
        Number,
        Pairs,
        Question,
        Survey,
        Text,
        YesNo,
    )
    from shoal.protocol.vectors import Synthetic
    from shoal.protocol.wire import Reports
    from shoal.reports import Publication, publish
    from shoal.support.table_format import TableFormat

__version__ = "0.1.0"

# Names are loaded when they are first used, so that `shoal --help` is instant and a device loads
# only its own side.
_MODULES = {
    "agreement.flip_probability": ["FlipProbability"],
    "agreement.parties": ["Parties"],
    "agreement.plan": ["Memory", "Plan", "Promise"],
    "agreement.random_bits": ["SystemBits"],
    "evidence.simulation_bits": ["SimulationBits"],
    "agreement.survey": [
        "Choice",
        "Choices",
        "Cross",
        "Flags",
        "Number",
        "Pairs",
        "Question",
        "Survey",
        "Text",
        "YesNo",
    ],
    "agreement.vectors": ["Synthetic"],
    "agreement.wire": ["Reports"],
    "analysis.association": ["Association", "associate"],
    "analysis.contrasts": ["difference", "ratio", "share_difference", "total"],
    "analysis.cross_tables": ["CrossTable", "cross_table"],
    "analysis.crowds": ["Crowd"],
    "analysis.estimating": ["Estimate", "Estimates", "estimate", "sample_size"],
    "analysis.intervals": ["Interval"],
    "analysis.publishing": ["Publication", "publish"],
    "analysis.report_rows": ["Batch", "parse_batch"],
    "analysis.screening": ["Screening", "screen"],
    "analysis.tallying": ["Tally", "Tallying", "tally"],
    "analysis.text.decode": ["DecodedText", "DecodedTexts", "decode"],
    "analysis.text.discovery": ["Discovery", "discover"],
    "analysis.text.rappor": ["RapporDecoded", "decode_rappor"],
    "device.bulk.survey_proposals": ["SurveyProposal", "propose_survey"],
    "device.bulk.vectors": ["Original"],
    "device.encoding": ["encode"],
    "device.ledger": ["Ledger"],
    "device.memory": ["DeviceMemory"],
    "device.outbox": ["HttpTransport", "Outbox"],
    "device.packing": ["pack_reports"],
    "device.randomizing": ["randomize"],
    "device.telemetry": ["Telemetry"],
    "device.vectors": ["OriginalVector", "SyntheticVector"],
    "errors": ["InputError", "PrivacyRefusal", "ShoalError"],
    "evidence.black_box": ["inspect_pairs", "inspect_pipeline", "inspect_randomizer"],
    "evidence.simulation": ["Simulation", "simulate"],
    "evidence.study": ["Study", "study"],
    "evidence.worst_crowds": ["search"],
    "planning.certificate": ["Certificate", "audit"],
    "planning.discovery_survey": ["discovery_survey"],
    "planning.over_time": ["Statement", "plan_with_memory", "statements"],
    "planning.plan": ["plan"],
    "planning.plan_diff": ["PlanDiff", "plan_diff"],
    "planning.poisoning": ["Poisoning", "poisoning"],
    "planning.trust_costs": ["Comparison", "compare"],
    "planning.rappor": ["Migration", "RapporParameters", "migrate"],
    "planning.text_size": ["Proposal", "propose"],
    "support.table_format": ["TableFormat"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Association",
    "Batch",
    "Certificate",
    "Choice",
    "Choices",
    "Comparison",
    "Cross",
    "CrossTable",
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
    "OriginalVector",
    "Outbox",
    "Pairs",
    "Parties",
    "Plan",
    "PlanDiff",
    "Poisoning",
    "PrivacyRefusal",
    "Promise",
    "Proposal",
    "Publication",
    "Question",
    "RapporDecoded",
    "RapporParameters",
    "Reports",
    "Screening",
    "ShoalError",
    "Simulation",
    "SimulationBits",
    "Statement",
    "Study",
    "Survey",
    "SurveyProposal",
    "Synthetic",
    "SyntheticVector",
    "SystemBits",
    "TableFormat",
    "Tally",
    "Tallying",
    "Telemetry",
    "Text",
    "YesNo",
    "associate",
    "audit",
    "compare",
    "cross_table",
    "decode",
    "decode_rappor",
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
    "plan_diff",
    "plan_with_memory",
    "poisoning",
    "propose",
    "propose_survey",
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
    import importlib

    try:
        home = importlib.import_module(f"shoal.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("shoal."):
            raise
        # An attribute, so that `hasattr` answers and does not raise.
        raise AttributeError(
            f"shoal.{name} is not part of the light device: pip install shoal."
        ) from error
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
