"""The benchmark suite: every stored minimum against a bound that does not come from its solver.

For each problem `excess` gives an upper bound of f(x*) - min f, by what the kind of problem allows:
the gradient's norm, the Frank-Wolfe gap, or a feasible point of the dual problem.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad, linprog, lsq_linear
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.data.datasets import DATA_FOLDER, DataError


def _load_suite() -> Any:
    """Import benchmarks/suite.py, which is a script's neighbour and no part of a package."""
    path = Path(__file__).parents[2] / "benchmarks" / "suite.py"
    spec = importlib.util.spec_from_file_location("suite", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suite"] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


suite = _load_suite()
Problem, Recorder = suite.Problem, suite.Recorder
Vector = np.ndarray
ACCURACY = 1e-10


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return suite.load(real=False, quick=True, cache=tmp_path_factory.mktemp("minima"))


@pytest.fixture
def by_name(problems: list[Any]) -> dict[str, Any]:
    return {problem.name: problem for problem in problems}


# Bounds of f(x*) - min f


def excess(problem: Any) -> float:
    if problem.feasible_set is not None and problem.smooth:
        return frank_wolfe_gap(problem)
    if problem.smooth:
        # By convexity, for a minimiser within this radius of x*.
        _, gradient = problem.evaluate(problem.minimiser)
        return 2 * problem.distance * float(np.linalg.norm(gradient))
    if problem.model is not None:
        bound = hinge_bound if problem.model.loss.name == "hinge" else piecewise_linear_bound
        return problem.minimum - bound(problem)
    if isinstance(problem.fun, suite.MaxAffine):
        return problem.minimum - max_affine_bound(problem)
    assert isinstance(problem.fun, (suite.L1Distance, suite.ResidualNorm))
    return problem.minimum  # norms are not negative


def frank_wolfe_gap(problem: Any) -> float:
    x, radius = problem.minimiser, 2 * problem.distance
    _, gradient = problem.evaluate(x)
    lowest = problem.feasible_set.linear_minimum(gradient)
    if math.isinf(lowest):  # an unbounded set: rounding in g = 0 is enough for that
        lowest = problem.feasible_set.linear_minimum_in_ball(gradient, x, radius)
    return float(gradient @ x) - lowest


def features(model: ag.LinearModel) -> Vector:
    X = model.X.toarray() if sp.issparse(model.X) else model.X
    return np.column_stack([X, np.ones(len(X))]) if model.fit_intercept else X


def slopes(model: ag.LinearModel) -> tuple[float, float]:
    """The least and the largest slope of an absolute or quantile loss."""
    return (-1.0, 1.0) if model.loss.name == "absolute" else (-0.9, 1.0 - 0.9)


def piecewise_linear_bound(problem: Any) -> float:
    """Take theta from the primal program; what X^T theta = 0 lacks counts against the bound.

    For every w within R of x*: mean loss >= mean of theta (X w - y)
    = <X^T theta, w> / n - <theta, y> / n.
    """
    model, x, radius = problem.model, problem.minimiser, 2 * problem.distance
    theta = optimal_slopes(model)
    residue = features(model).T @ theta / model.n_samples
    return float(residue @ x - radius * np.linalg.norm(residue) - theta @ model.y / model.n_samples)


def optimal_slopes(model: ag.LinearModel) -> Vector:
    """The multipliers of X w + above - below = y, minimising -low above + high below."""
    X, n = features(model), model.n_samples
    sizes = np.sqrt((X * X).mean(axis=0))
    low, high = slopes(model)
    d = X.shape[1]
    program = linprog(
        np.concatenate([np.zeros(d), np.full(n, -low), np.full(n, high)]),
        A_eq=sp.hstack([sp.csr_matrix(X / sizes), sp.identity(n), -sp.identity(n)], format="csc"),
        b_eq=model.y,
        bounds=[(None, None)] * d + [(0, None)] * (2 * n),
        method="highs-ds",
        options={"dual_feasibility_tolerance": 1e-10},
    )
    assert program.success
    return np.clip(-program.eqlin.marginals, low, high)


def hinge_bound(problem: Any) -> float:
    """Choose the weights of the rows at the kink so that the dual point fits w best.

    D(a) = mean(a) - l2 / 2 ||sum of a_i y_i x_i / (n l2)||^2 for 0 <= a <= 1.
    """
    model, w = problem.model, problem.minimiser
    signed = features(model) * model.y[:, None] / (model.n_samples * model.l2)
    room = 1 - model.y * (features(model) @ w)
    at_kink = np.abs(room) < 1e-9
    weights = (room >= 1e-9).astype(float)
    if at_kink.any():
        missing = w - weights @ signed
        fitted = lsq_linear(signed[at_kink].T, missing, bounds=(0, 1), method="bvls", tol=1e-14)
        weights[at_kink] = np.clip(fitted.x, 0, 1)
    combined = weights @ signed
    return float(weights.mean() - model.l2 / 2 * combined @ combined)


def max_affine_bound(problem: Any) -> float:
    """Solve the dual program: the best average of the pieces, min over x of <A^T p, x> + <b, p>."""
    A, b, x = problem.fun.A, problem.fun.b, problem.minimiser
    m, d = A.shape
    one = np.ones((1, m))
    if problem.feasible_set is None:
        program = linprog(-b, A_eq=np.vstack([A.T, one]), b_eq=np.append(np.zeros(d), 1.0))
        shares = np.maximum(program.x, 0) / np.maximum(program.x, 0).sum()
        residue = A.T @ shares
        radius = 2 * problem.distance
        return float(b @ shares + residue @ x - radius * np.linalg.norm(residue))
    # Over the simplex: max t with t <= (A^T p)_j for every column j.
    program = linprog(
        np.append(np.zeros(m), -1.0),
        A_ub=np.column_stack([-A.T, np.ones(d)]),
        b_ub=np.zeros(d),
        A_eq=np.append(one, [[0.0]], axis=1),
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    shares = np.maximum(program.x[:-1], 0) / np.maximum(program.x[:-1], 0).sum()
    assert not b.any()
    return float((A.T @ shares).min())


def size(problem: Any) -> float:
    """What an excess is small against: f(x0) - f*, or f(0) - f* where x0 is very far off."""
    reference = problem.start_value
    if problem.kind == "far start":
        reference = problem.evaluate(np.zeros_like(problem.x0))[0]
    return float(reference - problem.minimum)


def inexact(problems: list[Any]) -> dict[str, float]:
    found = {problem.name: excess(problem) / size(problem) for problem in problems}
    return {name: gap for name, gap in found.items() if not gap <= ACCURACY}


def test_every_minimum_is_confirmed_by_other_means(problems: list[Any]) -> None:
    assert not inexact(problems)


def test_the_confirmation_notices_a_point_that_is_a_little_off(problems: list[Any]) -> None:
    rng = np.random.default_rng(0)
    for problem in problems:
        towards = problem.x0 - problem.minimiser
        away = problem.minimiser + 1e-3 * (towards + rng.uniform(-0.1, 0.1, towards.size) * towards)
        moved = away if problem.feasible_set is None else problem.feasible_set.project(away)
        wrong = replace(problem, minimiser=moved, minimum=problem.evaluate(moved)[0])
        assert wrong.minimum > problem.minimum, problem
        assert excess(wrong) > ACCURACY * size(problem), problem


def test_values_are_those_at_the_points(problems: list[Any]) -> None:
    for problem in problems:
        assert problem.evaluate(problem.minimiser)[0] == problem.minimum
        assert problem.start_value > problem.minimum
        assert problem.relative_gap(problem.start_value) == 1.0
        assert problem.relative_gap(problem.minimum) == 0.0
        assert problem.distance == np.linalg.norm(problem.x0 - problem.minimiser)
        if problem.feasible_set is not None:
            assert problem.feasible_set.contains(problem.x0)
            assert problem.feasible_set.contains(problem.minimiser)


def test_the_suite_has_what_it_says(problems: list[Any]) -> None:
    kinds = {problem.kind for problem in problems}
    assert kinds == {"smooth", "non-smooth", "ill-scaled", "far start", "constrained"}
    assert len({problem.name for problem in problems}) == len(problems) >= 40
    for problem in problems:
        assert problem.smooth or problem.kind != "smooth"
        assert (problem.feasible_set is not None) == (problem.kind == "constrained")
        assert problem.model is (problem.fun if isinstance(problem.fun, ag.LinearModel) else None)


def test_constraints_bind(problems: list[Any]) -> None:
    for problem in problems:
        if problem.feasible_set is not None and problem.smooth:
            _, gradient = problem.evaluate(problem.minimiser)
            inner = gradient - gradient.mean() if "simplex" in problem.name else gradient
            assert np.linalg.norm(inner) > 1e-3, problem


# Nearest minimisers


def test_the_solution_of_wide_least_squares_is_the_nearest_to_the_start(
    by_name: dict[str, Any],
) -> None:
    problem = by_name["least-squares-wide"]
    X = problem.model.X
    in_row_space = np.linalg.pinv(X) @ (X @ problem.minimiser)
    np.testing.assert_allclose(in_row_space, problem.minimiser, rtol=0, atol=1e-12)


def test_piecewise_linear_regressions_have_one_minimiser(problems: list[Any]) -> None:
    names = ("absolute", "quantile")
    chosen = [one for one in problems if one.model is not None and one.model.loss.name in names]
    assert len(chosen) == 7
    for problem in chosen:
        assert has_one_minimiser(problem), problem


def test_piecewise_affine_functions_have_one_minimiser(by_name: dict[str, Any]) -> None:
    """As many pieces share the top there as are needed to fix all coordinates and the value."""
    for name in ("max-affine", "matrix-game"):
        problem = by_name[name]
        A, b, x = problem.fun.A, problem.fun.b, problem.minimiser
        top = np.abs(A @ x + b - problem.minimum) < 1e-12
        fixed = 0 if problem.feasible_set is None else int(np.sum(x == 0)) + 1
        assert top.sum() + fixed == x.size + 1, name


def has_one_minimiser(problem: Any) -> bool:
    """Rows that the fit goes through and whose multipliers are not at an end span the space."""
    model, (low, high) = problem.model, slopes(problem.model)
    theta = optimal_slopes(model)
    inside = (theta > low + 1e-7) & (theta < high - 1e-7)
    X = features(model) / np.sqrt((features(model) ** 2).mean(axis=0))
    return bool(np.linalg.matrix_rank(X[inside], tol=1e-8) == X.shape[1])


# The functions


def test_gradients_are_those_of_the_values(problems: list[Any]) -> None:
    rng = np.random.default_rng(1)
    for problem in problems:
        if problem.model is None:
            size = 1 + np.linalg.norm(problem.minimiser)
            x = problem.minimiser + rng.standard_normal(problem.x0.size)
            value, gradient = problem.fun(x)
            error = check_grad(
                lambda u, fun=problem.fun: fun(u)[0], lambda u, g=gradient: g, x, seed=0
            )
            assert error < 1e-5 * (np.linalg.norm(gradient) + abs(value) + size), problem


def test_subgradients_at_kinks() -> None:
    residual = suite.ResidualNorm(np.eye(2), np.ones(2))
    assert residual(np.ones(2))[0] == 0.0
    assert not residual(np.ones(2))[1].any()
    assert not suite.L1Distance(np.ones(2))(np.ones(2))[1].any()


# The cache


def a_draft(solve: Callable[[], Vector], center: float = 1.0) -> Any:
    fun = suite.L1Distance(np.full(2, center))
    return suite.Draft("l1", "non-smooth", fun, np.zeros(2), solve, smooth=False)


def test_minima_are_computed_once(tmp_path: Path) -> None:
    def fails() -> Vector:
        raise AssertionError("solved again")

    first = suite.finished(a_draft(lambda: np.ones(2)), tmp_path)
    again = suite.finished(a_draft(fails), tmp_path)
    np.testing.assert_array_equal(again.minimiser, first.minimiser)
    assert again.minimum == first.minimum == 0.0
    with pytest.raises(AssertionError, match="solved again"):
        suite.finished(a_draft(fails, center=2.0), tmp_path)


def test_a_damaged_minimum_is_computed_anew(tmp_path: Path) -> None:
    suite.finished(a_draft(lambda: np.ones(2)), tmp_path)
    (stored,) = tmp_path.iterdir()
    for content in (b"", b"PK no archive", stored.read_bytes()[:100]):
        stored.write_bytes(content)
        again = suite.finished(a_draft(lambda: np.ones(2)), tmp_path)
        assert again.minimum == 0.0
        assert len(stored.read_bytes()) > 100


def test_the_checksum_sees_every_part_of_the_definition() -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 1.0])

    def checksum(X: Any = X, x0: float = 0.0, box: float = 1.0, **options: Any) -> str:
        model = ag.LinearModel(X, y, **{"loss": "huber", **options})
        start = np.full(model.n_parameters, x0)
        return suite.checksum(
            suite.Draft("same", "smooth", model, start, start.copy, ag.Box(0, box))
        )

    others = [
        checksum(X + 1e-15 * (X == 0)),
        checksum(sp.csr_matrix(X)),
        checksum(x0=1.0),
        checksum(box=2.0),
        checksum(loss="absolute"),
        checksum(delta=2.0),
        checksum(l2=1e-3),
        checksum(fit_intercept=True),
    ]
    assert len({checksum(), *others}) == 1 + len(others)
    assert checksum() == checksum()


