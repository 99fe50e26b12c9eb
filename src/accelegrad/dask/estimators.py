"""The estimators of `accelegrad.sklearn` on Dask collections."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import uuid4

import numpy as np
from dask import delayed, is_dask_collection
from joblib import parallel_config
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from accelegrad.dask.blocks import Block, ClusterData, pieces_of, read_block
from accelegrad.dask.cluster import BlockError, connected
from accelegrad.dask.problems import (
    against_rest,
    class_counts,
    factors_of,
    labels,
    places,
    problem_on,
    target_scale,
)
from accelegrad.errors import Vector
from accelegrad.models.matrix import RowNumbers
from accelegrad.models.parted_model import split_by_part
from accelegrad.sklearn import classifier, cv, regressor
from accelegrad.sklearn.base import LinearEstimator
from accelegrad.sklearn.cv import CHOSEN, CrossValidated
from accelegrad.sklearn.objective import Data, Objective, Problem, without_weightless
from accelegrad.sklearn.parameters import FITTED, documented, parameter

# A mixin: fields of LinearEstimator would override those of the estimators.
if TYPE_CHECKING:
    Mixin = LinearEstimator
else:
    Mixin = object


@dataclass(eq=False, repr=False, kw_only=True)
class OnCluster(Mixin):
    """Common base of the estimators of collections."""

    timeout: float | None = parameter(
        None,
        "float or None",
        "After how many seconds without an answer a round trip to the workers fails, with an error "
        "that names those it waits for. None: never.",
    )
    __metadata_request__fit: ClassVar[dict[str, str]] = {"client": UNUSED}
    #: the estimator of rows in memory
    _local: ClassVar[type[Any]]

    def _cluster_problems(self, objective: Objective, data: ClusterData) -> list[Problem]:
        """Return the problems to minimise: one, or one per class."""
        raise NotImplementedError

    def _take_all_targets(self, data: ClusterData) -> bool:
        """Store the facts of all targets; return whether those of the last fit were the same."""
        raise NotImplementedError

    def _in_units_of(self, objective: Objective, data: ClusterData) -> Objective:  # noqa: ARG002
        return objective

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
        data = X.data if isinstance(X, HeldRows) else self._read(X, y, sample_weight, client)
        self.n_features_in_ = data.n_features
        warm = self._take_all_targets(data) and bool(getattr(self, "warm_start", False))
        if self.early_stopping:  # the split depends on the targets
            rows = without_weightless(gathered_rows(data, numbers=is_regressor(self)))
            self._fit_data(self._prepared(rows), objective, warm=warm)
        else:
            problems = self._cluster_problems(self._in_units_of(objective, data), data)
            self._fit_problems(data, problems, None, self._settings(), warm=warm)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, client: Any) -> ClusterData:
        data = ClusterData(connected(client), pieces_of(X, y, sample_weight), self.timeout)
        self.n_features_in_ = data.n_features
        names = getattr(X, "columns", None)
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return data

    def _problems(self, objective: Objective, data: Any) -> list[Problem]:
        """Return the problems of rows on the workers; targets and weights are there."""
        return self._cluster_problems(objective, data.X.counted())

    def _fit_problems(self, *given: Any, warm: bool) -> None:
        with parallel_config("sequential"):  # other processes have no client
            super()._fit_problems(*given, warm=warm)

    def to_local(self) -> Any:
        """Return a fitted estimator of `accelegrad.sklearn` that predicts the same."""
        names = self._local._get_param_names()
        local = self._local(**{name: getattr(self, name) for name in names})
        vars(local).update({k: v for k, v in vars(self).items() if k.endswith("_")})
        return local

    def _predicted(self, method: str, X: Any, columns: int | None, dtype: Any) -> Any:
        """Return the result of the local estimator's method, lazily for a collection."""
        check_is_fitted(self)
        on_block = getattr(self.to_local(), method)
        if isinstance(X, HeldRows):
            return X.map(on_block)
        if isinstance(X, list):
            return [delayed(on_block)(block) for block in X]
        if not is_dask_collection(X):
            return on_block(X)
        if not hasattr(X, "chunks"):
            X = X.to_dask_array()
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        shape: dict[str, Any] = {"drop_axis": 1}
        if columns is not None:
            shape = {"chunks": (X.chunks[0], (columns,))}
        name = f"accelegrad-{method.replace('_', '-')}"
        meta = np.empty((0,) if columns is None else (0, 0), dtype)
        return X.map_blocks(on_block, name=None, token=name, meta=meta, dtype=dtype, **shape)

    def _learnt_from(self, client: Any, pieces: list[Any], **options: Any) -> None:
        client = connected(client)
        local: Any = self.to_local()
        local.__dict__["_stream"] = getattr(self, "_stream", None)
        run = uuid4().hex  # a repeated key would return the earlier result
        for number, piece in enumerate(pieces):
            learnt = delayed(_learn)(
                local, number, piece, options, dask_key_name=f"accelegrad-learn-{run}-{number}"
            )
            local = client.compute(learnt)
        fitted = local.result()
        for name, value in vars(fitted).items():
            if name.endswith("_"):
                setattr(self, name, value)
        self._stream = fitted._stream


