"""`AcceleGradRegressor`: linear regression for smooth and non-smooth losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

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
from accelegrad.sklearn import held_out
from accelegrad.sklearn.base import LinearEstimator, StreamFitting
from accelegrad.sklearn.data import Data
from accelegrad.sklearn.objective import Objective, Problem
from accelegrad.sklearn.outputs import fit_each, has_several, quantile_levels, refuse_several
from accelegrad.sklearn.parameters import FITTED, PARTIAL_FIT, documented, parameter
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

    def _shaped(self, coefficients: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return coefficients.ravel()

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        X, y = self._checked(X, y, reset=reset, y_numeric=True)
        weights = self._checked_weights(sample_weight, X)
        return Data(X, np.asarray(y, dtype=np.float64), weights)

    def _problems(self, objective: Objective, data: Data) -> list[Problem]:
        return [objective.on(*data)]

    def _set_parameters(self, points: list[Vector]) -> None:
        super()._set_parameters(points)
        self.intercept_ = float(self.intercept_[0])

    def _score_on(self, held: Data) -> float | None:
        if held.y.size < 2:  # of which R^2 is not defined
            return None
        return held_out.share_explained(held, self._products(held.X).ravel())

    def _validation_scores(self, held: Data) -> list[Score]:
        return [partial(held_out.determination, held)]


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False, kw_only=True)
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
    coef_ : array of shape (n_features,), or (n_outputs, n_features)
        The coefficients; a row for each column of a two-dimensional y, or for each of several
        quantiles. Then `objective_` and `gap_` are sums over the rows.
    intercept_ : float, or array of shape (n_outputs,)
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
        self._learn(self._objective(), self._prepared(self._next_rows(X, y, sample_weight)))
        return self
