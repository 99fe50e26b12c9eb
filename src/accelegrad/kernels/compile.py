"""Compiling kernels: how it is done, when it happens, whether it is about to happen.

The first compilation of a process says so in a line on stderr, but for those that `warmup` does.

A kernel is compiled when it is first called with arrays of new types, which takes seconds, and
kept on disk (see `accelegrad.kernels.disk`): the next process loads it in some hundredths of a
second. `warmup` compiles ahead. A module that has kernels announces them by `announces`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core import event
from numba.extending import overload

from accelegrad.kernels import disk
from accelegrad.kernels.arrays import read_only

P = ParamSpec("P")
R = TypeVar("R")

# Only a product and a sum may become one operation.
_CONTRACTED = {"contract"}
# Sums may be reordered, so that they are vectorised; NaN and infinities keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz"}
# Inlined, since a call would take as long as some rows: an array goes over as seven numbers. Nobody
# calls parts but compiled code: to compile the ways in for others takes a fifth more time.
_PART: dict[str, Any] = {
    "fastmath": _CONTRACTED,
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels, which becomes one with its caller; products and sums may fuse.

    Python must not call it: there is no way in, which would take time to compile.
    """
    return _njit(**_PART)(function)


def summing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile likewise one whose sums may be added up in any order, as vector units want it.

    Tests for finite numbers do not work there: they are optimised away. A loop that sums up must
    not write to an array: whether it is vectorised, and so its rounding, would depend on where the
    arrays happen to be in memory.
    """
    return _njit(**_PART | {"fastmath": _REORDERED})(function)


def by_none(if_none: Callable[P, R], otherwise: Callable[P, R]) -> Callable[P, R]:
    """Return a part of kernels that is one function where the first argument is None, else another.

    A kernel is compiled with one of them, which takes less time than with both. They are plain
    Python functions with the same arguments.
    """

    @wraps(if_none)
    def chosen(*arguments: P.args, **named: P.kwargs) -> R:
        raise NotImplementedError("only kernels can call this.")

    @wraps(if_none)
    def choose(first: Any, *others: Any) -> Any:  # noqa: ARG001
        return if_none if first == numba.types.none else otherwise

    options: Any = {"error_model": "numpy", **_PART}
    overload(chosen, jit_options=options)(choose)
    disk.note_parts(chosen, (if_none, otherwise))
    return chosen


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that Python calls: it runs beside others and is kept on disk."""
    try:
        kept = _njit(fastmath=_CONTRACTED, nogil=True, cache=True, no_cfunc_wrapper=True)(function)
        if disk.guard(kept):
            return kept
    except RuntimeError:  # there is no folder to write to
        pass
    return _njit(fastmath=_CONTRACTED, nogil=True)(function)


def _njit(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    decorate: Callable[[Callable[P, R]], Callable[P, R]] = numba.njit(
        error_model="numpy", **options
    )
    return decorate


class _Waiting(event.Listener):
    """Says, once, why there is nothing to be seen for a second or two."""

    told = False

    def on_start(self, event: Any) -> None:
        """Look whether it is a kernel of ours that begins to be compiled."""
        function = event.data["dispatcher"].py_func
        if self.told or not function.__module__.startswith("accelegrad.kernels."):
            return
        self.told = True
        sys.stderr.write(f"{WAITING}\n")
        sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Say nothing."""


WAITING = (
    "accelegrad: compiling for data of this kind, which takes a second or two, once on this "
    "machine (`accelegrad warmup` compiles everything ahead)."
)
_waiting = _Waiting()
event.register("numba:compile", _waiting)  # type: ignore[no-untyped-call]


class Call(NamedTuple):
    """A kernel, arguments of one choice of types with which it does nothing, and a name."""

    name: str
    kernel: Any
    arguments: tuple[Any, ...]


def layout(data: npt.DTypeLike, index: npt.DTypeLike | None = None) -> str:
    """Return the end of a call's name: the types of dense rows or, with an index, of CSR rows."""
    name = np.dtype(data).name
    return f"dense {name}" if index is None else f"CSR {name}/{8 * np.dtype(index).itemsize} bits"


def dense_layouts() -> Iterator[tuple[str, Any]]:
    """Yield the layouts of dense rows that there are kernels for, each with such a matrix."""
    for dtype in (np.float64, np.float32):
        yield layout(dtype), (read_only(np.ones((1, 1), dtype)),)


def csr_layouts() -> Iterator[tuple[str, Any]]:
    """Yield the layouts of CSR rows that there are kernels for, each with a row without entries."""
    for dtype in (np.float64, np.float32):
        for index in (np.uint32, np.uint64):
            parts = np.ones(1, dtype), np.zeros(1, index), np.zeros(2, index)
            yield layout(dtype, index), tuple(read_only(part) for part in parts)


def would_compile(call: Call) -> bool:
    """Tell whether a call would compile its kernel, as it is neither loaded nor on disk."""
    typeof: Callable[[Any], Any] = numba.typeof
    signature = tuple(typeof(argument) for argument in call.arguments)
    if signature in call.kernel.overloads:
        return False
    return not disk.holds(call.kernel, signature)


_announced: dict[str, Callable[[], Iterator[Call]]] = {}


def announces(calls: Callable[[], Iterator[Call]]) -> Callable[[], Iterator[Call]]:
    """Announce the kernels of a module: `calls` yields one call for each choice of types."""
    _announced[calls.__module__] = calls
    return calls


def all_calls() -> Iterator[Call]:
    """Yield what all modules of `accelegrad.kernels` announce, in the order of their names."""
    package = importlib.import_module("accelegrad.kernels")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    for name in sorted(_announced):
        yield from _announced[name]()


def pending() -> list[str]:
    """Return the names of the kernels that have still to be compiled on this machine."""
    return [call.name for call in all_calls() if would_compile(call)]


class Progress(NamedTuple):
    """What `warmup` tells after each kernel."""

    name: str
    compiled: bool
    """Whether it was compiled, not only loaded from disk."""
    seconds: float
    done: int
    total: int


def warmup(progress: Callable[[Progress], object] | None = None) -> float:
    """Compile all kernels, or load them from disk, and return the seconds it took.

    A second call finds all of them loaded. Processes may do this at the same time.

    Parameters
    ----------
    progress : callable, optional
        Called after each kernel, with a `Progress`.
    """
    begun = time.perf_counter()
    _waiting.told = True  # who asks for it knows
    calls = list(all_calls())
    for done, call in enumerate(calls, 1):
        compiles, started = would_compile(call), time.perf_counter()
        call.kernel(*call.arguments)
        if progress is not None:
            seconds = time.perf_counter() - started
            progress(Progress(call.name, compiles, seconds, done, len(calls)))
    return time.perf_counter() - begun
