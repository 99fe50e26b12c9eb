"""Compare two source trees by about 80 calls: time, success and certified gap.

Run: python gate.py --before OTHER/src --after THIS/src [--only PATTERN] [--seconds 2] [--list]

Each call runs in fresh processes of its own, two per tree: one with the default number of threads,
whose wall time is reported, and one with one thread, whose CPU time is reported (both include child
processes). They take turns (before, after, after, before, ...), so that a busy machine disturbs
both alike. The first call of a process is not counted: it loads and compiles. The fastest calls are
compared. Only public names are used, so that trees with other modules can be compared.

A lower bound of one tree that lies above a value found by the other is false: this is checked for
every call. The command fails where the geometric mean of the ratios is beyond --mean, a call beyond
--worst, a success or a proof is lost, or a bound is false. Sets of ACCELEGRAD_DATA are used where
they exist; generated ones of the same shape replace those that do not.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

MEAN_LIMIT, WORST_LIMIT = 1.05, 1.3  # as the project's goals have them
FEWEST_ROUNDS, MOST_ROUNDS = 2, 60  # chosen; a round is two calls of each process
MOST_STORED_ROWS = 10_000  # of a set of ACCELEGRAD_DATA; chosen, for time
NEGLIGIBLE = 1e-9  # relative: two sums of the same rows differ by less

Fun = Callable[[Any], tuple[float, Any]]


class Outcome(NamedTuple):
    """What a call found."""

    success: bool
    value: float
    gap: float  # certified; NaN where the call certifies nothing


Call = Callable[[], Outcome]


def _of_result(result: Any) -> Outcome:
    gap = getattr(result, "gap", None)
    return Outcome(bool(result.success), float(result.fun), math.nan if gap is None else float(gap))


def _of_estimator(estimator: Any, X: Any, y: Any) -> Outcome:
    estimator.fit(X, y)
    value, gap = (float(np.max(getattr(estimator, at))) for at in ("objective_", "gap_"))
    return Outcome(bool(np.all(estimator.converged_)), value, gap)


def _given(options: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return options of `minimize`; sets and penalties are given as functions that make them."""
    import accelegrad as ag

    made = {name: one(ag) if callable(one) else one for name, one in options.items()}
    return {**defaults, **made}


# -- data ------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Rows and targets; dense rows are standardised."""

    X: Any
    y: Any


def _standardised(X: Any) -> Any:
    X = np.asarray(X, dtype=np.float64)
    deviation = X.std(axis=0)
    varied = deviation > 0
    return np.ascontiguousarray((X[:, varied] - X[:, varied].mean(axis=0)) / deviation[varied])


def _dense(rows: int, columns: int, classes: bool) -> Data:
    """Return correlated columns with heavy tails, and noisy targets."""
    rng = np.random.default_rng(0)
    mixing = np.eye(columns) + rng.standard_normal((columns, columns)) / np.sqrt(columns)
    X = rng.standard_t(4, (rows, columns)) @ mixing
    y = X @ rng.standard_normal(columns) / np.sqrt(columns) + rng.standard_t(3, rows)
    return Data(_standardised(X), np.where(y > 0, 1.0, -1.0) if classes else y / y.std())


def _sparse(rows: int, columns: int, entries: int, classes: bool = True) -> Data:
    """Return sparse rows of length 1 whose columns are as unequal as words."""
    rng = np.random.default_rng(0)
    words = np.minimum((columns * rng.random((rows, entries)) ** 3).astype(np.int32), columns - 1)
    X = sp.csr_matrix(
        (rng.random(rows * entries), words.ravel(), np.arange(rows + 1) * entries),
        shape=(rows, columns),
    )
    X.sum_duplicates()
    X = sp.csr_matrix(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))))
    margins = X @ rng.standard_normal(columns) + 0.3 * rng.standard_normal(rows)
    return Data(X, np.where(margins > 0, 1.0, -1.0) if classes else margins)


def _bundled(name: str) -> Data:
    """Return a small set of scikit-learn's; labels that are classes stay as they are."""
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Data(_standardised(X), y / y.std() if name == "diabetes" else y)


