"""The losses in compiled code; `loss_shape` has the formula, `models.losses` the same in NumPy.

A margin of NaN gives a value of NaN; the slope may be anything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.kernels.compile import compiled
from accelegrad.kernels.loss_shape import LABELS

_LN2 = math.log(2.0)
# Their sum is log 2 to 92 bits; the first times a whole number up to 2^20 is exact.
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b39p-40")
# Added to a small number it leaves the rounded integer as last bits.
_ROUNDER = 1.5 * 2.0**52
_LARGEST_EXPONENT = 708.0
_EXPONENTIAL = tuple(1.0 / math.factorial(k) for k in range(14))
_ARTANH = tuple(1.0 / (2 * k + 1) for k in range(12))


@compiled
def _decay(size: float) -> float:
    """Return exp(-size) for size >= 0 without calls, so that loops are vectorised.

    It is 2^-k exp(r), |r| <= log(2) / 2, with exp(r) by its Taylor series. The error is within two
    units of rounding; below the range of normal numbers it is 0.
    """
    inside = size if size < _LARGEST_EXPONENT else 0.0
    rounded = inside * (1.0 / _LN2) + _ROUNDER
    k = rounded - _ROUNDER
    r = (k * _LN2_HIGH - inside) + k * _LN2_LOW
    series = _EXPONENTIAL[13]
    for term in range(12, -1, -1):
        series = series * r + _EXPONENTIAL[term]
    exponent = 1023 - np.float64(rounded).view(np.int64)
    decay = series * np.int64(exponent << 52).view(np.float64)  # 2^-k exp(r)
    return 0.0 if size >= _LARGEST_EXPONENT else (decay if size == size else size)


@compiled
def _log1p(u: float) -> float:
    """Return log(1 + u) for 0 <= u <= 1: 2 artanh(u / (2 + u)), or log 2 + log((1 + u) / 2)."""
    large = u > 0.41
    s = (u - 1.0 if large else u) / (u + 3.0 if large else u + 2.0)
    square = s * s
    series = _ARTANH[11]
    for term in range(10, 0, -1):
        series = series * square + _ARTANH[term]
    return (_LN2 if large else 0.0) + (2.0 * s + 2.0 * s * (square * series))


@compiled
def loss_and_slope(loss: Any, m: float, y: float) -> Any:
    """Return l(m, y) and l'(m, y), a subgradient: 0 at kinks. None is the logistic loss."""
    if loss is None:
        z = y * m
        return _log1p(_decay(abs(z))) - (0.0 if z > 0.0 else z), logistic_slope(m, y)
    return rounded_off(loss, m, y)


@compiled
def logistic_slope(m: float, y: float) -> Any:
    """Return the logistic loss's l'(m, y)."""
    decay = _decay(abs(y * m))
    return -y * ((decay if y * m > 0.0 else 1.0) / (1.0 + decay))


@compiled
def rounded_off(loss: Any, m: float, y: float) -> Any:
    """Return value and slope of any other loss, a `Shape` or a record with its fields."""
    sign = y if loss.kind == LABELS else 1.0
    residual = sign * (m - y)  # y m - 1 for labels, which are -1 and 1
    beyond = abs(residual) - loss.epsilon
    beyond = 0.0 if beyond < 0.0 else beyond
    s = beyond if residual > 0.0 else -beyond
    steep = (1.0 / loss.softness) * s
    slope = loss.low if steep < loss.low else (loss.high if steep > loss.high else steep)
    slope = 0.0 if s == 0.0 else slope
    # Avoids inf - inf and 0 * inf.
    rest = 0.5 * s if slope == steep else s - 0.5 * loss.softness * slope
    return (0.0 if slope == 0.0 else slope * rest), sign * slope


@compiled
def losses(loss: Any, m: Vector, y: Vector, values: Vector, slopes: Vector) -> None:
    """Fill in values and slopes at many margins, in a loop without branches."""
    for i in range(m.size):
        values[i], slopes[i] = loss_and_slope(loss, m[i], y[i])
