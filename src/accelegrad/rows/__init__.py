"""Methods for sums over rows, each rule next to the oracle that it works on."""

from accelegrad.rows.dual_ascent import DualAscent
from accelegrad.rows.interior_point import InteriorPoint
from accelegrad.rows.newton import FinishedByNewton, SketchedNewton
from accelegrad.rows.proximal_newton import ProximalNewton
from accelegrad.rows.variance_reduced import VarianceReducedAcceleGrad

__all__ = [
    "DualAscent",
    "FinishedByNewton",
    "InteriorPoint",
    "ProximalNewton",
    "SketchedNewton",
    "VarianceReducedAcceleGrad",
]
