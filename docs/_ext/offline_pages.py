"""Pages that are made elsewhere: the playground."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelegrad.lab.playground import write_playground


def write_pages(app: Any, error: Exception | None) -> None:
    """Write them beside the others, where no page failed."""
    if error is None and app.builder.format == "html":
        write_playground(Path(app.outdir) / "playground.html")


def setup(app: Any) -> dict[str, Any]:
    """Write them when the others are there."""
    app.connect("build-finished", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
