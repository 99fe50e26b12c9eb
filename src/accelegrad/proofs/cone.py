"""How large the weights of least squares can be where each has a sign, and nothing else holds it.

With w >= 0 any slopes eta with sum_i p_i eta_i x_ij = v_j > 0 for each column j bound all weights:
sum_j v_j w_j is sum_i p_i eta_i m_i, at most ||eta|| ||m||, and at a minimiser the margins m are
near their targets. So the cone is as good as a box, over which there is a Fenchel bound.

A column of zeros adds nothing, nor does a constant one beside an intercept: with its weight at 0
the minimum is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.geometry.sets import Box
from accelegrad.models.linear_model import LinearModel
from accelegrad.norms import norm
from accelegrad.proofs.fenchel import SlopeSums, Terms
from accelegrad.proofs.null_space import solver
from accelegrad.rounding import ROUNDED_UP

#: Of the size of columns, for slopes with a mean of 1: how far beyond 0 their combination is to be.
TILT = 1e-6


def _is_zero(X: Any) -> npt.NDArray[np.bool_]:
    """Return which columns of a dense or CSR matrix have nothing but zeros."""
    if isinstance(X, np.ndarray):
        return np.asarray(~X.any(axis=0))
    return np.asarray(np.bincount(X.indices[X.data != 0.0], minlength=X.shape[1]) == 0)


def _is_constant(X: Any) -> npt.NDArray[np.bool_]:
    """Return which columns of a dense or CSR matrix have one number in all rows."""
    if isinstance(X, np.ndarray):
        return np.asarray((X[0] == X).all(axis=0))
    found: npt.NDArray[np.bool_] = np.bincount(X.indices, minlength=X.shape[1]) == X.shape[0]
    for column in np.flatnonzero(found):
        entries = X[:, [column]].toarray()
        found[column] = (entries == entries[0]).all()
    return found | _is_zero(X)


def terms_with_ends(model: LinearModel, terms: Terms, value: float) -> Terms:
    """Return the terms with a proven end in place of each open one, or themselves if none is found.

    There is none where columns cancel each other, so that weights can grow for ever.

    Parameters
    ----------
    model : LinearModel
        Least squares, with more rows than parameters.
    terms : Terms
        With a sign for each weight and nothing else: `Terms.has_only_signs`.
    value : float
        The objective at some feasible point.
    """
    d, signs = model.n_features, np.where(terms.lower == 0.0, 1.0, -1.0)
    adds_nothing = _is_constant(model.X) if model.fit_intercept else _is_zero(model.X)
    kept = np.append(~adds_nothing, [True] * model.fit_intercept)
    solve = solver(model.gram_of_columns() * np.outer(kept, kept))
    if solve is None:
        return terms
    sizes = np.where(adds_nothing, 0.0, np.sqrt(model.column_squares()))
    most = norm(np.sqrt(model.shares) * model.y) + model.loss.reach(value)  # of the margins' norm
    beside, intercept = 0.0, 0.0
    if model.fit_intercept:
        for side in (1.0, -1.0):
            eta, sums = _slopes(model, solve, np.append(TILT * signs * sizes, side))
            beyond = signs * sums.combination - sums.combination_error
            mean = side * sums.mean - sums.mean_error
            if (beyond < 0.0)[~adds_nothing].any() or not mean > 0.0:
                return terms
            intercept = max(intercept, norm(np.sqrt(model.shares) * eta) * most / mean)
    eta, sums = _slopes(model, solve, np.append(signs * sizes, [0.0] * model.fit_intercept))
    beyond = signs * sums.combination - sums.combination_error
    if (beyond <= 0.0)[~adds_nothing].any():
        return terms
    if model.fit_intercept:
        beside = (abs(sums.mean) + sums.mean_error) * intercept
    reach = ROUNDED_UP * (norm(np.sqrt(model.shares) * eta) * most + beside)
    ends = np.divide(reach, beyond, out=np.zeros(d), where=~adds_nothing)
    free = [math.inf] * model.fit_intercept
    box = Box(
        np.append(np.minimum(signs * ends, 0.0), np.negative(free)),
        np.append(np.maximum(signs * ends, 0.0), free),
    )
    return Terms(d, 0.0, 0.0, box, fit_intercept=model.fit_intercept)


def _slopes(
    model: LinearModel, solve: Callable[[Vector], Vector], combination: Vector
) -> tuple[Vector, SlopeSums]:
    """Return the smallest slopes with nearly this combination of rows, and their sums."""
    w, d = solve(combination), model.n_features
    slopes = model.products.forward(w[:d])
    if model.fit_intercept:
        slopes = slopes + w[d]
    return slopes, SlopeSums.of(model, slopes)
