"""The snippets of docs/optax.md run, and what they assert holds."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "optax.md"


def test_the_snippets_run():
    snippets = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(snippets) == 4
    namespace = {}
    for snippet in snippets:
        exec(compile(snippet, PAGE.name, "exec"), namespace)
