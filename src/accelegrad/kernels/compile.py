"""Compilation of kernels and their cache on disk.

A kernel is compiled, in seconds, at its first call with new types, and cached on disk by Numba: the
next process loads it in some hundredths of a second.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numba.core import event

P = ParamSpec("P")
R = TypeVar("R")

_njit: Any = numba.njit
_typeof: Any = numba.typeof
# Only products and sums may fuse.
_CONTRACTED = {"contract"}
# Sums may be reordered, to be vectorised; NaN and infinities keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz"}
_ENTRY: dict[str, Any] = {"error_model": "numpy", "fastmath": _CONTRACTED, "nogil": True}
# Inlined, since a call takes as long as some rows. Only compiled code calls parts: wrappers for
# others would take a fifth more compile time.
_PART: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": _CONTRACTED,
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels, inlined into its caller; Python must not call it.

    Products and sums may fuse. ``if argument is None`` is decided at compile time.
    """
    part: Callable[P, R] = _njit(**_PART)(function)
    return part


def summing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part whose sums may be added in any order, for vector units.

    Tests for finite numbers are optimised away. A loop that sums must not write to an array:
    whether it is vectorised, and so its rounding, would depend on where the arrays happen to be in
    memory.
    """
    part: Callable[P, R] = _njit(**_PART | {"fastmath": _REORDERED})(function)
    return part


class Kernel:
    """A function that Python calls: it releases the GIL, and is cached on disk for each types.

    Numba's cache numbers a function's files by types and writes the number before the file, so that
    of two processes compiling for different types one could run the other's code; and it does not
    notice changes in files that the function calls. Here each choice of types, content of the
    folder, version of Numba and CPU has its own function name.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.versions: dict[str, Any] = {}
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Call the function compiled for the arguments' types."""
        types = _types_of(arguments)
        found = self.versions.get(types)
        if found is None:
            with event.install_listener("numba:compile", Waiting()):
                found = self.versions[types] = self._made(types, arguments)
        return found(*arguments)

    def _made(self, types: str, arguments: tuple[Any, ...]) -> Any:
        """Return the function for some types, compiled or loaded from disk."""
        old = self._function
        named = FunctionType(old.__code__, old.__globals__, old.__name__, None, old.__closure__)
        all_of_it = types + _content(str(Path(old.__code__.co_filename).parent))
        digest = hashlib.sha256(all_of_it.encode()).hexdigest()[:16]
        named.__qualname__, named.__module__ = f"{old.__name__}_{digest}", old.__module__
        signature = tuple(map(_typeof, arguments))
        try:
            made = _njit(cache=True, no_cfunc_wrapper=True, **_ENTRY)(named)
            made.compile(signature)
        except Exception:  # a read-only folder, a full disk; a damaged file may raise anything
            made = _njit(**_ENTRY)(old)
            made.compile(signature)
        return made


def _types_of(argument: Any) -> str:
    """Return a key for the types of arguments, much faster than Numba's."""
    if isinstance(argument, np.ndarray):
        return str(argument.dtype.char)
    if isinstance(argument, tuple):
        return "".join(map(_types_of, argument))
    return "0" if argument is None else "."


@cache
def _content(folder: str) -> str:
    """Return a digest of all that code depends on: the files of a folder, Numba, the CPU."""
    cpu = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    digest = hashlib.sha256(repr((numba.__version__, get_host_cpu_name(), cpu)).encode())
    for file in sorted(Path(folder).glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


WAITING = (
    "accelegrad: compiling for data of this kind, which takes a second or two, once on this "
    "machine (`accelegrad warmup` compiles everything ahead).\n"
)


class Waiting(event.Listener):
    """Says once per process why a call takes a second or two."""

    said = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """Say it, the first time."""
        if not Waiting.said:
            Waiting.said = True
            sys.stderr.write(WAITING)
            sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Do nothing."""