def _stored(name: str, otherwise: Callable[[], Data]) -> Data:
    """Return a set of ACCELEGRAD_DATA, or what replaces it."""
    path = Path(os.environ.get("ACCELEGRAD_DATA") or os.devnull, f"{name}.bz2")
    if not path.is_file():
        return otherwise()
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    chosen = np.random.default_rng(0).permutation(y.size)[:MOST_STORED_ROWS]
    X, y = sp.csr_matrix(X[chosen]), y[chosen]
    dense = X.nnz > X.shape[0] * X.shape[1] / 4
    rows = _standardised(X.toarray()) if dense else X
    if np.unique(y).size == 2:
        return Data(rows, np.where(y == y.max(), 1.0, -1.0))
    return Data(rows, (y - y.mean()) / y.std())


#: Shapes were drawn once (log-uniform, 1e4 to 1e6 entries) and are written down.
SETS: dict[str, Callable[[], Data]] = {
    "tall": partial(_dense, 20_000, 20, classes=True),
    "square": partial(_dense, 600, 430, classes=True),
    "wide": partial(_dense, 200, 1000, classes=True),
    "numbers": partial(_dense, 5000, 30, classes=False),
    "many numbers": partial(_dense, 17_000, 51, classes=False),
    "wide numbers": partial(_dense, 150, 700, classes=False),
    "text": partial(_sparse, 2000, 5000, 40),
    "short text": partial(_sparse, 12_000, 900, 9),
    "text numbers": partial(_sparse, 3000, 4000, 25, classes=False),
    "breast_cancer": partial(_bundled, "breast_cancer"),
    "digits": partial(_bundled, "digits"),
    "iris": partial(_bundled, "iris"),
    "diabetes": partial(_bundled, "diabetes"),
    "a9a": partial(_stored, "a9a", partial(_sparse, 10_000, 123, 14)),
    "rcv1": partial(_stored, "rcv1_vw_small", partial(_sparse, 10_000, 40_000, 75)),
    "ijcnn1": partial(_stored, "ijcnn1", partial(_dense, 10_000, 22, classes=True)),
    "cpusmall": partial(_stored, "cpusmall", partial(_dense, 8192, 12, classes=False)),
    "abalone": partial(_stored, "abalone", partial(_dense, 4177, 8, classes=False)),
}
data_of = cache(lambda name: SETS[name]())


def _two_classes(name: str) -> Data:
    X, y = data_of(name)
    return Data(
        X, np.where(2 * y > y.max(), 1.0, -1.0) if name in ("breast_cancer", "digits") else y
    )


# -- functions: plain Python callables -------------------------------------------------------------


def _affine(rows: int, n: int, evaluate: Any, l2: float = 0.0, condition: float = 1.0) -> Fun:
    """Return F(Ax - b) + l2/2 ||x||^2 with columns scaled from 1 to `condition`.

    `evaluate` gives the value and the slopes of F.
    """
    rng = np.random.default_rng(0)
    A = rng.standard_normal((rows, n)) * np.geomspace(1.0, condition, n)
    b = rng.standard_normal(rows)

    def fun(x: Any) -> tuple[float, Any]:
        value, slopes = evaluate(A @ x - b)
        return value + l2 / 2 * x @ x, A.T @ slopes + l2 * x

    return fun


def _squares(n: int, condition: float = 1.0) -> Fun:
    """Return the mean of (Ax - b)^2."""
    return _affine(4 * n, n, lambda z: (z @ z / z.size, 2 * z / z.size), condition=condition)


def _distances(n: int) -> Fun:
    """Return the mean of |Ax - b|."""
    return _affine(4 * n, n, lambda z: (np.abs(z).mean(), np.sign(z) / z.size))


def _log_sum_exp(n: int) -> Fun:
    def evaluate(z: Any) -> tuple[float, Any]:
        top = z.max()
        weights = np.exp(z - top)
        return top + np.log(weights.sum()), weights / weights.sum()

    return _affine(3 * n, n, evaluate, l2=0.1)


def _largest(n: int) -> Fun:
    """Return the largest of 4 n affine functions, plus a small square."""
    return _affine(4 * n, n, lambda z: (z.max(), (np.arange(z.size) == z.argmax()) * 1.0), l2=0.01)


def _chain(n: int) -> Fun:
    """Return a smooth chain of n coordinates: cheap to evaluate, many parameters."""
    b = np.random.default_rng(0).standard_normal(n)

    def fun(x: Any) -> tuple[float, Any]:
        steps, off = np.diff(x), x - b
        root = np.sqrt(1 + steps**2)
        gradient = 0.5 * off
        gradient[:-1] -= steps / root
        gradient[1:] += steps / root
        return float((root - 1).sum() + 0.25 * off @ off), gradient

    return fun


