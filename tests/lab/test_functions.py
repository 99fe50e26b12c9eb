"""`accelegrad bench --functions`: the suite and its minima, peers, counting, runs, the report."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest

from accelegrad import minimize
from accelegrad.cli.main import main
from accelegrad.geometry.penalties import L1
from accelegrad.geometry.sets import Ball
from accelegrad_lab.functions import report as report_module
from accelegrad_lab.functions.comparison import (
    QUICK_SUITE,
    FunctionsRequest,
    compare_functions,
)
from accelegrad_lab.functions.methods import METHODS
from accelegrad_lab.functions.minima import find_minimum, minima
from accelegrad_lab.functions.peers import ac_fgm, ad_gd, first_length, uni_fast_sgd
from accelegrad_lab.functions.problem import KINDS, Function
from accelegrad_lab.functions.recorder import Enough, Recorder
from accelegrad_lab.functions.runs import Limits, Record, measure
from accelegrad_lab.functions.suite import SUITE

#: Sums of 10,000 terms, and eigenvalues of matrices of side 40, are off by far less, relatively.
ROUNDING = 1e-11

needs_cvxpy = pytest.mark.skipif(
    importlib.util.find_spec("cvxpy") is None, reason="cvxpy is not installed"
)


def near(function: Function, seed: int, size: float) -> np.ndarray:
    return function.x0 + size * np.random.default_rng(seed).standard_normal(function.x0.size)


# -- the suite -------------------------------------------------------------------------------------


def test_the_suite_is_broad() -> None:
    assert len(SUITE) >= 30
    assert {case.kind for case in SUITE.values()} == set(KINDS)
    sizes = {case.build().x0.size for case in SUITE.values()}
    assert min(sizes) == 2
    assert max(sizes) == 10_000


@pytest.mark.parametrize("name", SUITE)
def test_gradients_are_subgradients(name: str) -> None:
    """f(b) >= f(a) + <g(a), b - a>, near and far, for f and for the sum with its penalty."""
    function = SUITE[name].build()
    for seed, size in enumerate((1e-2, 1e-1, 1.0, 10.0)):
        a, b = near(function, seed, size), near(function, seed + 10, size)
        for fun in (function.fun, function.whole):
            (at_a, slope), (at_b, _) = fun(a), fun(b)
            size_of_terms = abs(at_a) + abs(at_b) + np.linalg.norm(slope) * np.linalg.norm(b - a)
            assert at_b - at_a - slope @ (b - a) >= -ROUNDING * size_of_terms


@pytest.mark.parametrize("name", SUITE)
def test_no_call_changes_its_argument_or_the_function(name: str) -> None:
    function = SUITE[name].build()
    x = near(function, 1, 0.1)
    kept = x.copy()
    first, gradient = function.fun(x)
    gradient += 1.0  # a method may overwrite what it is given
    np.testing.assert_array_equal(x, kept)
    assert function.fun(x)[0] == first
    np.testing.assert_array_equal(function.fun(x)[1] + 1.0, gradient)


@pytest.mark.parametrize("name", SUITE)
def test_starts_are_feasible_and_minima_are_of_these_functions(name: str) -> None:
    function, kept = SUITE[name].build(), minima()[name]
    if function.feasible_set is not None:
        np.testing.assert_allclose(
            function.feasible_set.project(function.x0), function.x0, rtol=0, atol=1e-12
        )
    assert function.value(function.x0) == pytest.approx(kept.start, rel=1e-9, abs=1e-12)
    assert kept.value < kept.start
    assert kept.error <= 1e-9  # a tenth of the last accuracy
    assert kept.distance > 0


@pytest.mark.parametrize("name", QUICK_SUITE)
def test_no_certified_bound_is_above_a_minimum(name: str) -> None:
    """Our bounds hold within the certified radius; it has to reach the minimiser."""
    function, kept = SUITE[name].build(), minima()[name]
    result = minimize(
        function.fun,
        function.x0,
        feasible_set=function.feasible_set,
        penalty=function.penalty,
        max_iter=200,
    )
    # Minima are other solvers' answers: right to a tenth of the last accuracy, see above.
    slack = 1e-9 * (kept.start - kept.value) + ROUNDING * abs(kept.value)
    assert result.fun >= kept.value - slack
    if result.certified_radius >= kept.distance:
        assert result.lower_bound <= kept.value + slack


@needs_cvxpy
@pytest.mark.parametrize("name", SUITE)
def test_statements_say_the_same(name: str) -> None:
    import cvxpy as cp

    function = SUITE[name].build()
    x = cp.Variable(function.x0.size)
    expression = function.statement(cp, x)
    assert expression.is_convex()
    for point in (function.x0, np.abs(near(function, 2, 0.1))):
        x.value = point
        assert float(expression.value) == pytest.approx(function.value(point), rel=1e-9, abs=1e-9)
    if function.limits is not None:
        x.value = function.x0
        limits = function.limits(cp, x)
        assert all(np.max(np.abs(limit.violation())) <= 1e-9 for limit in limits)


@needs_cvxpy
@pytest.mark.parametrize("name", ["max-linear-plane", "goffin", "fermat-weber", "tail-risk"])
def test_minima_are_found_again(name: str) -> None:
    kept, found = minima()[name], find_minimum(SUITE[name].build())
    assert found.value == pytest.approx(kept.value, abs=1e-9 * (kept.start - kept.value))
    assert found.error <= 1e-9


# -- peers -----------------------------------------------------------------------------------------


class Points(list[np.ndarray]):
    """An oracle of ||A x - b||^2/2 that keeps the points and ends after a number of calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.A, self.b = rng.standard_normal((30, 8)), rng.standard_normal(30)
        self.most = calls

    def at(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        r = self.A @ x - self.b
        return 0.5 * float(r @ r), self.A.T @ r

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(self) >= self.most:
            raise Enough
        self.append(x.copy())
        return self.at(x)

    @property
    def gap(self) -> float:
        least = self.at(np.linalg.lstsq(self.A, self.b, rcond=None)[0])[0]
        return min(self.at(x)[0] for x in self) - least


def shrunk(x: np.ndarray, step: float) -> np.ndarray:
    return L1(0.3).prox(x, step)


def unchanged(x: np.ndarray, step: float) -> np.ndarray:
    return x


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("prox", [unchanged, shrunk])
def test_ac_fgm_is_its_recurrence(prox, epsilon) -> None:
    """The paper's recurrence with indices; x_0, a probe and trials come before x_1."""
    points = Points(60)
    with pytest.raises(Enough):
        ac_fgm(points, np.ones(8), prox, epsilon)
    f = [points.at(x)[0] for x in points]
    g = [points.at(x)[1] for x in points]
    norm = np.linalg.norm
    curvature = norm(g[1] - g[0]) / norm(points[1] - points[0]) / 4
    first = 2
    while norm(g[first] - g[0]) ** 2 / (2 * curvature) > (
        curvature / 2 * norm(points[first] - points[0]) ** 2 + epsilon / 4
    ):
        curvature *= 1.5
        first += 1
    step = 1 / (2.5 * curvature)
    np.testing.assert_allclose(points[first], prox(points[0] - step * g[0], step))

    beta, alpha = 1 - math.sqrt(6) / 3, 0.1
    eta = {1: min((1 - beta) * step, 1 / (4 * curvature))}
    tau, L = {0: 0.0, 1: 1.0}, {1: curvature}
    y = points[0]
    for t in range(2, 60 - first):
        k = first + t - 2  # where x_{t-1} is in the list of points
        eta[t] = min(
            4 / 3 * eta[t - 1],
            (tau[t - 2] + 1) / tau[t - 1] * eta[t - 1],
            tau[t - 1] / (4 * L[t - 1]),
        )
        tau[t] = tau[t - 1] + alpha / 2 + 2 * (1 - alpha) * eta[t] * L[t - 1] / tau[t - 1]
        z = prox(y - eta[t] * g[k], eta[t])
        y = (1 - beta) * y + beta * z
        expected = (z + tau[t] * points[k]) / (1 + tau[t])
        np.testing.assert_allclose(points[k + 1], expected, rtol=1e-6, atol=1e-9)
        change, back = g[k + 1] - g[k], points[k] - points[k + 1]
        L[t] = change @ change / (2 * (f[k] - f[k + 1] - g[k + 1] @ back) + epsilon / tau[t])


@pytest.mark.parametrize("prox", [unchanged, shrunk])
def test_ad_gd_is_its_recurrence(prox) -> None:
    """x_{k+1} = prox(x_k - a_k g_k) with the paper's a_k; trials for a_0 come before x_1."""
    points = Points(40)
    with pytest.raises(Enough):
        ad_gd(points, np.ones(8), prox)
    g = [points.at(x)[1] for x in points]
    norm = np.linalg.norm
    step, first = first_length(points[0], g[0]), 1
    while True:
        L = norm(g[first] - g[0]) / norm(points[first] - points[0])
        if 1 / math.sqrt(2) <= step * L <= 2:
            break
        step, first = min(1 / L, 10 * step), first + 1
    np.testing.assert_allclose(points[first], prox(points[0] - step * g[0], step))
    growth = 1 / 3
    for k in range(first, 39):
        before = 0 if k == first else k - 1
        L = norm(g[k] - g[before]) / norm(points[k] - points[before])
        allowed = max(2 * step**2 * L**2 - 1, 0.0)
        curved = step / math.sqrt(allowed) if allowed else math.inf
        following = min(math.sqrt(2 / 3 + growth) * step, curved)
        growth, step = following / step, following
        expected = prox(points[k] - step * g[k], step)
        np.testing.assert_allclose(points[k + 1], expected, rtol=1e-6, atol=1e-9)


def test_uni_fast_sgd_is_its_recurrence() -> None:
    points, D = Points(40), 3.0
    with pytest.raises(Enough):
        uni_fast_sgd(points, np.ones(8), unchanged, D)
    x, v, A, H = points[0], points[0], 0.0, None
    for k in range(20):
        a = (k + 1) / 2
        y = (A * x + a * v) / (A + a)
        gradient = points.at(y)[1]
        H = a * np.linalg.norm(gradient) / D if H is None else H
        v = v - a / H * gradient
        x = (A * x + a * v) / (A + a)
        H = math.sqrt(H**2 + (a / D * np.linalg.norm(points.at(x)[1] - gradient)) ** 2)
        A += a
        np.testing.assert_allclose(points[2 * k], y, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(points[2 * k + 1], x, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("method", "told"), [(ac_fgm, (0.0,)), (ad_gd, ())])
def test_peers_converge_on_a_smooth_function(method, told) -> None:
    """Gradient descent with steps 1/L has f - f* <= L ||x0 - x*||^2 / (2 k); neither is worse."""
    points = Points(300)
    with pytest.raises(Enough):
        method(points, np.ones(8), unchanged, *told)
    L = np.linalg.norm(points.A, 2) ** 2
    x_star = np.linalg.lstsq(points.A, points.b, rcond=None)[0]
    assert points.gap <= L * np.sum((np.ones(8) - x_star) ** 2) / (2 * 300)


# -- counting --------------------------------------------------------------------------------------


def half_square(x: np.ndarray) -> tuple[float, np.ndarray]:
    return 0.5 * float(x @ x), x.copy()


def square(**more) -> Function:
    return Function(half_square, np.array([1.0, 0.0]), lambda cp, x: cp.sum_squares(x) / 2, **more)


def test_calls_are_counted_until_the_last_accuracy() -> None:
    recorder = Recorder(square(), 0.0, 100, 60.0)
    for length in (1.0, 0.05, 0.5):
        recorder.fun(np.array([length, 0.0]))
    assert recorder.reached.keys() == {1e-2}
    assert recorder.reached[1e-2][0] == 2
    assert recorder.accuracy == pytest.approx(0.0025)
    with pytest.raises(Enough):
        recorder.fun(np.zeros(2))
    assert {wanted: calls for wanted, (calls, _) in recorder.reached.items()} == {
        1e-2: 2,
        1e-4: 4,
        1e-6: 4,
        1e-8: 4,
    }


def test_a_run_ends_at_its_limit_of_calls() -> None:
    recorder = Recorder(square(), 0.0, 3, 60.0)
    recorder.fun(np.ones(2))
    recorder.fun(np.ones(2))
    with pytest.raises(Enough):
        recorder.fun(np.ones(2))


def test_points_outside_of_the_set_do_not_count() -> None:
    ball = Ball(np.array([2.0, 0.0]), 1.0)
    function = square(feasible_set=ball)
    recorder = Recorder(function, 0.25, 100, 60.0)  # any number below f(x0)
    recorder.fun(np.array([0.8, 0.0]))
    assert recorder.accuracy == math.inf
    recorder.fun(np.array([1.0, 0.0]))
    assert recorder.accuracy == 1.0


def test_penalties_are_part_of_the_value() -> None:
    function = square(penalty=L1(1.0), slope=np.sign)
    recorder = Recorder(function, 0.0, 100, 60.0)
    assert recorder.fun(np.array([0.5, 0.0]))[0] == 0.125
    assert recorder.accuracy == pytest.approx(0.625 / 1.5)
    value, gradient = recorder.whole(np.array([0.1, 0.0]))
    assert value == pytest.approx(0.105)
    np.testing.assert_allclose(gradient, [1.1, 0.0])
    assert recorder.accuracy == pytest.approx(0.105 / 1.5)


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.run])
def test_every_method_works_on_an_easy_function(name: str) -> None:
    function, kept = SUITE["log-sum-exp"].build(), minima()["log-sum-exp"]
    reason = METHODS[name].against(function)
    if reason:
        pytest.skip(reason)
    record = measure(("log-sum-exp", name), function, kept, Limits(500, 60.0))
    assert record.accuracy < 0.1, record.ended
    assert record.cost("calls", 1e-2) <= 500
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


