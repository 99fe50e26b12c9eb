"""What linear models share whose rows are not in memory: in a stream, or on a cluster."""

from __future__ import annotations

import math
from typing import Any

from accelegrad import kernels
from accelegrad.models.gram import Storage
from accelegrad.models.linear_model import LinearModel


class RowsElsewhere(LinearModel):
    """A linear model in parts, each of which is a model in memory while it is looked at."""

    X: Any  # not a matrix: it knows its shape, type and storage

    @property
    def in_memory(self) -> None:
        """None: the rows are elsewhere."""
        return None

    @property
    def has_columns(self) -> bool:
        """Whether `of_columns` can be asked: no, unless a model says so."""
        return False

    @property
    def storage(self) -> Storage:
        """How the parts are stored."""
        storage: Storage = self.X.storage
        known = kernels.Readable(storage.entries, self.n_features, sparse=True)
        by_pairs = not storage.dense and kernels.wanted_for_rows(known)
        return storage if by_pairs else storage._replace(pairs_per_row=math.inf)

    @property
    def _has_kernel(self) -> bool:
        """Whether value and gradient come from one pass: always."""
        return True
