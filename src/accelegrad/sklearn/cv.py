"""Estimators that choose `alpha` by cross-validation, along a path with warm starts."""

from __future__ import annotations

import inspect
import math
import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_consistent_length

from accelegrad import kernels
from accelegrad.errors import Vector, finite_vector, whole_number
from accelegrad.sklearn.base import LinearEstimator
from accelegrad.sklearn.classifier import AcceleGradClassifier, LinearClassifier
from accelegrad.sklearn.objective import Data, rows_of, without_weightless
from accelegrad.sklearn.parameters import FITTED, documented, parameter
from accelegrad.sklearn.regressor import AcceleGradRegressor, LinearRegressor

#: Attributes that `fit` sets besides those of the final fit.
CHOSEN = """\
alpha_ : float
    The strength with the best mean score; the largest of them, if several have it. One with a
    score of NaN is never chosen.
alphas_ : array of shape (n_alphas,)
    The strengths tried, from large to small.
scores_, objectives_, gaps_ : array of shape (n_alphas, n_folds)
    The score, the objective and its certified gap of each fit.
coef_, intercept_
    Those of a fit to all rows with `alpha_`, and so is all that follows.
"""


@dataclass(eq=False, repr=False, kw_only=True)
class CrossValidated(LinearEstimator):
    """Base class of both estimators."""

    alphas: Any = parameter(
        7,
        "int or array",
        "The strengths to try, or how many from 10 down to 1e-5, evenly on a logarithmic scale.",
    )
    cv: Any = parameter(
        None,
        "int, splitter, iterable of splits or None",
        "The folds; None is 5 of them, stratified if there are classes.",
    )
    scoring: Any = parameter(
        None,
        "str, callable or None",
        "What is to be large on the held-out folds; None is minus the mean of the loss that is "
        "fitted (pinball for quantiles), summed over classes that are set against the rest. It "
        "gets the rows' weights if it takes `sample_weight`.",
    )
    n_jobs: int | None = parameter(None, "int or None", "Processes, a fold each.")

    #: the estimator with one given alpha
    _single: ClassVar[type[Any]]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the path of alphas on each fold, then refit to all samples with the best alpha.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The samples.
        y : array of shape (n_samples,)
            The targets or labels.
        sample_weight : array of shape (n_samples,), optional
            Nonnegative weights of the samples in the fits, and in the scores if `scoring` takes
            weights.
        groups : array of shape (n_samples,), optional
            Group of each sample, for a splitter such as ``GroupKFold``.

        Warns
        -----
        UserWarning
            If the score of some alphas is NaN: they are not chosen (ValueError if all are). If the
            best alpha is the largest or the smallest one tried: better ones may be beyond it.
        """
        alphas = strengths_to_try(self.alphas)
        data = self._checked_data(X, y, sample_weight, reset=True)
        given = self.get_params(deep=False)
        names = set(inspect.signature(self._single).parameters) & set(given)
        single = self._single(**{name: given[name] for name in names - {"n_jobs"}})
        single.set_params(alpha=alphas[0])._objective()  # refuses wrong parameters before any work
        self._taken(data)  # refuses a single class, and weights that are all zero
        check_consistent_length(data.y, groups)
        scorer = None if self.scoring is None else checked_scorer(single, self.scoring)
        folds = check_cv(self.cv, data.y, classifier=self._classifies)
        paths = Parallel(n_jobs=self.n_jobs)(
            delayed(follow_path)(single, alphas, data, train, test, scorer)
            for train, test in folds.split(data.X, data.y, groups)
        )
        scores, objectives, gaps, missed = np.array(paths).transpose(2, 1, 0)
        self.alphas_ = alphas
        self.scores_, self.objectives_, self.gaps_ = scores, objectives, gaps
        if missed.any():
            warnings.warn(
                f"{int(missed.sum())} of the {missed.size} fits along the path missed "
                f"tol={self.tol!r}; gaps_ tells by how much. Increase max_iter (now "
                f"{self.max_iter}) or tol, or leave out the smallest alphas.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.alpha_ = best_alpha(alphas, scores)
        single.set_params(alpha=self.alpha_).fit(data.X, data.y, data.weights)
        for name, value in vars(single).items():
            if name.endswith("_") and name not in ("n_features_in_", "feature_names_in_"):
                setattr(self, name, value)
        self._certificate = single._certificate
        return self


def follow_path(
    single: Any, alphas: Vector, data: Data, train: Any, test: Any, scorer: Any
) -> list[tuple[float, float, float, bool]]:
    """Fit one fold from the largest alpha to the smallest, each fit with a warm start.

    Return the score, the objective and the gap of each fit, and whether it missed the tolerance.
    Data are copied and models built once per fold. Without a scorer, the score is minus the mean
    loss of the held-out samples, summed over the problems.
    """
    estimator = copy(single)  # not fitted; faster than scikit-learn's `clone`
    estimator.random_state = deepcopy(single.random_state)  # folds must not share its state
    estimator.n_features_in_ = data.X.shape[1]
    settings, held = estimator._settings(), without_weightless(rows_of(data, test))
    rows, _ = estimator._taken(rows_of(data, train))
    work = math.prod(data.X.shape)
    with kernels.single_for(work):
        rows, problems, judges = estimator._posed(rows, estimator._objective(), settings.seed)
        judged, tests = held, []
        if estimator._classifies:  # there is no loss of classes that the fit has not seen
            known = np.isin(held.y, estimator.classes_)
            judged = held if known.all() else rows_of(held, np.flatnonzero(known))
        if scorer is None and judged.y.size:
            objective = estimator._in_units(estimator._objective())
            tests = estimator._problems(objective, estimator._prepared(judged))

    def score() -> float:
        if scorer is not None and held.y.size:
            return float(scorer(estimator, held))
        if not tests:
            return math.nan
        points = estimator._current_points(tests)
        losses = [float(test.model.at(x).mean_loss) for test, x in zip(tests, points, strict=True)]
        return -sum(losses)

    path = []
    for alpha in alphas.tolist():
        estimator.alpha = alpha
        now = estimator._in_units(estimator._objective())
        parts = [replace(each, model=each.model.with_l2(now.l2), l1=now.l1) for each in problems]
        with warnings.catch_warnings(), kernels.single_for(work):
            warnings.simplefilter("ignore", ConvergenceWarning)  # `fit` warns once
            estimator._fit_problems(rows, parts, judges, settings, warm=True)
        path.append((score(), estimator.objective_, estimator.gap_, estimator._missed))
    return path


def checked_scorer(single: Any, scoring: Any) -> Any:
    """Return a scorer that passes weights on if `scoring` takes them."""
    if isinstance(scoring, (list, tuple, set, dict)):
        raise TypeError(f"scoring must be one score, a name or a callable, not {scoring!r}.")
    scorer = check_scoring(single, scoring=scoring)
    # scikit-learn's scorers always accept weights; what matters is the function that gets them.
    judge = getattr(scorer, "_score_func", scorer)
    return partial(_score, scorer, "sample_weight" in inspect.signature(judge).parameters)


def _score(scorer: Any, takes_weights: bool, fitted: Any, held: Data) -> Any:
    weighted = takes_weights and held.weights is not None
    keywords = {"sample_weight": held.weights} if weighted else {}
    return scorer(fitted, held.X, held.y, **keywords)


def strengths_to_try(given: Any) -> Vector:
    """Return the alphas from large to small."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        count = whole_number("alphas", given, least=1)
        return np.geomspace(10.0, 1e-5, count)  # chosen
    alphas = finite_vector("alphas", given)
    if alphas.min() < 0.0:
        raise ValueError(f"alphas must be >= 0, but the smallest is {alphas.min():g}.")
    return np.sort(alphas)[::-1].copy()


