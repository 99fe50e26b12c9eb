"""Convex functions of the benchmark: the suite and its minima, peers, and how calls are counted."""

import math
from dataclasses import replace

import numpy as np
import pytest

from accelegrad.geometry.penalties import L1
from accelegrad.geometry.sets import Ball
from accelegrad_lab.engine.worker import Timing
from accelegrad_lab.functions import contest
from accelegrad_lab.functions.adaptive import ac_fgm, ad_gd, first_length
from accelegrad_lab.functions.contest import Enough, FunctionContest, Recorder
from accelegrad_lab.functions.formulas import of_formula, squares
from accelegrad_lab.functions.suite import SUITE
from accelegrad_lab.peers import FUNCTIONS, PEERS

#: Sums of 10,000 terms, and eigenvalues of matrices of side 40, are off by far less, relatively.
ROUNDING = 1e-11

needs_cvxpy = pytest.mark.skipif(not contest.has_cvxpy(), reason="cvxpy is not installed")


def near(function, seed, size):
    return function.x0 + size * np.random.default_rng(seed).standard_normal(function.x0.size)


@pytest.mark.parametrize("name", SUITE)
def test_functions_are_convex_and_have_their_minima(name):
    """f(b) >= f(a) + <g(a), b - a>, near and far, for f and for the sum with its penalty."""
    function, kept = SUITE[name].build(), contest.minima()[name]
    assert set(SUITE) == set(contest.minima())
    for seed, size in enumerate((1e-2, 1e-1, 1.0, 10.0)):
        a, b = near(function, seed, size), near(function, seed + 10, size)
        for fun in (function.fun, function.whole):
            (at_a, slope), (at_b, _) = fun(a), fun(b)
            size_of_terms = abs(at_a) + abs(at_b) + np.linalg.norm(slope) * np.linalg.norm(b - a)
            assert at_b - at_a - slope @ (b - a) >= -ROUNDING * size_of_terms
    x = near(function, 1, 0.1)
    before = x.copy()
    first, gradient = function.fun(x)
    gradient += 1.0  # a method may overwrite what it is given
    np.testing.assert_array_equal(x, before)
    assert function.fun(x)[0] == first
    np.testing.assert_array_equal(function.fun(x)[1] + 1.0, gradient)
    if function.feasible_set is not None:
        projected = function.feasible_set.project(function.x0)
        np.testing.assert_allclose(projected, function.x0, rtol=0, atol=1e-12)
    assert function.value(function.x0) == pytest.approx(kept.start, rel=1e-9, abs=1e-12)
    assert kept.value < kept.start
    assert kept.error <= 1e-9  # a tenth of the last accuracy
    assert kept.distance > 0


@needs_cvxpy
@pytest.mark.parametrize("name", SUITE)
def test_statements_say_the_same(name):
    import cvxpy as cp

    function = SUITE[name].build()
    x = cp.Variable(function.x0.size)
    expression = function.statement(cp, x)
    assert expression.is_convex()
    for point in (function.x0, np.abs(near(function, 2, 0.1))):
        x.value = point
        assert float(expression.value) == pytest.approx(function.value(point), rel=1e-9, abs=1e-9)
    if function.limits is not None:
        x.value = function.x0
        limits = function.limits(cp, x)
        assert all(np.max(np.abs(limit.violation())) <= 1e-9 for limit in limits)


@needs_cvxpy
@pytest.mark.parametrize("name", ["max-and-distance", "tail-risk"])
def test_minima_are_found_again(name):
    kept, found = contest.minima()[name], contest.find_minimum(SUITE[name].build())
    assert found.value == pytest.approx(kept.value, abs=1e-9 * (kept.start - kept.value))
    assert found.error <= 1e-9


def points_of(method, calls, *more):
    """Return points, values and gradients of a method on ||A x - b||^2/2, from ones."""
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((30, 8)), rng.standard_normal(30)
    seen = []

    def fun(x):
        if len(seen) == calls:
            raise Enough
        r = A @ x - b
        seen.append((x.copy(), 0.5 * float(r @ r), A.T @ r))
        return seen[-1][1:]

    with pytest.raises(Enough):
        method(fun, np.ones(8), *more)
    return tuple(zip(*seen, strict=True))


proxes = pytest.mark.parametrize("prox", [lambda x, _: x, L1(0.3).prox])


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@proxes
def test_ac_fgm_is_its_recurrence(prox, epsilon):
    """The paper's recurrence with indices; x_0, a probe and trials come before x_1."""
    points, f, g = points_of(ac_fgm, 60, prox, epsilon)
    norm = np.linalg.norm
    curvature = norm(g[1] - g[0]) / norm(points[1] - points[0]) / 4
    first = 2
    while norm(g[first] - g[0]) ** 2 / (2 * curvature) > (
        curvature / 2 * norm(points[first] - points[0]) ** 2 + epsilon / 4
    ):
        curvature *= 1.5
        first += 1
    step = 1 / (2.5 * curvature)
    np.testing.assert_allclose(points[first], prox(points[0] - step * g[0], step))

    beta, alpha = 1 - math.sqrt(6) / 3, 0.1
    eta = {1: min((1 - beta) * step, 1 / (4 * curvature))}
    tau, L = {0: 0.0, 1: 1.0}, {1: curvature}
    y = points[0]
    for t in range(2, 60 - first):
        k = first + t - 2  # where x_{t-1} is in the list of points
        eta[t] = min(
            4 / 3 * eta[t - 1],
            (tau[t - 2] + 1) / tau[t - 1] * eta[t - 1],
            tau[t - 1] / (4 * L[t - 1]),
        )
        tau[t] = tau[t - 1] + alpha / 2 + 2 * (1 - alpha) * eta[t] * L[t - 1] / tau[t - 1]
        z = prox(y - eta[t] * g[k], eta[t])
        y = (1 - beta) * y + beta * z
        expected = (z + tau[t] * points[k]) / (1 + tau[t])
        np.testing.assert_allclose(points[k + 1], expected, rtol=1e-6, atol=1e-9)
        change, back = g[k + 1] - g[k], points[k] - points[k + 1]
        L[t] = change @ change / (2 * (f[k] - f[k + 1] - g[k + 1] @ back) + epsilon / tau[t])


