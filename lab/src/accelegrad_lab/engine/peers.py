"""The one table of solvers: this package's, and those of others that have the same objective.

To add one, add an entry to `SOLVERS`: for which losses it is, when it has the same objective, and a
function that makes the thing to time; then name it in `BENCHED` or `COMPARED`, which tell where it
takes part. All minimise mean loss + l2/2 ||w||^2 of a linear model without intercept, on one
thread, on the same arrays, from scratch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import LOSSES
from accelegrad_lab.engine.minimum import find_minimum, fits_highs, is_sparse, with_short_indices
from accelegrad_lab.engine.timing import timed

OURS = "accelegrad"
ESTIMATORS = "accelegrad.sklearn"
OWN = (OURS, ESTIMATORS)  # which prove their accuracy; all others are peers
GROWTH = 1.5  # from one number of iterations to the next that is tried
MOST_STEPS = 1_000_000
TUNING_EPOCHS = 5
TIGHT = 1e-14  # a tolerance that leaves it to the iterations to end a fit
LOOSEST = 1e-4  # LIBLINEAR's default tolerance in scikit-learn
DENSE_SIDE = 3000  # the largest system of equations that is solved directly
HUBER_EPSILON = 1.35
DEFAULT_TOL = 1e-3  # of our estimators


class Answer(NamedTuple):
    """What a solver returns: a point, how it ended, and what it proves about it itself."""

    x: Vector
    steps: int  # the iterations it took
    converged: bool  # whether more of them would change nothing
    value: float = math.nan  # its own word on the value
    gap: float = math.inf  # and a proven bound of value - minimum


Run = Callable[[], Answer]  # what is timed
Parameters = Mapping[str, Any]  # of an estimator, beyond those of the table
Make = Callable[[LinearModel, float, Parameters], Run]
Estimator = Callable[[LinearModel, int], Any]


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
        ``make(model, setting, parameters)`` prepares what is not timed, such as another storage
        format, and returns the call to time.
    against : callable
        ``against(model)`` returns why it cannot take part in a problem, or nothing.
    direct : bool
        Whether there are no iterations, so that it is run once.
    passes : bool
        Whether an iteration is one pass over the data.
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
        ``tune(model)`` searches parameters for `make`. Its time is shown apart.
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
    make: Make
    variant: str = ""
    against: Callable[[LinearModel], str] = lambda _model: ""
    direct: bool = False
    passes: bool = True
    ladder: Callable[[], Any] = iterations
    certified: bool = False
    unit: Callable[[float, float], float] = absolute_or_relative
    loosest: float = math.inf
    tune: Callable[[LinearModel], Parameters] | None = None
    needs: str = ""
    patient: float = 0.0
    steady: bool = False
    apart: bool = False
    dash: str = "solid"

    @property
    def shown(self) -> str:
        """Its whole name."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    def reason_against(self, model: LinearModel) -> str:
        """Return why it cannot take part, or nothing."""
        if model.loss.name not in self.words:
            return "it does not have this loss"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return self.against(model)


# -- ours ------------------------------------------------------------------------------------------


def _ours(model: LinearModel, setting: float, parameters: Parameters) -> Run:  # noqa: ARG001
    from accelegrad import minimize

    def run() -> Answer:
        # Building the model checks and copies: peers do that within fit, so it is timed too.
        again = LinearModel(model.X, model.y, model.loss.name, l2=model.l2, **loss_options(model))
        result: Any = minimize(again, tol=setting)
        return Answer(result.x, int(result.nit), not result.success, result.fun, result.gap)

    return run


def _estimator(model: LinearModel, setting: float, parameters: Parameters) -> Run:
    """Return a scikit-learn estimator of ours with its defaults but for what defines the problem.

    (No problem here has an intercept.)
    """
    from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

    kind: Any = AcceleGradClassifier if model.loss.classification else AcceleGradRegressor
    # The plain objective, which others have.
    plain = {} if model.loss.classification else {"target_scale": 1.0}
    estimator = kind(
        LOSSES[model.loss.name].sklearn_name,
        alpha=model.l2,
        fit_intercept=False,
        tol=setting,
        random_state=0,
        **plain,
        **loss_options(model),
        **parameters,
    )

    def run() -> Answer:
        fitted = estimator.fit(model.X, model.y)
        gap = fitted.gap_ if math.isinf(fitted.certified_radius_) else math.inf
        x = np.ravel(fitted.coef_)
        return Answer(x, fitted.n_iter_, not fitted.converged_, fitted.objective_, gap)

    return run


