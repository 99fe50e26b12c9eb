"""The oracle of each rule for sums over rows."""

from __future__ import annotations

import math

import numpy as np

from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel
from accelegrad.proofs.fenchel import Terms
from accelegrad.rules.base import Rule
from accelegrad.solvers.dual_ascent import DualAscent, DualOracle
from accelegrad.solvers.interior_point import BarrierOracle, InteriorPoint, has_one_kink
from accelegrad.solvers.newton import CurvedOracle, SketchedNewton, SmoothedCurvedOracle
from accelegrad.solvers.proximal_newton import (
    PenalisedOracle,
    ProximalNewton,
    SmoothedPenalisedOracle,
)
from accelegrad.solvers.row_oracle import Goal, RowOracle

#: The rules that work on the rows of a linear model, and on nothing else.
SUM_RULES = (SketchedNewton, DualAscent, ProximalNewton, InteriorPoint)


def sum_oracle(
    rule: Rule,
    model: LinearModel,
    rng: np.random.Generator,
    goal: Goal,
    penalty: Penalty | None = None,
    feasible_set: FeasibleSet | None = None,
) -> RowOracle:
    """Return the oracle for one of the `SUM_RULES`.

    `goal` maps a value to the wanted gap, 0 for none. Only rules that can "terms" take a penalty or
    a feasible set.
    """
    smooth = math.isfinite(model.loss.curvature)
    if isinstance(rule, InteriorPoint):
        terms = one_kink_terms(model, penalty, feasible_set)
        return BarrierOracle(model, rng, goal, terms, penalty)
    if isinstance(rule, ProximalNewton):
        terms = separate_terms(model, penalty, feasible_set)
        return (PenalisedOracle if smooth else SmoothedPenalisedOracle)(
            model, rng, goal, terms, penalty
        )
    if isinstance(rule, DualAscent):
        return DualOracle(model, rng, goal)
    return (CurvedOracle if smooth else SmoothedCurvedOracle)(model, rng, goal)


def separate_terms(
    model: LinearModel, penalty: Penalty | None, feasible_set: FeasibleSet | None
) -> Terms:
    """Return the terms of a model if each weight has its own; refuse otherwise."""
    terms = Terms.of(model, penalty, feasible_set)
    if terms is None or not terms.hold_each_weight(model.loss):
        raise ValueError(
            "method 'proximal-newton' takes l1 and elastic net terms and boxes, and each weight "
            "has to have an l1 or l2 term or two ends (for least squares one end, at 0, will "
            f"do); penalty is {penalty!r}, feasible_set "
            f"{feasible_set!r}, and the model's l2 {model.l2!r}."
        )
    return terms


def one_kink_terms(
    model: LinearModel, penalty: Penalty | None, feasible_set: FeasibleSet | None
) -> Terms:
    """Return the terms of a loss with one kink if each weight has one; refuse otherwise."""
    terms = Terms.of(model, penalty, feasible_set)
    held = terms is not None and terms.feasible_set is None and terms.gets_tight
    if terms is None or not held or not has_one_kink(model.loss):
        raise ValueError(
            "method 'interior-point' takes losses with one kink ('hinge', 'absolute', 'quantile'), "
            "l1 and elastic net terms and no constraint, and each weight has to have an l1 or l2 "
            f"term; the loss is {model.loss.name!r}, penalty {penalty!r}, feasible_set "
            f"{feasible_set!r}, and the model's l2 {model.l2!r}."
        )
    return terms
