"""The one table of solvers: this package's, and those of others with the same objective.

To add one, add an entry to `PEERS`: which benchmarks it takes part in, which problems it cannot
take, and how it is made. For fits of rows, ``make(fit, setting)`` returns an estimator, whose
`fit` is timed. For functions, ``make(recorder, accuracy)`` minimises the recorder, which
counts the calls and ends the run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.optimize import minimize as typed_minimize

from accelegrad.errors import Vector
from accelegrad.front_door import minimize
from accelegrad.geometry.sets import Box, NonNegative, Simplex
from accelegrad.models.losses import LOSSES
from accelegrad_lab.engine.fit import HALF, Fit
from accelegrad_lab.engine.rows import is_sparse
from accelegrad_lab.functions.adaptive import ac_fgm, ad_gd
from accelegrad_lab.functions.contest import ACCURACIES, FunctionContest, Recorder, has_cvxpy
from accelegrad_lab.functions.formulas import Function

# The benchmarks
SOLVERS, EVERYDAY, SHAPES, FUNCTIONS = "solvers", "everyday", "shapes", "functions"
DEFAULTS = (EVERYDAY, SHAPES)
BOTH = (SOLVERS, *DEFAULTS)
TIGHT = 1e-14  # a tolerance that leaves it to the iterations to end a fit
MOST_STEPS = 1_000_000
MOST_EQUATIONS = 3000  # of a dense system that is solved directly; chosen, for memory
MOST_PARAMETERS = 1000  # with which "newton-cholesky" is a choice: it factorises such a matrix
MOST_COORDINATES = 2000  # beyond, SciPy's d x d matrices take minutes, or gigabytes
FOLDS = 5  # the default of all estimators here that cross-validate
REFERENCE_TOL = 1e-6  # of one more fit of ours that looks for the minimum
SCALED = ", intercept_scaling=10"


# -- what is asked of them -------------------------------------------------------------------------


def iterations() -> Iterator[float]:
    """Yield 1, 2, 3, 4, 6, 9, ...: each about 1.5 times the one before."""
    steps = 1
    while steps <= MOST_STEPS:
        yield steps
        steps = max(steps + 1, round(1.5 * steps))


def tolerances() -> Iterator[float]:
    """Yield 0.1, 0.03, 0.01, ..., two for each decade."""
    return iter(10.0 ** (-np.arange(2, 21) / 2))


def once() -> Iterator[float]:
    """Yield one setting: there is nothing to set."""
    return iter([1.0])


def accuracies() -> Iterator[float]:
    """Yield the accuracies of functions, for methods that are given the one that is wanted."""
    return iter(ACCURACIES)


@dataclass(frozen=True)
class Peer:
    """A solver, declared."""

    method: str  # its name in figures, which decides the colour
    words: str  # what is called
    make: Callable[..., Any] | None  # see above; None for CVXPY, which is given a formula
    against: Callable[[Any], str]  # why it cannot take part in a problem, or nothing
    suites: tuple[str, ...] = BOTH  # the benchmarks that it takes part in
    variant: str = ""  # is added to the name
    ladder: Callable[[], Iterator[float]] = iterations  # the settings to try in turn
    needs: str = ""  # a package that has to be installed
    own: bool = False  # of this package: its fits count only where they prove their accuracy
    counts: bool = True  # others are only shown
    cold: bool = False  # a first fit, in a new process with an empty cache of compiled code
    apart: bool = False  # gets processes of its own, because it compiles for long in each
    by_columns: bool = False  # wants sparse matrices as CSC, converted before the clock starts

    @property
    def shown(self) -> str:
        """Its whole name."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    @property
    def missing(self) -> bool:
        """Whether its package is not installed."""
        return bool(self.needs) and find_spec(self.needs) is None

    def reason_against(self, problem: Any) -> str:
        """Return why it cannot take part, or nothing."""
        if self.missing:
            return f"{self.needs} is not installed"
        return self.against(problem.function if isinstance(problem, FunctionContest) else problem)


# -- which fits they can take ----------------------------------------------------------------------

