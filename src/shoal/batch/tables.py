"""Tables of others, in and out: pandas, polars, Arrow, whatever has the Arrow C stream interface.

A table is read batch by batch, so that a stream may be larger than memory. Reports come out as an
Arrow reader of one column `report`, which those libraries take in turn. It can be read once: no
answer is randomized in two versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from shoal.analysis.report_files import rows_of_column
from shoal.analysis.tally import Tally, Tallying
from shoal.errors import InputError, PrivacyRefusal, ReportError
from shoal.protocol.plan import Plan
from shoal.protocol.wire import Synthetic
from shoal.support.files import first_line
from shoal.support.table_files import is_pandas
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

_ROWS = 1 << 18


def randomize_table(
    plan: Plan,
    answers: Any,
    *,
    table_format: TableFormat = DEFAULT_FORMAT,
    whole_reports: bool = False,
) -> Any:
    """Return the reports of a table of answers, one row per person, as a `RecordBatchReader`.

    Parameters
    ----------
    plan
        The plan. Whether it keeps its promise is not computed here: see `Plan.certificate`.
    answers
        A pandas, polars or Arrow table, or anything with ``__arrow_c_stream__``.
    table_format
        How its cells are written, and how invalid ones are treated. If one is an error, discard
        the batches that were read before it.
    whole_reports
        Make the reports of a plan with view counts, though each may be nearly the truth.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from shoal import Flags, Survey, plan
    >>> agreed = plan(Survey("s", (Flags("f", ("a", "b")),)), q="0.25")
    >>> reader = randomize_table(agreed, pa.table({"f": ["a", "a;b", ""]}))
    >>> tally_table(agreed, reader).reports
    3
    """
    from shoal.device.arrays.encode import check_asked, check_format, table_columns
    from shoal.device.arrays.files import column_of, file_rows, report_schema, warning_of

    if plan.view == "counts" and not whole_reports:
        raise PrivacyRefusal(
            f"the plan's view is counts, and {warning_of(plan)} Ask for them with"
            " whole_reports=True."
        )
    check_format(plan.survey, table_format)
    schema = report_schema(plan)
    if is_pandas(answers):  # its columns of objects have no type that does not depend on all rows
        check_asked(plan.survey, [str(label) for label in answers.columns])
        stream: Any = [answers]
    else:
        stream = _stream_of(answers)
        check_asked(plan.survey, stream.schema.names)
        names = table_columns(plan.survey)
        stream = (batch.select(names) for batch in stream)
    batches = (
        pa.record_batch([column_of(file_rows(reports))], schema=schema)
        for reports in randomize_batches(plan, stream, table_format)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def randomize_batches(
    plan: Plan, batches: Iterable[Any], table_format: TableFormat = DEFAULT_FORMAT
) -> Iterator[Synthetic]:
    """Randomize the answers in Arrow record batches or parts of a data frame, each row once."""
    from shoal.device.arrays.encode import TableEncoder
    from shoal.device.randomize import flip

    encoder = TableEncoder(plan.survey, table_format)
    for batch in batches:
        for start in range(0, len(batch), _ROWS):
            rows = slice(start, start + _ROWS)
            original = encoder.table(batch.iloc[rows] if is_pandas(batch) else batch[rows])
            encoder.errors.raise_first()
            yield flip(plan, original)


def tally_table(
    plan: Plan,
    reports: Any,
    *,
    vectors: bool | None = None,
    crowd: str | None = None,
    window: int | None = None,
) -> Tally:
    """Count the reports in a table with a column `report`, as one crowd.

    The column may be any binary type: polars has none of a fixed size. A table that names its plan
    must name this one; where a library has dropped the name, the caller is believed.
    """
    stream = _stream_of(reports)
    if stream.schema.names != ["report"]:
        raise ReportError("a table of reports must have exactly one column, report.")
    metadata = stream.schema.metadata or {}
    named = metadata.get(b"shoal.plan", plan.id.encode()).decode("ascii", "replace")
    if named != plan.id:
        raise ReportError(f"the table holds reports of plan {named[:12]}, not {plan.id[:12]}.")
    simulated = metadata.get(b"shoal.simulated") == b"true"
    tallying = Tallying(plan, vectors=vectors, crowd=crowd, window=window)
    for batch in stream:
        for start in range(0, batch.num_rows, _ROWS):
            tallying.add_vectors(_synthetic(plan, batch.column(0).slice(start, _ROWS), simulated))
    return tallying.result()


def _synthetic(plan: Plan, column: Any, simulated: bool) -> Synthetic:
    from shoal.protocol.wire import file_row_bytes

    width = file_row_bytes(plan.bits, plan.cohorts is not None)
    if not pa.types.is_fixed_size_binary(column.type):
        try:
            column = column.cast(pa.large_binary()).cast(pa.binary(width))
        except pa.ArrowException as error:
            raise ReportError(f"reports of this plan have {width} bytes each.") from error
    records = rows_of_column(plan, column)
    cohorts = None if plan.cohorts is None else records["cohort"].astype("uint16")
    return Synthetic(records["bits"], plan.bits, simulated, cohorts)


def _stream_of(table: Any) -> Any:
    try:
        if isinstance(table, pa.RecordBatchReader):
            return table
        if hasattr(table, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(table)
        return pa.table(table).to_reader()
    except (TypeError, pa.ArrowException) as error:
        raise InputError(
            "a table must be of pandas, polars or Arrow, or have __arrow_c_stream__:"
            f" {first_line(error)}."
        ) from error
