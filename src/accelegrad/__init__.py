"""Universal, accelerated, tuning-free convex minimisation with a certified gap."""

from accelegrad.minimize import minimize, scipy_method
from accelegrad.problems.linear_model import LinearModel
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
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    LinearCoupling,
    Subgradient,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
)
from accelegrad.solve.checkpoint import CheckpointError
from accelegrad.solve.result import Status

__version__ = "0.1.0"

__all__ = [
    "AcceleGrad",
    "AdaGrad",
    "Affine",
    "Ball",
    "Box",
    "CheckpointError",
    "Halfspace",
    "L1Ball",
    "LinearCoupling",
    "LinearModel",
    "NonNegative",
    "Product",
    "Simplex",
    "Status",
    "Subgradient",
    "UniversalDualGradient",
    "UniversalFastGradient",
    "UniversalGradient",
    "WholeSpace",
    "minimize",
    "scipy_method",
]
