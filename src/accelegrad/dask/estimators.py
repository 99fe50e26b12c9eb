"""The estimators of `accelegrad.sklearn` on Dask collections."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from dask import delayed, is_dask_collection
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from accelegrad.dask.blocks import Block, ClusterData, Fold, pieces_of, read_block
from accelegrad.dask.cluster import BlockError, connected
from accelegrad.dask.problems import (
    against_rest,
    class_counts,
    class_factors,
    classes_problem,
    labels,
    problem_on,
    row_settings,
)
from accelegrad.errors import Vector, whole_number
from accelegrad.sklearn import classifier, cv, regressor
from accelegrad.sklearn.base import LinearEstimator
from accelegrad.sklearn.cv import CHOSEN, best_alpha, strengths_to_try
from accelegrad.sklearn.objective import Objective, Problem
from accelegrad.sklearn.parameters import FITTED, documented, parameter
from accelegrad.sklearn.path import PathResult
from accelegrad.sklearn.solve import solve, total

# A dataclass takes the fields of its bases in turn: those of a mixin would undo a class's own.
if TYPE_CHECKING:
    Mixin = LinearEstimator
else:
    Mixin = object


def _timeout() -> Any:
    return parameter(
        None,
        "float or None",
        "After how many seconds without an answer a round trip to the workers fails, with an error "
        "that names those it waits for. None: never.",
    )


def _keep() -> Any:
    return parameter(
        True,
        "bool",
        "Whether the workers keep the rows, in memory or spilled to disk; with False they are read "
        "again in each pass.",
    )


class OnCluster(Mixin):
    """What the estimators of collections share."""

    timeout: float | None
    keep: bool
    __metadata_request__fit: ClassVar[dict[str, str]] = {"client": UNUSED}
    #: the estimator of rows in memory
    _local: ClassVar[type[Any]]

    def _cluster_problems(self, objective: Objective, data: ClusterData) -> list[Problem]:
        """Return what is minimised: a problem, or one for each class."""
        raise NotImplementedError

    def _take_all_targets(self, data: ClusterData) -> bool:
        """Keep what `fit` tells of all targets, and tell whether the last fit's were the same."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Fit the coefficients to rows that are on the workers of a cluster.

        Parameters
        ----------
        X : dask.array, dask.dataframe, or list of delayed values or futures
            The rows, in blocks: see `accelegrad.dask.RowModel`.
        y : like X, with one column
            The targets: numbers, or labels of any kind. None where a list brings them.
        sample_weight : like y, optional
            Nonnegative weights of the rows; only their ratios matter.
        client : distributed.Client, optional
            The cluster's client; by default the active one.

        Returns
        -------
        self
        """
        objective = self._objective()
        data = self._read(X, y, sample_weight, client)
        warm = self._take_all_targets(data) and bool(getattr(self, "warm_start", False))
        self._fit_on(data, self._cluster_problems(objective, data), warm=warm)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, client: Any) -> ClusterData:
        """Return the blocks, checked."""
        if self.early_stopping:
            raise ValueError(
                "early_stopping must be False on a cluster: no rows are held back there."
            )
        pieces = pieces_of(X, y, sample_weight)
        data = ClusterData(connected(client), pieces, None, self.timeout, keep=self._flag("keep"))
        self._take_columns(X, data)
        return data

    def _fit_on(self, data: ClusterData, problems: list[Any], *, warm: bool) -> None:
        """Solve the problems that the blocks make, and keep what is found."""
        settings, seed = self._settings(), self._seed()
        starts = self._starts(problems, warm=warm)
        fits = [
            solve(problem, settings, start, score=None, seed=seed)
            for problem, start in zip(problems, starts, strict=True)
        ]
        self._set_parameters([fit.parameters for fit in fits])
        self._keep(total(fits), data.n_samples, data.weight)

    def _path(self, alphas: Vector, data: ClusterData, fold: Fold) -> PathResult:
        """Fit to all rows but a fold's, from the largest alpha to the smallest, and score it."""
        learnt, path = data.without(fold), PathResult([], [], [], [])
        problems: list[Any] = self._cluster_problems(self._objective(), learnt)
        for alpha in alphas:
            objective = self.set_params(alpha=float(alpha))._objective()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # there is one for all of them
                penalised = [p.with_strengths(objective.l2, objective.l1) for p in problems]
                self._fit_on(learnt, penalised, warm=bool(path.scores))
            path.scores.append(self._score_of(data, fold))
            path.objectives.append(self.objective_)
            path.gaps.append(self.gap_)
            path.missed.append(self._missed)
        return path

    def _score_of(self, data: ClusterData, fold: Fold) -> float:
        """Return the accuracy, or R^2, of the rows of a fold."""
        sums = data.cluster.total(
            "score", _score_sums, self.to_local(), fold, by_part=[data.first_rows]
        )
        weight, first, second, third = (float(number) for number in sums)
        if not weight > 0.0:
            return math.nan
        if is_classifier(self):
            return first / weight
        spread = third - second * second / weight
        return 1.0 - first / spread if spread > 0.0 else math.nan

    def _take_columns(self, X: Any, data: ClusterData) -> None:
        """Keep the number of columns, and their names where X has any."""
        self.n_features_in_ = data.n_features
        names = getattr(X, "columns", None)
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def to_local(self) -> Any:
        """Return a fitted estimator of `accelegrad.sklearn` that predicts the same."""
        names = self._local._get_param_names()
        local = self._local(**{name: getattr(self, name) for name in names})
        vars(local).update({k: v for k, v in vars(self).items() if k.endswith("_")})
        return local

    def _predicted(self, method: str, X: Any, columns: int | None, dtype: Any) -> Any:
        """Return what a method of the local estimator gives, lazily for a collection."""
        check_is_fitted(self)
        local = self.to_local()
        if isinstance(X, list):
            return [delayed(_call)(local, method, block) for block in X]
        if not is_dask_collection(X):
            return getattr(local, method)(X)
        if not hasattr(X, "chunks"):
            X = X.to_dask_array()
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        shape: dict[str, Any] = {"drop_axis": 1}
        if columns is not None:
            shape = {"chunks": (X.chunks[0], (columns,))}
        name = f"accelegrad-{method.replace('_', '-')}"
        meta = np.empty((0,) if columns is None else (0, 0), dtype)
        return X.map_blocks(
            partial(_call, local, method), name=None, token=name, meta=meta, dtype=dtype, **shape
        )

    def _learnt_from(self, client: Any, pieces: list[Any], **options: Any) -> None:
        """Go on with the blocks of a collection, one after the other, on the workers."""
        client = connected(client)
        local: Any = self.to_local()
        local.__dict__["_stream"] = getattr(self, "_stream", None)
        for number, piece in enumerate(pieces):
            learnt = delayed(_learn)(
                local, number, piece, options, dask_key_name=f"accelegrad-learn-{id(piece)}"
            )
            local = client.compute(learnt)
        fitted = local.result()
        for name, value in vars(fitted).items():
            if name.endswith("_"):
                setattr(self, name, value)
        self._stream = fitted._stream


