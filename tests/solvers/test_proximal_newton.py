"""Proximal Newton's method: its transcription, other solvers, the certificate, hard cases."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import lsq_linear
from sklearn.linear_model import ElasticNet, Lasso, Ridge

import accelegrad as ag
from accelegrad.geometry.penalties import OnLeading
from accelegrad.models.losses import LOSSES
from accelegrad.models.matrix import gram_matrix
from accelegrad.solvers import ProximalNewton
from accelegrad.solvers.quadratic import Limits, box_minimum
from reference.proximal_newton import model_minimum, proximal_newton
from toys import linear_problem


def problem(loss="squared", kind="dense", rows=200, columns=12, l2=0.0, seed=3, **options):
    more = dict(density=0.3, noise=0.7, l2=l2, seed=seed, **options)
    return linear_problem(loss, kind, (rows, columns), **more)


def strongest(model):
    """Return the l1 strength from which on all weights are zero, or about it."""
    centre = np.zeros(model.n_parameters)
    if model.fit_intercept and not model.loss.classification:
        centre[-1] = model.y.mean()
    return float(np.abs(model.gradient(centre)[: model.n_features]).max())


LIMITS = {
    "l1": lambda rng, d: (rng.uniform(0, 1, d), np.full(d, -np.inf), np.full(d, np.inf)),
    "box": lambda rng, d: (np.zeros(d), -rng.uniform(0, 0.3, d), rng.uniform(0, 0.3, d)),
    "both": lambda rng, d: (rng.uniform(0, 0.5, d), -rng.uniform(0, 1, d), np.full(d, np.inf)),
    "not negative": lambda rng, d: (rng.uniform(0, 0.3, d), np.zeros(d), np.full(d, np.inf)),
    "without zero": lambda rng, d: (rng.uniform(0, 0.3, d), np.full(d, 0.1), np.full(d, 2.0)),
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("seed", range(3))
def test_the_models_minimum_is_the_best_of_all_faces(limits, seed):
    rng, d = np.random.default_rng(seed), 4
    X = rng.normal(size=(6, d)) * 10.0 ** rng.integers(-2, 3, d)
    C, g = X.T @ X, rng.normal(size=d) * np.sqrt((X * X).sum(0))
    l1, lower, upper = LIMITS[limits](rng, d)
    sizes = np.abs(X).max(0)
    l1, lower, upper = l1 * sizes, lower / sizes, upper / sizes
    start = np.clip(rng.normal(size=d) / sizes * (rng.random(d) < 0.5), lower, upper)

    def value(u):
        return g @ (u - start) + (u - start) @ C @ (u - start) / 2 + l1 @ np.abs(u)

    found = box_minimum(C, g, Limits(l1, lower, upper), start)
    told = model_minimum(C, g, l1, lower, upper, start)
    assert (found.point >= lower).all()
    assert (found.point <= upper).all()
    size = abs(value(told)) + abs(value(start))
    assert value(found.point) <= value(told) + 1e-12 * size
    assert found.fall == pytest.approx(value(start) - value(found.point), abs=1e-12 * size)
    assert_allclose(found.point * sizes, told * sizes, atol=1e-8)


def test_a_singular_model_has_a_minimum_too():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 40))
    X[:, 1], X[:, 2] = X[:, 0], 0.0
    y, one = rng.normal(size=10), np.ones(40)
    limits = Limits(0.1 * one, -np.inf * one, np.inf * one)
    start = np.where(np.arange(40) == 2, 5.0, 0.0)  # where the column is empty
    u = box_minimum(X.T @ X, X.T @ (X @ start - y), limits, start).point
    assert u[2] == 0.0
    slope = X.T @ (X @ u - y)
    assert_allclose(slope[u != 0], -0.1 * np.sign(u[u != 0]), atol=1e-9)
    assert np.abs(slope).max() <= 0.1 + 1e-9


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("box", [False, True])
def test_steps_are_their_transcription(intercept, box):
    model = problem("logistic", rows=60, columns=3, l2=1e-3, fit_intercept=intercept)
    size = model.n_parameters
    l1 = np.append(np.full(3, 0.03), np.zeros(size - 3))
    limits = (-0.3, 0.4) if box else (-np.inf, np.inf)
    free = np.append(np.zeros(3, bool), np.ones(size - 3, bool))
    lower = np.where(free & ~box, -np.inf, limits[0])
    upper = np.where(free & ~box, np.inf, limits[1])

    def hessian(w):
        A = np.hstack([model.X, np.ones((60, 1))])[:, :size]
        share = 1 / (1 + np.exp(A @ w))
        weights = share * (1 - share) / 60
        return (A.T * weights) @ A + np.diag(np.where(free, 0.0, model.l2))

    value = lambda w: model.value(w) + l1 @ np.abs(w)  # noqa: E731
    given = value, model.gradient, hessian, l1, lower, upper, np.zeros(size)
    told = proximal_newton(*given, steps=4)
    weights_only = OnLeading(ag.L1(0.03), 3, size) if intercept else ag.L1(0.03)
    given = weights_only, ag.Box(*limits) if box else None
    rng = np.random.default_rng(0)
    oracle = ProximalNewton().oracle(model, rng, lambda value: 0.0, *given)
    assert l1 @ np.abs(told[-1]) > 0.0
    rule, state = ProximalNewton(), ProximalNewton().init(np.zeros(size))
    for expected in told:
        state = rule.step(state, oracle).state
        assert_allclose(state.point, expected, atol=1e-9)


WEIGHTS = np.random.default_rng(1).random(200)
DATA = {
    "dense": {},
    "intercept": dict(fit_intercept=True),
    "csr": dict(kind="csr", fit_intercept=True),
    "weights": dict(fit_intercept=True, sample_weight=WEIGHTS * (np.arange(200) > 9)),
    "wide": dict(rows=60, columns=300, fit_intercept=True),
    "wide csr": dict(kind="csr", rows=100, columns=700),
}


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("data", DATA)
def test_lasso_and_elastic_net_end_where_scikit_learns_do(data, ratio):
    model = problem(**DATA[data])
    alpha = 0.1 * strongest(model)
    penalty = ag.L1(alpha) if ratio == 1.0 else ag.ElasticNet(alpha * ratio, alpha * (1 - ratio))
    result = ag.minimize(model, penalty=penalty, rtol=1e-9)
    assert result.method == "proximal-newton"
    assert result.success
    assert result.certified_radius == np.inf
    peer = ElasticNet(alpha=alpha, l1_ratio=ratio) if ratio < 1.0 else Lasso(alpha=alpha)
    peer.set_params(fit_intercept=model.fit_intercept, tol=1e-14, max_iter=1_000_000)
    X = sp.csc_matrix(model.X) if sp.issparse(model.X) else np.asfortranarray(model.X)
    peer.fit(X, model.y, sample_weight=model.sample_weight)
    weights = result.x[: model.n_features]
    # Rounding leaves the peer's coefficients off by the root of the precision of values.
    assert_allclose(weights, peer.coef_, atol=1e-7 * np.abs(peer.coef_).max())
    assert_array_equal(weights != 0.0, peer.coef_ != 0.0)
    if model.fit_intercept:
        assert result.x[-1] == pytest.approx(peer.intercept_, rel=1e-7)


def test_bounds_end_where_ridge_and_lsq_linear_do():
    model = problem(l2=0.01)
    positive = ag.minimize(model, feasible_set=ag.NonNegative(), rtol=1e-10)
    peer = Ridge(alpha=0.01 * model.n_samples, positive=True, fit_intercept=False, tol=1e-12)
    assert positive.success
    assert (positive.x >= 0.0).all()
    assert positive.fun <= model.value(peer.fit(model.X, model.y).coef_) + 1e-12
    with_ones = np.hstack([model.X, np.ones((200, 1))])
    limited = ag.Box(np.append(np.full(12, -0.1), 0.0), np.append(np.full(12, 0.2), 1e-3))
    for X, chosen, intercept in ((model.X, ag.Box(-0.1, 0.2), False), (with_ones, limited, True)):
        own = problem(fit_intercept=intercept)
        within = ag.minimize(own, feasible_set=chosen, rtol=1e-10)
        told = lsq_linear(X, own.y, (chosen.lower, chosen.upper), method="bvls", tol=1e-14).x
        assert within.success
        assert chosen.contains(within.x)
        assert_allclose(within.x, told, atol=1e-9)


TERMS = {
    "l1": dict(penalty=ag.L1(0.03)),
    "elastic net": dict(penalty=ag.ElasticNet(0.02, 0.05)),
    "box": dict(feasible_set=ag.Box(-0.2, 0.1)),
    "l1 and box": dict(penalty=ag.L1(0.01), feasible_set=ag.NonNegative()),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_certified_and_no_point_is_below_its_bound(loss, terms, intercept):
    model = problem(loss, columns=6, fit_intercept=intercept)
    options = dict(method="proximal-newton", rng=0, **TERMS[terms])
    result = ag.minimize(model, rtol=1e-3, **options)
    assert result.success
    assert 0.0 <= result.gap <= 1e-3 * result.fun
    better = ag.minimize(model, rtol=1e-6, **options)
    assert better.fun >= result.lower_bound
    assert better.lower_bound <= result.fun
    penalty, chosen = (TERMS[terms].get(name) for name in ("penalty", "feasible_set"))
    value = model.value(result.x)
    value += 0.0 if penalty is None else penalty.value(result.x[:6])
    assert result.fun == pytest.approx(value, rel=1e-14)
    assert chosen is None or chosen.contains(result.x)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_odd_columns_and_strengths(loss, wide):
    given = problem(loss, rows=50, columns=300 if wide else 10)
    X = given.X.copy()
    X[:, 1], X[:, 2], X[:, 3] = X[:, 0], 0.0, 4.0
    X[:, 4] *= 1e6
    model = ag.LinearModel(X, given.y, loss, fit_intercept=True)
    alpha = strongest(model)
    for share in (1e-2, 0.5):
        result = ag.minimize(model, penalty=ag.L1(share * alpha), rtol=1e-4, rng=0)
        assert result.success
        assert result.x[2] == 0.0
    nothing = ag.minimize(model, penalty=ag.L1(100.0 * alpha), rtol=1e-6, rng=0)
    assert nothing.success
    assert not nothing.x[:-1].any()


@pytest.mark.parametrize("seed", [65, 167, 184, 222])  # their rounding had a negative curvature
def test_constant_columns_leave_nothing_but_rounding_around_their_mean(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 200))
    X = rng.standard_normal((n, 4))
    y = X @ [1.0, -1.0, 2.0, 0.5] + 5.0 + rng.standard_normal(n)
    weights = rng.random(n) + 0.1
    X = np.hstack([X, X[:, :1], np.full((n, 3), [3.7, 0.0, 0.1])])
    model = ag.LinearModel(X, y, "squared", fit_intercept=True, sample_weight=weights)
    ends = np.append(np.zeros(8), -np.inf), np.full(9, np.inf)
    found = ag.minimize(model, feasible_set=ag.Box(*ends), rtol=1e-9)
    assert found.success
    root = np.sqrt(weights / weights.sum())[:, None]
    expected = lsq_linear(root * np.c_[X, np.ones(n)], root[:, 0] * y, ends, method="bvls")
    assert found.fun == pytest.approx(expected.cost, rel=1e-9)


def uneven(seed, loss):
    """Return a model whose columns have sizes of 1e-3 to 1e3, and an l1 term for it."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(50, 300)), int(rng.integers(3, 60))
    X = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-3, 3, columns)
    weights = rng.normal(size=columns) * (rng.random(columns) < 0.3) / np.abs(X).max(0)
    targets = X @ weights + 0.3 * rng.normal(size=rows)
    y = targets if loss in ("squared", "huber") else np.where(targets > 0.0, 1.0, -1.0)
    model = ag.LinearModel(X, y, loss, fit_intercept=bool(seed % 2))
    return model, ag.L1(strongest(model) * 10.0 ** rng.uniform(-4, -0.3))


