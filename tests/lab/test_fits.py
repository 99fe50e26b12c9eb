"""Fits of the benchmarks: the objective, its minimum by other solvers, and that peers have the same."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

from accelegrad.models.losses import LOSSES
from accelegrad_lab.bench.cases import GOALS, WITHOUT_L2, l2_goal
from accelegrad_lab.engine import minimum as minima
from accelegrad_lab.engine.fit import Fit, Goal
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.rows import Rows
from accelegrad_lab.engine.worker import Timing, quiet
from accelegrad_lab.peers import EVERYDAY, PEERS, SOLVERS, tolerances
from reference.losses import PARAMETER, loss_values

SINGLE = [name for name, goal in GOALS.items() if not goal.path]
PATHS = [name for name, goal in GOALS.items() if goal.path]
L2 = [f"{loss} l2=1/n" for loss in LOSSES] + [f"{loss} l2=0" for loss in WITHOUT_L2]
#: As random shapes have them
EVERY = {
    f"{loss} {penalty}": Goal(
        loss, penalty, strength=0.3, parameters={"quantile": 0.9} if loss == "quantile" else {}
    )
    for loss in LOSSES
    for penalty in ("l2", "l1")
}
#: The peers that need not end at the minimum of our objective: LIBLINEAR, rehline and snapml
#: penalise their intercept, and the default number of iterations ends SAGA and SGD before.
ELSEWHERE = ("liblinear", "LinearSVC", "LinearSVR", "rehline", "snapml", "saga", "SGDClassifier")


def fit_of(goal, *, classes=2, sparse=False, defaults=True):
    """Return a small problem whose columns are so small that the penalty matters."""
    rng = np.random.default_rng(3)
    X = 0.05 * rng.standard_normal((300, 6)) * (rng.random((300, 6)) < 0.7)
    scores = 40 * X @ rng.standard_normal((6, classes)) + rng.gumbel(size=(300, classes))
    numbers = not LOSSES[goal.loss].classification
    y = 1.0 + scores[:, 0] / scores[:, 0].std() if numbers else scores.argmax(axis=1)
    return Fit(goal, Rows(sp.csr_matrix(X) if sparse else X, y), defaults)


def fitted(fit, name, setting=math.nan):
    with quiet():  # some end before their tolerance
        return PEERS[name].make(fit, setting).fit(*fit.rows)


def objective(fit):
    """Return the objective of two classes or numbers, written down anew."""
    goal, (X, y) = fit.goal, fit.rows
    y = y if fit.classes is None else np.where(y == 1, 1.0, -1.0)
    given = {"huber": fit.parameters.get("delta"), "quantile": 0.9}
    parameter = given.get(goal.loss, 0.1) if goal.loss in PARAMETER else None

    def value(w, b=0.0):
        losses = loss_values(goal.loss, X @ w + b, y, parameter=parameter)
        l1, l2 = np.abs(w).sum(), w @ w / 2
        penalties = {None: 0.0, "l1": l1, "l2": l2, "elasticnet": l1 / 2 + l2 / 2}
        return float(np.mean(losses) + fit.alpha * penalties[goal.penalty])

    return value


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_the_objective_of_many_classes(loss):
    fit = fit_of(GOALS[loss], classes=4)
    ours = fitted(fit, "AcceleGrad")
    X, y = fit.rows
    scores = X @ ours.coef_.T + ours.intercept_
    penalty = fit.alpha / 2 * (ours.coef_**2).sum()
    if loss == "log_loss":
        value = np.mean(logsumexp(scores, axis=1) - scores[np.arange(y.size), y]) + penalty
    else:
        signs = np.where(y[:, None] == np.arange(4), 1.0, -1.0)
        value = np.maximum(0, 1 - signs * scores).mean(axis=0).sum() + penalty
    assert fit.objective(ours) == pytest.approx(value, rel=1e-12)
    assert ours.objective_ == pytest.approx(value, rel=1e-12)
    assert 0 < fit.floor < value
    ours.coef_ = ours.coef_.T  # as cyanure has it
    assert fit.objective(ours) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("goal", [*SINGLE, *EVERY])
def test_peers_and_ours_minimise_the_same_objective_with_their_defaults(goal):
    """At the peers' default tolerances; no peer goes below what we prove."""
    fit = fit_of((GOALS | EVERY)[goal])
    ours = fitted(fit, "AcceleGrad, tol=1e-6")
    w, b = np.ravel(ours.coef_), float(np.ravel(ours.intercept_)[0])
    # Sums of 300 terms of the size of one.
    assert fit.objective(ours) == pytest.approx(objective(fit)(w, b), rel=1e-12)
    assert ours.objective_ == pytest.approx(fit.objective(ours), rel=1e-12)
    assert 0 < fit.floor < fit.objective(ours)
    assert math.isinf(fit.start)
    taken = 0
    for name, peer in PEERS.items():  # one that compiles for long is left out
        if EVERYDAY in peer.suites and not (peer.own or peer.apart or peer.reason_against(fit)):
            value = fit.objective(fitted(fit, name))
            assert value >= (ours.objective_ - ours.gap_) * (1 - 1e-9)
            if not any(words in name for words in ELSEWHERE):
                assert value <= 1.001 * ours.objective_, name
            taken += 1
    assert taken or goal in EVERY
    if goal == "nonnegative ridge":  # points that are none are worth nothing
        for coefficients in (ours.coef_ - 1.0, ours.coef_ * math.nan):
            ours.coef_ = coefficients
            assert fit.objective(ours) == math.inf


