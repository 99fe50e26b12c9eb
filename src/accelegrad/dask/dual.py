"""Lower bounds of a sum over rows on a cluster: the slopes are chosen here, and summed there."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.dask import part as tasks
from accelegrad.dask.part import LevelSums, Slopes
from accelegrad.errors import Vector
from accelegrad.models.linear_model import ModelPoint
from accelegrad.models.row_blocks import RowNumbers
from accelegrad.proofs.fenchel import DataSums, Reach, SlopeSums
from accelegrad.proofs.model_dual import BALANCED, ModelDual
from accelegrad.rounding import growth

#: In each round trip of the search for the best intercept this many shifts are tried, in so many
#: rounds at most; it ends where the slopes that it leaves unbalanced are this share of all.
SHIFTS, ROUNDS, ENOUGH_BALANCE = 15, 6, 1e-9
#: The first shifts, relative to the size of margins and targets.
FIRST_SHIFTS = 8.0 ** np.arange(-7.0, 5.0)


class ClusterDual(ModelDual):
    """Lower bounds from sums over the parts, each of which is one round trip.

    As `ModelDual` does, it takes slopes at a point, at the best intercept for its weights, of a
    smoothed loss, or mended on some rows. Slopes of all rows are never here, so that none are
    averaged or repaired.
    """

    model: Any  # a RowModel

    @property
    def has_slopes_here(self) -> bool:
        """Whether the slopes of all rows are in this process: no."""
        return False

    def by(self, known: ModelPoint) -> float:
        """Return the bound by the slopes at a point of a model of the same rows."""
        if self.needs_null_space:
            self.without_terms("dual_value_by")  # which says why there is none
        if self._is_balanced_at(known):
            return self._as_they_are(known)
        bound, slopes = self._scaled(known), None
        if self.terms.intercept_is_free:
            slopes = self._at_best_intercept(known)
        if slopes is None:
            return bound
        up, down = self.model.cluster.total("dual", tasks.side_means, slopes, known.w)
        return max(bound, self._by_slopes(known, slopes, float(up), float(down)))

    def by_balanced(self, known: ModelPoint) -> float:
        """Return the bound by the slopes at a point, one side of them scaled down if need be."""
        if self._is_balanced_at(known):
            return self._as_they_are(known)
        return self._scaled(known)

    def _is_balanced_at(self, known: Any) -> bool:
        sums = known.sums
        return not self.model.fit_intercept or abs(sums.mean) <= BALANCED * sums.mean_size

    def _as_they_are(self, known: ModelPoint) -> float:
        """Return the bound by the slopes at a point, whose combination the gradient has."""
        l2, d = known.model.l2, self.model.n_features
        w = known.w[:d]
        combination = known.gradient[:d] - l2 * w
        return self._by_level(known, combination, growth(0) * l2 * np.abs(w))

    def bound_with_changes(
        self,
        known: ModelPoint,
        rows: RowNumbers,
        slopes: Vector,
        combination: Vector,
        slack: Vector,
    ) -> float:
        """Return the bound by the slopes at a point with those of some rows changed."""
        pieces, order = self.model.X.split(rows)
        ordered, changes, first = slopes[order], [], 0
        for piece in pieces:
            changes.append((piece, ordered[first : first + piece.size]))
            first += piece.size
        return self._by_level(known, combination, slack, changes)

    def _by_level(
        self,
        known: Any,
        combination: Vector,
        slack: Vector,
        changes: list[tuple[RowNumbers, Vector]] | None = None,
    ) -> float:
        """Return the bound by slopes whose combination is known."""
        cluster = self.model.cluster
        by_part = [[None] * len(cluster.parts) if changes is None else changes]
        sums: LevelSums = cluster.total(
            "dual", tasks.level_sums, _slopes_at(known), known.w, self.model.loss, by_part=by_part
        )
        off = slack + self.model.rounding.combination(sums.after)
        if changes is not None:
            off = off + self.model.rounding.combination(sums.before)
        return self._bound(sums, combination, off)

    def _scaled(self, known: Any) -> float:
        """Return the bound by the slopes at a point, those above or below 0 scaled down."""
        mean, size = known.sums.mean, known.sums.mean_size
        return self._by_slopes(known, _slopes_at(known), 0.5 * (size + mean), 0.5 * (size - mean))

    def _by_slopes(self, known: Any, slopes: Slopes, up: float, down: float) -> float:
        """Return the bound by slopes, those above or below 0 scaled down as a whole if need be.

        `up` and `down` are what they add to the mean of their sizes. Of what is as long as w only
        the combination of the rows comes back: how far it can be off follows from the norm of the
        slopes.
        """
        factors = self.terms.balance(up, down)
        slopes = slopes._replace(up=factors[0], down=factors[1])
        sums: LevelSums
        sums, combination = self.model.cluster.total(
            "dual", tasks.slope_sums, slopes, known.w, self.model.loss
        )
        return self._bound(sums, combination, self.model.rounding.combination(sums.after))

    def _bound(self, sums: LevelSums, combination: Vector, off: Vector) -> float:
        one = sums.slopes
        height = (one.level, one.level_error, one.mean, one.mean_error)
        return self.terms.lower_bound(SlopeSums(*height, combination, off), self.reach)

    def _at_best_intercept(self, known: Any) -> Slopes | None:
        """Return slopes at the shift of all margins that minimises the mean loss; None: at 0.

        Their sum never falls as the shift grows. It is bracketed in round trips with many shifts
        each. Where it jumps across 0, as it does at kinks, slopes on either side are mixed.
        """
        cluster, where, w, loss = self.model.cluster, known.where, known.w, known.model.loss
        slopes, size = _slopes_at(known), 1.0
        size += max(cluster.each("margins", tasks.largest_margin, where, w, loss))
        shifts = size * np.concatenate([-FIRST_SHIFTS[::-1], [0.0], FIRST_SHIFTS])
        least = ENOUGH_BALANCE * known.sums.mean_size
        for _ in range(ROUNDS):
            means = cluster.total("intercept", tasks.shifted_means, slopes, w, shifts)
            after = int(np.searchsorted(means, 0.0))
            if not 0 < after < shifts.size:
                return None  # the sign is the same at all shifts
            low, high = shifts[after - 1], shifts[after]
            below, above = float(means[after - 1]), float(means[after])
            if min(-below, above) <= least or high - low <= 1e-15 * size:
                break
            guess = low + (high - low) * below / (below - above)
            even = np.linspace(low, high, SHIFTS)
            near = guess + (high - low) * np.array([-1e-3, -1e-6, 0.0, 1e-6, 1e-3])
            shifts = np.unique(np.concatenate([even, near[(near > low) & (near < high)]]))
        share = above / (above - below)
        return slopes._replace(shifts=(low, high), mixture=(share, 1.0 - share))

    def reach(self) -> Reach:
        """Return how large a minimiser can be."""

        def found() -> Reach:
            data: DataSums = self.model.cluster.total("data", tasks.data_sums)
            return Reach(self.terms, self.model.loss, data, self._feasible_value())

        reach: Reach = self._once("reach", found)
        return reach

    def _feasible_value(self) -> float:
        """Return the objective at a feasible point: w = 0, with a good intercept if it is free."""
        model, chosen = self.model, self.terms.feasible_set
        if chosen is not None:
            point = chosen.project(np.zeros(model.n_parameters))
            weights = point[: model.n_features]
            if weights.any() or not self.terms.intercept_is_free:
                loss = model.value(point) - 0.5 * model.l2 * float(weights @ weights)
                return float(loss + self.terms.penalty_value(weights))
        shifts = [0.0]
        if model.fit_intercept and not model.loss.classification:
            found = model.cluster.each("targets", tasks.target_sums)
            shifts.append(float(sum(mean for mean, _, _ in found)))
            if model.loss.lipschitz < np.inf:
                shifts.append(float(np.median(np.concatenate([some for _, some, _ in found]))))
        values = model.cluster.total("data", tasks.losses_of_constants, model.loss, shifts)
        return float(values.min())


def _slopes_at(known: Any) -> Slopes:
    return Slopes(known.where, known.model.loss)
