"""What the compiled steps on dense and on CSR rows share.

`DenseSteps` and `SparseSteps` run many steps of `AcceleGrad` or `AdaGrad` in one compiled call,
with the same points as the rules up to rounding. The objective is sum_i p_i l(a_i.w + intercept,
y_i) + l2 / 2 ||w||^2, the (optional, unpenalised) intercept last, and a batch B gives the gradient
(n / |B|) sum_{i in B} p_i l'(m_i, y_i) a_i + l2 w.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels import read_only
from accelegrad.kernels.compile import compiled
from accelegrad.kernels.gradient import Data
from accelegrad.kernels.loss_shape import LOGISTIC
from accelegrad.kernels.losses import logistic_slope, rounded_off

REACH, TRUST = 3.0, 2.0  # constants of rules/distance_free.py


def record(floats: list[str], integers: list[str]) -> np.dtype[np.void]:
    """Return the dtype of a record, whose fields compiled code uses by name."""
    return np.dtype([(name, "f8") for name in floats] + [(name, "i8") for name in integers])


#: Numbers that change from step to step, by their names in `DistanceFreeAcceleGrad`'s states; the
#: last two are that rule's alone.
NUMBERS = ["weighted_squares", "step_size", "weight_sum", "radius", "evidence"]
#: Constants of a run: the rule's settings and the loss's `Shape`.
FIXED = record(
    [*("l2", "scale", "squared_bound", "ball", "cap"), *("low", "high", "softness", "epsilon")],
    ["kind", "coupled", "tracked", "intercept"],
)


class Chunk(NamedTuple):
    """Rows as steps read them."""

    data: Data  # the rows with their targets and loss
    weights: Vector  # the rows' weights, 1 on average


class Settings(NamedTuple):
    """A rule and its parameters."""

    kind: str  # "accelegrad", "distance_free" (`DistanceFreeAcceleGrad`) or "adagrad"
    diameter: float = 0.0
    gradient_bound: float = 0.0
    ball_radius: float = math.inf  # of the ball around x0 onto which z (AdaGrad: x) is projected
    initial_radius: float = 0.0
    largest_radius: float = math.inf

    @property
    def coupled(self) -> bool:
        """Whether the rule has AcceleGrad's two sequences."""
        return self.kind != "adagrad"

    def fixed(self, *, l2: float, fit_intercept: bool) -> npt.NDArray[np.void]:
        """Return the record that kernels read, without the loss."""
        fixed = np.zeros(1, FIXED)
        fixed["l2"], fixed["intercept"] = l2, fit_intercept
        fixed["scale"] = 2.0 * self.diameter if self.coupled else self.diameter
        fixed["squared_bound"] = self.gradient_bound**2
        fixed["ball"], fixed["cap"] = self.ball_radius, self.largest_radius
        fixed["coupled"], fixed["tracked"] = self.coupled, self.kind == "distance_free"
        return fixed


class Steps(ABC):
    """Steps of a rule on rows: a state that compiled code changes in place."""

    coupled: bool
    start: Vector
    points: Vector  # all vectors that change
    _fixed: npt.NDArray[np.void]
    _numbers: npt.NDArray[np.void]

    def advance(self, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]) -> int:
        """Do one step per batch of rows and return how many were done.

        It stops before a step whose margins or gradient are not finite. `order` has the rows in
        order of use, `ends` the end of each batch.
        """
        for name, number in chunk.data.loss._asdict().items():
            self._fixed[name] = number
        return int(self._advanced(chunk, read_only(order), read_only(ends)))

    @abstractmethod
    def _advanced(self, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Any:
        """Call the kernel."""

    @property
    def numbers(self) -> Any:
        """The numbers of the first problem."""
        return self._numbers[0]

    @property
    def iteration(self) -> int:
        """The number of steps done."""
        return int(self.numbers["iteration"])

    @property
    def step_size(self) -> float:
        """The last eta_t, 0 before the first step."""
        return float(self.numbers["step_size"])

    @property
    def radius(self) -> float:
        """The radius of a distance-free rule."""
        return float(self.numbers["radius"])

    def state(self) -> dict[str, Any]:
        """Return a copy of all that decides the coming steps."""
        return {"numbers": self._numbers.view(np.float64).copy(), "points": self.points.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from a `state`, on the same data and settings."""
        self._numbers.view(np.float64)[:] = state["numbers"]
        self.points[:] = state["points"]


@compiled
def coefficient(f: Any, m: float, target: float, share: float) -> Any:
    """Return a row's factor in the gradient of a batch; NaN if the margin is not finite."""
    if not math.isfinite(m):
        return math.nan
    slope = logistic_slope(m, target) if f.kind == LOGISTIC else rounded_off(f, m, target)[1]
    return share * slope


def importance_weight(t: int) -> float:
    """Return alpha_t = max(1, (t + 1) / 4)."""
    return max(1.0, 0.25 * (t + 1))


importance = compiled(importance_weight)


@compiled
def reach_of(s: Any, f: Any, alpha: float) -> Any:
    """Return the step's scale, the radius of z's ball, and y's weight in the average."""
    if f.tracked:
        return 2.0 * s.radius, REACH * s.radius, alpha * s.radius
    return f.scale, f.ball, alpha


@compiled
def over_root(scale: float, total: float) -> float:
    """Return scale / sqrt(total), or zero if the total is zero."""
    return scale / math.sqrt(total) if total > 0.0 else 0.0
