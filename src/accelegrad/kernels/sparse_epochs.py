"""Stochastic steps on CSR rows that cost O(nonzeros of the batch), exact up to rounding.

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
q -= (kappa.rho) g_s and s += (w - kappa.sigma+) g_s; at last rho += weight ups+. All that is left,
norms and inner products of z, y and S, follows from expanding the squares: they are kept as
numbers.

Where zeta+ and ups+ are nearly parallel kappa explodes; then the columns are *rebased*: v becomes
U zeta+, w becomes U ups+, q and s take up U rho and U sigma, and the inner products are computed
anew. That costs a pass over the columns seen so far, which are kept track of by rows, so that it
stays O(nonzeros seen) however many columns there are; and it is rare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector, real_array
from accelegrad.kernels.epochs import (
    REACH,
    STEP,
    TRUST,
    Epochs,
    compiled,
    importance,
    over_root,
    same_shape,
    slope,
)

STOP, GO, REBASE = 0, 1, 2
SMALLEST_DETERMINANT = 1e-4  # of the coefficients of z and y; about 1e-16 / this is lost
LARGEST_COEFFICIENT = 1e4
LARGEST_FALL = 1e-4  # of a squared norm kept by expansion since it was computed from the columns
DENSE_SHARE = 4  # from a quarter of all columns on, a rebase walks through all in order

_SETTINGS = [
    "l2",
    "scale",
    "squared_bound",
    "ball",
    "cap",
    "x0x0",
    "x0b",
    "loss_parameter",
    "intercept",
]
_BOOKS = ["iteration", "rebases", "fresh", "touched", "dense"]
_SUMS = ["squares", "eta", "weight_sum"]
_COUPLED = [
    *("zeta1", "zeta2", "zeta0", "ups1", "ups2", "ups0"),
    *("rho1", "rho2", "rho0", "sigma1", "sigma2", "sigma0"),
    *("zz", "zy", "yy", "zx0", "yx0", "ss", "sz", "sy", "sx0"),
    *("zb", "yb", "sum_b", "sb"),
    *("radius", "evidence", "peak_z", "peak_y", "peak_s"),
]
_COUPLED_STEP = [
    *("alpha", "tau", "weight", "xi1", "xi2", "xi0", "xb"),
    *("next_zeta1", "next_zeta2", "next_ups1", "next_ups2"),
    *("kappa_v", "kappa_w", "kappa_q", "kappa_s"),
]
_DESCENT = ["zeta", "zeta0", "rho", "rho0", "xx", "xx0", "xb", "sum_b", "peak"]
_DESCENT_STEP = ["next_zeta", "kappa_v", "kappa_q"]


def _record(floats: list[str], integers: list[str]) -> np.dtype[np.void]:
    return np.dtype([(name, "f8") for name in floats] + [(name, "i8") for name in integers])


FIXED = _record(_SETTINGS, ["loss", "tracked"])
COUPLED = _record(_SUMS + _COUPLED + _COUPLED_STEP, _BOOKS)
DESCENT = _record(_SUMS + _DESCENT + _DESCENT_STEP, _BOOKS)


class Rows(NamedTuple):
    """The CSR matrix (indices without sign, which are faster) and one number a row."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[np.int64]
    y: Vector
    shares: Vector
    offsets: Vector  # x0.a_i
    squares: Vector  # ||a_i||^2


class Seen(NamedTuple):
    """Which rows were used, and which columns may hold anything but zero."""

    rows: npt.NDArray[np.uint8]
    fresh: npt.NDArray[np.int64]  # rows used since the last rebase
    columns: npt.NDArray[np.uint8]
    touched: npt.NDArray[Any]


class Scratch(NamedTuple):
    """The gradient of a batch: `total` is zero between steps."""

    total: Vector
    columns: npt.NDArray[Any]
    entries: Vector


# -- what both families share ----------------------------------------------------------------------


@compiled
def _row_squares(data: Any, indices: Any, indptr: Any, total: Any) -> Any:
    """Return ||a_i||^2, also where a column comes more than once in a row."""
    squares = np.zeros(indptr.size - 1)
    for i in range(squares.size):
        for e in range(indptr[i], indptr[i + 1]):
            total[indices[e]] += data[e]
        for e in range(indptr[i], indptr[i + 1]):
            squares[i] += total[indices[e]] ** 2
            total[indices[e]] = 0.0
    return squares


