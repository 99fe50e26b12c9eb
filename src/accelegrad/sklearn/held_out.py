"""Early stopping: rows that are held out, and scores of parameters on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from accelegrad.errors import Vector
from accelegrad.sklearn.data import Data, rows_of


def split(data: Data, fraction: float, classes: Any, seed: int) -> tuple[Data, Data]:
    """Return the rows to learn from and the held-out ones, with the classes in proportion.

    Parameters
    ----------
    data : Data
        The rows.
    fraction : float
        The share to hold out.
    classes : array of int or None
        The class of each row; None for regression.
    seed : int
        For the choice.
    """
    count = int(np.ceil(fraction * data.y.size))
    sizes = [data.y.size] if classes is None else np.unique(classes, return_counts=True)[1]
    reason = ""
    if classes is not None and min(sizes) < 2:
        reason = "a class with a single row cannot be in both parts"
    elif min(count, data.y.size - count) < len(sizes):
        reason = f"both parts need at least {len(sizes)} rows"
    if not reason:
        learnt, held = train_test_split(
            np.arange(data.y.size), test_size=count, stratify=classes, random_state=seed
        )
        if classes is not None or np.ptp(data.y[held]) > 0.0:
            return rows_of(data, learnt), rows_of(data, held)
        reason = "R^2 is not defined for targets that are all the same"
    raise ValueError(
        f"early_stopping=True holds back {count} of {data.y.size} rows "
        f"(validation_fraction={fraction!r}), but {reason}. Increase validation_fraction, give "
        "more rows, or set early_stopping=False."
    )


def determination(held: Data, x: Vector) -> float:
    """Return R^2, weighted, of the parameters of a regression."""
    return share_explained(held, _scores(held, x, 1).ravel())


def share_explained(held: Data, predicted: Vector) -> float:
    """Return R^2, weighted, as scikit-learn's `r2_score` does for two rows or more."""
    weights = np.ones(held.y.size) if held.weights is None else held.weights
    mean = np.average(held.y, weights=weights)
    missed, all_in_all = (float(weights @ (held.y - near) ** 2) for near in (predicted, mean))
    if all_in_all == 0.0:
        return float(missed == 0.0)
    return 1.0 - missed / all_in_all


def accuracy_of_one(held: Data, positive: int, x: Vector) -> float:
    """Return the share of rows, weighted, with a right decision between a class and the rest."""
    right = (_scores(held, x, 1).ravel() > 0.0) == (held.y == positive)
    return float(np.average(right, weights=held.weights))


def accuracy(held: Data, n_classes: int, x: Vector) -> float:
    """Return the share of rows, weighted, whose class is predicted by multinomial parameters."""
    right = _scores(held, x, n_classes).argmax(axis=1) == held.y
    return float(np.average(right, weights=held.weights))


def _scores(held: Data, x: Vector, n_rows: int) -> Any:
    """Return the linear predictions by parameters: rows of coefficients, perhaps intercepts."""
    size = n_rows * held.X.shape[1]
    products = held.X @ x[:size].reshape(n_rows, -1).T
    return products + x[size:] if x.size > size else products
