"""Methods for sums over rows, each rule beside the oracle that it works on."""

from accelegrad.rows.dual_ascent import DualAscent
from accelegrad.rows.newton import FinishedByNewton, SketchedNewton
from accelegrad.rows.variance_reduced import VarianceReducedAcceleGrad

__all__ = ["DualAscent", "FinishedByNewton", "SketchedNewton", "VarianceReducedAcceleGrad"]
