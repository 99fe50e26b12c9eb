"""Stochastic runs of `minimize` in compiled code: the same as with the plain rules."""

import os
import signal
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import accelegrad as ag
from accelegrad import kernels
from accelegrad.models.sampling import BatchSampler
from accelegrad.run import compiled
from accelegrad.run.compiled import CompiledRule, compiled_twin
from accelegrad.run.result import Status
from toys import linear_problem

# fmt: off
RULES = {
    "automatic diameter": dict(method="accelegrad"),
    "accelegrad": dict(method="accelegrad", diameter=9.0),
    "accelegrad, no projection": dict(method="accelegrad", diameter=9.0, feasible_set=ag.WholeSpace(), gradient_bound=0.3 ),
    "adagrad": dict(method="adagrad", diameter=5.0),
}
# fmt: on


def model(kind="csr", loss="logistic"):
    more = {"density": 0.15, "noise": 0.1, "l2": 1e-3, "fit_intercept": True}
    return linear_problem(loss, kind, (150, 40), seed=5, **more)


def run(mode, problem, **options):
    with kernels.use(mode):
        return ag.minimize(problem, rng=11, **options)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize(("batch_size", "replacement"), [(1, False), (7, False), (4, True)])
def test_a_compiled_run_is_the_plain_run(rule, kind, batch_size, replacement):
    options = dict(RULES[rule], batch_size=batch_size, replacement=replacement, max_iter=700)
    problem = model(kind)
    plain, fast = (run(mode, problem, **options) for mode in ("never", "always"))
    # Without a diameter a probe finds the radius by the change of the slope over 1e-6, which has
    # eps / 1e-6 = 2e-10 of rounding where slope and curvature are alike; here the slope is larger.
    exact = 1e-6 if rule == "automatic diameter" else 1e-9
    assert_allclose([fast.x, fast.x_last], [plain.x, plain.x_last], rtol=exact, atol=exact)
    assert_allclose([fast.fun, fast.gap], [plain.fun, plain.gap], rtol=exact)
    assert (fast.nit, fast.nfev, fast.njev) == (plain.nit, plain.nfev, plain.njev)


@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_default_minibatch_run_is_compiled(monkeypatch, kind, fit_intercept):
    """Nothing but batch_size given, targets far from zero: the start has an intercept."""
    rng = np.random.default_rng(7)
    X = sp.random(150, 40, density=0.15, format="csr", rng=rng)
    y = 100.0 + X @ rng.normal(size=40)
    rows = X if kind == "csr" else X.toarray()
    problem = ag.LinearModel(rows, y, loss="squared", fit_intercept=fit_intercept)
    used, advance = [], CompiledRule.advance
    monkeypatch.setattr(
        CompiledRule, "advance", lambda self, *given: used.append(self) or advance(self, *given)
    )
    plain = run("never", problem, batch_size=5, max_iter=300)
    assert not used
    fast = run("always", problem, batch_size=5, max_iter=300)
    assert used
    assert_allclose(fast.x, plain.x, rtol=1e-6, atol=1e-6)


class Own(ag.AcceleGrad):
    """A user's: it may do other steps."""


