"""What torch's own suite asks of every optimizer."""

import copy
import io

import pytest
import torch
from torch.nn import Parameter
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

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
GIVEN_DECAY = {"diameter": 1.0, "weight_decay": 0.1}
GIVEN = [
    {"diameter": 1.0, "gradient_bound": 0.1, "lr": torch.tensor(0.5)},
    {**GIVEN_DECAY, "maximize": True},
]
CONFIGURATIONS = [
    pytest.param(kind, given, id=f"{kind.__name__}-{given}")
    for kind, options in ((AcceleGrad, [*COMMON, *GIVEN]), (AdaGradNorm, COMMON))
    for given in options
]
configured = pytest.mark.parametrize(("kind", "given"), CONFIGURATIONS)
each_kind = pytest.mark.parametrize("kind", KINDS)


def linear_problem(seed=0, *, contiguous=True):
    torch.manual_seed(seed)
    step = 1 if contiguous else 2
    weight = Parameter(torch.randn(10, 5, step)[..., 0])
    bias = Parameter(torch.randn(10, step)[..., 0])
    data = torch.randn(5)

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


def went_right(given, before, after):
    return after > before if given.get("maximize") else after < before


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


@configured
@pytest.mark.parametrize(("contiguous", "scheduled"), [(True, False), (False, True)])
def test_goes_the_right_way(kind, given, contiguous, scheduled):
    weight, bias, loss = linear_problem(contiguous=contiguous)
    optimizer = kind([weight, bias], **copy.deepcopy(given))
    by_step, by_value = StepLR(optimizer, gamma=0.9, step_size=10), ReduceLROnPlateau(optimizer)
    closure = closure_of(optimizer, loss)
    before = closure().item()
    for _ in range(20):
        value = optimizer.step(closure)
        if scheduled:
            by_step.step()
            by_value.step(value.detach())
    assert went_right(given, before, closure().item())


@configured
@pytest.mark.filterwarnings("ignore:lr is far below 1")
def test_groups_with_other_weight_decay_and_lr(kind, given):
    weight, bias, loss = linear_problem()
    idle = Parameter(torch.randn(2))
    stays = idle.detach().clone()
    slow = {"params": [idle], "lr": 1e-28}
    own = {"params": [weight]}, {"params": [bias], "weight_decay": 0.0}, slow
    optimizer = kind([{"lr": 1e-3, **copy.deepcopy(given), **group} for group in own])
    closure = closure_of(optimizer, loss)
    before = closure().item()
    for _ in range(20):
        closure()
        idle.grad = torch.rand_like(idle)
        optimizer.step()
    assert went_right(given, before, closure().item())
    assert torch.equal(idle.detach(), stays)


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


@each_kind
@pytest.mark.parametrize(
    "given", [*COMMON[:2], {"lr": 0.1}, {"lr": 1e-3}, {"maximize": True}, GIVEN_DECAY]
)
@pytest.mark.filterwarnings("ignore:lr is far below 1")
def test_sparse_gradients_are_as_dense_ones(kind, given):
    """torch asks for a point nearer to (1, 1) at the end; in the valley values say more."""
    starts = [torch.tensor([1.5, 1.5]), torch.tensor([1.5, 1.5], dtype=torch.float64)]
    sparse, dense = ([Parameter(start.clone()) for start in starts] for _ in range(2))
    optimizers = [kind(params, **copy.deepcopy(given)) for params in (sparse, dense)]
    for i in range(100):
        for params in (sparse, dense):
            for param in params:
                (gradient,) = torch.autograd.grad(rosenbrock(param), param)
                j = i % 2  # one coordinate after the other, in two parts
                parts = torch.stack([gradient[j] / 4, gradient[j] - gradient[j] / 4])
                param.grad = torch.sparse_coo_tensor(
                    torch.tensor([[j, j]]), parts, (2,), check_invariants=True
                )
                if params is dense:
                    param.grad = param.grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
        for a, b in zip(sparse, dense, strict=True):
            torch.testing.assert_close(a, b, atol=5e-6, rtol=5e-6)
    ends = sum(rosenbrock(param).item() for param in sparse)
    assert went_right(given, sum(rosenbrock(start).item() for start in starts), ends)


@configured
def test_complex_parameters_are_as_pairs_of_real_ones(kind, given):
    torch.manual_seed(0)
    shapes = [((10, 5), torch.complex64), ((10,), torch.complex64), ((10, 5), torch.float32)]
    complex_ = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape, dtype in shapes]
    real = [torch.view_as_real(p) if p.is_complex() else p for p in complex_]
    real = [p.detach().clone().requires_grad_() for p in real]
    optimizers = [kind(params, **copy.deepcopy(given)) for params in (complex_, real)]
    for _ in range(5):
        for a, b in zip(complex_, real, strict=True):
            b.grad = torch.randn_like(b)
            a.grad = torch.view_as_complex(b.grad) if a.is_complex() else b.grad.clone()
        for act in (kind.step, kind.eval, kind.train):
            for optimizer in optimizers:
                act(optimizer)
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
@pytest.mark.parametrize(("named", "named_too"), [(True, False), (False, True)])
def test_a_loaded_run_goes_on_to_the_last_bit(kind, given, named, named_too):
    def built(names, params):
        listed = [(f"name{i}", param) for i, param in enumerate(params)] if names else params
        return kind(listed, **copy.deepcopy(given))

    weight, bias, loss = linear_problem(3)
    optimizer = built(named, [weight, bias])
    for _ in range(10):
        optimizer.step(closure_of(optimizer, loss))
    again, bias_again, loss_again = linear_problem(3)
    with torch.no_grad():
        again.copy_(weight)
        bias_again.copy_(bias)
    loaded = built(named_too, [again, bias_again])
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    kept = copy.deepcopy(state)
    loaded.load_state_dict(state)
    for _ in range(10):
        optimizer.step(closure_of(optimizer, loss))
        loaded.step(closure_of(loaded, loss_again))
        assert equal([weight, bias], [again, bias_again])
    assert equal(state, kept)  # what was loaded is not what is changed
    assert equal(optimizer.state_dict()["state"], loaded.state_dict()["state"])
    groups = [dict(o.state_dict()["param_groups"][0]) for o in (optimizer, loaded)]
    names = [group.pop("param_names", None) for group in groups]
    assert equal(*groups)
    assert names[1] == (["name0", "name1"] if named or named_too else None)


@each_kind
def test_hooks_of_state_dicts(kind):
    optimizer = kind([torch.rand(2, 3, requires_grad=True)])
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: o.state.update(test=1))
    optimizer.register_state_dict_post_hook(lambda _, s: seen.append(s["state"].pop("test")))
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


@each_kind
def test_a_closure_that_raises_changes_nothing(kind):
    weight, bias, loss = linear_problem()
    optimizer = kind([{"params": [weight]}, {"params": [bias]}])

    def raises():
        raise KeyError

    for _ in range(3):
        optimizer.step(closure_of(optimizer, loss))
    before = copy.deepcopy((optimizer.state_dict(), [weight, bias]))
    with pytest.raises(KeyError):
        optimizer.step(raises)
    assert equal((optimizer.state_dict(), [weight, bias]), before)


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