def _kinked_chain(n: int) -> Fun:
    """Return total variation plus a square."""
    b = np.cumsum(np.random.default_rng(0).standard_normal(n)) / np.sqrt(n)

    def fun(x: Any) -> tuple[float, Any]:
        steps, off = np.diff(x), x - b
        gradient = off.copy()
        gradient[:-1] -= 0.1 * np.sign(steps)
        gradient[1:] += 0.1 * np.sign(steps)
        return float(0.1 * np.abs(steps).sum() + 0.5 * off @ off), gradient

    return fun


def _largest_eigenvalue(n: int) -> Fun:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((6, n, n))
    matrices += matrices.transpose(0, 2, 1)
    constant, terms = matrices[0], matrices[1:]

    def fun(x: Any) -> tuple[float, Any]:
        values, vectors = np.linalg.eigh(constant + np.tensordot(x, terms, 1))
        v = vectors[:, -1]
        return values[-1] + 0.05 * x @ x, v @ terms @ v + 0.1 * x

    return fun


def _minimized(fun: Callable[[], Fun], n: int, **options: Any) -> Call:
    """Return a call of `minimize`."""
    import accelegrad as ag

    function, given = fun(), _given(options, max_iter=3000, tol=1e-6)
    x0 = np.full(n, 1 / n) if "feasible_set" in given else np.zeros(n)
    return lambda: _of_result(ag.minimize(function, x0, **given))


def _steps(fun: Callable[[], Fun], n: int, method: str, steps: int, **options: Any) -> Call:
    """Return a run of a fixed number of steps of one method, which no tolerance ends."""
    import accelegrad as ag

    function = fun()

    def call() -> Outcome:
        result = ag.minimize(function, np.zeros(n), method=method, max_iter=steps, **options)
        return _of_result(result)._replace(success=True)  # it may end at rounding error

    return call


def _noisy(steps: int) -> Call:
    """Return a run on noisy gradients without values."""
    import accelegrad as ag

    fun = _squares(100)

    def call() -> Outcome:
        rng = np.random.default_rng(1)
        result = ag.minimize(
            None,
            np.zeros(100),
            jac=lambda x: fun(x)[1] + 0.1 * rng.standard_normal(100),
            exact=False,
            diameter=4.0,
            max_iter=steps,
        )
        return Outcome(result.nit == steps, fun(result.x)[0], math.nan)

    return call


def _scipy_method() -> Call:
    from scipy import optimize

    import accelegrad as ag

    fun = _squares(50)
    minimize: Any = optimize.minimize
    return lambda: _of_result(
        minimize(fun, np.zeros(50), jac=True, method=ag.scipy_method, tol=1e-6)
    )