@proxes
def test_ad_gd_is_its_recurrence(prox):
    """x_{k+1} = prox(x_k - a_k g_k) with the paper's a_k; trials for a_0 come before x_1."""
    points, _, g = points_of(ad_gd, 40, prox)
    norm = np.linalg.norm
    step, first = first_length(points[0], g[0]), 1
    while True:
        L = norm(g[first] - g[0]) / norm(points[first] - points[0])
        if 1 / math.sqrt(2) <= step * L <= 2:
            break
        step, first = min(1 / L, 10 * step), first + 1
    np.testing.assert_allclose(points[first], prox(points[0] - step * g[0], step))
    growth = 1 / 3
    for k in range(first, 39):
        before = 0 if k == first else k - 1
        L = norm(g[k] - g[before]) / norm(points[k] - points[before])
        allowed = max(2 * step**2 * L**2 - 1, 0.0)
        curved = step / math.sqrt(allowed) if allowed else math.inf
        following = min(math.sqrt(2 / 3 + growth) * step, curved)
        growth, step = following / step, following
        expected = prox(points[k] - step * g[k], step)
        np.testing.assert_allclose(points[k + 1], expected, rtol=1e-6, atol=1e-9)


def square(**more):
    return of_formula(squares(1.0), np.array([1.0, 0.0]), **more)


def test_calls_are_counted_until_the_last_accuracy_and_points_outside_of_the_set_are_not():
    recorder = Recorder(square(), 0.0, 100, 60.0)
    for length in (1.0, 0.05, 0.5):
        recorder.fun(np.array([length, 0.0]))
    assert recorder.reached.keys() == {1e-2}
    assert recorder.reached[1e-2].value == 0.5 * 0.05**2
    assert recorder.accuracy == pytest.approx(0.0025)
    with pytest.raises(Enough):
        recorder.fun(np.zeros(2))
    calls = {wanted: rung.calls for wanted, rung in recorder.reached.items()}
    assert calls == {1e-2: 2, 1e-4: 4, 1e-6: 4, 1e-8: 4}
    with pytest.raises(Enough):
        Recorder(square(), 0.0, 1, 60.0).fun(np.ones(2))  # the most calls
    with pytest.raises(Enough):
        Recorder(square(), 0.0, 100, 0.0).fun(np.ones(2))  # the most seconds
    function = square(feasible_set=Ball(np.array([2.0, 0.0]), 1.0))
    recorder = Recorder(function, 0.25, 100, 60.0)  # any number below f(x0)
    recorder.fun(np.array([0.8, 0.0]))
    assert recorder.accuracy == math.inf
    recorder.fun(np.array([1.0, 0.0]))
    assert recorder.accuracy == 1.0
    recorder = Recorder(square(penalty=L1(1.0), slope=np.sign), 0.0, 100, 60.0)
    assert recorder.fun(np.array([0.5, 0.0]))[0] == 0.125
    assert recorder.accuracy == pytest.approx(0.625 / 1.5)
    value, gradient = recorder.whole(np.array([0.1, 0.0]))
    assert value == pytest.approx(0.105)
    np.testing.assert_allclose(gradient, [1.1, 0.0])


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if FUNCTIONS in peer.suites])
def test_every_method_works_on_an_easy_function(name):
    problem, peer = FunctionContest(SUITE["log-sum-exp"]), PEERS[name]
    if reason := peer.reason_against(problem):
        pytest.skip(reason)
    setting = 1e-2 if name in ("ac-fgm", "universal-fast") else 1e-9 if name == "cvxpy" else 1.0
    rung = problem.sample(peer, setting, Timing(), 60.0).rungs[0]
    value, lower = problem.minimum()
    assert lower <= value
    assert value - 1e-9 <= rung.value <= value + 1e-2 * (problem.start - value)
    assert 0 < rung.seconds < 60
    assert math.isnan(rung.calls) if name == "cvxpy" else rung.calls < 500


def test_who_fails_and_who_takes_which_sets():
    """A method that raises has not reached anything, and the sample says why."""

    def fails(*_):
        raise ZeroDivisionError("no")

    peer = replace(PEERS["bfgs"], make=fails)
    sample = FunctionContest(SUITE["valley"]).sample(peer, 1.0, Timing(), 60.0)
    assert sample == ([], "ZeroDivisionError: no")
    for peer, taken, refused in [
        ("lbfgs-b", "box-quadratic", "entropy"),  # a simplex has an equation
        ("slsqp", "entropy", "l1-ball-logistic"),
        ("bfgs", "logistic", "box-quadratic"),
        ("bfgs", "logistic", "weighted-distance"),  # 10,000 coordinates
    ]:
        assert not PEERS[peer].reason_against(FunctionContest(SUITE[taken]))
        assert PEERS[peer].reason_against(FunctionContest(SUITE[refused]))