@needs_cvxpy
def test_clarabel_has_seconds_but_no_calls() -> None:
    function, kept = SUITE["max-linear-plane"].build(), minima()["max-linear-plane"]
    record = measure(("max-linear-plane", "cvxpy"), function, kept, Limits(500, 60.0))
    assert math.isnan(record.cost("calls", 1e-8))
    assert 0 < record.cost("seconds", 1e-8) < math.inf


def test_a_failure_is_a_record() -> None:
    """A method that raises has not reached anything, and the record says why."""

    x0 = np.array([1.0, 0.0])

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.array_equal(x, x0):
            raise ZeroDivisionError("only the start")
        return half_square(x)

    function = Function(fun, x0, lambda cp, x: cp.sum_squares(x) / 2)
    zero = minima()["valley"]
    record = measure(("square", "bfgs"), function, zero, Limits(500, 60.0))
    assert record.ended == "ZeroDivisionError: only the start"
    assert record.calls == 1
    assert record.cost("calls", 1e-2) == math.inf


def small(out: Path, **more) -> FunctionsRequest:
    asked = {
        "only": ("valley", "lasso"),
        "methods": ("auto", "lbfgs-b", "ad-gd"),
        "max_calls": 60,
        "time_limit": 60.0,
        "progress": False,
    }
    return FunctionsRequest(out, **{**asked, **more})


