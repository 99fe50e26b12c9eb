"""What the ranks of the distributed tests do: one process each, started by test_distributed.py.

Usage: ranks.py FOLDER RANK RANKS CHECK ...
"""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import load, save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from accelegrad.torch import AcceleGrad, AdaGradNorm

ROWS, STEPS = 40, 30


class Additive(torch.nn.Sequential):
    """The sum of its layers, so that the loss is convex in the parameters."""

    def forward(self, data):
        return sum(layer(data) for layer in self)


def problem():
    """Return a model at zero, where rounding stays rounding, and its data: all ranks have the same."""
    torch.manual_seed(0)
    model = Additive(torch.nn.Linear(5, 7), torch.nn.Linear(5, 7)).double()
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
    return model, *(torch.randn(ROWS, size, dtype=torch.float64) for size in (5, 7))


def loss_of(model, data, target):
    return (model(data) - target).square().mean()


def share(rows):
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def values(model):
    points = (param.detach() for param in model.parameters())
    return [(p.full_tensor() if isinstance(p, DTensor) else p).clone() for p in points]


def steps(model, optimizer, data, target, *, first=0, last=STEPS, own=share):
    for t in range(first, last):
        rows = own(torch.arange(8 * t, 8 * t + 8) % ROWS)

        def closure(rows=rows):
            optimizer.zero_grad()
            loss = loss_of(model, data[rows], target[rows])
            loss.backward()
            return loss

        optimizer.step(closure)


def in_one_process(kind, options):
    """Return the points for training and evaluation of a run without ranks."""
    model, data, target = problem()
    optimizer = kind(model.parameters(), **options)
    steps(model, optimizer, data, target, own=lambda rows: rows)
    trained = values(model)
    optimizer.eval()
    return trained, values(model), optimizer.radius


OPTIONS = [
    (AcceleGrad, {}),
    (AcceleGrad, {"diameter": 3.0}),
    (AcceleGrad, {"diameter": 3.0, "projection": lambda x: x.clamp(-0.3, 0.3)}),
    (AcceleGrad, {"diameter": 3.0, "capturable": True}),
    (AdaGradNorm, {}),
]


def wrapped_model():
    model, data, target = problem()
    return DistributedDataParallel(model), data, target


def sharded_model():
    model, data, target = problem()
    for layer in model:
        fully_shard(layer)
    return fully_shard(model), data, target


def runs(make, build=lambda params, kind, **options: kind(params, **options)):
    """Yield each model after its steps, the optimizer, and the points of a run without ranks."""
    for kind, options in OPTIONS:
        trained, evaluated, radius = in_one_process(kind, options)
        model, data, target = make()
        optimizer = build(model.parameters(), kind, **options)
        steps(model, optimizer, data, target)
        close(values(model), trained)
        found = getattr(optimizer, "optim", optimizer).radius
        assert abs(found / radius - 1) < 1e-12  # not of this rank's part alone
        yield model, optimizer, trained, evaluated


def check_ddp(folder):
    for model, optimizer, _, evaluated in runs(wrapped_model):
        with optimizer.evaluating():
            close(values(model), evaluated)


def check_fsdp(folder):
    plain, data, target = problem()
    for model, optimizer, trained, evaluated in runs(sharded_model):
        for param in model.parameters():
            for state in optimizer.state[param].values():
                assert isinstance(state, DTensor)
                assert state.placements == param.placements
        with optimizer.evaluating():
            close(values(model), evaluated)
            evaluated_loss = loss_of(model, data, target).item()
            model.reshard()
        close(values(model), trained)
        with torch.no_grad():
            for param, value in zip(plain.parameters(), evaluated, strict=True):
                param.copy_(value)
        assert abs(loss_of(plain, data, target).item() - evaluated_loss) < 1e-12


def check_zero(folder):
    model, _, _ = problem()
    with pytest.raises(ValueError, match="sharded=True to it"):
        ZeroRedundancyOptimizer(model.parameters(), optimizer_class=AcceleGrad)

    def build(params, kind, **options):
        return ZeroRedundancyOptimizer(params, optimizer_class=kind, sharded=True, **options)

    for model, optimizer, trained, evaluated in runs(wrapped_model, build):
        optimizer.optim.eval()
        optimizer.zero_grad()
        optimizer.step()  # without gradients it only tells all ranks the parameters of each
        close(values(model), evaluated)
        optimizer.optim.train()
        optimizer.step()
        close(values(model), trained)


def state_of(model, optimizer):
    names = ("model_state_dict", "optim_state_dict")
    return dict(zip(names, get_state_dict(model, optimizer), strict=True))


def check_interrupted(folder):
    """A run that ends abruptly after a checkpoint; check_resumed goes on with it."""
    model, data, target = sharded_model()
    optimizer = AcceleGrad(model.parameters())
    steps(model, optimizer, data, target, last=10)
    save(state_of(model, optimizer), checkpoint_id=folder / "checkpoint")
    steps(model, optimizer, data, target, first=10, last=12)
    sys.stdout.flush()
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def check_resumed(folder):
    model, data, target = sharded_model()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(1.0)  # what is loaded counts, not what a new model happens to hold
    optimizer = AcceleGrad(model.parameters())
    state = state_of(model, optimizer)
    load(state, checkpoint_id=folder / "checkpoint")
    set_state_dict(model, optimizer, **state)
    assert optimizer.iteration == 10
    steps(model, optimizer, data, target, first=10)
    trained, evaluated, _ = in_one_process(AcceleGrad, {})
    close(values(model), trained)
    optimizer.eval()
    close(values(model), evaluated)


def main():
    _, folder, rank, ranks, *checks = sys.argv
    folder, rank, ranks = Path(folder), int(rank), int(ranks)
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store-{ranks}-{checks[0]}"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    for check in checks:
        globals()[f"check_{check}"](folder)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # all is checked: gloo's threads may abort a process that ends in the usual way


if __name__ == "__main__":
    main()
