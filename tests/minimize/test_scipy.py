"""`scipy.optimize.minimize(..., method=ag.scipy_method)`."""

import numpy as np
import pytest
from scipy.optimize import Bounds, NonlinearConstraint, lsq_linear
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from toys import LeastSquares

PROBLEM = LeastSquares.random(40, 5, 1)
OPTIONS = {"diameter": 8.0, "max_iter": 2000}


def test_function_and_gradient_apart_with_args_and_callback():
    seen = []
    result = scipy_minimize(
        lambda x, s: s * PROBLEM.value(x),
        np.zeros(5),
        args=(2.0,),
        jac=lambda x, s: s * PROBLEM.gradient(x),
        method=ag.scipy_method,
        callback=lambda intermediate_result: seen.append(intermediate_result.fun),
        options=OPTIONS,
    )
    np.testing.assert_allclose(result.x, PROBLEM.minimiser, atol=1e-6)
    assert len(seen) == result.nit


@pytest.mark.parametrize(
    "bounds", [Bounds(-0.2, 0.3), [(-0.2, 0.3)] * 5, Bounds(np.full(5, -0.2), np.full(5, 0.3))]
)
def test_bounds_become_a_box(bounds):
    result = scipy_minimize(
        PROBLEM,
        np.zeros(5),
        jac=True,
        method=ag.scipy_method,
        bounds=bounds,
        options={"max_iter": 3000},
    )
    expected = lsq_linear(PROBLEM.A, PROBLEM.b, (-0.2, 0.3), tol=1e-14).x
    assert result.fun - PROBLEM.value(expected) <= min(result.gap, 1e-4)
    assert (result.x >= -0.2).all()
    assert (result.x <= 0.3).all()


def test_tol_and_maxiter_are_understood():
    result = scipy_minimize(
        PROBLEM,
        np.zeros(5),
        jac=True,
        method=ag.scipy_method,
        tol=1e-6,
        options={"diameter": 8.0, "maxiter": 5000},
    )
    assert result.status == ag.Status.CONVERGED
    assert result.gap <= 1e-6


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match="jac is None"):
        scipy_minimize(PROBLEM.value, np.zeros(5), method=ag.scipy_method)
    with pytest.raises(TypeError, match=r"constraints must be scipy\.optimize\.LinearConstraint"):
        scipy_minimize(
            PROBLEM,
            np.zeros(5),
            jac=True,
            method=ag.scipy_method,
            constraints=NonlinearConstraint(np.sum, 0, 1),
        )
    with pytest.raises(TypeError, match="did you mean 'diameter'"):
        scipy_minimize(
            PROBLEM, np.zeros(5), jac=True, method=ag.scipy_method, options={"diametre": 1.0}
        )
    with pytest.warns(RuntimeWarning, match="hess"):
        scipy_minimize(
            PROBLEM,
            np.zeros(5),
            jac=True,
            hess=lambda x: np.eye(5),
            method=ag.scipy_method,
            options=OPTIONS,
        )
