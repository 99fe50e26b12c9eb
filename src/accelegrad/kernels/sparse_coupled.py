"""Steps of AcceleGrad and AdaGrad on CSR rows, O(nonzeros of the batch) each, exact up to rounding.

A step of AcceleGrad moves z, y and a weighted sum, and with an l2 term every coordinate of them.
But all that is not sparse is a linear combination of the same few vectors, so only coefficients
change. From x0 = 0, with the columns U = [v w], q and s,

    z = U zeta,    sum of the weighted y = U rho   + q,
    y = U ups,     S = sum of w_t g_t    = U sigma + s,

where S, from which the radius follows, is that of the distance-free rule, and zero for the others.
With x = tau z + (1 - tau) y = U xi and g = g_s + l2 x, where g_s is the sparse part of the
gradient, a step of length eta with the scaling c back into the ball is

    zeta+ = c (zeta - alpha eta l2 xi),    ups+ = (1 - eta l2) xi,    sigma+ = sigma + w l2 xi,

and then U += g_s kappa' with kappa.zeta+ = -c alpha eta and kappa.ups+ = -eta. So that the sums
stay what they are, q -= (kappa.rho) g_s and s += (w - kappa.sigma+) g_s; at last rho += weight
ups+. Norms and inner products of z, y and S follow from expanding the squares: they are kept as
numbers.

AdaGrad is the case alpha = tau = 1 in which y and w stay zero, ups = (0, 1), and rho += zeta before
the step, since its average is that of the points where gradients are taken.

Where zeta+ and ups+ are nearly parallel kappa explodes; then the columns are *rebased*: v becomes
U zeta+, w becomes U ups+, q and s take up U rho and U sigma, and the inner products are computed
anew. That costs a pass over all columns. It is rare: with tau about 4 / t it happens whenever t has
grown tenfold, and where ||S||^2, which is divided by, has lost its digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels.compile import Call, announces, compiled, csr_layouts, kernel
from accelegrad.kernels.epochs import (
    FIXED,
    NO_ROWS,
    TRUST,
    Epochs,
    coefficient,
    importance,
    importance_weight,
    over_root,
    reach_of,
    record,
)
from accelegrad.kernels.gradient import Data
from accelegrad.kernels.sparse_rows import look_ahead

SMALLEST_DETERMINANT = 1e-4  # of the coefficients of z and y; about 1e-16 / this is lost
LARGEST_COEFFICIENT = 1e4  # the same for coefficients that grow
LARGEST_FALL = 1e-4  # of a square that is kept by expansion, before it is computed from scratch
WIDTH = 4  # columns v, w, q, s
LINE = 64  # bytes of a cache line
TARGET, SHARE, SQUARES = range(3)  # columns of the table of rows: y_i, n p_i, ||a_i||^2

#: All numbers that change: sums, coefficients, inner products, and the intercept's parts, relative
#: to x0; `peak` is the largest ||S||^2 since it was last computed.
COUPLED = record(
    [
        *("squares", "eta", "weight_sum", "radius", "evidence", "peak"),
        *("zeta1", "zeta2", "ups1", "ups2", "rho1", "rho2", "sigma1", "sigma2"),
        *("zz", "zy", "yy", "ss", "sz", "sy", "zb", "yb", "sum_b", "sb"),
    ],
    ["iteration", "rebases"],
)


class CsrRows(NamedTuple):
    """The CSR matrix, and a table of numbers for each row, which lie together in the memory.

    Indices are unsigned: the loops then need no test for negative numbers.
    """

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    table: Vector


class Scratch(NamedTuple):
    """The gradient of a batch: `total` is zero between steps."""

    total: Vector
    columns: npt.NDArray[Any]
    entries: Vector


def aligned(rows: int, columns: int) -> Vector:
    """Return zeros such that no row straddles two cache lines, in memory that is there already."""
    flat = np.empty(rows * columns + LINE // 8)
    flat.fill(0.0)
    first = -(flat.ctypes.data // 8) % (LINE // 8)
    return flat[first : first + rows * columns].reshape(rows, columns)


@compiled
def _scatter(
    data: Any, indices: Any, start: int, stop: int, c: float, total: Any, listed: Any, count: int
) -> int:
    """Add c a_i to the batch's gradient; return how many columns are listed.

    A column is listed again where its total had come to zero: see `_gathered`.
    """
    for e in range(start, stop):
        j = indices[e]
        if total[j] == 0.0:
            listed[count] = j
            count += 1
        total[j] += c * data[e]
    return count


@compiled
def _gathered(total: Any, listed: Any, entries: Any, count: int) -> float:
    """Move the totals to the list, zero for a column's second listing; return ||g_s||^2."""
    squares = 0.0
    for k in range(count):
        j = listed[k]
        entry = total[j]
        total[j] = 0.0
        entries[k] = entry
        squares += entry * entry
    return squares


