"""The specialists, as they come: their defaults, but for what makes their objective ours.

LIBLINEAR penalises its intercept. It takes part twice: as it comes, and with
`intercept_scaling=10`, which makes that penalty a hundredth of ours on the weights. Which of them
counts is decided by the objective that each reaches, as for all peers.

To add a peer, add an entry to `PEERS`: when it has the same objective, and its estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self

import numpy as np

from accelegrad.sklearn.cv import strengths_to_try
from accelegrad_lab.engine.minimum import is_sparse
from accelegrad_lab.everyday.goals import HALF, Contest

OURS = "AcceleGrad"
CHECKS = "scikit-learn's checks"  # no solver: what `fit` of any estimator has to do
SCALED_INTERCEPT = ", intercept_scaling=10"
MOST_PARAMETERS = 1_000  # with which "newton-cholesky" is a choice: it factorises such a matrix
SMALL = 100  # rows up to which the checks are timed too
FOLDS = 5  # the default of all estimators here that cross-validate
SVM = ("hinge", "squared_hinge")


@dataclass(frozen=True)
class Peer:
    """A specialist, declared.

    Parameters
    ----------
    method : str
        What decides its colour in figures.
    takes : callable
        ``takes(contest)`` tells whether it has the same objective.
    make : callable
        ``make(contest)`` returns the estimator to fit.
    variant : str
        What is added to the method in words.
    by_columns : bool
        Whether it wants sparse matrices as CSC; they are converted before the clock starts.
    needs : str
        A package that has to be installed.
    apart : bool
        Whether it gets a process of its own, because it compiles for long in each new one.
    counts : bool
        Whether it is compared with; others are shown only.
    """

    method: str
    takes: Callable[[Contest], bool]
    make: Callable[[Contest], Any]
    variant: str = ""
    by_columns: bool = False
    needs: str = ""
    apart: bool = False
    counts: bool = True

    def takes_part(self, contest: Contest) -> bool:
        """Tell whether it is installed and has the same objective."""
        return (not self.needs or find_spec(self.needs) is not None) and self.takes(contest)


# -- when the objective is the same ----------------------------------------------------------------


def _plain(*losses: str) -> Callable[[Contest], bool]:
    return lambda contest: contest.goal.is_plain and contest.goal.loss in losses


def _plain_binary(*losses: str) -> Callable[[Contest], bool]:
    return lambda contest: _plain(*losses)(contest) and contest.n_classes == 2


def _few_parameters(contest: Contest) -> bool:
    rows = contest.n_classes if contest.is_joint else 1
    few = rows * contest.rows.X.shape[1] <= min(MOST_PARAMETERS, contest.n_rows)
    return _plain("log_loss")(contest) and few


def _l1(loss: str, penalty: str = "l1", *, sparse: bool = False) -> Callable[[Contest], bool]:
    def takes(contest: Contest) -> bool:
        goal = contest.goal
        same = (goal.loss, goal.penalty, goal.path) == (loss, penalty, False)
        return same and not goal.nonnegative and (is_sparse(contest.rows.X) or not sparse)

    return takes


def _l1_binary(contest: Contest) -> bool:
    return _l1("log_loss")(contest) and contest.n_classes == 2


def _nonnegative(penalty: str | None) -> Callable[[Contest], bool]:
    return lambda contest: contest.goal.nonnegative and contest.goal.penalty == penalty


def _path(loss: str, penalty: str) -> Callable[[Contest], bool]:
    wanted = (loss, penalty, True)
    return lambda contest: (contest.goal.loss, contest.goal.penalty, contest.goal.path) == wanted


# -- estimators ------------------------------------------------------------------------------------


def _logistic(**options: Any) -> Callable[[Contest], Any]:
    def make(contest: Contest) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=contest.cost, random_state=0, **options)

    return make


def _svc(**options: Any) -> Callable[[Contest], Any]:
    def make(contest: Contest) -> Any:
        from sklearn.svm import LinearSVC

        return LinearSVC(loss=contest.goal.loss, C=contest.cost, random_state=0, **options)

    return make


def _svr(**options: Any) -> Callable[[Contest], Any]:
    def make(contest: Contest) -> Any:
        from sklearn.svm import LinearSVR

        epsilon = contest.ours().epsilon
        return LinearSVR(epsilon=epsilon, C=contest.cost, random_state=0, **options)

    return make


def _sgd(contest: Contest) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(contest.goal.loss, alpha=contest.alpha, random_state=0)


def _ridge(**options: Any) -> Callable[[Contest], Any]:
    def make(contest: Contest) -> Any:
        from sklearn.linear_model import Ridge

        return Ridge(alpha=contest.alpha * contest.n_rows, **options)

    return make


def _least_squares(contest: Contest) -> Any:  # noqa: ARG001
    from sklearn.linear_model import LinearRegression

    return LinearRegression(positive=True)


def _lasso(contest: Contest) -> Any:
    from sklearn.linear_model import Lasso

    return Lasso(alpha=contest.alpha)


def _celer(contest: Contest) -> Any:
    from celer import Lasso

    return Lasso(alpha=contest.alpha)


def _skglm(contest: Contest) -> Any:
    from skglm import Lasso

    return Lasso(alpha=contest.alpha)


def _skglm_logistic(contest: Contest) -> Any:
    from skglm import SparseLogisticRegression

    return SparseLogisticRegression(alpha=contest.alpha)


def _elastic_net(contest: Contest) -> Any:
    from sklearn.linear_model import ElasticNet

    return ElasticNet(alpha=contest.alpha, l1_ratio=HALF)


def _huber(contest: Contest) -> Any:
    from sklearn.linear_model import HuberRegressor

    return HuberRegressor(alpha=contest.alpha * contest.n_rows / contest.scale)


def _quantile_regressor(contest: Contest) -> Any:
    from sklearn.linear_model import QuantileRegressor

    # The absolute loss is twice the pinball loss of the median.
    quantile = contest.parameters.get("quantile", 0.5)
    return QuantileRegressor(quantile=quantile, alpha=contest.alpha)


class _QuantReg:
    """statsmodels' QuantReg as an estimator."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit with a column of ones, which is this model's intercept."""
        from statsmodels.regression.quantile_regression import QuantReg

        found = QuantReg(y, np.column_stack([X, np.ones(len(y))])).fit(q=0.5)
        self.coef_, self.intercept_ = found.params[:-1], found.params[-1]
        return self


def _quantreg(contest: Contest) -> Any:  # noqa: ARG001
    return _QuantReg()


def _logistic_path(contest: Contest) -> Any:
    from sklearn.linear_model import LogisticRegressionCV

    learnt = (1.0 - 1.0 / FOLDS) * contest.n_rows  # the rows of a fold that are fitted to
    return LogisticRegressionCV(Cs=1.0 / (learnt * strengths_to_try(contest.ours().alphas)))


def _ridge_path(contest: Contest) -> Any:
    from sklearn.linear_model import RidgeCV

    learnt = (1.0 - 1.0 / FOLDS) * contest.n_rows
    return RidgeCV(alphas=learnt * strengths_to_try(contest.ours().alphas), cv=FOLDS)


def _lasso_path(contest: Contest) -> Any:
    from sklearn.linear_model import LassoCV

    return LassoCV(alphas=contest.alphas)


class _Checks:
    """No solver: the checks that scikit-learn asks of every `fit`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Check the data."""
        from sklearn.utils.validation import check_X_y

        check_X_y(X, y, accept_sparse="csr")
        return self


def _checks(contest: Contest) -> Any:  # noqa: ARG001
    return _Checks()


# -- the table -------------------------------------------------------------------------------------

_SCALED = {"intercept_scaling": 10}
_eps = _plain("epsilon_insensitive")


def _liblinear(
    name: str, peer: Peer, make: Callable[..., Callable[[Contest], Any]], **options: Any
) -> dict[str, Peer]:
    """Return a peer of LIBLINEAR with its two ways to treat the intercept."""
    other = replace(peer, make=make(**options, **_SCALED), variant=peer.variant + SCALED_INTERCEPT)
    return {name: replace(peer, make=make(**options)), name + SCALED_INTERCEPT: other}


PEERS: Mapping[str, Peer] = {
    "LogisticRegression": Peer("LBFGS", _plain("log_loss"), _logistic()),
    "LogisticRegression, newton-cholesky": Peer(
        "newton-cholesky", _few_parameters, _logistic(solver="newton-cholesky")
    ),
    **_liblinear(
        "LogisticRegression, liblinear",
        Peer("LIBLINEAR", _plain_binary("log_loss"), _logistic(), "logistic"),
        _logistic,
        solver="liblinear",
    ),
    **_liblinear("LinearSVC", Peer("LIBLINEAR", _plain(*SVM), _svc(), "SVC"), _svc),
    "SGDClassifier": Peer("SGD", _plain_binary("log_loss", *SVM), _sgd),
    **_liblinear(
        "LogisticRegression, l1, liblinear",
        Peer("LIBLINEAR", _l1_binary, _logistic(), "l1 logistic"),
        _logistic,
        solver="liblinear",
        l1_ratio=1.0,
    ),
    "LogisticRegression, l1, saga": Peer(
        "SAGA", _l1_binary, _logistic(solver="saga", l1_ratio=1.0)
    ),
    "skglm, l1 logistic": Peer(
        "skglm", _l1_binary, _skglm_logistic, "l1 logistic", True, "skglm", apart=True
    ),
    "Ridge": Peer("Ridge", _plain("squared_error"), _ridge()),
    "Ridge, positive": Peer("Ridge", _nonnegative("l2"), _ridge(positive=True), "positive"),
    "LinearRegression, positive": Peer("nnls", _nonnegative(None), _least_squares),
    "Lasso": Peer("Lasso", _l1("squared_error"), _lasso, by_columns=True),
    "celer": Peer("celer", _l1("squared_error", sparse=True), _celer, "", True, "celer"),
    "skglm": Peer("skglm", _l1("squared_error", sparse=True), _skglm, "", True, "skglm", True),
    "ElasticNet": Peer("Lasso", _l1("squared_error", "elasticnet"), _elastic_net, "elastic net"),
    "HuberRegressor": Peer("HuberRegressor", _plain("huber"), _huber),
    "QuantileRegressor": Peer(
        "QuantileRegressor",
        lambda contest: contest.goal.loss in ("quantile", "absolute_error"),
        _quantile_regressor,
    ),
    "QuantReg": Peer(
        "QuantReg",
        lambda contest: contest.goal.loss == "absolute_error",
        _quantreg,
        needs="statsmodels",
    ),
    **_liblinear("LinearSVR", Peer("LIBLINEAR", _eps, _svr(), "SVR"), _svr),
    "LogisticRegressionCV": Peer("LBFGS", _path("log_loss", "l2"), _logistic_path, "CV"),
    "RidgeCV": Peer("Ridge", _path("squared_error", "l2"), _ridge_path, "CV"),
    "LassoCV": Peer("Lasso", _path("squared_error", "l1"), _lasso_path, "CV"),
    CHECKS: Peer("checks", lambda contest: contest.n_rows <= SMALL, _checks, counts=False),
}
