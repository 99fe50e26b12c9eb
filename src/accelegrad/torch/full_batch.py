"""Minimisation of a convex torch function over all data at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from scipy.optimize import OptimizeResult
from torch import Tensor

from accelegrad import front_door
from accelegrad.errors import Vector


def minimize(
    function: Callable[..., Any], params: Iterable[Tensor] | Tensor, **options: Any
) -> OptimizeResult:
    """Minimise a convex function of torch parameters, with a certified gap.

    Parameters
    ----------
    function : callable
        Returns the value, a tensor of one number: a closure without arguments that uses the
        parameters (it may call `backward` itself), or a function of the parameters.
    params : tensor, or iterable of tensors
        The start. They must be float64, the precision of the certificate, and hold the minimiser
        at the end.
    **options
        Those of `accelegrad.minimize` except `fun`, `x0` and `jac`: `tol`, `method`, `callback`,
        `progress`, `checkpoint`, ... Sets and penalties apply to all entries as one vector.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As from `accelegrad.minimize`; `x` is the vector of all entries.
    """
    oracle = _Oracle(function, [params] if isinstance(params, Tensor) else list(params))
    start = oracle.vector()
    try:
        result = front_door.minimize(oracle, start, jac=True, **options)
    except BaseException:
        oracle.write(start)
        raise
    oracle.write(result.x)
    return result


class _Oracle:
    """Value and gradient as functions of one vector of all entries."""

    def __init__(self, function: Callable[..., Any], params: list[Tensor]) -> None:
        if not params:
            raise ValueError("params must have at least one tensor, but it is empty.")
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"params must be tensors, not {type(param).__name__}.")
            if param.dtype != torch.float64:
                raise TypeError(
                    f"params must be float64 for a certified gap, but one is {param.dtype}; "
                    "model.double() makes them so."
                )
            if not (param.requires_grad and param.is_leaf):
                raise ValueError("params must be leaves that require gradients.")
        self.function, self.params = function, params
        self.arguments = params if _takes_arguments(function) else []

    def vector(self) -> Vector:
        """Return all entries."""
        return np.concatenate([param.detach().cpu().numpy().ravel() for param in self.params])

    @torch.no_grad()
    def write(self, x: Vector) -> None:
        """Put a vector into the parameters."""
        ends = np.cumsum([param.numel() for param in self.params])
        for param, part in zip(self.params, np.split(np.array(x), ends[:-1]), strict=True):
            param.copy_(torch.from_numpy(part).reshape(param.shape))

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return the value and the gradient."""
        self.write(x)
        for param in self.params:
            param.grad = None
        with torch.enable_grad():
            value = self.function(*self.arguments)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise TypeError(f"the function must return a tensor of one number, not {value!r}.")
            if value.requires_grad and all(param.grad is None for param in self.params):
                value.backward()  # type: ignore[no-untyped-call]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        parts = [g.detach().to_dense().flatten() for g in gradients]
        return float(value.detach()), torch.cat(parts).cpu().numpy()


def _takes_arguments(function: Callable[..., Any]) -> bool:
    """Distinguish a function of the parameters from a closure."""
    wanted = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in wanted if p.kind in kinds and p.default is inspect.Parameter.empty]
    return bool(needed) or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in wanted)
