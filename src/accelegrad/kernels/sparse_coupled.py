"""Steps of AcceleGrad and its distance-free form on CSR rows, O(nonzeros of the batch) each.

A step of AcceleGrad moves z, y and two weighted sums, and with an l2 term every coordinate of them.
But all that is not sparse is a linear combination of the same few vectors, so only coefficients
change. In coordinates relative to x0, with an array of four columns U = [v w], q and s:

    z = U zeta + zeta0 x0,    sum of the weighted y  = U rho   + rho0 x0   + q,
    y = U ups  + ups0 x0,     S = sum of w_t g_t     = U sigma + sigma0 x0 + s.

With x = tau z + (1 - tau) y = U xi + xi0 x0 and g = g_s + l2 (x0 + x), where g_s is the sparse part
of the gradient, a step of length eta with the scaling c back into the ball is

    zeta+ = c (zeta - alpha eta l2 xi),  ups+ = (1 - eta l2) xi,  sigma+ = sigma + w l2 xi,

the same with the coefficients of x0 (where x0 + x has 1 + xi0), and then U += g_s kappa' with
kappa.zeta+ = -c alpha eta and kappa.ups+ = -eta. So that the sums stay what they are,
q -= (kappa.rho) g_s and s += (w - kappa.sigma+) g_s; at last rho += weight ups+. All else,
norms and inner products of z, y and S, follows from expanding the squares: they are kept as
numbers.

Where zeta+ and ups+ are nearly parallel kappa explodes; then the columns are *rebased*: v becomes
U zeta+, w becomes U ups+, q and s take up U rho and U sigma, and the inner products are computed
anew. That costs a pass over the columns seen so far, which are kept track of by rows, so that it
stays O(nonzeros seen) however many columns there are; and it is rare.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from accelegrad.kernels.compile import compiled, kernel
from accelegrad.kernels.epochs import (
    GO,
    REACH,
    STEP,
    STOP,
    TRUST,
    coefficient,
    importance,
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

SMALLEST_DETERMINANT = 1e-4  # of the coefficients of z and y; about 1e-16 / this is lost
LARGEST_COEFFICIENT = 1e4
LARGEST_FALL = 1e-4  # of ||S||^2, which is kept by expansion, before it is computed from scratch
WIDTH = 4  # columns: v, w, q, s
PRODUCTS = 9  # inner products of columns and start

#: All numbers that change. Those of the last lines live within a step only.
COUPLED = record(
    [
        *SUMS,
        *("zeta1", "zeta2", "zeta0", "ups1", "ups2", "ups0"),
        *("rho1", "rho2", "rho0", "sigma1", "sigma2", "sigma0"),
        *("zz", "zy", "yy", "zx0", "yx0", "ss", "sz", "sy", "sx0"),
        *("zb", "yb", "sum_b", "sb"),  # the intercept's parts
        *("radius", "evidence", "peak"),
        *("alpha", "tau", "weight", "xi1", "xi2", "xi0", "xb"),
        *("next_zeta1", "next_zeta2", "next_ups1", "next_ups2"),
        *("kappa_v", "kappa_w", "kappa_q", "kappa_s"),
    ],
    BOOKS,
)


class Dots(NamedTuple):
    """The inner products of the columns, x0 and g_s with g_s."""

    v: float
    w: float
    s: float
    x0: float
    itself: float


class Products(NamedTuple):
    """The inner products of z, x, x0, S and g with g, over the features."""

    z: float
    x: float
    x0: float
    s: float
    itself: float


@compiled
def _locate(s: Any) -> None:
    """Find x = tau z + (1 - tau) y."""
    s.alpha = importance(s.iteration)
    s.tau = 1.0 / s.alpha
    rest = 1.0 - s.tau
    s.xi1 = s.zeta1 + rest * (s.ups1 - s.zeta1)
    s.xi2 = s.zeta2 + rest * (s.ups2 - s.zeta2)
    s.xi0 = s.zeta0 + rest * (s.ups0 - s.zeta0)
    s.xb = s.zb + rest * (s.yb - s.zb)


@compiled
def _products(s: Any, f: Any, g: Any) -> Any:
    """Return the inner products with g = g_s + l2 (x0 + x) from those of the columns with g_s."""
    tau, rest, l2 = s.tau, 1.0 - s.tau, f.l2
    zx, yx = tau * s.zz + rest * s.zy, tau * s.zy + rest * s.yy
    xx, xx0 = tau * zx + rest * yx, tau * s.zx0 + rest * s.yx0
    z = s.zeta1 * g.v + s.zeta2 * g.w + s.zeta0 * g.x0
    x = s.xi1 * g.v + s.xi2 * g.w + s.xi0 * g.x0
    total = s.sigma1 * g.v + s.sigma2 * g.w + s.sigma0 * g.x0 + g.s
    return Products(
        z + l2 * (s.zx0 + zx),
        x + l2 * (xx0 + xx),
        g.x0 + l2 * (f.x0x0 + xx0),
        total + l2 * (s.sx0 + tau * s.sz + rest * s.sy),
        g.itself + 2.0 * l2 * (g.x0 + x) + l2 * l2 * (f.x0x0 + 2.0 * xx0 + xx),
    )


@compiled
def _couple(s: Any, f: Any, g: Any, gb: float) -> Any:
    """Do all of a step that is done by numbers, and leave the factors of g_s for the columns.

    Parameters are the state, the settings, the products with the gradient, and the intercept's part
    of the gradient. Returns whether the columns have to be rebased first, or the step given up.
    """
    squares = s.squares + s.alpha * s.alpha * (g.itself + gb * gb)
    if not math.isfinite(squares):
        return STOP
    s.squares = squares
    s.eta = over_root(STEP * s.radius if f.tracked else f.scale, f.squared_bound + squares)
    move = s.alpha * s.eta
    moved = max(s.zz - 2.0 * move * g.z + move * move * g.itself, 0.0)
    zb = s.zb - move * gb
    size = math.sqrt(moved + zb * zb)
    reach = REACH * s.radius if f.tracked else f.ball
    held = reach / size if size > reach else 1.0
    s.weight = s.alpha
    if f.tracked:
        s.weight *= s.radius
        _weigh(s, f, g, gb, held)
    _expand(s, g, held, held * held * moved)
    s.zb = held * zb
    s.yb = s.xb - s.eta * gb
    s.sum_b += s.weight * s.yb
    s.weight_sum += s.weight
    return _turn(s, f, held)


@compiled
def _weigh(s: Any, f: Any, g: Any, gb: float, held: float) -> None:
    """Add the gradient to the evidence N and to S, and let the radius grow."""
    w = s.alpha * s.radius * s.radius
    move = s.alpha * s.eta
    sx = s.tau * s.sz + (1.0 - s.tau) * s.sy
    s.sz = held * (s.sz - move * g.s + w * (g.z - move * g.itself))
    s.sy = sx - s.eta * g.s + w * (g.x - s.eta * g.itself)
    s.sx0 += w * g.x0
    s.ss = max(s.ss + w * (2.0 * g.s + w * g.itself), 0.0)
    s.sb += w * gb
    s.sigma1 += w * f.l2 * s.xi1
    s.sigma2 += w * f.l2 * s.xi2
    s.sigma0 += w * f.l2 * (1.0 + s.xi0)
    s.kappa_s = w
    s.evidence -= w * (g.x + gb * s.xb)
    proven = over_root(s.evidence, s.ss + s.sb * s.sb)
    s.radius = min(max(s.radius, TRUST * proven), f.cap)


@compiled
def _expand(s: Any, g: Any, held: float, zz: float) -> None:
    """Update the inner products of z, y and x0."""
    tau, rest, eta = s.tau, 1.0 - s.tau, s.eta
    move = s.alpha * eta
    zx, yx = tau * s.zz + rest * s.zy, tau * s.zy + rest * s.yy
    xx, xx0 = tau * zx + rest * yx, tau * s.zx0 + rest * s.yx0
    s.zz = zz
    s.zy = held * (zx - eta * g.z - move * (g.x - eta * g.itself))
    s.yy = max(xx - eta * (2.0 * g.x - eta * g.itself), 0.0)
    s.zx0 = held * (s.zx0 - move * g.x0)
    s.yx0 = xx0 - eta * g.x0


@compiled
def _turn(s: Any, f: Any, held: float) -> int:
    """Move the coefficients, and choose kappa such that the columns follow."""
    move, shrink = s.alpha * s.eta, s.eta * f.l2
    step_z, step_y = -held * move, -s.eta
    zeta1 = held * (s.zeta1 - s.alpha * shrink * s.xi1)
    zeta2 = held * (s.zeta2 - s.alpha * shrink * s.xi2)
    ups1, ups2 = (1.0 - shrink) * s.xi1, (1.0 - shrink) * s.xi2
    s.zeta0 = held * (s.zeta0 - s.alpha * shrink * (1.0 + s.xi0))
    s.ups0 = s.xi0 - shrink * (1.0 + s.xi0)
    s.rho0 += s.weight * s.ups0
    determinant = zeta1 * ups2 - zeta2 * ups1
    largest = max(max(abs(zeta1), abs(zeta2)), max(abs(ups1), abs(ups2)))
    lost = abs(determinant) < SMALLEST_DETERMINANT or largest > LARGEST_COEFFICIENT
    if lost or _fallen(s):
        s.next_zeta1, s.next_zeta2, s.next_ups1, s.next_ups2 = zeta1, zeta2, ups1, ups2
        s.kappa_v, s.kappa_w, s.kappa_q = step_z, step_y, 0.0
        return REBASE
    s.kappa_v = (step_z * ups2 - step_y * zeta2) / determinant
    s.kappa_w = (step_y * zeta1 - step_z * ups1) / determinant
    s.kappa_q = -(s.kappa_v * s.rho1 + s.kappa_w * s.rho2)
    s.kappa_s -= s.kappa_v * s.sigma1 + s.kappa_w * s.sigma2
    s.zeta1, s.zeta2, s.ups1, s.ups2 = zeta1, zeta2, ups1, ups2
    s.rho1 += s.weight * ups1
    s.rho2 += s.weight * ups2
    return GO


@compiled
def _fallen(s: Any) -> Any:
    """Tell whether ||S||^2 has lost digits, as it was much larger when last computed.

    It is divided by. What z.z and y.y lose does not matter: it is little beside the squared radius
    that z.z is compared with, and beside the sum of squares to which l2^2 x.x is added.
    """
    s.peak = max(s.peak, s.ss)
    return s.ss < LARGEST_FALL * s.peak


@compiled
def _rebase(s: Any, f: Any, columns: Any, flat: Any, seen: Any, rows: Any, x0: Any, p: Any) -> None:
    """Make U the part of [z y] that the columns hold; leave the products of the columns in p."""
    touched = seen.touched
    for place in range(p.size):
        p[place] = 0.0
    for k in range(walk(s, seen, rows.indices, rows.indptr)):
        j = visited(s, touched, flat, WIDTH, k)
        v, w = columns[j, 0], columns[j, 1]
        z = s.next_zeta1 * v + s.next_zeta2 * w
        y = s.next_ups1 * v + s.next_ups2 * w
        total = columns[j, 3] + s.sigma1 * v + s.sigma2 * w
        columns[j, 0], columns[j, 1], columns[j, 3] = z, y, total
        columns[j, 2] += s.rho1 * v + s.rho2 * w
        start = x0[j] if f.x0x0 > 0.0 else 0.0
        p[0] += z * z
        p[1] += z * y
        p[2] += y * y
        p[3] += z * start
        p[4] += y * start
        p[5] += total * total
        p[6] += total * z
        p[7] += total * y
        p[8] += total * start
    s.rebases += 1


@compiled
def _measure(s: Any, f: Any, g: Any, p: Any) -> None:
    """Set the inner products of z, y and S by those of the columns before g_s was added to them."""
    v, w, t = s.kappa_v, s.kappa_w, s.kappa_s
    vg, wg = s.next_zeta1 * g.v + s.next_zeta2 * g.w, s.next_ups1 * g.v + s.next_ups2 * g.w
    tg = g.s + s.sigma1 * g.v + s.sigma2 * g.w
    a, b, c = s.zeta0, s.ups0, s.sigma0
    vx0, wx0, tx0 = p[3] + v * g.x0, p[4] + w * g.x0, p[8] + t * g.x0
    s.zx0, s.yx0, s.sx0 = vx0 + a * f.x0x0, wx0 + b * f.x0x0, tx0 + c * f.x0x0
    s.zz = p[0] + v * (2.0 * vg + v * g.itself) + a * (vx0 + s.zx0)
    s.zy = p[1] + v * wg + w * (vg + v * g.itself) + b * vx0 + a * s.yx0
    s.yy = p[2] + w * (2.0 * wg + w * g.itself) + b * (wx0 + s.yx0)
    s.ss = p[5] + t * (2.0 * tg + t * g.itself) + c * (tx0 + s.sx0)
    s.sz = p[6] + t * vg + v * (tg + t * g.itself) + a * tx0 + c * s.zx0
    s.sy = p[7] + t * wg + w * (tg + t * g.itself) + b * tx0 + c * s.yx0
    s.peak = max(p[5], s.ss)
    s.zeta1, s.zeta2, s.ups1, s.ups2 = 1.0, 0.0, 0.0, 1.0
    s.rho1, s.rho2, s.sigma1, s.sigma2 = 0.0, s.weight, 0.0, 0.0


@compiled
def _dot(f: Any, columns: Any, data: Any, indices: Any, start: Any, stop: Any) -> Any:
    """Return v.a, w.a and s.a for a row."""
    v, w, s = 0.0, 0.0, 0.0
    if f.tracked:
        for e in range(start, stop):
            j, entry = indices[e], data[e]
            v += entry * columns[j, 0]
            w += entry * columns[j, 1]
            s += entry * columns[j, 3]
    else:
        for e in range(start, stop):
            j, entry = indices[e], data[e]
            v += entry * columns[j, 0]
            w += entry * columns[j, 1]
    return v, w, s


@compiled
def _add(
    s: Any, f: Any, columns: Any, entries: Any, indices: Any, start: Any, stop: Any, c: float
) -> None:
    """Add the multiples of g_s, which is c times a row, to the columns."""
    v, w, q, t = c * s.kappa_v, c * s.kappa_w, c * s.kappa_q, c * s.kappa_s
    if f.tracked:
        for e in range(start, stop):
            j, entry = indices[e], entries[e]
            columns[j, 0] += entry * v
            columns[j, 1] += entry * w
            columns[j, 2] += entry * q
            columns[j, 3] += entry * t
    else:
        for e in range(start, stop):
            j, entry = indices[e], entries[e]
            columns[j, 0] += entry * v
            columns[j, 1] += entry * w
            columns[j, 2] += entry * q


@kernel
def coupled_steps(
    state: Any,
    fixed: Any,
    columns: Any,
    flat: Any,
    rows: Any,
    seen: Any,
    x0: Any,
    scratch: Any,
    p: Any,
    order: Any,
    batch_size: int,
) -> Any:
    """Do a step for each batch and return how many were done.

    `flat` has the same memory as `columns`, and `p` has room for `PRODUCTS` numbers.
    """
    s, f = state[0], fixed[0]
    data, indices, indptr, table = rows
    total, listed, entries = scratch
    seen_rows, fresh = seen.rows, seen.fresh
    for first in range(0, order.size, batch_size):
        size = min(batch_size, order.size - first)
        _locate(s)
        vg, wg, sg, x0g, c, count = 0.0, 0.0, 0.0, 0.0, 0.0, 0
        for k in range(first, first + size):
            look_ahead(data, indices, indptr, flat, WIDTH, order, k)
            i = order[k]
            start, stop, offset = indptr[i], indptr[i + 1], table[i, OFFSET]
            v, w, t = _dot(f, columns, data, indices, start, stop)
            m = s.xi1 * v + s.xi2 * w + (1.0 + s.xi0) * offset + f.x0b + s.xb
            ci = coefficient(f, m, table[i, TARGET], table[i, SHARE] / size)
            vg, wg, sg, x0g, c = vg + ci * v, wg + ci * w, sg + ci * t, x0g + ci * offset, c + ci
            if size > 1 and ci != 0.0:
                count = scatter(data, indices, start, stop, ci, total, listed, count)
        alone = size == 1
        gg = c * c * table[i, SQUARES] if alone else gathered(total, listed, entries, count)
        g = Dots(vg, wg, sg, x0g, gg)
        action = _couple(s, f, _products(s, f, g), c * f.intercept)
        if action == STOP:
            return first // batch_size
        note(s, seen_rows, fresh, order, first, size)
        if action == REBASE:
            _rebase(s, f, columns, flat, seen, rows, x0, p)
        if alone and c != 0.0:
            _add(s, f, columns, data, indices, start, stop, c)
        elif not alone:
            _add(s, f, columns, entries, listed, np.uint64(0), np.uint64(count), 1.0)
        if action == REBASE:
            _measure(s, f, g, p)
        s.iteration += 1
    return -(-order.size // batch_size)
