"""`AcceleGradRegressor`: linear regression for smooth and non-smooth losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin, clone
from sklearn.utils.validation import check_array

from accelegrad.errors import real_number
from accelegrad.models.losses import (
    DELTA,
    EPSILON,
    PARAMETERS,
    QUANTILE,
    Parameter,
    by_sklearn_name,
    losses_with,
    make_loss,
)
from accelegrad.sklearn.base import LinearEstimator, StreamFitting
from accelegrad.sklearn.data import target_scale
from accelegrad.sklearn.objective import Data, Objective, refuse_missing
from accelegrad.sklearn.parameters import FITTED, PARTIAL_FIT, TARGET_SCALE, documented, parameter
from accelegrad.sklearn.solve import AUTO


def _of_losses(known: Parameter) -> Any:
    names = " and ".join(f'"{entry.sklearn_name}"' for entry in losses_with(known))
    return parameter(known.default, "float", f"Of {names}: {known.words}.")


@dataclass(eq=False, repr=False)
class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Base class of the regressors."""

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
        """Predict targets, with one column per output or quantile if there are several."""
        scores = self._scores(X)
        return scores if np.ndim(self.intercept_) else scores.ravel()

    def _objective(self, **parameters: Any) -> Objective:
        self._given_scale()  # refuses invalid values
        own = {name: getattr(self, name) for name in PARAMETERS}
        return super()._objective(**own, **parameters)

    def _given_scale(self) -> float | None:
        given = self.target_scale
        if not isinstance(given, str):
            return real_number("target_scale", given, above=0.0)
        if given != AUTO:
            raise ValueError(f"target_scale must be a number > 0 or 'auto', not {given!r}.")
        return None

    def _in_units(self, objective: Objective, data: Data | None = None) -> Objective:
        if data is None:
            return self._in_scale(objective, lambda: float(self.target_scale_))
        found = partial(target_scale, data, centred=objective.fit_intercept)
        return self._in_scale(objective, found)

    def _in_scale(self, objective: Objective, found: Callable[[], float]) -> Objective:
        """Set `target_scale_`, and return the objective in this scale."""
        given = self._given_scale() if objective.is_scaled else 1.0
        self.target_scale_ = found() if given is None else given
        return objective.in_units(self.target_scale_)

    def _meaning(self, objective: Objective) -> tuple[Any, ...]:
        return (*super()._meaning(objective), self.target_scale)


@documented(fitted=FITTED, scale=TARGET_SCALE)
@dataclass(eq=False, repr=False, kw_only=True)
class AcceleGradRegressor(LinearRegressor, StreamFitting):
    r"""Linear regression without tuning, with a certified gap.

    Minimises the (weighted) mean loss plus the penalty,

    .. math:: \sum_i p_i\, l(a_i^T w + b, y_i) + \alpha R(w), \qquad
              R(w) = \tfrac12 \lVert w \rVert^2 \text{ for ``penalty="l2"``},

    the objective of scikit-learn's ``SGDRegressor``, with `accelegrad.minimize`. For all losses but
    "squared_error", `alpha`, `epsilon` and `delta` refer to targets divided by `target_scale_`.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : array of shape (n_features,), or (n_outputs, n_features)
        The coefficients, with one row per column of a two-dimensional y or per quantile if there
        are several. Then `objective_` and `gap_` are sums over the rows.
    intercept_ : float, or array of shape (n_outputs,)
        The intercept; 0.0 if there is none.
    {scale}
    {fitted}

    See Also
    --------
    AcceleGradClassifier : The same for class labels.
    AcceleGradRegressorCV : Chooses `alpha` by cross-validation.

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

    _flags = (*LinearRegressor._flags, "non_crossing")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit one regression, or one per column of y or per quantile."""
        levels = self._levels()
        # Data frames and arrays of other libraries have `ndim` themselves.
        dimensions = y.ndim if hasattr(y, "ndim") else np.asarray(y).ndim
        if levels is None and dimensions != 2:
            return super().fit(X, y, sample_weight)
        refuse_missing(y)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        if levels is None:
            fits = [clone(self).fit(X, column, sample_weight) for column in targets.T.copy()]
        elif targets.ndim == 2:
            raise ValueError(
                "y must be one-dimensional where quantile has several, but its shape is "
                f"{targets.shape}."
            )
        else:
            singles = [clone(self).set_params(quantile=level) for level in levels]
            fits = [single.fit(X, targets, sample_weight) for single in singles]
        # They are independent: their objectives and gaps add up.
        combine: dict[str, Callable[[list[Any]], Any]] = {
            **dict.fromkeys(("coef_", "intercept_", "target_scale_"), np.array),
            **dict.fromkeys(("objective_", "gap_", "seconds_"), sum),
            "certified_radius_": min,
            "n_iter_": max,
            "converged_": all,
            "method_": lambda methods: ", ".join(dict.fromkeys(methods)),
        }
        for name, value in vars(fits[0]).items():
            if name.endswith("_"):
                found = [getattr(fit, name) for fit in fits]
                setattr(self, name, combine[name](found) if name in combine else value)
        return self

    def _levels(self) -> list[float] | None:
        """Return the quantiles if there are several, otherwise None."""
        given = self.quantile
        if np.ndim(given) == 0:
            return None
        chosen: Any = [make_loss("quantile", quantile=level) for level in given]  # type: ignore[union-attr]
        levels = [loss.parameter for loss in chosen]
        if self._loss_name != "quantile":
            raise ValueError(
                f"quantile={given!r} are several, but loss is {self.loss!r}; several are for "
                "loss='quantile'."
            )
        if not levels or sorted(set(levels)) != levels:
            raise ValueError(f"quantile must increase from one to the next, but it is {given!r}.")
        return levels

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict targets; several quantiles are sorted if `non_crossing` is True."""
        predicted = super().predict(X)
        if self.non_crossing and predicted.ndim == 2 and self._levels() is not None:
            return np.sort(predicted, axis=1)
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions, like scikit-learn's regressors."""
        levels = self._levels()
        if levels is not None:
            raise ValueError(
                f"score is R^2 of one prediction per row, but quantile={self.quantile!r} predicts "
                f"{len(levels)}. Judge each column of predict(X) by its own loss: "
                "sklearn.metrics.mean_pinball_loss(y, predict(X)[:, k], alpha=quantile[k])."
            )
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @documented(stream=PARTIAL_FIT)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from the next samples of a stream, with one step per `batch_size` samples.

        {stream}
        """
        if self._levels() is not None:
            raise ValueError(
                f"partial_fit takes one quantile, but quantile is {self.quantile!r}; fit takes "
                "several."
            )
        if np.ndim(getattr(self, "intercept_", 0.0)):
            raise ValueError(
                "partial_fit takes one output, but the estimator was fitted to "
                f"{np.size(self.intercept_)}; begin with a new one."
            )
        objective = self._objective()
        self._refuse_early_stopping()
        data = self._checked_data(X, y, sample_weight, reset=not hasattr(self, "coef_"))
        self._learn(objective, self._prepared(data))
        return self
