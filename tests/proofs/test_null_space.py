"""Bounds of linear models, mostly without an l2 term, against trusted solvers."""

import math
import re
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import linprog

import accelegrad as ag
from accelegrad import LinearModel
from accelegrad.proofs import model_dual
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import DualCertificate
from accelegrad.proofs.null_space import NullSpace, obstacle
from row_sums import CLASSIFICATION, FORMS, KINKED, SMOOTH, best, data, model_of, weights_with_zeros

SHIFTS = (0.0, 1e-6, 1e-3, 0.1, 1.0, 30.0)

# Below the minimum, and close to it


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "l2"),
    [(loss, 0.0) for loss in SMOOTH + KINKED]
    + [(loss, l2) for loss in SMOOTH for l2 in (1e-3, 0.1)],
)
def test_bounds_are_below_the_minimum_and_reach_it(loss, l2, intercept, weighted):
    for seed, (form, dtype) in enumerate(product(FORMS, (np.float32, np.float64))):
        X, y = data(loss, 60, 4, seed, dtype)
        weights = weights_with_zeros(len(y), seed) if weighted else None
        given = {"l2": l2, "fit_intercept": intercept, "sample_weight": weights}
        model = model_of(loss, FORMS[form](X), y, **given)
        assert model.has_dual_bound
        w, rng = best(model), np.random.default_rng(seed)
        minimum = model.value(w)
        for shift in SHIFTS:
            at = model.at(w + shift * rng.normal(size=w.size))
            for bound in (at.dual_value, model.dual_value_at(at.derivatives)):
                assert 0.0 <= bound <= minimum * (1.0 + 1e-12)
            assert at.dual_gap == pytest.approx(at.value - at.dual_value, abs=1e-15 * at.value)
        # At the vertex that a linear programme finds the bound is the minimum. (Of labels, margins
        # up to 1000 are allowed for, times the rounding of the balance.)
        least = 1e-8 if loss in SMOOTH else 1e-11 if loss in CLASSIFICATION else 1e-12
        assert model.dual_gap(w) <= (1e-9 if l2 else least) * minimum
        if loss in SMOOTH:
            assert model.dual_value_at(model.at(w).derivatives) >= minimum * (1.0 - 1e-8)
        if l2 and intercept:  # one that is off costs no more than its own loss
            for shift in (1e-6, 1e-3, 0.1, 3.0):
                at = model.at(w + shift * np.eye(5)[-1])
                assert at.dual_gap == pytest.approx(at.value - minimum, abs=1e-11)
                # The slopes as they are prove less, even if one side is scaled down.
                scaled = at.value - model.dual_value_at(at.derivatives)
                assert at.dual_gap <= scaled * (1.0 if shift < 0.1 else 0.99) + 1e-13
                assert shift > 1e-6 or scaled <= 1e-4 * minimum  # one side by very little


# Slopes that are balanced


@pytest.mark.parametrize("form", FORMS)
def test_what_is_largest_imbalance_of_the_balance(form):
    X, _ = data("squared", 90, 4)
    weights = weights_with_zeros(90)
    space = NullSpace(FORMS[form](X), weights / weights.sum(), True)
    theta = np.random.default_rng(4).normal(size=90)
    assert space.largest_imbalance(theta) == np.inf
    balanced = space.project(theta)
    # Rounding is allowed for: of 90 products in each of the sums, which are added in pairs.
    assert 0.0 < space.largest_imbalance(balanced) <= 5e-15
    # A slope that is off by little more than rounding is told from one that is not.
    assert space.largest_imbalance(balanced + 1e-11) == np.inf
    assert 1e-13 <= space.largest_imbalance(balanced + 1e-13) <= 1.1e-13


def test_corrected_slopes_are_balanced_and_between_the_ends():
    found = []
    for seed in range(20):
        X, _ = data("squared", 90, 4, seed)
        space = NullSpace(X, np.full(90, 1.0 / 90.0), True)
        rng = np.random.default_rng(seed)
        theta = rng.uniform(-1.0, 1.0, 90)
        low, high = theta - rng.exponential(0.3, 90), theta + rng.exponential(0.3, 90)
        fixed = rng.random(90) < 0.3
        low, high = (np.where(fixed, theta, end) for end in (low, high))
        corrected, success = space.correct(theta, low, high)
        assert ((low <= corrected) & (corrected <= high)).all()
        np.testing.assert_array_equal(corrected[low == high], theta[low == high])
        assert (space.largest_imbalance(corrected) <= 1e-14) == success
        A = np.column_stack([X, np.ones(90)])
        ends = np.column_stack([low, high])
        possible = linprog(np.zeros(90), A_eq=A.T, b_eq=np.zeros(5), bounds=ends).success
        assert success <= possible
        found.append((success, possible))
    # Where it is possible at all it mostly succeeds.
    reached, able = np.sum(found, axis=0)
    assert 20 > able > 0
    assert reached >= 0.8 * able


