"""Shoal: true statistics about a crowd, without collecting the answer of any person.

Devices flip each bit of an answer with a known probability before anything leaves them. The
reports of a crowd are counted together, and the effect of the flips is removed from the counts.

Before any data exists
    A `Survey` lists questions: `YesNo`, `Choice`, `Flags`, `Number`, `Date`, `Text`, and a `Cross`
    of several. `plan` turns a survey into a `Plan`: flip probability, crowd size and promise.
    `Plan.certificate` computes its `Certificate`: what the plan guarantees, and against whom.
On the device
    `randomize` turns one answer, or a table of answers, into reports. An `Outbox` does this once
    for each answer and sends the report until it is accepted. `Telemetry` adds consent.
From reports to results
    `tally` counts reports into a `Tally`, `estimate` turns it into `Estimates`, and `publish`
    makes a page. `simulate` runs a plan on simulated people, and
    `simulate_windows` on people who come back or leave.
Errors
    Every error is a `ShoalError`; a `PrivacyRefusal` says that privacy would not hold.

Everything else is in modules that say what they are for: `shoal.text`, `shoal.experiments`,
`shoal.compare`, `shoal.rappor`, `shoal.audit`, `shoal.theory`, `shoal.curator`, `shoal.server`, ...
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.2.0"

# A name is loaded when it is first used, so that a device loads only its own side.
_HOMES = {
    name: module
    for module, names in {
        "analysis.estimates": ("Estimates", "estimate"),
        "analysis.tally": ("Tally", "tally"),
        "device.outbox": ("Outbox",),
        "device.randomize": ("randomize",),
        "device.telemetry": ("Telemetry",),
        "errors": ("PrivacyRefusal", "ShoalError"),
        "lab.simulation": ("simulate", "simulate_windows"),
        "planning.certificate": ("Certificate",),
        "planning.plan": ("plan",),
        "protocol.plan": ("Plan",),
        "protocol.survey": (
            "Choice",
            "Cross",
            "Date",
            "Flags",
            "Number",
            "Survey",
            "Text",
            "YesNo",
        ),
        "reports": ("publish",),
    }.items()
    for name in names
}
__all__ = sorted(_HOMES)

TYPE_CHECKING = False
if TYPE_CHECKING:  # type checkers do not see the table above
    from shoal.analysis.estimates import Estimates as Estimates
    from shoal.analysis.estimates import estimate as estimate
    from shoal.analysis.tally import Tally as Tally
    from shoal.analysis.tally import tally as tally
    from shoal.device.outbox import Outbox as Outbox
    from shoal.device.randomize import randomize as randomize
    from shoal.device.telemetry import Telemetry as Telemetry
    from shoal.errors import PrivacyRefusal as PrivacyRefusal
    from shoal.errors import ShoalError as ShoalError
    from shoal.lab.simulation import simulate as simulate
    from shoal.lab.simulation import simulate_windows as simulate_windows
    from shoal.planning.certificate import Certificate as Certificate
    from shoal.planning.plan import plan as plan
    from shoal.protocol.plan import Plan as Plan
    from shoal.protocol.survey import Choice as Choice
    from shoal.protocol.survey import Cross as Cross
    from shoal.protocol.survey import Date as Date
    from shoal.protocol.survey import Flags as Flags
    from shoal.protocol.survey import Number as Number
    from shoal.protocol.survey import Survey as Survey
    from shoal.protocol.survey import Text as Text
    from shoal.protocol.survey import YesNo as YesNo
    from shoal.reports import publish as publish


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