def best_alpha(alphas: Vector, scores: Vector) -> float:
    """Return the alpha with the best mean score, the first of equal ones; NaN is not considered.

    Warn if it is at an end of the grid and scores still rise towards that end.
    """
    means = scores.mean(axis=1)
    without = np.isnan(means)
    if without.all():
        raise ValueError(
            "scoring gives NaN on a held-out fold for every alpha, so that none can be chosen: "
            "scores_ has the scores. Folds may be too small (R^2 needs two rows with different "
            "targets): choose another scoring, or a cv of fewer folds."
        )
    if without.any():
        listed = ", ".join(f"{alpha:g}" for alpha in alphas[without])
        warnings.warn(
            f"The score on a held-out fold is NaN for alpha = {listed}: not considered.",
            stacklevel=3,
        )
    best, last = int(np.argmax(np.where(without, -np.inf, means))), alphas.size - 1
    alpha = float(alphas[best])
    if best in (0, last) and last > 0 and alpha > 0.0:
        large = best == 0
        if means[1 if large else last - 1] != means[best]:  # no plateau of equally good ones
            end, farther = ("largest", "larger") if large else ("smallest", "smaller")
            warnings.warn(
                f"The best alpha, {alpha:g}, is the {end} of the {alphas.size} that were tried, so "
                f"that a {farther} one may be better: extend alphas to {farther} values, "
                f"{alpha * (10.0 if large else 0.1):g} and beyond{'' if large else ', or 0'}.",
                stacklevel=3,
            )
    return alpha


@documented(fitted=CHOSEN + FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradClassifierCV(LinearClassifier, CrossValidated):
    """Linear classification with `alpha` chosen by cross-validation.

    On each fold the fits go from the largest alpha to the smallest, each starting at the solution
    of the previous one. Each fit is certified.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {fitted}

    See Also
    --------
    AcceleGradClassifier : With one given `alpha`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from accelegrad.sklearn import AcceleGradClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> chosen = AcceleGradClassifierCV(alphas=[1e-2, 1e-3, 1e-4, 1e-5], cv=3).fit(X, y)
    >>> chosen.scores_.shape
    (4, 3)
    >>> bool((chosen.gaps_ <= 1e-3 * chosen.objectives_).all())
    True
    """

    _single = AcceleGradClassifier


@documented(fitted=CHOSEN + FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradRegressorCV(LinearRegressor, CrossValidated):
    """Linear regression with `alpha` chosen by cross-validation.

    On each fold the fits go from the largest alpha to the smallest, each starting at the solution
    of the previous one. Each fit is certified.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {fitted}

    See Also
    --------
    AcceleGradRegressor : With one given `alpha`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from accelegrad.sklearn import AcceleGradRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> chosen = AcceleGradRegressorCV("absolute_error", alphas=[1e-2, 1e-4, 1e-6], cv=3).fit(X, y)
    >>> chosen.alpha_ in chosen.alphas_
    True
    """

    _single = AcceleGradRegressor