def test_which_runs_are_compiled(monkeypatch):
    problem = model()
    start = np.zeros(problem.n_parameters)
    ball = ag.Ball(start, 2.0).project
    has_twin = [
        ag.AcceleGrad(diameter=4.0, project=ball),
        ag.AdaGrad(diameter=4.0, project=ball),
        ag.AcceleGrad(diameter=4.0),
        ag.DistanceFreeAcceleGrad(largest_radius=9.0),
    ]
    has_none = [
        ag.AcceleGrad(diameter=4.0, project=ball, project_y=True),
        ag.AcceleGrad(diameter=4.0, project=ag.Ball(start + 1, 2.0).project),
        ag.AcceleGrad(diameter=4.0, project=ag.NonNegative().project),
        ag.UniXGrad(diameter=4.0),
        ag.DistanceFreeAcceleGrad(project=ball, project_y=False),
        ag.DistanceFreeAcceleGrad(prox=lambda x, step: x),
        Own(diameter=4.0),
    ]
    with kernels.use("always"):
        assert all(isinstance(compiled_twin(r, problem, start), CompiledRule) for r in has_twin)
        assert all(compiled_twin(rule, problem, start) is rule for rule in has_none)
        for kind in ("sparse", "dense"):
            assert isinstance(compiled_twin(has_twin[2], model(kind), start + 1), CompiledRule)
    with kernels.use("never"):
        assert all(compiled_twin(rule, problem, start) is rule for rule in has_twin)
    with kernels.use("auto"):  # small data are not worth the loading of Numba
        assert all(compiled_twin(rule, problem, start) is rule for rule in has_twin)
        monkeypatch.setattr(compiled, "LEAST_ROWS", 150)
        assert all(isinstance(compiled_twin(r, problem, start), CompiledRule) for r in has_twin)


@pytest.mark.parametrize("replacement", [False, True])
def test_batches_at_once_are_those_one_by_one(replacement):
    draw = lambda: BatchSampler(23, 4, np.random.default_rng(2), replacement=replacement)  # noqa: E731
    one, many = draw(), draw()
    rows = np.concatenate([one.next_rows() for _ in range(3)])
    assert_array_equal(many.next_batches(3), rows)
    assert one.rows_drawn == many.rows_drawn


@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_a_run_in_chunks_is_the_run_at_once(monkeypatch, kind):
    options = dict(RULES["automatic diameter"], batch_size=1, max_iter=400)
    whole = run("always", model(kind), **options)
    monkeypatch.setattr(compiled, "CHUNK_ENTRIES", 60)
    chunks = run("always", model(kind), **options)
    assert_array_equal(whole.x, chunks.x)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path, rule, kind):
    file = tmp_path / "run.ckpt"
    options = dict(RULES[rule], batch_size=3)
    whole = run("always", model(kind), max_iter=300, **options)
    run("always", model(kind), max_iter=130, checkpoint=file, **options)
    resumed = run("always", model(kind), max_iter=300, resume=file, **options)
    assert_array_equal([resumed.x, resumed.x_last], [whole.x, whole.x_last])
    assert (resumed.nfev, resumed.fun) == (whole.nfev, whole.fun)


def test_a_checkpoint_of_plain_code_is_not_taken_for_one_of_compiled_code(tmp_path):
    file = tmp_path / "run.ckpt"
    options = dict(RULES["adagrad"], batch_size=3, max_iter=50)
    run("never", model(), checkpoint=file, **options)
    with pytest.raises(ValueError, match="compiled"):
        run("always", model(), resume=file, **options)


def test_it_stops_on_the_certified_gap():
    result = run("always", model(), batch_size=4, tol=0.02, max_iter=100_000, method="accelegrad")
    assert result.status == Status.CONVERGED
    assert result.nit % (-(-150 // 4)) == 1  # the output is judged once an epoch
    best = ag.minimize(model(), tol=1e-8, max_iter=20_000).fun
    assert best <= result.fun <= best + result.gap
    assert result.gap <= 0.02


def test_ctrl_c_keeps_what_was_done():
    def press_soon(_):  # mostly while compiled code runs; any time is right
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    options = dict(batch_size=1, max_iter=10**9, time_limit=600)
    result = run("always", model(), callback=press_soon, callback_at=[1000], **options)
    assert result.status == Status.INTERRUPTED
    assert result.nit >= 1000
    assert result.fun < model().value(np.zeros(41))


def test_overflow_ends_the_run_with_the_point_before():
    start = np.full(41, 1e153)
    problem = model("dense", loss="squared_hinge")
    result = run("always", problem, x0=start, batch_size=1, method="adagrad", diameter=1.0)
    assert result.status == Status.NON_FINITE
    assert "not finite" in result.message
    assert_array_equal(result.x, start)
