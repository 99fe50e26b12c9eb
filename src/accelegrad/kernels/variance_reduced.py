"""Epochs of the variance-reduced rule on dense rows: the rule's formulas, compiled.

What stays the same in an epoch and its numbers are shared with the twin for CSR rows,
`variance_reduced_sparse`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, compiled, dense_layouts, kernel, summing
from accelegrad.kernels.dense_rows import add_row, move, row_product
from accelegrad.kernels.epochs import NO_ROWS, over_root, record
from accelegrad.kernels.loss_shape import KERNEL_LOSSES, Shape
from accelegrad.kernels.losses import loss_slope

#: What an epoch starts from and leaves: see `accelegrad.solvers.variance_reduced.Epoch`.
NUMBERS = record(
    ["radius", "squares", "weight", "coupling", "length", "step_size", "l2"],
    ["done", "kept_from"],
)


class Sum(NamedTuple):
    """The rows' targets and weights, the loss, and what is known at the anchor."""

    y: Vector
    shares: Vector  # p_i, or nothing where all are equal
    loss: Shape | None
    slopes: Vector  # l'(m_i) at the anchor
    margins: Vector  # m_i at the anchor
    travelled: Vector  # m_i there, less m_i where the stage began


class Path(NamedTuple):
    """The points of an epoch; `mirror` and `total` are written to."""

    anchor: Vector
    full_gradient: Vector
    start: Vector
    mirror: Vector
    total: Vector  # the sum of the averaged points


@compiled
def row_factor(
    loss: Any, y: Any, shares: Any, slopes: Any, i: int, margin: float, size: int
) -> Any:
    """Return the factor of a row in a batch's difference, NaN where the margin is not finite."""
    if not math.isfinite(margin):
        return math.nan
    share = y.size * shares[i] if shares.size > 0 else 1.0
    return share * (loss_slope(loss, margin, y[i]) - slopes[i]) / size


@summing
def _begin(full: Any, l2: float, x: Any, s: Any, d: int, g: Any) -> None:
    """Write down the gradient without the batch's differences."""
    for j in range(g.size):
        g[j] = full[j]
    for j in range(d):
        g[j] += l2 * (x[j] - s[j])


@summing
def _change(g: Any, before: Any) -> float:
    total = 0.0
    for j in range(g.size):
        total += (g[j] - before[j]) * (g[j] - before[j])
    return total


@summing
def _couple(s: Any, tau: float, v: Any, x: Any) -> None:
    for j in range(x.size):
        x[j] = s[j] + tau * (v[j] - s[j])


@summing
def _add(total: Any, x: Any) -> None:
    for j in range(x.size):
        total[j] += x[j]


@kernel
def dense_epoch(numbers: Any, X: Any, given: Any, path: Any, order: Any, batch_size: int) -> None:
    """Do a step for each batch of rows; `numbers` and the path's last two points are changed."""
    e, d = numbers[0], X.shape[1]
    intercept = path.anchor.size > d
    y, shares, loss, slopes = given.y, given.shares, given.loss, given.slopes
    s, full, v, total = path.anchor, path.full_gradient, path.mirror, path.total
    x, g, before = np.empty(s.size), np.empty(s.size), np.empty(s.size)
    _couple(s, e.coupling, v, x)
    for first in range(0, order.size, batch_size):
        last = min(first + batch_size, order.size)
        _begin(full, e.l2, x, s, d, g)
        for k in range(first, last):
            i = order[k]
            m = row_product(X, i, x) + (x[d] if intercept else 0.0)
            c = row_factor(loss, y, shares, slopes, i, m, last - first)
            add_row(X, i, c, g)
            if intercept:
                g[d] += c
        if e.done > 0:
            e.squares += e.weight * e.weight * _change(g, before)
        e.step_size = over_root(e.length * e.weight * e.radius, e.squares)
        e.radius = max(e.radius, math.sqrt(move(v, e.step_size, g, path.start)))
        _couple(s, e.coupling, v, x)
        if e.done >= e.kept_from:
            _add(total, x)
        g, before = before, g
        e.done += 1


def common_sums() -> Iterator[tuple[str, Sum]]:
    """Yield sums of no rows, with arrays of the types that there are, by their losses."""
    none = read_only(np.empty(0))
    for name, loss in KERNEL_LOSSES.items():
        yield name, Sum(none, none, loss, none, none, none)


def common_path() -> Path:
    """Return points with one coordinate, in arrays of the types that there are."""
    fixed = [read_only(np.zeros(1)) for _ in range(3)]
    return Path._make([*fixed, np.zeros(1), np.zeros(1)])


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    for name, given in common_sums():
        for end, matrix in dense_layouts():
            arguments = (np.zeros(1, NUMBERS), *matrix, given, common_path(), NO_ROWS, 1)
            yield Call(f"variance-reduced epoch, {name}, {end}", dense_epoch, arguments)
