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
from accelegrad.kernels.compile import Kernel, compiled
from accelegrad.kernels.rows import look_ahead
from accelegrad.kernels.steps import (
    NUMBERS,
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
)

#: Columns are rebased if the determinant of the coefficients of z and y is below this, a
#: coefficient above its inverse, or ||S||^2 has fallen by this factor: about 1e-16 / this is lost.
LOST = 1e-4

#: What changes from step to step; `peak` is the largest ||S||^2 since it was last computed;
#: `equal` tells whether z and y are the same point.
STATE = record([*NUMBERS, "peak"], ["iteration", "rebases", "equal"])
Z, Y, S, SUM = range(4)  # rows of `Levels.mix`, and columns that hold z, y, s and q when rebased
VECTORS = ("mirror_point", "gradient_point", "gradient_sum", "weighted_sum")  # of the rule's states
X0 = 3  # the last row of `Levels.gram`


class Levels(NamedTuple):
    """The coefficients and inner products of each problem's levels."""

    square: Vector  # the squared scale of each level
    l2: Vector  # of each level
    mix: Vector  # the coefficients of z, y, S and the sum of y in v, w and x0
    gram: Vector  # the inner products of z, y, S and x0


class Room(NamedTuple):
    """Memory for a step: K numbers for each field of a level, and for each column of a batch.

    Flat vectors, since one index is faster than three. Kernels unpack it before loops, as each
    access would count references.
    """

    at: Vector  # the coefficients of x, for each level: of v, w and x0
    dots: Vector  # products of v, w, s, x0 and g_s with g_s, the sparse part of the gradient
    factors: Vector  # of g_s for v, w, s and q
    slopes: Vector  # of a row
    free: Vector  # the sum of slopes: the intercept's entry of g_s
    gradient: Vector  # g_s, for the columns of a batch
    listed: npt.NDArray[np.uint64]  # the columns of a batch
    place: npt.NDArray[np.uint64]  # the last place of each column in that list, plus `base`
    along: Vector  # products of z, y, S, x0 and g with g, for each problem and level
    moves: Vector  # the factors of g in z, y, S and the sum, for each problem


def _room(n_columns: int, K: int, n_groups: int, n_levels: int, entries: int) -> Room:
    return Room(
        at=np.empty(3 * n_levels * K),
        dots=np.empty(5 * n_levels * K),
        factors=np.empty(4 * n_levels * K),
        slopes=np.empty(K),
        free=np.empty(K),
        gradient=np.zeros((entries + 1) * K),  # an intercept is one more
        listed=np.empty(entries + 2, np.uint64),
        place=np.empty(n_columns, np.uint64),
        along=np.empty((n_groups, n_levels, 5)),
        moves=np.empty((n_groups, 4)),
    )


@compiled
def _shares(s: Any, f: Any) -> Any:
    """Return alpha and the shares of z and y in x.

    While z and y are the same point, x counts as y: with z the columns would have to be rebased.
    """
    alpha = importance(s.iteration) if f.coupled else 1.0
    if s.equal and f.coupled:
        return alpha, 0.0, 1.0
    return alpha, 1.0 / alpha, 1.0 - 1.0 / alpha


