"""Compiled epochs of linear models: the rules' own points, on sparse and on dense rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.kernels.dense_steps import DenseSteps
from accelegrad.kernels.gradient import data
from accelegrad.kernels.sparse_steps import S, SparseSteps
from accelegrad.kernels.steps import Chunk, Settings
from accelegrad.models.losses import LOSSES, make_loss

N, D = 150, 40


@dataclass(frozen=True)
class Config:
    """A rule on a problem; the problem is random by its seed."""

    kind: str
    ball: bool = False
    l2: float = 0.0
    intercept: bool = False
    away: bool = False  # x0 is not zero
    shift: float = 0.0  # the intercept of x0
    batch: int = 1
    loss: str = "logistic"
    loss_parameter: float = 0.5
    smoothing: float = 0.0
    diameter: float = 4.0
    gradient_bound: float = 0.0
    decades: float = 0.0  # over which the scales of the columns spread
    weighted: bool = False
    data: Any = np.float64
    index: Any = np.int32
    seed: int = 0
    options: dict = field(default_factory=dict)

    def __str__(self):
        plain = Config(self.kind)
        changed = (k for k in self.__dataclass_fields__ if getattr(self, k) != getattr(plain, k))
        return "-".join([self.kind, *(f"{k}={getattr(self, k)}" for k in changed)])


class Twin:
    """Compiled steps with the rows that they are run on."""

    def __init__(self, kind, X, y, loss, x0, shares=None, l2=0.0, fit_intercept=False, **settings):
        n = y.size
        weights = np.ones(n) if shares is None else n * shares
        self.chunk = Chunk(data(X, y, shares, loss), weights)
        own = dict(l2=l2, fit_intercept=fit_intercept)
        kind = Settings(kind, **settings)
        sparse = sp.issparse(X)
        self.steps = SparseSteps(kind, [x0], **own) if sparse else DenseSteps(kind, x0, **own)

    def __getattr__(self, name):
        return getattr(self.steps, name)

    def advance(self, rows, batch=1):
        ends = np.minimum(batch * np.arange(1, -(-rows.size // batch) + 1), rows.size)
        return self.steps.advance(self.chunk, rows, ends)


class Case:
    """The data of a configuration, and the runs on them."""

    def __init__(self, config):
        self.config = config
        rng = np.random.default_rng(config.seed)
        options = dict(format="csr", random_state=rng, data_rvs=rng.standard_normal)
        X = sp.random(N, D, density=0.15, **options)
        scales = 10 ** (config.decades * (rng.random(D) - 0.5))
        self.X = sp.csr_matrix(X.multiply(scales)).astype(config.data)
        self.X.indices = self.X.indices.astype(config.index)
        self.X.indptr = self.X.indptr.astype(config.index)
        signal = self.X @ (rng.standard_normal(D) / scales) + 0.5
        signal = signal / signal.std() + 0.3 * rng.standard_normal(N)
        labels = make_loss(config.loss).classification
        self.y = np.where(signal > 0, 1.0, -1.0) if labels else signal
        weights = rng.random(N) * (rng.random(N) > 0.1)
        self.shares = weights / weights.sum() if config.weighted else None
        parameter = LOSSES[config.loss].parameter
        own = {} if parameter is None else {parameter.name: config.loss_parameter}
        own |= dict(l2=config.l2, fit_intercept=config.intercept, sample_weight=self.shares)
        model = ag.LinearModel(self.X.astype(np.float64), self.y, config.loss, **own)
        self.model = model.with_loss(model.loss.smoothed(config.smoothing))
        size = D + config.intercept
        self.x0 = rng.standard_normal(size) if config.away else np.zeros(size)
        if config.shift:
            self.x0[-1] = config.shift
        self.rng = rng

    def rule(self):
        c = self.config
        if c.kind == "distance_free":
            return ag.DistanceFreeAcceleGrad(**c.options)
        project = ag.Ball(self.x0, c.diameter / 2).project if c.ball else None
        if c.kind == "adagrad":
            return ag.AdaGrad(c.diameter, project)
        return ag.AcceleGrad(c.diameter, c.gradient_bound, project)

    def settings(self):
        c = self.config
        own = dict(l2=c.l2, fit_intercept=c.intercept, **c.options)
        if c.kind == "distance_free":
            return own | dict(initial_radius=self.rule().init(self.x0).radius)
        own |= dict(diameter=c.diameter, gradient_bound=c.gradient_bound)
        return own | (dict(ball_radius=c.diameter / 2) if c.ball else {})

    def sparse(self, X=None):
        return self.twin(self.X if X is None else X, self.x0, self.shares)

    def dense(self):
        return self.twin(self.X.toarray(), self.x0, self.shares)

    def twin(self, X, x0, shares):
        loss = self.model.loss.shape
        return Twin(self.config.kind, X, self.y, loss, x0, shares, **self.settings())

    def perturbed(self):
        """The dense twin with x0 and the rows' weights changed by a unit of rounding or two."""
        shares = np.full(N, 1 / N) if self.shares is None else self.shares
        unit = np.finfo(np.float64).eps
        x0, shares = (a * (1 + unit * self.rng.integers(-1, 2, a.size)) for a in (self.x0, shares))
        return self.twin(self.X.toarray(), x0, shares)

    def rows(self, steps):
        return self.rng.integers(N, size=steps * self.config.batch)


