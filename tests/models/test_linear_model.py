"""Linear models against plain loops, trusted solvers and the theory of duality."""

import math
import re
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq

from accelegrad import LinearModel, kernels
from accelegrad.models.losses import make_loss
from row_sums import (
    CLASSIFICATION,
    EPS,
    EXTRAS,
    KINKED,
    LOSSES,
    SMOOTH,
    best,
    data,
    model_of,
    weights_with_zeros,
)

FORMATS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_matrix,
}
#: Every combination of an l2 term, an intercept and weights.
GRID = [
    {"l2": l2, "fit_intercept": intercept, "sample_weight": weights}
    for l2, intercept, weights in product((0.0, 0.3), (False, True), (None, weights_with_zeros(23)))
]


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


@pytest.mark.parametrize(
    ("loss", "form", "dtype"),
    [(loss, "C", np.float64) for loss in LOSSES]
    + [("huber", form, dtype) for form in FORMATS for dtype in (np.float32, np.float64)],
)
def test_value_and_gradient_are_those_of_plain_loops(loss, form, dtype):
    X, y = data(loss, dtype=dtype)
    tolerance = {"rtol": 0, "atol": 1e-14}  # float32 data too are summed in float64
    for options in GRID:
        model = model_of(loss, FORMATS[form](X), y, **options)
        w = np.random.default_rng(3).normal(size=model.n_parameters)
        value, gradient = plain(loss, X, y, w, *options.values())
        assert model.dtype == dtype
        np.testing.assert_allclose(model.value(w), value, **tolerance)
        np.testing.assert_allclose(model.gradient(w), gradient, **tolerance)
        both, at = model.value_and_gradient(w), model.at(w)
        assert both[0] == at.value == model.value(w)
        np.testing.assert_array_equal(both[1], at.gradient)
        np.testing.assert_array_equal(model.gradient(w), at.gradient)
        assert type(at.value) is float
        assert at.gradient.dtype == at.margins.dtype == at.derivatives.dtype == np.float64


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["C", "csr_matrix"])
@pytest.mark.parametrize("loss", ["logistic", "absolute"])
def test_a_model_made_from_another_is_the_one_that_is_built_anew(loss, form, weighted):
    X, y = data(loss)
    X, rows = FORMATS[form](X), np.array([3, 3, 7, 20])
    weights = np.arange(1.0, 24.0) if weighted else None
    given = {"l2": 0.5, "fit_intercept": True, "sample_weight": weights}
    model = LinearModel(X, y, loss, **given)
    w = np.random.default_rng(1).normal(size=model.n_parameters)
    model.dual_gap(w)  # what is kept for this model is not for the others
    of_rows = {"l2": 0.2, "sample_weight": weights[rows] if weighted else None}
    others = [
        (model.with_l2(0.1), LinearModel(X, y, loss, **given | {"l2": 0.1})),
        (model.with_targets(-y), LinearModel(X, -y, loss, **given)),
        (model.with_loss(make_loss("squared")), LinearModel(X, y, "squared", **given)),
        (model.of_columns([1, 4], 0.2), LinearModel(X[:, [1, 4]], y, loss, **given | {"l2": 0.2})),
        (model.of_rows(rows, 0.2), LinearModel(X[rows], y[rows], loss, **given | of_rows)),
    ]
    for made, built in others:
        assert made.X.shape != X.shape or made.X is model.X
        v = w[: made.n_parameters]
        assert made.value(v) == built.value(v)
        np.testing.assert_array_equal(made.gradient(v), built.gradient(v))
        assert made.dual_value(v) == built.dual_value(v)
    assert (model.l2, model.n_samples) == (0.5, 23)
    np.testing.assert_array_equal(model.y, y)
    with pytest.raises(ValueError, match="l2"):
        model.with_l2(-1.0)
    with pytest.raises(ValueError, match="y"):
        model.with_targets(y[:-1])


def test_an_evaluation_does_not_change_with_the_callers_array():
    model = LinearModel(*data("logistic"), l2=0.5)
    w = np.ones(5)
    at, expected = model.at(w), model.value_and_gradient(w)
    w[:] = 7.0
    assert at.value == expected[0]
    np.testing.assert_array_equal(at.gradient, expected[1])


def test_repr():
    X, y = data("huber", dtype=np.float32)
    given = {"l2": 0.25, "fit_intercept": True, "sample_weight": np.arange(23)}
    assert repr(LinearModel(sp.csr_array(X), y, "huber", delta=2, **given)) == (
        "LinearModel(23 x 5 CSR float32, weighted, loss=Huber(delta=2.0), l2=0.25, "
        "fit_intercept=True)"
    )
    assert repr(LinearModel(X, np.sign(y))) == (
        "LinearModel(23 x 5 dense float32, loss=Logistic(), l2=0, fit_intercept=False)"
    )


