"""Tests ask what the package shows: none reaches a private name of it by an import or a string.

`ruff` (SLF001) finds attributes that begin with an underscore.
"""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
#: It puts errors into formulas, wherever in the package they are.
EXEMPT = {TESTS / "proofs" / "mistakes.py", Path(__file__)}
PRIVATE = re.compile(
    r"accelegrad[\w.]*\._[a-z]"
    r"|from\s+accelegrad[\w.]*\s+import\s+(\([^)]*|[^\n]*)\b_[a-z]"
    r"|attr(getter)?\(?[^()\n]*[\"']([\w.]*\.)?_[a-z]\w*[\"']",
    re.IGNORECASE,
)


def test_uses_are_seen():
    assert PRIVATE.search("from accelegrad.rules import (\n    x,\n    _x,\n)")
    assert PRIVATE.search("monkeypatch.setattr(rules, '_x', 1)")
    assert PRIVATE.search("monkeypatch.setattr('accelegrad.rules._X', 1)")
    assert PRIVATE.search("compiled(getattr, model, '_x')")


def test_no_test_uses_private_names_of_the_package():
    files = sorted(set(TESTS.rglob("*.py")) - EXEMPT)
    assert len(files) > 50
    texts = {str(file.relative_to(TESTS)): file.read_text("utf-8") for file in files}
    found = {file: PRIVATE.search(text) for file, text in texts.items()}
    assert not {file: use for file, use in found.items() if use}
