"""Cholesky factors of Hessians, which may be singular up to rounding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf

from accelegrad.errors import NonFiniteError, Vector

Matrix = npt.NDArray[np.float64]

# Added to a unit diagonal until the matrix has a Cholesky factor: rounding error, then more.
_SHIFTS = [10.0**power for power in range(-13, -2, 2)]


def with_unit_diagonal(gram: Matrix) -> tuple[Vector, Matrix]:
    """Return the units of the coordinates, and the matrix in them, with a unit diagonal.

    A coordinate with a zero on the diagonal gets the unit 0, which removes it.
    """
    sizes = np.sqrt(gram.diagonal())
    units = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
    return units, units[:, None] * gram * units


def cholesky_factor(matrix: Matrix, *, clean: bool = False) -> Matrix:
    """Return the lower Cholesky factor of a unit-diagonal matrix that may be singular.

    The matrix is overwritten. `clean` sets the entries above the factor's diagonal to zero.
    """
    for shift in _SHIFTS:
        matrix.flat[:: len(matrix) + 1] += shift
        factor: Matrix
        factor, failed = dpotrf(matrix, lower=1, clean=int(clean))
        if not failed:
            return factor
    raise NonFiniteError("the second derivatives are not finite")
