"""Proof that the rest does what it says: simulation, studies, audits from outside, the papers.

It may import anything, and nothing but `cli` imports it. In the order of the data's way:

People who do not exist
    `populations`       made-up answers, and made-up texts with known counts
    `tally_laws`        their tally, drawn from its exact law instead of report by report
    `simulation`        the whole path on them, with the truth beside each estimate
    `study`             the path repeated: bias, sigma and coverage beside theory
    `coverage`          how often an interval holds the truth, by the exact law

What runs, seen from the outside
    `black_box/`        tests of any randomizer, and of any path to a release
    `demo`              a collector and thousands of devices on one machine
    `parties_demo`      a relay, an analyzer and thousands of devices
    `web_demo/`         a page with a survey, whose visitor is one of a crowd

The papers
    `worst_crowds`      a search for crowds that break their conjecture
    `papers/`           every number they print, computed again
"""
