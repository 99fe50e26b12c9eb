"""What the torch optimizers share: groups, state, and the training and evaluation modes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT
from torch.optim.swa_utils import update_bn

from accelegrad.errors import hint_at_rate, real_number
from accelegrad.rules.arrays import LARGEST_SIZE, larger
from accelegrad.rules.base import check_distance
from accelegrad.torch.tensors import (
    Bucket,
    Number,
    Quantity,
    Spread,
    Tensors,
    accumulator_type,
    all_reduced,
    as_real,
    gradient_square,
    local,
    sum_type,
)

Numbers: TypeAlias = dict[str, Number]
Closure: TypeAlias = Callable[[], Any]

AUTO = "auto"
MODE = "training"  # key in saved groups: which point the parameters held
FUNCTIONS = ("projection", "penalty")  # options that may be functions, which are not saved
POINT = "point"  # x in float32, for parameters of half precision
SQUARES = "squares"  # Q, the sums of squared gradients, for steps per coordinate
AVERAGE = "average"  # the point for evaluation; in evaluation mode, the point for training
STEP_SIZE = "step_size"  # the last step of a group, with its lr
UNIT = "gradient_unit"  # gradients are divided by this power of two; 0 until one is not zero
#: Squared norms up to this are summed in float32, with weights of radius and momentum up to 1e12;
#: chosen
LARGEST_SQUARE = torch.finfo(torch.float32).max * 2.0**-40
NOT_FINITE = (
    "The gradients are not finite, and this step is skipped. For mixed precision there is "
    "torch.amp.GradScaler."
)
ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


class Family(NamedTuple):
    """Buckets with a common norm and radius, and the group that keeps their numbers."""

    group: dict[str, Any]
    buckets: list[Bucket]
    ranks: Any = None  # the process group over which the parameters are distributed
    numbers: Numbers = {}  # noqa: RUF012

    @property
    def in_graph(self) -> bool:
        """Whether the numbers are tensors that must not be read."""
        return _is_graph(self.group)

    def total(self, quantity: Quantity, count: int = 1) -> Tensor:
        """Return the sums of `count` quantities over all buckets and ranks."""
        home = self.buckets[0].x[0].device if self.buckets else torch.device("cpu")
        by_spread: dict[Spread | None, list[Tensor]] = {}
        for bucket in self.buckets:
            by_spread.setdefault(bucket.spread, []).append(quantity(bucket).to(home))
        total = torch.zeros(count, dtype=sum_type(home), device=home)
        for spread, parts in by_spread.items():
            part = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
            total = total + (part if spread is None else spread.summed(part))
        return total if self.ranks is None else all_reduced(total, self.ranks)

    def sums(self, quantity: Quantity, count: int = 1) -> list[Number]:
        """Return the same sums as floats, or as tensors in a graph."""
        total = self.total(quantity, count)
        return list(total.unbind()) if self.in_graph else total.tolist()


class Method(ABC):
    """The formulas of a step, with the tensors and numbers that they need."""

    #: tensors that start as copies of the parameter, including `AVERAGE`
    points: ClassVar[tuple[str, ...]]
    #: tensors of sums of squares, which start at the smallest normal number, so that roots divide
    sums: ClassVar[tuple[str, ...]] = ()
    #: numbers, with their initial values
    start: ClassVar[Numbers]
    #: the numbers that are sums of squared gradients
    squares: ClassVar[tuple[str, ...]] = ()

    def metric(self, bucket: Bucket) -> Tensors:
        """Return H, the divisor of `STEP_SIZE` for steps per coordinate."""
        return list(torch._foreach_sqrt(bucket.state[SQUARES]))

    def has_average(self, group: dict[str, Any]) -> bool:  # noqa: ARG002
        """Tell whether `AVERAGE` is the point for evaluation yet."""
        return True

    @abstractmethod
    def update(self, family: Family) -> Numbers | None:
        """Update the buckets' lists and return the new numbers; None skips the step."""