def _score_sums(block: Block, local: Any, fold: Fold, first: int) -> Vector:
    """Return sums over the rows of a fold: weight and right predictions, or squared errors.

    Of numbers also those of the targets and of their squares.
    """
    rows = np.flatnonzero(fold.has(first, block.y.size))
    weights = np.ones(rows.size) if block.weights is None else block.weights[rows]
    if not rows.size:
        return np.zeros(4)
    found, y = local.predict(block.X[rows]), block.y[rows]
    if is_classifier(local):
        return np.array([weights.sum(), weights @ (found == y), 0.0, 0.0])
    return np.array([weights.sum(), weights @ (found - y) ** 2, weights @ y, weights @ y**2])


def _call(local: Any, method: str, block: Any) -> Any:
    """Return what a method says of a block; of no rows, as dask tries things out, nothing."""
    return getattr(local, method)(block)


def _learn(local: Any, number: int, piece: Any, options: dict[str, Any]) -> Any:
    """Return an estimator that has learnt from one more block."""
    block = read_block(number, [piece])
    if isinstance(block, str):
        raise BlockError(block)
    assert isinstance(block, Block)
    return local.partial_fit(block.X, block.y, sample_weight=block.weights, **options)


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradClassifier(OnCluster, classifier.AcceleGradClassifier):  # type: ignore[misc]
    """Linear classification of rows on a Dask cluster, with a certified gap.

    It minimises what `accelegrad.sklearn.AcceleGradClassifier` does, and has its parameters. What
    is fitted is the same up to the certified gap, however the rows are split.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_, classes_
        As `accelegrad.sklearn.AcceleGradClassifier` has them.
    {fitted}
    """

    _: KW_ONLY
    timeout: float | None = _timeout()
    keep: bool = _keep()

    _local = classifier.AcceleGradClassifier

    def _take_all_targets(self, data: ClusterData) -> bool:
        return self._take_targets(labels(data))

    def _cluster_problems(self, objective: Objective, data: ClusterData) -> list[Problem]:
        weigh = None
        if self.class_weight is not None:
            factors = self._class_factors(class_counts(data, self.classes_))
            weigh = class_factors(self.classes_, factors)
        if self._is_joint():
            return [classes_problem(objective, data, self.classes_, weigh)]
        return [
            problem_on(
                objective, data, row_settings(objective, against_rest(self.classes_, k), weigh)
            )
            for k in self._positives()
        ]

    def decision_function(self, X: Any) -> Any:
        """Return the linear scores of the rows, lazily for a collection."""
        columns = None if self._n_rows() == 1 else self._n_rows()
        return self._predicted("decision_function", X, columns, np.float64)

    def predict(self, X: Any) -> Any:
        """Predict class labels, lazily for a collection."""
        check_is_fitted(self)
        return self._predicted("predict", X, None, self.classes_.dtype)

    @property
    def predict_proba(self) -> Any:
        """Return the probabilities of the classes, lazily for a collection."""
        return self._probabilities("predict_proba")

    @property
    def predict_log_proba(self) -> Any:
        """Return the logarithms of `predict_proba`, lazily for a collection."""
        return self._probabilities("predict_log_proba")

    def _probabilities(self, method: str) -> Any:
        getattr(self._local(self.loss), method)  # refuses losses that tell no probabilities

        def probabilities(X: Any) -> Any:
            check_is_fitted(self)
            return self._predicted(method, X, self.classes_.size, np.float64)

        return probabilities

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        client: Any = None,
    ) -> Self:
        """Go on with the next rows of a stream, block by block, on the workers that hold them.

        Parameters
        ----------
        X, y, sample_weight, client
            As for `fit`.
        classes : array of shape (n_classes,), optional
            All the labels that the stream will ever have; needed at the first call.

        Returns
        -------
        self
        """
        known = getattr(self, "classes_", None) if classes is None else classes
        self._learnt_from(client, pieces_of(X, y, sample_weight), classes=known)
        return self


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradRegressor(OnCluster, regressor.AcceleGradRegressor):  # type: ignore[misc]
    """Linear regression on rows of a Dask cluster, with a certified gap.

    It minimises what `accelegrad.sklearn.AcceleGradRegressor` does, and has its parameters. What
    is fitted is the same up to the certified gap, however the rows are split.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_
        As `accelegrad.sklearn.AcceleGradRegressor` has them.
    {fitted}
    """

    _: KW_ONLY
    timeout: float | None = _timeout()
    keep: bool = _keep()

    _local = regressor.AcceleGradRegressor

    def _take_all_targets(self, data: ClusterData) -> bool:  # noqa: ARG002
        return True

    def _cluster_problems(self, objective: Objective, data: ClusterData) -> list[Problem]:
        return [problem_on(objective, data, row_settings(objective))]

    def predict(self, X: Any) -> Any:
        """Predict targets, lazily for a collection."""
        return self._predicted("predict", X, None, np.float64)

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None
    ) -> Self:
        """Go on with the next rows of a stream, block by block, on the workers that hold them.

        Parameters
        ----------
        X, y, sample_weight, client
            As for `fit`.

        Returns
        -------
        self
        """
        self._learnt_from(client, pieces_of(X, y, sample_weight))
        return self


