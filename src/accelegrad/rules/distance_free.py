"""AcceleGrad that needs no diameter: `diameter="auto"`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.base import (
    Array,
    Projection,
    Prox,
    QueryRule,
    inner,
    weighted_average,
)
from accelegrad.rules.distance import Probing, check_radius, larger
from accelegrad.rules.schedules import adaptive_step, importance_weight

STEP = 2  # the step is so many radii over the root of the weighted squares,
MAPPED_STEP = 2**0.5  # or so many with a set or a term: the gradient mapping is the shorter one
REACH = 3  # z stays within so many radii of x0
TRUST = 2  # times the distance that the gradients prove, the radius grows to


class DistanceFreeState(NamedTuple):
    """AcceleGrad's sequences, and the radius with the evidence for it."""

    iteration: Any
    query_point: Array  # x_{t+1}, where the next gradient is wanted
    mirror_point: Array  # z_t
    gradient_point: Array  # y_t
    weighted_squares: Any  # sum of alpha_s^2 ||G_s||^2
    step_size: Any  # eta_{t-1}
    weighted_sum: Array  # sum of alpha_s r_s y_{s+1}
    weight_sum: Any
    start: Array  # x_0
    radius: Any  # r_t
    evidence: Any  # N_t = sum of alpha_s r_s^2 <G_s, x_0 - x_{s+1}>
    gradient_sum: Array  # S_t = sum of alpha_s r_s^2 G_s


