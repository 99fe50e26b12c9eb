"""All task functions, known as soon as this is imported."""

from accelegrad.lab.compare import peers as compare_peers
from accelegrad.lab.compare import problem as compare_problem
from accelegrad.lab.compare import runs as compare_runs
from accelegrad.lab.engine import stored_data
from accelegrad.lab.paper import regression, text

__all__ = [
    "compare_peers",
    "compare_problem",
    "compare_runs",
    "regression",
    "stored_data",
    "text",
]