OTHER_OBJECTIVE = "it does not have this objective"
Test = Callable[[Fit], str]  # says why a solver cannot take a fit, or nothing


def _takes(
    *losses: str,
    penalties: Sequence[str | None] = ("l2",),
    binary: bool = False,
    why: str = OTHER_OBJECTIVE,
    nonnegative: bool = False,
    path: bool = False,
) -> Test:
    """Return a test: these losses with one of these penalties; `why` not with another."""

    def against(fit: Fit) -> str:
        goal = fit.goal
        if goal.loss not in losses or (goal.nonnegative, goal.path) != (nonnegative, path):
            return OTHER_OBJECTIVE
        if binary and fit.n_classes > 2:
            return "it takes two classes"
        return "" if (goal.penalty if fit.alpha else None) in penalties else why

    return against


_plain = partial(_takes, penalties=("l2", None))
_with_l2 = partial(_takes, why="it needs l2 > 0")
_with_any = partial(_takes, penalties=("l2", "l1", "elasticnet"))
_l1 = partial(_takes, penalties=("l1",), binary=True)
_elastic = partial(_takes, penalties=("elasticnet",))
_without_l2 = partial(
    _takes,
    penalties=(None, "l1"),
    why="its penalty is an l1 norm, so it has the same objective with l2 = 0 only",
)


def _few_equations(fit: Fit) -> str:
    side = min(fit.rows.X.shape)
    large = f"a dense system of {side} equations is too large" if side > MOST_EQUATIONS else ""
    return _plain("squared")(fit) or large


def _few_parameters(fit: Fit) -> str:
    parameters = max(fit.n_classes if fit.is_joint else 1, 1) * fit.rows.X.shape[1]
    few = parameters <= min(MOST_PARAMETERS, fit.n_rows)
    return _plain("logistic")(fit) or ("" if few else "it would factorise a large matrix")


def _dense_without_penalty(fit: Fit) -> str:
    if is_sparse(fit.rows.X):
        return "it takes dense rows"
    return _without_l2(*_KINKED)(fit) or ("" if fit.alpha == 0 else OTHER_OBJECTIVE)


def _own_scale(fit: Fit) -> str:
    if fit.goal.loss == "huber" and fit.goal.parameters:
        return "it also fits the scale of the residuals: another objective"
    return _with_l2("huber")(fit)


def _anything(problem: Any) -> str:  # noqa: ARG001
    return ""


# -- how they are made: fits -----------------------------------------------------------------------


def _given(fit: Fit, setting: float) -> dict[str, Any]:
    """Return what an estimator is given beyond the problem: nothing, iterations or a tolerance."""
    if fit.defaults:
        return {}
    if setting >= 1:
        return {"fit_intercept": False, "max_iter": int(setting), "tol": TIGHT}
    return {"fit_intercept": False, "max_iter": MOST_STEPS, "tol": setting}


Own = Callable[[Fit], dict[str, Any]]
LINEAR, SVM = "sklearn.linear_model", "sklearn.svm"


def _made(
    name: str, own: Own, module: str = LINEAR, *, limited: bool = True, **options: Any
) -> Callable[[Fit, float], Any]:
    """Return what makes an estimator: `own` gives the options that make the problem.

    `limited`: it is also given iterations or a tolerance where there are no defaults.
    """

    def make(fit: Fit, setting: float) -> Any:
        with warnings.catch_warnings():  # of packages about NumPy's private parts
            warnings.simplefilter("ignore")
            kind = getattr(import_module(module), name)
        return kind(**{**own(fit), **(_given(fit, setting) if limited else {}), **options})

    return make


_fixed = partial(_made, limited=False)


def _cost(fit: Fit) -> dict[str, Any]:
    return {"C": fit.cost, "random_state": 0}


def _alpha(fit: Fit) -> dict[str, Any]:
    return {"alpha": fit.alpha}


