"""Methods for sums over rows, each rule next to its oracle."""

from accelegrad.solvers.dual_ascent import DualAscent
from accelegrad.solvers.interior_point import InteriorPoint
from accelegrad.solvers.newton import SketchedNewton
from accelegrad.solvers.proximal_newton import ProximalNewton

__all__ = ["DualAscent", "InteriorPoint", "ProximalNewton", "SketchedNewton"]
