"""Checks of arguments. Every message names the argument, what was given and what is allowed."""

from __future__ import annotations

import difflib
import functools
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

#: Smaller learning rates of tuning-free optimizers get a hint. Chosen: warm-ups begin at a tenth.
SMALL_RATE = 0.1


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return the end of a message: the nearest valid name, if any, and all valid names."""
    options = sorted(valid)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Allowed: {', '.join(repr(option) for option in options)}."


def real_array(name: str, given: Any) -> npt.NDArray[Any]:
    """Return `given` as an array of real numbers, or raise."""
    array = np.asarray(given)
    if np.iscomplexobj(array):
        raise TypeError(f"{name} must be real, but it is complex (dtype {array.dtype}).")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, not of dtype {array.dtype}.")
    return array


def finite_vector(
    name: str, given: Any, *, above: float = -np.inf, least: float = -np.inf
) -> Vector:
    """Return `given` as a new float64 vector of finite numbers > above and >= least, or raise."""
    array = real_array(name, given)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, but its shape is {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} must have at least one entry, but it is empty.")
    vector = np.array(array, dtype=np.float64)
    if not np.isfinite(vector).all():
        first = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name} must be finite, but {name}[{first}] is {vector[first]}.")
    for allowed, limit, outside in ((">", above, np.less_equal), (">=", least, np.less)):
        if limit > -np.inf and outside(vector, limit).any():
            first = int(np.argmax(outside(vector, limit)))
            raise ValueError(
                f"{name} must be {allowed} {limit:g}, but {name}[{first}] is {vector[first]}."
            )
    return vector


def is_traced(given: Any) -> bool:
    """Return whether JAX traces a number: then its value is unknown and cannot be checked."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(given, jax.core.Tracer)


def real_number(name: str, given: Any, *, above: float = -np.inf, least: float = -np.inf) -> float:
    """Return `given` as a finite float > above and >= least, or raise; JAX tracers pass."""
    if type(given) is float and least <= given < np.inf and given > above:
        return given
    if is_traced(given) and np.ndim(given) == 0:
        return given  # type: ignore[no-any-return]
    allowed = "a finite number"
    if above > -np.inf:
        allowed += f" > {above:g}"
    if least > -np.inf:
        allowed += f" >= {least:g}"
    no_number = isinstance(given, (bool, str, bytes)) or given is None or np.iscomplexobj(given)
    if no_number or np.ndim(given) != 0:
        raise TypeError(f"{name} must be {allowed}, not {given!r}.")
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {allowed}, not {given!r}.") from None
    if not (np.isfinite(number) and number > above and number >= least):
        raise ValueError(f"{name} must be {allowed}, but it is {given!r}.")
    return number


def whole_number(name: str, given: Any, *, least: int) -> int:
    """Return `given` as an int >= least, or raise."""
    if isinstance(given, (float, np.floating)) and float(given).is_integer():
        given = int(given)  # so that 1e3 is accepted
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number >= {least}, not {given!r}.")
    if given < least:
        raise ValueError(f"{name} must be a whole number >= {least}, but it is {given!r}.")
    return int(given)


def hint_at_rate(name: str, rate: float) -> None:
    """Warn, once per process, if a learning rate is far below 1."""
    if 0 < rate < SMALL_RATE:
        rate_hint(name)


@functools.cache
def rate_hint(name: str) -> None:
    """Warn that the learning rate is best left at 1."""
    warnings.warn(
        f"{name} is far below 1. Here it multiplies steps whose size is learnt from the gradients, "
        "and 1, the default, needs no tuning; the smaller it is, the longer that learning takes. "
        "(This is said once.)",
        UserWarning,
        stacklevel=5,  # outside this module, the optimizers' base class and the optimizer
    )


class NonFiniteError(ArithmeticError):
    """A value or gradient was not finite; the run ends with the best point so far."""


class DivergedError(ArithmeticError):
    """Points are so far from the start that squares overflow; the run ends with the best one."""


class LineSearchError(ArithmeticError):
    """A line search used up its trials; the run ends with the best point so far."""


class NotConvexError(ArithmeticError):
    """A tangent lies above a value: the function is not convex, or its gradient is wrong.

    The tangent touches the function at `touching`, and exceeds it at `below` by `by`.
    """

    def __init__(self, touching: Vector, below: Vector, *, by: float) -> None:
        self.touching, self.below, self.by = touching, below, by
        super().__init__(
            f"the value at {shown(below)} is {by:.3g} below the tangent at {shown(touching)}"
        )


def shown(point: Any, digits: int = 6) -> str:
    """Return a short text for a point."""
    array = np.asarray(point)
    return np.array2string(array, precision=digits, threshold=6, edgeitems=2, separator=", ")
