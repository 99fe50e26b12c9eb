"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_KEPT_OF_NAME = 40


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to that takes the place of `path` when it is complete.

    A crash at any moment, or an exception, leaves what was there before. A link stays, and so do
    the permissions. A pipe or a device, such as /dev/stdout, holds nothing that could be lost and
    must not be replaced: it is written to at once.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    # Cut, because a name that is as long as names can be leaves no room for an ending.
    beginning = path.name[:_KEPT_OF_NAME]
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=beginning, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode_of_new_files() if mode is None else stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _mode_of_new_files() -> int:
    # mkstemp makes files for their owner alone; these are as public as any other new file.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
