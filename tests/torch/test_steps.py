"""The optimizers do the steps of the core's rules, however the vector is split into parameters."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from accelegrad.geometry.penalties import L1
from accelegrad.geometry.sets import Ball, NonNegative, Simplex
from accelegrad.rules import AcceleGrad as Fixed
from accelegrad.rules import AdaGrad
from accelegrad.rules import DiagonalAcceleGrad as Diagonal
from accelegrad.rules import UntunedAcceleGrad as Untuned
from accelegrad.torch import AcceleGrad, AdaGradNorm

STEPS = 300
SIZE = 12
rng = np.random.default_rng(16)
MATRIX = rng.standard_normal((40, SIZE)) * np.linspace(0.2, 2.0, SIZE)
TARGET, START = rng.standard_normal(40), rng.uniform(0.1, 1.0, SIZE)
NOISE = rng.standard_normal((STEPS, SIZE))


def gradient(x, t):
    """Of a smooth convex function, nearly with a kink per coordinate, with noise of the t-th call.

    Without noise, what the untuned rule takes for its share in the gradients is rounding.
    """
    exact = MATRIX.T @ np.tanh(MATRIX @ x - TARGET) / 40 + 0.01 * np.tanh(50 * x)
    return exact + 0.05 * NOISE[t]


def soft(x, step):
    """The proximal map of 0.05 ||.||_1, for arrays of either library."""
    return x - x.clip(-0.05 * step, 0.05 * step)


SPLITS = {"one": [[(12,)]], "many": [[(2, 3), (), (5,), (0,)]], "groups": [[(2, 3)], [(), (5,)]]}


def split(vector, shapes):
    sizes = [int(np.prod(shape)) for group in shapes for shape in group]
    parts = iter(np.split(vector, np.cumsum(sizes)[:-1]))
    return [[torch.tensor(next(parts)).reshape(shape) for shape in group] for group in shapes]


class Parameters:
    """A vector as torch parameters in groups, with an optimizer."""

    def __init__(self, kind, shapes, options, start=START):
        parts = split(start, shapes)
        self.groups = [[torch.nn.Parameter(p) for p in group] for group in parts]
        self.shapes, self.calls = shapes, 0
        self.sign = -1 if options.get("maximize") else 1
        self.decay = options.get("weight_decay", 0.0)
        self.optimizer = kind([{"params": group} for group in self.groups], **options)

    def closure(self):
        found = split(self.sign * gradient(self.x, self.calls), self.shapes)
        self.calls += 1
        for group, parts in zip(self.groups, found, strict=True):
            for param, part in zip(group, parts, strict=True):
                param.grad = part

    def step(self):
        self.optimizer.step(self.closure)

    @property
    def x(self):
        params = (param for group in self.groups for param in group)
        return np.concatenate([param.detach().numpy().ravel() for param in params])

    @property
    def output(self):
        with self.optimizer.evaluating():
            return self.x


nonnegative, simplex = NonNegative().project, Simplex(1.0).project
project = {"project": nonnegative, "project_y": True}
ball = Ball(START, 0.25).project
one_step = {"diagonal": False}
#: A rule, and the options with which AcceleGrad does its steps
ACCELEGRAD = {
    "accelegrad": (Fixed(4.0), {"diameter": 4.0}),
    "decay": (Fixed(4.0), {"diameter": 4.0, "weight_decay": 0.1, "maximize": True}),
    "G": (Fixed(4.0, 0.5), {"diameter": 8.0, "gradient_bound": 0.5, "lr": torch.tensor([0.5])}),
    "named set": (Fixed(4.0, **project), {"diameter": 4.0, "projection": "nonnegative"}),
    "a set": (Fixed(4.0, **project), {"diameter": 4.0, "projection": NonNegative()}),
    "ball": (Fixed(0.5, project=ball), {"diameter": 0.5, "projection": "ball"}),
    "auto": (Untuned(), {}),
    "auto, scalar": (Untuned(**one_step), one_step),
    "auto, rate": (Untuned(rate=0.5), {"lr": torch.tensor(0.5)}),
    "auto, decay": (Untuned(), {"weight_decay": 0.1, "maximize": True}),
    "auto, prox": (Untuned(prox=soft), {"penalty": L1(0.05), "diagonal": True}),
    "auto, scalar prox": (Untuned(**one_step, prox=soft), {"penalty": soft}),
    "auto, set": (Untuned(project=nonnegative), {"projection": "nonnegative"}),
    "diagonal": (Diagonal(2.0, 0.1), {"diameter": 2.0, "gradient_bound": 0.1, "diagonal": True}),
    "diagonal, set": (
        Diagonal(2.0, **project),
        {"diameter": 2.0, "diagonal": True, "projection": "nonnegative"},
    ),
}
slow = {**one_step, "momentum": False}
clamped = {"projection": lambda x: x.clamp(min=0)}
ADAGRAD = {
    "adagrad": (AdaGrad(4.0), {"diameter": 4.0}),
    "adagrad, set": (AdaGrad(4.0, nonnegative), {"diameter": 4.0, **clamped}),
    "adagrad, auto": (Untuned(**slow), {}),
    "adagrad, auto, set": (Untuned(**slow, project=nonnegative), clamped),
}
CASES = {
    name: (rule, kind, options)
    for kind, cases in ((AcceleGrad, ACCELEGRAD), (AdaGradNorm, ADAGRAD))
    for name, (rule, options) in cases.items()
}


def agree(rule, parameters, steps=STEPS):
    """Rounding is 1e-16 a step, and a convex method does not blow it up."""
    state = rule.init(parameters.x)
    for t in range(steps):
        x = rule.query(state)
        state = rule.update(state, gradient(x, t) + parameters.decay * x)
        parameters.step()
        assert_allclose(parameters.x, rule.query(state), rtol=1e-12, atol=1e-12, err_msg=t)
        assert_allclose(parameters.output, rule.output(state), rtol=1e-12, atol=1e-12)
    assert parameters.optimizer.iteration == steps
    return state


@pytest.mark.parametrize(
    ("shapes", "way"), [("one", {}), ("many", {}), ("many", {"capturable": True}), ("groups", {})]
)
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_rule(case, shapes, way):
    rule, kind, options = CASES[case]
    parameters = Parameters(kind, SPLITS[shapes], {**options, **way}, start_of(rule))
    state = agree(rule, parameters, STEPS if shapes == "one" else 60)
    if shapes == "one" and case == "auto":
        assert state.averaged > 50  # the search for the radius, and what comes after it


def start_of(rule):
    """A radius that starts at 1e-6 sees the rounding of x0 near 1 as 1e-10 of all distances."""
    return 1e-4 * START if isinstance(rule, Untuned) else START


def test_a_simplex_is_kept():
    start = np.full(SIZE, 1 / SIZE)
    options = {"diameter": 2**0.5, "projection": "simplex"}
    parameters = Parameters(AcceleGrad, SPLITS["one"], options, start)
    agree(Fixed(2**0.5, project=simplex, project_y=True), parameters)
    assert parameters.output.min() >= 0
    assert parameters.output.sum() == pytest.approx(1, abs=1e-12)


def test_what_may_be_logged():
    rule, kind, options = CASES["auto"]
    parameters = Parameters(kind, SPLITS["groups"], options, start_of(rule))
    state = agree(rule, parameters, 50)
    optimizer = parameters.optimizer
    assert optimizer.effective_step == pytest.approx(state.step_size, rel=1e-12)
    assert optimizer.radius == pytest.approx(state.radius, rel=1e-12)
    fixed = Parameters(AcceleGrad, SPLITS["one"], {"diameter": 3.0}).optimizer
    assert (fixed.radius, fixed.effective_step, fixed.iteration) == (3.0, 0.0, 0)


def test_groups_on_their_own_are_optimizers_on_their_own():
    both = Parameters(AcceleGrad, SPLITS["groups"], {"diameter": 2.0, "per_group": True})
    both.optimizer.param_groups[1]["diameter"] = 5.0
    alone = [
        Parameters(AcceleGrad, [[(6,)]], {"diameter": D}, part)
        for D, part in ((2.0, START[:6]), (5.0, START[6:]))
    ]
    for t in range(50):
        found = split(gradient(both.x, t), [[(6,)], [(6,)]])
        both.step()
        for one, part in zip(alone, found, strict=True):
            one.groups[0][0].grad = part[0]
            one.optimizer.step()
        assert_allclose(both.x, np.concatenate([one.x for one in alone]), atol=1e-12)
