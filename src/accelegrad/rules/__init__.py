"""The mathematics: one method a file, with no loop, no I/O and no framework."""

from accelegrad.rules.accelegrad import AcceleGrad, LinearCoupling
from accelegrad.rules.adagrad import AdaGrad, Subgradient
from accelegrad.rules.base import QueryRule, Rule, StepRule
from accelegrad.rules.universal import (
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
)

__all__ = [
    "AcceleGrad",
    "AdaGrad",
    "LinearCoupling",
    "QueryRule",
    "Rule",
    "StepRule",
    "Subgradient",
    "UniversalDualGradient",
    "UniversalFastGradient",
    "UniversalGradient",
]
