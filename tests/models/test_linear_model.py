"""Linear models against plain loops, trusted solvers and the theory of duality."""

import math
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize, minimize_scalar

from accelegrad import LinearModel, kernels
from accelegrad.models.losses import make_loss

Q, EPS, DELTA = 0.3, 0.25, 0.8
EXTRAS = {"quantile": Q, "epsilon": EPS, "delta": DELTA}
CLASSIFICATION = ["logistic", "hinge", "squared_hinge", "modified_huber"]
SMOOTH = [
    *("logistic", "squared_hinge", "modified_huber"),
    *("squared", "huber", "squared_epsilon_insensitive"),
]
KINKED = ["hinge", "absolute", "quantile", "epsilon_insensitive"]
LOSSES = SMOOTH + KINKED
FORMATS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_matrix,
}


def data(loss, n=23, d=5, seed=0, dtype=np.float64):
    """Return a matrix with some zeros (and an empty row) and targets that suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[3] = 0.0
    noisy = X @ rng.normal(size=d) + 0.7 * rng.normal(size=n) + 0.3
    y = np.where(noisy > 0, 1.0, -1.0) if loss in CLASSIFICATION else noisy
    return X.astype(dtype), y


def plain(loss, X, y, w, l2=0.0, intercept=False, weights=None):
    """Return value and gradient by a loop over rows; test_losses.py has the losses' formulas."""
    n, d = X.shape
    shares = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    law, value, gradient = make_loss(loss, **EXTRAS), 0.0, np.zeros(d + intercept)
    for row, target, share in zip(X.astype(float), y, shares, strict=True):
        row = np.append(row, [1.0] * intercept)
        m = float(row @ w)
        value += share * float(law.value(m, target))
        gradient += share * float(law.derivative(m, target)) * row
    gradient[:d] += l2 * w[:d]
    return value + l2 / 2.0 * float(w[:d] @ w[:d]), gradient


def settings_grid():
    weights = np.random.default_rng(7).integers(0, 4, 23).astype(float)
    for l2 in (0.0, 0.3):
        for intercept in (False, True):
            for weight in (None, weights):
                yield {"l2": l2, "fit_intercept": intercept, "sample_weight": weight}


def best(model):
    """Return the minimiser of a smooth model, by SciPy."""
    w, options = np.zeros(model.n_parameters), {"gtol": 1e-9, "maxiter": 5000}
    return minimize(model.value_and_gradient, w, jac=True, method="BFGS", options=options).x


def best_kinked(loss, X, y, l2, intercept):
    """Return the minimiser for a loss with kinks: a quadratic program over (w, costs), by SLSQP."""
    pieces = {
        "hinge": lambda t: [(0.0, 0.0), (-t, 1.0)],
        "absolute": lambda t: [(1.0, -t), (-1.0, t)],
        "quantile": lambda t: [(-Q, Q * t), (1.0 - Q, -(1.0 - Q) * t)],
        "epsilon_insensitive": lambda t: [(0.0, 0.0), (1.0, -t - EPS), (-1.0, t - EPS)],
    }[loss]
    n, d = X.shape
    A = np.column_stack([X, np.ones(n)]) if intercept else X
    k = A.shape[1]
    rows, offsets = [], []
    for i in range(n):
        for slope, offset in pieces(float(y[i])):
            rows.append(np.concatenate([-slope * A[i], np.eye(n)[i]]))
            offsets.append(-offset)
    G, h = np.array(rows), np.array(offsets)
    penalised = np.concatenate([np.full(d, l2), np.zeros(k - d + n)])
    linear = np.concatenate([np.zeros(k), np.full(n, 1.0 / n)])
    found = minimize(
        lambda v: 0.5 * penalised @ v**2 + linear @ v,
        np.concatenate([np.zeros(k), np.full(n, 10.0)]),
        jac=lambda v: penalised * v + linear,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: G @ v + h, "jac": lambda v: G},
        options={"ftol": 1e-12, "maxiter": 2000},
    )
    # 8: rounding leaves no descent, which happens at the minimiser; the tests' tolerances tell.
    assert found.status in (0, 8), found.message
    w = found.x[:k]
    return w, plain(loss, X, y, w, l2, intercept)[0]


