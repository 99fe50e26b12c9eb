"""Check built pages: links lead somewhere, and nothing is loaded from the network.

python docs/check_links.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads by itself, by tag and attribute
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}
#: `link` elements that only name another page
NAMES = {"canonical", "next", "prev", "search", "index", "genindex", "author", "license", "up"}


class Page(HTMLParser):
    """The links of a page, and the places in it that links lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[bool, str]] = []  # whether it is loaded, and where it leads
        self.places: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of an element."""
        given = dict(attrs)
        self.places |= {given[name] or "" for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if given.get(name):
                loaded = (tag, name) in LOADED and (given.get("rel") or "") not in NAMES
                self.links.append((loaded, str(given[name])))


def problems(folder: Path) -> list[str]:
    """Return what is wrong with the pages in a folder."""
    pages = {path: Page(path) for path in folder.rglob("*.html")}
    found = [] if pages else [f"there are no pages in {folder}"]
    for path, page in pages.items():
        for loaded, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    found.append(f"{path.relative_to(folder)} loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            places = pages[target].places if target in pages else {unquote(parts.fragment)}
            if not target.exists():
                found.append(f"{path.relative_to(folder)}: {link} leads nowhere")
            elif parts.fragment and unquote(parts.fragment) not in places:
                found.append(f"{path.relative_to(folder)}: {link} has no such place")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(wrong) if wrong else 0)