class AveragingOptimizer(Optimizer):
    """An optimizer whose parameters hold the point for the next gradient, not the one to use.

    `train()` and `eval()` swap the two. Sums over a run are float64 numbers in the parameter
    groups, where `load_state_dict` keeps their type; without `per_group` the first group has them.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        defaults: dict[str, Any],
        *,
        per_group: bool,
        sharded: bool,
    ) -> None:
        if not sharded and _is_made_for_a_share():
            raise ValueError(
                "ZeroRedundancyOptimizer gives each rank a share of the parameters, and the steps "
                f"of {type(self).__name__} need all of them: pass sharded=True to it, and norms "
                "are those of all ranks."
            )
        self.per_group = bool(per_group)
        self.sharded = bool(sharded)
        # Not in the groups: ZeroRedundancyOptimizer would overwrite it there before each step.
        self.training = True  # whether the parameters hold the point for gradients
        super().__init__(params, {"lr": lr, **defaults})
        rates = [group["lr"] for group in self.param_groups]
        if not any(isinstance(rate, Tensor) for rate in rates):
            hint_at_rate("lr", max(rates))
        self.method = self._method_of(self.param_groups)

    @abstractmethod
    def _method_of(self, groups: list[dict[str, Any]]) -> Method:
        """Return the method for the options of all groups."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, with the same checks of its options."""
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
            self._check_together()
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def _check(self, group: dict[str, Any]) -> None:
        lr = group["lr"]
        if not isinstance(lr, Tensor):
            real_number("lr", lr, least=0)
        elif lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, but its shape is {tuple(lr.shape)}.")
        if group["diameter"] != AUTO:
            check_distance("diameter", group["diameter"])
        real_number("weight_decay", group["weight_decay"], least=0)

    def _check_together(self) -> None:
        """Refuse a group that would change the method of the others."""
        method = getattr(self, "method", None)  # None while the first groups are given
        if method is not None and type(method) is not type(self._method_of(self.param_groups)):
            raise ValueError(
                "a parameter group that is added later cannot change the method of the others: "
                "diameter, diagonal and projection='ball' have to be given from the start."
            )

    @property
    def _ranks(self) -> Any:
        return torch.distributed.group.WORLD if self.sharded else None

    # -- what may be logged ----------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        """How many steps were done; of the first group, where each has its own."""
        return int(self.param_groups[0].get("iteration", 0))

    @property
    def effective_step(self) -> float:
        """The factor of the gradient in the last step of the first group, lr included.

        With a step per coordinate it is their mean, weighted by the squared gradients, which must
        still be there; with sharded parameters all ranks must ask for it.
        """
        first = self.param_groups[0]
        groups = [first] if self.per_group else self.param_groups
        step_size = float(first.get(STEP_SIZE, 0.0))
        if step_size == 0 or SQUARES not in self.method.sums:
            return step_size
        with torch.no_grad():
            buckets = [bucket for group in groups for bucket in self._buckets(group)]
            family = Family(first, buckets, self._ranks)
            _divide(family)
            slope, square = family.total(self._slope_and_square, 2).tolist()
        return step_size * slope / square if square > 0 else 0.0

    def _slope_and_square(self, bucket: Bucket) -> Tensor:
        return bucket.sums_of(
            lambda g, h: [(g / h).dot(g), g.dot(g)], bucket.gradient, self.method.metric(bucket)
        )

    @property
    def radius(self) -> float:
        """The radius, or the given diameter, that the steps of the first group are scaled with."""
        group = self.param_groups[0]
        diameter = given_diameter(group, self.param_groups)
        return float(group.get("radius", 0.0) if diameter is None else diameter)

    # -- the step --------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Any:
        """Do one step with the gradients of the parameters.

        Parameters
        ----------
        closure : callable, optional
            Computes the gradients and returns the loss, which `step` then returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            for family in self._families():
                self._advance(family)
        return loss

    def _advance(self, family: Family) -> None:
        following = self.method.update(self._with_numbers(family))
        if following is None and self._raise_unit(family):
            following = self.method.update(self._with_numbers(family))
        if following is None:
            warnings.warn(NOT_FINITE, RuntimeWarning, stacklevel=2)
        else:
            self._store(family, following)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _families(self) -> list[Family]:
        """Return the families with a gradient, ready for a step; none if there is nothing to do."""
        found: list[Family] = []
        for group in self.param_groups:
            if self.per_group or not found:
                found.append(Family(group, [], self._ranks))
            found[-1].buckets.extend(self._buckets(group))
        if self._ranks is None:  # otherwise ranks without work still take part in sums
            found = [family for family in found if family.buckets]
        for family in found:
            self._prepare(family)
            _find_unit(family)
            _divide(family)
        return found if found and self._has_work(found) else []

    def _has_work(self, families: list[Family]) -> bool:
        """Tell whether there is a step to do; refuse one in evaluation mode.

        torch.distributed.checkpoint initialises states by a step with gradients and lr of zero,
        which must not count.
        """
        if self.training and any(not _is_zero(group["lr"]) for group in self.param_groups):
            return True
        if all(family.total(gradient_square) == 0 for family in families):
            return False
        if not self.training:
            raise RuntimeError(
                "step() in evaluation mode: the parameters hold the point for evaluation, not the "
                "one for gradients. Call the optimizer's train() before the forward pass of a "
                "training step, and eval() after the last step."
            )
        return True

    def _buckets(self, group: dict[str, Any]) -> list[Bucket]:
        found: dict[Any, Bucket] = {}
        for param in group["params"]:
            if param.grad is not None:
                key = (param.device, param.dtype, Spread.of(param))
                if key not in found:
                    found[key] = Bucket(group, key[-1])
                found[key].params.append(param)
        for bucket in found.values():
            self._fill(bucket)
        return list(found.values())

    def _fill(self, bucket: Bucket) -> None:
        """Set the values, gradients and states of a bucket's parameters, real and local."""
        params, first = bucket.params, bucket.params[0]
        kind = accumulator_type(first.dtype)
        states = [self._state_of(param) for param in params]
        gradients: list[Any] = [param.grad for param in params]
        gradients = [g.to_dense() if g.is_sparse else g for g in gradients]
        names = (*self.method.points, *self.method.sums)
        bucket.x = params if kind == first.dtype else [state[POINT] for state in states]
        bucket.state = {name: [state[name] for state in states] for name in names}
        if first.is_complex() or bucket.spread is not None:
            bucket.x, gradients = _real_and_local(bucket.x), _real_and_local(gradients)
            bucket.state = {name: _real_and_local(bucket.state[name]) for name in names}
        if any(g.dtype != x.dtype for g, x in zip(gradients, bucket.x, strict=True)):
            gradients = [g.to(x.dtype) for g, x in zip(gradients, bucket.x, strict=True)]
        bucket.gradient = gradients
        bucket.diameter = given_diameter(bucket.group, self.param_groups)
        _add_options(bucket)

    def _state_of(self, param: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[param]
        if AVERAGE not in state:
            kind = accumulator_type(param.dtype)
            for name in (*self.method.points, *((POINT,) if kind != param.dtype else ())):
                state[name] = param.to(kind, copy=True)
            for name in self.method.sums:
                state[name] = torch.zeros_like(param, dtype=kind)
                as_real(local(state[name])).fill_(torch.finfo(kind).tiny)
        return state

    # -- numbers ---------------------------------------------------------------------------------

    def _prepare(self, family: Family) -> None:
        group, device = family.group, torch.device("cpu")
        if group["capturable"] and family.buckets:
            device = family.buckets[0].x[0].device
        for name in (*self.method.start, STEP_SIZE, UNIT):
            first = self.method.start.get(name, 0.0)
            number = torch.as_tensor(group.get(name, first), dtype=sum_type(device))
            group[name] = number.to(device)

    def _raise_unit(self, family: Family) -> bool:
        """Divide gradients that have grown too large, and all sums; False if not finite."""
        factor = unit_of(family.total(_wide_square)[0]).item()
        if not factor > 1:
            return False
        family.group[UNIT].mul_(factor)
        for name in self.method.squares:
            family.group[name].div_(factor * factor)
        for group in [family.group] if self.per_group else self.param_groups:
            for state in (self.state.get(param, {}) for param in group["params"]):
                for sums in (state[name] for name in self.method.sums if name in state):
                    least = torch.finfo(sums.dtype).tiny
                    as_real(local(sums)).div_(factor).div_(factor).clamp_(min=least)
        for bucket in family.buckets:
            bucket.unit *= factor
            bucket.gradient = bucket.each.scaled(bucket.gradient, 1 / factor)
        return True

    def _with_numbers(self, family: Family) -> Family:
        numbers = {name: family.group[name] for name in self.method.start}
        if not family.in_graph:
            numbers = {name: number.item() for name, number in numbers.items()}
        return family._replace(numbers=numbers)

    def _store(self, family: Family, numbers: Numbers) -> None:
        for name, number in numbers.items():
            _keep(family.group, name, number)
        for bucket in family.buckets:
            _keep(bucket.group, STEP_SIZE, bucket.step_size / bucket.unit)
            self._keep_tensors(bucket)

    def _keep_tensors(self, bucket: Bucket) -> None:
        """Store new tensors of autograd, and parameters of half precision."""
        if bucket.group["differentiable"]:
            for i, param in enumerate(bucket.params):
                state = self.state[param]
                for name, tensors in bucket.state.items():
                    state[name] = _as_given(tensors[i], param)
                if POINT in state:
                    state[POINT] = bucket.x[i]
                param.copy_(_as_given(bucket.x[i], param))
        elif accumulator_type(bucket.params[0].dtype) != bucket.params[0].dtype:
            bucket.each.assign([local(param) for param in bucket.params], bucket.x)

    # -- the two modes ---------------------------------------------------------------------------

    def train(self) -> None:
        """Put the point for gradients into the parameters."""
        self._switch(training=True)

    def eval(self) -> None:
        """Put the point for evaluation into the parameters."""
        self._switch(training=False)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Use the point for evaluation inside a `with` block."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self._switch(training=training)

    def recalibrate(self, model: torch.nn.Module, loader: Iterable[Any]) -> None:
        """Call `accelegrad.torch.recalibrate` at the point for evaluation.

        In training BatchNorm layers see the activations at the point for gradients.
        """
        with self.evaluating():
            recalibrate(model, loader)

    @torch.no_grad()
    def _switch(self, *, training: bool) -> None:
        if self.training != training:
            for group in self.param_groups:
                if self.method.has_average(group if self.per_group else self.param_groups[0]):
                    for param in group["params"]:
                        self._swap(param, training=training)
            self.training = training

    def _swap(self, param: Tensor, *, training: bool) -> None:
        """Exchange the two points of a parameter; without a gradient so far it has only one."""
        state = self.state.get(param, {})
        if POINT in state:
            local(param).copy_(local(state[POINT if training else AVERAGE]))
        elif AVERAGE in state:
            x, average = local(param), local(state[AVERAGE])
            held = x.clone()
            x.copy_(average)
            average.copy_(held)

    # -- saving and loading ----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        names = ("method", "per_group", "sharded", "training")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            self.training = group.pop(MODE, self.training)
        self.method = self._method_of(self.param_groups)

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue; options that are functions are not included."""
        state = super().state_dict()
        for group in state["param_groups"]:
            group[MODE] = self.training
            for name in FUNCTIONS:
                if not isinstance(group.get(name), str | None):
                    del group[name]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict, for parameters of the same shapes.

        Parameters
        ----------
        state_dict : dict
            From an optimizer of the same class. Sums and points keep their types, whatever the
            parameters' type, so that a loaded run continues exactly.
        """
        kept: list[dict[str, Any]] = []

        def look(_: Optimizer, given: dict[str, Any]) -> dict[str, Any]:  # after users' hooks
            self._check_loaded(given)
            kept.append(given)
            groups = list(given["param_groups"])
            for i, own in enumerate(self.param_groups[: len(groups)]):
                # Functions are not saved, nor are options that older versions did not have.
                groups[i] = {**{name: own[name] for name in self.defaults}, **groups[i]}
            return {**given, "param_groups": groups}

        hook = self.register_load_state_dict_pre_hook(look)
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        self._restore_types(kept[0])

    def _check_loaded(self, given: dict[str, Any]) -> None:
        pairs = zip(self.param_groups, given["param_groups"], strict=False)
        groups = [{**own, **saved, "params": own["params"]} for own, saved in pairs]
        method = self._method_of(groups or self.param_groups)
        for param, state in self._paired(given):
            missing = {*method.points, *method.sums} - set(state)
            if missing:
                raise ValueError(
                    f"the loaded state dict is not one of {type(self).__name__} with the same "
                    f"options: it has {sorted(state)} for a parameter, and not {sorted(missing)}."
                )
            if state[AVERAGE].shape != param.shape:
                raise ValueError(
                    f"the loaded state dict is of another model: {AVERAGE} has shape "
                    f"{tuple(state[AVERAGE].shape)}, and its parameter {tuple(param.shape)}."
                )

    def _restore_types(self, given: dict[str, Any]) -> None:
        """Undo torch's cast of all tensors to their parameter's type, with copies."""
        for param, state in self._paired(given):
            kind = accumulator_type(param.dtype)
            for name, value in state.items():
                if isinstance(value, Tensor):
                    self.state[param][name] = value.to(param.device, kind, copy=True)

    def _paired(self, given: dict[str, Any]) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Yield the parameters that have a state in a dict, with that state."""
        groups = zip(self.param_groups, given["param_groups"], strict=False)
        for group, saved in groups:
            for param, index in zip(group["params"], saved["params"], strict=False):
                if index in given["state"]:
                    yield param, given["state"][index]


def recalibrate(model: torch.nn.Module, loader: Iterable[Any]) -> None:
    """Recompute the running statistics of BatchNorm layers at the current parameters.

    `optimizer.recalibrate` does so at the point for evaluation.

    Parameters
    ----------
    model : torch.nn.Module
        Its mode does not change.
    loader : iterable
        Batches of inputs, or tuples that begin with one, as for `torch.optim.swa_utils.update_bn`.
        A few hundred rows are enough.
    """
    device = next((param.device for param in model.parameters()), None)
    update_bn(loader, model, device)


# -- options -------------------------------------------------------------------------------------


def given_diameter(group: dict[str, Any], groups: list[dict[str, Any]]) -> float | None:
    """Return the diameter of a group, else the largest given one, else None."""
    if group["diameter"] != AUTO:
        return float(group["diameter"])
    given = [float(each["diameter"]) for each in groups if each["diameter"] != AUTO]
    return max(given, default=None)


def learning_rate(group: dict[str, Any]) -> Number:
    """Return lr as a float, or as a 0-d tensor if it must not be read."""
    lr = group["lr"]
    if not isinstance(lr, Tensor):
        return lr
    return lr.squeeze() if _is_graph(group) else lr.item()


def largest_rate(buckets: list[Bucket]) -> Number:
    """Return the largest lr of some buckets."""
    rates = [learning_rate(bucket.group) for bucket in buckets]
    return functools.reduce(larger, rates) if rates else 1.0


def _is_made_for_a_share() -> bool:
    """Tell whether a ZeroRedundancyOptimizer makes this one; only the call stack shows it."""
    frame = inspect.currentframe() if ZERO in sys.modules else None
    while frame is not None and frame.f_globals.get("__name__") != ZERO:
        frame = frame.f_back
    return frame is not None


def _is_zero(lr: Any) -> bool:
    """Tell whether lr is known to be zero, without waiting for a device."""
    return bool(lr == 0) if not isinstance(lr, Tensor) or lr.device.type == "cpu" else False


def _is_graph(group: dict[str, Any]) -> bool:
    """Tell whether numbers must stay tensors: in a graph, or for autograd."""
    return bool(group["capturable"] or group["differentiable"] or torch.compiler.is_compiling())


def _real_and_local(tensors: Tensors) -> Tensors:
    return [as_real(local(tensor)) for tensor in tensors]


def _add_options(bucket: Bucket) -> None:
    """Apply `maximize` and `weight_decay` to the gradients."""
    decay = bucket.group["weight_decay"]
    if bucket.group["maximize"]:
        bucket.gradient = list(torch._foreach_neg(bucket.gradient))
    if decay:
        bucket.gradient = list(torch._foreach_add(bucket.gradient, bucket.x, alpha=decay))


def _wide_square(bucket: Bucket) -> Tensor:
    """Return the squared norm of the gradients in float64, safe from overflow."""
    kind = sum_type(bucket.x[0].device)
    return bucket.sums_of(lambda g: [g.to(kind).square().sum()], bucket.gradient)


def unit_of(square: Tensor) -> Tensor:
    """Return the power of two that brings a squared norm to a usable size, or zero."""
    norm = square.sqrt()
    ratio = norm / norm.clamp(1 / LARGEST_SIZE, LARGEST_SIZE)
    unit = ratio / (2 * torch.frexp(ratio).mantissa)
    return torch.where((square > 0) & square.isfinite(), unit, torch.zeros_like(unit))


def _find_unit(family: Family) -> None:
    """Set the unit at the first gradients that are not zero."""
    unit = family.group[UNIT]
    if family.in_graph or unit == 0:
        square = family.total(_wide_square)[0].detach().to(unit.device)
        unit.copy_(torch.where(unit == 0, unit_of(square), unit))


def _divide(family: Family) -> None:
    unit = family.group.get(UNIT, 0.0)
    if not _is_graph(family.group):
        unit = float(unit)
    unit = unit + (unit == 0)
    for bucket in family.buckets:
        bucket.unit = unit
        if isinstance(unit, Tensor) or unit != 1:
            bucket.gradient = bucket.each.scaled(bucket.gradient, 1 / unit)


def _keep(group: dict[str, Any], name: str, number: Number) -> None:
    """Store a number in place, or as a new tensor if autograd follows it."""
    if group["differentiable"] or name not in group:
        group[name] = torch.as_tensor(number, dtype=torch.float64)
    elif isinstance(number, Tensor):
        group[name].copy_(number)
    else:
        group[name].fill_(number)


def _as_given(tensor: Tensor, param: Tensor) -> Tensor:
    return torch.view_as_complex(tensor) if param.is_complex() else tensor


def is_usable(square: Number) -> bool:
    """Tell whether a squared norm is finite and small enough for sums in float32."""
    return isinstance(square, Tensor) or square < LARGEST_SQUARE
