"""Noisy gradients: AcceleGrad and AdaGrad converge, line searches end with a status of their own."""

import math

import numpy as np
import pytest

import accelegrad as ag
from accelegrad import Status
from accelegrad_lab.paper.regression import paper_regression

N, D = 400, 20


def problem_and_minimum(p):
    problem = paper_regression(p, n=N, d=D, seed=1)
    x_star, minimum = problem.minimum()
    return problem, x_star, minimum


@pytest.mark.parametrize("p", [2, 1])
@pytest.mark.parametrize("method", ["accelegrad", "adagrad"])
def test_minibatches_of_one_converge(p, method):
    """As in the paper's appendix: single rows, 50 epochs, D four times the distance."""
    problem, x_star, minimum = problem_and_minimum(p)
    model = ag.LinearModel(problem.A, problem.b, loss="squared" if p == 2 else "absolute")
    scale = 2 * N if p == 2 else N  # the paper's F is a sum, without the half
    gaps = {}
    for epochs in (1, 50):
        result = ag.minimize(
            model,
            method=method,
            diameter=4 * np.linalg.norm(x_star),
            batch_size=1,
            rng=2,
            max_iter=epochs * N,
        )
        assert result.success
        assert result.nit == epochs * N
        np.testing.assert_array_equal(result.x, result.x_average)
        assert result.fun == model.value(result.x)
        gaps[epochs] = scale * result.fun - minimum
    start = scale * model.value(np.zeros(D)) - minimum
    assert 0 <= gaps[50] < 0.02 * start
    # At the standard rate 1/sqrt(T) or better.
    assert gaps[50] < gaps[1] / math.sqrt(50)


def test_a_search_that_never_passes_is_given_up():
    def adversary(x, calls=[0]):  # noqa: B006
        calls[0] += 1
        return float(calls[0]), np.ones_like(x)

    for method in ("universal", "universal-dual", "universal-fast"):
        result = ag.minimize(adversary, np.zeros(3), method=method, epsilon=1e-3, max_trials=50)
        assert result.status is Status.LINE_SEARCH_FAILED
        assert not result.success
        assert "max_trials=50" in result.message
        assert result.nfev <= 101
        assert result.fun == min(result.fun, 1e9)
