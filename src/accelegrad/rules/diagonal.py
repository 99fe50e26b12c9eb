"""AcceleGrad with one step size per coordinate, for variables of very different scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from accelegrad.errors import finite_vector, real_number
from accelegrad.rules.accelegrad import CoupledRule, CoupledState, Moved, first_fields
from accelegrad.rules.arrays import Array, as_array, inner, larger
from accelegrad.rules.base import Evaluated, Oracle, Projection, State, extended_state
from accelegrad.rules.distance import SMALLEST_SHARE, Probing, probed
from accelegrad.rules.distance_free import REACH
from accelegrad.rules.schedules import accelegrad_step

SIGNIFICANT = 3.0  # standard deviations: a sum of gradients this large is not noise alone; chosen


class DiagonalRule(CoupledRule):
    """AcceleGrad's coupling with one step size per coordinate; subclasses choose the widths."""

    def square(self, gradient: Array) -> Array:
        """Return the squares of the gradient's entries, each for its coordinate."""
        return gradient * gradient

    def following(self, state: State, moved: Moved) -> State:
        """Return the state after the steps to z and y; its `step_size` is one number."""
        step = mean_step(moved.gradient, moved.eta * moved.gradient)
        return super().following(state, moved._replace(eta=step))


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

    def init(self, x0: Array) -> CoupledState:
        """Return y_0 = z_0 = x_0."""
        check_shape("diameter", self.diameter, x0)
        x0 = as_array(x0)
        return CoupledState(*first_fields(x0, 0 * x0))

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

    initial_radius: Any = None
    probe: bool | None = None
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
        x0 = as_array(x0)
        zero = 0 * x0
        given = self.initial_radius
        widths = SMALLEST_SHARE * unit(x0) if given is None else given + zero
        state = TravelState(*first_fields(x0, zero), x0, widths, 0.0, zero)
        return state._replace(**widths_and_radius(widths))

    def _probed(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        share, oracle = probed(oracle, state.start, self._search)
        widths = (share or SMALLEST_SHARE) * unit(state.start)
        return state._replace(**widths_and_radius(widths)), oracle

    def _search(self, gradient: Array, start: Evaluated, oracle: Oracle) -> float:
        """Return how far the value falls along the gradient's signs, in units of 1 + |x0_j|.

        Along the gradient itself only the steepest coordinate would move.
        """
        uphill = unit(start.point) * ((gradient > 0) * 1.0 - (gradient < 0) * 1.0)
        length = inner(uphill, uphill) ** 0.5
        fall = self._fall_along(uphill, start, oracle, SMALLEST_SHARE * length)
        return float(fall / (length + (length == 0)))

    def next_step_size(self, state: State, weighted_squares: Any) -> Any:
        """Return eta_t, one number per coordinate."""
        return state.widths * accelegrad_step(1.0, 0.0, weighted_squares)

    def learnt(self, state: State, moved: Moved) -> tuple[Array, dict[str, Any]]:
        """Return z_{t+1}, kept near x_0, and the widths with the evidence for them."""
        x0 = state.start
        total = state.gradient_sum + self.acceleration(state) * moved.gradient
        significant = total * total >= SIGNIFICANT**2 * moved.squares
        widths = larger(state.widths, abs(moved.y - x0) * significant)
        z = -larger(-larger(moved.z, x0 - REACH * widths), -(x0 + REACH * widths))
        return z, {**widths_and_radius(widths), "gradient_sum": total}


def widths_and_radius(widths: Array) -> dict[str, Any]:
    """Return the state's fields for these widths."""
    return {"widths": widths, "radius": inner(widths, widths) ** 0.5}


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
