"""NumPy's .npz files as tables, dense or in any sparse format that SciPy saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.files.archive import LARGEST_RATIO, load_arrays
from accelegrad.files.tables import (
    Block,
    DataError,
    TableFile,
    Targets,
    Wanted,
    few,
    refuse_many_columns,
    rows_per_block,
)


class NpzFile(TableFile):
    """Arrays `X` and `y`, or `y` beside what `scipy.sparse.save_npz` writes; read as a whole."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        try:
            self._take(load_arrays(path, compressed=True))
        except Exception as error:  # a damaged file may raise anything
            raise self.damaged("npz", error) from None

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        rows = rows or rows_per_block(self._X)
        for start in range(0, self._X.shape[0], rows):
            part = slice(start, start + rows)
            yield Block(self._X[part], None if self._y is None else self._y[part])

    def whole(self) -> Block:
        """Return all rows."""
        return Block(self._X, self._y)

    def _take(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        X = self._features(arrays)
        if len(X.shape) != 2:
            raise self._error(f"X must have two dimensions, not shape {X.shape}")
        n, d = X.shape
        known = self.wanted.n_features
        if known is not None and d != known:
            raise self._error(f"found {d} columns, but {known} features are expected")
        if known is None:
            refuse_many_columns(d)
        if n == 0:
            raise self.no_rows()
        if n > LARGEST_RATIO * self.path.stat().st_size:  # empty sparse rows may take no space
            raise self._error(f"the matrix claims {n} rows, but the file is too short for them")
        if not isinstance(X, np.ndarray):
            X = sp.csr_matrix(X.tocsr())
            X.sum_duplicates()
        self._X, self.n_features = self._checked("X", X, "fiub"), d
        self._y: npt.NDArray[Any] | None = None
        if "y" not in arrays and not self.wanted.optional:
            raise self._error("there is no array 'y' with the targets")
        if "y" in arrays and self.wanted.targets is not Targets.UNUSED:
            y = arrays["y"]
            if y.shape != (n,):
                raise self._error(f"y must have {n} entries, as X has rows, not shape {y.shape}")
            kinds = "fiub" if self.wanted.targets is Targets.NUMBERS else "fiubU"
            self._y = self._checked("y", np.char.decode(y) if y.dtype.kind == "S" else y, kinds)
        if "feature_names" in arrays:
            self.names = tuple(map(str, arrays["feature_names"].ravel()))
            self._check_names(self.names, d)

    def _features(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
        if "X" in arrays:
            return arrays["X"]
        if "format" not in arrays:
            raise self._error(
                f"the arrays are {sorted(arrays)}, but 'X' (or what scipy.sparse.save_npz writes) "
                "and 'y' are needed"
            )
        stored: Any = sp.load_npz(self.path)
        if hasattr(stored, "check_format"):
            stored.check_format(full_check=True)  # an index may be out of range
        return stored

    def _checked(self, name: str, values: Any, kinds: str) -> Any:
        """Return finite values of these kinds, in native byte order."""
        if values.dtype.kind not in kinds:
            words = "numbers or text" if "U" in kinds else "numbers"
            raise self._error(f"{name} must hold {words}, but it holds {values.dtype}")
        is_sparse = bool(sp.issparse(values))
        entries = values.data if is_sparse else values
        if entries.dtype.kind == "f" and not np.isfinite(entries).all():
            place = int(np.isfinite(entries).argmin())
            row = values.tocoo().row[place] if is_sparse else place // values[0].size
            number = entries.ravel()[place]
            raise self._error(f"{name} is {number} in row {row + 1}, but it must be finite")
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def _check_names(self, names: tuple[str, ...], d: int) -> None:
        if len(set(names)) != d or len(names) != d:
            raise self._error(f"feature_names must be {d} distinct names, not {few(names)}")
        if self.wanted.columns is not None:
            known = [name for column in self.wanted.columns for name in column.features]
            if list(names) != known:
                raise self._error(
                    f"feature_names are {few(names)}, but the model's features are {few(known)}, "
                    "in this order"
                )

    def _error(self, words: str) -> DataError:
        return DataError(f"{self.path}: {words}.")
