"""AcceleGrad's steps that need no diameter, on many tensors: the twin of `UntunedAcceleGrad`.

Beside the parameters, which hold x, there are z, the anchor and, with a step per coordinate, the
sums of squares Q. The reductions that the radius and the noise need are done only while the radius
is looked for; in a graph they are done always, and masked, as in the rule.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from accelegrad.rules.arrays import larger, where
from accelegrad.rules.distance import SMALLEST_SHARE
from accelegrad.rules.schedules import adaptive_step
from accelegrad.rules.untuned import (
    EXACT_STEP,
    GROWTH,
    SHARP,
    STEP,
    TRUST,
    UntunedAcceleGrad,
    UntunedState,
    clearness,
    settled,
)
from accelegrad.torch.coupled import MIRROR, SQUARES, gradient_square, mean_inverse
from accelegrad.torch.optimizer import (
    AVERAGE,
    Method,
    Numbers,
    in_graph,
    is_finite,
    largest_rate,
    learning_rate,
    read,
)
from accelegrad.torch.sets import near, projected
from accelegrad.torch.tensors import Bucket, Number, Several, totals

RULE = UntunedAcceleGrad()
#: The first step is at least this, in units in the last place of a parameter of size 1: shorter
#: ones would be lost to rounding, and the radius would never grow.
SHORTEST_MOVE = 8.0
#: But no radius starts larger than this share of the parameters' size; chosen.
LARGEST_SHARE = 1e-3


class Seen(NamedTuple):
    """The sums over all coordinates of one step, zero where they are not needed."""

    size: Number = 0.0  # h, the sum of H
    slope: Number = 0.0  # <g, g/H>
    signal: Number = 0.0  # <g, anchor - z>
    evidence: Number = 0.0  # <g, anchor - x>, or with the gradient mapping in g's place
    stretch: Number = 0.0  # ||anchor - z||^2 in the metric H, after the step


class Untuned(Method):
    """With one step size for all coordinates."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR)
    start: ClassVar[Numbers] = dict.fromkeys(
        (
            *("iteration", "averaged", "first_radius", "radius", "evidence", "total_weight"),
            *("signal", "energy", "last_growth", "grown_from", SQUARES),
        ),
        0.0,
    )

    def has_average(self, group: dict[str, Any]) -> bool:
        """Tell whether the anchor is an average by now."""
        return bool(group.get("averaged", 0.0) > 0)

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step."""
        square, *found = read(totals(buckets, *self._at_gradient(numbers), ranks=ranks), numbers)
        if not is_finite(square):
            return None
        numbers = _started(self, buckets, numbers, ranks)
        state = _numbers_of(numbers)
        alpha, clear = RULE.acceleration(state), clearness(state)
        reach = (STEP + (EXACT_STEP - STEP) * clear / (clear + SHARP)) * numbers["radius"]
        squares = numbers[SQUARES] + alpha * alpha * square
        for bucket in buckets:
            self._measure(bucket, alpha, squares)
            bucket.reach = learning_rate(bucket.group) * reach
            bucket.step_size = self._step_size(bucket.reach, squares)
            _move(bucket, alpha, bucket.reach)
        seen = self._seen(buckets, numbers, found, squares, square, ranks)
        following = _learnt(numbers, seen, alpha * largest_rate(buckets) * reach)
        following[SQUARES] = squares
        averaged = numbers["averaged"] + settled(_numbers_of(following))
        share = 6 * averaged / ((averaged + 1) * (2 * averaged + 1))  # as in the rule
        following |= {"iteration": numbers["iteration"] + 1, "averaged": averaged}
        tau = 1 / RULE.acceleration(_numbers_of(following))
        for bucket in buckets:
            each, tensors = bucket.each, bucket.state
            tensors[AVERAGE] = each.toward(tensors[AVERAGE], bucket.x, share)
            bucket.x = each.toward(bucket.x, tensors[MIRROR], tau)
        return following

    def _at_gradient(self, numbers: Numbers) -> list[Any]:
        """Return what is summed before the step."""
        if in_graph(numbers):
            return [SQUARE_AND_EVIDENCE, _signal]
        if numbers["averaged"] > 0:
            return [gradient_square]
        fresh = numbers["last_growth"] == numbers["iteration"] > 0
        return [SQUARE_AND_EVIDENCE, *([_signal] if fresh else [])]

    # -- one step size, or one per coordinate ----------------------------------------------------

    def first_square(self, buckets: list[Bucket], ranks: Any) -> Tensor:
        """Return the square of the size of x0 in which the first radius is measured."""
        return totals(buckets, _anchor_square, ranks=ranks)[0]

    def _measure(self, bucket: Bucket, alpha: Number, squares: Number) -> None:  # noqa: ARG002
        """Give a bucket g/H, and 1/H for a penalty."""
        inverse = adaptive_step(1.0, squares)
        bucket.inverse = [inverse] * len(bucket.x)
        bucket.direction = bucket.each.scaled(bucket.gradient, inverse)

    def _step_size(self, reach: Number, squares: Number) -> Number:
        """Return what is kept of the step size; see `mean_factor`."""
        return adaptive_step(reach, squares)

    def _seen(
        self,
        buckets: list[Bucket],
        numbers: Numbers,
        found: list[Number],
        squares: Number,
        square: Number,
        ranks: Any,
    ) -> Seen:
        """Return the sums of a step."""
        if not found:
            return Seen()
        size = squares**0.5
        slope = square * adaptive_step(1.0, squares)
        quantities = [_travelled, *([_mapping] if _has_penalty(buckets) else [])]
        stretch, *mapping = read(totals(buckets, *quantities, ranks=ranks), numbers)
        evidence, signal = mapping[0] if mapping else found[0], _second(found)
        return Seen(size, slope, signal, evidence, size * stretch)


class DiagonalUntuned(Untuned):
    """With a step size per coordinate."""

    sums: ClassVar[tuple[str, ...]] = (SQUARES,)
    per_coordinate: ClassVar[bool] = True

    def first_square(self, buckets: list[Bucket], ranks: Any) -> Tensor:
        """Return the mean square of x0."""
        square, count = totals(buckets, _anchor_square, _count, ranks=ranks).unbind()
        return square / count

    def _measure(self, bucket: Bucket, alpha: Number, squares: Number) -> None:  # noqa: ARG002
        each, state = bucket.each, bucket.state
        state[SQUARES] = each.add_squares(state[SQUARES], bucket.gradient, alpha * alpha)
        bucket.metric = each.roots(state[SQUARES])
        bucket.direction = each.ratios(bucket.gradient, bucket.metric)
        if bucket.group["penalty"] is not None:
            bucket.inverse = [adaptive_step(1.0, square) for square in state[SQUARES]]

    def _step_size(self, reach: Number, squares: Number) -> Number:  # noqa: ARG002
        return reach

    def mean_factor(self, buckets: list[Bucket], ranks: Any) -> float:
        """Return <g, g/H> / <g, g>."""
        for bucket in buckets:
            bucket.metric = bucket.each.roots(bucket.state[SQUARES])
        return mean_inverse(buckets, ranks)

    def _seen(
        self,
        buckets: list[Bucket],
        numbers: Numbers,
        found: list[Number],
        squares: Number,  # noqa: ARG002
        square: Number,  # noqa: ARG002
        ranks: Any,
    ) -> Seen:
        if not found:
            return Seen()
        quantities = [IN_METRIC, *([_mapping] if _has_penalty(buckets) else [])]
        size, slope, stretch, *mapping = read(totals(buckets, *quantities, ranks=ranks), numbers)
        evidence, signal = mapping[0] if mapping else found[0], _second(found)
        return Seen(size, slope, signal, evidence, stretch)


# -- tensors -------------------------------------------------------------------------------------


def _move(bucket: Bucket, alpha: Number, reach: Number) -> None:
    """Move z and x, which becomes y, by steps of `reach` in the metric."""
    each, state = bucket.each, bucket.state
    if bucket.group["penalty"] is not None:
        bucket.before = each.copies(bucket.x)
    z = each.add(state[MIRROR], bucket.direction, -alpha * reach)
    y = each.add(bucket.x, bucket.direction, -reach)
    if bucket.group["penalty"] is not None:
        z = near(bucket, z, [alpha * reach * inverse for inverse in bucket.inverse])
        y = near(bucket, y, [reach * inverse for inverse in bucket.inverse])
    state[MIRROR], bucket.x = projected(bucket, z), projected(bucket, y)


def _square_and_evidence(bucket: Bucket) -> Tensor:
    anchor = bucket.state[AVERAGE]
    return bucket.sums_of(lambda g, a, x: [g * g, g * (a - x)], bucket.gradient, anchor, bucket.x)


def _signal(bucket: Bucket) -> Tensor:
    anchor, z = bucket.state[AVERAGE], bucket.state[MIRROR]
    return bucket.sums_of(lambda g, a, z: [g * (a - z)], bucket.gradient, anchor, z)


def _travelled(bucket: Bucket) -> Tensor:
    return bucket.sums_of(lambda a, z: [(a - z) ** 2], bucket.state[AVERAGE], bucket.state[MIRROR])


def _in_metric(bucket: Bucket) -> Tensor:
    """Return the sum of H, <g, g/H> and the squared distance of z in the metric."""
    anchor, z = bucket.state[AVERAGE], bucket.state[MIRROR]
    return bucket.sums_of(
        lambda h, g, a, z: [h, g * g / h, h * (a - z) ** 2],
        *(bucket.metric, bucket.gradient, anchor, z),
    )


def _mapping(bucket: Bucket) -> Tensor:
    """Return the evidence with the gradient mapping (x - y) H / reach in the gradient's place."""
    moved = bucket.each.minus(bucket.before, bucket.x)
    scaled = [
        adaptive_step(1.0, inverse * inverse) * part
        for inverse, part in zip(bucket.inverse, moved, strict=True)
    ]
    offset = bucket.each.minus(bucket.state[AVERAGE], bucket.before)
    total: Tensor = bucket.dot(scaled, offset) * adaptive_step(1.0, bucket.reach * bucket.reach)
    return total


