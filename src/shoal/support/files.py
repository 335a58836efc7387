"""JSON files, read strictly and written atomically; which kind of file a file is."""

from __future__ import annotations

import contextlib
import decimal
import json
import pathlib
from collections.abc import Callable
from typing import Any

from shoal.errors import InputError
from shoal.support.checks import did_you_mean

MAX_FILE_BYTES = 64 << 20
_MAX_LINE = 300
_MAX_TOML = 4 << 20
"""The maximum length of a survey's TOML: room for as many options as a report has bits."""
_MAX_DOTS = 8
_MAX_DEPTH = 8


def canonical_json(document: object) -> bytes:
    """Return the one JSON text of a document without floats (RFC 8785)."""
    text = json.dumps(_sorted(document), separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def _sorted(document: object) -> object:
    """Sort keys by their UTF-16 units, as JavaScript does; code points beyond 16 bits differ."""
    if isinstance(document, dict):
        keys = sorted(document, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return {key: _sorted(document[key]) for key in keys}
    return [_sorted(one) for one in document] if isinstance(document, (list, tuple)) else document


def toml_value(value: object) -> str:
    """Write a plain value, a list or a table in TOML; JSON quotes a text as TOML does."""
    if isinstance(value, dict):
        inner = (f"{_toml_key(key)} = {toml_value(one)}" for key, one in value.items())
        return "{ " + ", ".join(inner) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    letters = key.replace("-", "").replace("_", "")
    return key if letters.isascii() and letters.isalnum() else toml_value(key)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, for a message of one sentence."""
    # Of the system's errors only the words: the number before them helps nobody.
    text = str(getattr(error, "strerror", None) or error).strip()
    if not text:
        return type(error).__name__
    # It may quote text from the network or from a file.
    line = printable(text.splitlines()[0].rstrip("."))
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."


def printable(text: str) -> str:
    """Escape characters that would control a terminal, or change the order of a text."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a JSON object, refusing a key that appears twice: readers differ on which counts."""
    built = dict(pairs)
    if len(built) < len(pairs):
        raise ValueError("a key appears twice")
    return built


def strict_json(content: bytes | str) -> object:
    """Parse JSON without duplicate keys and NaN; anything else is a ValueError."""

    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(content, parse_constant=refuse, object_pairs_hook=unique_keys)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_toml(source: str | pathlib.Path, what: str, error: type[InputError]) -> dict[str, Any]:
    """Parse TOML text, or the file at a path; numbers stay the digits that the author wrote."""
    import tomllib  # not on a device, which gets its survey in a plan

    is_file = isinstance(source, pathlib.Path)
    which = f"{what} {source}" if is_file else f"the {what}"
    try:
        text = source.read_text("utf-8") if isinstance(source, pathlib.Path) else source
        _check_toml(text, what)
        return tomllib.loads(text, parse_float=decimal.Decimal)
    except OSError as problem:
        raise error(cannot_read(which, pathlib.Path(source), problem)) from problem
    except (ValueError, ArithmeticError) as problem:
        if isinstance(source, pathlib.Path) and (other := explain_wrong_file(source, what)):
            raise error(other) from problem
        if isinstance(problem, InputError):
            raise error(str(problem)) from problem
        raise error(f"{which} is not valid TOML: {first_line(problem)}.") from problem


def _check_toml(text: str, what: str) -> None:
    """Refuse a text that is too long or too deep for `tomllib`.

    Its time and memory grow with the square of the parts of a dotted key, and it recurses into
    arrays and inline tables. A survey needs neither.
    """
    import re

    if len(text) > _MAX_TOML:
        size = f"{_MAX_TOML:,} characters, this one has {len(text):,}"
        raise InputError(f"a {what} has at most {size}.")
    dots = depth = 0
    # Strings and comments are skipped whole; an unterminated one reaches to the end of the text or
    # of the line. No alternative backtracks, so the time is linear.
    for found in re.finditer(
        r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\\?\Z)|"(?:[^"\\\n]|\\[^\n])*+"?'
        r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)|'[^'\n]*+'?|#[^\n]*+|([.,=\n\[\]{}])",
        text,
        re.DOTALL,
    ):
        mark = found[1]
        if mark is None:
            continue
        dots = dots + 1 if mark == "." else 0
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth = max(depth - 1, 0)
        if dots > _MAX_DOTS or depth > _MAX_DEPTH:
            raise InputError(
                f"a {what} is not nested so deeply: a key has at most {_MAX_DOTS} dots, and at"
                f" most {_MAX_DEPTH} brackets are open at a time."
            )