@compiled
def _locate(K: int, own: int, g: int, s: Any, f: Any, mix: Any, at: Any) -> None:
    """Compute the coefficients of problem g's x."""
    _, tau, rest = _shares(s, f)
    for n in range(mix.shape[1]):
        for field in range(3):
            x = tau * mix[g, n, Z, field] + rest * mix[g, n, Y, field]
            x += 1.0 if field == 2 else 0.0
            for k in range(g * own, (g + 1) * own):
                at[(3 * n + field) * K + k] = x


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
    joint: bool,
    f: Any,
    points: Any,
    rows: Any,
    room: Any,
    base: Any,
    order: Any,
    first: int,
    end: int,
) -> Any:
    """Write the sparse part of the gradient of a batch; return how many columns it has."""
    # No functions for parts of this: each call would count references to all arrays.
    level, flat, x0 = points
    data, indices, indptr, targets, weights = rows
    at, dots, _, slopes, free, gradient, listed, place, _, _ = room
    one, two, three, four = np.uint64(K), np.uint64(2 * K), np.uint64(3 * K), np.uint64(4 * K)
    last, last_level = np.uint64(4 * (level.size - 1) * K), np.uint64(at.size - 3 * K)
    count, shifted = np.uint64(0), x0.size > 0
    free[:] = 0.0
    for position in range(first, end):
        look_ahead(data, indices, indptr, flat, 4 * K, order, position)
        i = order[position]
        begin, stop = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        for k in range(one):
            slopes[k] = 0.0
            if f.intercept:
                slopes[k] = at[last_level + k] * flat[last + k]
                slopes[k] += at[last_level + one + k] * flat[last + one + k]
                if shifted:
                    slopes[k] += at[last_level + two + k] * x0[level.size - 1, k]
        first_margin, other = slopes[0], 0.0  # in registers, two sums: one would wait for itself
        for e in range(begin, stop):
            entry, j = data[e], np.uint64(indices[e])
            n, c = three * np.uint64(level[j]), four * j
            for k in range(one):
                found = at[n + k] * flat[c + k] + at[n + one + k] * flat[c + one + k]
                if shifted:
                    found += at[n + two + k] * x0[j, k]
                if K == 1:
                    first_margin, other = other, first_margin + entry * found
                else:
                    slopes[k] += entry * found
        if K == 1:
            slopes[0] = first_margin + other
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
            known = place[j] >= base
            where = place[j] - base if known else count
            place[j], listed[where] = base + where, j
            count += np.uint64(1) - np.uint64(known)
            where *= one
            for k in range(one):
                before = gradient[where + k] if known else 0.0
                gradient[where + k] = before + entry * slopes[k]
    if f.intercept:  # the last column
        listed[count] = np.uint64(level.size - 1)
        for k in range(one):
            gradient[one * count + k] = free[k]
        count += np.uint64(1)
    dots[:] = 0.0
    for entry in range(count):
        j = listed[entry]
        n, c, g = np.uint64(5 * K) * np.uint64(level[j]), four * j, one * entry
        for field in range(np.uint64(0), three, one):
            for k in range(one):
                dots[n + field + k] += gradient[g + k] * flat[c + field + k]
        for k in range(one):
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
def _products(K: int, own: int, g: int, s: Any, f: Any, levels: Any, dots: Any, along: Any) -> Any:
    """Compute the products of z, y, S, x0 and g with the gradient; return whether it is finite."""
    square, l2, mix, gram = levels
    alpha, tau, rest = _shares(s, f)
    whole = 0.0
    for n in range(l2.size):
        v, w, total, start, itself = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(5 * n * K + g * own, 5 * n * K + (g + 1) * own):
            v, w, total = v + dots[k], w + dots[k + K], total + dots[k + 2 * K]
            start, itself = start + dots[k + 3 * K], itself + dots[k + 4 * K]
        along[g, n, X0] = start
        for a in (Z, Y, S):
            along[g, n, a] = mix[g, n, a, 0] * v + mix[g, n, a, 1] * w + mix[g, n, a, 2] * start
        along[g, n, S] += total
        sparse = start + tau * along[g, n, Z] + rest * along[g, n, Y]
        for a in range(4):
            q = tau * gram[g, n, a, Z] + rest * gram[g, n, a, Y]
            along[g, n, a] += l2[n] * (gram[g, n, a, X0] + q)
        itself *= square[n]
        dense = along[g, n, X0] + tau * along[g, n, Z] + rest * along[g, n, Y]
        along[g, n, 4] = itself + l2[n] * (sparse + dense)
        whole += along[g, n, 4]
    return math.isfinite(s.weighted_squares + alpha * alpha * whole)