def test_the_cache_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert suite.default_cache() == tmp_path / "accelegrad" / "benchmarks"


# The recorder


def descent_points(problem: Any, step: float, count: int) -> Iterator[Vector]:
    x = problem.x0
    for _ in range(count):
        yield x
        x = x - step * problem.evaluate(x)[1]


@pytest.mark.parametrize(("name", "step"), [("least-squares", 0.3), ("nesterov-worst", 1.0)])
def test_first_calls_are_those_of_a_plain_list(
    by_name: dict[str, Any], name: str, step: float
) -> None:
    problem = by_name[name]
    points = list(descent_points(problem, step, 1000))
    gaps = [
        (problem.evaluate(x)[0] - problem.minimum)
        / (problem.evaluate(problem.x0)[0] - problem.minimum)
        for x in points
    ]
    recorder = Recorder(problem, (1e-2, 1e-4, 1e-6), raises=False)
    for x in points:
        recorder(x)
    expected = {
        threshold: next((i + 1 for i, gap in enumerate(gaps) if gap <= threshold), None)
        for threshold in (1e-2, 1e-4, 1e-6)
    }
    assert recorder.first_call == expected
    assert 1 < expected[1e-2] < expected[1e-4]
    assert recorder.calls == recorder.gradient_calls == 1000
    assert recorder.lowest == min(problem.evaluate(x)[0] for x in points)
    assert problem.evaluate(recorder.best)[0] == recorder.lowest


