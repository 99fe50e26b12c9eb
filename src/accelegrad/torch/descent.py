"""AdaGrad's steps with a given diameter, on many tensors: the twin of `rules.AdaGrad`."""

from __future__ import annotations

from typing import ClassVar

from accelegrad.rules.schedules import adagrad_step
from accelegrad.torch.optimizer import (
    AVERAGE,
    Family,
    Method,
    Numbers,
    is_usable,
    learning_rate,
)
from accelegrad.torch.sets import projected
from accelegrad.torch.tensors import gradient_square


class Descent(Method):
    """One step size for all coordinates."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE,)
    start: ClassVar[Numbers] = {"iteration": 0.0, "squares": 0.0}
    squares: ClassVar[tuple[str, ...]] = ("squares",)

    def update(self, family: Family) -> Numbers | None:
        """Return the numbers after a step."""
        (square,) = family.sums(gradient_square)
        if not is_usable(square):
            return None
        following = family.numbers["iteration"] + 1
        squares = family.numbers["squares"] + square
        for bucket in family.buckets:
            each, state = bucket.each, bucket.state
            eta = learning_rate(bucket.group) * adagrad_step(bucket.diameter, squares)
            bucket.step_size = eta
            state[AVERAGE] = each.toward(state[AVERAGE], bucket.x, 1 / following)
            bucket.x = projected(bucket, each.add(bucket.x, bucket.gradient, -eta))
        return {"iteration": following, "squares": squares}
