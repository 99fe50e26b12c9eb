"""From a user's wishes to a setting: which rule, bound to which set, and where a minimiser is."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad.engines import SUM_RULES, has_curvature, why_dual, why_newton
from accelegrad.errors import NonFiniteError, Vector, nearest
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.penalties import OnLeading, Penalty, as_penalty
from accelegrad.problems.rounding import ROUNDED_UP
from accelegrad.problems.scaling import ColumnScaling, column_scaling, near_start, unevenness
from accelegrad.problems.sets import (
    Ball,
    Box,
    FeasibleSet,
    NonNegative,
    WholeSpace,
    as_feasible_set,
)
from accelegrad.proofs.region import Region
from accelegrad.rows.dual_ascent import DualAscent
from accelegrad.rows.newton import FinishedByNewton
from accelegrad.rows.variance_reduced import VarianceReducedAcceleGrad
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    DoG,
    LinearCoupling,
    Rescaled,
    Rule,
    Subgradient,
    UDoG,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
    UniXGrad,
)
from accelegrad.rules.distance import SHORTEST, check_distance

AUTO = "auto"
NEWTON = "accelegrad-newton"
DUAL = "dual-ascent"
LARGEST_RATIO = 300.0  # of the sizes of columns, with which methods that do not scale do well
COLUMNS = "columns"


class Method(NamedTuple):
    """A rule by name: what it needs, what else it takes, and its form that needs no diameter."""

    rule: Callable[..., Rule]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    automatic: Callable[..., Rule] | None = None


_SEARCH = ("initial_smoothness", "max_trials")
_RADIUS = ("initial_radius",)
METHODS = {
    "accelegrad": Method(AcceleGrad, ("diameter",), ("gradient_bound",), DistanceFreeAcceleGrad),
    "adagrad": Method(AdaGrad, ("diameter",), (), DoG),
    "unixgrad": Method(UniXGrad, ("diameter",), ("gradient_scale",), UDoG),
    "diagonal": Method(
        DiagonalAcceleGrad, ("diameter",), ("gradient_bound",), DistanceFreeDiagonalAcceleGrad
    ),
    "accelegrad-vr": Method(VarianceReducedAcceleGrad, (), _RADIUS),
    NEWTON: Method(FinishedByNewton),
    DUAL: Method(DualAscent),
    "u-dog": Method(UDoG, (), _RADIUS),
    "a-dog": Method(ADoG, (), _RADIUS),
    "dog": Method(DoG, (), _RADIUS),
    "universal": Method(UniversalGradient, ("epsilon",), _SEARCH),
    "universal-dual": Method(UniversalDualGradient, ("epsilon",), _SEARCH),
    "universal-fast": Method(UniversalFastGradient, ("epsilon",), _SEARCH),
    "linear-coupling": Method(LinearCoupling, ("smoothness",)),
    "subgradient": Method(Subgradient, ("step_size",), ("decay",)),
}
_MEANING = {
    "diameter": "the diameter of a ball around x0 that holds a minimiser; or give a bounded "
    "feasible_set, or diameter='auto'",
    "epsilon": "the accuracy wanted, which the universal methods have to be told",
    "smoothness": "the Lipschitz constant of the gradient",
    "step_size": "the step's size",
}


class Wishes(NamedTuple):
    """What the user said about the method and the space, unchecked."""

    method: Any
    parameters: dict[str, Any]
    feasible_set: Any = None
    project_y: bool | None = None
    penalty: Any = None
    scale: Any = None
    stochastic: bool = False  # gradients of a few rows at a time
    restart: Any = None


class Choice(NamedTuple):
    """The name of a method, and why it is that one."""

    name: str
    reason: str
    of_rows: bool = False  # whether it works on the rows of a LinearModel and on nothing else


class Setting(NamedTuple):
    """The rule bound to its set, the start, and where a minimiser is taken to be."""

    rule: Rule
    start: Vector
    feasible_set: FeasibleSet | None
    penalty: Penalty | None
    region: Region | None
    choice: Choice


def resolve(start: Vector, wishes: Wishes, model: LinearModel | None, *, values: bool) -> Setting:
    """Resolve diameter, set, penalty and scaling, build the rule and bind all of it together.

    `values` tells whether values can be compared, for the probe of rules without a diameter.
    """
    chosen = _feasible_set(wishes.feasible_set, start.size)
    if chosen is not None:
        start = _inside(start, chosen)
    penalty = _penalty(wishes.penalty, start.size, model, chosen)
    choice = _choice(wishes, model, chosen, penalty)
    change = _change(wishes, model, chosen, penalty, choice)
    if model is not None and _may_move(wishes, choice, chosen, penalty):
        start = near_start(model, start)
    proven = math.inf
    if not choice.of_rows:  # else the dual gap says it all, and the bound costs two passes
        proven = _proven_radius(start, chosen, penalty, model)
    bound = math.inf if change is not None else _known_distance(start, chosen, proven)
    rule, diameter = _rule_and_diameter(wishes, choice.name, bound)
    inner_start = start if change is None else change.invert(start)
    rule = _bind(rule, inner_start, chosen, diameter, penalty, wishes.project_y, values)
    if change is not None:
        rule = Rescaled(rule, change)
    region = _region(start, chosen, diameter, penalty, proven, rule, model)
    return Setting(rule, start, chosen, penalty, region, choice)


def _may_move(
    wishes: Wishes, choice: Choice, chosen: FeasibleSet | None, penalty: Penalty | None
) -> bool:
    """Tell whether the start may be moved: noise makes its distance dear, and nobody told it."""
    told = choice.of_rows or not _is_automatic(wishes.parameters["diameter"])
    return wishes.stochastic and not told and penalty is None and not constrains(chosen)


# -- the space -----------------------------------------------------------------------------------


def constrains(chosen: FeasibleSet | None) -> bool:
    """Tell whether a set is a constraint, and not the absence of one."""
    return chosen is not None and not isinstance(chosen, WholeSpace)


def _feasible_set(given: Any, size: int) -> FeasibleSet | None:
    if given is None:
        return None
    chosen = as_feasible_set(given)
    chosen.check_dimension(size)
    return chosen


def _inside(start: Vector, feasible_set: FeasibleSet) -> Vector:
    nearest_point = feasible_set.project(start)
    distance = float(np.linalg.norm(nearest_point - start))
    if not distance <= 1e-9 * (1 + float(np.linalg.norm(start))):
        raise ValueError(
            f"x0 must lie in feasible_set {feasible_set!r}, but it is {distance:.3g} away from it. "
            "feasible_set.project(x0) is the nearest point that does."
        )
    return nearest_point


def _penalty(
    given: Any, size: int, model: LinearModel | None, chosen: FeasibleSet | None
) -> Penalty | None:
    if given is None:
        return None
    penalty = as_penalty(given)
    if model is not None and model.fit_intercept:
        penalty = OnLeading(penalty, model.n_features, model.n_parameters)
    penalty.check_dimension(size)
    common = penalty.separable and isinstance(chosen, (Box, NonNegative))
    if constrains(chosen) and not common:
        raise ValueError(
            f"penalty {penalty!r} and feasible_set {chosen!r} cannot be used together: only a "
            "separable penalty (l1, elastic net) and a box have a common proximal map."
        )
    return penalty


def _change(
    wishes: Wishes,
    model: LinearModel | None,
    chosen: FeasibleSet | None,
    penalty: Penalty | None,
    choice: Choice,
) -> ColumnScaling | None:
    """Return the change of coordinates that `scale` asks for."""
    scale = wishes.scale
    if choice.of_rows:
        if scale is not None and not (isinstance(scale, str) and scale == AUTO):
            raise ValueError(f"scale cannot be used with method {choice.name!r}.")
        return None
    free = penalty is None and not constrains(chosen)
    if isinstance(scale, str) and scale == AUTO:
        # Whoever names a method or a diameter means it in the coordinates that he knows.
        automatic = isinstance(wishes.method, str) and wishes.method == AUTO
        told = not _is_automatic(wishes.parameters["diameter"])
        if model is None or not automatic or told or not free:
            return None
        if wishes.stochastic and sp.issparse(model.X):
            return None  # in scaled coordinates a step would cost all columns, not the nonzeros
        return column_scaling(model, noisy=wishes.stochastic)
    if scale is None:
        return None
    if model is None:
        raise ValueError("scale needs a LinearModel, whose columns it scales.")
    if not free:
        what = "penalty" if penalty is not None else "feasible_set"
        raise ValueError(
            f"scale and {what} cannot be used together: the set or term is meant in the "
            "unscaled coordinates."
        )
    if isinstance(scale, str):
        if scale != COLUMNS:
            raise ValueError(f"scale is {scale!r}: {nearest(scale, [AUTO, COLUMNS])}")
        return column_scaling(model, noisy=wishes.stochastic)
    return _own_scaling(scale, model)


def _own_scaling(scale: Any, model: LinearModel) -> ColumnScaling:
    change = ColumnScaling(scale, np.zeros(model.n_features) if model.fit_intercept else None)
    if change.scale.size != model.n_features:
        raise ValueError(
            f"scale must have one entry a column, {model.n_features}, but it has "
            f"{change.scale.size}."
        )
    return change


def _known_distance(start: Vector, chosen: FeasibleSet | None, proven: float) -> float:
    """Return a bound on the distance from the start to a minimiser, inf where none is known."""
    bounds = [proven]
    if chosen is not None:
        bounds.append(chosen.usable_diameter(start.size))
    # A start that is a minimiser, up to rounding, says nothing about the steps' size.
    return min((bound for bound in bounds if bound >= SHORTEST), default=math.inf)


# -- the rule ------------------------------------------------------------------------------------


def _rule_and_diameter(wishes: Wishes, name: str, bound: float) -> tuple[Rule, float | None]:
    """Return the rule, not yet bound to anything, and the diameter, None where it is automatic."""
    parameters, method = wishes.parameters, wishes.method
    if isinstance(method, Rule):
        return method, _diameter_of(method, parameters)
    if name == "diagonal" and np.ndim(parameters["diameter"]) == 1:
        rule = _built(name, METHODS[name], parameters)
        return rule, _diameter_of(rule, {"diameter": None})
    diameter = _checked_diameter(parameters["diameter"])
    entry = METHODS[name]
    if diameter is not None or entry.automatic is None:
        return _built(name, entry, {**parameters, "diameter": diameter}), diameter
    rule = _built_automatic(name, entry, parameters)
    if math.isfinite(bound) and "largest_radius" in _field_names(rule):
        rule = dataclasses.replace(rule, largest_radius=bound)  # type: ignore[type-var]
    return rule, None


def _checked_diameter(given: Any) -> float | None:
    if isinstance(given, str):
        if given != AUTO:
            raise ValueError(f"diameter must be a positive number or 'auto', not {given!r}.")
        return None
    return None if given is None else check_distance("diameter", given)


def _choice(
    wishes: Wishes, model: LinearModel | None, chosen: FeasibleSet | None, penalty: Penalty | None
) -> Choice:
    """Return the method that is asked for, or the one that serves best, with the reason."""
    method = wishes.method
    if isinstance(method, Rule):
        known = [name for name, entry in METHODS.items() if entry.rule is type(method)]
        of_rows = isinstance(method, SUM_RULES)
        name = known[0] if known and of_rows else type(method).__name__
        return Choice(name, "a rule object was given", of_rows)
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a rule object, not {method!r}.")
    if method != AUTO:
        if method not in METHODS:
            raise ValueError(f"method is {method!r}: {nearest(method, [AUTO, *METHODS])}")
        return Choice(method, "it was asked for", METHODS[method].rule in SUM_RULES)
    bent = constrains(chosen) or penalty is not None
    told = not _is_automatic(wishes.parameters["diameter"])
    if bent and told:
        return Choice("unixgrad", "there is a constraint or a penalty, and a diameter is given")
    if bent:
        return Choice("accelegrad", "there is a constraint or a penalty")
    if model is None:
        return Choice("accelegrad", "it is accelerated where the function is smooth, and safe")
    obstacle = "a diameter is given" if told else _obstacle_to_sums(wishes, model)
    return Choice("accelegrad", obstacle) if obstacle else _choice_for_sums(model)


def _choice_for_sums(model: LinearModel) -> Choice:
    smooth = math.isfinite(model.loss.curvature)
    kind = "is smooth" if smooth else "can be smoothed as far as the dual gap allows"
    dual = why_dual(model)
    if dual:
        return Choice(DUAL, dual, of_rows=True)
    return Choice(NEWTON, f"the {model.loss.name} loss {kind}; {why_newton(model)}", of_rows=True)


def _is_automatic(diameter: Any) -> bool:
    return diameter is None or (isinstance(diameter, str) and diameter == AUTO)


def _obstacle_to_sums(wishes: Wishes, model: LinearModel) -> str:
    """Say why a method that works on the rows would not do; empty if it would."""
    own = [name for name, value in wishes.parameters.items() if value is not None]
    if wishes.stochastic:
        return "batch_size asks for plain stochastic steps"
    if wishes.restart is not None or wishes.project_y is not None or own not in ([], ["diameter"]):
        return "it is what the other options are meant for"
    if not (wishes.scale is None or (isinstance(wishes.scale, str) and wishes.scale == AUTO)):
        return "scaled coordinates are asked for"
    if not model.has_dual_bound:
        return "without an l2 term the dual gap need not get tight"
    if wishes.scale is None or has_curvature(model):
        return ""
    ratio = unevenness(model)
    if ratio <= LARGEST_RATIO:
        return ""
    return f"columns differ in size by a factor of {ratio:.2g}, so that coordinates are scaled"


def _diameter_of(rule: Rule, parameters: Mapping[str, Any]) -> float | None:
    """Return the diameter that a rule object holds; its parameters may be given only there."""
    given = [name for name, value in parameters.items() if value is not None and value != AUTO]
    own = getattr(rule, "diameter", None)
    twice = [name for name in given if name != "diameter" or own is not None]
    if twice:
        raise ValueError(f"{twice[0]} belongs to the rule object {rule!r}; do not give it again.")
    if own is None:
        return _checked_diameter(parameters["diameter"])
    return float(np.linalg.norm(own))  # of widths, the diameter of the box


def _built(name: str, entry: Method, parameters: Mapping[str, Any]) -> Rule:
    for parameter in entry.needs:
        if parameters[parameter] is None:
            raise ValueError(f"{parameter} is needed by method {name!r}: {_MEANING[parameter]}.")
    # Any method may be told a diameter: it makes the certificate.
    allowed = {*entry.needs, *entry.takes}
    _refuse_others(name, parameters, allowed | {"diameter"})
    return entry.rule(**{p: parameters[p] for p in allowed if parameters[p] is not None})


def _built_automatic(name: str, entry: Method, parameters: Mapping[str, Any]) -> Rule:
    assert entry.automatic is not None
    for parameter in entry.takes:
        if parameters[parameter] is not None:
            raise ValueError(
                f"{parameter} is not a parameter of method {name!r} with diameter='auto'; it goes "
                "with a diameter that is a number."
            )
    _refuse_others(name, parameters, {"diameter", *_RADIUS})
    radius = parameters["initial_radius"]
    return entry.automatic(**({} if radius is None else {"initial_radius": radius}))


def _refuse_others(name: str, parameters: Mapping[str, Any], allowed: set[str]) -> None:
    for parameter, value in parameters.items():
        if value is not None and parameter not in allowed:
            raise ValueError(f"{parameter} is not a parameter of method {name!r}.")


def _bind(
    rule: Rule,
    start: Vector,
    chosen: FeasibleSet | None,
    diameter: float | None,
    penalty: Penalty | None,
    project_y: bool | None,
    values: bool,
) -> Rule:
    """Give the rule the projection, the prox and the probe that the setting asks for."""
    fields = _field_names(rule)
    bound: dict[str, Any] = {}
    if penalty is not None:
        _need_field(rule, fields, "prox", "penalty")
        bound["prox"] = functools.partial(_prox, penalty)
    if "probe" in fields and getattr(rule, "probe", None) is None:
        bound["probe"] = values
    constrained = constrains(chosen)
    if constrained:
        _need_field(rule, fields, "project", "feasible_set")
        _refuse_bent_set(rule, chosen)
        bound["project"] = chosen.project  # type: ignore[union-attr]
    elif (
        chosen is None
        and diameter is not None
        and penalty is None
        and getattr(rule, "project", True) is None
        and "probe" not in fields
    ):
        bound["project"] = _ball(rule, start, diameter).project
    if project_y is not None:
        if "project_y" not in fields:
            raise ValueError(
                "project_y is not a parameter of this method; only one point is projected."
            )
        bound["project_y"] = bool(project_y)
    elif "project_y" in fields and getattr(rule, "project", None) is None:
        bound["project_y"] = constrained
    return dataclasses.replace(rule, **bound) if bound else rule  # type: ignore[type-var]


def _prox(penalty: Penalty, x: Vector, step: float) -> Vector:
    """Return the proximal map; a step that has overflowed ends the run."""
    if not math.isfinite(step):
        raise NonFiniteError(f"the step is {step}")
    return penalty.prox(x, step)


def _ball(rule: Rule, start: Vector, diameter: float) -> FeasibleSet:
    """Return K of the paper's unconstrained setting; with a step a coordinate it is a box."""
    if isinstance(rule, DiagonalAcceleGrad):
        rule.init(start)  # which refuses widths of another length
        half = np.broadcast_to(rule.diameter, start.shape) / 2
        return Box(start - half, start + half)
    return Ball(start, diameter / 2)


