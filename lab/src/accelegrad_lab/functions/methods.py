"""The methods of the comparison: ours, SciPy's, adaptive ones of others, and CVXPY.

To add one, add an entry to `METHODS`. It minimises a `Recorder`, which ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.optimize import minimize as typed_minimize

from accelegrad import catalogue
from accelegrad.errors import Vector
from accelegrad.front_door import minimize
from accelegrad.geometry.sets import Box, NonNegative, Simplex
from accelegrad_lab.functions.peers import ac_fgm, ad_gd, uni_fast_sgd
from accelegrad_lab.functions.problem import Function
from accelegrad_lab.functions.recorder import Recorder
from accelegrad_lab.functions.stated import has_cvxpy

CVXPY = "cvxpy"
DENSE = 2000  # coordinates: beyond, SciPy's d x d matrices take minutes, or gigabytes


@dataclass(frozen=True)
class Told:
    """What a method is told beyond the function: more than any user knows."""

    accuracy: float  # f - f* that is wanted: for methods with an epsilon
    distance: float  # from x0 to a minimiser: for methods with a D


@dataclass(frozen=True)
class Method:
    """A method, declared.

    Parameters
    ----------
    shown, variant : str
        Its name in figures: the first decides the colour.
    words : str
        What is called.
    run : callable, optional
        ``run(recorder, told)``; None where it does not work on an oracle (CVXPY).
    against : callable
        ``against(function)`` returns why it cannot take part, or nothing.
    each : bool
        Whether it is run anew for each accuracy, which it is told.
    dash : str
        How it is drawn.
    """

    shown: str
    words: str
    run: Callable[[Recorder, Told], object] | None
    variant: str = ""
    against: Callable[[Function], str] = lambda _function: ""
    each: bool = False
    dash: str = "solid"

    @property
    def label(self) -> str:
        """Its whole name."""
        return f"{self.shown}, {self.variant}" if self.variant else self.shown


# -- ours ------------------------------------------------------------------------------------------


def _ours(name: str, **options: Any) -> Callable[[Recorder, Told], object]:
    def run(recorder: Recorder, told: Told) -> object:  # noqa: ARG001
        function = recorder.function
        return minimize(
            recorder.fun,
            function.x0,
            method=name,
            feasible_set=function.feasible_set,
            penalty=function.penalty,
            max_iter=recorder.max_calls,
            **options,
        )

    return run


def _known(name: str) -> Callable[[Function], str]:
    """Return a test: a method that this version does not have yet is left out."""
    missing = "" if name in catalogue.METHODS else f"there is no method {name!r} yet"
    return lambda _function: missing


# -- SciPy's ---------------------------------------------------------------------------------------


def _scipy(name: str, **options: Any) -> Callable[[Recorder, Told], object]:
    """Return a run of SciPy's; penalties are part of the function, by a subgradient."""

    def run(recorder: Recorder, told: Told) -> object:  # noqa: ARG001
        function = recorder.function
        equations: Any = ()
        if function.equations is not None:
            A, b = function.equations
            equations = LinearConstraint(A, b, b)
        scipy_minimize: Any = typed_minimize  # its stubs allow no plain arrays
        limit = "maxfun" if name == "L-BFGS-B" else "maxiter"
        return scipy_minimize(
            recorder.whole,
            function.x0,
            jac=True,
            method=name,
            bounds=bounds_of(function),
            constraints=equations,
            options={**options, limit: recorder.max_calls},
        )

    return run


def bounds_of(function: Function) -> Bounds | None:
    """Return the bounds that a set puts on single coordinates, None where there are none."""
    chosen = function.feasible_set
    if isinstance(chosen, Box):
        return Bounds(chosen.lower, chosen.upper)
    if isinstance(chosen, (NonNegative, Simplex)):
        return Bounds(np.zeros(function.x0.size), np.full(function.x0.size, math.inf))
    return None


def _free(function: Function) -> str:
    if function.feasible_set is not None:
        return "it takes no set"
    return _small(function)


def _bounds_only(function: Function) -> str:
    bounded = isinstance(function.feasible_set, (Box, NonNegative))
    return "" if function.feasible_set is None or bounded else "it takes bounds alone"


def _linear(function: Function) -> str:
    """Bounds and equations can be told to it."""
    if function.feasible_set is None or function.equations is not None:
        return _small(function)
    return _bounds_only(function) or _small(function)


