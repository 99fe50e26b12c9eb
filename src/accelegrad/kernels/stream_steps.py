"""AcceleGrad's distance-free steps on chunks of CSR rows, O(nonzeros of the batch) each.

`partial_fit` runs `DistanceFreeAcceleGrad` in scaled coordinates v, with the weights w = s v. There
the l2 term is l2 s_j^2 / 2 v_j^2, so that columns of one scale share one *level*, within which the
rule is that of `accelegrad.kernels.sparse_coupled`: what is not sparse is a linear combination of
the same few vectors, and only coefficients change. With vectors relative to x0,

    z = U zeta + zeta0 x0,    sum of the weighted y + x0  = U rho   + rho0 x0   + q,
    y = U ups  + ups0 x0,     S = sum of heavier_t g_t    = U sigma + sigma0 x0 + s,

where U = [v w], and the coefficients and the inner products of z, y, S and x0 belong to a level.
A step moves them by numbers alone, then adds multiples of the sparse part of the gradient to the
columns U, q, s of the batch. Where U would become nearly singular the columns are *rebased*: v
becomes z, w becomes y, q and s the sums, which takes a pass over all columns and is rare.

All vectors are kept times s, as weights are. Rows then need no scaling, inner products with
gradients need none either, and others are divided by s^2, a number of the level. An intercept is a
last column, of ones, with a level to itself.

There are K sets of coefficients: of one problem (several classes at once), or of as many problems
as there are sets (one class against the rest), each with numbers of its own. The same rows then
serve all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, compiled, kernel, layout
from accelegrad.kernels.epochs import (
    FIXED,
    NO_ROWS,
    REACH,
    STEP,
    TRUST,
    coefficient,
    importance,
    importance_weight,
    over_root,
    record,
)
from accelegrad.kernels.gradient import Data
from accelegrad.kernels.sparse_coupled import (
    LARGEST_COEFFICIENT,
    LARGEST_FALL,
    SMALLEST_DETERMINANT,
    aligned,
)
from accelegrad.kernels.sparse_rows import look_ahead, prefetch

#: What changes from step to step; `peak` is the largest ||S||^2 since it was last computed. Those
#: of the last line live within a step only: sums over the levels.
NUMBERS = record(
    [
        *("squares", "eta", "weight_sum", "radius", "evidence", "peak"),
        *("zz", "gz", "gx", "gg", "gs", "ss"),
    ],
    ["iteration", "rebases"],
)
#: What belongs to a level. Those of the last line live within a step only: the coefficients of x,
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
    """Room for a step: K numbers each, for levels and for the columns of a batch."""

    at: Vector  # the coefficients of x, for each level: of v, w and x0
    dots: Vector  # products of v, w, s, x0 and g_s with g_s, the sparse part of the gradient
    factors: Vector  # those of g_s for v, w, q and s
    slopes: Vector  # of a row
    gradient: Vector  # g_s, for the columns of a batch
    listed: npt.NDArray[np.uint64]  # the columns of a batch
    place: npt.NDArray[np.uint32]  # where each column was when it was last in that list
    total: Vector  # g_s of all columns, for one set of coefficients: faster there; else not used


@compiled
def _locate(s: Any, levels: Any, at: Any, dots: Any, first: int, end: int) -> None:
    """Find x = tau z + (1 - tau) y of a problem, and clear the products with the gradient."""
    rest = 1.0 - 1.0 / importance(s.iteration)
    for n in range(levels.size):
        c = levels[n]
        c.xi1 = c.zeta1 + rest * (c.ups1 - c.zeta1)
        c.xi2 = c.zeta2 + rest * (c.ups2 - c.zeta2)
        c.xi0 = c.zeta0 + rest * (c.ups0 - c.zeta0)
        for k in range(first, end):
            at[n, 0, k], at[n, 1, k], at[n, 2, k] = c.xi1, c.xi2, 1.0 + c.xi0
            for which in range(5):
                dots[n, which, k] = 0.0


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
    K: int,
    f: Any,
    joint: bool,
    level: Any,
    flat: Any,
    x0: Any,
    X: Any,
    targets: Any,
    weights: Any,
    room: Any,
    order: Any,
    first: int,
    end: int,
) -> Any:
    """Write down the sparse part of the gradient of a batch; return how many columns it has.

    An intercept is one more entry, of a column of ones, at the end of each row.
    """
    # No functions for parts of this: each call would count references to all arrays. And one index
    # rather than three, which would all be multiplied by the lengths of the axes.
    data, indices, indptr = X
    at, slopes, gradient = room.at.reshape(-1), room.slopes, room.gradient
    listed, place, total = room.listed, room.place, room.total
    last, more = np.uint64(place.size - 1), np.uint64(f.intercept)
    one, two, three, four = np.uint64(K), np.uint64(2 * K), np.uint64(3 * K), np.uint64(4 * K)
    count, shifted = np.uint64(0), x0.size > 0
    for position in range(first, end):
        look_ahead(data, indices, indptr, flat, 4 * K, order, position)
        if K > 2 and position + 1 < order.size:  # the rest of what the next row's columns hold
            i = order[position + 1]
            for e in range(indptr[i], indptr[i + 1]):
                for k in range(8, 4 * K, 8):
                    prefetch(flat, four * np.uint64(indices[e]) + np.uint64(k))
        i = order[position]
        begin, stop = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        for k in range(one):
            slopes[k] = 0.0
        only = 0.0
        for e in range(begin, stop + more):
            entry, j = (data[e], np.uint64(indices[e])) if e < stop else (1.0, last)
            n, c = three * np.uint64(level[j]), four * j
            if K == 1:  # a sum in a register takes half the time
                only += entry * (at[n] * flat[c] + at[n + one] * flat[c + one])
                if shifted:
                    only += entry * at[n + two] * x0[j, 0]
                continue
            for k in range(one):
                found = at[n + k] * flat[c + k] + at[n + one + k] * flat[c + one + k]
                slopes[k] += entry * found
            if shifted:
                for k in range(one):
                    slopes[k] += entry * at[n + two + k] * x0[j, k]
        slopes[0] += only
        share = weights[i] / (end - first)
        if joint:
            _softmax(K, slopes, int(targets[i, 0]), share)
        else:
            for k in range(K):
                slopes[k] = coefficient(f, slopes[k], targets[i, k], share)
        for e in range(begin, stop + more):
            entry, j = (data[e], np.uint64(indices[e])) if e < stop else (1.0, last)
            # By factors rather than branches: whether a column is new cannot be foreseen.
            if K == 1:  # a column is listed again where its total had come to zero
                before = total[j]
                listed[count] = j
                count += np.uint64(before == 0.0)
                total[j] = before + entry * slopes[0]
                continue
            where = np.uint64(place[j])
            known = (where < count) & (listed[where] == j)
            where = where if known else count
            place[j], listed[where] = where, j
            count += np.uint64(1) - np.uint64(known)
            before = 1.0 if known else 0.0
            where *= one
            for k in range(one):
                gradient[where + k] = before * gradient[where + k] + entry * slopes[k]
    return count


@compiled
def _measure_gradient(K: int, flat: Any, x0: Any, level: Any, room: Any, count: int) -> None:
    """Add up the products of the columns, x0 and g_s with g_s, but for the scales' squares."""
    dots, gradient, listed = room.dots.reshape(-1), room.gradient, room.listed
    total = room.total
    one, three, four, five = np.uint64(K), np.uint64(3 * K), np.uint64(4 * K), np.uint64(5 * K)
    for where in range(count):
        j = listed[where]
        n, c, g = five * np.uint64(level[j]), four * j, one * where
        if K == 1:  # zero for a column's second listing
            gradient[g], total[j] = total[j], 0.0
        for k in range(one):
            dots[n + k] += gradient[g + k] * flat[c + k]
            dots[n + one + k] += gradient[g + k] * flat[c + one + k]
            dots[n + one + one + k] += gradient[g + k] * flat[c + three + k]
            dots[n + four + k] += gradient[g + k] * gradient[g + k]
        if x0.size:
            for k in range(one):
                dots[n + three + k] += gradient[g + k] * x0[j, k]


