"""The mathematics of the methods: no loop, no I/O and no framework."""

from accelegrad.rules.accelegrad import AcceleGrad, LinearCoupling
from accelegrad.rules.adagrad import AdaGrad, Subgradient
from accelegrad.rules.base import QueryRule, Rule, StepRule
from accelegrad.rules.diagonal import DiagonalAcceleGrad, DistanceFreeDiagonalAcceleGrad
from accelegrad.rules.distance_free import DistanceFreeAcceleGrad
from accelegrad.rules.dog import ADoG, DoG
from accelegrad.rules.rescaled import Rescaled
from accelegrad.rules.universal import (
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
)
from accelegrad.rules.unixgrad import UDoG, UniXGrad
from accelegrad.rules.untuned import UntunedAcceleGrad

__all__ = [
    "ADoG",
    "AcceleGrad",
    "AdaGrad",
    "DiagonalAcceleGrad",
    "DistanceFreeAcceleGrad",
    "DistanceFreeDiagonalAcceleGrad",
    "DoG",
    "LinearCoupling",
    "QueryRule",
    "Rescaled",
    "Rule",
    "StepRule",
    "Subgradient",
    "UDoG",
    "UniXGrad",
    "UniversalDualGradient",
    "UniversalFastGradient",
    "UniversalGradient",
    "UntunedAcceleGrad",
]
