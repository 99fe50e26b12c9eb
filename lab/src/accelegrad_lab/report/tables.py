"""Tables, and performance profiles: how often a solver is within a factor of the best one [1]_.

References
----------
.. [1] Dolan and Moré (2002). Benchmarking optimization software with performance profiles. Math.
   Program. 91.
.. [2] Moré and Wild (2009). Benchmarking derivative-free optimization algorithms. SIAM J. Optim.
   20(1). Its accuracy is relative to what there is to gain: f(x0) - f*.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector


def table_lines(
    head: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: bool = False
) -> Iterator[str]:
    """Go through the lines of a table; `numbers`: all columns but the first are to the right."""
    yield _line(head)
    yield _line(["---", *["---:" if numbers else "---"] * (len(head) - 1)])
    for cells in rows:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells under {len(head)} heads: {cells}")
        yield _line(cells)


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


# -- profiles --------------------------------------------------------------------------------------


Costs = Mapping[str, Mapping[str, float]]
"""By problem and solver: infinite where it failed, missing where it does not take part."""


def ratios(costs: Costs) -> dict[str, dict[str, float]]:
    """Return every cost divided by that of the problem's best solver.

    A problem that no solver solved has infinite ratios only.
    """
    found: dict[str, dict[str, float]] = {}
    for problem, by_solver in costs.items():
        best = min(by_solver.values(), default=math.inf)
        found[problem] = {
            solver: cost / best if math.isfinite(cost) else math.inf
            for solver, cost in by_solver.items()
        }
    return found


class Profile(NamedTuple):
    """A step function: the share of problems solved within a factor of the least cost."""

    factors: Vector  # where it steps up; the first one is 1
    shares: Vector
    problems: int  # those in which the solver takes part

    def share(self, factor: float) -> float:
        """Return the share of problems solved within a factor of the least cost."""
        place = int(np.searchsorted(self.factors, factor, side="right"))
        return float(self.shares[place - 1]) if place else 0.0

    def line(self, until: float) -> tuple[Vector, Vector]:
        """Return the corners of the function as it is drawn, up to a factor."""
        kept = self.factors <= until
        factors, shares = self.factors[kept], self.shares[kept]
        x = np.append(np.repeat(factors, 2)[1:], until)
        return x, np.repeat(shares, 2)


def profile(found: Costs, solver: str) -> Profile:
    """Return a solver's profile over the problems in which it takes part, from their ratios."""
    own = np.array([by[solver] for by in found.values() if solver in by], dtype=np.float64)
    solved = np.sort(own[np.isfinite(own)])
    factors = np.unique(np.append(solved, 1.0))
    shares = np.searchsorted(solved, factors, side="right") / max(own.size, 1)
    return Profile(factors, shares, own.size)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of finite numbers, NaN where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.exp(np.mean(np.log(finite)))) if finite else math.nan