def _zone(fit: Fit) -> dict[str, Any]:
    """Return loss and epsilon: without a zone an epsilon-insensitive loss is the absolute one."""
    if fit.goal.loss == "absolute":
        return {"loss": "epsilon_insensitive", "epsilon": 0.0}
    return {"loss": fit.goal.name, "epsilon": fit.models[0].loss.parameter}


_logistic = partial(_made, "LogisticRegression", _cost)
_svc = partial(_made, "LinearSVC", lambda fit: {**_cost(fit), "loss": fit.goal.loss}, SVM)
_svr = partial(_made, "LinearSVR", lambda fit: {**_cost(fit), **_zone(fit)}, SVM)
_ridge = partial(_made, "Ridge", lambda fit: {"alpha": fit.alpha * fit.n_rows, "random_state": 0})
_huber = _made("HuberRegressor", lambda fit: {"alpha": fit.alpha * fit.n_rows / fit.scale})


def _sgd(**options: Any) -> Callable[[Fit, float], Any]:
    def make(fit: Fit, setting: float) -> Any:
        own = {**_alpha(fit), "random_state": 0}
        own |= {"loss": fit.goal.name} if fit.n_classes else _zone(fit)
        unlimited: dict[str, Any] = {} if fit.defaults else {"tol": None}
        kind = "SGDClassifier" if fit.n_classes else "SGDRegressor"
        return _made(kind, lambda _: own, **unlimited, **options)(fit, setting)

    return make


def _quantile_of(fit: Fit) -> float:
    """Return the quantile; the absolute loss is twice the pinball loss of the median."""
    return fit.parameters.get("quantile", 0.5)


def _quantile(fit: Fit) -> dict[str, Any]:
    alpha = fit.alpha / 2 if fit.goal.loss == "absolute" else fit.alpha
    return {"alpha": alpha, "quantile": _quantile_of(fit), "fit_intercept": fit.defaults}


def _cyanure(fit: Fit, setting: float) -> Any:
    """Return an estimator of cyanure's, whose squared hinge loss is half of ours."""
    share = 0.5 if fit.goal.loss == "squared_hinge" else 1.0
    own: dict[str, Any] = {"penalty": fit.goal.penalty, "verbose": False}
    own |= {"lambda_1": share * max(fit.weights), "lambda_2": share * min(fit.weights)}
    if fit.n_classes:
        own["loss"] = fit.goal.loss
    kind = "Classifier" if fit.n_classes else "Regression"
    return _made(kind, lambda _: own, "cyanure.estimators")(fit, setting)


def _rehline(fit: Fit, setting: float) -> Any:
    """Return an estimator of rehline's, whose squared loss is twice ours."""
    loss, parameter = fit.goal.loss, fit.models[0].loss.parameter
    named = {
        "squared_hinge": {"name": "squared hinge"},
        "squared": {"name": "MSE"},
        "absolute": {"name": "MAE"},
        "huber": {"name": "huber", "tau": parameter},
        "quantile": {"name": "QR", "qt": parameter},
        "epsilon_insensitive": {"name": "SVR", "epsilon": parameter},
    }.get(loss, {"name": loss})
    own = {"loss": named, "C": fit.cost / 2 if loss == "squared" else fit.cost}
    kind = "plq_Ridge_Classifier" if fit.n_classes else "plq_Ridge_Regressor"
    return _made(kind, lambda _: own, "rehline")(fit, setting)


def _snapml(fit: Fit, setting: float) -> Any:
    own: dict[str, Any] = {"regularizer": fit.alpha * fit.n_rows, "random_state": 0}
    own["fit_intercept"] = True
    if fit.goal.loss in _SVM:
        own["loss"] = fit.goal.loss
    kinds = {"logistic": "LogisticRegression", "squared": "LinearRegression"}
    kind = kinds.get(fit.goal.loss, "SupportVectorMachine")
    return _made(kind, lambda _: own, "snapml")(fit, setting)


def _strengths(fit: Fit) -> Vector:
    """Return the alphas of a path times the rows of a fold that are fitted to."""
    from accelegrad.sklearn.cv import strengths_to_try

    learnt = (1.0 - 1.0 / FOLDS) * fit.n_rows
    return learnt * strengths_to_try(_estimator()(fit, math.nan).alphas)


