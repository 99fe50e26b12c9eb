"""The two modes, what is saved, odd gradients and parameters, and what torch users expect."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from accelegrad.torch import AcceleGrad, AdaGradNorm, minimize, recalibrate
from processes import run_python

KINDS = [AcceleGrad, AdaGradNorm]
OPTIONS = [{}, {"diagonal": False}, {"diameter": 2.0}, {"diameter": 2.0, "diagonal": True}]


class Additive(torch.nn.Sequential):
    """The sum of its layers: a loss that is convex in the predictions is so in the parameters."""

    def forward(self, data):
        return sum(layer(data) for layer in self)


class Run:
    """A linear model with an optimizer, on noisy batches that depend on the step alone."""

    def __init__(self, kind=AcceleGrad, dtype=torch.float64, **options):
        torch.manual_seed(5)
        self.model = Additive(torch.nn.Linear(6, 1), torch.nn.Linear(6, 1)).to(dtype)
        self.data = torch.randn(64, 6).to(dtype)
        self.target = self.data[:, :1] - self.data[:, 1:2]
        self.optimizer = kind(self.model.parameters(), **options)
        self.steps = 0

    def loss(self, rows=slice(None)):
        return (self.model(self.data[rows]) - self.target[rows]).square().mean()

    def closure(self, rows=slice(None), factor=1.0):
        self.optimizer.zero_grad()
        loss = factor * self.loss(rows)
        loss.backward()
        return loss

    def step(self, count=1):
        for _ in range(count):
            rows = torch.arange(8 * self.steps, 8 * self.steps + 8) % 64
            self.steps += 1
            self.optimizer.step(partial(self.closure, rows))

    def values(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_looking_at_the_average_changes_nothing(kind, dtype):
    watched, alone = Run(kind, dtype, diameter=2.0), Run(kind, dtype, diameter=2.0)
    for _ in range(30):
        alone.step()
        watched.step()
        before = watched.values()
        with watched.optimizer.evaluating():
            watched.optimizer.eval()  # again: nothing
            with watched.optimizer.evaluating():
                evaluated = watched.values()
            assert torch.equal(watched.values(), evaluated)
        with pytest.raises(KeyError), watched.optimizer.evaluating():
            raise KeyError
        assert watched.optimizer.training
        assert torch.equal(watched.values(), before)
    assert torch.equal(watched.values(), alone.values())
    assert not torch.equal(evaluated, before)


def test_steps_in_evaluation_mode_or_to_set_up_state_do_not_count():
    run = Run(diameter=2.0)
    run.step(3)
    run.optimizer.eval()
    before = run.values()
    with pytest.raises(
        RuntimeError, match=r"Call the optimizer's train\(\) before the forward pass"
    ):
        run.step()
    for param in run.model.parameters():
        param.grad = torch.zeros_like(param)
    run.optimizer.step()
    run.optimizer.zero_grad()
    run.optimizer.step()
    assert torch.equal(run.values(), before)
    assert run.optimizer.iteration == 3
    run = Run()
    for group in run.optimizer.param_groups:
        group["lr"] = 0.0
    for param in run.model.parameters():
        param.grad = torch.zeros_like(param)
    run.optimizer.step()
    assert run.optimizer.state
    assert run.optimizer.iteration == 0


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles_go_on_alike(kind):
    run = Run(kind)
    run.step(20)
    twins = [copy.deepcopy(run), pickle.loads(pickle.dumps(run))]
    for each in (run, *twins):
        each.step(20)
        assert each.optimizer.iteration == 40
        assert torch.equal(each.values(), run.values())


def test_a_loaded_state_brings_its_method_and_functions_stay():
    run, loaded = (Run(diameter=2.0, projection=lambda x: x.clamp(-0.1, 0.1)) for _ in range(2))
    run.step(3)
    state = run.optimizer.state_dict()
    assert "projection" not in state["param_groups"][0]
    loaded.optimizer.load_state_dict(state)
    assert callable(loaded.optimizer.param_groups[0]["projection"])
    assert state["param_groups"][0]["penalty"] is None
    run, loaded = Run(diagonal=False), Run()
    run.step(5)
    loaded.model.load_state_dict(run.model.state_dict())
    loaded.optimizer.load_state_dict(run.optimizer.state_dict())
    loaded.steps = run.steps
    for each in (run, loaded):
        each.step(20)
    assert torch.equal(loaded.values(), run.values())


def test_half_precision_is_as_good_as_its_points():
    """x is kept in float32: steps below the resolution of bfloat16 are not lost."""
    run = Run(dtype=torch.bfloat16)
    before = run.loss().item()
    run.step(300)
    with run.optimizer.evaluating():
        assert run.loss().item() < 0.05 * before
    exact, coarse = (Run(dtype=dtype, diameter=2.0) for dtype in (torch.float32, torch.bfloat16))
    exact.step(50)
    coarse.step(50)
    assert torch.allclose(exact.values(), coarse.values().float(), atol=0.05)


@pytest.mark.parametrize("options", [*OPTIONS, {"diameter": 2.0, "projection": "ball"}, None])
def test_three_tensors_at_most_allocated_once(options):
    run = Run(AdaGradNorm) if options is None else Run(**options)

    def places():
        states = [run.optimizer.state[param].values() for param in run.model.parameters()]
        assert all(len(state) <= 3 for state in states)
        tensors = [*run.model.parameters(), *(tensor for state in states for tensor in state)]
        return [tensor.data_ptr() for tensor in tensors]

    run.step()
    before = places()
    run.step(80)
    assert places() == before


def test_frozen_and_late_parameters():
    run = Run(diameter=2.0)
    first, second = run.model
    second.requires_grad_(False)
    stays = second.weight.detach().clone()
    run.step(5)
    assert torch.equal(second.weight.detach(), stays)
    assert second.weight not in run.optimizer.state
    with run.optimizer.evaluating():
        assert torch.equal(second.weight.detach(), stays)
    second.requires_grad_(True)
    first.requires_grad_(False)
    held = first.weight.detach().clone()
    run.step(5)
    assert torch.equal(first.weight.detach(), held)
    assert not torch.equal(second.weight.detach(), stays)
    assert run.optimizer.iteration == 10


def test_a_late_group():
    run = Run(diameter=2.0)
    run.step(3)
    extra = Parameter(torch.ones(2, dtype=torch.float64))
    run.optimizer.add_param_group({"params": [extra], "lr": 0.5, "diameter": 1.0})
    extra.grad = torch.ones_like(extra)
    run.optimizer.step()
    assert (extra < 1).all()
    with pytest.raises(ValueError, match="diameter must be a finite number > 0"):
        run.optimizer.add_param_group({"params": [Parameter(torch.ones(2))], "diameter": -1.0})
    with pytest.raises(ValueError, match="cannot change the method of the others"):
        run.optimizer.add_param_group({"params": [Parameter(torch.ones(2))], "diagonal": True})
    assert len(run.optimizer.param_groups) == 2
    untuned = Run()
    for options in ({"diameter": 1.0}, {"projection": "simplex"}):
        with pytest.raises(ValueError, match="cannot change the method of the others"):
            untuned.optimizer.add_param_group({"params": [Parameter(torch.ones(2))], **options})


def ended(kind, *groups):
    """The parameters of some groups with those options after some steps, the groups' order kept."""
    torch.manual_seed(0)
    params = [Parameter(torch.randn(4, dtype=torch.float64)) for _ in groups]
    optimizer, again = (
        kind([{"params": [p], **own} for p, own in zip(params, groups, strict=True)])
        for _ in range(2)
    )

    def closure():
        for param in params:
            param.grad = param.detach() + torch.randn(4, dtype=torch.float64)

    for _ in range(5):
        optimizer.step(closure)
    again.load_state_dict(optimizer.state_dict())  # by groups too
    return [param.detach() for param in params]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_without_a_diameter_take_the_largest_of_the_others(kind):
    given, small = {"diameter": 3.0}, {"diameter": 0.5}
    for groups in ([given, {}], [{}, given], [small, {}, given]):
        filled = [own or given for own in groups]
        for found, expected in zip(ended(kind, *groups), ended(kind, *filled), strict=True):
            assert torch.equal(found, expected)


