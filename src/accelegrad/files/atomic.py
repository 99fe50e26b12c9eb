"""Files that are written completely or not at all."""

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
    """Yield a file to write to that replaces `path` when it is complete.

    A crash or an exception leaves the previous file. Links and permissions are kept. A pipe or a
    device, such as /dev/stdout, must not be replaced: it is written to directly.
    """
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and _is_standard_output(path):
        # Opened again, a redirected file would be overwritten from its beginning.
        sys.stdout.flush()
        with open(os.dup(_STANDARD_OUTPUT), "wb") as file:
            yield file
        return
    if mode is not None and not stat.S_ISREG(mode):  # opening a folder raises the error
        with path.open("wb") as file:
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


def _is_standard_output(path: Path) -> bool:
    if path.absolute().parts[1:2] not in (("dev",), ("proc",)):
        return False
    return os.path.samestat(path.stat(), os.fstat(_STANDARD_OUTPUT))


def _mode_of_new_files() -> int:
    # mkstemp makes private files; these get the permissions of any new file.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
