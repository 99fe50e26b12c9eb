"""Epochs of the variance-reduced rule on CSR rows: O(nonzeros of the batch) a step, exact.

Within an epoch the anchor s, the sum's gradient h there and the stage's start c stand still. With
u = v - s, e = s - c and L = l2 tau, a step of size eta with the gradient g = p + L u + h, where p
is the sparse part, is u+ = (1 - eta L) u - eta h - eta p. So u = k q - beta h with

    k+ = (1 - eta L) k,    beta+ = (1 - eta L) beta + eta,    q+ = q - (eta / k+) p,

and of the vectors only q changes, where p is not zero. As p is a sum of rows, its products with q,
h and e are sums over the rows' products with them; u.u, u.h and u.e follow u by recurrences. The
sum of the averaged u is K q - r - B h with K and B the sums of k and beta, where r takes up what
q's changes would do to the past. Where k comes close to zero all is rewritten with k = 1
and beta = 0: that costs O(columns), and is rare.

The intercept, which has no l2 term, is a separate number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.kernels.compile import Call, announces, compiled, csr_layouts, kernel
from accelegrad.kernels.epochs import NO_ROWS, over_root, record
from accelegrad.kernels.sparse_rows import aligned, look_ahead, sparse_product
from accelegrad.kernels.variance_reduced import NUMBERS, Path, common_path, common_sums, row_factor

#: What changes in a column: q, r, and p of two batches in turn.
Q, R, FIRST, SECOND = range(4)
WIDTH = 4
SMALLEST_K = 1e-3  # below it the columns are rewritten with k = 1; about 1e-16 / this is lost

#: The numbers that change. `uu` is u.u, and so on; of the step before: `k0`, `beta0`, its size
#: `eta`, p.p, p.g and g.g; of the intercept u, its sum, g of the step before, h and e.
SCALARS = record(
    [
        *("k", "beta", "k0", "beta0", "k_sum", "beta_sum", "eta", "L"),
        *("uu", "uh", "ue", "hh", "he", "ee", "pp", "pg", "gg"),
        *("ub", "ub_sum", "gb", "hb", "eb"),
    ],
    ["rewritten"],
)
#: The inner products of p: with itself, p before, q, h, e and g before; and the sum of factors.
PRODUCTS = record(["pp", "po", "pq", "ph", "pe", "pg", "total"], [])


@compiled
def _products(data: Any, indices: Any, start: int, stop: int, columns: Any, h: Any) -> Any:
    """Return a_i.q and a_i.h."""
    along_q, along_h = 0.0, 0.0
    for e in range(start, stop):
        j = indices[e]
        along_q += data[e] * columns[j, Q]
        along_h += data[e] * h[j]
    return along_q, along_h


@compiled
def _scatter(
    data: Any, indices: Any, start: int, stop: int, c: float, columns: Any, new: int, of: Any
) -> None:
    """Add c a_i to p, and what that adds to its products with itself and with p before."""
    pp, po, old = 0.0, 0.0, FIRST + SECOND - new
    for e in range(start, stop):
        j = indices[e]
        added = c * data[e]
        pp += added * (2.0 * columns[j, new] + added)
        po += added * columns[j, old]
        columns[j, new] += added
    of.pp += pp
    of.po += po


@compiled
def _step(e: Any, s: Any, of: Any, gb: float) -> Any:
    """Do what a step does to the rule's numbers; return what u is multiplied with."""
    pu = s.k * of.pq - s.beta * of.ph
    if e.done > 0:  # the squared distance of the gradient from the one before
        if s.rewritten:
            with_before = of.pg
        else:  # u before was k0 q0 - beta0 h, with q0 = q + (eta / k) p before
            u_before = s.k0 * (of.pq + s.eta / s.k * of.po) - s.beta0 * of.ph
            with_before = of.po + s.L * u_before + of.ph
        shrink = s.L * s.eta
        sparse = of.pp - 2.0 * of.po + s.pp
        change = sparse - 2.0 * shrink * (with_before - s.pg) + shrink * shrink * s.gg
        change = 0.0 if change < 0.0 else change
        e.squares += e.weight * e.weight * (change + (gb - s.gb) * (gb - s.gb))
    eta = over_root(e.length * e.weight * e.radius, e.squares)
    ug = pu + s.L * s.uu + s.uh
    hg = of.ph + s.L * s.uh + s.hh
    eg = of.pe + s.L * s.ue + s.he
    s.pp, s.pg = of.pp, of.pp + s.L * pu + of.ph
    s.gg = s.pg + s.L * ug + hg
    s.uu += eta * (eta * s.gg - 2.0 * ug)
    s.uh -= eta * hg
    s.ue -= eta * eg
    s.ub -= eta * gb
    s.eta, s.gb, e.step_size = eta, gb, eta
    s.k0, s.beta0 = s.k, s.beta
    distance = s.uu + 2.0 * s.ue + s.ee  # the squared one of v from c
    distance = 0.0 if distance < 0.0 else distance
    distance = math.sqrt(distance + (s.ub + s.eb) * (s.ub + s.eb))
    e.radius = e.radius if e.radius >= distance else distance
    return 1.0 - s.L * eta