@compiled
def _add(K: int, flat: Any, level: Any, room: Any, count: int) -> None:
    """Add the multiples of g_s to the columns."""
    factors, gradient, listed = room.factors.reshape(-1), room.gradient, room.listed
    one, size = np.uint64(K), np.uint64(4 * K)
    for where in range(count):
        j = listed[where]
        n, c = size * np.uint64(level[j]), size * j
        for field in range(np.uint64(0), size, one):
            for k in range(one):
                flat[c + field + k] += factors[n + field + k] * gradient[one * where + k]


@compiled
def _products(s: Any, levels: Any, dots: Any, first: int, end: int) -> Any:
    """Find the products with the gradient of a problem; tell whether they are finite."""
    alpha = importance(s.iteration)
    tau, rest = 1.0 / alpha, 1.0 - 1.0 / alpha
    s.zz = s.gz = s.gx = s.gg = s.gs = s.ss = 0.0
    for n in range(levels.size):
        c = levels[n]
        v, w, total, start, itself = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(first, end):
            v, w, total = v + dots[n, 0, k], w + dots[n, 1, k], total + dots[n, 2, k]
            start, itself = start + dots[n, 3, k], itself + dots[n, 4, k]
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
def _couple(s: Any, levels: Any, factors: Any, first: int, end: int) -> Any:
    """Do all of a problem's step that is done by numbers, and leave the factors of g_s.

    Returns whether the columns have to be rebased before these are used.
    """
    alpha, radius = importance(s.iteration), s.radius
    tau, rest = 1.0 / alpha, 1.0 - 1.0 / alpha
    s.squares += alpha * alpha * s.gg
    eta = over_root(STEP * radius, s.squares)
    step, weight, reach = alpha * eta, alpha * radius, REACH * radius
    heavier = weight * radius
    away = max(s.zz - 2.0 * step * s.gz + step * step * s.gg, 0.0)
    held = 1.0 if away <= reach * reach else over_root(reach, away)
    ss = max(s.ss + 2.0 * heavier * s.gs + heavier * heavier * s.gg, 0.0)
    s.eta, s.peak = eta, max(s.peak, ss)
    s.evidence -= heavier * s.gx
    s.radius = max(radius, TRUST * over_root(s.evidence, ss))
    s.weight_sum += weight
    s.iteration += 1
    # ||S||^2 is divided by: where it is much smaller than it was, it has lost its digits.
    lost = ss < LARGEST_FALL * s.peak
    for n in range(levels.size):
        c = levels[n]
        zx, yx = tau * c.zz + rest * c.zy, tau * c.zy + rest * c.yy
        xx, xx0 = tau * zx + rest * yx, tau * c.zx0 + rest * c.yx0
        sx = tau * c.sz + rest * c.sy
        c.zz = held * held * max(c.zz - 2.0 * step * c.gz + step * step * c.gg, 0.0)
        c.zy = held * (zx - eta * c.gz - step * (c.gx - eta * c.gg))
        c.yy = max(xx - eta * (2.0 * c.gx - eta * c.gg), 0.0)
        c.zx0, c.yx0 = held * (c.zx0 - step * c.gx0), xx0 - eta * c.gx0
        c.sz = held * (c.sz - step * c.gs + heavier * (c.gz - step * c.gg))
        c.sy = sx - eta * c.gs + heavier * (c.gx - eta * c.gg)
        c.sx0 += heavier * c.gx0
        c.ss = max(c.ss + heavier * (2.0 * c.gs + heavier * c.gg), 0.0)
        shrink = eta * c.l2
        c.zeta1 = held * (c.zeta1 - alpha * shrink * c.xi1)
        c.zeta2 = held * (c.zeta2 - alpha * shrink * c.xi2)
        c.zeta0 = held * (c.zeta0 - alpha * shrink * (1.0 + c.xi0))
        c.ups1, c.ups2 = (1.0 - shrink) * c.xi1, (1.0 - shrink) * c.xi2
        c.ups0 = c.xi0 - shrink * (1.0 + c.xi0)
        c.rho1 += weight * c.ups1
        c.rho2 += weight * c.ups2
        c.rho0 += weight * (1.0 + c.ups0)
        c.sigma1 += heavier * c.l2 * c.xi1
        c.sigma2 += heavier * c.l2 * c.xi2
        c.sigma0 += heavier * c.l2 * (1.0 + c.xi0)
        determinant = c.zeta1 * c.ups2 - c.zeta2 * c.ups1
        largest = max(max(abs(c.zeta1), abs(c.zeta2)), max(abs(c.ups1), abs(c.ups2)))
        lost |= abs(determinant) < SMALLEST_DETERMINANT or largest > LARGEST_COEFFICIENT
        v = (eta * c.zeta2 - held * step * c.ups2) / determinant
        w = (held * step * c.ups1 - eta * c.zeta1) / determinant
        for k in range(first, end):
            factors[n, 0, k], factors[n, 1, k] = c.square * v, c.square * w
            factors[n, 2, k] = c.square * (-weight * eta - (v * c.rho1 + w * c.rho2))
            factors[n, 3, k] = c.square * (heavier - (v * c.sigma1 + w * c.sigma2))
    # Where the columns are rebased their factors are those of z, y and the sums themselves.
    s.zz, s.gz, s.gx, s.gg = -held * step, -eta, -weight * eta, heavier
    return lost


