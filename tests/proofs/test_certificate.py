"""What `tools/verify.py` accepts, and what it refuses."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.models.losses import LOSSES
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from proofs.certificates import VERIFY, objection, verify

RNG = np.random.default_rng(4)
X = RNG.standard_normal((90, 6)) * [1, 1, 10, 0.1, 1, 1]
SCORES = X @ RNG.standard_normal(6) / 4 + RNG.standard_normal(90)
WEIGHTS = RNG.random(90) * (RNG.random(90) > 0.2)
OPEN = (-np.inf, np.inf)
#: l2, penalty, limits of the weights
TERMS = {
    "l2": (0.1, None, None),
    "l1": (0.0, 0.05, None),
    "elastic net": (0.02, 0.02, None),
    "none": (0.0, None, None),
    "nonnegative": (0.1, None, (0.0, np.inf)),
    "l1 in a box": (0.0, 0.02, (-0.2, 0.1)),
}
A, B = RNG.standard_normal((50, 5)), RNG.standard_normal(50)
SETS = {
    "none": None,
    "half open": ag.Box(
        np.array([0.0, -np.inf, -0.1, -np.inf, 0.0]), np.array([np.inf, 0.1, 0.2, 9, 9])
    ),
    "box": ag.Box(-0.1, 0.2),
    "simplex": ag.Simplex(0.5),
    "l1 ball": ag.L1Ball(0.3, np.full(5, 0.1)),
    "ball": ag.Ball(np.full(5, 0.1), 0.2),
}


def absolute(x):
    """A function with kinks."""
    return float(np.abs(A @ x - B).sum()), A.T @ np.sign(A @ x - B)


def targets(loss):
    return np.where(SCORES > 0, 1.0, -1.0) if LOSSES[loss].classification else SCORES


def model_result(loss, terms, *, intercept=True, weights=None, X=X):
    l2, l1, limits = TERMS[terms]
    model = ag.LinearModel(
        X, targets(loss), loss, l2=l2, fit_intercept=intercept, sample_weight=weights
    )
    chosen = None
    if limits is not None:  # the intercept is free
        ends = ([end] * 6 + [free] * intercept for end, free in zip(limits, OPEN, strict=True))
        chosen = ag.Box(*map(np.array, ends))
    penalty = None if l1 is None else ag.L1(l1)
    return ag.minimize(model, penalty=penalty, feasible_set=chosen, tol=1e-5)


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_with_every_term_is_verified(loss, terms):
    given = {} if LOSSES[loss].classification else {"intercept": False}, {"weights": WEIGHTS}
    for options, data in zip(({}, *given), (X, sp.csr_array(X), X), strict=True):
        result = model_result(loss, terms, X=data, **options)
        assert result.success
        assert result.certificate.gap == result.gap
        gap, fine, words = verify.verify(result.certificate.arrays(), data, targets(loss))
        assert fine, words
        assert gap <= result.gap + 1e-9


@pytest.mark.parametrize("name", ["slopes", "coefficients", "intercepts", "weights", "l2"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared", "absolute"])
def test_a_changed_certificate_of_a_model_is_refused(loss, name):
    result = model_result(loss, "l2", weights=WEIGHTS)
    arrays = result.certificate.arrays()
    right, y = verify.verify(arrays, X, targets(loss))[0], targets(loss)
    changed = dict(arrays)
    changed[name] = np.array(arrays[name], dtype=np.float64)
    if name == "slopes":
        changed[name][:20] *= 0.9
    elif name == "l2":
        changed[name] *= 0.5
    else:
        changed[name] += 0.05
    gap, fine, words = verify.verify(changed, X, y)
    assert not fine, words
    assert gap > 2 * right
    assert words.startswith("REFUSED")
    assert verify.verify(arrays, X[::-1], y)[1] is False  # of other data


def test_coefficients_outside_of_their_limits_are_refused():
    arrays = model_result("squared", "l1 in a box").certificate.arrays()
    free = model_result("squared", "l1").certificate.arrays()
    changed = dict(arrays, coefficients=free["coefficients"])
    gap, fine, words = verify.verify(changed, X, targets("squared"))
    assert (gap, fine) == (np.inf, False)
    assert words.endswith("(the coefficients violate their limits)")


@pytest.mark.parametrize("penalty", [None, ag.L1(2.0), ag.ElasticNet(0.5, 2.0)])
@pytest.mark.parametrize("where", SETS)
def test_functions_in_sets_with_penalties_are_verified(where, penalty):
    chosen = SETS[where]
    if penalty is not None and where not in ("none", "half open", "box"):
        penalty = ag.L1(2.0) if where == "none" else None
    start = np.full(5, 0.1) if chosen is None else chosen.project(np.full(5, 0.1))
    result = ag.minimize(absolute, start, feasible_set=chosen, penalty=penalty, tol=1e-6)
    arrays = result.certificate.arrays()
    assert verify.verify(arrays)[1]
    gap, fine, words = verify.verify(arrays, function=absolute)
    assert fine, words
    # Of any other function it proves less, and so it does with other multipliers.
    other = dict(arrays, multipliers=arrays["multipliers"][::-1] ** 2)
    assert verify.verify(arrays, function=lambda x: absolute(1.1 * x))[0] > 1e-3
    assert len(arrays["points"]) == 1 or verify.verify(other)[0] > 2 * gap
    moved = dict(arrays, point=arrays["point"] + 0.5)
    assert verify.verify(moved, function=absolute)[1] is False


def test_a_part_of_a_slope_that_is_tiny_beside_the_penalty_counts():
    """(1e-22 + 0.5) - 0.5 is 0: once such a part cost nothing."""
    limits = 0.5, 2.0, -np.inf, np.inf, 0.3, 9.0
    bound, _ = verify.least(np.zeros(2), np.zeros(2), np.full(2, 1e-22), limits, 2.0**-52)
    assert bound < 0.0


def test_a_zero_gradient_is_a_certificate():
    result = ag.minimize(lambda x: (float(x @ x), 2 * x), np.zeros(3))
    gap, fine, words = verify.verify(result.certificate.arrays())
    assert (gap, fine, words) == (0.0, True, "verified: within 0.0e+00 of the minimum")


@pytest.mark.parametrize("options", [{}, {"class_weight": "balanced"}, {"multi_class": "ovr"}])
@pytest.mark.parametrize("count", [2, 3])
def test_classifiers_are_verified(count, options, tmp_path):
    y = np.array(["one", "two", "three"], dtype=object)[
        np.digitize(SCORES, [-0.5, 0.5][: count - 1])
    ]
    wide = sp.csr_array(np.hstack([X, np.zeros((90, 8))]))  # half of the columns are empty
    fitted = AcceleGradClassifier(alpha=1e-2, tol=1e-6, **options).fit(wide, y, WEIGHTS)
    path = tmp_path / "certificate.npz"
    fitted.certificate_.save(path)
    gap, fine, words = verify.verify(np.load(path), wide, y)
    assert fine, words
    assert gap <= fitted.gap_ + 1e-9
    assert verify.verify(np.load(path), wide, y[::-1])[1] is False
    assert pickle.loads(pickle.dumps(fitted)).certificate_ is None


@pytest.mark.parametrize("penalty", ["l1", "l2", "elasticnet"])
@pytest.mark.parametrize("loss", ["squared_error", "quantile", "huber"])
def test_regressors_are_verified(loss, penalty):
    fitted = AcceleGradRegressor(loss, penalty=penalty, alpha=1e-2).fit(X, 10 * SCORES)
    assert not objection(fitted.certificate_, fitted.gap_, X, 10 * SCORES)


def test_without_slopes_in_memory_there_is_none():
    streamed = ag.StreamedModel([(X, targets("logistic"))], "logistic", l2=0.1)
    assert ag.minimize(streamed, tol=1e-3).certificate is None
    noisy = ag.minimize(None, np.zeros(5), jac=lambda x: absolute(x)[1], exact=False)
    assert noisy.certificate is None
    fitted = AcceleGradClassifier().partial_fit(X, SCORES > 0, classes=[False, True])
    assert fitted.certificate_ is None


@pytest.mark.parametrize("terms", ["l2", "l1", "none"])
def test_with_fifty_digits_the_gap_is_at_most_the_one_claimed(terms):
    for loss in ("logistic", "squared", "quantile"):
        result = model_result(loss, terms)
        given = result.certificate.arrays(), X, targets(loss)
        gap, fine, words = verify.verify(*given, exact=True)
        assert fine, words
        assert -1e-40 <= gap <= result.gap
    result = ag.minimize(absolute, np.zeros(5), tol=1e-8)
    assert 0 <= verify.verify(result.certificate.arrays(), exact=True)[0] <= result.gap


def test_the_command_needs_nothing_but_numpy(tmp_path):
    result = model_result("hinge", "l2")
    result.certificate.save(tmp_path / "certificate.npz")
    np.savez(tmp_path / "data.npz", X=X, y=targets("hinge"))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", -targets("hinge"))
    code = (
        "import sys, runpy; sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end:\n    code = end.code\n"
        "roots = {name.split('.')[0] for name in sys.modules}\n"
        "assert not roots & {'accelegrad', 'scipy', 'sklearn', 'mpmath', 'numba'}, roots\n"
        "sys.exit(code)"
    )

    def run(*names):
        command = [sys.executable, "-I", "-c", code, str(VERIFY), *names]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    right, wrong = run("certificate.npz", "data.npz"), run("certificate.npz", "X.npy", "y.npy")
    assert right.returncode == 0, right.stderr
    assert right.stdout.startswith("verified: within ")
    assert (wrong.returncode, wrong.stdout[:7]) == (1, "REFUSED")
    ag.minimize(lambda x: (float(abs(x[0])), np.sign(x)), [1.0]).certificate.save(
        tmp_path / "function.npz"
    )
    (tmp_path / "given.py").write_text(
        "def f(x):\n    return abs(x[0]), [1.0 if x[0] > 0 else -1.0]\n"
    )
    function = run("function.npz", "--function", "given:f")
    assert function.returncode == 0, function.stderr + function.stdout


def test_a_point_outside_of_the_set_has_no_certificate():
    def fun(x):
        return float(abs(x - 0.5).sum()), np.sign(x - 0.5)

    given = dict(feasible_set=ag.Box(-1.0, 1.0), method="accelegrad", diameter=8.0, max_iter=2)
    given["output"] = "average"
    outside = ag.minimize(fun, np.zeros(3), project_y=False, **given)
    assert outside.gap > 0.0
    assert np.abs(outside.x).max() > 1.0
    assert outside.certificate is None
