"""The user's own data as tasks: the linear model of a file, and its minimum.

The minimum comes from solvers that have nothing to do with the methods compared: SciPy's L-BFGS-B
for smooth losses; for those with kinks LIBLINEAR, and L-BFGS-B on the smoothed loss, whose slopes
also give a certified lower bound; HiGHS where such a loss comes without an l2 term.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.optimize import minimize as scipy_minimize

from accelegrad.data.datasets import DataError, as_binary
from accelegrad.errors import Vector
from accelegrad.lab.engine import stored_data
from accelegrad.lab.engine.liblinear import LIBLINEAR_LOSSES, liblinear_minimiser
from accelegrad.lab.engine.tasks import Outcome, Store, Task, task
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import LOSSES, make_loss

MODEL = ("data", "loss", "options", "l2")
LEAST_ROWS = 2
UNEVEN = 30  # how much larger one column than another the report remarks upon
ENOUGH = 1e-7  # a certified gap, relative to the minimum, at which the search for it ends
SMOOTHING = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # in turn, times the objective at zero
WARM = 2  # the first of these for a start that is near the minimum already
RESTARTS = 2  # of L-BFGS-B on a smooth loss
LP_ROWS = 20_000  # beyond, a linear programme would take too long
SVD_ENTRIES = 20_000_000  # beyond, a singular value decomposition would take too much memory


# -- data ------------------------------------------------------------------------------------------


def imported_data(path: Path, target: str | int | None, loss: str, store: Store) -> dict[str, Any]:
    """Read a file into the store and return the `data` parameter for it.

    Whatever is wrong with the file, or with its targets for this loss, is a DataError here.
    """
    return stored_data.imported_data(path, store, partial(_check_targets, path, loss), target)


def _check_targets(path: Path, loss: str, y: Vector) -> None:
    if y.size < LEAST_ROWS:
        raise DataError(
            f"{path}: the file has {y.size} row, but a comparison needs at least {LEAST_ROWS}."
        )
    if make_loss(loss).classification:
        try:
            as_binary(y)
        except ValueError as error:
            numbers = [name for name, entry in LOSSES.items() if not entry.classification]
            raise DataError(
                f"{path}: {error} The loss {loss!r} is for two classes; for numbers to predict "
                f"take {', '.join(repr(name) for name in numbers[:-1])} or {numbers[-1]!r}."
            ) from None


class Rows(NamedTuple):
    """A data set in memory; a sparse one without its empty columns."""

    X: Any
    y: Vector
    description: str
    empty_columns: int


def rows_of(data: Mapping[str, Any], store: Store) -> Rows:
    """Return a data set of the store."""
    return _rows(json.dumps(data, sort_keys=True), store.folder)


@lru_cache(maxsize=2)
def _rows(key: str, folder: Path) -> Rows:
    X, y, description = stored_data.stored_rows(json.loads(key), Store(folder))
    used = stored_data.without_empty_columns(X)
    return Rows(used, y, description, X.shape[1] - used.shape[1])


def data_facts(data: Mapping[str, Any], loss: str, store: Store) -> dict[str, str]:
    """Return what the report says about the data."""
    rows = rows_of(data, store)
    facts = {"data": rows.description, "file": data["source"], "sha256": data["sha256"]}
    if "target" in data:
        facts["target"] = f"column {data['target']!r}"
    if make_loss(loss).classification:
        low, high = np.unique(rows.y)
        facts["labels"] = f"{low:g} is taken as -1, {high:g} as +1"
    if rows.empty_columns:
        facts["empty columns"] = (
            f"{rows.empty_columns}, left out: their coefficients would stay at zero"
        )
    facts["column sizes"] = _sizes_in_words(rows.X)
    return facts


def _sizes_in_words(X: Any) -> str:
    largest = abs(X).max(axis=0)
    sizes = largest.toarray().ravel() if _is_sparse(largest) else largest
    low, high = float(np.min(sizes, where=sizes > 0, initial=np.inf)), float(sizes.max())
    words = f"largest entries from {low:.3g} to {high:.3g}"
    if high > UNEVEN * low:
        words += ": scaled to about the same size, columns would be easier for every method"
    return words


# -- the model -------------------------------------------------------------------------------------


def model_of(parameters: Mapping[str, Any], store: Store) -> LinearModel:
    """Return the linear model that a task's parameters describe."""
    rows, loss = rows_of(parameters["data"], store), parameters["loss"]
    y = as_binary(rows.y) if make_loss(loss).classification else rows.y
    return LinearModel(rows.X, y, loss=loss, l2=parameters["l2"], **parameters["options"])