def loss_options(model: LinearModel) -> dict[str, Any]:
    """Return the parameter of a model's loss as a keyword; none where it has none."""
    parameter = LOSSES[model.loss.name].parameter
    return {} if parameter is None else {parameter.name: model.loss.parameter}


#: The losses of the suite: those that other packages' solvers minimise too.
BENCH_LOSSES = ("logistic", "hinge", "squared_hinge", "squared", "absolute", "quantile", "huber")
CLASSES = tuple(name for name in BENCH_LOSSES if LOSSES[name].classification)
SMOOTH = tuple(name for name in BENCH_LOSSES if LOSSES[name].smooth)


def _estimator_words() -> dict[str, str]:
    kinds = {loss: "Classifier" if loss in CLASSES else "Regressor" for loss in BENCH_LOSSES}
    names = {loss: LOSSES[loss].sklearn_name for loss in kinds}
    return {loss: f"AcceleGrad{kind}({names[loss]!r})" for loss, kind in kinds.items()}


# -- scikit-learn ----------------------------------------------------------------------------------


def _fitted(estimator_of: Estimator) -> Make:
    """Return how to run an estimator; fewer iterations than were allowed mean that it converged."""

    def make(model: LinearModel, setting: float, parameters: Parameters) -> Run:
        estimator, X = estimator_of(model, int(setting)), with_short_indices(model.X)
        if parameters:
            estimator.set_params(**parameters)

        def run() -> Answer:
            fitted = estimator.fit(X, model.y)
            counted = getattr(fitted, "n_iter_", None)
            steps = 1 if counted is None else int(np.max(counted))
            return Answer(np.ravel(fitted.coef_).astype(np.float64), steps, steps < setting)

        return run

    return make


def _common(steps: int) -> dict[str, Any]:
    return {"max_iter": steps, "fit_intercept": False, "random_state": 0}


def _cost(model: LinearModel) -> float:
    """Return scikit-learn's C: its objective is ours divided by l2."""
    return 1 / (model.l2 * model.n_samples) if model.l2 > 0 else math.inf


def _logistic(solver: str) -> Estimator:
    def estimator(model: LinearModel, steps: int) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=_cost(model), solver=solver, tol=TIGHT, **_common(steps))

    return estimator


def _liblinear(model: LinearModel, steps: int) -> Any:
    """Return LIBLINEAR: its dual solver but for smooth losses of classes."""
    from sklearn.svm import LinearSVC, LinearSVR

    name, common = model.loss.name, {"C": _cost(model), "tol": TIGHT, **_common(steps)}
    if name == "logistic":
        return _logistic("liblinear")(model, steps)
    if model.loss.classification:
        return LinearSVC(loss=name, dual=name == "hinge", **common)
    return LinearSVR(epsilon=_zone(model), dual=True, **common)


def _zone(model: LinearModel) -> float:
    return model.loss.parameter if model.loss.name == "epsilon_insensitive" else 0.0


def _liblinear_by_tolerance(model: LinearModel, setting: float, parameters: Parameters) -> Run:
    """Return LIBLINEAR: with iterations and its default tolerance, or a tolerance below 1.

    With a tolerance that rounding keeps it from reaching, its dual solver never looks again at the
    rows that it once left out, and stays at a wrong point: so not all can be left to iterations.
    """
    steps, tolerance = (setting, LOOSEST) if setting >= 1 else (MOST_STEPS, setting)
    return _fitted(_liblinear)(model, steps, {"tol": tolerance, **parameters})


def _ridge(solver: str) -> Estimator:
    def estimator(model: LinearModel, steps: int) -> Any:
        from sklearn.linear_model import Ridge

        alpha = model.l2 * model.n_samples
        return Ridge(alpha=alpha, solver=solver, tol=TIGHT, **_common(steps))

    return estimator


SGD_LOSSES = {
    "logistic": "log_loss",
    "hinge": "hinge",
    "squared_hinge": "squared_hinge",
    "squared": "squared_error",
    "absolute": "epsilon_insensitive",
    "epsilon_insensitive": "epsilon_insensitive",
    "huber": "huber",
}


