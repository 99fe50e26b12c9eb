"""Rows that are held out, and their score: minus the mean of the loss that is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.model_selection import train_test_split

from accelegrad.errors import Vector
from accelegrad.models.losses import Loss
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
        return rows_of(data, learnt), rows_of(data, held)
    raise ValueError(
        f"early_stopping=True holds back {count} of {data.y.size} rows "
        f"(validation_fraction={fraction!r}), but {reason}. Increase validation_fraction, give "
        "more rows, or set early_stopping=False."
    )


def of_targets(loss: Loss, y: Vector, weights: Vector | None, predicted: Vector) -> float:
    """Return minus the mean loss of predictions, or of scores of the labels -1 and +1."""
    return -float(np.average(loss.value(predicted, y), weights=weights))


def of_classes(places: Any, weights: Vector | None, scores: Any) -> float:
    """Return minus the mean multinomial loss of scores, a column for each class."""
    right = np.take_along_axis(scores, places[:, None], axis=1).ravel()
    return -float(np.average(logsumexp(scores, axis=1) - right, weights=weights))


def linear(X: Any, x: Vector, n_rows: int) -> Any:
    """Return the linear predictions by parameters: rows of coefficients, perhaps intercepts."""
    size = n_rows * X.shape[1]
    products = X @ x[:size].reshape(n_rows, -1).T
    return products + x[size:] if x.size > size else products
