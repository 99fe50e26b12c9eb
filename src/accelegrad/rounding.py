"""Bounds on the rounding error of float64 sums.

A sum of k products is off by at most k u / (1 - k u) times the sum of their absolute values, in any
order of summation, with u = 2^-53.
"""

from __future__ import annotations

import math

import numpy as np

#: Twice the largest relative error of one operation.
UNIT = float(np.finfo(np.float64).eps)
#: The largest error of one operation by underflow.
SMALLEST = float(np.nextafter(0.0, 1.0))
#: Units of rounding that cover the few operations around a sum: logarithms, divisions, a norm.
FEW = 8.0
#: Factor that raises proven distances by much more than rounding can lower them.
ROUNDED_UP = 1.0 + 1e-9


def growth(terms: int, unit: float = UNIT) -> float:
    """Return the largest error of a sum, relative to the sum of its terms' absolute values."""
    return (FEW + 0.5 * terms) * unit


def pairwise_growth(terms: int) -> float:
    """Return the same for pairwise sums, such as NumPy's over contiguous arrays.

    NumPy adds up to 128 numbers in eight plain sums before it adds in pairs.
    """
    return (FEW + 8.0 + 0.5 * math.log2(max(terms, 1))) * UNIT