class Dots(NamedTuple):
    """The inner products of the columns v, w and s and of g_s with g_s."""

    v: float
    w: float
    s: float
    itself: float


@compiled
def _weigh(s: Any, f: Any, alpha: float, x: Any, gx: float, gs: float, gg: float, gb: float) -> Any:
    """Add the gradient to the evidence N and to S, and let the radius grow; return its weight.

    Parameters are those of `_step`, and the products of x, S and g with g.
    """
    xi1, xi2, xb = x
    w = alpha * s.radius * s.radius
    s.ss = max(s.ss + w * (2.0 * gs + w * gg), 0.0)
    s.peak = max(s.peak, s.ss)
    s.sb += w * gb
    s.sigma1 += w * f.l2 * xi1
    s.sigma2 += w * f.l2 * xi2
    s.evidence -= w * (gx + gb * xb)
    proven = over_root(s.evidence, s.ss + s.sb * s.sb)
    s.radius = min(max(s.radius, TRUST * proven), f.cap)
    return w


@compiled
def _rebase(
    s: Any, columns: Any, g: Any, turned: Any, step_z: float, step_y: float, step_s: float
) -> None:
    """Make U the part of [z y] that the columns hold, and find the products of z, y and S.

    The columns get the multiples step_z, step_y and step_s of g_s after that.
    """
    zeta1, zeta2, ups1, ups2 = turned
    zz, zy, yy, ss, sz, sy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(columns.shape[0]):
        v, w = columns[j, 0], columns[j, 1]
        z, y = zeta1 * v + zeta2 * w, ups1 * v + ups2 * w
        total = columns[j, 3] + s.sigma1 * v + s.sigma2 * w
        columns[j, 0], columns[j, 1], columns[j, 3] = z, y, total
        columns[j, 2] += s.rho1 * v + s.rho2 * w
        zz += z * z
        zy += z * y
        yy += y * y
        ss += total * total
        sz += total * z
        sy += total * y
    zg, yg = zeta1 * g.v + zeta2 * g.w, ups1 * g.v + ups2 * g.w
    sg = g.s + s.sigma1 * g.v + s.sigma2 * g.w
    s.zz = zz + step_z * (2.0 * zg + step_z * g.itself)
    s.zy = zy + step_z * yg + step_y * (zg + step_z * g.itself)
    s.yy = yy + step_y * (2.0 * yg + step_y * g.itself)
    s.ss = ss + step_s * (2.0 * sg + step_s * g.itself)
    s.peak = max(ss, s.ss)
    s.sz = sz + step_s * zg + step_z * (sg + step_s * g.itself)
    s.sy = sy + step_s * yg + step_y * (sg + step_s * g.itself)
    s.rho1 = s.rho2 = s.sigma1 = s.sigma2 = 0.0
    s.rebases += 1