class _Wrapped:
    """What is no estimator, as an estimator."""

    coef_: Any
    intercept_: Any = 0.0

    def __init__(self, fit: Fit, setting: float) -> None:
        self.problem, self.setting = fit, setting


class _QuantReg(_Wrapped):
    """statsmodels' QuantReg."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit, with a column of ones where there is an intercept."""
        from statsmodels.regression.quantile_regression import QuantReg

        intercept = self.problem.defaults
        limits = {} if intercept else {"max_iter": int(self.setting), "p_tol": 0.0}
        columns = np.column_stack([X, np.ones(len(y))]) if intercept else X
        found = QuantReg(y, columns).fit(q=_quantile_of(self.problem), **limits)
        self.n_iter_ = found.iterations
        self.coef_ = found.params[: X.shape[1]]
        self.intercept_ = found.params[-1] if intercept else 0.0
        return self


def _numbers(fit: Fit, y: Any) -> Vector:
    """Return targets, and 0 and 1 for two classes."""
    return np.asarray(y if fit.classes is None else y == fit.classes[-1], dtype=np.float64)


class _Glum(_Wrapped):
    """glum's estimator."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit, with an intercept."""
        fit = self.problem
        own: dict[str, Any] = {"alpha": fit.alpha, "l1_ratio": fit.weights[0] / fit.alpha}
        own["family"] = "binomial" if fit.n_classes else "normal"
        made = _fixed("GeneralizedLinearRegressor", lambda _: own, "glum")(fit, self.setting)
        made.fit(X, _numbers(fit, y))
        self.coef_, self.intercept_ = made.coef_, made.intercept_
        return self


class _Adelie(_Wrapped):
    """adelie's path of a single strength."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit, with an intercept."""
        fit, adelie = self.problem, import_module("adelie")
        columns = adelie.matrix.sparse(X) if is_sparse(X) else np.asfortranarray(X)
        family = adelie.glm.binomial if fit.n_classes else adelie.glm.gaussian
        found = adelie.grpnet(
            columns,
            family(_numbers(fit, y)),
            alpha=fit.weights[0] / fit.alpha,
            lmda_path=np.array([fit.alpha]),
            progress_bar=False,
        )
        self.coef_, self.intercept_ = found.betas[-1].toarray(), found.intercepts[-1]
        return self


class _LBFGSB(_Wrapped):
    """SciPy's L-BFGS-B on value and gradient as a user would write them."""

    def fit(self, X: Any, y: Any) -> Self:
        """Minimise from zero."""
        model = self.problem.models[0]
        X, y, n, loss, l2 = model.X, model.y, model.n_samples, model.loss, model.l2

        def fun(w: Any) -> tuple[float, Any]:
            losses, slopes = loss.value_and_derivative(X @ w, y)
            return losses.mean() + 0.5 * l2 * (w @ w), X.T @ slopes / n + l2 * w

        options: Any = {"maxiter": int(self.setting), "maxfun": 10 * MOST_STEPS}
        options |= {"ftol": 0.0, "gtol": 0.0}
        scipy_minimize: Any = typed_minimize  # its stubs allow no plain arrays
        start = np.zeros(X.shape[1])
        found = scipy_minimize(fun, start, jac=True, method="L-BFGS-B", options=options)
        self.coef_, self.n_iter_ = found.x, found.nit
        return self


