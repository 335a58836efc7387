"""Telemetry that people accept: off until asked, one randomized report per window, no id.

A tool has three lines: `Telemetry`, `record`, `flush`. What it records stays in a folder of the
person's own until the window is over. Then a detached process makes one report of it, flips its
bits, sends it, and writes down every byte that left.

What runs within the tool: `telemetry`, and what it needs to decide whether it may do anything
(`surroundings`, `consent`, `home`), to write an event (`events`) and to start the other process
(`spawning`). These modules load nothing but what Python has loaded anyway, and never raise. What
runs beside it: `worker`, with `merging` and `log`. What a person sees: `prompt`, `explaining`, and
the commands in `commands`, for click and argparse.
"""

from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
