"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_STANDARD_OUTPUT = 1


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to that takes the place of `path` when it is complete.

    A crash at any moment, or an exception, leaves what was there before. A link stays, and so do
    the permissions. A pipe or a device, such as /dev/stdout, holds nothing that could be lost and
    must not be replaced: it is written to at once.
    """
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and (_is_standard_output(path) or not _is_replaceable(mode)):
        with _opened_at_once(path) as file:
            yield file
        return
    path = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="accelegrad-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode_of_new_files() if mode is None else stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            before = "was not written" if mode is None else "is as it was before"
            raise OSError(error.errno, f"{path} {before}: {error.strerror or error}") from error
        raise


def _is_replaceable(mode: int) -> bool:
    # A folder is not, but the error for it comes when it is tried.
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _is_standard_output(path: Path) -> bool:
    """Return whether a path is a name of standard output, such as /dev/stdout."""
    if path.absolute().parts[1:2] not in (("dev",), ("proc",)):
        return False
    return os.path.samestat(path.stat(), os.fstat(_STANDARD_OUTPUT))


def _opened_at_once(path: Path) -> BinaryIO:
    if not _is_standard_output(path):
        return path.open("wb")
    # Opened anew, a file would begin at its beginning, over what was printed before.
    sys.stdout.flush()
    return open(os.dup(_STANDARD_OUTPUT), "wb")


def _mode_of_new_files() -> int:
    # mkstemp makes files for their owner alone; these are as public as any other new file.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
