"""Pages that are notebooks: each `code-cell` is run when the pages are built, and its output shown.

JupyterLab opens such a page with jupytext. A page has one shell and a folder of its own.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from html import escape
from typing import Any

from docutils import nodes
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from traitlets.config import Config

CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(?P<code>.*?)^```$", re.M | re.S)


@contextmanager
def shell() -> Iterator[InteractiveShell]:
    """Yield a new IPython shell in an empty folder, without the user's profile and history."""
    before = os.environ.get("IPYTHONDIR")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        os.environ["IPYTHONDIR"] = profile
        InteractiveShell.clear_instance()
        made = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        try:
            with chdir(folder):
                yield made
        finally:
            InteractiveShell.clear_instance()
            os.environ.pop("IPYTHONDIR")
            if before is not None:
                os.environ["IPYTHONDIR"] = before


def run_cell(shell: InteractiveShell, code: str) -> tuple[str, list[RichOutput]]:
    """Return what a cell prints and displays; whatever it raises is raised here."""
    with capture_output() as captured:
        shell.display_trap.hook = sys.displayhook  # the one that captures
        result = shell.run_cell(code)
    if not result.success:
        raise result.error_before_exec or result.error_in_exec
    return captured.stdout, captured.outputs


def run_page(text: str) -> list[tuple[str, list[RichOutput]]]:
    """Run every cell of a page, top to bottom."""
    with shell() as made:
        return [run_cell(made, cell["code"]) for cell in CELL.finditer(text)]


class CodeCell(SphinxDirective):
    """A cell: its code, and what the run of the page showed below it."""

    has_content = True
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the whole page at its first cell."""
        pages = self.env.temp_data
        if "cells" not in pages:
            source = (self.env.srcdir / f"{self.env.docname}.md").read_text("utf-8")
            try:
                pages["cells"] = iter(run_page(source))
            except Exception as error:
                raise ExtensionError(f"{self.env.docname}: a cell failed: {error}") from error
        printed, shown = next(pages["cells"])
        code = "\n".join(self.content)
        found: list[nodes.Node] = [nodes.literal_block(code, code, language="python")]
        if printed:
            found.append(nodes.literal_block(printed, printed, language="text"))
        for one in shown:
            html = output_html(one.data, one.metadata)
            found.append(nodes.raw("", f'<div class="cell-output">{html}</div>', format="html"))
        return found


def output_html(data: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Return the richest form of an output that a notebook would show."""
    if "text/html" in data:
        return str(data["text/html"])
    if "image/png" in data:
        picture = data["image/png"]
        text = picture if isinstance(picture, str) else b64encode(picture).decode()
        width = metadata.get("image/png", {}).get("width", 640)
        return f'<img alt="plot" width="{width}" src="data:image/png;base64,{text}">'
    return f"<pre>{escape(str(data['text/plain']))}</pre>"


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer the directive `code-cell`."""
    app.add_directive("code-cell", CodeCell)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
