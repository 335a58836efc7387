"""What the benchmarks say, in three sentences and one picture, from the numbers measured."""

from __future__ import annotations

import math
from typing import Any

from bench.svg import Drawing, Scheme, bars, write

NAME = "speed"
_LOW = 0.001
"""Where the axis begins, in millions of reports a second."""


def conclusion(results: dict[str, Any]) -> str:
    """Return the three sentences and the picture, as Markdown."""
    sections = results["sections"]
    ours, limit = _rate(sections, "Shoal"), _rate(sections, "LIMIT")
    peers = {name: rate for name, rate in _rates(sections) if not _is_ours_or_limit(name)}
    fastest = max(peers, key=lambda name: peers[name])
    opendp = _rate(sections, "OpenDP, one call for all")
    tally = sections["tallying-40"]["rows"]
    counted = next(row[1] for row in tally if "`tally`" in row[0])
    polars = max(row[1] for row in tally if row[0].startswith("Polars"))
    collected = sections["collecting"]["rows"][0][2]
    sentences = (
        f"One core randomizes {ours:.0f} million reports of 40 bits a second:"
        f" {ours / peers[fastest]:.1f} times as many as {_plain(fastest)},"
        f" {ours / opendp:,.0f} times as many as OpenDP, and {100 * ours / limit:.0f} % of what"
        " its AES allows.",
        f"It counts {counted:,.0f} million reports a second, {counted / polars:.1f} times as many"
        " as Polars.",
        f"Over the network one collector takes {collected:,.0f} reports a second on this machine,"
        " which also runs the senders.",
    )
    picture = image(NAME, "Reports randomized per second, by library")
    return "\n".join([*(f"**{sentence}**" for sentence in sentences), "", picture, ""])


def image(name: str, alt: str) -> str:
    """Return a picture of both kinds of pages, as Markdown."""
    return "\n".join(
        f"![{alt}](pictures/{name}-{word}.svg){{.only-{word}}}" for word in ("light", "dark")
    )


def draw(results: dict[str, Any], scheme: Scheme) -> Drawing:
    """Draw how fast each library randomizes."""
    rows = [(_plain(name), rate, _words(rate)) for name, rate in _rates(results["sections"])]
    rows.sort(key=lambda row: -row[1])
    drawing = Drawing(40 + 34 * len(rows), scheme, "Reports of 40 bits randomized per second")
    drawing.text(0, 14, "Reports of 40 bits randomized per second, on one core", size=14, bold=True)
    span = math.log10(rows[0][1] / _LOW)
    bars(
        drawing,
        rows,
        position=lambda rate: 190 * math.log10(rate / _LOW) / span,
        top=30,
        main={"Shoal"},
    )
    drawing.text(
        480, 14 + 16 + 34 * len(rows), "logarithmic scale", size=11, color="quiet", anchor="end"
    )
    return drawing


def save_picture(results: dict[str, Any]) -> None:
    """Write the picture beside the page."""
    write(NAME, lambda scheme: draw(results, scheme))


def _rates(sections: dict[str, Any]) -> list[tuple[str, float]]:
    """Return how fast Shoal, other libraries and the limit are.

    Slower ways of our own, and a cipher that randomizes nothing, are in the table only.
    """
    rows = sections["randomizing-40"]["rows"]
    return [(row[0], row[1]) for row in rows if not row[0].startswith(("**Shoal**,", "AES-256"))]


def _rate(sections: dict[str, Any], start: str) -> float:
    return next(rate for name, rate in _rates(sections) if name.strip("*").startswith(start))


def _is_ours_or_limit(name: str) -> bool:
    return name.strip("*").startswith(("Shoal", "LIMIT"))


def _plain(name: str) -> str:
    """Return the name of a library without its function."""
    if name.startswith("LIMIT"):
        return "limit: the cipher"
    if name.startswith("OpenDP"):
        return name.replace(", one call a report", ", call a report")
    return name.strip("*").split(" `")[0]


def _words(rate: float) -> str:
    return f"{rate:.3g} M" if rate >= 1 else f"{1000 * rate:.3g} k"
