"""From a user's request to a setting: the rule, bound to its set, and the minimiser's region."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad.catalogue import AUTO, METHODS, RADIUS, Method
from accelegrad.choose import Choice, Request, Space, choose, is_given
from accelegrad.errors import NonFiniteError, Vector, nearest
from accelegrad.geometry.penalties import OnLeading, Penalty, as_penalty
from accelegrad.geometry.sets import (
    Ball,
    Box,
    FeasibleSet,
    WholeSpace,
    as_feasible_set,
)
from accelegrad.linalg import ROUNDED_UP
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.scaling import (
    ColumnScaling,
    can_scale,
    column_scaling,
    limits_intercept,
    near_start,
)
from accelegrad.proofs.cuts import Region
from accelegrad.rules import (
    DiagonalAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    Rescaled,
    Rule,
)
from accelegrad.rules.base import SHORTEST, check_distance

COLUMNS = "columns"
#: The most that rounding may move x0 when it is projected onto its set, relative to 1 + ||x0||.
LARGEST_OFFSET = 1e-9
#: Descriptions of required parameters, for the error message.
_MEANING = {
    "diameter": "the diameter of a ball around x0 that holds a minimiser; or give a bounded "
    "feasible_set, or diameter='auto'",
    "epsilon": "the accuracy wanted, which the universal methods have to know",
    "smoothness": "the Lipschitz constant of the gradient",
    "step_size": "the step's size",
}


class Setting(NamedTuple):
    """The rule bound to its set, the start, and the region taken to contain a minimiser."""

    rule: Rule
    start: Vector
    region: Region | None
    choice: Choice


def resolve(request: Request) -> Setting:
    """Resolve diameter and scaling, build the rule and bind it to set, penalty and probe."""
    model, space, choice = request.model, request.space, choose(request)
    change, proven = None, math.inf
    if model is not None or request.scale_given:
        change = _change(request, choice)
    if model is not None:
        if _may_move(request, choice):
            space = space._replace(start=near_start(model, space.start))
        if not choice.of_rows:  # else the dual gap suffices; this costs two passes
            proven = _proven_radius(space, model)
    inner = space if change is None else space.scaled(change)
    known = proven if change is None else math.inf
    rule, diameter = _rule_and_diameter(request, choice.name, inner, known)
    rule = _bind(rule, inner, diameter, request.project_y, request.exact_values)
    if change is not None:
        rule = Rescaled(rule, change)
    region = _region(space, diameter, proven, rule, change, model)
    return Setting(rule, space.start, region, choice)


def stream_rule(space: Space, diameter: float | str, change: Any) -> Rule:
    """Return the rule for samples that arrive in chunks: AcceleGrad, which tolerates noise."""
    request = Request(parameters={"diameter": diameter})
    space = space if change is None else space.scaled(change)
    rule, number = _rule_and_diameter(request, "accelegrad", space, math.inf, capped=False)
    rule = _bind(rule, space, number, None, values=True)
    return rule if change is None else Rescaled(rule, change)


def _may_move(request: Request, choice: Choice) -> bool:
    """Return whether the start may be moved: with noise a distant start is expensive.

    A given diameter is that of a ball around the given start.
    """
    settled = choice.of_rows or request.diameter_given
    return request.minibatches and not settled and not request.constrained


# -- the space -----------------------------------------------------------------------------------


def checked_space(start: Vector, given: Any, penalty: Any, model: LinearModel | None) -> Space:
    """Return start, set and penalty as objects, or say why they are incompatible."""
    chosen = None if given is None else as_feasible_set(given)
    if chosen is not None:
        chosen.check_dimension(start.size)
        start = _inside(start, chosen)
    space = Space(start, chosen)
    return space if penalty is None else space._replace(penalty=_penalty(penalty, space, model))


def _inside(start: Vector, feasible_set: FeasibleSet) -> Vector:
    nearest_point = feasible_set.project(start)
    distance = float(np.linalg.norm(nearest_point - start))
    if not distance <= LARGEST_OFFSET * (1 + float(np.linalg.norm(start))):
        raise ValueError(
            f"x0 must lie in feasible_set {feasible_set!r}, but it is {distance:.3g} away from it. "
            "feasible_set.project(x0) is the nearest point that does."
        )
    return nearest_point


def _penalty(given: Any, space: Space, model: LinearModel | None) -> Penalty:
    chosen, penalty = space.feasible_set, as_penalty(given)
    if model is not None and model.fit_intercept:
        penalty = OnLeading(penalty, model.n_features, model.n_parameters)
    penalty.check_dimension(space.start.size)
    common = penalty.separable and isinstance(chosen, Box)
    if space.is_limited and not common:
        raise ValueError(
            f"penalty {penalty!r} and feasible_set {chosen!r} cannot be used together: only a "
            "separable penalty (l1, elastic net) and a box have a common proximal map."
        )
    return penalty


def _change(request: Request, choice: Choice) -> ColumnScaling | None:
    scale, model = request.scale, request.model
    _, chosen, penalty = request.space
    if not request.scale_given:
        may_scale = scale is not None and not choice.of_rows
        return _automatic_change(request) if may_scale else None
    if choice.of_rows:
        raise ValueError(f"scale cannot be used with method {choice.name!r}.")
    if model is None:
        raise ValueError("scale needs a LinearModel, whose columns it scales.")
    if not can_scale(penalty, chosen):
        what = "penalty" if not can_scale(penalty, None) else "feasible_set"
        given = penalty if what == "penalty" else chosen
        raise ValueError(
            f"scale and {what} {given!r} cannot be used together: only an l1 norm and a box keep "
            "their form in scaled coordinates."
        )
    if not isinstance(scale, str):
        change = ColumnScaling(scale)
        if change.scale.size != model.n_features:
            raise ValueError(
                f"scale must have one entry per column, {model.n_features}, but it has "
                f"{change.scale.size}."
            )
        return change
    if scale != COLUMNS:
        raise ValueError(f"scale is {scale!r}: {nearest(scale, [AUTO, COLUMNS])}")
    # A constrained intercept must not change, so the columns are not centred.
    return column_scaling(model, center=not limits_intercept(chosen), noisy=request.minibatches)


def _automatic_change(request: Request) -> ColumnScaling | None:
    """Return scaled coordinates, unless an argument refers to the original ones."""
    model = request.model
    if model is None or request.asked_for or request.diameter_given or request.constrained:
        return None
    if request.minibatches and sp.issparse(model.X):
        return None  # in scaled coordinates a step would touch all columns, not only nonzeros
    return column_scaling(model, noisy=request.minibatches)


def _known_distance(space: Space, proven: float) -> float:
    """Return a bound on the distance from the start to a minimiser, inf if none is known."""
    # A start that is a minimiser up to rounding says nothing about the step size.
    bound = proven if proven >= SHORTEST else math.inf
    if space.feasible_set is not None:
        diameter = space.feasible_set.diameter_for(space.start.size)
        bound = min(bound, diameter if diameter >= SHORTEST else math.inf)
    return bound


# -- the rule ------------------------------------------------------------------------------------


def _rule_and_diameter(
    request: Request, name: str, space: Space, proven: float, *, capped: bool = True
) -> tuple[Rule, float | None]:
    """Return the unbound rule, and the diameter, None if it is automatic.

    `capped`: whether the known distance to a minimiser bounds the rule's radius.
    """
    parameters, method = request.parameters, request.method
    if isinstance(method, Rule):
        return method, _diameter_of(method, parameters)
    given: Any = parameters.get("diameter")
    if name == "diagonal" and np.ndim(given) == 1:
        rule = _built(name, parameters, given)
        return rule, _diameter_of(rule, {})
    diameter = _checked_diameter(given)
    rule = _built(name, parameters, diameter)
    automatic = type(rule) is METHODS[name].automatic
    if automatic and capped and "largest_radius" in rule.can:
        bound = _known_distance(space, proven)
        if bound < math.inf:
            rule = rule.with_parameters(largest_radius=bound)
    return rule, diameter


def _checked_diameter(given: Any) -> float | None:
    if isinstance(given, str):
        if given != AUTO:
            raise ValueError(f"diameter must be a positive number or 'auto', not {given!r}.")
        return None
    return None if given is None else check_distance("diameter", given)


def _diameter_of(rule: Rule, parameters: Mapping[str, Any]) -> float | None:
    """Return the diameter of a rule object, and refuse parameters given besides it."""
    given = [name for name, value in parameters.items() if is_given(value)]
    held = getattr(rule, "diameter", None)
    twice = [name for name in given if name != "diameter" or held is not None]
    if twice:
        raise ValueError(f"{twice[0]} belongs to the rule object {rule!r}; do not give it again.")
    if held is None:
        return _checked_diameter(parameters.get("diameter"))
    return float(np.linalg.norm(held))  # of widths, the diameter of the box


def _built(name: str, parameters: Mapping[str, Any], diameter: Any) -> Rule:
    """Return a method's rule; without a diameter, its variant that finds one, if there is one."""
    entry = METHODS[name]
    rule, needs, takes = entry.rule, entry.needs, entry.takes
    if diameter is None and entry.automatic is not None:
        rule, needs, takes = entry.automatic, (), RADIUS
    given = {}
    for parameter, value in {**parameters, "diameter": diameter}.items():
        if value is None:
            continue
        if parameter in needs or parameter in takes:
            given[parameter] = value
        elif parameter in entry.takes:
            raise ValueError(
                f"{parameter} is not a parameter of method {name!r} with diameter='auto'; it goes "
                "with a diameter that is a number."
            )
        elif parameter != "diameter":  # any method accepts one, which gives the certificate
            raise ValueError(f"{parameter} is not a parameter of method {name!r}.")
    for parameter in needs:
        if parameter not in given:
            raise ValueError(f"{parameter} is needed by method {name!r}: {_MEANING[parameter]}.")
    return rule(**given)


