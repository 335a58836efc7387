"""Make `plans.json`: four plan documents with their ids, by a route that does not use Shoal.

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
                "kind": "choices",
                "name": "languages",
                "options": ["en", "fr", "de"],
            },
            {"edges": ["18", "65.5"], "kind": "number", "missing": None, "name": "age"},
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


def main() -> None:
    plans = [
        {"id": hashlib.sha256(rfc8785.dumps(document)).hexdigest(), "plan": document}
        for document in (LOCAL, PROVEN, MEMORY, WORDS)
    ]
    text = json.dumps(plans, indent=1, ensure_ascii=False) + "\n"
    Path(__file__).with_name("plans.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
