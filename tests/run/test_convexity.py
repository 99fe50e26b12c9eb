"""Functions that are not what they seem never end in success; convex ones are never refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import accelegrad as ag
from accelegrad import Status
from accelegrad.run.checks import Convexity
from toys import largest_of

D = 4
#: What the true minima below are known to
KNOWN = 1e-9


def quadratic(rng):
    A = rng.standard_normal((D, D))
    A = A @ A.T / D + 0.1 * np.eye(D)
    b = rng.standard_normal(D)
    return lambda x: (0.5 * x @ A @ x - b @ x, A @ x - b), -0.5 * b @ np.linalg.solve(A, b)


def absolute(rng):
    t = rng.standard_normal(D)
    return lambda x: (np.abs(x - t).sum(), np.sign(x - t)), 0.0


def largest(rng):
    rows, t = rng.standard_normal((3 * D, D)), rng.standard_normal(D)
    P = np.vstack([rows, -rows])
    return largest_of(P, P @ t), 0.0


class Stale:
    """A function whose value or gradient is that of the call before."""

    def __init__(self, f, part):
        self.f, self.part, self.last = f, part, None

    def __call__(self, x):
        now = self.f(x)
        last, self.last = self.last or now, now
        return (last[0], now[1]) if self.part == "value" else (now[0], last[1])


def noisy(f, rng, value, gradient):
    def g(x):
        v, slope = f(x)
        return v + value * rng.standard_normal(), slope + gradient * rng.standard_normal(D)

    return g


def scaled(factor):
    return lambda f, other, rng: lambda x: (f(x)[0], factor * f(x)[1])


WRONG = {
    **{f"gradient times {c}": scaled(c) for c in (-1.0, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0)},
    "noise in values": lambda f, other, rng: noisy(f, rng, 1e-3, 0.0),
    "noise in gradients": lambda f, other, rng: noisy(f, rng, 0.0, 1e-3),
    "stale values": lambda f, other, rng: Stale(f, "value"),
    "stale gradients": lambda f, other, rng: Stale(f, "gradient"),
    "gradient of another": lambda f, other, rng: lambda x: (f(x)[0], other(x)[1]),
    "a coordinate missing": lambda f, other, rng: lambda x: (f(x)[0], np.append(f(x)[1][:-1], 0.0)),
}
METHODS = (
    {"method": "auto"},
    {"method": "accelegrad"},
    {"method": "unixgrad"},
    {"method": "universal-fast", "epsilon": 1e-4, "diameter": 20.0},
)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_never_succeeds_falsely(name):
    combinations = itertools.product((quadratic, absolute, largest), METHODS, (1e-4, None))
    for seed, (make, method, tol) in enumerate(combinations):
        rng = np.random.default_rng(seed)
        f, least = make(rng)
        other, _ = quadratic(rng)
        keywords = dict(method)
        if seed % 2:
            keywords["feasible_set"] = ag.Box(np.full(D, -8.0), np.full(D, 8.0))
            keywords.pop("diameter", None)
        start = np.zeros(D) if seed % 3 else rng.standard_normal(D)
        found = ag.minimize(WRONG[name](f, other, rng), start, tol=tol, max_iter=300, **keywords)
        if found.success and found.gap < np.inf:
            assert found.lower_bound <= least + KNOWN, (make.__name__, method, tol)
            assert f(found.x)[0] - least <= found.gap + KNOWN, (make.__name__, method, tol)


def rosenbrock(x):
    a, b = x[1] - x[0] ** 2, 1 - x[0]
    return 100 * a * a + b * b, np.array([-400 * a * x[0] - 2 * b, 200 * a])


def sines(x):
    return np.sin(3 * x).sum() + 0.05 * x @ x, 3 * np.cos(3 * x) + 0.1 * x


def logarithm(x):
    return np.log1p(x * x).sum(), 2 * x / (1 + x * x)


NOT_CONVEX = {
    "rosenbrock": (rosenbrock, 0.0),
    "sines": (sines, 2 * min(sines(np.array([t]))[0] for t in np.linspace(-6, 6, 20001))),
    "cap": (lambda x: (-x @ x, -2 * x), -32.0),
    "logarithm": (logarithm, 0.0),
}
STARTS = (np.array([-1.2, 1.0]), np.array([0.3, -0.2]), np.array([1.1, 1.3]))


@pytest.mark.parametrize("name", NOT_CONVEX)
def test_a_function_that_is_not_convex_does_not_succeed_falsely(name):
    (f, least), box = NOT_CONVEX[name], ag.Box(np.full(2, -4.0), np.full(2, 4.0))
    cases = itertools.product(STARTS, METHODS[:3], (1e-4, None), ({"feasible_set": box}, {}))
    for start, method, tol, limits in cases:
        # Near Rosenbrock's end nothing but a set says how far to look.
        if not limits and (name == "cap" or (name == "rosenbrock" and start is STARTS[2])):
            continue
        found = ag.minimize(f, start, tol=tol, max_iter=200, **method, **limits)
        if found.success and found.gap < np.inf:
            # The grid is as near as its step's square times half the curvature: 4e-7 times 5.
            assert found.lower_bound <= least + 2e-6
            assert found.fun - least <= found.gap + 2e-6


def test_the_message_names_the_points_and_the_causes():
    found = ag.minimize(lambda x: ((x**2).sum(), -2 * x), np.ones(3), tol=1e-4)
    assert found.status is Status.NOT_CONVEX
    assert not found.success
    assert found.lower_bound == -np.inf
    for words in ("below the tangent at", "not convex", "gradient is wrong", "exact=False"):
        assert words in found.message
    one = found.violation
    value, slope = (one["touching"] ** 2).sum(), -2 * one["touching"]
    assert (one["below"] ** 2).sum() < value + slope @ (one["below"] - one["touching"])


# -- no false alarms -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e100])
def test_convex_functions_of_any_scale_are_not_refused(scale):
    """Their values are near zero, sums of large terms that cancel; the fuzz has others."""
    for d, method in itertools.product((1, 5, 20), ("auto", "accelegrad")):
        rng = np.random.default_rng(d)
        A, b = rng.standard_normal((d, d)), rng.standard_normal(d)
        A = A @ A.T + np.eye(d)
        solution = np.linalg.solve(A, b)

        def f(x, A=A, b=b, solution=solution):
            value = 0.5 * x @ A @ x - b @ x + 0.5 * b @ solution
            return scale * value, scale * (A @ x - b)

        for start in (np.zeros(d), solution + 1e-6 * rng.standard_normal(d)):
            found = ag.minimize(f, start, method=method, max_iter=100)
            assert found.status is not Status.NOT_CONVEX, found.message


@pytest.fixture
def closing(monkeypatch):
    """Return a list that has an entry once the closing checks have begun."""
    begun, confirm = [], Convexity.confirm

    def noted(self, final):
        begun.append(final)
        confirm(self, final)

    monkeypatch.setattr(Convexity, "confirm", noted)
    return begun


FAILURES = {ValueError: "function", KeyboardInterrupt: "function", ArithmeticError: "projection"}


@pytest.mark.parametrize(("error", "where"), FAILURES.items())
def test_a_failure_in_a_closing_check_does_not_take_the_answer_away(closing, where, error):
    """The check evaluates at points that no step leads to: there functions may do anything."""

    def f(x):
        if closing and where == "function":
            raise error("no such point")
        return float((x - 1.0) @ (x - 1.0)), 2.0 * (x - 1.0)

    class Cube:
        diameter = 200.0

        def project(self, x):
            if closing and where == "projection":
                raise error("no projection")
            return np.clip(x, -40.0, 60.0)

        def linear_minimum(self, g):
            return float(np.where(g > 0, -40.0 * g, 60.0 * g).sum())

    found = ag.minimize(f, np.zeros(D), feasible_set=Cube(), tol=1e-6)
    assert closing
    interrupted = error is KeyboardInterrupt
    assert found.success is not interrupted
    assert (found.status is Status.INTERRUPTED) is interrupted
    np.testing.assert_allclose(found.x, 1.0, atol=1e-3)