def _bind(
    rule: Rule, space: Space, diameter: float | None, project_y: bool | None, values: bool
) -> Rule:
    """Give the rule its projection, prox and probe."""
    start, chosen, penalty = space
    given: Any = rule
    bound: dict[str, Any] = {}
    if "terms" in rule.can:
        return rule
    if penalty is not None:
        _need(rule, "prox", "penalty")
        bound["prox"] = partial(_prox, penalty)
        if "term" in rule.can:
            bound["term"] = penalty.value
    if "probe" in rule.can and given.probe is None:
        bound["probe"] = values
    if space.is_limited:
        _need(rule, "project", "feasible_set")
        _refuse_coupled_set(rule, chosen)
        bound["project"] = chosen.project  # type: ignore[union-attr]
        if "cuts" in rule.can:
            for name in ("lowest_of_cuts", "lowest_of_quadratic"):
                bound[name] = getattr(chosen, name)
    elif (
        chosen is None
        and diameter is not None
        and penalty is None
        and "project" in rule.can
        and given.project is None
        and "probe" not in rule.can
    ):
        bound["project"] = _ball(rule, start, diameter).project
    if project_y is not None:
        if "project_y" not in rule.can:
            raise ValueError(
                "project_y is not a parameter of this method; only one point is projected."
            )
        bound["project_y"] = bool(project_y)
    elif "project_y" in rule.can and given.project is None:
        bound["project_y"] = space.is_limited
    return rule.with_parameters(**bound) if bound else rule