def test_values_and_gradients_count_alike(by_name: dict[str, Any]) -> None:
    for name in ("least-squares", "log-sum-exp"):
        problem = by_name[name]
        recorder = Recorder(problem)
        value, gradient = recorder(problem.x0)
        assert recorder.value(problem.x0) == value
        np.testing.assert_array_equal(recorder.gradient(problem.x0), gradient)
        assert (recorder.calls, recorder.gradient_calls) == (3, 2)
        assert recorder.lowest == value


def test_points_outside_the_constraint_do_not_count(by_name: dict[str, Any]) -> None:
    problem = by_name["least-squares-box"]
    outside = np.linalg.lstsq(problem.model.X, problem.model.y, rcond=None)[0]
    recorder = Recorder(problem, raises=False)
    assert recorder(outside)[0] < problem.minimum
    assert recorder.lowest == np.inf
    assert set(recorder.first_call.values()) == {None}
    recorder(problem.minimiser)
    assert set(recorder.first_call.values()) == {2}


def test_a_solver_is_stopped_at_the_last_threshold(by_name: dict[str, Any]) -> None:
    problem = by_name["least-squares"]
    seen = []

    def run(recorder: Any) -> None:
        for x in descent_points(problem, 0.3, 10_000):
            seen.append(x)
            recorder(x)

    found = suite.first_call_below(problem, (1e-2, 1e-4), run)
    assert list(found) == [1e-2, 1e-4]
    assert 1 < found[1e-2] < found[1e-4] == len(seen)


