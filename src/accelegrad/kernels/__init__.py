"""Compiled twins of the hot paths, on plain arrays: one pass over the data for value and gradient.

They are used where they pay, and give the same numbers as the plain code up to rounding:

- with at least `LEAST_BYTES` of data. Loading Numba takes half a second and compiling a kernel,
  once on a machine, one to two; where plain code goes row by row in Python, fewer will do;
- with dense rows of moderate length: see `WIDEST_DENSE`;
- on `threads()` threads. Each has a fixed share of the rows and its own sums, which are added
  in a fixed order: results depend on the number of threads, and on nothing else.

The environment variable ``ACCELEGRAD_KERNELS`` ("auto", "always" or "never") and `use` change
when they are used; `use`, ``OMP_NUM_THREADS``, ``NUMBA_NUM_THREADS`` and what limits BLAS, such as
``threadpool_limits``, change the number of threads.
"""

# Nothing here loads Numba: `accelegrad` imports this, and needs kernels for large data only.

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from accelegrad import threads as blas_threads
from accelegrad.errors import nearest, whole_number

#: With fewer bytes of X, hundreds of evaluations would not make up for loading Numba and compiling,
#: and the processor's cache holds X, so that a second pass over it is cheap (measured, as those
#: below: fits of 10 to 20 MB take 0.8 to 1.1 times as long as by kernels, those of wide dense rows
#: up to 1.7 times).
LEAST_BYTES = 20_000_000
#: Stored entries from which on kernels pay where plain code goes row by row in Python, or through
#: SciPy's sparse products.
FEW_ENTRIES = 1 << 14
#: The cache does not hold four longer rows, and there the products of BLAS are as fast.
WIDEST_DENSE = 1 << 14
#: A block of fewer entries takes about as long as waking a thread.
LEAST_WORK = 1 << 16
#: Numbers that BLAS multiplies in a part, at least: a third of a millisecond, ten times what it
#: takes to wake a thread (measured).
LEAST_PRODUCTS = 1 << 23
#: A block has at least this many entries for each entry of the gradient. So the gradients of all
#: blocks take less memory than X, and less time to clear and add than X takes to be read.
ENTRIES_PER_SUM = 2
MOST_ENTRIES = 2**31 - 1  # of CSR rows, and columns: kernels number them by 32 bits

_MODES = ("auto", "always", "never")


@dataclass(frozen=True)
class _Settings:
    mode: str
    threads: int | None = None


def _checked_mode(name: str, mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(
            f"{name} must be one of the words below, not {mode!r}; {nearest(str(mode), _MODES)}"
        )
    return mode


_settings = _Settings(
    _checked_mode("ACCELEGRAD_KERNELS", os.environ.get("ACCELEGRAD_KERNELS") or "auto")
)


@contextmanager
def use(mode: str | None = None, *, threads: int | None = None) -> Iterator[None]:
    """Change within a ``with`` block when kernels are used, and how many threads they take.

    Parameters
    ----------
    mode : str, optional
        "auto": where they pay; "always": wherever there is one for the data; "never".
    threads : int, optional
        At least 1.

    Notes
    -----
    It holds for all threads of the process.
    """
    global _settings
    before = _settings
    if mode is not None:
        _settings = replace(_settings, mode=_checked_mode("mode", mode))
    if threads is not None:
        _settings = replace(_settings, threads=whole_number("threads", threads, least=1))
    try:
        yield
    finally:
        _settings = before


def mode() -> str:
    """Return when kernels are used: "auto", "always" or "never"."""
    return _settings.mode


class Readable(NamedTuple):
    """What decides whether kernels pay for a matrix: its stored entries, columns and bytes."""

    entries: int
    columns: int
    sparse: bool
    bytes: int = 0  # unknown, for rows that are not in memory


def readable(X: Any) -> Readable | None:
    """Return what there is to read in a dense or CSR matrix, None if there is no kernel for it.

    There is one for dense data in C order and for CSR data with fewer than 2^31 entries.
    """
    if isinstance(X, np.ndarray):
        return Readable(X.size, X.shape[1], False, X.nbytes) if _is_plain(X) else None
    if not hasattr(X, "indptr"):  # rows that are read chunk by chunk
        return None
    parts = (X.data, X.indices, X.indptr)
    if max(X.indptr[-1], X.shape[1]) > MOST_ENTRIES or not all(_is_plain(part) for part in parts):
        return None
    bytes_of_all = sum(int(part.nbytes) for part in parts)
    return Readable(int(X.indptr[-1]), X.shape[1], True, bytes_of_all)


def _is_plain(array: np.ndarray[Any, Any]) -> bool:
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def wanted(matrix: Readable | None, pays: Callable[[Readable], bool] | None = None) -> bool:
    """Tell whether kernels are to be used for a matrix.

    `pays` tells whether they are faster there; without it, whether one pass over the rows is.
    """
    if matrix is None or _settings.mode == "never":
        return False
    return _settings.mode == "always" or (_one_pass_pays if pays is None else pays)(matrix)


def worth_compiling(matrix: Readable | None) -> bool:
    """Tell whether there are so many data that compiling pays where plain code is about as fast."""
    return wanted(matrix, _is_large)


def _is_large(matrix: Readable) -> bool:
    return matrix.bytes >= LEAST_BYTES


def _one_pass_pays(matrix: Readable) -> bool:
    narrow = matrix.sparse or matrix.columns <= WIDEST_DENSE
    return _is_large(matrix) and narrow


def wanted_for_rows(matrix: Readable | None) -> bool:
    """Tell whether kernels are to be used that go row by row, for which plain code is slow."""
    return wanted(matrix, lambda known: known.entries >= FEW_ENTRIES)


def count_blocks(entries: int, columns: int) -> int:
    """Return into how many blocks, one per thread, data with this many entries are split.

    Data with few entries per column get fewer threads: with d columns and k blocks, kernels
    take k d numbers beyond the data, and k d is at most half the number of entries if k > 1.
    """
    most = min(entries // LEAST_WORK, entries // (ENTRIES_PER_SUM * columns))
    return min(threads(), most) if most > 1 else 1


def count_parts(products: int) -> int:
    """Return into how many parts, one per thread, work of so many products for BLAS is split."""
    most = products // LEAST_PRODUCTS
    return min(threads(), most) if most > 1 else 1


def threads() -> int:
    """Return the number of threads that kernels may take: no more than the user allows BLAS."""
    if _settings.threads is not None:
        return _settings.threads
    most = _default_threads()
    return most if most == 1 else min(most, blas_threads.allowed() or most)


@cache
def _default_threads() -> int:
    """Return the number of cores, or what the usual variables say where that is less."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    named = (os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"))
    limits = [int(limit) for limit in named if limit.isdecimal() and int(limit) > 0]
    return min([cores, *limits])
