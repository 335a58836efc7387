"""The tables of docs/collector.md, from the code.

`python -m tests.server.page_tables` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from shoal.server.console.app import OPERATIONS, PAGES
from shoal.server.core.problems import PROBLEMS
from shoal.server.core.settings import Settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "collector.md"


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines)


def shown(default: object) -> str:
    if default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def tables() -> dict[str, str]:
    """Every table by its name on the page."""
    settings = ((f"`{name}`", shown(default), text) for name, default, text in Settings.table())
    operations = (
        (f"`{one.method} {one.path}`", one.role or "anyone", one.summary) for one in OPERATIONS
    )
    pages = (
        (f"`{one.path}`", one.role or "anyone", one.summary) for one in PAGES if one.method == "GET"
    )
    problems = (
        (one.status, f"`{one.name}`", one.title)
        for one in sorted(PROBLEMS, key=lambda one: (one.status, one.name))
    )
    return {
        "settings": table("Setting | Default | What it is", settings),
        "operations": table("Request | Role | What it does", operations),
        "pages": table("Page | Role | What it shows", pages),
        "problems": table("Status | Name | What it says", problems),
    }


def with_tables(page: str) -> str:
    """Return the page with every table as the code has it."""
    for name, made in tables().items():
        page, count = re.subn(
            rf"(<!-- table: {name} -->\n).*?(?=<!-- end of table -->)",
            lambda found, made=made: f"{found[1]}\n{made}\n\n",  # type: ignore[misc]
            page,
            flags=re.S,
        )
        assert count == 1, name
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
