"""`AcceleGradClassifier`: linear classification for smooth and non-smooth losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from accelegrad.errors import Vector, nearest
from accelegrad.models.losses import by_sklearn_name
from accelegrad.models.row_file import RowFile, mapped
from accelegrad.sklearn.base import ACCEPTED, LinearEstimator, StreamFitting
from accelegrad.sklearn.data import LabelFile, class_counts
from accelegrad.sklearn.objective import (
    Data,
    Objective,
    refuse_missing,
    weights_of,
    without_weightless,
)
from accelegrad.sklearn.parameters import FITTED, PARTIAL_FIT, documented, parameter

#: Probability of the second class as a function of the score, for losses that estimate it.
PROBABILITIES: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "log_loss": expit,
    "modified_huber": lambda scores: (np.clip(scores, -1.0, 1.0) + 1.0) / 2.0,
}
MULTI_CLASS = ("auto", "ovr", "multinomial")


def refuse_numbers(y: npt.NDArray[Any], name: str) -> None:
    """Raise ValueError if the targets are continuous."""
    try:
        check_classification_targets(y)
    except ValueError:
        if type_of_target(y) != "continuous":
            raise
        example = float(y[y != np.floor(y)][0])
        # scikit-learn's estimator checks require these first words.
        raise ValueError(
            f"Unknown label type: continuous. y holds numbers such as {example:g}, but {name} is "
            "for classes; AcceleGradRegressor is for numbers."
        ) from None


def _gives_probabilities(estimator: Any) -> bool:
    if estimator._loss_name in PROBABILITIES:
        return True
    raise AttributeError(
        f"probability estimates are not available for loss={estimator.loss!r}, only for "
        f"{' and '.join(map(repr, PROBABILITIES))}."
    )


@dataclass(eq=False, repr=False)
class LinearClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Base class of the classifiers."""

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

    _losses = by_sklearn_name(classification=True)
    _classifies = True

    # -- prediction ------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """Return the linear scores of the samples, with one column per class.

        Of two classes there is one score, of ``classes_[1]``, which is predicted where it is > 0.
        """
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict class labels."""
        scores = self._scores(X)
        two = scores.shape[1] == 1
        index = (scores.ravel() > 0.0).astype(np.intp) if two else scores.argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[index]
        return labels

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return class probabilities, for "log_loss" and "modified_huber".

        With "log_loss" they are the logistic function of the scores (normalised over the classes
        for one-vs-rest), or the softmax of multinomial scores; with "modified_huber" they are
        (clip(score, -1, 1) + 1) / 2, normalised. There is one column per class.

        References
        ----------
        B. Zadrozny, C. Elkan, "Transforming classifier scores into multiclass probability
        estimates", KDD 2002. T. Zhang, "Statistical behavior and consistency of classification
        methods based on convex risk minimization", Annals of Statistics 2004.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2 and self._is_joint():
            return np.asarray(softmax(scores, axis=1))
        positive = PROBABILITIES[self._loss_name](scores)
        if scores.ndim == 1:
            return np.column_stack([1.0 - positive, positive])
        sums = positive.sum(axis=1, keepdims=True)
        # If every class has probability 0, all get the same one.
        even = np.full_like(positive, 1.0 / positive.shape[1])
        return np.where(sums > 0.0, positive / np.where(sums > 0.0, sums, 1.0), even)

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    # -- fitting ---------------------------------------------------------------------------------

    def _meaning(self, objective: Objective) -> tuple[Any, ...]:
        weights = self.class_weight
        weights = dict(weights) if isinstance(weights, dict) else weights
        return (*super()._meaning(objective), weights, self._is_joint())

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        refuse_missing(y)
        X, y = validate_data(self, X, y, reset=reset, **ACCEPTED)
        refuse_numbers(y, type(self).__name__)
        return Data(X, y, weights_of(sample_weight, X))

    def _prepared(self, data: Data) -> Data:
        """Replace labels by their indices in `classes_`, and multiply weights by `class_weight`."""
        # Samples of a stream with weight 0 may have labels that are not in `classes_`.
        labels = data.y.labels if isinstance(data.y, LabelFile) else data.y
        of_labels = np.minimum(np.searchsorted(self.classes_, labels), self.classes_.size - 1)
        places: Any = of_labels
        if isinstance(data.y, LabelFile):
            places = mapped(lambda numbers: of_labels[numbers.astype(np.intp)], data.y)
        data = data._replace(y=places)
        if self.class_weight is not None:
            factors = self._class_factors(class_counts(data, self.classes_.size))

            def weighed(places: Vector, weights: Vector | None) -> Vector:
                own = factors[places.astype(np.intp)]
                return own if weights is None else own * weights

            given = places, data.weights
            in_files = isinstance(places, RowFile)
            data = data._replace(weights=mapped(weighed, *given) if in_files else weighed(*given))
        return without_weightless(data)

    def _class_factors(self, counts: Vector) -> Vector:
        """Return the factor of each class, given the total weight of each class."""
        factors: Vector
        if self.class_weight == "balanced":
            # A class may be missing from the held-out samples.
            present = counts > 0.0
            factors = np.zeros(counts.size)
            factors[present] = counts.sum() / (self.classes_.size * counts[present])
        else:
            classes = self.classes_
            factors = compute_class_weight(self.class_weight, classes=classes, y=classes)
        if not np.all(np.isfinite(factors) & (factors >= 0.0)):
            raise ValueError(f"class_weight must be finite and >= 0, not {self.class_weight!r}.")
        return factors

    def _take_classes(self, y: Any, weights: Any = None) -> bool:
        if isinstance(y, LabelFile):
            y = y.labels[class_counts(Data(None, y, weights), y.labels.size) > 0.0]
        elif weights is not None:
            y = y[weights > 0.0]
        last = getattr(self, "classes_", None)
        self.classes_ = np.unique(y)
        if self.classes_.size < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes, but y holds only 1 "
                f"class: {self.classes_[0]}."
            )
        return last is not None and np.array_equal(last, self.classes_)

    def _targets(self, data: Data) -> tuple[list[Any], int]:
        count = self.classes_.size
        if self._is_joint():
            return [data.y], count
        # Each class against the rest; of two, the second.
        positives = range(1 if count == 2 else 0, count)
        return list(map(against_rest, repeat(data.y), positives)), 1

    def _is_joint(self) -> bool:
        """Return whether all classes belong to one multinomial problem."""
        if not isinstance(self.multi_class, str) or self.multi_class not in MULTI_CLASS:
            given = self.multi_class
            raise ValueError(f"multi_class is {given!r}: {nearest(str(given), MULTI_CLASS)}")
        if self.multi_class == "multinomial" and self._loss_name != "log_loss":
            raise ValueError(
                f"multi_class='multinomial' needs loss='log_loss', but loss is {self.loss!r}."
            )
        several = self.classes_.size > 2
        return several and self._loss_name == "log_loss" and self.multi_class != "ovr"