# Values and gradients


@pytest.mark.parametrize(
    ("loss", "form", "dtype"),
    [(loss, "C", np.float64) for loss in LOSSES]
    + [("huber", form, dtype) for form in FORMATS for dtype in (np.float32, np.float64)],
)
def test_value_and_gradient_are_those_of_plain_loops(loss, form, dtype):
    X, y = data(loss, dtype=dtype)
    tolerance = {"rtol": 0, "atol": 1e-14}  # float32 data too are summed in float64
    for options in settings_grid():
        model = LinearModel(FORMATS[form](X), y, loss, **options, **EXTRAS)
        w = np.random.default_rng(3).normal(size=model.n_parameters)
        value, gradient = plain(
            loss, X, y, w, options["l2"], options["fit_intercept"], options["sample_weight"]
        )
        assert model.dtype == dtype
        np.testing.assert_allclose(model.value(w), value, **tolerance)
        np.testing.assert_allclose(model.gradient(w), gradient, **tolerance)
        both = model.value_and_gradient(w)
        at = model.at(w)
        assert both[0] == at.value == model.value(w)
        np.testing.assert_array_equal(both[1], at.gradient)
        np.testing.assert_array_equal(model.gradient(w), at.gradient)
        assert type(at.value) is float
        assert at.gradient.dtype == at.margins.dtype == at.derivatives.dtype == np.float64


@pytest.mark.parametrize("loss", ["logistic", "absolute"])
def test_another_l2_term_loss_or_targets_make_the_model_that_is_built_anew(loss):
    X, y = data(loss)
    model = LinearModel(X, y, loss, l2=0.5, fit_intercept=True)
    w = np.random.default_rng(1).normal(size=model.n_parameters)
    model.dual_gap(w)  # what is kept for this model is not for the others
    others = [
        (model.with_l2(0.1), LinearModel(X, y, loss, l2=0.1, fit_intercept=True)),
        (model.with_targets(-y), LinearModel(X, -y, loss, l2=0.5, fit_intercept=True)),
        (
            model.with_loss(make_loss("squared")),
            LinearModel(X, y, "squared", l2=0.5, fit_intercept=True),
        ),
    ]
    for made, built in others:
        assert made.X is model.X
        assert made.value(w) == built.value(w)
        np.testing.assert_array_equal(made.gradient(w), built.gradient(w))
        assert made.dual_value(w) == built.dual_value(w)
    assert model.l2 == 0.5
    np.testing.assert_array_equal(model.y, y)
    with pytest.raises(ValueError, match="l2"):
        model.with_l2(-1.0)
    with pytest.raises(ValueError, match="y"):
        model.with_targets(y[:-1])


def test_huge_weights_do_not_overflow():
    X, y = data("squared")
    w = np.ones(5)
    huge = LinearModel(X, y, "squared", sample_weight=np.full(23, 1e308))
    assert huge.value(w) == pytest.approx(LinearModel(X, y, "squared").value(w), rel=1e-14)


def test_an_evaluation_does_not_change_with_the_callers_array():
    X, y = data("logistic")
    model = LinearModel(X, y, l2=0.5)
    w = np.ones(5)
    at = model.at(w)
    expected = model.value_and_gradient(w)
    w[:] = 7.0
    assert at.value == expected[0]
    np.testing.assert_array_equal(at.gradient, expected[1])


