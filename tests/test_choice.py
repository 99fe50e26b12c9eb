"""Which method "auto" takes, and that it says why."""

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.problems.scaling import unevenness
from accelegrad.rules.variance_reduced import VarianceReducedAcceleGrad


def model(loss="logistic", rows=600, l2=1e-2, **options):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(rows, 5))
    y = np.where(X @ rng.normal(size=5) + rng.normal(size=rows) > 0, 1.0, -1.0)
    return ag.LinearModel(X, y, loss=loss, l2=l2, **options)


def chosen(problem, **options):
    result = ag.minimize(problem, max_iter=2, rng=0, **options)
    return result.method, result.reason


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared", "huber"])
def test_a_smooth_sum_over_rows_gets_the_method_for_sums(loss):
    method, reason = chosen(model(loss))
    assert method == "accelegrad-vr"
    assert f"the {loss} loss is smooth" in reason


OTHERS = {
    "few rows": (dict(rows=100), {}, "accelegrad", "100 rows are too few"),
    "no l2 term": (dict(l2=0.0), {}, "accelegrad", "without an l2 term"),
    "minibatches": ({}, dict(batch_size=4), "accelegrad", "batch_size asks for"),
    "a diameter": ({}, dict(diameter=3.0), "accelegrad", "a diameter is given"),
    "a radius": ({}, dict(initial_radius=0.1), "accelegrad", "other options"),
    "restarts": ({}, dict(restart="adaptive"), "accelegrad", "other options"),
    "scaling": ({}, dict(scale="columns"), "accelegrad", "scaled coordinates"),
    "a set": ({}, dict(feasible_set=ag.NonNegative()), "accelegrad", "a constraint or a penalty"),
    "a penalty": ({}, dict(penalty=ag.L1(0.1)), "accelegrad", "a constraint or a penalty"),
    "a set and a diameter": (
        {},
        dict(feasible_set=ag.NonNegative(), diameter=3.0),
        "unixgrad",
        "a diameter is given",
    ),
    "by name": ({}, dict(method="adagrad"), "adagrad", "it was asked for"),
    "a rule": ({}, dict(method=ag.AdaGrad(diameter=2.0)), "AdaGrad", "a rule object was given"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_everything_else_gets_another_method_with_the_reason(case):
    problem, options, method, reason = OTHERS[case]
    found, why = chosen(model(**problem), **options)
    assert found == method
    assert reason in why


def test_columns_of_very_different_size_are_scaled():
    problem = model()
    uneven = problem.X * np.geomspace(1, 1e4, 5)
    raw = ag.LinearModel(uneven, problem.y, loss="logistic", l2=1e-6)
    method, reason = chosen(raw)
    assert method == "accelegrad"
    assert "columns differ in size by a factor of" in reason
    assert chosen(raw, scale=None)[0] == "accelegrad-vr"
    result = ag.minimize(raw, rtol=1e-6, max_iter=3000)
    assert result.success


def test_rare_columns_are_not_small_ones():
    X = sp.random(600, 200, density=0.01, format="csr", rng=np.random.default_rng(1))
    X.data[:] = 1.0
    y = np.where(np.arange(600) % 2, 1.0, -1.0)
    assert unevenness(ag.LinearModel(X, y, loss="hinge")) == pytest.approx(1.0)
    dense = ag.LinearModel(X.toarray(), y, loss="hinge")
    assert unevenness(dense) > 1.5
    X.data *= 1.0 + 9.0 * (X.indices == X.indices.max())
    assert unevenness(ag.LinearModel(X, y, loss="hinge")) == pytest.approx(10.0)
    empty = ag.LinearModel(sp.csr_matrix((600, 3)), y, loss="hinge")
    assert unevenness(empty) == 1.0


def test_a_function_gets_accelegrad():
    result = ag.minimize(lambda x: (float(x @ x), 2 * x), np.ones(3), max_iter=3)
    assert result.method == "accelegrad"
    assert result.reason


def test_the_default_proves_its_accuracy():
    problem = model(rows=2000, l2=1e-3)
    result = ag.minimize(problem, rtol=1e-8)
    assert result.method == "accelegrad-vr"
    assert result.success
    assert result.gap <= 1e-8 * result.fun
    exact = ag.minimize(problem, method="accelegrad", max_iter=20_000, rtol=1e-10).fun
    assert result.fun - result.gap <= exact
    assert result.fun == pytest.approx(exact, rel=2e-8)


def test_named_by_rule_and_by_name_is_the_same():
    problem = model()
    by_name, by_rule = (
        ag.minimize(problem, method=method, max_iter=5, rng=1)
        for method in ("accelegrad-vr", VarianceReducedAcceleGrad())
    )
    np.testing.assert_array_equal(by_name.x, by_rule.x)


REFUSED = {
    "a function": (
        lambda x: (float(x @ x), 2 * x),
        dict(x0=np.ones(2), method="accelegrad-vr"),
        "needs a LinearModel",
    ),
    "minibatches": (model(), dict(batch_size=2, method="accelegrad-vr"), "batch_size"),
    "restarts": (model(), dict(restart="adaptive", method="accelegrad-vr"), "restarts itself"),
    "a set": (model(), dict(feasible_set=ag.Box(0, 1), method="accelegrad-vr"), "feasible_set"),
    "a penalty": (model(), dict(penalty=ag.L1(1.0), method="accelegrad-vr"), "penalty"),
    "scaling": (model(), dict(scale="columns", method="accelegrad-vr"), "scale cannot be used"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_method_for_sums_cannot_do_is_refused(case):
    problem, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        ag.minimize(problem, **options)


def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path):
    file = tmp_path / "run.agc"
    problem = model(rows=3000)
    whole = ag.minimize(problem, max_iter=12, rng=4)
    ag.minimize(problem, max_iter=5, rng=4, checkpoint=file)
    resumed = ag.minimize(problem, max_iter=12, rng=99, resume=file)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.fun == whole.fun
    assert resumed.gap == whole.gap
