"""What calls `train()` and `eval()` at the right moments in Lightning and in HF's Trainer.

Neither package is imported: each class is made from the base class that the caller has.
"""

from __future__ import annotations

from typing import Any

from accelegrad.torch.optimizer import AveragingOptimizer


def switch(optimizers: Any, *, training: bool) -> None:
    """Put all optimizers of this package, bare or wrapped, into one of the two modes."""
    for optimizer in optimizers if isinstance(optimizers, list | tuple) else [optimizers]:
        while optimizer is not None and not isinstance(optimizer, AveragingOptimizer):
            optimizer = getattr(optimizer, "optimizer", None)
        if optimizer is not None:
            optimizer.train() if training else optimizer.eval()
