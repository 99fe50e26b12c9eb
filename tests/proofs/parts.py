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
from scipy.optimize import OptimizeResult, minimize

import accelegrad as ag
from accelegrad.models import streamed_model
from accelegrad.models.multinomial import MultinomialModel, classes_model
from accelegrad.models.streamed_model import read_rows
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.sklearn.objective import Objective as EstimatorObjective
from accelegrad.solvers.direct import DirectNewton
from proofs.candidates import Objective, Region, Search
from proofs.cases import Case, Data, build_penalty, build_set, draw_data, draw_penalty, draw_set
from proofs.checks import FindingError, raised_at
from proofs.extended import EPS, LONG, LONG_EPS, LOSSES, PenaltyFormula, SetFormula, loss_slopes

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


def _refuse(what: str, bound: float, value: Any, allowed: Any, where: Any) -> None:
    if not float(bound) <= value + allowed:
        raise FindingError(
            f"false {what}",
            f"{bound!r}, but {float(value)!r} is lower by {float(bound - value):.3g} (allowed {float(allowed):.3g}); {where}",
        )


# -- sets ------------------------------------------------------------------------------------------


def sets(rng: np.random.Generator) -> None:
    """Linear minima over a set, and over its part in a ball."""
    d, scale = int(rng.integers(1, 8)), 10.0 ** rng.uniform(-3, 3)
    formula = draw_set(rng, d, scale)
    chosen: Any = build_set(formula)
    if formula.name.startswith("Only"):
        from accelegrad.geometry.sets import as_feasible_set

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
    _check_minima(chosen, formula, g, points, tiny)
    _check_minima_in_ball(chosen, formula, g, center, radius, points, tiny)
    diameter = chosen.diameter_for(d)
    far = max(float(LONG.norm(a - b)) for a in points[:6] for b in points[-6:])
    if not far <= diameter * (1 + 1e-12) + 1e-15 * scale:
        raise FindingError(
            "diameter too small", f"{formula.name} {diameter}, but two points are {far} apart"
        )


def _low_points(
    formula: SetFormula,
    g: Vector,
    center: Vector,
    scale: float,
    radius: float,
    rng: np.random.Generator,
) -> list[Any]:
    """Return points of the set, most of them downhill, as far as the ball reaches and farther."""
    length = float(np.linalg.norm(g)) or 1.0
    starts = [center, *(center + scale * rng.standard_normal((4, center.size)))]
    steps = [*(scale * 10.0 ** np.arange(-2, 12, 2)), radius, 30 * radius]
    points = [formula.nearest(start - step / length * g) for start in starts[:2] for step in steps]
    base = formula.nearest(center)
    for step in (scale, 1e3 * scale):  # and on along the boundary, which may be nearly level
        move = formula.nearest(base - step / length * g) - base
        for block in _blocks(formula):
            way = np.zeros_like(move)
            way[block] = move[block]
            if LONG.norm(way) > 0:
                points.append(formula.nearest(base + way * (0.9 * radius / LONG.norm(way))))
    return points + [formula.nearest(start) for start in starts]


def _blocks(formula: SetFormula) -> list[slice]:
    """Return the coordinates of each block of a product; all of them for other sets."""
    if formula.name != "Product":
        return [slice(None)]
    ends = np.cumsum([size for _, size in formula.arguments["blocks"]]).tolist()
    return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]


def _is_flat(formula: SetFormula) -> bool:
    """Tell whether there are half-spaces or affine sets, for which nearly normal is normal enough."""
    if formula.name == "Product":
        return any(_is_flat(block) for block, _ in formula.arguments["blocks"])
    return formula.name in ("Halfspace", "Affine", "Polyhedron")


def _nearly_normal(formula: SetFormula, g: Vector, rng: np.random.Generator) -> Vector:
    """Return slopes that are level, or very nearly so, on a half-space's boundary or affine set."""
    given = formula.arguments
    if formula.name == "Product":
        blocks, sizes = zip(*given["blocks"], strict=True)
        slopes = np.split(g, np.cumsum(sizes)[:-1])
        pairs = zip(blocks, slopes, strict=True)
        return np.concatenate([_nearly_normal(block, slope, rng) for block, slope in pairs])
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
    chosen: Any, formula: SetFormula, g: Vector, points: list[Any], tiny: float
) -> None:
    least = chosen.linear_minimum(g)
    units = 4e-12 if _is_flat(formula) else UNITS * EPS  # documented: up to 1e-12
    for u in points:
        value, size = g @ u, float(np.linalg.norm(g)) * LONG.norm(u)
        _refuse(
            "linear_minimum",
            least,
            value,
            units * size + tiny,
            (formula.name, formula.arguments, g.tolist(), u.tolist()),
        )


