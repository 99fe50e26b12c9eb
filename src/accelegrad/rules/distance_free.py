"""AcceleGrad that needs no diameter: `diameter="auto"`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.accelegrad import InterpolatingRule, coupled
from accelegrad.rules.arrays import Array, as_array, either, inner, larger, where, zero_sum
from accelegrad.rules.base import Oracle, Projection, Prox, State
from accelegrad.rules.distance import Probing
from accelegrad.rules.schedules import adaptive_step, importance_weight

# Variants of the step and of the radius's growth were measured on exact and noisy problems.
STEP = 2  # radii in the numerator of the step size, as in AcceleGrad's 2 D
REACH = 3  # the ball or box around x0 that z stays in, in radii or widths; chosen, not measured
TRUST = 2  # the radius grows to this multiple of the distance that the gradients prove; chosen
BLOCKED = 1e-9  # a set or prox that lets through less than this share of a step has stopped it


class DistanceFreeState(NamedTuple):
    """AcceleGrad's sequences, and the radius with the evidence for it."""

    iteration: Any
    query_point: Array  # x_{t+1}, where the next gradient is wanted
    mirror_point: Array  # z_t
    gradient_point: Array  # y_t
    weighted_squares: Any  # sum of alpha_s^2 ||g_s||^2
    step_size: Any  # eta_{t-1}
    weighted_sum: Array  # sum of alpha_s r_s y_{s+1}
    weight_sum: Any
    start: Array  # x_0
    radius: Any  # r_t
    evidence: Any  # N_t = sum of alpha_s r_s^2 <G_s, x_0 - x_{s+1}>
    gradient_sum: Array  # S_t = sum of alpha_s r_s^2 G_s


class DualAveragingState(NamedTuple):
    """The same for steps that a set or a term changes."""

    iteration: Any
    query_point: Array
    mirror_point: Array
    gradient_point: Array
    weighted_squares: Any  # sum of alpha_s^2 ||g_s - g_{s-1}||^2
    step_size: Any
    weighted_sum: Array
    weight_sum: Any
    start: Array
    radius: Any
    evidence: Any
    gradient_sum: Array
    dual_sum: Array  # sum of alpha_s g_s
    dual_weight: Any  # sum of alpha_s
    last_gradient: Array  # g_{t-1}
    noisy: bool  # whether z is made from that sum


