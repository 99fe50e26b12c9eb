"""The user's own data as tasks: the linear model of a file, and its minimum.

The minimum comes from solvers that have nothing to do with the methods compared: SciPy's L-BFGS-B
for smooth losses; for those with kinks LIBLINEAR, and L-BFGS-B on the smoothed loss, whose slopes
also give a certified lower bound; HiGHS where such a loss comes without an l2 term.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.optimize import minimize as scipy_minimize

from accelegrad.errors import Vector
from accelegrad.experiments.tasks import Outcome, Store, Task, task
from accelegrad.experiments.text import _bytes, _packed
from accelegrad.problems.datasets import DataError, as_binary, read
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import make_loss

LOSSES = {
    "logistic": "logistic regression",
    "hinge": "SVM (hinge loss)",
    "squared_hinge": "SVM (squared hinge loss)",
    "squared": "least squares",
    "absolute": "least absolute deviations",
    "huber": "regression with Huber's loss",
    "quantile": "quantile regression",
    "epsilon_insensitive": "regression with the epsilon-insensitive loss",
}
MODEL = ("data", "loss", "options", "l2")
LEAST_ROWS = 2
ENOUGH = 1e-9  # a certified gap, relative to the minimum, below which the search for it ends
SMOOTHING = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # in turn, times the objective at zero
LP_ROWS = 20_000  # beyond, a linear programme would take too long


# -- data ------------------------------------------------------------------------------------------


def imported_data(path: Path, target: str | int | None, loss: str, store: Store) -> dict[str, Any]:
    """Read a file into the store, once for its content, and return the `data` parameter for it.

    Whatever is wrong with the file, or with its targets for this loss, is a DataError here, before
    anything is computed.
    """
    data: dict[str, Any] = {
        "source": path.name,
        "sha256": hashlib.sha256(_bytes(path)).hexdigest(),
    }
    if target is not None:
        data["target"] = target
    stored = store.load(Task("dataset", data))
    dataset = _packed(read(path, target=target)) if stored is None else stored
    _check_targets(path, dataset.arrays["y"], loss)
    if stored is None:
        store.save(Task("dataset", data), dataset)
    return data


def _check_targets(path: Path, y: Vector, loss: str) -> None:
    if y.size < LEAST_ROWS:
        raise DataError(
            f"{path}: the file has {y.size} row, but a comparison needs at least {LEAST_ROWS}."
        )
    if make_loss(loss).classification:
        try:
            as_binary(y)
        except ValueError as error:
            raise DataError(
                f"{path}: {error} The loss {loss!r} is for two classes; for numbers to predict "
                "take 'squared', 'absolute', 'huber', 'quantile' or 'epsilon_insensitive'."
            ) from None


def data_facts(data: Mapping[str, Any], loss: str, store: Store) -> dict[str, str]:
    """Return what the report says about the data."""
    outcome = store.get(Task("dataset", data))
    facts = {
        "data": outcome.facts["description"],
        "file": data["source"],
        "sha256": data["sha256"],
    }
    if "target" in data:
        facts["target"] = f"column {data['target']!r}"
    if make_loss(loss).classification:
        low, high = np.unique(outcome.arrays["y"])
        facts["labels"] = f"{low:g} is taken as -1, {high:g} as +1"
    empty = outcome.facts["shape"][1] - _features(outcome).shape[1]
    if empty:
        facts["empty columns"] = f"{empty}, left out: their coefficients would stay at zero"
    return facts


def data_shape(data: Mapping[str, Any], store: Store) -> tuple[int, int]:
    """Return the numbers of rows and of columns that are not empty."""
    rows, columns = _features(store.get(Task("dataset", data))).shape
    return int(rows), int(columns)


def _features(outcome: Outcome) -> Any:
    """Return the matrix of a data set; a sparse one without its empty columns.

    A coordinate whose column is empty never leaves zero: leaving it out changes no method.
    """
    if "dense" in outcome.arrays:
        return outcome.arrays["dense"]
    parts = tuple(outcome.arrays[name] for name in ("values", "indices", "indptr"))
    X: Any = sp.csr_matrix(parts, shape=outcome.facts["shape"])
    used = np.unique(X.indices)
    return X if used.size == X.shape[1] else X[:, used].tocsr()


# -- the model -------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _rows(key: str, folder: Path) -> tuple[Any, Vector]:
    outcome = Store(folder).get(Task("dataset", json.loads(key)))
    return _features(outcome), outcome.arrays["y"]


def model_of(parameters: Mapping[str, Any], store: Store) -> LinearModel:
    """Return the linear model that a task's parameters describe."""
    X, y = _rows(json.dumps(parameters["data"], sort_keys=True), store.folder)
    loss = parameters["loss"]
    target = as_binary(y) if make_loss(loss).classification else y
    return LinearModel(X, target, loss=loss, l2=parameters["l2"], **parameters["options"])


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
    if math.isfinite(model.loss.curvature):
        yield _by_lbfgs(model)
        return
    yield _by_smoothing(model)
    if model.l2 == 0 and model.n_samples <= LP_ROWS:
        yield _by_highs(model)
    if model.l2 > 0 and model.loss.name != "quantile":  # which LIBLINEAR does not know
        yield _by_liblinear(model)


