"""AcceleGrad from minibatch gradients alone: no values, no rows, no tuning.

It learns a scale per coordinate, the radius and the share of noise from the gradients, and keeps
three arrays besides the point. `python -m accelegrad_lab.optimizers` compares it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad.rules.accelegrad import importance_weight
from accelegrad.rules.arrays import Array, adaptive_step, as_array, inner, larger, where
from accelegrad.rules.base import Projection, Prox, QueryRule, State, check_radius
from accelegrad.rules.diagonal import mean_step
from accelegrad.rules.distance import SMALLEST_SHARE
from accelegrad.rules.distance_free import TRUST

# Chosen on prototypes, on eight data sets with two losses.
STEP = 2.5  # m, radii in the numerator of the step size
EXACT = 1e3  # signal-to-noise ratios from this on count as exact; beyond its cube they are rounding
# The radius is settled once it has not grown by a tenth for as long as it took to reach it.
GROWTH, PATIENCE = 1.1, 10
NEAR = 1e3  # up to this multiple of the smallest radius, gradients differ from x0's only by noise
#: The initial radius without momentum, relative to the size of x0. It can be larger because noise
#: is not measured near x0. Loss after 310 batches of 32 rows (ten classes, 784 columns): 0.36;
#: from a millionth on 1.8 (AcceleGrad, which has to start there: 0.53).
DESCENT_SHARE = 1e-4


class UntunedState(NamedTuple):
    """x and z, the squares and the anchor; the rest are numbers."""

    iteration: Any
    query_point: Array  # x_t, where the next gradient is wanted
    mirror_point: Array  # z_t
    squares: Any  # r_t Q_t, an array where steps differ by coordinate
    anchor: Array  # x_0 until the radius is settled, from then on the average
    averaged: Any  # n, the number of points in that average
    smallest_radius: Any  # the default r_0
    radius: Any  # r_t
    evidence: Any  # N_t = sum of w_s <g_s, x_0 - x_s>
    agreement: Any  # sum of the signed squared cosines between new gradients and old ones
    compared: Any  # the number of these cosines
    last_growth: Any  # the iteration at which the radius had last grown by a tenth
    grown_from: Any  # the radius then
    step_size: Any


class Seen(NamedTuple):
    """Sums over all coordinates from one gradient; the metric is the root of r_t Q_t."""

    size: Any  # h_t
    cosine: Any  # between the gradient and x_0 - z_t
    evidence: Any  # <g_t, x_0 - x_t>
    stretch: Any  # ||x_0 - z_{t+1}||^2 in the metric
    travelled: Any  # ||x_0 - y_{t+1}||^2 in the metric


@dataclass(frozen=True)
class UntunedAcceleGrad(QueryRule):
    r"""AcceleGrad that learns its metric, radius and acceleration from noisy gradients.

    With :math:`y_0 = z_0 = x_0`, for t = 0, 1, ..., coordinate by coordinate:

    .. math::
        Q_t &= \textstyle\sum_{s \le t} (r_s / r_t) \, \alpha_s^2 g_s^2, \quad H_t = Q_t^{1/2},
        \quad h_t = \textstyle\sum_j H_{t,j}, \quad \eta_t = m r_t / H_t, \quad m = 2.5 \\
        z_{t+1} &= z_t - \alpha_t \eta_t g_t, \quad y_{t+1} = x_t - \eta_t g_t, \quad
        x_{t+1} = z_{t+1} / \alpha_{t+1} + (1 - 1/\alpha_{t+1}) \, y_{t+1} \\
        N_t &= \textstyle\sum_{s \le t} w_s \langle g_s, x_0 - x_s\rangle, \quad
        w_s = \alpha_s m r_s / h_s, \quad
        r_{t+1} = \max\bigl(r_t,\ 2 N_t h_t^{1/2} / \|x_0 - z_{t+1}\|_{H_t}\bigr)

    Gradients from when the radius was smaller count less in Q: otherwise a long search would
    shorten all later steps. The radius is D-Adaptation's lower bound on the distance to a minimiser
    in the metric: convexity gives :math:`\langle S_t, x_0 - x^*\rangle \ge N_t` for
    :math:`S_t = \sum_s w_s g_s`, and :math:`S_t \approx H_t (x_0 - z_{t+1}) / h_t` while H grows
    evenly in all coordinates, so that S need not be kept. Once r has not grown by a tenth from step
    T to 2 T + 10 it is settled. Then the array of x0 holds the output: the average of the
    :math:`y_{t+1}` from there on, the k-th with weight :math:`k^2`.

    While the radius is tiny, all gradients are those at x0 but for noise. So the mean of the
    squared cosines between a new gradient and the result of the old ones,

    .. math::
        c_s = \frac{\langle g_s, x_0 - z_s\rangle^2}
        {\|g_s\|^2_{1/H_s} \, \|x_0 - z_s\|^2_{H_s}},

    with the sign of the inner product, is the share of the signal in a gradient, and
    :math:`\rho = c/(1-c)` the ratio of signal to noise. With the exactness
    :math:`e = \rho^2/(\rho^2 + 10^6)`,

    .. math::
        \alpha_t = \max\bigl(1, \min((t+1)/4,\ 10 \rho^{1/3} / (1-e))\bigr),

    and r also grows to :math:`e \, \|x_0 - y_{t+1}\|_{H_t} / h_t^{1/2}`, the distance travelled,
    which noise would inflate (with a set or a term, to at most twice that distance without e).
    Acceleration pays until :math:`t \sim \rho^{1/3}`, when its error :math:`L R^2/t^2` falls below
    that of noise, :math:`\sigma R/t^{1/2}`. No proof is known.

    Parameters
    ----------
    diagonal : bool, default True
        One step size per coordinate. With False Q sums squared norms, and any projection or prox is
        right.
    first_radius : float, optional
        :math:`r_0`, a root mean square if diagonal and else a norm; by default 1e-6 (without
        momentum 1e-4) times one plus that of x0. Better too small than too large.
    rate : float, default 1
        Multiplies all steps.
    momentum : bool, default True
        Measure the share of the signal. With False all weights are 1: AdaGrad with a learnt radius,
        not accelerated.
    project : callable, optional
        The projection onto a set; if diagonal, one that acts on each coordinate separately.
    prox : callable, optional
        ``prox(x, step)``, the proximal operator of a term; the step is an array if diagonal. The
        evidence then uses :math:`(x_t - y_{t+1})/\eta_t` instead of the gradient.

    References
    ----------
    K. Y. Levy, A. Yurtsever, V. Cevher, NeurIPS 2018; the metric: J. Duchi, E. Hazan, Y. Singer,
    JMLR 12, 2011; the distance: A. Defazio, K. Mishchenko (D-Adaptation), ICML 2023; the weights
    of the squares: K. Mishchenko, A. Defazio (Prodigy), ICML 2024.
    """

    diagonal: bool = True
    first_radius: float | None = None
    rate: float = 1.0
    momentum: bool = True
    project: Projection | None = None
    prox: Prox | None = None

    title = "AcceleGrad"
    can = frozenset({"project", "prox"})

    def __post_init__(self) -> None:
        check_radius("first_radius", self.first_radius)
        real_number("rate", self.rate, least=0)

    def init(self, x0: Array) -> UntunedState:
        """Return z_0 = x_0."""
        x0 = as_array(x0)
        sums = inner(0 * x0, 0 * x0)
        count = inner(0 * x0 + 1, 0 * x0 + 1) if self.diagonal else 1.0
        smallest = SMALLEST_SHARE * (1 + (inner(x0, x0) / count) ** 0.5)
        first = smallest * (1.0 if self.momentum else DESCENT_SHARE / SMALLEST_SHARE)
        radius = first if self.first_radius is None else self.first_radius + 0 * smallest
        squares = 0 * x0 if self.diagonal else sums
        return UntunedState(
            0, x0, x0, squares, x0, 0.0, smallest, radius, sums, sums, sums, 0, radius, 0.0
        )

    def weight(self, state: State) -> Any:
        """Return the weight of the next point in the average."""
        return (state.averaged + 1) ** 2

    def acceleration(self, state: State) -> Any:
        """Return alpha_t."""
        clear, paper = clearness(state), importance_weight(state.iteration)
        # The largest weight that pays under noise; without noise it limits nothing.
        most = 10.0 * clear ** (1 / 3) * (1 + clear * clear / (EXACT * EXACT))
        return larger(1.0, where(paper < most, paper, most))

    def update(self, state: UntunedState, gradient: Array) -> UntunedState:
        """Return the state after the gradient g_t at x_t."""
        gradient = as_array(gradient)
        alpha, reach = self.acceleration(state), self.reach(state)
        squares = self.squares(state, gradient, alpha)
        step = adaptive_step(reach, squares)
        z, y = self.moved(state, gradient, alpha, step)
        seen = self.seen(state, gradient, squares, reach, z, y)
        changed = not (self.project is None and self.prox is None)
        learnt = self.learnt(state, seen, alpha * reach, changed=changed)
        following = self.following(learnt, squares, z, y)
        return following._replace(step_size=mean_step(gradient, step * gradient))

    def reach(self, state: UntunedState) -> Any:
        """Return the numerator of the step; its denominator is the root of r_t Q_t."""
        return STEP * self.rate * state.radius**1.5

    def squares(self, state: UntunedState, gradient: Array, alpha: Any) -> Any:
        """Return r_t Q_t."""
        square = gradient * gradient if self.diagonal else inner(gradient, gradient)
        return state.squares + state.radius * alpha * alpha * square

    def moved(
        self, state: UntunedState, gradient: Array, alpha: Any, step: Any
    ) -> tuple[Array, Array]:
        """Return z and y after the step."""
        z = state.mirror_point - alpha * step * gradient
        y = state.query_point - step * gradient
        return self.proximal(z, alpha * step), self.proximal(y, step)

    def following(self, state: UntunedState, squares: Any, z: Array, y: Array) -> UntunedState:
        """Return the state with z, y and the squares of step t."""
        averaged, share = averaging(state)
        following = state._replace(
            iteration=state.iteration + 1,
            mirror_point=z,
            squares=squares,
            anchor=state.anchor + share * (y - state.anchor),
            averaged=averaged,
        )
        tau = 1 / self.acceleration(following)
        return following._replace(query_point=z + (1 - tau) * (y - z))

    def seen(
        self, state: UntunedState, gradient: Array, squares: Any, reach: Any, z: Array, y: Array
    ) -> Seen:
        """Return the sums over coordinates; z and y are those after the step."""
        x0, metric = state.anchor, squares**0.5
        size = inner(metric, 0 * metric + 1) if self.diagonal else metric
        before, after, travelled = x0 - state.mirror_point, x0 - z, x0 - y
        energy = inner(gradient, adaptive_step(1.0, squares) * gradient)
        energy = energy * inner(metric * before, before)
        slope = gradient
        if self.prox is not None:  # the gradient mapping, which includes the term's slope
            slope = metric * (state.query_point - y) * adaptive_step(1.0, reach * reach)
        return Seen(
            size,
            adaptive_step(inner(gradient, before), energy),
            inner(slope, x0 - state.query_point),
            inner(metric * after, after),
            inner(metric * travelled, travelled),
        )

    def learnt(self, state: UntunedState, seen: Seen, moved: Any, *, changed: bool) -> UntunedState:
        """Return the state with what g_t shows of noise and distance, until the radius is settled.

        `moved` is alpha_t times the step's numerator; `changed`: a set or a term changes the steps.
        No array of the state is read.
        """
        searching, t = state.averaged == 0, state.iteration
        # So close to x0 gradients differ only by noise; the first few count for given radii too.
        near = (t > 0) & ((state.radius < NEAR * state.smallest_radius) | (t < PATIENCE))
        comparable, cosine = searching * near, seen.cosine if self.momentum else 0 * seen.cosine
        following = state._replace(
            agreement=state.agreement + comparable * (cosine * abs(cosine)),
            compared=state.compared + comparable * 1.0,
        )
        clear = clearness(following)
        exact = clear * clear / (clear * clear + EXACT * EXACT)
        weight = searching * adaptive_step(moved, seen.size * seen.size)
        evidence = state.evidence + weight * seen.evidence
        suggested = adaptive_step(TRUST * evidence * seen.size**0.5, seen.stretch)
        reached = adaptive_step(seen.travelled**0.5, seen.size)
        if changed:
            # z's path, the denominator, gets shorter: without this limit r would run away.
            suggested = where(suggested < TRUST * reached, suggested, TRUST * reached)
        radius = larger(state.radius, searching * larger(suggested, exact * reached))
        grew = radius > GROWTH * state.grown_from
        return following._replace(
            radius=radius,
            evidence=evidence,
            last_growth=where(grew, t + 1, state.last_growth),
            grown_from=where(grew, radius, state.grown_from),
        )

    def output(self, state: UntunedState) -> Array:
        """Return the average, or x_t while there is none."""
        return where(state.averaged > 0, state.anchor, state.query_point)

    def last(self, state: UntunedState) -> Array:
        """Return x_t."""
        return state.query_point


def averaging(state: UntunedState) -> tuple[Any, Any]:
    """Return the number of points in the average after this step, and the newest one's share.

    There are none before the radius has stopped growing, after leaving x0 (noise can hold it back);
    from then on it stays.
    """
    waited = state.iteration + 1 >= 2 * state.last_growth + PATIENCE
    settled = waited & (state.radius >= NEAR * state.smallest_radius)
    count = state.averaged + where(settled, 1.0, 0.0)
    return count, 6 * count / ((count + 1) * (2 * count + 1))  # k^2 / (1 + 4 + ... + k^2)


def clearness(state: UntunedState) -> Any:
    r"""Return the signal-to-noise ratio :math:`\rho`; zero while nothing is known."""
    noise = larger(state.compared - state.agreement, state.compared / EXACT**3)
    return larger(0.0, state.agreement / (noise + (noise == 0)))
