"""What is minimised: goals by name, and what they come to on given rows.

Our estimators have all their defaults but for what makes the problem: the loss, the penalty and,
with l1 terms, a strength that suits the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.sets import NonNegative
from accelegrad.models.losses import by_sklearn_name
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from accelegrad.sklearn.objective import Objective, Problem, penalty_weights
from accelegrad.sklearn.solve import NEGLIGIBLE
from accelegrad_lab.engine.minimum import is_sparse
from accelegrad_lab.engine.peers import HUBER_EPSILON, huber_scale
from accelegrad_lab.everyday.rows import Rows

ALPHA = 1e-4  # the estimators' default
HALF = 0.5  # l1_ratio, the default of ElasticNet
PATH = tuple(np.geomspace(0.9, 1e-3, 7))  # shares, along a path of l1 penalties


@dataclass(frozen=True)
class Goal:
    """A kind of fit.

    Parameters
    ----------
    loss : str
        As the estimators name it.
    penalty : str, optional
        As the estimators name it.
    share : float, optional
        `alpha`, as a share of the least one at which all weights are zero; by default the
        estimators' default.
    nonnegative : bool
        Whether weights have to be.
    path : bool
        Whether alpha is chosen by cross-validation.
    parameters : mapping
        Of the loss.
    """

    loss: str
    penalty: str | None = "l2"
    share: float | None = None
    nonnegative: bool = False
    path: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_l1(self) -> bool:
        """Whether there is an l1 term."""
        return self.penalty in ("l1", "elasticnet")

    @property
    def is_plain(self) -> bool:
        """Whether it is one fit with an l2 penalty and nothing else."""
        return self.penalty == "l2" and not self.nonnegative and not self.path


GOALS: Mapping[str, Goal] = {
    "log_loss": Goal("log_loss"),
    "hinge": Goal("hinge"),
    "squared_hinge": Goal("squared_hinge"),
    "l1 log_loss 0.1": Goal("log_loss", "l1", 0.1),
    "l1 log_loss 0.01": Goal("log_loss", "l1", 0.01),
    "log_loss CV": Goal("log_loss", path=True),
    "ridge": Goal("squared_error"),
    "lasso 0.1": Goal("squared_error", "l1", 0.1),
    "lasso 0.01": Goal("squared_error", "l1", 0.01),
    "elastic net 0.1": Goal("squared_error", "elasticnet", 0.1),
    "nonnegative ridge": Goal("squared_error", nonnegative=True),
    "nonnegative least squares": Goal("squared_error", None, nonnegative=True),
    "huber": Goal("huber"),
    "quantile 0.9": Goal("quantile", "l1", parameters={"quantile": 0.9}),
    "absolute": Goal("absolute_error", None),
    "epsilon-insensitive": Goal("epsilon_insensitive"),
    "ridge CV": Goal("squared_error", path=True),
    "lasso CV": Goal("squared_error", "l1", path=True),
}


@dataclass(frozen=True, eq=False)
class Contest:
    """A goal on given rows: our estimator, and the objective that everybody is judged by."""

    goal: Goal
    rows: Rows

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.rows.X.shape[0])

    @cached_property
    def classes(self) -> Vector | None:
        """The labels; None for numbers."""
        return np.unique(self.rows.y) if self._is_classified else None

    @property
    def n_classes(self) -> int:
        """The number of classes, 0 for numbers."""
        return 0 if self.classes is None else self.classes.size

    @property
    def _is_classified(self) -> bool:
        return self.goal.loss in by_sklearn_name(classification=True)

    @cached_property
    def alpha(self) -> float:
        """The strength of the penalty."""
        goal = self.goal
        if goal.share is None:
            return 0.0 if goal.penalty is None else ALPHA
        return goal.share * self.least_for_zero / (HALF if goal.penalty == "elasticnet" else 1.0)

    @property
    def cost(self) -> float:
        """LIBLINEAR's C: its objective is ours divided by alpha."""
        return 1.0 / (self.alpha * self.n_rows)

    @cached_property
    def least_for_zero(self) -> float:
        """The least strength of an l1 term with which all weights are zero."""
        X, y = self.rows
        if self.classes is not None:
            y = y == self.classes[-1]
        return float(np.abs(X.T @ (y - y.mean())).max()) / self.n_rows

    @cached_property
    def alphas(self) -> Vector | None:
        """The strengths of a path; None for the estimators' default."""
        return np.array(PATH) * self.least_for_zero if self.goal.has_l1 else None

    @cached_property
    def parameters(self) -> dict[str, float]:
        """The parameters of the loss; Huber's is such that HuberRegressor has the same minimiser.

        (`huber_scale` tells why.)
        """
        if self.goal.loss != "huber":
            return dict(self.goal.parameters)
        return {"delta": HUBER_EPSILON * self.scale}

    @cached_property
    def scale(self) -> float:
        """The scale that HuberRegressor finds."""
        X, y = self.rows
        return huber_scale(X, y, self.alpha * self.n_rows, fit_intercept=True)

    def ours(self, tol: float | None = None) -> Any:
        """Return our estimator; `tol` is for another tolerance than the default."""
        goal = self.goal
        options: dict[str, Any] = {**self.parameters, "random_state": 0}
        if not self._is_classified:
            options["target_scale"] = 1.0  # the plain objective, which others have
        if goal.penalty != "l2":
            options["penalty"] = goal.penalty
        if goal.penalty == "elasticnet":
            options["l1_ratio"] = HALF
        if goal.nonnegative:
            options["feasible_set"] = "nonnegative"
        if tol is not None:
            options["tol"] = tol
        if goal.path:
            kind: Any = AcceleGradClassifierCV if self._is_classified else AcceleGradRegressorCV
            return kind(goal.loss, **options, **({} if self.alphas is None else self._path))
        kind = AcceleGradClassifier if self._is_classified else AcceleGradRegressor
        return kind(goal.loss, alpha=self.alpha, **options)

    @property
    def _path(self) -> dict[str, Any]:
        return {"alphas": self.alphas}

    # -- the objective ---------------------------------------------------------------------------

    @cached_property
    def problems(self) -> list[Problem]:
        """The objective: of one class against the rest, one for each class."""
        goal, names = self.goal, by_sklearn_name(classification=self._is_classified)
        objective = Objective(
            names[goal.loss].name,
            *penalty_weights(goal.penalty, self.alpha, HALF),
            NonNegative() if goal.nonnegative else None,
            True,
            self.parameters,
        )
        X, y = self.rows
        if self.classes is None:
            return [objective.on(X, np.asarray(y, dtype=np.float64), None)]
        if self.is_joint:
            places = np.searchsorted(self.classes, y)
            return [objective.on_classes(X, places, self.n_classes, None)]
        positive = self.classes[1:] if self.n_classes == 2 else self.classes
        return [objective.on(X, np.where(y == one, 1.0, -1.0), None) for one in positive]

    @property
    def is_joint(self) -> bool:
        """Whether it is one multinomial problem."""
        return self.n_classes > 2 and self.goal.loss == "log_loss"

    @property
    def floor(self) -> float:
        """What objectives are at least counted as, where errors are relative to them."""
        return sum(NEGLIGIBLE * problem.null_value for problem in self.problems)

    def value(self, fitted: Any) -> float:
        """Return the objective at the coefficients of an estimator, computed by us."""
        rows = np.atleast_2d(_dense(fitted.coef_)).astype(np.float64)
        intercepts = np.atleast_1d(fitted.intercept_).astype(np.float64)
        if not (np.isfinite(rows).all() and np.isfinite(intercepts).all()):
            return float("inf")
        if self.goal.nonnegative and rows.min() < 0.0:
            return float("inf")
        points = [np.append(rows.ravel(), intercepts)]
        if not self.is_joint:
            points = [np.append(row, b) for row, b in zip(rows, intercepts, strict=True)]
        return sum(
            problem.value(point) for problem, point in zip(self.problems, points, strict=True)
        )


def _dense(coefficients: Any) -> Any:
    return coefficients.toarray() if is_sparse(coefficients) else np.asarray(coefficients)
