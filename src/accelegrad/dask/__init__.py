"""The door to Dask: models and estimators of rows that are on the workers of a cluster."""

from accelegrad.extras import require

try:
    import distributed as _distributed  # noqa: F401
except ImportError:
    require("accelegrad.dask", "dask")
    raise

from accelegrad.dask.cluster import BlockError, WorkerTimeoutError
from accelegrad.dask.estimators import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.dask.row_model import RowModel

__all__ = [
    "AcceleGradClassifier",
    "AcceleGradRegressor",
    "BlockError",
    "RowModel",
    "WorkerTimeoutError",
]