class _Minimize(_Wrapped):
    """`minimize(model, tol=...)`; building the model is timed too, as others check within fit."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: ARG002
        """Minimise with all defaults but the tolerance."""
        model = self.problem.model_on(X, self.problem.models[0].y)
        result: Any = minimize(model, tol=self.setting)
        self.coef_, self.converged_ = result.x, result.success
        self.objective_, self.gap_, self.certified_radius_ = result.fun, result.gap, math.inf
        return self


def _estimator(tol: float | None = None) -> Callable[[Fit, float], Any]:
    """Return our estimator with all its defaults but for what makes the problem."""

    def make(fit: Fit, setting: float) -> Any:
        from accelegrad import sklearn as ours

        goal = fit.goal
        options: dict[str, Any] = {"random_state": 0, **fit.parameters}
        if not fit.n_classes:
            options["target_scale"] = 1.0  # the plain objective, which others have
        if goal.penalty != "l2":
            options["penalty"] = goal.penalty
        if goal.penalty == "elasticnet":
            options["l1_ratio"] = HALF
        if goal.nonnegative:
            options["feasible_set"] = "nonnegative"
        if not fit.defaults:
            options |= {"fit_intercept": False, "tol": setting}
        if tol is not None:
            options["tol"] = tol
        kind = "AcceleGrad" + ("Classifier" if fit.n_classes else "Regressor")
        if goal.path:
            path = {} if fit.alphas is None else {"alphas": fit.alphas}
            return getattr(ours, kind + "CV")(goal.name, **options, **path)
        return getattr(ours, kind)(goal.name, alpha=fit.alpha, **options)

    return make


# -- how they are made: functions ------------------------------------------------------------------


def _ours(name: str, **options: Any) -> Callable[[Recorder, float], object]:
    """Return a run of ours; the universal method takes an accuracy and no penalty."""

    def run(recorder: Recorder, accuracy: float) -> object:
        function = recorder.function
        fun = recorder.fun
        more: dict[str, Any] = {"penalty": function.penalty}
        if name == "universal-fast":
            fun, more = recorder.whole, {"epsilon": accuracy}
        more |= {"feasible_set": function.feasible_set, "max_iter": recorder.max_calls}
        return minimize(fun, function.x0, method=name, **more, **options)

    return run


def _scipy(name: str, **options: Any) -> Callable[[Recorder, float], object]:
    """Return a run of SciPy's; penalties are part of the function, by a subgradient."""

    def run(recorder: Recorder, accuracy: float) -> object:  # noqa: ARG001
        function = recorder.function
        equations: Any = ()
        if function.equations is not None:
            A, b = function.equations
            equations = LinearConstraint(A, b, b)
        scipy_minimize: Any = typed_minimize  # its stubs allow no plain arrays
        limit = "maxfun" if name == "L-BFGS-B" else "maxiter"
        return scipy_minimize(
            recorder.whole,
            function.x0,
            jac=True,
            method=name,
            bounds=_bounds_of(function),
            constraints=equations,
            options={**options, limit: recorder.max_calls},
        )

    return run


def _bounds_of(function: Function) -> Bounds | None:
    """Return the bounds that a set puts on single coordinates, None where there are none."""
    chosen, d = function.feasible_set, function.x0.size
    if isinstance(chosen, Box):
        return Bounds(chosen.lower, chosen.upper)
    if isinstance(chosen, (NonNegative, Simplex)):
        return Bounds(np.zeros(d), np.full(d, math.inf))
    return None


def _small(function: Function) -> str:
    small = function.x0.size <= MOST_COORDINATES
    return "" if small else f"more than {MOST_COORDINATES} coordinates"


def _free(function: Function) -> str:
    return _small(function) if function.feasible_set is None else "it takes no set"


def _bounds_only(function: Function) -> str:
    bounded = isinstance(function.feasible_set, (Box, NonNegative))
    return "" if function.feasible_set is None or bounded else "it takes bounds alone"


def _linear(function: Function) -> str:
    """Bounds and equations can be given to it."""
    linear = function.equations is not None or not _bounds_only(function)
    return _small(function) if linear else "it takes bounds and equations"


# -- the table -------------------------------------------------------------------------------------

_SVM = ("hinge", "squared_hinge")
_ZONE = ("absolute", "epsilon_insensitive")
_KINKED = ("absolute", "quantile")
_SMOOTH = tuple(name for name, entry in LOSSES.items() if entry.smooth)
_ONE, _TWO, _F = (SOLVERS,), DEFAULTS, (FUNCTIONS,)