def test_groups_that_say_nothing_follow_the_others():
    ball = {"diameter": 0.1, "projection": "ball"}
    both = ended(AcceleGrad, ball, {"diameter": 0.1})
    free = ended(AcceleGrad, {"diameter": 0.1}, {"diameter": 0.1})
    assert not torch.equal(both[0], free[0])  # held
    one = ended(AcceleGrad, {"diagonal": False}, {})
    assert all(map(torch.equal, one, ended(AcceleGrad, *[{"diagonal": False}] * 2)))
    assert not any(map(torch.equal, one, ended(AcceleGrad, {}, {})))
    with pytest.raises(ValueError, match="True for a parameter group and False for another"):
        ended(AcceleGrad, {"diagonal": True}, {"diagonal": False})
    with pytest.raises(ValueError, match="diagonal=True and projection='simplex'"):
        ended(AcceleGrad, {"diagonal": True}, {"projection": "simplex"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_steps_without_finite_gradients_are_skipped(kind, bad):
    run = Run(kind)
    run.step(5)
    before, state = run.values(), copy.deepcopy(run.optimizer.state_dict())
    with pytest.warns(RuntimeWarning, match="not finite, and this step is skipped"):
        assert not np.isfinite(run.optimizer.step(partial(run.closure, factor=bad)).item())
    assert torch.equal(run.values(), before)
    after = run.optimizer.state_dict()
    torch.testing.assert_close(after["state"], state["state"], rtol=0, atol=0)
    run.step(5)
    assert run.optimizer.iteration == 10
    assert torch.isfinite(run.values()).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_autograd_goes_through_steps(options):
    """The slope of a point after three steps with respect to the first gradient and lr."""
    start = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def end(gradient, lr, differentiable=True):
        x = Parameter(start.clone())
        x = x.clone() if differentiable else x
        optimizer = AcceleGrad([x], lr=lr, differentiable=differentiable, **options)
        for factor in (1.0, 0.7, -0.4):
            x.grad = factor * gradient
            optimizer.step()
        return x

    given = torch.tensor([0.3, -0.1, 0.2], dtype=torch.float64, requires_grad=True)
    lr = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    if "diameter" in options:
        assert torch.autograd.gradcheck(end, (given, lr))
    else:  # steps of 1e-6 are below what finite differences of x see
        slopes = torch.autograd.grad(end(given, lr).sum(), (given, lr))
        assert all(torch.isfinite(slope).all() for slope in slopes)
    plain = end(given.detach(), 0.5, differentiable=False)
    torch.testing.assert_close(end(given, lr).detach(), plain.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_is_compiled_once():
    from torch._dynamo.testing import CompileCounter

    for options in ({"diameter": 2.0}, {}):
        torch.compiler.reset()
        eager, compiled = Run(**options), Run(**options)
        counter = CompileCounter()
        step = torch.compile(compiled.optimizer.step, backend=counter)
        counts = []
        for i in range(40):
            for run, do in ((eager, eager.optimizer.step), (compiled, step)):
                run.optimizer.param_groups[0]["lr"] = 1.0 - 0.01 * i
                run.closure(slice(i, i + 8))
                do()
            counts.append(counter.frame_count)
        assert counts[-1] == counts[2]  # as numbers change, nothing is compiled again
        torch.testing.assert_close(eager.values(), compiled.values(), rtol=1e-9, atol=1e-9)
    torch.compiler.reset()


def test_state_of_another_model_or_optimizer_is_refused():
    run = Run(diameter=2.0)
    run.step(2)
    before = copy.deepcopy(run.optimizer.state_dict())
    other = Additive(torch.nn.Linear(5, 1), torch.nn.Linear(5, 1))
    of_other = AcceleGrad(other.parameters(), diameter=2.0)
    other(torch.ones(2, 5)).sum().backward()
    of_other.step()
    with pytest.raises(ValueError, match=r"another model: average has shape \(1, 5\)"):
        run.optimizer.load_state_dict(of_other.state_dict())
    with pytest.raises(ValueError, match=r"doesn't match the size"):
        run.optimizer.load_state_dict(AcceleGrad([Parameter(torch.ones(2))]).state_dict())
    adam = torch.optim.Adam(run.model.parameters())
    run.loss().backward()
    adam.step()
    with pytest.raises(ValueError, match="not one of AcceleGrad"):
        run.optimizer.load_state_dict(adam.state_dict())
    after = run.optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -0.1}, "lr must be a finite number >= 0, but it is -0.1"),
        ({"lr": torch.ones(2)}, "Tensor lr must be 1-element"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number >= 0"),
        ({"gradient_bound": -1.0, "diameter": 1.0}, "gradient_bound must be a finite number >= 0"),
        ({"diameter": -1.0}, "diameter must be a finite number > 0, but it is -1.0"),
        ({"diameter": 1e200}, "diameter must be between"),
        ({"diameter": "car"}, "diameter must be a finite number"),
        ({"projection": "bal", "diameter": 1.0}, "did you mean 'ball'"),
        ({"projection": 3}, "projection must be None, 'ball'"),
        ({"penalty": 3}, "penalty must be None, a function"),
        ({"projection": "ball"}, "needs the ball's diameter"),
        ({"projection": "simplex", "diagonal": True}, "do not go together"),
        ({"gradient_bound": 1.0}, "gradient_bound needs a diameter"),
        ({"diagonal": "yes"}, "diagonal must be True, False or 'auto'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AcceleGrad([Parameter(torch.ones(2))], **options)


def test_recalibrated_statistics_are_those_of_the_average():
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    model = torch.nn.Sequential(*layers)
    data = torch.randn(40, 3)
    optimizer = AcceleGrad(model.parameters(), diameter=2.0)
    for _ in range(20):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    optimizer.recalibrate(model, [data])
    assert optimizer.training
    assert model.training
    with optimizer.evaluating(), torch.no_grad():
        expected = model[0](data)
        kept = model[1].running_mean.clone()
        recalibrate(model, [(data, None)])
    torch.testing.assert_close(kept, expected.mean(0))
    torch.testing.assert_close(model[1].running_mean, kept)
    torch.testing.assert_close(model[1].running_var, expected.var(0))


def test_minimize_certifies_a_torch_function(tmp_path):
    torch.manual_seed(1)
    data, labels = torch.randn(50, 3).double(), torch.sign(torch.randn(50).double())
    model = torch.nn.Linear(3, 1).double()

    def loss():
        margins = labels * model(data).squeeze(-1)
        penalty = sum(p.square().sum() for p in model.parameters())
        return torch.nn.functional.softplus(-margins).mean() + 0.05 * penalty

    def with_backward():
        model.zero_grad()
        value = loss()
        value.backward()
        return value

    ends = []
    for function in (loss, with_backward):
        for param in model.parameters():
            torch.nn.init.zeros_(param)
        result = minimize(function, model.parameters(), tol=1e-8, max_iter=2000)
        assert result.success, result.message
        assert result.gap <= 1e-8
        assert loss().item() == pytest.approx(result.fun, abs=1e-15)
        ends.append(result.x)
    np.testing.assert_array_equal(*ends)
    weight, unused = Parameter(torch.zeros(2, 2).double()), Parameter(torch.zeros(1).double())
    both, options = [weight, unused], {"tol": 1e-6, "checkpoint": tmp_path / "run"}
    assert minimize(lambda w, _: (w - 3).square().sum(), both, **options).success
    assert (weight - 3).abs().max() < 1e-3


ONES = torch.ones(2).double()


@pytest.mark.parametrize(
    ("function", "params", "message"),
    [
        (torch.sum, Parameter(torch.ones(2)), "must be float64 .*, but one is torch.float32"),
        (torch.sum, ONES, "leaves that require gradients"),
        (torch.sum, [], "params must have at least one tensor"),
        (torch.sum, [[1.0]], "params must be tensors, not list"),
        (lambda x: x * 2, Parameter(ONES.clone()), "tensor of one number"),
    ],
)
def test_minimize_refuses_what_it_cannot_certify(function, params, message):
    with pytest.raises((TypeError, ValueError), match=message):
        minimize(lambda x: function(x), params)
    if isinstance(params, torch.Tensor):
        assert torch.equal(params.detach(), torch.ones_like(params))


def test_without_torch_its_door_says_what_to_install():
    code = """if True:
        import sys; sys.modules["torch"] = None
        try: import accelegrad.torch
        except ImportError as error: print(error)"""
    assert "pip install 'accelegrad[torch]'" in run_python(code)
