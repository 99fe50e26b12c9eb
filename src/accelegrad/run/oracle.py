"""Oracles: checked, counted and remembered values and gradients.

An oracle maps a point to an `Evaluation`, whose gradient may be computed only when it is needed: a
line search then does not pay for the gradients of rejected trials.
"""

from __future__ import annotations

import contextlib
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from weakref import WeakMethod

import numpy as np
from scipy.linalg.blas import ddot

from accelegrad import kernels
from accelegrad.differentiate import LIBRARIES
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.files.saved import Saved
from accelegrad.geometry.penalties import Penalty
from accelegrad.linalg import UNIT, norm
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.rounding import PointRounding, few_bits_rounding
from accelegrad.models.sampling import BatchSampler
from accelegrad.proofs.model_dual import ModelDual

# An overflow ends the run with a status; a warning would add nothing.
QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}
# A sample for the probe has one row in this many, or a batch, and at most that many rows; chosen.
ROWS_PER_SAMPLED, LARGEST_SAMPLE = 20, 1023
LARGEST_SQUARE = 1e290  # can still be multiplied with squared weights of up to 1e16

#: The units of rounding of floats of less than 64 bits
FEW_BITS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}

Sample: TypeAlias = Callable[[Vector], "Evaluation"]


class Evaluation:
    """The value at a point, and the gradient there, computed on first use."""

    def __init__(
        self,
        point: Vector,
        value: float,
        gradient: Vector | None = None,
        late_gradient: Callable[[Evaluation], Vector] | None = None,  # a method of the oracle
        model: ModelPoint | None = None,
        penalty: float = 0.0,
        unit: float = UNIT,
        accuracy: float = 0.0,
    ) -> None:
        self.point = point
        self.value = value
        self.penalty = penalty  # the penalty's part of the value
        self.dual_value: float | None = None  # a lower bound of the minimum, if known
        self.late_bound: Any = None  # a `LateBound`: expensive to compute
        #: the rounding errors here, and for which model: kept by `accelegrad.proofs.cuts`
        self.rounding: tuple[LinearModel, PointRounding] | None = None
        self.squared_norm = math.nan if gradient is None else checked_square(gradient)
        self.model = model
        self._gradient = gradient
        # A weak reference, because the oracle keeps evaluations: a cycle would hold the rows of a
        # run in memory until Python's rare garbage collection.
        self._late_gradient = None if late_gradient is None else WeakMethod(late_gradient)
        #: the unit of rounding of the dtype of value and gradient
        self.unit = unit
        #: the user's bound on the error of the value, and so of the cut at the point
        self.accuracy = accuracy

    @property
    def lost(self) -> tuple[float, float]:
        """How far value and gradient can be off, by the given accuracy and by their dtype."""
        if self.unit == UNIT:
            return self.accuracy, 0.0
        size, steep = abs(self.value) + abs(self.penalty), norm(self.gradient)
        lost = few_bits_rounding(self.unit, size, steep, self.point)
        return self.accuracy + lost.value, lost.gradient

    @property
    def gradient(self) -> Vector:
        """A (sub)gradient at the point."""
        if self._gradient is None:
            late_gradient = None if self._late_gradient is None else self._late_gradient()
            assert late_gradient is not None, "the gradient is asked for after the oracle is gone"
            gradient = late_gradient(self)
            self.squared_norm = checked_square(gradient)
            self._gradient = gradient
        return self._gradient


def checked_square(gradient: Vector) -> float:
    """Return the gradient's squared norm, or raise if it is not finite."""
    square: float = ddot(gradient, gradient)  # unlike @ it gives no warning when it overflows
    if square < LARGEST_SQUARE:
        return square
    bad = np.flatnonzero(~np.isfinite(gradient))
    if bad.size:
        first = f"entry {bad[0]} is {gradient[bad[0]]}"
        raise NonFiniteError(f"the gradient is not finite: {first}")
    largest = np.abs(gradient).max()
    raise NonFiniteError(f"the gradient is too large: its largest entry is {largest:g}")


