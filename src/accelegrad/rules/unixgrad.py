"""UniXGrad and U-DoG: universal and accelerated, with two gradients per step.

Both look ahead from y to x_t with the gradient M_t at z~_t, and then move y with the gradient g_t
at x~_t, the average of the x so far. UniXGrad's step sizes depend on the differences g_t - M_t,
which vanish on smooth functions even if the minimiser is on the boundary.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.arrays import Array, adaptive_step, as_array, inner, larger, where
from accelegrad.rules.base import GradientRule, Oracle, Projection, Prox, Step, check_distance
from accelegrad.rules.distance import Probing, distance


class ExtragradientState(NamedTuple):
    """The two sequences, their sums, and the radius of the steps."""

    iteration: Any
    query_point: Array  # z~_t, where the next step begins
    point: Array  # x_t
    base_point: Array  # y_t
    radius: Any  # r_t: that of `UniXGrad` is always 1
    earlier_radii: Any  # sum of r_k, k < t
    weighted_differences: Any  # Q_{t-1}, the sum of alpha_k^2 ||g_k - m_k||^2
    scale: Any  # G_0^2, or M_{t-1}, the largest alpha_k^2 ||m_k||^2
    step_size: Any
    weighted_sum: Array  # sum of alpha_k r_k x_{k+1}
    weight_sum: Any
    start: Array | None = None  # x_0, for the distance travelled


class TwoPhaseRule(GradientRule):
    """A rule that needs two gradients per step; subclasses choose the step sizes.

    Without a start in the state the radius is constant, and with it alpha_t = t + 1.
    """

    @abstractmethod
    def next_step_size(self, state: ExtragradientState, differences: Any) -> Any:
        """Return the step size for a sum of squared differences."""

    @abstractmethod
    def next_scale(self, state: ExtragradientState, square: Any) -> Any:
        """Return G_0^2 or M_t, from alpha_t^2 ||m_t||^2."""

    def init(self, x0: Array) -> ExtragradientState:
        """Return x_0 = y_0."""
        x0 = as_array(x0)
        zero = 0 * x0
        sums = inner(zero, zero)
        return ExtragradientState(0, x0, x0, x0, 1.0, sums, sums, 0.0, 0.0, zero, sums)

    def weight(self, state: ExtragradientState) -> Any:
        """Return w_t = alpha_t r_t, the sum of the radii up to r_t."""
        return state.earlier_radii + state.radius

    def step(self, state: ExtragradientState, oracle: Oracle) -> Step:
        """Do one step: a query and a gradient, twice."""
        prediction = oracle(self.query(state)).gradient
        ahead = self.look_ahead(state, prediction)
        evaluation = oracle(self.second_query(ahead))
        following = self.update(ahead, prediction, evaluation.gradient)
        return Step(following, evaluation, self.weight(state))

    def look_ahead(self, state: ExtragradientState, prediction: Array) -> ExtragradientState:
        """Return the state with x_{t+1}, after the gradient m_t at z~_t."""
        prediction, weight = as_array(prediction), self.weight(state)
        alpha = weight / state.radius
        scale = self.next_scale(state, alpha * alpha * inner(prediction, prediction))
        state = state._replace(scale=scale)
        eta = self.next_step_size(state, state.weighted_differences)
        x = self.proximal(state.base_point - alpha * eta * prediction, alpha * eta)
        return state._replace(
            point=x,
            step_size=eta,
            weighted_sum=state.weighted_sum + weight * x,
            weight_sum=state.weight_sum + weight,
        )

    def second_query(self, state: ExtragradientState) -> Array:
        """Return x~_t, for g_t."""
        return state.weighted_sum / state.weight_sum

    def update(
        self, state: ExtragradientState, prediction: Array, gradient: Array
    ) -> ExtragradientState:
        """Return the state with y_{t+1} and the next z~, after the gradient g_t at x~_t."""
        gradient, radius = as_array(gradient), state.radius
        radii, eta = self.weight(state), state.step_size
        alpha, surprise = radii / radius, gradient - as_array(prediction)
        total = state.weighted_differences + alpha * alpha * inner(surprise, surprise)
        if state.start is not None:
            eta = self.next_step_size(state, total)
        y = self.proximal(state.base_point - alpha * eta * gradient, alpha * eta)
        if state.start is not None:
            farther = larger(distance(state.point, state.start), distance(y, state.start))
            radius = larger(radius, farther)
        following = radii + radius
        return state._replace(
            iteration=state.iteration + 1,
            query_point=(following * y + state.weighted_sum) / (state.weight_sum + following),
            base_point=y,
            radius=radius,
            earlier_radii=radii,
            weighted_differences=total,
            step_size=eta,
        )

    def last(self, state: ExtragradientState) -> Array:
        """Return the last x_t."""
        return state.point


@dataclass(frozen=True)
class UniXGrad(TwoPhaseRule):
    r"""UniXGrad: universal and accelerated on a compact set, minimisers on its boundary included.

    With :math:`\alpha_t = t`, :math:`A_t = \sum_{i \le t} \alpha_i` and :math:`y_0 = x_0`, for
    t = 1, 2, ...:

    .. math::
        \eta_t &= \sqrt2 D \,\bigl(G_0^2
                  + \textstyle\sum_{i<t} \alpha_i^2 \|g_i - M_i\|^2\bigr)^{-1/2} \\
        \tilde z_t &= \bigl(\alpha_t y_{t-1} + \textstyle\sum_{i<t} \alpha_i x_i\bigr) / A_t,
                  \quad M_t \in \partial f(\tilde z_t),
                  \quad x_t = P(y_{t-1} - \alpha_t \eta_t M_t) \\
        \tilde x_t &= \textstyle\sum_{i \le t} \alpha_i x_i / A_t,
                  \quad g_t \in \partial f(\tilde x_t),
                  \quad y_t = P(y_{t-1} - \alpha_t \eta_t g_t)

    The output is :math:`\tilde x_T`. With exact gradients its gap to the minimum over the set is at
    most :math:`3\sqrt2 D (G_0^2 + \sum_{i \le T} \alpha_i^2 \|g_i - M_i\|^2)^{1/2} / (T(T+1))`.

    Parameters
    ----------
    diameter : float
        D, the diameter of the set, or of one that holds x0 and a minimiser.
    gradient_scale : float, optional
        G_0; 1 in the paper. None takes the norm of the first gradient, which makes the iterates
        independent of the scale of f. With `prox`, where that gradient may be zero, give a number.
    project : callable, optional
        The Euclidean projection onto the set. Without it the bounds do not hold.
    prox : callable, optional
        ``prox(x, step)``, the proximal operator of a term that is added to f. The projection comes
        after it, which is right for a separable term and a box.

    References
    ----------
    A. Kavis, K. Y. Levy, F. Bach, V. Cevher: UniXGrad: A Universal, Adaptive Algorithm with Optimal
    Guarantees for Constrained Optimization. NeurIPS 2019.
    """

    diameter: float
    gradient_scale: float | None = None
    project: Projection | None = None
    prox: Prox | None = None

    can = frozenset({"project", "prox"})

    def __post_init__(self) -> None:
        check_distance("diameter", self.diameter)
        if self.gradient_scale is not None:
            real_number("gradient_scale", self.gradient_scale, above=0)

    def next_scale(self, state: ExtragradientState, square: Any) -> Any:
        """Return G_0^2: what is given, or the first gradient's squared norm."""
        if self.gradient_scale is not None:
            return self.gradient_scale * self.gradient_scale
        return where(state.iteration == 0, square, state.scale)

    def next_step_size(self, state: ExtragradientState, differences: Any) -> Any:
        """Return eta_t; the paper's 2D is for a D^2 that is half of this one."""
        return adaptive_step(2**0.5 * self.diameter, differences + state.scale)