def test_a_solver_is_stopped_when_its_budget_is_spent(by_name: dict[str, Any]) -> None:
    problem = by_name["nesterov-worst"]
    recorder = Recorder(problem, (1e-2, 1e-12), max_calls=50)
    recorder.run(lambda f: [f(x) for x in descent_points(problem, 1e-3, 1000)])
    assert recorder.calls == 50
    assert recorder.done
    assert not recorder.reached
    assert recorder.first_call == {1e-2: None, 1e-12: None}


def test_other_errors_of_a_run_are_not_hidden(by_name: dict[str, Any]) -> None:
    def run(recorder: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        suite.first_call_below(by_name["quartic"], (1e-2,), run)


def test_scipy_and_accelegrad_can_be_recorded(by_name: dict[str, Any]) -> None:
    problem = by_name["logistic-a9a-like-l2=1/n"]

    def lbfgs(recorder: Any) -> None:
        scipy_minimize(recorder, recorder.problem.x0, jac=True, method="L-BFGS-B")

    def accelegrad(recorder: Any) -> None:
        diameter = 2 * recorder.problem.distance
        ag.minimize(recorder, recorder.problem.x0, diameter=diameter, max_iter=2000)

    for run in (lbfgs, accelegrad):
        found = suite.first_call_below(problem, (1e-2, 1e-4), run)
        assert 1 < found[1e-2] < found[1e-4]


def test_the_callback_ends_a_run_of_minimize(by_name: dict[str, Any]) -> None:
    problem = by_name["log-sum-exp"]
    recorder = Recorder(problem, (1e-2,), raises=False)
    result = ag.minimize(
        recorder, problem.x0, diameter=2 * problem.distance, callback=recorder.callback
    )
    assert result.status == ag.Status.CALLBACK
    assert recorder.reached
    assert recorder.first_call[1e-2] <= result.nfev == recorder.calls
    assert problem.relative_gap(result.fun) <= 1e-2


def test_points_can_be_judged_without_being_counted(by_name: dict[str, Any]) -> None:
    problem = by_name["least-squares"]
    recorder = Recorder(problem)
    recorder.observe(problem.x0, calls=0.5)
    recorder.observe(problem.minimiser, calls=2.5)
    assert recorder.calls == 0
    assert set(recorder.first_call.values()) == {2.5}
    assert recorder.reached


def test_a_stochastic_run_is_judged_by_its_callback(by_name: dict[str, Any]) -> None:
    problem = by_name["least-squares"]
    n, batch = problem.model.n_samples, 10
    recorder = Recorder(problem, (1e-1,))

    def callback(intermediate_result: Any) -> None:
        recorder.observe(intermediate_result.x, calls=intermediate_result.nit * batch / n)
        recorder.callback()

    result = ag.minimize(
        problem.model, diameter=2 * problem.distance, batch_size=batch, rng=0, callback=callback
    )
    assert result.status == ag.Status.CALLBACK
    assert recorder.first_call == {1e-1: result.nit * batch / n}


def test_values_that_are_no_numbers_are_passed_over(by_name: dict[str, Any]) -> None:
    problem = replace(by_name["quartic"], fun=lambda x: (math.nan, x))
    recorder = Recorder(problem, raises=False)
    recorder(problem.x0)
    assert recorder.lowest == np.inf
    assert recorder.best is None


def test_a_value_below_the_minimum_is_an_error(by_name: dict[str, Any]) -> None:
    problem = by_name["max-affine"]
    wrong = replace(problem, minimum=problem.minimum + 1e-3)
    with pytest.raises(RuntimeError, match="below the stored minimum"):
        Recorder(wrong)(problem.minimiser)


# Data


def test_quick_problems_are_the_same_every_time_and_need_no_data(
    problems: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suite, "find", lambda name: pytest.fail(f"looked for {name}"))
    again = suite.load(quick=True, cache=tmp_path)
    for one, other in zip(problems, again, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.x0, other.x0)
        np.testing.assert_array_equal(one.minimiser, other.minimiser)


def test_missing_data_is_an_error_when_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(DATA_FOLDER, raising=False)
    with pytest.raises(DataError, match=r"a9a: not found; ACCELEGRAD_DATA must name"):
        suite.load(real=True, quick=True, cache=tmp_path)


def test_a_set_is_read_cut_and_compacted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = [f"{rng.integers(1, 3)} 2:1 {rng.integers(5, 40)}:0.5" for _ in range(4500)]
    (tmp_path / "mushrooms").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv(DATA_FOLDER, str(tmp_path))
    data = suite.Data(real=True, needed=False, quick=True)
    name, X, y = data.rows("mushrooms")
    assert name == "mushrooms"
    assert X.shape == (4000, 36)
    assert set(y) == {-1.0, 1.0}
    assert data.rows("a9a").name == "a9a-like"
    dense = data.standardised("mushrooms").X
    assert dense.shape == (4000, 35)  # without the constant column
    np.testing.assert_allclose(dense.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(dense.std(axis=0), 1, rtol=1e-12)


@pytest.mark.slow
def test_generated_minima_at_full_size_are_confirmed_too(tmp_path: Path) -> None:
    check_full_size(suite.load(real=False, cache=tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get(DATA_FOLDER), reason=f"{DATA_FOLDER} names no folder of real data"
)
def test_minima_on_real_data_are_confirmed_too(tmp_path: Path) -> None:
    problems = suite.load(real=True, cache=tmp_path)
    assert not [problem.name for problem in problems if "-like" in problem.name]
    check_full_size(problems)


def check_full_size(problems: list[Any]) -> None:
    assert not inexact(problems)
    for problem in problems:
        if problem.model is not None and problem.model.loss.name in ("absolute", "quantile"):
            assert has_one_minimiser(problem), problem
