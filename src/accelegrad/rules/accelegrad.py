"""AcceleGrad (Alg. 2 of the paper), linear coupling, and the coupling that related rules share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.arrays import Array, as_array, inner, zero_sum
from accelegrad.rules.base import Projection, QueryRule, State
from accelegrad.rules.distance import check_distance
from accelegrad.rules.schedules import accelegrad_step, importance_weight


class CoupledState(NamedTuple):
    """Two coupled sequences, and the sums for the step size and the average."""

    iteration: Any
    query_point: Array  # x_{t+1}, where the next gradient is wanted
    mirror_point: Array  # z_t
    gradient_point: Array  # y_t
    weighted_squares: Any  # sum of alpha_s^2 ||g_s||^2
    step_size: Any  # eta_{t-1}
    weighted_sum: Array  # sum of the weights times y_{s+1}
    weight_sum: Any


class Moved(NamedTuple):
    """The results of a step before the rule learns from it."""

    gradient: Array  # g_t
    squares: Any  # the sum of squares, with that of g_t
    eta: Any
    z: Array
    y: Array


class CoupledRule(QueryRule):
    """The coupling x = tau z + (1 - tau) y of a gradient step (y) with a mirror step (z).

    Subclasses choose the step size. Those that learn a radius append fields to `CoupledState` and
    override `learnt`.
    """

    project: Projection | None
    project_y: bool

    @abstractmethod
    def next_step_size(self, state: State, weighted_squares: Any) -> Any:
        """Return eta_t; the current gradient is included in the sum."""

    def acceleration(self, state: State) -> Any:
        """Return alpha_t."""
        return importance_weight(state.iteration)

    def coupling(self, state: State) -> Any:
        """Return tau_t, the share of z_t in x_{t+1}."""
        return 1 / self.acceleration(state)

    def weight(self, state: State) -> Any:
        """Return the weight of y_{t+1} in the average: alpha_t."""
        return self.acceleration(state)

    def square(self, gradient: Array) -> Any:
        """Return the gradient's term in the sum of squares: its squared norm."""
        return inner(gradient, gradient)

    def learnt(self, state: State, moved: Moved) -> tuple[Array, dict[str, Any]]:  # noqa: ARG002
        """Return z_{t+1} and the fields that the rule adds to `CoupledState`."""
        return moved.z, {}

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0."""
        return CoupledState(*first_fields(as_array(x0)))

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient g_t at x_{t+1}."""
        gradient, alpha = as_array(gradient), self.acceleration(state)
        squares = state.weighted_squares + alpha * alpha * self.square(gradient)
        eta = self.next_step_size(state, squares)
        move = eta * gradient
        z, y = state.mirror_point - alpha * move, state.query_point - move
        if self.project is not None:
            z = self.project(z)
            if self.project_y:
                y = self.project(y)
        return self.following(state, Moved(gradient, squares, eta, z, y))

    def following(self, state: State, moved: Moved) -> State:
        """Return the state after the steps to z and y."""
        weight, y = self.weight(state), moved.y
        z, others = self.learnt(state, moved)
        after = state._replace(
            iteration=state.iteration + 1,
            mirror_point=z,
            gradient_point=y,
            weighted_squares=moved.squares,
            step_size=moved.eta,
            weighted_sum=state.weighted_sum + weight * y,
            weight_sum=state.weight_sum + weight,
            **others,
        )
        # tau z + (1 - tau) y, exact where z = y, so that no bound is overrun
        return after._replace(query_point=z + (1 - self.coupling(after)) * (y - z))

    def last(self, state: State) -> Array:
        """Return the last y_t."""
        return state.gradient_point


def first_fields(x0: Array, squares: Any = None) -> tuple[Any, ...]:
    """Return the fields of `CoupledState` before the first step."""
    zero = zero_sum(x0)
    return 0, x0, x0, x0, zero if squares is None else squares, 0.0, 0 * x0, zero


@dataclass(frozen=True)
class AcceleGrad(CoupledRule):
    r"""AcceleGrad: universal, accelerated, with no step size to tune.

    With :math:`\alpha_t = \max(1, (t+1)/4)`, :math:`\tau_t = 1/\alpha_t` and
    :math:`y_0 = z_0 = x_0`, for t = 0, 1, ...:

    .. math::
        x_{t+1} &= \tau_t z_t + (1-\tau_t) y_t, \quad g_t \in \partial f(x_{t+1}) \\
        \eta_t &= 2D \,\bigl(G^2 + \textstyle\sum_{s\le t} \alpha_s^2 \|g_s\|^2\bigr)^{-1/2} \\
        z_{t+1} &= P(z_t - \alpha_t \eta_t g_t), \quad y_{t+1} = x_{t+1} - \eta_t g_t

    and the output is the average of the :math:`y_{t+1}` with weights :math:`\alpha_t`.

    Parameters
    ----------
    diameter : float
        D, the diameter of a set that holds x0 and a minimiser.
    gradient_bound : float, default 0
        G, a bound on the gradients' norms. Zero, as in the paper's experiments, is sound for
        smooth functions.
    project : callable, optional
        The Euclidean projection onto that set. None leaves it out. `minimize` sets it.
    project_y : bool, default False
        Project y too: for constraints, where the minimiser over the set need not be global. The
        paper's guarantee is then the one for non-smooth functions.

    References
    ----------
    K. Y. Levy, A. Yurtsever, V. Cevher: Online Adaptive Methods, Universality and Acceleration.
    NeurIPS 2018.
    """

    diameter: float
    gradient_bound: float = 0.0
    project: Projection | None = None
    project_y: bool = False

    can = frozenset({"project", "project_y"})

    def __post_init__(self) -> None:
        check_distance("diameter", self.diameter)
        real_number("gradient_bound", self.gradient_bound, least=0)

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:  # noqa: ARG002
        """Return eta_t of eq. 2."""
        return accelegrad_step(self.diameter, self.gradient_bound, weighted_squares)


@dataclass(frozen=True)
class LinearCoupling(CoupledRule):
    r"""Accelerated gradient descent for a known smoothness: AcceleGrad with eta = 1/beta.

    A baseline that is neither universal nor adaptive; its output is the last y_t.

    Parameters
    ----------
    smoothness : float
        beta, the Lipschitz constant of the gradient.
    project, project_y
        As in `AcceleGrad`.

    References
    ----------
    Z. Allen-Zhu, L. Orecchia: Linear Coupling: An Ultimate Unification of Gradient and Mirror
    Descent. ITCS 2017.
    """

    smoothness: float
    project: Projection | None = None
    project_y: bool = False

    title = "linear coupling"
    can = frozenset({"project", "project_y"})

    def __post_init__(self) -> None:
        real_number("smoothness", self.smoothness, above=0)

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:  # noqa: ARG002
        """Return 1/beta."""
        return 1 / self.smoothness

    def output(self, state: State) -> Array:
        """Return the last y_t, which is what its theorem speaks of."""
        return state.gradient_point
