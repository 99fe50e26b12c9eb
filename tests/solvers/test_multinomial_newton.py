"""Newton's method by conjugate gradients, and the curvature of many classes."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import minimize as scipy_minimize
from sklearn.datasets import load_digits

from accelegrad.errors import LineSearchError
from accelegrad.models.multinomial import MultinomialModel
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.sklearn import AcceleGradClassifier
from accelegrad.solvers.multinomial_newton import CurvedClasses, TruncatedNewton
from reference.truncated_newton import direction
from stepping import oracle_of


def classes_model(kind=np.asarray, *, rows=80, k=3, l2=0.05, intercept=True):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 4)) * rng.uniform(0.3, 3.0, 4)
    scores = X @ rng.standard_normal((4, k)) + rng.gumbel(size=(rows, k))
    options = {"fit_intercept": intercept, "sample_weight": rng.uniform(0.2, 2.0, rows)}
    return MultinomialModel(kind(X), scores.argmax(axis=1), k, l2=l2, **options)


def written_out(model, x):
    """The second derivatives, a row of the data at a time."""
    k, d = model.n_classes, model.n_features
    X = model.rows.X.toarray() if sp.issparse(model.rows.X) else model.rows.X
    W, b = model.split(x)
    total = np.zeros((model.n_parameters, model.n_parameters))
    for row, share in zip(X, model.rows.shares, strict=True):
        s = np.exp(W @ row + b)
        s /= s.sum()
        # How the margins of the classes depend on the parameters.
        J = np.zeros((k, model.n_parameters))
        for c in range(k):
            J[c, c * d : (c + 1) * d] = row
            if model.rows.fit_intercept:
                J[c, k * d + c] = 1.0
        total += share * J.T @ (np.diag(s) - np.outer(s, s)) @ J
    total[: k * d, : k * d] += model.l2 * np.eye(k * d)
    return total


def loss_and_l2(model, x):
    """The objective, a row and a class at a time."""
    X = model.rows.X.toarray() if sp.issparse(model.rows.X) else model.rows.X
    W, b = model.split(x)
    loss = 0.0
    for row, c, share in zip(X, model.classes, model.rows.shares, strict=True):
        margins = [math.fsum(row * weights) + shift for weights, shift in zip(W, b, strict=True)]
        loss += share * (math.log(math.fsum(math.exp(m) for m in margins)) - margins[c])
    return loss + model.l2 / 2 * math.fsum(w @ w for w in W)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_value_and_gradient(intercept, kind):
    model = classes_model(kind, intercept=intercept)
    x = np.random.default_rng(1).standard_normal(model.n_parameters)
    value, gradient = model.value_and_gradient(x)
    assert value == pytest.approx(loss_and_l2(model, x), rel=1e-12)
    steps = 1e-5 * np.eye(x.size)
    slopes = [(loss_and_l2(model, x + h) - loss_and_l2(model, x - h)) / 2e-5 for h in steps]
    assert_allclose(gradient, slopes, atol=1e-9)
    pairs = [model.batch_value_and_gradient(x, rows) for rows in np.arange(80).reshape(40, 2)]
    values, gradients = zip(*pairs, strict=True)
    assert np.mean(values) == pytest.approx(value)
    assert_allclose(np.mean(gradients, axis=0), gradient, atol=1e-12)
    assert np.isfinite(np.append(*model.value_and_gradient(1e4 * x)[::-1])).all()
    X, classes = model.rows.X, model.classes
    with pytest.raises(ValueError, match="a dual gap needs l2 > 0"):
        MultinomialDual(MultinomialModel(X, classes, 3))
    with pytest.raises(ValueError, match="classes must hold whole numbers from 0 to 1"):
        MultinomialModel(X, classes, 2)


def applied(quadratic, name, vector):
    return quadratic.vector(getattr(quadratic, name)(quadratic.arranged(vector)))


def test_directions_are_those_of_the_formulas():
    model = classes_model(intercept=False)
    rule, oracle = TruncatedNewton(CurvedClasses(model)), oracle_of(model.value_and_gradient)
    state = rule.step(rule.init(np.zeros(model.n_parameters)), oracle).state
    first = np.linalg.norm(state.gradient)
    for _ in range(4):
        x, g = state.point, state.gradient
        left = min(0.25, math.sqrt(np.linalg.norm(g) / first))
        quadratic = rule.curved.quadratic(x, 0.0)
        inverse = [applied(quadratic, "precondition", v) for v in np.eye(model.n_parameters)]
        d = direction(written_out(model, x), np.linalg.inv(inverse), g, left)
        before, state = state, rule.step(state, oracle).state
        assert_allclose(state.point, x + state.step_size * d, rtol=1e-6, atol=1e-9)
        assert abs(state.gradient @ d) <= 0.1 * abs(g @ d) * (1 + 1e-6)
        assert state.value < before.value
    for _ in range(60):
        try:
            state = rule.step(state, oracle).state
        except LineSearchError:  # rounding error allows no more
            break
    else:
        pytest.fail("there is no end")
    assert np.linalg.norm(state.gradient) <= 1e-6
    assert_allclose(rule.output(state), state.point)


class Valley:
    """A number's function of slope -1 left of 0, of 0.09 from 0.0109 on, and a parabola between."""

    def __call__(self, x):
        inside = np.clip(x[0], 0.0, 0.0109)
        value = min(x[0], 0.0) * -1.0 + 50.0 * inside**2 - inside
        return float(value + 0.09 * max(x[0] - 0.0109, 0.0)), np.array([100.0 * inside - 1.0])

    def residual(self, point, gradient):
        return float(np.linalg.norm(gradient))

    def quadratic(self, point, left_out):
        return self

    def product(self, v):
        return v.copy()

    arranged = vector = precondition = product

    def along(self, point, move):
        self.derivatives = lambda t: (float(self(point + t * move)[1] @ move), 1.0)
        return self