# Columns that are dependent, or of all sizes


NOISE = np.random.default_rng(5).normal(size=90)
#: Awkward columns, and how closely they can be projected out.
AWKWARD = {
    "twice the same": (lambda X: np.column_stack([X, X[:, 0]]), 1e-12),
    "sum of others": (lambda X: np.column_stack([X, X.sum(axis=1)]), 1e-12),
    "constant": (lambda X: np.column_stack([X, np.full(90, 3.0)]), 1e-12),
    "zero": (lambda X: np.column_stack([X, np.zeros(90)]), 1e-12),
    "units": (lambda X: X * 10.0 ** np.linspace(-9, 9, 4), 1e-12),
    "far from 0": (lambda X: X + 1e4, 1e-9),
    "very far from 0": (lambda X: X + 1e6, 1e-7),
    "nearly the same": (lambda X: np.column_stack([X, X[:, 0] + 1e-7 * NOISE]), 1e-6),
}


@pytest.mark.parametrize("form", ["C", "csr"])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_columns(name, form):
    X, y = data("squared", 90, 4)
    change, tolerance = AWKWARD[name]
    Z = change(X)
    weights = weights_with_zeros(90) + 0.5
    space = NullSpace(FORMS[form](Z), weights / weights.sum(), True)
    # An orthonormal basis by the SVD, which knows of no Gram matrix.
    A = np.column_stack([Z, np.ones(90)])
    A = np.sqrt(weights)[:, None] * A / np.maximum(np.abs(A).max(axis=0), 1e-300)
    basis, sizes, _ = np.linalg.svd(A, full_matrices=False)
    basis = basis[:, sizes > 1e-14 * sizes[0]]
    scaled = np.sqrt(weights) * y
    residual = scaled - basis @ (basis.T @ scaled)
    assert space.rank == basis.shape[1]
    projected = np.sqrt(weights) * space.project(y)
    assert_allclose(projected, residual, rtol=0, atol=tolerance * np.abs(y).max())
    minimum = 0.5 * residual @ residual / weights.sum()
    model = LinearModel(FORMS[form](Z), y, "squared", fit_intercept=True, sample_weight=weights)
    bound = model.dual_value_at(-y)
    assert minimum * (1.0 - 100.0 * tolerance) <= bound <= minimum * (1.0 + 1e-13)


# Where the minimum is 0


# Cost, and where there is no bound


def test_the_null_space_is_found_at_first_use_and_once(monkeypatch):
    made = []
    monkeypatch.setattr(model_dual, "NullSpace", lambda *given: made.append(1) or NullSpace(*given))
    model = LinearModel(*data("squared"), "squared")
    assert model.has_dual_bound
    assert not made
    for _ in range(3):
        model.dual_gap(np.ones(5))
        model.dual_value_at(np.ones(23))
    assert len(made) == 1


def test_costly_bounds_come_at_ever_rarer_steps():
    model, asked = LinearModel(*data("squared"), "squared", l2=0.1), []
    certificate = DualCertificate(model_dual.ModelDual(model, Terms.of(model, None)))
    for step in range(1000):
        late = SimpleNamespace(dual_value=None, late_bound=lambda t=step: asked.append(t) or 0.0)
        certificate.add(late, 0.0)
    waits = np.diff(asked)
    assert waits[0] == model_dual.PATIENCE
    np.testing.assert_allclose(waits[-5:], model_dual.SPACING * np.array(asked[-6:-1]), atol=1)


@pytest.mark.parametrize(
    ("X", "n_parameters", "sizes", "reason"),
    [
        (np.zeros((6, 5)), 5, 1.0, None),
        (np.zeros((6, 5)), 6, 1.0, "more rows than parameters, but there are 6 and 6"),
        (np.zeros((6, 5)), 5, 1e-200, "overflow or vanish"),
        (np.zeros((6, 5)), 5, 1e200, "overflow or vanish"),
        (sp.csr_array((2000, 1000)), 1000, 1.0, None),
        (sp.csr_array((2000, 1000)), 1001, 1.0, "at most 1000 parameters, but there are 1001"),
        (sp.csr_array((10**6, 100)), 100, 1.0, None),
        (sp.csr_array((10**6, 1000)), 1000, 1.0, "would take 1e[+]12"),
        # Dense data of any number of rows, if the Gram matrix is but some dozens of gradients.
        (np.broadcast_to(0.0, (10**8, 500)), 500, 1.0, None),
    ],
)
def test_where_it_is_worthwhile(X, n_parameters, sizes, reason):
    found = obstacle(X, n_parameters, np.array([1.0, 0.0, sizes]))
    assert found is None if reason is None else re.search(reason, found)


