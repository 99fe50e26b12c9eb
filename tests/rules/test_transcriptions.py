"""Every rule against the plain transcription of its formulas, step by step."""

from itertools import pairwise

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.rules import UntunedAcceleGrad
from accelegrad.rules.base import KnownEvaluation
from reference import methods
from stepping import SETS, STEPS, Inexact, kinds, make, noisy, oracle_of, run, same, sets, uneven
from toys import AbsoluteDeviations, LeastSquares

#: Columns of a transcription, whether they are of the next step, and the rule's point or field
COUPLED = [("x", 0, "query"), ("z", 1, "mirror_point"), ("y", 1, "last"), ("average", 0, "output")]
COUPLED_LAST = [*COUPLED[:3], ("y", 1, "output")]
DESCENT = [("x", 0, "query"), ("x", 1, "last"), ("average", 0, "output")]
TWO = [("z_tilde", 0, "query"), ("x", 1, "last"), ("x_tilde", 0, "output"), ("y", 1, "base_point")]
UNTUNED = [("x", 0, "query"), ("z", 1, "mirror_point"), ("output", 0, "output")]


def assert_follows(rule, states, expected, points, tolerance=1e-12, units=1.0):
    """Compare points, step sizes, radii and weights at each step; points in these units."""
    radii, T = expected.r, len(states) - 1
    for t, (before, after) in enumerate(pairwise(states)):
        for column, ahead, point in points:
            found = before if point == "query" else after
            found = getattr(rule, point)(found) if hasattr(rule, point) else getattr(found, point)
            same(units * found, units * getattr(expected, column)[t + ahead], column, t, tolerance)
        if np.ndim(units):
            continue  # one step size and one radius per coordinate
        for steps in (expected.eta, expected.eta_y):
            assert not steps or after.step_size == pytest.approx(steps[t], rel=tolerance)
        if radii:
            assert before.radius == pytest.approx(float(radii[t]), rel=tolerance)
        if expected.alpha and points is not UNTUNED:
            weight = expected.alpha[t] * (radii or [1.0] * T)[t]
            assert rule.weight(before) == pytest.approx(weight, rel=tolerance)


#: A rule, its transcription with the same arguments, the points to compare, and the noise
CASES = {
    "accelegrad": (ag.AcceleGrad, methods.accelegrad, (6.0, 0.0), COUPLED, 0.0),
    "accelegrad, wide": (ag.AcceleGrad, methods.accelegrad, (60.0, 0.0), COUPLED, 0.0),
    "accelegrad, y too": (ag.AcceleGrad, methods.accelegrad, (3.0, 3.0), COUPLED, 0.0),
    "adagrad": (ag.AdaGrad, methods.adagrad, (6.0,), DESCENT, 0.0),
    "linear coupling": (ag.LinearCoupling, methods.linear_coupling, (3.0,), COUPLED_LAST, 0.0),
    "subgradient": (ag.Subgradient, methods.subgradient, (0.1, "sqrt"), DESCENT, 0.0),
    "subgradient, constant": (ag.Subgradient, methods.subgradient, (0.1, "constant"), DESCENT, 0.0),
    "dog": (ag.DoG, methods.dog, (0.5,), DESCENT, 0.0),
    "dog, noisy": (ag.DoG, methods.dog, (1e-4,), DESCENT, 0.3),
    "a-dog": (ag.ADoG, methods.a_dog, (0.5,), COUPLED, 0.0),
    "a-dog, noisy": (ag.ADoG, methods.a_dog, (1e-4,), COUPLED, 0.3),
    "unixgrad": (ag.UniXGrad, methods.unixgrad, (2.0, 1.0), TWO, 0.0),
    "unixgrad, noisy": (ag.UniXGrad, methods.unixgrad, (2.0, None), TWO, 0.3),
    "u-dog": (ag.UDoG, methods.u_dog, (0.5,), TWO, 0.0),
    "u-dog, noisy": (ag.UDoG, methods.u_dog, (1e-4,), TWO, 0.3),
    "unixgrad, prox": (ag.UniXGrad, methods.unixgrad, (3.0, None), TWO, 0.0),
    "u-dog, prox": (ag.UDoG, methods.u_dog, (0.1,), TWO, 0.0),
}


