"""Plant single-line faults in the library and see whether the tests find them.

Run: python tests/mutations.py --count 60 --seed 1 [--room proofs]

Faults are drawn at random, spread evenly over the rooms: a sign, a factor, an off-by-one, a
reversed comparison, a negated condition or two swapped arguments. Each is planted in a copy of the
source tree, and the tests of its room run on it until one fails. A fault that survives is printed
with its line, to be judged: a test is missing, the line can go, or the fault changes nothing.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "accelegrad"
#: Which folders of tests look at a room, the nearest first
TESTS = {
    "bundle": ("bundle", "minimize", "run"),
    "cli": ("cli", "files"),
    "dask": ("dask",),
    "files": ("files", "cli", "estimators"),
    "geometry": ("geometry", "minimize"),
    "kernels": ("kernels", "solvers", "models", "estimators"),
    "models": ("models", "solvers", "estimators", "dask"),
    "proofs": ("proofs", "minimize", "solvers", "estimators"),
    "rules": ("rules", "minimize"),
    "run": ("run", "minimize", "proofs"),
    "sklearn": ("estimators", "cli"),
    "solvers": ("solvers", "estimators", "minimize"),
    "torch": ("torch",),
    "top": ("minimize", "optax", "run", "estimators"),
}
LONGEST = 900.0  # seconds for the tests of one fault: endless loops count as found; chosen

SWAPPED = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.Lt: ">",
    ast.LtE: ">",
    ast.Gt: "<",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.And: "or",
    ast.Or: "and",
}


class Fault(NamedTuple):
    """A line to be replaced."""

    path: Path
    line: int
    before: str
    after: str


def room_of(path: Path) -> str:
    """Return the folder of a file, "top" for those above all folders."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "top"


def faults(path: Path) -> Iterator[Fault]:
    """Return all faults that can be planted in the functions of a file."""
    text = path.read_text()
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                for (first, last), new in replacements(node, text):
                    line = lines[node.lineno - 1]
                    if line.isascii() and line[first:last] != new:
                        changed = line[:first] + new + line[last:]
                        yield Fault(path, node.lineno, line, changed)


def replacements(node: ast.AST, text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Return what to put in the place of which columns of a node's line."""
    if getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
        return

    def source(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    span = (node.col_offset, node.end_col_offset)
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield span, f"({source(node.left)} {SWAPPED[type(node.op)]} {source(node.right)})"
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        new = f"({source(node.left)} {SWAPPED[type(node.ops[0])]} {source(node.comparators[0])})"
        yield span, new
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        yield span, f"({source(node.values[0])} {SWAPPED[type(node.op)]} {source(node.values[1])})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield span, f"({source(node.operand)})"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield span, f"{node.value + 1!r}" if type(node.value) is int else f"{node.value * 2 + 1!r}"
    elif (
        isinstance(node, ast.Call)
        and len(node.args) >= 2
        and not isinstance(node.args[0], ast.Starred)
        and not isinstance(node.args[1], ast.Starred)
    ):
        first, second = node.args[:2]
        if source(first) != source(second) and getattr(node.func, "id", "") not in ("max", "min"):
            between = (first.col_offset, second.end_col_offset)
            yield between, f"{source(second)}, {source(first)}"


def drawn(count: int, seed: int, only: str | None) -> list[Fault]:
    """Return faults of a seed, evenly spread over the rooms."""
    rng = random.Random(seed)
    rooms: dict[str, list[Fault]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if only is None or room_of(path) == only:
            rooms.setdefault(room_of(path), []).extend(faults(path))
    for found in rooms.values():
        rng.shuffle(found)
    names = sorted(rooms)
    return [rooms[names[k % len(names)]][k // len(names)] for k in range(count)]


def is_found(fault: Fault, tree: Path) -> str | None:
    """Return the first test that fails with the fault, or None."""
    planted = tree / "src" / "accelegrad" / fault.path.relative_to(SOURCE)
    lines = fault.path.read_text().splitlines()
    lines[fault.line - 1] = fault.after
    planted.write_text("\n".join(lines) + "\n")
    try:
        for folder in TESTS[room_of(fault.path)]:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
            try:
                ran = subprocess.run(
                    [*command, f"tests/{folder}"],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(tree / "src")},
                    capture_output=True,
                    text=True,
                    timeout=LONGEST,
                )
            except subprocess.TimeoutExpired:
                return f"tests/{folder} takes too long"
            if ran.returncode not in (0, 5):
                failed = [
                    line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
                ]
                return (failed or ["the run itself"])[0][:120]
        return None
    finally:
        shutil.copy2(fault.path, planted)


def main() -> None:
    """Draw faults, plant one after the other, and say which survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", choices=sorted(TESTS))
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    given = parser.parse_args()
    chosen = drawn(given.count, given.seed, given.room)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for fault in chosen:
            where = f"{fault.path.relative_to(SOURCE)}:{fault.line}"
            said = f"{where}\n    {fault.before.strip()}\n    {fault.after.strip()}"
            if given.list:
                print(said)
                continue
            start = time.monotonic()
            found = is_found(fault, tree)
            survivors += found is None
            verdict = found or "SURVIVES"
            print(f"{said}\n    -> {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    if not given.list:
        print(f"{len(chosen) - survivors} of {len(chosen)} faults found")


if __name__ == "__main__":
    main()
