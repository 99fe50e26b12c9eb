"""AdaGrad with a scalar step (Alg. 1 of the paper), and the plain projected subgradient method."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import nearest, real_number
from accelegrad.rules.arrays import Array, adaptive_step, as_array, inner
from accelegrad.rules.base import Projection, QueryRule, State, check_distance


def adagrad_step(diameter: Any, squares: Any) -> Any:
    r""":math:`\eta_t = D / (2 \sum_{s \le t} \|g_s\|^2)^{1/2}` (Alg. 1)."""
    return adaptive_step(diameter, 2 * squares)


class DescentState(NamedTuple):
    """One sequence, and the sums for the step size and the average."""

    iteration: Any
    query_point: Array  # x_t, where the next gradient is wanted
    squares: Any  # sum of ||g_s||^2
    step_size: Any
    weighted_sum: Array
    weight_sum: Any


class DescentRule(QueryRule):
    """x_{t+1} = P(x_t - eta_t g_t); subclasses choose eta_t and the average's weights."""

    @abstractmethod
    def next_step_size(self, state: State, squares: Any) -> Any:
        """Return eta_t; the current gradient is included in the sum."""

    def init(self, x0: Array) -> State:
        """Return the state at x_0."""
        x0 = as_array(x0)
        zero = 0 * x0
        sums = inner(zero, zero)
        return DescentState(0, x0, sums, 0.0, zero, sums)

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient at x_t."""
        gradient, weight, x = as_array(gradient), self.weight(state), state.query_point
        squares = state.squares + inner(gradient, gradient)
        eta = self.next_step_size(state, squares)
        return state._replace(
            iteration=state.iteration + 1,
            query_point=self.proximal(x - eta * gradient),
            squares=squares,
            step_size=eta,
            weighted_sum=state.weighted_sum + weight * x,
            weight_sum=state.weight_sum + weight,
        )

    def last(self, state: State) -> Array:
        """Return the last x_t."""
        return state.query_point


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
    diameter, project
        As in `AcceleGrad`.

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

    def next_step_size(self, state: State, squares: Any) -> Any:  # noqa: ARG002
        """Return eta_t of Alg. 1."""
        return adagrad_step(self.diameter, squares)


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
        As in `AdaGrad`.

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
        decays = ("sqrt", "constant")
        if self.decay not in decays:
            raise ValueError(f"decay is {self.decay!r}: {nearest(self.decay, decays)}")

    def next_step_size(self, state: State, squares: Any = None) -> Any:  # noqa: ARG002
        """Return c/sqrt(t+1) or c."""
        decay = (state.iteration + 1) ** 0.5 if self.decay == "sqrt" else 1.0
        return self.step_size / decay

    def weight(self, state: State) -> Any:
        """Return eta_t."""
        return self.next_step_size(state)
