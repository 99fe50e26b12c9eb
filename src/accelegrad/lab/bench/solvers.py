"""The solvers of the benchmark: this package's default, and those that users would pick instead.

To add one, add an entry to `SOLVERS`: for which losses it is, when it has the same objective, and a
function that makes the thing to time. All run on one thread, on the same arrays, from scratch.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.lab.bench.problems import HUBER_EPSILON, LOSSES, DataSet, Problem, is_sparse
from accelegrad.lab.compare.peers import DENSE_SIDE, PEERS
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import LOSSES as ALL_LOSSES

OURS = "accelegrad"
ESTIMATORS = "accelegrad.sklearn"
OWN = (OURS, ESTIMATORS)  # which prove their accuracy; all others are peers
GROWTH = 1.5  # from one number of iterations to the next that is tried
MOST_STEPS = 1_000_000
TUNING_EPOCHS = 5
LOOSEST = 1e-4  # LIBLINEAR's default tolerance in scikit-learn


class Answer(NamedTuple):
    """What a solver returns: a point, how it ended, and what it proves about it itself."""

    x: Vector
    steps: int  # the iterations it took
    converged: bool  # whether more of them would change nothing
    value: float = math.nan  # its own word on the value
    gap: float = math.inf  # and a proven bound of value - minimum


class Fit(NamedTuple):
    """One run, with the seconds it took."""

    setting: float  # iterations allowed, or the tolerance asked for
    seconds: float
    answer: Answer


Run = Callable[[], Answer]  # what is timed


def iterations() -> Iterator[float]:
    """Yield 1, 2, 3, 4, 6, 9, ...: each about 1.5 times the one before."""
    steps = 1
    while steps <= MOST_STEPS:
        yield steps
        steps = max(steps + 1, round(GROWTH * steps))


def iterations_then_tolerances() -> Generator[float, Answer, None]:
    """Yield iterations until the default tolerance ends a run, then tolerances below it."""
    for steps in iterations():
        answer = yield steps
        if answer.converged:
            break
    yield from (LOOSEST * 10 ** (-half / 2) for half in range(1, 11))


def absolute_or_relative(value: float, start: float) -> float:  # noqa: ARG001
    """Return what `minimize` takes its tolerance relative to."""
    return max(1.0, abs(value))


def relative_to_value(value: float, start: float) -> float:
    """Return what the estimators take their tolerance relative to; P(0) is their null value."""
    from accelegrad.sklearn.solve import NEGLIGIBLE

    return max(value, NEGLIGIBLE * start)


@dataclass(frozen=True)
class Solver:
    """A solver, declared.

    Parameters
    ----------
    method, variant : str
        Its name in figures: the method decides the colour, the variant is added in words.
    words : mapping
        What is called, by loss; losses that are not named are not for it.
    make : callable
        ``make(problem, data, setting, tuned)`` prepares what is not timed, such as another storage
        format, and returns the call to time.
    against : callable
        ``against(problem, data)`` returns why it cannot take part in a problem, or nothing.
    direct : bool
        Whether there are no iterations, so that it is run once.
    ladder : callable
        ``ladder()`` yields the settings to try in turn, and may look at the answers.
    certified : bool
        Whether it proves its gap: then it is asked for tolerances that depend on the answers
        before, and counts only where it proves an accuracy.
    unit : callable
        ``unit(value, start)`` returns what the tolerance of a certified solver is relative to.
    loosest : float
        The loosest tolerance that a certified solver is asked for.
    tune : callable, optional
        ``tune(problem, data)`` searches parameters for `make`. Its time is shown apart.
    needs : str
        A package that has to be installed.
    patient : float
        It may take so many times our own time, if that is more than the limit.
    steady : bool
        Whether every iteration takes the same time, so that a run that would be too long need not
        be started.
    apart : bool
        Whether it gets a process of its own, because it compiles for long in each new one.
    dash : str
        How it is drawn.
    """

    method: str
    words: Mapping[str, str]
    make: Callable[[Problem, DataSet, float, Any], Run]
    variant: str = ""
    against: Callable[[Problem, DataSet], str] = lambda _problem, _data: ""
    direct: bool = False
    ladder: Callable[[], Iterator[float]] = iterations
    certified: bool = False
    unit: Callable[[float, float], float] = absolute_or_relative
    loosest: float = math.inf
    tune: Callable[[Problem, DataSet], Any] | None = None
    needs: str = ""
    patient: float = 0.0
    steady: bool = False
    apart: bool = False
    dash: str = "solid"

    @property
    def shown(self) -> str:
        """Its whole name."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    def reason_against(self, problem: Problem, data: DataSet) -> str:
        """Return why it cannot take part, or nothing."""
        if problem.loss not in self.words:
            return "it does not have this loss"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return self.against(problem, data)