@compiled
def _step(s: Any, f: Any, columns: Any, alpha: float, x: Any, g: Any, gb: float) -> Any:
    """Do all of a step that is done by numbers; return the factors of g_s for the columns.

    Parameters are the state, the settings, the columns, alpha, the coefficients of x, the `Dots`
    with g_s, and the intercept's part of the gradient. The first of what is returned says whether
    the gradient is finite; if it is not, nothing has changed.
    """
    coupled = f.coupled != 0
    xi1, xi2, xb = x
    tau = 1.0 / alpha
    rest = 1.0 - tau
    # The products of z, x, S and g with g = g_s + l2 x.
    zx, yx, sx = tau * s.zz + rest * s.zy, tau * s.zy + rest * s.yy, tau * s.sz + rest * s.sy
    xx, sparse_x = tau * zx + rest * yx, xi1 * g.v + xi2 * g.w
    gz = s.zeta1 * g.v + s.zeta2 * g.w + f.l2 * zx
    gx = sparse_x + f.l2 * xx
    gs = s.sigma1 * g.v + s.sigma2 * g.w + g.s + f.l2 * sx
    gg = g.itself + 2.0 * f.l2 * sparse_x + f.l2 * f.l2 * xx
    squares = s.squares + alpha * alpha * (gg + gb * gb)
    if not math.isfinite(squares):
        return False, (0.0, 0.0, 0.0, 0.0)
    s.squares = squares
    scale, reach, weight = reach_of(s, f, alpha)
    eta = over_root(scale, f.squared_bound + squares if coupled else 2.0 * squares)
    move, shrink = alpha * eta, eta * f.l2
    moved = max(s.zz - 2.0 * move * gz + move * move * gg, 0.0)
    zb = s.zb - move * gb
    size = math.sqrt(moved + zb * zb)
    held = reach / size if size > reach else 1.0
    s.zb, s.zz = held * zb, held * held * moved
    s.eta, s.weight_sum, s.iteration = eta, s.weight_sum + weight, s.iteration + 1
    zeta1, zeta2 = held * (s.zeta1 - alpha * shrink * xi1), held * (s.zeta2 - alpha * shrink * xi2)
    step_z, step_y, step_s = -held * move, 0.0, 0.0
    ups1, ups2 = s.ups1, s.ups2
    if coupled:
        s.zy = held * (zx - eta * gz - move * (gx - eta * gg))
        s.yy = max(xx - eta * (2.0 * gx - eta * gg), 0.0)
        s.yb = xb - eta * gb
        s.sum_b += weight * s.yb
        ups1, ups2 = (1.0 - shrink) * xi1, (1.0 - shrink) * xi2
        step_y = -eta
    else:
        s.sum_b += xb
        s.rho1 += s.zeta1
        weight = 0.0
    if f.tracked:
        step_s = _weigh(s, f, alpha, x, gx, gs, gg, gb)
        s.sz = held * (s.sz - move * gs + step_s * (gz - move * gg))
        s.sy = sx - eta * gs + step_s * (gx - eta * gg)
    determinant = zeta1 * ups2 - zeta2 * ups1
    largest = max(max(abs(zeta1), abs(zeta2)), max(abs(ups1), abs(ups2)))
    lost = abs(determinant) < SMALLEST_DETERMINANT or largest > LARGEST_COEFFICIENT
    if lost or s.ss < LARGEST_FALL * s.peak:
        _rebase(s, columns, g, (zeta1, zeta2, ups1, ups2), step_z, step_y, step_s)
        s.zeta1, s.zeta2, s.ups1, s.ups2, s.rho2 = 1.0, 0.0, 0.0, 1.0, weight
        return True, (step_z, step_y, 0.0, step_s)
    kappa_v = (step_z * ups2 - step_y * zeta2) / determinant
    kappa_w = (step_y * zeta1 - step_z * ups1) / determinant
    kappa_q = -(kappa_v * s.rho1 + kappa_w * s.rho2)
    kappa_s = step_s - (kappa_v * s.sigma1 + kappa_w * s.sigma2)
    s.zeta1, s.zeta2, s.ups1, s.ups2 = zeta1, zeta2, ups1, ups2
    s.rho1 += weight * ups1
    s.rho2 += weight * ups2
    return True, (kappa_v, kappa_w, kappa_q, kappa_s)


@compiled
def _add(
    columns: Any, entries: Any, indices: Any, start: Any, stop: Any, c: float, kappa: Any
) -> None:
    """Add the multiples of g_s, which is c times some entries, to the columns."""
    v, w, q, s = kappa
    v, w, q, s = c * v, c * w, c * q, c * s
    for e in range(start, stop):
        j, entry = indices[e], entries[e]
        columns[j, 0] += entry * v
        columns[j, 1] += entry * w
        columns[j, 2] += entry * q
        columns[j, 3] += entry * s


