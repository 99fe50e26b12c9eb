"""Epochs of dual coordinate ascent on dense and CSR rows: see `accelegrad.rows.dual_ascent`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, compiled, csr_layouts, dense_layouts, kernel
from accelegrad.kernels.dense_rows import add_row, row_product
from accelegrad.kernels.epochs import NO_ROWS
from accelegrad.kernels.loss_shape import LABELS, LOGISTIC, LOGISTIC_SHAPE, Shape
from accelegrad.kernels.losses import loss_slope, rounded_off
from accelegrad.kernels.sparse_rows import add_sparse_row, look_ahead, sparse_product


class DualRows(NamedTuple):
    """The rows' targets, weights and squared norms, the loss, and what holds the weights."""

    y: Vector
    shares: Vector  # p_i, or nothing where all are equal
    squares: Vector  # ||a_i||^2
    loss: Shape
    l2: float
    pull: float  # 1 / rho, with an intercept after the weights; 0: there is none
    longest_rest: int  # in epochs


TRIALS = 60  # Newton's steps at most; from where they begin, ten are many
#: The search ends after a step that is no longer, relative to the margin: Newton's error is at most
#: half the square of the step.
LAST_STEP = 1e-5


@compiled
def _logistic_slope(z: float, q: float, y: float) -> Any:
    """Return the slope t with t = l'(z - q t), by Newton's steps for y m, where m = z - q t."""
    # The root of m - c - q / (1 + e^m), which is concave above 0: from below, steps never pass it.
    c = y * z
    is_below = c < -0.5 * q  # then its mirror image is above
    if is_below:
        c = -(c + q)
    m = max(c, 0.0)
    if q > 1.0:
        # e^m is q / (m - c) - 1, and m at most ln q or, where e^m is more than q, c + 1.
        ratio = q / (max(math.log(q), c + 1.0) - c)
        if ratio > 2.0:
            m = max(m, math.log(ratio - 1.0))
    for _ in range(TRIALS):
        size = -loss_slope(LOGISTIC_SHAPE, m, 1.0)
        step = (c + q * size - m) / (1.0 + q * size * (1.0 - size))
        m += step
        if abs(step) <= LAST_STEP * (1.0 + m):
            break
    return loss_slope(LOGISTIC_SHAPE, -y * m if is_below else y * m, y)


@compiled
def proximal_slope(loss: Any, z: float, q: float, y: float) -> Any:
    """Return the slope at z of the loss's Moreau envelope with parameter q."""
    if not math.isfinite(z):
        return math.nan
    if loss.kind == LOGISTIC:
        return _logistic_slope(z, q, y)
    softer = Shape(loss.kind, loss.low, loss.high, q + loss.softness, loss.epsilon)
    if loss.kind == LABELS:
        return y * rounded_off(softer, y * z - 1.0)[1]
    return rounded_off(softer, z - y)[1]


@compiled
def _ascended(given: Any, i: int, product: float, theta: Any, w: Any, rests: Any) -> Any:
    """Move one slope to its best, and the intercept; return the factor of the row in w's change."""
    share = given.shares[i] if given.shares.size > 0 else 1.0 / given.y.size
    margin = product + w[w.size - 1] if given.pull > 0.0 else product
    q = share * (given.squares[i] / given.l2 + given.pull)
    best = proximal_slope(given.loss, margin + q * theta[i], q, given.y[i])
    fall = share * (theta[i] - best)
    theta[i] = best
    if fall == 0.0:
        rest = min(2 * rests[1, i] + 1, given.longest_rest)
        rests[0, i], rests[1, i] = rest, rest
    else:
        rests[0, i], rests[1, i] = 0, 0
    if given.pull > 0.0:
        w[w.size - 1] += given.pull * fall
    return fall / given.l2


@kernel
def dense_ascent(X: Any, given: Any, theta: Any, w: Any, rests: Any, order: Any) -> None:
    """Go through the rows in this order."""
    for k in range(order.size):
        i = order[k]
        c = _ascended(given, i, row_product(X, i, w), theta, w, rests)
        if c != 0.0:
            add_row(X, i, c, w)


@kernel
def sparse_ascent(
    data: Any, indices: Any, indptr: Any, given: Any, theta: Any, w: Any, rests: Any, order: Any
) -> None:
    """Go through the rows in this order."""
    for k in range(order.size):
        look_ahead(data, indices, indptr, w, 1, order, k)
        i = order[k]
        start, stop = indptr[i], indptr[i + 1]
        margin = sparse_product(data, indices, start, stop, w)
        c = _ascended(given, i, margin, theta, w, rests)
        if c != 0.0:
            add_sparse_row(data, indices, start, stop, c, w)


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    none = read_only(np.empty(0))
    given = DualRows(none, none, none, LOGISTIC_SHAPE, 1.0, 0.0, 0)
    rest = (given, np.zeros(1), np.zeros(1), np.zeros((2, 1), dtype=np.uint8), NO_ROWS)
    for end, matrix in dense_layouts():
        yield Call(f"dual ascent, {end}", dense_ascent, (*matrix, *rest))
    for end, matrix in csr_layouts():
        yield Call(f"dual ascent, {end}", sparse_ascent, (*matrix, *rest))
