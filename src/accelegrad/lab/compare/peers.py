"""Solvers of scikit-learn on the same objective as tasks: how far each gets in how much time.

A peer is run anew with more and more iterations allowed, and each time the clock runs during `fit`
alone: none of them tells where it is on its way.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import nearest
from accelegrad.lab.compare.problem import minimum_task, model_of
from accelegrad.lab.engine.liblinear import for_liblinear
from accelegrad.lab.engine.tasks import Outcome, Store, Task, task
from accelegrad.problems.linear_model import LinearModel

ALL = "sklearn"
MOST_STEPS = 10_000
TIGHT = 1e-14  # a tolerance that leaves it to the iterations to end a fit
CLOSE = 1e-12  # a gap, relative to the minimum, beyond which nothing is left to see
SHORT = 0.05  # seconds: fits this short are timed three times
DENSE_SIDE = 3000  # the largest system of equations that is solved directly


class Peer(NamedTuple):
    """A solver of another library."""

    shown: str  # its name in the report
    words: str  # what is called
    make: Callable[[LinearModel, int], Any]  # the estimator for a model and a number of iterations
    passes: bool = True  # whether an iteration is one pass over the data
    direct: bool = False  # whether there are no iterations to count
    needs_l2: bool = False


def _logistic(solver: str) -> Callable[[LinearModel, int], Any]:
    def make(model: LinearModel, steps: int) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=_cost(model), solver=solver, tol=TIGHT, **_common(steps))

    return make


def _linear_svc(loss: str, *, dual: bool) -> Callable[[LinearModel, int], Any]:
    def make(model: LinearModel, steps: int) -> Any:
        from sklearn.svm import LinearSVC

        return LinearSVC(C=_cost(model), loss=loss, dual=dual, tol=TIGHT, **_common(steps))

    return make


def _linear_svr(model: LinearModel, steps: int) -> Any:
    from sklearn.svm import LinearSVR

    zone = getattr(model.loss, "epsilon", 0.0)
    return LinearSVR(C=_cost(model), epsilon=zone, dual=True, tol=TIGHT, **_common(steps))


def _ridge(solver: str) -> Callable[[LinearModel, int], Any]:
    def make(model: LinearModel, steps: int) -> Any:
        from sklearn.linear_model import Ridge

        alpha = model.l2 * model.n_samples
        return Ridge(alpha=alpha, solver=solver, tol=TIGHT, **_common(steps))

    return make


def _sgd_classifier(loss: str) -> Callable[[LinearModel, int], Any]:
    def make(model: LinearModel, steps: int) -> Any:
        from sklearn.linear_model import SGDClassifier

        return SGDClassifier(loss=loss, alpha=model.l2, average=True, tol=None, **_common(steps))

    return make


def _sgd_regressor(loss: str, zone: Callable[[Any], float]) -> Callable[[LinearModel, int], Any]:
    def make(model: LinearModel, steps: int) -> Any:
        from sklearn.linear_model import SGDRegressor

        return SGDRegressor(
            loss=loss,
            epsilon=zone(model.loss),
            alpha=model.l2,
            average=True,
            tol=None,
            **_common(steps),
        )

    return make


def _quantile_regressor(model: LinearModel, steps: int) -> Any:  # noqa: ARG001
    from sklearn.linear_model import QuantileRegressor

    quantile = getattr(model.loss, "quantile")  # noqa: B009 (mypy knows a Loss only)
    return QuantileRegressor(quantile=quantile, alpha=0.0, fit_intercept=False, solver="highs")


def _common(steps: int) -> dict[str, Any]:
    return {"max_iter": steps, "fit_intercept": False, "random_state": 0}


def _cost(model: LinearModel) -> float:
    """Return scikit-learn's C: its objective is ours divided by l2."""
    return 1 / (model.l2 * model.n_samples) if model.l2 > 0 else math.inf


def _zone(loss: Any) -> float:
    return float(getattr(loss, "epsilon", 0.0))


