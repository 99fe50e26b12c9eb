"""The work of solvers for sums over rows: counted in a run, and likely before it.

Work is in seconds, of which only the ratios matter: those that passes over the rows, visits of rows
and factorisations take by the estimates here and of `Costs`, measured with one thread on 60 random
shapes. The clock plays no part.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from accelegrad import kernels
from accelegrad.models.linear_model import LinearModel
from accelegrad.solvers.curvature import FEW_COLUMNS, MOST_PARAMETERS, Costs

#: A step besides its passes over the rows, and an epoch of dual ascent besides its visits
STEP, EPOCH = 4e-4, 1.5e-5
#: A row in a step of the interior-point method
INSIDE_ROW = 5e-8
#: A visit of a row: compiled (the second number: with logarithms), with so many more per entry
#: (dense or sparse), or not
VISIT, VISIT_LOG, VISIT_DENSE, VISIT_SPARSE, PLAIN_VISIT = 6e-8, 4e-7, 5e-10, 2e-9, 1.2e-5
#: Compiling visits pays from this many stored entries, each row counted as at least four: a plain
#: epoch then takes 10 ms, and a run takes dozens to hundreds of them.
LEAST_COMPILED, ENTRIES_OF_ROW = 1 << 12, 4
#: What loading compiled code counts for few entries and a smooth loss, for which other solvers
#: seldom need as much: it takes half a second, once. Chosen.
LOADING = 5e-2
#: Usual steps of proximal Newton for smooth losses and others, of the interior-point method, and of
#: Newton's method for one smooth sum, with this many samples and these evaluations for curvature at
#: most; it takes several smooth sums for a loss with kinks.
PROXIMAL_STEPS, PROXIMAL_STEPS_KINKS, INTERIOR_STEPS = 5.0, 15.0, 12.0
NEWTON_STEPS, NEWTON_SAMPLES, MOST_FOR_CURVATURE, SMOOTH_SUMS = 10.0, 4.0, 60.0, 6.0
#: Epochs of dual ascent besides those that grow with the condition, and per unit of it
FIRST_EPOCHS, EPOCHS = 10.0, 3.0


class Likely(NamedTuple):
    """The work that each solver is likely to need; infinite if it cannot run or never pays."""

    proximal: float
    newton: float
    dual: float = math.inf
    interior: float = math.inf


def likely_works(model: LinearModel) -> Likely:
    """Return the likely work of each solver for a model with an l2 term."""
    costs, loss = Costs.of(model), model.loss
    smooth = math.isfinite(loss.curvature)
    once = costs.all_curvature + costs.evaluation + STEP
    proximal = math.inf
    if model.n_features <= FEW_COLUMNS:
        steps = PROXIMAL_STEPS if smooth else PROXIMAL_STEPS_KINKS
        proximal = once * (1.0 if loss.name == "squared" else steps)
    if costs.at_once:
        newton = once + costs.evaluation + STEP
    else:
        _, cost, _ = costs.sample(1)
        evaluations = NEWTON_STEPS + min(NEWTON_SAMPLES * cost, MOST_FOR_CURVATURE)
        newton = costs.evaluation * evaluations + NEWTON_STEPS * STEP
        newton *= 1.0 if smooth else SMOOTH_SUMS
    if not model.in_memory:
        return Likely(proximal, newton)
    interior = math.inf
    if loss.has_one_kink and model.n_parameters <= MOST_PARAMETERS:
        interior = INTERIOR_STEPS * (once + INSIDE_ROW * model.n_samples)
    return Likely(proximal, newton, _likely_dual(model), interior)


def _likely_dual(model: LinearModel) -> float:
    """Return that of dual ascent, whose epochs grow with the ratio of a row's curvature to l2."""
    n, d, curvature = model.n_samples, model.n_features, model.loss.curvature
    typical = float(np.median(model.row_squares()))
    condition = EPOCHS * min(curvature, 1.0) * typical / (n * model.l2)
    if n < d:  # rows are nearly orthogonal
        root = math.sqrt(n / d)
        condition = min(condition, ((1.0 + root) / (1.0 - root)) ** 2)
    work = (FIRST_EPOCHS + condition) * (n * visit_seconds(model) + EPOCH) + STEP
    few = curvature < math.inf and model.storage.entries < kernels.FEW_ENTRIES
    return work + LOADING if few else work


def visit_seconds(model: LinearModel) -> float:
    """Return the cost of visiting a row."""
    if not visits_are_compiled(model):
        return PLAIN_VISIT
    entry = VISIT_DENSE if model.storage.dense else VISIT_SPARSE
    visit = VISIT_LOG if model.loss.has_logarithms else VISIT
    return visit + entry * model.storage.entries / model.n_samples


def visits_are_compiled(model: LinearModel) -> bool:
    """Return whether compiled code visits the rows."""
    by_rows = ENTRIES_OF_ROW * model.n_samples  # rows may be nearly empty
    known = kernels.readable(model.X)
    return kernels.wanted(known, lambda known: max(known.entries, by_rows) >= LEAST_COMPILED)
