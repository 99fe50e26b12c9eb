"""Batches that grow: the policy, the change of a state, and whole runs of `minimize`."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import accelegrad as ag
from accelegrad import kernels
from accelegrad.models.sampling import GrowingSampler
from accelegrad.run.batches import largest_signal, row_variance
from accelegrad.run.compiled import CompiledRule
from accelegrad.run.oracle import MinibatchOracle
from accelegrad.run.policies.growth import READ_PER_TESTED, BatchGrowth
from accelegrad.run.result import Status
from interrupting import CtrlC
from twins import rule_fields

RULES = {
    "distance-free": dict(method="accelegrad", scale=None),
    "scaled": dict(method="accelegrad", scale="columns"),
    "accelegrad": dict(method="accelegrad", diameter=9.0),
    "adagrad": dict(method="adagrad", diameter=5.0),
}
OTHERS = {
    "dog": dict(method="adagrad"),
    "a-dog": dict(method="a-dog"),
    "unixgrad": dict(method="unixgrad", diameter=9.0),
    "u-dog": dict(method="u-dog"),
    "diagonal": dict(method="diagonal", diameter=2.0),
    "diagonal, distance-free": dict(method="diagonal"),
    "constrained": dict(feasible_set=ag.NonNegative()),
    "composite": dict(penalty=ag.L1(1e-3)),
}


def model(kind="csr", rows=300, loss="logistic", flips=0.2, **options):
    rng = np.random.default_rng(5)
    X = sp.random(rows, 20, density=0.3, format="csr", rng=rng)
    y = np.where(X @ rng.normal(size=20) > 0, 1.0, -1.0)
    y[rng.random(rows) < flips] *= -1
    return ag.LinearModel(X if kind == "csr" else X.toarray(), y, loss=loss, l2=1e-2, **options)


def run(mode="never", problem=None, **options):
    given = dict(batch_size="auto", rng=11, max_iter=900) | options
    with kernels.use(mode):
        return ag.minimize(model() if problem is None else problem, **given)


# -- the policy ------------------------------------------------------------------------------------


def test_pure_noise_lets_a_batch_grow_and_signal_does_not():
    growth = BatchGrowth(1000)
    growth.note(squares=40.0, weights=10.0)  # ||g||^2 = 4 in batches of one row
    assert growth.next_size(variance=4.0) == 2
    assert growth.next_size(variance=1.9) == 1  # more signal than noise
    with_kinks = BatchGrowth(1000, largest_signal=0.3)
    with_kinks.note(squares=40.0, weights=10.0)
    assert with_kinks.next_size(variance=4.0) == 2
    assert with_kinks.next_size(variance=2.5) == 1
    assert growth.next_size(variance=2.5) == 2
    assert growth.next_size(variance=0.0) == 1  # a row tells all: more of them are of no use


def test_how_much_signal_a_batch_may_have():
    accelerated, plain = ag.DistanceFreeAcceleGrad(), ag.AdaGrad(1.0)
    assert largest_signal(accelerated, smooth=True) > largest_signal(accelerated, smooth=False)
    assert largest_signal(accelerated, smooth=False) > largest_signal(plain, smooth=True)
    assert largest_signal(plain, smooth=True) == largest_signal(plain, smooth=False)


def test_the_signal_is_what_exceeds_the_noise_of_rows_drawn_without_replacement():
    growth = BatchGrowth(100)
    growth.go_on(size=50, iteration=10, steps=16)
    growth.note(squares=6.0, weights=2.0)
    assert growth.signal(variance=100.0) == pytest.approx(3.0 / (100 / 50 * 0.5) - 1)
    again = BatchGrowth(100, replacement=True)
    again.go_on(size=50, iteration=10, steps=16)
    again.note(squares=6.0, weights=2.0)
    assert again.signal(variance=100.0) == pytest.approx(3.0 / (100 / 50) - 1)


def test_growth_ends_at_all_rows():
    growth, sizes = BatchGrowth(1000), []
    while not growth.ended:
        growth.note(1e-9, 1.0)
        size = growth.next_size(1.0)
        growth.go_on(size, iteration=len(sizes), steps=16)
        sizes.append(size)
    assert sizes == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    assert growth.sizes[-1] == (9, 1000)


def test_after_a_look_in_vain_it_waits():
    growth = BatchGrowth(1000)
    growth.go_on(size=1, iteration=80, steps=80)
    assert growth.next_test == 100
    assert growth.sizes == [(0, 1)]


def test_noise_tests_read_a_small_share_of_the_rows():
    growth = BatchGrowth(10**6)
    groups, size = growth.test_shape(100_000)
    assert (groups, size) == (16, 128)  # 2048 rows at most
    groups, size = growth.test_shape(132_000)
    assert groups * size <= 32_000 / 32
    assert BatchGrowth(3).test_shape(10) == (3, 1)


def test_the_variance_of_a_row_is_unbiased():
    rng = np.random.default_rng(0)
    scales = np.array([3.0, 1.0, 0.5, 0.0])
    found = [
        row_variance(list((rng.normal(size=(16, 8, 4)) * scales).mean(axis=1)), 8)
        for _ in range(2000)
    ]
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(scales @ scales, abs=4 * error)
    assert error < 0.01 * (scales @ scales)


# -- the change of a state -------------------------------------------------------------------------


def state_after(rule, steps, scale):
    """Return the state after steps with gradients of pure noise, whatever the point."""
    state = rule.init(np.zeros(5))
    for gradient in scale * np.random.default_rng(3).normal(size=(steps, 5)):
        state = rule.update(state, gradient)
    return state


@pytest.mark.parametrize(
    ("rule", "squares"), [(ag.AdaGrad(2.0), "squares"), (ag.AcceleGrad(2.0), "weighted_squares")]
)
def test_a_coarsened_state_has_the_sums_of_a_run_with_larger_batches(rule, squares):
    # Batches k times as large: 1/k of the steps, gradients shorter by sqrt(k).
    k, steps = 4, 12_000
    fine = state_after(rule, steps, 1.0)
    coarse = state_after(rule, steps // k, 1 / math.sqrt(k))
    found = rule.coarsened(fine, k)
    assert found.iteration == coarse.iteration
    assert found.weight_sum == pytest.approx(coarse.weight_sum, rel=1e-3)
    assert getattr(found, squares) == pytest.approx(getattr(coarse, squares), rel=0.05)
    step = rule.next_step_size(*([0] if squares == "squares" else []), getattr(found, squares))
    assert step == pytest.approx(coarse.step_size, rel=0.025)
    assert_allclose(rule.output(found), rule.output(fine), rtol=1e-12)
    assert_array_equal(rule.last(found), rule.last(fine))


def test_a_coarsened_state_asks_where_its_own_weights_say():
    rule = ag.AcceleGrad(2.0)
    state = state_after(rule, 100, 1.0)
    found = rule.coarsened(state, 2)
    tau = 4 / 51
    expected = tau * state.mirror_point + (1 - tau) * state.gradient_point
    assert_allclose(found.query_point, expected, rtol=1e-12)


def test_a_radius_and_its_evidence_outlive_the_change():
    rule = ag.DistanceFreeAcceleGrad(initial_radius=0.1)
    state = rule.init(np.zeros(3))
    for _ in range(64):
        state = rule.update(state, state.query_point - np.array([1.0, 2.0, 3.0]))
    found = rule.coarsened(state, 8)
    assert found.radius == state.radius
    before = state.evidence / np.linalg.norm(state.gradient_sum)
    assert found.evidence / np.linalg.norm(found.gradient_sum) == pytest.approx(before, rel=1e-12)


# -- the sampler -----------------------------------------------------------------------------------


def test_every_row_comes_once_in_n_though_batches_grow():
    sampler = GrowingSampler(23, np.random.default_rng(1))
    rows = []
    for size in (1, 3, 4, 9):
        sampler.grow(size)
        for _ in range(5):
            batch = sampler.next_rows()
            assert batch.size == size
            rows.extend(batch)
    for first in range(0, len(rows) - 22, 23):
        assert sorted(rows[first : first + 23]) == list(range(23))
    assert sampler.rows_drawn == len(rows)


@pytest.mark.parametrize("replacement", [False, True])
def test_a_batch_of_all_rows_holds_each_once(replacement):
    sampler = GrowingSampler(7, np.random.default_rng(1), replacement=replacement)
    sampler.grow(7)
    assert_array_equal(sampler.next_batches(2), [*range(7), *range(7)])


@pytest.mark.parametrize("replacement", [False, True])
def test_a_restored_sampler_goes_on_with_the_size_it_had(replacement):
    sampler = GrowingSampler(23, np.random.default_rng(1), replacement=replacement)
    sampler.next_rows()
    sampler.grow(5)
    sampler.next_rows()
    state = sampler.state()
    expected = [sampler.next_rows() for _ in range(9)]
    again = GrowingSampler(23, np.random.default_rng(2), replacement=replacement)
    again.restore(state)
    assert again.batch_size == 5
    assert_array_equal([again.next_rows() for _ in range(9)], expected)
    with pytest.raises(ValueError, match="n=23"):
        GrowingSampler(24, np.random.default_rng(2), replacement=replacement).restore(state)


@pytest.mark.parametrize("size", [2, 24])
def test_batches_neither_shrink_nor_exceed_the_rows(size):
    sampler = GrowingSampler(23, np.random.default_rng(1))
    sampler.grow(5)
    with pytest.raises(ValueError, match="batch_size"):
        sampler.grow(size)


# -- whole runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [*RULES, *OTHERS])
def test_batches_grow_on_noisy_labels_and_those_of_accelerated_rules_to_all_rows(rule):
    result = run(**(RULES | OTHERS)[rule])
    iterations, sizes = zip(*result.batch_sizes, strict=True)
    assert list(sizes) == sorted(set(sizes))
    assert list(iterations) == sorted(set(iterations))
    assert (iterations[0], sizes[0]) == (0, 1)
    # What is not accelerated has little to gain from larger batches.
    assert sizes[-1] >= 16 if rule in ("adagrad", "dog") else sizes[-1] == 300
    assert result.nit == 900


def test_a_run_ends_as_accurate_as_full_gradients_are():
    problem = model()
    best = ag.minimize(problem, tol=1e-10, max_iter=20_000).fun
    result = run(problem=problem, method="accelegrad", output="last", max_iter=2000)
    fixed = run(problem=problem, method="accelegrad", output="last", max_iter=2000, batch_size=8)
    assert result.fun - best < 1e-7
    assert fixed.fun - best > 1e-5  # the noise of its batches stays


def test_rows_that_all_say_the_same_are_read_one_at_a_time():
    X = np.tile([[0.5, -1.0]], (200, 1))
    problem = ag.LinearModel(X, np.ones(200), l2=1e-3)
    result = run(problem=problem, method="accelegrad")
    assert result.batch_sizes == [(0, 1)]
    assert result.gap < 1e-4


def test_rows_read_are_counted_tests_and_judgements_included():
    result = run(method="adagrad", diameter=5.0, max_iter=400)
    spans = [*result.batch_sizes, (400, 0)]
    drawn = sum((e - b) * size for (b, size), (e, _) in itertools.pairwise(spans))
    tests = result.rows - drawn - 300  # the last 300: the value of the point returned
    looks = len(result.batch_sizes) - 1
    assert 16 * looks <= tests <= drawn / READ_PER_TESTED + 16 * 40


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_compiled_run_is_the_plain_run(rule, kind, intercept):
    problem = model(kind, fit_intercept=intercept)
    plain, fast = (run(mode, problem, **RULES[rule]) for mode in ("never", "always"))
    assert fast.batch_sizes == plain.batch_sizes
    assert len(plain.batch_sizes) > 5
    assert_allclose(fast.x, plain.x, rtol=1e-8, atol=1e-10)
    assert_allclose(fast.x_last, plain.x_last, rtol=1e-8, atol=1e-10)
    assert (fast.nit, fast.nfev, fast.rows) == (plain.nit, plain.nfev, plain.rows)


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stop", [64, 333])
def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path, rule, mode, stop):
    file, problem = tmp_path / "run.ckpt", model("dense")
    options = dict(RULES[rule])
    whole = run(mode, problem, **options, max_iter=500)
    run(mode, problem, **options, max_iter=stop, checkpoint=file)
    resumed = run(mode, problem, **options, max_iter=500, resume=file)
    assert_array_equal(resumed.x, whole.x)
    assert_array_equal(resumed.x_last, whole.x_last)
    assert resumed.batch_sizes == whole.batch_sizes
    assert (resumed.fun, resumed.rows) == (whole.fun, whole.rows)


def test_a_checkpoint_of_a_fixed_size_is_refused(tmp_path):
    file = tmp_path / "run.ckpt"
    run(batch_size=4, method="adagrad", diameter=5.0, checkpoint=file, max_iter=50)
    with pytest.raises(ValueError, match="batch_size"):
        run(method="adagrad", diameter=5.0, resume=file)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_it_stops_on_the_certified_gap(mode):
    result = run(mode, method="accelegrad", tol=1e-4, max_iter=100_000)
    assert result.status == Status.CONVERGED
    assert 0 <= result.gap <= 1e-4
    assert result.rows < 300 * 300


def test_callbacks_and_traces_see_every_iteration():
    seen = []
    result = run(callback=lambda intermediate_result: seen.append(intermediate_result.nit))
    assert seen == list(range(1, 901))
    traced = run(trace=True, scale=None, method="accelegrad")
    assert_array_equal(traced.trace.iteration, seen)
    assert result.nit == 900


def test_ctrl_c_keeps_what_was_done():
    options = dict(method="accelegrad", max_iter=10**9, time_limit=600)
    result = run("always", callback=CtrlC(), callback_at=[1000], **options)
    assert result.status == Status.INTERRUPTED
    assert result.nit >= 1000
    assert result.nit >= result.batch_sizes[-1][0] > 100


def test_one_row_is_all_rows():
    problem = ag.LinearModel(np.array([[1.0, 2.0]]), np.array([1.0]), l2=0.1)
    assert run(problem=problem, method="accelegrad", max_iter=50).batch_sizes == [(0, 1)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(batch_size="large"), "batch_size must be a whole number >= 1 or 'auto'"),
        (dict(method="universal", epsilon=0.1), "universal gradient"),
        (dict(method="subgradient", step_size=0.1), "subgradient method"),
        (dict(method="linear-coupling", smoothness=1.0), "linear coupling"),
        (dict(method="accelegrad", restart="certified"), "restart"),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        run(**options)


def test_a_function_has_no_batches():
    with pytest.raises(ValueError, match="LinearModel"):
        ag.minimize(lambda x: (x @ x, 2 * x), np.ones(2), batch_size="auto")


def test_the_twin_of_a_rule_is_coarsened_through_its_own_state():
    problem = model("dense")
    with kernels.use("always"):
        rule = CompiledRule(ag.AcceleGrad(9.0), problem)
        state = rule.init(np.zeros(20))
        oracle = MinibatchOracle(problem, GrowingSampler(300, np.random.default_rng(0)))
        rule.advance(state, oracle, 60)
        before = ag.AcceleGrad(9.0).init(np.zeros(20))._replace(**rule_fields(state.epochs))
        state = rule.coarsened(state, 2)
        after = rule_fields(state.epochs)
    for name, value in rule.rule.coarsened(before, 2)._asdict().items():
        assert_allclose(after[name], value, rtol=1e-12, atol=1e-15, err_msg=name)
