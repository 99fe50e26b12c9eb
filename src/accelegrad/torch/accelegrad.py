"""AcceleGrad as a torch optimizer."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from accelegrad.errors import real_number
from accelegrad.torch.coupled import Coupled
from accelegrad.torch.optimizer import AUTO, AveragingOptimizer, Method
from accelegrad.torch.sets import check_penalty, check_projection, is_separable
from accelegrad.torch.untuned import DiagonalUntuned, Untuned


class AcceleGrad(AveragingOptimizer):
    """AcceleGrad."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        *,
        diameter: float | str = AUTO,
        gradient_bound: float = 0.0,
        projection: Any = None,
        penalty: Any = None,
        diagonal: bool | str = AUTO,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        per_group: bool = False,
        sharded: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "diameter": diameter,
            "gradient_bound": gradient_bound,
            "projection": projection,
            "penalty": penalty,
            "diagonal": diagonal,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, lr, options, per_group=per_group, sharded=sharded)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        real_number("gradient_bound", group["gradient_bound"], least=0)
        check_projection(group["projection"])
        check_penalty(group["penalty"])
        if group["diagonal"] != self.param_groups[0]["diagonal"]:
            raise ValueError("diagonal must be the same for all parameter groups.")

    def _method_of(self, group: dict[str, Any]) -> Method:
        if group["diameter"] != AUTO:
            return Coupled()
        diagonal = group["diagonal"]
        if diagonal == AUTO:
            diagonal = all(is_separable(each) for each in self.param_groups)
        return DiagonalUntuned() if diagonal else Untuned()
