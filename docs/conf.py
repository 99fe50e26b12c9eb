"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "accelegrad"
author = "the accelegrad developers"
copyright = "2026, the accelegrad developers"
version = release = installed_version("accelegrad")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
napoleon_custom_sections = [  # the groups of parameters of `minimize`
    (group, "params_style") for group in ("Problem", "Method", "Stopping", "Output", "Observation")
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
exclude_patterns = ["_build", "tables"]
html_theme = "furo"
html_title = "accelegrad"
