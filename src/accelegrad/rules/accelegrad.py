"""AcceleGrad (Alg. 2 of the paper) and its ancestor with a known smoothness, linear coupling."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.arrays import Array, as_array, inner, zero_sum
from accelegrad.rules.base import Projection, QueryRule, State
from accelegrad.rules.distance import check_distance
from accelegrad.rules.schedules import accelegrad_step, importance_weight


def coupled(t: Any, z: Array, y: Array) -> Array:
    """Return x = tau_t z + (1 - tau_t) y, exact where z = y, so that no bound is overrun."""
    return z + (1 - 1 / importance_weight(t)) * (y - z)


class CoupledState(NamedTuple):
    """Two coupled sequences, and the sums for the step size and the average."""

    iteration: Any
    query_point: Array  # x_{t+1}, where the next gradient is wanted
    mirror_point: Array  # z_t
    gradient_point: Array  # y_t
    weighted_squares: Any  # sum of alpha_s^2 ||g_s||^2
    step_size: Any  # eta_{t-1}
    weighted_sum: Array  # sum of alpha_s y_{s+1}
    weight_sum: Any


class InterpolatingRule(QueryRule):
    """What rules with AcceleGrad's weights and coupling share: x = tau z + (1 - tau) y."""

    def weight(self, state: State) -> Any:
        """Return alpha_t."""
        return importance_weight(state.iteration)

    def last(self, state: State) -> Array:
        """Return the last y_t."""
        return state.gradient_point


class CoupledRule(InterpolatingRule):
    """The coupling of a gradient step (y) with a mirror step (z); subclasses choose eta_t."""

    project: Projection | None
    project_y: bool

    @abstractmethod
    def next_step_size(self, weighted_squares: Any) -> Any:
        """Return eta_t, the current gradient included in the sum."""

    def init(self, x0: Array) -> CoupledState:
        """Return y_0 = z_0 = x_0."""
        x0, zero = as_array(x0), zero_sum(x0)
        return CoupledState(0, x0, x0, x0, zero, 0.0, 0 * x0, zero)

    def update(self, state: CoupledState, gradient: Array) -> CoupledState:
        """Return the state after the gradient g_t at x_{t+1}."""
        t, x, z, _, squares, _, weighted_sum, weight_sum = state
        gradient, alpha = as_array(gradient), importance_weight(t)
        squares = squares + alpha * alpha * inner(gradient, gradient)
        eta = self.next_step_size(squares)
        move = eta * gradient
        z = z - alpha * move
        y = x - move
        if self.project is not None:
            z = self.project(z)
            if self.project_y:
                y = self.project(y)
        return CoupledState(
            t + 1,
            coupled(t + 1, z, y),
            z,
            y,
            squares,
            eta,
            weighted_sum + alpha * y,
            weight_sum + alpha,
        )


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
        G, a bound on the gradients' norms. Zero is sound for smooth functions and is what the
        paper's experiments use throughout.
    project : callable, optional
        The Euclidean projection onto that set; None leaves it out, which the paper found to work
        as well. `minimize` sets it.
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

    def next_step_size(self, weighted_squares: Any) -> Any:
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
    project : callable, optional
        The Euclidean projection for z. `minimize` sets it.
    project_y : bool, default False
        Project y too.

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

    def next_step_size(self, weighted_squares: Any) -> Any:  # noqa: ARG002
        """Return 1/beta."""
        return 1 / self.smoothness

    def output(self, state: CoupledState) -> Array:
        """Return the last y_t, which is what its theorem speaks of."""
        return state.gradient_point
