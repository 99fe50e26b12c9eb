"""The compiled losses, one by one, against those of NumPy."""

import math

import numpy as np
import pytest

from accelegrad.kernels.losses import SHAPES, loss_and_slope, loss_shape, loss_slope, loss_value
from accelegrad.problems.losses import Loss, make_loss

EXTRAS = {"quantile": 0.3, "epsilon": 0.25, "delta": 0.8}
KINKED = [name for name in SHAPES if not math.isfinite(make_loss(name).curvature)]


def shape_of(loss: Loss):
    return loss_shape(loss.plain.name, loss.parameter, loss.smoothing)


def margins_and_targets(loss: Loss):
    """Return pairs with margins everywhere, at and next to where the formula changes."""
    changes = [0.0, 0.25, 0.8, 0.4, 0.65, 0.12, 0.28, 1.0, 2.0]
    near = np.concatenate([[c, np.nextafter(c, 9), np.nextafter(c, -9)] for c in changes])
    margins = np.concatenate([np.linspace(-3, 3, 121), near, -near, [-800.0, 800.0, 1e12, -1e12]])
    for y in (-1.0, 1.0) if loss.classification else (-1.0, 0.0, 0.25, 2.0):
        yield margins + (0.0 if loss.classification else y), y


@pytest.mark.parametrize("smoothing", [0.0, 0.4, 1e-9])
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_slopes_are_those_of_the_losses(name: str, smoothing: float) -> None:
    loss = make_loss(name, **EXTRAS)
    if smoothing > 0.0 and name not in KINKED:
        return
    loss = loss.smoothed(smoothing)
    own = shape_of(loss)
    for margins, y in margins_and_targets(loss):
        found = np.array([loss_and_slope(own, m, y) for m in margins])
        value, slope = loss.value_and_derivative(margins, np.full(margins.size, y))
        # An exponential, a logarithm and a sum: on each side some three roundings of eps.
        np.testing.assert_allclose(found[:, 0], value, rtol=2e-15, atol=1e-300)
        np.testing.assert_allclose(found[:, 1], slope, rtol=2e-15, atol=1e-300)
        assert loss_value(own, margins[3], y) == found[3, 0]
        assert loss_slope(own, margins[3], y) == found[3, 1]


def test_every_loss_has_a_shape() -> None:
    with pytest.raises(ValueError, match="Allowed") as error:
        make_loss("")
    for name in SHAPES:
        assert f"'{name}'" in str(error.value)
        assert make_loss(name).name == name
    assert str(error.value).count("'") == 2 * len(SHAPES) + 2


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_tell_what_the_losses_tell(name: str) -> None:
    for smoothing in (0.0, 0.4) if name in KINKED else (0.0,):
        loss = make_loss(name, **EXTRAS).smoothed(smoothing)
        own = shape_of(loss)
        assert own.curvature == pytest.approx(loss.curvature, rel=1e-15)
        assert max(-own.low, own.high) == loss.lipschitz


def test_a_kink_has_the_slope_0() -> None:
    for name in KINKED:
        loss = make_loss(name, epsilon=0.25)
        assert loss_slope(shape_of(loss), 1.25 if name.startswith("eps") else 1.0, 1.0) == 0.0


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"loss is 'hing': did you mean 'hinge'\?"):
        loss_shape("hing")
    with pytest.raises(ValueError, match="smoothing must be 0 for the smooth loss 'huber'"):
        loss_shape("huber", 1.0, 0.1)
