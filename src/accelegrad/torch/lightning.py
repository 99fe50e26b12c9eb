"""A Lightning callback that swaps the two points of this package's optimizers."""

from __future__ import annotations

from typing import Any

from accelegrad.torch.optimizer import AveragingOptimizer

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise ImportError(
        "accelegrad.torch.lightning needs Lightning, which is not installed: pip install lightning."
    ) from error


class Averaging(Callback):  # type: ignore[misc]
    """Validate with the average, train with the point for gradients, and end with the average.

    Checkpoints contain the optimizer's state and which point the weights are.
    """

    def _switch(self, trainer: Any, *, training: bool) -> None:
        for optimizer in trainer.optimizers:
            if isinstance(optimizer, AveragingOptimizer):
                optimizer.train() if training else optimizer.eval()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Train, also after a checkpoint with the average was loaded."""
        self._switch(trainer, training=True)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Validate with the average."""
        self._switch(trainer, training=False)

    on_validation_end = on_train_start
    on_train_end = on_validation_start
