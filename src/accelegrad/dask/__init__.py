"""Models and estimators of rows on the workers of a Dask cluster."""

from typing import TYPE_CHECKING, Any

from accelegrad.extras import require

try:
    import distributed as _distributed  # noqa: F401
except ImportError:
    require("accelegrad.dask", "dask")
    raise

from accelegrad.dask.cluster import BlockError, WorkerTimeoutError
from accelegrad.dask.files import read_files
from accelegrad.dask.row_model import RowModel

if TYPE_CHECKING:
    from accelegrad.dask.estimators import (
        AcceleGradClassifier,
        AcceleGradClassifierCV,
        AcceleGradRegressor,
        AcceleGradRegressorCV,
    )

__all__ = [
    "AcceleGradClassifier",
    "AcceleGradClassifierCV",
    "AcceleGradRegressor",
    "AcceleGradRegressorCV",
    "BlockError",
    "RowModel",
    "WorkerTimeoutError",
    "read_files",
]


def __getattr__(name: str) -> Any:
    """Return an estimator, imported lazily: workers do without scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from accelegrad.dask import estimators

    return getattr(estimators, name)
