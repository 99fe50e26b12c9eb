"""AcceleGrad without a diameter: against its transcription, by its rate, against other solvers."""

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.models import scaling
from accelegrad.models.sampling import BatchSampler
from accelegrad.models.scaling import column_scaling, near_start
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance import Probe
from accelegrad.run.oracle import MinibatchOracle
from stepping import Inexact, oracle_of, run
from toys import LeastSquares, largest_of

PROBLEM = LeastSquares.random(60, 8, 0)
BOX = ag.Box(np.full(8, -0.3), np.full(8, 0.3))


def test_a_term_pulls_where_the_gradient_is_zero():
    """||x - 1||^2 / 2 + 0.3 ||x||_1 from 1, where the function's own gradient vanishes."""
    rule = ag.DistanceFreeAcceleGrad(initial_radius=0.01, prox=ag.L1(0.3).prox)
    fun = LeastSquares(np.eye(3), np.ones(3))
    for oracle in (oracle_of(fun), Inexact(fun.gradient)):
        state = run(rule, np.ones(3), oracle, 300)[-1]
        np.testing.assert_allclose(rule.last(state), 0.7, atol=1e-6)


def test_without_project_y_a_set_limits_z_beside_a_term_too():
    rule = ag.DistanceFreeAcceleGrad(
        initial_radius=1.0, project=BOX.project, project_y=False, prox=ag.L1(0.01).prox
    )
    states = run(rule, np.zeros(8), oracle_of(PROBLEM), 30)
    assert all(BOX.contains(state.mirror_point) for state in states)
    assert not BOX.contains(rule.last(states[-1]))


def test_rounding_in_a_corner_proves_nothing():
    """A projection that gives the corner back but for rounding is no step, whatever the noise."""
    corner = np.array([0.1, 0.7])

    def project(x):
        return np.maximum(x, corner) * (1 + 1e-16)

    rule = ag.DistanceFreeAcceleGrad(initial_radius=1e-3, project=project)
    state = rule.init(corner)
    rng = np.random.default_rng(4)
    for _ in range(200):
        state = rule.update(state, np.ones(2) + 0.5 * rng.standard_normal(2))
    assert state.radius == 1e-3


@pytest.mark.parametrize(("scale", "batch_size"), [(1e-6, 1), (1e6, 16)])
def test_noise_does_not_make_it_diverge(scale, batch_size):
    rng = np.random.default_rng(7)
    X = scale * rng.standard_normal((200, 10))
    y = X @ rng.standard_normal(10) / scale + 0.1 * rng.standard_normal(200)
    model = ag.LinearModel(X, y, loss="squared")
    minimum = model.value(np.linalg.lstsq(X, y, rcond=None)[0])
    start = model.value(np.zeros(10))
    for seed in range(3):
        epochs = 20 * 200 // batch_size
        result = ag.minimize(model, batch_size=batch_size, rng=seed, max_iter=epochs)
        assert result.fun - minimum <= 0.01 * (start - minimum)


GOAL = np.array([0.6, 0.8])


def quadratic(curvature):
    return lambda distance: (
        lambda x: (
            0.5 * curvature * float((x - distance * GOAL) @ (x - distance * GOAL)),
            curvature * (x - distance * GOAL),
        )
    )


def cone(distance):
    def fun(x):
        norm = float(np.linalg.norm(x - distance * GOAL))
        return norm, (x - distance * GOAL) / (norm or 1.0)

    return fun


def linear(_):
    return lambda x: (float(x.sum()), np.ones(2))


def falling(_):
    return lambda x: (float(np.exp(-x[0])), np.array([-np.exp(-x[0]), 0.0]))


def kink(at):
    return lambda x: (2 + float(np.abs(x - at).sum()), np.ones(2))


@pytest.mark.parametrize(
    ("function", "distance", "low", "high", "most_calls"),
    [
        *((quadratic(1.0), distance, 0.1, 1.001, 5) for distance in (1e-4, 1.0, 1e3, 1e8)),
        *((cone, distance, 1 / 10.1, 2, 16) for distance in (2e-7, 1e-3, 1.0, 1e6)),
        # Narrower than the first trial
        *((quadratic(2e20), distance, 1 / 10.1, 2, 10) for distance in (1e-9, 1e-16)),
        (linear, 1.0, 1e20, np.inf, 40),
        # As of a few rows that a line separates: their loss falls for ever, towards zero
        (falling, 1.0, 1, 10.01, 12),
        # Nothing is lower; nearer to the start rounding would decide
        (kink, 0.0, 0, 0, 5),
        (kink, 1.0, 0, 0, 5),
    ],
)
def test_how_far_the_probe_goes(function, distance, low, high, most_calls):
    x0 = np.full(2, distance) if function is kink else np.zeros(2)
    oracle = oracle_of(function(distance))
    start = oracle(x0)
    direction = start.gradient / np.linalg.norm(start.gradient)
    search = Probe(start, direction, oracle, lambda reach: x0 - reach * direction)
    assert low * distance <= search.radius(1e-6) <= high * distance
    assert search.calls <= most_calls


