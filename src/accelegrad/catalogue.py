"""The methods: for each name the rule, and the parameters that it needs and takes."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from accelegrad import rules
from accelegrad.bundle.bundle import Bundle
from accelegrad.rules import Rule
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
MEANING = {
    "epsilon": "the accuracy wanted, which the universal methods have to know",
    "smoothness": "the Lipschitz constant of the gradient",
    "step_size": "the step's size",
}