def against_rest(places: Any, positive: int) -> Any:
    """Return 1 for one class and -1 for the rest, in a file if the class indices are in one."""
    if isinstance(places, RowFile):
        return mapped(partial(against_rest, positive=positive), places)
    return np.where(places == positive, 1.0, -1.0)


@documented(fitted=FITTED)
@dataclass(eq=False, repr=False)
class AcceleGradClassifier(LinearClassifier, StreamFitting):
    r"""Linear classification without tuning, with a certified gap.

    Minimises the (weighted) mean loss plus the penalty,

    .. math:: \sum_i p_i\, l(a_i^T w + b, y_i) + \alpha R(w), \qquad
              R(w) = \tfrac12 \lVert w \rVert^2 \text{ for ``penalty="l2"``},

    the objective of scikit-learn's ``SGDClassifier``, with `accelegrad.minimize`. In terms of
    ``LogisticRegression`` and ``LinearSVC``, ``alpha`` is ``1 / (n C)``.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        The coefficients.
    intercept_ : array of shape (1,) or (n_classes,)
        The intercepts; zeros if there are none.
    classes_ : array of shape (n_classes,)
        The labels.
    {fitted}

    See Also
    --------
    AcceleGradRegressor : The same for numeric targets.
    AcceleGradClassifierCV : Chooses `alpha` by cross-validation.

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
        """Learn from the next samples of a stream, with one step per `batch_size` samples.

        {stream}

        `classes` are all labels that the stream can contain; required at the first call.
        """
        objective = self._objective()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not supported for partial_fit, which does not see all "
                "rows. Compute the weights (sklearn.utils.compute_class_weight) and give a dict."
            )
        self._refuse_early_stopping()
        refuse_missing(y)
        X, y = validate_data(self, X, y, reset=not hasattr(self, "coef_"), **ACCEPTED)
        self._admit_classes(classes, y)
        data = Data(X, y, weights_of(sample_weight, X))
        self._learn(objective, self._prepared(data))
        return self

    def _admit_classes(self, classes: Any, y: npt.NDArray[Any]) -> None:
        """Store the classes at the first call; refuse labels that are not among them."""
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
        places = np.minimum(np.searchsorted(known, y), known.size - 1)
        unknown = known[places] != y
        if unknown.any():
            refuse_numbers(y, type(self).__name__)
            raise ValueError(
                f"y holds the classes {np.unique(y[unknown])}, which are not among {known}, the "
                "classes given at the first call of partial_fit."
            )
        self.classes_ = known
