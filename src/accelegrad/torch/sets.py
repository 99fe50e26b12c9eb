"""Projections onto sets and proximal maps, for tensors of any kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accelegrad.errors import nearest
from accelegrad.geometry.penalties import L1, ElasticNet
from accelegrad.geometry.sets import Box
from accelegrad.torch.tensors import Bucket, Tensors

MIRROR = "mirror_point"  # z
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


def projected(bucket: Bucket, tensors: Tensors) -> Tensors:
    """Return the tensors of a bucket projected onto the set of its group."""
    given = bucket.group["projection"]
    if given is None or given == BALL:
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
    penalty = bucket.group["penalty"]
    if isinstance(penalty, L1 | ElasticNet):
        prox: Callable[..., Tensor] = functools.partial(_soft_threshold, penalty)
    else:
        prox = on_tensors(penalty, "prox")
    steps = [step / bucket.unit for step in steps]
    return bucket.each.assign(tensors, bucket.whole(prox, tensors, steps))


def move(bucket: Bucket, alpha: Any) -> None:
    """Move z and x, which becomes y, by alpha and 1 times `reach` along `direction`."""
    each, state, reach = bucket.each, bucket.state, bucket.reach
    z = each.add(state[MIRROR], bucket.direction, -alpha * reach)
    y = each.add(bucket.x, bucket.direction, -reach)
    if bucket.group["penalty"] is not None:
        z = near(bucket, z, [alpha * reach * inverse for inverse in bucket.inverse])
        y = near(bucket, y, [reach * inverse for inverse in bucket.inverse])
    state[MIRROR], bucket.x = projected(bucket, z), projected(bucket, y)


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
    set_is = isinstance(projection, Box) or projection in (None, NONNEGATIVE)
    penalty_is = penalty is None or isinstance(penalty, L1 | ElasticNet)
    return set_is and penalty_is and not has_joint_parts(group)


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
