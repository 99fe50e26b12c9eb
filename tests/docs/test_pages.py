"""The snippets of the optimizers' pages run, and what they assert holds."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["optax.md", "torch.md"])
def test_the_snippets_run(name):
    text = (DOCS / name).read_text("utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 4
    namespace = {}
    for snippet in snippets:
        exec(compile(snippet, name, "exec"), namespace)
