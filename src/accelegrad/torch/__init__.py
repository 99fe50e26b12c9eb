"""Torch optimizers that are accelerated, universal and need no tuning."""

from accelegrad.extras import require

try:
    import torch as _torch  # noqa: F401
except ImportError:
    require("accelegrad.torch", "torch")
    raise

from accelegrad.torch.accelegrad import AcceleGrad, AdaGradNorm
from accelegrad.torch.full_batch import minimize
from accelegrad.torch.optimizer import recalibrate

__all__ = ["AcceleGrad", "AdaGradNorm", "minimize", "recalibrate"]
