"""Tallies and candidates from files, as the publications that `look` and `publish` show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.analysis.tally import Tally
from shoal.cli._options import IN_FILE, fdr_option
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from shoal.analysis.text.results import DecodedTexts
    from shoal.reports import Publication

__all__ = ["candidates_options", "publications", "tallies_argument"]


def tallies_argument(command: Any) -> Any:
    """Add an argument for one or more tallies."""
    return click.argument(
        "tally_files", nargs=-1, required=True, type=IN_FILE, metavar="TALLY.json..."
    )(command)


def candidates_options(command: Any) -> Any:
    """Add the options that say which texts to look for."""
    for option in (
        fdr_option(0.05),
        click.option(
            "--question", metavar="NAME", help="Which text question, if there are several."
        ),
        click.option(
            "--decode",
            "candidate_file",
            type=IN_FILE,
            help="Find texts among these candidates, one per line.",
        ),
    ):
        command = option(command)
    return command


def publications(
    plan: Plan,
    tally_files: Sequence[Path],
    candidate_file: Path | None,
    question: str | None,
    fdr: float,
    level: float,
    **wanted: Any,
) -> dict[str, Publication]:
    """Return a publication of each tally, by the name of its crowd or its file."""
    from shoal.reports import publish

    found: dict[str, Publication] = {}
    for file in tally_files:
        tally = Tally.read(file, plan)
        texts = _decoded(plan, tally, candidate_file, question, fdr, level)
        name = str(tally.crowds[0]) if len(tally.crowds) == 1 else file.stem
        if tally.crowds[0].unnamed or name in found:
            name = file.stem if file.stem not in found else str(file)
        found[name] = publish(plan, tally, level=level, texts=texts, **wanted)
    return found


def _decoded(
    plan: Plan,
    tally: Tally,
    candidate_file: Path | None,
    question: str | None,
    fdr: float,
    level: float,
) -> list[DecodedTexts]:
    if candidate_file is None:
        return []
    from shoal.analysis.text import decode
    from shoal.analysis.text.decode import read_candidates

    candidates = read_candidates(candidate_file, None)
    return [decode(plan, tally, candidates, question=question, fdr=fdr, level=level)]