def test_a_flat_point_beyond_the_lowest_one_is_not_taken_if_it_is_higher():
    function = Valley()
    rule, oracle = TruncatedNewton(function), oracle_of(function)
    state = rule.step(rule.init(np.zeros(1)), oracle).state
    assert function(np.ones(1))[0] > state.value  # where Newton's step leads
    assert 0.0 < function(np.ones(1))[1][0] <= 0.1  # flat enough
    state = rule.step(state, oracle).state
    assert state.value < 0.0
    assert -0.1 <= state.gradient[0] <= 0.0


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, np.asfortranarray])
@pytest.mark.parametrize("intercept", [True, False])
def test_products_are_those_of_the_second_derivatives(kind, intercept):
    model = classes_model(kind, intercept=intercept)
    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((2, model.n_parameters))
    curved = CurvedClasses(model)
    H = written_out(model, x)
    quadratic = curved.quadratic(x, 0.0)
    assert_allclose(applied(quadratic, "product", v), H @ v, rtol=1e-10, atol=1e-12)
    line = curved.along(x, v)
    for t in (0.0, 0.7):
        at = x + t * v
        expected = model.value_and_gradient(at)[1] @ v, v @ written_out(model, at) @ v
        assert_allclose(line.derivatives(t), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_what_is_left_out_is_a_share_of_the_trace(kind, monkeypatch):
    monkeypatch.setattr("accelegrad.kernels.FEW_ENTRIES", 0)  # where rows are left out
    model = classes_model(kind, rows=800)
    x = 2.0 * np.random.default_rng(1).standard_normal(model.n_parameters)
    H = written_out(model, x)
    quadratic = CurvedClasses(model).quadratic(x, 0.05)
    kept = np.array([applied(quadratic, "product", v) for v in np.eye(model.n_parameters)])
    assert len(quadratic.distributions) < 600
    missing = np.linalg.eigvalsh(H - kept)
    assert missing.min() >= -1e-12
    assert missing.max() <= 0.05 * np.trace(H)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_preconditioners_are_the_classes_blocks_or_the_diagonal(kind):
    model = classes_model(kind)
    k, d, size = model.n_classes, model.n_features, model.n_parameters
    # Places of the parameters by classes, and the projection onto changes that differ by classes.
    own = [[*range(c * d, (c + 1) * d), k * d + c] for c in range(k)]
    different = np.eye(size)
    for j in range(d + 1):
        places = [places[j] for places in own]
        different[np.ix_(places, places)] -= 1.0 / k
    common = np.eye(size) - different
    common[k * d :] = 0.0
    for x in (np.zeros(size), np.full(size, 0.3)):
        H = written_out(model, x)
        blocks = np.zeros((size, size))
        for places in own:
            blocks[np.ix_(places, places)] = np.linalg.inv(H[np.ix_(places, places)])
        quadratic = CurvedClasses(model).quadratic(x, 0.0)
        P = np.array([applied(quadratic, "precondition", v) for v in np.eye(size)])
        expected = [
            different @ inverse @ different + common / model.l2
            for inverse in (blocks, np.diag(1.0 / np.diag(H)))
        ]
        assert any(np.allclose(P, one, rtol=1e-6, atol=1e-6) for one in expected)
        assert np.linalg.eigvalsh(P).min() > -1e-9  # of intercepts only differences matter


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("k", [3, 12])
def test_fits_are_minimisers_and_their_gaps_are_true(intercept, kind, k):
    model = classes_model(kind, rows=300, k=k, l2=1e-3, intercept=intercept)
    best = scipy_minimize(
        model.value_and_gradient, np.zeros(model.n_parameters), jac=True, method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 0.0, "gtol": 1e-9},
    )  # fmt: skip
    for tol in (1e-1, 1e-3, 1e-8):
        fit = AcceleGradClassifier(alpha=1e-3, tol=tol, fit_intercept=intercept)
        fit.fit(model.rows.X, model.classes, model.rows.sample_weight)
        assert fit.converged_
        assert fit.gap_ <= tol * fit.objective_
        assert fit.objective_ - fit.gap_ <= best.fun * (1 + 1e-12)
        assert fit.n_iter_ <= 20
    x = np.concatenate([fit.coef_.ravel(), fit.intercept_]) if intercept else fit.coef_.ravel()
    W, b = model.split(x)
    other, shift = model.split(best.x)
    assert_allclose(W, other, atol=1e-3)
    assert_allclose(b - b.mean(), shift - shift.mean(), atol=1e-3)


def test_a_bound_is_tight_where_only_intercepts_are_off_and_classes_far_apart():
    X, y = load_digits(return_X_y=True)
    fit = AcceleGradClassifier(alpha=1e-3, tol=1e-5).fit(X, y)
    model = MultinomialModel(X, y, 10, l2=1e-3, fit_intercept=True)
    shift = 1e-2 * np.random.default_rng(0).standard_normal(10)
    off = np.concatenate([fit.coef_.ravel(), fit.intercept_ + shift])
    bound = MultinomialDual(model).at(off)
    assert bound <= fit.objective_
    assert fit.objective_ - bound <= 1e-4 * fit.objective_