def test_parameters_of_other_types_are_taken():
    X, y = data("squared")
    model = LinearModel(X, y.astype(np.float32), "squared")
    expected = model.value(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert model.value([1, 2, 3, 4, 5]) == expected
    assert model.value(np.array([1, 2, 3, 4, 5], dtype=np.float32)) == expected
    integers = LinearModel(np.arange(6).reshape(3, 2), [1, -1, 1])
    assert integers.dtype == np.float64
    assert integers.y.dtype == np.float64
    assert LinearModel(X > 0, [1.0] * 23).dtype == np.float64
    assert LinearModel(sp.csr_array(X > 0), [1.0] * 23).dtype == np.float64
    assert LinearModel(X.astype(np.float16), [1.0] * 23).dtype == np.float64


# Data are kept


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_are_not_copied(dtype):
    X, y = data("logistic", dtype=dtype)
    for matrix in (X, np.asfortranarray(X), X[:, 1:4], X[2:9]):
        assert np.shares_memory(LinearModel(matrix, y[: len(matrix)]).X, matrix)
    for kind in (sp.csr_array, sp.csr_matrix):
        sparse = kind(X)
        model = LinearModel(sparse, y)
        assert np.shares_memory(model.X.data, sparse.data)
        assert np.shares_memory(model.X.indices, sparse.indices)
        assert np.shares_memory(model.X.indptr, sparse.indptr)
        assert model.X.dtype == dtype


@pytest.mark.parametrize("mode", ["never", "always"])
def test_sparse_rows_of_any_kind(mode):
    X, y = data("logistic")
    cases = [(sp.csr_array((2, 5)), [1, -1])]  # without entries
    for types in ((np.int32, np.int64), (np.int64, np.int32), (np.int64, np.int64)):
        other = sp.csr_array(X)
        other.indices, other.indptr = map(np.ndarray.astype, (other.indices, other.indptr), types)
        assert LinearModel(other, y).X.indices.dtype == types[0]
        cases.append((other, y))
    # One row with a column twice and unsorted columns.
    untidy = np.array([1.0, 2.0, 3.0, 4.0]), np.array([4, 1, 4, 0]), np.array([0, 3, 4])
    cases.append((sp.csr_array(untidy, shape=(2, 5)), [1, -1]))
    w = np.random.default_rng(8).normal(size=6)
    for sparse, labels in cases:
        own = {"l2": 0.1, "fit_intercept": True}
        model = LinearModel(sparse, labels, **own)
        dense = LinearModel(sparse.toarray(), labels, **own)
        calls = [lambda m: m.value_and_gradient(w), lambda m: (m.value(w), m.gradient(w))]
        calls += [lambda m, r=r: m.batch_value_and_gradient(w, r) for r in ([0], [0, 1, 0])]
        for call in calls:
            expected = call(dense)
            with kernels.use(mode, threads=2):
                found = call(model)
            assert found[0] == pytest.approx(expected[0], rel=1e-15)
            np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-15)


# Minibatches


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["C", "F", "csr_array"])
@pytest.mark.parametrize("loss", ["logistic", "quantile"])
def test_batches_of_a_partition_average_to_the_whole(loss, form, dtype):
    X, y = data(loss, dtype=dtype)
    for options in settings_grid():
        model = LinearModel(FORMATS[form](X), y, loss, **options, **EXTRAS)
        w = np.random.default_rng(9).normal(size=model.n_parameters)
        order = np.random.default_rng(10).permutation(23)
        batches = [order[:1], order[1:4], order[4:12], order[12:]]
        parts = [model.batch_value_and_gradient(w, rows) for rows in batches]
        shares = [len(rows) / 23 for rows in batches]
        value = sum(share * part[0] for share, part in zip(shares, parts, strict=True))
        gradient = sum(share * part[1] for share, part in zip(shares, parts, strict=True))
        assert value == pytest.approx(model.value(w), rel=1e-14, abs=1e-14)
        np.testing.assert_allclose(gradient, model.gradient(w), rtol=0, atol=1e-14)
        assert parts[0][1].shape == (model.n_parameters,)
        assert parts[0][1].dtype == np.float64