@compiled
def _rebase(K: int, state: Any, columns: Any, x0: Any, level: Any, levels: Any, room: Any) -> None:
    """Make the columns z, y and both sums, to which g_s has still to be added."""
    own, factors = K // state.size, room.factors
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
            factors[n, 0, k], factors[n, 1, k] = c.square * s.zz, c.square * s.gz
            factors[n, 2, k], factors[n, 3, k] = c.square * s.gx, c.square * s.gg


@compiled
def _measure(K: int, state: Any, columns: Any, x0: Any, level: Any, levels: Any) -> None:
    """Compute the inner products of z, y, S and x0 from columns that are rebased."""
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
    K: int,
    state: Any,
    fixed: Any,
    levels: Any,
    level: Any,
    columns: Any,
    flat: Any,
    x0: Any,
    X: Any,
    targets: Any,
    weights: Any,
    room: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do a step for each batch of rows, for K sets of coefficients; return how many were done."""
    f, own, groups, first = fixed[0], K // state.size, state.size, 0
    if state[0].rebases == 0:
        _measure(K, state, columns, x0, level, levels)
    for step in range(ends.size):
        for g in range(groups):
            _locate(state[g], levels[g], room.at, room.dots, g * own, (g + 1) * own)
        joint, last = own > 1, ends[step]
        rows = (X, targets, weights, room, order, first, last)
        count = _gradient(K, f, joint, level, flat, x0, *rows)
        _measure_gradient(K, flat, x0, level, room, count)
        finite, lost = True, False
        for g in range(groups):
            finite &= _products(state[g], levels[g], room.dots, g * own, (g + 1) * own)
        if not finite:
            return step
        for g in range(groups):
            lost |= _couple(state[g], levels[g], room.factors, g * own, (g + 1) * own)
        if lost:
            _rebase(K, state, columns, x0, level, levels, room)
        _add(K, flat, level, room, count)
        if lost:
            _measure(K, state, columns, x0, level, levels)
        first = last
    return ends.size


@kernel
def stream_steps(
    state: Any,
    fixed: Any,
    levels: Any,
    level: Any,
    columns: Any,
    flat: Any,
    x0: Any,
    X: Any,
    targets: Any,
    weights: Any,
    room: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do a step for each batch of rows; return how many were done.

    `flat` has the same memory as `columns`. For one set of coefficients the steps are compiled
    without loops over several, which would take far longer.
    """
    points = (levels, level, columns, flat, x0)
    rows = (X, targets, weights, room, order, ends)
    if columns.shape[2] == 1:
        return _steps(1, state, fixed, *points, *rows)
    return _steps(columns.shape[2], state, fixed, *points, *rows)