@compiled
def _move(
    data: Any, indices: Any, start: int, stop: int, factor: float, k_sum: float, columns: Any
) -> None:
    """Do a row's part of the step in q, and in r what it does to the past."""
    for e in range(start, stop):
        j = indices[e]
        moved = factor * data[e]
        columns[j, Q] -= moved
        columns[j, R] -= k_sum * moved


@compiled
def _clear(indices: Any, start: int, stop: int, columns: Any, slot: int) -> None:
    for e in range(start, stop):
        columns[indices[e], slot] = 0.0


@compiled
def _begin_anew(s: Any, columns: Any, h: Any, new: int, g: Any) -> None:
    """Do the step in all columns, with k = 1 and beta = 0 afterwards; g gets the gradient."""
    for j in range(columns.shape[0]):
        q = columns[j, Q]
        u = s.k * q - s.beta * h[j]
        g[j] = columns[j, new] + s.L * u + h[j]
        columns[j, R] -= s.k_sum * q - s.beta_sum * h[j]
        columns[j, Q] = u - s.eta * g[j]
    s.k, s.beta, s.k_sum, s.beta_sum = 1.0, 0.0, 0.0, 0.0


@compiled
def _reset(of: Any) -> None:
    of.pp, of.po, of.pq, of.ph, of.pe, of.pg, of.total = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0


@kernel
def sparse_epoch(
    numbers: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    given: Any,
    h: Any,
    room: Any,
    order: Any,
    batch_size: int,
) -> None:
    """Do a step for each batch of rows; `numbers` and what is in the room are changed."""
    columns, flat, scalars, products, factors, g = room
    e, s, of = numbers[0], scalars[0], products[0]
    y, shares, loss, slopes = given.y, given.shares, given.loss, given.slopes
    margins, along_e = given.margins, given.travelled
    intercept = h.size > columns.shape[0]
    for first in range(0, order.size, batch_size):
        last = min(first + batch_size, order.size)
        new = FIRST + e.done % 2
        _reset(of)
        for k in range(first, last):
            look_ahead(data, indices, indptr, flat, WIDTH, order, k)
            i = order[k]
            start, stop = indptr[i], indptr[i + 1]
            along_q, along_h = _products(data, indices, start, stop, columns, h)
            moved = s.k * along_q - s.beta * along_h + s.ub
            margin = margins[i] + e.coupling * moved
            c = row_factor(loss, y, shares, slopes, i, margin, last - first)
            of.pq += c * along_q
            of.ph += c * along_h
            of.pe += c * (along_e[i] - s.eb)
            of.total += c
            if s.rewritten:
                of.pg += c * sparse_product(data, indices, start, stop, g)
            factors[k - first] = c
            if c != 0.0:
                _scatter(data, indices, start, stop, c, columns, new, of)
        keep = _step(e, s, of, s.hb + of.total if intercept else 0.0)
        s.rewritten = abs(keep * s.k) < SMALLEST_K
        if s.rewritten:
            _begin_anew(s, columns, h, new, g)
        else:
            s.k, s.beta = keep * s.k, keep * s.beta + s.eta
            for k in range(first, last):
                i, factor = order[k], s.eta / s.k * factors[k - first]
                if factor != 0.0:
                    _move(data, indices, indptr[i], indptr[i + 1], factor, s.k_sum, columns)
        for k in range(max(first - batch_size, 0), first):
            i = order[k]
            _clear(indices, indptr[i], indptr[i + 1], columns, FIRST + SECOND - new)
        if e.done >= e.kept_from:
            s.k_sum += s.k
            s.beta_sum += s.beta
            s.ub_sum += s.ub
        e.done += 1


