"""The other rules as torch optimizers: AdaGrad with one step size, UniXGrad and U-DoG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from accelegrad.errors import real_number
from accelegrad.rules.distance import check_radius
from accelegrad.torch.descent import Descent, TravelledDescent
from accelegrad.torch.extragradient import (
    PREDICTION,
    Extragradient,
    TravelledExtragradient,
    TwoPhase,
)
from accelegrad.torch.optimizer import (
    AUTO,
    AVERAGE,
    POINT,
    STEP_SIZE,
    AveragingOptimizer,
    Closure,
    Family,
    Method,
    given_diameter,
)
from accelegrad.torch.sets import BALL, check_penalty, check_projection
from accelegrad.torch.tensors import local
from accelegrad.torch.untuned import UntunedDescent


def _check_set(group: dict[str, Any]) -> None:
    check_projection(group["projection"])
    if group["projection"] == BALL:
        raise ValueError("projection='ball' is for AcceleGrad; give a function for a constraint.")


class AdaGradNorm(AveragingOptimizer):
    r"""AdaGrad with one step size for all coordinates; not accelerated, and robust under noise.

    The steps of `accelegrad.AdaGrad`; where the diameter is "auto", with a radius that is learnt as
    that of `AcceleGrad` is, or with an `initial_radius` those of `accelegrad.DoG`. Its parameters
    hold the last point while training, and in evaluation mode the average, once there is one.

    Parameters
    ----------
    params, lr, weight_decay, maximize, foreach, capturable, differentiable, per_group, sharded
        As in `AcceleGrad`.
    diameter : float or "auto"
        The diameter of a set that holds the start and a minimiser; "auto" needs to know nothing.
    initial_radius : float, optional
        For "auto": take the distance travelled for the radius, from this number on (DoG).
    projection
        As in `AcceleGrad`, but for "ball".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        *,
        diameter: float | str = AUTO,
        initial_radius: float | None = None,
        projection: Any = None,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        per_group: bool = False,
        sharded: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "diameter": diameter,
            "initial_radius": initial_radius,
            "projection": projection,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, lr, options, per_group=per_group, sharded=sharded)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        check_radius("initial_radius", group["initial_radius"])
        _check_set(group)

    def _method_of(self, groups: list[dict[str, Any]]) -> Method:
        if given_diameter(groups[0], groups) is not None:
            return Descent()
        learnt = all(group["initial_radius"] is None for group in groups)
        return UntunedDescent() if learnt else TravelledDescent()


class UniXGrad(AveragingOptimizer):
    """UniXGrad: accelerated with constraints too, for two gradients per step.

    The steps of `accelegrad.UniXGrad`, or of `accelegrad.UDoG` where the diameter is "auto". `step`
    takes a closure and calls it twice. Between steps the parameters hold the point of the first
    gradient; in evaluation mode, the average.

    Parameters
    ----------
    params, lr, weight_decay, maximize, foreach, capturable, per_group
        As in `AcceleGrad`.
    diameter : float or "auto"
        The diameter of the set, or of one that holds the start and a minimiser; "auto" takes the
        distance travelled in its place, which starts at `initial_radius`.
    initial_radius : float, optional
        For "auto"; 1e-6 (1 + ||x0||) by default.
    gradient_scale : float, optional
        G_0, where a diameter is given; by default the norm of the first gradient.
    projection, penalty
        As in `AcceleGrad`, but for "ball".
    """

    method: TwoPhase
    #: Between its two gradients ranks would not know each other's parameters
    advice_on_shares: ClassVar[str] = (
        "use fully_shard (FSDP2), or AcceleGrad with sharded=True; UniXGrad has no such option"
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        *,
        diameter: float | str = AUTO,
        initial_radius: float | None = None,
        gradient_scale: float | None = None,
        projection: Any = None,
        penalty: Any = None,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        per_group: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "diameter": diameter,
            "initial_radius": initial_radius,
            "gradient_scale": gradient_scale,
            "projection": projection,
            "penalty": penalty,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": False,
        }
        super().__init__(params, lr, options, per_group=per_group, sharded=False)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if group["gradient_scale"] is not None:
            real_number("gradient_scale", group["gradient_scale"], above=0)
        check_radius("initial_radius", group["initial_radius"])
        _check_set(group)
        check_penalty(group["penalty"])

    def _method_of(self, groups: list[dict[str, Any]]) -> TwoPhase:
        given = given_diameter(groups[0], groups) is not None
        return Extragradient() if given else TravelledExtragradient()

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Do one step, which calls the closure twice.

        Parameters
        ----------
        closure : callable
            Clears the gradients, computes them, and returns the loss. The loss that is returned
            here is that of the first call.
        """
        if closure is None:
            families = self._families()  # raises nothing where there is nothing to do
            if families:
                raise TypeError(
                    f"{type(self).__name__}.step needs a closure, which it calls twice."
                )
            return None
        loss = self._closed(closure)
        families = self._families()
        before = [(tensor, tensor.clone()) for tensor in self._ahead(families)]
        predictions = self._look_ahead(families)
        if predictions:
            try:
                self._closed(closure)
            except BaseException:
                for tensor, kept in before:
                    tensor.copy_(kept)
                raise
            for family in self._families():
                self._enter_predictions(family, predictions)
                self._advance(family)
        return loss

    def _ahead(self, families: list[Family]) -> Iterator[Tensor]:
        """Yield what `_look_ahead` changes."""
        for family in families:
            yield from (family.group[name] for name in self.method.start)
            for bucket in family.buckets:
                yield from (bucket.group[name] for name in (STEP_SIZE,) if name in bucket.group)
                for param in bucket.params:
                    state = self.state[param]
                    yield from (local(state[name]) for name in (POINT, AVERAGE) if name in state)
                    yield local(param)

    def _look_ahead(self, families: list[Family]) -> dict[Tensor, Tensor]:
        """Move to where the second gradient is wanted, and return the first ones."""
        found: dict[Tensor, Tensor] = {}
        for family in families:
            following = self.method.look_ahead(
                family.buckets, self._numbers(family.group), self._ranks
            )
            if following is None:
                return {}
            for bucket in family.buckets:
                found.update(zip(bucket.params, bucket.each.copies(bucket.gradient), strict=True))
            self._store(family, following)
        return found

    def _enter_predictions(self, family: Family, predictions: dict[Tensor, Tensor]) -> None:
        for bucket in family.buckets:
            pairs = zip(bucket.params, bucket.gradient, strict=True)
            bucket.state[PREDICTION] = [
                predictions[param] if param in predictions else torch.zeros_like(gradient)
                for param, gradient in pairs
            ]


class UDoG(UniXGrad):
    """U-DoG: `UniXGrad` with the distance travelled in the diameter's place.

    Parameters
    ----------
    params, lr
        As in `AcceleGrad`.
    **options
        Those of `UniXGrad` but for `diameter` and `gradient_scale`.
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1.0, **options: Any) -> None:
        for name in ("diameter", "gradient_scale"):
            if name in options:
                raise TypeError(f"UDoG takes no {name}: it has none. UniXGrad does.")
        super().__init__(params, lr, **options)