@kernel
def combined(columns: Any, x0: Any, level: Any, factors: Any, weights: Any, free: Any) -> None:
    """Write down v f_0 + w f_1 + q f_2 + s f_3 + x0 f_4, with five factors for each level."""
    d, K = weights.shape[1], columns.shape[2]
    for j in range(columns.shape[0]):
        n = level[j]
        for k in range(K):
            total = factors[n, 0, k] * columns[j, 0, k] + factors[n, 1, k] * columns[j, 1, k]
            if factors[n, 2, k] != 0.0:
                total += factors[n, 2, k] * columns[j, 2, k]
            if factors[n, 3, k] != 0.0:
                total += factors[n, 3, k] * columns[j, 3, k]
            if x0.size:
                total += factors[n, 4, k] * x0[j, k]
            if j < d:
                weights[k, j] = total
            else:
                free[k] = total


class Chunk(NamedTuple):
    """Rows as kernels read them."""

    data: Data
    """The rows with their loss; targets are one column per problem, or numbers of classes."""
    weights: Vector
    """What each row counts, 1 on average."""


class SparseStream:
    """States of `DistanceFreeAcceleGrad` that move on from chunk to chunk of CSR rows.

    It is the rule's twin: the same points up to rounding.

    Parameters
    ----------
    states : sequence of DistanceFreeState
        The states of the problems after at least one step, in scaled coordinates.
    scale : array of shape (n_features,)
        The scales s_j, with few different values (at most 255).
    l2 : float
        The weight of the l2 term of the weights.
    n_classes : int
        Sets of coefficients in a problem. Several are those of one problem.
    """

    def __init__(self, states: Sequence[Any], scale: Vector, l2: float, n_classes: int = 1) -> None:
        self._shape = len(states), n_classes, scale.size
        self.has_intercept = states[0].start.size > n_classes * scale.size
        scales, level = np.unique(scale, return_inverse=True)
        if self.has_intercept:
            scale, level = np.append(scale, 1.0), np.append(level, scales.size)
            scales = np.append(scales, 1.0)
        self._scale, self._level = scale, level.astype(np.uint8)
        self._levels = np.zeros((len(states), scales.size), LEVEL)
        self._levels["square"] = scales**2
        self._levels["l2"] = l2 * scales**2
        if self.has_intercept:
            self._levels["l2"][:, -1] = 0.0
        self._levels["zeta1"] = self._levels["ups2"] = 1.0
        self._numbers = np.zeros(len(states), NUMBERS)
        for name, field in _FIELDS.items():
            self._numbers[name] = [getattr(state, field) for state in states]
        start = self._turned([state.start for state in states])
        self._x0 = start if start.any() else np.empty((0, start.shape[1]))
        vectors = (
            [state.mirror_point - state.start for state in states],
            [state.gradient_point - state.start for state in states],
            [state.weighted_sum for state in states],
            [state.gradient_sum for state in states],
        )
        d, K = start.shape
        self._columns = aligned(d, 4 * K).reshape(d, 4, K)
        for place, found in enumerate(vectors):
            self._columns[:, place] = self._turned(found)
        none = dict.fromkeys(("query_point", "mirror_point", "gradient_point"), None)
        self._starts = [
            state._replace(**none, weighted_sum=None, gradient_sum=None) for state in states
        ]

    def _turned(self, vectors: list[Vector]) -> Vector:
        """Return vectors in scaled coordinates as weights, with one row per column of the data."""
        _, K, d = self._shape
        parts = [np.concatenate([x[: K * d].reshape(K, d) for x in vectors]).T]
        if self.has_intercept:
            parts.append(np.concatenate([x[K * d :] for x in vectors])[None])
        turned: Vector = np.ascontiguousarray(np.concatenate(parts) * self._scale[:, None])
        return turned

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        return int(self._numbers["iteration"][0])

    @property
    def rebases(self) -> int:
        """How often the columns were rebased, or their products computed for the first time."""
        return int(self._numbers["rebases"][0])

    def advance(self, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]) -> int:
        """Do a step for each batch of rows and return how many were done.

        It is fewer than there are batches where a gradient was not finite: the states are then the
        ones before that step.

        Parameters
        ----------
        chunk : Chunk
            The rows.
        order, ends : array of int
            The rows in the order in which they are used, and where each batch ends.
        """
        fixed = np.zeros(1, FIXED)
        for name, number in chunk.data.loss._asdict().items():
            fixed[name] = number
        fixed["intercept"] = self.has_intercept
        entries, indices, indptr = chunk.data.matrix
        lengths = np.diff(indptr).astype(np.int64)[order] + self.has_intercept
        most = int(np.add.reduceat(lengths, np.append(0, ends[:-1])).max())
        done = stream_steps(
            self._numbers,
            fixed,
            self._levels,
            self._level,
            self._columns,
            self._columns.reshape(-1),
            self._x0,
            (read_only(entries.astype(np.float64, copy=False)), indices, indptr),
            chunk.data.y,
            chunk.weights,
            _room(*self._columns.shape[::2], self._levels.shape[1], most),
            order,
            ends,
        )
        return int(done)

    def output(self) -> tuple[Vector, Vector]:
        """Return weights and intercepts at the averages, one row for each set of coefficients."""
        factors = self._factors("rho", 0.0, own=2)
        return self._combined(factors / np.repeat(self._numbers["weight_sum"], self._shape[1]))

    def last(self) -> tuple[Vector, Vector]:
        """Return weights and intercepts at the last iterates, y."""
        return self._combined(self._factors("ups", 1.0))

    def states(self) -> list[Any]:
        """Return the rule's states, in scaled coordinates."""
        vectors = {
            "mirror_point": self._vectors("zeta", 1.0),
            "gradient_point": self._vectors("ups", 1.0),
            "weighted_sum": self._vectors("rho", 0.0, own=2),
            "gradient_sum": self._vectors("sigma", 0.0, own=3),
        }
        tau = 1.0 / importance_weight(self.iteration)
        z, y = vectors["mirror_point"], vectors["gradient_point"]
        vectors["query_point"] = tau * z + (1.0 - tau) * y
        return [
            start._replace(
                **{name: found[g] for name, found in vectors.items()},
                **{field: self._numbers[name][g].item() for name, field in _FIELDS.items()},
            )
            for g, start in enumerate(self._starts)
        ]

    def _vectors(self, name: str, of_start: float, own: int = -1) -> Vector:
        """Return a vector of each state, in scaled coordinates."""
        weights, free = self._combined(self._factors(name, of_start, own))
        groups, _, d = self._shape
        parts = [(weights / self._scale[:d]).reshape(groups, -1)]
        if self.has_intercept:
            parts.append(free.reshape(groups, -1))
        return np.hstack(parts)

    def _factors(self, name: str, of_start: float, own: int = -1) -> Vector:
        """Return the factors of a vector, with this much of x0, and all of a column of its own."""
        factors = np.zeros((self._levels.shape[1], 5, self._columns.shape[2]))
        for place, ending, more in ((0, "1", 0.0), (1, "2", 0.0), (4, "0", of_start)):
            found = more + self._levels[name + ending].T
            factors[:, place] = np.repeat(found, self._shape[1], axis=1)
        if own >= 0:
            factors[:, own] = 1.0
        return factors

    def _combined(self, factors: Vector) -> tuple[Vector, Vector]:
        """Return weights and intercepts that a combination of the columns makes."""
        K, d = self._columns.shape[2], self._shape[2]
        weights, free = np.empty((K, d)), np.zeros(K)  # which stay zero without intercepts
        combined(self._columns, self._x0, self._level, factors, weights, free)
        return weights, free