def _anchor_square(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.state[AVERAGE])


def _count(bucket: Bucket) -> Tensor:
    count = sum(tensor.numel() for tensor in bucket.x)
    return torch.tensor(count, dtype=torch.float64, device=bucket.x[0].device)


SQUARE_AND_EVIDENCE, IN_METRIC = Several(_square_and_evidence, 2), Several(_in_metric, 3)


def _has_penalty(buckets: list[Bucket]) -> bool:
    return any(bucket.group["penalty"] is not None for bucket in buckets)


# -- numbers -------------------------------------------------------------------------------------


def _numbers_of(numbers: Numbers) -> Any:
    """Return the numbers as the rule's functions want them: a state without its arrays."""
    fields = {name: numbers.get(name) for name in UntunedState._fields}
    return UntunedState(**fields)


def _second(found: list[Number]) -> Number:
    return found[1] if len(found) > 1 else 0.0


def _started(method: Untuned, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers:
    """Return the numbers with a first radius."""
    if not in_graph(numbers) and numbers["radius"] > 0:
        return numbers
    square = method.first_square(buckets, ranks)
    (square,) = read(square[None], numbers)
    size, share = 1 + square**0.5, _first_share(buckets)
    first = numbers["radius"] == 0
    base = {"first_radius": SMALLEST_SHARE * size, "radius": share * size}
    base["grown_from"] = base["radius"]
    return {**numbers, **{name: where(first, base[name], numbers[name]) for name in base}}


def _first_share(buckets: list[Bucket]) -> Number:
    """Return the first radius relative to x0: 1e-6, but no step is lost to rounding."""
    coarsest = max((torch.finfo(bucket.x[0].dtype).eps for bucket in buckets), default=0.0)
    rate = largest_rate(buckets)
    enough = SHORTEST_MOVE * coarsest / STEP * adaptive_step(1.0, rate * rate)
    enough = where(enough > LARGEST_SHARE, LARGEST_SHARE, enough)
    return larger(SMALLEST_SHARE, enough)


def _learnt(numbers: Numbers, seen: Seen, moved: Number) -> Numbers:
    """Return the numbers with what a step tells of noise and distance, as the rule does."""
    searching = numbers["averaged"] == 0
    if not in_graph(numbers) and not searching:
        return dict(numbers)
    t = numbers["iteration"]
    weight = searching * adaptive_step(moved, seen.size * seen.size)
    fresh = searching * (numbers["last_growth"] == t) * (t > 0)
    before = numbers["total_weight"] + (numbers["total_weight"] == 0)
    evidence = numbers["evidence"] + weight * seen.evidence
    suggested = adaptive_step(TRUST * evidence * seen.size**0.5, seen.stretch)
    radius = larger(numbers["radius"], searching * suggested)
    grew = radius > GROWTH * numbers["grown_from"]
    return {
        **numbers,
        "radius": radius,
        "evidence": evidence,
        "total_weight": numbers["total_weight"] + weight,
        "signal": numbers["signal"] + fresh * (seen.signal / before),
        "energy": numbers["energy"] + fresh * (seen.size * seen.slope),
        "last_growth": where(grew, t + 1, numbers["last_growth"]),
        "grown_from": where(grew, radius, numbers["grown_from"]),
    }
