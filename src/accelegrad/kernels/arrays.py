"""How arrays are handed to kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def read_only(array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return a view that cannot be written to, perhaps of another type.

    To Numba arrays that can be written to are of another type: without this a kernel would be
    compiled for both, as users give both.
    """
    view = np.asarray(array).view() if dtype is None else np.asarray(array).view(dtype)
    view.flags.writeable = False
    return view
