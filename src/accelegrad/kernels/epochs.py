"""What the compiled stochastic epochs of linear models share.

An epoch object runs many steps of a rule of `accelegrad.rules` inside one compiled call. It is the
rule's twin: the same points up to rounding. `SparseEpochs` takes rows in CSR form and spends
O(nonzeros of the batch) a step, `DenseEpochs` takes dense rows and spends O(entries of the batch).
Which rows a step sees is the caller's choice.

The objective is that of a linear model, sum_i p_i l(a_i.w + intercept, y_i) + l2 / 2 ||w||^2 with
the intercept (the last coordinate, not penalised) or without, and a batch B gives the gradient
(n / |B|) sum_{i in B} p_i l'(m_i, y_i) a_i + l2 w.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector, finite_vector, nearest, real_array, real_number, whole_number
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import compiled
from accelegrad.kernels.loss_shape import Shape
from accelegrad.kernels.losses import loss_slope

KINDS = ("accelegrad", "adagrad", "distance_free")
STOP, GO = 0, 1
NO_ROWS = read_only(np.empty(0, np.int64))
STEP, REACH, TRUST = 2.0, 3.0, 2.0  # constants of rules/distance_free.py
SMALLEST_SHARE = 1e-6  # of 1 + ||x0||: the radius that the distance-free rule starts with


def record(floats: list[str], integers: list[str]) -> np.dtype[np.void]:
    """Return the type of a record: compiled code reads and writes its fields by name."""
    return np.dtype([(name, "f8") for name in floats] + [(name, "i8") for name in integers])


#: What does not change during a run; x0b is the intercept of x0, and the last are the loss's
#: `Shape`.
FIXED = record(
    [
        *("l2", "scale", "squared_bound", "ball", "cap"),
        *("x0x0", "x0b", "intercept", "low", "high", "softness", "epsilon"),
    ],
    ["kind", "tracked"],
)


@compiled
def coefficient(f: Any, m: float, target: float, share: float) -> Any:
    """Return a row's factor in the gradient of a batch, NaN where the margin is not finite."""
    if not math.isfinite(m):
        return math.nan
    return share * loss_slope(f, m, target)


@compiled
def importance(t: int) -> float:
    """Return alpha_t = max(1, (t + 1) / 4)."""
    return max(1.0, 0.25 * (t + 1))


@compiled
def over_root(scale: float, total: float) -> float:
    """Return scale / sqrt(total), and zero where the total is zero."""
    return scale / math.sqrt(total) if total > 0.0 else 0.0


class Settings(NamedTuple):
    """What the user decides, checked; numbers that do not apply are infinite or zero."""

    kind: str
    loss: Shape
    l2: float
    fit_intercept: bool
    diameter: float
    gradient_bound: float
    ball_radius: float
    initial_radius: float
    largest_radius: float


class Targets(NamedTuple):
    """One number a row, each an array."""

    y: Vector
    shares: Vector


