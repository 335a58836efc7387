"""The shapes of the API's answers, as JSON Schema, for the OpenAPI document.

Numbers that a computation returns as null when they are infinite or unknown may be null here too.
"""

from __future__ import annotations

from typing import Any, get_args

from shoal.server.core.tokens import ROLES
from shoal.server.storage.records import STATES, Reason

__all__ = ["ANSWERS"]

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object"}
PLAN_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _map(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def _record(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": required | optional,
        "additionalProperties": False,
    }


_PLAN_LINE = {
    "id": PLAN_ID,
    "survey": TEXT,
    "state": {"type": "string", "enum": list(STATES)},
    "reports_needed": WHOLE,
    "promise": ANYTHING,
    "view": TEXT,
    "local_epsilon": NUMBER,
}
_OBSERVER = _record(
    {
        "who": TEXT,
        "sees": TEXT,
        "epsilon": NUMBER,
        "delta": NUMBER,
        "holds": TEXT,
        "assumption": TEXT,
    }
)
_CROWD_LINE = _record(
    {
        "number": WHOLE,
        "window": WHOLE,
        "state": {"type": "string", "enum": ["open", "released", "discarded", "destroyed"]},
        "progress": {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 10},
    },
    reports=WHOLE,
    unreadable=WHOLE,
    reason={"type": "string", "enum": list(get_args(Reason))},
    **{"from": TEXT, "until": TEXT},
)
_CROWD_OF_TALLY = _record(
    {"name": _maybe(TEXT), "window": _maybe(WHOLE), "reports": WHOLE, "released": FLAG}
)
_OPTION = _record(
    {
        "count": NUMBER,
        "share": NUMBER,
        "sigma": NUMBER,
        "low": NUMBER,
        "high": NUMBER,
        "constrained": NUMBER,
    },
    incompatible=FLAG,
)
_ESTIMATES = _record(
    {
        "plan": PLAN_ID,
        "crowd_size": _maybe(WHOLE),
        "reports": WHOLE,
        "crowds": _list(_CROWD_OF_TALLY),
        "people": _maybe(TEXT),
        "q": NUMBER,
        "level": NUMBER,
        "interval": TEXT,
        "target": TEXT,
        "simulated": FLAG,
        "questions": _map(_map(_OPTION)),
        "notes": _list(TEXT),
    }
)
_SCREENING = _record(
    {
        "plan": PLAN_ID,
        "reports": WHOLE,
        "crowds": WHOLE,
        "p_value": NUMBER,
        "alarm": NUMBER,
        "suspicious": FLAG,
        "smallest_share_of_fakes": NUMBER,
        "findings": _list(TEXT),
    }
)
_MEAN = _record({"value": NUMBER, "sigma": NUMBER, "low": NUMBER, "high": NUMBER, "level": NUMBER})
_QUANTILE = _record(
    {
        "part": NUMBER,
        "label": TEXT,
        "low": _maybe(NUMBER),
        "high": _maybe(NUMBER),
        "level": NUMBER,
    }
)
_NUMBERS = _record({"level": NUMBER, "mean": _maybe(_MEAN), "quantiles": _list(_QUANTILE)})
_WORD = _record(
    {
        "value": TEXT,
        "count": NUMBER,
        "sigma": NUMBER,
        "low": NUMBER,
        "high": NUMBER,
        "found": FLAG,
        "constrained": NUMBER,
    },
    same_as=_list(TEXT),
)
_WORDS = _record(
    {
        "question": TEXT,
        "reports": WHOLE,
        "fdr": NUMBER,
        "level": NUMBER,
        "simulated": FLAG,
        "unexplained": NUMBER,
        "unexplained_sigma": NUMBER,
        "notes": _list(TEXT),
        "alike": _list(_list(TEXT)),
        "candidates": _list(_WORD),
    }
)
_SIDE = {"reports": WHOLE, "crowds": _list(_CROWD_OF_TALLY)}
_SHARE = _record({"share": NUMBER, "constrained": NUMBER, "low": NUMBER, "high": NUMBER})
_APART = _record(
    {
        "first": NUMBER,
        "second": NUMBER,
        "difference": NUMBER,
        "sigma": NUMBER,
        "low": NUMBER,
        "high": NUMBER,
        "differs": FLAG,
    }
)
_TOKEN = {
    "id": TEXT,
    "role": {"type": "string", "enum": list(ROLES)},
    "label": TEXT,
    "expires": _maybe({"type": "string", "format": "date"}),
    "plans": _maybe(_list(PLAN_ID)),
    "key": _maybe(TEXT),
}
_CLOCK = _record({"held": FLAG, "believed": TEXT, "shown": TEXT})
_ONE_PLAN = _record(_PLAN_LINE)
_VIEW = _record(
    {
        "q": _maybe(NUMBER),
        "sigma": _maybe(NUMBER),
        "half_width": _maybe(NUMBER),
        "reason": _maybe(TEXT),
    }
)
_EFFECT = _record(
    {"level": NUMBER, "power": NUMBER, "least": NUMBER, "most": NUMBER, "in_words": TEXT}
)

_CROWD = "/v1/plans/{plan_id}/crowds/{number}"

ANSWERS: dict[tuple[str, str], Schema] = {
    ("GET", "/v1/plans"): _record({"plans": _list(_ONE_PLAN)}),
    ("POST", "/v1/plans"): _ONE_PLAN,
    ("GET", "/v1/plans/{plan_id}"): _record(
        _PLAN_LINE
        | {"observers": _maybe(_list(_OBSERVER)), "origins": _list(TEXT), "plan": ANYTHING}
    ),
    ("PUT", "/v1/plans/{plan_id}/origins"): _record({"origins": _list(TEXT)}),
    **{
        ("POST", f"/v1/plans/{{plan_id}}/{word}"): _ONE_PLAN
        for word in ("publish", "pause", "close", "destroy")
    },
    ("GET", "/v1/plans/{plan_id}/progress"): _record(
        {
            "state": TEXT,
            "progress": _maybe({"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 10}),
        }
    ),
    ("GET", "/v1/plans/{plan_id}/crowds"): _record({"crowds": _list(_CROWD_LINE)}),
    ("GET", _CROWD): _record(
        {
            "plan": PLAN_ID,
            "number": WHOLE,
            "state": {"const": "released"},
            "reports": WHOLE,
            "sha256": TEXT,
            "signature": TEXT,
            "signer": TEXT,
            "screening": _SCREENING,
            "tally": ANYTHING,
        },
        unreadable=WHOLE,
    ),
    ("GET", f"{_CROWD}/estimates"): _ESTIMATES,
    ("GET", f"{_CROWD}/results"): _record(
        {
            "plan": PLAN_ID,
            "number": WHOLE,
            "screening": _SCREENING,
            "estimates": _ESTIMATES,
            "numbers": _map(_NUMBERS),
            "crosses": _map(ANYTHING),
            "texts": _map(_WORDS),
        },
        unreadable=WHOLE,
    ),
    ("POST", f"{_CROWD}/decode"): _WORDS,
    ("GET", "/v1/plans/{plan_id}/trend"): _record(
        {
            "plan": PLAN_ID,
            "level": NUMBER,
            "interval": TEXT,
            "simulated": FLAG,
            "crowds": _list(_record(_SIDE)),
            "questions": _map(_map(_list(_SHARE))),
        }
    ),
    ("GET", "/v1/plans/{plan_id}/difference"): _record(
        {
            "level": NUMBER,
            "interval": TEXT,
            "simulated": FLAG,
            "first": _record({"plan": PLAN_ID} | _SIDE),
            "second": _record({"plan": PLAN_ID} | _SIDE),
            "questions": _map(_map(_APART)),
        }
    ),
    ("POST", "/v1/prospect"): _record(
        {
            "plan": ANYTHING,
            "q": NUMBER,
            "sigma": NUMBER,
            "local_epsilon": NUMBER,
            "single_report": _maybe(TEXT),
            "smallest_group": _record(
                {"people": WHOLE, "level": NUMBER, "power": NUMBER, "status": TEXT}
            ),
            "observers": _list(_OBSERVER),
            "views": _record({"local": _VIEW, "reports": _VIEW, "counts": _VIEW}),
            "compare": _maybe(ANYTHING),
            "crosses": _map(_maybe(_EFFECT)),
        }
    ),
    ("GET", "/v1/tokens"): _record(
        {"tokens": _list(_record(_TOKEN | {"last_used": _maybe({"type": "string"})}))}
    ),
    ("POST", "/v1/tokens"): _record(_TOKEN | {"token": TEXT}),
    ("GET", "/v1/actions"): _record(
        {"actions": _list(_record({"time": TEXT, "by": TEXT, "action": TEXT, "subject": TEXT}))}
    ),
    ("GET", "/v1/backups"): _record({"backups": _list(TEXT)}),
    ("POST", "/v1/backups"): _record({"name": TEXT}),
    ("GET", "/v1/clock"): _CLOCK,
    ("POST", "/v1/clock/accept"): _CLOCK,
    ("GET", "/healthz"): _record({"status": TEXT}),
    ("GET", "/readyz"): _record({"status": TEXT}),
}
"""The JSON that each operation answers, by its method and path."""
