"""Telemetry that people accept: off until asked, one randomized report per window, no id.

A tool adds three lines: `Telemetry`, `record`, `flush`. Recorded events stay in a folder of the
person until the window is over. Then a detached process makes one report of them, flips its bits,
sends it, and logs every byte that was sent.

`telemetry` and `state` run inside the tool. They import only modules that Python has already
loaded, but for `json`. `worker` and `log` run in the detached process. `consent`, `describe` and
`commands` are for the person, `simulate` for the tool's tests.
"""

from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
