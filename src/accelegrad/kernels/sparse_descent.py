"""Steps of AdaGrad on CSR rows, O(nonzeros of the batch) each, exact up to rounding.

In coordinates relative to x0 there are two columns v and q: x = zeta v + zeta0 x0, and the sum of
the x is rho v + rho0 x0 + q. With g = g_s + l2 (x0 + x), where g_s is the sparse part of the
gradient, a step of length eta with the scaling c back into the ball is zeta+ = c (1 - eta l2) zeta,
zeta0+ = c (zeta0 - eta l2 (1 + zeta0)), rho += zeta, rho0 += zeta0, v += kappa g_s and
q -= kappa rho g_s with kappa = -c eta / zeta+. Where zeta has become small v is rescaled: see
`sparse_coupled`, of which this is the simple case.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.kernels.compile import compiled, kernel
from accelegrad.kernels.epochs import (
    GO,
    STOP,
    coefficient,
    over_root,
    record,
)
from accelegrad.kernels.sparse_rows import (
    BOOKS,
    OFFSET,
    REBASE,
    SHARE,
    SQUARES,
    SUMS,
    TARGET,
    gathered,
    look_ahead,
    note,
    scatter,
    visited,
    walk,
)

SMALLEST_SCALE, LARGEST_SCALE = 1e-4, 1e4  # of zeta; about 1e-16 / the first is lost
WIDTH = 2  # columns: v, q

#: All numbers that change. Those of the last line live within a step only.
DESCENT = record(
    [
        *SUMS,
        *("zeta", "zeta0", "rho", "rho0", "xx", "xx0", "xb", "sum_b"),
        *("next_zeta", "kappa_v", "kappa_q"),
    ],
    BOOKS,
)


@compiled
def _descend(s: Any, f: Any, vg: float, x0g: float, gg: float, gb: float) -> Any:
    """Do all of a step that is done by numbers, and leave the factors of g_s for the columns."""
    l2, xgs = f.l2, s.zeta * vg + s.zeta0 * x0g
    xg, x0g_all = xgs + l2 * (s.xx0 + s.xx), x0g + l2 * (f.x0x0 + s.xx0)
    gg += 2.0 * l2 * (x0g + xgs) + l2 * l2 * (f.x0x0 + 2.0 * s.xx0 + s.xx)
    squares = s.squares + gg + gb * gb
    if not math.isfinite(squares):
        return STOP
    s.squares = squares
    s.eta = over_root(f.scale, 2.0 * squares)
    s.sum_b += s.xb
    s.weight_sum += 1.0
    moved = max(s.xx - s.eta * (2.0 * xg - s.eta * gg), 0.0)
    xb = s.xb - s.eta * gb
    size = math.sqrt(moved + xb * xb)
    held = f.ball / size if size > f.ball else 1.0
    s.xb, s.xx = held * xb, held * held * moved
    s.xx0 = held * (s.xx0 - s.eta * x0g_all)
    s.rho += s.zeta
    s.rho0 += s.zeta0
    s.zeta0 = held * (s.zeta0 - s.eta * l2 * (1.0 + s.zeta0))
    return _scale(s, f, held)


@compiled
def _scale(s: Any, f: Any, held: float) -> int:
    """Move the coefficients, and choose kappa such that the columns follow."""
    zeta = held * (1.0 - s.eta * f.l2) * s.zeta
    if not SMALLEST_SCALE < abs(zeta) < LARGEST_SCALE:
        s.next_zeta, s.kappa_v, s.kappa_q = zeta, -held * s.eta, 0.0
        return REBASE
    s.zeta = zeta
    s.kappa_v = -held * s.eta / zeta
    s.kappa_q = -s.kappa_v * s.rho
    return GO


@compiled
def _rescale(s: Any, f: Any, columns: Any, flat: Any, seen: Any, rows: Any, x0: Any) -> Any:
    """Make v the part of x that the columns hold; return v.v and v.x0."""
    vv, vx0 = 0.0, 0.0
    touched = seen.touched
    for k in range(walk(s, seen, rows.indices, rows.indptr)):
        j = visited(s, touched, flat, WIDTH, k)
        columns[j, 1] += s.rho * columns[j, 0]
        v = s.next_zeta * columns[j, 0]
        columns[j, 0] = v
        vv += v * v
        vx0 += v * x0[j] if f.x0x0 > 0.0 else 0.0
    s.rebases += 1
    return vv, vx0


@compiled
def _measure(s: Any, f: Any, vg: float, x0g: float, gg: float, vv: float, vx0: float) -> None:
    """Set the inner products of x by those of v before g_s was added to it."""
    kappa = s.kappa_v
    vv += kappa * (2.0 * s.next_zeta * vg + kappa * gg)
    vx0 += kappa * x0g
    s.xx0 = vx0 + s.zeta0 * f.x0x0
    s.xx = vv + s.zeta0 * (vx0 + s.xx0)
    s.zeta, s.rho = 1.0, 0.0


@compiled
def _dot(columns: Any, data: Any, indices: Any, start: Any, stop: Any) -> float:
    """Return v.a for a row."""
    v = 0.0
    for e in range(start, stop):
        v += data[e] * columns[indices[e], 0]
    return v


@compiled
def _add(s: Any, columns: Any, entries: Any, indices: Any, start: Any, stop: Any, c: float) -> None:
    """Add the multiples of g_s, which is c times a row, to the columns."""
    v, q = c * s.kappa_v, c * s.kappa_q
    for e in range(start, stop):
        j, entry = indices[e], entries[e]
        columns[j, 0] += entry * v
        columns[j, 1] += entry * q


@kernel
def descent_steps(
    state: Any,
    fixed: Any,
    columns: Any,
    flat: Any,
    rows: Any,
    seen: Any,
    x0: Any,
    scratch: Any,
    order: Any,
    batch_size: int,
) -> Any:
    """Do a step for each batch and return how many were done.

    `flat` has the same memory as `columns`.
    """
    s, f = state[0], fixed[0]
    data, indices, indptr, table = rows
    total, listed, entries = scratch
    seen_rows, fresh = seen.rows, seen.fresh
    vv, vx0 = 0.0, 0.0
    for first in range(0, order.size, batch_size):
        size = min(batch_size, order.size - first)
        vg, x0g, c, count = 0.0, 0.0, 0.0, 0
        for k in range(first, first + size):
            look_ahead(data, indices, indptr, flat, WIDTH, order, k)
            i = order[k]
            start, stop, offset = indptr[i], indptr[i + 1], table[i, OFFSET]
            v = _dot(columns, data, indices, start, stop)
            m = s.zeta * v + (1.0 + s.zeta0) * offset + f.x0b + s.xb
            ci = coefficient(f, m, table[i, TARGET], table[i, SHARE] / size)
            vg, x0g, c = vg + ci * v, x0g + ci * offset, c + ci
            if size > 1 and ci != 0.0:
                count = scatter(data, indices, start, stop, ci, total, listed, count)
        alone = size == 1
        gg = c * c * table[i, SQUARES] if alone else gathered(total, listed, entries, count)
        action = _descend(s, f, vg, x0g, gg, c * f.intercept)
        if action == STOP:
            return first // batch_size
        note(s, seen_rows, fresh, order, first, size)
        if action == REBASE:
            vv, vx0 = _rescale(s, f, columns, flat, seen, rows, x0)
        if alone and c != 0.0:
            _add(s, columns, data, indices, start, stop, c)
        elif not alone:
            _add(s, columns, entries, listed, np.uint64(0), np.uint64(count), 1.0)
        if action == REBASE:
            _measure(s, f, vg, x0g, gg, vv, vx0)
        s.iteration += 1
    return -(-order.size // batch_size)