@pytest.mark.parametrize("rows", [[], [[0]], [0.5], [True], 3, [-1], [23]])
def test_rows_are_a_vector_of_row_numbers(rows):
    X, y = data("logistic")
    with pytest.raises(ValueError, match=r"rows must be (a vector|row numbers from 0 to 22)"):
        LinearModel(X, y).batch_value_and_gradient(np.zeros(5), rows)


# The dual gap


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH)
def test_gap_bounds_the_true_gap_and_vanishes_at_the_optimum(loss, intercept, weighted):
    X, y = data(loss, n=60, d=4, seed=1)
    weights = np.random.default_rng(2).random(60) if weighted else None
    for l2 in (1e-3, 0.1):
        model = LinearModel(
            X, y, loss, l2=l2, fit_intercept=intercept, sample_weight=weights, **EXTRAS
        )
        w = best(model)
        optimum = model.value(w)
        assert 0.0 <= model.dual_gap(w) <= 1e-9 * max(1.0, optimum)
        assert model.dual_value(w) == model.value(w) - model.dual_gap(w)
        rng = np.random.default_rng(3)
        for scale in (1e-4, 1e-2, 1.0, 30.0):
            point = w + scale * rng.normal(size=w.size)
            true_gap = model.value(point) - optimum
            assert true_gap >= 0.0
            assert model.dual_gap(point) >= true_gap - 1e-12
            assert -1e-15 <= model.dual_value(point) <= optimum + 1e-12


@pytest.mark.parametrize("loss", SMOOTH)
def test_an_intercept_that_is_off_costs_no_more_than_its_own_loss(loss):
    X, y = data(loss, n=60, d=4, seed=1)
    model = LinearModel(X, y, loss, l2=0.05, fit_intercept=True, **EXTRAS)
    w = best(model)
    for shift in (1e-6, 1e-3, 0.1, 3.0):
        point = w + shift * np.eye(5)[-1]
        true_gap = model.value(point) - model.value(w)
        assert model.dual_gap(point) == pytest.approx(true_gap, abs=1e-11)
        # Scaling alone would not do: the bound at the slopes as they are is worse.
        scaled = model.value(point) - model.dual_value_at(model.at(point).derivatives)
        assert model.dual_gap(point) <= scaled + 1e-13
        if shift >= 0.1:
            assert model.dual_gap(point) < 0.99 * scaled


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", KINKED)
def test_dual_values_are_below_the_optimum_for_losses_with_kinks(loss, intercept):
    X, y = data(loss, n=25, d=3, seed=5)
    l2 = 0.05
    w, optimum = best_kinked(loss, X, y, l2, intercept)
    model = LinearModel(X, y, loss, l2=l2, fit_intercept=intercept, **EXTRAS)
    assert model.value(w) == pytest.approx(optimum, rel=1e-13)
    rng = np.random.default_rng(6)
    bounds = []
    for scale in (0.0, 1e-3, 0.1, 1.0, 10.0) * 4:
        point = w + scale * rng.normal(size=w.size)
        bounds.append(model.dual_value(point))
        assert model.dual_gap(point) >= model.value(point) - optimum - 1e-9
        # As good as the slopes themselves, unless an intercept is fitted first; and as the trivial
        # bound.
        slopes = model.at(point).derivatives
        if not intercept:
            assert bounds[-1] >= model.dual_value_at(slopes) - 1e-12 * model.value(point)
        assert bounds[-1] >= -1e-12
    assert max(bounds) <= optimum + 1e-9
    assert max(bounds) >= 0.3 * optimum


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@settings(derandomize=True, deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), scale=st.floats(-4, 4), l2=st.floats(-4, 2))
def test_weak_duality(loss, intercept, seed, scale, l2):
    """Every dual value is below every value, at whatever points they are taken."""
    X, y = data(loss, n=12, d=3, seed=seed)
    model = LinearModel(X, y, loss, l2=10.0**l2, fit_intercept=intercept, **EXTRAS)
    rng = np.random.default_rng(seed)
    first, second = 10.0**scale * rng.normal(size=(2, model.n_parameters))
    slopes = model.at(first).derivatives
    lowest = min(model.value(point) for point in (0.0 * first, first, second))
    # Rounding is relative to the terms of the bound, the largest of which is the value there.
    slack = 1e-12 * (1.0 + model.value(first))
    assert model.dual_value(first) <= lowest + slack
    assert model.dual_value_at(slopes) <= lowest + slack
    assert model.dual_gap(first) >= 0.0


