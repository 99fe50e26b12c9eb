"""What a run has proved, in one line; numbers are rounded so that it stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple


class Proof(NamedTuple):
    """What is known of a value at the end of a run.

    Attributes
    ----------
    gap : float
        By how much it can be above the minimum; inf where nothing is proved.
    radius : float
        How far around x0 that holds.
    in_set : bool
        Whether it holds for the points of a set alone.
    scaled : bool
        Whether a finite radius is one in scaled coordinates.
    """

    gap: float
    radius: float
    in_set: bool = False
    scaled: bool = False

    def in_words(self) -> str:
        """Return one line."""
        if not self.gap < math.inf:  # NaN too
            return "nothing"
        if self.gap < 0.0:
            return f"f(x) is below every value{self._where()}, so no minimiser is there"
        where = f"lowest value{self._where()}" if self.radius < math.inf else self._minimum()
        above = f"at most {rounded_up(self.gap)} above " if self.gap > 0.0 else ""
        return f"f(x) is {above}the {where}"

    def _minimum(self) -> str:
        return "minimum over the set" if self.in_set else "minimum"

    def _where(self) -> str:
        places = ["in the set"] if self.in_set else []
        if self.radius < math.inf:
            scaled = " in the scaled coordinates" if self.scaled else ""
            places.append(f"within {rounded_down(self.radius)} of x0{scaled}")
        return "".join(f" {place}" for place in places)


def rounded_up(number: float, digits: int = 2) -> str:
    """Return a number in few digits, not below it."""
    return _rounded(number, Context(digits, ROUND_CEILING))


def rounded_down(number: float, digits: int = 3) -> str:
    """Return a number in few digits, not above it."""
    return _rounded(number, Context(digits, ROUND_FLOOR))


def _rounded(number: float, context: Context) -> str:
    short = context.create_decimal(Decimal(number))
    return f"{float(short):.{context.prec}g}"