def _liblinear(
    name: str, against: Test, make: Callable[..., Any], variant: str, **options: Any
) -> dict[str, Peer]:
    """Return a peer of LIBLINEAR with its two ways to treat the intercept, which it penalises.

    It takes part as it comes, and with `intercept_scaling=10`, which makes that penalty a hundredth
    of that of the weights. The objective that each reaches decides which of them counts.
    """
    plain = Peer("LIBLINEAR", name, make(**options), against, BOTH, variant, tolerances)
    made, words = make(**options, intercept_scaling=10), variant + SCALED
    scaled = Peer("LIBLINEAR", name + SCALED, made, against, _TWO, words)
    return {name: plain, name + SCALED: scaled}


def _function(method: str, words: str, make: Any, variant: str = "", **more: Any) -> Peer:
    against = more.pop("against", _anything)
    return Peer(method, words, make, against, _F, variant, more.pop("ladder", once), **more)


PEERS: Mapping[str, Peer] = {
    # fits of rows: ours, then others
    "minimize": Peer(
        "AcceleGrad", "minimize(model, tol=...)", _Minimize, _anything, _ONE,
        ladder=tolerances, own=True,
    ),
    "AcceleGrad": Peer(
        "AcceleGrad", "AcceleGradClassifier, AcceleGradRegressor and their CV forms", _estimator(),
        _anything, BOTH, "estimator", tolerances, own=True,
    ),
    "AcceleGrad, tol=1e-6": Peer(
        "AcceleGrad", "a stricter fit, for the minimum", _estimator(REFERENCE_TOL),
        lambda fit: "it is one fit" if fit.goal.path else "", _TWO, "tol=1e-6",
        own=True, counts=False,
    ),
    "AcceleGrad, first fit": Peer(
        "AcceleGrad", "in a new process with an empty cache", _estimator(), _anything, _TWO,
        "first fit", own=True, counts=False, cold=True,
    ),
    "LogisticRegression": Peer("LBFGS", "LogisticRegression", _logistic(), _plain("logistic")),
    "newton-cholesky": Peer(
        "newton-cholesky", "LogisticRegression(solver='newton-cholesky')",
        _logistic(solver="newton-cholesky"), _few_parameters,
    ),
    **{
        name: Peer(
            name.upper(), f"LogisticRegression(solver={name!r})", _logistic(solver=name),
            _plain("logistic"), _ONE,
        )
        for name in ("newton-cg", "sag", "saga")
    },
    **_liblinear(
        "LogisticRegression, liblinear", _with_l2("logistic", binary=True), _logistic, "logistic",
        solver="liblinear",
    ),
    **_liblinear("LinearSVC", _with_l2(*_SVM), _svc, "SVC"),
    **_liblinear(
        "LinearSVC, l1", _l1("squared_hinge"), _svc, "l1 SVC", penalty="l1", dual=False
    ),
    "cyanure": Peer(
        "cyanure", "cyanure's Classifier and Regression", _cyanure,
        _with_any("logistic", "squared_hinge", "squared"), BOTH, "", tolerances, "cyanure",
    ),
    "rehline": Peer(
        "rehline", "rehline's plq_Ridge_Classifier and plq_Ridge_Regressor", _rehline,
        _with_l2(*_SVM, "squared", "huber", "quantile", *_ZONE), BOTH, "", tolerances, "rehline",
    ),
    "snapml": Peer(
        "snapml", "snapml's LogisticRegression, LinearRegression and SupportVectorMachine", _snapml,
        _with_l2("logistic", "squared", *_SVM, binary=True), BOTH, "", tolerances, "snapml",
    ),
    "glum": Peer(
        "glum", "glum.GeneralizedLinearRegressor", _Glum,
        _with_any("logistic", "squared", binary=True), _TWO, needs="glum", by_columns=True,
    ),
    "adelie": Peer(
        "adelie", "adelie.grpnet", _Adelie, _with_any("logistic", "squared", binary=True), _TWO,
        needs="adelie", by_columns=True,
    ),
    "SGDClassifier": Peer(
        "SGD", "SGDClassifier", _sgd(),
        _with_l2("logistic", "modified_huber", *_SVM, binary=True), _TWO,
    ),
    "SGD, averaged": Peer(
        "SGD", "SGDClassifier or SGDRegressor (average=True)", _sgd(average=True),
        _with_l2("logistic", "hinge", "squared", "huber", *_ZONE), _ONE, "averaged",
    ),
    **_liblinear(
        "LogisticRegression, l1, liblinear", _l1("logistic"), _logistic, "l1 logistic",
        solver="liblinear", l1_ratio=1.0,
    ),
    "LogisticRegression, l1, saga": Peer(
        "SAGA", "LogisticRegression(solver='saga', l1_ratio=1)",
        _logistic(solver="saga", l1_ratio=1.0), _l1("logistic"), _TWO, "l1",
    ),
    "skglm, l1 logistic": Peer(
        "skglm", "skglm.SparseLogisticRegression",
        _fixed("SparseLogisticRegression", _alpha, "skglm"), _l1("logistic"), _TWO, "l1 logistic",
        needs="skglm", apart=True, by_columns=True,
    ),
    "Ridge": Peer("Ridge", "Ridge", _ridge(), _plain("squared"), _TWO),
    "Ridge, cholesky": Peer(
        "Ridge", "Ridge(solver='cholesky')", _ridge(solver="cholesky"), _few_equations, _ONE,
        "Cholesky", once,
    ),
    **{
        f"Ridge, {name}": Peer(
            "Ridge", f"Ridge(solver={name!r})", _ridge(solver=name), _plain("squared"),
            _ONE, name.upper(),
        )
        for name in ("lsqr", "sag", "saga")
    },
    "Ridge, positive": Peer(
        "Ridge", "Ridge(positive=True)", _ridge(positive=True),
        _takes("squared", nonnegative=True), _TWO, "positive",
    ),
    "LinearRegression, positive": Peer(
        "nnls", "LinearRegression(positive=True)",
        _fixed("LinearRegression", lambda _: {"positive": True}),
        _takes("squared", penalties=(None,), nonnegative=True), _TWO,
    ),
    "Lasso": Peer("Lasso", "Lasso", _fixed("Lasso", _alpha), _l1("squared"), _TWO, by_columns=True),
    "celer": Peer(
        "celer", "celer.Lasso", _fixed("Lasso", _alpha, "celer"), _l1("squared"), _TWO,
        needs="celer", by_columns=True,
    ),
    "skglm": Peer(
        "skglm", "skglm.Lasso", _fixed("Lasso", _alpha, "skglm"), _l1("squared"), _TWO,
        needs="skglm", apart=True, by_columns=True,
    ),
    "ElasticNet": Peer(
        "Lasso", "ElasticNet", _fixed("ElasticNet", _alpha, l1_ratio=HALF),
        _elastic("squared"), _TWO, "elastic net",
    ),
    "celer, ElasticNet": Peer(
        "celer", "celer.ElasticNet", _fixed("ElasticNet", _alpha, "celer", l1_ratio=HALF),
        _elastic("squared"), _TWO, "elastic net", needs="celer", by_columns=True,
    ),
    "HuberRegressor": Peer("HuberRegressor", "HuberRegressor", _huber, _own_scale),
    "QuantileRegressor": Peer(
        "QuantileRegressor", "QuantileRegressor", _fixed("QuantileRegressor", _quantile),
        _without_l2(*_KINKED), ladder=once,
    ),
    "QuantReg": Peer(
        "QuantReg", "statsmodels QuantReg", _QuantReg, _dense_without_penalty, needs="statsmodels"
    ),
    **_liblinear("LinearSVR", _with_l2(*_ZONE, "squared_epsilon_insensitive"), _svr, "SVR"),
    "L-BFGS-B": Peer(
        "L-BFGS-B", "scipy.optimize.minimize", _LBFGSB, _plain(*_SMOOTH), _ONE, "SciPy"
    ),
    "LogisticRegressionCV": Peer(
        "LBFGS", "LogisticRegressionCV",
        _fixed("LogisticRegressionCV", lambda fit: {"Cs": 1.0 / _strengths(fit)}),
        _takes("logistic", path=True), _TWO, "CV"
    ),
    "RidgeCV": Peer("Ridge", "RidgeCV",
        _fixed("RidgeCV", lambda fit: {"alphas": _strengths(fit), "cv": FOLDS}),
        _takes("squared", path=True), _TWO, "CV"),
    "LassoCV": Peer("Lasso", "LassoCV", _fixed("LassoCV", lambda fit: {"alphas": fit.alphas}),
        _l1("squared", path=True), _TWO, "CV"),
    # functions
    "auto": _function("AcceleGrad", "minimize(f, x0)", _ours("auto"), "auto", own=True),
    "accelegrad": _function(
        "AcceleGrad", "minimize(f, x0, method='accelegrad')", _ours("accelegrad"), own=True
    ),
    "accelegrad-restarted": _function(
        "AcceleGrad", "minimize(f, x0, method='accelegrad', restart='auto')",
        _ours("accelegrad", restart="auto"), "restarts", own=True,
    ),
    "bundle": _function("Bundle", "minimize(f, x0, method='bundle')", _ours("bundle"), own=True),
    "lbfgs-b": _function(
        "L-BFGS-B", "scipy.optimize.minimize", _scipy("L-BFGS-B", ftol=0.0, gtol=0.0), "SciPy",
        against=_bounds_only,
    ),
    "bfgs": _function(
        "BFGS", "scipy.optimize.minimize", _scipy("BFGS", gtol=0.0), "SciPy", against=_free
    ),
    "trust-constr": _function(
        "trust-constr", "scipy.optimize.minimize",
        _scipy("trust-constr", gtol=0.0, xtol=0.0, barrier_tol=1e-12), "SciPy", against=_linear,
    ),
    "slsqp": _function(
        "SLSQP", "scipy.optimize.minimize", _scipy("SLSQP", ftol=0.0), "SciPy", against=_linear
    ),
    "ac-fgm": _function(
        "AC-FGM", "Li and Lan (2023), alpha = 0.1; it is given the accuracy, a run for each",
        lambda one, accuracy: ac_fgm(one.fun, one.function.x0, one.prox, accuracy),
        ladder=accuracies,
    ),
    "ad-gd": _function(
        "AdGD", "Malitsky and Mishchenko (2024), the proximal form",
        lambda one, _: ad_gd(one.fun, one.function.x0, one.prox),
    ),
    "universal-fast": _function(
        "Universal fast", "Nesterov (2015); it is given the accuracy, a run for each",
        _ours("universal-fast"), ladder=accuracies,
    ),
    "cvxpy": _function(
        "Clarabel", "CVXPY, stating and solving: seconds alone", None, "CVXPY",
        against=lambda _: "" if has_cvxpy() else "cvxpy or clarabel is not installed",
        ladder=tolerances,
    ),
}  # fmt: skip

_CLASSES = {"liblinear": "LinearSVC", "sgd": "SGD, averaged"}
_NUMBERS = {"liblinear": "LinearSVR", "sgd": "SGD, averaged"}
COMPARED: Mapping[str, Mapping[str, str]] = {
    "logistic": {"lbfgs": "LogisticRegression", "liblinear": "LogisticRegression, liblinear"}
    | {"sag": "sag", "saga": "saga", "sgd": "SGD, averaged"},
    "hinge": _CLASSES,
    "squared_hinge": {"liblinear": "LinearSVC"},
    "squared": {"cholesky": "Ridge, cholesky", "lsqr": "Ridge, lsqr", "sag": "Ridge, sag"}
    | {"saga": "Ridge, saga", "sgd": "SGD, averaged"},
    "absolute": _NUMBERS,
    "epsilon_insensitive": _NUMBERS,
    "huber": {"sgd": "SGD, averaged"},
    "quantile": {"quantile": "QuantileRegressor"},
}
"""What `accelegrad compare` offers, all of scikit-learn: by loss and the name that users give."""
