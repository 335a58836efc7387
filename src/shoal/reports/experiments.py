"""What pages show of experiments, funnels and retention curves, from their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.analysis.experiments import outcome_sections
from shoal.analysis.funnels import funnel_section
from shoal.analysis.ratios import shown_ends
from shoal.protocol.survey import Arm, Funnel, Survey
from shoal.reports.charts import difference_chart, trend_chart, width_charts
from shoal.reports.formatting import (
    Cell,
    Matrix,
    Table,
    TableRow,
    level_in_words,
    percent,
    shown_labels,
)
from shoal.support.results import Section

_DASH = "\N{EN DASH}"


def experiment_parts(
    survey: Survey, arm: Arm, document: Mapping[str, Any], id: str
) -> list[dict[str, Any]]:
    """Return each outcome of an experiment: its arms, and how they differ from control."""
    words = shown_labels(arm, arm.labels)
    parts = [
        _outcome(survey, words, document, outcome, f"{id}-outcome-{number}")
        for number, outcome in enumerate(document["outcomes"], 1)
    ]
    if parts:
        parts[-1]["notes"].append(document["sample_ratio"]["in_words"])
    return parts


def _outcome(
    survey: Survey,
    words: Mapping[str, str],
    document: Mapping[str, Any],
    outcome: Mapping[str, Any],
    id: str,
) -> dict[str, Any]:
    question, is_mean = survey[outcome["question"]], outcome["option"] is None
    control, at = words[document["control"]], level_in_words(document)
    heading = question.heading
    if not is_mean and outcome["option"] not in (question.name, "yes"):
        heading += f": {outcome['option']}"
    rows = {
        arm: row["difference"] | {"difference": shown_ends(row["difference"])[0]}
        for arm, row in outcome["effects"].items()
        if row["difference"]["value"] is not None
    }
    charts = []
    if rows and not is_mean:
        charts = width_charts(
            lambda width, **given: difference_chart(heading, rows, width, words, **given), id
        )
    arms, effects = outcome_sections(outcome, "arm", control)
    return {
        "heading": heading,
        "charts": charts,
        "tables": [
            _table(f"Each arm, with intervals at {at}", arms, words),
            _table(f"Each arm minus {control}, and over it", effects, words),
        ],
        "notes": [
            "Intervals are for the population of which these people are a random sample, and"
            " approximate. Holm\u2019s p-values allow for all comparisons of the experiment."
        ],
    }


def _table(caption: str, section: Section, words: Mapping[str, str]) -> Table:
    rows = [TableRow(words[label], cells) for label, *cells in section.rows]
    return Table(caption, section.heads, rows)


def funnel_part(funnel: Funnel, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many people reached each step, and which part went on to it."""
    caption = f"People who reached at least each step, with intervals at {level_in_words(document)}"
    words = shown_labels(funnel, funnel.labels)
    return {
        "heading": "Steps",
        "charts": [],
        "tables": [_table(caption, funnel_section(document), words)],
        "notes": [
            "A conversion is the part of the step before. All intervals of a column hold together."
            " Those of counts are exact, those of conversions approximate."
        ],
    }


def retention_section(heading: str, curves: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the retention curves of everybody and of groups, by their names."""
    first = next(iter(curves.values()))
    periods = [f"after {one['period']}" for one in first["points"]]
    known = [place for place, one in enumerate(first["points"]) if one["value"] is not None]
    drawn = {}
    for name, curve in curves.items():
        points = [curve["points"][place] for place in known]
        if points and all(one["value"] is not None for one in points):
            drawn[name] = [one | {"constrained": shown_ends(one)[0]} for one in points]
    charts = []
    if drawn:
        named = [periods[place] for place in known]
        charts = width_charts(
            lambda width, **given: trend_chart(
                heading, drawn, named, width, over="period", **given
            ),
            "retention",
        )
    rows = [
        TableRow(
            name,
            [Cell(_share(one), _DASH.join(map(percent, _ends(one)))) for one in curve["points"]],
        )
        for name, curve in curves.items()
    ]
    activity = first["activity"]
    rolling = "" if activity is None or activity["value"] is None else (
        f" Of the people who started in the {len(periods)} period{'s' * (len(periods) > 1)}"
        f" before the latest one, {_share(activity)} are active in it"
        f" ({_DASH.join(map(percent, _ends(activity)))})."
    )  # fmt: skip
    return {
        "id": "retention",
        "heading": f"{heading}: who comes back",
        "question": first["question"],
        "text": [],
        "simulated": first["simulated"],
        "about": "The part of the people who started that is active so many periods later. People"
        " who left count as not active. With a probability of about"
        f" {level_in_words(first)}, all intervals of everybody\u2019s curve contain the true parts"
        f" at once, and so do those of all groups of a question.{rolling}",
        "charts": charts,
        "table": Matrix(f"{heading}: parts in percent, with intervals", ("", *periods), rows),
    }


def _share(row: Mapping[str, Any]) -> str:
    return "?" if row["value"] is None else percent(shown_ends(row)[0])


def _ends(one: Mapping[str, float]) -> Sequence[float]:
    return one["low"], one["high"]
