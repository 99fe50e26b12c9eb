"""Many tensors as one vector: the few operations that the optimizers are written with.

A `Bucket` holds the tensors of one parameter group, device and type as lists. Its `each` does an
operation on all of them: `Loop` one by one, `Foreach` by torch's multi-tensor functions, with the
same result to the last bit, both in place; `Traced` makes new tensors, for autograd to go through.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = list[Tensor]
Number: TypeAlias = Any  # a float, or a tensor without dimension where nothing may be read


#: Entries that are summed at once on a CPU, so that what is computed on the way stays in its cache:
#: ten times faster than all at once for a million entries, and not slower for 65 thousand; measured
BLOCK = 1 << 15


def sum_type(device: torch.device) -> torch.dtype:
    """Return the type of sums over a run: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def accumulator_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which a parameter's points are kept: at least float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class Loop:
    """The operations, tensor by tensor and in place."""

    @staticmethod
    def add(xs: Tensors, ys: Tensors, factor: Number) -> Tensors:
        """Return x + factor y."""
        for x, y in zip(xs, ys, strict=True):
            if isinstance(factor, Tensor):
                x.add_(y * _like(factor, y))
            else:
                x.add_(y, alpha=factor)
        return xs

    @staticmethod
    def toward(xs: Tensors, ys: Tensors, share: Number) -> Tensors:
        """Return x + share (y - x)."""
        for x, y in zip(xs, ys, strict=True):
            x.lerp_(y, _like(share, x))
        return xs

    @staticmethod
    def assign(xs: Tensors, ys: Tensors) -> Tensors:
        """Return y, in the place of x."""
        for x, y in zip(xs, ys, strict=True):
            x.copy_(y)
        return xs

    @staticmethod
    def scaled(xs: Tensors, factor: Number) -> Tensors:
        """Return factor x as new tensors."""
        return [x * _like(factor, x) for x in xs]

    @staticmethod
    def times(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x y, entry by entry, as new tensors."""
        return [x * y for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def plus(xs: Tensors, ys: Tensors, factor: float) -> Tensors:
        """Return x + factor y as new tensors."""
        return [x.add(y, alpha=factor) for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def minus(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x - y as new tensors."""
        return [x - y for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def add_squares(xs: Tensors, ys: Tensors, factor: Number) -> Tensors:
        """Return x + factor y^2."""
        for x, y in zip(xs, ys, strict=True):
            if isinstance(factor, Tensor):
                x.add_(y * y * _like(factor, y))
            else:
                x.addcmul_(y, y, value=factor)
        return xs

    @staticmethod
    def roots(xs: Tensors) -> Tensors:
        """Return square roots as new tensors."""
        return [x.sqrt() for x in xs]

    @staticmethod
    def over_roots(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x / sqrt(y), entry by entry, as new tensors."""
        return [y.rsqrt().mul_(x) for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def norms(xs: Tensors) -> Tensors:
        """Return the norms, fast, and as exact as the type of the tensors allows."""
        return [torch.linalg.vector_norm(x) for x in xs]

    @staticmethod
    def ratios(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x / y, entry by entry, as new tensors."""
        return [x / y for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def copies(xs: Tensors) -> Tensors:
        """Return copies."""
        return [x.clone() for x in xs]


class Foreach(Loop):
    """The operations by torch's multi-tensor functions."""

    @staticmethod
    def add(xs: Tensors, ys: Tensors, factor: Number) -> Tensors:
        """Return x + factor y."""
        if isinstance(factor, Tensor):
            torch._foreach_add_(xs, torch._foreach_mul(ys, _like(factor, ys[0])))
        else:
            torch._foreach_add_(xs, ys, alpha=factor)
        return xs

    @staticmethod
    def toward(xs: Tensors, ys: Tensors, share: Number) -> Tensors:
        """Return x + share (y - x)."""
        if isinstance(share, Tensor):
            torch._foreach_lerp_(xs, ys, [_like(share, xs[0])] * len(xs))
        else:
            torch._foreach_lerp_(xs, ys, share)
        return xs

    @staticmethod
    def assign(xs: Tensors, ys: Tensors) -> Tensors:
        """Return y, in the place of x."""
        torch._foreach_copy_(xs, ys)
        return xs

    @staticmethod
    def scaled(xs: Tensors, factor: Number) -> Tensors:
        """Return factor x as new tensors."""
        return list(torch._foreach_mul(xs, _like(factor, xs[0])))

    @staticmethod
    def times(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x y, entry by entry, as new tensors."""
        return list(torch._foreach_mul(xs, ys))

    @staticmethod
    def plus(xs: Tensors, ys: Tensors, factor: float) -> Tensors:
        """Return x + factor y as new tensors."""
        return list(torch._foreach_add(xs, ys, alpha=factor))

    @staticmethod
    def minus(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x - y as new tensors."""
        return list(torch._foreach_sub(xs, ys))

    @staticmethod
    def add_squares(xs: Tensors, ys: Tensors, factor: Number) -> Tensors:
        """Return x + factor y^2."""
        if isinstance(factor, Tensor):
            squares = torch._foreach_mul(ys, ys)
            torch._foreach_mul_(squares, _like(factor, ys[0]))
            torch._foreach_add_(xs, squares)
        else:
            torch._foreach_addcmul_(xs, ys, ys, value=factor)
        return xs

    @staticmethod
    def roots(xs: Tensors) -> Tensors:
        """Return square roots as new tensors."""
        return list(torch._foreach_sqrt(xs))

    @staticmethod
    def over_roots(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x / sqrt(y), entry by entry, as new tensors."""
        inverse = torch._foreach_rsqrt(ys)
        torch._foreach_mul_(inverse, xs)
        return list(inverse)

    @staticmethod
    def norms(xs: Tensors) -> Tensors:
        """Return the norms, fast, and as exact as the type of the tensors allows."""
        return list(torch._foreach_norm(xs))

    @staticmethod
    def ratios(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x / y, entry by entry, as new tensors."""
        return list(torch._foreach_div(xs, ys))


class Traced(Loop):
    """The operations as autograd needs them: nothing that it has seen is changed."""

    @staticmethod
    def add(xs: Tensors, ys: Tensors, factor: Number) -> Tensors:
        """Return x + factor y."""
        return [x + factor * y for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def toward(xs: Tensors, ys: Tensors, share: Number) -> Tensors:
        """Return x + share (y - x)."""
        return [torch.lerp(x, y, _like(share, x)) for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def assign(xs: Tensors, ys: Tensors) -> Tensors:  # noqa: ARG004
        """Return y."""
        return ys

    @staticmethod
    def add_squares(xs: Tensors, ys: Tensors, factor: Number) -> Tensors:
        """Return x + factor y^2."""
        return [x + factor * (y * y) for x, y in zip(xs, ys, strict=True)]

    @staticmethod
    def over_roots(xs: Tensors, ys: Tensors) -> Tensors:
        """Return x / sqrt(y), entry by entry."""
        return [x * y.rsqrt() for x, y in zip(xs, ys, strict=True)]


def _like(number: Number, x: Tensor) -> Number:
    """Return a number, of the type of a tensor if it is one too: no result is of another type."""
    return number.to(x.dtype) if isinstance(number, Tensor) else number


# -- tensors that several ranks share ------------------------------------------------------------


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, which shares its memory; any other tensor as it is."""
    kind = _dtensor()
    return tensor.to_local() if kind is not None and isinstance(tensor, kind) else tensor


def _dtensor() -> Any:
    """Return the class DTensor if it has been loaded: before that there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return None if module is None else module.DTensor


PLAIN = (Tensor, torch.nn.Parameter)  # most tensors, told fast


class Spread:
    """Over which ranks the entries of a tensor are spread: all of them count once in a sum."""

    def __init__(self, tensor: Any) -> None:
        self.mesh = tensor.device_mesh
        self.dimensions = tuple(
            i for i, placement in enumerate(tensor.placements) if not placement.is_replicate()
        )

    @staticmethod
    def of(tensor: Tensor) -> Spread | None:
        """Return how a DTensor is spread, None for any other tensor."""
        if type(tensor) in PLAIN:
            return None
        kind = _dtensor()
        return Spread(tensor) if kind is not None and isinstance(tensor, kind) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spread) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.mesh, self.dimensions

    def summed(self, numbers: Tensor) -> Tensor:
        """Return the sums over all ranks that hold other entries."""
        for dimension in self.dimensions:
            numbers = _all_reduced(numbers, self.mesh.get_group(dimension))
        return numbers


def _all_reduced(numbers: Tensor, group: Any) -> Tensor:
    """Return the sum over the ranks of a process group."""
    numbers = numbers.clone()
    torch.distributed.all_reduce(numbers, group=group)
    return numbers


# -- buckets -------------------------------------------------------------------------------------


class Bucket:
    """The parameters of one group, device and type that have a gradient, as lists.

    Attributes
    ----------
    group : dict
        The parameter group.
    params : list of Tensor
        The parameters as they were given.
    x, gradient : list of Tensor
        Their values, where the gradient was taken, and the gradients: real and local.
    unit : float or Tensor
        What the gradients have been divided by.
    state : dict
        The lists of the tensors that the optimizer keeps, by name.
    diameter : float, optional
        The diameter for these parameters, if one is given.
    metric, direction, inverse, before, reach
        What a method keeps within a step.
    each : Loop
        What does an operation on lists.
    spread : Spread, optional
        The ranks that share these parameters.
    """

    def __init__(self, group: dict[str, Any], each: type[Loop], spread: Spread | None) -> None:
        self.group, self.each, self.spread = group, each, spread
        self.params: Tensors = []
        self.x: Tensors = []
        self.gradient: Tensors = []
        self.unit: Number = 1.0
        self.state: dict[str, Tensors] = {}
        self.diameter: Any = None
        self.step_size: Number = 0.0  # of the last step, lr included
        self.metric: Tensors = []
        self.direction: Tensors = []
        self.inverse: list[Any] = []
        self.before: Tensors = []
        self.reach: Number = 0.0

    def dot(self, xs: Tensors, ys: Tensors) -> Tensor:
        """Return the inner product of two lists of tensors, each list as one vector."""
        return self.sums_of(lambda x, y: [(x * y).sum()], xs, ys)[0]

    def square(self, xs: Tensors) -> Tensor:
        """Return the squared norm of a list of tensors as one vector."""
        return self.sums_of(lambda x: [(x * x).sum()], xs)[0]

    def sums_of(self, function: Callable[..., Tensors], *lists: Tensors) -> Tensor:
        """Return some sums over the entries of all tensors, as one tensor.

        Entries of the tensors are put together to blocks, vectors of which the function returns the
        sums; those of the blocks are summed in the type of sums.
        """
        kind = sum_type(lists[0][0].device)
        parts = [torch.stack(function(*block)).to(kind) for block in _blocks(lists)]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

    def whole(self, function: Callable[..., Tensor], xs: Tensors, *more: Sequence[Any]) -> Tensors:
        """Return what a function makes of each tensor as the user knows it: complex, in one piece.

        A tensor that is spread over ranks is brought together on each of them, and spread again.
        `more` has further arguments for each tensor.
        """
        columns = zip(self.params, xs, *more, strict=True)
        return [_on_whole(function, *column) for column in columns]


def _blocks(lists: Sequence[Tensors]) -> Iterator[Sequence[Tensor]]:
    """Yield vectors of the same entries of all lists of tensors: small tensors together."""
    first = lists[0]
    split = first[0].device.type == "cpu" and not torch.compiler.is_compiling()
    large = [i for i, x in enumerate(first) if x.numel() > BLOCK] if split else []
    if len(large) < len(first):
        small = sorted(set(range(len(first))) - set(large)) if large else range(len(first))
        kind = sum_type(first[0].device)
        yield [torch.cat([xs[i].reshape(-1) for i in small]).to(kind) for xs in lists]
    for i in large:
        yield from zip(*(torch.split(xs[i].reshape(-1), BLOCK) for xs in lists), strict=True)


Quantity: TypeAlias = Callable[[Bucket], Tensor]


@dataclass(frozen=True)
class Several:
    """Several quantities in one function, which returns a vector."""

    function: Quantity
    count: int

    def __call__(self, bucket: Bucket) -> Tensor:
        """Return the quantities of a bucket."""
        return self.function(bucket)


def totals(buckets: Sequence[Bucket], *quantities: Quantity, ranks: Any = None) -> Tensor:
    """Return the sums of quantities over all tensors of all buckets and ranks, as one tensor.

    A quantity is one number; `Several` are a vector. `ranks` is the process group over
    which the parameters themselves are distributed, if any.
    """
    home = buckets[0].x[0].device if buckets else torch.device("cpu")
    by_spread: dict[Spread | None, list[Tensor]] = {}
    for bucket in buckets:
        found = torch.cat([quantity(bucket).reshape(-1) for quantity in quantities])
        by_spread.setdefault(bucket.spread, []).append(found.to(home))
    count = sum(getattr(quantity, "count", 1) for quantity in quantities)
    total = torch.zeros(count, dtype=sum_type(home), device=home)
    for spread, parts in by_spread.items():
        part = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
        total = total + (part if spread is None else spread.summed(part))
    return total if ranks is None else _all_reduced(total, ranks)


def _on_whole(function: Callable[..., Tensor], param: Any, x: Tensor, *more: Any) -> Tensor:
    kind = _dtensor()
    spread = kind is not None and isinstance(param, kind)

    def brought_together(part: Any) -> Any:
        if not isinstance(part, Tensor) or part.ndim == 0 < x.ndim:
            return part  # a number
        part = torch.view_as_complex(part) if param.is_complex() else part
        if not spread:
            return part
        layout = {"shape": param.shape, "stride": param.stride()}
        shared = kind.from_local(
            part, param.device_mesh, param.placements, run_check=False, **layout
        )
        return shared.full_tensor()

    moved = function(*(brought_together(part) for part in (x, *more)))
    if spread:
        distribute = torch.distributed.tensor.distribute_tensor
        mesh, placements = param.device_mesh, param.placements
        moved = distribute(moved, mesh, placements, src_data_rank=None).to_local()
    return as_real(moved)


def as_real(tensor: Tensor) -> Tensor:
    """Return a complex tensor as a real one with a last dimension of two, sharing its memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