class Epochs(ABC):
    """The compiled twin of a rule on a linear model; see `SparseEpochs` and `DenseEpochs`."""

    def __init__(
        self,
        kind: str,
        shape: tuple[int, int],
        y: npt.ArrayLike,
        shares: npt.ArrayLike | None,
        *,
        loss: Shape,
        l2: float = 0.0,
        fit_intercept: bool = False,
        x0: npt.ArrayLike | None = None,
        diameter: float | None = None,
        gradient_bound: float = 0.0,
        ball_radius: float | None = None,
        initial_radius: float | None = None,
        largest_radius: float | None = None,
    ) -> None:
        if kind == "distance_free":
            _refuse(kind, diameter=diameter, ball_radius=ball_radius)
        else:
            _refuse(kind, initial_radius=initial_radius, largest_radius=largest_radius)
        if kind != "accelegrad":
            _refuse(kind, gradient_bound=gradient_bound or None)
        self.n_samples, self.n_features = shape
        self.targets = self._checked_targets(y, shares)
        size = self.n_features + bool(fit_intercept)
        self.x0 = np.zeros(size) if x0 is None else finite_vector("x0", x0)
        if self.x0.size != size:
            raise ValueError(f"x0 must have {size} entries, but it has {self.x0.size}.")
        self.settings = Settings(
            kind=_one_of("kind", kind, KINDS),
            loss=loss,
            l2=real_number("l2", l2, least=0.0),
            fit_intercept=bool(fit_intercept),
            diameter=_diameter(kind, diameter),
            gradient_bound=real_number("gradient_bound", gradient_bound, least=0.0),
            ball_radius=_radius("ball_radius", ball_radius, math.inf),
            initial_radius=_radius(
                "initial_radius",
                initial_radius,
                SMALLEST_SHARE * (1.0 + math.sqrt(float(self.x0 @ self.x0))),
            ),
            largest_radius=_radius("largest_radius", largest_radius, math.inf),
        )
        self._coupled = kind != "adagrad"
        self._features = np.ascontiguousarray(self.x0[: self.n_features])
        self._fixed = self._fixed_numbers()

    def _fixed_numbers(self) -> npt.NDArray[np.void]:
        own = self.settings
        fixed = np.zeros(1, FIXED)
        fixed["l2"], fixed["intercept"] = own.l2, own.fit_intercept
        for name, number in own.loss._asdict().items():
            fixed[name] = number
        fixed["scale"] = STEP * own.diameter if self._coupled else own.diameter
        fixed["squared_bound"] = own.gradient_bound**2
        fixed["ball"], fixed["cap"] = own.ball_radius, own.largest_radius
        fixed["x0x0"] = self._features @ self._features
        fixed["x0b"] = self.x0[-1] if own.fit_intercept else 0.0
        fixed["tracked"] = own.kind == "distance_free"
        return fixed

    @property
    @abstractmethod
    def numbers(self) -> Any:
        """The record of all numbers that change, with a field a number."""

    @abstractmethod
    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        """Do the steps and return how many were done."""

    @abstractmethod
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the arrays that change."""

    @abstractmethod
    def _restore_arrays(self, state: Mapping[str, Any]) -> None:
        """Take over arrays that were checked for their presence."""

    @abstractmethod
    def query(self) -> Vector:
        """Return the point where the next gradient is wanted, a new array."""

    @abstractmethod
    def output(self) -> Vector:
        """Return the average that the rule's theorem speaks of, a new array."""

    @abstractmethod
    def last(self) -> Vector:
        """Return the last iterate, a new array."""

    @abstractmethod
    def _sequences(self) -> dict[str, Vector]:
        """Return new arrays: the three points, the weighted sum, the distance-free rule's S."""

    def snapshot(self) -> dict[str, Any]:
        """Return the fields of the rule's state, as numbers and new dense arrays."""
        s, arrays = self.numbers, self._sequences()
        common = {
            "iteration": self.iteration,
            "step_size": self.step_size,
            "weighted_sum": arrays["weighted_sum"],
            "weight_sum": float(s["weight_sum"]),
        }
        if not self._coupled:
            return {"point": arrays["query_point"], "squares": float(s["squares"]), **common}
        points = {name: arrays[name] for name in ("query_point", "mirror_point", "gradient_point")}
        fields = {**points, "weighted_squares": float(s["squares"]), **common}
        if self.settings.kind == "distance_free":
            fields |= {
                "start": self.x0.copy(),
                "radius": self.radius,
                "evidence": float(s["evidence"]),
                "gradient_sum": arrays["gradient_sum"],
            }
        return fields

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        return int(self.numbers["iteration"])

    @property
    def step_size(self) -> float:
        """The last eta_t, 0 before the first step."""
        return float(self.numbers["eta"])

    @property
    def radius(self) -> float | None:
        """The distance-free rule's r_t; None for the other rules."""
        return float(self.numbers["radius"]) if self.settings.kind == "distance_free" else None

    def advance(self, rows: npt.ArrayLike, batch_size: int = 1) -> int:
        """Do a step for each batch of `batch_size` rows, the last batch may be shorter.

        Parameters
        ----------
        rows : array of int
            The rows, in the order in which they are used; a row may come more than once.
        batch_size : int
            Rows in a step.

        Returns
        -------
        int
            The number of steps done. It is less than the number of batches where a margin or a
            gradient was not finite: the state is then the one before that step.
        """
        size = whole_number("batch_size", batch_size, least=1)
        return self._run(self._checked_rows(rows), size)

    def state(self) -> dict[str, Any]:
        """Return all that decides the coming steps: numbers and arrays that no longer change."""
        numbers = {name: self.numbers[name].item() for name in self.numbers.dtype.names}
        return {"kind": self.settings.kind, **numbers, **self._arrays()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit where `state` was taken, on the same data and settings."""
        missing = sorted(self.state().keys() - state.keys())
        if missing:
            raise ValueError(f"state must hold {', '.join(missing)}, but it does not.")
        if state["kind"] != self.settings.kind:
            raise ValueError(
                f"state was taken with kind={state['kind']!r}, but this is {self.settings.kind!r}."
            )
        self._restore_arrays(state)
        for name in self.numbers.dtype.names:
            self.numbers[name] = state[name]

    def _checked_rows(self, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
        index = np.asarray(rows)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise ValueError(
                f"rows must be a vector of row numbers, but its shape is {index.shape} and its "
                f"dtype {index.dtype}."
            )
        if index.size and (index.min() < 0 or index.max() >= self.n_samples):
            raise ValueError(
                f"rows must be row numbers from 0 to {self.n_samples - 1}, but they are from "
                f"{index.min()} to {index.max()}."
            )
        return read_only(np.ascontiguousarray(index, dtype=np.int64))

    def _checked_targets(self, y: npt.ArrayLike, shares: npt.ArrayLike | None) -> Targets:
        n = self.n_samples
        given = {"y": y, "shares": np.full(n, 1.0 / n) if shares is None else shares}
        vectors = {name: finite_vector(name, value) for name, value in given.items()}
        for name, vector in vectors.items():
            if vector.size != n:
                raise ValueError(f"{name} must have {n} entries, but it has {vector.size}.")
        return Targets(**vectors)


def same_shape(name: str, given: Any, own: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a given array that replaces one of the same shape, or say why it cannot."""
    array = real_array(name, given)
    if array.shape != own.shape:
        raise ValueError(f"{name} must have the shape {own.shape}, but it has {array.shape}.")
    return array


def _one_of(name: str, given: str, allowed: Any) -> str:
    if not isinstance(given, str) or given not in allowed:
        raise ValueError(f"{name} is {given!r}: {nearest(str(given), allowed)}")
    return given


def _radius(name: str, given: float | None, default: float) -> float:
    return default if given is None else real_number(name, given, above=0.0)


def _diameter(kind: str, given: float | None) -> float:
    return 0.0 if kind == "distance_free" else real_number("diameter", given, above=0.0)


def _refuse(kind: str, **parameters: float | None) -> None:
    """Refuse parameters that a rule does not have."""
    for name, given in parameters.items():
        if given is not None:
            raise ValueError(f"{name} must be None for the kind {kind!r}, but it is {given!r}.")
