"""Lower bounds on a minimum from evaluations; importing this gives each model its prover."""

from accelegrad.models.linear_model import LinearModel
from accelegrad.models.parted_model import PartedModel
from accelegrad.models.streamed_model import StreamedModel
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.parted_dual import PartedDual

__all__ = ["LinearModel", "StreamedModel"]

LinearModel.prover = ModelDual
PartedModel.prover = PartedDual
