"""Base classes of the classifiers and regressors."""

from __future__ import annotations

import math
import time
import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from accelegrad import kernels
from accelegrad.errors import Vector, nearest, real_number, whole_number
from accelegrad.geometry.sets import Box, WholeSpace, as_feasible_set
from accelegrad.models.losses import LOSSES, LossEntry, make_loss, plain_loss_name
from accelegrad.models.row_file import RowFile
from accelegrad.models.streamed_model import Checked, read_rows
from accelegrad.proofs.certificate import ModelCertificate
from accelegrad.run.result import rounded
from accelegrad.sklearn import online
from accelegrad.sklearn.data import LabelFile, split, without_empty_columns
from accelegrad.sklearn.objective import (
    Data,
    Objective,
    Problem,
    refuse_missing,
    weights_of,
    without_weightless,
)
from accelegrad.sklearn.parameters import Parameters, parameter
from accelegrad.sklearn.solve import AUTO, Fit, Settings, solve
from accelegrad.sklearn.summary import Summary

#: X of another type than these is converted to the first.
ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


class LinearEstimator(Parameters, BaseEstimator):  # type: ignore[misc]
    """Linear model without its targets and predictions, which subclasses define."""

    #: losses by scikit-learn's names
    _losses: dict[str, LossEntry]
    _classifies = False
    #: parameters that are True or False
    _flags: tuple[str, ...] = ("fit_intercept", "early_stopping")
    #: state between calls of `partial_fit`
    _stream: online.StreamState | None
    #: number of processes, in estimators that have this parameter
    n_jobs: int | None = None
    coef_: Any  # dense, or sparse after `sparsify`
    intercept_: Any
    _certificate: tuple[ModelCertificate | None, Any] = None, None  # with the rows it is about

    # -- what classifiers do differently: here one problem with numbers as targets -----------------

    def _checked_data(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Data:
        refuse_missing(y)
        X, y = validate_data(self, X, y, reset=reset, y_numeric=True, **ACCEPTED)
        return Data(X, np.array(y, np.float64), weights_of(sample_weight, X))

    def _prepared(self, data: Data) -> Data:
        """Return the samples with positive weight, with targets as `_targets` takes them."""
        return without_weightless(data)

    def _targets(self, data: Data) -> tuple[list[Any], int]:
        """Return the targets of each problem, and the number of rows of its coefficients."""
        return [data.y], 1

    def _in_units(self, objective: Objective, data: Data | None = None) -> Objective:  # noqa: ARG002
        """Return the objective in the scale of `data`'s targets, or in the known scale."""
        return objective

    def _take_classes(self, y: Any, weights: Any = None) -> bool:  # noqa: ARG002
        """Store the classes, of classifiers; return whether they are those of the last fit."""
        return True

    def _problems(self, objective: Objective, data: Data) -> list[Problem]:
        """Return the problem to minimise, or one per class."""
        (first, *others), n_classes = self._targets(data)
        problem = objective.on(data.X, first, data.weights, n_classes)
        return [problem, *map(problem.with_targets, others)]

    # -- parameters ------------------------------------------------------------------------------

    @property
    def _loss_name(self) -> str:
        """The loss by scikit-learn's name; the names in `LOSSES` are accepted too."""
        known = LOSSES.get(self.loss) if isinstance(self.loss, str) else None
        return str(self.loss) if known is None else known.sklearn_name

    def _wrong_loss(self) -> str:
        other = LOSSES.get(plain_loss_name(self.loss)) if isinstance(self.loss, str) else None
        if other is None:
            hint = f"not {self.loss!r}: {nearest(str(self.loss), self._losses)}"
        else:
            kind = "AcceleGradClassifier" if other.classification else "AcceleGradRegressor"
            hint = f"but {self.loss!r} is one of {kind}'s. {nearest('', self._losses)}"
        return f"loss must be the name of a loss of {type(self).__name__}, {hint}"

    def _objective(self, **parameters: float) -> Objective:
        """Return what is minimised; `parameters` are those of the losses."""
        if self._loss_name not in self._losses:
            raise ValueError(self._wrong_loss())
        for name in self._flags:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        alpha = real_number("alpha", self.alpha, least=0.0)
        ratio = real_number("l1_ratio", self.l1_ratio, least=0.0)
        if ratio > 1.0:
            raise ValueError(f"l1_ratio must be between 0 and 1, but it is {self.l1_ratio!r}.")
        shares = {None: (0.0, 0.0), "l2": (1.0, 0.0), "l1": (0.0, 1.0)}
        shares["elasticnet"] = (1.0 - ratio, ratio)
        if not isinstance(self.penalty, (str, NoneType)) or self.penalty not in shares:
            hint = nearest(str(self.penalty), list(filter(None, shares)))
            raise ValueError(f"penalty must be None or a name, not {self.penalty!r}: {hint}")
        l2, l1 = np.multiply(alpha, shares[self.penalty]).tolist()
        loss = make_loss(self._loss_name, **parameters)  # refuses parameters out of range
        held_in = None if self.feasible_set is None else as_feasible_set(self.feasible_set)
        if l1 > 0.0 and not isinstance(held_in, (NoneType, Box, WholeSpace)):
            raise ValueError(
                f"penalty={self.penalty!r} and feasible_set={self.feasible_set!r} cannot be used "
                "together: beside an l1 term, feasible_set must be 'nonnegative' or an "
                "accelegrad.Box. With this set, penalty may be 'l2' or None."
            )
        return Objective(loss.name, l2, l1, held_in, bool(self.fit_intercept), parameters)

    def _settings(self) -> Settings:
        tol = None if self.tol is None else real_number("tol", self.tol, above=0.0)
        outputs = {AUTO: "auto", True: "average", False: "last"}
        if self.average not in outputs:
            raise ValueError(f"average must be True, False or 'auto', not {self.average!r}.")
        batch_size, diameter = self.batch_size, self.diameter
        if isinstance(diameter, str) and diameter != AUTO:
            raise ValueError(f"diameter must be a positive number or 'auto', not {diameter!r}.")
        automatic = isinstance(batch_size, str) and batch_size == AUTO
        seed = 0  # the same call gives the same model
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return Settings(
            max_iter=whole_number("max_iter", self.max_iter, least=1),
            tol=tol,
            batch_size=None if automatic else whole_number("batch_size", batch_size, least=1),
            diameter=AUTO if diameter == AUTO else real_number("diameter", diameter, above=0.0),
            output=outputs[self.average],
            n_iter_no_change=whole_number("n_iter_no_change", self.n_iter_no_change, least=1),
            progress=bool(self.verbose),
            seed=seed,
            n_jobs=self.n_jobs,
        )

    # -- fitting ---------------------------------------------------------------------------------

    def _shortfall(self, fit: Fit) -> str:
        known = "nothing could be certified"
        if np.isfinite(fit.gap):
            known = (
                f"the objective {fit.objective:.6g} is certified to be within "
                f"{rounded(fit.gap, 2, up=True)} of the minimum, "
                f"{fit.gap / max(fit.objective, 1e-300):.1e} of it"
            )
        if np.isfinite(fit.certified_radius):
            radius = rounded(fit.certified_radius, 3, up=False)
            known += f" (within a distance of {radius} from the start)"
        if fit.interrupted:
            return f"{type(self).__name__} was interrupted after {fit.n_iter} iterations: {known}."
        return (
            f"{type(self).__name__} missed tol={self.tol!r} after {fit.n_iter} iterations: "
            f"{known}. Increase max_iter (now {self.max_iter}) or tol, or regularise more "
            f"(alpha). The solver said: {fit.message}"
        )

    def _taken(self, data: Data) -> tuple[Data, bool]:
        """Return the prepared samples, and whether targets match those of the last fit."""
        same = False
        if data.seen()[0]:
            same = self._take_classes(data.y, data.weights)
            data = self._prepared(data)
        if not data.seen()[0]:
            raise ValueError(
                "sample_weight (times class_weight) must have an entry > 0, but all weights are "
                "zero."
            )
        return data, same

    def _fit_data(self, data: Data, objective: Objective, *, warm: bool) -> None:
        """Fit to the samples that `_taken` returned."""
        settings = self._settings()
        with kernels.single_for(math.prod(data.X.shape)):
            posed = self._posed(data, objective, settings.seed)
            self._fit_problems(*posed, settings, warm=warm)

    def _posed(
        self, data: Data, objective: Objective, seed: int
    ) -> tuple[Data, list[Problem], list[Problem] | None]:
        """Return samples and problems of a fit, and problems of held-out samples to judge it by."""
        held = None
        if sp.issparse(data.X) and objective.feasible_set is None:
            data = without_empty_columns(data)
        if self.early_stopping:
            share = real_number("validation_fraction", self.validation_fraction, above=0.0)
            if share >= 1.0:
                raise ValueError(f"validation_fraction must be between 0 and 1, not {share!r}.")
            data, held = split(data, share, data.y if self._classifies else None, seed)
        objective = self._in_units(objective, data)
        judges = None if held is None else self._problems(objective, held)
        return data, self._problems(objective, data), judges

    def _fit_problems(
        self,
        data: Data,
        problems: list[Problem],
        judges: list[Problem] | None,
        settings: Settings,
        *,
        warm: bool,
    ) -> None:
        """Fit coefficients, set the fitted attributes, and warn if the tolerance was missed."""
        begun = time.perf_counter()
        starts = self._current_points(problems, data.columns) if warm else None
        fit = solve(problems, settings, starts, judges)
        self._set_parameters(fit.parameters, data.columns)
        self.seconds_ = time.perf_counter() - begun
        self.objective_, self.gap_ = float(fit.objective), float(fit.gap)
        self.certified_radius_ = float(fit.certified_radius)
        self.n_iter_, self.method_ = int(fit.n_iter), fit.method
        self.converged_ = bool(fit.converged)
        self.n_samples_seen_, self.weight_seen_ = data.seen()
        self._stream = None
        if fit.certificate is not None:
            self._certificate = fit.certificate, data.rows
        self._missed = fit.target >= 0.0 and not (fit.converged or fit.stopped)
        if self._missed:
            warnings.warn(self._shortfall(fit), ConvergenceWarning, stacklevel=4)

    def _current_points(self, problems: list[Problem], columns: Any = None) -> list[Vector] | None:
        """Return the current coefficients as points of these problems; None if they do not fit."""
        n_rows = len(problems) * problems[0].n_classes
        rows = np.atleast_2d(_dense(getattr(self, "coef_", ())))
        if rows.shape != (n_rows, self.n_features_in_):
            return None
        rows = rows if columns is None else rows[:, columns]
        intercepts = np.reshape(self.intercept_, (n_rows, 1))
        blocks = [rows, intercepts] if self.fit_intercept else [rows]
        joint = len(problems) == 1  # a point then holds all rows before all intercepts
        points = [np.concatenate(blocks, axis=None)] if joint else np.hstack(blocks)
        return [problem.nearest(x) for problem, x in zip(problems, points, strict=True)]

    def _set_parameters(self, found: Any, columns: Any = None) -> None:
        """Set the coefficients to points of the problems, or to rows and intercepts in a tuple."""
        if isinstance(found, tuple):
            rows, intercepts = found
        else:
            width = self.n_features_in_ if columns is None else columns.size
            points = np.array(found, ndmin=2)
            n_rows = points.size // (width + bool(self.fit_intercept))
            some, ends = np.split(points, [n_rows // len(points) * width], axis=1)
            rows = np.ascontiguousarray(some.reshape(n_rows, width))
            intercepts = ends.flatten() if self.fit_intercept else np.zeros(n_rows)
            if columns is not None:
                some, rows = rows, np.zeros((n_rows, self.n_features_in_))
                rows[:, columns] = some
        self.intercept_ = intercepts if self._classifies else float(intercepts[0])
        self.coef_ = rows if self._classifies else rows.ravel()
        self._certificate = None, None

    # -- streams ---------------------------------------------------------------------------------

    def _read_stream(self, source: Any, sample_weight: Any) -> Data | None:
        """Return the samples of a stream, left on disk; None if the source is no stream."""
        from accelegrad.files import formats
        from accelegrad.files.tables import Targets, Wanted

        if not formats.is_stream(source):
            return None
        if sample_weight is not None:
            raise ValueError(
                "sample_weight cannot be given beside a stream: its chunks may be tuples "
                "(X, y, sample_weight)."
            )
        self._refuse_early_stopping()
        targets = Targets.AS_WRITTEN if self._classifies else Targets.NUMBERS
        kept = LabelFile() if self._classifies else RowFile()

        def check(chunk: tuple[Any, ...]) -> Checked:
            weights = chunk[2] if len(chunk) == 3 else None
            with warnings.catch_warnings():
                # A chunk may have few rows of each class; scikit-learn asks whether y is numbers.
                warnings.filterwarnings("ignore", "The number of unique classes")
                data = self._checked_data(chunk[0], chunk[1], weights, reset=kept.size == 0)
            return Checked(data.X, data.y, data.weights)

        source = formats.open_source(source, Wanted(targets=targets))
        return Data(*read_rows(source, check, kept))

    def _refuse_early_stopping(self) -> None:
        if self.early_stopping:
            raise ValueError(
                "early_stopping must be False for a stream, of which no rows are held back."
            )

    def _meaning(self, objective: Objective) -> tuple[Any, ...]:
        """Return what a stream's state depends on: if it changes, a new stream begins."""
        parameters = tuple(objective.loss_parameters.values())
        parts = (objective.loss, objective.l2, objective.l1, objective.fit_intercept, *parameters)
        return (*parts, self.feasible_set, self.diameter)

    def __copy__(self) -> Self:
        """Return a copy with its own stream state."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if getattr(self, "_stream", None) is not None:
            other._stream = deepcopy(self._stream)
        return other

    def _learn(self, objective: Objective, data: Data) -> None:
        """Learn from the next samples of a stream, all with positive weight; there may be none."""
        if not data.y.size:
            return
        settings = self._settings()
        stream = getattr(self, "_stream", None)
        meaning = self._meaning(objective)
        if stream is None or stream.meaning != meaning:
            starts: list[Vector] | None = None
            if hasattr(self, "coef_"):
                starts = self._current_points(self._problems(objective, data))
            seen = getattr(self, "n_samples_seen_", 0), getattr(self, "weight_seen_", 0.0)
            stream = online.StreamState(meaning, tuple(starts or ()), *seen)
        # The scale is known from a fit, or the first chunk.
        is_scaled = stream.rows > 0 or bool(stream.states)

        def in_units(rows: Data) -> Objective:
            return self._in_units(objective, None if is_scaled else rows)

        with kernels.single_for(math.prod(data.X.shape)):
            learnt = online.learn(
                stream,
                data,
                lambda rows: self._problems(in_units(rows), rows),
                lambda rows: (self._targets(rows)[0], in_units(rows).pointwise.shape),
                diameter=settings.diameter,
                batch_size=settings.batch_size or online.BATCH,
                seed=settings.seed,
                last=self.average is False,
            )
        self._set_parameters(learnt.found)
        self._stream = learnt.stream
        self.n_samples_seen_, self.weight_seen_ = int(learnt.rows), learnt.weight
        self.n_iter_ = learnt.iteration
        self.objective_, self.gap_, self.certified_radius_ = np.nan, np.inf, 0.0
        self.converged_ = False

    # -- coefficients ----------------------------------------------------------------------------

    def sparsify(self) -> Self:
        """Convert `coef_` to a sparse array, to save memory if most coefficients are zero."""
        check_is_fitted(self)
        self.coef_ = sp.csr_array(np.atleast_2d(_dense(self.coef_)))
        return self

    def densify(self) -> Self:
        """Convert `coef_` back to a dense array."""
        check_is_fitted(self)
        rows = _dense(self.coef_)
        self.coef_ = rows if np.ndim(self.intercept_) else rows.ravel()  # of one regression
        return self

    def _scores(self, X: Any) -> npt.NDArray[Any]:
        """Return the scores of samples, one column per row of `coef_`."""
        check_is_fitted(self)
        X, coefficients = validate_data(self, X, reset=False, **ACCEPTED), self.coef_
        if not sp.issparse(coefficients):
            coefficients = np.atleast_2d(coefficients)
        products = safe_sparse_dot(X, coefficients.T, dense_output=True)
        return np.asarray(products + self.intercept_)

    @property
    def certificate_(self) -> ModelCertificate | None:
        """What `tools/verify.py` needs to verify `gap_`; None if that is not in memory."""
        check_is_fitted(self)
        known, rows = self._certificate
        if known is None:
            return None
        points = np.column_stack([np.atleast_2d(_dense(self.coef_)), np.ravel(self.intercept_)])
        points = points if known.fit_intercept else points[:, :-1]
        return replace(known, points=points, rows=rows, classes=getattr(self, "classes_", None))

    def __getstate__(self) -> Any:
        """Return the state without the certificate, which has a number per sample."""
        return {**super().__getstate__(), "_certificate": (None, None)}

    def summary(self, top: int = 20) -> Summary:
        """Return a printable summary of the fit with the `top` largest coefficients."""
        check_is_fitted(self)
        return Summary(self, whole_number("top", top, least=0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class StreamFitting(LinearEstimator):
    """The `fit` of estimators with a given `alpha`, to samples in memory or a stream."""

    alpha: float = parameter(1e-4, "float", "The penalty's weight, at least 0.")
    warm_start: bool = parameter(
        False, "bool", "Start `fit` from the coefficients of the last one."
    )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the coefficients to samples in memory or to a stream of chunks.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features), or a stream
            The samples. float32 and float64 in C or Fortran order or CSR are used without copying.
            Without `y`, a source of chunks with their targets, which may be larger than memory: the
            path of a file, a tuple ``(X, y)`` or ``(X, y, sample_weight)`` of memory maps or of
            paths of .npy files, a list of such tuples, or a function that makes an iterator of
            them. It is read several times, chunk by chunk.
        y : array of shape (n_samples,)
            The targets: numbers, or labels of any kind. None for a stream, which contains them.
        sample_weight : array of shape (n_samples,), optional
            Nonnegative weights of the samples; only their ratios matter.
        """
        objective = self._objective()
        data = self._read_stream(X, sample_weight) if y is None else None
        if data is None:
            data = self._checked_data(X, y, sample_weight, reset=True)
        data, same = self._taken(data)
        self._fit_data(data, objective, warm=same and bool(self.warm_start))
        return self


def _dense(coefficients: Any) -> npt.NDArray[Any]:
    return np.asarray(coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients)
