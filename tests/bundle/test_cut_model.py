"""The model's lowest point, with sets and penalties: against Clarabel, by way of CVXPY."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.bundle import cut_memory
from accelegrad.bundle.cut_memory import MISSED, CutMemory, CutModel
from accelegrad.rules.base import KnownEvaluation
from toys import largest_of

cp = pytest.importorskip("cvxpy")

D = 12
EQUATIONS = np.random.default_rng(1).standard_normal((3, D))
NORMAL = np.arange(D) - 4.0
GROUPS = [[0, 1, 2], [3, 4, 5, 6], [7, 8], [9, 10, 11]]
#: What Clarabel's values are off by at most, relative to terms of size 10
SOLVER = 1e-6


class Alternating:
    """A user's own set: even coordinates have a lower bound, odd ones an upper bound."""

    diameter = np.inf

    def project(self, x):
        return np.where(np.arange(x.size) % 2 == 0, np.maximum(x, 0.1), np.minimum(x, 0.4))

    def linear_minimum(self, g):
        return -np.inf


SETS = {
    "none": (None, lambda u: []),
    "box": (ag.Box(-0.2, 0.3), lambda u: [u >= -0.2, u <= 0.3]),
    "simplex": (ag.Simplex(2.0), lambda u: [u >= 0, cp.sum(u) == 2]),
    "l1 ball": (ag.L1Ball(1.0), lambda u: [cp.norm1(u) <= 1]),
    "ball": (ag.Ball(0.1, 1.0), lambda u: [cp.norm(u - 0.1) <= 1]),
    "affine": (ag.Affine(EQUATIONS, EQUATIONS.sum(1)), lambda u: [EQUATIONS @ (u - 1) == 0]),
    "halfspace": (ag.Halfspace(NORMAL, 0.2), lambda u: [NORMAL @ u <= 0.2]),
    "product": (
        ag.Product([(ag.Ball(0.0, 0.5), 4), (ag.Box(0.0, 1.0), 8)]),
        lambda u: [cp.norm(u[:4]) <= 0.5, u[4:] >= 0, u[4:] <= 1],
    ),
    "a user's": (Alternating(), lambda u: [u[::2] >= 0.1, u[1::2] <= 0.4]),
}
TERMS = {
    "none": (None, lambda u: 0.0),
    "l1": (ag.L1(0.7), lambda u: 0.7 * cp.norm1(u)),
    "elastic net": (ag.ElasticNet(0.5, 0.4), lambda u: 0.5 * cp.norm1(u) + 0.2 * cp.sum_squares(u)),
    "groups": (ag.GroupL2(0.8, GROUPS), lambda u: 0.8 * sum(cp.norm(u[g]) for g in GROUPS)),
    "nuclear norm": (
        ag.NuclearNorm(0.6, (3, 4)),
        lambda u: 0.6 * cp.normNuc(cp.reshape(u, (3, 4), order="C")),
    ),
}
CASES = [(name, "none") for name in SETS] + [("none", name) for name in TERMS if name != "none"]
# coordinate by coordinate, so prox and projection may follow each other
CASES.append(("box", "l1"))
cases = pytest.mark.parametrize(("constraint", "penalty"), CASES)


def case(constraint, penalty, seed, cuts=20):
    """Return a model of cuts of a largest linear function, and a centre in the set."""
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((40, D)), rng.standard_normal(40)
    feasible, term = SETS[constraint][0], TERMS[penalty][0]
    center = rng.standard_normal(D)
    center = center if feasible is None else feasible.project(center)
    memory = CutMemory(np.zeros(D), D + 20)
    offsets = rng.standard_normal((cuts, D)) * 10.0 ** rng.uniform(-1, 0.5, (cuts, 1))
    for point in (*(center + offsets), center):
        memory.take(KnownEvaluation(point, *largest_of(W, b)(point)))
    model = CutModel(
        memory,
        None if feasible is None else feasible.project,
        None if term is None else term.prox,
        None if term is None else term.value,
    )
    paid = 0.0 if term is None else term.value(center)
    value = float((W @ center - b).max()) + paid
    return model, KnownEvaluation(center, value, np.zeros(D), paid)