class PathsOnCluster(OnCluster):
    """What the estimators of collections that choose `alpha` share."""

    alphas: Any
    cv: Any
    scoring: Any
    _single: ClassVar[type[Any]]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Fit along the path on each fold, then to all rows with the best alpha.

        Parameters
        ----------
        X, y, sample_weight, client
            As for `AcceleGradClassifier`.

        Returns
        -------
        self
        """
        alphas = strengths_to_try(self.alphas)
        count = 5 if self.cv is None else whole_number("cv", self.cv, least=2)
        if self.scoring is not None:
            raise ValueError(
                f"scoring must be None on a cluster (accuracy or R^2), not {self.scoring!r}."
            )
        single = self._of_one_alpha(alphas[0])
        single._objective()  # which refuses wrong parameters before any work
        data, seed = single._read(X, y, sample_weight, client), self._seed()
        single._take_all_targets(data)
        paths = [single._path(alphas, data, Fold(k, count, seed)) for k in range(count)]
        self.alphas_ = alphas
        self.scores_, self.objectives_, self.gaps_ = (
            np.array([path[part] for path in paths]).T for part in range(3)
        )
        self._warn_of_misses([flag for path in paths for flag in path.missed])
        self.alpha_ = best_alpha(alphas, self.scores_)
        single.set_params(alpha=self.alpha_)
        single._fit_on(data, single._cluster_problems(single._objective(), data), warm=False)
        for name, value in vars(single).items():
            if name.endswith("_"):
                setattr(self, name, value)
        return self


FOLDS = """\
Folds are drawn by the numbers of the rows, the same for any blocks, and are not stratified; `cv` is
their number. The score is the accuracy, or R^2."""


@documented(fitted=CHOSEN + FITTED, folds=FOLDS)
@dataclass(eq=False, repr=False)
class AcceleGradClassifierCV(PathsOnCluster, cv.AcceleGradClassifierCV):  # type: ignore[misc]
    """Linear classification of rows on a Dask cluster, with `alpha` chosen by cross-validation.

    {folds}

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {fitted}
    """

    _: KW_ONLY
    timeout: float | None = _timeout()
    keep: bool = _keep()

    _local = cv.AcceleGradClassifierCV
    _single = AcceleGradClassifier
    decision_function = AcceleGradClassifier.decision_function
    predict = AcceleGradClassifier.predict
    predict_proba = AcceleGradClassifier.predict_proba
    predict_log_proba = AcceleGradClassifier.predict_log_proba
    _probabilities = AcceleGradClassifier._probabilities


@documented(fitted=CHOSEN + FITTED, folds=FOLDS)
@dataclass(eq=False, repr=False)
class AcceleGradRegressorCV(PathsOnCluster, cv.AcceleGradRegressorCV):  # type: ignore[misc]
    """Linear regression on rows of a Dask cluster, with `alpha` chosen by cross-validation.

    {folds}

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {fitted}
    """

    _: KW_ONLY
    timeout: float | None = _timeout()
    keep: bool = _keep()

    _local = cv.AcceleGradRegressorCV
    _single = AcceleGradRegressor
    predict = AcceleGradRegressor.predict
