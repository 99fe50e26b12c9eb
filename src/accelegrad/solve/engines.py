"""Which method serves a linear model best, and what it needs: measured, see `Engine`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from accelegrad.problems.linear_model import LinearModel
from accelegrad.rules.base import Rule
from accelegrad.rules.dual_ascent import DualAscent
from accelegrad.rules.sketched_newton import FinishedByNewton
from accelegrad.solve.curvature import Costs
from accelegrad.solve.curved_sum import CurvedOracle, SmoothedCurvedOracle
from accelegrad.solve.dual_ascent import DualOracle
from accelegrad.solve.oracle import ModelOracle

#: With more rows than so many times the columns, the dual has too many coordinates.
MOST_ROWS = 1.5


class Engine(NamedTuple):
    """A rule with the oracle that it needs, and why it is that one."""

    rule: Rule
    oracle: ModelOracle
    reason: str


def engine(model: LinearModel, rng: np.random.Generator, goal: Callable[[float], float]) -> Engine:
    """Return what minimises a linear model without constraint or penalty fastest.

    Parameters
    ----------
    model : LinearModel
        The model; a loss with kinks needs an l2 term.
    rng : numpy.random.Generator
        Where the order of the rows and the samples come from.
    goal : callable
        The gap that is wanted, for a value; 0 if there is none.
    """
    reason = why_dual(model)
    if reason:
        return Engine(DualAscent(), DualOracle(model, rng), reason)
    if math.isfinite(model.loss.curvature):
        return Engine(FinishedByNewton(), CurvedOracle(model, rng), _why_newton(model))
    if model.l2 == 0.0:
        raise ValueError(f"model must have an l2 term for the {model.loss.name} loss, but l2 is 0.")
    oracle = SmoothedCurvedOracle(model, rng, goal)
    return Engine(FinishedByNewton(), oracle, _why_newton(model))


def why_dual(model: LinearModel) -> str:
    """Say why coordinate ascent on the dual is best; empty if it is not."""
    if model.l2 == 0.0 or model.fit_intercept:
        return ""
    if model.n_samples > MOST_ROWS * model.n_features or Costs.of(model).least:
        return ""
    return f"the dual has {model.n_samples} coordinates, the primal {model.n_features}"


def _why_newton(model: LinearModel) -> str:
    if Costs.of(model).least:
        return f"the curvature in {model.n_parameters} coordinates costs little beside gradients"
    return f"steps on a few of {model.n_samples} rows, then gradients that learn the curvature"
