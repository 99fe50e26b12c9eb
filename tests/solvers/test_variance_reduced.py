"""Variance-reduced AcceleGrad: the transcription, compiled epochs, rates, peers, hard data."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad import kernels
from accelegrad.solvers.variance_reduced import epoch_weight
from accelegrad.solvers.variance_reduced_oracle import FiniteSumOracle
from reference.variance_reduced import variance_reduced_accelegrad

SMOOTH = ["logistic", "squared_hinge", "squared", "huber"]


def model(loss="logistic", kind="dense", rows=203, l2=1e-2, columns=9, **options):
    rng = np.random.default_rng(12)
    X = sp.random(rows, columns, density=0.4, format="csr", rng=rng)
    X.data[:] = rng.normal(size=X.nnz)
    y = X @ rng.normal(size=columns) + rng.normal(size=rows)
    if loss in ("logistic", "squared_hinge", "hinge"):
        y = np.where(y > 0, 1.0, -1.0)
    if kind == "dense":
        X = X.toarray()
    return ag.LinearModel(X, y, loss=loss, l2=l2, **options)


def stepped(problem, epochs, mode="never", batch_size=None, seed=3, oracle=FiniteSumOracle):
    rule = ag.VarianceReducedAcceleGrad()
    oracle = oracle(problem, np.random.default_rng(seed), batch_size)
    state = rule.init(np.zeros(problem.n_parameters))
    states = [state]
    with kernels.use(mode):
        for _ in range(epochs):
            state = rule.step(state, oracle).state
            states.append(state)
    return states


@pytest.mark.parametrize("total", [1e-6, 0.01, 0.5, 3.0, 1e6])
def test_the_weight_of_an_epoch_solves_its_equation(total):
    a = epoch_weight(total)
    assert a * a / (total + a) + a * a / total == pytest.approx(1.0, rel=1e-12)


class Understated(FiniteSumOracle):
    """A sum said to be less steep than it is: the first steps are far too long, and values rise."""

    factor = 1e4

    @property
    def smoothness(self):
        return super().smoothness / self.factor


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize(
    ("l2", "kind", "stage"),
    [
        (1e-2, FiniteSumOracle, "exhausted"),
        (0.5, FiniteSumOracle, "exhausted"),
        (1e-2, Understated, "rose"),
    ],
)
def test_the_rule_is_its_transcription(loss, l2, kind, stage):
    problem = model(loss, l2=l2, fit_intercept=False)
    epochs, b = 12, 8
    rng = np.random.default_rng(3)
    orders = []
    for _ in range(epochs):
        order = rng.permutation(problem.n_samples)
        orders.append([order[k : k + b] for k in range(0, order.size, b)])

    def gradient(x, rows):
        theta = problem.loss.derivative(problem.X[rows] @ x, problem.y[rows])
        return problem.X[rows].T @ theta / rows.size + l2 * x

    curvature = {"logistic": 0.25, "squared_hinge": 2.0, "squared": 1.0, "huber": 1.0}[loss]
    L = curvature * max(row @ row for row in problem.X) + l2
    factor = getattr(kind, "factor", 1.0)
    told = variance_reduced_accelegrad(problem.value, gradient, np.zeros(9), orders, L / factor, l2)
    # A mean over 203 rows is rounded by less than 203 eps < 1e-13. Once a value changes by less
    # than 1e-9, rounding soon decides whether it rose, and all that comes after.
    clear = next((k for k, margin in enumerate(told.margins) if margin < 1e-9), epochs)
    assert clear >= 4
    assert stage in told.stages[:clear]
    # Entries are of size 1, and each of the 12 * 26 steps adds some eps to their error: 1e-12 is
    # ten times that. Steps that are too long by a factor have errors larger by as much.
    exact = {"rtol": 0, "atol": 1e-12 * factor}
    states = stepped(problem, clear, oracle=kind)
    for k, state in enumerate(states[1:]):
        assert_allclose(state.snapshot, told.snapshots[k + 1], **exact)
        assert_allclose(state.mirror_point, told.v[k][-1], **exact)
        assert_allclose(state.radius, told.D[k][-1], **exact)
        assert state.total_weight == pytest.approx(told.A[k], rel=1e-12)


COMPILED = {
    "dense": dict(kind="dense"),
    "csr": dict(kind="csr"),
    "dense, intercept": dict(kind="dense", fit_intercept=True),
    "csr, intercept": dict(kind="csr", fit_intercept=True),
    "csr, no l2": dict(kind="csr", l2=0.0),
    "dense, weights": dict(kind="dense", sample_weight=np.linspace(0, 2, 203)),
    "csr, weights": dict(kind="csr", sample_weight=np.linspace(0, 2, 203), fit_intercept=True),
}


@pytest.mark.parametrize("case", COMPILED)
@pytest.mark.parametrize("loss", SMOOTH)
def test_compiled_epochs_are_the_plain_ones(case, loss):
    problem = model(loss, **COMPILED[case])
    # After six epochs values still fall by 1e-9 of their size, far more than rounding does.
    plain, fast = (stepped(problem, 6, mode) for mode in ("never", "always"))
    for one, other in zip(plain, fast, strict=True):
        assert_allclose(other.snapshot, one.snapshot, rtol=1e-8, atol=1e-11)
        assert_allclose(other.mirror_point, one.mirror_point, rtol=1e-8, atol=1e-11)
        assert other.radius == pytest.approx(one.radius, rel=1e-8)
        assert other.squares == pytest.approx(one.squares, rel=1e-8)
        assert other.step_size == pytest.approx(one.step_size, rel=1e-8)


@pytest.mark.parametrize("batch_size", [1, 5, 64, 203])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_compiled_epochs_of_any_batch_size(batch_size, kind):
    problem = model(kind=kind)
    plain, fast = (stepped(problem, 4, mode, batch_size) for mode in ("never", "always"))
    assert_allclose(fast[-1].snapshot, plain[-1].snapshot, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("mu", [1.0, 0.05])
def test_compiled_epochs_of_smoothed_losses(kind, mu):
    for loss in ("hinge", "absolute", "quantile", "epsilon_insensitive"):
        problem = model(loss, kind).smoothed(mu)
        plain, fast = (stepped(problem, 5, mode) for mode in ("never", "always"))
        assert_allclose(fast[-1].snapshot, plain[-1].snapshot, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_float32_data_and_long_indices(kind):
    double = model(kind=kind)
    X = double.X.astype(np.float32)
    single = ag.LinearModel(X, double.y.astype(np.float32), loss="logistic", l2=double.l2)
    exact = ag.LinearModel(X.astype(np.float64), double.y, loss="logistic", l2=double.l2)
    fast, plain = stepped(single, 5, "always"), stepped(exact, 5, "never")
    assert_allclose(fast[-1].snapshot, plain[-1].snapshot, rtol=1e-4, atol=1e-6)
    if kind == "csr":
        long = double.X.copy()
        long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
        wide = ag.LinearModel(long, double.y, loss="logistic", l2=double.l2)
        assert_allclose(
            stepped(wide, 5, "always")[-1].snapshot, stepped(double, 5, "never")[-1].snapshot
        )


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_agrees_with_scipy(loss, fit_intercept):
    problem = model(loss, rows=800, fit_intercept=fit_intercept)
    result = ag.minimize(problem, method="accelegrad-vr", rtol=1e-9, rng=0)
    assert result.success
    peer = scipy_minimize(
        problem.value_and_gradient,
        np.zeros(problem.n_parameters),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
    )
    assert result.fun == pytest.approx(peer.fun, rel=2e-9)
    assert result.lower_bound <= peer.fun


def test_convergence_is_linear_with_an_l2_term():
    problem = model(rows=2000, l2=1e-2)
    gaps = []
    ag.minimize(
        problem,
        method="accelegrad-vr",
        rng=0,
        max_iter=30,
        callback=lambda intermediate_result: gaps.append(intermediate_result.gap),
    )
    reached = next(k for k, gap in enumerate(gaps) if gap < 1e-11 * gaps[0])
    assert reached < 25
    middle = [math.log10(gaps[k]) for k in (2, reached)]
    assert (middle[0] - middle[1]) / (reached - 2) > 0.3  # half the digits an epoch at least


def test_few_passes_are_enough():
    """Ten times the accuracy of a gradient costs a few epochs, where full gradients take hundreds."""
    problem = model(rows=5000, columns=30, l2=1 / 5000)
    fast = ag.minimize(problem, method="accelegrad-vr", rtol=1e-6, rng=0)
    slow = ag.minimize(problem, method="accelegrad", scale=None, rtol=1e-6, max_iter=20_000)
    assert fast.success
    assert slow.success
    assert fast.njev < slow.njev / 3


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_badly_scaled_data_do_no_harm(scale):
    problem = model(rows=600)
    X = problem.X * np.geomspace(1, scale, 9)
    hard = ag.LinearModel(X, problem.y, loss="squared_hinge", l2=1e-3)
    result = ag.minimize(hard, method="accelegrad-vr", rng=0, max_iter=60)
    assert np.isfinite(result.fun)
    assert result.fun <= hard.value(np.zeros(9))
    assert result.lower_bound <= result.fun


def test_columns_and_rows_of_zeros():
    X = np.zeros((600, 4))
    X[:300, 1] = np.linspace(-1, 1, 300)
    y = np.where(np.arange(600) % 2, 1.0, -1.0)
    for data in (X, sp.csr_matrix(X)):
        result = ag.minimize(ag.LinearModel(data, y, loss="logistic", l2=1e-3), rtol=1e-6, rng=0)
        assert result.success
        assert result.x[0] == result.x[2] == result.x[3] == 0


def test_a_start_at_the_minimiser_ends_at_once():
    problem = ag.LinearModel(np.eye(600), np.zeros(600), loss="squared", l2=1.0)
    result = ag.minimize(problem, method="accelegrad-vr")
    assert result.success
    assert result.nit == 1
    assert result.fun == 0
