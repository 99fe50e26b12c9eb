"""How far rounding can take a sum of float64 numbers from its true value.

A sum of k products is off by at most k u / (1 - k u) times the sum of their sizes, whatever the
order of summation, with u = 2^-53.
"""

from __future__ import annotations

import math

import numpy as np

#: Twice the largest relative error of one operation
UNIT = float(np.finfo(np.float64).eps)
#: What is lost to underflow in one operation, at most.
SMALLEST = float(np.nextafter(0.0, 1.0))
#: Units of rounding that cover the few operations around a sum: logarithms, divisions, a norm.
FEW = 8.0
#: The factor by which proven distances are raised: much more than rounding can lower them.
ROUNDED_UP = 1.0 + 1e-9


def growth(terms: int, unit: float = UNIT) -> float:
    """Return how far a sum can be off, relative to the sum of the sizes of its terms."""
    return (FEW + 0.5 * terms) * unit


def pairwise_growth(terms: int) -> float:
    """Return the same for sums in pairs, such as NumPy's over contiguous arrays.

    NumPy adds up to 128 numbers one after the other, in eight sums, before it adds in pairs.
    """
    return (FEW + 8.0 + 0.5 * math.log2(max(terms, 1))) * UNIT
