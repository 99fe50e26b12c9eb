"""Kernels on disk: beside the module, or in the user's cache folder where that is read-only.

Where they are kept is Numba's choice (NUMBA_CACHE_DIR overrides it). Three things are done
otherwise:

- To see whether a kernel has changed Numba looks at the file that it is in. Here all files count
  whose functions it calls.
- Numba numbers the files of a kernel's machine code, one for each choice of types. Two processes
  that compile at the same time for different types may take the same number, and one of them runs
  the other's code later. Here files are named after the types, and written before they are listed:
  what is lost when two processes write the list at once is compiled once more, and no more.
- A list or code that cannot be read counts as missing: a former version of a kernel may have had
  arguments of a class that is gone, and a file may be damaged.

Numba has no public way to do any of them, so all that depends on its inner workings is in this
file. If they change, kernels are compiled again in each process.
"""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher

_STALE = 3600.0  # seconds after which a file that is not listed is no longer about to be
_NumbasFiles: Any = IndexDataCacheFile


class _Files(_NumbasFiles):  # type: ignore[misc]
    """The list of a kernel's types, and the files with the code for each."""

    def __init__(self, numbas: Any, stamp: str) -> None:
        base = numbas._index_name.removesuffix(".nbi")
        super().__init__(numbas._cache_path, base, stamp)
        self._base = base

    def save(self, key: Any, data: Any) -> None:
        name = hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()[:16]
        name = f"{self._base}.{name}.nbc"
        self._save_data(name, data)
        listed = self._load_index()
        listed[key] = name
        self._save_index(listed)
        self._sweep(listed)

    def _load_index(self) -> dict[Any, str]:
        try:
            found: dict[Any, str] = super()._load_index()
        except Exception:  # unpickling may raise anything
            return {}
        return found

    def load(self, key: Any) -> Any:
        try:
            return super().load(key)
        except Exception:  # unpickling may raise anything
            return None

    def _sweep(self, listed: dict[Any, str]) -> None:
        """Remove the code of former versions."""
        for file in Path(self._cache_path).glob(f"{self._base}.*.nbc"):
            if file.name not in listed.values() and _age(file) > _STALE:
                file.unlink(missing_ok=True)


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:  # another process was faster
        return 0.0


def guard(dispatcher: Any) -> bool:
    """Let a kernel that is kept on disk be found there only if nothing that it calls changed.

    Returns whether that can be had.
    """
    try:
        kept = dispatcher._cache
        kept._cache_file = _Files(kept._cache_file, _stamp(dispatcher))
    except (AttributeError, TypeError, OSError):
        return False
    return True


def holds(dispatcher: Any, signature: tuple[Any, ...]) -> bool:
    """Tell whether the code of a kernel for these types is on disk."""
    try:
        kept = dispatcher._cache
        key = kept._index_key(signature, dispatcher.targetctx.codegen())
        return key in kept._cache_file._load_index()
    except (AttributeError, OSError):  # it is kept nowhere, or the folder cannot be read
        return False


def _stamp(dispatcher: Any) -> str:
    """Return a digest of all files whose functions a kernel calls."""
    digest = hashlib.sha256()
    for file in sorted(_files(dispatcher.py_func, set())):
        digest.update(_content(file))
    return digest.hexdigest()


@cache
def _content(file: str) -> bytes:
    return Path(file).read_bytes()


_parts: dict[Any, tuple[Any, ...]] = {}


def note_parts(function: Any, parts: tuple[Any, ...]) -> None:
    """Take note of what a function stands for in compiled code: Python functions."""
    _parts[function] = parts


def _files(function: Any, seen: set[Any]) -> set[str]:
    """Return the file of a function and of those in its reach, by their modules' names."""
    files = {function.__code__.co_filename}
    seen.add(function)
    for known in function.__globals__.values():
        for part in _stands_for(known):
            if part not in seen:
                files |= _files(part, seen)
    return files


def _stands_for(known: Any) -> tuple[Any, ...]:
    """Return the Python functions that are compiled where this is called."""
    if isinstance(known, Dispatcher):
        return (known.py_func,)
    return _parts.get(known, ()) if isinstance(known, FunctionType) else ()
