"""Labels of a file among the classes of a model, whatever types the two are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

UNKNOWN = -1


def class_places(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the place of each label among the classes, UNKNOWN for one that is not there.

    A label is a class that is written the same way. Else it is the class that is the same number:
    1, 1.0, "1" and "1.0" are one class, unless the model has several of these.
    """
    by_text: dict[str, int] = {}
    by_number: dict[int | float, int] = {}
    for place, known in enumerate(classes.tolist()):
        by_text[str(known)] = place
        number = _number(known)
        if number is not None:
            by_number[number] = UNKNOWN if number in by_number else place
    values, inverse = np.unique(labels, return_inverse=True)
    places = [
        by_text.get(str(label), by_number.get(_number(label), UNKNOWN))  # type: ignore[arg-type]
        for label in values.tolist()
    ]
    found: npt.NDArray[np.int64] = np.array(places, dtype=np.int64)[inverse]
    return found


def _number(label: Any) -> int | float | None:
    """Return a label as a number, whole numbers of any size exactly."""
    if not isinstance(label, str):
        return label if isinstance(label, (bool, int, float)) else None
    digits = label.strip().removeprefix("+")
    if digits.removeprefix("-").isdigit() and digits.isascii():
        return int(digits) if len(digits) < 100 else None
    try:
        # float() takes 1_000 and digits of other scripts, which no data format knows.
        return float(label) if label.isascii() and "_" not in label else None
    except ValueError:
        return None
