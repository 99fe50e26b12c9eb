"""The loop's contract with rules and observers: how far a rule may advance, and whose time counts."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.files.saved import Saved
from accelegrad.proofs.bracket import Bracket
from accelegrad.rules.base import QueryRule
from accelegrad.run import checkpoint
from accelegrad.run.loop import Run
from accelegrad.run.oracle import FunctionOracle
from accelegrad.run.result import Options, Progress
from toys import LeastSquares

PROBLEM = LeastSquares.random(30, 4, 2)


class Short(NamedTuple):
    """The least that a state can be."""

    iteration: int
    point: np.ndarray


@dataclass
class Record:
    iteration: int
    point: np.ndarray
    step_size: float


STATES = {
    "short": lambda iteration, point, size: Short(iteration, point),
    "record": Record,
    "mapping": lambda iteration, point, size: {"point": point},
}


class Descent(QueryRule):
    """A user's rule, with no more than the contract asks for."""

    def __init__(self, kind="record", size=0.1):
        self.kind, self.size = kind, size

    def init(self, x0):
        return STATES[self.kind](0, x0, self.size)

    def query(self, state):
        return state["point"] if isinstance(state, dict) else state.point

    output = last = query

    def weight(self, state):
        return 1.0

    def update(self, state, gradient):
        point = self.query(state) - self.size * gradient
        return STATES[self.kind](getattr(state, "iteration", 0) + 1, point, self.size)


class ManySteps(Descent):
    def __init__(self):
        super().__init__()
        self.asked = []  # (iterations done, the most that may follow)

    def advance(self, state, oracle, most):
        self.asked.append((state.iteration, most))
        for _ in range(most):
            step = self.step(state, oracle)
            state = step.state
        return step._replace(steps=most)


def run(rule, exact, **options):
    oracle = FunctionOracle(PROBLEM, True, exact=exact)
    options = Options(exact=exact, **options)
    progress = Progress(rule, oracle, np.ones(4), options, Bracket(None, None))
    return Run(progress, kind={"rule": "gradient descent"})


def test_a_rule_advances_until_something_has_to_happen(tmp_path):
    rule, seen = ManySteps(), []
    options = dict(max_iter=25, checkpoint=tmp_path / "run.agc", checkpoint_every=7)
    options |= dict(callback=lambda known: seen.append(known.nit), callback_at=frozenset([10]))
    result = run(rule, exact=False, **options)()
    assert rule.asked == [(0, 7), (7, 3), (10, 4), (14, 7), (21, 4)]
    assert seen == [10]
    assert result.nit == 25


class Overflowing(Descent):
    project, can = None, frozenset({"project"})

    def with_parameters(self, **parameters):
        return self

    def output(self, state):
        return np.inf * state.point


def test_an_average_that_overflowed_is_reported():
    corner = ag.Polyhedron(np.ones((1, 4)), -np.inf, 4.0)
    result = ag.minimize(PROBLEM, np.ones(4), method=Overflowing(), feasible_set=corner, max_iter=3)
    assert not np.isfinite(result.x_average).any()
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("exact", [True, False])
def test_a_plain_rule_of_the_users_own_is_resumed_bit_for_bit(kind, exact, tmp_path):
    def solve(size=0.05, max_iter=30, **options):
        options = dict(diameter=8.0, trace=True, max_iter=max_iter, exact=exact) | options
        fun = lambda x: (float(x @ x), 2 * x)  # noqa: E731
        return ag.minimize(fun, np.ones(2), method=Descent(kind, size), **options)

    path, whole = tmp_path / "run.agc", solve()
    solve(max_iter=7, checkpoint=path, trace=False)
    resumed = solve(resume=path)
    assert len(resumed.trace) == 23  # the run before was not traced
    np.testing.assert_array_equal([resumed.x, resumed.x_last], [whole.x, whole.x_last])
    assert (resumed.nit, resumed.nfev, resumed.fun) == (30, whole.nfev, whole.fun)
    assert resumed.lower_bound == whole.lower_bound <= 0 < whole.fun < 0.1
    with pytest.raises(ag.CheckpointError, match=r"size was 0\.05 there and is 0\.1 now"):
        solve(size=0.1, resume=path)


def test_the_time_of_those_who_look_on_is_off_the_clock(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("accelegrad.run.result.time", SimpleNamespace(perf_counter=lambda: now[0]))
    save = checkpoint.save

    def slow_save(*arguments):
        now[0] += 1000.0
        save(*arguments)

    def slow_callback(x):
        now[0] += 100.0

    def fun(x):
        now[0] += 1.0
        return PROBLEM(x)

    monkeypatch.setattr(checkpoint, "save", slow_save)
    path = tmp_path / "run.agc"
    options = dict(diameter=4.0, trace=True, callback=slow_callback, checkpoint_every=2)
    first = ag.minimize(fun, np.ones(4), max_iter=5, checkpoint=path, **options)
    assert first.seconds == 5.0
    resumed = ag.minimize(fun, np.ones(4), max_iter=8, resume=path, **options)
    assert resumed.trace.seconds.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


# -- what a checkpoint holds of a part -----------------------------------------------------------


class Pair(NamedTuple):
    """Two fields."""

    number: float
    array: np.ndarray


class Part(Saved):
    """Fields of all the kinds that can be declared, and one that is not."""

    saved = ("plain", "array", "numbers", "pair", "mapping", "rng", "inner", "nothing")

    def __init__(self, seed, inner=None):
        rng = np.random.default_rng(seed)
        self.plain, self.array, self.numbers = int(rng.integers(99)), rng.random(3), [rng.random()]
        self.pair = Pair(rng.random(), rng.random(2))
        self.mapping = {"a": rng.random(2)}
        self.rng, self.inner, self.nothing = rng, inner, None
        self.undeclared = seed


def test_all_declared_fields_are_saved_and_restored_and_no_others(tmp_path):
    path = tmp_path / "part.agc"
    part, other = Part(1, Part(2)), Part(3, Part(4))
    checkpoint.save(path, {}, part)
    other.restore(checkpoint.load(path, {}))
    np.testing.assert_equal(other.state(), part.state())
    assert isinstance(other.pair, Pair)
    assert (other.undeclared, other.inner.undeclared) == (3, 4)
    assert other.inner.rng.random() == part.inner.rng.random()
