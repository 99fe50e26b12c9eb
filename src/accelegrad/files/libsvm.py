"""LIBSVM text as tables: lines "label index:value ...", with increasing indices from 1."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from accelegrad.files.tables import (
    BLOCK_BYTES,
    Block,
    DataError,
    TableFile,
    Wanted,
    opened,
    refuse_many_columns,
)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LibsvmFile(TableFile):
    """LIBSVM text, plain or compressed; "qid:" and comments are skipped."""

    first_feature = 1

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        self.n_features = wanted.n_features

    def survey(self, rows: int | None = None) -> None:
        """Find the number of features, if it is not given."""
        if self.n_features is None:
            self.n_features = max(block.X.shape[1] for block in self.blocks(rows))

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        line, width, found = 1, 0, False
        for text in self._texts(rows):
            block = self._block(text.removeprefix(_BYTE_ORDER_MARK) if line == 1 else text, line)
            line += text.count(b"\n")
            if block.X.shape[0]:
                found, width = True, max(width, block.X.shape[1])
                yield block
        if not found:
            raise self.no_rows()
        if width == 0:
            raise DataError(
                f"{self.path}: no row has an index:value pair, so the number of features is not "
                "known. Give n_features if all of them are meant to be 0."
            )

    def whole(self) -> Block:
        """Return all rows; narrower blocks are widened."""
        blocks = list(self.blocks(None))
        width = max(block.X.shape[1] for block in blocks)
        for block in blocks:
            block.X.resize(block.X.shape[0], width)
        y = np.concatenate([block.y for block in blocks if block.y is not None])
        return Block(sp.vstack([block.X for block in blocks], format="csr"), y)

    def _texts(self, rows: int | None) -> Iterator[bytes]:
        with opened(self.path) as file:
            try:
                if rows is None:
                    yield from iter(lambda: file.read(BLOCK_BYTES) + file.readline(), b"")
                else:
                    yield from iter(lambda: b"".join(islice(file, rows)), b"")
            except Exception as error:  # of a damaged compressed file
                raise self.damaged("readable", error) from None

    def _block(self, text: bytes, first_line: int) -> Block:
        """Parse a piece of text, or raise a DataError for its first wrong line."""
        try:
            return self._parsed(text)
        except (ValueError, OverflowError):
            lines = list(io.BytesIO(text))
        # Lines are parsed independently: bisection finds the first wrong one.
        start, end = 0, len(lines)
        while end - start > 1:
            middle = (start + end) // 2
            try:
                self._parsed(b"".join(lines[start:middle]))
                start = middle
            except (ValueError, OverflowError):
                end = middle
        try:
            return self._parsed(lines[start])
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"{self.path}, line {first_line + start}: {str(error)[:200]}. A line must be a "
                "label and index:value pairs, all of them finite numbers."
            ) from None

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