def test_parameters_of_other_types_and_huge_weights_are_taken():
    X, y = data("squared")
    w = np.ones(5)
    huge = LinearModel(X, y, "squared", sample_weight=np.full(23, 1e308))
    assert huge.value(w) == pytest.approx(LinearModel(X, y, "squared").value(w), rel=1e-14)
    model = LinearModel(X, y.astype(np.float32), "squared")
    numbers = [1, 2, 3, 4, 5]
    assert model.y.dtype == np.float64
    expected = model.value(np.array(numbers, dtype=np.float64))
    assert model.value(numbers) == model.value(np.array(numbers, dtype=np.float32)) == expected
    for other in (X.astype(int), X > 0, sp.csr_array(X > 0), X.astype(np.float16)):
        assert LinearModel(other, [1] * 23).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_are_not_copied(dtype):
    X, y = data("logistic", dtype=dtype)
    for matrix in (X, np.asfortranarray(X), X[:, 1:4], X[2:9]):
        assert np.shares_memory(LinearModel(matrix, y[: len(matrix)]).X, matrix)
    for kind in (sp.csr_array, sp.csr_matrix):
        sparse = kind(X)
        model = LinearModel(sparse, y)
        for part in ("data", "indices", "indptr"):
            assert np.shares_memory(getattr(model.X, part), getattr(sparse, part))
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
        opposite = -np.asarray(labels)
        for call, y in product(calls, (labels, opposite)):  # the data of kernels hold the targets
            expected = call(dense.with_targets(y))
            with kernels.use(mode, threads=2):
                call(model)
                found = call(model.with_targets(y))
            assert found[0] == pytest.approx(expected[0], rel=1e-15)
            np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_gap_without_intercept_is_the_explicit_formula(loss):
    """At the best multiple c of the slopes, whose conjugates are at most c times theirs."""
    X, y = data(loss)
    multiples = []
    for l2, scale in product((0.02, 0.4, 5.0), (0.01, 0.1, 3.0)):
        model = model_of(loss, X, y, l2=l2, sample_weight=np.arange(23.0))
        w = scale * np.random.default_rng(9).normal(size=5)
        at = model.at(w)
        p = np.arange(23.0) / np.arange(23.0).sum()
        conjugates = make_loss(loss, **EXTRAS).conjugate(at.derivatives, y)
        combination = sum(p[i] * at.derivatives[i] * X[i] for i in range(23))
        level, square = -p @ conjugates, combination @ combination / (2 * l2)
        c = min(1.0, max(level, 0.0) / (2 * square))
        multiples.append(c)
        expected = c * level - c * c * square
        for bound in (model.dual_value_at(at.derivatives), model.dual_value(w)):
            # It is lowered by what rounding can have added: never above the formula.
            assert bound <= expected
            assert bound == pytest.approx(expected, abs=1e-12 * (1.0 + at.value))
        gap = at.value - (level - square)
        assert at.gradient @ at.gradient / (2 * l2) == pytest.approx(gap, rel=1e-12, abs=1e-14)
        assert at.dual_gap == model.dual_gap(w) == at.value - at.dual_value
    assert 1.0 in multiples
    assert any(0.0 < c < 1.0 for c in multiples)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e12])
@pytest.mark.parametrize("loss", LOSSES)
def test_gap_of_the_intercept_alone_is_exact(loss, size, weighted):
    """Without features the bound is the least mean loss over all intercepts, kinks or not."""
    y = np.random.default_rng(12).normal(size=10)
    y = np.where(y > -0.5, 1.0, -1.0) if loss in CLASSIFICATION else size * (y + 2.0)
    weights = np.random.default_rng(13).random(10) if weighted else None
    zeros = np.zeros((10, 2))
    model = model_of(loss, zeros, y, l2=0.1, fit_intercept=True, sample_weight=weights)
    alone = model_of(loss, np.ones((10, 1)), y, sample_weight=weights)
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
    light = LinearModel(X, y, "absolute", l2=0.1, sample_weight=np.arange(23) != 4)
    theta_inside = np.where(np.arange(23) == 4, 0.0, theta)
    assert light.dual_value_at(theta) == light.dual_value_at(theta_inside) >= 0.0
    # With an intercept the slopes are balanced first: all of one sign become 0.
    shifted = LinearModel(X, y, "absolute", l2=0.1, fit_intercept=True)
    assert shifted.dual_value_at(np.full(23, 0.5)) == 0.0


@pytest.mark.parametrize("loss", SMOOTH)
def test_distance_bound_holds(loss):
    X, y = data(loss)
    for l2 in (1e-3, 0.1, 10.0):
        model = model_of(loss, X, y, l2=l2)
        w = best(model)
        assert np.linalg.norm(w) <= model.distance_bound()
        farthest = math.sqrt(2.0 * model.value(np.zeros(5)) / l2)
        assert model.distance_bound() <= farthest * (1.0 + 1e-8)
        for x0 in (w + 1e-3, np.full(5, 3.0), np.full(5, -100.0)):
            bound = model.distance_bound(x0)
            assert np.linalg.norm(w - x0) <= bound
            assert bound <= (farthest + np.linalg.norm(x0)) * (1.0 + 1e-8)
    for options in ({}, {"l2": 1.0, "fit_intercept": True}):
        assert model_of(loss, X, y, **options).distance_bound() == math.inf