class HeldRows:
    """Rows on a cluster by their numbers; only predictions are fetched."""

    ndim = 2

    def __init__(self, data: ClusterData, numbers: RowNumbers) -> None:
        self.data, self.numbers = data, numbers

    def counted(self) -> ClusterData:
        """Return the blocks with these rows counted."""
        return self.data.of_rows(self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.numbers.size, self.data.n_features

    def __getitem__(self, rows: Any) -> HeldRows:
        return HeldRows(self.data, self.numbers[rows])

    def map(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return a function's result for `given` and the rows, in their order: one round trip."""
        pieces, order = split_by_part(self.numbers, self.data.ends)
        found = self.data.cluster.each("predict", _mapped, function, *given, by_part=[pieces])
        in_order = np.concatenate([part for part in found if part is not None])
        return in_order[np.argsort(order, kind="stable")]


def _mapped(block: Block, function: Callable[..., Any], *given: Any) -> Any:
    *more, rows = given
    return function(*more, block.X[rows]) if rows.size else None


def _targets_of(block: Block) -> tuple[Any, Vector | None]:
    return block.y, block.weights


def gathered_rows(data: ClusterData, *, numbers: bool) -> Data:
    """Return the targets and weights of all rows; the rows stay where they are."""
    found = data.cluster.each("targets", _targets_of)
    y, given = np.concatenate([part for part, _ in found]), None
    if data.weighted:  # perhaps not in all blocks
        given = np.concatenate([np.ones(len(part)) if w is None else w for part, w in found])
    rows = HeldRows(data, np.arange(data.n_samples))
    return Data(rows, y.astype(np.float64) if numbers else y, given)


def _learn(local: Any, number: int, piece: Any, options: dict[str, Any]) -> Any:
    block = read_block(number, [piece])
    if isinstance(block, str):
        raise BlockError(block)
    assert isinstance(block, Block)
    # A copy: after the loss of a worker, Dask recomputes from the result of the previous block.
    return deepcopy(local).partial_fit(block.X, block.y, sample_weight=block.weights, **options)


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradClassifier(OnCluster, classifier.AcceleGradClassifier):
    """Linear classification of rows on a Dask cluster, with a certified gap.

    It minimises the objective of `accelegrad.sklearn.AcceleGradClassifier`, with the same
    parameters. The fit is the same up to the certified gap, however the rows are split.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_, classes_
        As in `accelegrad.sklearn.AcceleGradClassifier`.
    {fitted}
    """

    _local = classifier.AcceleGradClassifier

    def _take_all_targets(self, data: ClusterData) -> bool:
        found = labels(data)
        # Twice: scikit-learn warns where more than half of the targets are different.
        classifier.refuse_numbers(np.repeat(found, 2), type(self).__name__)
        return self._take_classes(found)

    def _cluster_problems(self, objective: Objective, data: ClusterData) -> list[Problem]:
        classes, weigh = self.classes_, None
        if self.class_weight is not None:
            factors = self._class_factors(class_counts(data, classes))
            weigh = partial(factors_of, classes=classes, factors=factors)
        if self._is_joint():
            recode: Any = partial(places, classes=classes)
            return [problem_on(objective, data, recode, weigh, n_classes=classes.size)]
        positives = classes[1:] if classes.size == 2 else classes
        labels = [partial(against_rest, label=label) for label in positives]
        return [problem_on(objective, data, recode, weigh) for recode in labels]

    def decision_function(self, X: Any) -> Any:
        """Return the linear scores of the rows, lazily for a collection."""
        columns = None if self.classes_.size == 2 else self.classes_.size
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
        getattr(self._local(self.loss), method)  # refuses losses without probabilities

        def probabilities(X: Any) -> Any:
            check_is_fitted(self)
            return self._predicted(method, X, self.classes_.size, np.float64)

        probabilities.__name__ = method  # scikit-learn's scorers look at it
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
        """Learn from the next rows of a stream, block by block, on the workers that hold them.

        Parameters
        ----------
        X, y, sample_weight, client
            As for `fit`.
        classes : array of shape (n_classes,), optional
            All labels of the stream; needed at the first call.

        Returns
        -------
        self
        """
        known = getattr(self, "classes_", None) if classes is None else classes
        self._learnt_from(client, pieces_of(X, y, sample_weight), classes=known)
        return self


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradRegressor(OnCluster, regressor.AcceleGradRegressor):
    """Linear regression on rows of a Dask cluster, with a certified gap.

    It minimises the objective of `accelegrad.sklearn.AcceleGradRegressor`, with the same
    parameters. The fit is the same up to the certified gap, however the rows are split.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_
        As in `accelegrad.sklearn.AcceleGradRegressor`.
    {fitted}
    """

    _local = regressor.AcceleGradRegressor

    def _take_all_targets(self, data: ClusterData) -> bool:  # noqa: ARG002
        return True

    def _cluster_problems(self, objective: Objective, data: ClusterData) -> list[Problem]:
        return [problem_on(objective, data)]

    def _in_units_of(self, objective: Objective, data: ClusterData) -> Objective:
        found = partial(target_scale, data, centred=objective.fit_intercept)
        return self._in_scale(objective, found)

    def predict(self, X: Any) -> Any:
        """Predict targets, lazily for a collection."""
        return self._predicted("predict", X, None, np.float64)

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None
    ) -> Self:
        """Learn from the next rows of a stream, block by block, on the workers that hold them.

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
    """Common base of the estimators of collections that choose `alpha`."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        client: Any = None,
    ) -> Self:
        """Fit along the path on each fold, then to all rows with the best alpha.

        Parameters
        ----------
        X, y, sample_weight, client
            As for `AcceleGradClassifier`.
        groups : array of shape (n_samples,), optional
            The group of each row, for a splitter such as ``GroupKFold``.

        Returns
        -------
        self
        """
        data = self._read(X, y, sample_weight, client)
        rows = gathered_rows(data, numbers=is_regressor(self))
        with parallel_config("sequential"):  # other processes have no client
            return CrossValidated.fit(self, rows.X, rows.y, rows.weights, groups=groups)

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:  # noqa: ARG002
        if is_classifier(self):
            classifier.refuse_numbers(y, type(self).__name__)
        return Data(X, y, sample_weight)


