"""Files without columns: LIBSVM text, and NumPy's .npz."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.files.archive import LARGEST_RATIO, load_arrays
from accelegrad.files.tables import (
    BLOCK_BYTES,
    Block,
    DataError,
    TableFile,
    Targets,
    Wanted,
    few,
    opened,
    refuse_many_columns,
    rows_per_block,
)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LibsvmFile(TableFile):
    """Lines "label index:value ...", with increasing indices from 1; "qid:" is skipped."""

    first_feature = 1

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        self.n_features = wanted.n_features

    def survey(self, rows: int | None = None) -> None:
        """Find the number of features, if it is not given."""
        if self.n_features is None:
            self.n_features = max(block.X.shape[1] for block in self.blocks(rows))

    def whole(self) -> Block:
        """Return all rows; narrower blocks are widened."""
        Xs, ys = zip(*self.blocks(), strict=True)
        width = max(X.shape[1] for X in Xs)
        for X in Xs:
            X.resize(X.shape[0], width)
        return Block(sp.vstack(Xs, format="csr"), np.concatenate(ys))

    def _blocks(self, rows: int | None) -> Iterator[Block]:
        line, count, width = 1, 0, 0
        for text in self._texts(rows):
            block = self._block(text.removeprefix(_BYTE_ORDER_MARK) if line == 1 else text, line)
            line += text.count(b"\n")
            count, width = count + block.X.shape[0], max(width, block.X.shape[1])
            yield block
        if count and not width:
            raise self.error(
                "no row has an index:value pair, so the number of features is not known. Give "
                "n_features if all of them are meant to be 0"
            )

    def _texts(self, rows: int | None) -> Iterator[bytes]:
        with opened(self.path) as file:
            try:
                if rows is None:
                    yield from iter(lambda: file.read(BLOCK_BYTES) + file.readline(), b"")
                else:
                    yield from iter(lambda: b"".join(islice(file, rows)), b"")
            except Exception as error:  # of a damaged compressed file
                raise self.damaged("readable", error) from None

    def _block(self, text: bytes, first: int) -> Block:
        """Parse lines, numbered from `first`, or raise a DataError for the first wrong one."""
        try:
            return self._parsed(text)
        except (ValueError, OverflowError) as error:
            lines = list(io.BytesIO(text))
            half = len(lines) // 2
            if not half:
                raise DataError(
                    f"{self.path}, line {first}: {str(error)[:200]}. A line must be a label and "
                    "index:value pairs, all of them finite numbers."
                ) from None
            self._block(b"".join(lines[:half]), first)
            return self._block(b"".join(lines[half:]), first + half)

    def _parsed(self, text: bytes) -> Block:
        from sklearn.datasets import load_svmlight_file  # slow import

        if b"\0" in text:
            raise ValueError("found a NUL byte, so this is no text (or UTF-16)")
        # The default, zero_based="auto", would take an index 0 to mean that all count from 0.
        X, y = load_svmlight_file(io.BytesIO(text), zero_based=False)
        if not (np.isfinite(X.data).all() and np.isfinite(y).all()):
            raise ValueError("found a number that is not finite")
        width, largest = self.n_features, int(X.indices.max(initial=-1)) + 1
        if width is not None and largest > width:
            raise ValueError(f"the index is {largest}, but {width} features are expected")
        if width is None:
            refuse_many_columns(largest)
        parts = (X.data, X.indices, X.indptr)
        return Block(sp.csr_matrix(parts, shape=(y.size, width or largest)), y)


class NpzFile(TableFile):
    """Arrays `X` and `y`, or `y` beside what `scipy.sparse.save_npz` writes; read as a whole."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        try:
            arrays = load_arrays(path, compressed=True)
            self._X = self._features(arrays)
            self._y = self._targets(arrays)
        except Exception as error:  # a damaged file may raise anything
            raise self.damaged("npz", error) from None
        self.n_features = self._X.shape[1]
        if "feature_names" in arrays:
            self.names = names = tuple(map(str, arrays["feature_names"].ravel()))
            if not len(set(names)) == len(names) == self.n_features:
                raise self.error(
                    f"feature_names must be {self.n_features} distinct names, not {few(names)}"
                )
            known = [name for column in wanted.columns or () for name in column.features]
            if known and list(names) != known:
                raise self.error(
                    f"feature_names are {few(names)}, but the model's features are {few(known)}, "
                    "in this order"
                )

    def _blocks(self, rows: int | None) -> Iterator[Block]:
        rows = rows or rows_per_block(self._X)
        for start in range(0, self._X.shape[0], rows):
            part = slice(start, start + rows)
            yield Block(self._X[part], None if self._y is None else self._y[part])

    def whole(self) -> Block:
        """Return all rows."""
        return Block(self._X, self._y)

    def _features(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
        if "X" in arrays:
            X: Any = arrays["X"]
        elif "format" in arrays:
            X = sp.load_npz(self.path)
            if hasattr(X, "check_format"):
                X.check_format(full_check=True)  # an index may be out of range
        else:
            raise self.error(
                f"the arrays are {sorted(arrays)}, but 'X' (or what scipy.sparse.save_npz writes) "
                "and 'y' are needed"
            )
        if len(X.shape) != 2:
            raise self.error(f"X must have two dimensions, not shape {X.shape}")
        (n, d), known = X.shape, self.wanted.n_features
        if known is None:
            refuse_many_columns(d)
        elif d != known:
            raise self.error(f"found {d} columns, but {known} features are expected")
        if n == 0:
            raise self.no_rows()
        if n > LARGEST_RATIO * self.path.stat().st_size:  # empty sparse rows may take no space
            raise self.error(f"the matrix claims {n} rows, but the file is too short for them")
        if not isinstance(X, np.ndarray):
            X = sp.csr_matrix(X.tocsr())
            X.sum_duplicates()
        return self._checked("X", X, "fiub")

    def _targets(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
        if "y" not in arrays and not self.wanted.optional:
            raise self.error("there is no array 'y' with the targets")
        if "y" not in arrays or self.wanted.targets is Targets.UNUSED:
            return None
        y, n = arrays["y"], self._X.shape[0]
        if y.shape != (n,):
            raise self.error(f"y must have {n} entries, as X has rows, not shape {y.shape}")
        if y.dtype.kind == "S":
            y = np.char.decode(y)
        return self._checked("y", y, "fiub" if self.wanted.targets is Targets.NUMBERS else "fiubU")

    def _checked(self, name: str, values: Any, kinds: str) -> Any:
        """Return finite values of these kinds, in native byte order."""
        from sklearn.utils import assert_all_finite  # slow import

        if values.dtype.kind not in kinds:
            words = "numbers or text" if "U" in kinds else "numbers"
            raise self.error(f"{name} must hold {words}, but it holds {values.dtype}")
        try:
            assert_all_finite(values, input_name=name)
        except ValueError as error:
            raise self.error(str(error).removesuffix(".")) from None
        return values.astype(values.dtype.newbyteorder("="), copy=False)