def _prox(penalty: Penalty, x: Vector, step: float) -> Vector:
    """Return the proximal map; a step that has overflowed ends the run."""
    if not math.isfinite(step):
        raise NonFiniteError(f"the step is {step}")
    return penalty.prox(x, step)


def _ball(rule: Rule, start: Vector, diameter: float) -> FeasibleSet:
    """Return K of the paper's unconstrained setting: a ball, or a box for the diagonal rule."""
    if isinstance(rule, DiagonalAcceleGrad):
        rule.init(start)  # refuses widths of another length
        half = np.broadcast_to(rule.diameter, start.shape) / 2
        return Box(start - half, start + half)
    return Ball(start, diameter / 2)


def _refuse_coupled_set(rule: Rule, chosen: FeasibleSet | None) -> None:
    """Refuse a set that couples coordinates if the rule has one step size per coordinate."""
    diagonal = isinstance(rule, (DiagonalAcceleGrad, DistanceFreeDiagonalAcceleGrad))
    if diagonal and not isinstance(chosen, Box):
        raise ValueError(
            f"feasible_set {chosen!r} cannot be used with method 'diagonal': with one step size "
            "per coordinate, only a Box or NonNegative can."
        )


def _need(rule: Rule, ability: str, wish: str) -> None:
    """Refuse a request that the rule cannot meet, or that is already set."""
    if ability not in rule.can:
        able = ", ".join(repr(name) for name in METHODS if _can(METHODS[name], ability))
        raise ValueError(
            f"{wish} cannot be used with {rule.title}, which has no `{ability}`. "
            f"Methods that can: {able}."
        )
    if getattr(rule, ability) is not None:
        raise ValueError(f"{wish} is given, but the rule object has a `{ability}` of its own.")


