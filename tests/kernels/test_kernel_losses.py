"""The compiled losses, one by one, against those of NumPy: every entry of the table."""

import numba
import numpy as np
import pytest

from accelegrad.kernels.loss_shape import for_kernels
from accelegrad.kernels.losses import logistic_slope, loss_and_slope
from accelegrad.models.losses import LOSSES, make_loss
from row_sums import EXTRAS

KINKED = [name for name, entry in LOSSES.items() if not entry.smooth]


@numba.njit(error_model="numpy")
def at_margins(loss, margins, y, values, slopes):
    """Fill in values and slopes, those of the logistic loss also by the function for them alone."""
    for i in range(margins.size):
        values[i], slopes[0, i] = loss_and_slope(loss, margins[i], y)
        slopes[1, i] = logistic_slope(margins[i], y) if loss is None else slopes[0, i]


def compiled_losses(loss, margins, y):
    values, slopes = np.empty(margins.size), np.empty((2, margins.size))
    at_margins(for_kernels(loss.shape), margins, y, values, slopes)
    np.testing.assert_array_equal(*slopes)
    return values, slopes[0]


def margins_and_targets(loss):
    """Return pairs with margins everywhere, at and next to where the formula changes."""
    changes = [0.0, 0.25, 0.8, 0.4, 0.65, 0.12, 0.28, 1.0, 2.0]
    near = np.concatenate([[c, np.nextafter(c, 9), np.nextafter(c, -9)] for c in changes])
    margins = np.concatenate([np.linspace(-3, 3, 121), near, -near, [-800.0, 800.0, 1e12, -1e12]])
    for y in (-1.0, 1.0) if loss.classification else (-1.0, 0.0, 0.25, 2.0):
        yield margins + (0.0 if loss.classification else y), y


@pytest.mark.parametrize(
    ("name", "smoothing"),
    [*((name, 0.0) for name in LOSSES), *((name, mu) for name in KINKED for mu in (0.4, 1e-9))],
)
def test_values_and_slopes_are_those_of_the_losses(name, smoothing):
    loss = make_loss(name, **EXTRAS).smoothed(smoothing)
    for margins, y in margins_and_targets(loss):
        found_value, found_slope = compiled_losses(loss, margins, y)
        value, slope = loss.value_and_derivative(margins, np.full(margins.size, y))
        # An exponential, a logarithm and a sum: on each side some three roundings of eps.
        np.testing.assert_allclose(found_value, value, rtol=2e-15, atol=1e-300)
        np.testing.assert_allclose(found_slope, slope, rtol=2e-15, atol=1e-300)