def _sgd(model: LinearModel, steps: int) -> Any:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    common = {
        "loss": SGD_LOSSES[model.loss.name], "alpha": model.l2, "tol": None, **_common(steps)
    }  # fmt: skip
    if model.loss.classification:
        return SGDClassifier(**common)
    zone = model.loss.parameter if model.loss.name == "huber" else _zone(model)
    return SGDRegressor(epsilon=zone, **common)


def _averaged_sgd(model: LinearModel, steps: int) -> Any:
    return _sgd(model, steps).set_params(average=True)


SGD_GRID: Sequence[Parameters] = [
    {"average": True},
    *(
        {"average": average, "learning_rate": "invscaling", "power_t": power, "eta0": eta0}
        for average in (False, True)
        for power in (0.25, 0.5)
        for eta0 in (0.01, 0.1, 1.0, 10.0)
    ),
]
"""What is tried besides the default: averaging, and steps eta0 / t^power."""


def _tuned_sgd(model: LinearModel) -> Parameters:
    """Return the parameters with the lowest objective after a few epochs."""

    def reached(parameters: Parameters) -> float:
        try:
            answer, _ = timed(_fitted(_sgd)(model, TUNING_EPOCHS, parameters))
        except ValueError:  # scikit-learn's way to say that a run diverged
            return math.inf
        return value_at(model, answer.x)

    tried: list[Parameters] = [{}, *SGD_GRID]
    best = min(tried, key=reached)
    return dict(best)


def _quantile_of(model: LinearModel) -> float:
    """Return the quantile; the absolute loss is twice the pinball loss of the median."""
    return model.loss.parameter if model.loss.name == "quantile" else 0.5


def _quantile_regressor(model: LinearModel, steps: int) -> Any:  # noqa: ARG001
    from sklearn.linear_model import QuantileRegressor

    return QuantileRegressor(
        quantile=_quantile_of(model), alpha=0.0, fit_intercept=False, solver="highs"
    )


def _huber_regressor(model: LinearModel, steps: int) -> Any:
    scale = model.loss.parameter / HUBER_EPSILON
    return _huber(model.l2 * model.n_samples / scale, steps, tol=0.0)


def _huber(alpha: float, steps: int, tol: float, *, fit_intercept: bool = False) -> Any:
    from sklearn.linear_model import HuberRegressor

    return HuberRegressor(
        epsilon=HUBER_EPSILON, alpha=alpha, max_iter=steps, tol=tol, fit_intercept=fit_intercept
    )


def huber_scale(X: Any, y: Vector, strength: float, *, fit_intercept: bool = False) -> float:
    """Return the scale sigma that HuberRegressor finds where its penalty is l2 = strength / n.

    It minimises sum_i (sigma + sigma H(r_i / sigma)) + alpha ||w||^2 over w and sigma. At its sigma
    that is, in w and up to a factor, mean huber loss with delta = 1.35 sigma plus l2/2 ||w||^2 with
    l2 = alpha sigma / n. So with this delta its minimiser is that of the model, and it can be
    compared; alpha = strength / sigma is found by iteration.
    """
    scale = float(y.std()) or 1.0
    for _ in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            huber = _huber(strength / scale, 10_000, tol=1e-9, fit_intercept=fit_intercept)
            fitted = huber.fit(X, y)
        before, scale = scale, float(fitted.scale_)
        if abs(scale - before) <= 1e-9 * scale:
            break
    return scale


# -- others ----------------------------------------------------------------------------------------


def _scipy(model: LinearModel, setting: float, parameters: Parameters) -> Run:
    from scipy.optimize import minimize

    options: Any = {"maxiter": int(setting), "maxfun": 10 * MOST_STEPS, "ftol": 0.0, "gtol": 0.0}
    options |= parameters
    X, y, n, loss, l2 = model.X, model.y, model.n_samples, model.loss, model.l2

    def fun(w: Any) -> tuple[float, Any]:
        """Return value and gradient as a user would write them, with NumPy or scipy.sparse."""
        losses, slopes = loss.value_and_derivative(X @ w, y)
        return losses.mean() + 0.5 * l2 * (w @ w), X.T @ slopes / n + l2 * w

    def run() -> Answer:
        start = np.zeros(X.shape[1])
        found: Any = minimize(fun, start, jac=True, method="L-BFGS-B", options=options)
        return Answer(found.x, int(found.nit), found.nit < setting)

    return run


