"""Compare two source trees by about 80 calls: time, success and certified gap.

Run: python gate.py --before OTHER/src --after THIS/src [--only PATTERN] [--seconds 2] [--list]
     python gate.py --before peers --after THIS/src

The second line compares small functions with SciPy's L-BFGS-B, and `partial_fit` on sparse rows
with SGDClassifier's: the peer stands in the place of the tree before.

Each call runs in fresh processes of its own, two per tree: one with the default number of threads,
whose wall time is reported, and one with one thread, whose CPU time is reported. They take turns
(before, after, after, before, ...), so that a busy machine disturbs both alike. The first call of a
process is not counted: it loads and compiles. The fastest calls are compared. Functions and rows
are those of `accelegrad bench`, which ask for public names of the library only, so that trees with
other modules can be compared.

A lower bound of one tree that lies above a value found by the other is false: this is checked for
every call. The command fails where the geometric mean of the ratios is beyond --mean, a call beyond
--worst, a success or a proof is lost, or a bound is false. Calls on a set of ACCELEGRAD_DATA that
is not there are left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # this lab, whichever is installed

from accelegrad_lab.engine.rows import is_there, rows_of
from accelegrad_lab.engine.worker import THREADS, Pair, SolverError, environment
from accelegrad_lab.functions import formulas
from accelegrad_lab.functions.formulas import Formula

MEAN_LIMIT, WORST_LIMIT = 1.05, 1.3  # as the project's goals have them
FEWEST_ROUNDS, MOST_ROUNDS = 2, 60  # chosen; a round is two calls of each process
NEGLIGIBLE = 1e-9  # relative: two sums of the same rows differ by less
PATIENCE = 3600.0  # seconds of one call; chosen, far beyond any of them
STORED = ("a9a", "rcv1_vw_small", "cpusmall, scaled")  # sets of ACCELEGRAD_DATA


class Outcome(NamedTuple):
    """What a call found."""

    success: bool
    value: float
    gap: float = math.nan  # certified; NaN where the call certifies nothing


Call = Callable[[], Outcome]
data_of = cache(rows_of)


def _of_result(result: Any) -> Outcome:
    gap = getattr(result, "gap", None)
    return Outcome(bool(result.success), float(result.fun), math.nan if gap is None else float(gap))


def _of_estimator(estimator: Any, X: Any, y: Any) -> Outcome:
    estimator.fit(X, y)
    value, gap = (float(np.max(getattr(estimator, at))) for at in ("objective_", "gap_"))
    return Outcome(bool(np.all(estimator.converged_)), value, gap)


def _made(name: str, *arguments: Any) -> Callable[[Any], Any]:
    """Return what makes a set or a penalty of the package, by its name."""
    return lambda ag: getattr(ag, name)(*arguments)


def _minimized(make: Callable[[], tuple[Any, ...]], **options: Any) -> Call:
    """Return a call of `minimize` on what is made anew each time."""
    import accelegrad as ag

    given = {name: one(ag) if callable(one) else one for name, one in options.items()}
    return lambda: _of_result(ag.minimize(*make(), **given))


# -- functions: plain Python callables -------------------------------------------------------------


def _suite(name: str, **options: Any) -> Call:
    """Return a call of `minimize` on a function of the benchmark."""
    from accelegrad_lab.functions.suite import SUITE

    one = SUITE[name].build()
    given = {"max_iter": 3000, "tol": 1e-6, **options}
    given |= {"feasible_set": one.feasible_set, "penalty": one.penalty}
    return _minimized(lambda: (one.fun, one.x0), **given)


def _squares(n: int) -> Callable[[Any], tuple[float, Any]]:
    """Return the mean of (Ax - b)^2."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((4 * n, n)), rng.standard_normal(4 * n)
    return formulas.squares(0.5 / n).of(A, -b).fun


def _least_squares(n: int, **options: Any) -> Call:
    fun = _squares(n)
    return _minimized(lambda: (fun, np.zeros(n)), tol=1e-6, max_iter=3000, **options)


