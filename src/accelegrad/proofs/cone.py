"""Which slopes to take for the Fenchel bound where weights have a sign each, and nothing else.

With w >= 0 the dual asks for slopes theta with sum_i p_i theta_i x_ij >= 0 for each column j. Those
at a solution meet that with equality where w_j > 0, up to rounding; here they are moved until they
meet it beyond all rounding. That costs the bound about what rounding costs.

A column of zeros adds nothing, nor does a constant one beside an intercept: with its weight at 0
the minimum is the same. Such columns, whose sums may not be on the right side, are left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel
from accelegrad.norms import norm
from accelegrad.proofs.fenchel import SlopeSums, Terms
from accelegrad.proofs.null_space import solver
from accelegrad.rounding import ROUNDED_UP

#: A combination counts as on the right side if it is this many times its rounding beyond 0, and is
#: moved to this many times.
LEAST_BEYOND, AIMED_BEYOND = 2.0, 4.0
#: The most moves; one or two are usual.
MOST_MOVES = 5
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


class ConeBounds:
    """Bounds of least squares where no weight may be negative, or positive, and n > d.

    Parameters
    ----------
    model : LinearModel
        Least squares, without an l2 term.
    terms : Terms
        With a sign for each weight and nothing else: `Terms.has_only_signs`.
    value : float
        The objective at some feasible point.
    """

    def __init__(self, model: LinearModel, terms: Terms, value: float) -> None:
        self.model, self.terms, self.value = model, terms, value
        self.weights = math.inf  # a bound on a minimiser's weights, which nothing asks for
        self._signs = np.where(terms.lower == 0.0, 1.0, -1.0)
        adds_nothing = _is_constant(model.X) if model.fit_intercept else _is_zero(model.X)
        self._is_kept = ~adds_nothing
        kept = np.append(self._is_kept, [True] * model.fit_intercept)
        self._solve = solver(model.gram_of_columns() * np.outer(kept, kept))

    def at(self, theta: Vector) -> float:
        """Return the bound by slopes near these; 0 where none are found."""
        if self._solve is None:
            return 0.0
        for _ in range(MOST_MOVES):
            sums = self._sums(theta)
            missing = self._missing(sums)
            if missing is None:
                return self.terms.lower_bound(sums, lambda: self)
            theta = theta + self._slopes_of(missing)
        return 0.0

    @cached_property
    def gets_tight(self) -> bool:
        """Whether the bound comes near to the minimum at good slopes.

        They can be moved to the right side of 0 where any slopes are there for all columns. There
        are none where columns cancel each other, so that weights can grow for ever.
        """
        if self._solve is None:
            return False
        if self.model.fit_intercept:
            return self.intercept < math.inf
        return self._tilted(()) is not None

    def _tilted(self, mean: tuple[float, ...]) -> tuple[Vector, SlopeSums] | None:
        """Return slopes that are on the right side for all columns; None where none are found."""
        sizes = np.sqrt(self.model.column_squares()) * self._is_kept
        eta = self._slopes_of(np.append(TILT * self._signs * sizes, mean))
        sums = self._sums(eta)
        is_right = self._signs * sums.combination >= sums.combination_error
        return (eta, sums) if is_right.all() else None

    def _sums(self, theta: Vector) -> SlopeSums:
        """Return the sums over rows; those of columns that are left out are on the right side."""
        sums = SlopeSums.of(self.model, theta)
        return replace(
            sums,
            combination=np.where(self._is_kept, sums.combination, self._signs),
            combination_error=sums.combination_error * self._is_kept,
        )

    def _missing(self, sums: SlopeSums) -> Vector | None:
        """Return how far combination and mean are from where they should be; None: they are."""
        beyond = self._signs * sums.combination
        is_short = beyond < LEAST_BEYOND * sums.combination_error
        is_tilted = abs(sums.mean) > LEAST_BEYOND * sums.mean_error
        if not is_short.any() and not is_tilted:
            return None
        off = self._signs * (AIMED_BEYOND * sums.combination_error - beyond)
        missing = np.where(is_short, off, 0.0)
        return np.append(missing, -sums.mean) if self.model.fit_intercept else missing

    def _slopes_of(self, combination: Vector) -> Vector:
        """Return the smallest slopes with such a combination of rows, up to rounding."""
        assert self._solve is not None
        w, d = self._solve(combination), self.model.n_features
        slopes = self.model.products.forward(w[:d])
        return slopes + w[d] if self.model.fit_intercept else slopes

    @cached_property
    def intercept(self) -> float:
        """A bound on a minimiser's intercept, infinite where none is found.

        With slopes eta on the right side of 0 for all columns, sum_i p_i eta_i m_i is at least b
        times their mean; and it is at most ||eta|| ||m||, where the margins m at a minimiser are
        near their targets.
        """
        model = self.model
        farthest = norm(np.sqrt(model.shares) * model.y) + model.loss.reach(self.value)
        return max(self._end(side, farthest) for side in (1.0, -1.0))

    def _end(self, side: float, farthest: float) -> float:
        """Return how large the intercept can be on one side, if margins are at most that large."""
        found = self._tilted((side,))
        if found is None:
            return math.inf
        eta, sums = found
        mean = side * sums.mean - sums.mean_error
        if not mean > 0.0:
            return math.inf
        return ROUNDED_UP * norm(np.sqrt(self.model.shares) * eta) * farthest / mean
