"""What turns evaluations into lower bounds of a minimum. Models find their prover here."""

from accelegrad.models.linear_model import LinearModel
from accelegrad.models.streamed_model import StreamedModel
from accelegrad.proofs.model_dual import ModelDual

__all__ = ["LinearModel", "StreamedModel"]

LinearModel.prover = ModelDual
