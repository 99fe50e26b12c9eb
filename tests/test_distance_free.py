"""AcceleGrad without a diameter: against its transcription, by its rate, against other solvers."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.optimize import lsq_linear

import accelegrad as ag
from accelegrad.errors import NonFiniteError
from accelegrad.rules.distance import Probe, smallest_radius
from reference.distance_free import distance_free_accelegrad
from stepping import oracle_of
from toys import AbsoluteDeviations, FlatQuadratic, LeastSquares, slope

PROBLEMS = {
    "smooth": LeastSquares.random(60, 8, 0),
    "ill-conditioned": LeastSquares.random(60, 8, 1, decay=2.0),
    "not smooth": AbsoluteDeviations.random(40, 5, 2),
}


def assert_same_run(rule, fun, x0, expected, *, rtol=1e-11):
    """Compare step by step; both accumulate rounding, each in its own order."""
    state = rule.init(x0)
    oracle = oracle_of(fun)
    for t, (x, y, z) in enumerate(zip(expected.x, expected.y[1:], expected.z[1:], strict=True)):
        scale = 1 + np.linalg.norm(x)
        np.testing.assert_allclose(rule.query(state), x, rtol=rtol, atol=rtol * scale)
        state = rule.step(state, oracle).state
        np.testing.assert_allclose(state.gradient_point, y, rtol=rtol, atol=rtol * scale)
        np.testing.assert_allclose(state.mirror_point, z, rtol=rtol, atol=rtol * scale)
        np.testing.assert_allclose(state.radius, expected.r[t + 1], rtol=rtol)
        np.testing.assert_allclose(state.step_size, expected.eta[t], rtol=rtol)
        average = expected.average[t]
        np.testing.assert_allclose(rule.output(state), average, rtol=rtol, atol=rtol * scale)
    return state


@pytest.mark.parametrize("name", PROBLEMS)
def test_equals_the_transcription(name):
    problem = PROBLEMS[name]
    x0 = 0.1 * np.ones(problem.A.shape[1])
    # Where the radius has just grown, the steep directions amplify rounding for a while.
    steps = {"smooth": 400, "ill-conditioned": 60, "not smooth": 80}[name]
    expected = distance_free_accelegrad(problem, x0, steps, 1e-4)
    rule = ag.DistanceFreeAcceleGrad(initial_radius=1e-4)
    state = assert_same_run(rule, problem, x0, expected)
    assert state.radius > 100 * 1e-4  # it had to climb


def test_equals_the_transcription_under_noise_and_with_a_cap():
    problem = PROBLEMS["smooth"]
    noise = np.random.default_rng(5).standard_normal((300, 8))
    x0 = np.zeros(8)

    def noisy():
        draws = iter(noise)
        return lambda x: (problem.value(x), problem.gradient(x) + next(draws))

    expected = distance_free_accelegrad(noisy(), x0, 200, 1e-3, cap=0.5)
    rule = ag.DistanceFreeAcceleGrad(initial_radius=1e-3, largest_radius=0.5)
    state = rule.init(x0)
    fun = noisy()
    for t in range(200):
        state = rule.update(state, fun(rule.query(state))[1])
        np.testing.assert_allclose(state.gradient_point, expected.y[t + 1], rtol=1e-10, atol=1e-10)
    assert state.radius == 0.5 == expected.r[-1]


@pytest.mark.parametrize("kind", ["box", "l1"])
def test_equals_the_transcription_with_a_set_or_a_term(kind):
    problem = PROBLEMS["smooth"]
    box, term = ag.Box(np.full(8, -0.3), np.full(8, 0.3)), ag.L1(0.05)
    fields = {"project": box.project} if kind == "box" else {"prox": term.prox}

    def step(x, g, eta):
        moved = x - eta * g
        return box.project(moved) if kind == "box" else term.prox(moved, float(eta))

    x0 = np.zeros(8)
    expected = distance_free_accelegrad(problem, x0, 60, 1e-3, step=step)
    rule = ag.DistanceFreeAcceleGrad(initial_radius=1e-3, **fields)
    assert_same_run(rule, problem, x0, expected, rtol=1e-9)


def test_the_evidence_never_exceeds_the_distance():
    """N_t / ||S_t|| is a lower bound on the distance to a minimiser with exact gradients."""
    for seed in range(20):
        problem = LeastSquares.random(40, 6, seed, decay=float(seed % 3))
        x0 = np.random.default_rng(seed).standard_normal(6)
        distance = np.linalg.norm(problem.minimiser - x0)
        rule = ag.DistanceFreeAcceleGrad()
        state = rule.init(x0)
        for _ in range(200):
            state = rule.update(state, problem.gradient(rule.query(state)))
            proven = state.evidence / np.linalg.norm(state.gradient_sum)
            assert proven <= distance * (1 + 1e-9)
            assert state.radius <= max(2 * distance, smallest_radius(x0)) * (1 + 1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_multiplying_the_function_changes_nothing(scale):
    problem = PROBLEMS["smooth"]
    plain = ag.minimize(problem, np.zeros(8), max_iter=40)

    def scaled(x):
        value, gradient = problem(x)
        return scale * value, scale * gradient

    other = ag.minimize(scaled, np.zeros(8), max_iter=40)
    np.testing.assert_allclose(other.x_last, plain.x_last, rtol=1e-7, atol=1e-9)
    assert other.nfev == plain.nfev


def test_smooth_rate():
    problem = FlatQuadratic()
    T = np.unique(np.geomspace(30, 3000, 12).astype(int))
    rule = ag.DistanceFreeAcceleGrad()
    gaps = {}
    result = ag.minimize(
        problem,
        problem.x0,
        method=rule,
        max_iter=int(T[-1]),
        callback=lambda intermediate_result: gaps.update(
            {intermediate_result.nit: problem(intermediate_result.x_average)[0]}
        ),
        callback_at=T.tolist(),
    )
    assert result.nit == T[-1]
    assert slope(T, [gaps[t] for t in T]) <= -1.9


def test_non_smooth_rate():
    problem = PROBLEMS["not smooth"]
    minimum = problem(problem.minimiser)[0]
    T = np.unique(np.geomspace(30, 3000, 12).astype(int))
    gaps = {}
    ag.minimize(
        problem,
        np.zeros(5),
        max_iter=int(T[-1]),
        callback=lambda intermediate_result: gaps.update(
            {intermediate_result.nit: problem(intermediate_result.x_average)[0] - minimum}
        ),
        callback_at=T.tolist(),
    )
    assert slope(T, [gaps[t] for t in T]) <= -0.5


@pytest.mark.parametrize("name", PROBLEMS)
def test_reaches_the_minimum_of_other_solvers(name):
    problem = PROBLEMS[name]
    minimum = problem(problem.minimiser)[0]
    result = ag.minimize(problem, np.zeros(problem.A.shape[1]), max_iter=3000)
    accuracy = 1e-3 if name == "not smooth" else 1e-9
    assert minimum - 1e-12 <= result.fun <= minimum + accuracy * (1 + minimum)
    assert result.lower_bound <= minimum + 1e-12
    assert np.linalg.norm(problem.minimiser) <= result.certified_radius < np.inf


@pytest.mark.parametrize("start", [0.0, 1e4, -1e4])
def test_a_far_start_costs_little(start):
    problem = PROBLEMS["smooth"]
    minimum = problem(problem.minimiser)[0]
    calls = []
    for x0 in (np.zeros(8), np.full(8, start)):
        result = ag.minimize(problem, x0, max_iter=5000, tol=1e-9)
        assert result.success
        assert result.fun - minimum <= 1e-9
        calls.append(result.nfev)
    assert calls[1] <= 3 * calls[0]


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_noise_does_not_make_it_diverge(scale, batch_size):
    rng = np.random.default_rng(7)
    X = scale * rng.standard_normal((200, 10))
    y = X @ rng.standard_normal(10) / scale + 0.1 * rng.standard_normal(200)
    model = ag.LinearModel(X, y, loss="squared")
    minimum = model.value(np.linalg.lstsq(X, y)[0])
    start = model.value(np.zeros(10))
    for seed in range(5):
        epochs = 20 * 200 // batch_size
        result = ag.minimize(model, batch_size=batch_size, rng=seed, max_iter=epochs)
        assert result.fun - minimum <= 0.01 * (start - minimum)


def test_noisy_gradients_of_a_function():
    """Without values there is no probe: the radius climbs from 1e-6."""
    problem = PROBLEMS["smooth"]
    rng = np.random.default_rng(3)
    result = ag.minimize(
        None,
        np.zeros(8),
        jac=lambda x: problem.gradient(x) + 0.1 * rng.standard_normal(8),
        exact=False,
        max_iter=3000,
    )
    minimum, start = problem.value(problem.minimiser), problem.value(np.zeros(8))
    assert problem.value(result.x) - minimum <= 0.02 * (start - minimum)
    assert result.gap == np.inf
    assert result.certified_radius == 0


def test_a_box_is_respected_and_solved():
    problem = LeastSquares.random(80, 10, 9)
    box = ag.Box(np.full(10, -0.2), np.full(10, 0.2))
    expected = lsq_linear(problem.A, problem.b, (-0.2, 0.2), tol=1e-14).x
    result = ag.minimize(problem, np.zeros(10), feasible_set=box, tol=1e-10)
    assert result.success
    assert box.contains(result.x)
    assert abs(result.fun - problem.value(expected)) <= 1e-10
    assert result.certified_radius == np.inf


def test_a_huge_box_costs_little():
    problem = LeastSquares.random(80, 10, 9)
    loose = ag.Box(np.full(10, -1e6), np.full(10, 0.2))
    tight = ag.Box(np.full(10, -3.0), np.full(10, 0.2))
    calls = [
        ag.minimize(problem, np.zeros(10), feasible_set=chosen, max_iter=300).nfev
        for chosen in (loose, tight)
    ]
    assert calls[0] == calls[1]
    expected = lsq_linear(problem.A, problem.b, (-1e6, 0.2), tol=1e-14).x
    result = ag.minimize(problem, np.zeros(10), feasible_set=loose, max_iter=300)
    assert result.fun - problem.value(expected) <= 1e-9


def test_the_cap_of_an_l2_term():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 5)), rng.choice([-1.0, 1.0], 100)
    model = ag.LinearModel(X, y, l2=0.1)
    result = ag.minimize(model, tol=1e-9)
    assert result.success
    assert result.certified_radius == np.inf
    assert np.linalg.norm(result.x) <= model.distance_bound(np.zeros(5))


class TestProbe:
    def probe(self, fun, x0, smallest=1e-6):
        oracle = oracle_of(fun)
        start = oracle(x0)
        direction = start.gradient / np.linalg.norm(start.gradient)
        search = Probe(start, direction, oracle, lambda reach: x0 - reach * direction)
        return search.radius(smallest), search.calls

    @pytest.mark.parametrize("distance", [1e-4, 1.0, 1e3, 1e8])
    def test_a_parabola_takes_three_calls_or_so(self, distance):
        target = distance * np.array([0.6, 0.8])
        radius, calls = self.probe(
            lambda x: (0.5 * float((x - target) @ (x - target)), x - target), np.zeros(2)
        )
        assert distance / 10 <= radius <= 1.001 * distance
        assert calls <= 5

    @pytest.mark.parametrize("distance", [1e-3, 1.0, 1e6])
    def test_a_cone_is_pinned_down_to_a_factor_of_ten(self, distance):
        target = distance * np.array([0.6, 0.8])

        def cone(x):
            norm = float(np.linalg.norm(x - target))
            return norm, (x - target) / (norm or 1.0)

        radius, calls = self.probe(cone, np.zeros(2))
        assert distance / 10.1 <= radius <= 2 * distance
        assert calls <= 16

    def test_a_linear_function_ends_it(self):
        radius, calls = self.probe(lambda x: (float(x.sum()), np.ones(2)), np.zeros(2))
        assert radius >= 1e20
        assert calls <= 40

    def test_beyond_the_domain_counts_as_a_rise(self):
        def logarithm(x):
            if x[0] <= 0:
                raise NonFiniteError("outside")
            return float(x[0] - np.log(x[0])), np.array([1 - 1 / x[0]])

        radius, _ = self.probe(logarithm, np.array([5.0]))
        assert 0.1 <= radius <= 5

    def test_a_tiny_valley_keeps_the_smallest_radius(self):
        radius, calls = self.probe(
            lambda x: (1e20 * float(x @ x), 2e20 * x), np.array([1e-9]), smallest=1e-6
        )
        assert (radius, calls) == (1e-6, 1)

    def test_it_is_part_of_the_first_step_and_counted(self):
        problem = PROBLEMS["smooth"]
        seen = []

        def counted(x):
            seen.append(x)
            return problem(x)

        result = ag.minimize(counted, np.zeros(8), max_iter=1)
        assert result.nfev == len(seen)
        assert 3 <= len(seen) <= 6
        told = ag.minimize(problem, np.zeros(8), max_iter=1, initial_radius=0.5)
        assert told.nfev == 1

    def test_resuming_does_not_probe_again(self, tmp_path):
        problem = PROBLEMS["smooth"]
        whole = ag.minimize(problem, np.zeros(8), max_iter=30)
        ag.minimize(problem, np.zeros(8), max_iter=10, checkpoint=tmp_path / "run")
        resumed = ag.minimize(problem, np.zeros(8), max_iter=30, resume=tmp_path / "run")
        assert resumed.nfev == whole.nfev
        np.testing.assert_array_equal(resumed.x, whole.x)
        assert (resumed.lower_bound, resumed.certified_radius) == (
            whole.lower_bound,
            whole.certified_radius,
        )


def test_a_guess_that_is_too_small_is_found_out():
    """The function falls on far beyond the distance travelled: no false proof."""
    scales = np.array([1.0, 1e-4])

    def valley(x):
        return 0.5 * float(scales @ x**2), scales * x

    result = ag.minimize(valley, np.array([1.0, 1000.0]), tol=1e-2, max_iter=20_000)
    assert result.success
    assert result.fun <= 1e-2 * (1 + 1e-9)
    assert result.certified_radius >= 1000


def test_the_message_states_the_radius():
    problem = PROBLEMS["smooth"]
    result = ag.minimize(problem, np.zeros(8), tol=1e-6)
    assert f"within {result.certified_radius:.3g} of x0" in result.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"initial_radius": 0.0}, "initial_radius must be"),
        ({"initial_radius": np.nan}, "initial_radius must be"),
        ({"largest_radius": -1.0}, "largest_radius must be"),
    ],
)
def test_bad_parameters(fields, message):
    with pytest.raises(ValueError, match=message):
        ag.DistanceFreeAcceleGrad(**fields)


def test_the_rule_is_immutable_and_pure():
    problem = PROBLEMS["smooth"]
    rule = ag.DistanceFreeAcceleGrad()
    with pytest.raises(FrozenInstanceError):
        rule.probe = True
    state = rule.init(np.ones(8))
    before = [np.array(part) for part in state]
    rule.update(state, problem.gradient(rule.query(state)))
    for old, part in zip(before, state, strict=True):
        np.testing.assert_array_equal(old, part)


def test_zero_gradient_at_the_start():
    result = ag.minimize(lambda x: (float(x @ x), 2 * x), np.zeros(3))
    assert result.status == ag.Status.STATIONARY
    assert (result.nit, result.fun) == (1, 0.0)
