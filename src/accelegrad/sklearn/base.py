"""What classifiers and regressors share: checked parameters, fitting, streams, coefficients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from accelegrad.errors import Vector, nearest, real_number, whole_number
from accelegrad.problems.losses import make_loss
from accelegrad.sklearn import online
from accelegrad.sklearn.objective import Objective, Problem, coefficient_set, strengths
from accelegrad.sklearn.solve import Fit, Settings

AUTO = "auto"
KINDS = [np.float64, np.float32]
SEEDS = 2**31 - 1


class Data(NamedTuple):
    """Checked rows with targets and weights; rows without weight are left out."""

    X: Any
    y: npt.NDArray[Any]
    weights: Vector | None


class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class: everything but what the targets are and how predictions are made."""

    #: the names of losses here, and as `LinearModel` knows them
    _losses: dict[str, str]
    #: what goes on from one `partial_fit` to the next
    _stream: online.StreamState | None
    coef_: Any  # a dense array, or a sparse one after `sparsify`
    intercept_: Any

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
        make_loss(names[self.loss], **parameters)  # which refuses parameters out of range
        return Objective(
            names[self.loss],
            l2,
            l1,
            coefficient_set(self.feasible_set),
            bool(self.fit_intercept),
            parameters,
        )

    def _loss_parameters(self) -> dict[str, float]:
        return {}

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
        weights: Vector = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        return weights

    # -- fitting ---------------------------------------------------------------------------------

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(SEEDS))

    def _keep(self, fit: Fit) -> None:
        """Keep what is known of a fit, and warn where it missed the tolerance."""
        self.objective_ = float(fit.objective)
        self.gap_ = float(fit.gap)
        self.certified_radius_ = float(fit.certified_radius)
        self.n_iter_ = int(fit.n_iter)
        self.converged_ = fit.converged
        self._stream = None
        if not fit.converged:
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
        if self.early_stopping:
            raise ValueError(
                "early_stopping must be False for a stream, of which no rows are held back."
            )
        if epochs is None:
            epochs = 1 if isinstance(source, Iterator) else stream.EPOCHS
        self._forget()
        stream.fit_stream(
            self, source, epochs=epochs, progress=bool(self.verbose), rng=self._seed()
        )
        return True

    def _forget(self) -> None:
        """Drop what was fitted; where a start from the coefficients is wanted, the stream alone."""
        self._stream = None
        if not self.warm_start:
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)

    def _advance(self, problems: list[Problem], starts: list[Vector], weights: Any) -> list[Vector]:
        """Do a step a batch for each problem and return the points to predict with."""
        settings = self._settings()
        rows = problems[0].model.n_samples
        weight = float(rows) if weights is None else float(weights.sum())
        before = getattr(self, "_stream", None)
        if before is None:
            change = online.first_change(problems[0], settings.diameter)
            before = online.StreamState(tuple(starts), (), change, 0.0, 0.0)
        rules = [
            online.rule_for(problem, settings.diameter, start, before.change)
            for problem, start in zip(problems, before.starts, strict=True)
        ]
        if not before.states:
            states = (rule.init(start) for rule, start in zip(rules, starts, strict=True))
            before = before._replace(states=tuple(states))
        rng = np.random.default_rng([self._seed(), int(before.rows)])
        after = before._replace(rows=before.rows + rows, weight=before.weight + weight)
        share = weight / rows / after.mean_weight()
        batch = settings.batch_size or online.BATCH
        moved = tuple(
            online.advanced(rule, state, online.ChunkOracle(problem, batch, rng, share))
            for rule, state, problem in zip(rules, before.states, problems, strict=True)
        )
        self._stream = after._replace(states=moved)
        self.n_iter_ = int(moved[0].iteration)
        self.objective_, self.gap_, self.certified_radius_ = np.nan, np.inf, 0.0
        self.converged_ = False
        return [
            problem.nearest(rule.last(state) if self.average is False else rule.output(state))
            for rule, state, problem in zip(rules, moved, problems, strict=True)
        ]

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

    def _shaped(self, coefficients: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return dense coefficients in the shape that this kind of estimator has."""
        return coefficients

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


def _dense(coefficients: Any) -> npt.NDArray[Any]:
    return np.asarray(coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients)


def dense_rows(coefficients: Any, intercepts: Any, n_rows: int) -> tuple[Any, Any]:
    """Return coefficients and intercepts as dense arrays with so many rows."""
    rows = _dense(coefficients).reshape(n_rows, -1)
    return rows, np.broadcast_to(np.ravel(intercepts), n_rows)


def without_weightless(data: Data) -> Data:
    """Leave out rows of weight zero: they count for nothing, not even as a class of their own."""
    weights = data.weights
    if weights is None or weights.min() > 0.0:
        return data
    kept = np.flatnonzero(weights)
    if not kept.size:
        raise ValueError("sample_weight must have an entry > 0, but all weights are zero.")
    return Data(data.X[kept], data.y[kept], weights[kept])
