"""AcceleGrad that needs no diameter: `diameter="auto"`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelegrad.errors import real_number
from accelegrad.rules.accelegrad import CoupledRule, CoupledState, accelegrad_step
from accelegrad.rules.arrays import Array, adaptive_step, as_array, either, inner, larger, where
from accelegrad.rules.base import Oracle, Projection, Prox, State, extended_state
from accelegrad.rules.distance import Probing

# Variants of the step and of the radius's growth were measured on exact and noisy problems.
REACH = 3  # the ball or box around x0 that z stays in, in radii or widths; chosen, not measured
TRUST = 2  # the radius grows to this multiple of the distance that the gradients prove; chosen
BLOCKED = 1e-9  # a set or prox that lets through less than this share of a step has stopped it


DistanceFreeState = extended_state(
    __name__,
    "DistanceFreeState",
    CoupledState,
    "start",  # x_0
    "radius",  # r_t
    "evidence",  # N_t = sum of alpha_s r_s^2 <G_s, x_0 - x_{s+1}>
    "gradient_sum",  # S_t = sum of alpha_s r_s^2 G_s
    "dual_sum",  # sum of alpha_s g_s; this and the rest are None without a set or term
    "dual_weight",  # sum of alpha_s
    "last_gradient",  # g_{t-1}
    "noisy",  # whether z comes from dual_sum
)


@dataclass(frozen=True)
class DistanceFreeAcceleGrad(Probing, CoupledRule):
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
    distance, unless :math:`r_0` does. Noise makes the bound smaller: it cancels in the numerator
    and lengthens the denominator. The output is the average of the :math:`y_{t+1}` with weights
    :math:`\alpha_t r_t`, which forgets steps taken while the radius was too small.

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

    with :math:`\lambda = \eta_t / r_t^2`. At a minimiser on the boundary the changes of the
    gradients vanish though the gradients do not. The second z, dual averaging, is for noisy
    gradients; the first is faster with exact ones. The distance is proven by
    :math:`\langle S_t, x_0 - x^*\rangle \ge N_t` and
    :math:`\langle x_0 - \lambda S_t - u, x^* - u\rangle \le 0` for any :math:`\lambda > 0`.

    A composite term adds its prox to those steps, in the second z with the weight
    :math:`\eta_t \sum_{s \le t} \alpha_s`, and :math:`G_t = (x_{t+1} - y_{t+1}) / \eta_t`. For an
    L-smooth f the distance is then proven while :math:`\eta_t \le 1/L`.

    Parameters
    ----------
    initial_radius, probe
        As in `DoG`.
    largest_radius : float, optional
        A known bound on the distance to a minimiser.
    project, prox
        As in `UniXGrad`. `minimize` sets them.
    project_y : bool, default True
        Project y too. If not, the set limits only z, and the steps are those without a set.

    References
    ----------
    The weights and the coupling: K. Y. Levy, A. Yurtsever, V. Cevher, NeurIPS 2018. The lower bound
    on the distance: A. Defazio, K. Mishchenko (D-Adaptation), ICML 2023, with the weights of
    Prodigy, ICML 2024. Dual averaging: Y. Nesterov, Math. Program. 120, 2009; with a term: L. Xiao,
    JMLR 11, 2010. Steps from the gradients' changes: P. Joulani et al., ICML 2020. The combination
    is new in accelegrad and has no proof; the page "No tuning" of the documentation has the
    experiments.
    """

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
        """Whether a set that y must stay in, or a term, changes the steps."""
        return self.prox is not None or (self.project is not None and self.project_y)

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0."""
        first = super().init(x0)
        x0, zero, sums = first.query_point, first.weighted_sum, first.weight_sum
        more = (zero, sums, zero, True) if self.has_set_or_term else (None,) * 4
        return DistanceFreeState(*first, x0, self.first_radius(x0), sums, zero, *more)

    def capped(self, radius: Any) -> Any:
        """Return the radius, at most `largest_radius`."""
        cap = self.largest_radius
        return radius if cap is None else where(radius > cap, cap, radius)

    def prepared(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        """Return the state with a probed radius and the flag `noisy`.

        Gradients passed to `update` without an oracle count as noisy.
        """
        if self.has_set_or_term and state.iteration == 0:
            exact = getattr(oracle, "exact_values", True) and not hasattr(oracle, "frozen")
            state = state._replace(noisy=not exact)
        return super().prepared(state, oracle)

    def weight(self, state: State) -> Any:
        """Return alpha_t r_t."""
        return self.coupling(state)[0] * state.radius

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:
        """Return eta_t; the current gradient is included in the sum."""
        return accelegrad_step(state.radius, 0.0, weighted_squares)

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient g_t at x_{t+1}."""
        if not self.has_set_or_term:
            return super().update(state, gradient)
        gradient, (alpha, _) = as_array(gradient), self.coupling(state)
        change = either(
            state.iteration == 0,
            lambda: self._mapping(state, gradient),
            lambda: gradient - state.last_gradient,
        )
        squares = state.weighted_squares + alpha * alpha * inner(change, change)
        # The term's gradient need not vanish where the function's does.
        eta = where(squares == 0, state.radius, self.next_step_size(state, squares))
        state = state._replace(
            dual_sum=state.dual_sum + alpha * gradient,
            dual_weight=state.dual_weight + alpha,
            last_gradient=gradient,
        )
        base = where(state.noisy, state.start, state.mirror_point)
        towards = where(state.noisy, state.dual_sum, alpha * gradient)
        z = base - eta * towards
        z = self.proximal(z, eta * where(state.noisy, state.dual_weight, alpha))
        y = self._near(state.query_point - eta * gradient, eta)
        return self.following(state, gradient, squares, eta, z, y)

    def _mapping(self, state: State, gradient: Array) -> Array:
        """Return the gradient mapping at x_0 for a step of the radius's length.

        If it is zero up to rounding, it does not show the scale: return the gradient.
        """
        x0, square = state.start, inner(gradient, gradient)
        step = where(square == 0, state.radius, adaptive_step(state.radius, square))
        moved = x0 - self._near(x0 - step * gradient, step)
        informative = inner(moved, moved) > BLOCKED * BLOCKED * step * step * square
        return where(informative, moved / step, gradient)

    def _near(self, point: Array, step: Any) -> Array:
        if self.project_y:
            return self.proximal(point, step)
        return point if self.prox is None else self.prox(point, step)

    def learnt(self, state: State, gradient: Array, moved: State) -> State:
        """Return `moved` with z kept near x_0, and the radius with its evidence."""
        x0, x, r, eta = state.start, state.query_point, state.radius, moved.step_size
        if self.prox is not None:  # the gradient mapping, which includes the term's slope
            gradient = (x - moved.gradient_point) / (eta + (eta == 0))
        weight = self.weight(state) * r
        evidence = state.evidence + weight * inner(gradient, x0 - x)
        gradient_sum = state.gradient_sum + weight * gradient
        proven = self._proven(evidence, gradient_sum, x0, eta / (r * r))
        return moved._replace(
            mirror_point=held(moved.mirror_point, x0, REACH * r),
            radius=self.capped(larger(r, TRUST * proven)),
            evidence=evidence,
            gradient_sum=gradient_sum,
        )

    def _proven(self, evidence: Any, gradient_sum: Array, x0: Array, step: Any) -> Any:
        """Return a lower bound on the distance from x0 to a minimiser, or zero."""
        square = inner(gradient_sum, gradient_sum)
        if self.project is None or not self.project_y:
            return adaptive_step(evidence, square)
        offset = x0 - self.project(x0 - step * gradient_sum)
        reached = inner(offset, offset)
        moved = reached > BLOCKED * BLOCKED * step * step * square
        excess = step * (evidence - inner(gradient_sum, offset))
        return moved * (reached**0.5 + adaptive_step(excess, reached))


def held(z: Array, x0: Array, reach: Any) -> Array:
    """Return z projected onto the ball around x0 (it stays in a convex set with x0)."""
    offset = z - x0
    square = inner(offset, offset)
    excess = (square > reach * reach) * (1 - adaptive_step(reach, square))
    return z - excess * offset
