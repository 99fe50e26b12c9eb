"""AcceleGrad (Alg. 2 of the paper), linear coupling, and the coupling that related rules share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.arrays import Array, adaptive_step, as_array, inner
from accelegrad.rules.base import Projection, QueryRule, State, check_distance


def importance_weight(t: Any) -> Any:
    r"""AcceleGrad's :math:`\alpha_t`: 1 for t <= 2, then (t+1)/4 (eq. 2 of the paper)."""
    return (t < 3) + (t >= 3) * ((t + 1) / 4)


def accelegrad_step(diameter: Any, gradient_bound: Any, weighted_squares: Any) -> Any:
    r""":math:`\eta_t = 2D / (G^2 + \sum_{s \le t} \alpha_s^2 \|g_s\|^2)^{1/2}` (eq. 2)."""
    return adaptive_step(2 * diameter, gradient_bound * gradient_bound + weighted_squares)


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


class CoupledRule(QueryRule):
    """The coupling x = tau z + (1 - tau) y of a gradient step (y) with a mirror step (z).

    Subclasses choose the step size. Those that learn a radius append fields to `CoupledState` and
    override `learnt`.
    """

    project_y: bool

    @abstractmethod
    def next_step_size(self, state: State, weighted_squares: Any) -> Any:
        """Return eta_t; the current gradient is included in the sum."""

    def coupling(self, state: State) -> tuple[Any, Any]:
        """Return alpha_t, and tau_t, the share of z_t in x_{t+1}."""
        alpha = importance_weight(state.iteration)
        return alpha, 1 / alpha

    def weight(self, state: State) -> Any:
        """Return the weight of y_{t+1} in the average: alpha_t."""
        return self.coupling(state)[0]

    def square(self, gradient: Array) -> Any:
        """Return the gradient's term in the sum of squares: its squared norm."""
        return inner(gradient, gradient)

    def learnt(self, state: State, gradient: Array, moved: State) -> State:  # noqa: ARG002
        """Return `moved`, the state after the steps, with what the rule learns from g_t."""
        return moved

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0."""
        x0 = as_array(x0)
        zero = 0 * x0
        return CoupledState(
            0, x0, x0, x0, self.square(zero), 0.0, weighted_sum=zero, weight_sum=inner(zero, zero)
        )

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient g_t at x_{t+1}."""
        gradient, (alpha, _) = as_array(gradient), self.coupling(state)
        squares = state.weighted_squares + alpha * alpha * self.square(gradient)
        eta = self.next_step_size(state, squares)
        move = eta * gradient
        z, y = state.mirror_point - alpha * move, state.query_point - move
        y = self.proximal(y) if self.project_y else y
        return self.following(state, gradient, squares, eta, self.proximal(z), y)

    def following(
        self, state: State, gradient: Array, squares: Any, eta: Any, z: Array, y: Array
    ) -> State:
        """Return the state after the steps to z and y."""
        weight = self.weight(state)
        moved = state._replace(
            iteration=state.iteration + 1,
            mirror_point=z,
            gradient_point=y,
            weighted_squares=squares,
            step_size=eta,
            weighted_sum=state.weighted_sum + weight * y,
            weight_sum=state.weight_sum + weight,
        )
        after = self.learnt(state, gradient, moved)
        (_, tau), z = self.coupling(after), after.mirror_point
        # tau z + (1 - tau) y, exact where z = y, so that no bound is overrun
        return after._replace(query_point=z + (1 - tau) * (y - z))

    def last(self, state: State) -> Array:
        """Return the last y_t."""
        return state.gradient_point


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
