"""Which rule a wish leads to, what it is bound to, and which wishes are refused."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.catalogue import METHODS
from accelegrad.choose import Request, checked_space, resolve
from accelegrad.rules import Rescaled
from toys import LeastSquares

D = 5


def setting(method="auto", model=None, *, diameter="auto", values=True, **wishes):
    chosen, penalty = wishes.pop("feasible_set", None), wishes.pop("penalty", None)
    space = checked_space(np.zeros(D), chosen, penalty, model)
    given = {"parameters": {"diameter": diameter}, "scale": None, "exact_values": values}
    return resolve(Request(model, space, method, **(given | wishes)))


def linear_model(**options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, D)) * 10.0 ** np.arange(D)
    return ag.LinearModel(X, rng.choice([-1.0, 1.0], 40), **options)


BOX = ag.Box(np.full(D, -1.0), np.full(D, 2.0))


@pytest.mark.parametrize(
    ("wish", "rule"),
    [
        ({}, ag.Bundle),
        ({"restart": "adaptive"}, ag.DistanceFreeAcceleGrad),
        ({"diameter": 2.0}, ag.AcceleGrad),
        ({"feasible_set": BOX}, ag.Bundle),
        ({"feasible_set": BOX, "diameter": 2.0}, ag.UniXGrad),
        ({"penalty": ag.L1(1.0)}, ag.Bundle),
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
    assert setting("accelegrad").rule.probe is True
    assert setting("accelegrad", values=False).rule.probe is False
    assert setting(ag.DistanceFreeAcceleGrad(probe=False)).rule.probe is False


def test_what_the_problem_tells_is_a_cap():
    chosen = setting("accelegrad", feasible_set=BOX)
    assert chosen.rule.largest_radius == pytest.approx(3 * np.sqrt(D))
    model = linear_model(l2=0.5)
    chosen = setting("accelegrad", model)
    assert chosen.rule.largest_radius == model.distance_bound(np.zeros(D)) < np.inf
    assert setting("accelegrad", linear_model()).rule.largest_radius is None


@pytest.mark.parametrize(
    ("method", "wish", "scaled"),
    [
        # "auto" scales where nothing was said,
        ("auto", {"minibatches": True, "scale": "auto"}, True),
        ("auto", {"restart": "adaptive", "scale": "auto"}, True),
        ("auto", {"minibatches": True, "scale": None}, False),
        ("auto", {"restart": "adaptive", "scale": None}, False),
        # and leaves named settings alone;
        ("accelegrad", {"scale": "auto"}, False),
        ("auto", {"diameter": 3.0, "scale": "auto"}, False),
        ("auto", {"feasible_set": BOX, "scale": "auto"}, False),
        ("auto", {"penalty": ag.L1(0.1), "scale": "auto"}, False),
        # "columns" scales any method.
        *((m, {"scale": "columns"}, True) for m in ("accelegrad", "dog", "u-dog", "adagrad")),
    ],
)
def test_which_settings_scale(method, wish, scaled):
    assert isinstance(setting(method, linear_model(), **wish).rule, Rescaled) is scaled


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


class TestWhatAModelProves:
    """What a model tells about the distance to its minimiser holds for the problem at hand."""

    RIGHT = ag.Box([1.0, -np.inf], [np.inf, np.inf])

    @pytest.mark.parametrize(
        ("feasible_set", "penalty"),
        [(RIGHT, None), (RIGHT, ag.L1(0.01)), (ag.Halfspace(np.array([-1.0, 0.0]), -1.0), None)],
    )
    def test_zero_need_not_be_feasible(self, feasible_set, penalty):
        model = ag.LinearModel(np.array([[10.0, 0.1]]), np.zeros(1), loss="squared", l2=0.01)
        start = np.array([1.0, 0.0])
        result = ag.minimize(
            model, start, feasible_set=feasible_set, penalty=penalty, max_iter=20_000, tol=1e-6
        )
        # x_1 = 1 on the boundary; a quadratic in x_2 is left: 10 + 0.1 x_2 and the l2 term.
        x2 = np.linspace(-40, 0, 400_001)
        values = 0.5 * (10 + 0.1 * x2) ** 2 + 0.005 * (1 + x2**2)
        values += 0 if penalty is None else 0.01 * (1 + np.abs(x2))
        assert result.lower_bound <= values.min() + 1e-9
        assert result.fun <= values.min() * (1 + 1e-5)
        assert result.success

    def test_a_penalty_may_be_negative(self):
        class Linear:
            def value(self, x):
                return float(-3.0 * x.sum())

            def prox(self, x, step):
                return x + 3.0 * step

        model = linear_model(l2=1.0)
        result = ag.minimize(model, penalty=Linear(), max_iter=5000)

        def whole(x):
            return model.value(x) - 3.0 * float(x.sum()), model.gradient(x) - 3.0

        reference = ag.minimize(whole, np.zeros(D), max_iter=200)
        assert result.lower_bound <= reference.fun + 1e-9


def test_a_callback_always_gets_bound_and_gap():
    found = []

    def callback(intermediate_result):
        one = intermediate_result
        found.append((one.lower_bound, one.gap, one.certified_radius))

    ag.minimize(linear_model(), batch_size=4, rng=0, max_iter=3, callback=callback)
    assert found == [(-np.inf, np.inf, 0.0)] * 3


def test_automatic_restarts_leave_noisy_runs_alone():
    result = ag.minimize(linear_model(), batch_size=4, rng=0, max_iter=50, restart="auto")
    assert result.n_restarts == 0
