"""The site: snippets run, names and statuses are complete, links in the sources lead somewhere."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import accelegrad as ag
import accelegrad_lab
import release

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAME = r"`(accelegrad(?:\.[A-Za-z_]\w*)+)`"
#: Modules that users import from, with the public names that are not in an `__all__`
DOORS = tuple(f"accelegrad{door}" for door in ("", ".sklearn", ".torch", ".optax", ".dask"))
BESIDES = {
    "accelegrad.run.observers.Trace",  # of `result.trace`
    "accelegrad.sklearn.model_file.save_model",
    "accelegrad.sklearn.model_file.load_model",
    "accelegrad.proofs.certificate.FunctionCertificate",
    "accelegrad.proofs.certificate.ModelCertificate",
}
#: Pages whose snippets run elsewhere (tests/dask/test_ray.py), or need the results of an experiment
ELSEWHERE = {"experiments.md", "ray.md"}
SLOW = {"dask.md"}  # it starts processes


def pages_with_snippets():
    for page in sorted(DOCS.glob("*.md")):
        text, marks = page.read_text("utf-8"), [pytest.mark.slow] * (page.name in SLOW)
        found = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if found and page.name not in ELSEWHERE:
            yield pytest.param(found, id=page.name, marks=marks)


@pytest.mark.parametrize("snippets", list(pages_with_snippets()))
def test_the_snippets_run(snippets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for snippet in snippets:
        exec(snippet, namespace)


def test_the_reference_has_every_public_name_and_no_other():
    text = (DOCS / "api.md").read_text("utf-8")
    documented = re.findall(r"^\.\. auto(?:class|function|exception):: ([\w.]+)$", text, re.M)
    public = {f"{door}.{name}" for door in DOORS for name in importlib.import_module(door).__all__}
    assert sorted(documented) == sorted(public | BESIDES)


def test_code_that_pages_show_and_names_that_they_write_exist():
    shown = [
        (DOCS / file, name)
        for page in DOCS.glob("*.md")
        for file, name in re.findall(
            r"^```{literalinclude} (\S+)\n:pyobject: (\S+)$", page.read_text("utf-8"), re.M
        )
    ]
    assert len(shown) > 20
    for file, name in shown:
        nodes = ast.parse(file.read_text("utf-8")).body
        for part in name.split("."):
            (found,) = (node for node in nodes if getattr(node, "name", None) == part)
            nodes = getattr(found, "body", [])
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *ROOT.glob("src/**/*.py")]
    named = {name: page for page in pages for name in re.findall(NAME, page.read_text("utf-8"))}
    assert len(named) > 20
    for name, page in named.items():
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            pytest.fail(f"{page}: {name} does not exist")


def test_every_status_is_explained_and_every_page_listed():
    text = (DOCS / "status.md").read_text("utf-8")
    explained = re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)
    assert sorted(explained) == sorted(status.name for status in ag.Status)
    listed = set(re.findall(r"^([\w-]+)$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} <= listed


def test_links_in_the_sources_lead_somewhere_and_pictures_have_their_examples():
    made, followed = ("auto_examples/", "generated/"), 0  # `make docs` makes and checks those
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")):
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
            if not link.startswith(("http", *made)):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
                followed += 1
    assert followed > 50
    drawn = {path.stem for path in (ROOT / "examples" / "gallery").glob("plot_*.py")}
    assert len(drawn) >= 12
    for page in DOCS.glob("*.md"):
        used = r"auto_examples/(?:images/sphx_glr_)?(plot_\w+?)(?:_\d\d\d\.png|\.rst)"
        assert set(re.findall(used, page.read_text("utf-8"))) <= drawn, page.name


def test_wrong_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="here">A</h1><a href="a.html#here">fine</a><a href="https://example.org">fine</a>'
        '<a href="b.html">gone</a><a href="#there">gone</a><img src="https://example.org/x.png">'
    )
    script = str(DOCS / "check_links.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    nowhere = "a.html: b.html leads nowhere\na.html: #there has no such place\n"
    assert done.stderr == nowhere + "a.html loads https://example.org/x.png\n"


def test_every_extra_is_tried_before_a_release_and_versions_agree():
    for folder, tried in ((ROOT, release.TRIED), (ROOT / "lab", release.TRIED_WITH_LAB)):
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for_users = set(project["optional-dependencies"]) - {"dev", "docs", "release", "test"}
        assert set(tried) == {"", *for_users}
    project = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text("utf-8"))["project"]
    assert accelegrad_lab.__version__ == ag.__version__
    assert f"accelegrad[files]=={ag.__version__}" in project["dependencies"]
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", text, re.MULTILINE).group(1) == ag.__version__