def apart(found, expected):
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-300)


KINDS = ("accelegrad", "distance_free", "adagrad")


def assert_same_radius(twin, state, rtol):
    assert twin.numbers["radius"] == pytest.approx(state.radius, rel=rtol)
    # The evidence is a sum that changes its sign: its size is that of ||S|| r.
    size = state.radius * np.linalg.norm(state.gradient_sum)
    assert abs(twin.numbers["evidence"] - state.evidence) <= rtol * max(size, 1e-300)
    if isinstance(twin.steps, SparseSteps):
        total = np.sqrt(twin.state()["levels"][:, :, S, 3 + S].sum())
    else:
        total = np.linalg.norm(twin.points[4])
        assert apart(twin.points[4], state.gradient_sum) <= rtol
    assert total == pytest.approx(np.linalg.norm(state.gradient_sum), rel=rtol)


def check_against_the_rule(case, twins, steps, rtol):
    """Walk beside the rule; compare at the first steps, where most of the cases are, and later."""
    rule, model, batch = case.rule(), case.model, case.config.batch
    rows = case.rows(steps)
    state, stops = rule.init(case.x0), {*range(1, 10), 40, 41, *range(250, steps + 1, 250), steps}
    begun = 0
    for t in range(1, steps + 1):
        chosen = rows[(t - 1) * batch : t * batch]
        state = rule.update(state, model.batch_value_and_gradient(rule.query(state), chosen)[1])
        if t in stops:
            for twin in twins:
                assert twin.advance(rows[begun * batch : t * batch], batch) == t - begun
                for name in ("iteration", "step_size"):
                    assert getattr(twin, name) == pytest.approx(getattr(state, name), rel=rtol)
                squares = state.weighted_squares if twin.coupled else state.squares
                assert twin.numbers["weighted_squares"] == pytest.approx(squares, rel=rtol)
                assert twin.numbers["weight_sum"] == pytest.approx(state.weight_sum, rel=rtol)
                if case.config.kind == "distance_free":
                    assert_same_radius(twin, state, rtol)
                assert apart(twin.query(), rule.query(state)) <= rtol
                assert apart(twin.output(), rule.output(state)) <= rtol
                assert apart(twin.last(), rule.last(state)) <= rtol
            begun = t
    return state