@kinds
@sets
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_transcription(case, kind, name):
    (rule, transcription, given, points, noise), (fun, x0) = CASES[case], make(kind, 1)
    T, both = STEPS[kind], {"project": SETS[name](x0)}
    if case == "accelegrad, y too" and name != "none":
        both["project_y"] = True
    if "prox" in case:
        both["prox"] = ag.L1(0.05).prox
    rule = rule(*given, **both)
    expected = transcription(noisy(fun, 7, noise), x0, T, *given, **both)
    gradient = noisy(fun, 7, noise)
    states = run(rule, x0, lambda x: KnownEvaluation(x, fun(x)[0], gradient(x)), T)
    assert_follows(rule, states, expected, points)


UNIVERSAL = {
    ag.UniversalGradient: methods.universal_primal,
    ag.UniversalDualGradient: methods.universal_dual,
    ag.UniversalFastGradient: methods.universal_fast,
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
    for t in range(T):
        assert states[t + 1].trials == expected.trials[t], f"trials at t={t}"
        assert 1 / states[t + 1].step_size == pytest.approx(expected.M[t], rel=1e-15)
        if kind_of_rule is ag.UniversalFastGradient:
            same(rule.output(states[t + 1]), expected.y[t + 1], "y", t)
            assert states[t + 1].total_weight == pytest.approx(expected.A[t + 1], rel=1e-12)
        else:
            same(rule.last(states[t + 1]), expected.B[t], "point", t)
            same(rule.output(states[t + 1]), expected.average[t], "average", t)


# -- AcceleGrad without a diameter -----------------------------------------------------------------

PROBLEMS = {
    "smooth": LeastSquares.random(60, 8, 0),
    "ill-conditioned": LeastSquares.random(60, 8, 1, decay=2.0),
    "not smooth": AbsoluteDeviations.random(40, 5, 2),
}
BOX, TERM = ag.Box(np.full(8, -0.3), np.full(8, 0.3)), ag.L1(0.05)
BENT = {
    "box": {"project": BOX.project},
    "l1": {"prox": TERM.prox},
    "box and l1": {"project": BOX.project, "prox": TERM.prox},
}
FREE = [
    # Where the radius has just grown, the steep directions amplify rounding for a while.
    *(("smooth", None, 0.1, 0.0, 400), ("ill-conditioned", None, 0.1, 0.0, 60)),
    ("not smooth", None, 0.1, 0.0, 80),
    # Within the box, and in its corner
    *(("smooth", bent, start, 0.0, 60) for bent in BENT for start in (0.0, 0.3)),
    *(("smooth", bent, 0.0, 0.3, 60) for bent in BENT),
    ("smooth", None, 0.0, 1.0, 200),  # with a cap
]


@pytest.mark.parametrize(("name", "bent", "start", "noise", "steps"), FREE)
def test_automatic_diameter(name, bent, start, noise, steps):
    fun, options = PROBLEMS[name], dict(BENT.get(bent, {}))
    cap = 0.5 if noise == 1.0 else np.inf
    radius, tolerance = (1e-3, 1e-9) if bent else (1e-4, 1e-10 if noise else 1e-11)
    x0 = np.full(fun.A.shape[1], start)
    oracle = Inexact(noisy(fun, 6, noise)) if noise else oracle_of(fun)
    expected = methods.distance_free_accelegrad(
        noisy(fun, 6, noise), x0, steps, radius, noisy=bool(noise), cap=cap, **options
    )
    options["largest_radius"] = cap if cap < np.inf else None
    rule = ag.DistanceFreeAcceleGrad(initial_radius=radius, **options)
    states = run(rule, x0, oracle, steps)
    assert_follows(rule, states, expected, COUPLED, tolerance)
    assert states[-1].radius > 100 * radius  # it had to climb
    assert states[-1].radius <= cap
    if noise:  # gradients that come from no oracle are taken for noisy too
        state, gradient = rule.init(x0), noisy(fun, 6, noise)
        for _ in range(steps):
            state = rule.update(state, gradient(rule.query(state)))
        np.testing.assert_array_equal(state.mirror_point, states[-1].mirror_point)


# -- one step size per coordinate ------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("project_y", [False, True])
@pytest.mark.parametrize("radius", ["told", "small", "own", "probed"])
def test_diagonal(kind, active, project_y, radius):
    fun, x0, sizes = uneven(kind, 1 if radius == "told" else 3)
    T = 80 if kind == "smooth" else 60  # later, rounding decides which subgradient is taken
    project = ag.Box(x0 - 0.3 / sizes, x0 + 0.3 / sizes).project if active else None
    both = {"project": project, "project_y": project_y}
    if radius == "told":
        rule, given = ag.DiagonalAcceleGrad(3 / sizes, 2.0, **both), (3 / sizes, 2.0)
    else:
        own = 0.03 / sizes if radius == "own" else None
        rule, given = ag.DistanceFreeDiagonalAcceleGrad(own, radius == "probed", **both), ()
    states = run(rule, x0, oracle_of(fun), T)
    if radius != "told":
        both["r0"] = states[1 if radius == "probed" else 0].widths  # no step is significant yet
        if radius == "small":
            np.testing.assert_allclose(both["r0"], 1e-6 * (1 + np.abs(x0)), rtol=1e-15)
        assert radius != "probed" or both["r0"].min() > 1e-4
    expected = methods.diagonal_accelegrad(lambda x: fun(x)[1], x0, T, *given, **both)
    widths = [] if radius == "told" else [("r", 1, "widths")]
    # Relative to each coordinate's own size: rounding is 1e-10 of widths of 1e-6.
    assert_follows(rule, states, expected, [*COUPLED, *widths], 1e-11, sizes)
    for t, (before, after) in enumerate(pairwise(states)):
        assert rule.weight(before) == expected.alpha[t]
        if radius != "told":
            assert after.radius == pytest.approx(np.linalg.norm(after.widths), rel=1e-14)
        if t < 30:  # later, gradients near zero are mostly rounding
            g, eta = expected.g[t], expected.eta[t]
            assert after.step_size == pytest.approx(g @ (eta * g) / (g @ g), rel=1e-9)


# -- AcceleGrad without tuning ---------------------------------------------------------------------


SMALL = ag.Box(-0.5, 0.7).project
FORMS = {
    "plain": {},
    "one step for all": {"diagonal": False},
    "a radius": {"r0": 0.03},
    "half steps": {"rate": 0.5},
    "no momentum": {"momentum": False},
    "box": {"project": SMALL},
    "prox": {"prox": ag.L1(0.05).prox},
    "prox and box": {"prox": ag.L1(0.05).prox, "project": SMALL, "diagonal": False},
}


def soft(x, step):
    return np.sign(x) * np.maximum(np.abs(x) - 0.05 * step, 0.0)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("form", FORMS)
def test_untuned(form, noise):
    fun, T, options = LeastSquares.random(60, 12, 0), 120, dict(FORMS[form])
    if "prox" in options:
        options["prox"] = soft  # a step per coordinate
    x0 = SMALL(np.random.default_rng(100).standard_normal(12))
    expected = methods.untuned_accelegrad(noisy(fun, 7, noise), x0, T, **options)
    rule = UntunedAcceleGrad(first_radius=options.pop("r0", None), **options)
    states, gradient = [rule.init(x0)], noisy(fun, 7, noise)
    for _ in range(T):
        states.append(rule.update(states[-1], gradient(rule.query(states[-1]))))
    expected.eta = []  # one number per coordinate
    assert_follows(rule, states, expected, UNTUNED, 1e-9)
    assert states[-1].averaged == (T - expected.settled[0] if expected.settled else 0)
    if noise and form in ("plain", "one step for all", "a radius", "prox"):
        assert expected.settled  # or the average would not be tested


# -- what is proved of the transcriptions ----------------------------------------------------------


@kinds
@pytest.mark.parametrize(("L0", "projected"), [(1e-3, True), (1e3, False)])
def test_universal_bounds(kind, L0, projected):
    # Primal: f(average) - f* <= eps/2 + R^2/(2 sum 1/M). Fast: f(y_k) - f* <= eps/2 + R^2/(2 A_k).
    rng = np.random.default_rng(0)
    A, solution = rng.standard_normal((8, 4)), rng.standard_normal(4)
    fun = (LeastSquares if kind == "smooth" else AbsoluteDeviations)(A, A @ solution)
    R, eps = np.linalg.norm(solution), 0.1
    given = np.zeros(4), 100, eps, L0, ag.Ball(0.0, R).project if projected else None
    found = methods.universal_primal(fun, *given)
    for k in range(100):
        inverses = sum(1 / M for M in found.M[: k + 1])
        assert fun(found.average[k])[0] <= eps / 2 + R**2 / (2 * inverses)
    found = methods.universal_fast(fun, *given)
    for k in range(100):
        assert fun(found.y[k + 1])[0] <= eps / 2 + R**2 / (2 * found.A[k + 1])
        assert found.M[k] * found.a[k] ** 2 == pytest.approx(found.A[k + 1], rel=1e-12)
