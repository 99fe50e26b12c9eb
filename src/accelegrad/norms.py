"""Lengths of vectors and their squares, also where squares leave the range of floats."""

from __future__ import annotations

import math

from scipy.linalg.blas import ddot, dnrm2

from accelegrad.errors import Vector


def norm(v: Vector) -> float:
    """Return the Euclidean norm, correct also where squares leave the range of floats.

    BLAS is called directly: it takes half the time of v @ v and does not warn of the overflow.
    """
    square = ddot(v, v)
    return math.sqrt(square) if 1e-280 < square < 1e300 else float(dnrm2(v))


def scaled_square(factor: float, v: Vector) -> float:
    """Return factor * ||v||^2, correct also where the square alone leaves the range of floats."""
    square = float(ddot(v, v))
    if 1e-280 < square < 1e300:
        return factor * square
    length = float(dnrm2(v))
    return factor * length * length