class Oracle(Saved, ABC):
    """Counts the calls and keeps the best point."""

    saved: tuple[str, ...] = ("nfev", "njev", "points", "rows", "best_content")

    #: whether there are values, and exact ones: the certificate and the best point need that
    exact_values: bool = True
    #: whether there are values at all
    has_values: bool = True
    #: the unit of rounding of the dtype of values and gradients
    unit: float = UNIT
    #: how far values can be off
    accuracy: float = 0.0
    #: gives a linear model's lower bounds, if a method has it
    dual: ModelDual | None = None
    #: a term that is added to the function
    penalty: Penalty | None = None
    #: calls so far, points at which anything was computed, and rows of the data that were read
    nfev = njev = points = rows = 0
    #: the number of calls that read all rows once
    steps_per_epoch = 1
    #: the evaluation with the lowest exact value
    best: Evaluation | None = None

    @abstractmethod
    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate at the point."""

    def exactly(self, point: Vector) -> Evaluation:
        """Evaluate what is minimised; a call may evaluate something close to it."""
        return self(point)

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Return a context for calls that were counted before the run was resumed."""
        counts = self.nfev, self.njev, self.points, self.rows
        try:
            yield
        finally:
            self.nfev, self.njev, self.points, self.rows = counts

    def _late_gradient(self, evaluation: Evaluation) -> Vector:
        raise NotImplementedError

    @property
    def best_content(self) -> dict[str, Any] | None:
        """What a checkpoint holds of the best point: not the model's data there."""
        best = self.best
        if best is None:
            return None
        names = ("point", "value", "penalty", "unit", "accuracy")
        return {"gradient": best._gradient, **{name: getattr(best, name) for name in names}}

    @best_content.setter
    def best_content(self, content: Mapping[str, Any] | None) -> None:
        if content is not None:
            self.best = Evaluation(**content, late_gradient=self._late_gradient)

    def _finish(self, evaluation: Evaluation) -> Evaluation:
        if self.penalty is not None:
            evaluation.penalty = self.penalty.value(evaluation.point)
            evaluation.value += evaluation.penalty
        value = evaluation.value
        if self.exact_values:
            if not math.isfinite(value):
                raise NonFiniteError(f"the value is {value}")
            if self.best is None or value < self.best.value:
                self.best = evaluation
        return evaluation


class FunctionOracle(Oracle):
    """The user's functions: `fun` with or without gradient, `jac`, or `jac` alone.

    `shape` is that of the points they take, if not flat; () stands for a number. `limited` says
    whether BLAS has one thread during the run.
    """

    saved = (*Oracle.saved, "unit")

    def __init__(
        self,
        fun: Any,
        jac: bool | str | Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        exact: bool = True,
        shape: tuple[int, ...] | None = None,
        accuracy: float = 0.0,
        limited: bool = False,
    ) -> None:
        if isinstance(jac, str) and jac in LIBRARIES and fun is not None:
            fun, jac = LIBRARIES[jac](fun), True
        if jac is not True and not callable(jac):
            raise TypeError(
                "jac must be True (fun returns value and gradient), a function, 'jax' or 'torch', "
                f"not {jac!r}; ag.check_gradient says whether a gradient is right."
            )
        if fun is not None and not callable(fun):
            raise TypeError(f"fun must be a function, a LinearModel or None, not {fun!r}.")
        if fun is None and jac is True:
            raise TypeError("fun is None: jac must be a function that returns the gradient.")
        if not isinstance(args, tuple):
            raise TypeError(f"args must be a tuple, not {args!r}.")
        self._fun, self._jac, self._args = fun, None if jac is True else jac, args
        if limited:
            self._fun, self._jac = (f and kernels.for_user(f) for f in (self._fun, self._jac))
        self.accuracy = accuracy
        self._shape = shape
        # A run ignores overflow in its formulas, but fun and jac keep the user's settings.
        self._errors: Any = np.geterr()
        self.has_values = fun is not None
        self.exact_values = exact and self.has_values

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate at the point."""
        self.points += 1
        if self._fun is None:
            return Evaluation(point, math.nan, self.gradient_at(point))
        value, gradient = self.pair_at(point)
        if gradient is None:
            evaluation = Evaluation(point, value, late_gradient=self._late_gradient)
        else:
            try:
                evaluation = Evaluation(point, value, gradient)
            except NonFiniteError:
                if self.best is None:  # better than no answer
                    steep = Evaluation(point, value)
                    steep._gradient, steep.squared_norm = gradient, math.inf
                    self._finish(steep)
                raise
        evaluation.unit, evaluation.accuracy = self.unit, self.accuracy
        return self._finish(evaluation)

    def pair_at(self, point: Vector) -> tuple[float, Vector | None]:
        """Return what `fun` says: the value, and the gradient unless `jac` is a function."""
        assert self._fun is not None
        self.nfev += 1
        with np.errstate(**self._errors):
            x = point.copy() if self._shape is None else self.shaped(point)
            returned = self._fun(x, *self._args)
        gradient = None
        if self._jac is None:
            self.njev += 1
            if not (isinstance(returned, (tuple, list)) and len(returned) == 2):
                raise TypeError(
                    f"fun must return the pair (value, gradient) when jac=True, but it returned "
                    f"{_kind(returned)}. Give the gradient as a function of its own with jac=..."
                )
            returned, gradient = returned
            gradient = self._checked_gradient(gradient, point, "fun")
        if type(returned) is not float:
            self.unit = max(self.unit, unit_of(returned))
            returned = _checked_value(returned)
        return returned, gradient

    def gradient_at(self, point: Vector) -> Vector:
        """Return what `jac` says."""
        assert self._jac is not None
        self.njev += 1
        with np.errstate(**self._errors):
            returned = self._jac(self.shaped(point), *self._args)
        return self._checked_gradient(returned, point, "jac")

    def shaped(self, point: Vector) -> Any:
        """Return a copy in the shape that the user's functions expect."""
        if self._shape is None:
            return point.copy()
        return point.copy().reshape(self._shape)[()]  # a number, if the shape is ()

    def _checked_gradient(self, returned: Any, point: Vector, source: str) -> Vector:
        """Return a flat copy of the gradient as float64, or say what is wrong with it."""
        shape = point.shape if self._shape is None else self._shape
        if type(returned) is np.ndarray and returned.shape == shape and returned.dtype.char == "d":
            return returned.flatten()  # a copy: functions may return the same buffer every time
        self.unit = max(self.unit, unit_of(returned))
        array = np.asarray(returned)
        if array.dtype != np.float64 and array.dtype.kind not in "fiub":
            raise TypeError(
                f"{source}'s gradient must be an array of real numbers, not of dtype {array.dtype}."
            )
        if array.shape != shape:
            raise ValueError(
                f"{source}'s gradient must have x0's shape {shape}, but its shape is {array.shape}."
            )
        return np.array(array, dtype=np.float64).ravel()

    def _late_gradient(self, evaluation: Evaluation) -> Vector:
        gradient = self.gradient_at(evaluation.point)
        evaluation.unit = self.unit
        return gradient


