"""What pages show of experiments, funnels and retention curves, from their JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.protocol.survey import Arm, Funnel, Survey
from shoal.reports.charts import difference_chart, trend_chart, width_charts
from shoal.reports.formatting import (
    level_in_words,
    number_text,
    percent,
    round_high,
    round_low,
    shown_labels,
    signed_points,
    whole_number,
)
from shoal.reports.tables import Cell, Matrix, Table, TableRow
from shoal.support.rounding import text_up

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
    write: Callable[[float], str] = number_text if is_mean else percent
    points: Callable[[float], str] = _signed if is_mean else signed_points
    arms = [
        TableRow(
            words[arm],
            [
                whole_number(max(row["people"], 0.0)),
                _inside(row, write),
                _range(row, write),
            ],
        )
        for arm, row in outcome["arms"].items()
    ]
    effects = []
    for arm, row in outcome["effects"].items():
        apart, ratio = row["difference"], row["ratio"]
        cells = [_inside(apart, points), _range(apart, points)]
        cells += ["", ""] if ratio is None else [_inside(ratio, _times), _factors(ratio)]
        p_values = [text_up(row[key], 2) for key in ("p_value", "adjusted_p")]
        effects.append(TableRow(words[arm], [*cells, *p_values]))
    kind, unit = ("mean", "difference") if is_mean else ("share", "points")
    control, at = words[document["control"]], level_in_words(document)
    heading = question.heading
    if not is_mean and outcome["option"] not in (question.name, "yes"):
        heading += f": {outcome['option']}"
    rows = {
        arm: row["difference"] | {"difference": _possible(row["difference"])}
        for arm, row in outcome["effects"].items()
        if row["difference"]["value"] is not None
    }
    charts = []
    if rows and not is_mean:
        charts = width_charts(
            lambda width, **given: difference_chart(heading, rows, width, words, **given), id
        )
    return {
        "heading": heading,
        "charts": charts,
        "tables": [
            Table(f"Each arm, with intervals at {at}", ("arm", "people", kind, "interval"), arms),
            Table(
                f"Each arm minus {control}, and over it",
                ("arm", unit, "interval", "ratio", "interval", "p-value", "Holm"),
                effects,
            ),
        ],
        "notes": [
            "Intervals are for the population of which these people are a random sample, and"
            " approximate. Holm\u2019s p-values allow for all comparisons of the experiment."
        ],
    }


def _inside(row: Mapping[str, Any], write: Callable[[float], str]) -> str:
    return "?" if row["value"] is None else write(_possible(row))


def _possible(row: Mapping[str, Any]) -> float:
    """Return the value, or the end of its interval if flips moved it beyond what is possible."""
    value, low = float(row["value"]), float(row["low"])
    return max(value, low) if row["high"] is None else min(max(value, low), float(row["high"]))


def _signed(number: float) -> str:
    return f"{number:+.3g}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}"


def _range(row: Mapping[str, float], write: Callable[[float], str]) -> str:
    return " to ".join(write(row[end]) for end in ("low", "high"))


def _factors(ratio: Mapping[str, Any]) -> str:
    if ratio["high"] is None:
        return f"{_times(ratio['low'])} or more"
    return _range(ratio, _times)


def funnel_part(funnel: Funnel, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many people reached each step, and which part went on to it."""
    words, rows = shown_labels(funnel, funnel.labels), []
    for one in document["steps"]:
        reached, went = one["reached"], one["conversion"]
        ends = round_low(max(reached["low"], 0.0)), round_high(reached["high"])
        parts = ["", ""]
        if went is not None:
            parts = [
                _inside(went, percent),
                _DASH.join(percent(went[end]) for end in ("low", "high")),
            ]
        count = whole_number(max(reached["value"], 0.0))
        rows.append(TableRow(words[one["step"]], [count, _DASH.join(ends), *parts]))
    heads = ("step", "reached", "interval", "of the step before", "interval")
    caption = f"People who reached at least each step, with intervals at {level_in_words(document)}"
    return {
        "heading": "Steps",
        "charts": [],
        "tables": [Table(caption, heads, rows)],
        "notes": [
            "All intervals of a column hold together. Those of counts are exact, those of"
            " conversions approximate."
        ],
    }


def retention_section(
    heading: str, curves: Mapping[str, Mapping[str, Any]], id: str = "retention"
) -> dict[str, Any]:
    """Return the retention curves of everybody and of groups, by their names."""
    first = next(iter(curves.values()))
    periods = [f"after {one['period']}" for one in first["points"]]
    known = [place for place, one in enumerate(first["points"]) if one["value"] is not None]
    drawn = {}
    for name, curve in curves.items():
        points = [curve["points"][place] for place in known]
        if points and all(one["value"] is not None for one in points):
            drawn[name] = [one | {"constrained": _possible(one)} for one in points]
    charts = []
    if drawn:
        named = [periods[place] for place in known]
        charts = width_charts(
            lambda width, **given: trend_chart(
                heading, drawn, named, width, over="period", **given
            ),
            id,
        )
    rows = [
        TableRow(
            name,
            [
                Cell(_inside(one, percent), _DASH.join(map(percent, _ends(one))))
                for one in curve["points"]
            ],
        )
        for name, curve in curves.items()
    ]
    activity = first["activity"]
    rolling = "" if activity is None or activity["value"] is None else (
        f" Of the people who started in the {len(periods)} period{'s' * (len(periods) > 1)}"
        f" before the latest one, {_inside(activity, percent)} are active in it"
        f" ({_DASH.join(map(percent, _ends(activity)))})."
    )  # fmt: skip
    return {
        "id": id,
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


def _ends(one: Mapping[str, float]) -> Sequence[float]:
    return one["low"], one["high"]