def _can(method: Method, ability: str) -> bool:
    return any(ability in rule.can for rule in (method.rule, method.automatic) if rule is not None)


# -- the region of a minimiser -------------------------------------------------------------------


def _region(
    given: Space,
    diameter: float | None,
    proven: float,
    rule: Rule,
    change: ColumnScaling | None,
    model: LinearModel | None,
) -> Region | None:
    """Return where a minimiser is known, given or guessed to be; None if nothing is known."""
    start, chosen, penalty = given
    space: FeasibleSet = WholeSpace()
    if chosen is not None:
        space, bound = chosen, chosen.diameter_for(start.size)
        if math.isfinite(bound):
            return Region(space, start, bound, assumed=False, penalty=penalty)
    if diameter is not None:
        return Region(space, start, diameter / 2, assumed=True, penalty=penalty)
    if math.isfinite(proven):
        return Region(space, start, proven, assumed=False, penalty=penalty)
    if "radius" not in rule.can:
        return None
    growing = partial(Region, space, start, 0.0, assumed=True, growing=True, penalty=penalty)
    if change is None:
        return growing()
    assert model is not None
    stretch = _stretch(change, model)
    if penalty is not None:  # errors of its slopes do not depend on the columns
        stretch = max(stretch, ROUNDED_UP * float(change.scale.max()))
    return growing(change=change, stretch=stretch)


def _stretch(change: ColumnScaling, model: LinearModel) -> float:
    """Return by what factor a change of coordinates can increase the error of a gradient.

    The error of an entry is proportional to the norm of its column.
    """
    columns = model.rounding.columns
    scaled = change.scale * (columns + np.abs(change.shift))
    intercept = float(model.fit_intercept)
    size = math.hypot(float(np.linalg.norm(columns)), intercept)
    longest = math.hypot(float(np.linalg.norm(scaled)), intercept)
    # The factor far exceeds the rounding error.
    return 1.01 * longest / size if size > 0.0 else 1.0


def _proven_radius(space: Space, model: LinearModel) -> float:
    """Return the largest distance from the start to a model's minimiser, inf if unknown.

    The minimum is at most the value at the feasible start, and at zero if that is feasible. Losses
    are nonnegative, so l2 term and penalty are at most that large.
    """
    start, chosen, penalty = space
    zero = np.zeros_like(start)
    points = [start]
    if chosen is None or chosen.contains(zero):
        points.append(zero)
    if penalty is None:
        if len(points) == 2:
            return model.distance_bound(start)
        if model.l2 == 0 or model.fit_intercept:
            return math.inf
        return float(model.dual.distance_by_gap(start))
    value = min(model.value(point) + penalty.value(point) for point in points)
    value += model.rounding_at(start, value).value
    radius = penalty.level_radius(value)
    if model.l2 > 0 and not model.fit_intercept and penalty.nonnegative:
        radius = min(radius, math.sqrt(2 * value / model.l2))
    return (radius + float(np.linalg.norm(start))) * ROUNDED_UP