def test_gap_without_intercept_is_the_explicit_formula_near_the_optimum():
    for loss in LOSSES:
        X, y = data(loss)
        model = LinearModel(X, y, loss, l2=0.4, sample_weight=np.arange(23.0), **EXTRAS)
        w = 0.1 * np.random.default_rng(9).normal(size=5)
        at = model.at(w)
        p = np.arange(23.0) / np.arange(23.0).sum()
        conjugates = make_loss(loss, **EXTRAS).conjugate(at.derivatives, y)
        combination = sum(p[i] * at.derivatives[i] * X[i] for i in range(23))
        level, square = -p @ conjugates, combination @ combination / (2 * 0.4)
        explicit = level - square
        # At the best multiple c of the slopes, whose conjugates are at most c times theirs. It is
        # lowered by what rounding can have added: never above the formula.
        c = min(1.0, max(level, 0.0) / (2 * square))
        bound = model.dual_value_at(at.derivatives)
        assert bound == pytest.approx(c * level - c * c * square, abs=1e-12)
        assert bound <= c * level - c * c * square
        gap = at.value - explicit
        assert at.gradient @ at.gradient / 0.8 == pytest.approx(gap, rel=1e-12, abs=1e-14)
        assert model.dual_gap(w) <= gap + 1e-13 * (1.0 + np.abs(y).max())
        assert at.dual_gap == model.dual_gap(w)
        assert at.dual_value == model.dual_value(w)


@pytest.mark.parametrize("loss", KINKED)
def test_gap_far_from_the_optimum_is_that_of_the_best_multiple_of_the_slopes(loss):
    X, y = data(loss)
    inside, whole = 0, 0
    for l2, scale in product(np.geomspace(0.02, 5.0, 12), (0.01, 0.3, 3.0)):
        model = LinearModel(X, y, loss, l2=l2, **EXTRAS)
        w = scale * np.random.default_rng(10).normal(size=5)
        slopes = model.at(w).derivatives
        # These conjugates grow in proportion to theta, so that the bound used is D itself.
        top = minimize_scalar(
            lambda c, model=model, slopes=slopes: -model.dual_value_at(c * slopes),
            bounds=(0.0, 1.0),
            method="bounded",
            options={"xatol": 1e-10},
        )
        best_value = max(-top.fun, model.dual_value_at(slopes), 0.0)
        assert model.dual_value(w) == pytest.approx(best_value, rel=1e-8, abs=1e-12)
        inside += 0.5 < top.x < 0.95
        whole += model.dual_value_at(slopes) == best_value
    assert inside
    assert whole


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e12])
@pytest.mark.parametrize("loss", LOSSES)
def test_gap_of_the_intercept_alone_is_exact(loss, size, weighted):
    """Without features the bound is the least mean loss over all intercepts, kinks or not."""
    y = np.random.default_rng(12).normal(size=10)
    y = np.where(y > -0.5, 1.0, -1.0) if loss in CLASSIFICATION else size * (y + 2.0)
    weights = np.random.default_rng(13).random(10) if weighted else None
    model = LinearModel(
        np.zeros((10, 2)), y, loss, l2=0.1, fit_intercept=True, sample_weight=weights, **EXTRAS
    )
    alone = LinearModel(np.ones((10, 1)), y, loss, sample_weight=weights, **EXTRAS)
    if loss in KINKED:
        corners = np.concatenate([y, y - EPS, y + EPS])
        least = min(alone.value([corner]) for corner in corners)
    else:
        scale = size if loss not in CLASSIFICATION else 1.0
        brackets = (-10.0 * scale, 10.0 * scale)
        root = brentq(lambda b: alone.gradient([b])[0], *brackets, xtol=1e-14, rtol=1e-15)
        least = alone.value([root])
    for b in (0.0, 0.3, -2.0):
        w = np.array([0.0, 0.0, b])
        expected = model.value(w) - least
        rounding = 1e-14 * (1.0 + model.value(w))
        assert model.dual_gap(w) == pytest.approx(expected, rel=1e-9, abs=rounding)


