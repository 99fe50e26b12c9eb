"""The exercises of CONTRIBUTING.md, applied to a copy of the tree: their tests pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/models/test_losses.py",
    "tests/geometry/test_sets.py",
    "tests/proofs/test_fuzz.py",
    "tests/docs/test_site.py",
    "tests/rules/test_transcriptions.py",
    "tests/rules/test_any_array.py",
)
WORDS = ("smooth_hinge", "slab", "cover_everything", "public_name", "averaging")
ELSEWHERE = " ..."  # a line of a diff behind which it goes on elsewhere in the same file


def exercises() -> list[str]:
    """Return the diffs of CONTRIBUTING.md: a loss, a set and a rule."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return re.findall(r"^```diff\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def apply(diff: str, root: Path) -> None:
    """Change the files of a diff, each of which begins with a line "# path"."""
    pieces = re.split(r"^# (\S+)\n", diff, flags=re.MULTILINE)
    assert pieces[0] == ""
    for name, content in zip(pieces[1::2], pieces[2::2], strict=True):
        path = root / name
        for hunk in content.split(f"{ELSEWHERE}\n"):
            before = path.read_text("utf-8").splitlines() if path.exists() else []
            path.write_text("\n".join(changed(before, hunk.splitlines(), name)) + "\n", "utf-8")


def changed(lines: list[str], hunk: list[str], name: str) -> list[str]:
    """Return lines with one hunk applied, at its first place, or at the end if nothing follows."""
    assert all(line[:1] in ("+", "-", " ") for line in hunk), f"{name}: {hunk}"
    old = [line[1:] for line in hunk if not line.startswith("+")]
    new = [line[1:] for line in hunk if not line.startswith("-")]
    if hunk[-1].startswith("+"):
        places = [len(lines) - len(old)]
    else:
        places = list(range(len(lines) - len(old) + 1))
    for place in places:
        if lines[place : place + len(old)] == old:
            return [*lines[:place], *new, *lines[place + len(old) :]]
    raise AssertionError(f"{name}: there is no place with the lines {old}")


def copied(folder: Path) -> Path:
    """Return a copy of what the exercises change and their tests read."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
def test_the_exercises_pass_their_tests(tmp_path: Path) -> None:
    """All three in one tree and one process, since a copy compiles its kernels anew."""
    root = copied(tmp_path)
    assert len(exercises()) == 3
    for diff in exercises():
        apply(diff, root)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *TESTS]
    ended = subprocess.run(
        [*command, "-k", " or ".join(WORDS)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
    for file in TESTS:
        assert re.search(rf"^{file}::.* PASSED", ended.stdout, re.MULTILINE), file
    for word in WORDS:
        assert re.search(rf"::.*{word}.* PASSED", ended.stdout), word