# -- the minimum -----------------------------------------------------------------------------------


class Found(NamedTuple):
    """What a solver found; `lower` is a certified lower bound, -inf where there is none."""

    solver: str
    x: Vector
    value: float
    lower: float = -math.inf


def minimum_task(parameters: Mapping[str, Any]) -> Task:
    """Return the task that finds the model's minimum."""
    return Task("compare-minimum", {name: parameters[name] for name in MODEL})


@task("compare-minimum")
def find_minimum(parameters: dict[str, Any], store: Store) -> Outcome:
    """Find the minimum; the lowest value counts where there are several solvers for a loss."""
    model = model_of(parameters, store)
    found = list(_solutions(model))
    best = min(found, key=lambda one: one.value)
    lower = max(one.lower for one in found)
    facts = {
        "minimum": best.value,
        "solver": best.solver,
        "lower": lower if math.isfinite(lower) else None,
        "start": model.value(np.zeros(model.n_parameters)),
        "shape": [model.n_samples, model.n_features],
        "distance": float(np.linalg.norm(best.x)),
    }
    return Outcome({"x": best.x}, facts)


def _solutions(model: LinearModel) -> Iterator[Found]:
    if model.loss.name == "squared" and model.n_samples * model.n_features <= SVD_ENTRIES:
        yield _by_svd(model)
    elif math.isfinite(model.loss.curvature):
        yield _by_lbfgs(model)
    elif model.l2 == 0 and model.n_samples <= LP_ROWS:
        yield _by_highs(model)
    elif model.l2 == 0 or model.loss.name not in LIBLINEAR_LOSSES:
        yield _by_smoothing(model, np.zeros(model.n_parameters), SMOOTHING)
    else:
        found = _by_liblinear(model)
        yield found
        yield _by_smoothing(model, found.x, SMOOTHING[WARM:])


def _by_svd(model: LinearModel) -> Found:
    X = model.X.toarray() if _is_sparse(model.X) else model.X
    U, sizes, Vt = scipy.linalg.svd(X, full_matrices=False)
    kept = sizes > sizes[0] * max(X.shape) * np.finfo(np.float64).eps
    factors = sizes[kept] / (sizes[kept] ** 2 + model.n_samples * model.l2)
    return _judged("SciPy's SVD", (factors * (model.y @ U[:, kept])) @ Vt[kept], model)


def _judged(solver: str, w: Vector, model: LinearModel) -> Found:
    """Return a solution with its value, and the lower bound that its own slopes prove."""
    at = model.evaluate(w)
    return Found(solver, w, at.value, at.dual_value if model.l2 > 0 else -math.inf)


def _by_lbfgs(model: LinearModel) -> Found:
    found = Found("", np.zeros(model.n_parameters), math.inf)
    for _ in range(RESTARTS):  # each forgets the curvature learnt far from the minimum
        w = _lbfgs(model.value_and_gradient, found.x, model, steps=_affordable(model, 5e9, 20_000))
        found = _judged("SciPy's L-BFGS-B", w, model)
        if found.value - found.lower <= ENOUGH * ENOUGH * found.value:
            break
    return found


def _lbfgs(
    fun: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    model: LinearModel,
    *,
    steps: int,
) -> Vector:
    """Minimise in coordinates in which all columns have about the same curvature.

    Without that, columns of different units (metres, dollars) make it end far from the minimum.
    """
    unit = model.value(np.zeros_like(start)) or 1.0
    scale = np.sqrt(_mean_squares(model.X) + model.l2)
    scale[scale == 0] = 1.0

    def scaled(v: Vector) -> tuple[float, Vector]:
        value, gradient = fun(v / scale)
        return value / unit, gradient / (scale * unit)

    options: Any = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30, "ftol": 0.0, "gtol": 1e-14}
    found: Any = scipy_minimize(scaled, start * scale, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, dtype=np.float64) / scale


