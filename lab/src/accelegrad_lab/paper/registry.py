"""All task functions, known as soon as this is imported."""

from accelegrad_lab.compare import peers, runs
from accelegrad_lab.engine import model_tasks, stored_data
from accelegrad_lab.paper import regression, text

__all__ = ["model_tasks", "peers", "regression", "runs", "stored_data", "text"]
