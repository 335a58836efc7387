"""What a file is, when it is not what a command asked for: one helpful sentence.

Only enough of a file is read to recognize it; whoever reads it for its content checks everything.
"""

from __future__ import annotations

import json
import pathlib

__all__ = ["instead", "kind_of"]

_START = 1 << 20
_END = 1 << 16

_NAMES = {
    "empty": "an empty file",
    "survey": "a survey",
    "plan": "a plan",
    "tally": "a tally",
    "reports": "a file of reports",
    "originals": "a file of originals",
    "table": "a table",
    "ledger": "a device's ledger",
    "results": "a file of results",
    "text": "text",
}

_HINTS = {
    ("survey", "plan"): "make a plan from it: shoal plan {path} --crowd N --epsilon E --delta D",
    ("plan", "survey"): "give the survey that it was made from",
    ("plan", "tally"): "give the plan first and the tally after it",
    ("tally", "plan"): "give the plan first and the tally after it",
    ("reports", "tally"): "count them first: shoal tally PLAN.json {path} -o tally.json",
    ("table", "tally"): "answers are randomized and then counted: shoal randomize, shoal tally",
    ("table", "survey"): "propose one from it: shoal survey from {path} -o survey.toml",
    (
        "table",
        "plan",
    ): "propose a survey from it, shoal survey from {path}, and make a plan of that",
    ("reports", "candidates"): "candidates are texts, one on a line",
    ("tally", "candidates"): "candidates are texts, one on a line",
}


def kind_of(path: pathlib.Path) -> str | None:
    """Return what a file seems to be, or None."""
    try:
        with path.open("rb") as file:
            start = file.read(_START)
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _END))
            end = file.read(_END)
    except OSError:
        return None
    if not start.strip():
        return "empty"
    if start[:4] == b"PAR1" or start[:6] == b"ARROW1":
        marks = {b"shoal.plan": "reports", b"shoal.survey": "originals"}
        return next((kind for mark, kind in marks.items() if mark in start + end), "table")
    return _kind_of_text(path, start)


def _kind_of_text(path: pathlib.Path, start: bytes) -> str | None:
    if b"\0" in start and path.suffix.lower() != ".csv":
        return None
    if start.lstrip()[:1] == b"{":
        return _kind_of_json(start)
    if b"[[question]]" in start:
        return "survey"
    if path.suffix.lower() in (".csv", ".tsv", ".ndjson", ".jsonl"):
        return "table"
    return "text" if path.suffix.lower() in (".txt", ".md") else None


def _kind_of_json(start: bytes) -> str | None:
    try:
        document = json.loads(start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    keys = set(document)
    known = {
        "plan": {"survey", "q", "promise"},
        "tally": {"by_bit", "reports"},
        "survey": {"name", "questions"},
        "ledger": {"entries"},
    }
    found = next((kind for kind, needed in known.items() if needed <= keys), None)
    if found is None and keys & {"questions", "candidates", "estimates", "certificate"}:
        return "results"
    return found


def instead(path: pathlib.Path, wanted: str) -> str | None:
    """Say what a file is if it is something else than wanted, and what to do; None if unknown.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "s.toml")
    ...     _ = file.write_text("[[question]]")
    ...     (instead(file, "plan") or "").split(folder)[-1]
    '/s.toml --crowd N --epsilon E --delta D.'
    """
    found = kind_of(path)
    if found is None or found == wanted:
        return None
    hint = _HINTS.get((found, wanted), "")
    article = "" if wanted == "candidates" else "a "
    sentence = f"{path} is {_NAMES[found]}, not {article}{wanted}"
    return f"{sentence}; {hint.format(path=path)}." if hint else f"{sentence}."