#: Small functions, made of a matrix and a vector
SMALL: dict[str, Callable[[Any, Any], Formula]] = {
    "least squares": lambda A, b: formulas.squares(1.0).of(A, -b),
    "logistic": lambda A, b: formulas.mean_logistic(np.sign(b)).of(A) + formulas.squares(0.1),
    "log-sum-exp": lambda A, b: formulas.log_sum_exp().of(A, -b) + formulas.squares(0.1),
    "absolute": lambda A, b: formulas.absolute(1.0).of(A, -b),
    "largest": lambda A, b: formulas.largest_linear(A, -b) + formulas.squares(1.0),
}


def _small(kind: str, d: int, *, peer: bool = False) -> Call:
    """Return a call that minimises six functions of a kind, by default or by L-BFGS-B."""
    from scipy.optimize import minimize as scipy_minimize

    import accelegrad as ag

    functions = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        functions.append(SMALL[kind](rng.standard_normal((4 * d, d)), rng.standard_normal(4 * d)))
    minimize: Any = partial(ag.minimize, tol=1e-6)
    if peer:
        minimize = partial(scipy_minimize, jac=True, method="L-BFGS-B")

    def call() -> Outcome:
        found = [_of_result(minimize(one.fun, np.zeros(d))) for one in functions]
        success, values, gaps = zip(*found, strict=True)
        return Outcome(all(success), sum(values), sum(gaps))

    return call


