"""What torch's own suite asks of every optimizer."""

import copy
import io

import pytest
import torch
from torch.nn import Parameter

import accelegrad as ag
from accelegrad import errors
from accelegrad.torch import AcceleGrad, AdaGradNorm

KINDS = [AcceleGrad, AdaGradNorm]
COMMON = [
    {},
    {"lr": 0.5},
    {"lr": torch.tensor(0.5)},
    {"maximize": True},
    {"weight_decay": 0.1, "maximize": True},
    {"capturable": True},
]
GIVEN = [
    {"diameter": 1.0, "gradient_bound": 0.1, "lr": torch.tensor(0.5)},
    {"diameter": 1.0, "weight_decay": 0.1, "maximize": True},
]
CONFIGURATIONS = [
    pytest.param(kind, given, id=f"{kind.__name__}-{given}")
    for kind, options in ((AcceleGrad, [*COMMON, *GIVEN]), (AdaGradNorm, COMMON))
    for given in options
]
configured = pytest.mark.parametrize(("kind", "given"), CONFIGURATIONS)
each_kind = pytest.mark.parametrize("kind", KINDS)


def linear_problem(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    strided = torch.randn(10, 5, 2, dtype=dtype)[..., 0], torch.randn(10, 2, dtype=dtype)[..., 0]
    weight, bias = map(Parameter, strided)
    data = torch.randn(5, dtype=dtype)

    def loss():
        return (weight.mv(data) + bias).square().sum()

    return weight, bias, loss


def closure_of(optimizer, loss):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def equal(a, b):
    """Nested containers of tensors and other things, equal to the last bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


@configured
@pytest.mark.filterwarnings("ignore:lr is far below 1")
def test_groups_with_other_weight_decay_and_lr(kind, given):
    weight, bias, loss = linear_problem()
    idle = Parameter(torch.randn(2))
    stays = idle.detach().clone()
    options = copy.deepcopy({"lr": 1e-3, **given})
    optimizer = kind(
        [
            {"params": [weight], **options},
            {"params": [bias], **copy.deepcopy(options), "weight_decay": 0.0},
            {"params": [idle], **copy.deepcopy(options), "lr": 1e-28},
        ]
    )
    closure = closure_of(optimizer, loss)
    before = closure().item()
    for _ in range(20):
        closure()
        idle.grad = torch.rand_like(idle)
        optimizer.step()
    assert (closure().item() > before) == given.get("maximize", False)
    assert torch.equal(idle.detach(), stays)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [{}, {"maximize": True}, {"diameter": 1.0, "weight_decay": 0.1}])
def test_sparse_gradients_are_as_dense_ones(kind, given):
    """One coordinate of Rosenbrock's gradient after the other, in two parts."""
    start = torch.tensor([1.5, 1.5], dtype=torch.float64)
    sparse, dense = Parameter(start.clone()), Parameter(start.clone())
    optimizers = [kind([sparse], **given), kind([dense], **given)]
    for i in range(100):
        for x in (sparse, dense):
            value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            slope, j = torch.autograd.grad(value, x)[0][i % 2], i % 2
            parts = torch.stack([slope / 4, slope - slope / 4])
            x.grad = torch.sparse_coo_tensor([[j, j]], parts, (2,), check_invariants=True)
        dense.grad = dense.grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(sparse, dense, atol=1e-12, rtol=1e-12)
    assert not torch.equal(sparse, start)


@configured
def test_complex_parameters_are_as_pairs_of_real_ones(kind, given):
    torch.manual_seed(0)
    shapes = [((10, 5), torch.complex64), ((10,), torch.complex64), ((10, 5), torch.float32)]
    complex_ = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape, dtype in shapes]
    real = [torch.view_as_real(p) if p.is_complex() else p for p in complex_]
    real = [p.detach().clone().requires_grad_() for p in real]
    optimizers = [kind(params, **copy.deepcopy(given)) for params in (complex_, real)]
    for t in range(6):
        for a, b in zip(complex_, real, strict=True):
            b.grad = torch.randn_like(b)
            a.grad = torch.view_as_complex(b.grad) if a.is_complex() else b.grad.clone()
        for optimizer in optimizers:
            optimizer.step() if t < 5 else optimizer.eval()
        for a, b in zip(complex_, real, strict=True):
            assert torch.equal(torch.view_as_real(a) if a.is_complex() else a, b)


@configured
@pytest.mark.parametrize("flag", [{}, {"differentiable": True}])
def test_nothing_moves_without_a_gradient(kind, given, flag):
    params = [torch.randn(2, 3) for _ in range(2)]
    before = copy.deepcopy(params)
    optimizer = kind(params, **copy.deepcopy(given), **flag)
    optimizer.step(lambda: torch.tensor([1.0]))
    assert equal(params, before)
    assert not optimizer.state
    if not given.get("weight_decay"):
        for param in params:
            param.grad = torch.zeros_like(param)
        assert optimizer.step(lambda: 3.0) == 3.0
        assert equal(params, before)
    assert kind.__name__ in repr(optimizer)


