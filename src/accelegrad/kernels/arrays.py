"""Arrays for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def read_only(array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return a read-only view, perhaps of another type.

    Numba has different types for writeable and read-only arrays; this avoids compiling for both.
    """
    view = np.asarray(array).view() if dtype is None else np.asarray(array).view(dtype)
    view.flags.writeable = False
    return view
