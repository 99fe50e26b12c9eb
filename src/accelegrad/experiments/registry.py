"""All task functions, known as soon as this is imported."""

from accelegrad.experiments import (
    compare_peers,
    compare_problem,
    compare_runs,
    regression,
    stored_data,
    text,
)

__all__ = [
    "compare_peers",
    "compare_problem",
    "compare_runs",
    "regression",
    "stored_data",
    "text",
]
