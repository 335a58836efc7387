"""Make `plans.json`: plan documents with their ids, by a route that does not use Shoal.

The documents are written out here as plain values; the id is the SHA-256 of the text that the
package `rfc8785` makes of them. Run from the repository: ``python tests/data/generate_plans.py``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import rfc8785

LOCAL: dict[str, Any] = {
    "cohorts": None,
    "crowd_size": None,
    "fragments": "report",
    "honest_fraction": None,
    "joint": [],
    "max_reports_per_person": 1,
    "memory": None,
    "parties": None,
    "promise": {"delta": None, "epsilon": "2.2", "eta": None, "kind": "local"},
    "q": [1, 2],
    "survey": {
        "name": "browser",
        "questions": [{"kind": "flags", "name": "features", "options": ["sync", "vpn"]}],
    },
    "version": 2,
    "view": "reports",
    "window": None,
}

PROVEN: dict[str, Any] = {
    "cohorts": None,
    "crowd_size": 1000,
    "fragments": "report",
    "honest_fraction": "0.9",
    "joint": [[["Gerät", 'Käse "alt"'], ["age", "18 to below 65.5"]]],
    "max_reports_per_person": 3,
    "memory": None,
    "parties": None,
    "promise": {"delta": "1e-6", "epsilon": "0.6931", "eta": None, "kind": "proven"},
    "q": [5751, 14],
    "survey": {
        "name": "日本語 survey \\ 1",
        "questions": [
            {
                "kind": "choice",
                "missing": "option",
                "name": "Gerät",
                "options": ['Käse "alt"', "𝒳", "/slash"],
            },
            {
                "at_most": 2,
                "kind": "flags",
                "name": "languages",
                "options": ["en", "fr", "de"],
            },
            {"edges": ["18", "65.5"], "kind": "number", "name": "age"},
        ],
    },
    "version": 2,
    "view": "reports",
    "window": 86400,
}

MEMORY: dict[str, Any] = {
    "cohorts": 64,
    "crowd_size": 100000,
    "fragments": "report",
    "honest_fraction": None,
    "joint": [],
    "max_reports_per_person": 1,
    "memory": {"q1": [1, 3], "q2": [1, 2]},
    "parties": None,
    "promise": {"delta": None, "epsilon": "1", "eta": "0.01", "kind": "sufficient"},
    "q": [5, 4],
    "survey": {
        "name": "one bit",
        "questions": [{"kind": "flags", "name": "answer", "options": ["yes"]}],
    },
    "version": 2,
    "view": "reports",
    "window": 3600,
}


WORDS: dict[str, Any] = {
    "cohorts": 60,
    "crowd_size": None,
    "fragments": "report",
    "honest_fraction": None,
    "joint": [],
    "max_reports_per_person": 1,
    "memory": None,
    "parties": None,
    "promise": {"delta": None, "epsilon": "4.4", "eta": None, "kind": "local"},
    "q": [1, 2],
    "survey": {
        "name": "words",
        "questions": [
            {
                "bits": 1024,
                "cohorts": 60,
                "hashes": 1,
                "kind": "text",
                "name": "word",
                "pairs": {"alphabet": "abcdefghijklmnopqrstuvwxyzé", "length": 6},
            }
        ],
    },
    "version": 2,
    "view": "reports",
    "window": None,
}

TITLED: dict[str, Any] = LOCAL | {
    "promise": {"delta": None, "epsilon": "9.9", "eta": None, "kind": "local"},
    "survey": {
        "name": "browser",
        "questions": [
            {
                "kind": "flags",
                "name": "features",
                "options": ["sync", "vpn"],
                "text": "Which of these do you use?\n\nChoose any.",
                "title": "Features",
                "titles": {"sync": "Sync across devices \U0001f41f", "vpn": "<b>\u05d0\u05d1</b>"},
            },
            {
                "kind": "flags",
                "name": "order",
                "options": ["\ufb01", "\U0001d4b3"],
                "titles": {"\ufb01": "by code point", "\U0001d4b3": "by UTF-16 unit"},
            },
            {"kind": "yes/no", "name": "again", "titles": {"no": "Never", "yes": "Of course"}},
            {"edges": ["1", "5"], "kind": "number", "name": "use", "unit": "hours a day"},
        ],
        "text": "About your browser.",
        "title": "What people use",
    },
}

COUNTS: dict[str, Any] = {
    "cohorts": None,
    "crowd_size": 20000,
    "fragments": "bit",
    "honest_fraction": "1e-5",
    "joint": [],
    "max_reports_per_person": 1,
    "memory": None,
    "parties": {
        "analyzer": "https://analyzer.example:8443",
        "messages": 20,
        "one_operator": False,
        "relay": "https://relay.example",
    },
    "promise": {"delta": "2.5e-7", "epsilon": "1", "eta": None, "kind": "proven"},
    "q": [1, 5],
    "survey": {
        "name": "shop",
        "questions": [
            {"column": "Age (years)", "edges": ["18", "65"], "kind": "number", "name": "age"},
            {
                "column": "Brand",
                "fold": True,
                "kind": "choice",
                "missing": "option",
                "name": "brand",
                "options": ["Straße", "New  York"],
                "other": True,
            },
            {"kind": "yes/no", "name": "smokes"},
            {"kind": "yes/no", "missing": "option", "name": "drives"},
            {"fold": True, "kind": "flags", "name": "features", "options": ["sync", "vpn"]},
            {"kind": "cross", "name": "age x brand", "questions": ["age", "brand"]},
            {
                "kind": "cross",
                "name": "habits",
                "questions": ["smokes", "drives", "features=vpn", "features=sync"],
            },
        ],
    },
    "version": 2,
    "view": "counts",
    "window": None,
}

ENCODINGS: dict[str, list[dict[str, Any]]] = {
    "shop": [
        {
            "answer": {
                "age": 18,
                "brand": " STRASSE",
                "smokes": "Yes",
                "drives": None,
                "features": "VPN",
            },
            # age 1 of 3, brand 0 of 4, yes, missing 2 of 3, vpn 1 of 2; cells 1 * 4 + 0 and
            # ((0 * 3 + 2) * 2 + 0) * 2 + 1.
            "set_bits": [1, 3, 7, 10, 12, 13 + 4, 25 + 9],
        },
        {
            "answer": {
                "age": 99.5,
                "brand": "Oslo",
                "smokes": False,
                "drives": 1,
                "features": ["Sync"],
            },
            # age 2, brand (other) 2, no, yes 0, sync 0; cells 2 * 4 + 2 and
            # ((1 * 3 + 0) * 2 + 1) * 2 + 0.
            "set_bits": [2, 5, 8, 11, 13 + 10, 25 + 14],
        },
        {
            "answer": {
                "age": "17.99",
                "brand": "",
                "smokes": 0,
                "drives": "FALSE",
                "features": [],
            },
            # age 0, brand missing 3, no, no 1, no flag; cells 0 * 4 + 3 and
            # ((1 * 3 + 1) * 2 + 1) * 2 + 1.
            "set_bits": [0, 6, 9, 13 + 3, 25 + 19],
        },
    ],
}
"""Answers, and the bits that they set, worked out by hand."""


def main() -> None:
    plans = [
        {
            "id": hashlib.sha256(rfc8785.dumps(document)).hexdigest(),
            "plan": document,
            "encodings": ENCODINGS.get(document["survey"]["name"], []),
        }
        for document in (LOCAL, PROVEN, MEMORY, WORDS, TITLED, COUNTS)
    ]
    text = json.dumps(plans, indent=1, ensure_ascii=False) + "\n"
    Path(__file__).with_name("plans.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
