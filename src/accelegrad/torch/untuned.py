"""AcceleGrad's steps that need no diameter, on many tensors: the twin of `UntunedAcceleGrad`.

Beside the parameters, which hold x, there are z, the anchor and, with a step per coordinate, the
sums of squares Q. The reductions that the radius and the noise need are done only while the radius
is looked for; in a graph they are done always, and masked, as in the rule.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from accelegrad.rules.arrays import larger, where
from accelegrad.rules.distance import SMALLEST_SHARE
from accelegrad.rules.schedules import adaptive_step
from accelegrad.rules.untuned import (
    DESCENT_SHARE,
    Seen,
    UntunedAcceleGrad,
    UntunedState,
    averaging,
    is_comparable,
    learnt,
)
from accelegrad.torch.coupled import MIRROR, SQUARES, gradient_square, mean_inverse
from accelegrad.torch.optimizer import (
    AVERAGE,
    Method,
    Numbers,
    in_graph,
    is_usable,
    largest_rate,
    learning_rate,
    read,
)
from accelegrad.torch.radius import first_share
from accelegrad.torch.sets import near, projected
from accelegrad.torch.tensors import Bucket, Number, Several, totals

RULE = UntunedAcceleGrad()


class Untuned(Method):
    """With one step size for all coordinates."""

    momentum: ClassVar[bool] = True  # else all weights are 1
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
        """Tell whether the anchor is an average by now."""
        return bool(group.get("averaged", 0.0) > 0)

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step.

        The squares, in tensors or a number, are the rule's r_t Q_t, and H stands for their roots.
        """
        searching = in_graph(numbers) or numbers["averaged"] == 0
        compared = searching and self.momentum and (in_graph(numbers) or _is_comparable(numbers))
        before = ALONG_Z if compared else AT_GRADIENT if searching else self._square
        square, *found = read(totals(buckets, before, ranks=ranks), numbers)
        if not is_usable(square):
            return None
        numbers = _started(self, buckets, numbers, ranks)
        state = _state_of(numbers)
        alpha, reach = RULE.acceleration(state), RULE.reach(state)
        weight = numbers["radius"] * alpha * alpha
        squares = numbers[SQUARES] + weight * square
        for bucket in buckets:
            self._measure(bucket, weight, squares)
            bucket.reach = learning_rate(bucket.group) * reach
            bucket.step_size = self._step_size(bucket.reach, squares)
        cosine: Number = 0.0
        if compared:
            slope, stretch = self._in_metric(buckets, numbers, square, squares, ranks)
            cosine = adaptive_step(found[1], slope * stretch)
        for bucket in buckets:
            if searching and _has_penalty(buckets):
                bucket.before = bucket.each.copies(bucket.x)
            _move(bucket, alpha)
        if searching:
            size, stretch, travelled = self._distances(buckets, numbers, squares, ranks)
            evidence = _mapping_evidence(buckets, numbers, ranks, found[0])
            seen = Seen(size, cosine, evidence, stretch, travelled)
            moved = alpha * largest_rate(buckets) * reach
            state = learnt(state, seen, moved, changed=_has_set_or_term(buckets))
        averaged, share = averaging(state)
        following = state._replace(
            squares=0 * squares if self.sums else squares,  # in a tensor, or a number
            iteration=numbers["iteration"] + 1,
            averaged=averaged,
        )
        tau = 1 / RULE.acceleration(following)
        for bucket in buckets:
            each, tensors = bucket.each, bucket.state
            tensors[AVERAGE] = each.toward(tensors[AVERAGE], bucket.x, share)
            bucket.x = each.toward(bucket.x, tensors[MIRROR], tau)
        return {name: getattr(following, name) for name in self.start}

    # -- one step size, or one per coordinate ----------------------------------------------------

    def _square(self, bucket: Bucket) -> Tensor:
        """Return <g, g> where the radius is settled."""
        return gradient_square(bucket)

    def first_square(self, buckets: list[Bucket], ranks: Any) -> Tensor:
        """Return the square of the size of x0 in which the first radius is measured."""
        return totals(buckets, _anchor_square, ranks=ranks)[0]

    def _measure(self, bucket: Bucket, weight: Number, squares: Number) -> None:  # noqa: ARG002
        """Give a bucket g/H, and 1/H for a penalty; its squared gradients count with a weight."""
        inverse = adaptive_step(1.0, squares)
        bucket.inverse = [inverse] * len(bucket.x)
        bucket.direction = bucket.each.scaled(bucket.gradient, inverse)

    def _step_size(self, reach: Number, squares: Number) -> Number:
        """Return what is kept of the step size; see `mean_factor`."""
        return adaptive_step(reach, squares)

    def _in_metric(
        self, buckets: list[Bucket], numbers: Numbers, square: Number, squares: Number, ranks: Any
    ) -> tuple[Number, Number]:
        """Return <g, g/H> and ||anchor - z||^2 in the metric H, before the step."""
        (stretch,) = read(totals(buckets, _z_square, ranks=ranks), numbers)
        return square * adaptive_step(1.0, squares), squares**0.5 * stretch

    def _distances(
        self, buckets: list[Bucket], numbers: Numbers, squares: Number, ranks: Any
    ) -> tuple[Number, Number, Number]:
        """Return the sum of H, and the squared distances of z and y in the metric."""
        stretch, travelled = read(totals(buckets, SQUARED_DISTANCES, ranks=ranks), numbers)
        size = squares**0.5
        return size, size * stretch, size * travelled


