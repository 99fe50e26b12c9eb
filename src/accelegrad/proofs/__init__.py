"""What turns evaluations into lower bounds of a minimum. Models find their prover here."""

from accelegrad.models.linear_model import LinearModel
from accelegrad.models.parted_model import PartedModel
from accelegrad.models.streamed_model import StreamedModel
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.parted_dual import PartedDual

__all__ = ["LinearModel", "StreamedModel"]

LinearModel.prover = ModelDual
PartedModel.prover = PartedDual
