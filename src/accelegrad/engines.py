"""Which method for sums over rows serves a linear model best, and what each of them works on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from accelegrad.problems.linear_model import LinearModel
from accelegrad.rows.curvature import Costs
from accelegrad.rows.dual_ascent import DualAscent
from accelegrad.rows.dual_ascent_oracle import DualOracle
from accelegrad.rows.newton import FinishedByNewton, SketchedNewton
from accelegrad.rows.newton_oracle import CurvedOracle, SmoothedCurvedOracle
from accelegrad.rows.smoothing import SmoothedSumOracle
from accelegrad.rows.variance_reduced import VarianceReducedAcceleGrad
from accelegrad.rows.variance_reduced_oracle import FiniteSumOracle
from accelegrad.rules.base import Rule
from accelegrad.run.oracle import ModelOracle

#: The gap that is wanted, for a value; 0 if there is none.
Goal: TypeAlias = Callable[[float], float]

#: With more rows than so many times the columns, the dual has too many coordinates; steps of the
#: logistic loss, which take logarithms, are dearer.
MOST_ROWS, MOST_ROWS_LOGISTIC = 1.5, 0.75
#: The rules that work on the rows of a linear model, and on nothing else.
SUM_RULES = (VarianceReducedAcceleGrad, SketchedNewton, FinishedByNewton, DualAscent)


def sum_oracle(rule: Rule, model: LinearModel, rng: np.random.Generator, goal: Goal) -> ModelOracle:
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
        The gap that is wanted, for a value; 0 if there is none.
    """
    if isinstance(rule, DualAscent):
        return DualOracle(model, rng, goal)
    curved = not isinstance(rule, VarianceReducedAcceleGrad)
    if math.isfinite(model.loss.curvature):
        return (CurvedOracle if curved else FiniteSumOracle)(model, rng, goal)
    return (SmoothedCurvedOracle if curved else SmoothedSumOracle)(model, rng, goal)


def has_curvature(model: LinearModel) -> bool:
    """Tell whether second derivatives cost little enough, beside gradients, to be of use."""
    return Costs.of(model).least > 0


def why_dual(model: LinearModel) -> str:
    """Say why coordinate ascent on the dual is best; empty if it is not."""
    if model.l2 == 0.0 or model.fit_intercept or model.in_memory is None:
        return ""
    most = MOST_ROWS_LOGISTIC if model.loss.name == "logistic" else MOST_ROWS
    if model.n_samples > most * model.n_features or has_curvature(model):
        return ""
    return f"the dual has {model.n_samples} coordinates, the primal {model.n_features}"


def why_newton(model: LinearModel) -> str:
    """Say why Newton's steps, after a few epochs at most, are best."""
    if has_curvature(model):
        return f"the curvature in {model.n_parameters} coordinates costs little beside gradients"
    return (
        f"steps on a few of {model.n_samples} rows are soon near, and full gradients learn the "
        "curvature"
    )
