"""Checkpoints: written atomically, resumed bit for bit, refused where they do not fit."""

import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.run import checkpoint as checkpoints
from toys import LeastSquares

PROBLEM = LeastSquares.random(60, 8, 1)
START = np.zeros(8)
BALL = {"diameter": 4.0}
RUNS = {
    "accelegrad": dict(method="accelegrad", **BALL),
    "accelegrad, average": dict(method="accelegrad", output="average", tol=1e-12, **BALL),
    "accelegrad, box": dict(feasible_set=ag.Box(-1.0, 1.0)),
    "accelegrad, unbounded set": dict(feasible_set=ag.NonNegative(), **BALL),
    "adagrad": dict(method="adagrad", **BALL),
    "universal": dict(method="universal", epsilon=1e-3, **BALL),
    "universal-dual": dict(method="universal-dual", epsilon=1e-3, **BALL),
    "universal-fast": dict(method="universal-fast", epsilon=1e-3, **BALL),
    "linear-coupling": dict(method="linear-coupling", smoothness=2.0, **BALL),
    "subgradient": dict(method="subgradient", step_size=0.1, **BALL),
}


NET = ag.ElasticNet(0.02, 0.05)
OTHER_BITS = ("Philox", "MT19937", "SFC64")


def model(**options):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((40, 5))
    y = np.sign(X @ rng.standard_normal(5) + rng.standard_normal(40))
    return ag.LinearModel(X, y, **options)


MODEL_RUNS = {
    "full": (dict(l2=0.01), dict(**BALL)),
    "full, intercept": (dict(l2=0.01, fit_intercept=True), dict(**BALL)),
    "hinge": (dict(loss="hinge", l2=0.01, fit_intercept=True), dict(**BALL)),
    "permutation": (dict(l2=0.01), dict(batch_size=3, tol=1e-9, **BALL)),
    "replacement": (dict(), dict(batch_size=7, replacement=True, **BALL)),
    "adagrad, one row": (dict(loss="hinge"), dict(method="adagrad", batch_size=1, **BALL)),
    "line search, full": (dict(), dict(method="universal", epsilon=1e-4, **BALL)),
    "elastic net": (dict(loss="squared"), dict(penalty=NET, method="accelegrad", tol=1e-12)),
    "elastic net, noise": (dict(loss="squared"), dict(penalty=NET, method="u-dog", batch_size=3)),
    "box, noise": (dict(loss="squared"), dict(feasible_set=ag.Box(-0.3, 0.3), batch_size=4)),
    "scaled": (dict(l2=0.01, fit_intercept=True), dict(scale="columns")),
    "restarts": (dict(l2=0.05), dict(restart="adaptive")),
    "restarts, unscaled": (dict(l2=0.05), dict(restart="adaptive", scale=None, method="u-dog")),
}
#: Methods for sums over rows end within a few steps.
SOLVER_RUNS = {
    "auto": dict(loss="logistic"),
    "accelegrad-newton": dict(loss="hinge"),
    "dual-ascent": dict(loss="logistic"),
    "proximal-newton": dict(loss="hinge"),
    "interior-point": dict(loss="quantile"),
}
#: Samples have to come from the same generator; which one it is concerns no other run.
BITS = [*((name, "PCG64") for name in MODEL_RUNS), *(("permutation", b) for b in OTHER_BITS)]


def assert_same(first, second):
    """Everything that does not tell the time is the same, to the last bit."""
    points = ("x", "jac", "x_average", "x_last", "x_best")
    numbers = ("fun", "nit", "nfev", "njev", "lower_bound", "gap", "n_restarts")
    for name in ("status", "message", *numbers, *points):
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    if first.trace is not None:
        for name in ("iteration", "value", "gap", "step", "calls"):
            np.testing.assert_array_equal(first.trace[name], second.trace[name])


