"""What is minimised on rows: goals by name, and what they come to on given rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from accelegrad import LinearModel, minimize
from accelegrad.errors import Vector
from accelegrad.models.losses import LOSSES
from accelegrad.sklearn.objective import NEGLIGIBLE
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.rows import Rows, is_sparse
from accelegrad_lab.engine.worker import Timing, quiet

ALPHA = 1e-4  # the estimators' default
HALF = 0.5  # l1_ratio, the default of ElasticNet
PATH = tuple(np.geomspace(0.9, 1e-3, 7))  # shares, along a path of l1 penalties; chosen
WARM_ROWS = 100  # of the fit before the first one that is timed; chosen
MINIMUM_SECONDS = 30.0  # for the search for one minimum; chosen
HUBER_EPSILON = 1.35  # the default of HuberRegressor


class Rung(NamedTuple):
    """One run: what was asked for, its price, the value that we measure, and what it proves."""

    setting: float
    seconds: float  # wall time, default threads
    value: float
    cpu: float = np.inf  # CPU time, one thread
    calls: float = np.nan  # of the function, where they are counted
    bound: float = -np.inf  # a lower bound that it proves itself
    method: str = ""  # that ours chose


class Sample(NamedTuple):
    """What a process says of one run."""

    rungs: list[Rung]
    ended: str = ""  # why no longer run would change anything


@dataclass(frozen=True)
class Goal:
    """A kind of fit."""

    loss: str  # as `LinearModel` names it
    penalty: str | None = "l2"  # as the estimators name it
    share: float | None = None  # alpha over the least one at which all weights are zero
    strength: float | None = None  # alpha times rows; without it and `share`, alpha is the default
    nonnegative: bool = False  # whether weights have to be
    path: bool = False  # whether alpha is chosen by cross-validation
    parameters: Mapping[str, float] = field(default_factory=dict)  # of the loss

    @property
    def name(self) -> str:
        """The loss, as the estimators name it."""
        return LOSSES[self.loss].sklearn_name


@dataclass(frozen=True, eq=False)
class Fit:
    """A goal on given rows, and the objective that everybody is judged by."""

    goal: Goal
    rows: Rows
    defaults: bool = True  # an intercept and all defaults; else iterations or tolerances are given

    @property
    def words(self) -> str:
        """The size of the data."""
        return self.rows.words

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.rows.X.shape[0])

    @cached_property
    def classes(self) -> Vector | None:
        """The labels; None for numbers."""
        return np.unique(self.rows.y) if LOSSES[self.goal.loss].classification else None

    @property
    def n_classes(self) -> int:
        """The number of classes, 0 for numbers."""
        return 0 if self.classes is None else self.classes.size

    @property
    def is_joint(self) -> bool:
        """Whether it is one multinomial problem."""
        return self.n_classes > 2 and self.goal.loss == "logistic"

    @cached_property
    def alpha(self) -> float:
        """The strength of the penalty."""
        goal = self.goal
        if goal.penalty is None:
            return 0.0
        if goal.strength is not None:
            return goal.strength / self.n_rows
        if goal.share is None:
            return ALPHA
        return goal.share * self.least_for_zero / (HALF if goal.penalty == "elasticnet" else 1.0)

    @property
    def cost(self) -> float:
        """LIBLINEAR's C: its objective is ours divided by alpha."""
        return 1.0 / (self.alpha * self.n_rows) if self.alpha else np.inf

    @cached_property
    def least_for_zero(self) -> float:
        """The least strength of an l1 term with which all weights are zero."""
        X, y = self.rows
        if self.classes is not None:
            y = y == self.classes[-1]
        return float(np.abs(X.T @ (y - y.mean())).max()) / self.n_rows

    @cached_property
    def alphas(self) -> Vector | None:
        """The strengths of a path; None for the estimators' default."""
        return np.array(PATH) * self.least_for_zero if self.goal.penalty == "l1" else None

    @cached_property
    def parameters(self) -> dict[str, float]:
        """The parameters of the loss; Huber's is such that HuberRegressor has the same minimiser.

        (`scale` tells why.)
        """
        if self.goal.loss != "huber" or self.goal.parameters:
            return dict(self.goal.parameters)
        return {"delta": HUBER_EPSILON * self.scale}

    @cached_property
    def scale(self) -> float:
        """The scale sigma that HuberRegressor finds where its penalty is ours.

        It minimises sum_i (sigma + sigma H(r_i / sigma)) + a ||w||^2 over w and sigma. At its sigma
        that is, in w and up to a factor, mean huber loss with delta = 1.35 sigma plus l2/2 ||w||^2
        with l2 = a sigma / n. So with this delta its minimiser is that of the model, and it can be
        compared; a = l2 n / sigma is found by iteration.
        """
        from sklearn.linear_model import HuberRegressor

        scale = float(self.rows.y.std()) or 1.0
        for _ in range(20):
            huber = HuberRegressor(
                alpha=self.alpha * self.n_rows / scale,
                max_iter=10_000,
                tol=1e-9,
                fit_intercept=self.defaults,
            )
            with quiet():
                before, scale = scale, float(huber.fit(*self.rows).scale_)
            if abs(scale - before) <= 1e-9 * scale:
                break
        return scale

    # -- the objective ---------------------------------------------------------------------------

    @property
    def weights(self) -> tuple[float, float]:
        """Those of the l1 norm and of half the squared l2 norm."""
        share = {"l1": 1.0, "elasticnet": HALF}.get(self.goal.penalty or "", 0.0)
        return share * self.alpha, (1.0 - share) * self.alpha

    @cached_property
    def models(self) -> list[LinearModel]:
        """The loss with its l2 term: of one class against the rest, one for each class."""
        X, y = self.rows
        targets = [y]
        if self.classes is not None:
            positive = self.classes[1:] if self.n_classes == 2 else self.classes
            targets = [np.where(y == one, 1.0, -1.0) for one in positive]
        return [self.model_on(X, target) for target in targets]

    def model_on(self, X: Any, y: Any) -> LinearModel:
        """Return the loss with its l2 term on other rows."""
        more: dict[str, Any] = self.parameters
        l2 = self.weights[1]
        return LinearModel(X, y, self.goal.loss, l2=l2, fit_intercept=self.defaults, **more)

    def objective(self, fitted: Any) -> float:
        """Return the objective at the coefficients of an estimator, computed by us."""
        weights = fitted.coef_.toarray() if is_sparse(fitted.coef_) else fitted.coef_
        rows = np.atleast_2d(weights).astype(np.float64)
        if rows.shape[1] != self.rows.X.shape[1]:  # cyanure's classes are columns
            rows = rows.T
        intercepts = np.ravel(getattr(fitted, "intercept_", 0.0)).astype(np.float64)
        if not (np.isfinite(rows).all() and np.isfinite(intercepts).all()):
            return float("inf")
        if self.goal.nonnegative and rows.min() < 0.0:
            return float("inf")
        if self.is_joint:
            assert self.classes is not None
            scores = self.rows.X @ rows.T + intercepts
            places = np.searchsorted(self.classes, self.rows.y)
            losses = logsumexp(scores, axis=1) - scores[np.arange(places.size), places]
            return float(losses.mean() + self.alpha / 2 * (rows**2).sum())
        points = [np.append(row, b) for row, b in zip(rows, intercepts, strict=True)]
        if not self.defaults:
            points = list(rows)
        values = [model.value(point) for model, point in zip(self.models, points, strict=True)]
        return float(sum(values) + self.weights[0] * np.abs(rows).sum())

    @property
    def start(self) -> float:
        """The objective at zero, from which accuracies are counted; inf: they are relative to P*.

        So it is with the estimators' defaults, whose tolerance is relative to the objective.
        """
        zero = np.zeros(self.models[0].n_parameters)
        return np.inf if self.defaults else self.models[0].value(zero)

    @property
    def floor(self) -> float:
        """What objectives are at least counted as, where errors are relative to them."""
        if self.goal.path or not self.defaults:
            return 0.0
        if self.is_joint:
            shares = np.unique(self.rows.y, return_counts=True)[1] / self.n_rows
            return float(-NEGLIGIBLE * (shares * np.log(shares)).sum())
        empty = np.zeros((self.n_rows, 1))
        constants = [minimize(self.model_on(empty, model.y), tol=1e-3).fun for model in self.models]
        return float(NEGLIGIBLE * sum(constants))

    def minimum(self) -> tuple[float, float]:
        """Return the lowest value known and a lower bound; nothing is known of most goals."""
        if self.defaults:
            return np.inf, -np.inf
        found = find_minimum(self.models[0], MINIMUM_SECONDS)
        return found.value, found.lower

    # -- runs ------------------------------------------------------------------------------------

    def warm_up(self, peer: Any, setting: float) -> None:
        """Do what is done only once before anything is timed: importing, loading, compiling."""
        if peer.own:
            from accelegrad.cli.warmup import compile_all

            compile_all()  # few rows would load none of the kernels
        few = Fit(self.goal, self.rows.head(WARM_ROWS), self.defaults)
        with quiet():
            peer.make(few, setting).fit(*few.rows)

    def sample(self, peer: Any, setting: float, timing: Timing, limit: float) -> Sample:  # noqa: ARG002
        """Return one fit, the fastest of some."""
        X, y = self.rows
        if peer.by_columns and is_sparse(X):
            X = X.tocsc()

        def make() -> Any:
            estimator = peer.make(self, setting)
            return lambda: estimator.fit(X, y)

        fitted, seconds = timing.fastest(make)
        value, bound = np.nan if self.goal.path else self.objective(fitted), -np.inf
        if hasattr(fitted, "gap_") and fitted.converged_ and np.isinf(fitted.certified_radius_):
            bound = float(fitted.objective_ - fitted.gap_)
        if self.goal.path:
            value, bound = 0.0, 0.0  # what fits along a path reach is not looked at
        steps = getattr(fitted, "n_iter_", None)
        done = setting >= 1 and (steps is None or np.max(steps) < setting)
        method = str(getattr(fitted, "method_", ""))
        rung = Rung(setting, seconds, value, bound=bound, method=method)
        return Sample([rung], "converged" if done else "")
