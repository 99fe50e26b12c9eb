"""Bounds of linear models without an l2 term, and with signs alone, against trusted solvers."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize, nnls
from sklearn.linear_model import LogisticRegression

import accelegrad as ag
from accelegrad import LinearModel
from accelegrad.proofs import model_dual
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.null_space import NullSpace, obstacle

Q, EPS, DELTA = 0.3, 0.25, 0.8
EXTRAS = {"quantile": Q, "epsilon": EPS, "delta": DELTA}
CLASSIFICATION = ["logistic", "hinge", "squared_hinge"]
SMOOTH = ["squared", "logistic", "squared_hinge", "huber"]
KINKED = ["hinge", "absolute", "quantile", "epsilon_insensitive"]
FORMS = {"C": np.ascontiguousarray, "F": np.asfortranarray, "csr": sp.csr_array}
# The pieces of each loss with kinks: slopes and values at m = 0.
PIECES = {
    "hinge": lambda t: [(0.0, 0.0), (-t, 1.0)],
    "absolute": lambda t: [(1.0, -t), (-1.0, t)],
    "quantile": lambda t: [(-Q, Q * t), (1.0 - Q, -(1.0 - Q) * t)],
    "epsilon_insensitive": lambda t: [(0.0, 0.0), (1.0, -t - EPS), (-1.0, t - EPS)],
}
SHIFTS = (0.0, 1e-6, 1e-3, 0.1, 1.0, 30.0)


def data(loss: str, n: int = 60, d: int = 4, seed: int = 0, dtype: type = np.float64):
    """Return a matrix with some zeros, and noisy targets, or labels that no plane separates."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8)).astype(dtype)
    noisy = X @ rng.normal(size=d) + rng.standard_t(3, size=n) + 0.3
    y = np.where(noisy + 2.0 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, (y if loss in CLASSIFICATION else noisy)


def by_programme(
    loss: str, A: np.ndarray, y: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return minimiser and minimum of sum_i p_i l(a_i w, y_i) for a loss with kinks, by HiGHS."""
    n, k = A.shape
    rows, limits = [], []
    for i in range(n):
        for slope, offset in PIECES[loss](float(y[i])):
            rows.append(np.concatenate([slope * A[i], -np.eye(n)[i]]))
            limits.append(-offset)
    found = linprog(
        np.concatenate([np.zeros(k), p]),
        A_ub=np.array(rows),
        b_ub=limits,
        bounds=[(None, None)] * (k + n),
        method="highs",
    )
    assert found.success, found.message
    return found.x[:k], found.fun


def by_newton(loss: str, A: np.ndarray, y: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
    """Return minimiser and minimum for a smooth loss."""
    if loss == "squared":
        w = np.linalg.lstsq(np.sqrt(p)[:, None] * A, np.sqrt(p) * y, rcond=None)[0]
        return w, 0.5 * p @ (A @ w - y) ** 2
    if loss == "logistic":
        theirs = LogisticRegression(
            C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000, fit_intercept=False
        ).fit(A, y, sample_weight=p * len(y))
        w = theirs.coef_[0]
        return w, p @ np.logaddexp(0.0, -y * (A @ w))

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        if loss == "squared_hinge":
            short = np.maximum(1.0 - y * (A @ w), 0.0)
            return p @ short**2, -2.0 * A.T @ (p * y * short)
        r = A @ w - y
        inner = np.clip(r, -DELTA, DELTA)
        return p @ (inner * (r - 0.5 * inner)), A.T @ (p * inner)

    found = minimize(fun, np.zeros(A.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-11})
    return found.x, found.fun


def best(loss, X, y, weights=None, intercept=False) -> tuple[np.ndarray, float]:
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    A = np.column_stack([dense, np.ones(len(y))]) if intercept else dense
    p = np.full(len(y), 1.0 / len(y)) if weights is None else weights / weights.sum()
    return (by_programme if loss in KINKED else by_newton)(loss, A, y, p)


def weights_with_zeros(n: int, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, n).astype(float)


# Below the minimum, and close to it


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH + KINKED)
def test_bounds_are_below_the_minimum_and_reach_it(loss, intercept, weighted) -> None:
    for seed in range(2):
        X, y = data(loss, seed=seed)
        weights = weights_with_zeros(len(y), seed) if weighted else None
        w, minimum = best(loss, X, y, weights, intercept)
        model = LinearModel(X, y, loss, fit_intercept=intercept, sample_weight=weights, **EXTRAS)
        assert model.has_dual_bound
        assert model.value(w) == pytest.approx(minimum, rel=1e-9)
        rng = np.random.default_rng(seed)
        for shift in SHIFTS:
            at = model.at(w + shift * rng.normal(size=w.size))
            for bound in (at.dual_value, model.dual_value_at(at.derivatives)):
                assert 0.0 <= bound <= minimum * (1.0 + 1e-12)
            assert at.dual_gap == pytest.approx(at.value - at.dual_value, abs=1e-15 * at.value)
        assert model.dual_value(w) >= minimum * (1.0 - 1e-8)
        if loss in SMOOTH:
            assert model.dual_value_at(model.at(w).derivatives) >= minimum * (1.0 - 1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", SMOOTH + KINKED)
def test_bounds_do_not_depend_on_how_the_data_are_stored(loss, form, dtype) -> None:
    X, y = data(loss, dtype=dtype)
    weights = weights_with_zeros(len(y))
    w, minimum = best(loss, X, y, weights, True)
    model = LinearModel(
        FORMS[form](X), y, loss, fit_intercept=True, sample_weight=weights, **EXTRAS
    )
    slopes = model.at(w + 0.01).derivatives
    exact = LinearModel(
        X.astype(np.float64), y, loss, fit_intercept=True, sample_weight=weights, **EXTRAS
    )
    # Products are in float64 also for float32 data: this is no 1e-6.
    assert model.dual_value_at(slopes) == pytest.approx(exact.dual_value_at(slopes), rel=1e-11)
    assert minimum * (1.0 - 1e-6) <= model.dual_value(w) <= minimum * (1.0 + 1e-7)


def test_at_the_vertex_that_a_linear_programme_finds_the_bound_is_the_minimum() -> None:
    for loss in KINKED:
        for seed in range(3):
            X, y = data(loss, n=150, d=7, seed=seed)
            w, minimum = best(loss, X, y, None, True)
            model = LinearModel(X, y, loss, fit_intercept=True, **EXTRAS)
            # Of labels, margins up to 1000 are allowed for, times the rounding of the balance.
            assert model.dual_gap(w) <= (1e-11 if model.loss.classification else 1e-12) * minimum


def test_tied_targets_and_repeated_rows() -> None:
    """Many margins lie on a kink then, more of them than there are parameters."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 2, size=(200, 3)).astype(float)
    y = X @ np.array([2.0, -1.0, 1.0]) + rng.integers(-1, 2, 200)
    for loss in ("absolute", "quantile", "epsilon_insensitive"):
        w, minimum = best(loss, X, y, None, True)
        model = LinearModel(X, y, loss, fit_intercept=True, **EXTRAS)
        assert minimum * (1.0 - 1e-9) <= model.dual_value(w) <= minimum * (1.0 + 1e-13)
    nothing = LinearModel(X, np.zeros(200), "absolute")
    assert nothing.dual_gap(np.zeros(3)) == 0.0


# Slopes that are balanced


@pytest.mark.parametrize("form", FORMS)
def test_what_is_largest_imbalance_of_the_balance(form: str) -> None:
    X, _ = data("squared", n=90)
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


def test_corrected_slopes_are_balanced_and_between_the_ends() -> None:
    found = []
    for seed in range(20):
        X, _ = data("squared", n=90, seed=seed)
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
        possible = linprog(
            np.zeros(90), A_eq=A.T, b_eq=np.zeros(5), bounds=np.column_stack([low, high])
        )
        assert success <= possible.success
        found.append((success, possible.success))
    # Where it is possible at all it mostly succeeds.
    assert sum(success for success, _ in found) >= 0.8 * sum(able for _, able in found) > 0
    assert not all(able for _, able in found)


# Columns that are dependent, or of all sizes


def awkward(name: str, X: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(5).normal(size=len(X))
    return {
        "twice the same": lambda: np.column_stack([X, X[:, 0]]),
        "sum of others": lambda: np.column_stack([X, X.sum(axis=1)]),
        "constant": lambda: np.column_stack([X, np.full(len(X), 3.0)]),
        "zero": lambda: np.column_stack([X, np.zeros(len(X))]),
        "units": lambda: X * 10.0 ** np.linspace(-9, 9, X.shape[1]),
        "far from 0": lambda: X + 1e4,
        "very far from 0": lambda: X + 1e6,
        "nearly the same": lambda: np.column_stack([X, X[:, 0] + 1e-7 * noise]),
    }[name]()


@pytest.mark.parametrize("form", ["C", "csr"])
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("twice the same", 1e-12), ("sum of others", 1e-12), ("constant", 1e-12), ("zero", 1e-12),
        ("units", 1e-12), ("far from 0", 1e-9),
        ("very far from 0", 1e-7), ("nearly the same", 1e-6),
    ],
)  # fmt: skip
def test_awkward_columns(name: str, tolerance: float, form: str) -> None:
    X, y = data("squared", n=90)
    Z = awkward(name, X)
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
    np.testing.assert_allclose(
        np.sqrt(weights) * space.project(y), residual, rtol=0, atol=tolerance * np.abs(y).max()
    )
    minimum = 0.5 * residual @ residual / weights.sum()
    model = LinearModel(FORMS[form](Z), y, "squared", fit_intercept=True, sample_weight=weights)
    bound = model.dual_value_at(-y)
    assert minimum * (1.0 - 100.0 * tolerance) <= bound <= minimum * (1.0 + 1e-13)


# Where the minimum is 0


@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_separable_data_have_the_bound_zero(loss: str) -> None:
    X, _ = data("logistic", n=200, d=4)
    y = np.where(X @ np.array([1.0, -2.0, 0.5, 1.0]) + 0.3 > 0, 1.0, -1.0)
    for intercept in (False, True):
        if not intercept:
            y = np.where(X @ np.array([1.0, -2.0, 0.5, 1.0]) > 0, 1.0, -1.0)
        model = LinearModel(X, y, loss, fit_intercept=intercept)
        direction = np.append([1.0, -2.0, 0.5, 1.0], [0.3] * intercept)
        for size in (0.0, 0.1, 1.0, 10.0, 1e3, 1e6):
            assert 0.0 <= model.dual_value(size * direction) <= 1e-12
            slopes = model.at(size * direction).derivatives
            assert 0.0 <= model.dual_value_at(slopes) <= 1e-12


# Cost, and where there is no bound


def test_the_null_space_is_found_at_first_use_and_once(monkeypatch) -> None:
    made = []
    monkeypatch.setattr(model_dual, "NullSpace", lambda *given: made.append(1) or NullSpace(*given))
    X, y = data("squared")
    model = LinearModel(X, y, "squared")
    assert model.has_dual_bound
    assert not made
    for _ in range(3):
        model.dual_gap(np.ones(4))
        model.dual_value_at(np.ones(60))
    assert len(made) == 1


def test_where_it_is_worthwhile() -> None:
    def empty(n: int, d: int) -> sp.csr_array:
        return sp.csr_array((n, d))

    ones = np.ones(2)
    assert obstacle(np.zeros((6, 5)), 5, ones) is None
    told = obstacle(np.zeros((6, 5)), 6, ones)
    assert "more rows than parameters, but there are 6 and 6" in told
    assert obstacle(empty(2000, 1000), 1000, ones) is None
    told = obstacle(empty(2000, 1000), 1001, ones)
    assert "at most 1000 parameters, but there are 1001" in told
    assert obstacle(empty(1_000_000, 100), 100, ones) is None
    assert "would take 1e+12" in obstacle(empty(1_000_000, 1000), 1000, ones)
    # Dense data of any number of rows, as long as the Gram matrix is but some dozens of gradients.
    assert obstacle(np.broadcast_to(0.0, (10**8, 500)), 500, ones) is None
    for size in (1e-200, 1e200):
        assert "overflow or vanish" in obstacle(np.zeros((6, 5)), 5, np.array([1.0, 0.0, size]))


def test_errors_say_why_there_is_no_bound() -> None:
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


def by_nnls(model):
    """Return the minimiser that SciPy finds; an intercept is the difference of two weights."""
    X = model.X.toarray() if sp.issparse(model.X) else np.asarray(model.X, dtype=np.float64)
    ones = np.ones((len(X), int(model.fit_intercept)))
    roots = np.sqrt(model.shares)
    found, _ = nnls(np.hstack([X, ones, -ones]) * roots[:, None], model.y * roots)
    d = model.n_features
    return np.append(found[:d], found[d : d + 1] - found[d + 1 :])


def dual_of(model, chosen=None):
    return model.dual_with(Terms.of(model, None, chosen or above_zero(model)))


def check_nonnegative(model, rtol=1e-9):
    result = ag.minimize(model, feasible_set=above_zero(model), rtol=rtol)
    assert result.success
    assert result.certified_radius == math.inf
    least = model.value(by_nnls(model))
    assert_allclose(result.fun, least, rtol=rtol)
    assert result.lower_bound <= least
    return result


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("more", [{}, {"form": "csr"}, {"dtype": np.float32}], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_nonnegative_least_squares_end_where_scipys_do_and_are_proved(seed, more, intercept):
    model = nonnegative(seed, intercept=intercept, **more)
    result = check_nonnegative(model)
    assert result.method == "proximal-newton"
    assert result.nit <= 2
    sizes = np.append(np.sqrt(model.column_squares()), 1.0)[: result.x.size]
    # Both solve with products of columns, whose rounding is that of squares.
    assert_allclose(result.x * sizes, by_nnls(model) * sizes, atol=1e-7)
    x, rng = by_nnls(model), np.random.default_rng(seed)
    least, dual, found = model.value(x), dual_of(model), []
    for size in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1.0):
        slopes = model.at(x).derivatives
        found.append(dual.without_terms("a bound").at(slopes + size * rng.normal(size=slopes.size)))
    assert least * (1.0 - 1e-9) <= max(found) <= least


def test_a_negative_weight_has_the_other_sign():
    model = nonnegative(2, intercept=False)
    mirrored = LinearModel(-model.X, model.y, "squared", sample_weight=model.sample_weight)
    below = ag.Box(np.full(model.n_features, -np.inf), np.zeros(model.n_features))
    at = mirrored.at(-by_nnls(model))
    assert dual_of(mirrored, below).by_balanced(at) >= at.value * (1.0 - 1e-9)


def test_columns_that_cancel_have_no_such_bound():
    model = nonnegative(1, intercept=False)
    both = LinearModel(np.hstack([model.X, -model.X]), model.y, "squared")
    assert not dual_of(both).has_only_signs
    groups = np.eye(3)[np.arange(model.n_samples) % 3]  # their sum is what an intercept adds
    model = LinearModel(groups, model.y, "squared", fit_intercept=True)
    assert not dual_of(model).has_only_signs
    assert ag.minimize(model, feasible_set=above_zero(model), max_iter=3).method == "accelegrad"


@pytest.mark.parametrize("form", ["C", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
def test_columns_that_add_nothing_do_not_matter(form, intercept):
    """Those of zeros, twins, and constant ones beside an intercept."""
    model = nonnegative(2, intercept=intercept)
    more = np.full((model.n_samples, 3), [3.7, 0.0, 0.1])[:, : 2 + intercept]
    X = np.hstack([model.X, model.X[:, :1], more])
    wider = LinearModel(FORMS[form](X), model.y, "squared", fit_intercept=intercept)
    assert check_nonnegative(wider).method == "proximal-newton"


def test_thirty_columns_in_other_units_are_proved_to_eleven_digits():
    """A bound over a box of proved ends stops at 1e-7 here: the ends are far away."""
    rng = np.random.default_rng(4)
    X, signal = rng.standard_normal((100, 30)), np.zeros(30)
    signal[:5] = rng.uniform(1.0, 2.0, 5)
    y = X @ signal + 3.0 + rng.standard_normal(100)
    units = 10.0 ** rng.uniform(-3.0, 3.0, 30)
    check_nonnegative(LinearModel(X * units, y, "squared", fit_intercept=True), 1e-11)
