"""AdaGrad with one step size as a torch optimizer."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from accelegrad.torch.descent import Descent
from accelegrad.torch.optimizer import AUTO, AveragingOptimizer, Method, given_diameter
from accelegrad.torch.sets import check_projection, is_ball
from accelegrad.torch.untuned import UntunedDescent


class AdaGradNorm(AveragingOptimizer):
    r"""AdaGrad with one step size for all coordinates; not accelerated, and robust under noise.

    The steps of `accelegrad.AdaGrad`; where the diameter is "auto", with a radius that is learnt as
    that of `AcceleGrad` is. Its parameters hold the last point while training, and in evaluation
    mode the average, once there is one.

    Parameters
    ----------
    params, lr, weight_decay, maximize, capturable, differentiable, per_group, sharded
        As in `AcceleGrad`.
    diameter : float or "auto"
        The diameter of a set that holds the start and a minimiser; "auto" needs to know nothing.
    projection
        As in `AcceleGrad`, but for "ball".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        *,
        diameter: float | str = AUTO,
        projection: Any = None,
        weight_decay: float = 0.0,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        per_group: bool = False,
        sharded: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "diameter": diameter,
            "projection": projection,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, lr, options, per_group=per_group, sharded=sharded)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        check_projection(group["projection"])
        if is_ball(group["projection"]):
            raise ValueError(
                "projection='ball' is for AcceleGrad; give a function for a constraint."
            )

    def _method_of(self, groups: list[dict[str, Any]]) -> Method:
        given = given_diameter(groups[0], groups)
        return UntunedDescent() if given is None else Descent()