def _check_minima_in_ball(
    chosen: Any,
    formula: SetFormula,
    g: Vector,
    center: Vector,
    radius: float,
    points: list[Any],
    tiny: float,
) -> None:
    nearest = formula.nearest(center)
    room = radius - LONG.norm(nearest - center)
    if not room > 1e-9 * radius:
        return
    least = chosen.linear_minimum_in_ball(g, center, radius)
    for u in points:
        way = u - nearest
        inside = (
            u
            if LONG.norm(u - center) <= radius
            else nearest + way * _part(nearest - center, way, radius)
        )
        if not LONG.norm(inside - center) <= radius:
            continue
        value = g @ inside
        size = float(np.linalg.norm(g)) * (LONG.norm(inside) + LONG.norm(LONG.array(center)))
        _refuse(
            "linear_minimum_in_ball",
            least,
            value,
            UNITS * EPS * size + tiny,
            (formula.name, formula.arguments, g.tolist(), center.tolist(), radius, inside.tolist()),
        )


def _part(start: Any, way: Any, radius: float) -> Any:
    """Return how far one can go from a point in a ball around zero: ||start + t way|| = radius."""
    a, b, c = way @ way, start @ way, start @ start - np.longdouble(radius) ** 2
    root = np.sqrt(max(b * b - a * c, np.longdouble(0)))
    t = -c / (b + root) if b > 0 else (root - b) / a
    return t * (1 - np.longdouble(1e-17))


# -- penalties -------------------------------------------------------------------------------------


def penalties(rng: np.random.Generator) -> None:
    """Affine minorants, level radii and proximal maps."""
    d = int(rng.integers(1, 9))
    formula = draw_penalty(
        rng, d, 10.0 ** rng.uniform(-3, 3), ("L1", "ElasticNet", "GroupL2", "NuclearNorm")
    )
    penalty = build_penalty(formula)
    slope = rng.standard_normal(d) * 10.0 ** rng.uniform(-3, 3)
    q, c = penalty.affine_minorant(slope)
    touching = penalty.prox(-slope, 1.0)
    step = 10.0 ** rng.uniform(-2, 2)
    x = rng.standard_normal(d) * 10.0 ** rng.uniform(-2, 2)
    p = penalty.prox(x, step)
    ways = [rng.standard_normal(d) * 10.0**k for k in range(-9, 4)]
    for u in (touching, *(touching + way for way in ways), *ways):
        known, size = _penalty_at(formula, u)
        reach = (
            abs(u) if penalty.homogeneous else abs(u) + abs(touching)
        )  # a norm's has no constant
        terms = size + (abs(q) + abs(slope)) @ reach
        _refuse(
            "affine_minorant",
            float(q @ u) + c,
            known,
            UNITS * EPS * terms,
            (formula, slope.tolist(), u.tolist()),
        )
        radius, length = penalty.level_radius(float(known)), float(np.linalg.norm(u))
        if not length <= radius * (1 + UNITS * EPS) + 1e-300:
            raise FindingError(
                "false level_radius",
                f"{radius} for the level {float(known)}, but {length}: {formula}",
            )
    at_p, size = _penalty_at(formula, p)
    lowest = at_p + LONG.array(p - x) @ (p - x) / (2 * step)
    for u in (p + 1e-3 * way for way in ways):
        value = _penalty_at(formula, u)[0] + LONG.array(u - x) @ (u - x) / (2 * step)
        _refuse(
            "prox",
            float(lowest),
            value,
            UNITS * EPS * (size + lowest + float(abs(x) @ abs(x)) / step),
            (formula, x.tolist(), step),
        )


def _penalty_at(formula: PenaltyFormula, u: Vector) -> tuple[Any, Any]:
    value = formula.at(LONG.array(u), LONG)
    return value, abs(value)


# -- linear models ---------------------------------------------------------------------------------


def _solved(data: Data, rng: np.random.Generator, **more: Any) -> tuple[Case, Objective, Search]:
    """Return the case of a model and a search that found about its minimum."""
    case = Case(
        int(rng.integers(10**6)), data, np.zeros(data.n_parameters), {"scale": None}, **more
    )
    objective = Objective.of(case)
    search = Search(case, objective, rng)
    search.run(OptimizeResult(), Region(case, math.inf))
    return case, objective, search


