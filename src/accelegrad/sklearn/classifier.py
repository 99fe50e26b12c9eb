"""`AcceleGradClassifier`: linear classification for smooth and non-smooth losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed

from accelegrad.errors import Vector, nearest
from accelegrad.problems.losses import by_sklearn_name
from accelegrad.sklearn.base import LinearEstimator, StreamFitting, dense_rows
from accelegrad.sklearn.data import Data
from accelegrad.sklearn.objective import Objective, Problem
from accelegrad.sklearn.parameters import FITTED, PARTIAL_FIT, documented, parameter
from accelegrad.sklearn.solve import Score, solve, total

LOSSES = by_sklearn_name(classification=True)
#: Probabilities of the second class by scores, for the losses whose minimiser tells them.
PROBABILITIES: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "log_loss": expit,
    "modified_huber": lambda scores: (np.clip(scores, -1.0, 1.0) + 1.0) / 2.0,
}
MULTI_CLASS = ("auto", "ovr", "multinomial")


def _gives_probabilities(estimator: Any) -> bool:
    if estimator.loss in PROBABILITIES:
        return True
    raise AttributeError(
        f"probability estimates are not available for loss={estimator.loss!r}, only for "
        f"{' and '.join(map(repr, PROBABILITIES))}."
    )


@dataclass(eq=False, repr=False)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """What classifiers share."""

    loss: str = parameter(
        "log_loss",
        '{"log_loss", "hinge", "squared_hinge", "modified_huber"}',
        "Logistic regression, support vector machines, and a smooth loss that is linear far out.",
    )
    _: KW_ONLY
    class_weight: Any = parameter(
        None,
        'dict, "balanced" or None',
        'Weights of the classes; "balanced" gives all classes the same total weight.',
    )
    multi_class: str = parameter(
        "auto",
        '{"auto", "ovr", "multinomial"}',
        "For more than two classes: one problem for each class against the rest, or one "
        'multinomial problem, which only "log_loss" has. "auto" is "multinomial" for "log_loss", '
        '"ovr" else.',
    )

    _losses = LOSSES

    # -- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """Return the linear scores of the rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            For two classes the score of ``classes_[1]``, which is predicted where it is above 0.
        """
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict class labels.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array of shape (n_samples,)
        """
        scores = self.decision_function(X)
        index = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[index]
        return labels

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probabilities of the classes, for "log_loss" and "modified_huber".

        With "log_loss" they are the logistic function of the scores (normalised over the classes,
        where those are one against the rest), or the softmax of multinomial ones; with
        "modified_huber" (clip(score, -1, 1) + 1) / 2, normalised.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array of shape (n_samples, n_classes)

        References
        ----------
        B. Zadrozny, C. Elkan, "Transforming classifier scores into multiclass probability
        estimates", KDD 2002. T. Zhang, "Statistical behavior and consistency of classification
        methods based on convex risk minimization", Annals of Statistics 2004.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2 and self._is_multinomial(self.classes_.size):
            return np.asarray(softmax(scores, axis=1))
        positive = PROBABILITIES[self.loss](scores)
        if scores.ndim == 1:
            return np.column_stack([1.0 - positive, positive])
        sums = positive.sum(axis=1, keepdims=True)
        # A row that no class wants is shared out evenly.
        even = np.full_like(positive, 1.0 / positive.shape[1])
        return np.where(sums > 0.0, positive / np.where(sums > 0.0, sums, 1.0), even)

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    # -- parameters ------------------------------------------------------------------------------

    def _is_multinomial(self, n_classes: int) -> bool:
        """Tell whether the classes have one problem together."""
        if not isinstance(self.multi_class, str) or self.multi_class not in MULTI_CLASS:
            given = self.multi_class
            raise ValueError(f"multi_class is {given!r}: {nearest(str(given), MULTI_CLASS)}")
        if self.multi_class == "multinomial" and self.loss != "log_loss":
            raise ValueError(
                f"multi_class='multinomial' needs loss='log_loss', but loss is {self.loss!r}."
            )
        return n_classes > 2 and self.loss == "log_loss" and self.multi_class != "ovr"

    def _meaning(self, objective: Objective) -> tuple[Any, ...]:
        weights = self.class_weight
        weights = dict(weights) if isinstance(weights, dict) else weights
        multinomial = self._is_multinomial(self.classes_.size)
        return (*super()._meaning(objective), weights, multinomial)

    # -- fitting ---------------------------------------------------------------------------------

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        X, y = self._checked(X, y, reset=reset)
        check_classification_targets(y)
        return Data(X, y, self._checked_weights(sample_weight, X))

    def _prepared(self, data: Data) -> Data:
        """Return the rows that have weight, with targets as places in `classes_`."""
        return super()._prepared(self._with_class_weights(data))

    def _with_class_weights(self, data: Data) -> Data:
        """Return data with targets as places in `classes_`, and weights with those of classes."""
        places = np.searchsorted(self.classes_, data.y)
        if self.class_weight is None:
            return Data(data.X, places, data.weights)
        if self.class_weight == "balanced":
            counts = np.bincount(places, data.weights, minlength=self.classes_.size)
            factors = counts.sum() / (self.classes_.size * counts)
        else:
            factors = compute_class_weight(self.class_weight, classes=self.classes_, y=data.y)
        if not np.all(np.isfinite(factors) & (factors >= 0.0)):
            raise ValueError(f"class_weight must be finite and >= 0, not {self.class_weight!r}.")
        weights = factors[places]
        return Data(data.X, places, weights if data.weights is None else weights * data.weights)

    def _fit_data(self, data: Data, objective: Objective) -> None:
        old_classes = getattr(self, "classes_", None)
        self.classes_ = np.unique(data.y)
        n_classes = self.classes_.size
        if n_classes < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes, but y holds only 1 "
                f"class: {self.classes_[0]}."
            )
        settings, seed = self._settings(), self._seed()
        known = old_classes is not None and np.array_equal(old_classes, self.classes_)
        warm = bool(self.warm_start) and known
        data = self._prepared(data)
        self._refuse_no_rows(data)
        held = None
        if self.early_stopping:
            data, held = self._held_out(data, data.y, seed)
        problems = self._problems(objective, data)
        starts = self._starts(problems, warm=warm)
        scores = self._validation_scores(held)
        fits = Parallel(n_jobs=self.n_jobs)(
            delayed(solve)(problem, settings, start, score=score, seed=seed)
            for problem, start, score in zip(problems, starts, scores, strict=True)
        )
        self._set_parameters([fit.parameters for fit in fits])
        self._keep(fits[0] if len(fits) == 1 else total(fits), data)

    def _problems(self, objective: Objective, data: Data) -> list[Problem]:
        """Return the multinomial problem, or one for each class against the rest."""
        n_classes = self.classes_.size
        if self._is_multinomial(n_classes):
            return [objective.on_classes(data.X, data.y, n_classes, data.weights)]
        return [
            objective.on(data.X, np.where(data.y == k, 1.0, -1.0), data.weights)
            for k in self._positives()
        ]

    def _positives(self) -> range:
        """Return the classes that are set against the rest."""
        return range(1, 2) if self.classes_.size == 2 else range(self.classes_.size)

    def _n_rows(self) -> int:
        return 1 if self.classes_.size == 2 else int(self.classes_.size)

    def _starts(self, problems: list[Problem], *, warm: bool) -> list[Vector]:
        cold = [problem.start() for problem in problems]
        if not warm or not hasattr(self, "coef_"):
            return cold
        if np.size(self.intercept_) != self._n_rows():
            return cold
        rows, intercepts = dense_rows(self.coef_, self.intercept_, self._n_rows())
        if rows.shape[1] != problems[0].model.n_features:
            return cold
        blocks = [rows, intercepts[:, None]] if self.fit_intercept else [rows]
        if self._is_multinomial(self.classes_.size):
            return [problems[0].nearest(np.concatenate([block.ravel() for block in blocks]))]
        return [problem.nearest(x) for problem, x in zip(problems, np.hstack(blocks), strict=True)]

    def _set_parameters(self, points: list[Vector]) -> None:
        n_rows, free = self._n_rows(), int(self.fit_intercept)
        if self._is_multinomial(self.classes_.size):
            stacked = points[0]
            split = stacked.size - n_rows * free
            self.coef_ = stacked[:split].reshape(n_rows, -1)
            self.intercept_ = stacked[split:] if free else np.zeros(n_rows)
            return
        rows = np.array(points)
        self.coef_ = np.ascontiguousarray(rows[:, :-1]) if free else rows
        self.intercept_ = rows[:, -1].copy() if free else np.zeros(n_rows)

    # -- early stopping --------------------------------------------------------------------------

    def _validation_scores(self, held: Data | None) -> list[Score | None]:
        """Return the accuracy on held-out rows, as a function of each problem's parameters."""
        if self._is_multinomial(self.classes_.size):
            return [None if held is None else ClassesAccuracy(held, self.classes_.size)]
        return [None if held is None else Accuracy(held, k) for k in self._positives()]


