"""What the compiled stochastic epochs of linear models share.

An epoch object runs many steps of `AcceleGrad`, with a given diameter or an automatic one, or of
`AdaGrad` inside one compiled call. It is the rule's twin: the same points up to rounding.
`SparseEpochs` takes rows in CSR form and spends O(nonzeros of the batch) per step, `DenseEpochs`
takes dense rows and spends O(entries of the batch). Which rows a step sees is the caller's choice.

The objective is that of a linear model, sum_i p_i l(a_i.w + intercept, y_i) + l2 / 2 ||w||^2 with
the intercept (the last coordinate, not penalised) or without, and a batch B gives the gradient
(n / |B|) sum_{i in B} p_i l'(m_i, y_i) a_i + l2 w.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import compiled
from accelegrad.kernels.gradient import Data
from accelegrad.kernels.loss_shape import LOGISTIC
from accelegrad.kernels.losses import logistic_slope, rounded_off

NO_ROWS = read_only(np.empty(0, np.int64))
STEP, REACH, TRUST = 2.0, 3.0, 2.0  # constants of rules/distance_free.py


def record(floats: list[str], integers: list[str]) -> np.dtype[np.void]:
    """Return the type of a record: compiled code reads and writes its fields by name."""
    return np.dtype([(name, "f8") for name in floats] + [(name, "i8") for name in integers])


#: What does not change during a run; x0b is the intercept of x0, and the last numbers, and `kind`,
#: are the loss's `Shape`.
FIXED = record(
    [
        *("l2", "scale", "squared_bound", "ball", "cap", "intercept", "x0b"),
        *("low", "high", "softness", "epsilon"),
    ],
    ["kind", "coupled", "tracked"],
)


@compiled
def coefficient(f: Any, m: float, target: float, share: float) -> Any:
    """Return a row's factor in the gradient of a batch, NaN where the margin is not finite."""
    if not math.isfinite(m):
        return math.nan
    slope = logistic_slope(f, m, target) if f.kind == LOGISTIC else rounded_off(f, m, target)[1]
    return share * slope


def importance_weight(t: int) -> float:
    """Return alpha_t = max(1, (t + 1) / 4)."""
    return max(1.0, 0.25 * (t + 1))


importance = compiled(importance_weight)


@compiled
def reach_of(s: Any, f: Any, alpha: float) -> Any:
    """Return the scale of the step, the radius of z's ball, and the weight of y in the average."""
    if f.tracked:
        return STEP * s.radius, REACH * s.radius, alpha * s.radius
    return f.scale, f.ball, alpha


@compiled
def over_root(scale: float, total: float) -> float:
    """Return scale / sqrt(total), and zero where the total is zero."""
    return scale / math.sqrt(total) if total > 0.0 else 0.0


class Epochs(ABC):
    """The compiled twin of a rule on a linear model; see `SparseEpochs` and `DenseEpochs`.

    Parameters
    ----------
    kind : {"accelegrad", "distance_free", "adagrad"}
        The rule: `AcceleGrad`, `DistanceFreeAcceleGrad` or `AdaGrad`.
    data : Data
        The rows, their targets and weights, and the loss, as a model gives them to kernels.
        Nothing is checked again here, nor are the row numbers and settings below.
    x0 : array
        The first point; zero for `SparseEpochs`, but for its intercept.
    l2 : float
        The weight of the l2 term.
    fit_intercept : bool
        Whether the last coordinate of points is an intercept.
    diameter, gradient_bound : float
        D, and G of AcceleGrad.
    ball_radius : float
        z (of AdaGrad: x) is projected onto the ball around x0 with this radius.
    initial_radius, largest_radius : float
        The radius to start with, and the largest, of the distance-free rule.
    """

    #: the record of all numbers that change and its type, and the array of all points that do
    numbers_type: np.dtype[np.void]
    numbers: Any
    points: Vector

    def __init__(
        self,
        kind: str,
        data: Data,
        x0: Vector,
        *,
        l2: float = 0.0,
        fit_intercept: bool = False,
        diameter: float = 0.0,
        gradient_bound: float = 0.0,
        ball_radius: float = math.inf,
        initial_radius: float = 0.0,
        largest_radius: float = math.inf,
    ) -> None:
        self.data, self.fit_intercept = data, fit_intercept
        self.x0 = x0.copy()  # to Numba an array that cannot be written to is of another type
        self.coupled = kind != "adagrad"
        fixed = self._fixed = np.zeros(1, FIXED)
        fixed["l2"], fixed["intercept"] = l2, fit_intercept
        fixed["x0b"] = x0[-1] if fit_intercept else 0.0
        for name, number in data.loss._asdict().items():
            fixed[name] = number
        fixed["scale"] = STEP * diameter if self.coupled else diameter
        fixed["squared_bound"] = gradient_bound**2
        fixed["ball"], fixed["cap"] = ball_radius, largest_radius
        fixed["coupled"], fixed["tracked"] = self.coupled, kind == "distance_free"
        self._state = np.zeros(1, self.numbers_type)
        self.numbers = self._state[0]
        self.numbers["radius"] = initial_radius

    @property
    def _row_weights(self) -> Vector | float:
        """N p_i for each row, or 1 for all."""
        shares = self.data.shares
        return self.data.y.size * shares if shares.size else 1.0

    @abstractmethod
    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        """Do the steps and return how many were done."""

    @abstractmethod
    def query(self) -> Vector:
        """Return the point where the next gradient is wanted, a new array."""

    @abstractmethod
    def output(self) -> Vector:
        """Return the average that the rule's theorem speaks of, a new array."""

    @abstractmethod
    def last(self) -> Vector:
        """Return the last iterate, a new array."""

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        return int(self.numbers["iteration"])

    @property
    def step_size(self) -> float:
        """The last eta_t, 0 before the first step."""
        return float(self.numbers["eta"])

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
        order = read_only(np.ascontiguousarray(rows, dtype=np.int64))
        return self._run(order, batch_size)

    def state(self) -> dict[str, Any]:
        """Return all that decides the coming steps: numbers and arrays that no longer change."""
        numbers = {name: self.numbers[name].item() for name in self.numbers.dtype.names}
        return {**numbers, "points": self.points.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit where `state` was taken, on the same data and settings."""
        self.points[:] = state["points"]
        for name in self.numbers.dtype.names:
            self.numbers[name] = state[name]
