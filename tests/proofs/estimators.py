"""Random small fits of the estimators, whose claims are checked in extended precision.

`check(seed)` draws a fit from a seed and runs it by the public API alone. It raises AssertionError,
with what it takes to run it again, unless all of this holds:

- `objective_` is the documented objective at the coefficients, up to the rounding of float64;
- no candidate (zero, constants, solutions of SciPy, corners of the set, points nearby) is below
  `objective_ - gap_`;
- the coefficients are in the set;
- `converged_` says whether `gap_` is within `tol`;
- there is no exception, and no warning but ConvergenceWarning, which comes where the tolerance was
  missed.

The formulas are those of docs/estimators.md, written anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, minimize
from sklearn.exceptions import ConvergenceWarning

import accelegrad as ag
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from reference.losses import OTHER_NAMES, PARAMETER, loss_values

LONG = np.longdouble
EPS = float(np.finfo(np.float64).eps)
UNITS = 16.0  # roundings of a term, beyond one for each summand
FLOOR = 1e-3  # of what a constant prediction gets: docs/estimators.md, "The tolerance"
CLASSIFICATION = ("log_loss", "hinge", "squared_hinge", "modified_huber")
REGRESSION = (
    "squared_error",
    "absolute_error",
    "huber",
    "quantile",
    "epsilon_insensitive",
    "squared_epsilon_insensitive",
)
PIECEWISE_LINEAR = ("hinge", "absolute_error", "quantile", "epsilon_insensitive")


def check(seed: int) -> None:
    """Draw the fit of a seed, run it, and raise AssertionError if a claim of its is wrong."""
    case = draw(seed)
    try:
        fitted, told = run(case)
        judge(case, fitted, told)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{case.how_to_rerun()}") from None
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{case.how_to_rerun()}") from error


# ------------------------------------------------------------------------------------ the cases


@dataclass
class Case:
    """A fit: an estimator, its data, and how it is fed."""

    seed: int
    estimator: Any
    X: Any  # as it is given: dense or sparse, float32 or float64
    y: np.ndarray
    weights: np.ndarray | None
    feeding: str  # "fit", "twice" (warm start), "stream"
    notes: list[str] = field(default_factory=list)

    @property
    def classifies(self) -> bool:
        return hasattr(self.estimator, "class_weight")

    def how_to_rerun(self) -> str:
        kind = type(self.X).__name__
        return (
            f"seed {self.seed}: {self.estimator!r}\n"
            f"on {kind} {self.X.shape} {self.X.dtype}, weights: {self.weights is not None}, "
            f"{self.feeding}, {', '.join(self.notes)}\n"
            f"Rerun: PYTHONPATH=src:tests python -c "
            f"'from proofs.estimators import check; check({self.seed})'"
        )


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng(seed)
    classifies = bool(rng.random() < 0.55)
    notes: list[str] = []
    X = drawn_matrix(rng, notes)
    if classifies and X.shape[0] == 1:
        X = np.vstack([X, X])  # two classes need two rows
    n_classes = int(rng.integers(2, 5)) if rng.random() < 0.7 else 2
    y = drawn_labels(rng, X, n_classes, notes) if classifies else drawn_targets(rng, X, notes)
    options = drawn_options(rng, classifies, X.shape[1], np.unique(y).size if classifies else 0)
    weights = None
    if rng.random() < 0.4:
        weights = rng.choice([0.0, 1e-3, 0.5, 1.0, 7.0], y.size, p=[0.1, 0.1, 0.3, 0.3, 0.2])
        keep = np.unique(y, return_index=True)[1] if classifies else [0]
        weights[keep] = 1.0  # each class stays, and one row at least
    feeding = str(rng.choice(["fit", "twice", "stream"], p=[0.8, 0.1, 0.1]))
    crossed = rng.random() < 0.04 and min_class(y, classifies) >= 4
    if feeding == "stream":
        crossed = False
        options["batch_size"] = "auto"
    if feeding == "twice":
        options["warm_start"] = True
    return Case(seed, made(classifies, options, crossed), given(rng, X), y, weights, feeding, notes)


def min_class(y: np.ndarray, classifies: bool) -> int:
    """Return the number of rows of the rarest class, or of distinct targets."""
    found, counts = np.unique(y, return_counts=True)
    return int(counts.min()) if classifies else found.size


def made(classifies: bool, options: dict[str, Any], crossed: bool) -> Any:
    """Return the estimator; in some cases the one that chooses among two alphas."""
    if not crossed:
        return (AcceleGradClassifier if classifies else AcceleGradRegressor)(**options)
    kept = {name: value for name, value in options.items() if name not in ("alpha", "warm_start")}
    kind = AcceleGradClassifierCV if classifies else AcceleGradRegressorCV
    return kind(alphas=[options["alpha"], 0.1], cv=2, **kept)


def drawn_matrix(rng: np.random.Generator, notes: list[str]) -> np.ndarray:
    """Return rows in float64, degenerate in some way or other."""
    n, d = int(rng.integers(2, 45)), int(rng.integers(1, 8))
    if rng.random() < 0.1:
        n = int(rng.integers(1, 5))
    if rng.random() < 0.1:
        d = int(rng.integers(8, 20))
    X = rng.standard_normal((n, d))
    if rng.random() < 0.3:
        X[rng.random((n, d)) < 0.6] = 0.0
        notes.append("sparse entries")
    for note, share in (("constant", 0.15), ("zero", 0.15), ("copied", 0.1), ("offset", 0.15)):
        if rng.random() >= share:
            continue
        j = int(rng.integers(d))
        X[:, j] = {
            "constant": np.full(n, 3.7),
            "zero": np.zeros(n),
            "copied": X[:, int(rng.integers(d))],
            "offset": X[:, j] + 100.3,
        }[note]
        notes.append(f"{note} column {j}")
    if rng.random() < 0.1:
        X = X + 10.0 ** rng.uniform(0, 4)
        notes.append("all columns offset")
    if rng.random() < 0.15:
        X[rng.integers(n, size=n // 2)] = X[0]
        notes.append("duplicate rows")
    if rng.random() < 0.3:
        scales = 10.0 ** rng.uniform(-8, 8, d if rng.random() < 0.5 else 1)
        X = X * scales
        notes.append(f"scales {scales}")
    return X


def drawn_labels(
    rng: np.random.Generator, X: np.ndarray, n_classes: int, notes: list[str]
) -> np.ndarray:
    """Return labels of at least two classes, separable or noisy."""
    n, d = X.shape
    sizes = np.abs(X).max(axis=0)
    scores = X / np.where(sizes > 0, sizes, 1.0) @ rng.standard_normal((d, n_classes))
    if rng.random() < 0.7:
        scores += rng.standard_normal((n, n_classes))
        notes.append("noisy")
    y = scores.argmax(axis=1)
    if np.unique(y).size < 2:
        y = np.arange(n) % 2
    return np.array(["a", "b", "c", "d"])[y] if rng.random() < 0.3 else y


def drawn_targets(rng: np.random.Generator, X: np.ndarray, notes: list[str]) -> np.ndarray:
    """Return numbers: a linear function with noise, of any size, or constant."""
    n, d = X.shape
    sizes = np.abs(X).max(axis=0)
    y = X / np.where(sizes > 0, sizes, 1.0) @ rng.standard_normal(d)
    if rng.random() < 0.8:
        y = y + rng.choice([1e-3, 0.3, 3.0]) * rng.standard_normal(n)
    if rng.random() < 0.2:
        y = y + 1e4
        notes.append("targets + 1e4")
    if rng.random() < 0.3:
        scale = 10.0 ** rng.uniform(-8, 8)
        y = y * scale
        notes.append(f"targets * {scale:.3g}")
    if rng.random() < 0.05:
        y = np.full(n, rng.choice([0.0, 2.5]))
        notes.append("constant targets")
    return np.asarray(y)


def drawn_options(
    rng: np.random.Generator, classifies: bool, d: int, n_classes: int
) -> dict[str, Any]:
    """Return an estimator's parameters, such as are allowed together."""
    # The logistic loss has a problem of its own for several classes.
    loss = rng.choice(CLASSIFICATION, p=[0.4, 0.2, 0.2, 0.2]) if classifies else None
    options: dict[str, Any] = {
        "loss": str(loss or rng.choice(REGRESSION)),
        "penalty": [None, "l2", "l1", "elasticnet"][int(rng.choice(4, p=[0.15, 0.45, 0.25, 0.15]))],
        "alpha": float(rng.choice([0.0, 10.0 ** rng.uniform(-8, 1)], p=[0.05, 0.95])),
        "l1_ratio": float(rng.choice([0.0, 0.3, 1.0])),
        "fit_intercept": bool(rng.random() < 0.7),
        "tol": [None, 1e-1, 1e-2, 1e-3, 1e-6, 1e-9][int(rng.integers(6))],
        "max_iter": int(rng.choice([1, 7, 40, 150, 400])),
        "average": ["auto", True, False][int(rng.choice(3, p=[0.8, 0.1, 0.1]))],
        "random_state": int(100 * rng.random()),
        "feasible_set": drawn_set(rng, d),
    }
    if not in_box(options["feasible_set"]) and options["penalty"] in ("l1", "elasticnet"):
        options["penalty"] = "l2"
    if rng.random() < 0.05:
        options["diameter"] = float(10.0 ** rng.uniform(-2, 3))
    if classifies:
        options["class_weight"] = [None, "balanced"][int(rng.random() < 0.2)]
        if options["loss"] == "log_loss":
            options["multi_class"] = str(rng.choice(["auto", "ovr"]))
    else:
        options.update(
            quantile=float(rng.choice([0.05, 0.5, 0.9])),
            epsilon=float(rng.choice([0.0, 0.1, 1.0])),
            delta=float(rng.choice([0.01, 1.35])),
            target_scale=["auto", 1.0, 0.3][int(rng.choice(3, p=[0.7, 0.2, 0.1]))],
        )
    several = classifies and n_classes > 2 and options.get("multi_class") == "auto"
    if rng.random() < 0.08 and not several:
        options["batch_size"] = int(rng.integers(1, 9))
    return options