@compiled
def _row_products(data: Any, indices: Any, indptr: Any, x: Any) -> Any:
    """Return a_i.x."""
    products = np.zeros(indptr.size - 1)
    for i in range(products.size):
        for e in range(indptr[i], indptr[i + 1]):
            products[i] += data[e] * x[indices[e]]
    return products


@compiled
def _note(s: Any, seen: Any, i: int) -> None:
    """Take note of a row that is used."""
    if s.dense == 0 and seen.rows[i] == 0:
        seen.rows[i] = 1
        seen.fresh[s.fresh] = i
        s.fresh += 1


@compiled
def _walk(s: Any, seen: Any, rows: Any) -> None:
    """Add the columns of the fresh rows to those touched."""
    for k in range(s.fresh):
        i = seen.fresh[k]
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            j = rows.indices[e]
            if seen.columns[j] == 0:
                seen.columns[j] = 1
                seen.touched[s.touched] = j
                s.touched += 1
    s.fresh = 0
    if DENSE_SHARE * s.touched > seen.columns.size:
        s.dense = 1


@compiled
def _scatter(rows: Any, i: int, c: float, scratch: Any, count: int) -> int:
    """Add c a_i to the batch's gradient; return how many columns are listed.

    A column is listed again where its total had come to zero: see `_gathered`.
    """
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        j = rows.indices[e]
        if scratch.total[j] == 0.0:
            scratch.columns[count] = j
            count += 1
        scratch.total[j] += c * rows.data[e]
    return count


@compiled
def _gathered(scratch: Any, count: int) -> float:
    """Move the totals to the list, zero for a column's second listing; return ||g_s||^2."""
    squares = 0.0
    for k in range(count):
        j = scratch.columns[k]
        entry = scratch.total[j]
        scratch.total[j] = 0.0
        scratch.entries[k] = entry
        squares += entry * entry
    return squares


@compiled
def _coefficient(f: Any, rows: Any, i: int, m: float, size: int) -> float:
    """Return the row's factor in the gradient of a batch, NaN where the margin is not finite."""
    if not math.isfinite(m):
        return math.nan
    share = rows.shares[i] * (rows.y.size / size)
    return share * slope(f.loss, f.loss_parameter, m, rows.y[i])


# -- AcceleGrad and its distance-free form ---------------------------------------------------------


class Products(NamedTuple):
    """The inner products with a gradient, or with its sparse part, over the features."""

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
def _products(s: Any, f: Any, vg: float, wg: float, sg: float, x0g: float, gg: float) -> Any:
    """Return the inner products with g = g_s + l2 (x0 + x) from those of the columns with g_s."""
    tau, rest, l2 = s.tau, 1.0 - s.tau, f.l2
    zx, yx = tau * s.zz + rest * s.zy, tau * s.zy + rest * s.yy
    xx, xx0 = tau * zx + rest * yx, tau * s.zx0 + rest * s.yx0
    z = s.zeta1 * vg + s.zeta2 * wg + s.zeta0 * x0g
    x = s.xi1 * vg + s.xi2 * wg + s.xi0 * x0g
    total = s.sigma1 * vg + s.sigma2 * wg + s.sigma0 * x0g + sg
    return Products(
        z + l2 * (s.zx0 + zx),
        x + l2 * (xx0 + xx),
        x0g + l2 * (f.x0x0 + xx0),
        total + l2 * (s.sx0 + tau * s.sz + rest * s.sy),
        gg + 2.0 * l2 * (x0g + x) + l2 * l2 * (f.x0x0 + 2.0 * xx0 + xx),
    )


