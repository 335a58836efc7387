"""Encode answers as bits: the rules of each kind of question, and the vectors that they make.

One answer becomes an `OriginalVector`, with the standard library alone; many become an `Original`.
`shoal.device.arrays.encode` applies these rules to columns. An answer outside its question's domain
is an error that names question and value, and in a table the row. Nothing is guessed.

A vector is an integer whose bit j is bit j of the vector. `check_vector` refuses an original
outside its survey's domain. The noise of a choice hides two differing bits; a vector with two
options set differs from others in more, and no promise covers it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from shoal.errors import AnswerError, InputError, missing_extra
from shoal.protocol.plan import Plan
from shoal.protocol.questions import QuestionPart, folded
from shoal.protocol.random_bits import RandomBits, SystemBits, draw_below
from shoal.protocol.survey import (
    Choice,
    Cross,
    Date,
    Flags,
    Number,
    Question,
    Survey,
    Text,
    YesNo,
)
from shoal.protocol.wire import row_bytes
from shoal.support.checks import shown, whole_digits

if TYPE_CHECKING:
    import datetime

    from shoal.device.arrays.randomize import Original
    from shoal.support.table_format import TableFormat


@overload
def encode(  # type: ignore[overload-overlap]  # a mapping is one answer, all else is many
    survey: Survey | Plan,
    answers: Mapping[str, Any],
    *,
    random_bits: RandomBits | None = None,
    rounding: Rounding | None = None,
) -> OriginalVector: ...


@overload
def encode(
    survey: Survey | Plan,
    answers: object,
    *,
    table_format: TableFormat | None = None,
    random_bits: RandomBits | None = None,
) -> Original: ...


def encode(
    survey: Survey | Plan,
    answers: object,
    *,
    table_format: TableFormat | None = None,
    random_bits: RandomBits | None = None,
    rounding: Rounding | None = None,
) -> OriginalVector | Original:
    """Encode one answer as a bit vector, or a table of them as packed rows.

    Each row is encoded by itself: no row changes the bits of another. If a table has an invalid
    row, nothing is encoded, unless the format says that invalid answers are missing.

    Parameters
    ----------
    survey
        The survey, or a plan for it.
    answers
        One answer as a mapping from question to value; a list of such; or a table with one row per
        person and one column per question: pandas, polars, pyarrow, anything that speaks the Arrow
        interface. Flags are a list of options, or text with ``;`` between them; a
        choice is one option; yes or no is ``yes`` or ``no``, true or false, 1 or 0; a number is a
        number; a date is a date or ISO text; text is text. A mapping has the questions' names, a
        table the columns that the survey declares. The cells of crossed questions follow from the
        answers.
    table_format
        How cells of a list or a table are written, for example their decimal sign and the texts
        for missing answers: a `TableFormat`.
    random_bits
        Draws the cohorts of text and rounds numbers. Leave it out, except in simulations.
    rounding
        Rounds the numbers of one answer to their grids instead, as a device's memory does.

    Examples
    --------
    >>> from shoal import Choice, Flags, Survey
    >>> survey = Survey("browser", (
    ...     Flags("features", ("sync", "vpn", "reader")),
    ...     Choice("channel", ("release", "beta")),
    ... ))
    >>> answer = {"features": ["sync", "reader"], "channel": "beta"}
    >>> encode(survey, answer)
    OriginalVector(5 bits, not shown)
    >>> encode(survey, [answer, answer | {"channel": "release"}]).rows
    array([[21],
           [13]], dtype=uint8)
    >>> encode(survey, {"features": [], "channel": "alpha"})
    Traceback (most recent call last):
    ...
    shoal.errors.AnswerError: question 'channel': 'alpha' is not one of its options.
    """
    asked = survey.survey if isinstance(survey, Plan) else survey
    source = SystemBits() if random_bits is None else random_bits
    if isinstance(answers, Mapping):
        if table_format is not None:
            raise InputError("table_format is for tables and lists; an answer is a mapping.")
        cohort = None if asked.cohorts is None else draw_below(asked.cohorts, source)
        if rounding is None:
            if isinstance(survey, Plan) and survey.memory is not None and asked.has_grids:
                raise InputError(
                    "with memory a number is rounded the same way every time; pass"
                    " rounding=memory.rounding of the device's memory."
                )
            rounding = fresh_rounding(source)
        value = sum(1 << bit for bit in answer_bits(asked, answers, cohort, rounding))
        return OriginalVector(value, asked.bits, cohort)
    is_list = isinstance(answers, Sequence) and not isinstance(answers, (str, bytes))
    is_table = hasattr(answers, "__arrow_c_stream__") or hasattr(answers, "__arrow_c_array__")
    if not is_list and not is_table:
        found = type(answers).__name__
        raise InputError(f"answers must be a mapping, a list of mappings or a table, got {found}.")
    try:
        from shoal.device.arrays.encode import TableEncoder
    except ModuleNotFoundError as error:
        raise missing_extra(error, "encoding a table of answers") from None
    encoder = TableEncoder(asked, table_format, source)
    original = encoder.rows(answers) if is_list else encoder.table(answers)  # type: ignore[arg-type]
    encoder.errors.raise_first()
    return original


MAX_TEXT = 1 << 16

Rounding = Callable[[int], float]
"""Gives the uniform draw from [0, 1) that rounds a number to its grid, by its question's place."""


