"""Universal, accelerated, tuning-free convex minimisation with a certified gap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelegrad.bundle.bundle import Bundle
    from accelegrad.front_door import minimize, scipy_method
    from accelegrad.geometry.penalties import L1, ElasticNet, GroupL2, NuclearNorm
    from accelegrad.geometry.polyhedron import Polyhedron
    from accelegrad.geometry.sets import (
        Affine,
        Ball,
        Box,
        Halfspace,
        L1Ball,
        NonNegative,
        Product,
        Simplex,
        WholeSpace,
    )
    from accelegrad.gradient_check import GradientCheck, check_gradient
    from accelegrad.models.linear_model import LinearModel
    from accelegrad.models.streamed_model import StreamedModel
    from accelegrad.rules import (
        AcceleGrad,
        AdaGrad,
        ADoG,
        DiagonalAcceleGrad,
        DistanceFreeAcceleGrad,
        DistanceFreeDiagonalAcceleGrad,
        DoG,
        LinearCoupling,
        Subgradient,
        UDoG,
        UniversalDualGradient,
        UniversalFastGradient,
        UniversalGradient,
        UniXGrad,
    )
    from accelegrad.run.checkpoint import CheckpointError
    from accelegrad.run.result import Status
    from accelegrad.solvers import (
        DualAscent,
        InteriorPoint,
        ProximalNewton,
        SketchedNewton,
    )

__version__ = "0.2.0"

__all__ = [
    "L1",
    "ADoG",
    "AcceleGrad",
    "AdaGrad",
    "Affine",
    "Ball",
    "Box",
    "Bundle",
    "CheckpointError",
    "DiagonalAcceleGrad",
    "DistanceFreeAcceleGrad",
    "DistanceFreeDiagonalAcceleGrad",
    "DoG",
    "DualAscent",
    "ElasticNet",
    "GradientCheck",
    "GroupL2",
    "Halfspace",
    "InteriorPoint",
    "L1Ball",
    "LinearCoupling",
    "LinearModel",
    "NonNegative",
    "NuclearNorm",
    "Polyhedron",
    "Product",
    "ProximalNewton",
    "Simplex",
    "SketchedNewton",
    "Status",
    "StreamedModel",
    "Subgradient",
    "UDoG",
    "UniXGrad",
    "UniversalDualGradient",
    "UniversalFastGradient",
    "UniversalGradient",
    "WholeSpace",
    "check_gradient",
    "minimize",
    "scipy_method",
]

# Importing the package loads nothing else: names are resolved on first use.
_HOMES = {
    "accelegrad.bundle.bundle": "Bundle",
    "accelegrad.front_door": "minimize scipy_method",
    "accelegrad.gradient_check": "GradientCheck check_gradient",
    # Imported with the proofs of bounds of their minima.
    "accelegrad.proofs": "LinearModel StreamedModel",
    "accelegrad.geometry.penalties": "L1 ElasticNet GroupL2 NuclearNorm",
    "accelegrad.geometry.polyhedron": "Polyhedron",
    "accelegrad.geometry.sets": (
        "Affine Ball Box Halfspace L1Ball NonNegative Product Simplex WholeSpace"
    ),
    "accelegrad.solvers": "DualAscent InteriorPoint ProximalNewton SketchedNewton",
    "accelegrad.rules": (
        "AcceleGrad AdaGrad ADoG DiagonalAcceleGrad DistanceFreeAcceleGrad "
        "DistanceFreeDiagonalAcceleGrad DoG LinearCoupling Subgradient UDoG "
        "UniversalDualGradient UniversalFastGradient UniversalGradient UniXGrad"
    ),
    "accelegrad.run.checkpoint": "CheckpointError",
    "accelegrad.run.result": "Status",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_ROOMS = ("bundle", "geometry", "kernels", "models", "proofs", "rules", "run", "solvers")

if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Return a public name or subpackage, loaded on first use."""
        if name in _ROOMS:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
        return found

    def __dir__() -> list[str]:
        """Return all public names, loaded or not."""
        return sorted({*globals(), *__all__})
