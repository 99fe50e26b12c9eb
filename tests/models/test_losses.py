"""Pointwise losses against plain formulas, numeric suprema and their own bounds."""

import inspect
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from accelegrad import LinearModel
from accelegrad.models.losses import LOSSES, PARAMETERS, make_loss
from accelegrad.sklearn import AcceleGradRegressor

Q, EPS, DELTA, MU = 0.3, 0.25, 0.8, 0.4
OPTIONS = {"quantile": Q, "epsilon": EPS, "delta": DELTA}
KINKED = tuple(name for name, entry in LOSSES.items() if not entry.smooth)
#: Every loss of the table, and the envelope of every one with kinks.
NAMES = (*LOSSES, *(f"smoothed_{name}" for name in KINKED))
LABELS = (-1.0, 1.0)


def rounded(beyond, most=1.0):
    """Return most * beyond, with a parabola of curvature 1 / MU where it comes from zero."""
    if beyond <= 0.0:
        return 0.0
    return beyond**2 / (2.0 * MU) if beyond <= most * MU else most * beyond - MU * most**2 / 2.0


# Plain scalar formulas, written without the package: each loss of the table needs one.
PLAIN = {
    "logistic": lambda m, y: math.log(1.0 + math.exp(-y * m)),
    "hinge": lambda m, y: max(0.0, 1.0 - y * m),
    "squared_hinge": lambda m, y: max(0.0, 1.0 - y * m) ** 2,
    "modified_huber": lambda m, y: max(0.0, 1.0 - y * m) ** 2 if y * m >= -1.0 else -4.0 * y * m,
    "squared": lambda m, y: (m - y) ** 2 / 2.0,
    "absolute": lambda m, y: abs(m - y),
    "huber": lambda m, y: (
        (m - y) ** 2 / 2.0 if abs(m - y) <= DELTA else DELTA * abs(m - y) - DELTA**2 / 2.0
    ),
    "quantile": lambda m, y: Q * max(y - m, 0.0) + (1.0 - Q) * max(m - y, 0.0),
    "epsilon_insensitive": lambda m, y: max(0.0, abs(m - y) - EPS),
    "squared_epsilon_insensitive": lambda m, y: max(0.0, abs(m - y) - EPS) ** 2,
    "smoothed_hinge": lambda m, y: rounded(1.0 - y * m),
    "smoothed_absolute": lambda m, y: rounded(abs(m - y)),
    "smoothed_quantile": lambda m, y: rounded(y - m, Q) + rounded(m - y, 1.0 - Q),
    "smoothed_epsilon_insensitive": lambda m, y: rounded(abs(m - y) - EPS),
}


def loss_of(name):
    plain = name.removeprefix("smoothed_")
    loss = make_loss(plain, **OPTIONS)
    return loss if plain == name else loss.smoothed(MU)


def targets(loss):
    return LABELS if loss.classification else (-1.7, 0.0, 2.3)


def kinks(name, y):
    """Return where the derivative jumps or the formula changes."""
    loss = loss_of(name)
    if loss.has_logarithms:
        return []
    _, low, high, softness, epsilon = loss.shape
    ends = (end for end in (low, high) if math.isfinite(end))
    beyond = (math.copysign(epsilon, end) + softness * end for end in ends)
    residuals = sorted({-epsilon, epsilon, *beyond} if high else {-epsilon, *beyond})
    return [y * (1.0 + r) if loss.classification else y + r for r in residuals]


def domain(name, y):
    """Return the ends of the conjugate's domain: the slopes far out, infinite if they grow."""
    ends = []
    for side in (-1.0, 1.0):
        near, far = loss_of(name).derivative(side * np.array([1e6, 1e7]), y)
        ends.append(float(near) if near == far else side * math.inf)
    return ends[0], ends[1]


def margins(name, y):
    grid = np.random.default_rng(1).uniform(-12.0, 12.0, 200)
    return np.concatenate([grid, kinks(name, y), [y, 0.0]])


def test_every_loss_has_a_plain_formula_and_its_line_in_the_documentation():
    assert set(LOSSES) <= set(PLAIN)
    for name, entry in LOSSES.items():
        assert entry.name == name
        assert make_loss(entry.sklearn_name) == make_loss(name)
        assert make_loss(name).has_one_kink is (name in ("hinge", "absolute", "quantile"))
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text("utf-8")
    for entry in LOSSES.values():
        assert f'| `"{entry.sklearn_name}"` |' in page, entry.name


@pytest.mark.parametrize("takes", [make_loss, LinearModel, AcceleGradRegressor])
def test_defaults_are_those_of_the_table(takes):
    defaults = inspect.signature(takes).parameters
    assert {name: defaults[name].default for name in PARAMETERS} == {
        name: parameter.default for name, parameter in PARAMETERS.items()
    }