def _refuse_bent_set(rule: Rule, chosen: FeasibleSet | None) -> None:
    """Refuse a set onto which a rule with a step a coordinate cannot project."""
    diagonal = isinstance(rule, (DiagonalAcceleGrad, DistanceFreeDiagonalAcceleGrad))
    if diagonal and not isinstance(chosen, (Box, NonNegative)):
        raise ValueError(
            f"feasible_set {chosen!r} cannot be used with method 'diagonal': with a step a "
            "coordinate only a Box or NonNegative can."
        )


def _need_field(rule: Rule, fields: list[str], field: str, wish: str) -> None:
    """Refuse a wish that the rule has no field for, or one of its own."""
    if field not in fields:
        able = ", ".join(repr(name) for name in METHODS if _has_field(METHODS[name], field))
        raise ValueError(
            f"{wish} cannot be used with {type(rule).__name__}, which has no `{field}`. "
            f"Methods that can: {able}."
        )
    if getattr(rule, field) is not None:
        raise ValueError(f"{wish} is given, but the rule object has a `{field}` of its own.")


def _has_field(method: Method, field: str) -> bool:
    rules = (method.rule, method.automatic)
    return any(field in {f.name for f in dataclasses.fields(r)} for r in rules if r is not None)  # type: ignore[arg-type]


