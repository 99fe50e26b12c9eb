"""AcceleGrad as a torch optimizer."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from accelegrad.errors import real_number
from accelegrad.rules.distance import check_distance
from accelegrad.rules.schedules import accelegrad_step, importance_weight
from accelegrad.torch.optimizer import (
    AVERAGE,
    FLAGS,
    AveragingOptimizer,
    Numbers,
    is_finite,
    learning_rate,
)
from accelegrad.torch.tensors import Bucket, totals

MIRROR = "mirror_point"  # z


class AcceleGrad(AveragingOptimizer):
    """AcceleGrad."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR)
    start: ClassVar[dict[str, float]] = {
        "iteration": 0.0,
        "weighted_squares": 0.0,
        "weight_sum": 0.0,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        *,
        diameter: float = 1.0,
        gradient_bound: float = 0.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        per_group: bool = False,
    ) -> None:
        options: dict[str, Any] = dict(FLAGS)
        options.update(maximize=maximize, foreach=foreach, capturable=capturable)
        options.update(differentiable=differentiable, weight_decay=weight_decay)
        options.update(diameter=diameter, gradient_bound=gradient_bound)
        super().__init__(params, lr, options, per_group=per_group)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        check_distance("diameter", group["diameter"])
        real_number("gradient_bound", group["gradient_bound"], least=0)

    def _updated(self, buckets: list[Bucket], numbers: Numbers) -> Numbers | None:
        t = numbers["iteration"]
        alpha = importance_weight(t)
        square = totals(buckets, lambda bucket: bucket.square(bucket.gradient))[0]
        if not isinstance(t, Tensor):
            square = square.item()
        if not is_finite(square, self):
            return None
        squares = numbers["weighted_squares"] + alpha * alpha * square
        weight_sum = numbers["weight_sum"] + alpha
        for bucket in buckets:
            group, each, state = bucket.group, bucket.each, bucket.state
            eta = accelegrad_step(group["diameter"], group["gradient_bound"], squares)
            eta = bucket.step_size = learning_rate(group) * eta
            state[MIRROR] = each.add(state[MIRROR], bucket.gradient, -alpha * eta)
            y = each.add(bucket.x, bucket.gradient, -eta)
            state[AVERAGE] = each.toward(state[AVERAGE], y, alpha / weight_sum)
            bucket.x = each.toward(y, state[MIRROR], 1 / importance_weight(t + 1))
        return {"iteration": t + 1, "weighted_squares": squares, "weight_sum": weight_sum}
