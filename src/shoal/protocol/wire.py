"""The wire format of reports, version 1, and packed rows of bits.

A binary batch is a header and `count` reports of one fixed length. It has no field for who, where
or when.

======== ===== ============================================================
header   6     magic ``SHOAL`` and the version, 1
.        32    plan id
.        4     count, little endian
report   16    report id, random: a report sent twice is counted once
.        4     window number, little endian
.        2     cohort, little endian, if the plan has cohorts
.        n     the packed bits
======== ===== ============================================================

Small clients may send JSON: ``{"plan": id, "reports": [base64 of one report, ...]}``. Parsing is
strict: anything that is not exactly a batch of the plan is a `ReportError`.

A file of raw rows has a header of 64 bytes, `FILE_HEADER`: magic, version, whether the reports are
simulated, and the plan id. A row is a report from the cohort on.

Bit j of a vector is bit ``j % 8``, least significant first, of byte ``j // 8`` of its row. The
padding bits of the last byte are zero, and are checked wherever rows come in from outside. Only
`shoal.device.randomize` makes a `Synthetic` of true answers: types and import rules ensure it.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import InputError, ReportError
from shoal.protocol.plan import Plan
from shoal.support.checks import check_integer
from shoal.support.files import unique_keys

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray


MAGIC, REPORTS_TYPE = b"SHOAL\x01", "application/vnd.shoal.reports"
ENCRYPTED_MAGIC, ENCRYPTED_TYPE = b"ENCRYP\x01", "application/vnd.shoal.encrypted"
SHARED_MAGIC = b"SHARED\x01"
"""How content begins, and its media type; `shoal.protocol.encryption` has the encrypted form. What
follows the last magic is an upload of DAP, and is sent without it."""

MAX_REPORTS = 1 << 20
"""The most reports one batch may hold."""

ID_BYTES = 16

FILE_MAGIC = b"SHOALROW"
FILE_HEADER = struct.Struct("<8sII32s16x")

_HEADER = struct.Struct("<6s32sI")
_START = struct.Struct(f"<{ID_BYTES}sI")
_COHORT = struct.Struct("<H")
_JSON_FORM = 'a JSON batch is {"plan": id, "reports": [base64, ...]}.'

Field = tuple[str, str] | tuple[str, str, tuple[int]]
"""A field of a record as NumPy spells it: name, type and, for several bytes, how many."""


@dataclass(frozen=True)
class Reports:
    """Reports of one plan as they travel: one behind the other, `length` bytes each."""

    plan_id: str
    length: int
    content: bytes

    def __len__(self) -> int:
        return len(self.content) // self.length

    @property
    def windows(self) -> list[int]:
        """The window of each report."""
        places = range(0, len(self.content), self.length)
        return [_START.unpack_from(self.content, place)[1] for place in places]

    def to_bytes(self) -> bytes:
        """Return the batch in the binary form."""
        return _HEADER.pack(MAGIC, bytes.fromhex(self.plan_id), len(self)) + self.content

    def to_json(self) -> bytes:
        """Return the batch in the JSON form."""
        places = range(0, len(self.content), self.length)
        records = (self.content[place : place + self.length] for place in places)
        reports = [base64.b64encode(record).decode() for record in records]
        return json.dumps({"plan": self.plan_id, "reports": reports}).encode()


def report_bytes(plan: Plan) -> int:
    return _START.size + file_row_bytes(plan.bits, plan.cohorts is not None)


def file_row_bytes(bits: int, has_cohorts: bool) -> int:
    """Return how many bytes a row has in a file: the cohort, if there are cohorts, and the bits."""
    return row_bytes(bits) + (_COHORT.size if has_cohorts else 0)


def batch_bytes(plan: Plan, count: int) -> int:
    return _HEADER.size + count * report_bytes(plan)


def row_fields(bits: int, has_cohorts: bool) -> list[Field]:
    """Return the fields of a row in a file, for those who read many rows at once."""
    cohort: list[Field] = [("cohort", "<u2")] if has_cohorts else []
    return [*cohort, ("bits", "u1", (row_bytes(bits),))]


def report_fields(bits: int, has_cohorts: bool) -> list[Field]:
    """Return the fields of a report, for those who read or write many at once."""
    return [("id", "u1", (ID_BYTES,)), ("window", "<u4"), *row_fields(bits, has_cohorts)]


def join_report(report_id: bytes, window: int, cohort: int | None, row: bytes) -> bytes:
    middle = b"" if cohort is None else _COHORT.pack(cohort)
    return _START.pack(report_id, window) + middle + row


def current_window(plan: Plan, now: float) -> int:
    """Return the number of the window that is open at a time, in seconds since 1970."""
    return 0 if plan.window is None else int(now // plan.window)


def checked_window(plan: Plan, window: int | None) -> int:
    """Return the window of reports: the one that is open now, unless it is given."""
    if window is None:
        window = current_window(plan, time.time())
    return check_integer("window", window, lowest=0, highest=2**32 - 1, error=ReportError)


def split_batch(plan: Plan, content: bytes) -> Reports:
    """Return the reports in a batch of either form; anything else raises `ReportError`.

    Only number and length are checked here. Cohorts and padding bits are checked by
    `shoal.analysis.report_files.parse_batch`.
    """
    if content[:1] == b"{":
        plan_id, body, count = _parse_json(plan, content)
    else:
        plan_id, body, count = _parse_binary(content)
    if plan_id != plan.id:
        raise ReportError("the batch is for another plan.")
    if not 1 <= count <= MAX_REPORTS:
        raise ReportError(f"a batch holds 1 to {MAX_REPORTS} reports, got {count}.")
    length = report_bytes(plan)
    if len(body) != count * length:
        raise ReportError(
            f"{count} reports of this plan take {count * length} bytes, got {len(body)}."
        )
    return Reports(plan_id, length, body)


def _parse_binary(content: bytes) -> tuple[str, bytes, int]:
    if len(content) < _HEADER.size:
        raise ReportError(f"a batch starts with {_HEADER.size} bytes, got {len(content)}.")
    magic, plan_id, count = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise ReportError("this is no batch of reports of wire version 1.")
    return plan_id.hex(), content[_HEADER.size :], count


def _parse_json(plan: Plan, content: bytes) -> tuple[str, bytes, int]:
    # Neither an id nor base64 has brackets. What has more of them takes long to parse for nothing.
    if content.count(b"{") != 1 or content.count(b"[") != 1:
        raise ReportError(_JSON_FORM)
    try:
        document = json.loads(content, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ReportError("the batch is not valid JSON.") from error
    if not isinstance(document, Mapping) or set(document) != {"plan", "reports"}:
        raise ReportError(_JSON_FORM)
    reports = document["reports"]
    if not isinstance(reports, list) or not all(isinstance(report, str) for report in reports):
        raise ReportError("reports must be a list of base64 texts.")
    length = report_bytes(plan)
    wrong = ReportError(f"every report of this plan has {length} bytes.")
    if any(len(report) != 4 * -(-length // 3) for report in reports):
        raise wrong
    try:
        records = [base64.b64decode(report, validate=True) for report in reports]
    except ValueError as error:
        raise ReportError("a report is not valid base64.") from error
    if any(len(record) != length for record in records):
        raise wrong
    return str(document["plan"]), b"".join(records), len(records)


Rows: TypeAlias = "NDArray[np.uint8]"
"""Packed rows: shape (vectors, bytes of a row)."""

Cohorts: TypeAlias = "NDArray[np.uint16]"
"""The cohort of each vector, where the survey has cohorts: public, drawn afresh for each report."""


def row_bytes(bits: int) -> int:
    return -(-bits // 8)


def padding_mask(bits: int) -> int:
    """Return the mask of the bits of a row's last byte that belong to the vector."""
    return 0xFF >> (-bits % 8)


