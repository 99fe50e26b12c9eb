"""Compare two source trees by about 70 calls: time, success and certified gap.

Run: python gate.py --before OTHER/src --after THIS/src [--only PATTERN] [--seconds 2] [--list]

Each call runs in fresh processes of its own, two per tree: one with the default number of threads,
whose wall time is reported, and one with one thread, whose CPU time is reported. They take turns
(before, after, after, before, ...), so that a busy machine disturbs both alike. The first call of a
process is not counted: it loads and compiles. The fastest calls are compared. Only public names of
the library are used, so that trees with other modules can be compared.

A lower bound of one tree that lies above a value found by the other is false: this is checked for
every call. The command fails where the geometric mean of the ratios is beyond --mean, a call beyond
--worst, a success or a proof is lost, or a bound is false. Sets of ACCELEGRAD_DATA are used where
they exist; generated ones of the same shape replace those that do not.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[1]))  # this lab, whichever is installed

from accelegrad_lab.engine.worker import SolverError, Worker, environment
from accelegrad_lab.functions import formulas
from accelegrad_lab.functions.formulas import Evaluate, Formula

MEAN_LIMIT, WORST_LIMIT = 1.05, 1.3  # as the project's goals have them
FEWEST_ROUNDS, MOST_ROUNDS = 2, 60  # chosen; a round is two calls of each process
MOST_STORED_ROWS = 10_000  # of a set of ACCELEGRAD_DATA; chosen, for time
NEGLIGIBLE = 1e-9  # relative: two sums of the same rows differ by less
PATIENCE = 3600.0  # seconds of one call; chosen, far beyond any of them


class Outcome(NamedTuple):
    """What a call found."""

    success: bool
    value: float
    gap: float = math.nan  # certified; NaN where the call certifies nothing


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
    **{name: partial(_bundled, name) for name in ("breast_cancer", "digits", "iris", "diabetes")},
    "a9a": partial(_stored, "a9a", partial(_sparse, 10_000, 123, 14)),
    "rcv1": partial(_stored, "rcv1_vw_small", partial(_sparse, 10_000, 40_000, 75)),
    "cpusmall": partial(_stored, "cpusmall", partial(_dense, 8192, 12, classes=False)),
}
data_of = cache(lambda name: SETS[name]())


def _two_classes(name: str) -> Data:
    X, y = data_of(name)
    return Data(X, np.where(2 * y > y.max(), 1.0, -1.0) if name == "breast_cancer" else y)


# -- functions: plain Python callables -------------------------------------------------------------


def _affine(outer: Formula, rows: int, n: int, l2: float = 0.0, condition: float = 1.0) -> Evaluate:
    """Return outer(Ax - b) + l2/2 ||x||^2 with columns scaled from 1 to `condition`."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((rows, n)) * np.geomspace(1.0, condition, n)
    inner = outer.of(A, -rng.standard_normal(rows))
    return (inner + formulas.squares(l2) if l2 else inner).fun


def _squares(n: int, condition: float = 1.0) -> Evaluate:
    """Return the mean of (Ax - b)^2."""
    return _affine(formulas.squares(0.5 / n), 4 * n, n, condition=condition)


def _distances(n: int) -> Evaluate:
    """Return the mean of |Ax - b|."""
    return _affine(formulas.absolute(0.25 / n), 4 * n, n)


def _log_sum_exp(n: int) -> Evaluate:
    return _affine(formulas.log_sum_exp(), 3 * n, n, l2=0.1)


def _largest(n: int) -> Evaluate:
    """Return the largest of 4 n affine functions, plus a small square."""
    return _affine(formulas.largest_linear(np.eye(4 * n)), 4 * n, n, l2=0.01)


def _chain(n: int) -> Evaluate:
    """Return a smooth chain of n coordinates: cheap to evaluate, many parameters."""
    b = np.random.default_rng(0).standard_normal(n)

    def fun(x: Any) -> tuple[float, Any]:
        steps, off = np.diff(x), x - b
        root = np.sqrt(1 + steps**2)
        slopes = steps / root
        return float((root - 1).sum() + 0.25 * off @ off), (
            0.5 * off + formulas.of_neighbours(-slopes, slopes)
        )

    return fun


def _kinked_chain(n: int) -> Evaluate:
    """Return total variation plus a square."""
    b = np.cumsum(np.random.default_rng(0).standard_normal(n)) / np.sqrt(n)
    square = formulas.squares(1.0).of(sp.identity(n, format="csr"), -b)
    return (square + formulas.total_variation(0.1)).fun