def timed(run: Run) -> tuple[Answer, float]:
    """Return an answer and the seconds it took; numerical trouble shows in the answer."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # too few iterations are given on purpose
        begun = time.perf_counter()
        answer = run()
        return answer, time.perf_counter() - begun


# -- ours ------------------------------------------------------------------------------------------


def _ours(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    from accelegrad import minimize

    def run() -> Answer:
        # Building the model checks and copies: peers do that within fit, so it is timed too.
        result: Any = minimize(problem.model(data), tol=setting)
        return Answer(result.x, int(result.nit), not result.success, result.fun, result.gap)

    return run


ESTIMATOR_LOSS = {name: ALL_LOSSES[name].sklearn_name for name in LOSSES}
DEFAULT_TOL = 1e-3  # of the estimators


def _estimator(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    """Return a scikit-learn estimator of ours with its defaults but for what defines the problem.

    (Nothing on the bench has an intercept of its own.)
    """
    from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

    kind: Any = AcceleGradClassifier if data.classes else AcceleGradRegressor
    options = {**LOSSES[problem.loss].options, **problem.options}
    estimator = kind(
        ESTIMATOR_LOSS[problem.loss],
        alpha=problem.strength / data.y.size,
        fit_intercept=False,
        tol=setting,
        random_state=0,
        **options,
    )

    def run() -> Answer:
        fitted = estimator.fit(data.X, data.y)
        gap = fitted.gap_ if math.isinf(fitted.certified_radius_) else math.inf
        x = np.ravel(fitted.coef_)
        return Answer(x, fitted.n_iter_, not fitted.converged_, fitted.objective_, gap)

    return run


def _estimator_words() -> dict[str, str]:
    kinds = {loss: "Classifier" if LOSSES[loss].classes else "Regressor" for loss in LOSSES}
    return {loss: f"AcceleGrad{kinds[loss]}({ESTIMATOR_LOSS[loss]!r})" for loss in LOSSES}


# -- scikit-learn ----------------------------------------------------------------------------------


def _of_compare(name: str) -> Callable[[Problem, DataSet, float, Any], Run]:
    """Return the solver that `accelegrad compare` knows by this name."""

    def make(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
        peer = PEERS[LOSSES[problem.loss].name][name]
        return _fit_of(peer.make(problem.model(data), int(setting)), data, setting)

    return make


def _newton_cg(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    """Return LogisticRegression, which `accelegrad compare` knows with other solvers only."""
    estimator = PEERS["logistic"]["lbfgs"].make(problem.model(data), int(setting))
    return _fit_of(estimator.set_params(solver="newton-cg"), data, setting)


def _liblinear(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    """Return LIBLINEAR: with so many iterations and its default tolerance, or a tolerance below 1.

    With a tolerance that rounding keeps it from reaching, its dual solver never looks again at the
    rows that it once left out, and stays at a wrong point: so not all can be left to iterations.
    """
    steps, tolerance = (int(setting), LOOSEST) if setting >= 1 else (MOST_STEPS, setting)
    estimator = PEERS[problem.loss]["liblinear"].make(problem.model(data), steps)
    return _fit_of(estimator.set_params(tol=tolerance), data, steps)


def _fit_of(estimator: Any, data: DataSet, allowed: float) -> Run:
    """Return the call of `fit`; fewer iterations than were allowed mean that it converged."""

    def run() -> Answer:
        fitted = estimator.fit(data.X, data.y)
        counted = getattr(fitted, "n_iter_", None)
        steps = 1 if counted is None else int(np.max(counted))
        return Answer(np.ravel(fitted.coef_).astype(np.float64), steps, steps < allowed)

    return run


def _words(name: str, losses: Sequence[str]) -> dict[str, str]:
    return {loss: PEERS[loss][name].words for loss in losses}


def _needs_l2(problem: Problem, data: DataSet) -> str:  # noqa: ARG001
    return "" if problem.strength > 0 else "it needs l2 > 0"


def _direct_ridge(problem: Problem, data: DataSet) -> str:
    side = min(data.X.shape)
    too_large = f"a dense system of {side} equations is too large"
    return _needs_l2(problem, data) or (too_large if side > DENSE_SIDE else "")


SGD_LOSS = {name: ESTIMATOR_LOSS[name] for name, loss in LOSSES.items() if loss.classes}


def _sgd(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:
    """Return SGDClassifier, with its default parameters unless others were tuned."""
    from sklearn.linear_model import SGDClassifier

    estimator = SGDClassifier(
        loss=SGD_LOSS[problem.loss],
        alpha=problem.strength / data.y.size,
        max_iter=int(setting),
        tol=None,
        fit_intercept=False,
        random_state=0,
        **(tuned or {}),
    )
    return _fit_of(estimator, data, setting)


SGD_GRID: Sequence[Mapping[str, Any]] = [
    {"average": True},
    *(
        {"average": average, "learning_rate": "invscaling", "power_t": power, "eta0": eta0}
        for average in (False, True)
        for power in (0.25, 0.5)
        for eta0 in (0.01, 0.1, 1.0, 10.0)
    ),
]
"""What is tried besides the default: averaging, and steps eta0 / t^power."""


def _tuned_sgd(problem: Problem, data: DataSet) -> Any:
    """Return the parameters with the lowest objective after a few epochs."""
    model = problem.model(data)

    def reached(parameters: Mapping[str, Any]) -> float:
        try:
            answer, _ = timed(_sgd(problem, data, TUNING_EPOCHS, parameters))
        except ValueError:  # scikit-learn's way to say that a run diverged
            return math.inf
        value = model.value(answer.x)
        return value if math.isfinite(value) else math.inf

    tried: list[Mapping[str, Any]] = [{}, *SGD_GRID]
    best = min(tried, key=reached)
    return dict(best)


def _quantile_of(problem: Problem) -> float:
    """Return the quantile; the absolute loss is twice the pinball loss of the median."""
    return float(LOSSES[problem.loss].options.get("quantile", 0.5))


def _without_l2(problem: Problem, data: DataSet) -> str:  # noqa: ARG001
    return "" if problem.strength == 0 else "it has the same objective with l2 = 0 only"


def _quantile_regressor(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    from sklearn.linear_model import QuantileRegressor

    estimator = QuantileRegressor(
        quantile=_quantile_of(problem), alpha=0.0, fit_intercept=False, solver="highs"
    )
    return _fit_of(estimator, data, setting)


def _huber_regressor(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    from sklearn.linear_model import HuberRegressor

    scale = problem.options["delta"] / HUBER_EPSILON
    estimator = HuberRegressor(
        epsilon=HUBER_EPSILON,
        alpha=problem.strength / scale,
        max_iter=int(setting),
        tol=0.0,
        fit_intercept=False,
    )
    return _fit_of(estimator, data, setting)


def huber_scale(data: DataSet, strength: float) -> float:
    """Return the scale sigma that HuberRegressor finds where its penalty is l2 = strength / n.

    It minimises sum_i (sigma + sigma H(r_i / sigma)) + alpha ||w||^2 over w and sigma. At its sigma
    that is, in w and up to a factor, mean huber loss with delta = 1.35 sigma plus l2/2 ||w||^2 with
    l2 = alpha sigma / n. So with this delta its minimiser is that of the model, and it can be
    compared; alpha = strength / sigma is found by iteration.
    """
    from sklearn.linear_model import HuberRegressor

    scale = float(data.y.std()) or 1.0
    for _ in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = HuberRegressor(
                epsilon=HUBER_EPSILON,
                alpha=strength / scale,
                max_iter=10_000,
                tol=1e-9,
                fit_intercept=False,
            ).fit(data.X, data.y)
        before, scale = scale, float(fitted.scale_)
        if abs(scale - before) <= 1e-9 * scale:
            break
    return scale


# -- others ----------------------------------------------------------------------------------------


def _scipy(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    from scipy.optimize import minimize

    options: Any = {"maxiter": int(setting), "maxfun": 10 * MOST_STEPS, "ftol": 0.0, "gtol": 0.0}
    X, y, n = data.X, data.y, data.y.size
    loss, l2 = problem.model(data).loss, problem.strength / n

    def fun(w: Any) -> tuple[float, Any]:
        """Return value and gradient as a user would write them, with NumPy or scipy.sparse."""
        losses, slopes = loss.value_and_derivative(X @ w, y)
        return losses.mean() + 0.5 * l2 * (w @ w), X.T @ slopes / n + l2 * w

    def run() -> Answer:
        start = np.zeros(X.shape[1])
        found: Any = minimize(fun, start, jac=True, method="L-BFGS-B", options=options)
        return Answer(found.x, int(found.nit), found.nit < setting)

    return run


def _quantreg(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    from statsmodels.regression.quantile_regression import QuantReg

    def run() -> Answer:
        model = QuantReg(data.y, data.X)
        found = model.fit(q=_quantile_of(problem), max_iter=int(setting), p_tol=0.0)
        return Answer(np.asarray(found.params), found.iterations, found.iterations < setting)

    return run


def _skglm(problem: Problem, data: DataSet, setting: float, tuned: Any) -> Run:  # noqa: ARG001
    """Return skglm's L-BFGS for smooth losses and its dual coordinate descent for the hinge."""
    l2 = problem.strength / data.y.size
    if problem.loss == "hinge":
        from skglm import LinearSVC

        cost, steps = 1 / problem.strength, int(setting)
        estimator = LinearSVC(C=cost, max_iter=steps, tol=1e-14, fit_intercept=False)
        return _fit_of(estimator, data, setting)
    from skglm.solvers import LBFGS

    datafit, penalty = _skglm_parts(problem.loss, l2)
    X = data.X.tocsc() if is_sparse(data.X) else data.X  # what it takes; not timed

    def run() -> Answer:
        solver = LBFGS(max_iter=int(setting), tol=1e-14)
        w, values, _ = solver.solve(X, data.y, datafit, penalty)
        return Answer(np.asarray(w), len(values), len(values) < setting)

    return run


