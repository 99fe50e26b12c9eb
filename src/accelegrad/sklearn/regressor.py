"""`AcceleGradRegressor`: linear regression for smooth and non-smooth losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from accelegrad.errors import Vector, real_number
from accelegrad.models.losses import (
    DELTA,
    EPSILON,
    PARAMETERS,
    QUANTILE,
    Parameter,
    by_sklearn_name,
    losses_with,
)
from accelegrad.sklearn import held_out, target_scale
from accelegrad.sklearn.base import AUTO, LinearEstimator, StreamFitting
from accelegrad.sklearn.data import Data
from accelegrad.sklearn.objective import Objective, Problem
from accelegrad.sklearn.outputs import (
    fit_each,
    has_several,
    quantile_levels,
    refuse_score_of_several,
    refuse_several,
)
from accelegrad.sklearn.parameters import FITTED, PARTIAL_FIT, TARGET_SCALE, documented, parameter
from accelegrad.sklearn.solve import Score


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
    quantile: float | Sequence[float] = _of_losses(QUANTILE)
    epsilon: float = _of_losses(EPSILON)
    delta: float = _of_losses(DELTA)
    target_scale: float | str = parameter(
        "auto",
        '"auto" or float',
        'Of all losses but "squared_error": the unit of the targets. `alpha`, `epsilon` and '
        "`delta` are those of ``y / target_scale``, so that ``fit(X, c * y)`` predicts c times "
        'what ``fit(X, y)`` does. "auto" is the (weighted) mean absolute deviation of y from its '
        "mean, or from 0 without an intercept; 1 gives the plain objective.",
    )

    _losses = by_sklearn_name(classification=False)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict targets.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array of shape (n_samples,), or (n_samples, n_outputs) after a fit to several outputs or
        quantiles
        """
        scores = self._scores(X)
        return scores if np.ndim(self.intercept_) else scores.ravel()

    def _loss_parameters(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in PARAMETERS}

    def _objective(self) -> Objective:
        self._given_scale()  # which refuses what is none
        return super()._objective()

    def _given_scale(self) -> float | None:
        """Return the scale that was given; None where it is to be found."""
        given = self.target_scale
        if not isinstance(given, str):
            return real_number("target_scale", given, above=0.0)
        if given != AUTO:
            raise ValueError(f"target_scale must be a number > 0 or 'auto', not {given!r}.")
        return None

    def _in_units(self, objective: Objective, data: Data | None = None) -> Objective:
        def found() -> float:
            if data is None:
                return float(self.target_scale_)
            return target_scale.scale_of(data, centred=objective.fit_intercept)

        return self._in_scale(objective, found)

    def _in_scale(self, objective: Objective, found: Callable[[], float]) -> Objective:
        """Keep the scale of the targets, and return the objective in it."""
        given = self._given_scale()
        if not objective.is_scaled:
            self.target_scale_ = 1.0
        else:
            self.target_scale_ = found() if given is None else given
        return objective.in_units(self.target_scale_)

    def _meaning(self, objective: Objective) -> tuple[Any, ...]:
        return (*super()._meaning(objective), self.target_scale)

    def _shaped(self, coefficients: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return coefficients.ravel()

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        X, y = self._checked(X, y, reset=reset, y_numeric=True)
        weights = self._checked_weights(sample_weight, X)
        return Data(X, np.asarray(y, dtype=np.float64), weights)

    def _problems(self, objective: Objective, data: Data) -> list[Problem]:
        return [objective.on(*data)]

    def _set_coefficients(self, rows: npt.NDArray[Any], intercepts: Vector) -> None:
        self.coef_, self.intercept_ = self._shaped(rows), float(intercepts[0])

    def _score_on(self, held: Data) -> float:
        loss = self._in_units(self._objective()).pointwise
        return held_out.of_targets(loss, held.y, held.weights, self._products(held.X).ravel())

    def _validation_scores(self, held: Data) -> list[Score]:
        judge = partial(
            held_out.of_targets,
            self._in_units(self._objective()).pointwise,
            held.y,
            held.weights,
        )
        return [lambda x: judge(held_out.linear(held.X, x, 1).ravel())]


@documented(fitted=FITTED, scale=TARGET_SCALE)
@dataclass(eq=False, repr=False, kw_only=True)
class AcceleGradRegressor(LinearRegressor, StreamFitting):
    r"""Linear regression without tuning, and with a certified gap.

    Minimises the (weighted) mean loss plus the penalty,

    .. math:: \sum_i p_i\, l(a_i^T w + b, y_i) + \alpha R(w), \qquad
              R(w) = \tfrac12 \lVert w \rVert^2 \text{ for ``penalty="l2"``},

    the objective of scikit-learn's ``SGDRegressor``, with `accelegrad.minimize`. For all losses but
    "squared_error", `alpha`, `epsilon` and `delta` are those of targets over `target_scale_`.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : array of shape (n_features,), or (n_outputs, n_features)
        The coefficients; a row for each column of a two-dimensional y, or for each of several
        quantiles. Then `objective_` and `gap_` are sums over the rows.
    intercept_ : float, or array of shape (n_outputs,)
        The intercept, 0.0 without one.
    {scale}
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

    non_crossing: bool = parameter(
        False,
        "bool",
        "Of several quantiles: predict each row's in increasing order, by sorting them. The "
        "coefficients stay those of the single quantiles, and what is certified of them.",
    )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit as usual, or one regression per column of y or per quantile."""
        self._flag("non_crossing")
        if not has_several(self, y):
            return super().fit(X, y, sample_weight)
        fit_each(self, X, y, sample_weight)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict targets; of several quantiles, in order if `non_crossing` asks for it."""
        predicted = super().predict(X)
        if self.non_crossing and predicted.ndim == 2 and quantile_levels(self) is not None:
            return np.sort(predicted, axis=1)
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions, as scikit-learn's regressors do.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            The targets.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
        """
        refuse_score_of_several(self)
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

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
        refuse_several(self)
        objective = self._objective()
        self._refuse_early_stopping()
        data = self._checked_data(X, y, sample_weight, reset=not hasattr(self, "coef_"))
        self._learn(objective, self._prepared(data))
        return self
