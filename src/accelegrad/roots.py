"""The root of a function of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy.optimize import brentq


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
