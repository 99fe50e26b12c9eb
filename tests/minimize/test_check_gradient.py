"""`check_gradient`: no false alarm on convex functions, and every kind of mistake is named."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp

import accelegrad as ag


def convex_functions(d, seed=3):
    rng = np.random.default_rng(seed)
    n = min(2 * d + 1, 100)
    A, b = rng.standard_normal((n, d)), rng.standard_normal(n)
    uneven = 10.0 ** np.linspace(-6, 6, d)
    functions = {
        "squares": lambda x: (0.5 * np.sum((A @ x - b) ** 2), A.T @ (A @ x - b)),
        "remote squares": lambda x: functions["squares"](x - 1e6),
        "l1": lambda x: (np.abs(x).sum(), np.sign(x)),
        "absolute": lambda x: (np.abs(A @ x - b).sum(), A.T @ np.sign(A @ x - b)),
        "maximum": lambda x: ((A @ x - b).max(), A[np.argmax(A @ x - b)]),
        "logistic": lambda x: (np.logaddexp(0, A @ x).mean(), A.T @ expit(A @ x) / n),
        "log-sum-exp": lambda x: (logsumexp(A @ x), A.T @ np.exp(A @ x - logsumexp(A @ x))),
        "norm": lambda x: (np.linalg.norm(x), x / max(np.linalg.norm(x), 1e-300)),
        "hinge": lambda x: (np.maximum(0, 1 - A @ x).mean(), -A.T @ (A @ x < 1) / n),
        "exp": lambda x: (np.exp(x).sum(), np.exp(x)),
        "fourth power": lambda x: ((x**4).sum(), 4 * x**3),
        "entropy": lambda x: ((x * np.log(x)).sum(), np.log(x) + 1),  # NaN for negative numbers
        "huge": lambda x: (1e150 * np.abs(x).sum(), 1e150 * np.sign(x)),
        "tiny": lambda x: (1e-150 * (x @ x), 2e-150 * x),
        "with an offset": lambda x: (1e6 + x @ x, 2 * x),
        "uneven": lambda x: (0.5 * np.sum(uneven * x * x), uneven * x),
        "linear": lambda x: (x.sum(), np.ones_like(x)),
    }
    return functions


NAMES = sorted(convex_functions(1))
NOT_CONVEX = {
    "sine": lambda x: (np.sin(3 * x).sum(), 3 * np.cos(3 * x)),
    "negative square": lambda x: (-(x @ x), -2 * x),
    "saddle": lambda x: (x[1:] @ x[1:] - x[0] ** 2, 2 * np.append(-x[0], x[1:])),
    "double well": lambda x: ((x**4 - x**2).sum(), 4 * x**3 - 2 * x),
    "negative l1": lambda x: (-np.abs(x).sum(), -np.sign(x)),
    "root": lambda x: (np.sqrt(np.abs(x) + 0.1).sum(), 0.5 * np.sign(x) / np.sqrt(np.abs(x) + 0.1)),
}


def starts(name, d):
    if name == "entropy":
        return [np.full(d, 0.5), np.full(d, 3.0)]
    return [np.zeros(d), 30 * np.random.default_rng(4).standard_normal(d)]


def with_gradient(function, change):
    def changed(x):
        value, gradient = function(x)
        return value, change(gradient)

    return changed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d", [1, 60])
def test_no_false_alarm(name, d):
    function = convex_functions(d)[name]
    for seed, start in enumerate(starts(name, d)):
        report = ag.check_gradient(function, start, rng=seed)
        assert report, report
        assert (report.ok, report.cause, report.violations) == (True, "", [])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [-1.0, 0.99])
def test_a_wrong_sign_and_a_wrong_factor_are_seen(name, factor):
    wrong = with_gradient(convex_functions(4)[name], lambda g: factor * g)
    report = ag.check_gradient(wrong, np.ones(4))
    assert not report
    assert report.cause == ("sign" if factor == -1.0 else "scaled")
    # Differences are that exact; with an offset of 1e6 rounding leaves less.
    assert report.ratio == pytest.approx(1 / factor, rel=1e-2)
    assert str(report).startswith("The gradient")


@pytest.mark.parametrize("name", ["squares", "l1", "logistic", "absolute"])
def test_a_gradient_that_is_wrong_otherwise(name):
    function = convex_functions(4)[name]
    wrong = with_gradient(function, lambda g: g * np.array([1.0, 1.0, 1.0, 0.5]))
    assert ag.check_gradient(wrong, np.ones(4)).cause == "gradient"


def test_a_wrong_subgradient_at_a_kink_alone():
    def at_kink(value):
        return lambda x: (np.abs(x).sum(), np.where(x == 0, value, np.sign(x)))

    for value in (-1.01, -1.0, 0.0, 0.3, 1.0, 1.5):
        report = ag.check_gradient(at_kink(value), np.zeros(3))
        assert report.ok == (abs(value) <= 1.0)
        assert report or (report.violations[0].x == 0).all()


@pytest.mark.parametrize("name", NOT_CONVEX)
def test_functions_that_are_not_convex(name):
    for start in (np.zeros(2), np.ones(2)):
        report = ag.check_gradient(NOT_CONVEX[name], start)
        assert report.cause == "not convex"
        one = report.violations[0]
        value, gradient = NOT_CONVEX[name](one.x)
        assert NOT_CONVEX[name](one.y)[0] < value + gradient @ (one.y - one.x)


@pytest.mark.parametrize("name", ["squares", "maximum", "entropy", "tiny", "with an offset"])
@pytest.mark.parametrize("what", ["value", "gradient"])
def test_noise_is_seen(name, what):
    rng, function = np.random.default_rng(5), convex_functions(4)[name]

    def noisy(x):
        value, gradient = function(x)
        if what == "value":
            return value * (1 + 1e-3 * rng.standard_normal()), gradient
        return value, gradient * (1 + 1e-3 * rng.standard_normal(4))

    report = ag.check_gradient(noisy, np.ones(4))
    assert report.cause == "noisy"
    assert report.noise > 0


def test_shapes_sets_arguments_and_libraries():
    square = (lambda x, s: s * (x**2).sum(), lambda x, s: 2 * s * x)
    assert ag.check_gradient(square[0], np.ones((2, 3)), args=(2.0,), jac=square[1])
    assert ag.check_gradient(lambda x: (x**2, 2 * x), 1.0)
    assert ag.check_gradient(lambda x: jnp.sum(x**2), np.ones((2, 2)), jac="jax")
    # Convex for positive numbers only.
    cube = lambda x: ((x**3).sum(), 3 * x**2)  # noqa: E731
    assert ag.check_gradient(cube, np.ones(3), feasible_set="nonnegative")
    assert ag.check_gradient(cube, np.ones(3), radius=0.5)
    assert ag.check_gradient(cube, np.ones(3), radius=5.0).cause == "not convex"


def test_what_is_said():
    text = str(ag.check_gradient(lambda x: (x @ x, x), np.ones(3)))
    assert "it should be 2 times what it is" in text
    assert "f(y) is lower than f(x) + <g(x), y - x> by" in text
    log = ag.check_gradient(lambda x: (-np.log(x).sum(), -1 / x), np.full(3, 0.1))
    assert log
    assert "without a finite value left out" in str(log)
    assert ag.check_gradient(lambda x: (np.nan, x), np.ones(2)).cause == "not finite"
    for fun, jac, said in ((3.0, True, "fun must be a function"), (np.sum, "numpy", "jac must be")):
        with pytest.raises(TypeError, match=said):
            ag.check_gradient(fun, np.ones(2), jac=jac)
