"""What `minimize` promises: outputs, counters, statuses, callbacks, traces, progress."""

import ast
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import accelegrad as ag
from accelegrad import Status
from accelegrad.run.result import rounded
from toys import LeastSquares

PROBLEM = LeastSquares.random(60, 8, 1)
DIAMETER = 2.5 * np.linalg.norm(PROBLEM.minimiser)
START = np.zeros(8)


class Counting:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


def run(fun=PROBLEM, start=START, **options):
    return ag.minimize(fun, start, **{"diameter": DIAMETER, **options})


def test_outputs_are_what_they_say():
    runs = {
        output: run(max_iter=60, output=output) for output in ("best", "average", "last", "auto")
    }
    for output in ("best", "average", "last"):
        np.testing.assert_array_equal(runs[output].x, runs[output][f"x_{output}"])
        assert runs[output].fun == PROBLEM(runs[output].x)[0]
    # The average and the last point are not among the evaluated ones: one call more, and counted.
    assert [runs[o].nfev for o in ("best", "average", "last")] == [60, 61, 61]
    result = runs["auto"]
    np.testing.assert_array_equal(result.x, runs["best"].x)
    np.testing.assert_array_equal(result.jac, PROBLEM(result.x)[1])
    assert (result.success, result.status) == (True, Status.MAX_ITER)
    assert result.message == "Did max_iter iterations."
    assert result.trace is None
    assert result.seconds > 0
    assert result.fun - PROBLEM(PROBLEM.minimiser)[0] < 1e-8


METHODS = {
    "accelegrad": {"diameter": DIAMETER},
    "adagrad": {"diameter": DIAMETER},
    "universal": {"epsilon": 1e-3},
    "universal-dual": {"epsilon": 1e-3},
    "universal-fast": {"epsilon": 1e-3},
    "linear-coupling": {"smoothness": PROBLEM.smoothness},
    "subgradient": {"step_size": 0.5},
}


@pytest.mark.parametrize("method", METHODS)
def test_calls_are_counted_truthfully(method):
    joint = Counting(PROBLEM)
    result = ag.minimize(joint, START, method=method, max_iter=40, **METHODS[method])
    assert result.nfev == result.njev == joint.calls
    value, gradient = Counting(PROBLEM.value), Counting(PROBLEM.gradient)
    apart = ag.minimize(value, START, jac=gradient, method=method, max_iter=40, **METHODS[method])
    assert (apart.nfev, apart.njev) == (value.calls, gradient.calls)
    np.testing.assert_array_equal(apart.x, result.x)
    assert apart.njev <= apart.nfev
    if method == "universal":  # rejected trials cost no gradient
        assert apart.njev <= 42 < apart.nfev


def test_whole_space_leaves_the_projection_out():
    """The paper's variant without projection: the same as the rule without `project`."""
    D = 0.2 * DIAMETER
    free = run(feasible_set=ag.WholeSpace(), diameter=D, max_iter=30)
    rule, state = ag.AcceleGrad(D), ag.AcceleGrad(D).init(START)
    for _ in range(30):
        state = rule.update(state, PROBLEM(rule.query(state))[1])
    np.testing.assert_array_equal(free.x_average, rule.output(state))
    assert not np.allclose(run(diameter=D, max_iter=30).x_average, free.x_average)


def test_functions_may_reuse_their_buffer_and_spoil_their_argument():
    buffer = np.empty(8)

    def rude(x):
        value, gradient = PROBLEM(x)
        buffer[:] = gradient
        x[:] = np.nan
        return value, buffer

    for method in METHODS:
        polite = ag.minimize(PROBLEM, START, method=method, max_iter=20, **METHODS[method])
        spoiled = ag.minimize(rude, START, method=method, max_iter=20, **METHODS[method])
        np.testing.assert_array_equal(polite.x, spoiled.x)
        assert polite.lower_bound == spoiled.lower_bound


# -- statuses ------------------------------------------------------------------------------------


def test_a_zero_gradient_that_may_be_noise_does_not_stop_the_run():
    seen = []

    def noisy(x):
        seen.append(1)
        return np.zeros_like(x) if len(seen) == 1 else x

    result = ag.minimize(None, np.ones(3), jac=noisy, exact=False, diameter=4.0, max_iter=50)
    assert result.nit == 50
    assert np.linalg.norm(result.x) < 0.5