def _polyhedron(n: int) -> Call:
    """Return least squares over a polyhedron given as SciPy gives it."""
    from scipy.optimize import LinearConstraint

    rows = np.random.default_rng(0).standard_normal((n // 2, n))
    return _least_squares(n, constraints=LinearConstraint(rows, -0.2, 0.2))


def _steps(method: str, steps: int, **options: Any) -> Call:
    """Return a run of a fixed number of steps of one method, which no tolerance ends."""
    fun = _squares(100)
    run = _minimized(lambda: (fun, np.zeros(100)), method=method, max_iter=steps, **options)
    return lambda: run()._replace(success=True)  # it may end at rounding error


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


def _fit(
    loss: str,
    name: str,
    strength: float = 1.0,
    *,
    rows: str = "in memory",
    intercept: bool = False,
    **options: Any,
) -> Call:
    """Return a fit of mean loss + l2/2 ||w||^2 with l2 = strength / rows."""
    import accelegrad as ag

    X, y = data_of(name)
    y = np.where(y == y.max(), 1.0, -1.0) if np.unique(y).size == 2 else y
    given: dict[str, Any] = {"l2": strength / y.size, "fit_intercept": intercept}
    if rows == "in memory":
        make: Any = partial(ag.LinearModel, X, y, loss, **given)
    elif rows == "in chunks":
        make = partial(ag.StreamedModel, _parts(X, y, 16), loss, **given)
    else:
        from accelegrad.dask import RowModel

        model = RowModel(*_blocks(name), loss, **given)
        make = lambda: model  # noqa: E731
    return _minimized(lambda: (make(),), **{"tol": 1e-6, "rng": 0, **options})


_stream = partial(_fit, rows="in chunks", intercept=True)
_dask = partial(_fit, rows="on a cluster", intercept=True)


def _parts(X: Any, y: Any, count: int) -> list[Any]:
    """Return rows in chunks."""
    return [(X[part], y[part]) for part in np.array_split(np.arange(y.size), count)]


def _blocks(name: str) -> tuple[Any, Any]:
    """Return rows that two local Dask workers hold, threads of this process."""
    import dask.array as da
    from dask.distributed import Client

    Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None)
    X, y = data_of(name)
    rows = -(-y.size // 4)
    first, second = (da.from_array(one, chunks=(rows, *one.shape[1:])).persist() for one in (X, y))
    return first, second


def _estimator(kind: str, name: str, **options: Any) -> Call:
    """Return a fit of one of our scikit-learn estimators, with its defaults but for `options`."""
    from accelegrad import sklearn

    estimator = getattr(sklearn, f"AcceleGrad{kind}")(random_state=0, **options)
    return lambda: _of_estimator(estimator, *data_of(name))


def _partial_fit(name: str, classes: int, *, peer: bool = False) -> Call:
    """Return ten chunks of `partial_fit`, with random classes: ours or SGDClassifier's."""
    from sklearn.linear_model import SGDClassifier

    from accelegrad.sklearn import AcceleGradClassifier

    X, labels = data_of(name).X, np.arange(classes)
    chunks = _parts(X, np.random.default_rng(0).choice(labels, X.shape[0]), 10)

    def call() -> Outcome:
        estimator: Any = SGDClassifier(loss="log_loss") if peer else AcceleGradClassifier()
        for rows, targets in chunks:
            estimator.partial_fit(rows, targets, classes=labels)
        return Outcome(success=True, value=float(np.abs(estimator.coef_).max()))

    return call


def _minibatches(name: str, batch_size: int, steps: int) -> Call:
    """Return a run of a fixed number of steps on minibatches, which no tolerance ends."""
    run = _fit("logistic", name, batch_size=batch_size, max_iter=steps, tol=None)
    return lambda: run()._replace(success=True)


def _torch(steps: int) -> Call:
    """Return steps of the torch optimizer on ||w - 1||^2, in four parameters."""
    import torch

    from accelegrad.torch import AcceleGrad

    def call() -> Outcome:
        shapes = ((64, 50), (64,), (5, 64), (5,))
        layers = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
        optimizer = AcceleGrad(layers)
        optimizer.train()
        for _ in range(steps):
            optimizer.zero_grad()
            torch.stack([(layer - 1).square().sum() for layer in layers]).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        optimizer.eval()
        value = sum(float((layer - 1).square().sum()) for layer in layers)
        return Outcome(math.isfinite(value), value)

    return call


def _optax(steps: int) -> Call:
    """Return steps of the optax transformation on ||w - 1||^2, compiled once."""
    import jax
    import optax

    from accelegrad.optax import accelegrad, eval_params

    optimizer = accelegrad()

    @jax.jit
    def step(w: Any, state: Any) -> Any:
        updates, state = optimizer.update(2 * (w - 1), state, w)
        return optax.apply_updates(w, updates), state

    def call() -> Outcome:
        w = jax.numpy.zeros(10_000)
        state = optimizer.init(w)
        for _ in range(steps):
            w, state = step(w, state)
        value = float(((eval_params(state, w) - 1) ** 2).sum())
        return Outcome(math.isfinite(value), value)

    return call


# -- the calls -------------------------------------------------------------------------------------

_SIMPLEX, _UNIFORM = _made("Simplex"), np.full(30, 1 / 30)

#: By name: what makes the call, with its arguments and options.
# fmt: off
CALLS: dict[str, Callable[[], Call]] = {
    "function, squares, n = 2": partial(_least_squares, 2),
    "function, squares, n = 100": partial(_least_squares, 100),
    "function, squares, bounds, n = 100": partial(_least_squares, 100, bounds=[(0.0, 1.0)] * 100),
    "function, squares, polyhedron, n = 200": partial(_polyhedron, 200),
    **{f"small function, {kind}, d = 5": partial(_small, kind, 5) for kind in SMALL},
    **{f"small function, {kind}, d = 10": partial(_small, kind, 10) for kind in ("absolute", "largest")},
    **{
        f"function, {name}": partial(_suite, name)
        for name in ("valley", "logistic", "quadratic-ill-conditioned", "log-sum-exp", "box-quadratic", "l1-ball-logistic", "lasso")
    },
    **{
        f"function, {name}, 1e-4": partial(_suite, name, tol=1e-4)
        for name in ("grid-quadratic", "absolute-regression", "max-linear", "total-variation", "largest-eigenvalue",
                     "entropy", "matrix-game", "tail-risk", "obstacle", "matrix-completion")
    },
    "steps, accelegrad, n = 100": partial(_steps, "accelegrad", 1000, diameter=4.0),
    "steps, unixgrad, n = 100": partial(_steps, "unixgrad", 500, diameter=4.0),
    "steps, universal-fast, n = 100": partial(_steps, "universal-fast", 200, epsilon=1e-3),
    "steps, noisy gradients": partial(_noisy, 2000),
    "steps, batch_size = 1, rcv1": partial(_minibatches, "rcv1_vw_small", 1, 2000),
    "steps, batch_size = 64, tall": partial(_minibatches, "tall, scaled", 64, 1000),
    # every loss, dense and sparse
    "fit, logistic, tall": partial(_fit, "logistic", "tall, scaled"),
    "fit, logistic, square, intercept": partial(_fit, "logistic", "square, scaled", intercept=True),
    "fit, logistic, wide": partial(_fit, "logistic", "classes-wide, scaled", 0.01),
    "fit, logistic, text, intercept": partial(_fit, "logistic", "text-small", intercept=True),
    "fit, hinge, tall": partial(_fit, "hinge", "tall, scaled", tol=1e-4),
    "fit, hinge, wide, intercept": partial(_fit, "hinge", "classes-wide, scaled", intercept=True, tol=1e-4),
    "fit, hinge, short text": partial(_fit, "hinge", "short-text", tol=1e-4),
    "fit, squared_hinge, tall, intercept": partial(_fit, "squared_hinge", "tall, scaled", intercept=True),
    "fit, modified_huber, short text": partial(_fit, "modified_huber", "short-text"),
    "fit, squared, many numbers": partial(_fit, "squared", "many-numbers, scaled"),
    "fit, squared, text numbers, intercept": partial(_fit, "squared", "text-numbers", intercept=True),
    "fit, absolute, numbers, intercept": partial(_fit, "absolute", "numbers-5k, scaled", intercept=True, tol=1e-4),
    "fit, absolute, wide numbers, l2 = 0": partial(_fit, "absolute", "wide-numbers, scaled", 0.0, tol=1e-4),
    "fit, huber, numbers, intercept": partial(_fit, "huber", "numbers-5k, scaled", intercept=True),
    "fit, quantile, many numbers": partial(_fit, "quantile", "many-numbers, scaled", tol=1e-4),
    "fit, epsilon_insensitive, text numbers": partial(_fit, "epsilon_insensitive", "text-numbers", tol=1e-4),
    "fit, squared_epsilon_insensitive, numbers": partial(_fit, "squared_epsilon_insensitive", "numbers-5k, scaled"),
    # penalties and sets
    "fit, squared, l1, wide numbers": partial(_fit, "squared", "wide-numbers, scaled", 0.0, penalty=_made("L1", 0.05), tol=1e-5),
    "fit, logistic, l1, text": partial(_fit, "logistic", "text-small", 0.0, penalty=_made("L1", 1e-3), tol=1e-4),
    "fit, hinge, l1, square": partial(_fit, "hinge", "square, scaled", penalty=_made("L1", 0.01), tol=1e-3),
    "fit, squared, elastic net, many numbers": partial(_fit, "squared", "many-numbers, scaled", 0.0, penalty=_made("ElasticNet", 0.01, 0.5), tol=1e-5),
    "fit, logistic, groups, tall": partial(_fit, "logistic", "tall, scaled", penalty=_made("GroupL2", 0.01, np.arange(20) // 4), tol=1e-4),
    "fit, squared, box, numbers": partial(_fit, "squared", "numbers-5k, scaled", feasible_set=_made("Box", -0.1, 0.1)),
    "fit, squared, simplex, numbers": partial(_fit, "squared", "numbers-5k, scaled", feasible_set=_SIMPLEX, x0=_UNIFORM, tol=1e-4),
    # data sets
    "fit, hinge, breast_cancer, intercept": partial(_fit, "hinge", "breast_cancer, scaled", intercept=True),
    "fit, logistic, a9a, intercept": partial(_fit, "logistic", "a9a", intercept=True),
    "fit, logistic, rcv1": partial(_fit, "logistic", "rcv1_vw_small"),
    "fit, hinge, rcv1": partial(_fit, "hinge", "rcv1_vw_small"),
    "fit, absolute, cpusmall, l2 = 0, intercept": partial(_fit, "absolute", "cpusmall, scaled", 0.0, intercept=True, tol=1e-4),
    "estimator, classifier, tall": partial(_estimator, "Classifier", "tall, scaled"),
    "estimator, classifier, text": partial(_estimator, "Classifier", "text-small"),
    "estimator, classifier, digits": partial(_estimator, "Classifier", "digits, scaled"),
    "estimator, classifier, l1, breast_cancer": partial(_estimator, "Classifier", "breast_cancer, scaled", penalty="l1", alpha=1e-2),
    "estimator, regressor, cpusmall": partial(_estimator, "Regressor", "cpusmall, scaled"),
    "estimator, regressor, quantile, diabetes": partial(_estimator, "Regressor", "diabetes, scaled", loss="quantile"),
    "estimator, regressor, simplex, diabetes": partial(_estimator, "Regressor", "diabetes, scaled", feasible_set="simplex"),
    "estimator, classifier CV, iris": partial(_estimator, "ClassifierCV", "iris, scaled"),
    "estimator, regressor CV, diabetes": partial(_estimator, "RegressorCV", "diabetes, scaled"),
    "estimator, partial_fit, 2 classes": partial(_partial_fit, "text-20k", 2),
    "estimator, partial_fit, 20 classes": partial(_partial_fit, "text-20k", 20),
    "stream, logistic, tall": partial(_stream, "logistic", "tall, scaled"),
    "stream, hinge, short text": partial(_stream, "hinge", "short-text", tol=1e-3),
    "stream, squared, l1, numbers": partial(_stream, "squared", "numbers-5k, scaled", penalty=_made("L1", 0.01), tol=1e-5),
    "dask, logistic, tall": partial(_dask, "logistic", "tall, scaled"),
    "dask, squared, l1, numbers": partial(_dask, "squared", "numbers-5k, scaled", penalty=_made("L1", 0.01), tol=1e-5),
    "torch, 100 steps": partial(_torch, 100),
    "optax, 500 steps": partial(_optax, 500),
}
# fmt: on
PEERS = "peers"  # in the place of a tree
WITH_PEER = tuple(
    name for name, one in CALLS.items() if getattr(one, "func", None) in (_small, _partial_fit)
)


# -- both trees ------------------------------------------------------------------------------------


@cache
def _prepared(source: str, name: str) -> Call:
    """Return a call, in a process that has imported nothing of the package yet."""
    sys.path[:0] = [] if source == PEERS else [source]
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  for good
    warnings.simplefilter("ignore")  # a run that ends at its most iterations says so
    if source == PEERS:
        make: Any = CALLS[name]
        return cast("Call", make(peer=True))
    import accelegrad

    if not Path(accelegrad.__file__).is_relative_to(source):
        raise RuntimeError(f"{accelegrad.__file__} is not in {source}")
    return CALLS[name]()


def timed(
    begun: Callable[[], None], source: str, name: str, cpu: bool
) -> tuple[float, tuple[Any, ...]]:
    """Return the wall or CPU seconds of a call in this process, and its outcome."""
    call, clock = _prepared(source, name), time.process_time if cpu else time.perf_counter
    begun()
    since = clock()
    outcome = call()
    return clock() - since, tuple(outcome)


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
    trees = [str(before), str(after)]
    with environment(**dict.fromkeys(THREADS)), Pair() as first, Pair() as second:
        workers = first.default, second.default, first.single, second.single

        def run(place: int) -> tuple[float, Outcome]:
            asked = (trees[place % 2], name, place >= 2)
            spent, outcome = workers[place].call(timed, *asked, limit=PATIENCE)
            return spent, Outcome(*outcome)

        for worker in workers:
            worker.start()
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
                    spent, outcome = run(place)
                    times[place].append(spent)
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
    """Return the folder that holds the package, of a checkout or its src, or that of no tree."""
    if text == PEERS:
        return Path(text)
    for folder in (Path(text), Path(text) / "src"):
        if (folder / "accelegrad" / "__init__.py").is_file():
            return folder.resolve()
    raise argparse.ArgumentTypeError(f"{text} holds no package accelegrad")


def main() -> None:
    """Run the calls that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=_tree, help=f"a source tree, or {PEERS!r}")
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
    if given.before is None or given.after in (None, Path(PEERS)):
        parser.error("--before and --after must each name a source tree")
    if given.before == Path(PEERS):
        names = [name for name in names if name in WITH_PEER]
    print("| call | wall before, ms | after | ratio | CPU, ms | after | ratio | gap | after | |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    done, failed = [], []
    sys.path.insert(0, str(given.after))  # for the names of data files
    for name in names:
        data = getattr(CALLS[name], "args", ())
        if not all(is_there(one) for one in data if one in STORED):
            continue
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