# Runs that once ended as searches that failed.
FAILED = [("squared", 11), ("squared", 29), ("logistic", 2), ("logistic", 4), ("huber", 22)]
# Those that once smoothed too little.
FAILED += [("hinge", 24), ("hinge", 31), ("hinge", 38)]


@pytest.mark.parametrize(("loss", "seed"), FAILED)
def test_columns_of_all_sizes_and_a_search_that_ends_at_rounding(loss, seed, tmp_path):
    (model, penalty), file = uneven(seed, loss), tmp_path / "run.agc"
    options = dict(penalty=penalty, max_iter=200, rng=0, rtol=1e-3 if loss == "hinge" else None)
    result = ag.minimize(model, checkpoint=file, **options)
    assert result.status == (ag.Status.CONVERGED if loss == "hinge" else ag.Status.AT_ROUNDING)
    assert result.success
    again = ag.minimize(model, resume=file, **options)  # the file says so too
    assert again.status == result.status
    assert (again.nit, again.fun, again.gap) == (result.nit, result.fun, result.gap)


def test_numbers_that_overflow_end_the_run_and_say_so():
    model = problem("squared")
    huge = ag.LinearModel(model.X * 1e160, model.y * 1e160, "squared")
    result = ag.minimize(huge, penalty=ag.L1(1.0), max_iter=5)
    assert not np.isnan(result.x).any()
    assert result.status in (ag.Status.NON_FINITE, ag.Status.LINE_SEARCH_FAILED)


