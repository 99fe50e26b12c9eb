"""Norms, roots and Cholesky factors, and bounds on the rounding error of float64 sums.

A sum of k products is off by at most k u / (1 - k u) times the sum of their absolute values, in any
order of summation, with u = 2^-53.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import ddot, dnrm2
from scipy.linalg.lapack import dpotrf
from scipy.optimize import brentq

from accelegrad.errors import NonFiniteError, Vector

Matrix = npt.NDArray[np.float64]

#: Twice the largest relative error of one operation.
UNIT = float(np.finfo(np.float64).eps)
#: The largest error of one operation by underflow, even where a library that was compiled with fast
#: arithmetic has switched off subnormal numbers for the whole process, as snapml does.
SMALLEST = float(np.finfo(np.float64).tiny)
#: Units of rounding that cover the few operations around a sum: logarithms, divisions, a norm.
FEW = 8.0
#: Factor that raises proven distances by much more than rounding can lower them.
ROUNDED_UP = 1.0 + 1e-9
# Added to a unit diagonal until the matrix has a Cholesky factor: rounding error, then more.
_SHIFTS = [10.0**power for power in range(-13, -2, 2)]


def growth(terms: int, unit: float = UNIT) -> float:
    """Return the largest error of a sum, relative to the sum of its terms' absolute values."""
    return (FEW + 0.5 * terms) * unit


def pairwise_growth(terms: int) -> float:
    """Return the same for pairwise sums, such as NumPy's over contiguous arrays.

    NumPy adds up to 128 numbers in eight plain sums before it adds in pairs.
    """
    return (FEW + 8.0 + 0.5 * math.log2(max(terms, 1))) * UNIT


def norm(v: Vector) -> float:
    """Return the Euclidean norm, correct also if squares overflow or underflow.

    BLAS is called directly: it takes half the time of v @ v and does not warn of overflow.
    """
    square = ddot(v, v)
    return math.sqrt(square) if 1e-280 < square < 1e300 else float(dnrm2(v))


def scaled_square(factor: float, v: Vector) -> float:
    """Return factor * ||v||^2, correct also if the square alone overflows or underflows."""
    square = float(ddot(v, v))
    if 1e-280 < square < 1e300:
        return factor * square
    length = float(dnrm2(v))
    return factor * length * length


def root_between(
    function: Callable[[float], Any], low: float, high: float, **options: Any
) -> float:
    """Return a root between two points with values of different signs, by Brent's method.

    SciPy wraps the function in a reference cycle that would keep it, and often a model's data,
    alive; this removes it. `options` are those of ``scipy.optimize.brentq``.
    """
    held = [function]
    try:
        return float(brentq(lambda t: held[0](t), low, high, **options))
    finally:
        held.clear()


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
