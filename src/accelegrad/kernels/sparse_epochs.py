"""Stochastic steps on CSR rows that cost O(nonzeros of the batch), exact up to rounding.

`sparse_coupled` explains how for AcceleGrad and its distance-free form, `sparse_descent` for
AdaGrad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector, real_array
from accelegrad.kernels import sparse_coupled, sparse_descent
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, layout
from accelegrad.kernels.epochs import FIXED, NO_ROWS, Epochs, importance, same_shape
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
    row_products,
    row_squares,
)


class SparseEpochs(Epochs):
    """Steps of a rule on CSR rows, each O(nonzeros of its batch).

    Parameters
    ----------
    kind : {"accelegrad", "adagrad", "distance_free"}
        The rule: `AcceleGrad`, `AdaGrad` or `DistanceFreeAcceleGrad` (noisy: no values).
    data, indices, indptr : arrays
        The CSR matrix, data in float32 or float64, indices of 32 or 64 bits; not copied, and not to
        be changed. Columns may come in any order, and more than once.
    n_features : int
        The number of columns.
    y : array
        The targets; labels -1 and +1 for classification losses.
    shares : array, optional
        p_i, the rows' weights, which sum to 1; equal by default.
    loss : Shape
        The numbers of a loss of `accelegrad.problems.losses`.
    l2 : float
        The weight of the l2 term.
    fit_intercept : bool
        Whether the last coordinate of points is an intercept.
    x0 : array, optional
        The first point, by default zero.
    diameter, gradient_bound : float
        D, and G of AcceleGrad; the distance-free rule has none.
    ball_radius : float, optional
        z (of AdaGrad: x) is projected onto the ball around x0 with this radius; None: it is not.
    initial_radius, largest_radius : float, optional
        The distance-free rule's, as there.

    References
    ----------
    Those of the rules. That weights and their average can be kept up in O(nonzeros) by scalars and
    few vectors is known for SGD: L. Bottou, Stochastic Gradient Descent Tricks, 2012; W. Xu,
    arXiv:1107.2490, 2011. The extension to coupled sequences is accelegrad's.
    """

    def __init__(
        self,
        kind: str,
        data: npt.NDArray[Any],
        indices: npt.NDArray[Any],
        indptr: npt.NDArray[Any],
        n_features: int,
        y: npt.ArrayLike,
        shares: npt.ArrayLike | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(kind, (indptr.size - 1, n_features), y, shares, **settings)
        d, dtype = self.n_features, _unsigned(indices).dtype
        self._scratch = Scratch(np.zeros(d), np.empty(0, dtype), np.empty(0))
        self._rows = self._matrix(data, indices, indptr)
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

    def _matrix(self, data: Any, indices: Any, indptr: Any) -> CsrRows:
        data = read_only(np.ascontiguousarray(real_array("data", data)))
        indices = _unsigned(indices)
        if data.dtype not in (np.float32, np.float64):
            raise TypeError(f"data must be of float32 or float64, but it is of {data.dtype}.")
        indptr = np.ascontiguousarray(indptr, dtype=np.int64)
        if data.size != indices.size or indptr[0] != 0 or indptr[-1] > data.size:
            raise ValueError(
                f"indptr must go from 0 to the {data.size} entries of data and indices, but it "
                f"goes from {indptr[0]} to {indptr[-1]}, and indices has {indices.size}."
            )
        if (np.diff(indptr) < 0).any():
            raise ValueError("indptr must not fall, but it does.")
        if indices.size and int(indices.max()) >= self.n_features:
            raise ValueError(
                f"indices must be from 0 to {self.n_features - 1}, but one is {indices.max()}."
            )
        indptr = read_only(indptr, np.uint64)
        squares = row_squares(data, indices, indptr, self._scratch.total)
        offsets = np.zeros(self.n_samples)
        if self._features.any():
            offsets = row_products(data, indices, indptr, self._features)
        table = aligned(self.n_samples, 4)
        table[:, TARGET], table[:, OFFSET], table[:, SQUARES] = self.targets.y, offsets, squares
        table[:, SHARE] = self.n_samples * self.targets.shares
        return CsrRows(data, indices, indptr, table)

    def _first_state(self) -> npt.NDArray[np.void]:
        state = np.zeros(1, COUPLED if self._coupled else DESCENT)
        if self._coupled:
            state["zeta1"] = state["ups2"] = 1.0
            state["radius"] = min(self.settings.initial_radius, self.settings.largest_radius)
        else:
            state["zeta"] = 1.0
        return state

    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        if batch_size > 1 and rows.size:
            self._make_room(rows, batch_size)
        steps = coupled_steps if self._coupled else descent_steps
        arrays = (self._columns, self._rows, self._seen, self._features, self._scratch)
        return int(steps(self._state, self._fixed, *arrays, rows, batch_size))

    def _make_room(self, rows: npt.NDArray[np.int64], batch_size: int) -> None:
        """Let the scratch hold the largest batch."""
        lengths = np.diff(self._rows.indptr.view(np.int64))[rows]
        most = int(np.add.reduceat(lengths, np.arange(0, rows.size, batch_size)).max())
        if most > self._scratch.entries.size:
            listed = np.empty(most, self._scratch.columns.dtype)
            self._scratch = Scratch(self._scratch.total, listed, np.empty(most))

    def query(self) -> Vector:
        """Return the point where the next gradient is wanted, a new array."""
        s = self.numbers
        if not self._coupled:
            return self._point(s["zeta0"], s["xb"], s["zeta"])
        rest = 1.0 - 1.0 / importance(self.iteration)
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

    def _gradient_sum(self) -> Vector:
        s = self.numbers
        return self._sum(s["sigma0"], s["sb"], s["sigma1"], s["sigma2"], 0.0, 1.0)

    def _point(self, zeroth: float, intercept: float, *factors: float) -> Vector:
        return self.x0 + self._sum(zeroth, intercept, *factors)

    def _sum(self, zeroth: float, intercept: float, *factors: float) -> Vector:
        """Return the first columns times factors, plus a multiple of x0, and the intercept."""
        total: Vector = self._columns[:, : len(factors)] @ np.array(factors)
        if zeroth != 0.0:
            total += zeroth * self._features
        return np.append(total, intercept) if self.settings.fit_intercept else total

    def _sequences(self) -> dict[str, Vector]:
        s = self.numbers
        total = self._weighted_sum() + float(s["weight_sum"]) * self.x0
        own = {"query_point": self.query(), "weighted_sum": total}
        if self._coupled:
            own["mirror_point"] = self._point(s["zeta0"], s["zb"], s["zeta1"], s["zeta2"])
            own["gradient_point"] = self.last()
            own["gradient_sum"] = self._gradient_sum()
        return own

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        s, seen = self.numbers, self._seen
        return {
            "columns": self._columns.copy(),
            "seen_rows": seen.rows.copy(),
            "fresh_rows": seen.fresh[: int(s["fresh"])].copy(),
            "touched_columns": seen.touched[: int(s["touched"])].copy(),
        }

    def _restore_arrays(self, state: Mapping[str, Any]) -> None:
        columns = same_shape("columns", state["columns"], self._columns)
        seen_rows = same_shape("seen_rows", state["seen_rows"], self._seen.rows)
        fresh = same_shape("fresh_rows", state["fresh_rows"], np.empty(int(state["fresh"])))
        touched = same_shape(
            "touched_columns", state["touched_columns"], np.empty(int(state["touched"]))
        )
        self._columns[:] = columns
        self._seen.rows[:] = seen_rows
        self._seen.fresh[: fresh.size] = fresh
        self._seen.touched[: touched.size] = touched
        self._seen.columns[:] = 0
        self._seen.columns[touched] = 1


def _unsigned(indices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view without sign: the compiled loops then need no test for negative numbers."""
    array = np.ascontiguousarray(indices)
    if array.dtype not in (np.int32, np.int64):
        raise TypeError(f"indices must be of int32 or int64, but they are of {array.dtype}.")
    if array.size and array.min() < 0:
        raise ValueError(f"indices must be at least 0, but one is {array.min()}.")
    return read_only(array, np.uint32 if array.dtype == np.int32 else np.uint64)


