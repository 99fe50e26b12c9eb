"""Projections onto sets and proximal maps, for tensors of any kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from accelegrad.errors import nearest
from accelegrad.geometry.penalties import L1, ElasticNet
from accelegrad.geometry.sets import Box
from accelegrad.torch.tensors import Bucket, Tensors

Projection: TypeAlias = Callable[[Tensor], Tensor]
Prox: TypeAlias = Callable[[Tensor, Any], Tensor]

BALL = "ball"  # z stays in the ball of the given diameter around the start; no constraint
NONNEGATIVE, SIMPLEX = "nonnegative", "simplex"
NAMES = (BALL, NONNEGATIVE, SIMPLEX)


def onto_simplex(x: Tensor) -> Tensor:
    """Return x with each row (the last dimension) moved to the nearest probability vector."""
    ordered = x.sort(dim=-1, descending=True).values
    excess = ordered.cumsum(-1) - 1
    count = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    support = (ordered * count > excess).sum(-1, keepdim=True)
    threshold = excess.gather(-1, support - 1) / support
    return (x - threshold).clamp(min=0)


def check_projection(given: Any) -> None:
    """Refuse values that are not a projection."""
    if isinstance(given, str):
        if given not in NAMES:
            raise ValueError(f"projection is {given!r}: {nearest(given, NAMES)}")
    elif given is not None and not callable(given) and not hasattr(given, "project"):
        raise TypeError(
            "projection must be None, 'ball', 'nonnegative', 'simplex', a function of a tensor or "
            f"an object with project(x), not {given!r}."
        )


def check_penalty(given: Any) -> None:
    """Refuse values that are not a proximal map."""
    if given is not None and not callable(given) and not hasattr(given, "prox"):
        raise TypeError(
            "penalty must be None, a function prox(x, step) of a tensor, or an object with such a "
            f"method, not {given!r}."
        )


def is_ball(projection: Any) -> bool:
    """Tell whether a projection is "ball"."""
    return isinstance(projection, str) and projection == BALL


def is_constraint(projection: Any) -> bool:
    """Tell whether a projection constrains the returned point."""
    return projection is not None and projection != BALL


def projected(bucket: Bucket, tensors: Tensors) -> Tensors:
    """Return the tensors of a bucket projected onto the set of its group."""
    given = bucket.group["projection"]
    if not is_constraint(given):
        return tensors
    if given == NONNEGATIVE:
        return bucket.each.assign(tensors, [tensor.clamp(min=0) for tensor in tensors])
    function = onto_simplex if given == SIMPLEX else on_tensors(given, "project")
    return bucket.each.assign(tensors, bucket.whole(function, tensors))


def near(bucket: Bucket, tensors: Tensors, steps: Sequence[Any]) -> Tensors:
    """Return the proximal points of the group's penalty.

    `steps` has a number, or a tensor of steps per coordinate, for each tensor; they are for
    gradients divided by the bucket's unit.
    """
    given = bucket.group["penalty"]
    if given is None:
        return tensors
    prox = as_prox(given)
    steps = [step / bucket.unit for step in steps]
    return bucket.each.assign(tensors, bucket.whole(prox, tensors, steps))


def as_prox(given: Any) -> Prox:
    """Return the proximal map of a penalty on tensors."""
    if isinstance(given, L1 | ElasticNet):
        return functools.partial(_soft_threshold, given)
    return on_tensors(given, "prox")


def _soft_threshold(penalty: L1 | ElasticNet, x: Tensor, step: Any) -> Tensor:
    """Return sgn(x) max(|x| - step l1, 0) / (1 + step l2).

    For complex x sgn(x) is x / |x|: real and imaginary parts shrink together.
    """
    l1: Any = penalty.strength if isinstance(penalty, L1) else penalty.l1
    l2 = 0.0 if isinstance(penalty, L1) else penalty.l2
    if np.ndim(l1):
        l1 = torch.from_numpy(np.array(l1)).to(x).reshape(x.shape)
    shrunk: Tensor = x.sgn() * (x.abs() - step * l1).clamp(min=0) / (1 + step * l2)
    return shrunk


def is_separable(group: dict[str, Any]) -> bool:
    """Tell whether set and penalty are known to act on each coordinate separately."""
    projection, penalty = group["projection"], group["penalty"]
    set_is = (
        projection in (None, NONNEGATIVE)
        if isinstance(projection, str | None)
        else isinstance(projection, Box)
    )
    if has_joint_parts(group):
        return False
    return set_is and (penalty is None or isinstance(penalty, L1 | ElasticNet))


def has_joint_parts(group: dict[str, Any]) -> bool:
    """Tell whether a penalty couples real and imaginary parts."""
    return group["penalty"] is not None and any(param.is_complex() for param in group["params"])


def on_tensors(given: Any, method: str) -> Callable[..., Tensor]:
    """Return a function of tensors; sets and penalties of this package take NumPy vectors."""
    function = getattr(given, method, given)
    if not type(given).__module__.startswith("accelegrad."):
        return function  # type: ignore[no-any-return]

    def converted(x: Tensor, *step: Any) -> Tensor:
        vector = x.detach().to("cpu", torch.float64).numpy().ravel()
        moved = function(vector, *(float(s) for s in step))
        return torch.from_numpy(moved).to(x).reshape(x.shape)

    return converted