def duals(rng: np.random.Generator) -> None:
    """The dual gap of a linear model at good and bad points, and its dual at slopes."""
    data, _ = draw_data(rng, str(rng.choice(LOSSES)), n=int(rng.integers(1, 81)))
    model = data.model()
    if not model.has_dual_bound:
        return
    _, _, search = _solved(data, rng)
    known, best = search.best()
    best64 = best.astype(np.float64)
    size = abs(best64).max() or 1.0
    points = [
        np.zeros_like(best64),
        best64,
        best64 + 1e-3 * size * rng.standard_normal(best64.size),
        size * rng.standard_normal(best64.size),
    ]
    for w in points:
        with np.errstate(all="ignore"):
            bound = model.dual_value(w)
        told = (data.keywords, data.X.shape, w.tolist())
        _refuse("dual_value", bound, known.value, _allowed(model, known), told)
        if model.l2 > 0 and not model.fit_intercept:
            distance, apart = model.distance_bound(w), float(np.linalg.norm(w - best64))
            spare = math.sqrt(2 * max(model.dual_gap(best64), 0.0) / model.l2)
            spare += 1e-6 * (apart + size)
            if not apart <= distance + spare:
                raise FindingError(
                    "false distance_bound",
                    f"{distance}, but {apart} (to {spare}): {data.keywords}, {w.tolist()}",
                )
    _check_slopes(data, model, known, best64, rng)


def _check_slopes(
    data: Data, model: ag.LinearModel, known: Any, best: Vector, rng: np.random.Generator
) -> None:
    formula = data.objective
    margins = formula.X @ best[: formula.X.shape[1]] + (best[-1] if formula.fit_intercept else 0.0)
    spread = float(np.std(formula.y)) or 1.0
    for smoothing in (1.0, 1e-3):
        theta = loss_slopes(
            formula.loss,
            margins + 0.1 * rng.standard_normal(margins.size),
            formula.y,
            formula.parameter,
            smoothing * spread,
        )
        bound = model.dual_value_at(theta * rng.choice([1.0, 0.9]))
        told = (data.keywords, data.X.shape)
        _refuse("dual_value_at", bound, known.value, _allowed(model, known), told)


def _allowed(model: ag.LinearModel, known: Any) -> float:
    """Return what a dual bound may be off by: nothing, for it allows for its rounding.

    Without an l2 term columns that are dependent up to 1e-13 are taken for dependent.
    """
    return 0.0 if model.l2 > 0 else UNITS * EPS * float(known.size)


def multinomials(rng: np.random.Generator) -> None:
    """The dual gap of several classes, of rows in memory and in chunks."""
    n, d, k = (int(rng.integers(low, high)) for low, high in ((3, 40), (1, 5), (2, 5)))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    classes = rng.integers(0, k if rng.random() < 0.8 else k - 1, n)
    weights = rng.uniform(size=n) * (rng.random(n) < 0.8) if rng.random() < 0.3 else None
    if weights is not None and not weights.any():
        weights = None
    options = {
        "l2": 10.0 ** rng.uniform(-4, 1),
        "fit_intercept": bool(rng.random() < 0.5),
        "sample_weight": weights,
    }
    model = MultinomialModel(X, classes, k, **options)
    parts = np.array_split(np.arange(n), int(rng.integers(1, 4)))
    with mock.patch.object(streamed_model, "BLOCK_ENTRIES", 0):
        rows, _, _ = read_rows([(X[part], classes[part]) for part in parts])
    streamed = classes_model(rows, classes, k, **options)
    solved = minimize(
        model.value_and_gradient,
        np.zeros(model.n_parameters),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 100},
    )
    lowest = _in_extended_precision(model, solved.x)
    for x in (
        solved.x,
        np.zeros_like(solved.x),
        solved.x + 0.1 * rng.standard_normal(solved.x.size),
    ):
        for kind, known in (("", model), ("streamed ", streamed)):
            bound = MultinomialDual(known).at(x)
            _refuse(f"{kind}multinomial dual", bound, lowest, 0.0, (n, d, k, model.l2))


def _in_extended_precision(model: MultinomialModel, x: Vector) -> Any:
    """Return the mean logistic loss of several classes, and the l2 term."""
    W, b = model.split(x)
    margins = LONG.array(model.rows.X) @ LONG.array(W).T + LONG.array(b)
    weights = model.rows.sample_weight
    weights = LONG.array(np.ones(model.n_samples) if weights is None else weights)
    largest = margins.max(axis=1)
    totals = largest + np.log(np.exp(margins - largest[:, None]).sum(axis=1))
    losses = totals - margins[np.arange(model.n_samples), model.classes]
    wide = LONG.array(W)
    return (weights @ losses) / weights.sum() + model.l2 * (wide * wide).sum() / 2


