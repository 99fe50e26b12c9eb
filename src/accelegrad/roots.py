"""The root of a function of one number, where its sign changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy.optimize import brentq


def root_between(
    function: Callable[[float], Any], low: float, high: float, **options: Any
) -> float:
    """Return a root between two points with values of different signs, by Brent's method.

    SciPy wraps the function in one that refers to itself, so that it lives on until Python looks
    for such circles, with all that it knows: often the rows of a model. It is taken away after.

    Parameters
    ----------
    function : callable
        Continuous.
    low, high : float
        The ends.
    **options
        `xtol`, `rtol`, `maxiter` and `disp` of ``scipy.optimize.brentq``.
    """
    held = [function]
    try:
        return float(brentq(lambda t: held[0](t), low, high, **options))
    finally:
        held.clear()
