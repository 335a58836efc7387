"""What the console answers: JSON, tables and pages."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from shoal.analysis.estimates import estimates_arrow
from shoal.analysis.tally import Tally
from shoal.protocol.plan import Plan
from shoal.reports import publish
from shoal.reports.tables import csv_text
from shoal.server.console.formatting import crowd_state, progress, unreadable_note, window_times
from shoal.server.core.tokens import Token, Tokens
from shoal.server.storage.key_file import Signer
from shoal.server.storage.records import CrowdRecord, PlanRecord

__all__ = [
    "FORMS",
    "crowd_line",
    "json_answer",
    "plan_line",
    "report_page",
    "signed_answer",
    "token_line",
]

PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.file"


def json_answer(document: object, status: int = 200) -> Response:
    """Return a JSON document."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(text.encode(), status, media_type="application/json")


def signed_answer(content: bytes, signer: Signer, cache: str = "no-store") -> Response:
    """Return a JSON document as it is, with its signatures."""
    headers = {"Cache-Control": cache, **signer.headers(content)}
    return Response(content, headers=headers, media_type="application/json")


def plan_line(record: PlanRecord) -> dict[str, Any]:
    """Return what the list of plans says of one."""
    return {
        "id": record.plan.id,
        "survey": record.plan.survey.name,
        "state": record.state,
        "reports_needed": record.plan.reports_needed,
        "promise": record.plan.promise.to_json(),
        "view": record.plan.view,
        "local_epsilon": record.plan.local_epsilon,
    }


def crowd_line(plan: Plan, crowd: CrowdRecord) -> dict[str, Any]:
    """Return what the list of crowds says of one."""
    line: dict[str, Any] = {
        "number": crowd.number,
        "window": crowd.window,
        "state": crowd_state(crowd),
        "progress": progress(crowd),
    }
    if crowd.reports is not None:
        line["reports"] = crowd.reports
    if crowd.unreadable is not None:
        line["unreadable"] = crowd.unreadable
    if crowd.reason is not None:
        line["reason"] = crowd.reason
    times = window_times(plan, crowd.window)
    return line if times is None else line | {"from": times[0], "until": times[1]}


def token_line(token: Token, tokens: Tokens) -> dict[str, Any]:
    """Return what the list of tokens says of one."""
    day = tokens.last_used(token)
    return token.to_json() | {"last_used": None if day is None else day.isoformat()}


def report_page(plan: Plan, release: bytes, unreadable: int | None = None) -> str:
    """Return the page of a sealed crowd, some of whose messages could perhaps not be read."""
    remarks = [unreadable_note(plan, unreadable)] if unreadable else []
    return publish(plan, Tally.from_json(json.loads(release), plan), remarks=remarks).to_html()


def _file(content: bytes, media: str, name: str) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=disposition, media_type=media)


def _csv(document: dict[str, Any]) -> Response:
    return _file(csv_text({"estimates": document}).encode(), "text/csv", "estimates.csv")


def _parquet(document: dict[str, Any]) -> Response:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(estimates_arrow({"estimates": document}), out)
    return _file(out.getvalue(), PARQUET, "estimates.parquet")


def _arrow(document: dict[str, Any]) -> Response:
    import pyarrow.feather as feather

    out = io.BytesIO()
    feather.write_feather(estimates_arrow({"estimates": document}), out, compression="uncompressed")
    return _file(out.getvalue(), ARROW, "estimates.arrow")


FORMS: dict[str, Callable[[dict[str, Any]], Response]] = {
    "json": json_answer,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}
"""The forms of estimates, by the word that asks for them."""
