"""Pages that are made elsewhere: the playground, and the report of the paper's experiments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from accelegrad_lab.playground import write_playground

REPORT = Path(__file__).parents[2] / "report"  # where `make demo` writes
NONE_YET = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>The report</title>
<body style="font: 1rem/1.6 sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>No report yet</h1>
<p>These pages were built before the experiments were run. <code>make demo</code> runs them, in
about two minutes; <code>make docs</code> then puts the report here.</p>
<p><a href="../experiments.html">What the experiments are</a></p>
"""


def write_pages(app: Any, error: Exception | None) -> None:
    """Write them beside the others, where no page failed."""
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    write_playground(out / "playground.html")
    shutil.rmtree(out / "report", ignore_errors=True)
    (out / "report").mkdir()
    if (REPORT / "index.html").exists():
        for page in REPORT.glob("*.html"):
            shutil.copy(page, out / "report")
        shutil.copytree(REPORT / "figures", out / "report" / "figures")
    else:
        (out / "report" / "index.html").write_text(NONE_YET, "utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Write them when the others are there."""
    app.connect("build-finished", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