def has_radius(rule: Rule) -> bool:
    """Tell whether a rule finds its radius while it runs."""
    return "initial_radius" in _field_names(rule.rule if isinstance(rule, Rescaled) else rule)


def _field_names(rule: Rule) -> list[str]:
    return [f.name for f in dataclasses.fields(rule)] if dataclasses.is_dataclass(rule) else []


# -- where a minimiser is ------------------------------------------------------------------------


def _region(
    start: Vector,
    chosen: FeasibleSet | None,
    diameter: float | None,
    penalty: Penalty | None,
    proven: float,
    rule: Rule,
    model: LinearModel | None,
) -> Region | None:
    """Return where a minimiser is known, was said or is guessed to be; None if nowhere."""
    space = WholeSpace() if chosen is None else chosen
    bound = space.usable_diameter(start.size)
    if math.isfinite(bound):
        return Region(space, start, bound, assumed=False, penalty=penalty)
    if diameter is not None:
        return Region(space, start, diameter / 2, assumed=True, penalty=penalty)
    if math.isfinite(proven):
        return Region(space, start, proven, assumed=False, penalty=penalty)
    if not has_radius(rule):
        return None
    if not isinstance(rule, Rescaled):
        return Region(space, start, 0.0, assumed=True, growing=True, penalty=penalty)
    assert model is not None
    assert isinstance(rule.change, ColumnScaling)
    stretch = _stretch(rule.change, model)
    return Region(
        space, start, 0.0, assumed=True, growing=True, change=rule.change, stretch=stretch
    )