@compiled
def _couple(s: Any, f: Any, g: Any, gb: float) -> int:
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
    if lost or _fallen(s, f):
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
def _fallen(s: Any, f: Any) -> bool:
    """Tell whether a squared norm has lost digits: it was much larger when last computed."""
    if f.tracked:
        s.peak_s = max(s.peak_s, s.ss)
        if s.ss < LARGEST_FALL * s.peak_s:
            return True
    if f.l2 == 0.0 and not f.tracked and f.ball == math.inf:
        return False  # nothing depends on them
    s.peak_z, s.peak_y = max(s.peak_z, s.zz), max(s.peak_y, s.yy)
    return s.zz < LARGEST_FALL * s.peak_z or (f.l2 > 0.0 and s.yy < LARGEST_FALL * s.peak_y)


@compiled
def _rebase_at(s: Any, columns: Any, j: int) -> None:
    """Rebase one coordinate."""
    v, w = columns[j, 0], columns[j, 1]
    columns[j, 0] = s.next_zeta1 * v + s.next_zeta2 * w
    columns[j, 1] = s.next_ups1 * v + s.next_ups2 * w
    columns[j, 2] += s.rho1 * v + s.rho2 * w
    columns[j, 3] += s.sigma1 * v + s.sigma2 * w


@compiled
def _rebase(s: Any, columns: Any, seen: Any, rows: Any) -> None:
    """Make U the part of [z y] that the columns hold."""
    if s.dense == 0:
        _walk(s, seen, rows)
    if s.dense == 0:
        for k in range(s.touched):
            _rebase_at(s, columns, seen.touched[k])
    else:
        for j in range(columns.shape[0]):
            _rebase_at(s, columns, j)
    s.zeta1, s.zeta2, s.ups1, s.ups2 = 1.0, 0.0, 0.0, 1.0
    s.rho1, s.rho2, s.sigma1, s.sigma2 = 0.0, s.weight, 0.0, 0.0
    s.rebases += 1


@compiled
def _add_products(total: Any, columns: Any, j: int, x0: float) -> None:
    """Add what one coordinate gives to the inner products of v, w, s and x0."""
    v, w, s = columns[j, 0], columns[j, 1], columns[j, 3]
    total[0] += v * v
    total[1] += v * w
    total[2] += w * w
    total[3] += v * x0
    total[4] += w * x0
    total[5] += s * s
    total[6] += s * v
    total[7] += s * w
    total[8] += s * x0


@compiled
def _recompute(s: Any, f: Any, columns: Any, seen: Any, x0: Any) -> None:
    """Compute the inner products from columns that have just been rebased."""
    p = np.zeros(9)
    if s.dense == 0:
        for k in range(s.touched):
            _add_products(p, columns, seen.touched[k], x0[seen.touched[k]])
    else:
        for j in range(columns.shape[0]):
            _add_products(p, columns, j, x0[j])
    a, b, c = s.zeta0, s.ups0, s.sigma0
    s.zx0, s.yx0, s.sx0 = p[3] + a * f.x0x0, p[4] + b * f.x0x0, p[8] + c * f.x0x0
    s.zz = p[0] + a * (p[3] + s.zx0)
    s.zy = p[1] + b * p[3] + a * s.yx0
    s.yy = p[2] + b * (p[4] + s.yx0)
    s.ss = p[5] + c * (p[8] + s.sx0)
    s.sz = p[6] + a * p[8] + c * s.zx0
    s.sy = p[7] + b * p[8] + c * s.yx0
    s.peak_z, s.peak_y, s.peak_s = s.zz, s.yy, s.ss


@compiled
def _dot(f: Any, columns: Any, rows: Any, i: int) -> Any:
    """Return v.a_i, w.a_i and s.a_i."""
    v, w, s = 0.0, 0.0, 0.0
    if f.tracked:
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            j, entry = rows.indices[e], rows.data[e]
            v += entry * columns[j, 0]
            w += entry * columns[j, 1]
            s += entry * columns[j, 3]
    else:
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            j, entry = rows.indices[e], rows.data[e]
            v += entry * columns[j, 0]
            w += entry * columns[j, 1]
    return v, w, s


@compiled
def _margin(s: Any, f: Any, rows: Any, i: int, v: float, w: float) -> float:
    """Return a_i.(x0 + x) and the intercept."""
    return s.xi1 * v + s.xi2 * w + (1.0 + s.xi0) * rows.offsets[i] + f.x0b + s.xb