def fresh_rounding(random_bits: RandomBits) -> Rounding:
    """Return a rounding that draws anew for every number."""
    return lambda place: draw_below(1 << 53, random_bits) * 2.0**-53


LEFT_OUT = object()
"""In place of an answer: a question left out of a mapping. Empty flags and text must be given."""

_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def answer_bits(
    survey: Survey,
    answer: Mapping[str, object],
    cohort: int | None,
    rounding: Rounding | None = None,
) -> list[int]:
    """Return which bits of the survey's vector one person's answer sets, each once."""
    check_names(survey, answer)
    chosen: dict[str, Collection[int]] = {
        question.name: bits_of(
            survey, question, answer.get(question.name, LEFT_OUT), cohort, rounding
        )
        for question in survey.asked
    }
    for cross in survey.crosses:
        chosen[cross.name] = [cell_of(cross, chosen)]
    starts = {name: survey.slice_of(name).start for name in chosen}
    return [starts[name] + bit for name, bits in chosen.items() for bit in bits]


def check_names(survey: Survey, answer: Mapping[str, object]) -> None:
    names = [question.name for question in survey.asked]
    for name in answer:
        if name not in names:
            derived = name in [cross.name for cross in survey.crosses]
            why = "follows from the other answers" if derived else "is not asked"
            raise AnswerError(f"question {shown(name)} {why}; leave it out.")


def cell_of(cross: Cross, chosen: Mapping[str, Collection[int]]) -> int:
    """Return the cell of a person who has set these bits of each crossed question.

    `shoal.device.arrays.encode.set_cells` does so for many people.
    """
    cell = 0
    for side, size in zip(cross.sides, cross.sizes, strict=True):
        bits = chosen[side.question.name]
        value = next(iter(bits)) if side.bit is None else int(side.bit not in bits)
        cell = cell * size + value
    return cell


def bits_of(
    survey: Survey,
    question: Question,
    answer: object,
    cohort: int | None,
    rounding: Rounding | None = None,
) -> list[int]:
    """Return which bits of a question an answer sets, each once; text needs a cohort."""
    if answer is LEFT_OUT:
        if isinstance(question, (Flags, Text)):
            why = "is left out; give an empty one if nothing is set"
            raise _refused(question, "the answer", why)
        answer = None
    if not isinstance(question, Text):
        return set_bits(question, answer, rounding, survey.place_of(question.name))
    assert cohort is not None
    return text_bits(survey, question, answer, cohort)


def set_bits(
    question: Question, answer: object, rounding: Rounding | None = None, place: int = 0
) -> list[int]:
    """Return which bits of a question other than text an answer sets, each once.

    A number is rounded to its grid by `rounding`, by default with random bits of the system.
    """
    if isinstance(question, Flags):
        bits = [_place(question, name) for name in _named_options(question, answer)]
        listed = [bit for bit in bits if bit < len(question.options)]
        if len(set(listed)) < len(listed):
            raise wrong_answer(question, answer, "names an option twice")
        bits = list(dict.fromkeys(bits))  # several others are one
        if len(bits) > question.max_set_bits:
            too_many = f"sets too many options, at most {question.max_set_bits} are allowed"
            raise wrong_answer(question, answer, too_many)
        return bits
    if is_missing(answer):
        return [missing_bit(question)]
    if isinstance(question, Number):
        number = number_of(question, answer)
        if question.edges:
            return [sum(float(edge) <= number for edge in question.edges)]
        position = question.position(number)
        drawn = (rounding or fresh_rounding(SystemBits()))(place)
        return [int(position) + (drawn < position % 1)]
    if isinstance(question, YesNo):
        yes = _is_yes(question, answer)
        return [int(not yes)] if question.missing or yes else []
    if isinstance(question, Date):
        return [question.place(_date_of(question, answer))]
    assert isinstance(question, Choice)
    name = _option_name(answer)
    if name is None:
        raise wrong_answer(question, answer, "is not one option's name")
    return [_place(question, name)]


def text_bits(survey: Survey, question: Text, answer: object, cohort: int) -> list[int]:
    """Return the bits that a text sets in a cohort; no answer counts as an empty text."""
    if answer is None:
        answer = ""
    if not isinstance(answer, str):
        raise wrong_answer(question, answer, "is not text")
    if len(answer) > MAX_TEXT:
        raise wrong_answer(question, answer, f"is longer than {MAX_TEXT} characters")
    try:
        answer.encode()
    except UnicodeEncodeError:
        raise wrong_answer(question, answer, "is not valid Unicode") from None
    return list(survey.text_bits(question.name, answer, cohort))


