"""`UntunedAcceleGrad`'s steps on many tensors.

Besides the parameters, which hold x, there are z, the anchor and, for steps per coordinate, the
sums of squares Q. Radius and noise are measured only during the search for the radius; in a
graph always, and masked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from accelegrad.rules.arrays import adaptive_step, larger, where
from accelegrad.rules.distance import SMALLEST_SHARE
from accelegrad.rules.untuned import DESCENT_SHARE, Seen, UntunedAcceleGrad, UntunedState, averaging
from accelegrad.torch.optimizer import (
    AVERAGE,
    SQUARES,
    Family,
    Method,
    Numbers,
    is_usable,
    largest_rate,
    learning_rate,
)
from accelegrad.torch.sets import MIRROR, move
from accelegrad.torch.tensors import Bucket, Number, Tensors, gradient_square

#: The least first step, in units in the last place of a parameter of size 1: shorter ones would be
#: lost to rounding, and the radius would never grow. Chosen.
SHORTEST_MOVE = 2.5
#: The largest first radius, as a share of the parameters' size; chosen.
LARGEST_SHARE = 1e-3


class Untuned(Method):
    """One step size for all coordinates."""

    rule: ClassVar[UntunedAcceleGrad] = UntunedAcceleGrad()
    share: ClassVar[float] = SMALLEST_SHARE  # the first radius relative to the size of x0

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR)
    start: ClassVar[Numbers] = dict.fromkeys(
        (
            *("iteration", "averaged", "smallest_radius", "radius", "evidence"),
            *("agreement", "compared", "last_growth", "grown_from", SQUARES),
        ),
        0.0,
    )
    squares: ClassVar[tuple[str, ...]] = (SQUARES,)

    def has_average(self, group: dict[str, Any]) -> bool:
        """Tell whether the anchor is an average yet."""
        return bool(group.get("averaged", 0.0) > 0)

    def update(self, family: Family) -> Numbers | None:
        """Return the numbers after a step; squares are the rule's r_t Q_t, and H their roots."""
        (square,) = family.sums(self._square)
        if not is_usable(square):
            return None
        numbers = self._started(family)
        state = UntunedState(**{name: numbers.get(name) for name in UntunedState._fields})
        alpha, reach = self.rule.acceleration(state), self.rule.reach(state)
        weight = numbers["radius"] * alpha * alpha
        squares = numbers[SQUARES] + weight * square
        for bucket in family.buckets:
            bucket.reach = learning_rate(bucket.group) * reach
            self._measure(bucket, weight, squares)
        searching = family.in_graph or numbers["averaged"] == 0
        if searching:
            slope, evidence, along, stretch = family.sums(_before_step, 4)
            cosine = adaptive_step(along, slope * stretch)
        for bucket in family.buckets:
            if searching and _has_penalty(family):
                bucket.before = [x.clone() for x in bucket.x]
            move(bucket, alpha)
        if searching:
            if _has_penalty(family):
                (evidence,) = family.sums(_mapping)
            size, stretch, travelled = family.sums(_after_step, 3)
            size = size if self.sums else squares**0.5
            seen = Seen(size, cosine, evidence, stretch, travelled)
            moved = alpha * largest_rate(family.buckets) * reach
            sets = any(bucket.group["projection"] is not None for bucket in family.buckets)
            state = self.rule.learnt(state, seen, moved, changed=sets or _has_penalty(family))
        averaged, share = averaging(state)
        following = state._replace(
            squares=0 * squares if self.sums else squares,  # in a tensor, or a number
            iteration=numbers["iteration"] + 1,
            averaged=averaged,
        )
        tau = 1 / self.rule.acceleration(following)
        for bucket in family.buckets:
            each, tensors = bucket.each, bucket.state
            tensors[AVERAGE] = each.toward(tensors[AVERAGE], bucket.x, share)
            bucket.x = each.toward(bucket.x, tensors[MIRROR], tau)
        return {name: getattr(following, name) for name in self.start}

    def _started(self, family: Family) -> Numbers:
        numbers = family.numbers
        if not family.in_graph and numbers["radius"] > 0:
            return numbers
        square, count = family.sums(_anchor_square_and_count, 2)
        size = 1 + (square / count if self.sums else square) ** 0.5
        radius = larger(self.share, _first_share(family.buckets)) * size
        base = {"smallest_radius": SMALLEST_SHARE * size, "radius": radius, "grown_from": radius}
        first = numbers["radius"] == 0
        return {**numbers, **{name: where(first, base[name], numbers[name]) for name in base}}

    # -- one step size, or one per coordinate ----------------------------------------------------

    _square = staticmethod(gradient_square)

    def _measure(self, bucket: Bucket, weight: Number, squares: Number) -> None:  # noqa: ARG002
        """Set g/H, the step size, and 1/H for a penalty.

        `weight` is that of the new squared gradients.
        """
        bucket.root, inverse = squares**0.5 + (squares == 0), adaptive_step(1.0, squares)
        bucket.inverse = [inverse] * len(bucket.x)
        bucket.direction = bucket.each.scaled(bucket.gradient, inverse)
        bucket.step_size = bucket.reach * inverse


