"""Random small fits of the estimators: their claims, in extended precision.

Data come from `cases.draw_data`, and points that might refute a bound from `candidates.Search`: each
fit is one minimisation, or one per class. `check(seed)` raises a FindingError unless all of this holds:

- `objective_` is the documented objective at the coefficients, up to the rounding of float64;
- no point that is found is below `objective_ - gap_`;
- the coefficients are in the set;
- `converged_` says whether `gap_` is within `tol`, and a miss is told by a ConvergenceWarning,
  unless early stopping asked for an earlier end;
- there is no exception, and no other warning.

The formulas are those of docs/estimators.md, written anew.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

import accelegrad as ag
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from accelegrad.solvers.curvature import ACCURATE
from proofs.candidates import Search
from proofs.cases import Case, Data, draw_data
from proofs.certificates import objection
from proofs.checks import FindingError, long_slack, raised_at, require, value_rounding
from proofs.extended import EPS, LONG, Classes, PenaltyFormula, Rng, SetFormula
from reference.losses import OTHER_NAMES, PARAMETER, loss_values

FLOOR = 1e-3  # of what a constant prediction gets: docs/estimators.md, "The tolerance"
CLASSIFICATION = ("log_loss", "hinge", "squared_hinge", "modified_huber")
REGRESSION = ("squared_error", "absolute_error", "huber", "quantile")
REGRESSION += ("epsilon_insensitive", "squared_epsilon_insensitive")
PIECEWISE_LINEAR = ("hinge", "absolute_error", "quantile", "epsilon_insensitive")
SETS = ("nonnegative", "simplex", "Box", "L1Ball", "Ball")


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimator, its data, and how it is fed."""

    estimator: Any
    X: Any
    y: Any
    weights: Any
    feeding: str  # "fit", "twice" (warm start), "stream"

    @property
    def classifies(self) -> bool:
        return hasattr(self.estimator, "class_weight")


def check(seed: int) -> None:
    """Draw the fit of a seed, run it, and raise a FindingError if a claim of its is wrong."""
    fit = draw(seed)
    try:
        judge(fit, run(fit), seed)
    except Exception as error:
        kind = error.kind if isinstance(error, FindingError) else raised_at(error)
        told = f"{error}\nseed {seed}: {fit.estimator!r}\non {type(fit.X).__name__} {fit.X.shape}"
        raise FindingError(kind, f"{told} {fit.X.dtype}, {fit.feeding}") from error


# -- drawing ---------------------------------------------------------------------------------------


def draw(seed: int) -> Fit:
    rng = np.random.default_rng([31, seed])
    classifies = bool(rng.random() < 0.55)
    loss = str(rng.choice(CLASSIFICATION if classifies else REGRESSION))
    data, _ = draw_data(rng, OTHER_NAMES.get(loss, loss), n=int(rng.integers(2, 45)))
    y = data.y
    if classifies:  # of two to four classes
        scores = data.dense @ rng.standard_normal(data.X.shape[1])
        scores = scores + 0.3 * rng.standard_normal(y.size)
        count = int(rng.integers(2, 5)) if rng.random() < 0.7 else 2
        y = np.searchsorted(np.quantile(scores, np.arange(1, count) / count), scores)
        y = np.arange(y.size) % 2 if np.unique(y).size < 2 else y
        y = np.array(["a", "b", "c", "d"])[y] if rng.random() < 0.3 else y
    weights = data.keywords.get("sample_weight")
    if weights is not None:
        weights = weights.copy()
        weights[np.unique(y, return_index=True)[1] if classifies else [0]] = weights.max()
    rows = y if weights is None else y[weights > 0]
    found, counts = np.unique(rows, return_counts=True)
    fewest = int(counts.min()) if classifies else found.size
    options = draw_options(rng, loss, data.X.shape[1], np.unique(y).size if classifies else 0)
    feeding = str(rng.choice(["fit", "twice", "stream"], p=[0.8, 0.1, 0.1]))
    if feeding == "stream":
        options.pop("batch_size", None)
    if feeding == "twice":
        options["warm_start"] = True
    if feeding != "stream" and fewest >= 12 and rng.random() < 0.2:
        options |= {"early_stopping": True, "validation_fraction": 0.4}
    if feeding == "fit" and fewest >= 4 and rng.random() < 0.05:
        options |= {"alphas": [options.pop("alpha"), 0.1], "cv": 2}
        kind = AcceleGradClassifierCV if classifies else AcceleGradRegressorCV
    else:
        kind = AcceleGradClassifier if classifies else AcceleGradRegressor
    return Fit(kind(**options), data.X, y, weights, feeding)


