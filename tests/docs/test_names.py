"""Names of the package in the pages and the source are names that there are."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"`(accelegrad(?:\.[A-Za-z_]\w*)+)`")
FILES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py")])


def names():
    for path in FILES:
        for name in NAME.findall(path.read_text()):
            yield name, str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", sorted({name for name, _ in names()}))
def test_a_name_that_is_written_down_exists(name):
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        places = [place for other, place in names() if other == name]
        pytest.fail(f"{name} does not exist: {places}")
