"""Sphinx configuration. Pages need no network, neither to be built nor to be read."""

import os
import sys
import warnings
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ["MPLBACKEND"] = "agg"
# Pictures come out the same, and neighbours are not disturbed.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

project = "accelegrad"
author = "the accelegrad developers"
copyright = "2026, the accelegrad developers"
version = release = installed_version("accelegrad")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "charts",
    "offline_pages",
]
napoleon_custom_sections = [  # the groups of parameters of `minimize`
    (group, "params_style") for group in ("Problem", "Method", "Stopping", "Output", "Observation")
]
myst_enable_extensions = ["attrs_block", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
exclude_patterns = ["_build", "_ext", "tables", "auto_examples/*.py", "auto_examples/*.ipynb"]
html_theme = "furo"
html_title = "accelegrad"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

warnings.filterwarnings("error", category=UserWarning, module="__main__")
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "plot_",
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "plot_gallery": "True",
    "show_memory": False,
    "reset_modules": ("matplotlib",),
    "write_computation_times": False,
    "remove_config_comments": True,
}
