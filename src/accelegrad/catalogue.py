"""The methods: for each name the rule, what it needs and what else it takes."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from accelegrad.bundle.bundle import Bundle
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    DoG,
    LinearCoupling,
    Rule,
    Subgradient,
    UDoG,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
    UniXGrad,
)
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
    "accelegrad": Method(AcceleGrad, ("diameter",), ("gradient_bound",), DistanceFreeAcceleGrad),
    "adagrad": Method(AdaGrad, ("diameter",), (), DoG),
    "unixgrad": Method(UniXGrad, ("diameter",), ("gradient_scale",), UDoG),
    "diagonal": Method(
        DiagonalAcceleGrad, ("diameter",), ("gradient_bound",), DistanceFreeDiagonalAcceleGrad
    ),
    BUNDLE: Method(Bundle, (), ("bundle_size", *RADIUS)),
    NEWTON: Method(SketchedNewton),
    DUAL: Method(DualAscent),
    PROXIMAL: Method(ProximalNewton),
    INTERIOR: Method(InteriorPoint),
    "u-dog": Method(UDoG, (), RADIUS),
    "a-dog": Method(ADoG, (), RADIUS),
    "dog": Method(DoG, (), RADIUS),
    "universal": Method(UniversalGradient, ("epsilon",), _SEARCH),
    "universal-dual": Method(UniversalDualGradient, ("epsilon",), _SEARCH),
    "universal-fast": Method(UniversalFastGradient, ("epsilon",), _SEARCH),
    "linear-coupling": Method(LinearCoupling, ("smoothness",)),
    "subgradient": Method(Subgradient, ("step_size",), ("decay",)),
}
