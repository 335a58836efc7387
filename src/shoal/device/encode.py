"""Answers to Originals: the bits that say what a person answered.

One answer becomes one `OriginalVector`, on the standard library alone; many become an `Original`.
Either way `shoal.device.answers` has the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from shoal.device.answers import AnswerRules
from shoal.device.vectors import OriginalVector
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import RandomBits, SystemBits, draw_below
from shoal.protocol.survey import Survey

if TYPE_CHECKING:
    from shoal.device.arrays.vectors import Original
    from shoal.support.table_format import TableFormat

__all__ = ["encode"]


@overload
def encode(  # type: ignore[overload-overlap]  # a mapping is one answer, all else is many
    survey: Survey | Plan, answers: Mapping[str, Any], *, random_bits: RandomBits | None = None
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
) -> OriginalVector | Original:
    """Encode one answer as a bit vector, or a table of them as packed rows.

    Each row is encoded by itself: no row changes the bits of another. If a table has an invalid
    row, nothing is encoded, unless the format says that invalid answers are missing.

    Parameters
    ----------
    survey
        What was asked, or the plan that asks it.
    answers
        One answer as a mapping from question to value; a list of such; or a table with one row per
        person and one column per question: pandas, polars, pyarrow, anything that speaks the Arrow
        interface. Flags and choices are a list of options, or text with ``;`` between them; a
        choice is one option; yes or no is ``yes`` or ``no``, true or false, 1 or 0; a number is a
        number; text is text. A mapping has the questions' names, a table the columns that the
        survey declares. The cells of crossed questions follow from the answers.
    table_format
        The decimal sign, the texts for missing answers, and the treatment of invalid answers in
        a list or a table: a `TableFormat`.
    random_bits
        Where the cohorts of text come from. Leave it out, except in simulations.

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
        return _encode_one(asked, answers, source)
    if table_format is None:
        from shoal.support.table_format import TableFormat

        table_format = TableFormat()
    if isinstance(answers, Sequence) and not isinstance(answers, (str, bytes)):
        from shoal.device.arrays.encoding import encode_rows

        return encode_rows(asked, answers, random_bits=source, table_format=table_format)
    if hasattr(answers, "__arrow_c_stream__") or hasattr(answers, "__arrow_c_array__"):
        from shoal.device.arrays.tables import encode_table

        return encode_table(asked, answers, random_bits=source, table_format=table_format)
    raise InputError(
        f"answers must be a mapping, a list of mappings or a table, got {type(answers).__name__}."
    )


def _encode_one(
    survey: Survey, answer: Mapping[str, object], random_bits: RandomBits
) -> OriginalVector:
    cohort = None if survey.cohorts is None else draw_below(survey.cohorts, random_bits)
    value = sum(1 << bit for bit in AnswerRules(survey).set_bits(answer, cohort))
    return OriginalVector(value, survey.bits, cohort)
