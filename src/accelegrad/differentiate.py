"""Values and gradients of functions written in JAX or torch (`jac="jax"`, `"torch"`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.extras import require

#: fun(x, *args) -> (value, gradient)
ValueAndGradient = Callable[..., tuple[Any, Vector]]


def with_jax(fun: Callable[..., Any]) -> ValueAndGradient:
    """Return value and gradient of a JAX function, in float64 whatever JAX's setting is."""
    require("jac='jax'", "jax", "jax")
    import jax

    both = jax.value_and_grad(fun)

    def value_and_gradient(x: Any, *args: Any) -> tuple[Any, Vector]:
        with jax.enable_x64(True):
            value, gradient = both(jax.numpy.asarray(x, dtype=np.float64), *args)
        return value, np.asarray(gradient, dtype=np.float64)

    return value_and_gradient


def with_torch(fun: Callable[..., Any]) -> ValueAndGradient:
    """Return value and gradient of a torch function of a float64 tensor."""
    require("jac='torch'", "torch", "torch")
    import torch

    def value_and_gradient(x: Any, *args: Any) -> tuple[Any, Vector]:
        tensor = torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            value = fun(tensor, *args)
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"fun must return a tensor of one number when jac='torch', not {value!r}."
                )
            if value.requires_grad:
                (gradient,) = torch.autograd.grad(value, tensor, allow_unused=True)
            else:
                gradient = None  # a constant
        if gradient is None:
            gradient = torch.zeros_like(tensor)
        return value.detach(), gradient.numpy()

    return value_and_gradient


#: The strings that `jac` accepts
LIBRARIES: dict[str, Callable[[Callable[..., Any]], ValueAndGradient]] = {
    "jax": with_jax,
    "torch": with_torch,
}