def draw_options(rng: Rng, loss: str, d: int, n_classes: int) -> dict[str, Any]:
    name = str(rng.choice(SETS)) if rng.random() < 0.35 else None
    penalty = [None, "l2", "l1", "elasticnet"][int(rng.choice(4, p=[0.15, 0.45, 0.25, 0.15]))]
    if name not in (None, "nonnegative", "Box") and penalty in ("l1", "elasticnet"):
        penalty = "l2"
    lower, radius = rng.uniform(-1, 0.2, d), float(rng.choice([0.1, 3.0]))
    box = ag.Box(lower, lower + rng.choice([0.0, 0.5, np.inf], d))
    sets = {"Box": box, "L1Ball": ag.L1Ball(radius), "Ball": ag.Ball(0.0, radius)}
    options: dict[str, Any] = {
        "loss": loss,
        "penalty": penalty,
        "alpha": float(rng.choice([0.0, 10.0 ** rng.uniform(-8, 1)], p=[0.05, 0.95])),
        "l1_ratio": float(rng.choice([0.0, 0.3, 1.0])),
        "fit_intercept": bool(rng.random() < 0.7),
        "tol": [None, 1e-1, 1e-2, 1e-3, 1e-6, 1e-9][int(rng.integers(6))],
        "max_iter": int(rng.choice([1, 7, 40, 150, 400])),
        "average": ["auto", True, False][int(rng.choice(3, p=[0.8, 0.1, 0.1]))],
        "random_state": int(rng.integers(100)),
        "feasible_set": sets.get(name, name),
    }
    if n_classes:
        options["class_weight"] = "balanced" if rng.random() < 0.2 else None
        if loss == "log_loss":
            options["multi_class"] = str(rng.choice(["auto", "ovr"]))
    else:
        options["target_scale"] = ["auto", 1.0, 0.3][int(rng.choice(3, p=[0.7, 0.2, 0.1]))]
        options |= {"quantile": float(rng.choice([0.05, 0.5, 0.9]))}
        options |= {"epsilon": float(rng.choice([0.0, 0.1, 1.0]))}
        options |= {"delta": float(rng.choice([0.01, 1.35]))}
    if rng.random() < 0.08 and not (n_classes > 2 and options.get("multi_class") == "auto"):
        options["batch_size"] = int(rng.integers(1, 9))
    return options