class UntunedDescent(Untuned):
    """The method without momentum, hence not accelerated."""

    rule: ClassVar[UntunedAcceleGrad] = UntunedAcceleGrad(momentum=False)
    share: ClassVar[float] = DESCENT_SHARE


class DiagonalUntuned(Untuned):
    """One step size per coordinate."""

    sums: ClassVar[tuple[str, ...]] = (SQUARES,)

    @staticmethod
    def _square(bucket: Bucket) -> Tensor:
        """Return an upper bound of <g, g>, enough to tell whether sums of squares are safe."""
        return torch.stack(torch._foreach_norm(bucket.gradient)).sum(0, True).double().square()

    def _measure(self, bucket: Bucket, weight: Number, squares: Number) -> None:  # noqa: ARG002
        each, state, bucket.step_size = bucket.each, bucket.state, bucket.reach
        state[SQUARES] = each.add_squares(state[SQUARES], bucket.gradient, weight)
        bucket.direction = each.over_roots(bucket.gradient, state[SQUARES])
        if bucket.group["penalty"] is not None:
            bucket.inverse = [adaptive_step(1.0, square) for square in state[SQUARES]]


# -- tensors -------------------------------------------------------------------------------------


def _in_metric(bucket: Bucket, function: Callable[..., Tensors], *lists: Tensors) -> Tensor:
    """Return sums of a function whose first argument is H, a vector or one number."""
    if SQUARES not in bucket.state:
        return bucket.sums_of(functools.partial(function, bucket.root), *lists)
    return bucket.sums_of(lambda q, *rest: function(q.sqrt(), *rest), bucket.state[SQUARES], *lists)


def _before_step(bucket: Bucket) -> Tensor:
    """Return the sums <g, g/H>, <g, a - x>, <g, a - z> and <a - z, H (a - z)>, a the anchor."""
    return _in_metric(
        bucket,
        lambda h, g, a, x, z: [(g / h).dot(g), g.dot(a - x), g.dot(d := a - z), (h * d).dot(d)],
        *(bucket.gradient, bucket.state[AVERAGE], bucket.x, bucket.state[MIRROR]),
    )


def _after_step(bucket: Bucket) -> Tensor:
    """Return the sums of H, <a - z, H (a - z)> and <a - y, H (a - y)>."""
    return _in_metric(
        bucket,
        lambda h, a, z, y: [
            (0 * a + h).sum(),
            (h * (d := a - z)).dot(d),
            (h * (e := a - y)).dot(e),
        ],
        *(bucket.state[AVERAGE], bucket.state[MIRROR], bucket.x),
    )


def _mapping(bucket: Bucket) -> Tensor:
    """Return <g, anchor - x>; with a penalty g is the gradient mapping (x - y) H / reach."""
    slopes, scale = bucket.gradient, 1.0
    if bucket.group["penalty"] is not None:
        slopes = [
            adaptive_step(1.0, inverse * inverse) * (x - y)
            for inverse, x, y in zip(bucket.inverse, bucket.before, bucket.x, strict=True)
        ]
        scale = adaptive_step(1.0, bucket.reach * bucket.reach)
    return scale * bucket.sums_of(
        lambda s, a, x: [s.dot(a - x)], slopes, bucket.state[AVERAGE], bucket.before
    )


def _anchor_square_and_count(bucket: Bucket) -> Tensor:
    return bucket.sums_of(lambda a: [a.dot(a), torch.ones_like(a).sum()], bucket.state[AVERAGE])


def _has_penalty(family: Family) -> bool:
    return any(bucket.group["penalty"] is not None for bucket in family.buckets)


# -- numbers -------------------------------------------------------------------------------------


def _first_share(buckets: list[Bucket]) -> Number:
    """Return the first radius relative to the size of x0: 1e-6, or more where lr is small."""
    coarsest = max((torch.finfo(bucket.x[0].dtype).eps for bucket in buckets), default=0.0)
    rate = largest_rate(buckets)
    enough = SHORTEST_MOVE * coarsest * adaptive_step(1.0, rate * rate)
    return larger(SMALLEST_SHARE, where(enough > LARGEST_SHARE, LARGEST_SHARE, enough))
