"""Epochs of dual coordinate ascent on dense and CSR rows: see `accelegrad.solvers.dual_ascent`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.kernels.compile import Kernel, compiled
from accelegrad.kernels.loss_shape import Shape
from accelegrad.kernels.losses import logistic_slope, rounded_off
from accelegrad.kernels.rows import add_row, add_sparse_row, look_ahead, row_product, sparse_product


class DualRows(NamedTuple):
    """Targets, weights and squared norms of the rows, the loss and the regularisation."""

    y: Vector
    shares: Vector  # p_i, empty if equal
    squares: Vector  # ||a_i||^2
    loss: Shape | None
    l2: float
    pull: float  # 1 / rho for an intercept after the weights; 0: no intercept
    longest_rest: int  # in epochs


#: This many weights (256 KB) are in the cache anyway; looking ahead took a quarter of the time
#: (text), and not looking ahead 1.25 times as long with 200,000 weights.
FEW_WEIGHTS = 1 << 15
TRIALS = 60  # most Newton steps; from these starts ten are many
#: Relative size of the last step: Newton's error is at most half the square of the step.
LAST_STEP = 1e-5


@compiled
def _proximal_slope(loss: Any, z: float, q: float, y: float) -> Any:
    """Return t with t = l'(z - q t), the slope at z of the Moreau envelope with parameter q.

    For the logistic loss by Newton's method for y m, m = z - q t; other losses get a larger
    softness.
    """
    if not math.isfinite(z):
        return math.nan
    if loss is not None:
        softer = Shape(loss.kind, loss.low, loss.high, q + loss.softness, loss.epsilon)
        return rounded_off(softer, z, y)[1]
    # Root of m - c - q / (1 + e^m), which is concave above 0: steps from below never pass it.
    c = y * z
    is_below = c < -0.5 * q  # then its mirror image is above
    if is_below:
        c = -(c + q)
    m = max(c, 0.0)
    if q > 1.0:
        # e^m = q / (m - c) - 1, and m is at most ln q or, if e^m exceeds q, c + 1.
        ratio = q / (max(math.log(q), c + 1.0) - c)
        if ratio > 2.0:
            m = max(m, math.log(ratio - 1.0))
    for _ in range(TRIALS):
        size = -logistic_slope(m, 1.0)
        step = (c + q * size - m) / (1.0 + q * size * (1.0 - size))
        m += step
        if abs(step) <= LAST_STEP * (1.0 + m):
            break
    return logistic_slope(-y * m if is_below else y * m, y)


@compiled
def _ascended(given: Any, i: int, product: float, theta: Any, w: Any, rests: Any) -> Any:
    """Maximise over one slope and move the intercept; return the row's factor in w's change."""
    share = given.shares[i] if given.shares.size > 0 else 1.0 / given.y.size
    margin = product + w[w.size - 1] if given.pull > 0.0 else product
    q = share * (given.squares[i] / given.l2 + given.pull)
    best = _proximal_slope(given.loss, margin + q * theta[i], q, given.y[i])
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


@compiled
def _next_order(rests: Any, draws: Any, order: Any) -> Any:
    """Put the rows that do not rest in random order, return their number; shorten other rests."""
    count = 0
    for i in range(draws.size):
        if rests[0, i] == 0:
            order[count] = i
            count += 1
        else:
            rests[0, i] -= 1
    for last in range(count - 1, 0, -1):
        place = (np.uint64(draws[last]) * np.uint64(last + 1)) >> np.uint64(32)
        order[last], order[place] = order[place], order[last]
    return count


@Kernel
def ascent(
    X: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    given: Any,
    theta: Any,
    w: Any,
    rests: Any,
    draws: Any,
    order: Any,
) -> Any:
    """Do one epoch over X, or over a CSR matrix if X is None; return how many rows were read."""
    chosen = order[: _next_order(rests, draws, order)]
    for k in range(chosen.size):
        i = chosen[k]
        if X is not None:
            c = _ascended(given, i, row_product(X, i, w), theta, w, rests)
            if c != 0.0:
                add_row(X, i, c, w)
        if data is not None:
            if w.size > FEW_WEIGHTS:
                look_ahead(data, indices, indptr, w, 1, chosen, k)
            start, stop = indptr[i], indptr[i + 1]
            margin = sparse_product(data, indices, start, stop, w)
            c = _ascended(given, i, margin, theta, w, rests)
            if c != 0.0:
                add_sparse_row(data, indices, start, stop, c, w)
    return chosen.size
