"""Vectors and matrices in temporary files."""

import numpy as np
import pytest

from accelegrad.models.row_file import KEPT_BYTES, RowFile


@pytest.mark.parametrize("rows", [0, 7, KEPT_BYTES // 8 + 1])
@pytest.mark.parametrize("columns", [1, 3])
def test_rows_come_back_as_they_were_written(rows: int, columns: int) -> None:
    given = np.random.default_rng(0).standard_normal((rows, columns))
    given = given[:, 0] if columns == 1 else given
    file = RowFile(columns)
    for block in (given[: rows // 2], given[:0], given[rows // 2 :]):
        file.append(block)
    assert file.shape == given.shape
    np.testing.assert_array_equal(file, given)
    for places in (slice(2, 5), slice(-3, None), slice(None, None, -2), np.arange(rows)[::3]):
        np.testing.assert_array_equal(file[places], given[places])
    file.append(given[::-1])  # reading has moved the place in the file
    np.testing.assert_array_equal(file[rows:], given[::-1])
