"""`AcceleGradRegressor`: linear regression for smooth and non-smooth losses."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from accelegrad.errors import Vector
from accelegrad.problems.losses import PARAMETERS, by_sklearn_name
from accelegrad.sklearn.base import LinearEstimator, StreamFitting, dense_rows
from accelegrad.sklearn.data import Data, without_weightless
from accelegrad.sklearn.objective import Objective, Problem
from accelegrad.sklearn.solve import solve

LOSSES = by_sklearn_name(classification=False)


class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """What regressors share."""

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

    def _prepared(self, data: Data) -> Data:
        """Return the rows that have weight."""
        return without_weightless(data)

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


class AcceleGradRegressor(LinearRegressor, StreamFitting):
    r"""Linear regression without tuning, and with a certified gap.

    Minimises the (weighted) mean loss plus the penalty,

    .. math:: \sum_i p_i\, l(a_i^T w + b, y_i) + \alpha R(w), \qquad
              R(w) = \tfrac12 \lVert w \rVert^2 \text{ for ``penalty="l2"``},

    the objective of scikit-learn's ``SGDRegressor``, with `accelegrad.minimize`.

    Parameters
    ----------
    loss : str, default "squared_error"
        "squared_error" :math:`(m-y)^2/2`, "absolute_error" :math:`|m-y|`, "huber", "quantile",
        "epsilon_insensitive" or "squared_epsilon_insensitive".
    penalty : {"l2", "l1", "elasticnet"} or None, default "l2"
        :math:`R(w)` is :math:`\lVert w\rVert^2/2`, :math:`\lVert w\rVert_1`, or with
        :math:`\rho` = `l1_ratio` :math:`\rho\lVert w\rVert_1 + (1-\rho)\lVert w\rVert^2/2`. The
        intercept is never penalised.
    alpha : float, default 1e-4
        The penalty's weight, at least 0.
    l1_ratio : float, default 0.15
        The l1 share of "elasticnet".
    fit_intercept : bool, default True
        Whether there is an intercept.
    feasible_set : {"nonnegative", "simplex"}, set or None
        A set of `accelegrad` in which the coefficients (not the intercept) have to lie:
        ``accelegrad.Box(lower, upper)``, ``accelegrad.L1Ball(radius)``...
    quantile : float, default 0.5
        What "quantile" estimates.
    epsilon : float, default 0.1
        The half width of the zone in which the epsilon-insensitive losses are zero.
    delta : float, default 1.35
        The residual beyond which "huber" is linear.
    max_iter : int, default 10000
        The largest number of iterations.
    tol : float or None, default 1e-3
        Stop when the certified gap is at most `tol` times the objective (or a thousandth of the
        loss of a constant prediction, where that is larger). None: do `max_iter`.
    batch_size : "auto" or int
        "auto" leaves the choice to `minimize`; a number makes all steps stochastic, each
        from this many rows, or from all if there are fewer. In `partial_fit`, "auto" is 16.
    diameter : "auto" or float
        The diameter of a ball around the start that holds a minimiser, if you know one.
    average : "auto" or bool
        Whether the average of the iterates is returned. "auto": the best point, or the average of
        a stochastic run or stream.
    early_stopping : bool, default False
        Stop when the score on a held-out part of the rows no longer rises. (Stopping on the
        certified gap is what `tol` does, always.) That is no convergence: see `converged_`.
    validation_fraction : float, default 0.1
        The share of the rows that is held out for `early_stopping`.
    n_iter_no_change : int, default 5
        How many looks at the score without a rise end the run.
    warm_start : bool, default False
        Start `fit` from the coefficients of the last one.
    random_state : int, RandomState or None
        For minibatches and held-out rows.
    verbose : int, default 0
        Above 0: a progress bar.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        The coefficients.
    intercept_ : float
        The intercept, 0.0 without one.
    objective_ : float
        The objective at the coefficients.
    gap_ : float
        No coefficients have an objective below ``objective_ - gap_``: proved, by the fit itself.
    certified_radius_ : float
        How far from the start that holds; inf where it holds everywhere.
    converged_ : bool
        Whether `gap_` is within the tolerance; False without one.
    n_iter_ : int
        The iterations that were done.
    n_samples_seen_ : int
        The rows with weight that the coefficients were learnt from, all in all.
    weight_seen_ : float
        The weight of these rows.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : array of str
        The columns' names, where X had some.

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

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        feasible_set: Any = None,
        quantile: float = 0.5,
        epsilon: float = 0.1,
        delta: float = 1.35,
        max_iter: int = 10_000,
        tol: float | None = 1e-3,
        batch_size: int | str = "auto",
        diameter: float | str = "auto",
        average: bool | str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.feasible_set = feasible_set
        self.quantile = quantile
        self.epsilon = epsilon
        self.delta = delta
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.diameter = diameter
        self.average = average
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on with the next rows of a stream: a step every `batch_size` rows.

        AcceleGrad's state goes on from call to call. `gap_` is inf after it, for nobody has seen
        the whole. The first 300 rows of a stream count as one chunk, however they come, and should
        be typical. After `fit` the coefficients count as much as the rows they were learnt from; so
        they do where `set_params` has changed what is minimised, or the diameter, which begins a
        new stream. Rows without weight are no rows.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        objective = self._objective()
        self._refuse_early_stopping()
        data = self._checked_data(X, y, sample_weight, reset=not hasattr(self, "coef_"))
        self._learn(objective, self._prepared(data))
        return self
