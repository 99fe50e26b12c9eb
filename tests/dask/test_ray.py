"""The adapter for Ray of docs/ray.md runs, and gives what rows in memory give."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "ray.md"
#: What has to hold of the page's `model`, `result` and `block`.
CHECKS = """
from numpy.testing import assert_allclose

blocks = [block(seed, 2_500) for seed in range(2)]
X, y = (np.concatenate(column) for column in zip(*blocks))
here = ag.LinearModel(X, y, "logistic", l2=1e-3, fit_intercept=True)
w = np.random.default_rng(3).standard_normal(6)
p, q = model.at(w), here.at(w)
# Sums over 5000 rows in another order.
assert_allclose(p.value, q.value, rtol=1e-12)
assert_allclose(p.gradient, q.gradient, rtol=1e-9, atol=1e-12)
found, expected = model.sampled(30, 5, p).gram, here.sampled(30, 5, q).gram
assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
found = ag.minimize(here, rtol=1e-6, rng=0)
assert result.fun - result.gap <= found.fun and found.fun - found.gap <= result.fun
try:
    RayRows(lambda bad: (np.full((3, 2), bad), np.ones(3)), [(1.0,), (np.nan,)])
except BlockError as error:
    assert "block 1" in str(error)
else:
    raise AssertionError("a block with NaN was taken")
"""


@pytest.mark.slow
def test_rows_of_ray_actors_are_those_in_memory(tmp_path):
    pytest.importorskip("ray", reason="pip install ray")
    snippets = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    end = "ray.shutdown()\n"
    script = tmp_path / "ray_rows.py"
    script.write_text("".join(snippets).replace(end, f"{CHECKS}{end}print('all held')\n"), "utf-8")
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "all held" in found.stdout