# LIBLINEAR's dual solver soon leaves rows out of its iterations: they are no passes.
_SVR = Peer("LIBLINEAR", "LinearSVR", _linear_svr, passes=False, needs_l2=True)
_SGD_ZONE = Peer(
    "SGD",
    "SGDRegressor(loss='epsilon_insensitive', average=True)",
    _sgd_regressor("epsilon_insensitive", _zone),
    needs_l2=True,
)
PEERS: Mapping[str, Mapping[str, Peer]] = {
    "logistic": {
        "lbfgs": Peer("LBFGS", "LogisticRegression(solver='lbfgs')", _logistic("lbfgs")),
        "liblinear": Peer(
            "LIBLINEAR",
            "LogisticRegression(solver='liblinear')",
            _logistic("liblinear"),
            passes=False,  # Newton steps, each of several passes
            needs_l2=True,
        ),
        "sag": Peer("SAG", "LogisticRegression(solver='sag')", _logistic("sag")),
        "saga": Peer("SAGA", "LogisticRegression(solver='saga')", _logistic("saga")),
        "sgd": Peer(
            "SGD",
            "SGDClassifier(loss='log_loss', average=True)",
            _sgd_classifier("log_loss"),
            needs_l2=True,
        ),
    },
    "hinge": {
        "liblinear": Peer(
            "LIBLINEAR",
            "LinearSVC(loss='hinge')",
            _linear_svc("hinge", dual=True),
            passes=False,
            needs_l2=True,
        ),
        "sgd": Peer(
            "SGD",
            "SGDClassifier(loss='hinge', average=True)",
            _sgd_classifier("hinge"),
            needs_l2=True,
        ),
    },
    "squared_hinge": {
        "liblinear": Peer(
            "LIBLINEAR",
            "LinearSVC(loss='squared_hinge', dual=False)",
            _linear_svc("squared_hinge", dual=False),
            passes=False,  # Newton steps
            needs_l2=True,
        ),
    },
    "squared": {
        "cholesky": Peer(
            "Cholesky", "Ridge(solver='cholesky')", _ridge("cholesky"), passes=False, direct=True
        ),
        "lsqr": Peer("LSQR", "Ridge(solver='lsqr')", _ridge("lsqr")),
        "sag": Peer("SAG", "Ridge(solver='sag')", _ridge("sag")),
        "saga": Peer("SAGA", "Ridge(solver='saga')", _ridge("saga")),
        "sgd": Peer(
            "SGD",
            "SGDRegressor(average=True)",
            _sgd_regressor("squared_error", _zone),
            needs_l2=True,
        ),
    },
    "absolute": {"liblinear": _SVR, "sgd": _SGD_ZONE},
    "epsilon_insensitive": {"liblinear": _SVR, "sgd": _SGD_ZONE},
    "huber": {
        "sgd": Peer(
            "SGD",
            "SGDRegressor(loss='huber', average=True)",
            _sgd_regressor("huber", lambda loss: float(loss.delta)),
            needs_l2=True,
        ),
    },
    "quantile": {
        "quantile": Peer(
            "HiGHS",
            "QuantileRegressor(alpha=0)",
            _quantile_regressor,
            passes=False,
            direct=True,
        ),
    },
}
NOT_THE_SAME: Mapping[str, Mapping[str, str]] = {
    "squared_hinge": {
        "SGDClassifier": "its step sizes are made for losses of bounded slope; with this loss it "
        "diverges",
    },
    "huber": {
        "HuberRegressor": "it also fits the scale of the residuals: another objective",
    },
}
"""By loss: what is left out, and why."""


# -- which peers -----------------------------------------------------------------------------------


def reason_against(name: str, peer: Peer, loss: str, l2: float, shape: tuple[int, int]) -> str:
    """Return why a peer cannot take part, or nothing."""
    if peer.needs_l2 and l2 == 0:
        return "it needs l2 > 0"
    if loss == "quantile" and l2 > 0:
        return "its penalty is an l1 norm, so it has the same objective with l2 = 0 only"
    if name == "cholesky" and min(shape) > DENSE_SIDE:
        return f"a dense system of {min(shape)} equations is too large"
    return ""