def sum_at(model, point):
    return model.cuts.values_at(point).max() + (0.0 if model.term is None else model.term(point))


def least(constraint, penalty, model, center, step):
    """The least of model, term and distance, by another solver."""
    u, v = cp.Variable(D), cp.Variable()
    total = v + TERMS[penalty][1](u) + cp.sum_squares(u - center.point) / (2 * step)
    below = [model.cuts.values_at(np.zeros(u.size)) + model.cuts.slopes @ u <= v]
    return cp.Problem(cp.Minimize(total), below + SETS[constraint][1](u)).solve(solver="CLARABEL")


@cases
@pytest.mark.parametrize("step", [0.01, 0.3, 10.0])
def test_equals_another_solver(constraint, penalty, step):
    for seed in range(2):
        model, center = case(constraint, penalty, seed)
        lowest = model.lowest(center, step)
        offset = lowest.point - center.point
        used = np.linalg.norm(offset) / np.linalg.norm(lowest.slope)
        assert 0.5 * step <= used <= (1.0 + 1e-9) * step
        step = used  # it may come out shorter
        reached = sum_at(model, lowest.point) + offset @ offset / (2 * step)
        best = least(constraint, penalty, model, center, step)
        # What it may have missed is proved, however long the step.
        assert best - SOLVER <= reached <= best + lowest.missed + SOLVER
        expected = center.value - sum_at(model, lowest.point)
        assert lowest.promise == pytest.approx(expected, abs=1e-9)
        if step < 1.0:  # with longer steps it may end early where a set has corners
            assert lowest.missed <= MISSED * lowest.promise
        feasible = SETS[constraint][0]
        if feasible is not None:
            assert np.linalg.norm(feasible.project(lowest.point) - lowest.point) <= 1e-12


@cases
@pytest.mark.parametrize("step", [0.01, 0.3, 10.0])
def test_the_combination_is_a_cut(constraint, penalty, step):
    """It lies below model and term everywhere in the set."""
    model, center = case(constraint, penalty, 5)
    lowest = model.lowest(center, step)
    slope, error = lowest.slope, lowest.error
    assert error >= 0.0
    rng = np.random.default_rng(3)
    for size in (0.01, 0.1, 1.0, 10.0):
        for _ in range(10):
            point = center.point + size * rng.standard_normal(D)
            point = point if model.project is None else model.project(point)
            cut = center.value - error + slope @ (point - center.point)
            assert cut <= sum_at(model, point) + 1e-11 * (1.0 + size)


@pytest.mark.parametrize("kind", ["none", "box"])
@pytest.mark.parametrize("step", [0.3, 1e3, 1e9])
def test_both_solvers_of_the_programme_agree(kind, step, monkeypatch):
    """Also for steps so long that most digits of the model's promise are lost in their squares."""
    for seed in range(3):
        model, center = case(kind, "none", seed, cuts=18)
        exact = model
        if kind == "box":  # as a polyhedron it has a solver of its own
            chosen = ag.Polyhedron(np.ones((1, D)), -np.inf, 1e3, bounds=SETS[kind][0])
            exact = model._replace(rows=chosen.rows_for(center.point.size))
        one = exact.lowest(center, step)
        with monkeypatch.context() as patch:
            patch.setattr(cut_memory, "MOST_AT_ONCE", 0)
            patch.setattr(cut_memory, "MISSED", 1e-9)
            other = model.lowest(center, step)
        size = step * float(np.sum(model.cuts.slopes**2, axis=1).max())
        assert other.promise <= 1.25 * one.promise + 1e-11 * size
        if kind == "none":  # projections alone may not find the lowest point of a long step
            assert one.promise <= 1.25 * other.promise + 1e-11 * size
        assert one.missed <= 1e-9 * one.promise + 1e-14 * size