def drawn_set(rng: np.random.Generator, d: int) -> Any:
    """Return a set for d coefficients, mostly none."""
    lower = rng.uniform(-1, 0.2, d)
    upper = lower + rng.choice([0.0, 0.5, np.inf], d)
    choice = rng.random()
    if choice < 0.65:
        return None
    kinds: list[Callable[[], Any]] = [
        lambda: "nonnegative",
        lambda: "simplex",
        lambda: ag.Box(lower, upper),
        lambda: ag.Box(-0.3, 0.3),
        lambda: ag.L1Ball(float(rng.choice([0.1, 3.0]))),
        lambda: ag.Ball(0.0, float(rng.choice([0.1, 3.0]))),
    ]
    return kinds[int(rng.integers(len(kinds)))]()


def in_box(chosen: Any) -> bool:
    """Tell whether a set goes together with an l1 term."""
    return chosen is None or chosen == "nonnegative" or isinstance(chosen, ag.Box)


def given(rng: np.random.Generator, X: np.ndarray) -> Any:
    """Return the rows in one of the forms that users have them in."""
    if rng.random() < 0.3:
        X = X.astype(np.float32)
    forms: list[Callable[[Any], Any]] = [
        np.ascontiguousarray,
        np.asfortranarray,
        sp.csr_array,
        sp.csc_array,
    ]
    return forms[int(rng.choice(4, p=[0.5, 0.1, 0.25, 0.15]))](X)


