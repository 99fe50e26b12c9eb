"""Large minibatches on several processes: the benefit of parallel gradients.

The paper's appendix asks how many gradients a run needs to reach an accuracy as its batches
grow. While this number stays the same, twice the processes need half the steps. Here torch's
DistributedDataParallel splits each batch over 1, 2 and 4 processes of this machine. Each process
takes the same steps, up to rounding. Run `python examples/large_minibatch.py [processes]`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import accelegrad as ag
from accelegrad.torch import AcceleGrad

ROWS, FEATURES, L2 = 4096, 20, 1e-4
BATCHES, ACCURACY, MOST_EPOCHS = (16, 64, 256, 1024), 1e-2, 60


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, FEATURES))
    margins = X @ rng.standard_normal(FEATURES)
    return X, np.where(margins + rng.logistic(size=ROWS) > 0, 1.0, -1.0)


class LogisticRegression(torch.nn.Module):
    """The mean logistic loss plus the l2 term."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(FEATURES, dtype=torch.float64))

    def forward(self, X, y):
        """Return the objective of a batch."""
        losses = torch.nn.functional.softplus(-y * (X @ self.w))
        return losses.mean() + L2 / 2 * self.w.square().sum()


def steps_to_accuracy(size, group, good_enough):
    """Return the steps until the average is good enough, and the final average."""
    rank, count = dist.get_rank(group), dist.get_world_size(group)
    X, y = map(torch.from_numpy, data())
    module = LogisticRegression()
    parallel = DistributedDataParallel(module, process_group=group)
    optimizer = AcceleGrad(parallel.parameters())
    rng, steps = np.random.default_rng(1), 0
    for _ in range(MOST_EPOCHS):
        order = torch.from_numpy(rng.permutation(ROWS))
        for batch in order.split(size):
            mine = batch[rank::count]
            optimizer.zero_grad()
            parallel(X[mine], y[mine]).backward()  # DDP averages the gradients
            optimizer.step()
            steps += 1
            with optimizer.evaluating():
                w = module.w.detach().numpy().copy()
            if good_enough(w):
                return steps, w
    return steps, w


def worker(processes, meeting):
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=max(processes))
    model = ag.LinearModel(*data(), "logistic", l2=L2)
    least = ag.minimize(model, np.zeros(FEATURES), tol=1e-10).fun
    limit = least + ACCURACY * (model.value(np.zeros(FEATURES)) - least)
    groups = {count: dist.new_group(list(range(count))) for count in processes}
    if rank == 0:
        print(f"gradients of rows until {ACCURACY:g} of the initial gap is left; steps")
    for size in BATCHES:
        ends = {}
        for count, group in groups.items():
            if rank < count:
                ends[count] = steps_to_accuracy(size, group, lambda w: model.value(w) <= limit)
        if rank == 0:
            steps, first = ends[min(ends)]
            apart = max(float(np.abs(w - first).max()) for _, w in ends.values())
            same = all(other == steps for other, _ in ends.values())
            print(
                f"batch {size:5}: {steps * size:7} gradients, {steps:5} steps; "
                f"with {', '.join(map(str, ends))} processes the same steps: "
                f"{same and apart < 1e-9}"
            )
        dist.barrier()
    dist.destroy_process_group()


def main(processes=(1, 2, 4)):
    """Start the processes and wait for them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "worker", str(Path(folder) / "meeting")]
        command += [str(count) for count in processes]
        runs = [
            subprocess.Popen(
                command,
                env={**os.environ, "RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(max(processes))
        ]
        print(runs[0].communicate()[0], end="")
        if any(run.wait() for run in runs):
            raise SystemExit("a process failed")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(tuple(map(int, sys.argv[3:])), sys.argv[2])
    else:
        main(tuple(map(int, sys.argv[1:])) or (1, 2, 4))