def _is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


def _mean_squares(X: Any) -> Vector:
    squares = X.multiply(X) if _is_sparse(X) else X * X
    return np.asarray(squares.mean(axis=0), dtype=np.float64).ravel()


def _affordable(model: LinearModel, work: float, most: int) -> int:
    """Return how many passes over the data are affordable: not by the clock, which would show."""
    entries = model.X.nnz if _is_sparse(model.X) else model.X.size
    return int(np.clip(work / (entries + 10 * model.n_samples), 100, most))


class Kinks:
    """A loss with kinks as slopes that go from `low` to `high` where the prediction passes y.

    All four have this form: l(m) = max over low <= theta <= high of theta (m - y) - zone |theta|,
    where the zone is that of the epsilon-insensitive loss, and 0 for the others.
    """

    def __init__(self, model: LinearModel) -> None:
        self.model = model
        self.zone = float(getattr(model.loss, "epsilon", 0.0))
        far = 2.0 + self.zone + np.abs(model.y)
        self.low = np.asarray(model.loss.derivative(model.y - far, model.y), dtype=np.float64)
        self.high = np.asarray(model.loss.derivative(model.y + far, model.y), dtype=np.float64)

    def slopes(self, margins: Vector, mu: float) -> Vector:
        """Return the slopes theta of the loss smoothed by mu, that is less mu/2 theta^2."""
        residual = margins - self.model.y
        if self.zone:
            residual = np.sign(residual) * np.maximum(np.abs(residual) - self.zone, 0.0)
        return np.clip(residual / mu, self.low, self.high)

    def smoothed(self, w: Vector, mu: float) -> tuple[float, Vector]:
        """Return the smoothed objective and its gradient."""
        model = self.model
        margins = model.evaluate(w).margins
        theta = self.slopes(margins, mu)
        losses = theta * (margins - model.y) - self.zone * np.abs(theta) - mu / 2 * theta**2
        value = float(losses.mean()) + model.l2 / 2 * float(w @ w)
        return value, model.X.T @ theta / model.n_samples + model.l2 * w


def _by_smoothing(model: LinearModel, start: Vector, shares: Sequence[float]) -> Found:
    """Smooth the loss less and less; the smoothed slopes are a feasible point of the dual."""
    kinks, steps = Kinks(model), _affordable(model, 1.5e9, 2000)
    unit = model.value(np.zeros(model.n_parameters)) or 1.0
    best = Found("SciPy's L-BFGS-B on the smoothed loss", start, model.value(start))
    w = start
    for share in shares:
        smoothed = partial(kinks.smoothed, mu=share * unit)
        w = _lbfgs(smoothed, w, model, steps=steps)
        at = model.evaluate(w)
        if at.value < best.value:
            best = best._replace(x=w, value=at.value)
        if model.l2 > 0:
            bound = model.dual_value_at(kinks.slopes(at.margins, share * unit))
            best = best._replace(lower=max(best.lower, bound))
        if best.value - best.lower <= ENOUGH * best.value:
            break
    return best


def _by_highs(model: LinearModel) -> Found:
    """Solve the linear programme: X w + above - below (+ slack within the zone) = y."""
    kinks, n, d = Kinks(model), model.n_samples, model.n_features
    identity = sp.identity(n, format="csr")
    blocks: Any = [sp.csr_matrix(model.X), identity, -identity, identity]
    costs = np.concatenate([np.zeros(d), -kinks.low / n, kinks.high / n, np.zeros(n)])
    limits = np.repeat(
        [[-np.inf, np.inf], [0, np.inf], [-kinks.zone, kinks.zone]], [d, 2 * n, n], 0
    )
    equations: Any = sp.hstack(blocks, format="csc")
    bounds: Any = limits
    solved: Any = linprog(costs, A_eq=equations, b_eq=model.y, bounds=bounds, method="highs")
    if solved.x is None:
        return Found("HiGHS", np.zeros(d), math.inf)
    return _judged("HiGHS", np.asarray(solved.x[:d], dtype=np.float64), model)


def _by_liblinear(model: LinearModel) -> Found:
    w = liblinear_minimiser(model, steps=_affordable(model, 5e9, 20_000))
    return _judged("LIBLINEAR", w, model)
