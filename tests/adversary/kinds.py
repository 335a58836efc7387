"""The kinds of cases, and how many of each the suite runs."""

from __future__ import annotations

from . import channels, counts, crowds, edits, larger, plans, rows, times, views
from .judging import CASES, Kind, Result, judge

KINDS: dict[str, tuple[Kind, int]] = {
    "one bit": (crowds.one_bit, 200),
    "small world": (crowds.small_world, 200),
    "homogeneous crowd": (crowds.homogeneous, 150),
    "flags in whole reports": (crowds.several_flags, 12),
    "counts of a crowd": (views.counts, 30),
    "several reports": (crowds.group, 190),
    "colluders": (crowds.colluders, 160),
    "text with cohorts": (crowds.cohorts, 164),
    "dropped bits": (views.dropped, 40),
    "moments of the ratio": (crowds.moments, 50),
    "composition": (times.composition, 10),
    "releases of one person": (times.releases_of_one, 30),
    "device's past": (times.device_past, 20),
    "larger crowd": (larger.small, 26),
    "plan for a larger crowd": (larger.planned, 4),
    "sum of windows": (times.sums, 40),
    "memory": (times.memory, 30),
    "plan": (plans.planned, 100),
    "plan for counts": (views.planned, 10),
    "plan with memory": (plans.planned_with_memory, 30),
    "plan edits": (edits.plan_edits, 40),
    "labels": (edits.labels, 30),
    "horizons": (edits.horizons, 30),
    "other promises": (plans.other_promises, 80),
    "publication": (plans.printed, 110),
    "crowd's interval": (counts.crowd_coverage, 110),
    "population's interval": (counts.population_coverage, 80),
    "population, together": (counts.population_together, 40),
    "two options": (counts.contrasts, 60),
    "screening": (counts.honest_crowds, 40),
    "curator": (counts.curator, 16),
    "row-wise reading": (rows.replaced_row, 40),
    "shuffled channel": (channels.shuffled_reports, 140),
    "aggregated channel": (channels.summed_reports, 26),
    "channels together": (channels.together, 2),
}
"""The function that makes up a case, and the share of this kind among `judging.CASES`."""


def run(name: str, cases: int = CASES, part: int = 0, parts: int = 1) -> Result:
    """Judge one kind's share of so many cases, or every parts-th of them."""
    kind, share = KINDS[name]
    count = -(-share * cases // sum(share for _, share in KINDS.values()))
    return judge(name, kind, range(part, count, parts))