def _largest_eigenvalue(side: int) -> Evaluate:
    matrices = np.random.default_rng(0).standard_normal((6, side, side))
    matrices += matrices.transpose(0, 2, 1)
    return (formulas.largest_eigenvalue(matrices[0], matrices[1:]) + formulas.squares(0.1)).fun


def _function(fun: Callable[..., Evaluate], n: int, *more: Any, **options: Any) -> Call:
    """Return a call of `minimize` on a function of n coordinates."""
    import accelegrad as ag

    function, given = fun(n, *more), _given(options, max_iter=3000, tol=1e-6)
    x0 = np.full(n, 1 / n) if "feasible_set" in given else np.zeros(n)
    return lambda: _of_result(ag.minimize(function, x0, **given))


def _eigenvalue() -> Call:
    return _function(lambda _: _largest_eigenvalue(30), 5, tol=1e-5)


def _polyhedron(n: int) -> Call:
    """Return least squares over a polyhedron given as SciPy gives it."""
    from scipy.optimize import LinearConstraint

    rng = np.random.default_rng(0)
    constraint = LinearConstraint(rng.standard_normal((n // 2, n)), -0.2, 0.2)
    return _function(_squares, n, constraints=constraint)


def _scipy_method() -> Call:
    from scipy import optimize

    import accelegrad as ag

    fun, minimize = _squares(50), optimize.minimize
    options: Any = {"jac": True, "method": ag.scipy_method, "tol": 1e-6}
    return lambda: _of_result(minimize(fun, np.zeros(50), **options))


def _steps(method: str, steps: int, **options: Any) -> Call:
    """Return a run of a fixed number of steps of one method, which no tolerance ends."""
    import accelegrad as ag

    function = _squares(100)

    def call() -> Outcome:
        result = ag.minimize(function, np.zeros(100), method=method, max_iter=steps, **options)
        return _of_result(result)._replace(success=True)  # it may end at rounding error

    return call


def _noisy(steps: int) -> Call:
    """Return a run on noisy gradients without values."""
    import accelegrad as ag

    fun = _squares(100)

    def call() -> Outcome:
        rng = np.random.default_rng(1)

        def noisy(x: Any) -> Any:
            return fun(x)[1] + 0.1 * rng.standard_normal(100)

        options: Any = {"exact": False, "diameter": 4.0, "max_iter": steps}
        result = ag.minimize(None, np.zeros(100), jac=noisy, **options)
        return Outcome(result.nit == steps, fun(result.x)[0])

    return call


# -- fits ------------------------------------------------------------------------------------------


def _minimized(make: Callable[[], Any], options: dict[str, Any]) -> Call:
    """Return a call of `minimize` on a model that is made anew each time."""
    import accelegrad as ag

    given = _given(options, tol=1e-6, rng=0)
    return lambda: _of_result(ag.minimize(make(), **given))


def _fit(
    loss: str, name: str, strength: float = 1.0, *, intercept: bool = False, **options: Any
) -> Call:
    """Return a fit of mean loss + l2/2 ||w||^2 with l2 = strength / rows."""
    import accelegrad as ag

    X, y = _two_classes(name)
    model: Any = partial(ag.LinearModel, l2=strength / y.size, fit_intercept=intercept)
    return _minimized(lambda: model(X, y, loss), options)


def _stream(loss: str, name: str, **options: Any) -> Call:
    """Return a fit of rows that are read chunk by chunk."""
    import accelegrad as ag

    X, y = data_of(name)
    chunks = [(X[part], y[part]) for part in np.array_split(np.arange(y.size), 16)]
    model: Any = partial(ag.StreamedModel, l2=1 / y.size, fit_intercept=True)
    return _minimized(lambda: model(chunks, loss), options)


def _blocks(name: str) -> tuple[Any, Any]:
    """Return rows that two local Dask workers hold, threads of this process."""
    import dask.array as da
    from dask.distributed import Client

    Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None)
    X, y = data_of(name)
    rows = -(-y.size // 4)
    first, second = (da.from_array(one, chunks=(rows, *one.shape[1:])).persist() for one in (X, y))
    return first, second


def _dask(loss: str, name: str, **options: Any) -> Call:
    """Return a fit of rows on a cluster."""
    from accelegrad.dask import RowModel

    l2 = 1 / data_of(name).y.size
    model = RowModel(*_blocks(name), loss, l2=l2, fit_intercept=True)
    return _minimized(lambda: model, options)


def _dask_classifier(name: str) -> Call:
    from accelegrad.dask import AcceleGradClassifier

    blocks = _blocks(name)
    return lambda: _of_estimator(AcceleGradClassifier(random_state=0), *blocks)


def _estimator(kind: str, name: str, **options: Any) -> Call:
    """Return a fit of one of our scikit-learn estimators, with its defaults but for `options`."""
    from accelegrad import sklearn

    estimator = getattr(sklearn, f"AcceleGrad{kind}")(random_state=0, **options)
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
        return Outcome(success=True, value=float(1 - estimator.score(X, y)))

    return call


def _minibatches(name: str, batch_size: int, steps: int) -> Call:
    """Return a run of a fixed number of steps on minibatches, which no tolerance ends."""
    import accelegrad as ag

    X, y = data_of(name)
    model = ag.LinearModel(X, y, "logistic", l2=1 / y.size)

    def call() -> Outcome:
        result = ag.minimize(model, batch_size=batch_size, max_iter=steps, rng=0)
        return Outcome(result.nit == steps, float(model.value(result.x)))

    return call


def _torch(steps: int) -> Call:
    """Return steps of the torch optimizer on a small network."""
    import torch

    from accelegrad.torch import AcceleGrad

    torch.manual_seed(0)
    X, labels = torch.randn(2000, 50), torch.randint(0, 5, (2000,))

    def call() -> Outcome:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(50, 64), torch.nn.Tanh(), torch.nn.Linear(64, 5))
        optimizer = AcceleGrad(net.parameters())
        optimizer.train()
        for step in range(steps):
            rows = slice(step * 100 % 2000, step * 100 % 2000 + 100)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(X[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        optimizer.eval()
        value = float(torch.nn.functional.cross_entropy(net(X), labels))
        return Outcome(math.isfinite(value), value)

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
        return Outcome(math.isfinite(value), value)

    return call


# -- the calls -------------------------------------------------------------------------------------


def _made(name: str, *arguments: Any) -> Callable[[Any], Any]:
    """Return what makes a set or a penalty of the package, by its name."""
    return lambda ag: getattr(ag, name)(*arguments)


_SIMPLEX, _UNIFORM = _made("Simplex"), np.full(30, 1 / 30)

#: By name: what makes the call, with its arguments and options.
# fmt: off
CALLS: dict[str, Callable[[], Call]] = {
    "function, squares, n = 2": partial(_function, _squares, 2),
    "function, squares, n = 100": partial(_function, _squares, 100),
    "function, squares, condition 1e6, n = 200": partial(_function, _squares, 200, 1e3),
    "function, log-sum-exp, n = 40": partial(_function, _log_sum_exp, 40),
    "function, smooth chain, n = 20000": partial(_function, _chain, 20_000, tol=1e-4),
    "function, scipy_method, n = 50": _scipy_method,
    "function, absolute, n = 60": partial(_function, _distances, 60, tol=1e-4),
    "function, largest of affine, n = 30": partial(_function, _largest, 30, tol=1e-4),
    "function, largest eigenvalue, n = 5": _eigenvalue,
    "function, total variation, n = 2000": partial(_function, _kinked_chain, 2000, tol=1e-2, max_iter=500),
    "function, squares, bounds, n = 100": partial(_function, _squares, 100, bounds=[(0.0, 1.0)] * 100),
    "function, squares, simplex, n = 1000": partial(_function, _squares, 1000, feasible_set=_SIMPLEX, tol=1e-4),
    "function, absolute, simplex, n = 20": partial(_function, _distances, 20, feasible_set=_SIMPLEX, tol=1e-4),
    "function, largest of affine, box, n = 30": partial(_function, _largest, 30, feasible_set=_made("Box", -0.2, 0.2), tol=1e-4),
    "function, squares, l1 ball, n = 100": partial(_function, _squares, 100, feasible_set=_made("L1Ball", 1.0)),
    "function, squares, polyhedron, n = 200": partial(_polyhedron, 200),
    "function, smooth chain, box, n = 20000": partial(_function, _chain, 20_000, feasible_set=_made("Box", -0.5, 0.5), tol=1e-4),
    "function, squares, l1 penalty, n = 100": partial(_function, _squares, 100, penalty=_made("L1", 0.02)),
    "function, squares, nuclear norm, n = 100": partial(_function, _squares, 100, penalty=_made("NuclearNorm", 0.02, (10, 10)), tol=1e-4),
    "steps, accelegrad, n = 100": partial(_steps, "accelegrad", 1000, diameter=4.0),
    "steps, unixgrad, n = 100": partial(_steps, "unixgrad", 500, diameter=4.0),
    "steps, universal-fast, n = 100": partial(_steps, "universal-fast", 200, epsilon=1e-3),
    "steps, noisy gradients": partial(_noisy, 2000),
    "steps, batch_size = 1, rcv1": partial(_minibatches, "rcv1", 1, 2000),
    "steps, batch_size = 64, tall": partial(_minibatches, "tall", 64, 1000),
    # every loss, dense and sparse
    "fit, logistic, tall": partial(_fit, "logistic", "tall"),
    "fit, logistic, square, intercept": partial(_fit, "logistic", "square", intercept=True),
    "fit, logistic, wide": partial(_fit, "logistic", "wide", 0.01),
    "fit, logistic, text, intercept": partial(_fit, "logistic", "text", intercept=True),
    "fit, hinge, tall": partial(_fit, "hinge", "tall", tol=1e-4),
    "fit, hinge, wide, intercept": partial(_fit, "hinge", "wide", intercept=True, tol=1e-4),
    "fit, hinge, short text": partial(_fit, "hinge", "short text", tol=1e-4),
    "fit, squared_hinge, tall, intercept": partial(_fit, "squared_hinge", "tall", intercept=True),
    "fit, modified_huber, short text": partial(_fit, "modified_huber", "short text"),
    "fit, squared, many numbers": partial(_fit, "squared", "many numbers"),
    "fit, squared, text numbers, intercept": partial(_fit, "squared", "text numbers", intercept=True),
    "fit, absolute, numbers, intercept": partial(_fit, "absolute", "numbers", intercept=True, tol=1e-4),
    "fit, absolute, wide numbers, l2 = 0": partial(_fit, "absolute", "wide numbers", 0.0, tol=1e-4),
    "fit, huber, numbers, intercept": partial(_fit, "huber", "numbers", intercept=True),
    "fit, quantile, many numbers": partial(_fit, "quantile", "many numbers", tol=1e-4),
    "fit, epsilon_insensitive, text numbers": partial(_fit, "epsilon_insensitive", "text numbers", tol=1e-4),
    "fit, squared_epsilon_insensitive, numbers": partial(_fit, "squared_epsilon_insensitive", "numbers"),
    # penalties and sets
    "fit, squared, l1, wide numbers": partial(_fit, "squared", "wide numbers", 0.0, penalty=_made("L1", 0.05), tol=1e-5),
    "fit, logistic, l1, text": partial(_fit, "logistic", "text", 0.0, penalty=_made("L1", 1e-3), tol=1e-4),
    "fit, hinge, l1, square": partial(_fit, "hinge", "square", penalty=_made("L1", 0.01), tol=1e-3),
    "fit, squared, elastic net, many numbers": partial(_fit, "squared", "many numbers", 0.0, penalty=_made("ElasticNet", 0.01, 0.5), tol=1e-5),
    "fit, logistic, groups, tall": partial(_fit, "logistic", "tall", penalty=_made("GroupL2", 0.01, np.arange(20) // 4), tol=1e-4),
    "fit, squared, box, numbers": partial(_fit, "squared", "numbers", feasible_set=_made("Box", -0.1, 0.1)),
    "fit, squared, simplex, numbers": partial(_fit, "squared", "numbers", feasible_set=_SIMPLEX, x0=_UNIFORM, tol=1e-4),
    # data sets
    "fit, hinge, breast_cancer, intercept": partial(_fit, "hinge", "breast_cancer", intercept=True),
    "fit, logistic, a9a, intercept": partial(_fit, "logistic", "a9a", intercept=True),
    "fit, logistic, rcv1": partial(_fit, "logistic", "rcv1"),
    "fit, hinge, rcv1": partial(_fit, "hinge", "rcv1"),
    "fit, absolute, cpusmall, l2 = 0, intercept": partial(_fit, "absolute", "cpusmall", 0.0, intercept=True, tol=1e-4),
    "estimator, classifier, tall": partial(_estimator, "Classifier", "tall"),
    "estimator, classifier, text": partial(_estimator, "Classifier", "text"),
    "estimator, classifier, digits": partial(_estimator, "Classifier", "digits"),
    "estimator, classifier, l1, breast_cancer": partial(_estimator, "Classifier", "breast_cancer", penalty="l1", alpha=1e-2),
    "estimator, regressor, cpusmall": partial(_estimator, "Regressor", "cpusmall"),
    "estimator, regressor, quantile, diabetes": partial(_estimator, "Regressor", "diabetes", loss="quantile"),
    "estimator, regressor, simplex, diabetes": partial(_estimator, "Regressor", "diabetes", feasible_set="simplex"),
    "estimator, classifier CV, iris": partial(_estimator, "ClassifierCV", "iris"),
    "estimator, regressor CV, diabetes": partial(_estimator, "RegressorCV", "diabetes"),
    "estimator, partial_fit, rcv1": partial(_partial_fit, "rcv1"),
    "stream, logistic, tall": partial(_stream, "logistic", "tall"),
    "stream, hinge, short text": partial(_stream, "hinge", "short text", tol=1e-3),
    "stream, squared, l1, numbers": partial(_stream, "squared", "numbers", penalty=_made("L1", 0.01), tol=1e-5),
    "dask, logistic, tall": partial(_dask, "logistic", "tall"),
    "dask, squared, l1, numbers": partial(_dask, "squared", "numbers", penalty=_made("L1", 0.01), tol=1e-5),
    "dask, classifier, tall": partial(_dask_classifier, "tall"),
    "torch, 100 steps": partial(_torch, 100),
    "optax, 500 steps": partial(_optax, 500),
}
# fmt: on


# -- both trees ------------------------------------------------------------------------------------


@cache
def _prepared(source: str, name: str) -> Call:
    """Return a call, in a process that has imported nothing of the package yet."""
    sys.path.insert(0, source)
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  for good
    warnings.simplefilter("ignore")  # a run that ends at its most iterations says so
    import accelegrad

    if not Path(accelegrad.__file__).is_relative_to(source):
        raise RuntimeError(f"{accelegrad.__file__} is not in {source}")
    return CALLS[name]()


def timed(begun: Callable[[], None], source: str, name: str) -> tuple[float, float, Outcome]:
    """Return the wall and CPU seconds of a call in this process, and its outcome."""
    call = _prepared(source, name)
    begun()
    cpu, wall = time.process_time(), time.perf_counter()
    outcome = call()
    return time.perf_counter() - wall, time.process_time() - cpu, outcome


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


@contextmanager
def _processes() -> Iterator[list[Worker]]:
    """Give four processes: two with the default number of threads, two with one thread."""
    names = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")]
    workers = [Worker(one_thread=False) for _ in range(4)]
    try:
        for place, worker in enumerate(workers):
            with environment(**dict.fromkeys(names, None if place < 2 else "1")):
                worker.start()
        yield workers
    finally:
        for worker in workers:
            worker.end()


def compared(name: str, before: Path, after: Path, seconds: float) -> Compared:
    """Return the times of a call in both trees, by turns, for about this many seconds."""
    trees = [str(before), str(after)]
    with _processes() as workers:

        def run(place: int) -> tuple[float, float, Outcome]:
            answer = workers[place].call(timed, trees[place % 2], name, limit=PATIENCE)
            return answer[0], answer[1], Outcome(*answer[2])

        with ThreadPoolExecutor(4) as pool:  # the first calls, which load and compile: not counted
            list(pool.map(run, range(4)))
        times: list[list[float]] = [[], [], [], []]
        outcomes: list[list[Outcome]] = [[], []]
        for pair in ((0, 1), (2, 3)):
            begun, rounds = time.perf_counter(), 0
            while rounds < FEWEST_ROUNDS or (
                rounds < MOST_ROUNDS and time.perf_counter() - begun < seconds / 2
            ):
                for place in (*pair, *reversed(pair)):
                    wall, cpu, outcome = run(place)
                    times[place].append(wall if pair[0] == 0 else cpu)
                    outcomes[place % 2].append(outcome)
                rounds += 1
    fastest = [max(min(one), 1e-9) for one in times]
    worst = [min(own, key=lambda one: (one.success, -one.gap)) for own in outcomes]
    return Compared(name, fastest[:2], fastest[2:], worst)


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
    given = parser.parse_args()
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
        except SolverError as error:
            failed.append(f"{name}: {str(error).splitlines()[0]}")
            print(f"| {failed[-1]} | | | | | | | | | failed |", flush=True)
    words, within = verdict(done, failed, given.mean, given.worst)
    print("", *words, sep="\n")
    sys.exit(not within)


if __name__ == "__main__":
    main()
