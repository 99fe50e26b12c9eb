"""DoG (distance over gradients) and A-DoG, its accelerated form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelegrad.rules.accelegrad import CoupledRule, CoupledState
from accelegrad.rules.adagrad import DescentRule, DescentState
from accelegrad.rules.arrays import Array, adaptive_step, larger
from accelegrad.rules.base import Projection, State, extended_state
from accelegrad.rules.distance import Probing, distance

DistanceState = extended_state(__name__, "DistanceState", DescentState, "start", "radius")


@dataclass(frozen=True)
class DoG(Probing, DescentRule):
    r"""Distance over gradients: the subgradient method with a step that needs no tuning.

    .. math::
        r_t = \max\bigl(r_0, \max_{k \le t} \|x_k - x_0\|\bigr), \qquad
        \eta_t = r_t \,\bigl(\textstyle\sum_{k \le t} \|g_k\|^2\bigr)^{-1/2}, \qquad
        x_{t+1} = P(x_t - \eta_t g_t)

    The output is the average of the :math:`x_t` with weights :math:`r_t`. It is not accelerated.

    Parameters
    ----------
    initial_radius : float, optional
        :math:`r_0`; by default from a probe, or else :math:`10^{-6}(1 + \|x_0\|)`. Never
        overestimate it under noise.
    probe : bool, optional
        Find :math:`r_0` from a few values along :math:`-g_0` first, which must be exact, or the
        oracle able to freeze its noise. `minimize` sets it if so.
    project : callable, optional
        The Euclidean projection onto the feasible set. `minimize` sets it.

    References
    ----------
    M. Ivgi, O. Hinder, Y. Carmon: DoG is SGD's Best Friend. ICML 2023.
    """

    project: Projection | None = None

    can = frozenset({"project", "radius", "probe"})

    def init(self, x0: Array) -> State:
        """Return the state at x_0."""
        first = super().init(x0)
        x0 = first.query_point
        return DistanceState(*first, x0, self.first_radius(x0))

    def weight(self, state: State) -> Any:
        """Return r_t."""
        return state.radius

    def next_step_size(self, state: State, squares: Any) -> Any:
        """Return eta_t; the current gradient is included in the sum."""
        return adaptive_step(state.radius, squares)

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient at x_t."""
        after = super().update(state, gradient)
        travelled = distance(after.query_point, state.start)
        return after._replace(radius=larger(state.radius, travelled))


CoupledDistanceState = extended_state(
    __name__,
    "CoupledDistanceState",
    CoupledState,
    "start",  # x_0
    "radius",  # r_t
    "earlier_radii",  # sum of r_k, k < t
    "alpha_sum",  # sum of alpha_k, k < t
)


@dataclass(frozen=True)
class ADoG(Probing, CoupledRule):
    r"""A-DoG: AcceleGrad's coupling with the distance travelled in place of a diameter.

    The steps of `AcceleGrad`, with y projected too and

    .. math::
        r_t &= \max\bigl(r_0, \max_{k \le t} \|z_k - x_0\|\bigr), \quad
        \alpha_t = \textstyle\sum_{k \le t} r_k / r_t \\
        \tau_t &= \alpha_t / \textstyle\sum_{k \le t} \alpha_k, \quad
        \eta_t = r_t \,\bigl(\textstyle\sum_{k \le t} \alpha_k^2 \|g_k\|^2\bigr)^{-1/2}

    The output is the average of the :math:`y_{t+1}` with weights :math:`\alpha_t r_t`. The
    :math:`\alpha_t` grow like AcceleGrad's while the radius is constant, and stay small while it
    grows. One gradient per step, no proof; noisy gradients can make the radius run away.

    Parameters
    ----------
    initial_radius, probe, project
        As in `DoG`.

    References
    ----------
    I. Kreisler, M. Ivgi, O. Hinder, Y. Carmon: Accelerated Parameter-Free Stochastic Optimization.
    COLT 2024, Alg. 2.
    """

    project: Projection | None = None

    title = "A-DoG"
    can = frozenset({"project", "radius", "probe"})
    project_y = True

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0."""
        first = super().init(x0)
        x0, zero = first.query_point, first.weight_sum
        return CoupledDistanceState(*first, x0, self.first_radius(x0), zero, zero)

    def coupling(self, state: State) -> tuple[Any, Any]:
        """Return alpha_t and tau_t."""
        alpha = self.weight(state) / state.radius
        return alpha, alpha / (state.alpha_sum + alpha)

    def weight(self, state: State) -> Any:
        """Return alpha_t r_t, the sum of the radii up to r_t."""
        return state.earlier_radii + state.radius

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:
        """Return eta_t; the current gradient is included in the sum."""
        return adaptive_step(state.radius, weighted_squares)

    def learnt(self, state: State, gradient: Array, moved: State) -> State:  # noqa: ARG002
        """Return `moved` with the distance travelled."""
        return moved._replace(
            radius=larger(state.radius, distance(moved.mirror_point, state.start)),
            earlier_radii=self.weight(state),
            alpha_sum=state.alpha_sum + self.coupling(state)[0],
        )
