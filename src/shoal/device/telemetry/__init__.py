"""Telemetry that people accept: off until asked, one randomized report per window, no id.

A tool adds three lines: `Telemetry`, `record`, `flush`. Recorded events stay in a folder of the
person until the window is over. Then a detached process makes one report of them, flips its bits,
sends it, and logs every byte that was sent.

`telemetry`, `state` and `environment` run inside the tool. They import only modules that Python has
already loaded, and never raise. `worker` and `log` run in the detached process. `describe` and
`commands` are for the person.
"""

from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
