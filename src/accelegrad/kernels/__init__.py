"""Compiled forms of the hot paths, and the threads that they and BLAS use.

They give the same numbers as the plain code up to rounding, and are used where they pay: see the
constants below. Each of `threads()` threads has a fixed share of the rows, and sums are added in a
fixed order: results depend on the number of threads and on nothing else.

``ACCELEGRAD_KERNELS`` ("auto", "always" or "never") and `use` decide when they are used; `use`,
``OMP_NUM_THREADS``, ``NUMBA_NUM_THREADS`` and limits of BLAS, such as ``threadpool_limits``, set
the number of threads.
"""

# This module must not load Numba: `accelegrad` imports it.

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import nearest, whole_number

#: With fewer bytes of X, loading Numba (0.5 s) and compiling (1-2 s, once per machine) do not pay,
#: and the cache holds X for a second pass (measured, like those below: fits of 10 to 20 MB take 0.8
#: to 1.1 times as long as with kernels, wide dense rows up to 1.7 times).
LEAST_BYTES = 20_000_000
#: Stored entries above which kernels beat plain code that goes row by row in Python or through
#: SciPy's sparse products.
FEW_ENTRIES = 1 << 14
#: A block of fewer entries takes about as long as waking a thread.
LEAST_WORK = 1 << 16
#: Least number of products in a part for BLAS: a third of a millisecond, ten times what waking a
#: thread takes (measured).
LEAST_PRODUCTS = 1 << 23
#: Least entries of a block per entry of the gradient: so the blocks' gradients take less memory
#: than X, and less time than reading X.
ENTRIES_PER_SUM = 2
MOST_ENTRIES = int(np.iinfo(np.int32).max)  # of CSR rows, and columns

_MODES = ("auto", "always", "never")


class _Settings(NamedTuple):
    mode: str
    threads: int | None = None