def test_dual_value_at_infeasible_slopes():
    X, y = data("absolute")
    model = LinearModel(X, y, "absolute", l2=0.1)
    theta = np.full(23, 0.5)
    theta[4] = 1.5
    assert model.dual_value_at(theta) == 0.0  # which losses are never below
    # A row without weight has no say.
    weights = np.ones(23)
    weights[4] = 0.0
    light = LinearModel(X, y, "absolute", l2=0.1, sample_weight=weights)
    theta_inside = np.where(np.arange(23) == 4, 0.0, theta)
    assert light.dual_value_at(theta) == light.dual_value_at(theta_inside) >= 0.0
    # With an intercept the slopes are balanced first: all of one sign become 0.
    shifted = LinearModel(X, y, "absolute", l2=0.1, fit_intercept=True)
    assert shifted.dual_value_at(np.full(23, 0.5)) == 0.0


def test_dual_needs_an_l2_term_where_there_are_few_rows():
    X, y = data("logistic")
    model = LinearModel(X[:5], y[:5])
    with pytest.raises(ValueError, match=r"dual_gap needs l2 > 0.* more rows than parameters"):
        model.dual_gap(np.zeros(5))
    with pytest.raises(ValueError, match="dual_value_at needs l2 > 0"):
        model.dual_value_at(np.zeros(5))


@pytest.mark.parametrize("loss", SMOOTH)
def test_distance_bound_holds(loss):
    X, y = data(loss)
    for l2 in (1e-3, 0.1, 10.0):
        model = LinearModel(X, y, loss, l2=l2, **EXTRAS)
        w = best(model)
        assert np.linalg.norm(w) <= model.distance_bound()
        farthest = math.sqrt(2.0 * model.value(np.zeros(5)) / l2)
        assert model.distance_bound() <= farthest * (1.0 + 1e-8)
        for x0 in (w + 1e-3, np.full(5, 3.0), np.full(5, -100.0)):
            bound = model.distance_bound(x0)
            assert np.linalg.norm(w - x0) <= bound
            assert bound <= (farthest + np.linalg.norm(x0)) * (1.0 + 1e-8)


def test_distance_bound_is_infinite_where_none_is_known():
    X, y = data("logistic")
    assert LinearModel(X, y).distance_bound() == math.inf
    assert LinearModel(X, y, l2=1.0, fit_intercept=True).distance_bound(np.zeros(6)) == math.inf
    with pytest.raises(ValueError, match="x0 must be a vector of 5 numbers"):
        LinearModel(X, y, l2=1.0).distance_bound(np.zeros(6))


# What is told about a model, and about mistakes


