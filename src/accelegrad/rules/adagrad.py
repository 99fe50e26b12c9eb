"""AdaGrad with a scalar step (Alg. 1 of the paper), and the plain projected subgradient method."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import nearest, real_number
from accelegrad.rules.arrays import Array, as_array, inner, zero_sum
from accelegrad.rules.base import Projection, QueryRule
from accelegrad.rules.distance import check_distance
from accelegrad.rules.schedules import adagrad_step

DECAYS = ("sqrt", "constant")  # how the step size of `Subgradient` falls


class DescentState(NamedTuple):
    """One sequence, and the sums for the step size and the average."""

    iteration: Any
    point: Array  # x_t, where the next gradient is wanted
    squares: Any  # sum of ||g_s||^2
    step_size: Any
    weighted_sum: Array
    weight_sum: Any


class DescentRule(QueryRule):
    """x_{t+1} = P(x_t - eta_t g_t); subclasses choose eta_t and the average's weights."""

    project: Projection | None

    @abstractmethod
    def next_step_size(self, t: Any, squares: Any) -> Any:
        """Return eta_t, the current gradient included in the sum."""

    def init(self, x0: Array) -> DescentState:
        """Return the state at x_0."""
        x0, zero = as_array(x0), zero_sum(x0)
        return DescentState(0, x0, zero, 0.0, 0 * x0, zero)

    def query(self, state: DescentState) -> Array:
        """Return x_t."""
        return state.point

    def update(self, state: DescentState, gradient: Array) -> DescentState:
        """Return the state after the gradient at x_t."""
        t, x, squares, _, weighted_sum, weight_sum = state
        gradient, weight = as_array(gradient), self.weight(state)
        squares = squares + inner(gradient, gradient)
        eta = self.next_step_size(t, squares)
        following = x - eta * gradient
        if self.project is not None:
            following = self.project(following)
        return DescentState(
            t + 1, following, squares, eta, weighted_sum + weight * x, weight_sum + weight
        )

    def last(self, state: DescentState) -> Array:
        """Return the last x_t."""
        return state.point


@dataclass(frozen=True)
class AdaGrad(DescentRule):
    r"""AdaGrad with one step size for all coordinates.

    .. math::
        \eta_t = D\,\bigl(2 \textstyle\sum_{s \le t} \|g_s\|^2\bigr)^{-1/2}, \qquad
        x_{t+1} = P(x_t - \eta_t g_t)

    Its output, the uniform average of :math:`x_1 .. x_T`, is within
    :math:`\sqrt{2 D^2 \sum \|g_t\|^2} / T` of the minimum over the set.

    Parameters
    ----------
    diameter : float
        D, the diameter of a set that holds x0 and a minimiser.
    project : callable, optional
        The Euclidean projection onto that set; None leaves it out. `minimize` sets it.

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer: Adaptive Subgradient Methods. JMLR 12, 2011; and Levy,
    Yurtsever, Cevher, NeurIPS 2018, Alg. 1.
    """

    diameter: float
    project: Projection | None = None

    can = frozenset({"project"})

    def __post_init__(self) -> None:
        check_distance("diameter", self.diameter)

    def next_step_size(self, t: Any, squares: Any) -> Any:  # noqa: ARG002
        """Return eta_t of Alg. 1."""
        return adagrad_step(self.diameter, squares)

    def weight(self, state: DescentState) -> Any:  # noqa: ARG002
        """Return 1: the average is uniform."""
        return 1.0


@dataclass(frozen=True)
class Subgradient(DescentRule):
    r"""The plain projected (sub)gradient method: a baseline that has to be tuned.

    :math:`x_{t+1} = P(x_t - \eta_t g_t)` with :math:`\eta_t = c/\sqrt{t+1}` or :math:`\eta_t = c`;
    the output is the average of the points with weights :math:`\eta_t`.

    Parameters
    ----------
    step_size : float
        c.
    decay : {"sqrt", "constant"}
        How the step falls.
    project : callable, optional
        The Euclidean projection onto the set. `minimize` sets it.

    References
    ----------
    N. Z. Shor: Minimization Methods for Non-Differentiable Functions. Springer, 1985.
    """

    step_size: float
    decay: str = "sqrt"
    project: Projection | None = None

    title = "subgradient method"
    can = frozenset({"project"})

    def __post_init__(self) -> None:
        real_number("step_size", self.step_size, above=0)
        if self.decay not in DECAYS:
            raise ValueError(f"decay is {self.decay!r}: {nearest(self.decay, DECAYS)}")

    def next_step_size(self, t: Any, squares: Any = None) -> Any:  # noqa: ARG002
        """Return c/sqrt(t+1) or c."""
        return self.step_size / (t + 1) ** 0.5 if self.decay == "sqrt" else self.step_size

    def weight(self, state: DescentState) -> Any:
        """Return eta_t."""
        return self.next_step_size(state.iteration)
