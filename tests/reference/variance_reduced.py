"""Variance-reduced AcceleGrad, transcribed from its docstring: all iterates are kept."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Vector = NDArray[np.float64]


@dataclass
class Run:
    """Everything that a run went through, an entry an epoch; steps are in lists of lists."""

    snapshots: list[Vector] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    v: list[list[Vector]] = field(default_factory=list)
    x: list[list[Vector]] = field(default_factory=list)
    g: list[list[Vector]] = field(default_factory=list)
    D: list[list[float]] = field(default_factory=list)
    A: list[float] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)  # why a stage began at this epoch
    margins: list[float] = field(default_factory=list)  # by how much that was decided, relative


def variance_reduced_accelegrad(
    value: Callable[[Vector], float],
    gradient: Callable[[Vector, NDArray[np.int64]], Vector],
    x0: Vector,
    orders: list[list[NDArray[np.int64]]],
    L: float,
    mu: float,
) -> Run:
    """Do an epoch for each list of batches; `gradient(x, rows)` is that of the rows' summands."""
    run = Run()
    everything = np.sort(np.concatenate(orders[0]))
    s, length = x0, 0.7
    squares: list[float] = []  # the terms of S
    for batches in orders:
        m = len(batches)
        run.snapshots.append(s)
        run.values.append(value(s))
        anchor, why, margin = s, "", inf
        if len(run.values) == 1:
            why = "start"
        else:
            rise = run.values[-1] - run.values[-2]
            gained = m * run.A[-1] * mu * run.D[-1][-1] / (2 * sqrt(sum(squares)))
            margin = min(abs(rise) / run.values[-1], abs(gained - 1))
            if rise > 0:
                why, length = "rose", length / 2
                anchor = run.snapshots[int(np.argmin(run.values))]
            elif gained >= 1:
                why = "exhausted"
        full = gradient(anchor, everything)
        if why:
            c = v = anchor
            A = 1 / m
            D = np.linalg.norm(full) / L
        a = brentq(lambda a, A=A: a**2 / (A + a) + a**2 / A - 1, 1e-9, 2 * sqrt(A) + 1, xtol=1e-15)
        if why:
            squares = [a**2 * full @ full]
        run.stages.append(why)
        run.margins.append(margin)
        vs, xs, gs, Ds = [v], [], [], [D]
        for rows in batches:
            x = anchor + a / (A + a) * (vs[-1] - anchor)
            g = gradient(x, rows) - gradient(anchor, rows) + full
            if gs:
                squares.append(a**2 * np.linalg.norm(g - gs[-1]) ** 2)
            vs.append(vs[-1] - length * a * Ds[-1] / sqrt(sum(squares)) * g)
            Ds.append(max(Ds[-1], np.linalg.norm(vs[-1] - c)))
            xs.append(anchor + a / (A + a) * (vs[-1] - anchor))
            gs.append(g)
        s = np.mean(xs[m // 2 :], axis=0)
        # What is compared with the next value is the one where this epoch began.
        run.values[-1] = min(run.values[-1], value(anchor))
        v, D, A = vs[-1], Ds[-1], A + a
        run.v.append(vs)
        run.x.append(xs)
        run.g.append(gs)
        run.D.append(Ds)
        run.A.append(A)
    run.snapshots.append(s)
    return run