def _by_lbfgs(model: LinearModel) -> Found:
    start = np.zeros(model.n_parameters)
    w = _lbfgs(model.value_and_gradient, start, model, steps=_affordable(model, 2e10, 20_000))
    at = model.evaluate(w)
    lower = at.dual_value if model.l2 > 0 else -math.inf
    return Found("SciPy's L-BFGS-B", w, at.value, lower)


def _lbfgs(
    fun: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    model: LinearModel,
    *,
    steps: int,
    ftol: float = 0.0,
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

    options: Any = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30, "gtol": 1e-14}
    options["ftol"] = ftol
    found: Any = scipy_minimize(scaled, start * scale, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, dtype=np.float64) / scale


def _mean_squares(X: Any) -> Vector:
    squares = X.multiply(X) if sp.issparse(X) else X * X
    return np.asarray(squares.mean(axis=0), dtype=np.float64).ravel()


def _affordable(model: LinearModel, work: float, most: int) -> int:
    """Return how many passes over the data are affordable: not by the clock, which would show."""
    entries = model.X.nnz if sp.issparse(model.X) else model.X.size
    return int(np.clip(work / (entries + 10 * model.n_samples), 100, most))


class _Kinks:
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

    def slopes(self, w: Vector, mu: float) -> Vector:
        """Return the slopes theta of the loss smoothed by mu, that is less mu/2 theta^2."""
        residual = self.model.evaluate(w).margins - self.model.y
        if self.zone:
            residual = np.sign(residual) * np.maximum(np.abs(residual) - self.zone, 0.0)
        return np.clip(residual / mu, self.low, self.high)

    def smoothed(self, w: Vector, mu: float) -> tuple[float, Vector]:
        """Return the smoothed objective and its gradient."""
        model = self.model
        margins, theta = model.evaluate(w).margins, self.slopes(w, mu)
        losses = theta * (margins - model.y) - self.zone * np.abs(theta) - mu / 2 * theta**2
        value = float(losses.mean()) + model.l2 / 2 * float(w @ w)
        return value, model.X.T @ theta / model.n_samples + model.l2 * w


def _by_smoothing(model: LinearModel) -> Found:
    """Smooth the loss less and less; the smoothed slopes are a feasible point of the dual."""
    kinks = _Kinks(model)
    unit = model.value(np.zeros(model.n_parameters)) or 1.0
    best = Found("", np.zeros(model.n_parameters), unit)
    w, lower = best.x, -math.inf
    for share in SMOOTHING:
        mu, steps = share * unit, _affordable(model, 3e9, 2000)
        w = _lbfgs(lambda w, mu=mu: kinks.smoothed(w, mu), w, model, steps=steps, ftol=1e-4 * share)  # type: ignore[misc]
        value = model.value(w)
        if value < best.value:
            best = best._replace(x=w, value=value)
        if model.l2 > 0:
            lower = max(lower, model.dual_value_at(kinks.slopes(w, mu)))
        if best.value - lower <= ENOUGH * best.value:
            break
    return best._replace(solver="SciPy's L-BFGS-B on the smoothed loss", lower=lower)


def _by_highs(model: LinearModel) -> Found:
    """Solve the linear programme: X w + above - below (+ slack within the zone) = y."""
    kinks, n, d = _Kinks(model), model.n_samples, model.n_features
    identity = sp.identity(n, format="csr")
    blocks: Any = [sp.csr_matrix(model.X), identity, -identity, identity]
    costs = np.concatenate([np.zeros(d), -kinks.low / n, kinks.high / n, np.zeros(n)])
    limits = np.repeat(
        [[-np.inf, np.inf], [0, np.inf], [-kinks.zone, kinks.zone]], [d, 2 * n, n], 0
    )
    solved: Any = linprog(
        costs, A_eq=sp.hstack(blocks, format="csc"), b_eq=model.y, bounds=limits, method="highs"
    )
    if solved.x is None:
        return Found("HiGHS", np.zeros(d), math.inf)
    w = np.asarray(solved.x[:d], dtype=np.float64)
    return Found("HiGHS", w, model.value(w))


def _by_liblinear(model: LinearModel) -> Found:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC, LinearSVR

    common = {
        "C": 1 / (model.l2 * model.n_samples),
        "tol": 1e-10,
        "max_iter": _affordable(model, 5e9, 20_000),
        "fit_intercept": False,
        "random_state": 0,
        "dual": True,
    }
    if model.loss.classification:
        solver = LinearSVC(loss="hinge", **common)
    else:
        zone = getattr(model.loss, "epsilon", 0.0)
        solver = LinearSVR(loss="epsilon_insensitive", epsilon=zone, **common)
    with warnings.catch_warnings():
        # How exact the minimum is, is told by the lower bound beside it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.fit(for_liblinear(model.X), model.y)
    at = model.evaluate(np.ravel(solver.coef_).astype(np.float64))
    return Found("LIBLINEAR", at.w, at.value, at.dual_value)


def for_liblinear(X: Any) -> Any:
    """Return a matrix as LIBLINEAR takes it: a sparse one with indices of 32 bits."""
    if not sp.issparse(X) or X.indices.dtype == np.int32:
        return X
    parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_matrix(parts, shape=X.shape)
