"""Draw minibatches in an order that can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accelegrad.errors import whole_number
from accelegrad.models.matrix import RowNumbers


class BatchSampler:
    """Draws batches of row numbers from 0 .. n-1.

    Without replacement every epoch is a permutation of all n rows, and its last batch may be
    shorter; with replacement all rows of a batch are independent.
    """

    def __init__(
        self, n: int, batch_size: int, rng: np.random.Generator, replacement: bool = False
    ) -> None:
        self.n = whole_number("n", n, least=1)
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        if self.batch_size > self.n:
            raise ValueError(
                f"batch_size must be a whole number from 1 to the number of rows, {self.n}, "
                f"but it is {batch_size}."
            )
        if not isinstance(rng, np.random.Generator):
            raise TypeError(
                f"rng must be a numpy.random.Generator, as numpy.random.default_rng(seed) makes, "
                f"not {rng!r}."
            )
        if not isinstance(replacement, (bool, np.bool_)):
            raise TypeError(f"replacement must be True or False, not {replacement!r}.")
        self.rng = rng
        self.replacement = bool(replacement)
        self.rows_drawn = 0
        self._permutation: RowNumbers = np.empty(0, dtype=np.int64)
        self._position = 0

    def __repr__(self) -> str:
        return (
            f"BatchSampler(n={self.n}, batch_size={self.batch_size}, rng={self.rng}, "
            f"replacement={self.replacement})"
        )

    def next_rows(self) -> RowNumbers:
        """Return the rows of the next batch, a read-only array."""
        return self.next_batches(1)

    def next_batches(self, most: int) -> RowNumbers:
        """Return the rows of up to `most` batches at once, without crossing the end of an epoch."""
        if self.replacement:
            self.rows_drawn += most * self.batch_size
            return self.rng.integers(self.n, size=most * self.batch_size)
        if self._position >= self._permutation.size:
            self._permutation, self._position = self.rng.permutation(self.n), 0
            # Batches are views of it: writing to one would change the epoch.
            self._permutation.flags.writeable = False
        rows = self._permutation[self._position : self._position + most * self.batch_size]
        self._position += rows.size
        self.rows_drawn += rows.size
        return rows

    def state(self) -> dict[str, Any]:
        """Return all that decides the coming batches: JSON-able scalars, dicts, and arrays."""
        return {
            "rows_drawn": self.rows_drawn,
            "position": self._position,
            "permutation": self._permutation,
            "bit_generator": dict(self.rng.bit_generator.state),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from the `state` of a sampler with the same arguments."""
        permutation = np.array(state["permutation"], dtype=np.int64)
        position = whole_number("state's position", state["position"], least=0)
        whole = np.array_equal(np.sort(permutation), np.arange(self.n))  # kernels check no bounds
        if not (permutation.size == 0 or whole) or position > permutation.size:
            raise ValueError(
                f"state must hold a permutation of {self.n} rows (or none) and a position in it, "
                f"but it holds {permutation.size} entries and the position {position}."
            )
        # NumPy may refuse the generator's state: nothing else has changed by then.
        self.rng.bit_generator.state = state["bit_generator"]
        permutation.flags.writeable = False
        self._permutation, self._position = permutation, position
        self.rows_drawn = int(state["rows_drawn"])