def test_errors_say_why_there_is_no_bound():
    y = np.ones(5)
    narrow, wide = np.eye(5), np.ones((5, 1001))
    for X, reason in ((narrow, "more rows than parameters"), (wide, "at most 1000 parameters")):
        model = LinearModel(X, y, "squared")
        assert not model.has_dual_bound
        assert LinearModel(X, y, "squared", l2=0.1).has_dual_bound
        with pytest.raises(ValueError, match=f"dual_gap needs l2 > 0.*{reason}"):
            model.dual_gap(np.zeros(X.shape[1]))
        with pytest.raises(ValueError, match=f"dual_value_at needs l2 > 0.*{reason}"):
            model.dual_value_at(np.zeros(5))
    model = LinearModel(np.ones((5, 1)), y, "squared")
    with pytest.raises(ValueError, match="derivatives must have one entry per row"):
        model.dual_value_at(np.zeros(4))
    with pytest.raises(ValueError, match="derivatives must be finite"):
        model.dual_value_at(np.full(5, np.nan))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gram_matrix_that_is_none_ends_the_search(bad):
    """As after an overflow: there is no bound then, and no error."""
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(20, 3)), rng.uniform(-0.5, 0.5, 20)
    low, high = -np.ones(20), np.ones(20)
    space = NullSpace(X, np.full(20, 1 / 20), False)
    assert space.correct(theta, low, high)[1]
    gram = np.eye(3)
    gram[0, 1] = gram[1, 0] = bad
    space.plain_gram = lambda weights: gram
    found, reached = space.correct(theta, low, high)
    assert not reached
    np.testing.assert_array_equal(found, theta)


# Least squares where each weight has a sign and nothing else holds it


def nonnegative(seed, *, intercept, form="C", dtype=np.float64):
    """Return a model whose columns have sizes of 1e-2 to 1e2, and the set of weights >= 0."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(20, 200)), int(rng.integers(1, 9))
    X = (rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-2, 2, columns)).astype(dtype)
    y = X @ (rng.normal(size=columns) / np.abs(X).max(0)) + rng.normal(size=rows)
    y = (y + 5.0 * intercept).astype(np.float64)
    weights = rng.random(rows) + 0.1 if seed % 2 else None
    return LinearModel(FORMS[form](X), y, "squared", fit_intercept=intercept, sample_weight=weights)


def above_zero(model):
    if not model.fit_intercept:
        return ag.NonNegative()
    lower = np.append(np.zeros(model.n_features), -np.inf)
    return ag.Box(lower, np.full(model.n_parameters, np.inf))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("more", [{}, {"form": "csr"}, {"dtype": np.float32}], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_nonnegative_least_squares_are_soon_proved_to_nine_digits(seed, more, intercept):
    """Columns that add nothing do not matter: twins, zeros, and constant ones beside an intercept."""
    model = nonnegative(seed, intercept=intercept, **more)
    X = model.X.toarray() if sp.issparse(model.X) else model.X
    nothing = np.full((model.n_samples, 3), [0.0, 3.7, 0.1])[:, : 1 + 2 * intercept]
    options = {"fit_intercept": intercept, "sample_weight": model.sample_weight}
    X = FORMS[more.get("form", "C")](np.hstack([X, X[:, :1], nothing]))
    for given in (model, LinearModel(X, model.y, "squared", **options)):
        result = ag.minimize(given, feasible_set=above_zero(given), rtol=1e-9)
        assert result.success
        assert (result.method, result.certified_radius) == ("proximal-newton", math.inf)
        assert given is not model or result.nit <= 2


def test_columns_that_cancel_have_no_such_bound():
    model = nonnegative(1, intercept=False)
    both = LinearModel(np.hstack([model.X, -model.X]), model.y, "squared")
    assert not both.dual_with(Terms.of(both, None, ag.NonNegative())).has_only_signs
    groups = np.eye(3)[np.arange(model.n_samples) % 3]  # their sum is what an intercept adds
    model = LinearModel(groups, model.y, "squared", fit_intercept=True)
    assert not model.dual_with(Terms.of(model, None, above_zero(model))).has_only_signs
    assert ag.minimize(model, feasible_set=above_zero(model), max_iter=3).method == "accelegrad"