def test_time_limit():
    ends = []

    def slow(x):
        time.sleep(0.01)
        ends.append(time.perf_counter())
        return PROBLEM(x)

    result = ag.minimize(slow, START, diameter=DIAMETER, max_iter=10_000, time_limit=0.2)
    assert (result.status, result.success) == (Status.TIME_LIMIT, False)
    assert result.seconds > 0.2
    assert result.nit == len(ends)
    # However slow the machine: after a call that ended beyond the limit there was no other.
    assert all(end - ends[0] < 0.2 for end in ends[:-1])


@pytest.mark.parametrize(("where", "bad"), [("value", math.nan), ("gradient", math.inf)])
@pytest.mark.parametrize("method", ["accelegrad", "adagrad", "linear-coupling", "subgradient"])
def test_non_finite_keeps_the_best_point(where, bad, method):
    calls = []

    def fun(x):
        value, gradient = PROBLEM(x)
        calls.append(value)
        if len(calls) == 20:
            return (bad, gradient) if where == "value" else (value, np.r_[gradient[:-1], bad])
        return value, gradient

    result = ag.minimize(fun, START, method=method, **METHODS[method])
    assert (result.status, result.success, result.nit) == (Status.NON_FINITE, False, 19)
    assert result.fun == min(calls[:19])
    assert "iteration 20" in result.message
    assert str(bad) in result.message