@compiled
def _couple(K: int, own: int, g: int, s: Any, f: Any, levels: Any, room: Any) -> Any:
    """Do the scalar part of problem g's step; return whether to rebase before using the factors."""
    square, l2, mix, gram = levels
    factors, along, moves = room.factors, room.along, room.moves
    coupled = f.coupled != 0
    alpha, tau, rest = _shares(s, f)
    zz, ss, gz, gx, gs, gg = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for n in range(l2.size):
        zz, ss = zz + gram[g, n, Z, Z], ss + gram[g, n, S, S]
        gz, gs, gg = gz + along[g, n, Z], gs + along[g, n, S], gg + along[g, n, 4]
        gx += tau * along[g, n, Z] + rest * along[g, n, Y]
    scale, reach, weight = reach_of(s, f, alpha)
    s.weighted_squares += alpha * alpha * gg
    squares = s.weighted_squares
    eta = over_root(scale, f.squared_bound + squares if coupled else 2.0 * squares)
    step = alpha * eta
    away = max(zz - 2.0 * step * gz + step * step * gg, 0.0)
    held = 1.0 if away <= reach * reach else over_root(reach, away)
    heavier, lost = 0.0, False
    if f.tracked:
        heavier = weight * s.radius
        ss = max(ss + 2.0 * heavier * gs + heavier * heavier * gg, 0.0)
        s.peak = max(s.peak, ss)
        s.evidence -= heavier * gx
        s.radius = min(max(s.radius, TRUST * over_root(s.evidence, ss)), f.cap)
        # ||S||^2 is a divisor: when it has become much smaller, it has lost its digits.
        lost = ss < LOST * s.peak
    s.step_size = eta
    s.equal = 1 if s.equal and alpha == 1.0 and held == 1.0 else 0
    s.weight_sum += weight
    s.iteration += 1
    moves[g, Z], moves[g, Y], moves[g, S], moves[g, X0] = -step, 0.0, heavier, 0.0
    if coupled:
        moves[g, Y] = -eta
    for n in range(l2.size):
        if coupled:  # y becomes x
            along[g, n, Y] = tau * along[g, n, Z] + rest * along[g, n, Y]
            for a in range(4):
                gram[g, n, Y, a] = tau * gram[g, n, Z, a] + rest * gram[g, n, Y, a]
            for a in range(4):
                gram[g, n, a, Y] = tau * gram[g, n, a, Z] + rest * gram[g, n, a, Y]
        for a in range(4):
            for b in range(4):
                more = moves[g, a] * along[g, n, b] + moves[g, b] * along[g, n, a]
                gram[g, n, a, b] += more + moves[g, a] * moves[g, b] * along[g, n, 4]
        for a in range(4):
            gram[g, n, Z, a] *= held
        for a in range(4):
            gram[g, n, a, Z] *= held
        for field in range(3):
            start = 1.0 if field == 2 else 0.0
            x = tau * mix[g, n, Z, field] + rest * mix[g, n, Y, field]
            slope = l2[n] * (x + start)
            if coupled:
                x -= eta * slope
                mix[g, n, Y, field] = x
            mix[g, n, Z, field] = held * (mix[g, n, Z, field] - step * slope)
            mix[g, n, S, field] += heavier * slope
            mix[g, n, SUM, field] += weight * (x + start)
    moves[g, Z], moves[g, SUM] = -held * step, -weight * eta if coupled else 0.0
    for n in range(l2.size):
        z1, z2, y1, y2 = mix[g, n, Z, 0], mix[g, n, Z, 1], mix[g, n, Y, 0], mix[g, n, Y, 1]
        determinant = z1 * y2 - z2 * y1
        largest = max(max(abs(z1), abs(z2)), max(abs(y1), abs(y2)))
        lost |= abs(determinant) < LOST or largest > 1.0 / LOST
        v = (moves[g, Z] * y2 - moves[g, Y] * z2) / determinant
        w = (moves[g, Y] * z1 - moves[g, Z] * y1) / determinant
        for k in range(4 * n * K + g * own, 4 * n * K + (g + 1) * own):
            factors[k], factors[k + K] = square[n] * v, square[n] * w
            for a in (S, SUM):
                rest = moves[g, a] - (v * mix[g, n, a, 0] + w * mix[g, n, a, 1])
                factors[k + a * K] = square[n] * rest
    return lost