# -------------------------------------------------------------------------------------- the run


def run(case: Case) -> tuple[Any, list[str]]:
    """Return the fitted estimator, and the convergence warnings of the last fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case.feeding == "stream":
            case.estimator.fit(chunks(case))
        else:
            for _ in range(2 if case.feeding == "twice" else 1):
                caught.clear()
                case.estimator.fit(case.X, case.y, sample_weight=case.weights)
    told = [
        warning
        for warning in caught
        if not str(warning.message).startswith("The best alpha")  # one of two always is at an end
    ]
    for warning in told:
        expected = issubclass(warning.category, ConvergenceWarning)
        assert expected, f"{warning.category.__name__}: {warning.message}"
    return case.estimator, [str(warning.message) for warning in told]


def chunks(case: Case) -> Any:
    """Return the rows as a stream of two chunks."""
    X = case.X.tocsr() if sp.issparse(case.X) else np.asarray(case.X)
    arrays = (X, case.y) if case.weights is None else (X, case.y, case.weights)
    middle = (len(case.y) + 1) // 2
    return [tuple(a[part] for a in arrays) for part in (slice(middle), slice(middle, None))]


# --------------------------------------------------------------------------------- the formulas


@dataclass
class Part:
    """One minimisation: all of it, or that of a class against the rest.

    Parameters are those of all classes, a row each with its intercept last.
    """

    X: np.ndarray  # dense, extended precision
    y: np.ndarray  # -1 and 1, places of classes, or targets
    shares: np.ndarray  # of the rows, which sum to 1
    loss: str
    estimator: Any
    n_rows: int  # of coefficients
    chosen: Any  # the set of a row of coefficients
    l2: float
    l1: float

    def losses(self, margins: np.ndarray) -> np.ndarray:
        """Return l(m, y) for each row."""
        if self.loss == "multinomial":
            largest = margins.max(axis=1, keepdims=True)
            sums = np.log(np.exp(margins - largest).sum(axis=1)) + largest[:, 0]
            return np.asarray(sums - margins[np.arange(self.y.size), self.y])
        return LOSSES[self.loss](margins[:, 0], self.y, self.estimator)

    def margins(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.X @ rows[:, :-1].T + rows[:, -1])

    def value(self, rows: np.ndarray) -> Any:
        """Return the objective."""
        rows = rows.astype(LONG)
        w = rows[:, :-1]
        mean = self.shares @ self.losses(self.margins(rows))
        return mean + self.l2 * (w * w).sum() / 2 + self.l1 * np.abs(w).sum()

    def allowance(self, rows: np.ndarray) -> float:
        """Return what float64 may lose of the objective, from the size of its terms."""
        rows = rows.astype(LONG)
        summands = self.X.shape[1] + UNITS
        sizes = np.abs(self.X) @ np.abs(rows[:, :-1].T) + np.abs(rows[:, -1])
        if self.loss != "multinomial" and self.loss not in CLASSIFICATION:
            sizes = sizes + np.abs(self.y)[:, None]
        error, margins = summands * EPS * sizes, self.margins(rows)
        losses = self.losses(margins)
        if self.loss == "multinomial":
            spread = 2 * error.max(axis=1)  # each of the terms moves by no more than its margin
        else:  # a convex function moves the most at an end
            ends = [self.losses(margins + sign * error) for sign in (-1, 1)]
            spread = np.max([np.abs(end - losses) for end in ends], axis=0)
        value = abs(self.value(rows))
        return float(self.shares @ spread + (self.y.size + summands) * EPS * value)

    def null_value(self) -> float:
        """Return the mean loss of a constant prediction, docs/estimators.md, "The tolerance"."""
        y, shares = self.y, self.shares
        if self.loss == "multinomial":
            parts = np.bincount(y, shares.astype(float), minlength=self.n_rows)
            parts = parts if self.estimator.fit_intercept else np.full(self.n_rows, 1 / self.n_rows)
            return float(-(parts[parts > 0] * np.log(parts[parts > 0])).sum())
        constant: Any = 0.0
        if self.estimator.fit_intercept:
            constant = best_constant(y, shares, self.loss, self.estimator)
        return float(shares @ self.losses(np.full((y.size, 1), LONG(constant))))


def best_constant(y: np.ndarray, shares: np.ndarray, loss: str, estimator: Any) -> Any:
    """Return the best constant score of labels; the mean, the median or the quantile of targets."""
    if loss in CLASSIFICATION:
        p = shares @ (y > 0)
        if loss == "log_loss":
            return 0.0 if p in (0, 1) else np.log(p) - np.log(1 - p)
        return 2 * p - 1 if loss != "hinge" else (1.0 if p > 0.5 else -1.0)
    if loss.startswith("squared"):
        return shares @ y
    level = estimator.quantile if loss == "quantile" else 0.5
    if np.ptp(shares) == 0:
        return np.quantile(y, level)
    order = np.argsort(y)
    reached = np.cumsum(shares[order])
    return y[order[np.searchsorted(reached, level * reached[-1])]]


def _losses(name: str, m: np.ndarray, y: np.ndarray, estimator: Any) -> np.ndarray:
    name = OTHER_NAMES.get(name, name)
    parameter = LONG(getattr(estimator, PARAMETER[name])) if name in PARAMETER else None
    if name != "quantile" and parameter is not None:
        parameter = LONG(float(parameter) * estimator.target_scale_)
    return np.asarray(loss_values(name, m, y, parameter=parameter))


LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    name: partial(_losses, name) for name in (*CLASSIFICATION, *REGRESSION)
}


def parts_of(case: Case, fitted: Any) -> list[Part]:
    """Return the minimisations that a fit consists of."""
    X = case.X.toarray() if sp.issparse(case.X) else np.asarray(case.X)
    weights = np.ones(case.y.size) if case.weights is None else case.weights
    y = np.searchsorted(fitted.classes_, case.y) if case.classifies else case.y.astype(LONG)
    factors = np.ones(1)
    if case.classifies and case.estimator.class_weight == "balanced":
        counts = np.bincount(y, weights)
        factors = counts.sum() / (counts.size * counts)
    rows = np.flatnonzero(weights > 0)
    weights = weights * (factors[y] if factors.size > 1 else 1.0)
    shares = weights[rows].astype(LONG) / weights[rows].astype(LONG).sum()
    alpha = getattr(fitted, "alpha_", None) or getattr(fitted, "alpha", 0.0)
    share = {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": fitted.l1_ratio}[fitted.penalty]
    alpha = 0.0 if fitted.penalty is None else alpha
    chosen = fitted.feasible_set
    l2, l1 = alpha * (1.0 - share), alpha * share
    X, y = X[rows].astype(LONG), y[rows]
    if not case.classifies:
        check_scale(fitted, y, shares)
        if fitted.loss in PIECEWISE_LINEAR:
            l2 /= fitted.target_scale_
        elif fitted.loss != "squared_error":
            l1 *= fitted.target_scale_
    rest = (fitted, chosen, l2, l1)

    def part(targets: np.ndarray, loss: str, n_rows: int = 1) -> Part:
        estimator, held_in, l2, l1 = rest
        return Part(X, targets, shares, loss, estimator, n_rows, held_in, l2, l1)

    if not case.classifies:
        return [part(y, fitted.loss)]
    n_classes = fitted.classes_.size
    if n_classes > 2 and fitted.loss == "log_loss" and fitted.multi_class != "ovr":
        return [part(y, "multinomial", n_classes)]
    positives = [1] if n_classes == 2 else range(n_classes)
    return [part(np.where(y == k, LONG(1), LONG(-1)), fitted.loss) for k in positives]


def check_scale(fitted: Any, y: np.ndarray, shares: np.ndarray) -> None:
    """Check the scale of the targets: docs/estimators.md, "The scale of the targets"."""
    expected = fitted.target_scale
    if fitted.loss == "squared_error":
        expected = 1.0
    elif expected == "auto":
        centre = shares @ y if fitted.fit_intercept else LONG(0)
        expected = 1.0 if np.ptp(y) == 0.0 and fitted.fit_intercept else shares @ np.abs(y - centre)
        expected = float(expected) or 1.0
    allowed = 8 * y.size * EPS * float(np.abs(y).max())
    assert abs(fitted.target_scale_ - expected) <= allowed, (
        f"target_scale_ is {fitted.target_scale_!r}, where {expected!r} is documented"
    )


# ------------------------------------------------------------------------------- the candidates


def projected(chosen: Any, rows: np.ndarray) -> np.ndarray:
    """Return parameters whose coefficients are in the set."""
    if chosen is None:
        return rows
    sets = {"nonnegative": ag.NonNegative, "simplex": ag.Simplex}
    held_in = sets[chosen]() if isinstance(chosen, str) else chosen
    coefficients = [held_in.project(np.array(row[:-1], dtype=np.float64)) for row in rows]
    return np.column_stack([np.array(coefficients), rows[:, -1]])


def candidates(part: Part, kept: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield parameters that might be better than those kept, all of them in the set."""
    free = part.estimator.fit_intercept
    zero = np.zeros_like(kept)
    yield projected(part.chosen, zero)
    if free and part.n_rows == 1:
        constant = zero.copy()
        constant[0, -1] = float(best_constant(part.y, part.shares, part.loss, part.estimator))
        yield projected(part.chosen, constant)
    sizes = np.abs(part.X).max(axis=0).astype(float)
    scale = np.append(1.0 / np.where(sizes > 0, sizes, 1.0), float(free))
    if part.loss in PIECEWISE_LINEAR and part.l2 == 0.0 and in_box(part.chosen):
        yield from solved_exactly(part, kept)
    best = kept
    for found in solved(part, kept, scale):
        found = projected(part.chosen, found)
        yield found
        best = found if part.value(found) < part.value(best) else best
    for size in 10.0 ** np.arange(-9.0, 2.0):
        step = size * scale * rng.standard_normal(kept.shape)
        yield projected(part.chosen, best + step)
        yield projected(part.chosen, best + np.where(free, size, 0.0) * np.eye(kept.shape[1])[-1])
    if part.chosen == "simplex" or isinstance(part.chosen, ag.L1Ball):
        for j in range(kept.shape[1] - 1):
            corner = best.copy()
            corner[:, :-1] = 1e9 * np.eye(kept.shape[1] - 1)[j]
            yield projected(part.chosen, corner)


