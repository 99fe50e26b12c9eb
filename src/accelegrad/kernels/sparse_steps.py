"""Steps of AcceleGrad and AdaGrad on CSR rows, O(nonzeros of the batch) each, exact up to rounding.

A step of AcceleGrad moves z, y and a weighted sum, with an l2 term in every coordinate. But all
that is not sparse is a linear combination of a few vectors, so that only coefficients change. With
vectors relative to x0, and the columns U = [v w], q and s,

    z = U zeta + zeta0 x0,    sum of the weighted y + x0  = U rho   + rho0 x0   + q,
    y = U ups  + ups0 x0,     S = sum of w_t g_t          = U sigma + sigma0 x0 + s,

where S gives the radius of the distance-free rule and is zero for the others. With
x = tau z + (1 - tau) y = U xi + xi0 x0 and g = g_s + l2 (x0 + x), g_s the sparse part of the
gradient, a step of length eta with the scaling c back into the ball is

    zeta+ = c (zeta - alpha eta l2 xi),    ups+ = (1 - eta l2) xi,    sigma+ = sigma + w_t l2 xi,

and similarly for the coefficients of x0. Then U += g_s kappa' with kappa.zeta+ = -c alpha eta and
kappa.ups+ = -eta, and q and s get the multiples of g_s that preserve the sums. Norms and inner
products of z, y, S and x0 follow by expanding squares.

AdaGrad is the case alpha = tau = 1 in which y and w stay zero, ups = (0, 1), and rho += zeta before
the step, since its average is over the points of the gradients.

If zeta+ and ups+ are nearly parallel, kappa explodes; then the columns are *rebased*: v becomes z,
w becomes y, q and s the sums, and inner products are recomputed, in a pass over all columns. This
is rare: whenever t has grown tenfold (tau is about 4 / t), and when ||S||^2 has lost its digits.

`partial_fit` runs in scaled coordinates v with weights w = s v, where the l2 term is
l2 s_j^2 / 2 v_j^2. Columns of one scale share one *level* of coefficients and inner products. All
vectors are kept times s, so that rows and inner products with gradients need no scaling; other
products are divided by s^2. An intercept is a last column of ones with its own level.

There are K sets of coefficients: of one problem with several classes, or of K problems (one class
against the rest), each with its own numbers, on the same rows.

References
----------
For SGD, keeping weights and their average in O(nonzeros) by scalars and few vectors is known: L.
Bottou, Stochastic Gradient Descent Tricks, 2012; W. Xu, arXiv:1107.2490, 2011. The extension to
coupled sequences is accelegrad's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels import read_only
from accelegrad.kernels.compile import compiled, kernel
from accelegrad.kernels.rows import look_ahead, prefetch
from accelegrad.kernels.steps import (
    TRUST,
    Chunk,
    Settings,
    Steps,
    coefficient,
    importance,
    importance_weight,
    over_root,
    reach_of,
    record,
    set_loss,
)

#: Columns are rebased if the determinant of the coefficients of z and y is below this, a
#: coefficient above its inverse, or ||S||^2 has fallen by this factor: about 1e-16 / this is lost.
LOST = 1e-4

#: What changes from step to step; `peak` is the largest ||S||^2 since it was last computed. The
#: second line is used within a step only: sums over the levels.
NUMBERS = record(
    [
        *("squares", "eta", "weight_sum", "radius", "evidence", "peak"),
        *("zz", "gz", "gx", "gg", "gs", "ss"),
    ],
    ["iteration", "rebases"],
)
#: Numbers of a level. Those of the last line are used within a step only: the coefficients of x,
#: and the products of z, x, x0, S and g with g.
LEVEL = record(
    [
        *("square", "l2", "x0x0"),
        *("zeta1", "zeta2", "zeta0", "ups1", "ups2", "ups0"),
        *("rho1", "rho2", "rho0", "sigma1", "sigma2", "sigma0"),
        *("zz", "zy", "yy", "zx0", "yx0", "ss", "sz", "sy", "sx0"),
        *("xi1", "xi2", "xi0", "gz", "gx", "gx0", "gs", "gg"),
    ],
    [],
)


class Room(NamedTuple):
    """Memory for a step: K numbers for each field of a level, and for each column of a batch.

    Flat vectors, since one index is faster than three. Kernels unpack it before loops, as each
    access would count references.
    """

    at: Vector  # the coefficients of x, for each level: of v, w and x0
    dots: Vector  # products of v, w, s, x0 and g_s with g_s, the sparse part of the gradient
    factors: Vector  # of g_s for v, w, q and s
    slopes: Vector  # of a row
    free: Vector  # the sum of slopes: the intercept's entry of g_s
    gradient: Vector  # g_s, for the columns of a batch
    listed: npt.NDArray[np.uint64]  # the columns of a batch
    place: npt.NDArray[np.uint32]  # the last place of each column in that list


def _room(n_columns: int, K: int, n_levels: int, entries: int) -> Room:
    at, dots, factors = (np.empty(n_levels * fields * K) for fields in (3, 5, 4))
    return Room(
        at,
        dots,
        factors,
        slopes=np.empty(K),
        free=np.empty(K),
        gradient=np.zeros((entries + 1) * K),  # an intercept is one more
        listed=np.empty(entries + 2, np.uint64),
        place=np.zeros(n_columns, np.uint32),
    )


@compiled
def _locate(K: int, own: int, g: int, s: Any, f: Any, levels: Any, at: Any, dots: Any) -> None:
    """Compute x = tau z + (1 - tau) y of problem g, and clear its products with the gradient."""
    rest = 1.0 - 1.0 / importance(s.iteration) if f.coupled else 0.0
    for n in range(levels.shape[1]):
        c = levels[g, n]
        c.xi1 = c.zeta1 + rest * (c.ups1 - c.zeta1)
        c.xi2 = c.zeta2 + rest * (c.ups2 - c.zeta2)
        c.xi0 = c.zeta0 + rest * (c.ups0 - c.zeta0)
        for k in range(g * own, (g + 1) * own):
            at[3 * n * K + k], at[(3 * n + 1) * K + k] = c.xi1, c.xi2
            at[(3 * n + 2) * K + k] = 1.0 + c.xi0
            for field in range(5):
                dots[(5 * n + field) * K + k] = 0.0


@compiled
def _softmax(K: int, margins: Any, target: int, share: float) -> None:
    """Replace the margins of a row by its factors in the gradient of several classes."""
    largest, whole = margins[0], 0.0
    for k in range(1, K):
        largest = max(largest, margins[k])
    for k in range(K):
        margins[k] = math.exp(margins[k] - largest)
        whole += margins[k]
    for k in range(K):
        margins[k] *= share / whole
    margins[target] -= share


@compiled
def _gradient(
    K: int, joint: bool, f: Any, points: Any, rows: Any, room: Any, order: Any, first: int, end: int
) -> Any:
    """Write the sparse part of the gradient of a batch; return how many columns it has."""
    # No functions for parts of this: each call would count references to all arrays.
    _, level, _, flat, x0 = points
    data, indices, indptr, targets, weights = rows
    at, dots, _, slopes, free, gradient, listed, place = room
    one, two, three, four = np.uint64(K), np.uint64(2 * K), np.uint64(3 * K), np.uint64(4 * K)
    last, last_level = np.uint64(4 * (level.size - 1) * K), np.uint64(at.size - 3 * K)
    count, shifted = np.uint64(0), x0.size > 0
    for k in range(K):
        free[k] = 0.0
    for position in range(first, end):
        look_ahead(data, indices, indptr, flat, 4 * K, order, position)
        if position + 1 < order.size:  # the rest of what the next row's columns hold
            i = order[position + 1]
            for e in range(indptr[i], indptr[i + 1]):
                for k in range(8, 4 * K, 8):
                    prefetch(flat, four * np.uint64(indices[e]) + np.uint64(k))
        i = order[position]
        begin, stop = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        for k in range(one):
            slopes[k] = 0.0
            if f.intercept:
                slopes[k] = at[last_level + k] * flat[last + k]
                slopes[k] += at[last_level + one + k] * flat[last + one + k]
                if shifted:
                    slopes[k] += at[last_level + two + k] * x0[level.size - 1, k]
        first_margin = slopes[0]  # in a register: alone it would wait for memory
        for e in range(begin, stop):
            entry, j = data[e], np.uint64(indices[e])
            n, c = three * np.uint64(level[j]), four * j
            for k in range(one):
                found = at[n + k] * flat[c + k] + at[n + one + k] * flat[c + one + k]
                if shifted:
                    found += at[n + two + k] * x0[j, k]
                if K == 1:
                    first_margin += entry * found
                else:
                    slopes[k] += entry * found
        if K == 1:
            slopes[0] = first_margin
        share = weights[i] / (end - first)
        if joint:
            _softmax(K, slopes, int(targets[i, 0]), share)
        else:
            for k in range(K):
                slopes[k] = coefficient(f, slopes[k], targets[i, k], share)
        for k in range(one):
            free[k] += slopes[k]
        for e in range(begin, stop):
            entry, j = data[e], np.uint64(indices[e])
            where = np.uint64(place[j])
            known = (where < count) & (listed[where] == j)
            where = where if known else count
            place[j], listed[where] = where, j
            count += np.uint64(1) - np.uint64(known)
            before = 1.0 if known else 0.0
            where *= one
            for k in range(one):
                gradient[where + k] = before * gradient[where + k] + entry * slopes[k]
    if f.intercept:  # the last column
        listed[count] = np.uint64(level.size - 1)
        for k in range(one):
            gradient[one * count + k] = free[k]
        count += np.uint64(1)
    for entry in range(count):
        j = listed[entry]
        n, c, g = np.uint64(5 * K) * np.uint64(level[j]), four * j, one * entry
        for k in range(one):
            dots[n + k] += gradient[g + k] * flat[c + k]
            dots[n + one + k] += gradient[g + k] * flat[c + one + k]
            dots[n + two + k] += gradient[g + k] * flat[c + three + k]
            dots[n + four + k] += gradient[g + k] * gradient[g + k]
        if shifted:
            for k in range(one):
                dots[n + three + k] += gradient[g + k] * x0[j, k]
    return count


@compiled
def _add(K: int, flat: Any, level: Any, room: Any, count: int) -> None:
    """Add the multiples of g_s to the columns."""
    factors, gradient, listed = room.factors, room.gradient, room.listed
    one, size = np.uint64(K), np.uint64(4 * K)
    for where in range(count):
        j = listed[where]
        n, c = size * np.uint64(level[j]), size * j
        for field in range(np.uint64(0), size, one):
            for k in range(one):
                flat[c + field + k] += factors[n + field + k] * gradient[one * where + k]


@compiled
def _products(K: int, own: int, g: int, s: Any, f: Any, levels: Any, dots: Any) -> Any:
    """Compute the products with the gradient of problem g; tell whether they are finite."""
    alpha = importance(s.iteration) if f.coupled else 1.0
    tau, rest = 1.0 / alpha, 1.0 - 1.0 / alpha
    s.zz = s.gz = s.gx = s.gg = s.gs = s.ss = 0.0
    for n in range(levels.shape[1]):
        c = levels[g, n]
        v, w, total, start, itself = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range((5 * n) * K + g * own, (5 * n) * K + (g + 1) * own):
            v, w, total = v + dots[k], w + dots[k + K], total + dots[k + 2 * K]
            start, itself = start + dots[k + 3 * K], itself + dots[k + 4 * K]
        zx, yx = tau * c.zz + rest * c.zy, tau * c.zy + rest * c.yy
        xx, xx0 = tau * zx + rest * yx, tau * c.zx0 + rest * c.yx0
        x = c.xi1 * v + c.xi2 * w + c.xi0 * start
        c.gz = c.zeta1 * v + c.zeta2 * w + c.zeta0 * start + c.l2 * (c.zx0 + zx)
        c.gx = x + c.l2 * (xx0 + xx)
        c.gx0 = start + c.l2 * (c.x0x0 + xx0)
        c.gs = c.sigma1 * v + c.sigma2 * w + c.sigma0 * start + total
        c.gs += c.l2 * (c.sx0 + tau * c.sz + rest * c.sy)
        c.gg = c.square * itself + 2.0 * c.l2 * (start + x)
        c.gg += c.l2 * c.l2 * (c.x0x0 + 2.0 * xx0 + xx)
        s.zz, s.gz, s.gx = s.zz + c.zz, s.gz + c.gz, s.gx + c.gx
        s.gg, s.gs, s.ss = s.gg + c.gg, s.gs + c.gs, s.ss + c.ss
    return math.isfinite(s.squares + alpha * alpha * s.gg)


@compiled
def _couple(K: int, own: int, g: int, s: Any, f: Any, levels: Any, factors: Any) -> Any:
    """Do the scalar part of problem g's step; return whether to rebase before using the factors."""
    coupled = f.coupled != 0
    alpha = importance(s.iteration) if coupled else 1.0
    tau, rest = 1.0 / alpha, 1.0 - 1.0 / alpha
    scale, reach, weight = reach_of(s, f, alpha)
    s.squares += alpha * alpha * s.gg
    eta = over_root(scale, f.squared_bound + s.squares if coupled else 2.0 * s.squares)
    step = alpha * eta
    away = max(s.zz - 2.0 * step * s.gz + step * step * s.gg, 0.0)
    held = 1.0 if away <= reach * reach else over_root(reach, away)
    heavier, lost = 0.0, False
    if f.tracked:
        heavier = weight * s.radius
        ss = max(s.ss + 2.0 * heavier * s.gs + heavier * heavier * s.gg, 0.0)
        s.peak = max(s.peak, ss)
        s.evidence -= heavier * s.gx
        s.radius = min(max(s.radius, TRUST * over_root(s.evidence, ss)), f.cap)
        # ||S||^2 is a divisor: when it has become much smaller, it has lost its digits.
        lost = ss < LOST * s.peak
    s.eta = eta
    s.weight_sum += weight
    s.iteration += 1
    step_z, step_y, step_q = -held * step, 0.0, 0.0
    if coupled:
        step_y, step_q = -eta, -weight * eta
    for n in range(levels.shape[1]):
        c = levels[g, n]
        shrink = eta * c.l2
        c.zeta1 = held * (c.zeta1 - alpha * shrink * c.xi1)
        c.zeta2 = held * (c.zeta2 - alpha * shrink * c.xi2)
        c.zeta0 = held * (c.zeta0 - alpha * shrink * (1.0 + c.xi0))
        zx, xx0, sx = c.zz, c.zx0, c.sz
        if coupled:
            zx, yx = tau * c.zz + rest * c.zy, tau * c.zy + rest * c.yy
            xx, xx0 = tau * zx + rest * yx, tau * c.zx0 + rest * c.yx0
            sx = tau * c.sz + rest * c.sy
            c.zy = held * (zx - eta * c.gz - step * (c.gx - eta * c.gg))
            c.yy = max(xx - eta * (2.0 * c.gx - eta * c.gg), 0.0)
            c.yx0 = xx0 - eta * c.gx0
            c.ups1, c.ups2 = (1.0 - shrink) * c.xi1, (1.0 - shrink) * c.xi2
            c.ups0 = c.xi0 - shrink * (1.0 + c.xi0)
            c.rho1 += weight * c.ups1
            c.rho2 += weight * c.ups2
            c.rho0 += weight * (1.0 + c.ups0)
        else:
            c.rho1 += c.xi1
            c.rho0 += 1.0 + c.xi0
        c.zz = held * held * max(c.zz - 2.0 * step * c.gz + step * step * c.gg, 0.0)
        c.zx0 = held * (c.zx0 - step * c.gx0)
        if f.tracked:
            c.sz = held * (c.sz - step * c.gs + heavier * (c.gz - step * c.gg))
            c.sy = sx - eta * c.gs + heavier * (c.gx - eta * c.gg)
            c.sx0 += heavier * c.gx0
            c.ss = max(c.ss + heavier * (2.0 * c.gs + heavier * c.gg), 0.0)
            c.sigma1 += heavier * c.l2 * c.xi1
            c.sigma2 += heavier * c.l2 * c.xi2
            c.sigma0 += heavier * c.l2 * (1.0 + c.xi0)
        determinant = c.zeta1 * c.ups2 - c.zeta2 * c.ups1
        largest = max(max(abs(c.zeta1), abs(c.zeta2)), max(abs(c.ups1), abs(c.ups2)))
        lost |= abs(determinant) < LOST or largest > 1.0 / LOST
        v = (step_z * c.ups2 - step_y * c.zeta2) / determinant
        w = (step_y * c.zeta1 - step_z * c.ups1) / determinant
        for k in range(4 * n * K + g * own, 4 * n * K + (g + 1) * own):
            factors[k], factors[k + K] = c.square * v, c.square * w
            factors[k + 2 * K] = c.square * (step_q - (v * c.rho1 + w * c.rho2))
            factors[k + 3 * K] = c.square * (heavier - (v * c.sigma1 + w * c.sigma2))
    # After a rebase the factors are those of z, y and the sums themselves.
    s.zz, s.gz, s.gx, s.gg = step_z, step_y, step_q, heavier
    return lost