class UntunedDescent(Untuned):
    """The same without momentum, and so not accelerated."""

    momentum: ClassVar[bool] = False
    share: ClassVar[float] = DESCENT_SHARE


class DiagonalUntuned(Untuned):
    """With a step size per coordinate."""

    sums: ClassVar[tuple[str, ...]] = (SQUARES,)
    per_coordinate: ClassVar[bool] = True

    def first_square(self, buckets: list[Bucket], ranks: Any) -> Tensor:
        """Return the mean square of x0."""
        square, count = totals(buckets, _anchor_square, _count, ranks=ranks).unbind()
        return square / count

    def _square(self, bucket: Bucket) -> Tensor:
        """Return a bound of <g, g>: it is needed only to tell whether sums of squares are safe."""
        return torch.stack(bucket.each.norms(bucket.gradient)).sum().to(torch.float64).square()

    def _measure(self, bucket: Bucket, weight: Number, squares: Number) -> None:  # noqa: ARG002
        each, state = bucket.each, bucket.state
        state[SQUARES] = each.add_squares(state[SQUARES], bucket.gradient, weight)
        bucket.direction = each.over_roots(bucket.gradient, state[SQUARES])
        if bucket.group["penalty"] is not None:
            bucket.inverse = [adaptive_step(1.0, square) for square in state[SQUARES]]

    def _step_size(self, reach: Number, squares: Number) -> Number:  # noqa: ARG002
        return reach

    def mean_factor(self, buckets: list[Bucket], ranks: Any) -> float:
        """Return <g, g/H> / <g, g>."""
        for bucket in buckets:
            bucket.metric = bucket.each.roots(bucket.state[SQUARES])
        return mean_inverse(buckets, ranks)

    def _in_metric(
        self,
        buckets: list[Bucket],
        numbers: Numbers,
        square: Number,  # noqa: ARG002
        squares: Number,  # noqa: ARG002
        ranks: Any,
    ) -> tuple[Number, Number]:
        slope, stretch = read(totals(buckets, IN_METRIC, ranks=ranks), numbers)
        return slope, stretch

    def _distances(
        self,
        buckets: list[Bucket],
        numbers: Numbers,
        squares: Number,  # noqa: ARG002
        ranks: Any,
    ) -> tuple[Number, Number, Number]:
        size, stretch, travelled = read(totals(buckets, DISTANCES, ranks=ranks), numbers)
        return size, stretch, travelled


# -- tensors -------------------------------------------------------------------------------------


def _move(bucket: Bucket, alpha: Number) -> None:
    """Move z and x, which becomes y, by steps of `reach` in the metric."""
    each, state, reach = bucket.each, bucket.state, bucket.reach
    z = each.add(state[MIRROR], bucket.direction, -alpha * reach)
    y = each.add(bucket.x, bucket.direction, -reach)
    if bucket.group.get("penalty") is not None:
        z = near(bucket, z, [alpha * reach * inverse for inverse in bucket.inverse])
        y = near(bucket, y, [reach * inverse for inverse in bucket.inverse])
    state[MIRROR], bucket.x = projected(bucket, z), projected(bucket, y)


def _at_gradient(bucket: Bucket) -> Tensor:
    """Return <g, g> and <g, anchor - x>."""
    return bucket.sums_of(
        lambda g, a, x: [g.dot(g), g.dot(a - x)],
        *(bucket.gradient, bucket.state[AVERAGE], bucket.x),
    )


