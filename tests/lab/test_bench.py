"""`accelegrad bench`: accuracies, ladders, profiles, time limits, resuming and the report."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.optimize import minimize as scipy_minimize

from accelegrad.cli.main import main
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.sklearn.objective import Objective
from accelegrad.sklearn.solve import Settings, Tolerance
from accelegrad_lab.bench import bench as bench_module
from accelegrad_lab.bench import problems as bench_problems
from accelegrad_lab.bench.bench import BenchRequest, bench
from accelegrad_lab.bench.problems import (
    SUITE_LOSSES,
    WITHOUT_L2,
    DataSet,
    Problem,
    prepared,
    problems_of,
    sources,
)
from accelegrad_lab.bench.results import Measured, ResultFile, Results, Suite
from accelegrad_lab.bench.runs import (
    ACCURACIES,
    Bench,
    Record,
    Rung,
    Yardstick,
    measure,
    seconds_to,
)
from accelegrad_lab.bench.summary import claims, losses_of_ours
from accelegrad_lab.bench.worker import BenchWorker, Fit
from accelegrad_lab.engine import minimum as bench_minimum
from accelegrad_lab.engine import worker as engine_worker
from accelegrad_lab.engine.campaign import Finished
from accelegrad_lab.engine.content import Verdict
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.peers import (
    DEFAULT_TOL,
    ESTIMATORS,
    OURS,
    SOLVERS,
    Answer,
    Solver,
    huber_scale,
    iterations,
    iterations_then_tolerances,
)
from accelegrad_lab.engine.timing import timed
from accelegrad_lab.engine.worker import SolverError, TimeLimitError
from accelegrad_lab.report import stills
from accelegrad_lab.report.profiles import geometric_mean, profile, ratios
from browser import open_page, wait_for  # noqa: F401 (a fixture)
from reference.losses import loss_values

CLASSES = ["logistic", "hinge", "squared_hinge"]
KINKED = ["hinge", "absolute", "quantile"]


def data_for(
    loss: str, *, n: int = 120, d: int = 6, sparse: bool = False, seed: int = 0
) -> DataSet:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if sparse:
        X *= rng.random((n, d)) < 0.2
    y = X @ np.arange(1.0, d + 1) / d + rng.standard_t(3, n)
    classes = loss in CLASSES
    y = np.where(y > 0, 1.0, -1.0) if classes else y / y.std()
    stored: Any = sp.csr_matrix(X) if sparse else X
    return DataSet("made", stored, y, classes, "made")


def problem_for(loss: str, data: DataSet, strength: float = 1.0) -> Problem:
    options = {"delta": 1.35 * huber_scale(data.X, data.y, strength)} if loss == "huber" else {}
    return Problem("made", loss, strength, options)


def objective(problem: Problem, data: DataSet) -> Callable[[np.ndarray], float]:
    """Return mean loss + l2/2 ||w||^2, written down anew."""
    y, l2 = data.y, problem.strength / len(data.y)
    parameter = {"huber": problem.options.get("delta", 1.0), "quantile": 0.9}.get(problem.loss)

    def losses(m: np.ndarray) -> np.ndarray:
        return np.asarray(loss_values(problem.loss, m, y, parameter=parameter))

    return lambda w: float(losses(data.X @ w).mean() + l2 / 2 * w @ w)


# -- problems --------------------------------------------------------------------------------------


def test_a_file_of_each_kind_gets_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3)) * [1, 50, 1]
    targets = {
        "two": rng.permuted([1, 2] * 15),
        "twenty": rng.permuted(list(range(1, 21)) + [1] * 10),
        "numbers": X @ [1, 2, 3],
        "two.t": rng.permuted([1, 2] * 15),
    }
    for name, y in targets.items():
        lines = (f"{t} 1:{a} 2:{b} 3:{c}" for t, (a, b, c) in zip(y, X.tolist(), strict=True))
        (tmp_path / f"{name}.svm").write_text("\n".join(lines) + "\n")
    (tmp_path / "README.md").write_text("no data")
    monkeypatch.setenv("ACCELEGRAD_DATA", str(tmp_path))
    found = {name: source(0) for name, source in sources().items()}
    assert list(found) == ["numbers", "twenty", "two"]  # the test half is left out ...
    assert list(sources(["two.t"])) == ["two.t"]  # ... unless it is named
    assert [found[name].classes for name in found] == [False, True, True]
    np.testing.assert_array_equal(found["twenty"].y, np.where(targets["twenty"] > 10, 1, -1))
    columns = found["numbers"].X
    np.testing.assert_allclose(columns.mean(axis=0), [0, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(columns.std(axis=0), [1, 1, 1, 0], atol=1e-12)
    with pytest.raises(ValueError, match=r"no data set 'tow': did you mean 'two'\?"):
        sources(["tow"])


def test_numbers_in_steps_are_no_classes() -> None:
    X, steps = np.ones((33, 1)), np.repeat(np.arange(0.0, 110, 10), 3)
    assert not prepared("pol-like", X, steps).classes
    assert prepared("ten classes", X[:30], np.repeat(np.arange(10.0), 3)).classes


def test_sparse_columns_are_brought_within_one_and_large_sets_are_sampled() -> None:
    X = sp.random_array((400, 50), density=0.1, rng=np.random.default_rng(0), format="csr") * 7
    y = np.where(np.arange(400) % 3, 1.0, -1.0)
    made = prepared("some", X, y, most_rows=100)
    assert sp.issparse(made.X)
    assert made.X.shape[0] == made.y.size == 100
    assert "100 of 400 rows" in made.words
    assert made.X.indices.dtype == np.int32
    np.testing.assert_allclose(abs(made.X).max(axis=0).toarray(), 1, rtol=1e-12)


def test_a_small_part_has_both_classes() -> None:
    y = np.r_[np.ones(50), -1.0]
    assert set(DataSet("x", np.ones((51, 2)), y, True, "").head(10).y) == {-1.0, 1.0}


def test_l2_of_zero_is_for_absolute_and_quantile_with_more_rows_than_columns() -> None:
    data = data_for("squared")
    found = {(p.loss, p.strength) for p in problems_of(data, list(SUITE_LOSSES), (1.0, 0.0))}
    numbers = {name for name in SUITE_LOSSES if name not in CLASSES}
    assert found == {(n, 1.0) for n in numbers} | {("absolute", 0.0), ("quantile", 0.0)}
    assert not list(problems_of(data_for("squared", n=5), ["absolute"], (0.0,)))


# -- minima ----------------------------------------------------------------------------------------


def independent_minimum(problem: Problem, data: DataSet) -> float:
    """Return the minimum by SciPy: L-BFGS for smooth losses, SLSQP or HiGHS for those with kinks."""
    value, (n, d) = objective(problem, data), data.X.shape
    X = data.X.toarray() if sp.issparse(data.X) else data.X
    if problem.smooth:
        found = scipy_minimize(value, np.zeros(d), method="BFGS", options={"gtol": 1e-9})
        return float(found.fun)
    if problem.strength == 0:
        up, down = {"absolute": (1, 1), "quantile": (0.1, 0.9)}[problem.loss]
        costs = np.r_[np.zeros(d), np.full(n, up), np.full(n, down)] / n
        A = np.hstack([X, -np.eye(n), np.eye(n)])
        bounds = [(None, None)] * d + [(0, None)] * (2 * n)
        return float(linprog(costs, A_eq=A, b_eq=data.y, bounds=bounds).fun)
    # A quadratic programme with a variable more for each row: t >= low r and t >= high r.
    low, high, zero = {
        "hinge": (np.minimum(-data.y, 0), np.maximum(-data.y, 0), data.y),
        "absolute": (-np.ones(n), np.ones(n), data.y),
        "quantile": (np.full(n, -0.9), np.full(n, 0.1), data.y),
    }[problem.loss]
    A = np.vstack([np.hstack([-slope[:, None] * X, np.eye(n)]) for slope in (low, high)])
    b, l2 = np.r_[-low * zero, -high * zero], problem.strength / n
    found = scipy_minimize(
        lambda v: (v[d:].mean() + l2 / 2 * v[:d] @ v[:d], np.r_[l2 * v[:d], np.full(n, 1 / n)]),
        np.r_[np.zeros(d), np.abs(b).max() * np.ones(n)],
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: A @ v - b, "jac": lambda v: A},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return value(found.x[:d])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", list(SUITE_LOSSES))
def test_minima_agree_with_scipy_and_are_proved(loss: str, sparse: bool) -> None:
    data = data_for(loss, n=60, d=4, sparse=sparse)
    for strength in (1.0, 0.01) + ((0.0,) if loss in WITHOUT_L2 else ()):
        problem = problem_for(loss, data, strength)
        found = find_minimum(problem.model(data), 30.0)
        assert found.lower <= found.value <= found.lower + 2e-9 * found.value
        assert found.value == pytest.approx(independent_minimum(problem, data), rel=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_minima_of_wide_data_and_by_conjugate_gradients(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_for(loss, n=40, d=200)
    model = problem_for(loss, data).model(data)
    by_rows = find_minimum(model, 30.0)
    monkeypatch.setattr(bench_minimum, "DIRECT", 0)
    by_steps = find_minimum(model, 30.0)
    for found in (by_rows, by_steps):
        assert found.lower <= found.value <= found.lower + 2e-9 * found.value
    assert by_steps.value == pytest.approx(by_rows.value, rel=1e-8)


def test_a_search_for_a_minimum_ends_in_time_with_a_true_bound() -> None:
    data = data_for("hinge", n=2000, d=50)
    model = problem_for("hinge", data, 0.01).model(data)
    short, long = find_minimum(model, 0.0), find_minimum(model, 30.0)
    assert short.lower <= long.value <= short.value


# -- solvers ---------------------------------------------------------------------------------------

PAIRS = [
    pytest.param(name, loss, marks=[pytest.mark.slow] if solver.apart else [])
    for name, solver in SOLVERS.items()
    for loss in solver.words
    if loss in SUITE_LOSSES  # what only `compare` offers is tried there
]


@pytest.mark.parametrize(("name", "loss"), PAIRS)
def test_every_solver_minimises_the_same_objective(name: str, loss: str) -> None:
    solver = SOLVERS[name]
    if solver.needs:
        pytest.importorskip(solver.needs)
    taken = 0
    for sparse in (False, True):
        for strength in (1.0, 0.0):
            data = data_for(loss, sparse=sparse)
            if solver.reason_against(Problem("made", loss, strength).model(data)):
                continue
            if strength == 0 and not (loss in WITHOUT_L2 and not sparse):
                continue
            problem = problem_for(loss, data, strength)
            model = problem.model(data)
            tuned = solver.tune(model) if solver.tune else {}
            setting = 1e-4 if solver.certified else 1e-9 if name == "liblinear" else 3000
            answer, seconds = timed(solver.make(model, setting, tuned))
            minimum = find_minimum(problem.model(data), 30.0).value
            value = objective(problem, data)(answer.x)
            # Steps of a fixed size or slow decay leave stochastic gradients at some distance.
            accuracy = 1e-2 if solver.steady else setting if solver.certified else 2e-6
            assert minimum - 1e-8 <= value <= minimum + accuracy
            assert seconds > 0
            taken += 1
    assert taken


def test_ours_tells_its_gap() -> None:
    data = data_for("logistic")
    answer, _ = timed(SOLVERS[OURS].make(Problem("made", "logistic", 1.0).model(data), 1e-3, {}))
    minimum = find_minimum(Problem("made", "logistic", 1.0).model(data), 30.0).value
    assert answer.value - minimum <= answer.gap <= 1e-3
    assert not answer.converged


def test_huber_regressor_has_the_minimiser_of_the_model_with_its_scale() -> None:
    data = data_for("huber", n=300)
    for strength in (1.0, 0.01):
        problem = problem_for("huber", data, strength)
        answer, _ = timed(SOLVERS["huber"].make(problem.model(data), 3000, {}))
        at = problem.model(data).at(answer.x)
        assert at.dual_gap <= 1e-7 * at.value
        other = replace(problem, options={"delta": 1.1 * problem.options["delta"]}).model(data)
        assert other.at(answer.x).dual_gap > 1e-4 * at.value  # the delta matters


def test_the_numbers_of_iterations_grow_by_half() -> None:
    found = [steps for steps, _ in zip(iterations(), range(9), strict=False)]
    assert found == [1, 2, 3, 4, 6, 9, 14, 21, 32]


def test_liblinear_gets_tolerances_once_it_converges() -> None:
    asked = iterations_then_tolerances()
    assert [next(asked), asked.send(told(1, 1)), asked.send(told(1, 1))] == [1, 2, 3]
    found = [asked.send(told(1, 1, ended=True)), *asked]
    assert found == pytest.approx(np.geomspace(1e-4, 1e-9, 11)[1:])


def test_reasons_against() -> None:
    dense, sparse = data_for("absolute"), data_for("squared", sparse=True)
    one = Problem("made", "absolute", 1.0)
    assert "l2 = 0 only" in SOLVERS["quantile"].reason_against(one.model(dense))
    assert not SOLVERS["quantile"].reason_against(replace(one, strength=0.0).model(dense))
    assert "l2 > 0" in SOLVERS["liblinear"].reason_against(replace(one, strength=0.0).model(dense))
    assert "this loss" in SOLVERS["lbfgs"].reason_against(one.model(dense))
    squared = Problem("made", "squared", 1.0)
    assert "sparse" in SOLVERS["skglm"].reason_against(squared.model(sparse))
    missing = replace(SOLVERS["skglm"], needs="no_such_package")
    assert "not installed" in missing.reason_against(squared.model(dense))


# -- ladders ---------------------------------------------------------------------------------------


class Script:
    """In place of the process with the solvers: it answers by a function of the setting."""

    def __init__(self, answer: Callable[[float], Answer]) -> None:
        self.answer, self.asked = answer, []

    def warm_up(self, name: str, problem: Problem) -> float:
        return 0.0

    def fit(self, name: str, problem: Problem, setting: float, tuned: Any, limit: float) -> Fit:
        self.asked.append(setting)
        return Fit(setting, 0.01 * setting, self.answer(setting))


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Record, list[float]]]:
    """Measure a fake solver on P(w) = w^2/2 (one row, squared loss, no l2): |w| = f(steps)."""

    def climbed(w: Callable[[float], float], limit: float = 10.0, **options: Any) -> Any:
        monkeypatch.setitem(SOLVERS, "toy", toy_solver(**options))
        toy = Script(lambda steps: Answer(np.array([w(steps)]), 1, False))
        return measure(toy, "toy", toy_bench(limit=limit)), toy.asked  # type: ignore[arg-type]

    return climbed


def toy_bench(**options: Any) -> Bench:
    data = DataSet("toy", np.ones((1, 1)), np.zeros(1), False, "")
    problem = Problem("toy", "squared", 0.0)
    return Bench(problem, problem.model(data), 0.0, Yardstick(1.0), **{"limit": 10.0, **options})


def toy_solver(**options: Any) -> Solver:
    return Solver("Toy", {"squared": "toy"}, lambda *_: lambda: None, **options)  # type: ignore[arg-type, return-value]


def test_a_ladder_ends_where_the_finest_accuracy_is_reached(climb: Any) -> None:
    record, asked = climb(lambda steps: math.sqrt(1.98) / 10**steps)
    assert record.status == "reached"
    assert asked == [1, 2, 3]
    assert [rung.value for rung in record.rungs] == pytest.approx([0.99e-2, 0.99e-4, 0.99e-6])
    found = [seconds_to(record, accuracy, 0.0, Yardstick(1.0)) for accuracy in (0.011, 2e-4, 1e-7)]
    assert found == [0.01, 0.02, math.inf]


def test_a_ladder_ends_where_nothing_moves_any_more(climb: Any) -> None:
    record, _ = climb(lambda steps: 0.5 if steps >= 3 else 1.0, limit=1e9)
    assert record.status == "stalled"
    assert len(record.rungs) == 3 + 10


def test_a_steady_solver_is_not_run_beyond_its_limit(climb: Any) -> None:
    record, asked = climb(lambda steps: 1.0 / steps, limit=0.1, steady=True)
    assert record.status == "time limit"
    assert asked == [1, 2, 3, 4, 6, 9]  # 14 steps would take 0.14 s


def test_a_direct_solver_runs_once(climb: Any) -> None:
    record, asked = climb(lambda steps: 0.1, direct=True)
    assert record.status == "converged"
    assert asked == [1]


def test_patience_is_a_multiple_of_our_time() -> None:
    solver = toy_solver(patient=120.0)
    assert toy_bench(ours=0.01).limit_of(solver) == 10.0
    assert toy_bench(ours=1.0).limit_of(solver) == 120.0
    assert toy_bench(ours=1.0).limit_of(toy_solver()) == 10.0


def test_a_solver_far_slower_than_ours_is_not_waited_for() -> None:
    limits = [toy_bench(slowest=s).limit_of(toy_solver()) for s in (0.01, 0.5, 5.0, math.inf)]
    assert limits == [1.0, 2.5, 10.0, 10.0]
    assert toy_bench(limit=0.5, slowest=0.3).limit_of(toy_solver()) == 0.5


def told(value: float, gap: float, *, ended: bool = False) -> Answer:
    return Answer(np.zeros(1), 1, ended, value, gap)


def asked_of(name: str, *answers: Answer, yardstick: Yardstick) -> tuple[list[float], str]:
    """Return the tolerances that a solver is asked for which answers so, and why that ended."""
    left = iter(answers)

    def answer(setting: float) -> Answer:
        try:
            return next(left)
        except StopIteration:
            raise SolverError("out of answers") from None

    solver = Script(answer)
    record = measure(solver, name, replace(toy_bench(), yardstick=yardstick))  # type: ignore[arg-type]
    return solver.asked, record.status


def test_tolerances_follow_the_unit_that_the_runs_tell() -> None:
    answers = [told(0.2, 0.009), told(0.2, 0.004), told(0.2, 0.0004), told(0.2, 0.0004, ended=True)]
    asked, status = asked_of(OURS, *answers, yardstick=Yardstick(0.7))
    # 0.009 > 1e-2 * 0.5: the first accuracy is asked for twice.
    assert asked == pytest.approx([ACCURACIES[0], 1e-2 * 0.5, 1e-3 * 0.5, 1e-4 * 0.5])
    assert status == "ended"


def test_tolerances_fall_by_ten_where_nothing_is_known_yet() -> None:
    asked, _ = asked_of(OURS, told(0.7, 0.009), yardstick=Yardstick(0.7))
    assert asked == pytest.approx([ACCURACIES[0], 1e-3])
    asked, _ = asked_of(OURS, told(0.2, 0.009), yardstick=Yardstick(0.7, "minimum"))
    # P* is at least 0.2 - 0.009: that is what accuracies are relative to.
    assert asked[1:] == pytest.approx([1e-2 * 0.191])


def test_estimators_begin_with_their_default_and_are_asked_relative_to_the_value() -> None:
    answers = [told(0.2, 2e-4), told(0.2, 5e-5), told(0.2, 5e-7)]
    asked, status = asked_of(ESTIMATORS, *answers, yardstick=Yardstick(0.7))
    # 2e-4 proves 1e-2 and 1e-3 of 0.5; to 1e-4, which is 2.5e-4 of the value 0.2, it is not near.
    assert asked == pytest.approx([DEFAULT_TOL, 1e-4 * 0.5 / 0.2, 1e-6 * 0.5 / 0.2])
    assert status == "reached"


def test_the_tolerance_of_an_estimator_has_the_unit_that_it_is_asked_in() -> None:
    data = data_for("logistic")
    problem = Problem("made", "logistic", 1.0)
    assert AcceleGradClassifier().tol == AcceleGradRegressor().tol == DEFAULT_TOL
    start = problem.model(data).value(np.zeros(data.X.shape[1]))
    settings = Settings(
        max_iter=100,
        tol=DEFAULT_TOL,
        batch_size=None,
        diameter="auto",
        output="average",
        n_iter_no_change=5,
        progress=False,
    )
    objective = Objective("logistic", 1e-4, 0.0, None, fit_intercept=False)
    tolerance = Tolerance.of(objective.on(data.X, data.y, None), settings)
    for value in (0.3, 1e-9):
        unit = SOLVERS[ESTIMATORS].unit(value, start)
        assert DEFAULT_TOL * unit == pytest.approx(tolerance.target(value), rel=1e-12)


def test_estimators_are_no_peers_of_ours() -> None:
    times = {OURS: 2.0, ESTIMATORS: 1.0, "lbfgs": 1.5}
    suite = suite_of({("a", "logistic", 1.0, 100): times})
    assert "1.3 times as long: 2 s, LBFGS" in losses_of_ours(suite)["a, logistic, l2 = 1/n"]
    alone = suite_of({("a", "quantile", 1.0, 100): {OURS: 2.0, ESTIMATORS: 1.0}})
    assert not losses_of_ours(alone)
    assert "absolute-and-quantile-first" not in {claim.name for claim in claims(alone)}


def test_ours_counts_only_where_it_is_accurate_and_says_so() -> None:
    yardstick = Yardstick(1.0)
    rungs = (
        Rung(1e-2, 1.0, 0.5, 0.5, 0.1),  # accurate, but it does not know
        Rung(1e-3, 2.0, 0.6, 0.5, 1e-9),  # a wrong certificate
        Rung(1e-4, 3.0, 0.5, 0.5, 1e-9),
    )
    ours = Record("toy", OURS, rungs, "", 10.0)
    assert seconds_to(ours, 1e-3, 0.5, yardstick) == 3.0
    assert seconds_to(replace(ours, solver="lbfgs"), 1e-3, 0.5, yardstick) == 1.0


def test_records_survive_json() -> None:
    rungs = (Rung(1, 0.5, math.inf), Rung(2, 1.0, 0.25, 0.25, 1e-3, 1.5))
    record = Record("a/b/1", "sgd", rungs, "time limit", 5.0, 0.1, 0.2, "eta0=1")
    again = Record.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))
    assert again.rungs[1:] == record.rungs[1:]
    assert again.rungs[0].value == math.inf
    assert replace(again, rungs=()) == replace(record, rungs=())


# -- the process -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_beyond_its_limit_is_ended_and_the_next_one_works() -> None:
    data = data_for("absolute", n=4000, d=10)
    problem = Problem("made", "absolute", 0.0)
    with BenchWorker() as worker:
        worker.load(data)
        assert worker.warm_up("quantile", problem) > 0
        assert worker.warm_up("quantile", problem) == 0
        with pytest.raises(TimeLimitError):
            worker.fit("quantile", problem, 1, {}, 0.05)
        fit = worker.fit(OURS, problem, 1e-2, {}, 60.0)
        model = problem.model(data)
        assert model.value(fit.answer.x) == pytest.approx(fit.answer.value, rel=1e-12)
        record = measure(worker, "quantile", toy_like(problem, data, limit=0.05))
        assert record.status == "time limit"
        assert record.rungs == ()
        with pytest.raises(SolverError, match="'tol' parameter"):
            worker.fit("liblinear", replace(problem, strength=1.0), -1, {}, 60.0)


@pytest.mark.slow
def test_a_process_that_dies_is_told_of_and_replaced() -> None:
    data = data_for("squared")
    problem = Problem("made", "squared", 1.0)
    others = set(multiprocessing.active_children())  # of tests before
    with BenchWorker() as worker:
        worker.load(data)
        worker.warm_up("ridge", problem)
        processes = set(multiprocessing.active_children()) - others
        assert len(processes) == 2  # for wall time, and for CPU time on one thread
        for process in processes:
            process.kill()
            process.join()
        for _ in processes:
            with pytest.raises(SolverError, match="ended by itself"):
                worker.fit("ridge", problem, 1, {}, 60.0)
        fit = worker.fit("ridge", problem, 1, {}, 60.0)
        assert fit.seconds > 0
        assert fit.cpu > 0


def test_a_process_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_worker, "serve", print)  # which says nothing to its parent
    with BenchWorker() as worker:
        worker.load(data_for("squared"))
        with pytest.raises(RuntimeError, match="ended as it started"):
            worker.warm_up("ridge", Problem("made", "squared", 1.0))


def toy_like(problem: Problem, data: DataSet, limit: float) -> Bench:
    model = problem.model(data)
    found = find_minimum(model, 30.0)
    start = model.value(np.zeros(model.n_features))
    return Bench(problem, model, found.value, Yardstick(start), limit)


@pytest.mark.slow
def test_measuring_ours_and_a_tuned_solver() -> None:
    data = data_for("hinge", n=300)
    one = toy_like(Problem("made", "hinge", 1.0), data, limit=1.0)
    with BenchWorker() as worker:
        worker.load(data)
        ours, tuned = measure(worker, OURS, one), measure(worker, "sgd-tuned", one)
    assert seconds_to(ours, 1e-3, one.minimum, one.yardstick) < 10
    assert [rung.own_value for rung in ours.rungs] == pytest.approx([r.value for r in ours.rungs])
    assert tuned.tuning > 0
    assert tuned.tuned
    assert seconds_to(tuned, 1e-2, one.minimum, one.yardstick) <= 1.0
    assert all(rung.seconds <= 1.0 for rung in tuned.rungs)


# -- profiles --------------------------------------------------------------------------------------

TIMES = {
    "p": {"a": 1.0, "b": 2.0},
    "q": {"a": 3.0, "b": 1.0},
    "r": {"a": math.inf, "b": 4.0},
    "s": {"a": math.inf, "b": math.inf},
    "t": {"b": 5.0},
}


def test_profiles_of_a_hand_made_example() -> None:
    found = ratios(TIMES)
    assert found["p"] == {"a": 1, "b": 2}
    assert found["q"] == {"a": 3, "b": 1}
    assert found["s"] == {"a": math.inf, "b": math.inf}
    a, b = profile(found, "a"), profile(found, "b")
    assert (a.problems, b.problems) == (4, 5)
    assert [a.share(factor) for factor in (1, 2.9, 3, 100)] == [0.25, 0.25, 0.5, 0.5]
    assert [b.share(factor) for factor in (1, 1.9, 2, 100)] == [0.6, 0.6, 0.8, 0.8]
    x, y = a.line(10.0)
    assert x.tolist() == [1, 3, 3, 10]
    assert y.tolist() == [0.25, 0.25, 0.5, 0.5]


def test_a_profile_of_a_solver_that_is_never_first_starts_at_zero() -> None:
    own = profile(ratios({"p": {"a": 1.0, "b": 4.0}}), "b")
    assert [own.share(factor) for factor in (1, 3.9, 4)] == [0, 0, 1]
    assert own.line(8.0)[1].tolist() == [0, 0, 1, 1]
    assert geometric_mean([1.0, 4.0, math.inf]) == pytest.approx(2)
    assert math.isnan(geometric_mean([]))


def suite_of(times: dict[tuple[str, str, float, int], dict[str, float]]) -> Suite:
    """Return results in which each solver reached everything in one run of so many seconds."""
    results = Results()
    for (data, loss, strength, rows), by_solver in times.items():
        key = f"{data}/{loss}/{strength:g}"
        results.problems[key] = Measured(
            key, data, loss, strength, rows, 5, "", start=1.0, minimum=0.5, lower=0.5, seconds=0.1
        )
        for solver, seconds in by_solver.items():
            rungs = (Rung(1, seconds, 0.5, 0.5, 0.0),) if math.isfinite(seconds) else ()
            results.records[key, solver] = Record(key, solver, rungs, "", 10.0)
    return Suite.of(results, "start")


def verdicts(suite: Suite) -> dict[str, Verdict]:
    return {claim.name: claim.verdict for claim in claims(suite)}


def test_the_sentences_are_judged_by_their_thresholds() -> None:
    good = suite_of(
        {
            ("a", "logistic", 1.0, 100): {OURS: 1.0, "lbfgs": 2.0},
            ("a", "hinge", 1.0, 100): {OURS: 2.9, "liblinear": 1.0, "sgd": 3.0, "sgd-tuned": 4.0},
            ("b", "absolute", 0.0, 20_000): {OURS: 0.05, "quantile": math.inf, "quantreg": 1.0},
            ("b", "quantile", 1.0, 20_000): {OURS: 0.05},
        }
    )
    assert set(verdicts(good).values()) == {Verdict.HOLDS}
    assert len(verdicts(good)) == 8
    assert list(losses_of_ours(good)) == ["a, hinge, l2 = 1/n"]
    assert "2.9 times as long" in losses_of_ours(good)["a, hinge, l2 = 1/n"]
    bad = suite_of(
        {
            ("a", "logistic", 1.0, 100): {OURS: 2.1, "lbfgs": 1.0},
            ("a", "hinge", 1.0, 100): {OURS: math.inf, "liblinear": 1.0, "sgd": 3.0},
            ("b", "absolute", 0.0, 20_000): {OURS: 0.2, "quantile": math.inf, "quantreg": 0.1},
        }
    )
    found = verdicts(bad)
    assert found.pop("certificates-hold") is Verdict.HOLDS
    assert found.pop("solved-and-told") is Verdict.IN_PART
    assert set(found.values()) == {Verdict.FAILS}
    assert len(found) == 6
    assert "not solved" in losses_of_ours(bad)["a, hinge, l2 = 1/n"]


@pytest.mark.parametrize("wrong", [OURS, ESTIMATORS])
def test_a_wrong_certificate_is_seen(wrong: str) -> None:
    suite = suite_of({("a", "logistic", 1.0, 100): {OURS: 1.0, ESTIMATORS: 1.0, "lbfgs": 2.0}})
    key = "a/logistic/1"
    lower = {
        (key, "lbfgs"): (Rung(1, 1.0, 0.49),),  # below what one of ours has proved
        (key, OURS if wrong == ESTIMATORS else ESTIMATORS): (Rung(1, 1.0, 0.5, 0.5, 0.1),),
    }
    results = Results(
        dict(suite.problems),
        {at: replace(one, rungs=lower.get(at, one.rungs)) for at, one in suite.records.items()},
    )
    found = Suite.of(results, "start")
    assert found.problems[key].minimum == 0.49
    assert verdicts(found)["certificates-hold"] is Verdict.FAILS
    assert found.times(1e-3)[key][OURS] == math.inf


def test_a_problem_counts_where_its_minimum_is_known() -> None:
    suite = suite_of({("a", "logistic", 1.0, 100): {OURS: 1.0}})
    key = "a/logistic/1"
    doubtful = replace(suite.problems[key], lower=0.5 - 4e-5)  # 8e-5 of P(0) - P*
    suite = replace(suite, problems={key: doubtful})
    assert suite.unsure(key) == pytest.approx(8e-5)
    assert [suite.counted(accuracy) for accuracy in (1e-2, 1e-3, 1e-4)] == [[key], [key], []]


# -- the file --------------------------------------------------------------------------------------

SETTINGS = {"time_limit": 5.0}


def test_results_are_kept_line_by_line_and_half_a_line_is_dropped(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    file.begin(SETTINGS, resume=False)
    one = next(iter(suite_of({("a", "hinge", 1.0, 9): {OURS: 1.0}}).problems.values()))
    file.add_problem(one)
    file.add_record(Record(one.key, OURS, (Rung(1, 1.0, 0.5),), "reached", 5.0))
    with file.path.open("a") as stream:
        stream.write('{"kind": "record", "problem": "a/h')
    found = file.begin(SETTINGS, resume=True)
    assert found.problems == {one.key: one}
    assert list(found.records) == [(one.key, OURS)]
    file.add_done("a")
    assert file.begin(SETTINGS, resume=True).done == {"a"}
    with pytest.raises(ValueError, match="--resume goes on"):
        file.begin(SETTINGS, resume=False)
    with pytest.raises(ValueError, match=r"was made with .*5\.0.* but now"):
        file.begin({"time_limit": 6.0}, resume=True)


# -- the whole -------------------------------------------------------------------------------------


def small_request(out: Path, **options: Any) -> BenchRequest:
    chosen = {
        "sets": ["numbers-small"],
        "losses": ["absolute", "huber"],
        "strengths": (1.0, 0.0),
        "solvers": ["liblinear", "quantreg", "lbfgs-b"],
        "rows": 300,
        "time_limit": 0.5,
        "progress": False,
    }
    return BenchRequest(out, **{**chosen, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("statsmodels")
    out = tmp_path_factory.mktemp("bench")
    report = bench(small_request(out))
    assert not report.interrupted
    return out


@pytest.mark.slow
def test_the_report_has_tables_figures_and_verdicts(finished: Path) -> None:
    page = (finished / "index.html").read_text("utf-8")
    assert "solved-and-told" in page
    for accuracy in ("1e-02", "1e-03", "1e-04", "1e-06"):
        assert (finished / "figures" / f"profile-{accuracy}.png").stat().st_size > 1000
    words = (finished / "table.md").read_text("utf-8")
    assert "## Seconds to 0.001" in words
    assert "| numbers-small | 300 | 1 |" in words
    assert "300 of 2000 rows" in words


@pytest.mark.slow
def test_the_table_follows_from_the_kept_runs(finished: Path) -> None:
    """Recompute every number of table.csv from results.jsonl in a plain way."""
    lines = [json.loads(line) for line in (finished / "results.jsonl").read_text().splitlines()]
    problems = {line["key"]: line for line in lines if line["kind"] == "problem"}
    records = [line for line in lines if line["kind"] == "record"]
    assert {key.split("/", 1)[1] for key in problems} == {"absolute/1", "absolute/0", "huber/1"}
    assert len(records) == 2 + 2 + 2  # ours and one peer each
    with (finished / "table.csv").open() as stream:
        table = {
            (r["problem"], r["solver"], float(r["accuracy"])): r for r in csv.DictReader(stream)
        }
    assert len(table) == 4 * len(records)
    for accuracy in ACCURACIES:
        for key, problem in problems.items():
            runs = {r["solver"]: r["rungs"] for r in records if r["problem"] == key}
            lowest = min([problem["minimum"], *(rung[2] for rs in runs.values() for rung in rs)])
            target = lowest + accuracy * (problem["start"] - lowest)
            seconds = {}
            for solver, rungs in runs.items():
                fits = [r for r in rungs if r[2] <= target]
                if solver == OURS:
                    fits = [r for r in fits if r[4] <= accuracy * (problem["start"] - r[3])]
                seconds[solver] = min((r[1] for r in fits), default=math.inf)
            for solver, took in seconds.items():
                row = table[key, solver, accuracy]
                assert float(row["seconds"]) == took
                if took < math.inf:
                    assert float(row["ratio"]) == pytest.approx(took / min(seconds.values()))


@pytest.mark.slow
def test_profiles_are_drawn_on_a_linear_axis(
    finished: Path,
    open_page: Callable[[Path], Any],  # noqa: F811
) -> None:
    driver = open_page(finished / "index.html")
    plot = "document.querySelector('#figure-profile-1e-03 .js-plotly-plot')"
    wait_for(driver, f"!!({plot} && {plot}._fullLayout && {plot}._fullLayout.yaxis)")
    assert driver.execute_script(f"return {plot}._fullLayout.yaxis.type") == "linear"
    assert driver.execute_script(f"return {plot}._fullLayout.xaxis.type") == "log"
    shares = driver.execute_script(f"return {plot}.data.flatMap((trace) => trace.y)")
    assert min(shares) == 0  # which a log axis would have left out
    assert max(shares) == 1


def test_an_interrupted_run_writes_its_report_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def instant(_worker: Any, name: str, one: Bench) -> Record:
        seen.append(f"{one.problem.key} {name}")
        if len(seen) == 4:
            raise KeyboardInterrupt
        rung = Rung(1, 0.1, one.minimum, one.minimum, 0.0)
        return Record(one.problem.key, name, (rung,), "reached", one.limit)

    monkeypatch.setattr(bench_module, "measure", instant)
    monkeypatch.setattr(stills, "draw_still", lambda _figure: {})  # what takes time is shown above
    asked = small_request(tmp_path, solvers=["liblinear", "lbfgs-b"])
    report = bench(asked)
    assert report.interrupted
    assert "no: it was interrupted" in report.page.read_text("utf-8")
    with pytest.raises(ValueError, match="--resume"):
        bench(asked)
    report = bench(replace(asked, resume=True))
    assert not report.interrupted
    repeated = [one for one in seen if seen.count(one) > 1]
    assert repeated == [seen[3]] * 2  # only what was interrupted was run again
    assert len(set(seen)) == len(seen) - 1 == 5
    bench(replace(asked, resume=True))
    assert len(seen) == 6


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[BenchRequest] = []

    def noted(request: BenchRequest) -> Any:
        asked.append(request)
        return Finished(tmp_path / "index.html", interrupted=len(asked) > 1)

    monkeypatch.setattr(bench_module, "bench", noted)
    words = "bench --quick --sets a9a,w8a --losses hinge --l2 1,0 --solvers sgd --time-limit 2"
    assert main([*words.split(), "--rows", "0", "--relative", "minimum", "--resume"]) == 0
    only = BenchRequest(
        Path("bench"), ("a9a", "w8a"), ("hinge",), (1.0, 0.0), ("sgd",), 2.0, 0, "minimum",
        quick=True, resume=True,
    )  # fmt: skip
    assert asked == [only]
    assert main(["bench", "--out", str(tmp_path)]) == 130
    assert asked[1] == BenchRequest(tmp_path)
    assert "--resume goes on" in capsys.readouterr().out
    assert asked[1].limit > asked[0].limit == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--losses", "hing"], "no loss 'hing': did you mean 'hinge'"),
        (["--losses", "log_loss,hing"], "no loss 'hing'"),
        (["--solvers", "sdg"], "no solver 'sdg': did you mean 'sgd'"),
        (["--sets", "text-smal"], "no data set 'text-smal': did you mean 'text-small'"),
        (["--relative", "max"], "no yardstick 'max'"),
        (["--time-limit", "0"], "time_limit must be a finite number > 0"),
        (["--rows", "-1"], "rows must be a whole number >= 0"),
        (["--l2", "-1"], "l2 must be a finite number >= 0"),
        (["--sets", "text-small", "--losses", "huber"], "nothing was measured"),
    ],
)
def test_wrong_options_are_named(
    options: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    assert main(["bench", "--no-progress", "--out", str(tmp_path / "out"), *options]) == 1
    assert message in capsys.readouterr().err


def test_built_in_sets_have_both_kinds() -> None:
    kinds = {name: source(200).classes for name, source in bench_problems.SMALL.items()}
    assert kinds == {"text-small": True, "classes-small": True, "numbers-small": False}
