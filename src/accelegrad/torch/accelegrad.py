"""AcceleGrad, and AdaGrad with one step size, as torch optimizers."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from accelegrad.errors import real_number
from accelegrad.torch.coupled import Coupled, CoupledInBall, Descent, DiagonalCoupled
from accelegrad.torch.optimizer import AUTO, AveragingOptimizer, Method, given_diameter
from accelegrad.torch.sets import (
    BALL,
    SIMPLEX,
    check_penalty,
    check_projection,
    has_joint_parts,
    is_separable,
)
from accelegrad.torch.untuned import DiagonalUntuned, Untuned, UntunedDescent


class AcceleGrad(AveragingOptimizer):
    """AcceleGrad for torch: accelerated, universal, with nothing to tune.

    While training, parameters hold the point for the next gradient. Call `eval()` before the model
    is used or saved for use, which swaps in the average, and `train()` before training goes on;
    ``with optimizer.evaluating():`` does both.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters or parameter groups. A group may have its own `lr`, `diameter`,
        `gradient_bound`, `weight_decay`, `projection` and `penalty`.
    lr : float or tensor, default 1
        Multiplies the steps, for schedules. Leave it at 1: smaller values slow the search for the
        radius, with 0.01 to thousands of steps. A value below 0.1 gives a hint, once.
    diameter : float or "auto"
        The diameter D of a set that holds the start and a minimiser: the paper's method,
        `accelegrad.AcceleGrad`. "auto" needs no number: `accelegrad.rules.UntunedAcceleGrad`.
        If only some groups have a number, the others take the largest of them.
    gradient_bound : float, default 0
        The paper's G; needs a diameter.
    projection : optional
        "nonnegative"; "simplex" (entries along the last dimension are nonnegative and sum to 1);
        a function of a tensor, or an object with `project(x)`, that returns the nearest point of
        a set. All points stay in the set if the start is in it; each step ends with the projection,
        even with a zero gradient. "ball" is no constraint: one sequence of the method stays in the
        ball of the given diameter around the start.
    penalty : optional
        A term added to the loss, by its proximal map: `accelegrad.L1`, `ElasticNet`, any object
        with `prox(x, step)`, or such a function of a tensor. The l1 norm of complex parameters is
        the sum of their absolute values.
    diagonal : bool or "auto"
        One step size per coordinate. "auto": if the diameter is "auto", and projection and penalty
        are known to act on each coordinate separately.
    weight_decay : float, default 0
        The factor of half the squared norm of the parameters that is added to the loss.
    maximize : bool, default False
        Maximise instead of minimise.
    capturable : bool, default False
        Keep all numbers on the device, for graphs, or to avoid waiting for it in every step.
    differentiable : bool, default False
        Let autograd differentiate through the step.
    per_group : bool, default False
        One norm and radius per parameter group instead of one for all.
    sharded : bool, default False
        The parameters are this rank's share, as in ZeroRedundancyOptimizer: norms are summed over
        all ranks of the default process group. Leave it out with DDP and FSDP2.

    Notes
    -----
    It keeps at most three tensors per parameter (one more for half precision, whose points are kept
    in float32), and its sums in float64. Steps do not depend on the size of gradients, which are
    divided by a power of two if their squares would leave the range of float32. A step with
    non-finite gradients is skipped with a warning, except with `capturable`, `differentiable` or a
    compiled step, which read no number: check gradients before those.
    Sparse gradients are made dense, since every step moves every coordinate.
    """

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
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, lr, options, per_group=per_group, sharded=sharded)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        real_number("gradient_bound", group["gradient_bound"], least=0)
        check_projection(group["projection"])
        check_penalty(group["penalty"])
        if group["diagonal"] not in (True, False, AUTO):
            raise ValueError(f"diagonal must be True, False or 'auto', not {group['diagonal']!r}.")
        if group["diameter"] == AUTO and group["projection"] == BALL:
            raise ValueError("projection='ball' needs the ball's diameter, not 'auto'.")
        if group["diameter"] == AUTO and group["gradient_bound"]:
            raise ValueError("gradient_bound needs a diameter that is a number, not 'auto'.")

    def _check_together(self) -> None:
        diagonal = _diagonal_of(self.param_groups)
        for projection in (group["projection"] for group in self.param_groups):
            if diagonal is True and projection in (BALL, SIMPLEX):
                raise ValueError(
                    f"diagonal=True and projection={projection!r} do not go together: in the "
                    "metric of steps per coordinate the nearest point of that set is another one."
                )
        if diagonal is True and any(map(has_joint_parts, self.param_groups)):
            raise ValueError(
                "diagonal=True and a penalty on complex parameters do not go together: it is about "
                "real and imaginary parts together, which would have steps of their own."
            )
        super()._check_together()

    def _method_of(self, groups: list[dict[str, Any]]) -> Method:
        diagonal = _diagonal_of(groups)
        if given_diameter(groups[0], groups) is None:
            if diagonal == AUTO:
                diagonal = all(is_separable(group) for group in groups)
            return DiagonalUntuned() if diagonal else Untuned()
        if diagonal is True:
            return DiagonalCoupled()
        in_ball = any(group["projection"] == BALL for group in groups)
        return CoupledInBall() if in_ball else Coupled()


class AdaGradNorm(AcceleGrad):
    r"""AdaGrad with one step size for all coordinates; not accelerated, and robust under noise.

    The steps of `accelegrad.AdaGrad`; if the diameter is "auto", with a radius learnt as in
    `AcceleGrad`. In training its parameters hold the last point, in evaluation mode the average,
    once there is one.

    Parameters
    ----------
    params, lr, **options
        As in `AcceleGrad`, without `gradient_bound`, `penalty`, `diagonal` and the projection
        "ball".
    """

    def _check(self, group: dict[str, Any]) -> None:
        if group["projection"] == BALL:
            raise ValueError(
                "projection='ball' is for AcceleGrad; give a function for a constraint."
            )
        if group["penalty"] is not None or group["gradient_bound"] or group["diagonal"] is True:
            raise ValueError("penalty, gradient_bound and diagonal are for AcceleGrad.")
        super()._check(group)

    def _method_of(self, groups: list[dict[str, Any]]) -> Method:
        given = given_diameter(groups[0], groups)
        return UntunedDescent() if given is None else Descent()


def _diagonal_of(groups: list[dict[str, Any]]) -> bool | str:
    """Return the one value of `diagonal` that groups give, or "auto"."""
    said: set[bool] = {group["diagonal"] for group in groups} - {AUTO}
    if len(said) > 1:
        raise ValueError("diagonal must not be True for a parameter group and False for another.")
    return said.pop() if said else AUTO
