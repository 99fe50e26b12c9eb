"""Step times of the torch optimizers, as ratios to torch's Adam and to AdamWScheduleFree.

`python benchmarks/torch_step.py [--rounds 9]` times steps of 100 tensors of 100 numbers and of 10
tensors of a million, in processor time on one thread, in interleaved rounds of which the median
counts. The limits: at most twice Adam (foreach), and not slower than AdamWScheduleFree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from schedulefree import AdamWScheduleFree

from accelegrad.torch import AcceleGrad, AdaGradNorm

SHAPES = {"100 small": [(10, 10)] * 100, "10 large": [(1000, 1000)] * 10}
STEPS = {"100 small": 30, "10 large": 2}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam, foreach": lambda params: torch.optim.Adam(params, foreach=True),
    "AdamWScheduleFree": lambda params: AdamWScheduleFree(params, foreach=True),
    "AcceleGrad": AcceleGrad,
    "AcceleGrad, searching": AcceleGrad,
    "AcceleGrad, D = 1": lambda params: AcceleGrad(params, diameter=1.0),
    "AdaGradNorm, D = 1": lambda params: AdaGradNorm(params, diameter=1.0),
}


class Timed:
    """An optimizer at work on sum (x - a)^2 / 2 with noise."""

    def __init__(self, name: str, shapes: list[tuple[int, ...]]) -> None:
        torch.manual_seed(0)
        self.params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        self.target = [torch.randn(shape) for shape in shapes]
        self.optimizer = OPTIMIZERS[name](self.params)
        getattr(self.optimizer, "train", lambda: None)()
        self._gradients()
        self.optimizer.step()
        if name != "AcceleGrad, searching":
            self._settle()

    def _gradients(self) -> None:
        for param, target in zip(self.params, self.target, strict=True):
            param.grad = param.detach() - target + 0.3 * torch.randn(param.shape)

    def _settle(self) -> None:
        """Go on until AcceleGrad has found its radius."""
        for _ in range(400):
            if self.optimizer.param_groups[0].get("averaged", 1.0) > 0:
                return
            self._gradients()
            self.optimizer.step()

    def seconds(self, steps: int) -> float:
        begun = time.process_time()
        for _ in range(steps):
            self.optimizer.step()
        return (time.process_time() - begun) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("| tensors | optimizer | ms a step | Adam | AdamWScheduleFree |")
    print("|---|---|---|---|---|")
    for kind, shapes in SHAPES.items():
        timed = {name: Timed(name, shapes) for name in OPTIMIZERS}
        found: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(rounds):
            for name, optimizer in timed.items():
                found[name].append(optimizer.seconds(STEPS[kind]))
        median = {name: statistics.median(times) for name, times in found.items()}
        adam, free = median["Adam, foreach"], median["AdamWScheduleFree"]
        for name, own in median.items():
            print(f"| {kind} | {name} | {1e3 * own:.2f} | {own / adam:.2f} | {own / free:.2f} |")


if __name__ == "__main__":
    main()
