"""Sphinx configuration: Markdown pages through MyST, and nothing from another host."""

import sys
from pathlib import Path

from shoal import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "Shoal"
author = "The Shoal developers"
copyright = "The Shoal developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "notebook"]
html_math_renderer = "mathml"
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_extensions"]
html_theme = "furo"
html_title = "Shoal"
html_static_path = ["_static"]
html_css_files = ["shoal.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e8a", "color-brand-content": "#0b6e8a"},
    "dark_css_variables": {"color-brand-primary": "#6cc4dc", "color-brand-content": "#6cc4dc"},
}
autodoc_member_order = "bysource"
# Aliases for type checkers, which stand for texts when a program runs.
autodoc_type_aliases = {name: name for name in ("PromiseKind", "State", "View")}
suppress_warnings = ["myst.header"]
