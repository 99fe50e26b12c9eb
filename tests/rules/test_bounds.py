"""The theorems' bounds on random problems, and fitted rates."""

import numpy as np
import pytest

import accelegrad as ag
from toys import AbsoluteDeviations, FlatQuadratic, LeastSquares, slope

HORIZONS = (1, 2, 3, 4, 5, 10, 30, 100, 300, 1000)


def averages(fun, x0, horizons, **options):
    """Return f(average) after each horizon, from one run, and the squared gradient norms."""
    values, squares = {}, []

    def counted(x):
        value, gradient = fun(x)
        squares.append(gradient @ gradient)
        return value, gradient

    def callback(intermediate_result):
        if intermediate_result.nit in horizons:
            values[intermediate_result.nit] = fun(intermediate_result.x_average)[0]

    result = ag.minimize(counted, x0, max_iter=max(horizons), callback=callback, **options)
    for horizon in horizons:  # a run that ends at rounding level is there already
        if horizon > result.nit:
            assert result.status is ag.Status.AT_ROUNDING
            values[horizon] = result.fun
    return values, np.array(squares)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [LeastSquares, AbsoluteDeviations])
@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_adagrad_bound(kind, seed, ratio):
    problem = kind.random(60, 10, seed)
    x_star = problem.minimiser
    D = 2 * ratio * np.linalg.norm(x_star)
    values, squares = averages(problem, np.zeros(10), HORIZONS, method="adagrad", diameter=D)
    for T in HORIZONS:
        bound = np.sqrt(2 * D**2 * squares[:T].sum()) / T
        assert values[T] - problem(x_star)[0] <= bound


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("G", [1e-3, 100.0])
def test_accelegrad_smooth_bound(seed, G):
    problem = LeastSquares.random(60, 10, seed)
    x_star, beta = problem.minimiser, problem.smoothness
    D = 2 * np.linalg.norm(x_star)
    values, _ = averages(problem, np.zeros(10), HORIZONS, diameter=D, gradient_bound=G)
    constant = D * G / 2 + 8 * beta * D**2 * (1 + max(0, np.log(4 * beta * D / G)))
    for T in HORIZONS:
        assert values[T] - problem(x_star)[0] <= 32 / T**2 * constant


def test_accelegrad_non_smooth_bound():
    problem = AbsoluteDeviations.random(60, 10, 0)
    x_star = problem.minimiser
    D = 2 * np.linalg.norm(x_star)
    values, squares = averages(problem, np.zeros(10), HORIZONS, diameter=D, gradient_bound=1.0)
    G = np.sqrt(squares.max())
    for T in HORIZONS[1:]:
        bound = 1280 * D * G * np.sqrt(np.log(T)) / np.sqrt(T)
        assert values[T] - problem(x_star)[0] <= bound


def test_accelegrad_rate_on_a_smooth_function_that_is_not_strongly_convex():
    problem = FlatQuadratic()
    horizons = np.unique(np.logspace(1.5, 3.7, 25).astype(int))
    D = 2 * np.linalg.norm(problem.x0)
    values, _ = averages(problem, problem.x0, horizons, diameter=D)
    fitted = slope(horizons, [values[T] for T in horizons])
    assert fitted <= -1.9
    # AdaGrad is not accelerated: about 1/T on the same function.
    values, _ = averages(problem, problem.x0, horizons, diameter=D, method="adagrad")
    assert -1.5 <= slope(horizons, [values[T] for T in horizons]) <= -0.9


def test_subgradient_bound():
    """With weights eta_t: (||x0 - x*||^2 + sum eta^2 ||g||^2) / (2 sum eta)."""
    problem = AbsoluteDeviations.random(60, 10, 0)
    x_star = problem.minimiser
    values, squares = averages(
        problem, np.zeros(10), HORIZONS, method="subgradient", step_size=0.01
    )
    eta = 0.01 / np.sqrt(np.arange(1, len(squares) + 1))
    for T in HORIZONS:
        bound = (x_star @ x_star + (eta[:T] ** 2 * squares[:T]).sum()) / (2 * eta[:T].sum())
        assert values[T] - problem(x_star)[0] <= bound


@pytest.mark.parametrize("epsilon", [1e-1, 1e-3])
@pytest.mark.parametrize("method", ["universal", "universal-dual", "universal-fast"])
def test_universal_methods_come_within_epsilon(method, epsilon):
    problem = LeastSquares.random(60, 10, 7)
    x_star = problem.minimiser
    result = ag.minimize(
        problem, np.zeros(10), method=method, epsilon=epsilon, max_iter=2000, output="average"
    )
    assert result.fun - problem(x_star)[0] <= epsilon


def test_universal_calls_an_iteration():
    """The paper's claim: about two data passes an iteration, four for the fast method.

    The dual method's x is not among the points that its searches evaluate: one more.
    """
    problem = LeastSquares.random(200, 40, 8)
    for method, passes in [("universal", 2), ("universal-dual", 3), ("universal-fast", 4)]:
        result = ag.minimize(problem, np.zeros(40), method=method, epsilon=1e-3, max_iter=300)
        assert result.nfev / result.nit == pytest.approx(passes, abs=0.15)
