"""Compiling kernels: when it happens, what it costs, whether it is about to happen.

A kernel is compiled when it is first called with arrays of new types, which takes seconds, and
kept on disk beside the module (or in the user's cache folder where that cannot be written to): the
next process loads it in some hundredths of a second. To see whether a kernel has changed, Numba
looks at the file that it is in, and at no other: what a kernel calls belongs into its own file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

#: Sums may be reordered, so that they are vectorised; NaN and infinities keep their meaning.
REORDERED = frozenset({"reassoc", "contract", "nsz"})
#: Only a product and a sum may become one operation.
CONTRACTED = frozenset({"contract"})


def compiled(fastmath: frozenset[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that compiles a part of kernels, which becomes one with its caller."""
    # A call would take as long as some rows: an array goes over as seven numbers.
    options = {"error_model": "numpy", "fastmath": set(fastmath), "forceinline": True}
    return lambda function: _njit(**options)(function)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that Python calls: it runs beside others and is kept on disk."""
    options = {"error_model": "numpy", "fastmath": set(REORDERED), "nogil": True}
    try:
        return _njit(cache=True, **options)(function)
    except RuntimeError:  # there is no folder to write to
        return _njit(**options)(function)


def _njit(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    decorate: Callable[[Callable[P, R]], Callable[P, R]] = numba.njit(**options)
    return decorate


def would_compile(function: Any, arguments: tuple[Any, ...]) -> bool:
    """Tell whether a call of this kernel would compile it, as it is neither loaded nor on disk."""
    typeof: Callable[[Any], Any] = numba.typeof
    signature = tuple(typeof(argument) for argument in arguments)
    if signature in function.overloads:
        return False
    try:  # Numba has no public way to ask
        cache = function._cache
        key = cache._index_key(signature, function.targetctx.codegen())
        return key not in cache._cache_file._load_index()
    except (AttributeError, OSError):
        return True


def pending() -> bool:
    """Tell whether one of the common kernels has still to be compiled on this machine."""
    from accelegrad.kernels import gradient

    return any(gradient.is_pending(matrix) for matrix in gradient.common_matrices())


def warmup() -> float:
    """Compile the common kernels, or load them from disk, and return the seconds it took."""
    begun = time.perf_counter()
    from accelegrad.kernels import gradient

    for matrix in gradient.common_matrices():
        gradient.load(matrix)
    return time.perf_counter() - begun