def resumed_equals_uninterrupted(run, path, steps=(31, 64, 90)):
    """`run(**options)` is done at once, and again in three pieces, observed and not."""
    one, two, three = steps
    for trace in (True, False):
        whole = run(max_iter=three, trace=trace)
        run(max_iter=one, trace=trace, checkpoint=path, checkpoint_every=10)
        run(max_iter=two, trace=trace, checkpoint=path, checkpoint_every=10, resume=path)
        assert_same(run(max_iter=three, trace=trace, resume=path), whole)
    return whole


@pytest.mark.parametrize("name", RUNS)
def test_resume_is_bit_for_bit(name, tmp_path):
    def run(**options):
        return ag.minimize(PROBLEM, START, **RUNS[name], **options)

    resumed_equals_uninterrupted(run, tmp_path / "run.agc")


@pytest.mark.parametrize(("name", "bits"), BITS)
def test_resume_of_a_linear_model_is_bit_for_bit(name, bits, tmp_path):
    of_model, of_run = MODEL_RUNS[name]

    def run(**options):
        rng = np.random.Generator(getattr(np.random, bits)(5))
        return ag.minimize(model(**of_model), rng=rng, **of_run, **options)

    whole = resumed_equals_uninterrupted(run, tmp_path / "run.agc")
    assert (whole.n_restarts > 0) == ("restarts" in name)


@pytest.mark.parametrize("method", SOLVER_RUNS)
def test_resume_of_a_solver_is_bit_for_bit(method, tmp_path):
    problem = model(l2=1e-3, **SOLVER_RUNS[method])

    def run(**options):
        rng = 99 if "resume" in options else 4  # a checkpoint holds the generator
        return ag.minimize(problem, rng=rng, method=method, tol=1e-12, **options)

    resumed_equals_uninterrupted(run, tmp_path / "run.agc", (2, 4, 8))


def test_no_pickle_is_ever_loaded(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, header=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ag.CheckpointError, match="not a checkpoint"):
        ag.minimize(PROBLEM, START, resume=path, **BALL)


def test_another_version_gets_a_clear_error(tmp_path, monkeypatch):
    path = tmp_path / "run.agc"
    monkeypatch.setattr(checkpoints, "FORMAT", checkpoints.FORMAT._replace(version=99))
    ag.minimize(PROBLEM, START, max_iter=10, checkpoint=path, **BALL)
    monkeypatch.undo()
    with pytest.raises(ag.CheckpointError, match=r"version 99 cannot be read.*reads.*version 10"):
        ag.minimize(PROBLEM, START, resume=path, **BALL)