def _small(function: Function) -> str:
    return "" if function.x0.size <= DENSE else f"more than {DENSE} coordinates"


# -- others' ---------------------------------------------------------------------------------------


def _ac_fgm(recorder: Recorder, told: Told) -> object:
    return ac_fgm(recorder.fun, recorder.function.x0, recorder.prox, told.accuracy)


def _uni_fast_sgd(recorder: Recorder, told: Told) -> object:
    return uni_fast_sgd(recorder.fun, recorder.function.x0, recorder.prox, told.distance)


def _ad_gd(recorder: Recorder, told: Told) -> object:  # noqa: ARG001
    return ad_gd(recorder.fun, recorder.function.x0, recorder.prox)


def _universal_fast(recorder: Recorder, told: Told) -> object:
    """Nesterov's method as this package has it; it takes no penalty, so a subgradient of it."""
    function = recorder.function
    return minimize(
        recorder.whole,
        function.x0,
        method="universal-fast",
        epsilon=told.accuracy,
        feasible_set=function.feasible_set,
        max_iter=recorder.max_calls,
    )


def _nsopy(recorder: Recorder, told: Told) -> object:  # noqa: ARG001
    """Nsopy's subgradient method with its default steps, 1/k; it starts at zero."""
    from nsopy.methods.subgradient import SubgradientMethod

    function = recorder.function

    def oracle(move: Vector) -> tuple[Vector, float, Vector]:
        value, gradient = recorder.whole(function.x0 + move)
        return move, value, gradient

    def project(move: Vector) -> Vector:
        chosen = function.feasible_set
        return move if chosen is None else chosen.project(function.x0 + move) - function.x0

    method = SubgradientMethod(oracle, project, dimension=function.x0.size, sense="min")
    while True:
        method.step()


def _has_nsopy(function: Function) -> str:  # noqa: ARG001
    return "" if find_spec("nsopy") is not None else "nsopy is not installed"


def _has_cvxpy(function: Function) -> str:  # noqa: ARG001
    return "" if has_cvxpy() else "cvxpy or clarabel is not installed"


METHODS: Mapping[str, Method] = {
    "auto": Method("AcceleGrad", "minimize(f, x0)", _ours("auto"), "auto"),
    "accelegrad": Method(
        "AcceleGrad", "minimize(f, x0, method='accelegrad')", _ours("accelegrad"), dash="dash"
    ),
    "accelegrad-restarted": Method(
        "AcceleGrad",
        "minimize(f, x0, method='accelegrad', restart='auto')",
        _ours("accelegrad", restart="auto"),
        "restarts",
        dash="dot",
    ),
    "bundle": Method(
        "Bundle", "minimize(f, x0, method='bundle')", _ours("bundle"), against=_known("bundle")
    ),
    "lbfgs-b": Method(
        "L-BFGS-B",
        "scipy.optimize.minimize",
        _scipy("L-BFGS-B", ftol=0.0, gtol=0.0),
        "SciPy",
        _bounds_only,
    ),
    "bfgs": Method("BFGS", "scipy.optimize.minimize", _scipy("BFGS", gtol=0.0), "SciPy", _free),
    "trust-constr": Method(
        "trust-constr",
        "scipy.optimize.minimize",
        _scipy("trust-constr", gtol=0.0, xtol=0.0, barrier_tol=1e-12),
        "SciPy",
        _linear,
    ),
    "slsqp": Method(
        "SLSQP", "scipy.optimize.minimize", _scipy("SLSQP", ftol=0.0), "SciPy", _linear
    ),
    "nsopy": Method("nsopy", "its SubgradientMethod, steps 1/k", _nsopy, "subgradient", _has_nsopy),
    "ac-fgm": Method(
        "AC-FGM",
        "Li and Lan (2023), alpha = 0.1, told the accuracy, a run for each",
        _ac_fgm,
        each=True,
    ),
    "uni-fast-sgd": Method(
        "UniFastSgd", "Rodomanov et al. (2024), told the distance to a minimiser", _uni_fast_sgd
    ),
    "ad-gd": Method("AdGD", "Malitsky and Mishchenko (2024), the proximal form", _ad_gd),
    "universal-fast": Method(
        "Universal fast",
        "Nesterov (2015), told the accuracy, a run for each",
        _universal_fast,
        each=True,
    ),
    CVXPY: Method(
        "Clarabel", "CVXPY, stating and solving: seconds alone", None, "CVXPY", _has_cvxpy
    ),
}
