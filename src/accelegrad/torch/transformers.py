"""A callback for Hugging Face's Trainer that swaps the two points of this package's optimizers."""

from __future__ import annotations

from typing import Any

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "accelegrad.torch.transformers needs transformers, which is not installed: "
        "pip install transformers."
    ) from error


class Averaging(TrainerCallback):  # type: ignore[misc]
    """Evaluate, save and end with the average; train with the point for gradients."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Train, also after a checkpoint was loaded."""
        given["optimizer"].train()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Evaluate and save with the average, where that comes next."""
        if control.should_evaluate or control.should_save:
            given["optimizer"].eval()

    on_epoch_end = on_step_end

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Leave the average in the model."""
        given["optimizer"].eval()