WIDE = dict(kind="csr", rows=150, columns=500, fit_intercept=True)


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("given", [dict(loss="logistic", rows=120, columns=400), WIDE])
def test_a_resumed_run_knows_which_columns_move(given, stop, tmp_path):
    model, file = problem(**given), tmp_path / "run.agc"
    options = dict(rtol=1e-11, max_iter=7, penalty=ag.L1(1e-3))
    whole = ag.minimize(model, rng=4, **options)
    ag.minimize(model, rng=4, **{**options, "max_iter": stop}, checkpoint=file)
    resumed = ag.minimize(model, rng=99, **options, resume=file)
    assert_array_equal(resumed.x, whole.x)
    assert resumed.gap == whole.gap
    assert resumed.nit == whole.nit
    assert (resumed.nfev, resumed.njev) == (whole.nfev, whole.njev)


def test_least_squares_take_one_step_and_a_path_one_gram_matrix(monkeypatch):
    model, made = problem(fit_intercept=True), []

    def counted(*arguments, **options):
        made.append(1)
        return gram_matrix(*arguments, **options)

    monkeypatch.setattr("accelegrad.models.linear_model.gram_matrix", counted)
    for alpha in strongest(model) * np.geomspace(1, 1e-4, 8):
        result = ag.minimize(model, penalty=ag.L1(alpha), rtol=1e-9)
        assert result.success
        assert (result.nit, result.nfev) == (1, 1)
    assert len(made) == 1


def test_as_many_weights_as_may_move_leave_no_room_for_others(monkeypatch):
    monkeypatch.setattr("accelegrad.solvers.proximal_newton.MOST_PARAMETERS", 105)
    model = problem(columns=130)
    x0 = np.where(np.arange(130) < 105, 0.1, 0.0)
    result = ag.minimize(model, x0, penalty=ag.L1(0.1 * strongest(model)), rtol=1e-9)
    assert result.success
