"""The methods: for each name the rule, what it needs and takes, and how it is built and bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, TypedDict

import numpy as np

from accelegrad import rules
from accelegrad.bundle.bundle import Bundle
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import Ball, Box, FeasibleSet, WholeSpace
from accelegrad.rules import Rule
from accelegrad.rules.base import check_distance
from accelegrad.solvers.dual_ascent import DualAscent
from accelegrad.solvers.interior_point import InteriorPoint
from accelegrad.solvers.newton import SketchedNewton
from accelegrad.solvers.proximal_newton import ProximalNewton

AUTO = "auto"
NEWTON = "accelegrad-newton"
DUAL = "dual-ascent"
PROXIMAL = "proximal-newton"
INTERIOR = "interior-point"
BUNDLE = "bundle"


class MethodOptions(TypedDict, total=False):
    """The parameters of single methods, which `minimize` takes in `options` or as keywords."""

    project_y: bool | None
    bundle_size: int | None
    gradient_bound: float | None
    gradient_scale: float | None
    initial_radius: float | None
    epsilon: float | None
    initial_smoothness: float | None
    max_trials: int | None
    smoothness: float | None
    step_size: float | None
    decay: str | None


class Method(NamedTuple):
    """A rule by name: what it needs, what else it takes, and its variant without a diameter."""

    rule: type[Rule]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    automatic: type[Rule] | None = None


RADIUS = ("initial_radius",)
_SEARCH = ("initial_smoothness", "max_trials")
METHODS = {
    "accelegrad": Method(
        rules.AcceleGrad, ("diameter",), ("gradient_bound",), rules.DistanceFreeAcceleGrad
    ),
    "adagrad": Method(rules.AdaGrad, ("diameter",), (), rules.DoG),
    "unixgrad": Method(rules.UniXGrad, ("diameter",), ("gradient_scale",), rules.UDoG),
    "diagonal": Method(
        rules.DiagonalAcceleGrad,
        ("diameter",),
        ("gradient_bound",),
        rules.DistanceFreeDiagonalAcceleGrad,
    ),
    BUNDLE: Method(Bundle, (), ("bundle_size", *RADIUS)),
    NEWTON: Method(SketchedNewton),
    DUAL: Method(DualAscent),
    PROXIMAL: Method(ProximalNewton),
    INTERIOR: Method(InteriorPoint),
    "u-dog": Method(rules.UDoG, (), RADIUS),
    "a-dog": Method(rules.ADoG, (), RADIUS),
    "dog": Method(rules.DoG, (), RADIUS),
    "universal": Method(rules.UniversalGradient, ("epsilon",), _SEARCH),
    "universal-dual": Method(rules.UniversalDualGradient, ("epsilon",), _SEARCH),
    "universal-fast": Method(rules.UniversalFastGradient, ("epsilon",), _SEARCH),
    "linear-coupling": Method(rules.LinearCoupling, ("smoothness",)),
    "subgradient": Method(rules.Subgradient, ("step_size",), ("decay",)),
}
#: Descriptions of required parameters, for the error message.
_MEANING = {
    "epsilon": "the accuracy wanted, which the universal methods have to know",
    "smoothness": "the Lipschitz constant of the gradient",
    "step_size": "the step's size",
}


class Space(NamedTuple):
    """Start, set and penalty, in the user's or the rule's coordinates."""

    start: Vector
    feasible_set: FeasibleSet | None = None
    penalty: Penalty | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a set other than the whole space."""
        return self.feasible_set is not None and not isinstance(self.feasible_set, WholeSpace)

    def scaled(self, change: Any) -> Space:
        """Return the space in the coordinates v of x = T v."""
        return Space(
            change.invert(self.start),
            change.scaled_set(self.feasible_set, self.start.size),
            change.scaled_penalty(self.penalty),
        )


def is_given(wish: Any) -> bool:
    """Return whether an argument is neither None nor "auto"."""
    return wish is not None and not (isinstance(wish, str) and wish == AUTO)


def built_rule(method: Any, name: str, parameters: Mapping[str, Any]) -> tuple[Rule, float | None]:
    """Return the rule, not bound yet, and the diameter, None if it is automatic.

    `method` is a rule object, or else `name` says which method's rule to build. A method without a
    diameter gets its variant that finds one, if there is one.
    """
    diameter: Any = parameters.get("diameter")
    if isinstance(diameter, str):
        if diameter != AUTO:
            raise ValueError(f"diameter must be a positive number or 'auto', not {diameter!r}.")
        diameter = None
    widths = name == "diagonal" and np.ndim(diameter) == 1
    if diameter is not None and not widths:
        diameter = check_distance("diameter", diameter)
    size = float(np.linalg.norm(diameter)) if widths else diameter  # of widths, that of the box
    if isinstance(method, Rule):
        held = getattr(method, "diameter", None)
        for parameter, value in parameters.items():
            if is_given(value) and (parameter != "diameter" or held is not None):
                raise ValueError(
                    f"{parameter} belongs to the rule object {method!r}; do not give it again."
                )
        return method, size if held is None else float(np.linalg.norm(held))
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
    return rule(**given), size


def bound_rule(
    rule: Rule,
    space: Space,
    diameter: float | None,
    project_y: bool | None = None,
    *,
    values: bool = True,
) -> Rule:
    """Return the rule with its projection, prox and probe.

    Without a set, that is K of the paper's unconstrained setting: the ball with this diameter, or a
    box for the diagonal rule.
    """
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
    if chosen is not None and space.is_limited:
        _need(rule, "project", "feasible_set")
        diagonal = (rules.DiagonalAcceleGrad, rules.DistanceFreeDiagonalAcceleGrad)
        if isinstance(rule, diagonal) and not isinstance(chosen, Box):
            raise ValueError(
                f"feasible_set {chosen!r} cannot be used with method 'diagonal': with one step "
                "size per coordinate, only a Box or NonNegative can."
            )
        bound["project"] = chosen.project
        if "cuts" in rule.can:
            bound["rows"] = chosen.rows_for(start.size)
    elif (
        chosen is None
        and diameter is not None
        and penalty is None
        and "project" in rule.can
        and given.project is None
        and "probe" not in rule.can
    ):
        if isinstance(rule, rules.DiagonalAcceleGrad):
            rule.init(start)  # refuses widths of another length
            half = np.broadcast_to(rule.diameter, start.shape) / 2
            bound["project"] = Box(start - half, start + half).project
        else:
            bound["project"] = Ball(start, diameter / 2).project
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


def _need(rule: Rule, ability: str, wish: str) -> None:
    """Refuse a request that the rule cannot meet, or that is already set."""
    if ability not in rule.can:
        able = ", ".join(
            repr(name)
            for name, method in METHODS.items()
            if ability in method.rule.can | (method.automatic or method.rule).can
        )
        raise ValueError(
            f"{wish} cannot be used with {rule.title}, which has no `{ability}`. "
            f"Methods that can: {able}."
        )
    if getattr(rule, ability) is not None:
        raise ValueError(f"{wish} is given, but the rule object has a `{ability}` of its own.")
