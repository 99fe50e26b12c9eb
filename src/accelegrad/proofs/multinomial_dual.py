r"""The Fenchel dual of multinomial logistic regression.

The dual variables are one distribution :math:`s_i` over the classes per row:

.. math:: D(s) = -\sum_i p_i \sum_k s_{ik} \log s_{ik}
          - \frac{1}{2 l_2} \Big\lVert \sum_i p_i (s_i - e_{c(i)}) a_i^T \Big\rVert^2 .

At a point, the softmax of its margins is used. An intercept requires the class shares of the data,
:math:`\sum_i p_i s_i = \sum_i p_i e_{c(i)}`: Newton's method or iterative scaling finds intercepts
that come close, and mixing one common distribution into all rows removes the remaining difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from accelegrad.errors import Vector
from accelegrad.linalg import growth, pairwise_growth
from accelegrad.models.multinomial import ClassesPoint, Matrix, MultinomialModel, softmax
from accelegrad.proofs.fenchel import STEEPEST_LOGARITHM, SlopeSums, Terms

# Rounds of scaling towards the class shares; each costs as much as the losses of all rows.
_BALANCING_ROUNDS = 8
#: Tolerance on balanced class shares
_BALANCED = 1e-14


@dataclass(frozen=True, slots=True)
class DistributionSums:
    """Sums over rows of what their distributions over the classes give; they can be added."""

    entropy: float
    slopes: Vector  # sum of s_i - e_c(i)
    sizes: Vector  # sum of their absolute values
    combination: Vector  # sum of (s_i - e_c(i)) a_i', without intercepts
    parts: int = 1  # number of sums added

    @classmethod
    def of(cls, model: MultinomialModel, s: Matrix) -> DistributionSums:
        """Return the sums over all rows of a model."""
        shares, rows = model.rows.shares, np.arange(model.n_samples)
        entropy = float(np.sum(shares * -xlogy(s, s).sum(axis=1)))
        s = s.copy()
        s[rows, model.classes] -= 1.0
        slopes = s * shares[:, None]
        residual = model.combined(slopes, np.zeros((model.n_classes, model.n_features)))
        sums = np.array([np.sum(column) for column in slopes.T.copy()])
        return cls(entropy, sums, np.abs(slopes).sum(axis=0), residual[: model.n_weights])

    def __add__(self, other: DistributionSums) -> DistributionSums:
        """Return the sums over the rows of both."""
        return DistributionSums(
            self.entropy + other.entropy,
            self.slopes + other.slopes,
            self.sizes + other.sizes,
            self.combination + other.combination,
            self.parts + other.parts,
        )


class Balance(NamedTuple):
    """What gives distributions whose mean equals the class shares.

    The softmax of the margins with one shift per class, mixed with one common distribution.
    """

    shift: Vector
    excess: float  # share of the common distribution
    common: Vector

    def of(self, margins: Matrix) -> Matrix:
        """Return the distributions."""
        s, _ = softmax(margins + self.shift)
        return s if self.excess == 0.0 else (1.0 - self.excess) * s + self.excess * self.common


class Shifted(NamedTuple):
    """Mean and products of the rows' distributions, with one shift of the margins per class."""

    mean: Vector
    products: Matrix  # the mean of s_ik s_il


def _distributions(margins: Matrix, chosen: Balance | None) -> Matrix:
    return softmax(margins)[0] if chosen is None else chosen.of(margins)


def _shifted(part: Any, at: ClassesPoint, shift: Vector) -> Shifted:  # noqa: ARG001
    shares, (s, _) = at.model.rows.shares, softmax(at.margins + shift)
    return Shifted(shares @ s, s.T @ (shares[:, None] * s))


def _sums(part: Any, at: ClassesPoint, chosen: Balance | None) -> DistributionSums:  # noqa: ARG001
    s = at.distributions if chosen is None else chosen.of(at.margins)
    return DistributionSums.of(at.model, s)


