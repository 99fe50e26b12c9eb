"""Fits to the same rows along a path of alphas, and their scores on held-out rows.

What does not depend on alpha is done once for a fold: rows are copied and checked, models are
built, and what these keep (products of columns, bounds on rounding) serves all fits.
"""

from __future__ import annotations

import inspect
import math
import warnings
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring

from accelegrad import threads
from accelegrad.errors import Vector
from accelegrad.sklearn.data import Data, rows_of, without_weightless
from accelegrad.sklearn.objective import penalty_weights


class PathResult(NamedTuple):
    """What was found along a fold's path: one entry for each alpha."""

    scores: list[float]
    objectives: list[float]
    gaps: list[float]
    missed: list[bool]


def follow_path(
    single: Any, alphas: Vector, data: Data, train: Any, test: Any, scorer: WeightedScorer
) -> PathResult:
    """Fit from the largest alpha to the smallest, each from the coefficients before."""
    fits, held = (
        Fits(_unfitted(single), rows_of(data, train)),
        without_weightless(rows_of(data, test)),
    )
    path = PathResult([], [], [], [])
    entries = math.prod(data.X.shape)
    for alpha in alphas:
        with warnings.catch_warnings(), threads.single_for(entries):
            warnings.simplefilter("ignore", ConvergenceWarning)  # there is one for all of them
            estimator = fits.estimator_with(float(alpha))
        path.scores.append(scorer(estimator, held))
        path.objectives.append(estimator.objective_)
        path.gaps.append(estimator.gap_)
        path.missed.append(estimator._missed)
    return path


def _unfitted(single: Any) -> Any:
    """Return a copy of an estimator that was not fitted: scikit-learn's `clone` takes longer."""
    other = copy(single)
    other.random_state = deepcopy(single.random_state)  # whose state folds must not share
    return other


class Fits:
    """An estimator that is fitted again and again to the same rows.

    Parameters
    ----------
    estimator : estimator
        It is changed by each fit.
    data : Data
        Rows that have been checked.
    """

    def __init__(self, estimator: Any, data: Data) -> None:
        self._estimator = estimator
        data = without_weightless(data)
        estimator._refuse_no_rows(data)
        estimator._take_targets(data.y)
        estimator.n_features_in_ = data.X.shape[1]
        self._data = estimator._prepared(data)
        estimator._refuse_no_rows(self._data)
        self._settings, self._objective = estimator._settings(), estimator._objective()

    @cached_property
    def _problems(self) -> list[Any]:
        estimator = self._estimator
        objective = estimator._in_units(self._objective, self._data)
        problems: list[Any] = estimator._problems(objective, self._data)
        return problems

    @cached_property
    def _seed(self) -> int:
        return int(self._estimator._seed())

    def estimator_with(self, alpha: float) -> Any:
        """Return the estimator fitted with an alpha, from the coefficients that it has."""
        estimator = self._estimator
        estimator.alpha = alpha
        if estimator.early_stopping:  # which holds back other rows each time
            estimator._fit_data(self._data, estimator._objective(), warm=True)
            return estimator
        problems = self._problems  # first, since it finds the scale of the targets
        l2, l1 = penalty_weights(estimator.penalty, alpha, estimator.l1_ratio)
        objective = estimator._in_units(replace(self._objective, l2=l2, l1=l1))
        problems = [part.with_penalty(objective.l2, objective.l1) for part in problems]
        given = problems, self._data, None, self._settings, self._seed
        estimator._fit_problems(*given, warm=True)
        return estimator


class WeightedScorer:
    """A score that gets sample weights where it takes any.

    Parameters
    ----------
    single : estimator
        One of those that will be scored.
    scoring : str, callable or None
        As for `AcceleGradClassifierCV`.
    """

    def __init__(self, single: Any, scoring: Any) -> None:
        if isinstance(scoring, (list, tuple, set, dict)):
            raise TypeError(f"scoring must be one score, a name or a callable, not {scoring!r}.")
        self._is_default = scoring is None
        if self._is_default:
            return
        self._scorer = check_scoring(single, scoring=scoring)
        # scikit-learn's scorers take weights and hand them on; what matters is who gets them.
        judge = getattr(self._scorer, "_score_func", None)
        parameters = inspect.signature(self._scorer if judge is None else judge).parameters
        self._takes_weights = "sample_weight" in parameters

    def __call__(self, fitted: Any, held: Data) -> float:
        """Return the score on rows that all have weight; NaN where there are none."""
        if not held.y.size:
            return float("nan")
        if self._is_default:
            return float(fitted._score_on(held))
        weighted = self._takes_weights and held.weights is not None
        keywords = {"sample_weight": held.weights} if weighted else {}
        return float(self._scorer(fitted, held.X, held.y, **keywords))
