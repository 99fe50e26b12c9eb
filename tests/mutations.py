"""Plant single-line faults in the library and see whether the tests find them.

Run: python tests/mutations.py --count 60 --seed 1 --processes 2 --seconds 60 [--room proofs]

Faults are drawn at random, spread evenly over the rooms: a sign, a factor, an off-by-one, a
reversed comparison, a negated condition or two swapped arguments. Each is planted in a copy of the
source tree, and the tests of its room run on it until one fails, those nearest to its file first.
A test that does not end with the fault counts as failed only if it passes without it. With --seconds slow tests are left out, and a fault is undecided if its
tests take longer. The table at the end has the faults that no test found, to be judged: a test is
missing, the line can go, or the fault changes nothing.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
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
LONGEST = 900.0  # seconds for the nearest tests, and for the others; chosen
SURVIVES, UNDECIDED = "SURVIVES", "UNDECIDED"

SWAPPED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.Gt,
    ast.LtE: ast.Gt,
    ast.Gt: ast.Lt,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Fault(NamedTuple):
    """A line to be replaced."""

    path: Path
    line: int
    before: str
    after: str

    @property
    def room(self) -> str:
        """The folder of its file, "top" for those above all folders."""
        parts = self.path.relative_to(SOURCE).parts
        return parts[0] if len(parts) > 1 else "top"

    @property
    def cells(self) -> tuple[str, str, str]:
        """Its place and both lines, for a row of the table."""
        place = f"{self.path.relative_to(SOURCE)}:{self.line}"
        return place, f"`{self.before.strip()}`", f"`{self.after.strip()}`"


def faults(path: Path) -> Iterator[Fault]:
    """Return all faults that can be planted in the functions of a file."""
    text = path.read_text()
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                for (first, last), new in replacements(node):
                    line = lines[node.lineno - 1]
                    if line.isascii() and line[first:last] != new:
                        changed = line[:first] + new + line[last:]
                        yield Fault(path, node.lineno, line, changed)


def replacements(node: ast.AST) -> Iterator[tuple[tuple[int, int], str]]:
    """Return what to put in the place of which columns of a node's line."""
    if getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
        return
    span, changed = (node.col_offset, node.end_col_offset), copy.copy(node)
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPPED:
        if len(getattr(node, "values", (1, 2))) == 2:
            changed.op = SWAPPED[type(node.op)]()
            yield span, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        changed.ops = [SWAPPED[type(node.ops[0])]()]
        yield span, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield span, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield span, repr(node.value + 1 if type(node.value) is int else 2 * node.value + 1)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") not in ("max", "min"):
        first, second, *rest = [*node.args, None, None]
        starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        if second is not None and not starred and ast.dump(first) != ast.dump(second):
            changed.args = [second, first, *rest[:-2]]
            yield span, ast.unparse(changed)


def drawn(count: int, seed: int, only: str | None) -> list[Fault]:
    rng = random.Random(seed)
    rooms: dict[str, list[Fault]] = {room: [] for room in TESTS if only in (None, room)}
    for path in sorted(SOURCE.rglob("*.py")):
        for fault in faults(path):
            assert fault.room in TESTS, f"no tests are named for {fault.room}"
            rooms.get(fault.room, []).append(fault)
    for found in rooms.values():
        rng.shuffle(found)
    names = sorted(rooms)
    return [rooms[names[k % len(names)]][k // len(names)] for k in range(count)]


def stages(fault: Fault) -> tuple[list[str], list[str]]:
    """Return the files of tests that look at a fault's room: the nearest to its file, and others."""
    module = ".".join(fault.path.relative_to(SOURCE.parent).with_suffix("").parts)
    folders = (ROOT / "tests" / folder for folder in TESTS[fault.room])
    files = [file for folder in folders for file in sorted(folder.glob("test_*.py"))]

    def nearness(file: Path) -> int:
        return 2 * (fault.path.stem in file.stem) + (module in file.read_text())

    nearest = sorted(filter(nearness, files), key=nearness, reverse=True)
    return list(map(str, nearest)), [str(file) for file in files if file not in nearest]


class Ran(NamedTuple):
    """How a run of tests went."""

    failed: str = ""  # the first test that failed
    endless: str = ""  # the one that ran when the time was up; "?" if it is not known


def ran(tests: list[str], tree: Path, seconds: float | None) -> Ran:
    """Run tests with a source tree until one fails; half of the time is for a single test at most."""
    limit = seconds or LONGEST
    command = [sys.executable, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider"]
    command += ["-o", f"faulthandler_timeout={limit / 2}"]
    command += ["-o", "faulthandler_exit_on_timeout=true", *(["-m", "not slow"] if seconds else [])]
    paths = os.pathsep.join(map(str, (tree / "src", ROOT / "lab" / "src")))
    process = subprocess.Popen(
        [*command, *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that the processes that tests start end with it
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:  # many tests, or one that does not end as it is collected
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Ran(endless="?")
    if ended := re.search(r"^(tests/.*?::.*?) ?Timeout \(", output, re.MULTILINE):
        return Ran(endless=ended[1])
    if process.returncode in (0, 5):
        return Ran()
    failed = re.search(r"^(FAILED|ERROR) .*", output, re.MULTILINE)
    return Ran(failed=failed[0][:120] if failed else "the run itself")


def verdict(fault: Fault, tree: Path, seconds: float | None) -> str:
    """Plant a fault in a source tree; return what finds it, or that it survives."""
    planted = tree / "src" / "accelegrad" / fault.path.relative_to(SOURCE)
    lines = fault.path.read_text().splitlines()
    lines[fault.line - 1] = fault.after
    said = SURVIVES
    for tests in stages(fault):
        if not tests:
            continue
        planted.write_text("\n".join(lines) + "\n")
        try:
            found = ran(tests, tree, seconds)
        finally:  # with its compiled kernels
            shutil.copytree(fault.path.parent, planted.parent, dirs_exist_ok=True)
        if found.failed:
            return found.failed
        if found.endless:
            said = UNDECIDED
            alone = [found.endless]
            if found.endless != "?" and ran(alone, tree, seconds) == Ran():
                return f"time-out of {found.endless}"
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", choices=sorted(TESTS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="for the nearest tests, and for the others")
    given = parser.parse_args()
    chosen = drawn(given.count, given.seed, given.room)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        for place in range(given.processes):
            shutil.copytree(ROOT / "src", Path(folder, str(place), "src"))  # with compiled kernels
            trees.put(Path(folder, str(place)))

        def judged(fault: Fault) -> str:
            start, tree = time.monotonic(), trees.get()
            try:
                return f"{verdict(fault, tree, given.seconds)} ({time.monotonic() - start:.0f} s)"
            finally:
                trees.put(tree)

        running = {pool.submit(judged, fault): fault for fault in chosen}
        unfound = []
        for done, future in enumerate(as_completed(running), 1):
            cells = running[future].cells
            print(f"{done}/{len(chosen)} {cells[0]} {cells[2]} -> {future.result()}", flush=True)
            if future.result().startswith((SURVIVES, UNDECIDED)):
                unfound.append(f"| {' | '.join((*cells, future.result()))} |")
    print(f"\n{len(chosen) - len(unfound)} of {len(chosen)} faults found; not found:\n")
    print("| line | before | after | |", "|---|---|---|---|", *sorted(unfound), sep="\n")


if __name__ == "__main__":
    main()
