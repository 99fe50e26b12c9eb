"""Norms of vectors and their squares, correct also if squares overflow or underflow."""

from __future__ import annotations

import math

from scipy.linalg.blas import ddot, dnrm2

from accelegrad.errors import Vector


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
