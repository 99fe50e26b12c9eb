"""Each bound by itself: sets, penalties, duals of models, the estimators' bounds.

A run of `minimize` uses few of them at a time, and hides a small mistake behind the gap that it
leaves. Here each is asked directly, at points where it should be tight.
"""

from __future__ import annotations

import math
import warnings
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import minimize

import accelegrad as ag
from accelegrad.geometry.sets import as_feasible_set
from accelegrad.models import streamed_model
from accelegrad.models.multinomial import MultinomialModel, classes_model
from accelegrad.models.streamed_model import read_rows
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.sklearn.objective import Objective as EstimatorObjective
from accelegrad.solvers.curvature import DirectNewton
from proofs.candidates import Search
from proofs.cases import (
    DIAGONAL_SETS,
    Case,
    Data,
    build_penalty,
    build_set,
    draw_data,
    draw_penalty,
    draw_set,
)
from proofs.checks import FindingError, raised_at, require
from proofs.extended import (
    EPS,
    LONG,
    LONG_EPS,
    LOSSES,
    Classes,
    Known,
    PenaltyFormula,
    Rng,
    SetFormula,
    loss_slopes,
)
from reference.losses import PARAMETER

Vector = Any
UNITS = 256  # of rounding, times the size of the terms: what a bound by itself may be off by


