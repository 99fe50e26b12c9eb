"""LIBSVM text as tables: lines "label index:value ...", with indices from 1 that increase.

scikit-learn's compiled code parses them; only where that fails, or gives something doubtful, a
slow pass over the lines finds the first one that is wrong.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.data.columns import Wanted
from accelegrad.data.tables import MOST_COLUMNS, Block, TableFile
from accelegrad.data.text import DataError, check_number, shown
from accelegrad.data.text_blocks import TextBlock, has_content, text_blocks

LARGEST_INDEX = 2**31 - 1
"""LIBSVM programs keep an index in a C int."""

_MOST_DIGITS = 20  # of an index that is converted, twice those of LARGEST_INDEX: Python refuses
# to convert thousands


class LibsvmFile(TableFile):
    """LIBSVM text; "qid:" and comments are skipped.

    Without a known number of features a block has as many as its largest index, perhaps none.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        self.n_features = wanted.n_features
        self.first_feature = 1

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        found, width = False, 0
        for text in text_blocks(self.path, rows):
            if has_content(text):
                found, block = True, self._block(text)
                width = max(width, block.X.shape[1])
                yield block
        if not found:
            raise DataError(
                f"{self.path}: the file is empty but for blank lines and comments; at least one "
                "row is needed."
            )
        if width == 0:
            raise DataError(
                f"{self.path}: no row has an index:value pair, so the number of features is not "
                "known. Give n_features if all of them are meant to be 0."
            )

    def _block(self, block: TextBlock) -> Block:
        """Parse a block, or raise a DataError for its first wrong line."""
        X, y = _parsed(block.text)
        if X is None or b"_" in block.text or self._is_doubtful(X, y):
            self._check_lines(block)
        if X is None:
            # Nothing is known to lead here: the check is stricter than the parser.
            raise DataError(f"{self.path}: cannot be read as LIBSVM text.")
        width = self.n_features or int(X.indices.max(initial=-1)) + 1
        return Block(sp.csr_matrix((X.data, X.indices, X.indptr), shape=(y.size, width)), y)

    def _is_doubtful(self, X: Any, y: Any) -> bool:
        few = X.shape[1] <= (self.n_features or MOST_COLUMNS)
        return not (few and np.isfinite(X.data).all() and np.isfinite(y).all())

    def _check_lines(self, block: TextBlock) -> None:
        """Raise a DataError for the first line that is wrong."""
        for line, content in enumerate(io.BytesIO(block.text), start=block.first_line):
            try:
                _check_row(content.partition(b"#")[0].split(), self.n_features)
            except ValueError as error:
                raise DataError(f"{self.path}, line {line}: {error}") from None


def _parsed(text: bytes) -> tuple[Any, Any]:
    """Return X and y, both None where something is wrong."""
    from sklearn.datasets import load_svmlight_file  # takes a second: not before it is needed

    try:
        # The default, zero_based="auto", would take an index 0 as a sign that all count from 0.
        X, y = load_svmlight_file(io.BytesIO(text), zero_based=False)
    except (ValueError, OverflowError):
        return None, None
    return X, y


def _check_row(pieces: list[bytes], n_features: int | None) -> None:
    if not pieces:
        return
    check_number("the label (what comes first in a line)", pieces[0])
    start = 2 if len(pieces) > 1 and pieces[1].startswith(b"qid:") else 1
    previous = 0
    for piece in pieces[start:]:
        index, value = _index_and_value(piece)
        _check_index(index, previous, n_features)
        check_number(f"the value of index {index}", value)
        previous = index


def _index_and_value(piece: bytes) -> tuple[int, bytes]:
    index, colon, value = piece.partition(b":")
    digits = index[1:] if index[:1] in (b"+", b"-") else index
    if not (colon and digits.isdigit()):
        raise ValueError(
            f"found {shown(piece)}, but after the label only index:value pairs are allowed, with "
            "a whole number as the index."
        )
    if len(digits.lstrip(b"0")) > _MOST_DIGITS:
        raise ValueError(f"the index is {shown(index)}, but at most {LARGEST_INDEX} is allowed.")
    return int(index), value


def _check_index(index: int, previous: int, n_features: int | None) -> None:
    if index < 1:
        raise ValueError(f"the index is {index}, but indices start at 1.")
    if index == previous:
        raise ValueError(f"the index {index} comes twice, but each may come once in a line.")
    if index < previous:
        raise ValueError(f"the index {index} follows {previous}, but indices must increase.")
    if index > LARGEST_INDEX:
        raise ValueError(f"the index is {index}, but at most {LARGEST_INDEX} is allowed.")
    if n_features is not None and index > n_features:
        raise ValueError(f"the index is {index}, but {n_features} features are expected.")
    if n_features is None and index > MOST_COLUMNS:
        raise ValueError(
            f"the index is {index}, but more than {MOST_COLUMNS} columns are almost surely a "
            "mistake. They are allowed where n_features is given."
        )
