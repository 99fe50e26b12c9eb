"""How kernels are compiled, and kept on disk.

A kernel is compiled when it is first called with arrays of new types, which takes seconds, and
kept on disk by Numba (`cache=True`): the next process loads it in some hundredths of a second. The
first compilation of a process says so in a line on stderr.
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
# Only a product and a sum may become one operation.
_CONTRACTED = {"contract"}
# Sums may be reordered, so that they are vectorised; NaN and infinities keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz"}
_ENTRY: dict[str, Any] = {"error_model": "numpy", "fastmath": _CONTRACTED, "nogil": True}
# Inlined, since a call would take as long as some rows: an array goes over as seven numbers. Nobody
# calls parts but compiled code: to compile the ways in for others takes a fifth more time.
_PART: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": _CONTRACTED,
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels, which becomes one with its caller; Python must not call it.

    Products and sums may fuse. Where an argument is None, ``if argument is None`` is decided when
    the kernel is compiled.
    """
    part: Callable[P, R] = _njit(**_PART)(function)
    return part


def summing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile likewise one whose sums may be added up in any order, as vector units want it.

    Tests for finite numbers do not work there: they are optimised away. A loop that sums up must
    not write to an array: whether it is vectorised, and so its rounding, would depend on where the
    arrays happen to be in memory.
    """
    part: Callable[P, R] = _njit(**_PART | {"fastmath": _REORDERED})(function)
    return part


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: it runs beside others and is kept on disk."""
    return Kernel(function)


class Kernel:
    """A function that is compiled for each choice of types, and kept on disk apart for each.

    Numba's cache numbers the files of a function's machine code, one for each choice of types, and
    writes down the number before the file: of two processes that compile for different types at the
    same time, one could run the other's code. And it compiles again when the function's own file
    has changed, but not when one has that it calls. Here each choice of types, for each content of
    the folder's files, version of Numba and CPU, is to Numba a function with another name, whose
    files can only hold one thing.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._compiled: dict[str, Any] = {}
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Call the function that is compiled for the arguments' types."""
        types = _types_of(arguments)
        found = self._compiled.get(types)
        if found is None:
            with event.install_listener("numba:compile", _Waiting()):
                found = self._compiled[types] = self._made(types, arguments)
        return found(*arguments)

    def _made(self, types: str, arguments: tuple[Any, ...]) -> Any:
        """Return the function for some types, compiled or loaded."""
        old = self._function
        named = FunctionType(old.__code__, old.__globals__, old.__name__, None, old.__closure__)
        all_of_it = types + _content(str(Path(old.__code__.co_filename).parent))
        digest = hashlib.sha256(all_of_it.encode()).hexdigest()[:16]
        named.__qualname__, named.__module__ = f"{old.__name__}_{digest}", old.__module__
        signature = tuple(map(_typeof, arguments))
        try:
            made = _njit(cache=True, no_cfunc_wrapper=True, **_ENTRY)(named)
            made.compile(signature)
        except Exception:  # no folder to write to, a full disk; a damaged file may raise anything
            made = _njit(**_ENTRY)(old)
            made.compile(signature)
        return made


def _types_of(argument: Any) -> str:
    """Return a word for the types of arguments, in a fraction of the time that Numba takes."""
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


class _Waiting(event.Listener):
    """Says, once in a process, why nothing is to be seen for a second or two."""

    said = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if not _Waiting.said:
            _Waiting.said = True
            sys.stderr.write(WAITING)
            sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Do nothing."""