class Pairs:
    """An oracle whose first few pairs of samples differ about what is downhill."""

    def __init__(self, differing):
        self.differing, self.pairs = differing, 0

    def __call__(self, x):
        return KnownEvaluation(x, np.nan, x - 1)

    def frozen(self):
        self.pairs += 1
        uphill = lambda x: KnownEvaluation(x, 0.0, 1 - x)  # noqa: E731
        judge = lambda x: KnownEvaluation(x, 0.5 * float((x - 1) @ (x - 1)), x - 1)  # noqa: E731
        return uphill if self.pairs <= self.differing else judge, judge


@pytest.mark.parametrize(
    "kind", [ag.DistanceFreeAcceleGrad, ag.DoG, ag.DistanceFreeDiagonalAcceleGrad]
)
def test_more_samples_are_drawn_while_two_differ(kind):
    rule, x0 = kind(probe=True), np.zeros(4)
    for differing in (0, 3):
        oracle = Pairs(differing)
        state, _ = rule.prepared(rule.init(x0), oracle)
        assert oracle.pairs == 2 * differing + 1  # until the mean of the guides is downhill
        assert state.radius == pytest.approx(0.1 * 2, rel=1e-3)  # a tenth of ||x* - x0||
    oracle = Pairs(100)
    state, _ = rule.prepared(rule.init(x0), oracle)
    assert oracle.pairs == 8
    assert state.radius == rule.init(x0).radius


@pytest.mark.parametrize(("n", "batch_size"), [(500, 1), (41, 1), (500, 32), (3, 1), (30_000, 1)])
def test_frozen_samples_are_odd_and_disjoint(n, batch_size):
    model = ag.LinearModel(np.ones((n, 1)), np.zeros(n), loss="squared")
    sampler = BatchSampler(n, batch_size, np.random.default_rng(0))
    rows = [sample.keywords["rows"] for sample in MinibatchOracle(model, sampler).frozen()]
    assert len(rows[0]) == len(rows[1])
    assert len(rows[0]) % 2 == 1
    assert min(n // 20, 1023) - 1 <= len(rows[0]) <= max(n // 20, batch_size)
    assert not set(rows[0]) & set(rows[1])


def test_two_classes_in_balance_do_not_hide_the_intercept():
    """X times 1e-6: a step that the columns ask for would send the intercept far astray."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 3))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(400) > 0.5, 1.0, -1.0)
    model = ag.LinearModel(1e-6 * X, y, fit_intercept=True)
    start = model.value(np.zeros(4))
    for seed in range(20):
        result = ag.minimize(model, batch_size=1, rng=seed, max_iter=400, scale=None)
        assert result.fun < start


def test_a_guess_that_is_too_small_is_found_out():
    """The function falls on far beyond the distance travelled: no false proof."""
    scales = np.array([1.0, 1e-4])

    def valley(x):
        return 0.5 * float(scales @ x**2), scales * x

    result = ag.minimize(valley, np.array([1.0, 1000.0]), tol=1e-2, max_iter=20_000)
    assert result.success
    assert result.fun <= 1e-2 * (1 + 1e-9)
    assert result.certified_radius >= 1000


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("block", [3, 1 << 18])
def test_rare_columns(monkeypatch, layout, block):
    """Under noise a column is scaled by its entries' size, and only a little by their number."""
    monkeypatch.setattr(scaling, "BLOCK_ENTRIES", block)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5)) * (rng.random((40, 5)) < [0.05, 0.3, 0.7, 1.0, 0.0])
    weights = rng.random(40)
    stored = X
    if layout == "sparse":
        stored = sp.csr_matrix(X + 1e-300)  # every entry is stored, and some of them are zeros
        stored.data[stored.data == 1e-300] = 0.0
    for options in ({"l2": 0.1}, {"fit_intercept": True}):
        model = ag.LinearModel(stored, np.ones(40), sample_weight=weights, **options)
        share = np.average(X != 0, axis=0, weights=weights)
        share[4] = 1.0  # without entries
        exact, noisy = column_scaling(model), column_scaling(model, noisy=True)
        np.testing.assert_allclose(noisy.scale, exact.scale * share**0.25, rtol=1e-12)
        if exact.shift is not None:
            np.testing.assert_array_equal(noisy.shift, exact.shift)