@pytest.mark.parametrize("name", PLAIN)
def test_value_is_the_plain_formula_and_never_negative(name):
    loss = loss_of(name)
    for y in targets(loss):
        m = margins(name, y)
        expected = [PLAIN[name](float(point), y) for point in m]
        np.testing.assert_allclose(loss.value(m, np.full_like(m, y)), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(loss.value(m, y), expected, rtol=1e-10, atol=1e-16)
        assert (loss.value(m, y) >= 0.0).all()
        if loss.classification:
            assert (loss.plain.value(m, y) >= -y * m).all()


@pytest.mark.parametrize("name", NAMES)
def test_derivative_is_a_central_difference_away_from_kinks(name):
    """In long doubles, in which the formulas are the same."""
    loss, h = loss_of(name), np.longdouble(2.0**-17)
    for y in targets(loss):
        m = margins(name, y)
        away = np.all([np.abs(m - kink) > 2 * h for kink in [*kinks(name, y), np.inf]], axis=0)
        m = m[away].astype(np.longdouble)
        values = [loss.value(m + side, y) for side in (-h, h)]
        numeric = (values[1] - values[0]) / (2 * h)
        # A parabola's difference is exact; the logistic loss has a third derivative up to 0.1.
        rounding = 4.0 * np.finfo(np.longdouble).eps * (1.0 + np.abs(values).max()) / h
        slope = loss.derivative(m.astype(np.float64), y)
        tolerance = float(rounding + 0.1 * h**2 / 6.0)
        np.testing.assert_allclose(slope, numeric.astype(float), rtol=1e-14, atol=tolerance)


@pytest.mark.parametrize("name", KINKED)
def test_derivative_at_a_kink_is_zero_where_zero_is_a_subgradient(name):
    loss = loss_of(name)
    for y in targets(loss):
        at = np.array(kinks(name, y))
        exact = loss.value(at, y) == 0.0
        np.testing.assert_array_equal(loss.derivative(at[exact], y), 0.0)
    # A target at which the kinks are exact in binary.
    np.testing.assert_array_equal(loss.derivative(kinks(name, 1.0), 1.0), 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_in_the_conjugates_domain_with_equality(name):
    loss = loss_of(name)
    for y in targets(loss):
        m = np.concatenate([margins(name, y), [-40.0, 40.0, -800.0, 800.0]])
        theta = loss.derivative(m, y)
        sides = loss.value(m, y) + loss.conjugate(theta, y), m * theta
        scale = np.maximum(1.0, np.abs(sides[1]))
        assert np.max(np.abs(sides[0] - sides[1]) / scale) < 1e-12
        for kink in kinks(name, y):  # any slope between those on both sides
            low, high = loss.derivative(kink + np.array([-1e-9, 1e-9]), y)
            theta = np.linspace(low, high, 7)
            supremum = theta * kink - loss.value(kink, y)
            np.testing.assert_allclose(loss.conjugate(theta, y), supremum, atol=1e-8)
        theta = loss.derivative(np.linspace(-30, 30, 101, dtype=np.float32), np.float32(y))
        assert theta.dtype == np.float32
        assert np.isfinite(loss.conjugate(theta, y)).all()


@pytest.mark.parametrize("name", NAMES)
def test_conjugate_at_the_ends_of_its_domain(name):
    loss = loss_of(name)
    for y in targets(loss):
        low, high = domain(name, y)
        assert low <= 0.0 <= high
        assert loss.domain(np.array(y)) == (low, high)
        assert float(loss.conjugate(0.0, y)) == 0.0
        for end, outwards in ((low, -1.0), (high, 1.0)):
            if math.isinf(end):
                assert np.isfinite(loss.conjugate(outwards * 1e5, y))
                assert float(loss.conjugate(outwards * math.inf, y)) == math.inf
                continue
            at_end = float(loss.conjugate(end, y))
            assert np.isfinite(at_end)
            # A rounding error outside is inside; more is not.
            assert float(loss.conjugate(end + outwards * 1e-15 * max(abs(end), 0.3), y)) == at_end
            assert float(loss.conjugate(end + outwards * 1e-12, y)) == math.inf
            assert float(loss.conjugate(end + outwards, y)) == math.inf
    assert float(loss.conjugate(math.nan, 1.0)) == math.inf


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_huge_margins(name, sign):
    loss, y = loss_of(name), 1.0
    slope_at_infinity = domain(name, y)[int(sign > 0)]
    m = sign * (1e300 if math.isfinite(slope_at_infinity) else 1e10)
    value, slope = float(loss.value(m, y)), float(loss.derivative(m, y))
    if slope_at_infinity == 0.0:
        assert (value, slope) == (0.0, 0.0)
    elif math.isinf(slope_at_infinity):
        assert value == pytest.approx(0.5e20 * loss.curvature, rel=1e-9)
        assert slope == pytest.approx(sign * 1e10 * loss.curvature, rel=1e-9)
    else:
        assert value == pytest.approx(slope_at_infinity * m, rel=1e-15)
        assert slope == slope_at_infinity
    small = loss.derivative(np.array([sign * 1e15], dtype=np.float32), 1.0)
    assert small.dtype == np.float32
    assert np.isfinite(small).all()
    for z in (20.0, 40.0, 700.0) if name == "logistic" else ():  # digits are kept in the tail
        tail = math.exp(-z)
        assert float(loss.value(sign * z, sign)) == pytest.approx(tail, rel=1e-8)
        assert float(loss.derivative(sign * z, sign)) == pytest.approx(-sign * tail, rel=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_curvature_and_lipschitz_bound_the_slopes_and_are_reached(name):
    loss = loss_of(name)
    steepest = curviest = 0.0
    for y in targets(loss):
        m = np.linspace(-20.0, 20.0, 40001)
        slope = loss.derivative(m, y)
        steepest = max(steepest, float(np.abs(slope).max()))
        curviest = max(curviest, float((np.diff(slope) / np.diff(m)).max()))
    if math.isfinite(sum(domain(name, 1.0))):
        assert 0.999 * loss.lipschitz <= steepest <= loss.lipschitz
    else:
        assert loss.lipschitz == math.inf
    if name in KINKED:
        assert loss.curvature == math.inf
    else:
        assert 0.999 * loss.curvature <= curviest <= loss.curvature * (1.0 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_reach_bounds_predictions_by_their_loss(name):
    loss = loss_of(name)
    for y in targets(loss):
        m = margins(name, y)
        reach = np.array([loss.reach(float(value)) for value in loss.value(m, y)])
        far = -y * m if loss.classification else np.abs(m - y)
        assert (far <= reach * (1.0 + 1e-12)).all()
        # On the flatter side of a loss it is hardly more.
        assert loss.classification or (reach <= 1.1 * far + EPS + MU)[margins(name, y) < y].all()


@pytest.mark.parametrize("name", NAMES)
def test_types_and_shapes(name):
    loss = loss_of(name)
    assert loss.name == name
    for dtype in (np.float32, np.float64):
        m = np.linspace(-2, 2, 5, dtype=dtype)
        y = np.ones(5)
        value, slope = loss.value_and_derivative(m, y)
        assert value.dtype == slope.dtype == dtype
        np.testing.assert_array_equal(value, loss.value(m, y))
        np.testing.assert_array_equal(slope, loss.derivative(m, y))
        assert loss.conjugate(loss.derivative(m, y), y).dtype == np.float64
    assert loss.value(np.zeros((3, 1)), np.ones(4)).shape == (3, 4)
    assert loss.derivative([1, 2], [1, 1]).dtype == np.float64
    m = np.linspace(-2, 2, 5)
    before = m.copy()
    loss.value(m, 1.0), loss.derivative(m, 1.0), loss.conjugate(m, 1.0)
    np.testing.assert_array_equal(m, before)
    assert vars(loss) == vars(loss_of(name))  # what a checkpoint's fingerprint takes in


def test_losses_are_values():
    assert make_loss("huber", delta=2) == make_loss("huber", delta=2.0)
    assert make_loss("huber") != make_loss("huber", delta=2.0)
    assert hash(make_loss("huber", delta=2)) == hash(make_loss("huber", delta=2.0))
    assert pickle.loads(pickle.dumps(make_loss("huber"))) == make_loss("huber")
    assert repr(make_loss("quantile", quantile=0.9)) == "Quantile(quantile=0.9)"
    with pytest.raises(AttributeError):
        make_loss("huber").delta = 3.0
    loss = make_loss("quantile", quantile=0.9)
    smooth = loss.smoothed(0.25)
    assert smooth == make_loss("quantile", quantile=0.9).smoothed(0.25) != loss.smoothed(0.5)
    assert repr(smooth) == "Smoothed(loss=Quantile(quantile=0.9), mu=0.25)"
    assert (smooth.plain, smooth.smoothing, smooth.parameter) == (loss, 0.25, 0.9)
    assert (loss.plain, loss.smoothing, loss.parameter) == (loss, 0.0, 0.9)
    assert loss.smoothed(0.0) is loss
    assert (smooth.curvature, smooth.lipschitz) == (4.0, 0.9)
    with pytest.raises(ValueError, match=r"smoothed takes losses with kinks, but .* has none"):
        make_loss("huber").smoothed(0.1)
    with pytest.raises(ValueError, match="mu must be a finite number >= 0"):
        make_loss("hinge").smoothed(-0.1)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("logstic", {}, r"loss must be .*'logstic'; did you mean 'logistic'\?"),
        ("zzz", {}, "loss .*Allowed: 'absolute', 'epsilon_insensitive'"),
        (3, {}, "loss must be the name of a loss, not 3"),
        # Parameters are checked also where a loss has none.
        *(("logistic", {"quantile": number}, "quantile must be") for number in (0, 1, math.nan)),
        *(("hinge", {"epsilon": number}, "epsilon must be") for number in (-1e-9, math.inf)),
        *(("squared", {"delta": number}, "delta must be") for number in (0, -1, math.nan, "1")),
    ],
)
def test_wrong_arguments(name, given, message):
    error = TypeError if name == 3 or given == {"delta": "1"} else ValueError
    with pytest.raises(error, match=message):
        make_loss(name, **given)
