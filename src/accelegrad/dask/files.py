"""Files that the workers read, as blocks for `RowModel` and the estimators."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dask import compute, delayed
from dask.delayed import Delayed

from accelegrad.errors import whole_number
from accelegrad.files.formats import LIBSVM, format_of, open_table
from accelegrad.files.tables import Column, Reading, Targets, Wanted

#: The ending of array files.
ARRAY = ".npy"


def read_files(
    paths: Any,
    *,
    target: str | int | None = None,
    n_features: int | None = None,
    numbers: bool = False,
    split: int = 1,
    columns: Sequence[Column] | None = None,
    reading: Reading | None = None,
) -> list[Delayed]:
    """Return the rows of files as blocks, which the workers read when needed.

    All workers must see the files under the same paths. Nothing is unpickled. For other stores use
    Dask's readers, such as ``dask.dataframe.read_parquet`` or ``dask.array.from_zarr``.

    Parameters
    ----------
    paths : str, path, or list of them
        A folder, whose files are read in the order of their names, a pattern with ``*``, or files:
        LIBSVM or CSV text, compressed or not, .npz or .parquet. Or a list of tuples of .npy files,
        ``(X, y)`` or ``(X, y, sample_weight)``.
    target : str or int, optional
        The target column of CSV and parquet files; by default the last.
    n_features : int, optional
        The number of columns of LIBSVM files; by default the largest in any of them, for which all
        are read once more.
    numbers : bool
        Whether targets are numbers, not labels.
    split : int
        The number of blocks per file; one worker reads the whole file.
    columns : sequence of Column, optional
        The columns with their categories, from a survey of the files. Without them text columns
        are refused: every file would have its own categories.
    reading : Reading, optional
        How CSV text is read.
    """
    split = whole_number("split", split, least=1)
    listed = isinstance(paths, Sequence) and not isinstance(paths, str)
    if listed and paths and all(isinstance(row, tuple) for row in paths):
        blocks = [delayed(_arrays)([Path(part) for part in row]) for row in paths]
        return _split(blocks, split)
    files = _files(paths)
    targets = Targets.NUMBERS if numbers else Targets.AS_WRITTEN
    wanted = Wanted(
        target,
        columns,
        n_features,
        targets=targets,
        by_position=columns is not None,
        numbers_only=columns is None,
        reading=reading or Reading(),
    )
    if n_features is None and all(format_of(path, reading) is LIBSVM for path in files):
        widths = compute(*(delayed(_width)(path, wanted) for path in files))
        wanted = wanted._replace(n_features=max(widths))
    return _split([delayed(_table)(path, wanted) for path in files], split)


def _files(paths: Any) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if file.is_file())
        elif "*" in path.name:
            found = sorted(path.parent.glob(path.name))
        else:
            found = [path]
    else:
        found = [Path(path) for path in paths]
    if not found:
        raise FileNotFoundError(f"paths must name at least one file, but {paths!r} names none.")
    for path in found:
        if not path.is_file():
            raise FileNotFoundError(f"paths: there is no file {str(path)!r}.")
    return found


def _width(path: Path, wanted: Wanted) -> int:
    return max(int(block.X.shape[1]) for block in open_table(path, wanted).blocks(None))


def _table(path: Path, wanted: Wanted) -> tuple[Any, Any]:
    X, y = open_table(path, wanted).whole()
    if y is None:
        raise ValueError(f"{path} must have targets, but it has none.")
    return X, y


def _arrays(paths: list[Path]) -> tuple[Any, ...]:
    for path in paths:
        if path.suffix != ARRAY:
            raise ValueError(f"paths: a tuple must hold .npy files, but it holds {str(path)!r}.")
    return tuple(np.load(path, mmap_mode="r", allow_pickle=False) for path in paths)


def _split(blocks: list[Delayed], count: int) -> list[Delayed]:
    if count == 1:
        return blocks
    return [delayed(_slice)(block, i, count) for block in blocks for i in range(count)]


def _slice(block: tuple[Any, ...], number: int, count: int) -> tuple[Any, ...]:
    rows = int(block[0].shape[0])
    some = slice(number * rows // count, (number + 1) * rows // count)
    return tuple(column[some] for column in block)
