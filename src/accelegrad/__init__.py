"""Universal, accelerated, tuning-free convex minimisation with a certified gap."""

from accelegrad.gradient_check import GradientCheck, check_gradient
from accelegrad.minimize import minimize, scipy_method
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.penalties import L1, ElasticNet, GroupL2, NuclearNorm
from accelegrad.problems.polyhedron import Polyhedron
from accelegrad.problems.sets import (
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
from accelegrad.problems.streamed_model import StreamedModel
from accelegrad.rows import DualAscent, FinishedByNewton, SketchedNewton, VarianceReducedAcceleGrad
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

__version__ = "0.2.0"

__all__ = [
    "L1",
    "ADoG",
    "AcceleGrad",
    "AdaGrad",
    "Affine",
    "Ball",
    "Box",
    "CheckpointError",
    "DiagonalAcceleGrad",
    "DistanceFreeAcceleGrad",
    "DistanceFreeDiagonalAcceleGrad",
    "DoG",
    "DualAscent",
    "ElasticNet",
    "FinishedByNewton",
    "GradientCheck",
    "GroupL2",
    "Halfspace",
    "L1Ball",
    "LinearCoupling",
    "LinearModel",
    "NonNegative",
    "NuclearNorm",
    "Polyhedron",
    "Product",
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
    "VarianceReducedAcceleGrad",
    "WholeSpace",
    "check_gradient",
    "minimize",
    "scipy_method",
]