@announces
def _calls() -> Iterator[Call]:
    """Yield calls for rows of all the types that there are kernels for."""
    for dtype in (np.float64, np.float32):
        for index in (np.int32, np.int64):
            matrix = np.ones(1, dtype), np.zeros(1, index), np.zeros(1, np.int64)
            yield from _calls_on(*matrix)


def _calls_on(data: Any, indices: Any, indptr: Any) -> Iterator[Call]:
    """Yield a call for each of the kernels, with rows of these types and none to be used."""
    data, indices, indptr = read_only(data), _unsigned(indices), read_only(indptr, np.uint64)
    end, vector = layout(data.dtype, indices.dtype), np.zeros(1)
    yield Call(f"row norms, {end}", row_squares, (data, indices, indptr, vector))
    yield Call(f"row products, {end}", row_products, (data, indices, indptr, vector))
    rows = CsrRows(data, indices, indptr, aligned(1, 4))
    scratch = Scratch(vector, np.empty(0, indices.dtype), vector)
    ones = np.zeros(1, np.uint8)
    seen = Seen(ones, np.empty(0, np.int64), ones, np.empty(0, indices.dtype))
    for name, steps, numbers, width in (
        ("epochs of AcceleGrad", coupled_steps, COUPLED, sparse_coupled.WIDTH),
        ("epochs of AdaGrad", descent_steps, DESCENT, sparse_descent.WIDTH),
    ):
        state, fixed = np.zeros(1, numbers), np.zeros(1, FIXED)
        arrays = (aligned(1, width), rows, seen, vector, scratch, NO_ROWS)
        yield Call(f"{name}, {end}", steps, (state, fixed, *arrays, 1))
