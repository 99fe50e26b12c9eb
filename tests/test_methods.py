"""Which rule a wish leads to, what it is bound to, and which wishes are refused."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.methods import METHODS, Wishes, resolve
from accelegrad.rules import Rescaled
from toys import LeastSquares

D = 5
NOTHING = dict.fromkeys(
    [
        "gradient_bound",
        "gradient_scale",
        "initial_radius",
        "epsilon",
        "initial_smoothness",
        "max_trials",
        "smoothness",
        "step_size",
        "decay",
    ]
)


def setting(method="auto", model=None, *, diameter="auto", values=True, **wishes):
    parameters = {**NOTHING, "diameter": diameter}
    return resolve(np.zeros(D), Wishes(method, parameters, **wishes), model, values=values)


def linear_model(**options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, D)) * 10.0 ** np.arange(D)
    return ag.LinearModel(X, rng.choice([-1.0, 1.0], 40), **options)


BOX = ag.Box(np.full(D, -1.0), np.full(D, 2.0))


@pytest.mark.parametrize(
    ("wish", "rule"),
    [
        ({}, ag.DistanceFreeAcceleGrad),
        ({"diameter": 2.0}, ag.AcceleGrad),
        ({"feasible_set": BOX}, ag.DistanceFreeAcceleGrad),
        ({"feasible_set": BOX, "diameter": 2.0}, ag.UniXGrad),
        ({"penalty": ag.L1(1.0)}, ag.DistanceFreeAcceleGrad),
        ({"penalty": ag.L1(1.0), "diameter": 2.0}, ag.UniXGrad),
        ({"feasible_set": ag.WholeSpace(), "diameter": 2.0}, ag.AcceleGrad),
        ({"method": "accelegrad"}, ag.DistanceFreeAcceleGrad),
        ({"method": "adagrad"}, ag.DoG),
        ({"method": "adagrad", "diameter": 2.0}, ag.AdaGrad),
        ({"method": "unixgrad"}, ag.UDoG),
        ({"method": "unixgrad", "diameter": 2.0}, ag.UniXGrad),
        ({"method": "diagonal"}, ag.DistanceFreeDiagonalAcceleGrad),
        ({"method": "diagonal", "diameter": 2.0}, ag.DiagonalAcceleGrad),
        ({"method": "diagonal", "diameter": np.ones(D)}, ag.DiagonalAcceleGrad),
        ({"method": "u-dog"}, ag.UDoG),
        ({"method": "a-dog", "diameter": 2.0}, ag.ADoG),
        ({"method": "dog"}, ag.DoG),
    ],
)
def test_the_rule_that_is_chosen(wish, rule):
    assert type(setting(**wish).rule) is rule


def test_values_decide_about_the_probe():
    assert setting().rule.probe is True
    assert setting(values=False).rule.probe is False
    assert setting(ag.DistanceFreeAcceleGrad(probe=False)).rule.probe is False


def test_what_the_problem_tells_is_a_cap():
    assert setting(feasible_set=BOX).rule.largest_radius == pytest.approx(3 * np.sqrt(D))
    model = linear_model(l2=0.5)
    chosen = setting("accelegrad", model)
    assert chosen.rule.largest_radius == model.distance_bound(np.zeros(D)) < np.inf
    assert setting("accelegrad", linear_model()).rule.largest_radius is None


class TestScale:
    def test_auto_scales_where_nothing_was_said(self):
        assert isinstance(setting(model=linear_model(), scale="auto").rule, Rescaled)
        assert not isinstance(setting(model=linear_model(), scale=None).rule, Rescaled)

    @pytest.mark.parametrize(
        "wish",
        [
            {"method": "accelegrad"},
            {"diameter": 3.0},
            {"feasible_set": BOX},
            {"penalty": ag.L1(0.1)},
        ],
    )
    def test_auto_leaves_named_settings_alone(self, wish):
        chosen = setting(model=linear_model(), scale="auto", **wish)
        assert not isinstance(chosen.rule, Rescaled)

    def test_columns_scales_any_method(self):
        for method in ("accelegrad", "dog", "u-dog", "adagrad"):
            assert isinstance(setting(method, linear_model(), scale="columns").rule, Rescaled)

    @pytest.mark.parametrize("intercept", [False, True])
    def test_the_result_is_in_the_users_coordinates(self, intercept):
        model = linear_model(l2=0.01, fit_intercept=intercept)
        scaled = ag.minimize(model, tol=1e-9, max_iter=5000)
        assert scaled.success
        assert scaled.fun == pytest.approx(model.value(scaled.x), rel=1e-14)
        assert model.dual_gap(scaled.x) <= 1e-6
        plain = ag.minimize(model, scale=None, max_iter=300)
        assert plain.fun > scaled.fun + 1e-6  # columns from 1 to 1e4: hopeless without

    def test_own_factors(self):
        model = linear_model(l2=0.01)
        result = ag.minimize(model, scale=10.0 ** -np.arange(D), tol=1e-8, max_iter=5000)
        assert result.success

    def test_checkpoints_tell_scalings_apart(self, tmp_path):
        model = linear_model(l2=0.01)
        own = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        options = {"max_iter": 5, "checkpoint": tmp_path / "run"}
        ag.minimize(model, scale=own, **options)
        with pytest.raises(ag.CheckpointError, match="scale"):
            ag.minimize(model, scale=own[[0, 2, 1, 3, 4]], max_iter=9, resume=tmp_path / "run")

    def test_resuming_is_bit_for_bit(self, tmp_path):
        model = linear_model(l2=0.01, fit_intercept=True)
        whole = ag.minimize(model, max_iter=60)
        ag.minimize(model, max_iter=25, checkpoint=tmp_path / "run")
        resumed = ag.minimize(model, max_iter=60, resume=tmp_path / "run")
        np.testing.assert_array_equal(resumed.x, whole.x)
        assert resumed.lower_bound == whole.lower_bound

    @pytest.mark.parametrize("batch_size", [1, 8])
    def test_minibatches(self, batch_size):
        rng = np.random.default_rng(1)
        X = rng.standard_normal((200, D))
        y = np.sign(X @ np.ones(D) + rng.standard_normal(200))
        model = ag.LinearModel(X * 10.0 ** np.arange(D), y, l2=1e-4)
        exact = ag.minimize(model, tol=1e-9, max_iter=5000)
        result = ag.minimize(model, batch_size=batch_size, rng=0, max_iter=20 * 200 // batch_size)
        start = model.value(np.zeros(D))
        assert result.fun - exact.fun <= 0.02 * (start - exact.fun)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"scale": "rows"}, r"scale is 'rows'.*'columns'"),
        ({"scale": np.ones(3)}, "one entry a column, 5, but it has 3"),
        ({"scale": np.zeros(D)}, "scale must be > 0"),
        ({"scale": "columns", "feasible_set": BOX}, "scale and feasible_set cannot"),
        ({"scale": "columns", "penalty": ag.L1(0.1)}, "scale and penalty cannot"),
    ],
)
def test_bad_scales(wish, message):
    with pytest.raises(ValueError, match=message):
        setting(model=linear_model(), **wish)


def test_scale_needs_a_model():
    with pytest.raises(ValueError, match="scale needs a LinearModel"):
        ag.minimize(LeastSquares.random(20, D, 0), np.zeros(D), scale="columns")


@pytest.mark.parametrize(
    ("wish", "error", "message"),
    [
        ({"gradient_bound": 1.0}, ValueError, "gradient_bound.*goes with a diameter"),
        ({"method": "unixgrad", "gradient_scale": 1.0}, ValueError, "gradient_scale.*diameter"),
        ({"method": "u-dog", "epsilon": 0.1}, ValueError, "epsilon is not a parameter"),
        ({"method": "dog", "initial_radius": -1.0}, ValueError, "initial_radius must be"),
        ({"diameter": 2.0, "initial_radius": 1.0}, ValueError, "initial_radius is not a param"),
        ({"method": "diagonal", "feasible_set": ag.Simplex()}, ValueError, "only a Box"),
        ({"method": "diagonal", "diameter": np.ones(3)}, ValueError, "diameter"),
        (
            {"method": "universal", "epsilon": 0.1, "penalty": ag.L1(1.0)},
            ValueError,
            "penalty cannot be used with UniversalGradient.*'accelegrad', 'unixgrad', 'u-dog'",
        ),
        (
            {"feasible_set": ag.Ball(np.zeros(D), 1.0), "penalty": ag.L1(1.0)},
            ValueError,
            "penalty.*feasible_set.*cannot be used together",
        ),
        ({"penalty": 3}, TypeError, "penalty must be"),
        ({"restart": "often"}, ValueError, "restart is 'often'"),
    ],
)
def test_wishes_that_cannot_be_met(wish, error, message):
    start = ag.Simplex().project(np.zeros(D)) if "feasible_set" in wish else np.zeros(D)
    with pytest.raises(error, match=message):
        ag.minimize(LeastSquares.random(20, D, 0), start, max_iter=3, **wish)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].automatic])
def test_every_method_that_can_do_without_a_diameter_does(method):
    problem = LeastSquares.random(40, D, 3)
    result = ag.minimize(problem, np.zeros(D), method=method, max_iter=2000)
    start, minimum = problem.value(np.zeros(D)), problem.value(problem.minimiser)
    assert result.fun - minimum <= 1e-4 * (start - minimum)
    assert -1e-14 <= result.fun - minimum <= result.gap + 1e-14
    assert result.certified_radius >= np.linalg.norm(problem.minimiser)


def test_widths_of_a_diagonal_rule_make_a_box():
    problem = LeastSquares.random(40, D, 4)
    widths = 4 * np.abs(problem.minimiser) + 0.1
    result = ag.minimize(
        problem, np.zeros(D), method="diagonal", diameter=widths, tol=1e-6, max_iter=5000
    )
    assert result.success
    assert result.certified_radius == pytest.approx(np.linalg.norm(widths) / 2)
