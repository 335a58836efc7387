"""Telemetry that people accept: off until asked, one randomized report per window, no id.

A tool has three lines: `Telemetry`, `record`, `flush`. What it records stays in a folder of the
person's own until the window is over. Then a detached process makes one report of it, flips its
bits, sends it, and writes down every byte that left.

`telemetry`, `state` and `environment` run inside the tool. They import only what Python has loaded
anyway, and never raise. `worker` and `log` run in the detached process. `describe` and `commands`
are for the person.
"""

from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
