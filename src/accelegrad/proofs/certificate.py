"""Lower bounds by the Fenchel dual of a linear model, in the course of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.proofs.cuts import PROVABLE
from accelegrad.proofs.model_dual import ModelDual

# How often bounds are computed: chosen unless a measurement is given.
#: Steps before an expensive bound (in the null space, or a `LateBound`) and between two of them;
#: with 20 in the null space, 46 fits without a penalty took 1.13 times as long
PATIENCE = 8
#: Steps between two bounds, as a share of those done
SPACING = 0.1
#: The same between two expensive bounds that cannot end the run
SELDOM = 3.0
#: Slopes are averaged with weights that grow as this power of the step. With the rule's weights,
#: which grow as the first power, hinge and absolute losses took up to twice as many steps to a gap
#: of 1e-3 with an l1 term or a set.
FORGETTING = 2.0


class LateBound:
    """An expensive lower bound of the minimum of a sum over rows, computed when called.

    It is given by the slopes at `point`, or by `slopes` of rows in memory. `smoothing` is the
    parameter mu of the smoothed loss (0: none), `known` what is already known at the point.
    """

    def __init__(
        self,
        model: LinearModel,
        point: Vector | None = None,
        slopes: Vector | None = None,
        smoothing: float = 0.0,
        known: ModelPoint | None = None,
    ) -> None:
        self._model, self._known = model, known
        self._point, self._slopes, self._smoothing = point, slopes, smoothing

    def __call__(self) -> float:
        """Return the bound."""
        model = self._model
        if self._slopes is not None:
            assert model.in_memory is not None
            return float(model.in_memory.dual.bound(self._slopes))
        assert self._point is not None
        known = self._known
        if known is None:
            source = model.smoothed(self._smoothing) if self._smoothing else model
            known = source.at(self._point)
        return known.dual_value if not self._smoothing else known.beside(model).dual_value_by(known)

    def state(self) -> dict[str, Any]:
        """Return all that is needed to compute it later."""
        return {"point": self._point, "slopes": self._slopes, "smoothing": self._smoothing}


class DualCertificate:
    """Bounds by the Fenchel dual of a linear model, with penalty and constraint: valid everywhere.

    They come from the slopes at a point, or from average slopes, which prove more for losses with
    kinks. Many cost a product with the data, so they are computed at ever rarer steps. `often` says
    whether an up-to-date bound may end the run.
    """

    def __init__(self, dual: ModelDual, *, often: bool = True) -> None:
        self.dual, self.model = dual, dual.model
        self.lower_bound = 0.0  # losses are nonnegative
        #: steps between two costly bounds, as a share of those so far
        self._spacing = SPACING if often else SELDOM
        self._count = 0
        self._next = 0
        self._weight, self._slopes = 0.0, np.zeros(0)  # of the average
        self._best: ModelPoint | None = None
        self._best_value = math.inf
        self._late: LateBound | None = None  # of the last evaluation, not computed yet

    def add(self, evaluation: Any, weight: float) -> None:
        """Take in the slopes at an evaluation; weight 0 keeps them out of the average."""
        self._count += 1
        known, self._late = evaluation.dual_value, evaluation.late_bound
        if known is not None:
            self._raise_to(known)
            self._late = None
        elif self._late is None:
            self._add_slopes(evaluation, weight)
        else:
            self._finish_if_due()

    def _finish_if_due(self) -> None:
        if self._count >= max(self._next, PATIENCE):
            self._next = self._count + max(PATIENCE, int(self._spacing * self._count))
            self.finish()

    def _add_slopes(self, evaluation: Any, weight: float) -> None:
        at: ModelPoint | None = evaluation.model  # None for evaluations that a rule carried over
        if weight > 0.0 and at is not None and self.dual.has_slopes_here:
            share = float(self._count) ** FORGETTING
            self._weight += share
            moved = share * at.derivatives
            self._slopes = self._slopes + moved if self._slopes.size else moved
        is_due = self._count >= max(self._next, PATIENCE if self.dual.needs_null_space else 0)
        is_best = self._best is None or evaluation.value < self._best_value
        if at is None and (is_due or is_best):
            at = self.model.at(evaluation.point)
        if is_best:
            self._best, self._best_value = at, float(evaluation.value)
        if self.dual.needs_null_space:
            self._finish_if_due()
        elif is_due or weight == 0.0:
            assert at is not None
            self._next = self._count + 1 + int(SPACING * self._count)
            self._look(at)

    def _look(self, at: ModelPoint) -> None:
        """Raise the bound by the slopes at a point and, if useful, by average slopes."""
        dual = self.dual
        # The point stores the model's own bound; an l2 term of a penalty changes it.
        is_models = dual.has_only_l2 and dual.terms.l2 == self.model.l2
        raised = self._raise_to(at.dual_value if is_models else dual.at(at))
        # Without kinks the slopes improve steadily, so their average seldom proves more.
        if self._weight > 0.0 and (not raised or self.model.loss.curvature == math.inf):
            self._raise_to(dual.at_slopes(self._slopes / self._weight, least=self.lower_bound))

    def _raise_to(self, bound: float) -> bool:
        better = bound > self.lower_bound
        if better:
            self.lower_bound = bound
        return better

    def resolution(self, evaluation: Any) -> float:
        """Return roughly the smallest gap that rounding lets a dual point prove at a point."""
        value = evaluation.value - evaluation.penalty
        return PROVABLE * self.dual.resolution(evaluation.point, value)

    @property
    def gets_tight(self) -> bool:
        """Whether the bound is sure to reach the minimum."""
        return self.dual.terms.gets_tight

    def finish(self) -> None:
        """Compute the expensive bounds from what is known now."""
        if self._late is not None:
            late, self._late = self._late, None
            self._raise_to(late())
        if self._best is not None:
            self._look(self._best)

    def forget(self) -> None:
        """Start a new average."""
        self._weight, self._slopes = 0.0, np.zeros(0)

    _KEPT = ("lower_bound", "_best_value", "_count", "_next", "_slopes", "_weight")

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep."""
        return {
            "best": None if self._best is None else self._best.w,
            "late": None if self._late is None else self._late.state(),
            **{name: getattr(self, name) for name in self._KEPT},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        for name in self._KEPT:
            setattr(self, name, state[name])
        best, late = state["best"], state["late"]
        self._best = None if best is None else self.model.at(best)
        self._late = None if late is None else LateBound(self.model, **late)
