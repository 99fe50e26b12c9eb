"""The door to torch: optimizers that are accelerated, universal and need no tuning."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "accelegrad.torch needs torch, which is not installed: pip install 'accelegrad[torch]'."
    ) from error

from accelegrad.torch.accelegrad import AcceleGrad
from accelegrad.torch.full_batch import minimize
from accelegrad.torch.optimizer import recalibrate
from accelegrad.torch.others import AdaGradNorm, UDoG, UniXGrad

__all__ = ["AcceleGrad", "AdaGradNorm", "UDoG", "UniXGrad", "minimize", "recalibrate"]
