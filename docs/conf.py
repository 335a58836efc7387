"""Sphinx configuration: Markdown pages through MyST."""

from shoal import __version__

project = "Shoal"
author = "The Shoal developers"
copyright = "The Shoal developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Shoal"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.header"]