class TestNearStart:
    """An intercept that is far off is fitted before a noisy run."""

    X = np.random.default_rng(3).standard_normal((201, 3))
    Y = 100 + X @ [1.0, -2.0, 0.5] + np.random.default_rng(4).standard_normal(201)
    WEIGHTS = np.random.default_rng(5).random(201)

    def model(self, loss="absolute", y=Y):
        return ag.LinearModel(self.X, y, loss, fit_intercept=True)

    @pytest.mark.parametrize("sparse", [False, True])
    def test_it_is_the_best_constant(self, sparse):
        x0 = np.array([0.3, 0.2, -0.1, -7.0])
        rest = self.Y - self.X @ x0[:3]
        X = sp.csr_matrix(self.X) if sparse else self.X
        weighted = {"sample_weight": self.WEIGHTS}
        for loss, options, constant in (
            ("absolute", {}, np.median(rest)),
            ("squared", {}, rest.mean()),
            ("squared", weighted, np.average(rest, weights=self.WEIGHTS)),
            ("quantile", {"quantile": 0.9}, np.quantile(rest, 0.9)),
        ):
            x = near_start(ag.LinearModel(X, self.Y, loss, fit_intercept=True, **options), x0)
            np.testing.assert_array_equal(x[:3], x0[:3])
            assert x[3] == pytest.approx(constant, abs=1e-5 * np.ptp(rest))
        assert x0[3] == -7.0

    def test_of_many_rows_some_are_enough(self, monkeypatch):
        monkeypatch.setattr(scaling, "MOST_ROWS", 41)
        constant = np.median(self.Y[np.linspace(0, 200, 41).astype(int)])
        assert near_start(self.model(), np.zeros(4))[3] == pytest.approx(constant, abs=1e-4)

    def test_elsewhere_the_start_stays(self):
        x0 = np.array([0.1, 0.2, 0.3, 0.0])
        labels = np.where(self.X[:, 0] > 0.3, 1.0, -1.0)
        near = self.Y - 98  # two spreads off
        models = [
            self.model(y=near),
            self.model("logistic", labels),
            self.model("hinge", labels),
            self.model("logistic", np.ones(201)),  # which no intercept is too large for
            ag.LinearModel(self.X, self.Y, "absolute"),
        ]
        for model in models:
            start = x0[: model.n_parameters]
            assert near_start(model, start) is start
        huge = np.full(4, 1e308)
        assert near_start(self.model("squared"), huge) is huge  # nothing is known there


def highest(seed, pieces, size):
    """Return max_i (P x)_i + 0.1 ||x - g||_1: at zero all pieces meet, and none leads down."""
    rng = np.random.default_rng(seed)
    linear, g = largest_of(rng.standard_normal((pieces, size)), 0.0), rng.standard_normal(size)

    def fun(x):
        value, slope = linear(x)
        return value + 0.1 * np.abs(x - g).sum(), slope + 0.1 * np.sign(x - g)

    return fun


@pytest.mark.parametrize(("seed", "pieces", "size"), [(0, 60, 40), (1, 60, 40), (2, 30, 10)])
def test_a_start_at_a_kink_finds_its_radius(seed, pieces, size):
    """Along one subgradient nothing is lower: the radius stayed at 1e-6, and the run at its start."""
    fun, x0 = highest(seed, pieces, size), np.zeros(size)
    found = ag.minimize(fun, x0, method="accelegrad", diameter="auto", max_iter=300)
    least = ag.minimize(fun, x0, tol=1e-4).fun
    assert found.nfev <= 300 + 100
    assert found.fun - least <= 0.3 * (fun(x0)[0] - least)


def test_a_minimiser_at_a_kink_is_left_alone():
    rng = np.random.default_rng(3)
    P = rng.standard_normal((20, 5))
    P -= P.mean(axis=0)  # zero is a mean of the slopes
    found = ag.minimize(
        largest_of(P, np.full(20, -1.0)),
        np.zeros(5),
        method="accelegrad",
        diameter="auto",
        max_iter=50,
    )
    assert found.fun == 1.0
    assert found.nfev <= 50 + 30
