"""Points that may refute a bound: the lowest ones that a cheap search finds, inside the set and the region.

The search may use anything, the product's own projections too; what counts is the value of a point,
and that it surely is inside, and both are told by `extended`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.optimize import minimize

from accelegrad.models.scaling import ColumnScaling, column_scaling, near_start
from proofs.cases import OF_ROWS, Case, Data, build_penalty, build_set
from proofs.extended import CURVATURES, LONG, Kind, Known, LinearObjective, Rng, loss_slopes
from reference.losses import loss_values, minimiser_by_highs

Vector = Any
#: how far outside a point may be that is to meet an equation, relative to its numbers
INSIDE = 1e-17


class Region:
    """The points for which a result's bound is claimed to hold."""

    def __init__(self, case: Case, radius: float) -> None:
        self.case, self.radius = case, radius
        x0 = case.x0
        if case.chosen is not None:
            x0 = np.asarray(build_set(case.chosen).project(x0.copy()), dtype=np.float64)
        self.centers, self.changes = [x0], [None]
        data = case.data
        if radius == np.inf or data is None:
            return
        if case.stochastic:  # the start may have been moved
            self.centers.append(near_start(data.model(), x0.copy()))
        scale = case.options.get("scale", "auto")
        if scale is None or case.options.get("method") in OF_ROWS:
            return
        if isinstance(scale, str):
            # Columns are not centred where the set limits the intercept.
            self.changes += [
                column_scaling(data.model(), center=center, noisy=case.stochastic)
                for center in ([True] if case.chosen is None else [True, False])
            ]
        else:
            self.changes.append(ColumnScaling(scale))

    def share(self, x: Any) -> Any:
        """Return the largest distance from a centre, in radii."""
        if self.radius == np.inf:
            return np.longdouble(0)
        if not self.radius > 0:
            return np.longdouble(np.inf)
        pairs = itertools.product(self.centers, self.changes)
        return max(LONG.norm(_inverted(change, x - c)) for c, change in pairs) / self.radius

    def pulled(self, x: Any) -> Any:
        """Return the point itself, or one nearer to the first centre that is inside."""
        share = self.share(x)
        if not share > 1:
            return x
        center = self.centers[0].astype(np.longdouble)
        return center + (x - center) / share * (1 - np.longdouble(1e-16))

    def holds(self, x: Any) -> bool:
        """Tell whether a point surely is inside, of the set too."""
        return bool(self.share(x) <= 1 - 1e-17) and inside_set(self.case, x, LONG)


def inside_set(case: Case, x: Any, kind: Kind) -> bool:
    """Tell whether a point lies in the case's set; in equations as nearly as its digits allow."""
    if case.chosen is None:
        return True
    excess = case.chosen.excess(x, kind)
    return bool(excess <= (INSIDE if case.chosen.has_equations else 0))


def _inverted(change: ColumnScaling | None, x: Any) -> Any:
    if change is None:
        return x
    d = change.scale.size
    w = x[:d] / change.scale
    if x.size == d:
        return w
    return np.append(w, x[d] + change.shift @ x[:d])


