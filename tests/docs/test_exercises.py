"""The exercises of CONTRIBUTING.md, applied to a copy of the tree: their tests pass."""

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


def apply(diff, root):
    """Change the files of a diff, each of which begins with a line "# path".

    A hunk changes its first place; one that ends with an addition changes the end of its file.
    """
    start, *pieces = re.split(r"^# (\S+)\n", diff, flags=re.MULTILINE)
    assert start == ""
    for name, content in zip(pieces[::2], pieces[1::2], strict=True):
        path = root / name
        text = "\n" + (path.read_text("utf-8") if path.exists() else "")
        for hunk in content.split(f"{ELSEWHERE}\n"):
            lines = hunk.splitlines()
            assert all(line[:1] in ("+", "-", " ") for line in lines), f"{name}: {lines}"
            old, new = (
                "\n".join(["", *(line[1:] for line in lines if line[0] != left_out), ""])
                for left_out in "+-"
            )
            place = text.find(old) if lines[-1][0] != "+" else len(text) - len(old)
            assert place >= 0, f"{name}: there is no place with the lines {old}"
            assert text[place:].startswith(old), f"{name} does not end with {old}"
            text = text[:place] + new + text[place + len(old) :]
        path.write_text(text[1:], "utf-8")


@pytest.mark.slow
def test_the_exercises_pass_their_tests(tmp_path):
    """All three in one tree and one process, since a copy compiles its kernels anew."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests", "docs", "tools"):  # what is changed and what the tests read
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    diffs = re.findall(r"^```diff\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(diffs) == 3
    for diff in diffs:
        apply(diff, tmp_path)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *TESTS]
    ended = subprocess.run(
        [*command, "-k", " or ".join(WORDS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
    for file in TESTS:
        assert re.search(rf"^{file}::.* PASSED", ended.stdout, re.MULTILINE), file
    for word in WORDS:
        assert re.search(rf"::.*{word}.* PASSED", ended.stdout), word
