"""The benchmark suite: every stored minimum against a bound that does not come from its solver.

For each problem `excess` gives an upper bound of f(x*) - min f, by what the kind of problem allows:
the gradient's norm, the Frank-Wolfe gap, or a feasible point of the dual problem.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad, linprog, lsq_linear
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.files.datasets import DATA_FOLDER


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
def problems() -> list[Any]:
    return suite.load(real=False, quick=True)


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
    thresholds = (1e-2, 1e-4, 1e-6)
    found = suite.first_call_below(problem, thresholds, lambda f: [f(x) for x in points])
    expected = {
        threshold: next((i + 1 for i, gap in enumerate(gaps) if gap <= threshold), None)
        for threshold in thresholds
    }
    assert found == expected
    assert 1 < expected[1e-2] < expected[1e-4]


def test_points_outside_the_constraint_do_not_count(by_name: dict[str, Any]) -> None:
    problem = by_name["least-squares-box"]
    outside = np.linalg.lstsq(problem.model.X, problem.model.y, rcond=None)[0]
    recorder = Recorder(problem)
    assert recorder(outside)[0] < problem.minimum
    assert recorder.lowest == np.inf
    assert set(recorder.first_call.values()) == {None}
    with pytest.raises(suite.EnoughError):
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
    seen = []

    def run(recorder: Any) -> None:
        seen.extend(recorder(x) for x in descent_points(problem, 1e-3, 1000))

    found = suite.first_call_below(problem, (1e-2, 1e-12), run, max_calls=50)
    assert len(seen) == 50
    assert found == {1e-2: None, 1e-12: None}


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


def test_values_that_are_no_numbers_are_passed_over(by_name: dict[str, Any]) -> None:
    problem = replace(by_name["quartic"], fun=lambda x: (math.nan, x))
    recorder = Recorder(problem)
    recorder(problem.x0)
    assert recorder.lowest == np.inf


def test_a_value_below_the_minimum_is_an_error(by_name: dict[str, Any]) -> None:
    problem = by_name["max-affine"]
    wrong = replace(problem, minimum=problem.minimum + 1e-3)
    with pytest.raises(RuntimeError, match="below the stored minimum"):
        Recorder(wrong)(problem.minimiser)


# Data


def test_quick_problems_are_the_same_every_time_and_need_no_data(
    problems: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "find", lambda name: pytest.fail(f"looked for {name}"))
    again = suite.load(quick=True)
    for one, other in zip(problems, again, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.x0, other.x0)
        np.testing.assert_array_equal(one.minimiser, other.minimiser)


def test_a_set_is_read_cut_and_compacted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = [f"{rng.integers(1, 3)} 2:1 {rng.integers(5, 40)}:0.5" for _ in range(4500)]
    (tmp_path / "mushrooms").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv(DATA_FOLDER, str(tmp_path))
    data = suite.Data(real=True, quick=True)
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
def test_generated_minima_at_full_size_are_confirmed_too() -> None:
    check_full_size(suite.load(real=False))


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get(DATA_FOLDER), reason=f"{DATA_FOLDER} names no folder of real data"
)
def test_minima_on_real_data_are_confirmed_too() -> None:
    problems = suite.load(real=True)
    assert not [problem.name for problem in problems if "-like" in problem.name]
    check_full_size(problems)


def check_full_size(problems: list[Any]) -> None:
    assert not inexact(problems)
    for problem in problems:
        if problem.model is not None and problem.model.loss.name in ("absolute", "quantile"):
            assert has_one_minimiser(problem), problem
