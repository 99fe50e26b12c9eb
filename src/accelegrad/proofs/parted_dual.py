"""Lower bounds of a sum over rows in parts: slopes are chosen here, and summed at the parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.linalg import ROUNDED_UP, SMALLEST
from accelegrad.models import row_parts as tasks
from accelegrad.models.linear_model import ModelPoint
from accelegrad.models.losses import Loss
from accelegrad.models.parted_model import PartedSlopes
from accelegrad.models.row_parts import Mixture, Part
from accelegrad.proofs.fenchel import SlopeSums, heights
from accelegrad.proofs.model_dual import BALANCED, ModelDual

#: The search for the best intercept begins with these multiples of a guess, times `FARTHER` in each
#: round trip until the sum of slopes has changed its sign. Chosen, like the numbers below.
FIRST_SHIFTS, FARTHER = np.array([0.25, 1.0, 4.0]), 64.0
#: Then `SHIFTS` evenly spaced ones and some near a better guess are tried in each; at most `ROUNDS`
#: in all. It ends when slopes are wrong by about this share: between two ends, those of a smooth
#: loss are nearly linear in the shift, and mixtures are wrong by the product of the ends' shares.
SHIFTS, ROUNDS, ENOUGH_BALANCE = 9, 6, 1e-9


def slope_sums(
    part: Part, at: ModelPoint, other: ModelPoint, slopes: Mixture, loss: Loss, combined: bool
) -> tuple[SlopeSums, float, Vector]:
    """Return the sums of slopes without columns, their squared norm, and X' theta if asked for."""
    theta, model, none = slopes.of(at, other), part.model(loss), np.zeros(0)
    combination = model.combination(theta)[: model.n_features] if combined else none
    height = SlopeSums(*heights(model, theta), none, none)
    return height, float((model.shares * theta) @ theta), combination


def given_sums(part: Part, loss: Loss, theta: Vector) -> SlopeSums:
    """Return the sums of slopes that were given for the rows of the part."""
    return SlopeSums.of(part.model(loss), theta)


class PartedDual(ModelDual):
    """`ModelDual` for slopes that stay with the rows: each sum over them is one round trip."""

    model: Any  # a PartedModel

    has_slopes_here = False

    def _is_balanced(self, theta: Any) -> bool:
        sums = theta.at.sums
        return bool(abs(sums.mean) <= BALANCED * sums.mean_size)

    def balanced(self, theta: Any) -> Any:
        """Scale down the slopes above or below 0 so that sum_i p_i theta_i = 0, as needed."""
        if not self.model.fit_intercept:
            return theta
        if isinstance(theta, np.ndarray):  # of all rows, from a user
            return super().balanced(theta)
        sums = theta.at.sums
        sides = 0.5 * (sums.mean_size + sums.mean), 0.5 * (sums.mean_size - sums.mean)
        if theta.mixture.shares != (1.0,):
            return theta  # balanced by its shares
        if theta.mixture.caution is not None:
            sides = self.model.parts.total("dual", tasks.side_means, *theta.ref)
        up, down = self.terms.balance(*map(float, sides))
        return theta._replace(mixture=theta.mixture._replace(up=up, down=down))

    def bound(
        self,
        theta: Any,
        combination: Vector | None = None,
        *,
        slack: Vector | float = 0.0,
        least: float = 0.0,  # noqa: ARG002
    ) -> float:
        """Return the bound by slopes, an array if a user gave them.

        Only the combination of the rows, which is as long as w, comes back; its error follows from
        the norm of the slopes.
        """
        parts, rounding = self.model.parts, self.model.rounding
        if isinstance(theta, np.ndarray):
            pieces = np.split(theta, self.model.X.ends[:-1])
            sums = parts.total("dual", given_sums, self.model.loss, by_part=[pieces])
            return self.terms.lower_bound(sums, self.reach)
        given = (*theta.ref, self.model.loss, combination is None)
        one, square, found = parts.total("dual", slope_sums, *given)
        # Squares may underflow, and their sum is rounded.
        length = math.sqrt(ROUNDED_UP * square + self.model.n_samples * SMALLEST)
        height = (one.level, one.level_error, one.mean, one.mean_error)
        off = slack + rounding.combination(length)
        combined = SlopeSums(*height, found if combination is None else combination, off)
        return self.terms.lower_bound(combined, self.reach)

    def _at_best_intercept(self, known: Any) -> Any:
        """Return slopes at about the shift of all margins that minimises the mean loss.

        Their sum is nondecreasing in the shift, and bracketed in round trips with some shifts each.
        Slopes on either side are mixed, so that their sum is 0, even where it jumps, at kinks.
        """
        sums, low, high = known.sums, 0.0, math.inf
        side = -math.copysign(1.0, sums.mean)
        below, above = -abs(sums.mean), math.inf  # the sums at both ends, times `side`
        # The mean loss over the mean slope is about the size of residuals.
        step = sums.loss / sums.mean_size * (-below / sums.mean_size)
        for _ in range(ROUNDS):
            if high == math.inf:
                shifts = step * FIRST_SHIFTS
                step *= FARTHER
            else:
                guess = low + (high - low) * below / (below - above)
                near = guess + (high - low) * np.array([-1e-3, -1e-6, 0.0, 1e-6, 1e-3])
                shifts = np.unique(np.concatenate([np.linspace(low, high, SHIFTS), near]))
                shifts = shifts[(shifts > low) & (shifts < high)]
            given = *known.ref, side * shifts
            means = side * self.model.parts.total("intercept", tasks.shifted_means, *given)
            after = int(np.searchsorted(means, 0.0))
            if after > 0:
                low, below = shifts[after - 1], float(means[after - 1])
            if after < shifts.size:
                high, above = shifts[after], float(means[after])
            missed = -below / sums.mean_size, above / sums.mean_size
            wrong = math.prod(missed) if known.model.loss.curvature < math.inf else min(missed)
            if high < math.inf and wrong <= ENOUGH_BALANCE:
                break
        if high == math.inf:
            return known.derivatives  # the same sign at all shifts
        share = above / (above - below)
        mixed = Mixture(shifts=(side * low, side * high), shares=(share, 1.0 - share))
        return PartedSlopes(known, known, mixed)