FLOAT32 = dict(data=np.float32, index=np.int64)
SHORT = [
    # Every pair of (ball, l2, intercept, x0, batch) for each rule.
    Config("accelegrad"),
    Config("accelegrad", ball=True, l2=0.01, intercept=True, **FLOAT32),
    Config("accelegrad", ball=True, away=True, batch=7),
    Config("accelegrad", l2=0.01, intercept=True, batch=7, weighted=True),
    Config("accelegrad", ball=True, l2=0.3, away=True, intercept=True, diameter=1.0),
    Config("accelegrad", intercept=True, batch=7, gradient_bound=3.0, **FLOAT32),
    Config("adagrad", ball=True, l2=0.01, intercept=True, **FLOAT32),
    Config("adagrad", ball=True, away=True, batch=7),
    Config("adagrad", l2=0.3, intercept=True, batch=7, weighted=True),
    Config("adagrad", l2=0.01, away=True, loss="absolute"),
    Config("distance_free", l2=0.01, intercept=True, **FLOAT32),
    Config("distance_free", away=True, batch=7),
    Config("distance_free", l2=0.3, away=True, intercept=True, batch=7, weighted=True),
    Config("distance_free", intercept=True, options=dict(initial_radius=9.0, largest_radius=0.5)),
    # Only the intercept of x0 is not zero.
    Config("accelegrad", ball=True, l2=0.01, intercept=True, shift=0.7),
    # The other losses, and columns of very different scales.
    Config("distance_free", l2=0.01, loss="squared", decades=3, options=dict(initial_radius=1e-4)),
    Config("distance_free", loss="squared_epsilon_insensitive", l2=0.01, loss_parameter=0.2),
    Config("distance_free", loss="quantile", smoothing=0.2, loss_parameter=0.8, intercept=True),
    Config("accelegrad", ball=True, l2=1e-3, loss="squared_hinge", decades=3, intercept=True),
    Config("accelegrad", l2=0.05, loss="huber", loss_parameter=0.3, intercept=True),
    Config("accelegrad", loss="modified_huber", l2=0.01, ball=True, batch=7),
    Config("adagrad", loss="hinge", smoothing=0.3, l2=0.01),
]


@pytest.mark.parametrize("config", SHORT, ids=str)
def test_equals_the_rule_step_by_step(config):
    case = Case(config)
    twins = [case.sparse(), case.dense()]
    check_against_the_rule(case, twins, steps=1000, rtol=1e-9)
    if config.kind == "distance_free" and "largest_radius" not in config.options:
        first = case.rule().init(case.x0).radius
        assert all(twin.numbers["radius"] > first for twin in twins)


LONG = [
    Config("accelegrad", ball=True, l2=0.01, intercept=True, batch=7),
    Config("accelegrad", ball=True, l2=0.3, diameter=0.5, loss="squared", decades=2),
    Config("adagrad", ball=True, l2=0.01, intercept=True),
    Config("distance_free", l2=0.01, intercept=True, away=True),
    Config("distance_free", l2=1e-4, decades=3, intercept=True, seed=4),
]


