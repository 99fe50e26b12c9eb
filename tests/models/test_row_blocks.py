"""Products with some rows of a matrix: in float64, whatever the rows are stored in."""

import numpy as np
import pytest
import scipy.sparse as sp

from accelegrad.models.matrix import RowBlock

#: A sum of 50 products of numbers of about 1, in float64.
ROUNDING = 50 * np.finfo(np.float64).eps


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 7, 150])
def test_products_are_in_double(form, dtype, count):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((200, 50)) * (rng.random((200, 50)) < 0.3)).astype(dtype)
    rows, w, theta = rng.integers(200, size=count), rng.standard_normal(50), rng.random(count)
    block, chosen = RowBlock(form(X), rows), X[rows].astype(np.float64)
    margins = block.margins(w)
    assert margins.dtype == np.float64
    np.testing.assert_allclose(margins, chosen @ w, rtol=0, atol=4 * ROUNDING)
    target = np.ones(50)
    block.add_combination(theta, target)
    np.testing.assert_allclose(target, 1.0 + chosen.T @ theta, rtol=0, atol=4 * count * ROUNDING)