def read_file(path: pathlib.Path, what: str, error: type[InputError] = InputError) -> bytes:
    """Read a file of at most `MAX_FILE_BYTES`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise error(cannot_read(f"{what} {path}", path, problem)) from problem
    if len(content) > MAX_FILE_BYTES:
        size = f"{MAX_FILE_BYTES >> 20} MiB"
        raise error(f"{path} is larger than {size}, too large for a {what}.")
    return content


def cannot_read(which: str, path: pathlib.Path, problem: OSError) -> str:
    """Say why a file cannot be read, and name one that may have been meant."""
    near = ""
    with contextlib.suppress(OSError):
        if isinstance(problem, FileNotFoundError):
            near = did_you_mean(path.name, [one.name for one in path.parent.iterdir()])
    return f"cannot read {which}: {first_line(problem)}.{near}"


def read_json(path: pathlib.Path, what: str, error: type[InputError]) -> object:
    content = read_file(path, what, error)
    try:
        return strict_json(content)
    except ValueError as problem:
        other = explain_wrong_file(path, what)
        raise error(other or f"{path} is not a {what}: {first_line(problem)}.") from problem


def write_json(path: pathlib.Path, document: object) -> None:
    write_text(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a text whole or not at all; its line ends are the same on every system."""
    write_whole(path, lambda scratch: scratch.write_bytes(text.encode("utf-8")))


def check_suffix(path: pathlib.Path | str, suffixes: tuple[str, ...], what: str) -> pathlib.Path:
    """Return the path if it ends in one of the suffixes; `what` names the file in the error."""
    target = pathlib.Path(path)
    if target.suffix.lower() not in suffixes:
        raise InputError(
            f"a {what}'s name must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}, got"
            f" {target.name!r}."
        )
    return target


def write_whole(path: pathlib.Path, write: Callable[[pathlib.Path], object]) -> None:
    """Let `write` make a file under another name, and give it the path when it is whole."""
    scratch = path.with_name(path.name + ".part")
    try:
        write(scratch)
        scratch.replace(path)
    except OSError as problem:
        reason = problem.strerror or first_line(problem)
        raise InputError(f"cannot write {path}: {reason}.") from problem


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

_RANDOMIZE = "shoal randomize PLAN.json {path} -o reports.parquet"
_HINTS = {
    ("survey", "plan"): "make a plan from it: shoal plan {path} --crowd N --epsilon E --delta D",
    ("plan", "survey"): "give the survey that it was made from",
    ("plan", "tally"): "give the plan first and the tally after it",
    ("tally", "plan"): "give the plan first and the tally after it",
    ("reports", "plan"): "give the plan first and the reports after it",
    ("table", "reports"): f"randomize it first: {_RANDOMIZE}",
    ("originals", "reports"): f"randomize them first: {_RANDOMIZE}",
    ("plan", "reports"): "give the plan first and the reports after it",
    ("reports", "tally"): "count them first: shoal tally PLAN.json {path} -o tally.json",
    ("table", "tally"): "answers are randomized and then counted: shoal randomize, shoal tally",
    ("table", "survey"): "propose one from it: shoal survey from {path} -o survey.toml",
    ("table", "plan"): "make a survey of it, shoal survey from {path}, and a plan of that",
    ("reports", "candidates"): "candidates are texts, one on a line",
    ("tally", "candidates"): "candidates are texts, one on a line",
}


def kind_of(path: pathlib.Path) -> str | None:
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


def explain_wrong_file(path: pathlib.Path, wanted: str) -> str | None:
    """Say what a file is if it is something else than wanted, and what to do; None if unknown."""
    found = kind_of(path)
    if found is None or found == wanted:
        return None
    hint = _HINTS.get((found, wanted), "")
    article = "" if wanted in ("candidates", "reports") else "a "
    sentence = f"{path} is {_NAMES[found]}, not {article}{wanted}"
    return f"{sentence}; {hint.format(path=path)}." if hint else f"{sentence}."