def _polyhedron(n: int) -> Call:
    """Return least squares over a polyhedron given as SciPy gives it."""
    from scipy.optimize import LinearConstraint

    rng = np.random.default_rng(0)
    constraint = LinearConstraint(rng.standard_normal((n // 2, n)), -0.2, 0.2)
    return _minimized(partial(_squares, n), n, constraints=constraint)


# -- fits ------------------------------------------------------------------------------------------


def _fit(
    name: str, loss: str, strength: float = 1.0, *, intercept: bool = False, **options: Any
) -> Call:
    """Return a fit of mean loss + l2/2 ||w||^2 with l2 = strength / rows."""
    import accelegrad as ag

    X, y = _two_classes(name)
    given = _given(options, tol=1e-6, rng=0)

    def call() -> Outcome:
        model = ag.LinearModel(X, y, loss, l2=strength / y.size, fit_intercept=intercept)
        return _of_result(ag.minimize(model, **given))

    return call


def _estimator(kind: str, name: str, **options: Any) -> Call:
    """Return a fit of one of our scikit-learn estimators, with its defaults but for `options`."""
    from accelegrad import sklearn

    estimator = getattr(sklearn, kind)(random_state=0, **options)
    return lambda: _of_estimator(estimator, *data_of(name))


def _partial_fit(name: str) -> Call:
    """Return ten chunks of `partial_fit`."""
    from accelegrad.sklearn import AcceleGradClassifier

    X, y = data_of(name)
    chunks = [(X[part], y[part]) for part in np.array_split(np.arange(y.size), 10)]

    def call() -> Outcome:
        estimator = AcceleGradClassifier(random_state=0)
        for part in chunks:
            estimator.partial_fit(*part, classes=np.unique(y))
        return Outcome(success=True, value=float(1 - estimator.score(X, y)), gap=math.nan)

    return call


def _minibatches(name: str, batch_size: int, steps: int) -> Call:
    """Return a run of a fixed number of steps on minibatches, which no tolerance ends."""
    import accelegrad as ag

    X, y = data_of(name)
    model = ag.LinearModel(X, y, "logistic", l2=1 / y.size)

    def call() -> Outcome:
        result = ag.minimize(model, batch_size=batch_size, max_iter=steps, rng=0)
        return Outcome(result.nit == steps, float(model.value(result.x)), math.nan)

    return call


def _stream(name: str, loss: str, **options: Any) -> Call:
    """Return a fit of rows that are read chunk by chunk."""
    import accelegrad as ag

    X, y = data_of(name)
    parts = np.array_split(np.arange(y.size), 16)
    chunks = [(X[part], y[part]) for part in parts]
    given = _given(options, tol=1e-6, rng=0)

    def call() -> Outcome:
        model = ag.StreamedModel(chunks, loss, l2=1 / y.size, fit_intercept=True)
        return _of_result(ag.minimize(model, **given))

    return call


@cache
def _blocks(name: str) -> tuple[Any, Any]:
    """Return rows that two local Dask workers hold, one thread each."""
    import dask.array as da
    from dask.distributed import Client

    Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    X, y = data_of(name)
    rows = -(-y.size // 4)
    first, second = (da.from_array(one, chunks=(rows, *one.shape[1:])).persist() for one in (X, y))
    return first, second


def _dask(name: str, loss: str, **options: Any) -> Call:
    """Return a fit of rows on a cluster."""
    import accelegrad as ag
    from accelegrad.dask import RowModel

    l2, given = 1 / data_of(name).y.size, _given(options, tol=1e-6, rng=0)
    model = RowModel(*_blocks(name), loss, l2=l2, fit_intercept=True)
    return lambda: _of_result(ag.minimize(model, **given))


def _dask_classifier(name: str) -> Call:
    from accelegrad.dask import AcceleGradClassifier

    estimator = AcceleGradClassifier(random_state=0)
    return lambda: _of_estimator(estimator, *_blocks(name))


def _torch(steps: int, **options: Any) -> Call:
    """Return steps of the torch optimizer on a small network."""
    import torch

    from accelegrad.torch import AcceleGrad

    torch.manual_seed(0)
    X, labels = torch.randn(2000, 50), torch.randint(0, 5, (2000,))

    def call() -> Outcome:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(50, 64), torch.nn.Tanh(), torch.nn.Linear(64, 5))
        optimizer = AcceleGrad(net.parameters(), **options)
        optimizer.train()
        for step in range(steps):
            rows = slice(step * 100 % 2000, step * 100 % 2000 + 100)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(X[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        optimizer.eval()
        value = float(torch.nn.functional.cross_entropy(net(X), labels))
        return Outcome(math.isfinite(value), value, math.nan)

    return call


def _optax(steps: int) -> Call:
    """Return steps of the optax transformation, compiled once."""
    import jax
    import jax.numpy as jnp
    import optax

    from accelegrad.optax import accelegrad, eval_params

    X = jax.random.normal(jax.random.key(0), (2000, 100))
    y = jnp.sign(X @ jnp.linspace(-1, 1, 100) + 0.5)

    def loss(w: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0, -y * (X @ w))) + 1e-3 * jnp.sum(w**2)

    optimizer = accelegrad()

    @jax.jit
    def step(w: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(w), state, w)
        return optax.apply_updates(w, updates), state

    def call() -> Outcome:
        w = jnp.zeros(100)
        state = optimizer.init(w)
        for _ in range(steps):
            w, state = step(w, state)
        value = float(loss(eval_params(state, w)))
        return Outcome(math.isfinite(value), value, math.nan)

    return call


# -- the calls -------------------------------------------------------------------------------------


def _function(fun: Callable[..., Fun], n: int, **options: Any) -> Callable[[], Call]:
    return partial(_minimized, partial(fun, n), n, **options)


def _run(method: str, steps: int, **options: Any) -> Callable[[], Call]:
    return partial(_steps, partial(_squares, 100), 100, method, steps, **options)


def _made(name: str, *arguments: Any) -> Callable[[Any], Any]:
    """Return what makes a set or a penalty of the package, by its name."""
    return lambda ag: getattr(ag, name)(*arguments)


_SIMPLEX, _CLASSIFIER, _REGRESSOR = _made("Simplex"), "AcceleGradClassifier", "AcceleGradRegressor"
_UNIFORM = np.full(30, 1 / 30)

# fmt: off
CALLS: dict[str, Callable[[], Call]] = {
    "function, squares, n = 2": _function(_squares, 2),
    "function, squares, n = 100": _function(_squares, 100),
    "function, squares, condition 1e6, n = 200": partial(_minimized, partial(_squares, 200, 1e3), 200),
    "function, log-sum-exp, n = 40": _function(_log_sum_exp, 40),
    "function, smooth chain, n = 20000": _function(_chain, 20_000, tol=1e-4),
    "function, scipy_method, n = 50": _scipy_method,
    "function, absolute, n = 5": _function(_distances, 5),
    "function, absolute, n = 60": _function(_distances, 60, tol=1e-4),
    "function, largest of affine, n = 30": _function(_largest, 30, tol=1e-4),
    "function, largest eigenvalue, n = 5": partial(_minimized, partial(_largest_eigenvalue, 30), 5, tol=1e-5),
    "function, total variation, n = 2000": _function(_kinked_chain, 2000, tol=1e-2, max_iter=500),
    "function, squares, bounds, n = 100": _function(_squares, 100, bounds=[(0.0, 1.0)] * 100),
    "function, squares, ball, n = 100": _function(_squares, 100, feasible_set=_made("Ball", np.zeros(100), 0.1)),
    "function, squares, simplex, n = 1000": _function(_squares, 1000, feasible_set=_SIMPLEX, tol=1e-4),
    "function, absolute, simplex, n = 20": _function(_distances, 20, feasible_set=_SIMPLEX, tol=1e-4),
    "function, largest of affine, box, n = 30": _function(_largest, 30, feasible_set=_made("Box", -0.2, 0.2), tol=1e-4),
    "function, squares, l1 ball, n = 100": _function(_squares, 100, feasible_set=_made("L1Ball", 1.0)),
    "function, squares, polyhedron, n = 20": partial(_polyhedron, 20),
    "function, squares, polyhedron, n = 200": partial(_polyhedron, 200),
    "function, smooth chain, box, n = 20000": _function(_chain, 20_000, feasible_set=_made("Box", -0.5, 0.5), tol=1e-4),
    "function, squares, l1 penalty, n = 100": _function(_squares, 100, penalty=_made("L1", 0.02)),
    "function, squares, nuclear norm, n = 100": _function(_squares, 100, penalty=_made("NuclearNorm", 0.02, (10, 10)), tol=1e-4),
    "steps, accelegrad, n = 100": _run("accelegrad", 1000, diameter=4.0),
    "steps, adagrad, n = 100": _run("adagrad", 1000, diameter=4.0),
    "steps, unixgrad, n = 100": _run("unixgrad", 500, diameter=4.0),
    "steps, universal-fast, n = 100": _run("universal-fast", 200, epsilon=1e-3),
    "steps, noisy gradients": partial(_noisy, 2000),
    "steps, batch_size = 1, rcv1": partial(_minibatches, "rcv1", 1, 2000),
    "steps, batch_size = 64, tall": partial(_minibatches, "tall", 64, 1000),
    # every loss, dense and sparse
    "fit, logistic, tall": partial(_fit, "tall", "logistic"),
    "fit, logistic, square, intercept": partial(_fit, "square", "logistic", intercept=True),
    "fit, logistic, wide": partial(_fit, "wide", "logistic", 0.01),
    "fit, logistic, text, intercept": partial(_fit, "text", "logistic", intercept=True),
    "fit, hinge, tall": partial(_fit, "tall", "hinge", tol=1e-4),
    "fit, hinge, wide, intercept": partial(_fit, "wide", "hinge", intercept=True, tol=1e-4),
    "fit, hinge, short text": partial(_fit, "short text", "hinge", tol=1e-4),
    "fit, squared_hinge, tall, intercept": partial(_fit, "tall", "squared_hinge", intercept=True),
    "fit, squared_hinge, text": partial(_fit, "text", "squared_hinge"),
    "fit, modified_huber, short text": partial(_fit, "short text", "modified_huber"),
    "fit, squared, many numbers": partial(_fit, "many numbers", "squared"),
    "fit, squared, text numbers, intercept": partial(_fit, "text numbers", "squared", intercept=True),
    "fit, absolute, numbers, intercept": partial(_fit, "numbers", "absolute", intercept=True, tol=1e-4),
    "fit, absolute, wide numbers, l2 = 0": partial(_fit, "wide numbers", "absolute", 0.0, tol=1e-4),
    "fit, huber, numbers, intercept": partial(_fit, "numbers", "huber", intercept=True),
    "fit, quantile, many numbers": partial(_fit, "many numbers", "quantile", tol=1e-4),
    "fit, epsilon_insensitive, text numbers": partial(_fit, "text numbers", "epsilon_insensitive", tol=1e-4),
    "fit, squared_epsilon_insensitive, numbers": partial(_fit, "numbers", "squared_epsilon_insensitive"),
    # penalties and sets
    "fit, squared, l1, numbers": partial(_fit, "numbers", "squared", 0.0, penalty=_made("L1", 0.01), tol=1e-5),
    "fit, squared, l1, wide numbers": partial(_fit, "wide numbers", "squared", 0.0, penalty=_made("L1", 0.05), tol=1e-5),
    "fit, logistic, l1, text": partial(_fit, "text", "logistic", 0.0, penalty=_made("L1", 1e-3), tol=1e-4),
    "fit, hinge, l1, square": partial(_fit, "square", "hinge", 1.0, penalty=_made("L1", 0.01), tol=1e-3),
    "fit, squared, elastic net, many numbers": partial(_fit, "many numbers", "squared", 0.0, penalty=_made("ElasticNet", 0.01, 0.5), tol=1e-5),
    "fit, logistic, groups, tall": partial(_fit, "tall", "logistic", penalty=_made("GroupL2", 0.01, np.arange(20) // 4), tol=1e-4),
    "fit, squared, box, numbers": partial(_fit, "numbers", "squared", feasible_set=_made("Box", -0.1, 0.1)),
    "fit, squared, simplex, numbers": partial(_fit, "numbers", "squared", feasible_set=_SIMPLEX, x0=_UNIFORM, tol=1e-4),
    # data sets
    "fit, logistic, breast_cancer": partial(_fit, "breast_cancer", "logistic"),
    "fit, hinge, breast_cancer, intercept": partial(_fit, "breast_cancer", "hinge", intercept=True),
    "fit, logistic, a9a, intercept": partial(_fit, "a9a", "logistic", intercept=True),
    "fit, logistic, rcv1": partial(_fit, "rcv1", "logistic"),
    "fit, hinge, rcv1": partial(_fit, "rcv1", "hinge"),
    "fit, logistic, ijcnn1": partial(_fit, "ijcnn1", "logistic", 0.01),
    "fit, absolute, cpusmall, l2 = 0, intercept": partial(_fit, "cpusmall", "absolute", 0.0, intercept=True, tol=1e-4),
    "fit, epsilon_insensitive, abalone": partial(_fit, "abalone", "epsilon_insensitive", tol=1e-4),
    "estimator, classifier, tall": partial(_estimator, _CLASSIFIER, "tall"),
    "estimator, classifier, text": partial(_estimator, _CLASSIFIER, "text"),
    "estimator, classifier, iris": partial(_estimator, _CLASSIFIER, "iris"),
    "estimator, classifier, digits": partial(_estimator, _CLASSIFIER, "digits"),
    "estimator, classifier, l1, breast_cancer": partial(_estimator, _CLASSIFIER, "breast_cancer", penalty="l1", alpha=1e-2),
    "estimator, regressor, cpusmall": partial(_estimator, _REGRESSOR, "cpusmall"),
    "estimator, regressor, quantile, diabetes": partial(_estimator, _REGRESSOR, "diabetes", loss="quantile"),
    "estimator, regressor, simplex, diabetes": partial(_estimator, _REGRESSOR, "diabetes", feasible_set="simplex"),
    "estimator, classifier CV, breast_cancer": partial(_estimator, _CLASSIFIER + "CV", "breast_cancer"),
    "estimator, regressor CV, diabetes": partial(_estimator, _REGRESSOR + "CV", "diabetes"),
    "estimator, partial_fit, rcv1": partial(_partial_fit, "rcv1"),
    "stream, logistic, tall": partial(_stream, "tall", "logistic"),
    "stream, hinge, short text": partial(_stream, "short text", "hinge", tol=1e-3),
    "stream, squared, l1, numbers": partial(_stream, "numbers", "squared", penalty=_made("L1", 0.01), tol=1e-5),
    "dask, logistic, tall": partial(_dask, "tall", "logistic"),
    "dask, squared, l1, numbers": partial(_dask, "numbers", "squared", penalty=_made("L1", 0.01), tol=1e-5),
    "dask, classifier, tall": partial(_dask_classifier, "tall"),
    "torch, 100 steps": partial(_torch, 100),
    "torch, 100 steps, diameter": partial(_torch, 100, diameter=10.0),
    "optax, 500 steps": partial(_optax, 500),
}
# fmt: on


# -- one process: one tree, one call, one number of threads ----------------------------------------


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the child processes that it has."""
    try:
        import psutil
    except ImportError:
        return time.process_time()
    children = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(one.cpu_times()[:2]) for one in children)


def serve(name: str) -> None:
    """Answer each line with the wall and CPU seconds of a call and its outcome, until the end."""
    warnings.simplefilter("ignore")  # a run that ends at its most iterations says so
    answer, sys.stdout = sys.stdout, sys.stderr
    try:
        call = CALLS[name]()
        for _ in sys.stdin:
            cpu, wall = _cpu_seconds(), time.perf_counter()
            outcome = call()
            times = time.perf_counter() - wall, _cpu_seconds() - cpu
            answer.write(json.dumps([*times, *outcome]) + "\n")
            answer.flush()
    except Exception as error:  # reported by the parent as a call that failed
        answer.write(json.dumps(f"{type(error).__name__}: {error}") + "\n")
        answer.flush()
        raise


class CallError(Exception):
    """A call that raised."""


class Process:
    """A fresh process that makes one call again and again, with one tree's package."""

    def __init__(self, source: Path, name: str, one_thread: bool) -> None:
        libraries = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        threads = [f"{library}_NUM_THREADS" for library in libraries]
        env = {key: value for key, value in os.environ.items() if key not in threads}
        if one_thread:
            env |= dict.fromkeys(threads, "1")
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name],
            env={**env, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self) -> None:
        """Begin a call."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise CallError("the process ended") from None

    def answer(self) -> tuple[float, float, Outcome]:
        """Return the wall and CPU seconds of the call that was asked for, and its outcome."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CallError("the process ended")
        read = json.loads(line)
        if isinstance(read, str):
            raise CallError(read)
        wall, cpu, *outcome = read
        return wall, cpu, Outcome(*outcome)

    def let_go(self) -> None:
        """Tell the process to end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def end(self) -> None:
        """Wait for the end of the process."""
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


# -- both trees ------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """A call in both trees, before and after: the fastest calls, in seconds, and the worst outcome."""

    name: str
    wall: list[float]
    cpu: list[float]
    outcomes: list[Outcome]

    @property
    def wrong(self) -> list[str]:
        """What is lost or false in the tree after."""
        before, after = self.outcomes
        found = []
        if before.success and not after.success:
            found.append("success lost")
        if math.isfinite(before.gap) and not math.isfinite(after.gap):
            found.append("proof lost")
        for name, one, other in (("before", before, after), ("after", after, before)):
            margin = NEGLIGIBLE * max(1.0, abs(one.value))
            if math.isfinite(one.gap) and one.value - one.gap > other.value + margin:
                found.append(f"bound {name} is false")
        return found


def compared(name: str, before: Path, after: Path, seconds: float) -> Compared:
    """Return the times of a call in both trees, by turns, for about this many seconds."""
    processes = [
        [Process(tree, name, one_thread) for tree in (before, after)]
        for one_thread in (False, True)
    ]
    every = [one for pair in processes for one in pair]
    try:
        for process in every:  # the first calls, which load and compile: not counted
            process.ask()
        for process in every:
            process.answer()
        fastest = []
        outcomes: list[list[Outcome]] = [[], []]
        for pair, one_thread in zip(processes, (False, True), strict=True):
            times: list[list[float]] = [[], []]
            begun, rounds = time.perf_counter(), 0
            while rounds < FEWEST_ROUNDS or (
                rounds < MOST_ROUNDS and time.perf_counter() - begun < seconds / 2
            ):
                for which in (0, 1, 1, 0):
                    pair[which].ask()
                    wall, cpu, outcome = pair[which].answer()
                    times[which].append(cpu if one_thread else wall)
                    outcomes[which].append(outcome)
                rounds += 1
            fastest.append([max(min(one), 1e-9) for one in times])
        worst = [min(own, key=lambda one: (one.success, -one.gap)) for own in outcomes]
        return Compared(name, fastest[0], fastest[1], worst)
    finally:
        for process in every:
            process.let_go()
        for process in every:
            process.end()


# -- the table -------------------------------------------------------------------------------------


def _row(one: Compared) -> str:
    """Return a line of the table."""
    cells = []
    for before, after in (one.wall, one.cpu):
        cells += [f"{1e3 * before:.2f}", f"{1e3 * after:.2f}", f"{after / before:.2f}"]
    for found in one.outcomes:
        gap = f"{found.gap:.1e}" if math.isfinite(found.gap) else "-"
        cells.append(("" if found.success else "no, ") + gap)
    return f"| {one.name} | {' | '.join(cells)} | {', '.join(one.wrong)} |"


def verdict(
    done: list[Compared], failed: list[str], mean_limit: float, worst_limit: float
) -> tuple[list[str], bool]:
    """Return what the results amount to, and whether that is within the limits."""
    words, within = [], not failed and bool(done)
    for kind in ("wall", "cpu") if done else ():
        ratios = {one.name: getattr(one, kind)[1] / getattr(one, kind)[0] for one in done}
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        slow = [f"{name} ({ratio:.2f})" for name, ratio in ratios.items() if ratio > worst_limit]
        within &= mean <= mean_limit and not slow
        words.append(
            f"{kind}: geometric mean {mean:.3f} (limit {mean_limit:g}), worst "
            f"{max(ratios.values()):.2f} (limit {worst_limit:g}) {'; '.join(slow)}"
        )
    wrong = [f"{one.name}: {', '.join(one.wrong)}" for one in done if one.wrong]
    words += [f"failed: {one}" for one in failed] + wrong
    return words, within and not wrong


def _tree(text: str) -> Path:
    """Return the folder that holds the package, of a checkout or its src."""
    for folder in (Path(text), Path(text) / "src"):
        if (folder / "accelegrad" / "__init__.py").is_file():
            return folder.resolve()
    raise argparse.ArgumentTypeError(f"{text} holds no package accelegrad")


def main() -> None:
    """Run the calls that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=_tree, help="a source tree: the folder of the package")
    parser.add_argument("--after", type=_tree, help="another one")
    parser.add_argument("--only", default="*", help="a pattern, or text that names contain")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each call, about")
    parser.add_argument("--mean", type=float, default=MEAN_LIMIT, help="of the ratios, at most")
    parser.add_argument("--worst", type=float, default=WORST_LIMIT, help="ratio, at most")
    parser.add_argument("--list", action="store_true", help="print the names of the calls")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return
    names = [name for name in CALLS if given.only in name or fnmatch.fnmatch(name, given.only)]
    if not names:
        parser.error(f"--only {given.only}: no call has such a name; --list prints them")
    if given.list:
        print("\n".join(names))
        return
    if given.before is None or given.after is None:
        parser.error("--before and --after must each name a source tree")
    print("| call | wall before, ms | after | ratio | CPU, ms | after | ratio | gap | after | |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    done, failed = [], []
    for name in names:
        try:
            done.append(compared(name, given.before, given.after, given.seconds))
            print(_row(done[-1]), flush=True)
        except CallError as error:
            failed.append(f"{name}: {str(error).splitlines()[0]}")
            print(f"| {failed[-1]} | | | | | | | | | failed |", flush=True)
    words, within = verdict(done, failed, given.mean, given.worst)
    print("", *words, sep="\n")
    sys.exit(not within)


if __name__ == "__main__":
    main()