def test_attributes_and_repr():
    X, y = data("huber", dtype=np.float32)
    weights = np.arange(23)
    model = LinearModel(
        sp.csr_array(X), y, "huber", l2=0.25, fit_intercept=True, sample_weight=weights, delta=2
    )
    assert (model.n_samples, model.n_features, model.n_parameters) == (23, 5, 6)
    assert model.loss == make_loss("huber", delta=2.0)
    assert (model.l2, model.fit_intercept) == (0.25, True)
    np.testing.assert_array_equal(model.sample_weight, weights)
    np.testing.assert_array_equal(model.y, y)
    assert repr(model) == (
        "LinearModel(23 x 5 CSR float32, weighted, loss=Huber(delta=2.0), l2=0.25, "
        "fit_intercept=True)"
    )
    plain_model = LinearModel(X, np.sign(y))
    assert plain_model.sample_weight is None
    assert repr(plain_model) == (
        "LinearModel(23 x 5 dense float32, loss=Logistic(), l2=0, fit_intercept=False)"
    )


def bad_entry(X, row, entry):
    spoilt = X.copy()
    spoilt[row:, 2] = entry
    return spoilt


GOOD_X, GOOD_Y = data("logistic")


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.empty((0, 5)), ValueError, r"X must have at least one row .* shape is \(0, 5\)"),
        (sp.csr_array((0, 5)), ValueError, r"X must have at least one row"),
        (np.zeros((23, 2, 2)), ValueError, r"X must be two-dimensional"),
        (GOOD_X + 0j, TypeError, r"X must be real"),
        (sp.csr_array(GOOD_X + 0j), TypeError, r"X must be real"),
        (GOOD_X.astype(str), TypeError, r"X must be an array of real numbers"),
        (np.asfortranarray(bad_entry(GOOD_X, 7, np.inf)), ValueError, r"X must be .* row 7 "),
        (sp.csr_array(np.diag([1.0, 0.0, np.nan, 1.0])), ValueError, r"X must be .* row 2 "),
        (sp.csc_array(bad_entry(GOOD_X, 22, np.nan)), ValueError, r"X must be .* row 22 "),
        (bad_entry(np.zeros((3000, 800)), 2345, np.nan), ValueError, r"row 2345 "),  # many blocks
    ],
)
def test_wrong_data(X, error, message):
    with pytest.raises(error, match=message):
        LinearModel(X, np.ones(np.shape(X)[0]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"y": GOOD_Y[:-1]}, ValueError, r"y must have one entry per row of X, 23, .* has 22"),
        ({"y": GOOD_Y[:, None]}, ValueError, r"y must be one-dimensional"),
        ({"y": np.full(23, np.nan)}, ValueError, r"y must be finite, but y\[0\] is nan"),
        ({"y": ["a"] * 23}, TypeError, r"y must be an array of real numbers"),
        ({"y": GOOD_Y > 0}, ValueError, r"y must .*'logistic', but it holds 0, 1\. .*2 \* y - 1"),
        ({"y": np.arange(23)}, ValueError, r"y must .* but it holds 0, 1, 2, 3, 4, \.\.\."),
        ({"sample_weight": np.ones(22)}, ValueError, r"sample_weight must have one entry per row"),
        ({"sample_weight": np.arange(23.0) - 5}, ValueError, r"sample_weight\[0\] is -5"),
        ({"sample_weight": np.full(23, np.nan)}, ValueError, r"sample_weight must be finite"),
        ({"sample_weight": np.zeros(23)}, ValueError, r"sample_weight must have an entry > 0"),
        ({"sample_weight": "balanced"}, TypeError, r"sample_weight must be an array of real"),
        ({"l2": -1e-3}, ValueError, r"l2 must be a finite number >= 0, but it is -0.001"),
        ({"l2": None}, TypeError, r"l2 must be"),
        ({"fit_intercept": 1}, TypeError, r"fit_intercept must be True or False, not 1"),
    ],
)
def test_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        LinearModel(**{"X": GOOD_X, "y": GOOD_Y, **options})