def run(fit: Fit) -> list[str]:
    """Fit, and return the convergence warnings of the last fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if fit.feeding == "stream":
            arrays = (fit.X, fit.y) if fit.weights is None else (fit.X, fit.y, fit.weights)
            half = (len(fit.y) + 1) // 2
            parts = [part for part in (slice(half), slice(half, None)) if len(fit.y[part])]
            fit.estimator.fit([tuple(array[part] for array in arrays) for part in parts])
        else:
            for _ in range(2 if fit.feeding == "twice" else 1):
                caught.clear()
                fit.estimator.fit(fit.X, fit.y, sample_weight=fit.weights)
    # The best of two alphas always is at an end of them.
    told = [known for known in caught if not str(known.message).startswith("The best alpha")]
    for known in told:
        expected = issubclass(known.category, ConvergenceWarning)
        require(expected, known.category.__name__, str(known.message))
    return [str(known.message) for known in told]


# -- the minimisations that a fit consists of ------------------------------------------------------


def parts_of(fit: Fit) -> list[tuple[Case, float]]:
    """Return each as a case, with the mean loss of a constant prediction."""
    fitted = fit.estimator
    X = fit.X.toarray() if sp.issparse(fit.X) else np.asarray(fit.X)
    weights = np.ones(fit.y.size) if fit.weights is None else fit.weights
    y = np.searchsorted(fitted.classes_, fit.y) if fit.classifies else fit.y
    rows = np.flatnonzero(weights > 0)
    if fit.classifies and fitted.class_weight == "balanced":
        counts = np.bincount(y, weights)
        weights = weights * (counts.sum() / (counts.size * counts))[y]
    if fitted.early_stopping:  # and rows are held out
        seed = np.random.RandomState(fitted.random_state).randint(2**31 - 1)
        held, classes = int(np.ceil(0.4 * rows.size)), y[rows] if fit.classifies else None
        rows, _ = train_test_split(rows, test_size=held, stratify=classes, random_state=seed)
    X, y, weights = X[rows].astype(np.float64), y[rows], weights[rows]
    shares = weights.astype(np.longdouble) / weights.astype(np.longdouble).sum()
    alpha = getattr(fitted, "alpha_", None) or getattr(fitted, "alpha", 0.0)
    share = {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": fitted.l1_ratio}[fitted.penalty]
    alpha = 0.0 if fitted.penalty is None else alpha
    l2, l1, loss = alpha * (1.0 - share), alpha * share, fitted.loss
    scale = 1.0
    if not fit.classifies:
        scale = checked_scale(fitted, y, shares)
        l2 = l2 / scale if loss in PIECEWISE_LINEAR else l2
        l1 = l1 * scale if loss not in (*PIECEWISE_LINEAR, "squared_error") else l1
    name, d = OTHER_NAMES.get(loss, loss), X.shape[1]
    own = set_formula(fitted.feasible_set)
    count = fitted.classes_.size if fit.classifies else 0
    several = count > 2 and loss == "log_loss" and fitted.multi_class != "ovr"
    copies = count if several else 1
    chosen = penalty = None
    if own is not None or not fitted.fit_intercept:
        # Without an intercept the last number is held at 0, which a box of no width does.
        free, none = SetFormula("WholeSpace", {}), SetFormula("Box", {"lower": 0.0, "upper": 0.0})
        pair = [(own or free, d), (free if fitted.fit_intercept else none, 1)]
        chosen = SetFormula("Product", {"blocks": pair * copies})
    if l1 > 0.0:
        strength = np.tile(np.append(np.full(d, l1), 0.0), copies)
        penalty = PenaltyFormula("L1", {"strength": strength}, strength.size)
    if several:
        classes = Classes(X, y, shares, count, l2)
        case = Case(0, classes, classes.target, chosen=chosen, penalty=penalty)
        return [(case, _no_skill(shares, y, count, fitted))]
    keywords: dict[str, Any] = {"loss": name, "l2": l2, "fit_intercept": True}
    if name in PARAMETER:
        given = getattr(fitted, PARAMETER[name])
        keywords[PARAMETER[name]] = given if name == "quantile" else given * scale
    keywords["sample_weight"] = weights
    targets = [y]
    if fit.classifies:
        targets = [np.where(y == k, 1.0, -1.0) for k in ([1] if count == 2 else range(count))]
    found = []
    for target in targets:
        data = Data(X, target, keywords)
        case = Case(0, data, np.zeros(d + 1), {"scale": None}, chosen, penalty)
        constants = best_constants(target, shares, loss, fitted) if fitted.fit_intercept else [0.0]
        nulls = []
        for constant in constants:
            margins = np.full(target.size, np.longdouble(constant))
            losses = loss_values(name, margins, target, LONG, data.objective.parameter)
            nulls.append(float(shares @ losses))
        found.append((case, max(nulls)))
    return found


def _no_skill(shares: Any, y: Any, count: int, fitted: Any) -> float:
    """Return the mean loss of several classes where all rows get the same scores."""
    if not fitted.fit_intercept:
        return float(np.log(count))
    parts = np.bincount(y, shares.astype(float), minlength=count)
    return float(-(parts[parts > 0] * np.log(parts[parts > 0])).sum())


def set_formula(chosen: Any) -> SetFormula | None:
    """Return the set of a row of coefficients."""
    if isinstance(chosen, ag.Box):
        return SetFormula("Box", {"lower": chosen.lower, "upper": chosen.upper})
    if isinstance(chosen, (ag.Ball, ag.L1Ball)):
        return SetFormula(type(chosen).__name__, {"center": 0.0, "radius": chosen.radius})
    names = {"nonnegative": ("NonNegative", {}), "simplex": ("Simplex", {"total": 1.0})}
    return None if chosen is None else SetFormula(*names[chosen])


def checked_scale(fitted: Any, y: Any, shares: Any) -> float:
    """Check and return `target_scale_`: docs/estimators.md, "The scale of the targets"."""
    expected = fitted.target_scale
    if fitted.loss == "squared_error":
        expected = 1.0
    elif expected == "auto":
        centre = shares @ y if fitted.fit_intercept else 0.0
        expected = 1.0 if np.ptp(y) == 0.0 and fitted.fit_intercept else shares @ abs(y - centre)
        expected = float(expected) or 1.0
    off, allowed = abs(fitted.target_scale_ - expected), 8 * y.size * EPS * float(abs(y).max())
    told = f"{fitted.target_scale_} {expected}"
    require(off <= allowed, "target_scale_ is not as documented", told)
    return float(fitted.target_scale_)


def best_constants(y: Any, shares: Any, loss: str, estimator: Any) -> list[Any]:
    """Return the best constant score of labels; the mean, the median or the quantile of targets.

    There are two medians where the weights of the smaller targets add up to half, up to rounding.
    """
    if loss in CLASSIFICATION:
        p = shares @ (y > 0)
        if loss == "log_loss":
            return [0.0 if p in (0, 1) else np.log(p) - np.log(1 - p)]
        return [2 * p - 1 if loss != "hinge" else (1.0 if p > 0.5 else -1.0)]
    if loss.startswith("squared"):
        return [shares @ y]
    level = estimator.quantile if loss == "quantile" else 0.5
    if np.ptp(shares) == 0:
        return [np.quantile(y, level)]
    order = np.argsort(y)
    reached = np.cumsum(shares[order])
    near = level * reached[-1] * np.array([1 - 4 * EPS * y.size, 1 + 4 * EPS * y.size])
    return list(y[order[np.minimum(np.searchsorted(reached, near), y.size - 1)]])


# -- the checks ------------------------------------------------------------------------------------


def judge(fit: Fit, told: list[str], seed: int) -> None:
    fitted, parts = fit.estimator, parts_of(fit)
    rows = np.column_stack([np.atleast_2d(fitted.coef_), np.ravel(fitted.intercept_)])
    kept = [rows.ravel()] if len(parts) == 1 else list(rows)
    finite = np.isfinite(rows).all() and rows.dtype == np.float64
    require(finite, "coefficients are not finite, or no float64", f"{rows}")
    values, allowed, lowest, slack = [], 0.0, np.longdouble(0), 0.0
    for (case, _), x in zip(parts, kept, strict=True):
        excess = case.chosen.excess(LONG.array(x), LONG) if case.chosen else 0
        where = f"{x} {fitted.feasible_set!r}"
        require(excess <= 8 * x.size * EPS, "coefficients outside of the set", where)
        known = case.at(LONG.array(x), LONG)
        values.append(float(known.value))
        allowed += value_rounding(case, x)
        best, _ = Search(case, np.inf, np.random.default_rng([37, seed]), {"x": x}).best()
        lowest += best.value
        slack += float(long_slack(case, best.size))
    # Of least squares the value may come from products of columns.
    cancelled = ACCURATE * sum(values) if fitted.loss == "squared_error" else 0.0
    off = abs(fitted.objective_ - sum(values))
    text = f"{fitted.objective_!r} {values} {allowed:.2g}"
    require(off <= allowed + cancelled, "objective_ is false", text)
    bound = np.longdouble(fitted.objective_) - np.longdouble(fitted.gap_)
    if np.isinf(fitted.certified_radius_):
        text = f"{fitted.gap_!r}: a point is lower by {bound - lowest:.3g}"
        require(lowest >= bound - slack - 4 * allowed, "false gap_", text)
    refused = objection(fitted.certificate_, fitted.gap_, fit.X, fit.y)
    require(not refused, "the certificate is refused", refused)
    floors = [FLOOR * null for _, null in parts]
    size = sum(max(pair) for pair in zip(values, floors, strict=True))
    check_tolerance(fit, told, size, allowed)


def check_tolerance(fit: Fit, told: list[str], size: float, allowed: float) -> None:
    """Check what `converged_` says of a size that may be off by rounding, and that a miss is told."""
    fitted = fit.estimator
    said = f"gap_ {fitted.gap_!r}, size {size!r}, warnings {told}"
    require(fitted.gap_ >= 0.0, "gap_ below 0", said)
    if fitted.tol is None:
        silent = not (fitted.converged_ or told)
        require(silent, "converged_ or a warning without a tolerance", said)
        return
    goal = fitted.tol * size
    if fitted.converged_:
        require(fitted.gap_ <= goal * (1 + 1e-9), "converged_ without the tolerance", said)
        require(not told or hasattr(fitted, "alphas_"), "converged_ and a warning", said)
        return
    if np.isinf(fitted.certified_radius_):
        least = goal * (1 - 1e-9) - fitted.tol * allowed
        require(fitted.gap_ > least, "not converged_ within the tolerance", said)
    require(told or fitted.early_stopping, "a miss without a warning", said)
