"""Several outputs or several quantiles at once: a regression each, certified each and together.

Nothing couples the problems, so that the sum of their objectives is known as well as they are: its
gap is the sum of their gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_array

from accelegrad.models.losses import QUANTILE
from accelegrad.sklearn.data import refuse_missing


def quantile_levels(estimator: Any) -> list[float] | None:
    """Return the quantiles of an estimator that has several, or None; refuse what are none."""
    given = estimator.quantile
    if np.ndim(given) == 0:
        return None
    levels = [QUANTILE.checked(level) for level in given]
    if estimator._loss_name != "quantile":
        raise ValueError(
            f"quantile={given!r} are several, but loss is {estimator.loss!r}; several are for "
            "loss='quantile'."
        )
    if not levels or sorted(set(levels)) != levels:
        raise ValueError(f"quantile must increase from one to the next, but it is {given!r}.")
    return levels


def has_several(estimator: Any, y: Any) -> bool:
    """Tell whether there is more than one regression to do."""
    if quantile_levels(estimator) is not None:
        return True
    # Data frames and arrays of other libraries know it themselves.
    dimensions = y.ndim if hasattr(y, "ndim") else np.asarray(y).ndim
    return bool(dimensions == 2)


def refuse_several(estimator: Any) -> None:
    """Raise where a stream is to go on that has, or comes after, several regressions."""
    if quantile_levels(estimator) is not None:
        raise ValueError(
            f"partial_fit takes one quantile, but quantile is {estimator.quantile!r}; fit takes "
            "several."
        )
    if np.ndim(getattr(estimator, "intercept_", 0.0)):
        raise ValueError(
            f"partial_fit takes one output, but the estimator was fitted to "
            f"{np.size(estimator.intercept_)}; begin with a new one."
        )


def refuse_score_of_several(estimator: Any) -> None:
    """Raise where a score of one prediction a row is asked for, but there are several quantiles."""
    levels = quantile_levels(estimator)
    if levels is not None:
        raise ValueError(
            f"score is R^2 of one prediction per row, but quantile={estimator.quantile!r} predicts "
            f"{len(levels)}. Judge each column of predict(X) by its own loss: "
            "sklearn.metrics.mean_pinball_loss(y, predict(X)[:, k], alpha=quantile[k])."
        )


def fit_each(estimator: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit one regression per column of y or per quantile, and keep all of them in `estimator`."""
    fits = [
        single.fit(X, column, sample_weight)
        for single, column in _singles(estimator, _targets(estimator, y))
    ]
    first = fits[0]
    estimator.coef_ = np.array([fit.coef_ for fit in fits])
    estimator.intercept_ = np.array([fit.intercept_ for fit in fits])
    estimator.target_scale_ = np.array([fit.target_scale_ for fit in fits])
    estimator.objective_ = sum(fit.objective_ for fit in fits)
    estimator.gap_ = sum(fit.gap_ for fit in fits)
    estimator.certified_radius_ = min(fit.certified_radius_ for fit in fits)
    estimator.n_iter_ = max(fit.n_iter_ for fit in fits)
    estimator.converged_ = all(fit.converged_ for fit in fits)
    estimator.seconds_ = sum(fit.seconds_ for fit in fits)
    estimator.method_ = ", ".join(dict.fromkeys(fit.method_ for fit in fits))
    for name in ("n_features_in_", "feature_names_in_", "n_samples_seen_", "weight_seen_"):
        if hasattr(first, name):
            setattr(estimator, name, getattr(first, name))


def _targets(estimator: Any, y: Any) -> npt.NDArray[np.float64]:
    refuse_missing(y)
    targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=estimator)
    if quantile_levels(estimator) is not None and targets.ndim == 2:
        raise ValueError(
            f"y must be one-dimensional where quantile has several, but its shape is "
            f"{targets.shape}."
        )
    return np.asarray(targets)


def _singles(
    estimator: Any, targets: npt.NDArray[np.float64]
) -> Iterator[tuple[Any, npt.NDArray[np.float64]]]:
    levels = quantile_levels(estimator)
    if levels is not None:
        for level in levels:
            yield clone(estimator).set_params(quantile=level), targets
    else:
        for column in targets.T:
            yield clone(estimator), np.ascontiguousarray(column)