def _along_z(bucket: Bucket) -> Tensor:
    """Return <g, g>, <g, anchor - x> and <g, anchor - z>."""
    return bucket.sums_of(
        lambda g, a, x, z: [g.dot(g), g.dot(a - x), g.dot(a - z)],
        *(bucket.gradient, bucket.state[AVERAGE], bucket.x, bucket.state[MIRROR]),
    )


def _in_metric(bucket: Bucket) -> Tensor:
    """Return <g, g/H> and the squared distance of z in the metric."""
    return bucket.sums_of(
        lambda q, g, a, z: [(g / (h := q.sqrt())).dot(g), (h * (d := a - z)).dot(d)],
        *(bucket.state[SQUARES], bucket.gradient, bucket.state[AVERAGE], bucket.state[MIRROR]),
    )


def _distances(bucket: Bucket) -> Tensor:
    """Return the sum of H, and the squared distances of z and y in the metric."""
    return bucket.sums_of(
        lambda q, a, z, y: [
            (h := q.sqrt()).sum(),
            (h * (d := a - z)).dot(d),
            (h * (e := a - y)).dot(e),
        ],
        *(bucket.state[SQUARES], bucket.state[AVERAGE], bucket.state[MIRROR], bucket.x),
    )


def _squared_distances(bucket: Bucket) -> Tensor:
    return bucket.sums_of(
        lambda a, z, y: [(d := a - z).dot(d), (e := a - y).dot(e)],
        *(bucket.state[AVERAGE], bucket.state[MIRROR], bucket.x),
    )


def _z_square(bucket: Bucket) -> Tensor:
    return bucket.sums_of(
        lambda a, z: [(d := a - z).dot(d)], bucket.state[AVERAGE], bucket.state[MIRROR]
    )


AT_GRADIENT, ALONG_Z = Several(_at_gradient, 2), Several(_along_z, 3)
DISTANCES = Several(_distances, 3)
IN_METRIC, SQUARED_DISTANCES = Several(_in_metric, 2), Several(_squared_distances, 2)


def _mapping(bucket: Bucket) -> Tensor:
    """Return the evidence with the gradient mapping (x - y) H / reach in the gradient's place."""
    if bucket.group["penalty"] is None:
        offset = bucket.each.minus(bucket.state[AVERAGE], bucket.before)
        return bucket.dot(bucket.gradient, offset)
    moved = bucket.each.minus(bucket.before, bucket.x)
    scaled = [
        adaptive_step(1.0, inverse * inverse) * part
        for inverse, part in zip(bucket.inverse, moved, strict=True)
    ]
    offset = bucket.each.minus(bucket.state[AVERAGE], bucket.before)
    total: Tensor = bucket.dot(scaled, offset) * adaptive_step(1.0, bucket.reach * bucket.reach)
    return total


def _mapping_evidence(
    buckets: list[Bucket], numbers: Numbers, ranks: Any, evidence: Number
) -> Number:
    """Return the evidence of a step; a penalty's slope is in it."""
    if not _has_penalty(buckets):
        return evidence
    return read(totals(buckets, _mapping, ranks=ranks), numbers)[0]


def _has_penalty(buckets: list[Bucket]) -> bool:
    return any(bucket.group.get("penalty") is not None for bucket in buckets)


def _has_set_or_term(buckets: list[Bucket]) -> bool:
    sets = any(bucket.group["projection"] is not None for bucket in buckets)
    return sets or _has_penalty(buckets)


def _anchor_square(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.state[AVERAGE])


def _count(bucket: Bucket) -> Tensor:
    count = sum(tensor.numel() for tensor in bucket.x)
    return torch.tensor(count, dtype=torch.float64, device=bucket.x[0].device)


# -- numbers -------------------------------------------------------------------------------------


def _state_of(numbers: Numbers) -> UntunedState:
    """Return the numbers as the rule's functions want them: a state without its arrays."""
    fields = {name: numbers.get(name) for name in UntunedState._fields}
    return UntunedState(**fields)


def _is_comparable(numbers: Numbers) -> Any:
    return is_comparable(numbers["iteration"], numbers["radius"], numbers["smallest_radius"])


def _started(method: Untuned, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers:
    """Return the numbers with a first radius."""
    if not in_graph(numbers) and numbers["radius"] > 0:
        return numbers
    square = method.first_square(buckets, ranks)
    (square,) = read(square[None], numbers)
    size, share = 1 + square**0.5, larger(method.share, first_share(buckets))
    first = numbers["radius"] == 0
    base = {"smallest_radius": SMALLEST_SHARE * size, "radius": share * size}
    base["grown_from"] = base["radius"]
    return {**numbers, **{name: where(first, base[name], numbers[name]) for name in base}}