def test_line_search_survives_points_outside_the_domain():
    """A trial where the function is not finite is a failed trial, not the end."""

    def barrier(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return (x - np.log(x)).sum(), 1 - 1 / x

    for method in ("universal", "universal-dual", "universal-fast"):
        result = ag.minimize(barrier, np.full(3, 0.01), method=method, epsilon=1e-6, max_iter=500)
        assert result.success
        assert result.fun == pytest.approx(3.0, abs=1e-3)


def test_diverging_step_is_stopped():
    options = {"method": "subgradient", "step_size": 100.0, "decay": "constant"}
    result = ag.minimize(PROBLEM, START, **options)
    without_values = ag.minimize(None, START + 1, jac=PROBLEM.gradient, **options)
    assert result.status is without_values.status is Status.DIVERGING
    assert result.nit < 100
    assert result.fun <= PROBLEM(START)[0]


def test_gradient_only():
    result = run(None, jac=PROBLEM.gradient, max_iter=300)
    assert math.isnan(result.fun)
    assert (result.gap, result.nfev, result.njev, result.x_best) == (math.inf, 0, 300, None)
    np.testing.assert_array_equal(result.x, result.x_average)
    assert np.linalg.norm(result.x_last - PROBLEM.minimiser) < 1e-6


# -- observers -------------------------------------------------------------------------------------


def test_callback_in_scipys_two_forms_at_some_iterations_and_stopping_the_run():
    points, results = [], []

    def callback(intermediate_result):
        results.append(intermediate_result)
        if intermediate_result.nit == 20:
            raise StopIteration

    iterations = [1, 7, 20, 99]
    run(max_iter=20, callback=points.append, callback_at=iterations)
    result = run(callback=callback, callback_at=iterations)
    assert [r.nit for r in results] == [1, 7, 20]
    assert (result.status, result.nit) == (Status.CALLBACK, 20)
    for x, r in zip(points, results, strict=True):
        np.testing.assert_array_equal(x, r.x)
        assert r.fun == PROBLEM(r.x)[0]
        assert r.gap == r.fun - r.lower_bound
    run(max_iter=5, callback=results.append)
    assert len(results) == 8  # after every iteration
    run(max_iter=20, output="last", callback=callback, callback_at=[20])
    np.testing.assert_array_equal(results[-1].x, results[-1].x_last)
    assert (results[-1].x != results[-1].x_best).any()


def test_trace():
    values = []

    def fun(x):
        value, gradient = PROBLEM(x)
        values.append(value)
        return value, gradient

    trace = run(fun, max_iter=50, trace=True).trace
    np.testing.assert_array_equal(trace.iteration, np.arange(1, 51))
    np.testing.assert_array_equal(trace.value, values)
    np.testing.assert_array_equal(trace.calls, np.arange(1, 51))
    # At the end all the kept cuts together prove more than those of the last step.
    assert trace.gap[-1] >= run(max_iter=50).gap > 0
    for changes in (np.diff(trace.gap) <= 0, np.diff(trace.step) < 0, np.diff(trace.seconds) > 0):
        assert changes.all()
    frame = trace.to_frame()
    assert list(frame.columns) == ["iteration", "value", "gap", "step", "calls", "seconds"]
    assert frame["value"].tolist() == values
    with pytest.raises(AttributeError, match=r"no 'speed'; it has iteration, value"):
        _ = trace.speed


SET = {"feasible_set": ag.NonNegative()}
BOX = {"feasible_set": ag.Box(-9.0, 9.0)}


SAID = [
    ({}, r"f\(x\) is at most (\S+) above the lowest value within (\S+) of x0"),
    (SET, r"f\(x\) is at most (\S+) above the lowest value in the set within (\S+) of x0"),
    (BOX, r"f\(x\) is at most (\S+) above the minimum over the set"),
    ({"diameter": 0.01, "method": "accelegrad"}, r"f\(x\) is below every .* (0.005) of x0, so .*"),
    ({"exact": False}, "nothing"),
]


@pytest.mark.parametrize(("options", "words"), SAID)
def test_a_result_says_in_one_line_what_is_proved(options, words):
    result = ag.minimize(PROBLEM, START, max_iter=30, **options)
    found = re.fullmatch(words, result.proved)
    assert found, result.proved
    if result.gap > 0 and np.isfinite(result.gap):
        assert result.gap <= float(found[1]) <= 1.1 * result.gap + 1e-300
    if found.re.groups == 2:
        assert 0.98 * result.certified_radius <= float(found[2]) <= result.certified_radius
    lines = [line.strip() for line in repr(result).splitlines()]
    assert lines[0].startswith("message: ")
    assert f"proved: {result.proved}" in lines
    assert not any(line.startswith(("trace", "rows", "n_restarts")) for line in lines)


def test_numbers_in_proofs_are_never_rounded_the_wrong_way():
    rng = np.random.default_rng(4)
    for number in 10.0 ** rng.uniform(-20, 20, 500):
        assert number <= float(rounded(number, 2, up=True)) <= 1.1 * number
        assert 0.99 * number <= float(rounded(number, 3, up=False)) <= number


def test_trace_plot(monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    trace = run(max_iter=50, trace=True).trace
    axes = trace.plot(minimum=PROBLEM(PROBLEM.minimiser)[0])
    assert [line.get_label() for line in axes.lines] == ["value - minimum", "certified gap"]
    assert axes.get_yscale() == "log"
    plt.close(axes.figure)
    for way, package in (("plot", "matplotlib"), ("to_frame", "pandas")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"{way}\(\) needs {package}.*install {package}"):
            getattr(trace, way)()


def test_progress(capsys):
    run(max_iter=30, progress=True)
    shown = capsys.readouterr().err
    assert all(words in shown for words in ("AcceleGrad", "30/30", "value=", "gap="))
    run(max_iter=30)
    assert capsys.readouterr() == ("", "")


# -- the package -----------------------------------------------------------------------------------


def test_import_is_light():
    """Torch, JAX, Dask, Numba, scikit-learn, pandas and matplotlib are loaded when used.

    A function needs none of them.
    """
    heavy = "torch jax dask numba sklearn pandas matplotlib plotly tqdm"
    loaded = f"print([m for m in {heavy.split()!r} if m in sys.modules])"
    minimize = "accelegrad.minimize(lambda x: (x @ x, 2.0 * x), [1.0, 2.0], tol=1e-6)"
    code = f"import sys, accelegrad; {minimize}; {loaded}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_public_names_are_found_when_asked_for():
    """Nothing is loaded before; the type checker's list of names is that of the package."""
    code = (
        "import sys, accelegrad as ag; before = [m for m in sys.modules if m[:11] == 'accelegrad.']; "
        "assert set(ag.__all__) <= set(dir(ag)); assert callable(ag.minimize); "
        "assert ag.kernels.__name__ == 'accelegrad.kernels'; "
        "from accelegrad import *; print(before, all(name in globals() for name in ag.__all__))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[] True"
    with pytest.raises(AttributeError, match="no attribute 'minimise'"):
        _ = ag.minimise
    tree = ast.parse(Path(ag.__file__).read_text(encoding="utf-8"))
    typed = [
        name.name
        for block in tree.body if isinstance(block, ast.If)
        for line in block.body if isinstance(line, ast.ImportFrom)
        for name in line.names
    ]  # fmt: skip
    assert sorted(typed) == sorted(ag.__all__)