def _stretch(change: ColumnScaling, model: LinearModel) -> float:
    """Return by what factor a change of coordinates can lengthen the error of a gradient.

    The error of a gradient's entry is in proportion to the norm of its column.
    """
    columns = model.rounding.columns
    scaled = change.scale * columns
    if change.shift is not None:
        scaled = scaled + change.scale * np.abs(change.shift)
    intercept = float(model.fit_intercept)
    size = math.hypot(float(np.linalg.norm(columns)), intercept)
    longest = math.hypot(float(np.linalg.norm(scaled)), intercept)
    return 1.01 * longest / size if size > 0.0 else 1.0


def _proven_radius(
    start: Vector, chosen: FeasibleSet | None, penalty: Penalty | None, model: LinearModel | None
) -> float:
    """Return how far from the start a minimiser of a model can be, infinite where nothing is known.

    The start is feasible, so the minimum is at most the value there; at most that at zero, if zero
    is feasible too. Losses are nonnegative: l2 term and penalty are at most as large.
    """
    if model is None:
        return math.inf
    zero = np.zeros_like(start)
    points = [start]
    if chosen is None or chosen.contains(zero):
        points.append(zero)
    if penalty is None:
        if len(points) == 2:
            return model.distance_bound(start)
        if model.l2 == 0 or model.fit_intercept:
            return math.inf
        return model.dual.distance_by_gap(start)
    value = min(model.value(point) + penalty.value(point) for point in points)
    value += model.rounding_at(start, value).value
    radius = penalty.level_radius(value)
    if model.l2 > 0 and not model.fit_intercept and penalty.nonnegative:
        radius = min(radius, math.sqrt(2 * value / model.l2))
    return (radius + float(np.linalg.norm(start))) * ROUNDED_UP