class MultinomialDual:
    """Lower bounds of a multinomial model's minimum, for l2 > 0."""

    def __init__(self, model: MultinomialModel) -> None:
        if model.l2 == 0.0:
            raise ValueError("a dual gap needs l2 > 0, but l2 is 0.")
        self.model = model
        # The weights of all classes act as those of one long row.
        self._terms = Terms(model.n_weights, model.l2)
        #: the largest bound, and what gives its distributions for rows in this process
        self.proof: tuple[float, Callable[[], Matrix] | None] = (0.0, None)

    def gap(self, x: Vector) -> float:
        """Return a proved bound of P(x) - min P."""
        value, _ = self.model.value_and_gradient(x)
        return max(value - self.at(x), 0.0)

    def at(self, x: Vector) -> float:
        """Return the lower bound of min P by the distributions at a point."""
        model, at = self.model, self.model.at(x)
        chosen = None
        if model.rows.fit_intercept:
            shifted = partial(model.total, "balance", _shifted, at)
            chosen = balance(shifted, model.class_shares)
        bound = self.bound(model.total("dual", _sums, at, chosen))
        if bound > self.proof[0] and isinstance(at, ClassesPoint):
            self.proof = bound, partial(_distributions, at.margins, chosen)
        return bound

    def bound(self, sums: DistributionSums) -> float:
        """Return the lower bound by sums over all rows."""
        model = self.model
        # Relative errors of sums over rows, and of sums of such sums.
        lost = pairwise_growth(model.n_samples) + (growth(sums.parts) if sums.parts > 1 else 0.0)
        imbalance = np.abs(sums.slopes) + lost * sums.sizes
        error = lost * (sums.entropy + STEEPEST_LOGARITHM) + self._imbalance_cost(imbalance)
        # The norm of a row's slopes is at most sqrt(2).
        off = np.tile(model.rows.rounding.combination(math.sqrt(2.0)), model.n_classes)
        found = SlopeSums(sums.entropy, error, 0.0, 0.0, sums.combination, off)
        return self._terms.lower_bound(found)

    def _imbalance_cost(self, sums: Vector) -> float:
        """Return how much rounding in the distributions can change the bound at a minimiser.

        A row's slopes sum to 0 up to a few units of rounding, which the margins multiply. The
        intercepts, which can be shifted so that the smallest is 0, multiply the classes' sums of
        slopes. The mean loss of a class's rows is at most log k over its share, and at least the
        mean difference between the margins of any other class and of this one.
        """
        model = self.model
        farthest = math.sqrt(2.0 * math.log(model.n_classes) / model.l2)  # since P(0) = log k
        margins = model.rows.rounding.size * farthest
        if not model.rows.fit_intercept:
            return growth(model.n_classes) * margins
        wanted = model.class_shares
        least = float(wanted[wanted > 0.0].min())
        spread = 1.01 * (math.log(model.n_classes) / least + 2.0 * margins / math.sqrt(least))
        if (sums[wanted == 0.0] > 0.0).any():
            return math.inf
        return float(sums.sum()) * spread + growth(model.n_classes) * (margins + spread)


def balance(shifted: Callable[[Vector], Shifted], wanted: Vector) -> Balance:
    """Return what brings the mean of the rows' distributions to the class shares `wanted`."""
    shift, best, least, before = np.zeros(wanted.size), np.zeros(wanted.size), math.inf, math.inf
    mean = wanted
    for _ in range(_BALANCING_ROUNDS + 1):
        found = shifted(shift)
        off = float(np.abs(found.mean - wanted).max())
        if off < least:
            best, least, mean = shift, off, found.mean
        if off <= _BALANCED:
            break
        newton = off < before and bool((np.minimum(found.mean, wanted) > 0.0).all())
        step = _newton_step if newton else _scaling_step
        shift, before = shift + step(found, wanted), off
    excess = np.where(mean > 0.0, (mean - wanted) / np.where(mean > 0.0, mean, 1.0), 0.0).max()
    if not excess > 0.0:
        return Balance(best, 0.0, mean)
    return Balance(best, float(excess), np.maximum(mean + (wanted - mean) / excess, 0.0))


def _newton_step(found: Shifted, wanted: Vector) -> Vector:
    """Return the Newton step towards balance; the last class stays, as a common shift is void."""
    derivatives = np.diag(found.mean) - found.products
    step = np.zeros_like(wanted)
    try:
        step[:-1] = np.linalg.solve(derivatives[:-1, :-1], (wanted - found.mean)[:-1])
    except np.linalg.LinAlgError:
        return _scaling_step(found, wanted)
    return step


def _scaling_step(found: Shifted, wanted: Vector) -> Vector:
    """Return the step of iterative scaling, which is short if the classes are far apart."""
    mean = found.mean
    with np.errstate(divide="ignore"):  # a class without rows goes to minus infinity
        step = np.log(wanted) - np.log(np.where(mean > 0.0, mean, 1.0))
    return np.where(mean > 0.0, step, 0.0)