@dataclass(frozen=True)
class DistanceFreeAcceleGrad(Probing, QueryRule):
    r"""AcceleGrad with an automatic diameter, for constraints and composite terms too.

    AcceleGrad's own weights :math:`\alpha_t` and coupling, with a radius :math:`r_t` in the
    diameter's place:

    .. math::
        \eta_t &= 2 r_t \,\bigl(\textstyle\sum_{s\le t} \alpha_s^2 \|G_s\|^2\bigr)^{-1/2} \\
        z_{t+1} &= P_{3 r_t}(T_{\alpha_t \eta_t}(z_t, g_t)), \quad
        y_{t+1} = T_{\eta_t}(x_{t+1}, g_t), \qquad T_\eta(x, g) = x - \eta g \\
        r_{t+1} &= \max\bigl(r_t,\ 2 N_t / \|S_t\|\bigr) \\
        N_t &= \textstyle\sum_{s \le t} \alpha_s r_s^2 \langle G_s, x_0 - x_{s+1}\rangle, \quad
        S_t = \textstyle\sum_{s \le t} \alpha_s r_s^2 G_s

    where :math:`P_R` is the projection onto the ball around :math:`x_0`, and :math:`G_t = g_t`.
    With exact gradients :math:`N_t/\|S_t\|` is a proven lower bound on the distance to any
    minimiser (the sum of :math:`\langle g_s, x_{s+1} - x^*\rangle \ge 0`), so the radius never
    exceeds twice that distance, unless :math:`r_0` does. Under noise the bound errs downwards: the
    noise of a gradient is independent of the point it is taken at, so it cancels in the numerator
    and lengthens the denominator. The output is the average of the :math:`y_{t+1}` with weights
    :math:`\alpha_t r_t`, which forgets the steps that were taken while the radius was too small.

    With a feasible set or a composite term, :math:`T_\eta(x, g)` is the step followed by the prox
    and the projection, and :math:`G_t = (x_{t+1} - T_h(x_{t+1}, g_t))/h` with
    :math:`h = \eta_{t-1}` is the gradient mapping. Unlike the gradient it vanishes at a minimiser
    on the boundary, so that the steps do not die there; as it is the shorter one, the step has a
    :math:`\sqrt2` in place of the 2.

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
        Whether y is projected too.
    prox : callable, optional
        ``prox(x, step)``, the proximal operator of a term that is added to f. `minimize` sets it.

    References
    ----------
    The weights and the coupling: K. Y. Levy, A. Yurtsever, V. Cevher, NeurIPS 2018. Steps from the
    distance travelled: M. Ivgi, O. Hinder, Y. Carmon (DoG), ICML 2023. The lower bound on the
    distance: A. Defazio, K. Mishchenko (D-Adaptation), ICML 2023, with the weights of K.
    Mishchenko, A. Defazio (Prodigy), ICML 2024. The combination is accelegrad's own and has no
    proof; the page "No tuning" of the documentation has the experiments.
    """

    initial_radius: float | None = None
    probe: bool | None = None
    largest_radius: float | None = None
    project: Projection | None = None
    project_y: bool = True
    prox: Prox | None = None

    def __post_init__(self) -> None:
        check_radius("initial_radius", self.initial_radius)
        if self.largest_radius is not None:
            real_number("largest_radius", self.largest_radius, above=0)

    def init(self, x0: Array) -> DistanceFreeState:
        """Return y_0 = z_0 = x_0."""
        zero = 0 * x0
        radius = self.first_radius(x0)
        return DistanceFreeState(0, x0, x0, x0, 0.0, 0.0, zero, 0.0, x0, radius, 0.0, zero)

    def capped(self, radius: Any) -> Any:
        """Return the radius, or the largest where it is beyond that."""
        cap = self.largest_radius
        return radius if cap is None else radius * (radius <= cap) + cap * (radius > cap)

    def query(self, state: DistanceFreeState) -> Array:
        """Return x_{t+1} = tau_t z_t + (1 - tau_t) y_t."""
        return state.query_point

    def weight(self, state: DistanceFreeState) -> Any:
        """Return alpha_t, the weight that the certificate gives to the gradient's cut."""
        return importance_weight(state.iteration)

    def update(self, state: DistanceFreeState, gradient: Array) -> DistanceFreeState:
        """Return the state after the gradient g_t at x_{t+1}."""
        t, x, x0, r = state.iteration, state.query_point, state.start, state.radius
        alpha = importance_weight(t)
        plain = self.prox is None and (self.project is None or not self.project_y)
        mapping = gradient if plain else self._mapping(state, gradient)
        squares = state.weighted_squares + alpha * alpha * inner(mapping, mapping)
        eta = adaptive_step((STEP if plain else MAPPED_STEP) * r, squares)
        z = self._held(self._moved(state.mirror_point, gradient, alpha * eta), x0, REACH * r)
        y = self._moved(x, gradient, eta, self.project_y)
        weight = alpha * r * r
        evidence = state.evidence + weight * inner(mapping, x0 - x)
        gradient_sum = state.gradient_sum + weight * mapping
        proven = adaptive_step(evidence, inner(gradient_sum, gradient_sum))
        tau = 1 / importance_weight(t + 1)
        return DistanceFreeState(
            t + 1,
            z + (1 - tau) * (y - z),
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

    def _moved(self, point: Array, gradient: Array, step: Any, project: bool = True) -> Array:
        """Return T_step(point, gradient)."""
        moved = point - step * gradient
        if self.prox is not None:
            moved = self.prox(moved, step)
        return self.project(moved) if project and self.project is not None else moved

    def _mapping(self, state: DistanceFreeState, gradient: Array) -> Array:
        """Return the gradient mapping."""
        x, step = state.query_point, state.step_size
        if not step > 0:  # the first step, or a minimiser so far
            step = adaptive_step(state.radius, inner(gradient, gradient))
        if not step > 0:  # the function's gradient is zero; the term's need not be
            step = state.radius
        return (x - self._moved(x, gradient, step)) / step

    def _held(self, z: Array, x0: Array, reach: Any) -> Array:
        """Return z moved back into the ball around x0 (which keeps it in the set: x0 is there)."""
        offset = z - x0
        square = inner(offset, offset)
        excess = (square > reach * reach) * (1 - adaptive_step(reach, square))
        return z - excess * offset

    def output(self, state: DistanceFreeState) -> Array:
        """Return the average of the y_{t+1} with weights alpha_t r_t (x_0 before any step)."""
        return weighted_average(state, state.gradient_point)

    def last(self, state: DistanceFreeState) -> Array:
        """Return the last y_t."""
        return state.gradient_point