@cache
def _skglm_parts(loss: str, l2: float) -> tuple[Any, Any]:
    from skglm.datafits import Logistic, Quadratic
    from skglm.penalties import L2
    from skglm.utils.jit_compilation import compiled_clone

    datafit = {"logistic": Logistic, "squared": Quadratic}[loss]()
    return compiled_clone(datafit), compiled_clone(L2(l2))


def _skglm_fits(problem: Problem, data: DataSet) -> str:
    if problem.loss == "squared" and is_sparse(data.X):
        return "its L-BFGS takes no sparse data with this loss"
    return _needs_l2(problem, data)


# -- the table -------------------------------------------------------------------------------------

SMOOTH = tuple(name for name, loss in LOSSES.items() if loss.smooth)
SGD_WORDS = {loss: f"SGDClassifier(loss={name!r})" for loss, name in SGD_LOSS.items()}
LIBLINEAR = ("logistic", "hinge", "squared_hinge", "absolute")

_SGD = Solver("SGD", SGD_WORDS, _sgd, "default", _needs_l2, steady=True)
SOLVERS: Mapping[str, Solver] = {
    OURS: Solver(
        "AcceleGrad",
        dict.fromkeys(LOSSES, "accelegrad.minimize(model, tol=...)"),
        _ours,
        certified=True,
    ),
    ESTIMATORS: Solver(
        "AcceleGrad",
        _estimator_words(),
        _estimator,
        "estimator",
        certified=True,
        unit=relative_to_value,
        loosest=DEFAULT_TOL,
        dash="dash",
    ),
    "lbfgs": Solver("LBFGS", _words("lbfgs", ["logistic"]), _of_compare("lbfgs"), "scikit-learn"),
    "newton-cg": Solver(
        "Newton-CG", {"logistic": "LogisticRegression(solver='newton-cg')"}, _newton_cg
    ),
    "sag": Solver("SAG", _words("sag", ["logistic"]), _of_compare("sag")),
    "saga": Solver("SAGA", _words("saga", ["logistic"]), _of_compare("saga")),
    "liblinear": Solver(
        "LIBLINEAR",
        _words("liblinear", LIBLINEAR),
        _liblinear,
        against=_needs_l2,
        ladder=iterations_then_tolerances,
    ),
    "sgd": _SGD,
    "sgd-tuned": replace(_SGD, variant="tuned", tune=_tuned_sgd, dash="dash"),
    "ridge": Solver(
        "Ridge",
        _words("cholesky", ["squared"]),
        _of_compare("cholesky"),
        "Cholesky",
        _direct_ridge,
        direct=True,
    ),
    "ridge-lsqr": Solver(
        "Ridge", _words("lsqr", ["squared"]), _of_compare("lsqr"), "LSQR", _needs_l2, dash="dash"
    ),
    "quantile": Solver(
        "QuantileRegressor",
        dict.fromkeys(("absolute", "quantile"), "QuantileRegressor(alpha=0, solver='highs')"),
        _quantile_regressor,
        against=_without_l2,
        direct=True,
        patient=120.0,
    ),
    "quantreg": Solver(
        "QuantReg",
        dict.fromkeys(("absolute", "quantile"), "statsmodels QuantReg"),
        _quantreg,
        "statsmodels",
        _without_l2,
        needs="statsmodels",
    ),
    "huber": Solver(
        "HuberRegressor",
        {"huber": "HuberRegressor, whose scale decides the model's delta"},
        _huber_regressor,
        against=_needs_l2,
    ),
    "lbfgs-b": Solver(
        "L-BFGS-B", dict.fromkeys(SMOOTH, "scipy.optimize.minimize"), _scipy, "SciPy", dash="dash"
    ),
    "skglm": Solver(
        "skglm",
        {"logistic": "skglm LBFGS", "squared": "skglm LBFGS", "hinge": "skglm LinearSVC"},
        _skglm,
        against=_skglm_fits,
        needs="skglm",
        apart=True,
    ),
}


def model_value(model: LinearModel, answer: Answer) -> float:
    """Return the objective at an answer, infinite where it is no number: measured by us."""
    if not np.isfinite(answer.x).all():
        return math.inf
    with np.errstate(all="ignore"):
        value = model.value(answer.x)
    return value if math.isfinite(value) else math.inf