@dataclass(frozen=True)
class UDoG(Probing, TwoPhaseRule):
    r"""U-DoG: UniXGrad with the distance travelled in place of a diameter.

    The steps of `UniXGrad`, counted from t = 0 with :math:`x_0 = y_0`, and with

    .. math::
        r_t &= \max\bigl(r_0, \max_{k \le t} \|x_k - x_0\|, \max_{k \le t} \|y_k - x_0\|\bigr),
               \quad \alpha_t = \textstyle\sum_{k \le t} r_k / r_t \\
        Q_t &= \textstyle\sum_{k \le t} \alpha_k^2 \|g_k - m_k\|^2, \quad
               M_t = \max_{k \le t} \alpha_k^2 \|m_k\|^2 \\
        \eta^x_t &= r_t / \sqrt{\max(Q_{t-1}, M_t)}, \quad
               \eta^y_t = r_t / \sqrt{\max(Q_t, M_t)}

    where :math:`\eta^x_t` moves y to :math:`x_{t+1}` along :math:`m_t` (UniXGrad's M), and
    :math:`\eta^y_t` to :math:`y_{t+1}`. The weights in both averages are :math:`\alpha_t r_t`.

    The paper's theorem is for steps damped by logarithmic factors, which this method omits. If the
    gradients do not vanish at the minimiser (an active constraint, a prox), the rate falls to about
    1/T; that of `UniXGrad` does not.

    Parameters
    ----------
    initial_radius, probe
        As in `DoG`.
    project, prox
        As in `UniXGrad`; the probe does not see the term.

    References
    ----------
    As `ADoG`.
    """

    project: Projection | None = None
    prox: Prox | None = None

    title = "U-DoG"
    can = frozenset({"project", "prox", "radius", "probe"})

    def init(self, x0: Array) -> ExtragradientState:
        """Return x_0 = y_0 and the radius r_0."""
        state = super().init(x0)
        x0 = state.point
        return state._replace(radius=self.first_radius(x0), start=x0)

    def next_scale(self, state: ExtragradientState, square: Any) -> Any:
        """Return M_t."""
        return larger(state.scale, square)

    def next_step_size(self, state: ExtragradientState, differences: Any) -> Any:
        """Return eta^x_t or eta^y_t."""
        return adaptive_step(state.radius, larger(differences, state.scale))