def bad_entry(X, row, entry):
    return np.where((np.arange(len(X)) >= row)[:, None] & (np.arange(X.shape[1]) == 2), entry, X)


def bad_place(part, index, number):
    """Return a CSR matrix of 23 x 5 where compiled code would read or write outside."""
    X = sp.csr_array(GOOD_X)
    getattr(X, part)[index] = X.nnz if number is None else number
    return X


GOOD_X, GOOD_Y = data("logistic")
WRONG = [
    ({"X": np.empty((0, 5))}, r"X must have at least one row .* shape is \(0, 5\)"),
    ({"X": sp.csr_array((0, 5))}, "X must have at least one row"),
    ({"X": np.zeros((23, 2, 2))}, "X must be two-dimensional"),
    ({"X": np.asfortranarray(bad_entry(GOOD_X, 7, np.inf))}, "X must be .* row 7 "),
    ({"X": sp.csr_array(np.diag([1.0, 0.0, np.nan, 1.0]))}, "X must be .* row 2 "),
    ({"X": sp.csc_array(bad_entry(GOOD_X, 22, np.nan))}, "X must be .* row 22 "),
    ({"X": bad_entry(np.zeros((3000, 800)), 2345, np.nan)}, "row 2345 "),  # many blocks
    ({"X": bad_place("indices", 5, 5)}, "column numbers from 0 to 4, .* to 5"),
    ({"X": bad_place("indices", 5, -1)}, "numbers from -1 to"),
    ({"X": bad_place("indptr", 3, None)}, "indptr that does not fall"),
    ({"y": GOOD_Y[:-1]}, "y must have one entry per row of X, 23, .* has 22"),
    ({"y": GOOD_Y[:, None]}, "y must be one-dimensional"),
    ({"y": np.full(23, np.nan)}, r"y must be finite, but y\[0\] is nan"),
    ({"y": GOOD_Y > 0}, r"y must .*'logistic', but it holds 0, 1\. .*2 \* y - 1"),
    ({"y": np.arange(23)}, r"y must .* but it holds 0, 1, 2, 3, 4, \.\.\."),
    ({"sample_weight": np.ones(22)}, "sample_weight must have one entry per row"),
    ({"sample_weight": np.arange(23.0) - 5}, r"sample_weight\[0\] is -5"),
    ({"sample_weight": np.full(23, np.nan)}, "sample_weight must be finite"),
    ({"sample_weight": np.zeros(23)}, "sample_weight must have an entry > 0"),
    ({"l2": -1e-3}, "l2 must be a finite number >= 0, but it is -0.001"),
    ({"X": GOOD_X + 0j}, "X must be real"),
    ({"X": sp.csr_array(GOOD_X + 0j)}, "X must be real"),
    ({"X": GOOD_X.astype(str)}, "X must be an array of real numbers"),
    ({"y": ["a"] * 23}, "y must be an array of real numbers"),
    ({"sample_weight": "balanced"}, "sample_weight must be an array of real"),
    ({"l2": None}, "l2 must be"),
    ({"fit_intercept": 1}, "fit_intercept must be True or False, not 1"),
]


WRONG_ROWS = ([], [[0]], [0.5], [True], 3, [-1], [23])


def batch(rows):
    return lambda model: model.batch_value_and_gradient(np.zeros(5), rows)


def built(options):
    """Return the call that makes a model with these arguments."""
    y = np.ones(options["X"].shape[0]) if "X" in options else GOOD_Y
    return lambda _: LinearModel(**{"X": GOOD_X, "y": y, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((built(options), message) for options, message in WRONG),
        (lambda m: m.at(np.zeros(6)), r"w must be a vector of 5 numbers .* shape is \(6,\)"),
        (lambda m: m.at(np.zeros((5, 1))), r"w must be a vector .* shape is \(5, 1\)"),
        (lambda m: m.at(np.zeros(5, dtype=complex)), "w must be real"),
        (lambda m: m.batch_value_and_gradient(np.zeros(6), [0]), "w must be a vector of 5"),
        (lambda m: m.distance_bound(np.zeros(6)), "x0 must be a vector of 5 numbers"),
        *((batch(rows), "rows must be (a v|row numbers from 0 to 22)") for rows in WRONG_ROWS),
        (
            lambda m: LinearModel(m.X, m.y, fit_intercept=True).value(np.zeros(5)),
            r"w must be a vector of 6 numbers .* the intercept, which comes last\)",
        ),
        (lambda m: m.with_loss("hinge"), "loss must be a Loss, such as make_loss returns, not 'hi"),
        (
            lambda m: LinearModel(*data("absolute"), "absolute").with_loss(make_loss("hinge")),
            r"y must hold the labels -1 and \+1 for the loss 'hinge'",
        ),
        (lambda m: m.smoothed(0.1), "smoothed takes losses with kinks"),
    ],
)
def test_wrong_arguments_and_calls(call, message):
    words = ("real", "Loss", "l2 must be$", "True or False")
    error = TypeError if any(re.search(word, message) for word in words) else ValueError
    with pytest.raises(error, match=message):
        call(LinearModel(GOOD_X, GOOD_Y, l2=1.0))