def solved(part: Part, kept: np.ndarray, scale: np.ndarray) -> Iterator[np.ndarray]:
    """Yield what L-BFGS-B makes of the objective with differences for slopes, in scaled columns."""
    narrow = Part(
        *(array.astype(np.float64) for array in (part.X,)),
        part.y if part.loss == "multinomial" else part.y.astype(np.float64),
        part.shares.astype(np.float64),
        *(part.loss, part.estimator, part.n_rows, part.chosen, part.l2, part.l1),
    )
    open_ends = np.where(scale > 0, np.inf, 0.0)
    lower, upper = -open_ends, open_ends
    if part.chosen == "nonnegative":
        lower = np.append(np.zeros(scale.size - 1), -open_ends[-1])
    elif isinstance(part.chosen, ag.Box):
        ends = (np.broadcast_to(e, scale.size - 1) for e in (part.chosen.lower, part.chosen.upper))
        low, high = (end / scale[:-1] for end in ends)
        lower, upper = np.append(low, -open_ends[-1]), np.append(high, open_ends[-1])
    bounds = np.tile(np.column_stack([lower, upper]), (part.n_rows, 1))

    def objective(v: np.ndarray) -> float:
        rows = (v.reshape(kept.shape) * scale).astype(np.float64)
        w = rows[:, :-1]
        mean = narrow.shares @ narrow.losses(narrow.margins(rows))
        return float(mean + part.l2 * (w * w).sum() / 2 + part.l1 * np.abs(w).sum())

    safe = np.where(scale > 0, scale, 1.0)
    with np.errstate(all="ignore"):
        start = np.clip((kept / safe).ravel(), bounds[:, 0], bounds[:, 1])
        found = minimize(
            objective, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40}
        )
    if np.isfinite(found.x).all():
        yield found.x.reshape(kept.shape) * scale


