"""Shoal: true statistics about a crowd, without collecting the answer of any person.

Devices flip each bit of an answer with a known probability before anything leaves them. The
reports of a crowd are counted together, and the effect of the flips is removed from the counts.

Before any data exists
    A `Survey` lists questions: `YesNo`, `Choice`, `Flags`, `Number`, `Text`, and a `Cross` of
    several. `plan` turns a survey into a `Plan`: flip probability, crowd size and promise.
    `Plan.certificate` computes its `Certificate`: what the plan guarantees, and against whom.
On the device
    `randomize` turns one answer, or a table of answers, into reports. An `Outbox` does this once
    for each answer and sends the report until it is accepted. `Telemetry` adds consent.
From reports to results
    `tally` counts reports into a `Tally`, `estimate` turns it into `Estimates`, and `publish`
    makes a page. `simulate` runs a plan on simulated people.
Errors
    Every error is a `ShoalError`; a `PrivacyRefusal` says that privacy would not hold.

Everything else is in modules that say what they are for: `shoal.text`, `shoal.compare`,
`shoal.rappor`, `shoal.audit`, `shoal.theory`, `shoal.curator`, `shoal.server`, ...
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shoal.analysis.estimates import Estimates, estimate
    from shoal.analysis.tally import Tally, tally
    from shoal.device.outbox import Outbox
    from shoal.device.randomize import randomize
    from shoal.device.telemetry import Telemetry
    from shoal.errors import PrivacyRefusal, ShoalError
    from shoal.lab.simulation import simulate
    from shoal.planning.certificate import Certificate
    from shoal.planning.plan import plan
    from shoal.protocol.plan import Plan
    from shoal.protocol.survey import Choice, Cross, Flags, Number, Survey, Text, YesNo
    from shoal.reports import publish

__version__ = "0.2.0"

# A name is loaded when it is first used, so that a device loads only its own side.
_HOMES = {
    "Certificate": "planning.certificate",
    "Choice": "protocol.survey",
    "Cross": "protocol.survey",
    "Estimates": "analysis.estimates",
    "Flags": "protocol.survey",
    "Number": "protocol.survey",
    "Outbox": "device.outbox",
    "Plan": "protocol.plan",
    "PrivacyRefusal": "errors",
    "ShoalError": "errors",
    "Survey": "protocol.survey",
    "Tally": "analysis.tally",
    "Telemetry": "device.telemetry",
    "Text": "protocol.survey",
    "YesNo": "protocol.survey",
    "estimate": "analysis.estimates",
    "plan": "planning.plan",
    "publish": "reports",
    "randomize": "device.randomize",
    "simulate": "lab.simulation",
    "tally": "analysis.tally",
}

__all__ = [
    "Certificate",
    "Choice",
    "Cross",
    "Estimates",
    "Flags",
    "Number",
    "Outbox",
    "Plan",
    "PrivacyRefusal",
    "ShoalError",
    "Survey",
    "Tally",
    "Telemetry",
    "Text",
    "YesNo",
    "estimate",
    "plan",
    "publish",
    "randomize",
    "simulate",
    "tally",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    try:
        return getattr(import_module(f"shoal.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from shoal.errors import missing_extra

        raise missing_extra(error, f"shoal.{name}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