def check_rows(rows: Rows, bits: int, *, error: type[InputError] = InputError) -> Rows:
    """Return `rows` if they are packed rows of `bits` bits with clear padding bits."""
    if rows.dtype != "uint8" or rows.ndim != 2 or rows.shape[1] != row_bytes(bits):
        raise error(
            f"rows of {bits} bits must be uint8 of shape (vectors, {row_bytes(bits)}),"
            f" got {rows.dtype} of shape {rows.shape}."
        )
    if bits % 8:
        padding = rows[:, -1] & (0xFF ^ padding_mask(bits))
        if bool(padding.any()):
            bad = int(padding.nonzero()[0][0])
            raise error(f"row {bad + 1} has padding bits set; rows of {bits} bits end in zeros.")
    return rows


def check_cohorts(cohorts: Cohorts | None, count: int) -> None:
    if cohorts is not None and (cohorts.shape != (count,) or cohorts.dtype != "uint16"):
        raise InputError(f"{count} vectors need {count} cohorts, as uint16.")


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Vectors after randomizing: what may leave the device.

    `simulated` marks vectors whose noise came from a seeded generator. They give no protection, and
    whatever is computed from them carries the mark on. `window` is the window that all of them were
    reported in, where that is known.
    """

    rows: Rows
    bits: int
    simulated: bool = False
    cohorts: Cohorts | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.rows, self.bits)
        check_cohorts(self.cohorts, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        mark = ", simulated: not for release" if self.simulated else ""
        return f"Synthetic({len(self)} x {self.bits} bits{mark})"
