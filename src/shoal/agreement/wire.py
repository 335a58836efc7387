"""The wire form of reports, version 1. There is no field for who, where or when.

A binary batch is a header and `count` reports of one fixed length:

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
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.plan import Plan
from shoal.agreement.random_bits import SystemBits
from shoal.agreement.vectors import Cohorts, Rows, Synthetic, check_rows, row_bytes
from shoal.errors import ReportError
from shoal.support.checks import check_integer
from shoal.support.files import unique_keys

__all__ = ["MOST_REPORTS", "Batch", "batch_bytes", "pack_reports", "parse_batch"]

MAGIC = b"SHOAL\x01"
MOST_REPORTS = 1 << 20
"""The most reports one batch may hold."""

_HEADER = struct.Struct("<6s32sI")
_ID_BYTES = 16
_JSON_FORM = 'a JSON batch is {"plan": id, "reports": [base64, ...]}.'


@dataclass(frozen=True, eq=False)
class Batch:
    """Reports of one plan as they travel: ids, windows, cohorts and packed vectors, row by row."""

    plan_id: str
    ids: NDArray[np.uint8]
    windows: NDArray[np.uint32]
    cohorts: NDArray[np.uint16] | None
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def to_bytes(self) -> bytes:
        """Return the batch in the binary form."""
        header = _HEADER.pack(MAGIC, bytes.fromhex(self.plan_id), len(self))
        return header + self._records().tobytes()

    def to_json(self) -> bytes:
        """Return the batch in the JSON form."""
        reports = [base64.b64encode(record.tobytes()).decode() for record in self._records()]
        return json.dumps({"plan": self.plan_id, "reports": reports}).encode()

    def _records(self) -> NDArray[np.void]:
        dtype = _record_dtype(self.rows.shape[1], self.cohorts is not None)
        records = np.empty(len(self), dtype)
        records["id"], records["window"], records["bits"] = self.ids, self.windows, self.rows
        if self.cohorts is not None:
            records["cohort"] = self.cohorts
        return records


def pack_reports(
    plan: Plan, synthetic: Synthetic, *, window: int | None = None, cohorts: Cohorts | None = None
) -> Batch:
    """Wrap synthetic vectors as reports, each with a fresh random id.

    Unless `window` says otherwise, they are of the window that this machine's clock says is open.
    A plan without windows has window 0 only.

    >>> from shoal import Flags, FlipProbability, Original, Promise, Survey, randomize
    >>> survey = Survey("browser", (Flags("features", ("sync", "vpn")),))
    >>> plan = Plan(survey, FlipProbability.at_least(0.25), Promise("local", "2.2"))
    >>> batch = pack_reports(plan, randomize(Original(np.zeros((2, 1), np.uint8), 2), plan))
    >>> len(batch.to_bytes()), len(parse_batch(plan, batch.to_bytes()))
    (84, 2)
    """
    if not isinstance(synthetic, Synthetic):
        raise ReportError(f"only synthetic vectors are sent, got {type(synthetic).__name__}.")
    if synthetic.bits != plan.bits:
        raise ReportError(f"the plan has {plan.bits} bits, the vectors have {synthetic.bits}.")
    if synthetic.simulated:
        raise ReportError("simulated vectors are not for release; randomize without a seed.")
    if window is None:
        window = current_window(plan, time.time())
    check_integer("window", window, lowest=0, highest=2**32 - 1, error=ReportError)
    cohorts = synthetic.cohorts if cohorts is None else cohorts
    if (plan.cohorts is None) != (cohorts is None):
        raise ReportError("cohorts are given exactly when the plan has them.")
    if cohorts is not None:
        _check_cohorts(np.asarray(cohorts), plan, len(synthetic))
    if len(synthetic) > MOST_REPORTS:
        raise ReportError(f"a batch holds at most {MOST_REPORTS} reports, got {len(synthetic)}.")
    ids = np.frombuffer(SystemBits().draw(_ID_BYTES * len(synthetic)), np.uint8)
    windows = np.full(len(synthetic), window, np.uint32)
    return Batch(plan.id, ids.reshape(-1, _ID_BYTES), windows, cohorts, synthetic.rows)


def current_window(plan: Plan, now: float) -> int:
    """Return the number of the window that is open at a time, in seconds since 1970."""
    return 0 if plan.window is None else int(now // plan.window)


def batch_bytes(plan: Plan, count: int) -> int:
    """Return how many bytes a binary batch of so many reports has."""
    return _HEADER.size + count * _record(plan).itemsize


def parse_batch(plan: Plan, content: bytes) -> Batch:
    """Parse a batch in either form; anything else raises `ReportError`."""
    if content[:1] == b"{":
        plan_id, body, count = _parse_json(plan, content)
    else:
        plan_id, body, count = _parse_binary(content)
    if plan_id != plan.id:
        raise ReportError("the batch is for another plan.")
    if not 1 <= count <= MOST_REPORTS:
        raise ReportError(f"a batch holds 1 to {MOST_REPORTS} reports, got {count}.")
    dtype = _record(plan)
    if len(body) != count * dtype.itemsize:
        raise ReportError(
            f"{count} reports of this plan take {count * dtype.itemsize} bytes, got {len(body)}."
        )
    records = np.frombuffer(body, dtype)
    cohorts = records["cohort"] if plan.cohorts is not None else None
    if cohorts is not None:
        _check_cohorts(cohorts, plan, count)
    rows = check_rows(records["bits"].reshape(count, -1), plan.bits, error=ReportError)
    return Batch(plan_id, records["id"], records["window"], cohorts, rows)


def synthetics_of(batch: Batch, plan: Plan, chosen: list[int]) -> Iterator[Synthetic]:
    """Yield some of the vectors of a batch, window by window, without their ids.

    Where a plan has no window its reports carry the number 0, which says nothing.
    """
    places = np.array(chosen, int)
    windows = batch.windows[places]
    for window in np.unique(windows).tolist():
        here = places[windows == window]
        cohorts = None if batch.cohorts is None else batch.cohorts[here].astype(np.uint16)
        known = None if plan.window is None and window == 0 else window
        yield Synthetic(batch.rows[here], plan.bits, cohorts=cohorts, window=known)


def _check_cohorts(cohorts: NDArray[Any], plan: Plan, count: int) -> None:
    if cohorts.shape != (count,) or cohorts.dtype.kind not in "iu":
        raise ReportError(f"{count} reports need {count} cohorts, each a whole number.")
    assert plan.cohorts is not None
    outside = cohorts[(cohorts < 0) | (cohorts >= plan.cohorts)]
    if outside.size:
        raise ReportError(f"a cohort must be below {plan.cohorts}, got {outside[0]}.")


def _record(plan: Plan) -> np.dtype[np.void]:
    return _record_dtype(row_bytes(plan.bits), plan.cohorts is not None)


@lru_cache(64)
def _record_dtype(bytes_of_row: int, has_cohort: bool) -> np.dtype[np.void]:
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [("id", "u1", (_ID_BYTES,))]
    fields.append(("window", "<u4"))
    if has_cohort:
        fields.append(("cohort", "<u2"))
    fields.append(("bits", "u1", (bytes_of_row,)))
    return np.dtype(fields)


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
    length = _record(plan).itemsize
    wrong = ReportError(f"every report of this plan has {length} bytes.")
    if any(len(report) != 4 * -(-length // 3) for report in reports):
        raise wrong
    try:
        records = [base64.b64decode(report, validate=True) for report in reports]
    except (binascii.Error, ValueError) as error:
        raise ReportError("a report is not valid base64.") from error
    if any(len(record) != length for record in records):
        raise wrong
    return str(document["plan"]), b"".join(records), len(records)
