"""The cost of a compiled step of `accelegrad.optax`, against optax's own optimizers.

    python benchmarks/optax_step.py

A step is `update` and `apply_updates` under `jit`, with parameters and state donated; the gradient
is given. All optimizers take turns, and the ratios are those of processor time in the same turn,
the median of all turns: a busy machine disturbs them little. The automatic form is measured after
its search for the radius (about the first hundred steps), and while it searches.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from accelegrad.optax import accelegrad

SIZES = {
    "100 small": [(32,)] * 50 + [(16, 16)] * 50,
    "10 large": [(512, 512)] * 10,
}
PEERS = {
    "optax.adagrad": optax.adagrad(0.1),
    "schedule_free_sgd": optax.contrib.schedule_free_sgd(0.1),
    "schedule_free_adamw": optax.contrib.schedule_free_adamw(0.01),
}
OURS = {
    "accelegrad()": accelegrad(),
    "accelegrad(), searching": accelegrad(),
    "accelegrad(diagonal=False)": accelegrad(diagonal=False),
    "accelegrad(diameter=8)": accelegrad(diameter=8.0),
}
WARM_UP = 120  # steps, enough for the radius to settle on the function below


class Timed:
    """An optimizer on its way, and what its steps took."""

    def __init__(self, name: str, optimizer: Any, shapes: list[tuple[int, ...]]) -> None:
        self.gradient = arrays(shapes, seed=1)
        self.params = arrays(shapes, seed=0)
        self.state = jax.jit(optimizer.init)(self.params)
        self.seconds: list[float] = []

        def step(gradient: Any, params: Any, state: Any) -> Any:
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        self.step = jax.jit(step, donate_argnums=(1, 2))
        begin = time.perf_counter()
        self.step = self.step.lower(self.gradient, self.params, self.state).compile()
        self.compilation = time.perf_counter() - begin
        if "searching" not in name:
            self._warm_up()

    def _warm_up(self) -> None:
        """Go down a parabola whose minimum is at the arrays that are gradients later."""
        slope = jax.jit(lambda params: jax.tree.map(jnp.subtract, params, self.gradient))
        for _ in range(WARM_UP):
            self.params, self.state = self.step(slope(self.params), self.params, self.state)

    def turn(self, steps: int) -> None:
        """Do some steps, and note the processor time of one."""
        jax.block_until_ready(self.params)
        begin = time.process_time()
        for _ in range(steps):
            self.params, self.state = self.step(self.gradient, self.params, self.state)
        jax.block_until_ready(self.params)
        self.seconds.append((time.process_time() - begin) / steps)


def arrays(shapes: list[tuple[int, ...]], seed: int) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]


def ratio(one: Timed, other: Timed) -> float:
    return statistics.median(a / b for a, b in zip(one.seconds, other.seconds, strict=True))


def measure(label: str, shapes: list[tuple[int, ...]], turns: int, steps: int) -> None:
    timed = {name: Timed(name, optimizer, shapes) for name, optimizer in (PEERS | OURS).items()}
    for _ in range(turns):
        for one in timed.values():
            one.turn(steps)
    heads = " | ".join(f"/ {peer}" for peer in PEERS)
    print(f"\n| {label} | us | {heads} | compilation, s |")
    print("|---" * (len(PEERS) + 3) + "|")
    for name, one in timed.items():
        ratios = " | ".join(f"{ratio(one, timed[peer]):.2f}" for peer in PEERS)
        print(f"| {name} | {min(one.seconds) * 1e6:.0f} | {ratios} | {one.compilation:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    measure("100 small", SIZES["100 small"], arguments.turns, 100)
    measure("10 large", SIZES["10 large"], arguments.turns, 10)


if __name__ == "__main__":
    main()