# What an epoch does once is done by NumPy: to compile it would take a quarter of a second.


class Room(NamedTuple):
    """The memory that epochs take beyond the data, mostly four numbers per column."""

    columns: Any
    flat: Any
    """The same memory in a row: kernels would take seconds to compile that."""
    scalars: Any
    products: Any
    factors: Vector
    """Of the rows of a batch."""
    gradient: Vector

    @classmethod
    def for_epoch(cls, columns: Any, path: Path, shrink: float, batch_size: int) -> Room:
        """Write down what an epoch begins with.

        Parameters
        ----------
        columns : array
            What `room` returned.
        path : Path
            The points.
        shrink : float
            The l2 term's weight times the coupling.
        batch_size : int
            Rows in a batch.
        """
        scalars, d = np.zeros(1, SCALARS), len(columns)
        moved, way = path.mirror - path.anchor, path.anchor - path.start
        u, h, e = moved[:d], path.full_gradient[:d], way[:d]
        columns[:] = 0.0
        columns[:, Q] = u
        known = {"uu": u @ u, "uh": u @ h, "ue": u @ e, "hh": h @ h, "he": h @ e, "ee": e @ e}
        if path.anchor.size > d:
            known |= {"ub": moved[d], "hb": path.full_gradient[d], "eb": way[d]}
        for name, number in {"k": 1.0, "L": shrink, **known}.items():
            scalars[name] = number
        room = np.empty(batch_size), np.empty(d)
        return cls(columns, columns.reshape(-1), scalars, np.zeros(1, PRODUCTS), *room)

    def write(self, path: Path, coupling: float, kept: int) -> None:
        """Write down v and the sum of the averaged points, after an epoch."""
        s, d = self.scalars[0], len(self.columns)
        q, r, h = self.columns[:, Q], self.columns[:, R], path.full_gradient[:d]
        path.mirror[:d] = path.anchor[:d] + (s["k"] * q - s["beta"] * h)
        path.total[:] = kept * path.anchor
        path.total[:d] += coupling * (s["k_sum"] * q - r - s["beta_sum"] * h)
        if path.anchor.size > d:
            path.mirror[d] = path.anchor[d] + s["ub"]
            path.total[d] += coupling * s["ub_sum"]


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    path = common_path()
    for name, given in common_sums():
        for end, matrix in csr_layouts():
            memory = Room.for_epoch(aligned(1, WIDTH), path, 0.0, 1)
            rest = (given, path.full_gradient, memory, NO_ROWS, 1)
            arguments = (np.zeros(1, NUMBERS), *matrix, *rest)
            yield Call(f"variance-reduced epoch, {name}, {end}", sparse_epoch, arguments)


def room(n_features: int) -> Vector:
    """Return four numbers per column, which serve all epochs."""
    return aligned(n_features, WIDTH)