def solved_exactly(part: Part, kept: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the solution of a linear programme: a loss with kinks alone, with at most an l1 term."""
    n, d = part.X.shape
    X, y = part.X.astype(float), part.y.astype(float)
    full = np.column_stack([X, np.full(n, float(part.estimator.fit_intercept))])
    if part.loss == "hinge":
        tables, sides = [-y[:, None] * full], [-np.ones(n)]
    else:
        level = part.estimator.quantile if part.loss == "quantile" else None
        up, down = (1.0, 1.0) if level is None else (1.0 - level, level)
        margin = 0.0
        if part.loss == "epsilon_insensitive":
            margin = part.estimator.epsilon * part.estimator.target_scale_
        tables, sides = [up * full, -down * full], [up * y + margin, -down * y + margin]
    # Variables: w and b, then the losses of the rows, then |w|.
    width = d + 1
    rows = [np.hstack([t, -np.eye(n), np.zeros((n, d))]) for t in tables]
    absolute = np.hstack([np.eye(d), np.zeros((d, 1 + n)), -np.eye(d)])
    negative = np.hstack([-np.eye(d), np.zeros((d, 1 + n)), -np.eye(d)])
    costs = np.concatenate([np.zeros(width), part.shares.astype(float), np.full(d, part.l1)])
    limits = [(None, None)] * width + [(0, None)] * (n + d)
    low, high = -np.inf, np.inf
    if part.chosen == "nonnegative":
        low = 0.0
    elif part.chosen is not None:
        low, high = part.chosen.lower, part.chosen.upper
    for j, pair in enumerate(zip(*(np.broadcast_to(e, d) for e in (low, high)), strict=True)):
        limits[j] = tuple(end if np.isfinite(end) else None for end in pair)  # type: ignore[call-overload]
    found = linprog(
        costs,
        np.vstack([*rows, absolute, negative]),
        np.concatenate([*sides, np.zeros(2 * d)]),
        bounds=limits,
    )
    if found.x is not None:
        yield projected(part.chosen, found.x[None, :width])


# ----------------------------------------------------------------------------------- the checks


def judge(case: Case, fitted: Any, told: list[str]) -> None:
    """Check the claims of a fit."""
    parts = parts_of(case, fitted)
    kept = kept_rows(fitted, len(parts))
    for part, rows in zip(parts, kept, strict=True):
        assert np.isfinite(rows.astype(float)).all(), f"coefficients are not finite: {rows}"
        check_set(part.chosen, rows[:, :-1])
    values = [part.value(rows) for part, rows in zip(parts, kept, strict=True)]
    allowed = sum(part.allowance(rows) for part, rows in zip(parts, kept, strict=True))
    assert abs(fitted.objective_ - float(sum(values))) <= allowed, (
        f"objective_ is {fitted.objective_!r}, the objective at the coefficients is "
        f"{float(sum(values))!r}; rounding may take {allowed:.2g}"
    )
    assert fitted.gap_ >= 0.0, f"gap_ is {fitted.gap_!r}"
    check_bound(case, fitted, parts, kept)
    check_tolerance(case, fitted, parts, [float(value) for value in values], told)


def kept_rows(fitted: Any, n_parts: int) -> list[np.ndarray]:
    """Return the coefficients of each part, with the intercepts in the last column."""
    coefficients = np.atleast_2d(fitted.coef_)
    assert coefficients.dtype == np.float64, f"coef_ has the type {coefficients.dtype}"
    rows = np.column_stack([coefficients, np.ravel(fitted.intercept_)])
    return [rows] if n_parts == 1 else [row[None] for row in rows]


def check_set(chosen: Any, coefficients: np.ndarray) -> None:
    """Check that coefficients are in their set: in a box exactly, else up to rounding."""
    rounding = 8 * coefficients.shape[1] * EPS
    for w in coefficients:
        if chosen == "nonnegative" or chosen == "simplex":
            assert w.min() >= 0.0, f"coefficients below zero: {w}"
        if chosen == "simplex":
            assert abs(w.sum() - 1.0) <= rounding, f"coefficients sum to {w.sum()!r}"
        elif isinstance(chosen, ag.Box):
            inside = np.all((chosen.lower <= w) & (w <= chosen.upper))
            assert inside, f"coefficients {w} are not in {chosen!r}"
        elif isinstance(chosen, (ag.L1Ball, ag.Ball)):
            size = np.linalg.norm(w, 1 if isinstance(chosen, ag.L1Ball) else 2)
            assert size <= chosen.radius * (1 + rounding), f"{w} has the norm {size!r}"


def check_bound(case: Case, fitted: Any, parts: list[Part], kept: list[np.ndarray]) -> None:
    """Check that no candidate is below the bound, where it holds everywhere."""
    if not (np.isfinite(fitted.gap_) and np.isinf(fitted.certified_radius_)):
        return
    rng = np.random.default_rng([case.seed, 1])
    best, allowed = LONG(0), 0.0
    for part, rows in zip(parts, kept, strict=True):
        found = [rows, *candidates(part, rows, rng)]
        values = [part.value(candidate) for candidate in found]
        place = int(np.argmin([float(value) for value in values]))
        best += values[place]
        allowed += 4 * (part.allowance(rows) + part.allowance(found[place]))
    bound = LONG(fitted.objective_) - LONG(fitted.gap_)
    assert best >= bound - allowed, (
        f"objective_ - gap_ is {float(bound)!r}, but a candidate has {float(best)!r}, which is "
        f"{float(bound - best):.3g} below; rounding may take {allowed:.2g}"
    )


def check_tolerance(
    case: Case, fitted: Any, parts: list[Part], values: list[float], told: list[str]
) -> None:
    """Check what `converged_` says, and that a miss is told."""
    tol, rounding = fitted.tol, 1e-9
    single = not hasattr(fitted, "alphas_")
    if tol is None:
        assert not fitted.converged_, "converged_ without a tolerance"
        assert not told, f"a warning without a tolerance: {told}"
        return
    floors = [FLOOR * part.null_value() for part in parts]
    target = tol * sum(max(pair) for pair in zip(values, floors, strict=True))
    if fitted.converged_:
        assert fitted.gap_ <= target * (1 + rounding), (
            f"converged_ with a gap_ of {fitted.gap_!r}, where {target!r} is wanted"
        )
        assert not (told and single), f"converged_ and a warning: {told}"
        return
    proved = np.isinf(fitted.certified_radius_)
    assert not (proved and fitted.gap_ <= target * (1 - rounding)), (
        f"not converged_ with a gap_ of {fitted.gap_!r}, where {target!r} is enough"
    )
    assert told, f"a gap_ of {fitted.gap_!r} misses {target!r} without a warning"
