"""Standardised columns without touching the data, and rules that run in other coordinates."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

import accelegrad as ag
from accelegrad.geometry.penalties import OnLeading
from accelegrad.models import scaling
from accelegrad.models.scaling import ColumnScaling, column_scaling
from accelegrad.rules import AcceleGrad, UniversalDualGradient, UniversalGradient
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.diagonal import DistanceFreeDiagonalAcceleGrad
from accelegrad.rules.rescaled import Rescaled
from stepping import oracle_of

N, D = 60, 7


def data(seed=0, density=1.0, spread=3.0):
    """Columns from 1e-3 to 1e3 with means of their own size."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)) + rng.uniform(-2, 2, D)
    X = X * (rng.random((N, D)) < density) * 10 ** rng.uniform(-spread, spread, D)
    return X, np.where(rng.random(N) < 0.4, -1.0, 1.0), rng.exponential(size=N)


def model_of(X, y, loss="logistic", *, sparse=False, **options):
    return ag.LinearModel(sp.csr_matrix(X) if sparse else X, y, loss, **options)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("shift", [None, [3.0, -20.0, 0.0]])
def test_operations_are_those_of_one_matrix(shift, classes):
    scale, size = np.array([2.0, 0.1, 30.0]), classes * (4 if shift else 3)
    change = ColumnScaling(scale, shift, classes)
    T = np.diag(np.append(np.tile(scale, classes), np.ones(size - 3 * classes)))
    for k in range(classes if shift else 0):
        T[3 * classes + k, 3 * k : 3 * k + 3] = -scale * shift
    for u in np.random.default_rng(0).standard_normal((5, size)):
        np.testing.assert_allclose(change.apply(u), T @ u, rtol=1e-14, atol=1e-13)
        np.testing.assert_allclose(change.adjoint(u), T.T @ u, rtol=1e-14, atol=1e-13)
        np.testing.assert_allclose(change.invert(T @ u), u, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(change.invert_adjoint(T.T @ u), u, rtol=1e-13, atol=1e-13)


def test_penalties_and_boxes_keep_their_values():
    change = ColumnScaling([2.0, 0.1], [1.0, 0.0], 2)
    v, size = np.array([1.0, -2.0, 3.0, 0.5, -1.0, 4.0]), 6
    x = change.apply(v)
    term = ag.L1(0.3)
    assert change.scaled_penalty(term).value(v[:4]) == pytest.approx(term.value(x[:4]))
    whole = OnLeading(term, 4, size)
    assert change.scaled_penalty(whole).value(v) == pytest.approx(whole.value(x))
    box = ag.Box([-1.0, 0.0, -3.0, -1.0, -np.inf, 0.0], [1.0, 2.0, 0.5, 1e308, np.inf, 1.0])
    scaled = change.scaled_set(box, size)
    np.testing.assert_allclose(scaled.lower, [-0.5, 0, -1.5, -10, -np.inf, 0])
    np.testing.assert_allclose(scaled.upper, [0.5, 20, 0.25, np.inf, np.inf, 1])
    assert change.scaled_penalty(None) is change.scaled_set(None, size) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", ["C", "F", "CSR", "pieces"])
@pytest.mark.parametrize(("dtype", "block"), [(np.float64, 1 << 18), (np.float32, 21)])
def test_scales_are_those_of_scikit_learn(monkeypatch, block, dtype, layout, weighted):
    monkeypatch.setattr(scaling, "BLOCK_ENTRIES", block)
    X, y, weights = data(1, density=0.6)
    X = X.astype(dtype)
    weights = np.where(weights > 0.3, weights, 0.0) if weighted else None
    stored = np.array(X, order=layout) if layout in "CF" else sp.csr_matrix(X)
    if layout == "pieces":  # each entry in two halves, which are added first
        halves = np.repeat(stored.data / 2, 2), np.repeat(stored.indices, 2), 2 * stored.indptr
        stored = sp.csr_matrix(halves, X.shape)
    exact = X.astype(np.float64)
    scaler = StandardScaler().fit(exact, sample_weight=weights)
    shifted = ag.LinearModel(stored, y, fit_intercept=True, sample_weight=weights)
    centred = column_scaling(shifted, center=True)
    np.testing.assert_allclose(centred.scale, 1 / scaler.scale_, rtol=1e-12)
    np.testing.assert_allclose(centred.shift, scaler.mean_, rtol=1e-12)
    squares = np.average(exact**2, axis=0, weights=weights)
    plain = column_scaling(ag.LinearModel(stored, y, sample_weight=weights))
    np.testing.assert_allclose(plain.scale, squares**-0.5, rtol=1e-12)
    # The penalty counts as curvature, so that small columns are not left with one beyond all.
    penalised = column_scaling(ag.LinearModel(stored, y, sample_weight=weights, l2=0.3))
    np.testing.assert_allclose(penalised.scale, (squares + 0.3) ** -0.5, rtol=1e-12)
    assert not plain.shift.any()
    left = column_scaling(shifted, center=False)
    np.testing.assert_array_equal(left.scale, plain.scale)
    np.testing.assert_array_equal(left.shift, np.zeros(D))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_constant_empty_and_extreme_columns(sparse, weighted):
    """A sum of squares about zero would see deviations of 1e-8 times the mean in the constants."""
    rng, n = np.random.default_rng(0), 20_000
    columns = [np.full(n, 0.1), np.full(n, -1e9 / 3), np.zeros(n), 1e8 + rng.standard_normal(n)]
    shares = rng.random(n) if weighted else None
    given = {"sparse": sparse, "fit_intercept": True, "sample_weight": shares}
    change = column_scaling(model_of(np.column_stack(columns), np.ones(n), "squared", **given))
    np.testing.assert_allclose(change.scale[:3], [10, 3e-9, 1], rtol=1e-12)
    np.testing.assert_array_equal(change.shift[:3], [0, 0, 0])
    deviations = columns[3] - 1e8
    mean = np.average(deviations, weights=shares)
    variance = np.average((deviations - mean) ** 2, weights=shares)
    assert change.shift[3] == pytest.approx(1e8 + mean, rel=1e-14)
    assert change.scale[3] == pytest.approx(variance**-0.5, rel=1e-7)  # 1e8 has 1e-8 of rounding
    # Products in float32 would leave nothing of a deviation of 1e-6 times the mean.
    X = np.column_stack([1e4 + np.arange(8) * 1e-2, np.arange(8)]).astype(np.float32)
    change = column_scaling(ag.LinearModel(X, np.ones(8), "squared", fit_intercept=True))
    assert change.scale[0] == pytest.approx(1e-4, rel=1e-4)
    assert change.shift[0] == 0
    assert change.shift[1] == pytest.approx(3.5)
    column = np.linspace(1, 2, 10)
    X = np.column_stack([column * 1e200, column * 1e-200, column, 1e-310 * column])
    for intercept in (False, True):  # columns beyond the range of floats stay as they are
        change = column_scaling(ag.LinearModel(X, np.ones(10), "squared", fit_intercept=intercept))
        np.testing.assert_array_equal(change.scale[[0, 1, 3]], 1)
        assert change.scale[2] != 1


RULES = {
    "accelegrad": AcceleGrad(4.0),
    "distance-free": DistanceFreeDiagonalAcceleGrad(probe=True),
    "universal": UniversalGradient(1e-3, 0.7),
    "universal-dual": UniversalDualGradient(1e-3, 0.7),
}


# A probe finds the lengths by the change of the slope over 1e-6, to eps / 1e-6 = 2e-10 or so.
PROBED = 1e-8


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("intercept", [True, False])
def test_rescaled_is_the_rule_on_standardised_data(name, intercept):
    """Step by step: the same points, the same weights, the same predictions."""
    X, y, weights = data(3, density=0.7)
    weights = weights if intercept else None
    options = {"fit_intercept": intercept, "sample_weight": weights}
    raw = model_of(X, y, sparse=not intercept, **options)
    scaler = StandardScaler(with_mean=intercept).fit(X, sample_weight=weights)
    squares = np.average(X**2, axis=0, weights=weights)
    Z = scaler.transform(X) if intercept else X / np.sqrt(squares)
    plain, model = RULES[name], model_of(Z, y, **options)
    change = column_scaling(raw)
    rescaled = Rescaled(plain, change)
    start = np.full(raw.n_parameters, 0.1)
    a, b = plain.init(start), rescaled.init(change.apply(start))
    exact = PROBED if name == "distance-free" else 1e-10
    for t in range(100):
        there = plain.step(a, oracle_of(model.value_and_gradient))
        here = rescaled.step(b, oracle_of(raw.value_and_gradient))
        a, b = there.state, here.state
        assert here.weight == pytest.approx(there.weight, rel=exact)
        if t < 20:  # later, gradients near zero are mostly rounding
            assert a.step_size == pytest.approx(b.step_size, rel=10 * exact)
        assert here.evaluation.value == pytest.approx(there.evaluation.value, rel=exact)
        for point in ("output", "last"):
            v, x = getattr(plain, point)(a), getattr(rescaled, point)(b)
            np.testing.assert_allclose(change.invert(x), v, rtol=0, atol=exact)
            margins = X @ x[:D] + (x[-1] if intercept else 0.0)
            expected = Z @ v[:D] + (v[-1] if intercept else 0.0)
            np.testing.assert_allclose(margins, expected, rtol=0, atol=10 * exact)
        at, known = here.evaluation, there.evaluation
        np.testing.assert_allclose(change.invert(at.point), known.point, rtol=0, atol=exact)
        slope = change.adjoint(at.gradient)
        np.testing.assert_allclose(slope, known.gradient, rtol=0, atol=exact)


def test_frozen_samples_are_passed_on_in_the_right_coordinates():
    X, y, _ = data(6)
    raw = model_of(X, y)
    change, inner = column_scaling(raw), DistanceFreeDiagonalAcceleGrad(probe=True)

    def first_step(rule, model, scale):
        """Return the widths after a step, and the points at which frozen samples were asked."""
        asked = []

        def sample(x):
            asked.append(x / scale)
            return KnownEvaluation(x, *model.value_and_gradient(x))

        def noisy(x):
            return KnownEvaluation(x, np.nan, model.gradient(x))

        noisy.frozen = lambda: (sample, sample)
        return rule.step(inner.init(np.zeros(D)), noisy).state.widths, asked

    widths, asked = first_step(Rescaled(inner, change), raw, change.scale)
    expected, same = first_step(inner, model_of(X * change.scale, y), 1.0)
    np.testing.assert_allclose(widths, expected, rtol=PROBED)
    # At the lowest point along the path the slope is rounding: one may ask once more than the other.
    assert abs(len(asked) - len(same)) <= 1
    np.testing.assert_allclose(asked[: len(same)], same[: len(asked)], rtol=PROBED)
    # An oracle that cannot be frozen does not seem to be able to.
    plain = oracle_of(raw.value_and_gradient)
    assert Rescaled(inner, change).step(inner.init(np.zeros(D)), plain).state.iteration == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([1.0, 0.0],), r"scale must be > 0, but scale\[1\] is 0"),
        (([1.0, np.nan],), r"scale must be finite"),
        (([1.0], [1.0, 2.0]), "shift must have scale's length 1"),
        (([1.0], [np.inf]), "shift must be finite"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(ValueError, match=message):
        ColumnScaling(*given)