@compiled
def _rebase(
    K: int, state: Any, columns: Any, x0: Any, level: Any, levels: Any, factors: Any
) -> None:
    """Turn the columns into z, y and both sums, before g_s is added."""
    own = K // state.size
    for j in range(columns.shape[0]):
        for k in range(K):
            c = levels[k // own, level[j]]
            v, w = columns[j, 0, k], columns[j, 1, k]
            start = x0[j, k] if x0.size else 0.0
            columns[j, 0, k] = c.zeta1 * v + c.zeta2 * w + c.zeta0 * start
            columns[j, 1, k] = c.ups1 * v + c.ups2 * w + c.ups0 * start
            columns[j, 2, k] += c.rho1 * v + c.rho2 * w + c.rho0 * start
            columns[j, 3, k] += c.sigma1 * v + c.sigma2 * w + c.sigma0 * start
    for k in range(K):
        s = state[k // own]
        for n in range(levels.shape[1]):
            c = levels[k // own, n]
            c.zeta1 = c.ups2 = 1.0
            c.zeta2 = c.zeta0 = c.ups1 = c.ups0 = 0.0
            c.rho1 = c.rho2 = c.rho0 = c.sigma1 = c.sigma2 = c.sigma0 = 0.0
            first = 4 * n * K + k
            factors[first], factors[first + K] = c.square * s.zz, c.square * s.gz
            factors[first + 2 * K], factors[first + 3 * K] = c.square * s.gx, c.square * s.gg


@compiled
def _measure(K: int, state: Any, columns: Any, x0: Any, level: Any, levels: Any) -> None:
    """Compute the inner products of z, y, S and x0 from rebased columns."""
    own = K // state.size
    for g in range(state.size):
        state[g].peak = 0.0
        state[g].rebases += 1
        for n in range(levels.shape[1]):
            c = levels[g, n]
            c.zz = c.zy = c.yy = c.zx0 = c.yx0 = c.ss = c.sz = c.sy = c.sx0 = c.x0x0 = 0.0
    for j in range(columns.shape[0]):
        for k in range(K):
            c = levels[k // own, level[j]]
            part = 1.0 / c.square
            z, y, total = columns[j, 0, k], columns[j, 1, k], columns[j, 3, k]
            c.zz += part * z * z
            c.zy += part * z * y
            c.yy += part * y * y
            c.ss += part * total * total
            c.sz += part * total * z
            c.sy += part * total * y
            state[k // own].peak += part * total * total
            if x0.size:
                start = part * x0[j, k]
                c.zx0 += start * z
                c.yx0 += start * y
                c.sx0 += start * total
                c.x0x0 += start * x0[j, k]


@compiled
def _steps(
    K: int, state: Any, fixed: Any, points: Any, rows: Any, room: Any, order: Any, ends: Any
) -> Any:
    """Do one step per batch of rows, for K sets of coefficients; return how many were done."""
    f, own, groups, first = fixed[0], K // state.size, state.size, 0
    levels, level, columns, flat, x0 = points
    at, dots, factors = room.at, room.dots, room.factors
    if state[0].rebases == 0:
        _measure(K, state, columns, x0, level, levels)
    for step in range(ends.size):
        last = ends[step]
        for g in range(groups):
            _locate(K, own, g, state[g], f, levels, at, dots)
        batch = (points, rows, room, order, first, last)
        count = _gradient(K, own > 1, f, *batch)
        finite, lost = True, False
        for g in range(groups):
            finite &= _products(K, own, g, state[g], f, levels, dots)
        if not finite:
            return step
        for g in range(groups):
            lost |= _couple(K, own, g, state[g], f, levels, factors)
        if lost:
            _rebase(K, state, columns, x0, level, levels, factors)
        _add(K, flat, level, room, count)
        if lost:
            _measure(K, state, columns, x0, level, levels)
        first = last
    return ends.size


@kernel
def steps(
    several: int | None,
    state: Any,
    fixed: Any,
    points: Any,
    rows: Any,
    room: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do one step per batch of rows, for K = `several` sets of coefficients; return the number.

    None is one set, for which loops over several would be far slower. `points` are the levels, the
    level of each column, the columns, the same memory as a vector, and x0; `rows` are the parts of
    a CSR matrix, targets and weights.
    """
    if several is None:
        return _steps(1, state, fixed, points, rows, room, order, ends)
    return _steps(several, state, fixed, points, rows, room, order, ends)


@kernel
def combined(flat: Any, x0: Any, level: Any, factors: Any, weights: Any, free: Any) -> None:
    """Write v f_0 + w f_1 + q f_2 + s f_3 + x0 f_4, with five factors per level."""
    K, d = weights.shape
    one, four, five = np.uint64(K), np.uint64(4 * K), np.uint64(5 * K)
    for j in range(np.uint64(level.size)):
        for k in range(one):
            n, c = five * np.uint64(level[j]) + k, four * j + k
            total = factors[n] * flat[c] + factors[n + one] * flat[c + one]
            total += factors[n + one + one] * flat[c + one + one]
            total += factors[n + one + one + one] * flat[c + one + one + one]
            if x0.size:
                total += factors[n + four] * x0[j, k]
            if j < d:
                weights[k, j] = total
            else:
                free[k] = total


#: Fields of `DistanceFreeAcceleGrad`'s states, by their names here.
_FIELDS = {
    "squares": "weighted_squares",
    "eta": "step_size",
    "weight_sum": "weight_sum",
    "radius": "radius",
    "evidence": "evidence",
    "iteration": "iteration",
}


class SparseSteps(Steps):
    """Steps of a rule on CSR rows, each O(nonzeros of its batch), for one problem or several.

    `starts` has the first point of each problem, in scaled coordinates; `scale` the scales s_j,
    with at most 255 different values. Rows may have columns in any order, and repeated.
    """

    def __init__(
        self,
        settings: Settings,
        starts: Sequence[Vector],
        *,
        l2: float,
        fit_intercept: bool,
        scale: Vector | None = None,
        n_classes: int = 1,
    ) -> None:
        self.coupled, self.start = settings.coupled, starts[0].copy()
        self._fixed = settings.fixed(l2=l2, fit_intercept=fit_intercept)
        self._has_intercept = fit_intercept
        d = starts[0].size // n_classes - fit_intercept
        self._shape = len(starts), n_classes, d
        scale = np.ones(d) if scale is None else scale
        scales, level = np.unique(scale, return_inverse=True)
        if fit_intercept:
            scale, level = np.append(scale, 1.0), np.append(level, scales.size)
            scales = np.append(scales, 1.0)
        self._scale, self._level = scale, level.astype(np.uint8)
        levels = self._levels = np.zeros((len(starts), scales.size), LEVEL)
        levels["square"], levels["l2"] = scales**2, l2 * scales**2
        if fit_intercept:
            levels["l2"][:, -1] = 0.0
        levels["zeta1"] = levels["ups2"] = 1.0
        self._numbers = np.zeros(len(starts), NUMBERS)
        self._numbers["radius"] = settings.initial_radius
        start = self._turned(starts)
        self._start = start if start.any() else np.empty((0, start.shape[1]))
        rows, K = start.shape
        self._columns = np.zeros((rows, 4, K))
        self._states: list[Any] = []
        self._room: Room | None = None  # reused by the next chunk if large enough

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_room": None}

    @classmethod
    def of_states(
        cls, states: Sequence[Any], scale: Vector, l2: float, n_classes: int
    ) -> SparseSteps:
        """Return steps that continue from states of `DistanceFreeAcceleGrad` in scaled form."""
        starts = [state.start for state in states]
        found = cls(
            Settings("distance_free"),
            starts,
            l2=l2,
            fit_intercept=starts[0].size > n_classes * scale.size,
            scale=scale,
            n_classes=n_classes,
        )
        for name, field in _FIELDS.items():
            found._numbers[name] = [getattr(state, field) for state in states]
        vectors = (
            [state.mirror_point - state.start for state in states],
            [state.gradient_point - state.start for state in states],
            [state.weighted_sum for state in states],
            [state.gradient_sum for state in states],
        )
        for place, each in enumerate(vectors):
            found._columns[:, place] = found._turned(each)
        none = dict.fromkeys(("query_point", "mirror_point", "gradient_point"), None)
        found._states = [
            state._replace(**none, weighted_sum=None, gradient_sum=None) for state in states
        ]
        return found

    def _turned(self, vectors: Sequence[Vector]) -> Vector:
        """Return vectors in scaled coordinates as weights, one row per column of the data."""
        _, K, d = self._shape
        parts = [np.concatenate([x[: K * d].reshape(K, d) for x in vectors]).T]
        if self._has_intercept:
            parts.append(np.concatenate([x[K * d :] for x in vectors])[None])
        turned: Vector = np.ascontiguousarray(np.concatenate(parts) * self._scale[:, None])
        return turned

    def advance(self, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]) -> int:
        """Do one step per batch of rows and return how many were done.

        It stops before a step whose margins or gradient are not finite. `order` has the rows in
        order of use, `ends` the end of each batch. Targets are a vector, one column per problem, or
        class numbers.
        """
        if not ends.size:
            return 0
        data, K = chunk.data, self._columns.shape[2]
        set_loss(self._fixed, data.loss)
        lengths = np.diff(data.matrix[2]).astype(np.int64)[order]
        most = int(np.add.reduceat(lengths, np.append(0, ends[:-1])).max())
        flat = self._columns.reshape(-1)  # in Python: a kernel would compile it in seconds
        points = (self._levels, self._level, self._columns, flat, self._start)
        targets = read_only(data.y.reshape(data.y.shape[0], -1))
        rows = (*data.matrix, targets, read_only(chunk.weights))
        room = self._room
        if room is None or room.listed.size < most + 2:
            room = _room(self._level.size, K, self._levels.shape[1], most)
        batches = (read_only(order), read_only(ends))
        several = None if K == 1 else K
        done = int(steps(several, self._numbers, self._fixed, points, rows, room, *batches))
        # A non-finite gradient stays in the room.
        self._room = room if done == ends.size else None
        return done

    # -- points ----------------------------------------------------------------------------------

    def query(self) -> Vector:
        """Return the point of the next gradient."""
        z: Vector = self._vectors("zeta", 1.0)[0]
        y: Vector = self._vectors("ups", 1.0)[0]
        return z + self._rest * (y - z)

    def output(self) -> Vector:
        """Return the average that the rule's theorem is about."""
        if self.iteration == 0:
            return self.start.copy()
        total: Vector = self._vectors("rho", 0.0, own=2)[0]
        return total / float(self.numbers["weight_sum"])

    def last(self) -> Vector:
        """Return the last iterate: y of AcceleGrad, x of AdaGrad."""
        last: Vector = self._vectors("ups" if self.coupled else "zeta", 1.0)[0]
        return last

    def coefficients(self, *, last: bool) -> tuple[Vector, Vector]:
        """Return weights and intercepts at the averages or the last y, one row per set."""
        if last:
            return self._combined(self._factors("ups", 1.0))
        factors = self._factors("rho", 0.0, own=2)
        return self._combined(factors / np.repeat(self._numbers["weight_sum"], self._shape[1]))

    def states(self) -> list[Any]:
        """Return the rule's states, in scaled coordinates, after `of_states`."""
        vectors = {
            "mirror_point": self._vectors("zeta", 1.0),
            "gradient_point": self._vectors("ups", 1.0),
            "weighted_sum": self._vectors("rho", 0.0, own=2),
            "gradient_sum": self._vectors("sigma", 0.0, own=3),
        }
        z, y = vectors["mirror_point"], vectors["gradient_point"]
        vectors["query_point"] = z + self._rest * (y - z)
        return [
            state._replace(
                **{name: found[g] for name, found in vectors.items()},
                **{field: self._numbers[name][g].item() for name, field in _FIELDS.items()},
            )
            for g, state in enumerate(self._states)
        ]

    @property
    def _rest(self) -> float:
        """1 - tau, the share of y in x."""
        return 1.0 - 1.0 / importance_weight(self.iteration) if self.coupled else 0.0

    def _vectors(self, name: str, of_start: float, own: int = -1) -> Vector:
        weights, free = self._combined(self._factors(name, of_start, own))
        groups, _, d = self._shape
        parts = [(weights / self._scale[:d]).reshape(groups, -1)]
        if self._has_intercept:
            parts.append(free.reshape(groups, -1))
        return np.hstack(parts)

    def _factors(self, name: str, of_start: float, own: int = -1) -> Vector:
        """Return the factors of a vector: `of_start` more of x0, and 1 for the column `own`."""
        factors = np.zeros((self._levels.shape[1], 5, self._columns.shape[2]))
        for place, ending, more in ((0, "1", 0.0), (1, "2", 0.0), (4, "0", of_start)):
            found = more + self._levels[name + ending].T
            factors[:, place] = np.repeat(found, self._shape[1], axis=1)
        if own >= 0:
            factors[:, own] = 1.0
        return factors

    def _combined(self, factors: Vector) -> tuple[Vector, Vector]:
        K, d = self._columns.shape[2], self._shape[2]
        weights, free = np.empty((K, d)), np.zeros(K)  # which stay zero without intercepts
        flat, factors = self._columns.reshape(-1), factors.reshape(-1)
        combined(flat, self._start, self._level, factors, weights, free)
        return weights, free

    # -- checkpoints -----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return a copy of all that decides the coming steps."""
        numbers, levels = (part.view(np.float64).copy() for part in (self._numbers, self._levels))
        return {"numbers": numbers, "levels": levels, "points": self._columns.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from a `state`, on the same data and settings."""
        self._numbers.view(np.float64)[:] = state["numbers"]
        self._levels.view(np.float64)[:] = state["levels"]
        self._columns[:] = state["points"]
