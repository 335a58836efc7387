"""Write the ids in `plans.json`, by a route that does not use Shoal.

The plan documents, the answers and the bits that these set are written by hand in that file.
The id is the SHA-256 of the text that the package `rfc8785` makes of a document. Run from the
repository: ``python tests/data/generate_plans.py``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import rfc8785


def main() -> None:
    path = Path(__file__).with_name("plans.json")
    plans = json.loads(path.read_text("utf-8"))
    for plan in plans:
        plan["id"] = hashlib.sha256(rfc8785.dumps(plan["plan"])).hexdigest()
    path.write_text(json.dumps(plans, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