def _quantreg(model: LinearModel, setting: float, parameters: Parameters) -> Run:
    from statsmodels.regression.quantile_regression import QuantReg

    limits = {"max_iter": int(setting), "p_tol": 0.0, **parameters}

    def run() -> Answer:
        found = QuantReg(model.y, model.X).fit(q=_quantile_of(model), **limits)
        return Answer(np.asarray(found.params), found.iterations, found.iterations < setting)

    return run


def _dual_programme(model: LinearModel, setting: float, parameters: Parameters) -> Run:  # noqa: ARG001
    """Return HiGHS on the dual programme, with a constraint a column: as the minima are found."""
    return lambda: Answer(find_minimum(model).x, 1, converged=True)


def _skglm(model: LinearModel, setting: float, parameters: Parameters) -> Run:
    """Return skglm's L-BFGS for smooth losses and its dual coordinate descent for the hinge."""
    if model.loss.name == "hinge":
        return _fitted(_skglm_svc)(model, setting, parameters)
    from skglm.solvers import LBFGS

    datafit, penalty = _skglm_parts(model.loss.name, model.l2)
    X = model.X.tocsc() if is_sparse(model.X) else model.X  # what it takes; not timed

    def run() -> Answer:
        solver = LBFGS(max_iter=int(setting), tol=TIGHT)
        w, values, _ = solver.solve(X, model.y, datafit, penalty)
        return Answer(np.asarray(w), len(values), len(values) < setting)

    return run


def _skglm_svc(model: LinearModel, steps: int) -> Any:
    from skglm import LinearSVC

    return LinearSVC(C=_cost(model), max_iter=steps, tol=TIGHT, fit_intercept=False)


@cache
def _skglm_parts(loss: str, l2: float) -> tuple[Any, Any]:
    from skglm.datafits import Logistic, Quadratic
    from skglm.penalties import L2
    from skglm.utils.jit_compilation import compiled_clone

    datafit = {"logistic": Logistic, "squared": Quadratic}[loss]()
    return compiled_clone(datafit), compiled_clone(L2(l2))


# -- when the objective is not the same ------------------------------------------------------------


def _needs_l2(model: LinearModel) -> str:
    return "" if model.l2 > 0 else "it needs l2 > 0"


def _direct_ridge(model: LinearModel) -> str:
    side = min(model.X.shape)
    return f"a dense system of {side} equations is too large" if side > DENSE_SIDE else ""


def _without_l2(model: LinearModel) -> str:
    if model.l2 == 0:
        return ""
    return "its penalty is an l1 norm, so it has the same objective with l2 = 0 only"


def _dual_programme_fits(model: LinearModel) -> str:
    return _without_l2(model) or ("" if fits_highs(model) else "its linear programme is too large")


def _skglm_fits(model: LinearModel) -> str:
    if model.loss.name == "squared" and is_sparse(model.X):
        return "its L-BFGS takes no sparse data with this loss"
    return _needs_l2(model)


# -- the table -------------------------------------------------------------------------------------

_SGD = Solver(
    "SGD",
    {loss: f"SGDClassifier(loss={SGD_LOSSES[loss]!r})" for loss in CLASSES},
    _fitted(_sgd),
    "default",
    _needs_l2,
    steady=True,
)
_SGD_ZONE = "SGDRegressor(loss='epsilon_insensitive', average=True)"
_QUANTILE = ("absolute", "quantile")


def _lsqr_like(solver: str) -> Solver:
    """Return Ridge with an iterative solver."""
    words = {"squared": f"Ridge(solver={solver!r})"}
    return Solver("Ridge", words, _fitted(_ridge(solver)), solver.upper(), dash="dash")


def _of_logistic_regression(method: str, solver: str, variant: str = "") -> Solver:
    words = {"logistic": f"LogisticRegression(solver={solver!r})"}
    return Solver(method, words, _fitted(_logistic(solver)), variant)


