"""Tests ask what the package shows: no test uses a name of it that begins with an underscore."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
#: It puts errors into formulas, wherever in the package they are.
EXEMPT = {TESTS / "proofs" / "mistakes.py"}
#: Named tuples have public methods that begin with an underscore, lest they clash with fields, and
#: Python documents os._exit.
PUBLIC = {"_replace", "_fields", "_asdict", "_make", "_field_defaults", "_exit"}
#: How names are reached by strings: the functions, and names with a dot before them.
BY_NAME = {"getattr", "setattr", "delattr", "hasattr", "attrgetter"}
IN_CODE = re.compile(r"accelegrad[\w.]*\._[a-z]|from accelegrad[\w.]* import [^\n]*\b_[a-z]", re.I)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def of_itself(node: ast.expr) -> bool:
    """Tell whether this is the object or class that a test's own method belongs to."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_uses(source: str) -> list[str]:
    """Return where a source uses private names that are not its own."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and not of_itself(node.value):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accelegrad"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for a in node.names for part in a.name.split(".")]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            # Also as an argument: compiled(getattr, model, "_name").
            known = {called, *(arg.id for arg in node.args if isinstance(arg, ast.Name))}
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if known & BY_NAME:
                names = [str(text).rpartition(".")[2] for text in texts]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = ["_" for _ in IN_CODE.finditer(node.value)]
        line = getattr(node, "lineno", 0)
        found += [f"line {line}: {name}" for name in names if is_private(name)]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "from accelegrad.rules import _x",
        "from accelegrad._rules import x",
        "import accelegrad._rules",
        "rule._x",
        "rules.AcceleGrad(1.0)._x()",
        "monkeypatch.setattr(rules, '_x', 1)",
        "monkeypatch.setattr('accelegrad.rules._X', 1)",
        "getattr(rule, '_x')",
        "compiled(getattr, model, '_x')",
        "run('from accelegrad.rules import _x')",
    ],
)
def test_uses_are_seen(source: str) -> None:
    assert private_uses(source)


def test_no_test_uses_private_names_of_the_package() -> None:
    own = ["self._x = 1", "state._replace(x=1)", "_x = 1", "x.__dict__", "'linear_case'"]
    assert not private_uses("\n".join(own))
    files = sorted(set(TESTS.rglob("*.py")) - EXEMPT - {Path(__file__)})
    assert len(files) > 50
    found = {str(file.relative_to(TESTS)): private_uses(file.read_text("utf-8")) for file in files}
    assert not {file: uses for file, uses in found.items() if uses}