def test_the_report(tmp_path: Path) -> None:
    report = compare_functions(small(tmp_path))
    assert not report.interrupted
    assert "AdGD" in report.page.read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "functions-1e-04.svg").exists()
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 4
    by = {(row["function"], row["method"], float(row["accuracy"])): row for row in rows}
    assert float(by["lasso", "ad-gd", 1e-2]["calls"]) <= 60
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| lasso | 400 |" in table
    assert "| valley | 2 |" in table


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the page: drawing takes seconds."""
    page = lambda report, out: out / "index.html"  # noqa: E731
    monkeypatch.setattr(report_module, "write_report", page)


@pytest.mark.usefixtures("undrawn")
def test_results_are_kept_for_another_time(tmp_path: Path) -> None:
    compare_functions(small(tmp_path, only=("valley",)))
    before = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    compare_functions(small(tmp_path, resume=True))
    after = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert after[: len(before)] == before
    assert len(after) == len(before) + 3
    with pytest.raises(ValueError, match="other limits"):
        compare_functions(small(tmp_path, resume=True, max_calls=50))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--functions", "--only", "lasoo"], "did you mean 'lasso'"),
        (["--functions", "--methods", "l-bfgs-b"], "did you mean 'lbfgs-b'"),
        (["--functions", "--sets", "a9a"], "--sets does not go with --functions"),
        (["--minima"], "--minima needs --functions"),
        (["--functions", "--max-calls", "0"], "max_calls must be"),
    ],
)
def test_wrong_options_are_refused(options, words, tmp_path, capsys) -> None:
    assert main(["bench", *options, "--out", str(tmp_path / "out")]) != 0
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_command(tmp_path: Path, capsys) -> None:
    options = ["--functions", "--quick", "--only", "valley", "--methods", "auto,lbfgs-b"]
    assert main(["bench", *options, "--out", str(tmp_path), "--no-progress"]) == 0
    assert "The report is" in capsys.readouterr().out
    assert (tmp_path / "functions" / "table.csv").exists()
