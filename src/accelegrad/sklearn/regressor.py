"""`AcceleGradRegressor`: linear regression for smooth and non-smooth losses."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from accelegrad.errors import Vector
from accelegrad.problems.losses import (
    DELTA,
    EPSILON,
    PARAMETERS,
    QUANTILE,
    Parameter,
    by_sklearn_name,
    losses_with,
)
from accelegrad.sklearn.base import LinearEstimator, StreamFitting, dense_rows
from accelegrad.sklearn.data import Data
from accelegrad.sklearn.objective import Objective, Problem
from accelegrad.sklearn.parameters import FITTED, PARTIAL_FIT, documented, parameter
from accelegrad.sklearn.solve import solve

LOSSES = by_sklearn_name(classification=False)


def _of_losses(known: Parameter) -> Any:
    """Return a parameter of some losses as one of the estimators."""
    names = " and ".join(f'"{entry.sklearn_name}"' for entry in losses_with(known))
    return parameter(known.default, "float", f"Of {names}: {known.words}.")


@dataclass(eq=False, repr=False)
class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """What regressors share."""

    loss: str = parameter(
        "squared_error",
        "str",
        '"squared_error" :math:`(m-y)^2/2`, "absolute_error" :math:`|m-y|`, "huber", "quantile", '
        '"epsilon_insensitive" or "squared_epsilon_insensitive".',
    )
    _: KW_ONLY
    quantile: float = _of_losses(QUANTILE)
    epsilon: float = _of_losses(EPSILON)
    delta: float = _of_losses(DELTA)

    _losses = LOSSES

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict targets.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array of shape (n_samples,)
        """
        return self._scores(X).ravel()

    def _loss_parameters(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in PARAMETERS}

    def _shaped(self, coefficients: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return coefficients.ravel()

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        X, y = self._checked(X, y, reset=reset, y_numeric=True)
        weights = self._checked_weights(sample_weight, X)
        return Data(X, np.asarray(y, dtype=np.float64), weights)

    def _problems(self, objective: Objective, data: Data) -> list[Problem]:
        return [objective.on(*data)]

    def _set_parameters(self, points: list[Vector]) -> None:
        (x,) = points
        if self.fit_intercept:
            self.coef_, self.intercept_ = x[:-1], float(x[-1])
        else:
            self.coef_, self.intercept_ = x, 0.0

    def _starts(self, problems: list[Problem], *, warm: bool) -> list[Vector]:
        (problem,) = problems
        if not warm or np.size(getattr(self, "intercept_", ())) == 0:
            return [problem.start()]
        rows, intercept = dense_rows(self.coef_, self.intercept_, 1)
        if rows.shape[1] != problem.model.n_features:
            return [problem.start()]
        return [problem.nearest(np.append(rows[0], intercept) if self.fit_intercept else rows[0])]

    def _fit_data(self, data: Data, objective: Objective) -> None:
        settings, seed, score = self._settings(), self._seed(), None
        if self.early_stopping:
            data, held = self._held_out(data, None, seed)
            if np.ptp(held.y) == 0.0:
                self._refuse_to_hold(
                    held.y.size,
                    data,
                    "R^2 is not defined for targets that are all the same",
                )
            score = Determination(held, intercept=bool(self.fit_intercept))
        problems = self._problems(objective, data)
        (start,) = self._starts(problems, warm=self.warm_start)
        fit = solve(problems[0], settings, start, score=score, seed=seed)
        self._set_parameters([fit.parameters])
        self._keep(fit, data)


class Determination:
    """R^2 on held-out rows."""

    def __init__(self, held: Data, *, intercept: bool) -> None:
        self.held, self.intercept = held, intercept

    def __call__(self, x: Vector) -> float:
        """Return R^2, weighted, for these parameters."""
        X, y, weights = self.held
        predicted = X @ x[: X.shape[1]] + (x[-1] if self.intercept else 0.0)
        return float(r2_score(y, predicted, sample_weight=weights))


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradRegressor(LinearRegressor, StreamFitting):
    r"""Linear regression without tuning, and with a certified gap.

    Minimises the (weighted) mean loss plus the penalty,

    .. math:: \sum_i p_i\, l(a_i^T w + b, y_i) + \alpha R(w), \qquad
              R(w) = \tfrac12 \lVert w \rVert^2 \text{ for ``penalty="l2"``},

    the objective of scikit-learn's ``SGDRegressor``, with `accelegrad.minimize`.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        The coefficients.
    intercept_ : float
        The intercept, 0.0 without one.
    {fitted}

    See Also
    --------
    AcceleGradClassifier : The same for classes.
    AcceleGradRegressorCV : Chooses `alpha` by cross-validation.

    References
    ----------
    K. Y. Levy, A. Yurtsever, V. Cevher, "Online adaptive methods, universality and acceleration",
    NeurIPS 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from accelegrad.sklearn import AcceleGradRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> median = AcceleGradRegressor("absolute_error", alpha=0.0).fit(X, y)
    >>> bool(median.gap_ <= 1e-3 * median.objective_)
    True
    """

    @documented(stream=PARTIAL_FIT)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on with the next rows of a stream: a step every `batch_size` rows.

        {stream}

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        self._learn(self._objective(), self._prepared(self._next_rows(X, y, sample_weight)))
        return self