@compiled
def _add_row(s: Any, f: Any, columns: Any, rows: Any, i: int, c: float) -> None:
    """Add the multiples of g_s = c a_i to the columns."""
    v, w, q, t = c * s.kappa_v, c * s.kappa_w, c * s.kappa_q, c * s.kappa_s
    if f.tracked:
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            j, entry = rows.indices[e], rows.data[e]
            columns[j, 0] += entry * v
            columns[j, 1] += entry * w
            columns[j, 2] += entry * q
            columns[j, 3] += entry * t
    else:
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            j, entry = rows.indices[e], rows.data[e]
            columns[j, 0] += entry * v
            columns[j, 1] += entry * w
            columns[j, 2] += entry * q


@compiled
def _add_gathered(s: Any, columns: Any, scratch: Any, count: int) -> None:
    """Add the multiples of the batch's g_s to the columns."""
    v, w, q, t = s.kappa_v, s.kappa_w, s.kappa_q, s.kappa_s
    for k in range(count):
        j, entry = scratch.columns[k], scratch.entries[k]
        columns[j, 0] += entry * v
        columns[j, 1] += entry * w
        columns[j, 2] += entry * q
        columns[j, 3] += entry * t


@compiled
def _single(s: Any, f: Any, columns: Any, rows: Any, seen: Any, x0: Any, i: int) -> bool:
    """Do a step with one row; return False where it is not finite."""
    v, w, t = _dot(f, columns, rows, i)
    c = _coefficient(f, rows, i, _margin(s, f, rows, i, v, w), 1)
    g = _products(s, f, c * v, c * w, c * t, c * rows.offsets[i], c * c * rows.squares[i])
    action = _couple(s, f, g, c * f.intercept)
    if action == STOP:
        return False
    _note(s, seen, i)
    if action == REBASE:
        _rebase(s, columns, seen, rows)
    if c != 0.0:
        _add_row(s, f, columns, rows, i, c)
    if action == REBASE:
        _recompute(s, f, columns, seen, x0)
    return True


@compiled
def _batch(
    s: Any, f: Any, columns: Any, rows: Any, seen: Any, x0: Any, scratch: Any, batch: Any
) -> bool:
    """Do a step with several rows; return False where it is not finite."""
    vg, wg, sg, x0g, total, count = 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for i in batch:
        v, w, t = _dot(f, columns, rows, i)
        c = _coefficient(f, rows, i, _margin(s, f, rows, i, v, w), batch.size)
        if c != 0.0:
            vg, wg, sg, x0g = vg + c * v, wg + c * w, sg + c * t, x0g + c * rows.offsets[i]
            total += c
            count = _scatter(rows, i, c, scratch, count)
    g = _products(s, f, vg, wg, sg, x0g, _gathered(scratch, count))
    action = _couple(s, f, g, total * f.intercept)
    if action == STOP:
        return False
    for i in batch:
        _note(s, seen, i)
    if action == REBASE:
        _rebase(s, columns, seen, rows)
    _add_gathered(s, columns, scratch, count)
    if action == REBASE:
        _recompute(s, f, columns, seen, x0)
    return True


