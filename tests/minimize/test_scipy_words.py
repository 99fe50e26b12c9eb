"""`minimize` as SciPy's users write it: bounds, constraints, shapes, a target, other libraries."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.scipy_words import limits_of
from toys import LeastSquares

PROBLEM = LeastSquares.random(40, 6, 7)
START = np.zeros(6)
INF = np.inf
ROWS = np.random.default_rng(8).standard_normal((3, 6))
#: SciPy's arguments, and the set that they become.
# fmt: off
LIMITS = {
    "bounds": (dict(bounds=Bounds(-0.2, 0.3)), ag.Box),
    "pairs": (dict(bounds=[(-0.2, 0.3), (None, 0.1), (0, None)] + [(None, None)] * 3), ag.Box),
    "an equation": (dict(constraints=LinearConstraint(ROWS[0], 0.3, 0.3)), ag.Affine),
    "equations": (dict(constraints=LinearConstraint(ROWS, [0.1, 0.2, 0.3], [0.1, 0.2, 0.3])), ag.Affine),
    "at most": (dict(constraints=LinearConstraint(ROWS[0], -INF, -0.4)), ag.Halfspace),
    "at least": (dict(constraints=LinearConstraint(ROWS[0], 0.6, INF)), ag.Halfspace),
    "simplex": (dict(constraints=LinearConstraint(np.ones(6), 1, 1), bounds=[(0, None)] * 6), ag.Simplex),
    "between": (dict(constraints=LinearConstraint(ROWS, -0.1, 0.1)), ag.Polyhedron),
    "several": (dict(constraints=[LinearConstraint(ROWS[0], 0.1, 0.1), LinearConstraint(sp.csr_array(ROWS[1:]), -INF, [0.0, 0.2])], bounds=Bounds(np.full(6, -0.5), INF)), ag.Polyhedron),
}
# fmt: on


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("through", ["minimize", "scipy_method"])
def test_bounds_and_constraints_against_scipy(name, through):
    limits, kind = LIMITS[name]
    given = limits.get("bounds"), limits.get("constraints", ())
    assert type(limits_of(*given, None, (6,)).feasible_set) is kind
    if through == "minimize":
        result = ag.minimize(PROBLEM, START, tol=1e-5, max_iter=4000, **limits)
    else:
        options = {"max_iter": 4000}
        result = scipy_minimize(
            PROBLEM, START, jac=True, method=ag.scipy_method, tol=1e-5, options=options, **limits
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SLSQP clips its own steps and says so
        expected = scipy_minimize(PROBLEM, START, jac=True, method="SLSQP", tol=1e-14, **limits)
    assert result.status == ag.Status.CONVERGED, result.message
    # SLSQP's points are feasible to about 1e-8, so that its value may be that much lower.
    assert result.lower_bound <= expected.fun + 1e-6
    assert abs(result.fun - expected.fun) <= 1e-5 + 1e-6
    for one in np.atleast_1d(limits.get("constraints", [])):
        A = one.A.toarray() if sp.issparse(one.A) else np.atleast_2d(one.A)
        excess = np.maximum(A @ result.x - one.ub, one.lb - A @ result.x)
        assert excess.max() <= 1e-12 * np.abs(A).sum()
    ends = limits.get("bounds", Bounds())  # None becomes NaN, which nothing is below or above
    low, high = (ends.lb, ends.ub) if isinstance(ends, Bounds) else np.array(ends, dtype=float).T
    assert not ((result.x < low) | (result.x > high)).any()


def test_the_start_is_projected_as_scipy_clips_it():
    result = ag.minimize(PROBLEM, np.full(6, 9.0), bounds=[(-0.2, 0.3)] * 6, tol=1e-6)
    assert result.success
    model = ag.LinearModel(PROBLEM.A, PROBLEM.b, loss="squared", l2=0.1)
    fitted = ag.minimize(model, bounds=[(0.2, None)] * 6, tol=1e-6, max_iter=5000)
    assert fitted.success
    assert (fitted.x >= 0.2).all()


@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 3), (3, 1, 2)])
@pytest.mark.parametrize("apart", [False, True])
def test_x0_of_any_shape(shape, apart):
    goal = np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)[()]
    shapes = set()

    def value(x):
        shapes.add(np.shape(x))
        return float(np.sum((x - goal) ** 2))

    def gradient(x):
        shapes.add(np.shape(x))
        return 2 * (x - goal)

    fun, jac = (value, gradient) if apart else (lambda x: (value(x), gradient(x)), True)
    options = dict(jac=jac, tol=1e-8, callback=lambda x: shapes.add(np.shape(x)))
    result = ag.minimize(fun, 0 * goal, **options)
    bounded = ag.minimize(fun, 0 * goal, bounds=Bounds(0, 0.5 * goal), **options)
    assert shapes == {shape}
    assert np.shape(result.x) == np.shape(result.jac) == np.shape(result.x_average) == shape
    # f is 2-strongly convex: ||x - goal||^2 <= gap <= 1e-8 |f|, and |f| <= 1.
    np.testing.assert_allclose(result.x, goal, atol=1e-3)
    np.testing.assert_allclose(bounded.x, 0.5 * goal, atol=1e-3)


NAMED = [
    ("penalty", "l1", ag.L1(1.0)),
    ("penalty", "l2", ag.ElasticNet(0.0, 1.0)),
    ("feasible_set", "nonnegative", ag.NonNegative()),
    ("feasible_set", "simplex", ag.Simplex()),
]


@pytest.mark.parametrize(("argument", "name", "meant"), NAMED)
def test_names_of_sets_and_penalties(argument, name, meant):
    one, other = (
        ag.minimize(PROBLEM, np.full(6, 1 / 6), max_iter=50, **{argument: given})
        for given in (name, meant)
    )
    np.testing.assert_array_equal(one.x, other.x)


@pytest.mark.parametrize("limits", [{}, dict(bounds=[(-3, 3)] * 6), dict(diameter=20.0)])
@pytest.mark.parametrize("output", ["best", "average", "last"])
def test_a_target(limits, output):
    lowest = PROBLEM.value(PROBLEM.minimiser)
    run = dict(max_iter=20_000, output=output, **limits)
    reached = ag.minimize(PROBLEM, START, target=lowest + 1e-3, **run)
    assert (reached.status, reached.success) == (ag.Status.TARGET_REACHED, True)
    assert reached.fun <= lowest + 1e-3
    nowhere = ag.minimize(PROBLEM, START, target=lowest - 1e-2, **run)
    assert (nowhere.status, nowhere.success) == (ag.Status.TARGET_IMPOSSIBLE, False)
    assert lowest - 1e-2 < nowhere.lower_bound <= lowest
    stopped = ag.minimize(PROBLEM, START, target=lowest - 1e-2, **{**run, "max_iter": 1})
    assert (stopped.status, stopped.success) == (ag.Status.MAX_ITER, False)


def test_a_target_of_a_model_and_at_a_minimiser():
    model = ag.LinearModel(PROBLEM.A, PROBLEM.b, loss="squared", l2=1e-2)
    lowest = ag.minimize(model, tol=1e-10).fun
    for more in ({}, dict(batch_size=4, rng=1, max_iter=20_000)):
        assert ag.minimize(model, target=lowest + 1e-3, **more).status == ag.Status.TARGET_REACHED
    impossible = ag.minimize(model, target=0.5 * lowest)
    assert impossible.status == ag.Status.TARGET_IMPOSSIBLE
    assert impossible.certified_radius == INF
    square = lambda x: (1 + x @ x, 2 * x)  # noqa: E731
    assert ag.minimize(square, np.zeros(2), target=1.0).status == ag.Status.TARGET_REACHED
    assert ag.minimize(square, np.zeros(2), target=0.5).status == ag.Status.TARGET_IMPOSSIBLE


GOAL = np.array([[1.0, -2.0], [0.5, 3.0]])


LEAST = np.sign(GOAL) * np.maximum(np.abs(GOAL) - 0.25, 0)


def in_jax(x, s):
    goal = jnp.asarray(GOAL.reshape(x.shape), dtype=jnp.float32)
    return s * jnp.sum((x - goal) ** 2) + jnp.abs(x).sum()


def in_torch(x, s):
    return s * ((x - torch.tensor(GOAL).reshape(x.shape)) ** 2).sum() + x.abs().sum()


@pytest.mark.parametrize("fun", [in_jax, in_torch])
@pytest.mark.parametrize("shape", [(2, 2), (4,)])
def test_a_function_of_another_library(fun, shape):
    result = ag.minimize(fun, np.zeros(shape), args=(2.0,), jac=fun.__name__[3:], tol=1e-9)
    assert result.success
    np.testing.assert_allclose(result.x, LEAST.reshape(shape), atol=1e-4)
    assert not jax.config.jax_enable_x64  # only within the calls
    # In float32 values near 1e4 could not tell a gap of 1e-9.
    assert result.jac.dtype == np.float64


def test_what_a_function_of_torch_returns():
    constant = ag.minimize(lambda x: torch.tensor(3.0), np.zeros(2), jac="torch")
    assert constant.status == ag.Status.STATIONARY
    with pytest.raises(TypeError, match="must return a tensor"):
        ag.minimize(lambda x: 3.0, np.zeros(2), jac="torch")


def by_scipy(fun=PROBLEM, jac=True, **more):
    return scipy_minimize(fun, START, jac=jac, method=ag.scipy_method, **more)


def test_function_and_gradient_apart_with_args_and_callback():
    seen = []
    result = by_scipy(
        lambda x, s: s * PROBLEM.value(x),
        lambda x, s: s * PROBLEM.gradient(x),
        args=(2.0,),
        callback=lambda intermediate_result: seen.append(intermediate_result.fun),
        options={"diameter": 8.0, "maxiter": 2000},
    )
    np.testing.assert_allclose(result.x, PROBLEM.minimiser, atol=1e-6)
    assert len(seen) == result.nit


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match="jac is None"):
        by_scipy(PROBLEM.value, None)
    with pytest.raises(TypeError, match=r"constraints must be scipy\.optimize\.LinearConstraint"):
        by_scipy(constraints=NonlinearConstraint(np.sum, 0, 1))
    with pytest.raises(TypeError, match="did you mean 'diameter'"):
        by_scipy(options={"diametre": 1.0})
    with pytest.warns(RuntimeWarning, match="hess"):
        by_scipy(hess=lambda x: np.eye(6), options={"max_iter": 9})
