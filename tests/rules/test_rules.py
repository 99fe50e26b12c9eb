"""Every rule against the plain transcription of its formulas, step by step."""

from dataclasses import dataclass

import numpy as np
import pytest

from accelegrad.geometry.sets import Ball, Box
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    LinearCoupling,
    Subgradient,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
)
from accelegrad.rules.base import KnownEvaluation
from reference import methods
from stepping import run_on, same

# The transcriptions compute every sum afresh: three times as many steps take nine times as long.
STEPS = 150
# Rounding differs between a rule and its transcription, and where a residual is within it of zero
# the two take different subgradients. The first steps come out the same; this many are compared.
NON_SMOOTH_STEPS = 100


@dataclass
class Problem:
    """||A x - b||_p^p with p = 2 (smooth) or 1 (not)."""

    p: int
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.A = rng.standard_normal((40, 12)) / np.sqrt(40)
        self.x_star = rng.standard_normal(12)
        self.b = self.A @ self.x_star + 0.1 * rng.standard_normal(40)
        self.x0 = rng.standard_normal(12)

    def __call__(self, x):
        r = self.A @ x - self.b
        if self.p == 2:
            return r @ r, 2 * self.A.T @ r
        return np.abs(r).sum(), self.A.T @ np.sign(r)

    def gradient(self, x):
        return self(x)[1]

    def oracle(self, x):
        return KnownEvaluation(x, *self(x))

    @property
    def distance(self):
        return np.linalg.norm(self.x0 - self.x_star)

    @property
    def smoothness(self):
        return 2 * np.linalg.norm(self.A, 2) ** 2

    @property
    def steps(self):
        return STEPS if self.p == 2 else NON_SMOOTH_STEPS


def projections(problem):
    """None; a ball that holds the minimiser; a box that does not, so that it is active to the end."""
    return {
        "none": None,
        "ball": Ball(problem.x0, 1.1 * problem.distance).project,
        "active": Box(problem.x0 - 0.2, problem.x0 + 0.2).project,
    }


cases = pytest.mark.parametrize("p", [2, 1])
sets = pytest.mark.parametrize("name", ["none", "ball", "active"])


@cases
@sets
@pytest.mark.parametrize(
    ("gradient_bound", "project_y", "ratio"),
    [(0.0, False, 1.0), (3.0, True, 0.5), (0.0, False, 10.0)],
)
def test_accelegrad(p, name, gradient_bound, project_y, ratio):
    problem = Problem(p, 1)
    project, D = projections(problem)[name], 2 * ratio * problem.distance
    T = problem.steps
    states = run_on(problem, AcceleGrad(D, gradient_bound, project, project_y), T)
    expected = methods.accelegrad(
        problem.gradient,
        problem.x0,
        T,
        D,
        gradient_bound,
        project,
        project_y and project is not None,
    )
    rule = AcceleGrad(D)
    for t in range(T):
        same(rule.query(states[t]), expected.x[t], "x", t)
        same(states[t + 1].mirror_point, expected.z[t + 1], "z", t)
        same(rule.last(states[t + 1]), expected.y[t + 1], "y", t)
        same(rule.output(states[t + 1]), expected.average[t], "y_bar", t)
        assert states[t + 1].step_size == pytest.approx(expected.eta[t], rel=1e-12)
        assert rule.weight(states[t]) == expected.alpha[t]


def test_weights_at_the_first_steps():
    rule, state = AcceleGrad(1.0), AcceleGrad(1.0).init(np.zeros(1))
    weights = [rule.weight(state._replace(iteration=t)) for t in range(6)]
    assert weights == [1.0, 1.0, 1.0, 1.0, 1.25, 1.5]


@cases
@sets
def test_adagrad(p, name):
    problem = Problem(p, 2)
    project, D = projections(problem)[name], 2 * problem.distance
    rule = AdaGrad(D, project)
    states = run_on(problem, rule, problem.steps)
    expected = methods.adagrad(problem.gradient, problem.x0, problem.steps, D, project)
    for t in range(problem.steps):
        same(rule.query(states[t]), expected.x[t], "x", t)
        same(rule.last(states[t + 1]), expected.x[t + 1], "x", t + 1)
        same(rule.output(states[t + 1]), expected.average[t], "x_bar", t)
        assert states[t + 1].step_size == pytest.approx(expected.eta[t], rel=1e-12)


@sets
def test_linear_coupling(name):
    problem = Problem(2, 3)
    project, beta = projections(problem)[name], problem.smoothness
    rule = LinearCoupling(beta, project)
    states = run_on(problem, rule, STEPS)
    expected = methods.linear_coupling(problem.gradient, problem.x0, STEPS, beta, project)
    for t in range(STEPS):
        same(rule.query(states[t]), expected.x[t], "x", t)
        same(states[t + 1].mirror_point, expected.z[t + 1], "z", t)
        same(rule.output(states[t + 1]), expected.y[t + 1], "y", t)


@cases
@sets
@pytest.mark.parametrize("decay", ["sqrt", "constant"])
def test_subgradient(p, name, decay):
    problem = Problem(p, 4)
    project = projections(problem)[name]
    rule = Subgradient(0.1, decay, project)
    states = run_on(problem, rule, problem.steps)
    expected = methods.subgradient(problem.gradient, problem.x0, problem.steps, 0.1, decay, project)
    for t in range(problem.steps):
        same(rule.query(states[t]), expected.x[t], "x", t)
        same(rule.output(states[t + 1]), expected.average[t], "average", t)


UNIVERSAL = {
    UniversalGradient: methods.universal_primal,
    UniversalDualGradient: methods.universal_dual,
    UniversalFastGradient: methods.universal_fast,
}


class FlatProblem(Problem):
    """A quadratic with curvatures from 1e-6 to 1, which takes hundreds of steps."""

    def __post_init__(self):
        super().__post_init__()
        rng = np.random.default_rng(self.seed)
        basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
        self.A = np.logspace(-3, 0, 12)[:, None] * basis.T
        self.b = self.A @ self.x_star


@cases
@sets
@pytest.mark.parametrize("kind", UNIVERSAL)
def test_universal(kind, p, name):
    """The line searches' decisions too: the same trials, the same M, the same points."""
    problem = FlatProblem(p, 5) if p == 2 else Problem(p, 5)
    project, T = projections(problem)[name], problem.steps
    epsilon = 1e-5 if p == 2 else 1e-1
    # From 1 on, M would be the curvature itself at times, and the test a matter of rounding.
    L0 = 0.7
    rule = kind(epsilon, L0, project)
    states = run_on(problem, rule, T)
    expected = UNIVERSAL[kind](problem, problem.x0, T, epsilon, L0, project)
    # Where every trial passes, as on a small set that is within epsilon of flat, L halves at each
    # step; the rule has a floor for it, which the formulas have not.
    halved = [t for t in range(T) if expected.M[t] < 1e-58]
    for t in range(halved[0] if halved else T):
        assert states[t + 1].trials == expected.trials[t], f"trials at t={t}"
        assert 1 / states[t + 1].step_size == pytest.approx(expected.M[t], rel=1e-15)
        if kind is UniversalFastGradient:
            same(rule.output(states[t + 1]), expected.y[t + 1], "y", t)
            assert states[t + 1].total_weight == pytest.approx(expected.A[t + 1], rel=1e-12)
        else:
            points = expected.B if kind is UniversalDualGradient else expected.x[1:]
            same(rule.last(states[t + 1]), points[t], "point", t)
            same(rule.output(states[t + 1]), expected.average[t], "average", t)
