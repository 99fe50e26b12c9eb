"""A page to watch the rules on, in the plane: `write_playground`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

#: What the page is made of; each stands in `page.html` as <!-- NAME -->.
PARTS = {"page.css": "style", "rules.js": "script", "page.js": "script"}


def playground() -> str:
    """Return the page: one file that needs nothing else, and no network."""
    folder = resources.files(__name__) / "page"
    text = (folder / "page.html").read_text("utf-8")
    for name, tag in PARTS.items():
        content = (folder / name).read_text("utf-8")
        text = text.replace(f"<!-- {name} -->", f"<{tag}>\n{content}</{tag}>")
    return text


def write_playground(path: str | Path) -> None:
    """Write the page to a file."""
    Path(path).write_text(playground(), "utf-8")