def estimator_bounds(rng: np.random.Generator) -> None:
    """The estimators' own bounds with l1 term and constraints, at the slopes of about the minimum."""
    data, _ = draw_data(rng, str(rng.choice(LOSSES)), n=int(rng.integers(1, 61)))
    d, formula = data.X.shape[1], data.objective
    l1 = 0.0 if rng.random() < 0.3 else float(np.abs(formula.X).mean() * 10.0 ** rng.uniform(-3, 0))
    scale = min(
        max(float(np.abs(data.y).max()) / (float(np.abs(formula.X).max()) or 1.0), 1e-8), 1e8
    )
    names = (
        (("Box", "NonNegative") if l1 > 0 else ("Box", "NonNegative", "Ball", "Simplex"))
        if rng.random() < 0.5
        else ()
    )
    own = draw_set(rng, d, scale, names) if names else None
    parameters = {k: v for k, v in data.keywords.items() if k in ("quantile", "epsilon", "delta")}
    objective = EstimatorObjective(
        formula.loss,
        formula.l2,
        l1,
        None if own is None else build_set(own),
        formula.fit_intercept,
        parameters,
    )
    problem = objective.on(data.X, data.y, data.keywords.get("sample_weight"))
    bound = ModelDual(problem.model, problem.terms)
    if not bound.terms.gets_tight:
        return
    penalty = PenaltyFormula("L1", {"strength": l1}, d) if l1 > 0 else None
    whole = own
    if own is not None and formula.fit_intercept:
        whole = SetFormula("Product", {"blocks": [(own, d), (SetFormula("WholeSpace", {}), 1)]})
    _, _, search = _solved(data, rng, chosen=whole, penalty=penalty)
    known, best = search.best()
    best = best.astype(np.float64)
    seen = problem.model.at(best)
    slopes = [seen.derivatives, 0.7 * seen.derivatives]
    for theta in slopes:
        with np.errstate(all="ignore"):
            found = bound.at_slopes(theta)
        _refuse("ModelDual.at_slopes", found, known.value, 0.0, (data.keywords, l1, own))


def signs(rng: np.random.Generator) -> None:
    """Least squares where each weight has a sign and nothing else holds it."""
    drawn, _ = draw_data(rng, "squared", n=int(rng.integers(8, 81)))
    data = Data(drawn.X, drawn.y, {**drawn.keywords, "l2": 0.0})
    d, intercept = data.X.shape[1], data.objective.fit_intercept
    above = rng.random(d) < 0.7
    own = SetFormula(
        "Box",
        {
            "lower": np.append(np.where(above, 0.0, -np.inf), [-np.inf] * intercept),
            "upper": np.append(np.where(above, np.inf, 0.0), [np.inf] * intercept),
        },
    )
    model = data.model()
    bound = ModelDual(model, Terms.of(model, None, build_set(own)))
    if not bound.has_only_signs:
        return
    _, _, search = _solved(data, rng, chosen=own)
    known, best = search.best()
    best64 = best.astype(np.float64)
    size = abs(best64).max() or 1.0
    for share in (0.0, 1e-9, 1e-3, 0.1):
        w = best64 + share * size * rng.standard_normal(best64.size)
        with np.errstate(all="ignore"):
            at = model.at(w)
            found = max(bound.by_balanced(at), bound.at_slopes(at.derivatives))
        _refuse("ModelDual.at_slopes", found, known.value, 0.0, (data.keywords, data.X.shape))


def direct(rng: np.random.Generator) -> None:
    """Least squares by products of columns, whose differences cancel where columns are uneven."""
    drawn, _ = draw_data(rng, "squared", n=int(rng.integers(8, 81)))
    l2 = 0.0 if rng.random() < 0.5 else drawn.objective.l2
    data = Data(drawn.X, drawn.y, {**drawn.keywords, "l2": l2})
    d, model = data.X.shape[1], data.model()
    l1 = float(np.abs(model.gradient(np.zeros(model.n_parameters))).max()) * 10.0 ** rng.uniform(
        -3, 0
    )
    terms = Terms.of(model, ag.L1(l1) if l1 > 0.0 else None)
    if terms is None or not DirectNewton.serves(model, terms):
        return
    penalty = PenaltyFormula("L1", {"strength": l1}, d) if l1 > 0 else None
    _, _, search = _solved(data, rng, penalty=penalty)
    known, best = search.best()
    with np.errstate(all="ignore"):
        found = DirectNewton(model).minimum(
            terms, best.astype(np.float64), lambda value: 1e-3 * value
        )
    if found is not None:
        _refuse(
            "DirectNewton.minimum", found.bound, known.value, 0.0, (data.keywords, data.X.shape, l1)
        )


PARTS = (sets, penalties, duals, multinomials, estimator_bounds, signs, direct)
SHARES = (0.24, 0.12, 0.24, 0.11, 0.15, 0.08, 0.06)