MISMATCHES = {
    "method": (dict(method="adagrad", diameter=4.0), r"method was 'AcceleGrad'.*'AdaGrad'"),
    "diameter": (dict(diameter=5.0), r"diameter was 4\.0 there and is 5\.0 now"),
    "x0": (dict(x0=np.ones(8), diameter=4.0), r"x0 \(fingerprint\)"),
    "dimension": (dict(x0=np.zeros(3), diameter=4.0), r"dimension was 8.*3"),
    "set": (dict(feasible_set=ag.WholeSpace(), diameter=4.0), r"feasible_set was 'None'"),
    "noise": (dict(exact=False, diameter=4.0), r"exact was True"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_checkpoint_of_another_run_is_refused(name, tmp_path):
    path = tmp_path / "run.agc"
    ag.minimize(PROBLEM, START, max_iter=10, checkpoint=path, **BALL)
    options, message = MISMATCHES[name]
    with pytest.raises(ag.CheckpointError, match=message):
        ag.minimize(PROBLEM, options.pop("x0", START), resume=path, **options)


LONG = np.linspace(0.5, 1.5, 12)
OTHER = np.where(np.arange(12) == 5, 1.001, 1.0) * LONG
X = np.random.default_rng(0).standard_normal((60, 12))
DATA = {"X": X, "y": np.where(X.sum(axis=1) > 0, 1.0, -1.0), "l2": 1e-2}
MOVED = X + 1e-9 * (np.arange(720) == 205).reshape(60, 12)
#: Two models, terms or sets that differ, though their texts do not show it; whatever differs by
#: more is a case of the fuzz
CONTENTS = {
    "X": ({}, {"X": MOVED}),
    "y": ({}, {"y": -DATA["y"]}),
    "l2": ({}, {"l2": 1e-2 * (1 + 1e-8)}),
    "scale": [{"scale": a} for a in (LONG, LONG[::-1])],
    "L1": [{"penalty": ag.L1(a), "method": "accelegrad"} for a in (LONG, OTHER)],
    "GroupL2": [{"penalty": ag.GroupL2(0.1, np.arange(12) % n)} for n in (3, 4)],
    "Halfspace": [{"feasible_set": ag.Halfspace(a, 1.0)} for a in (LONG, OTHER)],
    "Box": [{"feasible_set": ag.Box(-1.0, a)} for a in (LONG, OTHER)],
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_checkpoint_of_other_content_is_refused(name, tmp_path):
    first, second = CONTENTS[name]

    def run(given, **options):
        of_model = {key: given.get(key, DATA[key]) for key in DATA}
        of_run = {key: given[key] for key in given if key not in DATA}
        return ag.minimize(ag.LinearModel(**of_model), rng=0, **of_run, **options)

    path = tmp_path / "run.agc"
    run(first, max_iter=4, checkpoint=path)
    with pytest.raises(ag.CheckpointError, match="the checkpoint is of another run: "):
        run(second, max_iter=9, resume=path)
    run(first, max_iter=9, resume=path)


def test_a_checkpoint_of_another_function_is_refused(tmp_path):
    path, twice = tmp_path / "run.agc", lambda x: tuple(2 * part for part in PROBLEM(x))
    ag.minimize(PROBLEM, START, max_iter=5, checkpoint=path)
    ag.minimize(PROBLEM, START, max_iter=6, resume=path)
    with pytest.raises(ag.CheckpointError, match="of another function: its best point has"):
        ag.minimize(twice, START, max_iter=6, resume=path)


SCRIPT = textwrap.dedent(
    """
    import sys, time
    import numpy as np
    import accelegrad as ag

    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 10))
    y = np.sign(X @ rng.standard_normal(10) + rng.standard_normal(200))
    path, pause, resume = sys.argv[1:]
    options = dict(batch_size=2, rng=11, diameter=8.0, max_iter=400, callback=lambda x: time.sleep(float(pause)))
    options |= dict(checkpoint=path or None, checkpoint_every=10, resume=resume or None)
    result = ag.minimize(ag.LinearModel(X, y, l2=1e-3), **options)
    print(result.status.name, result.nit, result.x.tobytes().hex(), result.fun.hex())
    """
)


def test_kill_and_resume_ends_in_the_same_point(tmp_path):
    def start(*arguments):
        command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    path = tmp_path / "run.agc"
    uninterrupted, _ = start("", 0, "").communicate()
    # 400 iterations with this pause take so long that no busy machine comes too late.
    victim = start(path, 0.1, "")
    while not path.exists():
        assert victim.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    victim.kill()
    victim.communicate()
    assert victim.returncode != 0
    resumed, _ = start(path, 0, path).communicate()
    assert resumed == uninterrupted
    assert resumed.startswith("MAX_ITER 400")


def test_an_interrupt_within_the_function_loses_nothing():
    calls = []

    def fun(x):
        calls.append(PROBLEM(x)[0])
        if len(calls) == 30:
            raise KeyboardInterrupt
        return PROBLEM(x)

    result = ag.minimize(fun, START, **BALL)
    assert (result.status, result.nit) == (ag.Status.INTERRUPTED, 29)
    assert result.fun == min(calls[:29])
    assert np.isfinite(result.lower_bound)
