"""Cholesky factors of matrices of second derivatives, which may be singular up to rounding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf

from accelegrad.errors import NonFiniteError, Vector

Matrix = npt.NDArray[np.float64]

# What is added to a diagonal of ones until the matrix has a Cholesky factor: rounding, then more.
_SHIFTS = [10.0**power for power in range(-13, -2, 2)]


def with_unit_diagonal(gram: Matrix) -> tuple[Vector, Matrix]:
    """Return units of the coordinates, and the matrix in them, with a diagonal of ones.

    Coordinates may be measured in very different units. One with a zero on the diagonal keeps it:
    its unit is 0, so that it is no coordinate of anything.
    """
    sizes = np.sqrt(gram.diagonal())
    units = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
    return units, units[:, None] * gram * units


def cholesky_factor(matrix: Matrix, *, clean: bool = False) -> Matrix:
    """Return the lower Cholesky factor of a matrix that may be singular, with ones on the diagonal.

    The matrix is changed. `clean` puts zeros above the diagonal of the factor.
    """
    for shift in _SHIFTS:
        matrix.flat[:: len(matrix) + 1] += shift
        factor: Matrix
        factor, failed = dpotrf(matrix, lower=1, clean=int(clean))
        if not failed:
            return factor
    raise NonFiniteError("the second derivatives are not finite")
