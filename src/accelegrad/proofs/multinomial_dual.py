r"""The Fenchel dual of multinomial logistic regression.

The dual variables are a distribution :math:`s_i` over the classes for each row:

.. math:: D(s) = -\sum_i p_i \sum_k s_{ik} \log s_{ik}
          - \frac{1}{2 l_2} \Big\lVert \sum_i p_i (s_i - e_{c(i)}) a_i^T \Big\rVert^2 .

At a point the softmax of its margins is taken. An intercept demands that the classes' shares are
those of the data, :math:`\sum_i p_i s_i = \sum_i p_i e_{c(i)}`: intercepts that come near to that
are found by Newton's method or iterative scaling, and the remaining difference is removed exactly
by mixing the same distribution into all rows.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import xlogy

from accelegrad.errors import Vector
from accelegrad.problems.multinomial import Matrix, MultinomialModel, softmax
from accelegrad.problems.rounding import growth, pairwise_growth
from accelegrad.proofs.fenchel import STEEPEST_LOGARITHM, SlopeSums, Terms

# Rounds of scaling towards the classes' shares; each costs as much as the losses of all rows.
_BALANCING_ROUNDS = 8
#: How far the shares of balanced classes may be off, and the longest of Newton's steps towards that
_BALANCED, _LONGEST_SHIFT = 1e-14, 10.0


class MultinomialDual:
    """Lower bounds of a multinomial model's minimum.

    Parameters
    ----------
    model : MultinomialModel
        The model; its l2 has to be > 0.
    """

    def __init__(self, model: MultinomialModel) -> None:
        if model.l2 == 0.0:
            raise ValueError("a dual gap needs l2 > 0, but l2 is 0.")
        self.model = model
        self.shares = model.shares_of(None)
        # The classes' weights are as those of one long row.
        self._terms = Terms(model.n_weights, model.l2)

    def gap(self, x: Vector) -> float:
        """Return a proven bound of P(x) - min P."""
        value, _ = self.model.value_and_gradient(x)
        return max(value - self.at(x), 0.0)

    def at(self, x: Vector) -> float:
        """Return the lower bound of min P by the distributions at a point.

        It is lowered by what rounding can have added.
        """
        model, shares, count = self.model, self.shares, self.model.n_samples
        margins = model.margins(None, x)
        s, _ = softmax(margins)
        if model.rows.fit_intercept:
            s = self._balanced(margins, s)
        entropies = -xlogy(s, s).sum(axis=1)
        error = pairwise_growth(count) * (float(shares @ entropies) + STEEPEST_LOGARITHM)
        s[np.arange(count), model.classes] -= 1.0
        slopes = s * shares[:, None]
        error += self._imbalance_cost(slopes)
        residual = model.combined(None, slopes, np.zeros((model.n_classes, model.n_features)))
        # Of a row, the slopes' norm is at most the root of 2.
        off = np.tile(model.rows.rounding.combination(math.sqrt(2.0)), model.n_classes)
        height = float(np.sum(shares * entropies))
        sums = SlopeSums(height, error, 0.0, 0.0, residual[: model.n_weights], off)
        return self._terms.lower_bound(sums)

    def _imbalance_cost(self, slopes: Matrix) -> float:
        """Return what rounding in the distributions can change of the bound, at a minimiser.

        A row's slopes have the sum 0 but for some units of rounding, which margins are multiplied
        by. The intercepts, which can be shifted to have the least of them 0, multiply the classes'
        sums of slopes. The mean loss of a class's rows is at most log k over its share, and at
        least the mean difference of the margins of any other class and this one.
        """
        model = self.model
        farthest = math.sqrt(2.0 * math.log(model.n_classes) / model.l2)  # since P(0) = log k
        margins = model.rows.rounding.size * farthest
        if not model.rows.fit_intercept:
            return growth(model.n_classes) * margins
        wanted = np.bincount(model.classes, weights=self.shares, minlength=model.n_classes)
        least = float(wanted[wanted > 0.0].min())
        spread = 1.01 * (math.log(model.n_classes) / least + 2.0 * margins / math.sqrt(least))
        sums = np.array([np.sum(column) for column in slopes.T.copy()])
        sums = np.abs(sums) + pairwise_growth(model.n_samples) * np.abs(slopes).sum(axis=0)
        if (sums[wanted == 0.0] > 0.0).any():
            return math.inf
        return float(sums.sum()) * spread + growth(model.n_classes) * (margins + spread)

    def _balanced(self, margins: Matrix, s: Matrix) -> Matrix:
        """Return distributions near the softmax whose mean is the classes' share of the rows."""
        model, shares = self.model, self.shares
        wanted: Vector = np.zeros(model.n_classes)
        np.add.at(wanted, model.classes, shares)
        shift, off = np.zeros(model.n_classes), math.inf
        best = s
        for _ in range(_BALANCING_ROUNDS):
            mean = shares @ s
            before, off = off, float(np.abs(mean - wanted).max())
            if off < before:
                best = s
            if off <= _BALANCED:
                break
            newton = off < before and bool((np.minimum(mean, wanted) > 0.0).all())
            step = self._newton_step if newton else _scaling_step
            shift = shift + step(s, mean, wanted)
            s, _ = softmax(margins + shift)
        else:
            s = s if float(np.abs(shares @ s - wanted).max()) < off else best
        mean = shares @ s
        excess = np.where(mean > 0.0, (mean - wanted) / np.where(mean > 0.0, mean, 1.0), 0.0).max()
        if not excess > 0.0:
            return s
        common = np.maximum(mean + (wanted - mean) / excess, 0.0)
        mixed: Matrix = (1.0 - excess) * s + excess * common
        return mixed

    def _newton_step(self, s: Matrix, mean: Vector, wanted: Vector) -> Vector:
        """Return the step towards balance by the derivatives of the classes' shares.

        The last class stays, since the same shift of all classes changes nothing.
        """
        derivatives = np.diag(mean) - s.T @ (self.shares[:, None] * s)
        step = np.zeros_like(mean)
        try:
            step[:-1] = np.linalg.solve(derivatives[:-1, :-1], (wanted - mean)[:-1])
        except np.linalg.LinAlgError:
            return _scaling_step(s, mean, wanted)
        return step if np.abs(step).max() <= _LONGEST_SHIFT else _scaling_step(s, mean, wanted)


def _scaling_step(s: Matrix, mean: Vector, wanted: Vector) -> Vector:  # noqa: ARG001
    """Return the step of iterative scaling, which is short where the classes are far apart."""
    with np.errstate(divide="ignore"):  # a class without rows goes to minus infinity
        step = np.log(wanted) - np.log(np.where(mean > 0.0, mean, 1.0))
    return np.where(mean > 0.0, step, 0.0)