@compiled
def _rebase(K: int, own: int, points: Any, levels: Any, room: Any) -> None:
    """Turn the columns into z, y and both sums, before g_s is added."""
    level, flat, x0 = points
    square, _, mix, _ = levels
    one, two, three = np.uint64(K), np.uint64(2 * K), np.uint64(3 * K)
    both, factors = np.empty(2 * K), np.empty(12 * square.size * K)
    for n in range(square.size):
        for k in range(K):
            for a in range(4):
                for field in range(3):
                    factors[(3 * (4 * n + a) + field) * K + k] = mix[k // own, n, a, field]
                room.factors[(4 * n + a) * K + k] = square[n] * room.moves[k // own, a]
    for j in range(np.uint64(level.size)):
        c, factor = np.uint64(4 * K) * j, np.uint64(12 * K) * np.uint64(level[j])
        for k in range(two):
            both[k], flat[c + k] = flat[c + k], 0.0
        for _ in range(4):
            for k in range(one):
                flat[c + k] += factors[factor + k] * both[k]
                flat[c + k] += factors[factor + one + k] * both[one + k]
            if x0.size:
                for k in range(one):
                    flat[c + k] += factors[factor + two + k] * x0[j, k]
            c, factor = c + one, factor + three
    mix[:] = 0.0
    mix[:, :, Z, 0] = mix[:, :, Y, 1] = 1.0


@compiled
def _measure(K: int, own: int, state: Any, points: Any, levels: Any) -> None:
    """Compute the inner products of z, y, S and x0 from rebased columns."""
    level, flat, x0 = points
    square, gram = levels.square, levels.gram
    one, four = np.uint64(K), np.uint64(4 * K)
    each, found = np.zeros(4 * K), np.zeros(16 * square.size * K)
    for j in range(np.uint64(level.size)):
        each[:] = flat[four * j : four * j + four]
        for k in range(one):  # in place of the sum
            each[four - one + k] = x0[j, k] if x0.size else 0.0
        place = np.uint64(16 * K) * np.uint64(level[j])
        for first in range(np.uint64(0), four, one):
            for second in range(np.uint64(0), first + one, one):
                for k in range(one):
                    found[place + second + k] += each[first + k] * each[second + k]
            place += four
    gram[:] = 0.0
    for n in range(square.size):
        for a in range(4):
            for b in range(4):
                of_pair = (4 * (4 * n + max(a, b)) + min(a, b)) * K
                for k in range(K):
                    gram[k // own, n, a, b] += found[of_pair + k] / square[n]
    for g in range(state.size):
        state[g].rebases += 1
        state[g].peak = gram[g, :, S, S].sum()


@Kernel
def steps(
    several: int | None,
    state: Any,
    fixed: Any,
    levels: Any,
    points: Any,
    rows: Any,
    room: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do one step per batch of rows, for K = `several` sets of coefficients; return the number.

    None is one set, for which loops over several would be far slower. `points` are the level of
    each column, the columns as a vector, and x0; `rows` are the parts of a CSR matrix, targets and
    weights.
    """
    K = 1 if several is None else several
    f, own, groups, first = fixed[0], K // state.size, state.size, 0
    base = np.uint64(1)
    room.place[:] = np.uint64(0)
    if state[0].rebases < 0:  # the vectors are not all zero
        _measure(K, own, state, points, levels)
    for step in range(ends.size):
        last = ends[step]
        for g in range(groups):
            _locate(K, own, g, state[g], f, levels.mix, room.at)
        count = _gradient(K, own > 1, f, points, rows, room, base, order, first, last)
        finite, lost = True, False
        for g in range(groups):
            finite &= _products(K, own, g, state[g], f, levels, room.dots, room.along)
        if not finite:
            return step
        for g in range(groups):
            lost |= _couple(K, own, g, state[g], f, levels, room)
        if lost:
            _rebase(K, own, points, levels, room)
        _add(K, points[1], points[0], room, count)
        if lost:
            _measure(K, own, state, points, levels)
        first, base = last, base + np.uint64(count)
    return ends.size


@Kernel
def combined(flat: Any, x0: Any, level: Any, factors: Any, weights: Any, free: Any) -> None:
    """Write v f_0 + w f_1 + s f_2 + q f_3 + x0 f_4, with five factors per level."""
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


def levels_of(scale: Vector) -> tuple[Vector, npt.NDArray[np.uint8]]:
    """Return the different scales, at most 255, and the number of each column's."""
    scales: list[float] = []
    level, rest = np.zeros(scale.size, np.uint8), scale
    while rest.size:  # several times as fast as sorting
        level[scale == rest[0]] = len(scales)
        scales.append(rest[0])
        rest = rest[rest != rest[0]]
    return np.array(scales), level


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
        scales, level = levels_of(scale)
        if fit_intercept:
            scale, level = np.append(scale, 1.0), np.append(level, np.uint8(scales.size))
            scales = np.append(scales, 1.0)
        self._scale, self._level = scale, level
        l2_of_levels = l2 * scales**2
        if fit_intercept:
            l2_of_levels[-1] = 0.0
        mix, gram = (np.zeros((len(starts), scales.size, 4, n)) for n in (3, 4))
        mix[:, :, Z, 0] = mix[:, :, Y, 1] = 1.0
        self._levels = Levels(scales**2, l2_of_levels, mix, gram)
        self._numbers = np.zeros(len(starts), STATE)
        self._numbers["radius"], self._numbers["equal"] = settings.initial_radius, 1
        K = len(starts) * n_classes
        shifted = any(start.any() for start in starts)
        self._start = self._turned(starts) if shifted else np.empty((0, K))
        self._numbers["rebases"] = -1 if shifted else 0
        self.points = np.zeros((scale.size, 4, K))
        self._states: list[Any] = []
        self._room: Room | None = None  # reused by the next chunk if large enough

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_room": None}

    @classmethod
    def of_starts(
        cls,
        blank: Any,
        starts: Sequence[Vector],
        radii: Sequence[float],
        scale: Vector,
        l2: float,
        n_classes: int,
    ) -> SparseSteps:
        """Return the first steps of `DistanceFreeAcceleGrad`, with one radius for each problem.

        `blank` is any state of the rule: it has the fields for `states`.
        """
        found = cls(
            Settings("distance_free"),
            starts,
            l2=l2,
            fit_intercept=starts[0].size > n_classes * scale.size,
            scale=scale,
            n_classes=n_classes,
        )
        found._numbers["radius"] = radii
        found._states = [blank._replace(start=start) for start in starts]
        return found

    @classmethod
    def of_states(
        cls, states: Sequence[Any], scale: Vector, l2: float, n_classes: int
    ) -> SparseSteps:
        """Return steps that continue from states of `DistanceFreeAcceleGrad` in scaled form."""
        starts, radii = zip(*((state.start, state.radius) for state in states), strict=True)
        blank = states[0]._replace(**dict.fromkeys(("query_point", *VECTORS)))
        found = cls.of_starts(blank, starts, radii, scale, l2, n_classes)
        for name in (*NUMBERS, "iteration"):
            found._numbers[name] = [getattr(state, name) for state in states]
        found._numbers["equal"], found._numbers["rebases"] = 0, -1
        for row, name in enumerate(VECTORS):
            origins = starts if row in (Z, Y) else np.zeros(len(starts))
            pairs = zip(states, origins, strict=True)
            found.points[:, row] = found._turned([getattr(state, name) - x for state, x in pairs])
        return found

    def _turned(self, vectors: Sequence[Vector]) -> Vector:
        """Return vectors in scaled coordinates as weights, one row per column of the data."""
        _, K, d = self._shape
        parts = [np.concatenate([x[: K * d].reshape(K, d) for x in vectors]).T]
        if self._has_intercept:
            parts.append(np.concatenate([x[K * d :] for x in vectors])[None])
        turned: Vector = np.ascontiguousarray(np.concatenate(parts) * self._scale[:, None])
        return turned

    def _advanced(self, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Any:
        # Targets are a vector, one column per problem, or class numbers.
        if not ends.size:
            return 0
        data, K = chunk.data, self.points.shape[2]
        lengths = np.diff(data.matrix[2]).astype(np.int64)[order]
        most = int(np.add.reduceat(lengths, np.append(0, ends[:-1])).max())
        flat = self.points.reshape(-1)  # in Python: a kernel would compile it in seconds
        points = (self._level, flat, self._start)
        targets = read_only(data.y.reshape(data.y.shape[0], -1))
        rows = (*data.matrix, targets, read_only(chunk.weights))
        room = self._room
        if room is None or room.listed.size < most + 2:
            room = _room(self._level.size, K, len(self._numbers), self._levels.l2.size, most)
        given = (self._numbers, self._fixed, self._levels, points, rows, room)
        several = None if K == 1 else K
        self._room = room
        return steps(several, *given, order, ends)

    # -- points ----------------------------------------------------------------------------------

    def query(self) -> Vector:
        """Return the point of the next gradient."""
        z: Vector = self._vectors(Z)[0]
        y: Vector = self._vectors(Y)[0]
        return z + self._rest * (y - z)

    def output(self) -> Vector:
        """Return the average that the rule's theorem is about."""
        if self.iteration == 0:
            return self.start.copy()
        total: Vector = self._vectors(SUM)[0]
        return total / float(self.numbers["weight_sum"])

    def last(self) -> Vector:
        """Return the last iterate: y of AcceleGrad, x of AdaGrad."""
        last: Vector = self._vectors(Y if self.coupled else Z)[0]
        return last

    def coefficients(self, *, last: bool) -> tuple[Vector, Vector]:
        """Return weights and intercepts at the averages or the last y, one row per set."""
        if last:
            return self._combined(self._factors(Y))
        weight_sums = np.repeat(self._numbers["weight_sum"], self._shape[1])
        return self._combined(self._factors(SUM) / weight_sums)

    def states(self) -> list[Any]:
        """Return the rule's states, in scaled coordinates, after `of_states`."""
        vectors = {name: self._vectors(row) for row, name in enumerate(VECTORS)}
        z, y = vectors["mirror_point"], vectors["gradient_point"]
        vectors["query_point"] = z + self._rest * (y - z)
        return [
            state._replace(
                **{name: found[g] for name, found in vectors.items()},
                **{name: self._numbers[name][g].item() for name in (*NUMBERS, "iteration")},
            )
            for g, state in enumerate(self._states)
        ]

    @property
    def _rest(self) -> float:
        """1 - tau, the share of y in x."""
        return 1.0 - 1.0 / importance_weight(self.iteration) if self.coupled else 0.0

    def _vectors(self, row: int) -> Vector:
        """Return a vector of each problem, named by its row of `Levels.mix`; of z and y with x0."""
        weights, free = self._combined(self._factors(row))
        groups, _, d = self._shape
        parts = [(weights / self._scale[:d]).reshape(groups, -1)]
        if self._has_intercept:
            parts.append(free.reshape(groups, -1))
        return np.hstack(parts)

    def _factors(self, row: int) -> Vector:
        """Return the factors of v, w, s, q and x0 in a vector."""
        mix = np.repeat(self._levels.mix[:, :, row], self._shape[1], axis=0)
        factors = np.zeros((mix.shape[1], 5, mix.shape[0]))
        factors[:, [0, 1, 4]] = mix.transpose(1, 2, 0)
        if row in (S, SUM):
            factors[:, row] = 1.0
        else:
            factors[:, 4] += 1.0
        return factors

    def _combined(self, factors: Vector) -> tuple[Vector, Vector]:
        K, d = self.points.shape[2], self._shape[2]
        weights, free = np.empty((K, d)), np.zeros(K)  # which stay zero without intercepts
        flat, factors = self.points.reshape(-1), factors.reshape(-1)
        combined(flat, self._start, self._level, factors, weights, free)
        return weights, free

    # -- checkpoints -----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return a copy of all that decides the coming steps."""
        _, _, mix, gram = self._levels
        return super().state() | {"levels": np.concatenate([mix, gram], axis=3)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from a `state`, on the same data and settings."""
        super().restore(state)
        self._levels.mix[:], self._levels.gram[:] = np.split(state["levels"], [3], axis=3)