def missing_bit(question: Question) -> int:
    """Return the bit of a missing answer, if the question declared one."""
    assert isinstance(question, (Choice, Date, Number, YesNo))
    if question.missing is None:
        why = 'is missing; declare missing = "option" in the survey if that may happen'
        raise _refused(question, "the answer", why)
    return question.bits - 1


def is_missing(answer: object) -> bool:
    """Whether an answer is absent: None, or an empty cell."""
    return answer is None or (isinstance(answer, str) and not answer.strip())


def wrong_answer(question: Question, answer: object, why: str) -> AnswerError:
    return _refused(question, shown(answer), why)


def _refused(question: Question, answer: str, why: str) -> AnswerError:
    return AnswerError(f"question {question.name!r}: {answer} {why}.", why)


def _named_options(question: Flags, answer: object) -> list[str]:
    if is_missing(answer):
        return []  # an empty cell sets none
    if isinstance(answer, str):
        return [name.strip() for name in answer.split(";")]
    if (only := whole_digits(answer)) is not None:
        return [only]
    if isinstance(answer, (bytes, Mapping)) or not isinstance(answer, Iterable):
        raise wrong_answer(question, answer, "is not a list of options")
    named = []
    for option in answer:
        name = _option_name(option)
        if name is None:
            raise wrong_answer(question, option, "is not an option's name")
        named.append(name)
    return named


def _option_name(option: object) -> str | None:
    """Return an option's name; codes that are whole numbers are named by their digits."""
    return option if isinstance(option, str) else whole_digits(option)


def _place(question: Flags | Choice, name: str) -> int:
    place = question.place(name)
    if place is None:
        raise wrong_answer(question, name, "is not one of its options")
    return place


def _is_yes(question: YesNo, answer: object) -> bool:
    is_bool = type(answer).__name__ in ("bool", "bool_")  # Python's, or NumPy's
    word = str(answer) if is_bool else _option_name(answer)
    yes = None if word is None else _YES.get(folded(word))
    if yes is None:
        raise wrong_answer(question, answer, "is not yes or no, true or false, 1 or 0")
    return yes


def _date_of(question: Date, answer: object) -> datetime.date:
    """Return a date, or the date that a text begins with: 2026-03-31, also with a time."""
    import datetime  # few surveys ask for dates

    if isinstance(answer, datetime.date) and isinstance(answer.year, int):  # no NaT
        return answer
    try:
        if isinstance(answer, str):
            return datetime.datetime.fromisoformat(answer.strip()).date()
    except ValueError:
        pass
    raise wrong_answer(question, answer, "is not a date such as 2026-03-31")


def number_of(question: Number, answer: object) -> float:
    grouped = isinstance(answer, str) and "_" in answer  # Python reads 1_000, tables do not
    known = isinstance(answer, (str, numbers.Number)) and not isinstance(answer, bool)
    if grouped or not known:
        raise wrong_answer(question, answer, "is not a number")
    try:
        number = float(answer)  # type: ignore[arg-type]  # errors are handled below
    except (TypeError, ValueError, OverflowError):
        raise wrong_answer(question, answer, "is not a number") from None
    if not math.isfinite(number):
        raise wrong_answer(question, answer, "is not a finite number")
    return number


@dataclass(frozen=True, init=False, repr=False, eq=False)
class _Vector:
    """A vector before or after randomizing."""

    value: int
    bits: int
    cohort: int | None = None

    def __post_init__(self) -> None:
        if self.value < 0 or self.value >> self.bits:
            raise InputError(f"a vector of {self.bits} bits is a number below 2^{self.bits}.")

    @property
    def row(self) -> bytes:
        """The packed bits."""
        return self.value.to_bytes(row_bytes(self.bits), "little")


@dataclass(frozen=True, repr=False)
class OriginalVector(_Vector):
    r"""One vector before randomizing: it exists on the device and nowhere else.

    Its `repr` does not show it.
    """

    def __repr__(self) -> str:
        return f"OriginalVector({self.bits} bits, not shown)"


@dataclass(frozen=True, repr=False)
class SyntheticVector(_Vector):
    """One vector after randomizing, which may leave the device.

    `simulated` marks a vector whose noise came from a seeded generator, and gives no protection.
    """

    simulated: bool = False

    def __repr__(self) -> str:
        mark = ", simulated: not for release" if self.simulated else ""
        return f"SyntheticVector({self.bits} bits{mark})"


def check_vector(value: int, survey: Survey) -> None:
    """Raise `AnswerError` unless a vector is an original that the survey allows."""
    for question, place, part in survey.parts:
        block = value >> place.start & (1 << part.bits) - 1
        if not part.min_set_bits <= block.bit_count() <= part.max_set_bits:
            raise outside_domain("the original", question, part, block.bit_count())


def outside_domain(which: str, question: Question, part: QuestionPart, count: int) -> AnswerError:
    low, high = part.min_set_bits, part.max_set_bits
    allowed = f"{high}" if low == high else f"{low} to {high}"
    return AnswerError(
        f"{which} sets {count} bits of question {question.name!r}, which allows {allowed};"
        " encode makes originals that fit."
    )
