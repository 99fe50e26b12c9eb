"""Steps do not depend on the size of gradients, from the smallest float32 to the largest."""

import pytest
import torch

from accelegrad.geometry.penalties import L1
from accelegrad.torch import AcceleGrad, AdaGradNorm

KINDS = {
    "auto": (AcceleGrad, {}),
    "auto, scalar": (AcceleGrad, {"diagonal": False}),
    "auto, simplex": (AcceleGrad, {"projection": "simplex"}),
    "auto, capturable": (AcceleGrad, {"capturable": True}),
    "diameter": (AcceleGrad, {"diameter": 2.0}),
    "diameter, diagonal": (AcceleGrad, {"diameter": 2.0, "diagonal": True}),
    "ball": (AcceleGrad, {"diameter": 4.0, "projection": "ball"}),
    "AdaGradNorm": (AdaGradNorm, {}),
    "AdaGradNorm, diameter": (AdaGradNorm, {"diameter": 2.0}),
}
SIZES = [2.0**120, 2.0**-100]  # 1e36, 8e-31


def ended(kind, options, size, *, steps=80, many=3):
    """Minimise size * |x - goal|^2 / 2 with some noise, and return the last and the output point."""
    torch.manual_seed(0)
    start = torch.full((many,), 1 / many)
    goal = torch.linspace(0.1, 0.6, many)
    x = torch.nn.Parameter(start.clone())
    optimizer = kind([x], **options)
    noise = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x.grad = size * (x.detach() - goal + 0.01 * torch.randn(many, generator=noise))
        optimizer.step()
    step = optimizer.effective_step
    last = x.detach().clone()
    optimizer.eval()
    return last, x.detach().clone(), step


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_steps_are_those_of_ordinary_gradients(name, size):
    kind, options = KINDS[name]
    *ordinary, step = ended(kind, options, 1.0)
    assert not torch.equal(ordinary[0], torch.full((3,), 1 / 3))
    *found, step_too = ended(kind, options, size)
    torch.testing.assert_close(found, ordinary, rtol=1e-5, atol=1e-6)
    assert step_too * size == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize("size", [2.0**66, 2.0**-63])
def test_a_large_tensor_moves_too(size):
    ordinary, found = (ended(AcceleGrad, {}, each, many=40_000)[:2] for each in (1.0, size))
    torch.testing.assert_close(found, ordinary, rtol=1e-3, atol=1e-5)


def test_a_tensor_that_is_summed_in_blocks_is_as_two_smaller_ones():
    start, ends = torch.linspace(-1, 1, 40_000, dtype=torch.float64), []
    noise = torch.randn(60, 40_000, generator=torch.Generator().manual_seed(3))
    for size in (40_000, 20_000):
        params = [torch.nn.Parameter(part.clone()) for part in start.split(size)]
        optimizer = AcceleGrad(params)
        for shaken in noise:
            for param, part in zip(params, shaken.split(size), strict=True):
                param.grad = param.detach() - 0.3 + part
            optimizer.step()
        ends.append(torch.cat([param.detach() for param in params]))
    assert (ends[0] - start).norm() > 1
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("diameter", ["auto", 2.0])
def test_a_gradient_bound_and_a_penalty_are_in_the_users_units(diameter):
    def run(size):
        options = {"penalty": L1(0.1 * size), "diameter": diameter}
        if diameter != "auto":
            options["gradient_bound"] = 0.5 * size
        return ended(AcceleGrad, options, size)

    torch.testing.assert_close(run(1.0)[:2], run(2.0**66)[:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("diagonal", [True, False])
def test_a_first_gradient_of_zero_says_nothing_of_the_size(diagonal):
    x = torch.nn.Parameter(torch.zeros(2))
    optimizer = AcceleGrad([x], diagonal=diagonal)
    x.grad = torch.zeros(2)
    optimizer.step()
    for _ in range(200):
        x.grad = 1e-19 * (x.detach() - torch.tensor([1.0, -2.0]))
        optimizer.step()
        assert optimizer.param_groups[0]["agreement"].isfinite()
    torch.testing.assert_close(x.detach(), torch.tensor([1.0, -2.0]), atol=0.05, rtol=0)


def in_users_units(optimizer, param):
    """The sums of squared gradients of a parameter, where it has them."""
    squares = optimizer.state[param].get("squares")
    return None if squares is None else squares * optimizer.param_groups[0]["gradient_unit"] ** 2


@pytest.mark.parametrize("name", [name for name in KINDS if name != "auto, capturable"])
def test_gradients_that_grow_beyond_the_range_of_float32_make_steps_too(name):
    kind, options = KINDS[name]

    def run(growth):
        many, still = torch.full((3,), 1 / 3), torch.full((2,), 0.5)
        params = [torch.nn.Parameter(many), torch.nn.Parameter(still)]
        optimizer = kind(params, **options)
        for t in range(30):
            size = growth if t >= 10 else 1.0
            params[0].grad = size * torch.tensor([1.0, -0.5, 0.25])
            params[1].grad = None if t == 10 else torch.tensor([0.5, 0.25])
            before = in_users_units(optimizer, params[1])
            optimizer.step()
            if t == 10 and before is not None:
                torch.testing.assert_close(in_users_units(optimizer, params[1]), before)
        return params[0].detach().clone(), optimizer

    far, optimizer = run(2.0**60)
    near, ordinary = run(2.0**25)  # other gradients count no more in either
    assert ordinary.param_groups[0]["gradient_unit"] == 1
    torch.testing.assert_close(far, near, rtol=1e-4, atol=1e-5)
    assert optimizer.iteration == 30
    assert optimizer.param_groups[0]["gradient_unit"] > 2.0**30