class ModelOracle(Oracle):
    """A linear model's full objective: the value is one product with X, the gradient another."""

    def __init__(self, model: LinearModel, penalty: Penalty | None = None) -> None:
        self.model, self.penalty = model, penalty

    def exactly(self, point: Vector) -> Evaluation:
        """Evaluate the model's objective at the point."""
        self._count_value()
        with np.errstate(**QUIET):
            at = self.model.at(point)
            value = at.value
        return self._finish(Evaluation(point, value, late_gradient=self._late_gradient, model=at))

    __call__ = exactly

    def _count_value(self) -> None:
        self.points += 1
        self.nfev += 1
        self.rows += self.model.n_samples

    def _late_gradient(self, evaluation: Evaluation) -> Vector:
        self.njev += 1
        with np.errstate(**QUIET):
            return self._known(evaluation).gradient

    def _known(self, evaluation: Evaluation) -> ModelPoint:
        """Return the model's data at an evaluation, which a checkpoint does not hold."""
        if evaluation.model is None:
            evaluation.model = self.model.at(evaluation.point)
        return evaluation.model


class MinibatchOracle(Oracle):
    """A linear model's gradient estimated from fresh rows at every call."""

    exact_values = False
    saved = (*Oracle.saved, "sampler")

    def __init__(self, model: LinearModel, sampler: BatchSampler) -> None:
        self.model, self.sampler = model, sampler
        self.steps_per_epoch = -(-sampler.n // sampler.batch_size)

    def __call__(self, point: Vector) -> Evaluation:
        """Estimate value and gradient at the point from the next rows."""
        return self.at(point, self.sampler.next_rows())

    def at(self, point: Vector, rows: Any) -> Evaluation:
        """Estimate value and gradient at the point from these rows."""
        self.count(-(-len(rows) // self.sampler.batch_size), len(rows))
        with np.errstate(**QUIET):
            value, gradient = self.model.batch_value_and_gradient(point, rows)
        return self._finish(Evaluation(point, value, gradient))

    def count(self, batches: int, rows: int) -> None:
        """Count estimates of value and gradient, and their rows."""
        self.points += batches
        self.nfev += batches
        self.njev += batches
        self.rows += rows

    def frozen(self) -> tuple[Sample, Sample]:
        """Return two independent samples of the function, each the same at every call.

        They are small: a probe that evaluates each ten times costs less than an epoch. Their size
        is odd, because two classes of equal size would hide the effect of the intercept.
        """
        n = self.model.n_samples
        size = min(
            max(n // ROWS_PER_SAMPLED, self.sampler.batch_size), LARGEST_SAMPLE, (n + 1) // 2
        )
        size -= size % 2 == 0
        rows = self.sampler.rng.permutation(n)
        return (
            functools.partial(self.at, rows=rows[:size]),
            functools.partial(self.at, rows=rows[-size:]),
        )


def unit_of(returned: Any) -> float:
    """Return the unit of rounding of a value or gradient, by its dtype."""
    kind = getattr(returned, "dtype", None)
    if kind is None or kind == np.float64:
        return UNIT
    # The name also identifies dtypes of other libraries, such as "torch.float32".
    return FEW_BITS.get(str(kind).rpartition(".")[2], UNIT)


def _checked_value(value: Any) -> float:
    """Return a function value as a float, or say what is wrong with it."""
    if type(value) is float or isinstance(value, np.floating):
        return float(value)
    if unit_of(value) > UNIT and math.prod(value.shape) == 1:
        return float(value)  # NumPy does not know every low-precision dtype
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or array.size != 1:
        raise TypeError(f"fun's value must be one real number, but it is {_kind(value)}.")
    return float(array.reshape(()))


def _kind(thing: Any) -> str:
    if isinstance(thing, np.ndarray):
        return f"an array of shape {thing.shape} and dtype {thing.dtype}"
    if isinstance(thing, (tuple, list)):
        return f"a {type(thing).__name__} of length {len(thing)}"
    return f"{thing!r} ({type(thing).__name__})"
