"""Dual coordinate ascent: its transcription, the compiled epochs, the certificate, other solvers."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import accelegrad as ag
from accelegrad import kernels, solvers
from accelegrad.models.losses import LOSSES, make_loss
from accelegrad.solvers import DualAscent
from accelegrad.solvers.dual_ascent import (
    Ascent,
    DualOracle,
    Gap,
    epochs_to,
    proximal_slopes,
)
from accelegrad.solvers.work import LEAST_COMPILED
from reference.dual_ascent import dual_ascent
from toys import linear_problem


def problem(loss="hinge", kind="csr", rows=60, columns=25, l2=2e-2, types=None, **options):
    more = dict(density=0.3, noise=0.5, l2=l2, seed=5, **options)
    model = linear_problem(loss, kind, (rows, columns), **more)
    if types is None:
        return model
    X = model.X.astype(types[0])
    X.indices, X.indptr = X.indices.astype(types[1]), X.indptr.astype(types[1])
    return ag.LinearModel(X, model.y, loss, l2=l2)


def first_order(seed, n):
    """The order of the rows in the first epoch: each in turn, from the last on, is swapped."""
    draws = np.random.default_rng(seed).integers(2**32, size=n, dtype=np.uint32)
    order = list(range(n))
    for last in reversed(range(1, n)):
        place = int(draws[last] / 2**32 * (last + 1))
        order[last], order[place] = order[place], order[last]
    return order


def bound(evaluation):
    """What an epoch proves: at once if it may end a run, else when it is asked for."""
    known = evaluation.dual_value
    return evaluation.late_bound() if known is None else known


def run(model, epochs, mode, seed=2):
    rule, oracle = DualAscent(), DualOracle(model, np.random.default_rng(seed))
    state, steps = rule.init(np.zeros(model.n_parameters)), []
    with kernels.use(mode):
        for _ in range(epochs):
            steps.append(rule.step(state, oracle))
            state = steps[-1].state
    return steps, oracle


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "huber", "quantile"])
def test_an_epoch_is_its_transcription(loss, intercept):
    """An intercept is one more column of ones, whose weight has its own l2 term and centre."""
    model = problem(loss, "dense", rows=12, columns=4, l2=0.3, fit_intercept=intercept)
    X, n, l2 = model.X, model.n_samples, model.l2
    squares = (X**2).sum(axis=1)
    rho = 20.0 * l2 / np.median(squares[squares > 0.0])
    if intercept:  # with b = b' sqrt(l2 / rho) and b_k = 0 the l2 term of b' is the weights'
        X = np.column_stack([X, np.full(n, np.sqrt(l2 / rho))])
    conjugates = [lambda t, y=y: float(model.loss.conjugate(t, y)) for y in model.y]
    low, high = (np.broadcast_to(end, n) for end in model.loss.domain(model.y))
    domains, orders = list(zip(low, high, strict=True)), [first_order(2, n)]
    (theta,) = dual_ascent(X, np.full(n, 1 / n), l2, conjugates, domains, orders)
    ascent = run(model, 1, "never")[0][0].state
    # A minimum is found to the root of the precision of values.
    assert_allclose(ascent.slopes, theta, atol=2e-6)
    if intercept:  # b at the end of the epoch is the next centre, from which b begins the next
        assert_allclose(ascent.point[-1], -2.0 * theta.mean() / rho, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_proximal_slopes_solve_their_equation(loss):
    own = make_loss(loss, quantile=0.8)
    rng = np.random.default_rng(0)
    for q in (0.0, 1e-3, 1.0, 300.0):
        z = 5 * rng.normal(size=40)
        y = np.where(rng.random(40) < 0.5, 1.0, -1.0) if own.classification else rng.normal(size=40)
        theta = proximal_slopes(own, z, q, y)
        margins = z - q * theta
        # theta is a subgradient there: Fenchel and Young's inequality holds with equality.
        gap = own.value(margins, y) + own.conjugate(theta, y) - theta * margins
        assert_allclose(gap, 0.0, atol=1e-9 * (1 + np.abs(theta * margins).max()))


@pytest.mark.parametrize("b", [-300.0, -30.0, -3.0, 0.0, 3.0, 30.0, 300.0])
def test_logistic_slopes_of_the_kernel_solve_their_equation(b):
    """Each row has a column of its own, so that only b and the size of q matter."""
    sizes = np.geomspace(1e-4, 1e6, 60)
    labels = np.where(np.arange(60) % 2, 1.0, -1.0)
    model = ag.LinearModel(sp.diags_array(sizes).tocsr(), labels, "logistic", l2=1e-2)
    # Slopes to start from, which shift all margins by b: z = b.
    q = sizes**2 / (60 * model.l2)
    start = Ascent(np.zeros(60), b / sizes, np.zeros((2, 60), dtype=np.uint8))
    with kernels.use("always"):
        slopes = DualOracle(model, np.random.default_rng(0)).ascend(start, 1).slopes
    pairs = zip(q, labels[:, None], strict=True)
    told = [proximal_slopes(model.loss, np.array([b]), *pair)[0] for pair in pairs]
    # The margin is exact to 1e-10 relative to 1 + |m|, and slopes to as much of it.
    assert_allclose(slopes, told, rtol=1e-10 * 310)


def test_rows_at_their_best_rest_longer_each_time():
    model = problem("hinge", rows=30, columns=60, l2=1.0)
    steps, _ = run(model, 40, "never")
    rests = np.array([step.state.rests[1] for step in steps])
    slopes = np.array([step.state.slopes for step in steps])
    assert rests.max() > 7  # with so much l2 most rows are at an end of their domain
    for row in range(30):
        lengths = [int(k) for k in dict.fromkeys(rests[:, row])]
        assert set(lengths) <= {0, 1, 3, 7, 15, 31, 63}
        changed = np.flatnonzero(np.diff(slopes[:, row]) != 0.0) + 1
        assert (rests[changed, row] == 0).all()


def test_evaluations_come_when_the_gap_is_expected_to_be_small_enough():
    assert epochs_to(1e-3, Gap(0, np.inf), Gap(1, 1.0)) == 1
    # It fell by 10 in 10 epochs, and has to fall by 10 again; but no more than as many at once.
    assert epochs_to(1e-3, Gap(90, 1e-1), Gap(100, 1e-2)) == 10
    assert epochs_to(9e-3, Gap(90, 1e-1), Gap(100, 1e-2)) == 1
    assert epochs_to(1e-4, Gap(90, 1e-1), Gap(100, 1e-2)) == 20
    assert epochs_to(1e-3, Gap(60, 1.1e-2), Gap(100, 1e-2)) == 100
    assert epochs_to(0.0, Gap(90, 1e-1), Gap(100, 1e-2)) == 100
    assert epochs_to(1e-3, Gap(90, 1e-2), Gap(100, 1e-1)) == 100


@pytest.mark.parametrize("stop", [9, 10, 21])
def test_a_run_cut_by_max_iter_goes_on_as_if_nobody_had_looked(stop, tmp_path):
    # The evaluation at the cut, which a longer run does not make, may be the best one.
    model = problem("logistic", rows=60, columns=2, l2=1e-6)
    options = dict(method="dual-ascent", rtol=1e-12, rng=3, trace=True, output="best")
    whole = ag.minimize(model, max_iter=30, **options)
    file = tmp_path / "run.agc"
    ag.minimize(model, max_iter=stop, checkpoint=file, **options)
    resumed = ag.minimize(model, max_iter=30, resume=file, **options)
    for name in ("x", "x_last", "fun", "lower_bound", "gap", "nit", "nfev", "njev", "rows"):
        assert np.array_equal(resumed[name], whole[name]), name
    for name in ("iteration", "value", "gap", "calls"):
        np.testing.assert_array_equal(resumed.trace[name], whole.trace[name])


CASES = {
    "csr": {},
    "dense": dict(kind="dense"),
    "intercept": dict(fit_intercept=True),
    "float32": dict(types=(np.float32, np.int64)),
    "weights": dict(sample_weight=np.random.default_rng(1).random(60) * (np.arange(60) % 5 > 0)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_epochs_are_the_plain_ones(loss, case):
    model = problem(loss, **CASES[case])
    plain, _ = run(model, 4, "never")
    compiled, _ = run(model, 4, "always")
    for a, b in zip(plain, compiled, strict=True):
        assert_allclose(b.state.slopes, a.state.slopes, rtol=1e-7, atol=1e-8)
        assert_allclose(b.state.point, a.state.point, rtol=1e-7, atol=1e-8)


def test_many_rows_with_few_entries_are_compiled(monkeypatch):
    """Plain code takes as long for an empty row as for any other."""
    X = sp.random(2000, 16, density=0.005, format="csr", random_state=0)
    assert X.nnz < LEAST_COMPILED
    model = ag.LinearModel(X, np.where(np.arange(2000) % 3, 1.0, -1.0), "hinge", l2=1e-2)
    monkeypatch.delattr(solvers.dual_ascent, "proximal_slopes")  # of plain code
    assert ag.minimize(model, method="dual-ascent", rtol=1e-3).success


@pytest.mark.parametrize("loss", LOSSES)
def test_the_dual_rises_to_the_minimum_and_the_bound_is_the_models_own(loss):
    model = problem(loss, l2=0.2)
    steps, oracle = run(model, 400, "always")
    bounds = [bound(step.evaluation) for step in steps]
    assert (np.diff(bounds) >= -1e-12).all()
    best = oracle.best.value
    assert 0.0 <= best - bounds[-1] < 1e-6
    slopes = steps[-1].state.slopes
    assert bounds[-1] == pytest.approx(model.dual_value_at(slopes), abs=1e-12)
    w = -model.combination(slopes) / model.l2
    assert_allclose(steps[-1].state.point, w, atol=1e-12)


def test_a_start_that_helps_is_used_and_a_bound_that_may_end_the_run_is_there_at_once():
    model = problem("logistic")
    rule, (steps, oracle) = DualAscent(), run(model, 60, "always")
    first = rule.step(rule.init(steps[-1].state.point), oracle)
    assert 0.0 <= first.evaluation.value - bound(first.evaluation) < 1e-6
    start = oracle.feasible(np.full(25, 1e6))
    assert not start.slopes.any()
    assert not start.point.any()
    model = problem("hinge")
    rule, oracle = DualAscent(), DualOracle(model, np.random.default_rng(2), lambda value: 1e9)
    evaluation = rule.step(rule.init(np.zeros(25)), oracle).evaluation
    assert evaluation.late_bound is None
    assert evaluation.dual_value <= evaluation.value


def test_empty_rows_have_their_best_slopes():
    X = sp.csr_matrix(np.array([[0.0, 0.0], [1.0, 0.0]]))
    model = ag.LinearModel(X, [1.0, -1.0], "logistic", l2=0.1)
    steps, _ = run(model, 30, "always")
    assert 0.0 <= steps[-1].evaluation.value - bound(steps[-1].evaluation) < 1e-9