@pytest.mark.parametrize("goal", L2)
def test_peers_and_ours_minimise_the_same_objective_without_an_intercept(goal):
    taken = 0
    for sparse in (False, True):
        fit = fit_of(l2_goal(goal), sparse=sparse, defaults=False)
        minimum, lower = fit.minimum()
        assert lower <= minimum <= lower + 2e-9 * minimum
        for name, peer in PEERS.items():
            if SOLVERS not in peer.suites or peer.reason_against(fit):
                continue
            setting = 1e-8 if peer.ladder is tolerances else 3000
            (rung,) = fit.sample(peer, setting, Timing(most=1), 60.0).rungs
            w = np.ravel(fitted(fit, name, setting).coef_)
            assert rung.value == pytest.approx(objective(fit)(w), rel=1e-9)
            # Steps of slow decay leave stochastic gradients at some distance.
            accuracy = 2e-2 if peer.method == "SGD" else 2e-6
            assert minimum - 1e-8 <= rung.value <= minimum + accuracy, name
            assert rung.bound <= minimum + 1e-12
            assert rung.seconds > 0
            assert (rung.bound > -math.inf) == peer.own
            taken += 1
    assert taken >= 4
    assert fit.start == pytest.approx(objective(fit)(np.zeros(6)))


@pytest.mark.parametrize("goal", PATHS)
def test_paths_have_as_many_fits_of_the_same_strengths(goal):
    fit = fit_of(GOALS[goal])
    names = [n for n, p in PEERS.items() if EVERYDAY in p.suites and not p.reason_against(fit)]
    (peer,) = (fitted(fit, name) for name in names if not PEERS[name].own)
    ours = fitted(fit, "AcceleGrad")
    strengths = getattr(peer, "Cs_", getattr(peer, "alphas_", getattr(peer, "alphas", None)))
    assert len(strengths) == len(ours.alphas_) == 7
    chosen = {
        "log_loss CV": lambda: 1 / (0.8 * 300 * np.ravel(peer.C_)[0]),
        "ridge CV": lambda: peer.alpha_ / (0.8 * 300),
        "lasso CV": lambda: peer.alpha_,
    }[goal]()
    assert np.isclose(ours.alphas_, chosen, rtol=1e-9, atol=0).any()


def test_huber_regressor_has_the_minimiser_of_the_model_with_its_scale():
    fit = fit_of(l2_goal("huber l2=0.01/n"), defaults=False)
    w = fitted(fit, "HuberRegressor", 3000).coef_
    at = fit.models[0].at(w)
    assert at.dual_gap <= 1e-7 * at.value
    other = replace(fit.goal, parameters={"delta": 1.1 * fit.parameters["delta"]})
    wrong = Fit(other, fit.rows, defaults=False)
    assert wrong.models[0].at(w).dual_gap > 1e-4 * at.value  # the delta matters
    assert "another objective" in PEERS["HuberRegressor"].reason_against(wrong)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_minima_of_wide_data_and_by_conjugate_gradients(loss, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 200))
    y = np.where(X[:, 0] + rng.standard_normal(40) > 0, 1, -1)
    model = Fit(l2_goal(f"{loss} l2=1/n"), Rows(X, y), defaults=False).models[0]
    by_rows = find_minimum(model, 30.0)
    monkeypatch.setattr(minima, "DIRECT", 0)
    by_steps = find_minimum(model, 30.0)
    for found in (by_rows, by_steps):
        assert found.lower <= found.value <= found.lower + 2e-9 * found.value
    assert by_steps.value == pytest.approx(by_rows.value, rel=1e-8)
    short = find_minimum(model, 0.0)  # a search that ends at once has a true bound
    assert short.lower <= by_rows.value <= short.value