SOLVERS: Mapping[str, Solver] = {
    OURS: Solver(
        "AcceleGrad",
        dict.fromkeys(BENCH_LOSSES, "accelegrad.minimize(model, tol=...)"),
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
    "lbfgs": _of_logistic_regression("LBFGS", "lbfgs", "scikit-learn"),
    "newton-cg": _of_logistic_regression("Newton-CG", "newton-cg"),
    "sag": _of_logistic_regression("SAG", "sag"),
    "saga": _of_logistic_regression("SAGA", "saga"),
    "liblinear": Solver(
        "LIBLINEAR",
        {
            "logistic": "LogisticRegression(solver='liblinear')",
            "hinge": "LinearSVC(loss='hinge')",
            "squared_hinge": "LinearSVC(loss='squared_hinge', dual=False)",
            "absolute": "LinearSVR",
            "epsilon_insensitive": "LinearSVR",
        },
        _liblinear_by_tolerance,
        against=_needs_l2,
        passes=False,  # its dual solver soon leaves rows out; a Newton step is several passes
        ladder=iterations_then_tolerances,
    ),
    "sgd": _SGD,
    "sgd-tuned": replace(_SGD, variant="tuned", tune=_tuned_sgd, dash="dash"),
    "sgd-averaged": Solver(
        "SGD",
        {
            "logistic": "SGDClassifier(loss='log_loss', average=True)",
            "hinge": "SGDClassifier(loss='hinge', average=True)",
            "squared": "SGDRegressor(average=True)",
            "absolute": _SGD_ZONE,
            "epsilon_insensitive": _SGD_ZONE,
            "huber": "SGDRegressor(loss='huber', average=True)",
        },
        _fitted(_averaged_sgd),
        "averaged",
        _needs_l2,
        steady=True,
    ),
    "ridge": Solver(
        "Ridge",
        {"squared": "Ridge(solver='cholesky')"},
        _fitted(_ridge("cholesky")),
        "Cholesky",
        _direct_ridge,
        direct=True,
        passes=False,
    ),
    "ridge-lsqr": _lsqr_like("lsqr"),
    "ridge-sag": _lsqr_like("sag"),
    "ridge-saga": _lsqr_like("saga"),
    "quantile": Solver(
        "QuantileRegressor",
        dict.fromkeys(_QUANTILE, "QuantileRegressor(alpha=0, solver='highs')"),
        _fitted(_quantile_regressor),
        against=_without_l2,
        direct=True,
        passes=False,
        patient=120.0,
    ),
    "quantreg": Solver(
        "QuantReg",
        dict.fromkeys(_QUANTILE, "statsmodels QuantReg"),
        _quantreg,
        "statsmodels",
        _without_l2,
        needs="statsmodels",
    ),
    "highs-dual": Solver(
        "HiGHS",
        dict.fromkeys(_QUANTILE, "scipy.optimize.linprog on the dual programme"),
        _dual_programme,
        "dual programme",
        _dual_programme_fits,
        direct=True,
        passes=False,
        patient=30.0,
        dash="dash",
    ),
    "huber": Solver(
        "HuberRegressor",
        {"huber": "HuberRegressor, whose scale decides the model's delta"},
        _fitted(_huber_regressor),
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

BENCHED = tuple(name for name in SOLVERS if name not in ("sgd-averaged", "ridge-sag", "ridge-saga"))
"""The solvers of `accelegrad bench`; `minimize` comes first."""

_CLASSES = {"liblinear": "liblinear", "sgd": "sgd-averaged"}
COMPARED: Mapping[str, Mapping[str, str]] = {
    "logistic": {"lbfgs": "lbfgs", "liblinear": "liblinear", "sag": "sag", "saga": "saga"}
    | {"sgd": "sgd-averaged"},
    "hinge": _CLASSES,
    "squared_hinge": {"liblinear": "liblinear"},
    "squared": {"cholesky": "ridge", "lsqr": "ridge-lsqr", "sag": "ridge-sag"}
    | {"saga": "ridge-saga", "sgd": "sgd-averaged"},
    "absolute": _CLASSES,
    "epsilon_insensitive": _CLASSES,
    "huber": {"sgd": "sgd-averaged"},
    "quantile": {"quantile": "quantile"},
}
"""What `accelegrad compare` offers, all of scikit-learn: by loss and the name that users give."""


def value_at(model: LinearModel, x: Vector) -> float:
    """Return the objective at a point, infinite where it is no number: measured by us."""
    if not np.isfinite(x).all():
        return math.inf
    with np.errstate(all="ignore"):
        value = model.value(x)
    return value if math.isfinite(value) else math.inf