def chosen_peers(
    names: Sequence[str], loss: str, l2: float, shape: tuple[int, int]
) -> tuple[dict[str, Peer], dict[str, str]]:
    """Return the peers to run, and why others are left out.

    The name "sklearn" stands for all that have the same objective; a peer that is named and does
    not fit is an error.
    """
    offered = PEERS.get(loss, {})
    against = {n: reason_against(n, peer, loss, l2, shape) for n, peer in offered.items()}
    for name in names:
        if name != ALL and name in against and against[name]:
            raise ValueError(f"peer {name!r} cannot be run here: {against[name]}.")
    wanted = {n: p for n, p in offered.items() if (ALL in names or n in names) and not against[n]}
    left_out: dict[str, str] = {}
    if ALL in names:
        left_out = {offered[n].words: reason for n, reason in against.items() if reason}
        left_out |= NOT_THE_SAME.get(loss, {})
    return wanted, left_out


def check_names(names: Sequence[str], loss: str) -> None:
    """Raise where a peer is unknown, or known for other losses only."""
    everywhere = {name for offered in PEERS.values() for name in offered}
    for name in names:
        if name == ALL or name in PEERS.get(loss, {}):
            continue
        if name in everywhere:
            allowed = ", ".join(map(repr, (ALL, *PEERS.get(loss, {}))))
            raise ValueError(
                f"peer {name!r} does not minimise the loss {loss!r}. Allowed with it: {allowed}."
            )
        raise ValueError(f"there is no peer {name!r}: {nearest(name, {ALL, *everywhere})}")


# -- running ---------------------------------------------------------------------------------------


def peer_task(model: Mapping[str, Any], name: str, seconds: float) -> Task:
    """Return the task that runs a peer on a model, within about so many seconds."""
    return Task("compare-peer", {**model, "peer": name, "budget": seconds})


@task("compare-peer")
def run_peer(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run a peer with 1, 2, 5, 10, ... iterations, each from the start.

    It ends when the peer converges, is as close to the minimum as can be seen, or the next fit
    would take more than what is left of the budget of seconds.
    """
    model = model_of(parameters, store)
    minimum = store.get(minimum_task(parameters)).facts["minimum"]
    peer = PEERS[parameters["loss"]][parameters["peer"]]
    X, left, status = for_liblinear(model.X), float(parameters["budget"]), "MOST_STEPS"
    rows: list[tuple[float, ...]] = []
    try:
        _fitted(peer, model, X, 1)  # what is imported or cached at a first call is not its time
        for steps in [1] if peer.direct else ladder(MOST_STEPS):
            estimator, seconds = _fitted(peer, model, X, steps)
            done = steps if peer.direct else int(np.max(estimator.n_iter_))
            value = _objective(model, estimator)
            rows.append((done, seconds, value))
            left -= seconds
            if peer.direct or done < steps or abs(value - minimum) <= CLOSE * minimum:
                status = "CONVERGED"
                break
            if 2.5 * seconds > left:
                status = "TIME_LIMIT"
                break
    except ValueError as error:  # scikit-learn's way to say that a run diverged
        status = f"FAILED: {str(error).splitlines()[0]}"
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    arrays = dict(zip(("iteration", "seconds", "value"), columns, strict=True))
    seen = arrays["value"]
    lowest = float(np.min(seen, where=np.isfinite(seen), initial=np.inf))
    return Outcome(arrays, {"status": status, "lowest": lowest})


def ladder(most: int) -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50, ... up to `most`."""
    decade = 1
    while decade <= most:
        yield from (decade * digit for digit in (1, 2, 5) if decade * digit <= most)
        decade *= 10


def _fitted(peer: Peer, model: LinearModel, X: Any, steps: int) -> tuple[Any, float]:
    """Return a fitted estimator and the seconds that took; of a short fit the best of three."""
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning

    best = math.inf
    for _ in range(3):
        estimator = peer.make(model, steps)
        with warnings.catch_warnings():
            # Too few iterations are given on purpose, and trouble with numbers shows in the curve.
            for kind in (ConvergenceWarning, LinAlgWarning, RuntimeWarning):
                warnings.simplefilter("ignore", kind)
            begun = time.perf_counter()
            estimator.fit(X, model.y)
            seconds = time.perf_counter() - begun
        best = min(best, seconds)
        if seconds > SHORT:
            break
    return estimator, best


def _objective(model: LinearModel, estimator: Any) -> float:
    with np.errstate(all="ignore"):
        return model.value(np.ravel(estimator.coef_).astype(np.float64))