@pytest.mark.parametrize("config", LONG, ids=str)
def test_long_runs_stay_exact(config):
    case = Case(config)
    sparse, dense, perturbed = case.sparse(), case.dense(), case.perturbed()
    rows = case.rows(100_000)
    for twin in (sparse, dense, perturbed):
        assert twin.advance(rows, config.batch) == 100_000
    assert apart(perturbed.query(), dense.query()) <= 1e-9  # else rounding alone would decide
    assert apart(sparse.query(), dense.query()) <= 1e-8
    assert apart(sparse.output(), dense.output()) <= 1e-8
    assert sparse.step_size == pytest.approx(dense.step_size, rel=1e-8)
    assert sparse.numbers["radius"] == pytest.approx(dense.numbers["radius"], rel=1e-8)
    assert sparse.numbers["rebases"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_steps_far_too_long_for_the_l2_term_force_rebases(kind):
    """With eta l2 >> 1 coefficients change their signs and sizes from step to step."""
    own = dict(options=dict(initial_radius=100.0)) if kind == "distance_free" else dict(ball=True)
    case = Case(Config(kind, l2=50.0, diameter=200.0, **own))
    sparse = case.sparse()
    check_against_the_rule(case, [sparse, case.dense()], steps=300, rtol=1e-9)
    assert sparse.numbers["rebases"] >= 5


def test_the_norm_of_the_gradients_sum_keeps_its_digits_where_they_cancel():
    """S falls to 1e-5 of what it was, its square, which is kept by expansion, to 1e-10."""
    alpha = np.maximum(1, np.arange(1, 301) / 4)
    back = alpha[:100].sum() / alpha[100:].sum() * (1 - 1e-5)
    X = sp.csr_matrix([[1.0], [-back]])
    y, loss = np.array([-9.0, -9.0]), make_loss("absolute").shape  # both slopes are 1
    # The radius is known from the start on, and so are the weights.
    radii = dict(initial_radius=1e-7, largest_radius=1e-7)
    run = Twin("distance_free", X, y, loss, np.zeros(1), **radii)
    run.advance(np.repeat([0, 1], [100, 200]))
    total = 1e-5 * alpha[:100].sum() * 1e-14
    found = np.sqrt(run.state()["levels"][:, :, S, 3 + S].sum())
    np.testing.assert_allclose(found, total, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", ["sparse", "dense"])
def test_chunks_and_resumed_runs_are_the_same_to_the_last_bit(kind, make):
    config = Config(kind, ball=kind == "accelegrad", l2=0.01, intercept=True, batch=3)
    case = Case(config)
    rows = case.rows(400)
    whole, chunked, resumed = (getattr(case, make)() for _ in range(3))
    whole.advance(rows, 3)
    for start in range(0, rows.size, 51):
        chunked.advance(rows[start : start + 51], 3)
    resumed.advance(rows[: 3 * 77][::-1], 3)  # what it did before is forgotten
    half = getattr(case, make)()
    half.advance(rows[: 3 * 77], 3)
    state = half.state()
    half.advance(rows[3 * 77 :], 3)  # the state taken does not change with it
    resumed.restore(state)
    assert resumed.iteration == 77
    resumed.advance(rows[3 * 77 :], 3)
    for other in (chunked, half, resumed):
        assert other.iteration == 400
        for name, value in whole.state().items():
            np.testing.assert_array_equal(other.state()[name], value, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", ["sparse", "dense"])
@pytest.mark.parametrize("batch", [1, 4])
def test_stops_before_a_gradient_that_is_not_finite(kind, make, batch):
    case = Case(Config(kind, loss="squared", l2=0.01, intercept=True))
    case.X.data[case.X.indptr[17]] = 1e200  # its square overflows
    others = np.resize(np.setdiff1d(np.arange(150), 17), 40 * batch)
    twin, plain = getattr(case, make)(), getattr(case, make)()
    assert plain.advance(others, batch) == 40
    rows = np.insert(others, 30 * batch, np.full(batch, 17))
    assert twin.advance(rows, batch) == 30
    assert twin.iteration == 30
    assert twin.advance(others[30 * batch :], batch) == 10  # nothing is left of the bad one
    np.testing.assert_array_equal(twin.output(), plain.output())


@pytest.mark.parametrize("make", ["sparse", "dense"])
def test_stops_where_a_margin_is_not_finite_though_the_slope_would_be(make):
    case = Case(Config("accelegrad", loss="hinge", diameter=1e308))
    case.X.data[:] = 1e3
    twin = getattr(case, make)()
    assert twin.advance(np.arange(20)) < 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 5])
def test_columns_may_be_repeated_in_a_row_and_out_of_order(kind, batch):
    case = Case(Config(kind, l2=0.01, batch=batch))
    X = case.X
    split = np.random.default_rng(1).random(X.nnz)
    half = np.repeat(X.data, 2) * np.column_stack([split, 1 - split]).ravel()
    twice = sp.csr_matrix((half, np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    for start, stop in zip(twice.indptr, twice.indptr[1:], strict=False):
        order = np.random.default_rng(start).permutation(stop - start) + start
        twice.data[start:stop] = twice.data[order]
        twice.indices[start:stop] = twice.indices[order]
    rows = case.rows(500)
    plain, repeated = case.sparse(), case.sparse(twice)
    plain.advance(rows, batch)
    repeated.advance(rows, batch)
    assert apart(repeated.query(), plain.query()) <= 1e-11
    assert apart(repeated.output(), plain.output()) <= 1e-11


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_before_the_first_step_and_while_all_gradients_are_zero(kind):
    case = Case(Config(kind, loss="squared", away=True, intercept=True))
    for twin in (case.sparse(), case.dense()):
        for point in (twin.query(), twin.output(), twin.last()):
            np.testing.assert_array_equal(point, twin.start)
        assert (twin.iteration, twin.step_size) == (0, 0.0)
    case = Case(Config(kind, loss="squared"))
    case.y[:] = 0.0
    for twin in (case.sparse(), case.dense()):
        assert twin.advance(np.arange(50)) == 50
        assert twin.step_size == 0.0
        assert not twin.query().any()
        assert not twin.output().any()