@dataclass(frozen=True)
class DistanceFreeAcceleGrad(Probing, InterpolatingRule):
    r"""AcceleGrad with an automatic diameter, for constraints and composite terms too.

    AcceleGrad's weights :math:`\alpha_t` and coupling, with a radius :math:`r_t` in the
    diameter's place:

    .. math::
        \eta_t &= 2 r_t \,\bigl(\textstyle\sum_{s\le t} \alpha_s^2 \|g_s\|^2\bigr)^{-1/2} \\
        z_{t+1} &= P_{3 r_t}(z_t - \alpha_t \eta_t g_t), \quad y_{t+1} = x_{t+1} - \eta_t g_t \\
        r_{t+1} &= \max\bigl(r_t,\ 2 N_t / \|S_t\|\bigr) \\
        N_t &= \textstyle\sum_{s \le t} \alpha_s r_s^2 \langle G_s, x_0 - x_{s+1}\rangle, \quad
        S_t = \textstyle\sum_{s \le t} \alpha_s r_s^2 G_s, \quad G_s = g_s

    where :math:`P_R` is the projection onto the ball around :math:`x_0`. With exact gradients
    :math:`N_t/\|S_t\|` is a proven lower bound on the distance to any minimiser (the sum of
    :math:`\langle g_s, x_{s+1} - x^*\rangle \ge 0`), so the radius never exceeds twice that
    distance, unless :math:`r_0` does. Under noise the bound errs downwards: the noise of a gradient
    is independent of the point it is taken at, so it cancels in the numerator and lengthens the
    denominator. The output is the average of the :math:`y_{t+1}` with weights
    :math:`\alpha_t r_t`, which forgets the steps that were taken while the radius was too small.

    With a feasible set K it is

    .. math::
        \eta_t &= 2 r_t \,\bigl(\|G\|^2 + \textstyle\sum_{1 \le s\le t} \alpha_s^2
                  \|g_s - g_{s-1}\|^2\bigr)^{-1/2}, \quad
                  G = (x_0 - P_K(x_0 - h g_0)) / h, \quad h = r_0 / \|g_0\| \\
        z_{t+1} &= P_{3 r_t}(P_K(z_t - \alpha_t \eta_t g_t)) \ \text{ or }\
                  P_{3 r_t}\bigl(P_K(x_0 - \eta_t \textstyle\sum_{s \le t} \alpha_s g_s)\bigr),
                  \quad y_{t+1} = P_K(x_{t+1} - \eta_t g_t) \\
        r_{t+1} &= \max\bigl(r_t,\ 2 (\rho + \lambda (N_t - \langle S_t, x_0 - u\rangle) / \rho)
                  \bigr), \quad u = P_K(x_0 - \lambda S_t), \quad \rho = \|u - x_0\|

    with :math:`\lambda = \eta_t / r_t^2`. At a minimiser on the boundary the gradients do not
    vanish, but their changes do, so that the steps do not die there; and the gradient mapping G is
    small where x0 is such a point already. The second z, dual averaging, is for noise: projected
    step by step it would have a mean that points into the set, but in the sum it cancels first. The
    first z is faster with exact gradients, and is taken where an oracle gives these. The distance
    is proven here too, for :math:`\langle S_t, x_0 - x^*\rangle \ge N_t` and
    :math:`\langle x_0 - \lambda S_t - u, x^* - u\rangle \le 0`, whatever :math:`\lambda > 0`;
    without K it is :math:`N_t / \|S_t\|` again.

    A composite term adds its prox to those steps, in the second z with the weight
    :math:`\eta_t \sum_{s \le t} \alpha_s`, and the evidence has
    :math:`G_t = (x_{t+1} - y_{t+1}) / \eta_t` in the gradient's place. For an L-smooth f the
    distance is then proven while :math:`\eta_t \le 1/L`.

    Parameters
    ----------
    initial_radius : float, optional
        :math:`r_0`. By default it is found by a probe, or else is
        :math:`10^{-6}(1 + \|x_0\|)`. Never overestimate it under noise.
    probe : bool, optional
        Find :math:`r_0` from a few values along :math:`-g_0` first; they have to be exact, or the
        oracle able to freeze its noise. `minimize` sets it where that is so.
    largest_radius : float, optional
        A bound on the distance to a minimiser, where the problem gives one.
    project : callable, optional
        The projection onto a feasible set. `minimize` sets it.
    project_y : bool, default True
        Whether y is projected too. If not, the set only keeps z from going astray, as AcceleGrad's
        ball does, and the steps are those without a set.
    prox : callable, optional
        ``prox(x, step)``, the proximal operator of a term that is added to f. `minimize` sets it.

    References
    ----------
    The weights and the coupling: K. Y. Levy, A. Yurtsever, V. Cevher, NeurIPS 2018. Steps from the
    distance travelled: M. Ivgi, O. Hinder, Y. Carmon (DoG), ICML 2023. The lower bound on the
    distance: A. Defazio, K. Mishchenko (D-Adaptation), ICML 2023, with the weights of K.
    Mishchenko, A. Defazio (Prodigy), ICML 2024. Dual averaging: Y. Nesterov, Math. Program. 120,
    2009; with a term: L. Xiao, JMLR 11, 2010. Steps from the gradients' changes: P. Joulani, A.
    Raj, A. Gyorgy, C. Szepesvari, ICML 2020. The combination is new in accelegrad and has no proof;
    the page "No tuning" of the documentation has the experiments.
    """

    initial_radius: float | None = None
    probe: bool | None = None
    largest_radius: float | None = None
    project: Projection | None = None
    project_y: bool = True
    prox: Prox | None = None

    title = "AcceleGrad"
    can = frozenset({"project", "project_y", "prox", "radius", "largest_radius", "probe"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.largest_radius is not None:
            real_number("largest_radius", self.largest_radius, above=0)

    @property
    def has_set_or_term(self) -> bool:
        """Whether steps are changed by a set that y has to stay in, or by a term."""
        return self.prox is not None or (self.project is not None and self.project_y)

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0."""
        x0, sums = as_array(x0), zero_sum(x0)
        zero, radius = 0 * x0, self.first_radius(x0)
        common = (0, x0, x0, x0, sums, 0.0, zero, sums, x0, radius, sums, zero)
        if self.has_set_or_term:
            return DualAveragingState(*common, zero, sums, zero, noisy=True)
        return DistanceFreeState(*common)

    def capped(self, radius: Any) -> Any:
        """Return the radius, or the largest where it is beyond that."""
        cap = self.largest_radius
        return radius if cap is None else where(radius > cap, cap, radius)

    def prepared(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        """Return the state with a probed radius, and with whether gradients are noisy.

        Gradients that come from no oracle, but one by one to `update`, are taken for noisy.
        """
        if self.has_set_or_term and state.iteration == 0:
            exact = getattr(oracle, "exact_values", True) and not hasattr(oracle, "frozen")
            state = state._replace(noisy=not exact)
        return super().prepared(state, oracle)

    def next_step_size(self, radius: Any, squares: Any) -> Any:
        """Return eta_t, the current gradient included in the sum."""
        return adaptive_step(STEP * radius, squares)

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient g_t at x_{t+1}."""
        gradient = as_array(gradient)
        if self.has_set_or_term:
            return self._update_with_set_or_term(state, gradient)
        alpha = importance_weight(state.iteration)
        squares = state.weighted_squares + alpha * alpha * inner(gradient, gradient)
        eta = self.next_step_size(state.radius, squares)
        z = state.mirror_point - alpha * eta * gradient
        if self.project is not None:
            z = self.project(z)
        y = state.query_point - eta * gradient
        return DistanceFreeState(*self._following(state, squares, eta, z, y, gradient))

    def _update_with_set_or_term(
        self, state: DualAveragingState, gradient: Array
    ) -> DualAveragingState:
        """Return the state after the gradient g_t, with steps that a set or a term changes."""
        alpha, x = importance_weight(state.iteration), state.query_point
        change = either(
            state.iteration == 0,
            lambda: self._mapping(state, gradient),
            lambda: gradient - state.last_gradient,
        )
        squares = state.weighted_squares + alpha * alpha * inner(change, change)
        # Where the function's gradient is zero, the term's need not be.
        eta = where(squares == 0, state.radius, self.next_step_size(state.radius, squares))
        dual_sum = state.dual_sum + alpha * gradient
        dual_weight = state.dual_weight + alpha
        base = where(state.noisy, state.start, state.mirror_point)
        towards = where(state.noisy, dual_sum, alpha * gradient)
        z = self._near(base - eta * towards, eta * where(state.noisy, dual_weight, alpha))
        y = self._in_set(self._near(x - eta * gradient, eta))
        mapping = gradient if self.prox is None else (x - y) / (eta + (eta == 0))
        common = self._following(state, squares, eta, self._in_set(z), y, mapping)
        return DualAveragingState._make((*common, dual_sum, dual_weight, gradient, state.noisy))

    def _mapping(self, state: DualAveragingState, gradient: Array) -> Array:
        """Return the gradient mapping at x_0 for a step as long as the radius.

        Where it is zero but for rounding, and so says nothing about the scale, return the gradient.
        """
        x0, square = state.start, inner(gradient, gradient)
        step = where(square == 0, state.radius, adaptive_step(state.radius, square))
        moved = x0 - self._in_set(self._near(x0 - step * gradient, step))
        informative = inner(moved, moved) > BLOCKED * BLOCKED * step * step * square
        return where(informative, moved / step, gradient)

    def _near(self, point: Array, step: Any) -> Array:
        """Return the prox of the term, if there is one."""
        return point if self.prox is None else self.prox(point, step)

    def _in_set(self, point: Array) -> Array:
        """Return the projection onto the set that y has to stay in, if there is one."""
        return self.project(point) if self.project is not None and self.project_y else point

    def _following(
        self, state: State, squares: Any, eta: Any, z: Array, y: Array, mapping: Array
    ) -> tuple[Any, ...]:
        """Return what both states have in common after z, y and the G_t of the evidence."""
        t, x0, r = state.iteration, state.start, state.radius
        alpha = importance_weight(t)
        z = held(z, x0, REACH * r)
        weight = alpha * r * r
        evidence = state.evidence + weight * inner(mapping, x0 - state.query_point)
        gradient_sum = state.gradient_sum + weight * mapping
        proven = self._proven(evidence, gradient_sum, x0, eta / (r * r))
        return (
            t + 1,
            coupled(t + 1, z, y),
            z,
            y,
            squares,
            eta,
            state.weighted_sum + alpha * r * y,
            state.weight_sum + alpha * r,
            x0,
            self.capped(larger(r, TRUST * proven)),
            evidence,
            gradient_sum,
        )

    def _proven(self, evidence: Any, gradient_sum: Array, x0: Array, step: Any) -> Any:
        """Return a lower bound on the distance from x0 to a minimiser; zero where none is known."""
        square = inner(gradient_sum, gradient_sum)
        if self.project is None or not self.project_y:
            return adaptive_step(evidence, square)
        offset = x0 - self.project(x0 - step * gradient_sum)
        reached = inner(offset, offset)
        moved = reached > BLOCKED * BLOCKED * step * step * square
        excess = step * (evidence - inner(gradient_sum, offset))
        return moved * (reached**0.5 + adaptive_step(excess, reached))


def held(z: Array, x0: Array, reach: Any) -> Array:
    """Return z moved back into the ball around x0 (which keeps it in a set that x0 is in)."""
    offset = z - x0
    square = inner(offset, offset)
    excess = (square > reach * reach) * (1 - adaptive_step(reach, square))
    return z - excess * offset