@configured
@pytest.mark.parametrize(
    ("dtype", "mode", "named"),
    [
        (torch.float32, "train", (True, False)),
        (torch.float64, "eval", (False, True)),
        (torch.bfloat16, "train", (False, False)),
        (torch.bfloat16, "eval", (True, True)),
    ],
)
def test_a_loaded_run_goes_on_to_the_last_bit(kind, given, dtype, mode, named):
    def built(names, params):
        listed = [(f"name{i}", param) for i, param in enumerate(params)] if names else params
        return kind(listed, **copy.deepcopy(given))

    *params, loss = linear_problem(3, dtype=dtype)
    optimizer = built(named[0], params)
    for _ in range(30):
        optimizer.step(closure_of(optimizer, loss))
    getattr(optimizer, mode)()
    *params_again, loss_again = linear_problem(3, dtype=dtype)
    with torch.no_grad():
        for again, param in zip(params_again, params, strict=True):
            again.copy_(param)
    loaded = built(named[1], params_again)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    kept = copy.deepcopy(state)
    loaded.load_state_dict(state)
    assert loaded.training == (mode == "train")
    for each in (optimizer, loaded):
        each.train()
    for _ in range(30):
        optimizer.step(closure_of(optimizer, loss))
        loaded.step(closure_of(loaded, loss_again))
        assert equal(params, params_again)
    assert equal(state, kept)  # what was loaded is not what is changed
    groups = [dict(o.state_dict()["param_groups"][0]) for o in (optimizer, loaded)]
    names = [group.pop("param_names", None) for group in groups]
    assert equal(*groups)
    assert names[1] == (["name0", "name1"] if any(named) else None)
    assert equal(optimizer.state_dict()["state"], loaded.state_dict()["state"])
    for states in loaded.state.values():
        wanted = torch.float32 if dtype == torch.bfloat16 else dtype
        assert {tensor.dtype for tensor in states.values()} == {wanted}
    assert groups[1]["iteration"].dtype == torch.float64


@each_kind
def test_hooks_of_state_dicts(kind):
    optimizer = kind([torch.rand(2, 3, requires_grad=True)])
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: o.state.update(test=1))
    optimizer.register_state_dict_post_hook(
        lambda _, state: seen.append(state["state"].pop("test"))
    )
    state = optimizer.state_dict()
    assert seen == [1]
    assert "test" not in state["state"]

    def slower(_, state):
        state = copy.deepcopy(state)
        state["param_groups"][0]["lr"] = 0.003
        return state

    optimizer.register_load_state_dict_pre_hook(slower)
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    optimizer.load_state_dict(state)
    assert seen == [1, 0.003]
    optimizer.state["test"] = 1
    optimizer.load_state_dict(optimizer.state_dict())  # with entries that are no parameter's
    optimizer.eval()
    optimizer.train()


@pytest.mark.parametrize("penalty", [ag.L1(0.5), ag.ElasticNet(0.5, 1.0)])
@pytest.mark.parametrize("diameter", ["auto", 8.0])
def test_an_l1_penalty_shrinks_complex_parameters_as_a_whole(penalty, diameter):
    goal = torch.tensor([3 + 4j, -0.3 + 0.3j, 2j, 0.1 + 0j], dtype=torch.complex128)
    x = Parameter(torch.zeros_like(goal))
    optimizer = AcceleGrad([x], penalty=penalty, diameter=diameter)
    for _ in range(500):
        x.grad = x.detach() - goal
        optimizer.step()
    optimizer.eval()
    l2 = 1.0 if isinstance(penalty, ag.ElasticNet) else 0.0
    expected = goal.sgn() * (goal.abs() - 0.5).clamp(min=0) / (1 + l2)
    torch.testing.assert_close(x.detach(), expected, atol=2e-3, rtol=0)
    assert torch.equal(x[[1, 3]].detach(), torch.zeros_like(x[[1, 3]]))
    again = AcceleGrad([x], penalty=penalty, diameter=diameter)
    again.load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="penalty on complex parameters do not go together"):
        AcceleGrad([x], penalty=penalty, diameter=diameter, diagonal=True)


@pytest.mark.parametrize("diameter", ["auto", 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_step_ends_with_the_projection(kind, diameter):
    """A point in the set stays, up to rounding; one outside is moved into it."""
    inside = Parameter(torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]))
    outside = Parameter(torch.tensor([2.0, 1.0, 0.0]))
    optimizer = kind([inside, outside], projection="simplex", diameter=diameter)
    before = inside.detach().clone()
    for param in (inside, outside):
        param.grad = torch.zeros_like(param)
    optimizer.step()
    torch.testing.assert_close(inside.detach(), before, rtol=0, atol=1e-7)
    torch.testing.assert_close(outside.detach(), torch.tensor([1.0, 0.0, 0.0]))


@each_kind
def test_a_small_lr_gets_a_hint_once(kind):
    errors.rate_hint.cache_clear()
    first, second = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for lr in (1, 0.1, 0.0, torch.tensor(0.5)):
        kind([first], lr=lr)
    kind([{"params": [first], "lr": 1e-3}, {"params": [second]}])
    with pytest.warns(UserWarning, match="lr is far below 1.*needs no tuning") as found:
        kind([first], lr=1e-3)
    kind([first], lr=1e-3)
    assert [warning.filename for warning in found] == [__file__]