def check(seed: int) -> None:
    """Draw one bound and try it."""
    rng = np.random.default_rng([23, seed])
    part = PARTS[int(rng.choice(len(PARTS), p=SHARES))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            part(rng)
        except FindingError as finding:
            raise FindingError(f"{part.__name__}: {finding.kind}", finding.detail) from None
        except Exception as error:
            raise FindingError(f"{part.__name__}: {raised_at(error)}", str(error)) from error


def _refuse(what: str, bound: float, value: Any, allowed: Any, *where: Any) -> None:
    told = f"{bound!r}, but {float(value)!r} is lower by {float(bound - value):.3g}"
    require(float(bound) <= value + allowed, f"false {what}", f"{told} ({allowed:.3g}) {where}")


# -- sets ------------------------------------------------------------------------------------------


def sets(rng: Rng) -> None:
    """Linear minima over a set, and over its part in a ball."""
    d, scale = int(rng.integers(1, 8)), 10.0 ** rng.uniform(-3, 3)
    formula = draw_set(rng, d, scale)
    chosen: Any = build_set(formula)
    if formula.name.startswith("Only"):
        chosen = as_feasible_set(chosen)
    g = rng.standard_normal(d) * 10.0 ** rng.uniform(-6, 6) * (rng.random(d) < 0.8)
    if rng.random() < 0.3:
        g = _nearly_normal(formula, g, rng)
    center = rng.standard_normal(d) * scale * 10.0 ** rng.uniform(-1, 1)
    if rng.random() < 0.5:
        center = np.asarray(chosen.project(center))
    radius = scale * 10.0 ** (rng.uniform(6, 16) if rng.random() < 0.3 else rng.uniform(-2, 2))
    points = _low_points(formula, g, center, scale, radius, rng)
    tiny = 64 * LONG_EPS * float(abs(g).max()) * scale  # how far off the points themselves may be
    _check_minima(chosen, formula, g, (center, radius), points, tiny)
    diameter = chosen.diameter_for(d)
    far = max(float(LONG.norm(a - b)) for a in points[:6] for b in points[-6:])
    told = f"{formula.name} {diameter}, but two points are {far} apart"
    require(far <= diameter * (1 + 1e-12) + 1e-15 * scale, "diameter too small", told)


def _low_points(
    formula: SetFormula, g: Vector, center: Vector, scale: float, radius: float, rng: Rng
) -> list[Any]:
    """Return points of the set, most of them downhill, as far as the ball reaches and farther."""
    length = float(np.linalg.norm(g)) or 1.0
    starts = [center, *(center + scale * rng.standard_normal((4, center.size)))]
    steps = [*(scale * 10.0 ** np.arange(-2, 12, 2)), radius, 30 * radius]
    points = [formula.nearest(start - step / length * g) for start in starts[:2] for step in steps]
    base = formula.nearest(center)
    for step in (scale, 1e3 * scale):  # and on along the boundary, which may be nearly level
        move = formula.nearest(base - step / length * g) - base
        for _, block in formula.blocks():
            way = np.zeros_like(move)
            way[block] = move[block]
            if LONG.norm(way) > 0:
                points.append(formula.nearest(base + way * (0.9 * radius / LONG.norm(way))))
    return points + [formula.nearest(start) for start in starts]


def _nearly_normal(formula: SetFormula, g: Vector, rng: Rng) -> Vector:
    given = formula.arguments
    if formula.name == "Product":
        return np.concatenate([_nearly_normal(one, g[some], rng) for one, some in formula.blocks()])
    if formula.name == "Halfspace":
        normal = -abs(rng.standard_normal()) * given["normal"]
    elif formula.name == "Polyhedron":
        sign = np.where(np.isfinite(given["upper"]), -1.0, 1.0)
        normal = given["A"].T @ (sign * abs(rng.standard_normal(len(sign))))
    elif formula.name == "Affine":
        normal = given["A"].T @ rng.standard_normal(len(given["A"]))
    else:
        return g
    off = rng.choice([0.0, 10.0 ** rng.uniform(-14, -11)]) * np.linalg.norm(normal)
    return normal + off * rng.standard_normal(g.size)


def _check_minima(
    chosen: Any,
    formula: SetFormula,
    g: Vector,
    ball: tuple[Vector, float],
    points: list[Any],
    tiny: float,
) -> None:
    """Compare linear minima, over the set and over its part in a ball, with the values at points."""
    center, radius = ball
    where = formula.name, formula.arguments, g.tolist(), center.tolist(), radius
    least, length = chosen.linear_minimum(g), float(np.linalg.norm(g))
    # Of flat boundaries nearly normal is normal enough: documented, up to 1e-12.
    flat = any(block.name in ("Halfspace", "Affine", "Polyhedron") for block, _ in formula.blocks())
    units = 4e-12 if flat else UNITS * EPS
    for u in points:
        allowed = units * length * LONG.norm(u) + tiny
        _refuse("linear_minimum", least, g @ u, allowed, where, u.tolist())
    nearest = formula.nearest(center)
    if not radius - LONG.norm(nearest - center) > 1e-9 * radius:
        return
    least = chosen.linear_minimum_in_ball(g, center, radius)
    for u in points:
        if not LONG.norm(u - center) <= radius:
            u = nearest + (u - nearest) * _part(nearest - center, u - nearest, radius)
        if LONG.norm(u - center) <= radius:
            size = length * (LONG.norm(u) + LONG.norm(LONG.array(center)))
            allowed = UNITS * EPS * size + tiny
            _refuse("linear_minimum_in_ball", least, g @ u, allowed, where, u.tolist())


def _part(start: Any, way: Any, radius: float) -> Any:
    """Return how far one can go from a point in a ball around zero: ||start + t way|| = radius."""
    a, b, c = way @ way, start @ way, start @ start - np.longdouble(radius) ** 2
    root = np.sqrt(max(b * b - a * c, np.longdouble(0)))
    t = -c / (b + root) if b > 0 else (root - b) / a
    return t * (1 - np.longdouble(1e-17))


# -- penalties -------------------------------------------------------------------------------------


def penalties(rng: Rng) -> None:
    d = int(rng.integers(1, 9))
    own = ("L1", "ElasticNet", "GroupL2", "NuclearNorm")
    formula = draw_penalty(rng, d, 10.0 ** rng.uniform(-3, 3), own)
    penalty = build_penalty(formula)
    slope = rng.standard_normal(d) * 10.0 ** rng.uniform(-3, 3)
    q, c = penalty.affine_minorant(slope)
    touching = penalty.prox(-slope, 1.0)
    step = 10.0 ** rng.uniform(-2, 2)
    x = rng.standard_normal(d) * 10.0 ** rng.uniform(-2, 2)
    p = penalty.prox(x, step)
    ways = [rng.standard_normal(d) * 10.0**k for k in range(-9, 4)]
    for u in (touching, *(touching + way for way in ways), *ways):
        known = formula.at(LONG.array(u), LONG)
        # a norm's minorant has no constant
        reach = abs(u) if penalty.homogeneous else abs(u) + abs(touching)
        allowed = UNITS * EPS * (known + (abs(q) + abs(slope)) @ reach)
        minorant = float(q @ u) + c
        _refuse("affine_minorant", minorant, known, allowed, formula, slope.tolist(), u.tolist())
        radius, length = penalty.level_radius(float(known)), float(np.linalg.norm(u))
        told = f"{radius} for the level {float(known)}, but {length}: {formula}"
        require(length <= radius * (1 + UNITS * EPS) + 1e-300, "false level_radius", told)

    def at(u: Vector) -> Any:
        return formula.at(LONG.array(u), LONG) + LONG.array(u - x) @ (u - x) / (2 * step)

    lowest, size = at(p), formula.at(LONG.array(p), LONG) + float(x @ x) / step
    for u in (p + 1e-3 * way for way in ways):
        allowed = UNITS * EPS * (size + lowest)
        _refuse("prox", float(lowest), at(u), allowed, formula, x.tolist(), step)


# -- linear models ---------------------------------------------------------------------------------


def _solved(data: Data, rng: Rng, **more: Any) -> tuple[Known, Vector]:
    """Return about the minimum of a model, and where a search found it."""
    seed = int(rng.integers(10**6))
    case = Case(seed, data, np.zeros(data.n_parameters), {"scale": None}, **more)
    known, best = Search(case, math.inf, rng).best()
    return known, best.astype(np.float64)


def duals(rng: Rng) -> None:
    """The dual gap of a linear model at good and bad points, and its dual at slopes."""
    data, _ = draw_data(rng, str(rng.choice(LOSSES)), n=int(rng.integers(1, 81)))
    model = data.model()
    if not model.has_dual_bound:
        return
    known, best = _solved(data, rng)
    size = abs(best).max() or 1.0
    near, far = size * rng.standard_normal((2, best.size))
    for w in (0 * best, best, best + 1e-3 * near, far):
        with np.errstate(all="ignore"):
            bound = model.dual_value(w)
        told = data.keywords, data.X.shape, w.tolist()
        _refuse("dual_value", bound, known.value, _allowed(model, known), *told)
        if model.l2 > 0 and not model.fit_intercept:
            distance, apart = model.distance_bound(w), float(np.linalg.norm(w - best))
            spare = math.sqrt(2 * max(model.dual_gap(best), 0.0) / model.l2)
            spare += 1e-6 * (apart + size)
            told = f"{distance}, but {apart} (to {spare}): {told}"
            require(apart <= distance + spare, "false distance_bound", told)
    formula, spread = data.objective, float(np.std(data.y)) or 1.0
    for smoothing in (1.0, 1e-3):
        margins = formula.rows @ best + 0.1 * rng.standard_normal(data.y.size)
        given = formula.loss, margins, data.y, formula.parameter, smoothing * spread
        bound = model.dual_value_at(loss_slopes(*given) * rng.choice([1.0, 0.9]))
        told = data.keywords, data.X.shape
        _refuse("dual_value_at", bound, known.value, _allowed(model, known), *told)


def _allowed(model: ag.LinearModel, known: Any) -> float:
    """Return what a dual bound may be off by: nothing, for it allows for its rounding.

    Without an l2 term columns that are dependent up to 1e-13 are taken for dependent.
    """
    return 0.0 if model.l2 > 0 else UNITS * EPS * float(known.size)


def multinomials(rng: Rng) -> None:
    """The dual gap of several classes, of rows in memory and in chunks."""
    n, d, k = (int(rng.integers(low, high)) for low, high in ((3, 40), (1, 5), (2, 5)))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    classes = rng.integers(0, k if rng.random() < 0.8 else k - 1, n)
    weights = rng.uniform(size=n) * (rng.random(n) < 0.8) if rng.random() < 0.3 else None
    if weights is not None and not weights.any():
        weights = None
    options: dict[str, Any] = {"l2": 10.0 ** rng.uniform(-4, 1), "sample_weight": weights}
    options["fit_intercept"] = bool(rng.random() < 0.5)
    model = MultinomialModel(X, classes, k, **options)
    parts = np.array_split(np.arange(n), int(rng.integers(1, 4)))
    with mock.patch.object(streamed_model, "BLOCK_ENTRIES", 0):
        rows, _, _ = read_rows([(X[part], classes[part]) for part in parts])
    streamed = classes_model(rows, classes, k, **options)
    start, most = np.zeros(model.n_parameters), {"maxiter": 100}
    solved = minimize(model.value_and_gradient, start, jac=True, method="L-BFGS-B", options=most)
    shares = LONG.array(np.ones(n) if weights is None else weights)
    formula = Classes(X, classes, shares / shares.sum(), k, model.l2)
    lowest = formula.at(LONG.array(np.column_stack(model.split(solved.x)).ravel()), LONG).value
    for x in (solved.x, 0 * solved.x, solved.x + 0.1 * rng.standard_normal(solved.x.size)):
        for kind, known in (("", model), ("streamed ", streamed)):
            bound = MultinomialDual(known).at(x)
            _refuse(f"{kind}multinomial dual", bound, lowest, 0.0, (n, d, k, model.l2))


def estimator_bounds(rng: Rng) -> None:
    """The estimators' own bounds with l1 term and constraints, at the slopes of about the minimum."""
    data, _ = draw_data(rng, str(rng.choice(LOSSES)), n=int(rng.integers(1, 61)))
    d, formula = data.X.shape[1], data.objective
    l1 = 0.0 if rng.random() < 0.3 else float(np.abs(formula.X).mean() * 10.0 ** rng.uniform(-3, 0))
    names = (*DIAGONAL_SETS, *(() if l1 > 0 else ("Ball", "Simplex")))
    own = draw_set(rng, d, data.scale, names) if rng.random() < 0.5 else None
    chosen = None if own is None else build_set(own)
    parameters = {k: v for k, v in data.keywords.items() if k in PARAMETER.values()}
    terms = formula.l2, l1, chosen, formula.fit_intercept
    objective = EstimatorObjective(formula.loss, *terms, parameters)
    problem = objective.on(data.X, data.y, data.keywords.get("sample_weight"))
    bound = ModelDual(problem.model, problem.terms)
    if not bound.terms.gets_tight:
        return
    penalty = PenaltyFormula("L1", {"strength": l1}, d) if l1 > 0 else None
    whole = own
    if own is not None and formula.fit_intercept:
        whole = SetFormula("Product", {"blocks": [(own, d), (SetFormula("WholeSpace", {}), 1)]})
    known, best = _solved(data, rng, chosen=whole, penalty=penalty)
    for share in (1.0, 0.7):
        with np.errstate(all="ignore"):
            found = bound.at_slopes(share * problem.model.at(best).derivatives)
        _refuse("ModelDual.at_slopes", found, known.value, 0.0, data.keywords, l1, own)


def _least_squares(rng: Rng, l2: float | None) -> Data:
    """Draw data of the squared loss, with this l2 term if one is given."""
    data, _ = draw_data(rng, "squared", n=int(rng.integers(8, 81)))
    return data if l2 is None else Data(data.X, data.y, {**data.keywords, "l2": l2})


def signs(rng: Rng) -> None:
    """Least squares where each weight has a sign and nothing else holds it."""
    data = _least_squares(rng, 0.0)
    above, free = rng.random(data.X.shape[1]) < 0.7, [np.inf] * data.objective.fit_intercept
    lower = -np.append(np.where(above, 0.0, np.inf), free)
    upper = np.append(np.where(above, np.inf, 0.0), free)
    own = SetFormula("Box", {"lower": lower, "upper": upper})
    model = data.model()
    bound = ModelDual(model, Terms.of(model, None, build_set(own)))
    if not bound.has_only_signs:
        return
    known, best = _solved(data, rng, chosen=own)
    size = abs(best).max() or 1.0
    for share in (0.0, 1e-9, 1e-3, 0.1):
        w = best + share * size * rng.standard_normal(best.size)
        with np.errstate(all="ignore"):
            at = model.at(w)
            found = max(bound.at(at, best_intercept=False), bound.at_slopes(at.derivatives))
        _refuse("ModelDual.at_slopes", found, known.value, 0.0, data.keywords, data.X.shape)


def direct(rng: Rng) -> None:
    """Least squares by products of columns, whose differences cancel where columns are uneven."""
    data = _least_squares(rng, 0.0 if rng.random() < 0.5 else None)
    d, model = data.X.shape[1], data.model()
    steepest = float(np.abs(model.gradient(np.zeros(model.n_parameters))).max())
    l1 = steepest * 10.0 ** rng.uniform(-3, 0)
    terms = Terms.of(model, ag.L1(l1) if l1 > 0.0 else None)
    if terms is None or not DirectNewton.serves(model, terms):
        return
    penalty = PenaltyFormula("L1", {"strength": l1}, d) if l1 > 0 else None
    known, best = _solved(data, rng, penalty=penalty)
    with np.errstate(all="ignore"):
        found = DirectNewton(model).minimum(terms, best, lambda value: 1e-3 * value)
    if found is not None:
        told = data.keywords, data.X.shape, l1
        _refuse("DirectNewton.minimum", found.bound, known.value, 0.0, *told)


PARTS = (sets, penalties, duals, multinomials, estimator_bounds, signs, direct)
SHARES = (0.24, 0.12, 0.24, 0.11, 0.15, 0.08, 0.06)
