"""Which oracle each rule for sums over rows works on."""

from __future__ import annotations

import math

import numpy as np

from accelegrad.problems.linear_model import LinearModel
from accelegrad.rows.dual_ascent import DualAscent
from accelegrad.rows.dual_ascent_oracle import DualOracle
from accelegrad.rows.newton import FinishedByNewton, SketchedNewton
from accelegrad.rows.newton_oracle import CurvedOracle, SmoothedCurvedOracle
from accelegrad.rows.row_oracle import Goal, RowOracle
from accelegrad.rows.smoothing import SmoothedSumOracle
from accelegrad.rows.variance_reduced import VarianceReducedAcceleGrad
from accelegrad.rows.variance_reduced_oracle import FiniteSumOracle
from accelegrad.rules.base import Rule

#: The rules that work on the rows of a linear model, and on nothing else.
SUM_RULES = (VarianceReducedAcceleGrad, SketchedNewton, FinishedByNewton, DualAscent)


def sum_oracle(rule: Rule, model: LinearModel, rng: np.random.Generator, goal: Goal) -> RowOracle:
    """Return what one of the `SUM_RULES` works on.

    Parameters
    ----------
    rule : Rule
        One of them.
    model : LinearModel
        The model; where its loss has kinks, it needs an l2 term.
    rng : numpy.random.Generator
        Where the order of the rows and the samples come from.
    goal : callable
        From the value at a point to the gap that is wanted there; 0 if none is.
    """
    if isinstance(rule, DualAscent):
        return DualOracle(model, rng, goal)
    curved = not isinstance(rule, VarianceReducedAcceleGrad)
    if math.isfinite(model.loss.curvature):
        return (CurvedOracle if curved else FiniteSumOracle)(model, rng, goal)
    return (SmoothedCurvedOracle if curved else SmoothedSumOracle)(model, rng, goal)
