"""Compiling kernels: how it is done, when it happens, whether it is about to happen.

A kernel is compiled when it is first called with arrays of new types, which takes seconds, and
kept on disk by Numba (`cache=True`): the next process loads it in some hundredths of a second. The
first compilation of a process says so in a line on stderr, but for those that `warmup` does, which
compiles ahead. A module that has kernels announces them by `announces`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numba.extending import overload

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
    return chosen


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that Python calls: it runs beside others and is kept on disk."""
    made: Any = Kernel(function)
    return made  # type: ignore[no-any-return]


class Kernel:
    """A function that is compiled for each choice of types, and kept on disk apart for each.

    Numba numbers the files of a function's machine code, one for each choice of types. Two
    processes that compile at the same time for different types could take the same number, and a
    process that is killed could leave a number whose file holds older code: then one of them would
    run the other's code. And Numba compiles again when the function's own file has changed, but not
    when one has that it calls. Here each choice of types, for each content of the folder's files,
    version of Numba and CPU, is to Numba a function with another name, whose files can only hold
    one thing.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._compiled: dict[str, Any] = {}
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Call the function that is compiled for the arguments' types."""
        types = _types_of(arguments)
        found = self._compiled.get(types)
        return (self._made(types, arguments) if found is None else found)(*arguments)

    @property
    def signatures(self) -> list[Any]:
        """The choices of types for which there is code in this process."""
        return [types for made in self._compiled.values() for types in made.signatures]

    def is_pending(self, arguments: tuple[Any, ...]) -> bool:
        """Tell whether a call would compile, as the code is neither loaded nor on disk."""
        types = _types_of(arguments)
        return types not in self._compiled and not self._files(types, self._kept(types), "nbc")

    def _made(self, types: str, arguments: tuple[Any, ...]) -> Any:
        """Return the function for some types, compiled or loaded."""
        if self.is_pending(arguments):
            _say_that_it_takes_time()
        signature = tuple(_typeof(argument) for argument in arguments)
        for _ in range(2):
            made = self._kept(types)
            try:
                made.compile(signature)
                break
            except Exception:  # unpickling a damaged file may raise anything; a disk may be full
                for file in self._files(types, made, "nb?"):
                    file.unlink(missing_ok=True)
        else:
            made = _njit(**_ENTRY)(self._function)
        self._compiled[types] = made
        return made

    def _kept(self, types: str) -> Any:
        """Return the function under its name for some types, to be kept on disk if that can be."""
        old = self._function
        named = FunctionType(old.__code__, old.__globals__, old.__name__, None, old.__closure__)
        named.__qualname__, named.__module__ = self._name(types), old.__module__
        try:
            return _njit(cache=True, no_cfunc_wrapper=True, **_ENTRY)(named)
        except RuntimeError:  # there is no folder to write to
            return _njit(**_ENTRY)(old)

    def _name(self, types: str) -> str:
        all_of_it = types + _content(str(Path(self._function.__code__.co_filename).parent))
        digest = hashlib.sha256(all_of_it.encode()).hexdigest()[:16]
        return f"{self._function.__name__}_{digest}"

    def _files(self, types: str, made: Any, ending: str) -> list[Path]:
        """Return the files on disk with the code for some types: Numba's list (nbi), and code."""
        folder, name = made.stats.cache_path, self._name(types)
        return [] if folder is None else list(Path(folder).glob(f"*.{name}-*.{ending}"))


_ENTRY: dict[str, Any] = {"fastmath": _CONTRACTED, "nogil": True}
_typeof: Callable[[Any], Any] = numba.typeof


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


def _njit(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    decorate: Callable[[Callable[P, R]], Callable[P, R]] = numba.njit(
        error_model="numpy", **options
    )
    return decorate


WAITING = (
    "accelegrad: compiling for data of this kind, which takes a second or two, once on this "
    "machine (`accelegrad warmup` compiles everything ahead)."
)
_told = False


def _say_that_it_takes_time() -> None:
    """Say, once, why there is nothing to be seen for a second or two."""
    global _told
    if not _told:
        _told = True
        sys.stderr.write(f"{WAITING}\n")
        sys.stderr.flush()


class Call(NamedTuple):
    """A kernel, arguments of one choice of types with which it does nothing, and a name."""

    name: str
    kernel: Any
    arguments: tuple[Any, ...]


def dense_layouts() -> Iterator[tuple[str, Any]]:
    """Yield the layouts of dense rows that there are kernels for, each with such a matrix."""
    for name in ("float64", "float32"):
        yield f"dense {name}", (read_only(np.ones((1, 1), name)),)


def csr_layouts() -> Iterator[tuple[str, Any]]:
    """Yield the layouts of CSR rows that there are kernels for, each with a row without entries."""
    for name in ("float64", "float32"):
        parts = np.ones(1, name), np.zeros(1, np.uint32), np.zeros(2, np.uint32)
        yield f"CSR {name}", tuple(read_only(part) for part in parts)


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
    return [call.name for call in all_calls() if call.kernel.is_pending(call.arguments)]


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
    global _told
    _told = True  # who asks for it knows
    calls = list(all_calls())
    for done, call in enumerate(calls, 1):
        compiles, started = call.kernel.is_pending(call.arguments), time.perf_counter()
        call.kernel(*call.arguments)
        if progress is not None:
            seconds = time.perf_counter() - started
            progress(Progress(call.name, compiles, seconds, done, len(calls)))
    return time.perf_counter() - begun
