"""AcceleGrad with one step size per coordinate, for variables of very different scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from accelegrad.errors import finite_vector, real_number
from accelegrad.rules.accelegrad import CoupledRule, CoupledState, accelegrad_step
from accelegrad.rules.arrays import Array, inner, larger
from accelegrad.rules.base import Evaluated, Oracle, Projection, State, extended_state
from accelegrad.rules.distance import SMALLEST_SHARE, Probing, norm
from accelegrad.rules.distance_free import REACH


class DiagonalRule(CoupledRule):
    """AcceleGrad's coupling with one step size per coordinate; subclasses choose the widths."""

    def square(self, gradient: Array) -> Array:
        """Return the squares of the gradient's entries, each for its coordinate."""
        return gradient * gradient

    def learnt(self, state: State, gradient: Array, moved: State) -> State:  # noqa: ARG002
        """Return `moved` with one number as its `step_size`."""
        return moved._replace(step_size=mean_step(gradient, moved.step_size * gradient))


@dataclass(frozen=True, eq=False)
class DiagonalAcceleGrad(DiagonalRule):
    r"""AcceleGrad with a step for each coordinate.

    As `AcceleGrad`, but coordinate j moves with

    .. math::
        \eta_{t,j} = 2 D_j \,\bigl(G^2 + \textstyle\sum_{s\le t} \alpha_s^2 g_{s,j}^2\bigr)^{-1/2}

    Rescaling a coordinate, and its width inversely, changes nothing. On a separable function it is
    AcceleGrad on each coordinate. The paper has no theorem for it; the regret of the mirror step is
    AdaGrad's, summed over the coordinates.

    Parameters
    ----------
    diameter : float or vector
        D_j, the width in coordinate j of a box that holds x0 and a minimiser; a number is the width
        in every coordinate.
    gradient_bound : float, default 0
        G, a bound on the gradient's entries. Zero is sound for smooth functions.
    project : callable, optional
        The projection onto a **box**, the only sets whose Euclidean projection is also the one in
        the metric of these steps.
    project_y : bool, default False
        As in `AcceleGrad`.

    Notes
    -----
    The state's `step_size` is the single step with the same
    :math:`\langle g_t, x_{t+1} - y_{t+1}\rangle`.

    References
    ----------
    As `AcceleGrad`; the diagonal steps: J. Duchi, E. Hazan, Y. Singer: Adaptive Subgradient
    Methods. JMLR 12, 2011.
    """

    diameter: Any
    gradient_bound: float = 0.0
    project: Projection | None = None
    project_y: bool = False

    title = "diagonal AcceleGrad"
    can = frozenset({"project", "project_y"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "diameter", checked_widths("diameter", self.diameter))
        real_number("gradient_bound", self.gradient_bound, least=0)

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0."""
        check_shape("diameter", self.diameter, x0)
        return super().init(x0)

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:  # noqa: ARG002
        """Return eta_t, one number per coordinate."""
        return self.diameter * accelegrad_step(1.0, self.gradient_bound, weighted_squares)


TravelState = extended_state(
    __name__,
    "TravelState",
    CoupledState,
    "start",  # x_0
    "widths",  # r_{t,j}
    "radius",  # ||r_t||: the box of these half widths is in the ball of this radius
    "gradient_sum",  # S_t = sum of alpha_s g_s
)


@dataclass(frozen=True, eq=False)
class DistanceFreeDiagonalAcceleGrad(Probing, DiagonalRule):
    r"""AcceleGrad with a step for each coordinate and no width to give.

    As `DiagonalAcceleGrad`, with the distance that each coordinate has travelled for its width:

    .. math::
        \eta_{t,j} &= 2 r_{t,j} \,Q_{t,j}^{-1/2}, \qquad
        Q_{t,j} = \textstyle\sum_{s\le t} \alpha_s^2 g_{s,j}^2, \qquad
        S_{t,j} = \textstyle\sum_{s\le t} \alpha_s g_{s,j} \\
        r_{t+1,j} &= \max\bigl(r_{t,j},\ |y_{t+1,j} - x_{0,j}|
        \text{ if } S_{t,j}^2 \ge 9\, Q_{t,j}\bigr)

    and z is clipped to the box of half widths :math:`3 r_{t+1,j}` around x0. The test by S, three
    standard deviations for pure noise, keeps noise from raising the widths for ever. No proof is
    known.

    Parameters
    ----------
    initial_radius : float or vector, optional
        r_0, by default 1e-6 (1 + abs(x0_j)). Too small costs steps, too large ruins a noisy run.
    probe : bool, optional
        Find r_0 from a few values along the signs of the first gradient, as in `DoG`.
    project, project_y
        As in `DiagonalAcceleGrad`; the box must hold x0.

    References
    ----------
    As `DiagonalAcceleGrad`; the distance travelled as in `DoG`.
    """

    project: Projection | None = None
    project_y: bool = False

    title = "diagonal AcceleGrad"
    can = frozenset({"project", "project_y", "radius", "probe"})

    def __post_init__(self) -> None:
        if self.initial_radius is not None:
            checked = checked_widths("initial_radius", self.initial_radius)
            object.__setattr__(self, "initial_radius", checked)

    def init(self, x0: Array) -> State:
        """Return y_0 = z_0 = x_0 and the widths r_0."""
        check_shape("initial_radius", self.initial_radius, x0)
        first, given = super().init(x0), self.initial_radius
        x0, zero = first.query_point, first.weighted_sum
        widths = SMALLEST_SHARE * unit(x0) if given is None else given + zero
        return TravelState(*first, x0, widths, norm(widths), zero)

    def begun(self, state: State, found: float) -> State:
        """Return the first state with the widths that the probe found, in units of 1 + |x0_j|."""
        widths = found * unit(state.start)
        return state._replace(widths=widths, radius=norm(widths))

    def fall(self, uphill: Array, start: Evaluated, oracle: Oracle, *, exact: bool) -> float:  # noqa: ARG002
        """Return how far the value falls along the gradient's signs, in units of 1 + |x0_j|.

        Along the gradient itself only the steepest coordinate would move.
        """
        uphill = unit(start.point) * ((uphill > 0) * 1.0 - (uphill < 0) * 1.0)
        length = norm(uphill)
        fall = self.fall_along(uphill, start, oracle, SMALLEST_SHARE * length)
        return float(fall / (length + (length == 0)))

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:
        """Return eta_t, one number per coordinate."""
        return state.widths * accelegrad_step(1.0, 0.0, weighted_squares)

    def learnt(self, state: State, gradient: Array, moved: State) -> State:
        """Return `moved` with z kept near x_0, and the widths with the evidence for them."""
        x0 = state.start
        total = state.gradient_sum + self.coupling(state)[0] * gradient
        significant = total * total >= 9 * moved.weighted_squares  # three standard deviations
        widths = larger(state.widths, abs(moved.gradient_point - x0) * significant)
        low, high = x0 - REACH * widths, x0 + REACH * widths
        return (
            super()
            .learnt(state, gradient, moved)
            ._replace(
                mirror_point=-larger(-larger(moved.mirror_point, low), -high),
                widths=widths,
                radius=norm(widths),
                gradient_sum=total,
            )
        )


def unit(x0: Array) -> Array:
    """Return 1 + |x0_j|, the sizes of the coordinates when nothing is known."""
    return 1 + abs(x0)


def mean_step(gradient: Array, move: Array) -> Any:
    """Return <g, move> / ||g||^2: the steps' mean, weighted by the squared gradient."""
    square = inner(gradient, gradient)
    return inner(gradient, move) / (square + (square == 0))


def checked_widths(name: str, given: Any) -> Any:
    """Return a positive number or array, after a check."""
    if np.ndim(given) == 0:
        real_number(name, given, above=0)
        return given
    # Nested lists are refused: they are probably a mistake.
    flat = given if isinstance(given, (list, tuple)) else np.ravel(given)
    vector = finite_vector(name, flat, above=0.0)
    if not isinstance(given, (list, tuple, np.ndarray)):
        return given  # an array of the caller's framework, for its formulas
    widths = vector.reshape(np.shape(given))
    widths.setflags(write=False)
    return widths


def check_shape(name: str, widths: Any, x0: Array) -> None:
    """Refuse an array of widths that does not fit x0."""
    if np.ndim(widths) == 0 or np.shape(widths) == np.shape(x0):
        return
    raise ValueError(
        f"{name} must be a number or have x0's shape {np.shape(x0)}, but its shape is "
        f"{np.shape(widths)}."
    )