@kernel
def coupled_steps(
    state: Any,
    fixed: Any,
    columns: Any,
    flat: Any,
    rows: Any,
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
    for first in range(0, order.size, batch_size):
        size = min(batch_size, order.size - first)
        alpha = importance(s.iteration) if f.coupled else 1.0
        rest = 1.0 - 1.0 / alpha
        xi1, xi2 = s.zeta1 + rest * (s.ups1 - s.zeta1), s.zeta2 + rest * (s.ups2 - s.zeta2)
        xb = s.zb + rest * (s.yb - s.zb)
        vg, wg, sg, c, count = 0.0, 0.0, 0.0, 0.0, 0
        for k in range(first, first + size):
            look_ahead(data, indices, indptr, flat, WIDTH, order, k)
            i = order[k]
            start, stop = indptr[i], indptr[i + 1]
            v, w, t = 0.0, 0.0, 0.0
            for e in range(start, stop):
                j, entry = indices[e], data[e]
                v += entry * columns[j, 0]
                w += entry * columns[j, 1]
                t += entry * columns[j, 3]
            m = xi1 * v + xi2 * w + xb + f.x0b
            ci = coefficient(f, m, table[i, TARGET], table[i, SHARE] / size)
            vg, wg, sg, c = vg + ci * v, wg + ci * w, sg + ci * t, c + ci
            if size > 1 and ci != 0.0:
                count = _scatter(data, indices, start, stop, ci, total, listed, count)
        alone = size == 1
        gg = c * c * table[i, SQUARES] if alone else _gathered(total, listed, entries, count)
        g = Dots(vg, wg, sg, gg)
        finite, kappa = _step(s, f, columns, alpha, (xi1, xi2, xb), g, c * f.intercept)
        if not finite:
            return first // batch_size
        if alone and c != 0.0:
            _add(columns, data, indices, start, stop, c, kappa)
        elif not alone:
            _add(columns, entries, listed, np.uint64(0), np.uint64(count), 1.0, kappa)
    return -(-order.size // batch_size)


class SparseEpochs(Epochs):
    """Steps of a rule on CSR rows from x0 = 0, but for an intercept, each O(nonzeros of its batch).

    Columns may come in any order in a row, and more than once.

    Parameters
    ----------
    kind, data, x0, **settings
        As for `Epochs`.
    squares : array
        ||a_i||^2 for each row.

    References
    ----------
    Those of the rules. That weights and their average can be kept up in O(nonzeros) by scalars and
    few vectors is known for SGD: L. Bottou, Stochastic Gradient Descent Tricks, 2012; W. Xu,
    arXiv:1107.2490, 2011. The extension to coupled sequences is accelegrad's.
    """

    numbers_type = COUPLED

    def __init__(
        self, kind: str, data: Data, x0: Vector, *, squares: Vector, **settings: Any
    ) -> None:
        super().__init__(kind, data, x0, **settings)
        d, dtype = x0.size - self.fit_intercept, data.matrix[1].dtype
        assert not x0[:d].any()
        self._scratch = Scratch(np.zeros(d), np.empty(0, dtype), np.empty(0))
        table = aligned(data.y.size, 4)
        table[:, TARGET], table[:, SHARE], table[:, SQUARES] = data.y, self._row_weights, squares
        self._rows = CsrRows._make([*data.matrix, table])
        self.points = aligned(d, WIDTH)
        self.numbers["zeta1"] = self.numbers["ups2"] = 1.0

    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        if batch_size > 1 and rows.size:
            self._make_room(rows, batch_size)
        flat = self.points.reshape(-1)  # here, since kernels take seconds to compile it
        arrays = (self.points, flat, self._rows, self._scratch)
        return int(coupled_steps(self._state, self._fixed, *arrays, rows, batch_size))

    def _make_room(self, rows: npt.NDArray[np.int64], batch_size: int) -> None:
        """Let the scratch hold the largest batch."""
        lengths = np.diff(self._rows.indptr).astype(np.int64)[rows]
        most = int(np.add.reduceat(lengths, np.arange(0, rows.size, batch_size)).max())
        if most > self._scratch.entries.size:
            listed = np.empty(most, self._scratch.columns.dtype)
            self._scratch = Scratch(self._scratch.total, listed, np.empty(most))

    def query(self) -> Vector:
        """Return the point where the next gradient is wanted, a new array."""
        z, y = self._sum("zeta1", "zeta2", "zb"), self._sum("ups1", "ups2", "yb")
        rest = 1.0 - 1.0 / importance_weight(self.iteration) if self.coupled else 0.0
        return self.x0 + z + rest * (y - z)

    def output(self) -> Vector:
        """Return the average that the rule's theorem speaks of, a new array."""
        if self.iteration == 0:
            return self.x0.copy()
        total = self._sum("rho1", "rho2", "sum_b")
        total[: len(self.points)] += self.points[:, 2]
        return self.x0 + total / float(self.numbers["weight_sum"])

    def last(self) -> Vector:
        """Return the last iterate, y of AcceleGrad and x of AdaGrad, a new array."""
        return self.x0 + self._sum("ups1", "ups2", "yb") if self.coupled else self.query()

    def _sum(self, first: str, second: str, intercept: str) -> Vector:
        """Return v and w times two coefficients, and the intercept relative to x0."""
        s = self.numbers
        total: Vector = s[first] * self.points[:, 0] + s[second] * self.points[:, 1]
        return np.append(total, s[intercept]) if self.fit_intercept else total


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    vector, table = np.zeros(1), aligned(1, 4)
    for end, matrix in csr_layouts():
        scratch = Scratch(vector, np.empty(0, matrix[1].dtype), vector)
        arrays = (table, table.reshape(-1), CsrRows._make([*matrix, table]), scratch, NO_ROWS, 1)
        numbers = (np.zeros(1, COUPLED), np.zeros(1, FIXED))
        yield Call(f"epochs, {end}", coupled_steps, (*numbers, *arrays))
