"""Find the texts that a crowd answered among candidates, from a tally."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.analysis.estimates import estimate
from shoal.analysis.tally import Tally
from shoal.analysis.text.inference import Errors, Regression, conditional_low, excess
from shoal.analysis.text.least_squares import Data, Design, Floats, Places, make_data, make_design
from shoal.analysis.text.results import DecodedText, DecodedTexts
from shoal.analysis.text.selection import Selection, select
from shoal.errors import InputError, SurveyError
from shoal.protocol.plan import Plan
from shoal.protocol.questions import Text
from shoal.protocol.survey import Survey
from shoal.protocol.text_hash import normal_text
from shoal.support.checks import check_level, check_number, listed, shown, takes
from shoal.support.files import explain_wrong_file, kind_of
from shoal.support.table_format import TableFormat
from shoal.theory.randomized_response import normal_factor

ALIKE = 0.75  # share of common bits from which candidates are listed as hard to tell apart


@takes(plan=Plan, tally=Tally)
def decode(
    plan: Plan,
    tally: Tally,
    candidates: Iterable[str],
    *,
    question: str | None = None,
    fdr: float = 0.05,
    level: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> DecodedTexts:
    """Find which candidates a crowd answered, and how many people answered each.

    Parameters
    ----------
    plan, tally
        The plan, and the tally of its reports. A plan with a crowd refuses a tally of fewer
        reports.
    candidates
        Texts that people may have answered: a list, or a column of a table. Empty ones and
        repetitions, in normal form, are left out with a note.
    question
        Which text question; needed if the survey has several.
    fdr
        The expected share, strictly between 0 and 1, of texts answered by no one among those found.
    level
        The confidence level of the intervals.
    progress
        Called with the number of candidates hashed since the last call.

    Examples
    --------
    >>> import shoal
    >>> from shoal.device.arrays.simulation_bits import SimulationBits
    >>> from shoal.device.encode import encode
    >>> from shoal.device.randomize import flip
    >>> survey = shoal.Survey("words", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    >>> plan = shoal.plan(survey, q="0.05")
    >>> answers = [{"word": "tea"}] * 300 + [{"word": "coffee"}] * 700
    >>> noise = SimulationBits(1)
    >>> originals = encode(survey, answers, random_bits=noise)
    >>> counted = shoal.tally(plan, flip(plan, originals, random_bits=noise))
    >>> decoded = decode(plan, counted, ["coffee", "tea", "cocoa", "water"])
    >>> [(text.value, round(text.count)) for text in decoded.discoveries]
    [('coffee', 706), ('tea', 298)]
    """
    check_rates(fdr, level)
    estimate(plan, tally)  # refuses what cannot or must not be estimated from
    text_question = find_text_question(plan.survey, question)
    checked = check_candidates(candidates)
    assert tally.cohorts is not None
    hashing = plan.survey.text_hash(text_question.name)
    design = make_design(hashing, checked.texts, text_question.cohorts, progress)
    where, *_ = plan.survey.slices_of(text_question.name)
    data = make_data(tally.cohorts, where, float(plan.q), text_question.hashes)
    draws = text_question.hashes * text_question.cohorts
    left_out = {
        "empty candidates left out": checked.empty,
        "repeated candidates left out": checked.repeated,
    }
    notes = (
        *filter(None, [tally.note]),
        *_counted_notes(left_out),
        *filter(None, [too_few_bits(text_question.bits, draws, len(checked.texts), fdr)]),
    )
    return explain(
        data,
        design,
        checked.texts,
        question=text_question.name,
        fdr=fdr,
        level=level,
        notes=notes,
        simulated=tally.simulated,
    )


def explain(
    data: Data,
    design: Design,
    texts: Sequence[str],
    *,
    question: str,
    fdr: float,
    level: float,
    notes: Sequence[str] = (),
    simulated: bool = False,
) -> DecodedTexts:
    """Find which texts, and how many people behind each, explain debiased counts."""
    selected = select(data, design, fdr)
    regression = Regression(data, design, selected.fit, selected.blur)
    errors = _errors(regression, selected, level)
    rows = _rows(texts, regression, selected, errors, level)
    explained, explained_sigma = _explained(regression, selected, errors.sigmas, level)
    alike = _alike(texts, design, selected.discoveries)
    counted = {
        "candidates with the same bits as another, counted with it": len(texts) - design.patterns,
        "groups of candidates that are hard to tell apart": len(alike),
    }
    pattern = {texts[group[0]]: place for place, group in enumerate(design.members)}
    return DecodedTexts(
        question=question,
        reports=data.reports,
        fdr=fdr,
        level=level,
        texts=tuple(sorted(rows, key=lambda row: (-row.count, row.value))),
        unexplained=data.reports - explained,
        unexplained_sigma=explained_sigma,
        alike=alike,
        notes=(*notes, *_counted_notes(counted)),
        simulated=simulated,
        _regression=regression,
        _pattern=pattern,
    )


def find_text_question(survey: Survey, name: str | None, *, pairs: bool = False) -> Text:
    """Return the text question of this name, or the only one; `pairs` are needed to discover."""
    if name is not None:
        survey[name]  # says so if there is no such question at all
    questions = [
        question
        for question in survey
        if isinstance(question, Text)
        and name in (None, question.name)
        and (question.pairs or not pairs)
    ]
    if len(questions) > 1:
        names, what = listed([question.name for question in questions]), " with pairs" * pairs
        raise InputError(f"the survey has several text questions{what}, {names}; say which.")
    if questions:
        return questions[0]
    if pairs:
        what = f"survey {survey.name!r}" if name is None else f"question {name!r}"
        raise SurveyError(
            f"{what} has no text with pairs of letters; declare pairs with a text question, or make"
            " a survey with shoal discover --make."
        )
    what = "the survey asks for no" if name is None else f"question {name!r} does not ask for"
    raise InputError(f"{what} text; estimate it.")


def _errors(regression: Regression, selected: Selection, level: float) -> Errors:
    """Return the errors of every count; least squares knows those of the fitted ones best."""
    chosen = selected.fit.chosen
    sigmas = selected.sigmas * np.sqrt(1 + selected.blur)
    reach = normal_factor(level) * sigmas
    result = Errors(sigmas, -reach, reach)
    fitted = regression.errors(np.eye(len(chosen) + 1)[1:], level)
    for whole, part in zip(result, fitted, strict=True):
        whole[chosen] = part
    result.above[selected.shared] = np.inf  # all these people may have answered another text
    return result


def _explained(
    regression: Regression, selected: Selection, sigmas: Floats, level: float
) -> tuple[float, float]:
    fitted = selected.fit
    whole = np.append(0.0, np.isin(fitted.chosen, selected.discoveries).astype(float))[None, :]
    total = float((whole[:, 1:] @ fitted.counts)[0])
    chance, chance_sigma = excess(selected.counts, sigmas, selected.z, selected.cutoff)
    sigma = float(regression.errors(whole, level).sigmas[0])
    return total - chance, math.hypot(sigma, chance_sigma)


def _rows(
    texts: Sequence[str], regression: Regression, selected: Selection, errors: Errors, level: float
) -> list[DecodedText]:
    data, design = regression.data, regression.design
    counts, sigmas = selected.counts, errors.sigmas
    low, high = counts - errors.above, counts - errors.below
    mask = np.zeros(design.patterns, bool)
    mask[selected.discoveries] = True
    z = np.minimum(selected.z[mask], counts[mask] / sigmas[mask])
    reach = np.maximum(z, selected.cutoff) - conditional_low(z, selected.cutoff, level)
    low[mask] = np.minimum(low[mask], counts[mask] - reach * sigmas[mask])
    low, high = np.clip(low, 0, data.reports), np.clip(high, 0, data.reports)
    constrained = np.zeros(design.patterns)
    constrained[selected.discoveries] = _constrained(selected, data.reports)
    return [
        DecodedText(
            value=texts[group[0]],
            count=float(counts[pattern]),
            sigma=float(sigmas[pattern]),
            low=float(low[pattern]),
            high=float(high[pattern]),
            found=bool(mask[pattern]),
            constrained=float(constrained[pattern]),
            same_as=tuple(texts[candidate] for candidate in group[1:]),
        )
        for pattern, group in enumerate(design.members)
    ]


def _constrained(selected: Selection, reports: int) -> Floats:
    """Return non-negative counts that fit best together and are no more than the reports."""
    from scipy.optimize import nnls

    fitted = selected.fit
    mask = np.isin(fitted.chosen, selected.discoveries)
    counts = np.append(fitted.background, fitted.counts)
    if not (counts >= 0).all():
        root = np.linalg.cholesky(np.linalg.inv(fitted.inverse)).T
        counts, _ = nnls(root, root @ counts)
    chosen = counts[1:][mask]
    total = float(chosen.sum())
    return np.asarray(chosen * min(1.0, reports / total) if total > 0 else chosen)


def _alike(
    texts: Sequence[str], design: Design, discoveries: Places
) -> tuple[tuple[str, ...], ...]:
    """Group the candidates that nearly share their bits with one that was found."""
    groups: dict[int, list[int]] = {}
    for pattern, other in design.alike(discoveries, ALIKE):
        groups.setdefault(pattern, []).append(other)
    seen: set[frozenset[int]] = set()
    listed_groups = []
    for pattern, others in groups.items():
        if (group := frozenset((pattern, *others))) not in seen:
            seen.add(group)
            listed_groups.append(
                tuple(texts[design.members[place][0]] for place in (pattern, *others))
            )
    return tuple(listed_groups)


def check_rates(fdr: float, level: float) -> None:
    check_level(level)
    if not 0 < check_number("fdr", fdr) < 1:
        raise InputError(f"fdr must be strictly between 0 and 1, got fdr={fdr}. Try 0.05.")


def too_few_bits(bits: int, draws: int, candidates: int, fdr: float) -> str | None:
    """Return a note if a text sets so few bits that chance explains any count at them.

    A text that nobody answered has given bits in every cohort with a chance of about bits to the
    power of -draws, draws = hashes x cohorts, and no p-value is smaller.
    """
    if candidates <= fdr * float(bits) ** min(draws, 64):
        return None
    return (
        f"no text can be found at a rate of {fdr:g}: any of {candidates:,} candidates may have the"
        f" bits of another text by chance; ask with more bits, hashes or cohorts"
    )


def _counted_notes(notes: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{what}: {number}" for what, number in notes.items() if number)


MAX_FILE_BYTES = 1 << 30


class Candidates(NamedTuple):
    """Different texts, in the order they came, and how many were left out and why."""

    texts: tuple[str, ...]
    empty: int
    repeated: int


def check_candidates(source: Iterable[object]) -> Candidates:
    r"""Return the candidates in normal form; empty ones and repetitions are counted, not kept.

    >>> check_candidates(["cafe\u0301", "caf\u00e9 ", "", "tea"])
    Candidates(texts=('café', 'tea'), empty=1, repeated=1)
    """
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
        raise InputError(f"candidates must be a list of texts, got {shown(source)}.")
    texts: dict[str, None] = {}
    total = empty = 0
    for number, value in enumerate(source, 1):
        total = number
        text = value.as_py() if hasattr(value, "as_py") else value
        if text is None:
            empty += 1
            continue
        if not isinstance(text, str):
            raise InputError(f"candidate {number} must be text, got {shown(text)}.")
        if normal := normal_text(text):
            if not normal.isascii() and any("\ud800" <= letter <= "\udfff" for letter in normal):
                raise InputError(f"candidate {number} is not valid Unicode: {shown(text)}.")
            texts[normal] = None
        else:
            empty += 1
    if not texts:
        raise InputError("there are no candidates; give at least one text.")
    return Candidates(tuple(texts), empty, total - empty - len(texts))


def read_candidates(path: Path | str, column: str | None = None) -> list[str]:
    """Read candidates: lines of text, or a column of a CSV or Parquet table.

    A table of one column needs no name for it. A missing cell is an empty text.
    """
    path = Path(path)
    with reading(path, "candidates"):
        if kind_of(path) in ("reports", "originals", "tally", "plan"):
            raise InputError(explain_wrong_file(path, "candidates"))
        if path.suffix.lower() in (".csv", ".parquet"):
            return _column(path, column)
        if column is not None:
            raise InputError(f"a column needs a .csv or .parquet file, got {path.name!r}.")
        return list(path.read_text("utf-8-sig").splitlines())


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Refuse a file that is too large, unreadable or not UTF-8."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB.")
        yield
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InputError(f"cannot read {what} {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{what} {path} are not UTF-8 text.") from error


def _column(path: Path, column: str | None) -> list[str]:
    from shoal.support.table_files import python_cells, read_table

    names = None if column is None else [column]
    cells: list[Any] = []
    for table, _, problems in read_table(path, names, TableFormat(skip_blank=True)):
        if table.num_columns != 1:
            raise InputError(
                f"{path} has {table.num_columns} columns; say which one holds the candidates."
            )
        if problems:
            first = min(problems)
            raise InputError(f"row {len(cells) + first.row + 1} of {path} {first.why}.")
        cells += ["" if cell is None else cell for cell in python_cells(table.column(0))]
    return cells