class Search:
    def __init__(self, case: Case, radius: float, rng: Rng, result: Any = None) -> None:
        self.case, self.rng, self.region = case, rng, Region(case, radius)
        self.set = None if case.chosen is None else build_set(case.chosen)
        self.penalty = None if case.penalty is None else build_penalty(case.penalty)
        self.found: dict[tuple[Any, ...], tuple[Known, Any]] = {}
        self._run(result or {})

    def note(self, x: Any) -> None:
        x = np.asarray(x, dtype=np.longdouble)
        if not np.isfinite(x).all():
            return
        if self.case.chosen is not None:
            x = self.case.chosen.nearest(x)
        if tuple(x) not in self.found:
            self.found[tuple(x)] = (self.case.at(x, LONG), x)

    def best(self) -> tuple[Known, Any]:
        return min(self.found.values(), key=lambda pair: pair[0].value)

    def points(self) -> Iterator[Any]:
        """Yield the lowest points that the region holds, pulled into it where need be."""
        for _, x in sorted(self.found.values(), key=lambda pair: pair[0].value)[:12]:
            inside = self.region.pulled(x)
            if self.region.holds(inside):
                yield inside

    def _run(self, result: Any) -> None:
        case = self.case
        known = [result.get(name) for name in ("x", "x_best", "x_average", "x_last")]
        for x in (*known, case.x0, np.zeros(case.x0.size)):
            if x is not None:
                self.note(x)
        with np.errstate(all="ignore"):
            if case.data is not None:
                self._search_model(case.data)
            else:
                self.note(case.problem.target)
                limited = case.chosen or case.penalty or self.region.radius < np.inf
                if limited or case.problem.slope is not None:  # else the target is the minimiser
                    for start in (self.best()[1].astype(np.float64), case.x0):
                        self.note(self._descend(case.problem, start, 40))
            self._around()

    # -- linear models -----------------------------------------------------------------------------

    def _search_model(self, data: Data) -> None:
        formula = data.objective
        if formula.fit_intercept:
            fit = np.zeros(self.case.x0.size)
            fit[-1] = np.median(data.y)
            self.note(fit)
        free = self.case.chosen is None and self.case.penalty is None
        start = self.best()[1].astype(np.float64)
        if free and self.case.x0.size <= 40:
            self._bfgs(formula, start)
            if CURVATURES[formula.loss] == np.inf and formula.l2 == 0 and len(formula.y) <= 400:
                given = formula.rows, formula.y, formula.shares, formula.parameter
                lowest = minimiser_by_highs(formula.loss, *given)
                if lowest is not None:
                    self.note(lowest)
            return
        for smoothing in _smoothings(formula):
            start = self._descend(lambda x, s=smoothing: _smooth(formula, x, s), start, 60)
            self.note(start)

    def _bfgs(self, formula: LinearObjective, x: Vector) -> None:
        """Minimise a model by SciPy, its kinks smoothed less and less."""
        squares = formula.shares @ formula.rows**2
        units = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))
        options = {"gtol": 1e-14, "maxiter": 200}
        for smoothing in _smoothings(formula):

            def scaled(z: Vector, s: float = smoothing) -> tuple[float, Vector]:
                value, gradient = _smooth(formula, units * z, s)
                return value, units * gradient

            x = units * minimize(scaled, x / units, jac=True, method="BFGS", options=options).x
            self.note(x)

    # -- sets, penalties and users' functions ------------------------------------------------------

    def _descend(
        self, f: Callable[[Vector], tuple[float, Vector]], x: Vector, steps: int
    ) -> Vector:
        """Do some proximal gradient steps, accelerated, with a length that is searched for."""
        x = self._inside(x)
        value, gradient = f(x)
        size = float(np.sqrt(gradient @ gradient))
        if not (size > 0 and np.isfinite(size)):
            return x
        step = 0.1 * (1 + float(np.abs(x).max())) / size
        before, best, lowest = x, x, self._total(value, x)
        for number in range(steps):
            ahead = x + (number % 20) / (number % 20 + 3) * (x - before)
            value, gradient = f(ahead)
            for _ in range(30):
                trial = ahead - step * gradient
                if self.penalty is not None:
                    head = self.case.penalty.size
                    trial = np.append(self.penalty.prox(trial[:head], float(step)), trial[head:])
                trial = self._inside(trial)
                move = trial - ahead
                bound = value + float(gradient @ move) + float(move @ move) / (2 * step)
                after = f(trial)[0]
                if not after > bound + 1e-15 * abs(value):
                    break
                step *= 0.4
            before, x = x, trial
            total = self._total(after, x)
            if total < lowest:
                best, lowest = x, total
            step *= 1.5
        return best

    def _total(self, value: float, x: Vector) -> float:
        if self.penalty is None:
            return value
        return value + float(self.penalty.value(x[: self.case.penalty.size]))

    def _inside(self, x: Vector) -> Vector:
        if self.set is not None:
            x = np.asarray(self.set.project(np.array(x)), dtype=np.float64)
        return self.region.pulled(x).astype(np.float64) if self.region.radius < np.inf else x

    # -- around the best ---------------------------------------------------------------------------

    def _around(self) -> None:
        """Try points around the best one in the region, at many scales."""
        rng = self.rng
        inside = list(self.points())
        if not inside:
            return
        low, x = min(((self.case.at(x, LONG).value, x) for x in inside), key=itemgetter(0))
        size = float(abs(x).max()) or 1.0
        for number in range(24):
            way = rng.standard_normal(x.size) * (rng.random(x.size) < 0.5)
            if number % 4 == 0:
                way = (inside[int(rng.integers(len(inside)))] - x).astype(np.float64)
            elif number % 4 == 1:
                way = way * np.abs(x).astype(np.float64)
            length = np.longdouble(10.0 ** rng.uniform(-14, 0)) * (size if number % 4 > 1 else 1.0)
            trial = x + length * way
            if self.case.chosen is not None:
                trial = self.case.chosen.nearest(trial)
            trial = self.region.pulled(trial)
            known = self.case.at(trial, LONG)
            if known.value < low and self.region.holds(trial):
                low, x = known.value, trial
                self.found[tuple(trial)] = (known, trial)


def _smoothings(formula: LinearObjective) -> list[float]:
    """Return how far kinks are smoothed, less and less; nothing but 0 where there are none."""
    if CURVATURES[formula.loss] < np.inf:
        return [0.0]
    size = max(float(np.abs(formula.y).max()), 1e-300)
    size = max(float(np.std(formula.y)), 1e-9 * size)
    return [size * 10.0**-k for k in (0, 1, 2, 3, 5, 7)]


def _smooth(formula: LinearObjective, x: Vector, smoothing: float) -> tuple[float, Vector]:
    """Return value and gradient in float64, the kinks smoothed: of a loss its Moreau envelope."""
    rows, p, y, ridge = formula.rows, formula.shares, formula.y, formula.ridge * x
    m = rows @ x
    slopes = loss_slopes(formula.loss, m, y, formula.parameter, smoothing)
    if smoothing > 0:
        r = m - y
        if formula.loss == "hinge":
            r = np.where(y * r < 0, r, 0.0)
        if formula.loss == "epsilon_insensitive":
            r = np.sign(r) * np.maximum(abs(r) - formula.parameter, 0)
        losses = slopes * (r - smoothing / 2 * slopes)
    else:
        losses = loss_values(formula.loss, m, y, LONG, formula.parameter)
    return float(p @ losses + ridge @ x / 2), (p * slopes) @ rows + ridge