class Accuracy:
    """The share of rows on which the decision between one class and the rest is right."""

    def __init__(self, held: Data, positive: int) -> None:
        self.held, self.positive = held, positive

    def __call__(self, x: Vector) -> float:
        """Return the share, weighted, for these parameters."""
        X, y, weights = self.held
        margins = X @ x[: X.shape[1]] + (x[-1] if x.size > X.shape[1] else 0.0)
        return float(np.average((margins > 0.0) == (y == self.positive), weights=weights))


class ClassesAccuracy:
    """The share of rows whose class is predicted."""

    def __init__(self, held: Data, n_classes: int) -> None:
        self.held, self.n_classes = held, n_classes

    def __call__(self, x: Vector) -> float:
        """Return the share, weighted, for these parameters."""
        X, y, weights = self.held
        split = self.n_classes * X.shape[1]
        scores = X @ x[:split].reshape(self.n_classes, -1).T
        if x.size > split:
            scores = scores + x[split:]
        return float(np.average(scores.argmax(axis=1) == y, weights=weights))


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradClassifier(LinearClassifier, StreamFitting):
    r"""Linear classification without tuning, and with a certified gap.

    Minimises the (weighted) mean loss plus the penalty,

    .. math:: \sum_i p_i\, l(a_i^T w + b, y_i) + \alpha R(w), \qquad
              R(w) = \tfrac12 \lVert w \rVert^2 \text{ for ``penalty="l2"``},

    the objective of scikit-learn's ``SGDClassifier``, with `accelegrad.minimize`. So ``alpha`` is
    ``1 / (n C)`` in the words of ``LogisticRegression`` and ``LinearSVC``.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        The coefficients.
    intercept_ : array of shape (1,) or (n_classes,)
        The intercepts, zeros without any.
    classes_ : array of shape (n_classes,)
        The labels.
    {fitted}

    See Also
    --------
    AcceleGradRegressor : The same for numbers.
    AcceleGradClassifierCV : Chooses `alpha` by cross-validation.

    References
    ----------
    K. Y. Levy, A. Yurtsever, V. Cevher, "Online adaptive methods, universality and acceleration",
    NeurIPS 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from accelegrad.sklearn import AcceleGradClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = AcceleGradClassifier(alpha=1e-3).fit(X, y)
    >>> bool(classifier.gap_ <= 1e-3 * classifier.objective_)
    True
    >>> classifier.predict(X[:1])
    array([0])
    """

    _: KW_ONLY
    n_jobs: int | None = parameter(
        None, "int or None", "Processes for the problems of one class against the rest."
    )

    @documented(stream=PARTIAL_FIT)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on with the next rows of a stream: a step every `batch_size` rows.

        {stream}

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes : array of shape (n_classes,), optional
            All the labels that the stream will ever have; needed at the first call.

        Returns
        -------
        self
        """
        objective = self._objective()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not supported for partial_fit, which does not see all "
                "rows. Compute the weights (sklearn.utils.compute_class_weight) and give a dict."
            )
        data = self._next_rows(X, y, sample_weight)
        self._admit_classes(classes, data.y)
        self._learn(objective, self._prepared(data))
        return self

    def _admit_classes(self, classes: Any, y: npt.NDArray[Any]) -> None:
        """Keep the classes of the first call, and refuse labels that are not among them."""
        known = getattr(self, "classes_", None)
        if known is None and classes is None:
            raise ValueError("classes must be given at the first call of partial_fit.")
        if known is None:
            known = np.unique(np.asarray(classes))
            if known.size < 2:
                raise ValueError(f"classes must hold at least 2 classes, not {classes!r}.")
        elif classes is not None and not np.array_equal(known, np.unique(np.asarray(classes))):
            raise ValueError(
                f"classes={classes!r} is not the same as at the first call of partial_fit: "
                f"{known!r}."
            )
        unknown = np.setdiff1d(y, known)
        if unknown.size:
            raise ValueError(
                f"y holds the classes {unknown}, which are not among {known}, the classes given "
                "at the first call of partial_fit."
            )
        self.classes_ = known
