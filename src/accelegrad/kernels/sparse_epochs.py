"""Stochastic steps on CSR rows that cost O(nonzeros of the batch), exact up to rounding.

`sparse_coupled` explains how for AcceleGrad and its distance-free form, `sparse_descent` for
AdaGrad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels import sparse_coupled, sparse_descent
from accelegrad.kernels.compile import Call, announces, csr_layouts
from accelegrad.kernels.epochs import FIXED, NO_ROWS, Epochs, importance_weight
from accelegrad.kernels.gradient import Data
from accelegrad.kernels.sparse_coupled import COUPLED, coupled_steps
from accelegrad.kernels.sparse_descent import DESCENT, descent_steps
from accelegrad.kernels.sparse_rows import (
    OFFSET,
    SHARE,
    SQUARES,
    TARGET,
    CsrRows,
    Scratch,
    Seen,
    aligned,
)


class SparseEpochs(Epochs):
    """Steps of a rule on CSR rows, each O(nonzeros of its batch).

    Columns may come in any order in a row, and more than once.

    Parameters
    ----------
    kind, data, x0, **settings
        As for `Epochs`.
    squares, offsets : arrays
        ||a_i||^2 and a_i.x0 without the intercept, for each row; zero offsets may be a number.

    References
    ----------
    Those of the rules. That weights and their average can be kept up in O(nonzeros) by scalars and
    few vectors is known for SGD: L. Bottou, Stochastic Gradient Descent Tricks, 2012; W. Xu,
    arXiv:1107.2490, 2011. The extension to coupled sequences is accelegrad's.
    """

    def __init__(
        self,
        kind: str,
        data: Data,
        x0: Vector,
        *,
        squares: Vector,
        offsets: Vector | float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(kind, data, x0, **settings)
        d, dtype = self.n_features, data.matrix[1].dtype
        self._scratch = Scratch(np.zeros(d), np.empty(0, dtype), np.empty(0))
        table = aligned(self.n_samples, 4)
        table[:, TARGET], table[:, SHARE] = data.y, self._row_weights
        table[:, SQUARES], table[:, OFFSET] = squares, offsets
        self._rows = CsrRows._make([*data.matrix, table])
        self._columns = aligned(d, (sparse_coupled if self._coupled else sparse_descent).WIDTH)
        self._seen = Seen(
            np.zeros(self.n_samples, np.uint8),
            np.empty(self.n_samples, np.int64),
            np.zeros(d, np.uint8),
            np.empty(d, dtype),
        )
        self._state = self._first_state()

    @property
    def numbers(self) -> Any:
        """The record of all numbers that change."""
        return self._state[0]

    def _first_state(self) -> npt.NDArray[np.void]:
        state = np.zeros(1, COUPLED if self._coupled else DESCENT)
        if self._coupled:
            state["zeta1"] = state["ups2"] = 1.0
            state["radius"] = self.first_radius
        else:
            state["zeta"] = 1.0
        return state

    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        if batch_size > 1 and rows.size:
            self._make_room(rows, batch_size)
        flat = self._columns.reshape(-1)  # here, since kernels take seconds to compile it
        arrays = (self._columns, flat, self._rows, self._seen, self._features, self._scratch)
        if self._coupled:
            room = np.empty(sparse_coupled.PRODUCTS)
            return int(coupled_steps(self._state, self._fixed, *arrays, room, rows, batch_size))
        return int(descent_steps(self._state, self._fixed, *arrays, rows, batch_size))

    def _make_room(self, rows: npt.NDArray[np.int64], batch_size: int) -> None:
        """Let the scratch hold the largest batch."""
        lengths = np.diff(self._rows.indptr).astype(np.int64)[rows]
        most = int(np.add.reduceat(lengths, np.arange(0, rows.size, batch_size)).max())
        if most > self._scratch.entries.size:
            listed = np.empty(most, self._scratch.columns.dtype)
            self._scratch = Scratch(self._scratch.total, listed, np.empty(most))

    def query(self) -> Vector:
        """Return the point where the next gradient is wanted, a new array."""
        s = self.numbers
        if not self._coupled:
            return self._point(s["zeta0"], s["xb"], s["zeta"])
        rest = 1.0 - 1.0 / importance_weight(self.iteration)
        z, y = (
            np.array([s[f"{name}{k}"] for k in (1, 2, 0)] + [s[f"{letter}b"]])
            for name, letter in (("zeta", "z"), ("ups", "y"))
        )
        first, second, zeroth, intercept = z + rest * (y - z)
        return self._point(zeroth, intercept, first, second)

    def output(self) -> Vector:
        """Return the average that the rule's theorem speaks of, a new array."""
        if self.iteration == 0:
            return self.x0.copy()
        relative = self._weighted_sum() / float(self.numbers["weight_sum"])
        return self.x0 + relative

    def last(self) -> Vector:
        """Return the last iterate, y of the coupled rules and x of AdaGrad, a new array."""
        if not self._coupled:
            return self.query()
        s = self.numbers
        return self._point(s["ups0"], s["yb"], s["ups1"], s["ups2"])

    def _weighted_sum(self) -> Vector:
        """Return the weighted sum of the points relative to x0."""
        s = self.numbers
        if not self._coupled:
            return self._sum(s["rho0"], s["sum_b"], s["rho"], 1.0)
        return self._sum(s["rho0"], s["sum_b"], s["rho1"], s["rho2"], 1.0)

    def _point(self, zeroth: float, intercept: float, *factors: float) -> Vector:
        return self.x0 + self._sum(zeroth, intercept, *factors)

    def _sum(self, zeroth: float, intercept: float, *factors: float) -> Vector:
        """Return the first columns times factors, plus a multiple of x0, and the intercept."""
        total: Vector = self._columns[:, : len(factors)] @ np.array(factors)
        if zeroth != 0.0:
            total += zeroth * self._features
        return np.append(total, intercept) if self.fit_intercept else total

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        s, seen = self.numbers, self._seen
        return {
            "columns": self._columns.copy(),
            "seen_rows": seen.rows.copy(),
            "fresh_rows": seen.fresh[: int(s["fresh"])].copy(),
            "touched_columns": seen.touched[: int(s["touched"])].copy(),
        }

    def _restore_arrays(self, state: Mapping[str, Any]) -> None:
        fresh, touched = state["fresh_rows"], state["touched_columns"]
        self._columns[:] = state["columns"]
        self._seen.rows[:] = state["seen_rows"]
        self._seen.fresh[: fresh.size] = fresh
        self._seen.touched[: touched.size] = touched
        self._seen.columns[:] = 0
        self._seen.columns[touched] = 1


@announces
def _calls() -> Iterator[Call]:
    """Yield a call of each kernel for rows of all the types that there are kernels for."""
    vector, flags = np.zeros(1), np.zeros(1, np.uint8)
    for end, matrix in csr_layouts():
        columns = np.empty(0, matrix[1].dtype)
        rows = CsrRows._make([*matrix, aligned(1, 4)])
        scratch = Scratch(vector, columns, vector)
        seen = Seen(flags, np.empty(0, np.int64), flags, columns)
        for name, steps, numbers, width, more in (
            ("epochs of AcceleGrad", coupled_steps, COUPLED, sparse_coupled.WIDTH, (vector,)),
            ("epochs of AdaGrad", descent_steps, DESCENT, sparse_descent.WIDTH, ()),
        ):
            state, fixed, table = np.zeros(1, numbers), np.zeros(1, FIXED), aligned(1, width)
            arrays = (table, table.reshape(-1), rows, seen, vector, scratch, *more, NO_ROWS)
            yield Call(f"{name}, {end}", steps, (state, fixed, *arrays, 1))