def _room(n_columns: int, K: int, n_levels: int, entries: int) -> Room:
    """Return room for steps whose batches have at most so many entries."""
    at, dots, factors = (np.empty((n_levels, fields, K)) for fields in (3, 5, 4))
    return Room(
        at,
        dots,
        factors,
        slopes=np.empty(K),
        gradient=np.zeros(entries * K),
        listed=np.empty(entries + 1, np.uint64),
        place=np.zeros(n_columns, np.uint32),
        total=np.zeros(n_columns if K == 1 else 0),
    )


#: The numbers of a state, by their names here.
_FIELDS = {
    "squares": "weighted_squares",
    "eta": "step_size",
    "weight_sum": "weight_sum",
    "radius": "radius",
    "evidence": "evidence",
    "iteration": "iteration",
}


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    numbers, fixed, levels = np.zeros(1, NUMBERS), np.zeros(1, FIXED), np.ones((1, 1), LEVEL)
    level, columns, x0 = np.zeros(1, np.uint8), np.zeros((1, 4, 1)), np.zeros((0, 1))
    for index in (np.uint32, np.uint64):
        X = tuple(read_only(part) for part in (np.ones(1), np.zeros(1, index), np.zeros(2, index)))
        points = (numbers, fixed, levels, level, columns, columns.reshape(-1), x0)
        rows = (X, read_only(np.ones((1, 1))), np.ones(1), _room(1, 1, 1, 1))
        orders = (np.array(NO_ROWS), np.array(NO_ROWS))
        yield Call(f"stream, {layout(np.float64, index)}", stream_steps, (*points, *rows, *orders))
    out = np.zeros((1, 5, 1)), np.zeros((1, 1)), np.zeros(1)
    yield Call("points of a stream", combined, (columns, x0, level, *out))