def test_wrong_parameters():
    model = LinearModel(GOOD_X, GOOD_Y)
    for call in (model.at, lambda w: model.batch_value_and_gradient(w, [0])):
        with pytest.raises(ValueError, match=r"w must be a vector of 5 numbers .* shape is \(6,\)"):
            call(np.zeros(6))
        with pytest.raises(ValueError, match=r"w must be a vector .* shape is \(5, 1\)"):
            call(np.zeros((5, 1)))
        with pytest.raises(TypeError, match=r"w must be real"):
            call(np.zeros(5, dtype=complex))
    shifted = LinearModel(GOOD_X, GOOD_Y, fit_intercept=True)
    with pytest.raises(
        ValueError, match=r"w must be a vector of 6 numbers .* the intercept, which comes last\)"
    ):
        shifted.value(np.zeros(5))


# The same data by another loss


@pytest.mark.parametrize("loss", KINKED)
def test_a_smoothed_model_is_the_mean_of_the_envelopes(loss):
    X, y = data(loss)
    weights = np.random.default_rng(7).integers(0, 4, 23).astype(float)
    options = {"l2": 0.3, "fit_intercept": True, "sample_weight": weights}
    model = LinearModel(X, y, loss, **options, **EXTRAS)
    w = np.random.default_rng(3).normal(size=6)
    smooth = model.smoothed(0.2)
    costs = model.loss.smoothed(0.2).value(X @ w[:-1] + w[-1], y)
    expected = weights @ costs / weights.sum() + 0.15 * w[:-1] @ w[:-1]
    assert smooth.value(w) == pytest.approx(expected, rel=1e-13)
    found = minimize(smooth.value_and_gradient, w, jac=True, method="BFGS").x
    assert 0.0 <= smooth.dual_gap(found) <= 1e-6
    # What is proven of the smoothed model is proven of the model, up to the distance of both.
    assert smooth.dual_value(found) <= model.value(found)
    assert model.value(found) - smooth.value(found) <= 0.1 * model.loss.lipschitz**2


def test_wrong_losses():
    X, y = data("absolute")
    model = LinearModel(X, y, "absolute")
    with pytest.raises(TypeError, match="loss must be a Loss, such as make_loss returns, not 'hi"):
        model.with_loss("hinge")
    with pytest.raises(ValueError, match=r"y must hold the labels -1 and \+1 for the loss 'hinge'"):
        model.with_loss(make_loss("hinge"))
    with pytest.raises(ValueError, match="smoothed takes losses with kinks"):
        LinearModel(X, y, "squared").smoothed(0.1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_of_some_rows_is_that_of_these_rows_alone(sparse, weighted):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 4)), rng.choice([-1.0, 1.0], 30)
    weights = rng.integers(1, 5, size=30) if weighted else None
    X = sp.csr_matrix(X) if sparse else X
    whole = LinearModel(X, y, "logistic", l2=0.1, fit_intercept=True, sample_weight=weights)
    rows, point = np.array([3, 3, 7, 29]), rng.normal(size=5)
    chosen = None if weights is None else weights[rows]
    alone = LinearModel(
        X[rows], y[rows], "logistic", l2=0.2, fit_intercept=True, sample_weight=chosen
    )
    part = whole.of_rows(rows, 0.2)
    assert part.n_samples == 4
    assert part.value(point) == alone.value(point)
    assert (part.gradient(point) == alone.gradient(point)).all()
    assert part.dual_gap(point) == alone.dual_gap(point)
    assert whole.n_samples == 30
    assert whole.l2 == 0.1


def test_a_sparse_matrix_with_entries_outside_of_it_is_refused():
    """Compiled code would read or write there."""
    X, y = sp.random(20, 8, 0.3, format="csr", random_state=0), np.ones(20)
    for change, message in (
        (lambda X: X.indices.__setitem__(5, 8), "column numbers from 0 to 7, .* to 8"),
        (lambda X: X.indices.__setitem__(5, -1), "numbers from -1 to"),
        (lambda X: X.indptr.__setitem__(3, X.indptr[-1]), "indptr that does not fall"),
    ):
        changed = X.copy()
        change(changed)
        with pytest.raises(ValueError, match=message):
            LinearModel(changed, y)