FOLDS = """\
The targets are brought to the client, which makes the folds, and so are the predictions of held-out
rows, which it scores; the rows stay where they are."""


@documented(fitted=CHOSEN + FITTED, folds=FOLDS)
@dataclass(eq=False, repr=False)
class AcceleGradClassifierCV(PathsOnCluster, cv.AcceleGradClassifierCV):
    """Linear classification of rows on a Dask cluster, with `alpha` chosen by cross-validation.

    {folds}

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {fitted}
    """

    _local = cv.AcceleGradClassifierCV
    _single = AcceleGradClassifier
    decision_function = AcceleGradClassifier.decision_function
    predict = AcceleGradClassifier.predict
    predict_proba = AcceleGradClassifier.predict_proba
    predict_log_proba = AcceleGradClassifier.predict_log_proba
    _probabilities = AcceleGradClassifier._probabilities


@documented(fitted=CHOSEN + FITTED, folds=FOLDS)
@dataclass(eq=False, repr=False)
class AcceleGradRegressorCV(PathsOnCluster, cv.AcceleGradRegressorCV):
    """Linear regression on rows of a Dask cluster, with `alpha` chosen by cross-validation.

    {folds}

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {fitted}
    """

    _local = cv.AcceleGradRegressorCV
    _single = AcceleGradRegressor
    predict = AcceleGradRegressor.predict
