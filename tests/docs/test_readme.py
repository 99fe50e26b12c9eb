"""The README's and the docstrings' snippets run, and print what they say."""

import contextlib
import doctest
import importlib
import io
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

NUMBER = re.compile(r"(?<![\w.])\d[\d.]*(?:e[+-]\d+)?")
ROOT = Path(__file__).parents[2]


def test_the_readmes_snippets_print_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they save files
    printed, expected = io.StringIO(), ""
    namespace = {}
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    with contextlib.redirect_stdout(printed):
        for language, content in blocks:
            if language == "python":
                exec(compile(content, "README.md", "exec"), namespace)
            if content.startswith("python tools/verify.py"):
                command = [sys.executable, ROOT / "tools" / "verify.py", *content.split()[2:]]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                print(run.stdout, end="")
            if language == "text":
                expected += content
    assert NUMBER.sub("#", printed.getvalue()) == NUMBER.sub("#", expected)
    for ours, theirs in zip(*map(NUMBER.findall, (printed.getvalue(), expected)), strict=True):
        # How small a gap is in the end depends on rounding, and so on the CPU.
        assert float(ours) == pytest.approx(float(theirs), rel=1e-2, abs=1e-3)
    assert expected


def test_the_readmes_make_targets_exist():
    named, called = (
        set(re.findall(r"^make ([\w-]+)", (ROOT / file).read_text("utf-8"), flags=re.MULTILINE))
        for file in ("README.md", ".ci/run")
    )
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert named >= {"demo", "test"}
    assert {"test"} <= called <= named
    for target in named | called:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_every_dependency_has_its_reason():
    wanted = []
    for file in (ROOT / "pyproject.toml", ROOT / "lab" / "pyproject.toml"):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        wanted += sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[\[<>=]", entry)[0] for entry in wanted} - {"accelegrad", "accelegrad-lab"}
    reasons = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    listed = re.findall(r"^\| ([\w, -]+?) \|", reasons, re.MULTILINE)
    assert set(", ".join(listed).split(", ")) - {"package"} == names


def test_docstrings():
    estimators = (f"sklearn.{name}" for name in ("classifier", "regressor", "cv"))
    for name in ("front_door", "optax", "geometry.sets", *estimators):
        result = doctest.testmod(importlib.import_module(f"accelegrad.{name}"))
        assert result.attempted > 0
        assert result.failed == 0
