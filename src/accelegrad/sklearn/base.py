"""What classifiers and regressors share: checked parameters, fitting, streams, coefficients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from accelegrad.errors import Vector, nearest, real_number, whole_number
from accelegrad.problems.losses import LossEntry, make_loss
from accelegrad.sklearn import online
from accelegrad.sklearn.data import Data, rows_of, without_weightless
from accelegrad.sklearn.objective import Objective, Problem, coefficient_set, strengths
from accelegrad.sklearn.parameters import Parameters, parameter
from accelegrad.sklearn.solve import Fit, Settings

AUTO = "auto"
KINDS = [np.float64, np.float32]
SEEDS = 2**31 - 1


class LinearEstimator(Parameters, BaseEstimator):  # type: ignore[misc]
    """Base class: everything but what the targets are and how predictions are made."""

    #: the losses, by their names here
    _losses: dict[str, LossEntry]
    #: what goes on from one `partial_fit` to the next
    _stream: online.StreamState | None
    coef_: Any  # a dense array, or a sparse one after `sparsify`
    intercept_: Any

    # -- what classifiers and regressors fill in --------------------------------------------------

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        """Return rows, targets and weights, or say what is wrong with them."""
        raise NotImplementedError

    def _prepared(self, data: Data) -> Data:
        """Return checked rows as problems take them: only those that have weight."""
        return without_weightless(data)

    def _fit_data(self, data: Data, objective: Objective) -> None:
        """Fit to rows that all have weight."""
        raise NotImplementedError

    def _problems(self, objective: Objective, data: Data) -> list[Problem]:
        """Return what is minimised: a problem, or one for each class."""
        raise NotImplementedError

    def _starts(self, problems: list[Problem], *, warm: bool) -> list[Vector]:
        """Return the points to start from: the last coefficients, where they are wanted and fit."""
        raise NotImplementedError

    def _set_parameters(self, points: list[Vector]) -> None:
        """Set `coef_` and `intercept_` to the solutions of the problems."""
        raise NotImplementedError

    def _loss_parameters(self) -> dict[str, float]:
        """Return the numbers that some losses have."""
        return {}

    def _shaped(self, coefficients: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return dense coefficients in the shape that this kind of estimator has."""
        return coefficients

    # -- parameters ------------------------------------------------------------------------------

    def _objective(self) -> Objective:
        """Return what is minimised, or say which parameter is wrong."""
        names = self._losses
        if not isinstance(self.loss, str) or self.loss not in names:
            raise ValueError(
                f"loss must be the name of a loss, not {self.loss!r}; "
                f"{nearest(str(self.loss), names)}"
            )
        alpha = real_number("alpha", self.alpha, least=0.0)
        ratio = real_number("l1_ratio", self.l1_ratio, least=0.0)
        if ratio > 1.0:
            raise ValueError(f"l1_ratio must be between 0 and 1, but it is {self.l1_ratio!r}.")
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, not {self.fit_intercept!r}.")
        l2, l1 = strengths(self.penalty, alpha, ratio)
        parameters = self._loss_parameters()
        loss = make_loss(
            names[self.loss].name, **parameters
        )  # which refuses parameters out of range
        return Objective(
            loss.name,
            l2,
            l1,
            coefficient_set(self.feasible_set),
            bool(self.fit_intercept),
            parameters,
        )

    def _settings(self) -> Settings:
        """Return how to solve, or say which parameter is wrong."""
        tol = None if self.tol is None else real_number("tol", self.tol, above=0.0)
        outputs = {AUTO: "auto", True: "average", False: "last"}
        if self.average not in outputs:
            raise ValueError(f"average must be True, False or 'auto', not {self.average!r}.")
        if not isinstance(self.early_stopping, (bool, np.bool_)):
            raise TypeError(f"early_stopping must be True or False, not {self.early_stopping!r}.")
        return Settings(
            max_iter=whole_number("max_iter", self.max_iter, least=1),
            tol=tol,
            batch_size=self._batch_size(),
            diameter=self._diameter(),
            output=outputs[self.average],
            n_iter_no_change=whole_number("n_iter_no_change", self.n_iter_no_change, least=1),
            progress=bool(self.verbose),
        )

    def _batch_size(self) -> int | None:
        if isinstance(self.batch_size, str) and self.batch_size == AUTO:
            return None
        return whole_number("batch_size", self.batch_size, least=1)

    def _diameter(self) -> float | str:
        if isinstance(self.diameter, str):
            if self.diameter != AUTO:
                raise ValueError(
                    f"diameter must be a positive number or 'auto', not {self.diameter!r}."
                )
            return AUTO
        return real_number("diameter", self.diameter, above=0.0)

    def _validation_fraction(self) -> float:
        share = real_number("validation_fraction", self.validation_fraction, above=0.0)
        if share >= 1.0:
            raise ValueError(
                "validation_fraction must be between 0 and 1, but it is "
                f"{self.validation_fraction!r}."
            )
        return share

    # -- data ------------------------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, *, reset: bool, **options: Any) -> tuple[Any, Any]:
        return validate_data(self, X, y, accept_sparse="csr", dtype=KINDS, reset=reset, **options)  # type: ignore[no-any-return]

    def _checked_weights(self, sample_weight: Any, X: Any) -> Vector | None:
        if sample_weight is None:
            return None
        given = np.asarray(sample_weight)
        # scikit-learn refuses weights that are all zero, which in a stream is no error.
        none = given.dtype.kind in "fiub" and not given.any()
        weights: Vector = _check_sample_weight(
            np.ones_like(given) if none else sample_weight,
            X,
            dtype=np.float64,
            ensure_non_negative=True,
        )
        return np.zeros_like(weights) if none else weights

    # -- fitting ---------------------------------------------------------------------------------

    def _refuse_no_rows(self, data: Data) -> None:
        if not data.y.size:
            raise ValueError(
                "sample_weight (times class_weight) must have an entry > 0, but all weights are "
                "zero."
            )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(SEEDS))

    def _keep(self, fit: Fit, data: Data) -> None:
        """Keep what is known of a fit, and warn where it missed the tolerance."""
        self.objective_ = float(fit.objective)
        self.gap_ = float(fit.gap)
        self.certified_radius_ = float(fit.certified_radius)
        self.n_iter_ = int(fit.n_iter)
        self.converged_ = bool(fit.converged)
        self.n_samples_seen_, self.weight_seen_ = int(data.y.size), data.weight
        self._stream, self._missed = None, fit.missed
        if fit.missed:
            warnings.warn(self._shortfall(fit), ConvergenceWarning, stacklevel=4)

    def _shortfall(self, fit: Fit) -> str:
        known = (
            f"the objective {fit.objective:.6g} is certified to be within {fit.gap:.2g} of the "
            f"minimum, {fit.gap / max(fit.objective, 1e-300):.1e} of it{self._where(fit)}"
            if np.isfinite(fit.gap)
            else "nothing could be certified"
        )
        return (
            f"{type(self).__name__} missed tol={self.tol!r} after {fit.n_iter} iterations: "
            f"{known}. Increase max_iter (now {self.max_iter}) or tol, or regularise more "
            f"(alpha). The solver said: {fit.message}"
        )

    def _where(self, fit: Fit) -> str:
        if np.isinf(fit.certified_radius):
            return ""
        return f" (that within a distance of {fit.certified_radius:.2g} from the start)"

    def _held_out(self, data: Data, classes: Any, seed: int) -> tuple[Data, Data]:
        """Return the rows to learn from and the others, with the classes in proportion."""
        count = int(np.ceil(self._validation_fraction() * data.y.size))
        present = 1 if classes is None else np.unique(classes).size
        if classes is not None and np.bincount(classes)[np.unique(classes)].min() < 2:
            self._refuse_to_hold(count, data, "a class with a single row cannot be in both parts")
        if min(count, data.y.size - count) < present:
            self._refuse_to_hold(count, data, f"both parts need at least {present} rows")
        learnt, held = train_test_split(
            np.arange(data.y.size), test_size=count, stratify=classes, random_state=seed
        )
        return rows_of(data, learnt), rows_of(data, held)

    def _refuse_to_hold(self, count: int, data: Data, reason: str) -> None:
        raise ValueError(
            f"early_stopping=True holds back {count} of {data.y.size} rows "
            f"(validation_fraction={self.validation_fraction!r}), but {reason}. Increase "
            "validation_fraction, give more rows, or set early_stopping=False."
        )

    # -- streams ---------------------------------------------------------------------------------

    def _fit_to_stream(self, source: Any, sample_weight: Any, epochs: int | None) -> bool:
        """Fit to a stream, if the source is one, and tell whether it is."""
        from accelegrad.sklearn import stream

        if not stream.is_stream(source):
            return False
        if sample_weight is not None:
            raise ValueError(
                "sample_weight cannot be given beside a stream: its chunks may be tuples "
                "(X, y, sample_weight)."
            )
        if epochs is None:
            epochs = 1 if isinstance(source, Iterator) else stream.EPOCHS
        self._refuse_early_stopping()
        self._forget()
        stream.fit_stream(
            self, source, epochs=epochs, progress=bool(self.verbose), rng=self._seed()
        )
        return True

    def _refuse_early_stopping(self) -> None:
        if self.early_stopping:
            raise ValueError(
                "early_stopping must be False for a stream, of which no rows are held back."
            )

    def _forget(self) -> None:
        """Drop what was fitted; where a start from the coefficients is wanted, only their history.

        They are a start and nothing more then: the rows behind them no longer count.
        """
        self._stream = None
        history = ("n_samples_seen_", "weight_seen_")
        fitted = [name for name in vars(self) if name.endswith("_")]
        for name in fitted:
            if name in history or not self.warm_start:
                delattr(self, name)

    def _meaning(self, objective: Objective) -> tuple[Any, ...]:
        """Return all that a stream's state depends on: a change of it begins a new stream."""
        parameters = tuple(objective.loss_parameters.values())
        parts = (objective.loss, objective.l2, objective.l1, objective.fit_intercept, *parameters)
        return (*parts, self.feasible_set, self.diameter)

    def _learn(self, objective: Objective, data: Data) -> None:
        """Go on with the next rows of a stream, all of which have weight; there may be none."""
        if not data.y.size:
            return
        settings = self._settings()
        stream = getattr(self, "_stream", None)
        meaning = self._meaning(objective)
        if stream is None or stream.meaning != meaning:
            starts: list[Vector] = []
            if hasattr(self, "coef_"):
                starts = self._starts(self._problems(objective, data), warm=True)
            seen = getattr(self, "n_samples_seen_", 0), getattr(self, "weight_seen_", 0.0)
            stream = online.StreamState(meaning, tuple(starts), *seen)
        moved = online.learnt(
            stream,
            data,
            lambda rows: self._problems(objective, rows),
            diameter=settings.diameter,
            batch_size=settings.batch_size or online.BATCH,
            seed=self._seed(),
        )
        self._set_parameters(moved.points(last=self.average is False))
        self._stream = moved.stream
        self.n_samples_seen_, self.weight_seen_ = int(moved.rows), moved.weight
        self.n_iter_ = int(moved.states[0].iteration)
        self.objective_, self.gap_, self.certified_radius_ = np.nan, np.inf, 0.0
        self.converged_ = False

    # -- coefficients ----------------------------------------------------------------------------

    def sparsify(self) -> Self:
        """Convert `coef_` to a sparse array, which saves memory where most of it is zero."""
        check_is_fitted(self)
        self.coef_ = sp.csr_array(np.atleast_2d(_dense(self.coef_)))
        return self

    def densify(self) -> Self:
        """Convert `coef_` back to a dense array."""
        check_is_fitted(self)
        self.coef_ = self._shaped(_dense(self.coef_))
        return self

    def _scores(self, X: Any) -> npt.NDArray[Any]:
        """Return the linear predictions, a column a row of coefficients."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=KINDS, reset=False)
        coefficients: Any = self.coef_
        if not sp.issparse(coefficients):
            coefficients = np.atleast_2d(coefficients)
        products = safe_sparse_dot(X, coefficients.T, dense_output=True)
        return np.asarray(products + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class StreamFitting(LinearEstimator):
    """The `fit` of estimators with a given `alpha`, to rows in memory or to a stream."""

    alpha: float = parameter(1e-4, "float", "The penalty's weight, at least 0.")
    warm_start: bool = parameter(
        False, "bool", "Start `fit` from the coefficients of the last one."
    )

    __metadata_request__fit: ClassVar[dict[str, str]] = {"epochs": UNUSED}

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, epochs: int | None = None
    ) -> Self:
        """Fit the coefficients, to rows in memory or to a stream of chunks.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a stream
            The rows. float32 and float64 in C or Fortran order or CSR are used without copying.
            Without `y`, a source of chunks with their targets, larger than memory if need be:
            whatever `accelegrad.sklearn.stream.fit_stream` reads, such as a file's path, an
            iterator of tuples ``(X, y)``, or a function that makes one.
        y : array of shape (n_samples,)
            The targets: numbers, or labels of any kind. None with a stream, which brings them.
        sample_weight : array of shape (n_samples,), optional
            Nonnegative weights of the rows; only their ratios matter.
        epochs : int, optional
            Passes over a stream: 5 by default, and 1 over an iterator. After them the fit ends,
            without a warning if `tol` is missed; `converged_` tells.

        Returns
        -------
        self
        """
        objective = self._objective()
        if y is None and self._fit_to_stream(X, sample_weight, epochs):
            return self
        if epochs is not None:
            raise ValueError(f"epochs are for streams, but X is {type(X).__name__}.")
        data = without_weightless(self._checked_data(X, y, sample_weight, reset=True))
        self._refuse_no_rows(data)
        self._fit_data(data, objective)
        return self

    def _next_rows(self, X: Any, y: Any, sample_weight: Any) -> Data:
        """Return the next rows of a stream, checked, with targets as they were given."""
        self._refuse_early_stopping()
        return self._checked_data(X, y, sample_weight, reset=not hasattr(self, "coef_"))


def _dense(coefficients: Any) -> npt.NDArray[Any]:
    return np.asarray(coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients)


def dense_rows(coefficients: Any, intercepts: Any, n_rows: int) -> tuple[Any, Any]:
    """Return coefficients and intercepts as dense arrays with this many rows."""
    rows = _dense(coefficients).reshape(n_rows, -1)
    return rows, np.broadcast_to(np.ravel(intercepts), n_rows)
