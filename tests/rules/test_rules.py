"""Every rule against the plain transcription of its formulas, step by step."""

from itertools import pairwise

import numpy as np
import pytest

from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DoG,
    LinearCoupling,
    Subgradient,
    UDoG,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
    UniXGrad,
)
from accelegrad.rules.base import KnownEvaluation
from reference import beyond, methods
from stepping import SETS, STEPS, kinds, make, noisy, oracle_of, run, same, sets
from toys import LeastSquares

#: Columns of a transcription, whether they are of the next step, and the rule's point or field
COUPLED = [("x", 0, "query"), ("z", 1, "mirror_point"), ("y", 1, "last"), ("average", 0, "output")]
COUPLED_LAST = [*COUPLED[:3], ("y", 1, "output")]
DESCENT = [("x", 0, "query"), ("x", 1, "last"), ("average", 0, "output")]
TWO = [("z_tilde", 0, "query"), ("x", 1, "last"), ("x_tilde", 0, "output"), ("y", 1, "base_point")]
#: A rule, its transcription with the same arguments, the points to compare, and the noise
CASES = {
    "accelegrad": (AcceleGrad, methods.accelegrad, (6.0, 0.0), COUPLED, 0.0),
    "accelegrad, wide": (AcceleGrad, methods.accelegrad, (60.0, 0.0), COUPLED, 0.0),
    "accelegrad, y too": (AcceleGrad, methods.accelegrad, (3.0, 3.0), COUPLED, 0.0),
    "adagrad": (AdaGrad, methods.adagrad, (6.0,), DESCENT, 0.0),
    "linear coupling": (LinearCoupling, methods.linear_coupling, (3.0,), COUPLED_LAST, 0.0),
    "subgradient": (Subgradient, methods.subgradient, (0.1, "sqrt"), DESCENT, 0.0),
    "subgradient, constant": (Subgradient, methods.subgradient, (0.1, "constant"), DESCENT, 0.0),
    "dog": (DoG, beyond.dog, (0.5,), DESCENT, 0.0),
    "dog, noisy": (DoG, beyond.dog, (1e-4,), DESCENT, 0.3),
    "a-dog": (ADoG, beyond.a_dog, (0.5,), [("query", 0, "query"), *COUPLED[1:]], 0.0),
    "a-dog, noisy": (ADoG, beyond.a_dog, (1e-4,), [("query", 0, "query"), *COUPLED[1:]], 0.3),
    "unixgrad": (UniXGrad, beyond.unixgrad, (2.0, 1.0), TWO, 0.0),
    "unixgrad, noisy": (UniXGrad, beyond.unixgrad, (2.0, None), TWO, 0.3),
    "u-dog": (UDoG, beyond.u_dog, (0.5,), TWO, 0.0),
    "u-dog, noisy": (UDoG, beyond.u_dog, (1e-4,), TWO, 0.3),
}


@kinds
@sets
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_transcription(case, kind, name):
    (rule, transcription, given, points, noise), (fun, x0) = CASES[case], make(kind, 1)
    T, both = STEPS[kind], {"project": SETS[name](x0)}
    if case == "accelegrad, y too" and name != "none":
        both["project_y"] = True
    rule = rule(*given, **both)
    expected = transcription(noisy(fun, 7, noise), x0, T, *given, **both)
    gradient = noisy(fun, 7, noise)
    states = run(rule, x0, lambda x: KnownEvaluation(x, fun(x)[0], gradient(x)), T)
    radii = getattr(expected, "r", [])
    for t, (before, after) in enumerate(pairwise(states)):
        for column, ahead, point in points:
            found = before if point == "query" else after
            found = getattr(rule, point)(found) if hasattr(rule, point) else getattr(found, point)
            same(found, getattr(expected, column)[t + ahead], column, t)
        for steps in (expected.eta, getattr(expected, "eta_y", [])):
            assert not steps or after.step_size == pytest.approx(steps[t], rel=1e-12)
        if radii:
            assert before.radius == pytest.approx(radii[t], rel=1e-12)
        if radii or expected.alpha:
            weight = (radii or [1.0] * T)[t] * (expected.alpha or [1.0] * T)[t]
            assert rule.weight(before) == pytest.approx(weight, rel=1e-12)


def test_weights_at_the_first_steps():
    rule, state = AcceleGrad(1.0), AcceleGrad(1.0).init(np.zeros(1))
    weights = [rule.weight(state._replace(iteration=t)) for t in range(6)]
    assert weights == [1.0, 1.0, 1.0, 1.0, 1.25, 1.5]


UNIVERSAL = {
    UniversalGradient: methods.universal_primal,
    UniversalDualGradient: methods.universal_dual,
    UniversalFastGradient: methods.universal_fast,
}


def flat():
    """Return a quadratic with curvatures from 1e-6 to 1, which takes hundreds of steps."""
    rng = np.random.default_rng(5)
    basis, x_star = np.linalg.qr(rng.standard_normal((12, 12)))[0], rng.standard_normal(12)
    A = 2**0.5 * np.logspace(-3, 0, 12)[:, None] * basis.T
    return LeastSquares(A, A @ x_star), rng.standard_normal(12)


@kinds
@sets
@pytest.mark.parametrize("kind_of_rule", UNIVERSAL)
def test_universal(kind_of_rule, kind, name):
    """The line searches' decisions too: the same trials, the same M, the same points."""
    fun, x0 = flat() if kind == "smooth" else make(kind, 5)
    T, epsilon = (150, 1e-5) if kind == "smooth" else (100, 1e-1)
    # From 1 on, M would be the curvature itself at times, and the test a matter of rounding.
    L0, project = 0.7, SETS[name](x0)
    rule = kind_of_rule(epsilon, L0, project)
    states = run(rule, x0, oracle_of(fun), T)
    expected = UNIVERSAL[kind_of_rule](fun, x0, T, epsilon, L0, project)
    # Where every trial passes, as on a small set that is within epsilon of flat, L halves at each
    # step; the rule has a floor for it, which the formulas have not.
    halved = [t for t in range(T) if expected.M[t] < 1e-58]
    for t in range(halved[0] if halved else T):
        assert states[t + 1].trials == expected.trials[t], f"trials at t={t}"
        assert 1 / states[t + 1].step_size == pytest.approx(expected.M[t], rel=1e-15)
        if kind_of_rule is UniversalFastGradient:
            same(rule.output(states[t + 1]), expected.y[t + 1], "y", t)
            assert states[t + 1].total_weight == pytest.approx(expected.A[t + 1], rel=1e-12)
        else:
            points = expected.B if kind_of_rule is UniversalDualGradient else expected.x[1:]
            same(rule.last(states[t + 1]), points[t], "point", t)
            same(rule.output(states[t + 1]), expected.average[t], "average", t)
