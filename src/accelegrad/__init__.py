"""Universal, accelerated, tuning-free convex minimisation with a certified gap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; at run time `_HOMES` says where names are
    from accelegrad.bundle.bundle import Bundle as Bundle
    from accelegrad.front_door import minimize as minimize, scipy_method as scipy_method
    from accelegrad.geometry.penalties import (
        L1 as L1,
        ElasticNet as ElasticNet,
        GroupL2 as GroupL2,
        NuclearNorm as NuclearNorm,
    )
    from accelegrad.geometry.polyhedron import Polyhedron as Polyhedron
    from accelegrad.geometry.sets import (
        Affine as Affine,
        Ball as Ball,
        Box as Box,
        Halfspace as Halfspace,
        L1Ball as L1Ball,
        NonNegative as NonNegative,
        Product as Product,
        Simplex as Simplex,
        WholeSpace as WholeSpace,
    )
    from accelegrad.gradient_check import (
        GradientCheck as GradientCheck,
        check_gradient as check_gradient,
    )
    from accelegrad.models.linear_model import LinearModel as LinearModel
    from accelegrad.models.streamed_model import StreamedModel as StreamedModel
    from accelegrad.rules import (
        AcceleGrad as AcceleGrad,
        AdaGrad as AdaGrad,
        ADoG as ADoG,
        DiagonalAcceleGrad as DiagonalAcceleGrad,
        DistanceFreeAcceleGrad as DistanceFreeAcceleGrad,
        DistanceFreeDiagonalAcceleGrad as DistanceFreeDiagonalAcceleGrad,
        DoG as DoG,
        LinearCoupling as LinearCoupling,
        Subgradient as Subgradient,
        UDoG as UDoG,
        UniversalDualGradient as UniversalDualGradient,
        UniversalFastGradient as UniversalFastGradient,
        UniversalGradient as UniversalGradient,
        UniXGrad as UniXGrad,
    )
    from accelegrad.run.checkpoint import CheckpointError as CheckpointError
    from accelegrad.run.result import Status as Status
    from accelegrad.solvers import (
        DualAscent as DualAscent,
        InteriorPoint as InteriorPoint,
        ProximalNewton as ProximalNewton,
        SketchedNewton as SketchedNewton,
    )

__version__ = "0.2.0"

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
__all__ = sorted(_HOME_OF)
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