@compiled
def coupled_steps(
    state: Any,
    fixed: Any,
    columns: Any,
    rows: Any,
    seen: Any,
    x0: Any,
    scratch: Any,
    order: Any,
    batch_size: int,
) -> int:
    """Do a step for each batch and return how many were done."""
    s, f = state[0], fixed[0]
    for start in range(0, order.size, batch_size):
        batch = order[start : start + batch_size]
        _locate(s)
        if batch.size == 1:
            finite = _single(s, f, columns, rows, seen, x0, batch[0])
        else:
            finite = _batch(s, f, columns, rows, seen, x0, scratch, batch)
        if not finite:
            return start // batch_size
        s.iteration += 1
    return -(-order.size // batch_size)


# -- AdaGrad ---------------------------------------------------------------------------------------
#
# With one sequence there are two columns: x = zeta v + zeta0 x0, sum of the x = rho v + rho0 x0 + q.


@compiled
def _descend(s: Any, f: Any, vg: float, x0g: float, gg: float, gb: float) -> int:
    """Do all of a step that is done by numbers, as `_couple` does."""
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
    s.peak = max(s.peak, s.xx)
    fallen = (f.l2 > 0.0 or f.ball < math.inf) and s.xx < LARGEST_FALL * s.peak
    if fallen or not SMALLEST_DETERMINANT < abs(zeta) < LARGEST_COEFFICIENT:
        s.next_zeta, s.kappa_v, s.kappa_q = zeta, -held * s.eta, 0.0
        return REBASE
    s.zeta = zeta
    s.kappa_v = -held * s.eta / zeta
    s.kappa_q = -s.kappa_v * s.rho
    return GO


@compiled
def _rescale(s: Any, columns: Any, seen: Any, rows: Any) -> None:
    """Make v the part of x that the columns hold."""
    if s.dense == 0:
        _walk(s, seen, rows)
    for k in range(columns.shape[0] if s.dense else s.touched):
        j = np.int64(k) if s.dense else np.int64(seen.touched[k])
        columns[j, 1] += s.rho * columns[j, 0]
        columns[j, 0] *= s.next_zeta
    s.zeta, s.rho = 1.0, 0.0
    s.rebases += 1


@compiled
def _remeasure(s: Any, f: Any, columns: Any, seen: Any, x0: Any) -> None:
    """Compute the inner products from columns that have just been rescaled."""
    vv, vx0 = 0.0, 0.0
    for k in range(columns.shape[0] if s.dense else s.touched):
        j = np.int64(k) if s.dense else np.int64(seen.touched[k])
        vv += columns[j, 0] * columns[j, 0]
        vx0 += columns[j, 0] * x0[j]
    s.xx0 = vx0 + s.zeta0 * f.x0x0
    s.xx = vv + s.zeta0 * (vx0 + s.xx0)
    s.peak = s.xx


@compiled
def _descent_row(s: Any, f: Any, columns: Any, rows: Any, i: int) -> Any:
    """Return v.a_i and the margin of a row."""
    v = 0.0
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        v += rows.data[e] * columns[rows.indices[e], 0]
    return v, s.zeta * v + (1.0 + s.zeta0) * rows.offsets[i] + f.x0b + s.xb


@compiled
def _descent_gradient(s: Any, f: Any, columns: Any, rows: Any, scratch: Any, batch: Any) -> Any:
    """Return v.g_s, x0.g_s, the intercept's part, and the number of entries in the scratch."""
    vg, x0g, total, count = 0.0, 0.0, 0.0, 0
    for i in batch:
        v, m = _descent_row(s, f, columns, rows, i)
        c = _coefficient(f, rows, i, m, batch.size)
        vg, x0g, total = vg + c * v, x0g + c * rows.offsets[i], total + c
        if batch.size > 1 and c != 0.0:
            count = _scatter(rows, i, c, scratch, count)
    return vg, x0g, total, count


@compiled
def descent_steps(
    state: Any,
    fixed: Any,
    columns: Any,
    rows: Any,
    seen: Any,
    x0: Any,
    scratch: Any,
    order: Any,
    batch_size: int,
) -> int:
    """Do a step for each batch and return how many were done."""
    s, f = state[0], fixed[0]
    for start in range(0, order.size, batch_size):
        batch = order[start : start + batch_size]
        vg, x0g, c, count = _descent_gradient(s, f, columns, rows, scratch, batch)
        gg = c * c * rows.squares[batch[0]] if batch.size == 1 else _gathered(scratch, count)
        action = _descend(s, f, vg, x0g, gg, c * f.intercept)
        if action == STOP:
            return start // batch_size
        for i in batch:
            _note(s, seen, i)
        if action == REBASE:
            _rescale(s, columns, seen, rows)
        if batch.size == 1:
            _add_descent_row(s, columns, rows, batch[0], c)
        else:
            _add_descent_gathered(s, columns, scratch, count)
        if action == REBASE:
            _remeasure(s, f, columns, seen, x0)
        s.iteration += 1
    return -(-order.size // batch_size)


@compiled
def _add_descent_row(s: Any, columns: Any, rows: Any, i: int, c: float) -> None:
    """Add the multiples of g_s = c a_i to the columns."""
    v, q = c * s.kappa_v, c * s.kappa_q
    for e in range(rows.indptr[i], rows.indptr[i + 1]):
        j, entry = rows.indices[e], rows.data[e]
        columns[j, 0] += entry * v
        columns[j, 1] += entry * q


@compiled
def _add_descent_gathered(s: Any, columns: Any, scratch: Any, count: int) -> None:
    """Add the multiples of the batch's g_s to the columns."""
    for k in range(count):
        j, entry = scratch.columns[k], scratch.entries[k]
        columns[j, 0] += entry * s.kappa_v
        columns[j, 1] += entry * s.kappa_q


# -- the class -------------------------------------------------------------------------------------


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
    loss : str
        The name of a loss of `accelegrad.problems.losses`.
    loss_parameter : float
        Its quantile, epsilon or delta.
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
    The rules' own. That weights and their average can be kept up in O(nonzeros) by scalars and
    few vectors is known for SGD: L. Bottou, Stochastic Gradient Descent Tricks, 2012; W. Xu,
    arXiv:1107.2490, 2011. The extension to coupled sequences is accelegrad's own.
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
        self._coupled = kind != "adagrad"
        d, dtype = self.n_features, _unsigned(indices).dtype
        self._features = np.ascontiguousarray(self.x0[:d])
        self._fixed = self._fixed_numbers()
        self._scratch = Scratch(np.zeros(d), np.empty(0, dtype), np.empty(0))
        self._rows = self._matrix(data, indices, indptr)
        self._columns = _aligned(d, 4 if self._coupled else 2)
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

    def _matrix(self, data: Any, indices: Any, indptr: Any) -> Rows:
        data, indices, indptr = real_array("data", data), _unsigned(indices), np.asarray(indptr)
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
        squares = _row_squares(data, indices, indptr, self._scratch.total)
        offsets = np.zeros(self.n_samples)
        if self._features.any():
            offsets = _row_products(data, indices, indptr, self._features)
        return Rows(data, indices, indptr, *self.targets, offsets, squares)

    def _fixed_numbers(self) -> npt.NDArray[np.void]:
        own = self.settings
        fixed = np.zeros(1, FIXED)
        fixed["l2"], fixed["loss"] = own.l2, own.loss
        fixed["loss_parameter"], fixed["intercept"] = own.loss_parameter, own.fit_intercept
        fixed["scale"] = STEP * own.diameter if self._coupled else own.diameter
        fixed["squared_bound"] = own.gradient_bound**2
        fixed["ball"], fixed["cap"] = own.ball_radius, own.largest_radius
        fixed["x0x0"] = self._features @ self._features
        fixed["x0b"] = self.x0[-1] if own.fit_intercept else 0.0
        fixed["tracked"] = own.kind == "distance_free"
        return fixed

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
        lengths = np.diff(self._rows.indptr)[rows]
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

    def snapshot(self) -> dict[str, Any]:
        """Return the fields of the rule's own state, as numbers and new dense arrays."""
        s = self.numbers
        weight = float(s["weight_sum"])
        common = {
            "iteration": self.iteration,
            "step_size": self.step_size,
            "weighted_sum": self._weighted_sum() + weight * self.x0,
            "weight_sum": weight,
        }
        if not self._coupled:
            return {"point": self.query(), "squares": float(s["squares"]), **common}
        fields = {
            "query_point": self.query(),
            "mirror_point": self._point(s["zeta0"], s["zb"], s["zeta1"], s["zeta2"]),
            "gradient_point": self.last(),
            "weighted_squares": float(s["squares"]),
            **common,
        }
        if self.settings.kind == "distance_free":
            fields |= {
                "start": self.x0.copy(),
                "start_value": -math.inf,
                "radius": self.radius,
                "evidence": float(s["evidence"]),
                "gradient_sum": self._gradient_sum(),
            }
        return fields

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
    return array.view(np.uint32 if array.dtype == np.int32 else np.uint64)


def _aligned(rows: int, columns: int) -> Vector:
    """Return zeros such that no row straddles two cache lines."""
    line = 64 // 8
    flat = np.zeros(rows * columns + line)
    first = -(flat.ctypes.data // 8) % line
    return flat[first : first + rows * columns].reshape(rows, columns)