def _checked_mode(name: str, mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(
            f"{name} must be one of the words below, not {mode!r}; {nearest(str(mode), _MODES)}"
        )
    return mode


#: Numba's own switch: functions stay Python, which compiled code here is not written for.
_DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
_settings = _Settings(
    _checked_mode("ACCELEGRAD_KERNELS", os.environ.get("ACCELEGRAD_KERNELS") or "auto")
)


@contextmanager
def use(mode: str | None = None, *, threads: int | None = None) -> Iterator[None]:
    """Set within a ``with`` block when kernels are used and their threads, for the whole process.

    Parameters
    ----------
    mode : str, optional
        "auto": where they pay; "always": wherever there is one for the data; "never".
    threads : int, optional
        At least 1.
    """
    global _settings
    before = _settings
    if mode is not None:
        _settings = _settings._replace(mode=_checked_mode("mode", mode))
    if threads is not None:
        _settings = _settings._replace(threads=whole_number("threads", threads, least=1))
    try:
        yield
    finally:
        _settings = before


def read_only(array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return a read-only view, perhaps of another type.

    Numba has different types for writeable and read-only arrays; this avoids compiling for both.
    """
    view = np.asarray(array).view() if dtype is None else np.asarray(array).view(dtype)
    view.flags.writeable = False
    return view


class Readable(NamedTuple):
    """The size of a matrix, which decides whether kernels pay."""

    entries: int
    columns: int
    sparse: bool
    bytes: int = 0  # 0: unknown, for rows that are not in memory


def readable(X: Any) -> Readable | None:
    """Return the size of a matrix, or None if there is no kernel for it.

    Kernels need dense data in C order, or CSR data with fewer than 2^31 entries.
    """
    dense = isinstance(X, np.ndarray)
    if not (dense or hasattr(X, "indptr")):  # rows that are read chunk by chunk
        return None
    parts = (X,) if dense else (X.data, X.indices, X.indptr)
    entries, n_bytes = int(X.size if dense else X.indptr[-1]), 0
    for part in parts:
        if not (part.flags.c_contiguous and part.flags.aligned and part.dtype.isnative):
            return None
        n_bytes += int(part.nbytes)
    if not dense and max(entries, X.shape[1]) > MOST_ENTRIES:
        return None
    return Readable(entries, X.shape[1], not dense, n_bytes)


def wanted(matrix: Readable | None, pays: Callable[[Readable], bool] | None = None) -> bool:
    """Tell whether to use kernels for a matrix: by default those that pass over it once.

    `pays` tells where they are faster.
    """
    if matrix is None or _settings.mode == "never" or _DISABLED:
        return False
    if _settings.mode == "always":
        return True
    return matrix.bytes >= LEAST_BYTES if pays is None else pays(matrix)


def wanted_for_rows(matrix: Readable | None) -> bool:
    """Tell whether to use kernels that go row by row, for which plain code is slow."""
    return wanted(matrix, lambda known: known.entries >= FEW_ENTRIES)


def count_blocks(entries: int, columns: int) -> int:
    """Return the number of blocks, one per thread, for data of this size.

    k > 1 blocks take k columns numbers beyond the data, at most half the number of entries.
    """
    most = min(entries // LEAST_WORK, entries // (ENTRIES_PER_SUM * columns))
    return min(threads(), most) if most > 1 else 1


def count_parts(products: int) -> int:
    """Return the number of parts, one per thread, for this many products of BLAS."""
    most = products // LEAST_PRODUCTS
    return min(threads(), most) if most > 1 else 1


def threads() -> int:
    """Return the number of threads for kernels, at most what the user allows BLAS."""
    if _settings.threads is not None:
        return _settings.threads
    most = _default_threads()
    return most if most == 1 else min(most, allowed() or most)


@cache
def _default_threads() -> int:
    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    named = (os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"))
    limits = [int(limit) for limit in named if limit.isdecimal() and int(limit) > 0]
    return min([cores, *limits])


# -- threads of BLAS -------------------------------------------------------------------------------
#
# A run makes thousands of short BLAS calls, which OpenBLAS splits over threads that spin between
# calls: with 100,000 variables a run took 8.6 s on two idle cores, with one thread 1.4 s. So BLAS
# is limited to one thread while the package computes, and large work is split over threads that
# sleep when idle (`accelegrad.kernels.blocks`). Switching takes 2 microseconds per library, and is
# skipped if no call is large enough to be split.
#
# The number of BLAS threads belongs to the process, so runs in several Python threads are counted:
# while any of them is inside a user's function the user's number holds, otherwise the limit, and
# after the last run the user's number again. Other BLAS calls of the process are limited meanwhile.

#: OpenBLAS splits matrix-vector products from this number of entries on, other work later.
FEWEST_SPLIT = 9216

_OWN, _USERS = "own", "users"


class _Limit:
    """The limit of the process, and the threads that need it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._here = threading.local()  # what this Python thread does: own or user's work
        self._counts = {_OWN: 0, _USERS: 0}  # Python threads that do each of them
        #: libraries that are limited now, with their previous number of threads
        self.limited: list[tuple[Any, int]] = []
        self._is_limited = False

    @cached_property
    def libraries(self) -> list[Any]:
        """The controllers of NumPy's and SciPy's BLAS, found once: it takes milliseconds."""
        from threadpoolctl import ThreadpoolController

        return list(ThreadpoolController().select(user_api="blas").lib_controllers)

    def change(self, work: str | None) -> str | None:
        """Set what this Python thread does from now on, and return what it did before."""
        before: str | None = getattr(self._here, "work", None)
        if work == before or (work == _USERS and before is None):  # outside a run
            return before
        with self.lock:
            self._here.work = work
            if before is not None:
                self._counts[before] -= 1
            if work is not None:
                self._counts[work] += 1
            limited = self._counts[_OWN] > 0 and self._counts[_USERS] == 0
            if limited and not self._is_limited:
                for library in self.libraries:
                    number = library.get_num_threads()
                    if number is not None and number > 1:
                        self.limited.append((library, number))
                        library.set_num_threads(1)
            elif self._is_limited and not limited:
                for library, number in self.limited:
                    if library.get_num_threads() == 1:  # otherwise it was changed elsewhere
                        library.set_num_threads(number)
                self.limited = []
            self._is_limited = limited
        return before


_limit = _Limit()


@contextmanager
def _doing(work: str) -> Iterator[None]:
    """Return a context for the package's own or the user's work."""
    before = _limit.change(work)
    try:
        yield
    finally:
        _limit.change(before)


def single_for(entries: int) -> AbstractContextManager[None]:
    """Return a context for our work in which BLAS uses one thread if it splits so many entries."""
    return _doing(_OWN) if entries >= FEWEST_SPLIT else nullcontext()


def as_given() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses as many threads as before the run."""
    return _doing(_USERS)


def for_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a user's function so that it is called with as many BLAS threads as before the run."""
    return _doing(_USERS)(function)


def allowed() -> int | None:
    """Return how many threads the user's settings allow BLAS; None if unknown."""
    with _limit.lock:
        given = {id(library): number for library, number in _limit.limited}
        numbers = [
            given.get(id(library)) or library.get_num_threads() for library in _limit.libraries
        ]
    return min((number for number in numbers if number), default=None)


def _forget() -> None:
    """Reset in a forked process, which has one Python thread."""
    global _limit
    limited = _limit.limited
    _limit = _Limit()
    for library, number in limited:
        library.set_num_threads(number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
