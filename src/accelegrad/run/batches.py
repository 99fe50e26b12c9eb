"""What growing batches need to know of a rule: see `accelegrad.run.policies.growth`.

The steps done so far are not thrown away when the batch grows: `Rule.coarsened` turns the sums that
a rule keeps into those of a run that had the larger batches from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelegrad.errors import Vector
from accelegrad.rules import Rule
from accelegrad.rules.schedules import importance_weight

#: A batch may grow while the signal in ||g||^2 is at most this share of the noise in it: most where
#: larger batches make acceleration possible; less with kinks, where a signal s costs 1 + s times
#: the rows; least for rules that are not accelerated, which gain nothing (measured).
ACCELERATED_SIGNAL, KINKED_SIGNAL, UNIFORM_SIGNAL = 1.0, 0.3, 0.1


def largest_signal(rule: Rule, smooth: bool) -> float:
    """Return the signal with which batches may still grow, on a smooth function or not."""
    if not rule.accelerated:
        return UNIFORM_SIGNAL
    return ACCELERATED_SIGNAL if smooth else KINKED_SIGNAL


def weight_squares(rule: Rule, first: int, count: int) -> float:
    """Return the sum of the squared weights that the rule gives to some steps' gradients."""
    if not rule.accelerated:
        return float(count)
    alphas = importance_weight(np.arange(first, first + count))
    return float(alphas @ alphas)


def row_variance(gradients: Sequence[Vector], group: int) -> float:
    """Return sigma^2, the variance of one row's gradient, from those of groups of rows.

    It is unbiased: the groups' gradients scatter around their mean by sigma^2 / `group`.
    """
    stacked = np.array(gradients)
    offsets = stacked - stacked.mean(axis=0)
    return group * float(np.einsum("ij,ij->", offsets, offsets)) / (len(gradients) - 1)
