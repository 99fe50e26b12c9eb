"""Step lengths: a step is halved until the value falls, using the margins known at both ends."""

from __future__ import annotations

from collections.abc import Callable

#: Armijo's rule with the usual constant: a step is too long if it gains less than this share of the
#: promised fall.
DESCENT = 1e-4
#: If a step this short gains nothing, rounding hides any further fall.
SHORTEST_STEP = 1e-12
#: Two units of rounding: values that differ by less may be equal.
VALUE_ROUNDING = 4e-16
#: Caution of the next matrix of second derivatives, from 0 to 1, is divided by this after a step
#: that was not too long, and multiplied otherwise; below the least it is 0 (with 0.01 in place of
#: 0.03 digits, one against the rest, take more than 60 steps).
CAUTION_FACTOR, LEAST_CAUTION = 10.0, 0.03
#: A bound is worth its cost if the estimated gap is at most this many times the wanted one; chosen
#: (half and twice as much change nothing).
PROMISING = 10.0


def falls_enough(before: float, value: float, fall: float, share: float) -> bool:
    """Return whether a value is low enough after a share of a step, by Armijo's rule.

    `fall` is the promise of the whole step; if it is only rounding, nothing has to fall.
    """
    rounding = VALUE_ROUNDING * abs(value)
    return value <= before + (rounding if fall <= rounding else -DESCENT * share * fall)


def shorter_share(value_at: Callable[[float], float], before: float, fall: float) -> float:
    """Return the first of 1/2, 1/4, ... of a step that lowers the value enough; 0 if none does."""
    share = 0.5
    while share >= SHORTEST_STEP:
        if falls_enough(before, value_at(share), fall, share):
            return share
        share *= 0.5
    return 0.0


def bolder(caution: float) -> float:
    """Return the caution after a step that was not too long."""
    return caution / CAUTION_FACTOR if caution > LEAST_CAUTION else 0.0


def more_careful(caution: float) -> float:
    """Return the caution after a step that was too long."""
    return min(max(CAUTION_FACTOR * caution, LEAST_CAUTION), 1.0)
