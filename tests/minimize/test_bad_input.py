"""Bad input gets an exception at once that names the argument and what is allowed."""

import numpy as np
import pytest

import accelegrad as ag


def quadratic(x):
    return x @ x, 2 * x


def value_only(x):
    return x @ x


MODEL = ag.LinearModel(np.eye(3), np.array([1.0, -1.0, 1.0]))

CASES = [
    (dict(fun=MODEL, x0=np.ones((3, 1))), ValueError, r"x0 must be one-dimensional.*\(3, 1\)"),
    (dict(x0=[]), ValueError, r"x0 must have at least one entry"),
    (dict(x0=[1.0, np.nan]), ValueError, r"x0 must be finite, but x0\[1\] is nan"),
    (dict(x0=[1j, 1]), TypeError, r"x0 must be real.*complex"),
    (dict(x0=None), TypeError, r"x0 is missing"),
    (dict(fun=MODEL, x0=np.ones(5)), ValueError, r"x0 must have the model's 3 parameters.*5"),
    (dict(diameter=0), ValueError, r"diameter must be a finite number > 0, but it is 0"),
    (dict(diameter=np.nan), ValueError, r"diameter must be.*nan"),
    (dict(diameter="large"), ValueError, r"diameter must be.*'large'"),
    (dict(diameter=np.ones(2)), TypeError, r"diameter must be"),
    (
        dict(feasible_set=ag.Ball(np.zeros(3), 0.5)),
        ValueError,
        r"x0 must lie in feasible_set.*1\.23 away",
    ),
    (dict(feasible_set=ag.Ball(np.zeros(2), 5.0)), ValueError, r"feasible_set.*dimension 2.*3"),
    (dict(feasible_set=3.0), TypeError, r"feasible_set must be.*project"),
    (dict(gradient_bound=-1.0), ValueError, r"gradient_bound must be"),
    (dict(fun=value_only), TypeError, r"fun must return the pair.*jac=True"),
    (dict(fun=lambda x: (1.0, x, x)), TypeError, r"fun must return the pair.*length 3"),
    (
        dict(fun=lambda x: (1.0, x[:-1])),
        ValueError,
        r"gradient must have x0's shape \(3,\).*\(2,\)",
    ),
    (
        dict(fun=lambda x: (1.0, x + 0j)),
        TypeError,
        r"gradient must be an array of real numbers.*complex",
    ),
    (dict(fun=lambda x: (1.0, None)), TypeError, r"gradient must be an array of real numbers"),
    (dict(fun=lambda x: (1j, x)), TypeError, r"fun's value must be one real number"),
    (dict(fun=lambda x: (x, x)), TypeError, r"fun's value must be one real number.*shape \(3,\)"),
    (dict(fun=value_only, jac=lambda x: x[:-1]), ValueError, r"jac's gradient must have"),
    (dict(fun=3), TypeError, r"fun must be a function"),
    (dict(fun=None), TypeError, r"jac must be a function"),
    (dict(fun=MODEL, jac=lambda x: x), TypeError, r"jac must be left out"),
    (dict(method="acelegrad"), ValueError, r"method is 'acelegrad': did you mean 'accelegrad'\?"),
    (dict(method="newton"), ValueError, r"method is 'newton'.*Allowed: .*'accelegrad'"),
    (dict(method=3), TypeError, r"method must be a name or a rule object"),
    (dict(max_iters=3), TypeError, r"no option 'max_iters': did you mean 'max_iter'\?"),
    (dict(depth=3), TypeError, r"no option 'depth'.*Allowed: "),
    (dict(method="universal"), ValueError, r"epsilon is needed by method 'universal'"),
    (dict(method="universal", epsilon=0.0), ValueError, r"epsilon must be a finite number > 0"),
    (dict(method="universal", epsilon=1.0, max_trials=0), ValueError, r"max_trials must be"),
    (dict(epsilon=1e-3), ValueError, r"epsilon is not a parameter of method 'accelegrad'"),
    (dict(method="linear-coupling"), ValueError, r"smoothness is needed"),
    (dict(method="subgradient"), ValueError, r"step_size is needed"),
    (dict(method="subgradient", step_size=1.0, decay="squared"), ValueError, r"decay is 'squared'"),
    (dict(method=ag.AcceleGrad(3.0)), ValueError, r"diameter belongs to the rule object"),
    (dict(max_iter=0), ValueError, r"max_iter must be a whole number >= 1"),
    (dict(tol=-1.0), ValueError, r"tol must be a finite number > 0"),
    (dict(tol=1e-3, exact=False), ValueError, r"tol stops on the certified gap"),
    (
        dict(method="universal", epsilon=1e-3, tol=1e-3, diameter=None),
        ValueError,
        r"tol stops on the certified gap",
    ),
    (dict(time_limit=0), ValueError, r"time_limit must be"),
    (dict(output="mean"), ValueError, r"output is 'mean'.*'average'"),
    (dict(output="best", exact=False), ValueError, r"output='best' needs exact values"),
    (
        dict(fun=None, jac=lambda x: 2 * x, method="universal", epsilon=1e-3, diameter=None),
        ValueError,
        r"fun is None.*needs values",
    ),
    (dict(batch_size=3), ValueError, r"batch_size needs a LinearModel"),
    (dict(fun=MODEL, batch_size=4), ValueError, r"batch_size must be"),
    (dict(fun=MODEL, batch_size=1, rng="seed"), TypeError, r"rng must be a Generator"),
    (dict(callback=3), TypeError, r"callback must be a function"),
    (dict(callback_at=[1.5]), TypeError, r"callback_at must hold iterations"),
    (dict(callback_at=[0]), ValueError, r"callback_at must be a whole number >= 1"),
    (dict(args=3), TypeError, r"args must be a tuple"),
    (dict(checkpoint="/no/such/folder/file"), FileNotFoundError, r"checkpoint=.*no folder"),
    (dict(resume="/no/such/file"), FileNotFoundError, r"resume=.*no such file"),
    (dict(method="adagrad", project_y=True), ValueError, r"project_y is not a parameter"),
]


@pytest.mark.parametrize(("given", "error", "message"), CASES)
def test_error_names_the_argument(given, error, message):
    arguments = {"fun": quadratic, "x0": np.ones(3), "diameter": 4.0, "max_iter": 5, **given}
    with pytest.raises(error, match=message):
        ag.minimize(arguments.pop("fun"), arguments.pop("x0"), **arguments)


def test_an_error_of_the_users_function_is_not_hidden():
    def broken(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        ag.minimize(broken, np.ones(3), diameter=1.0)


def test_the_users_function_keeps_its_own_floating_point_warnings():
    def overflowing(x):
        return float(np.exp(x * 1000).sum()), np.ones_like(x)

    with pytest.raises(RuntimeWarning, match="overflow"):
        ag.minimize(overflowing, np.ones(3), diameter=1.0)
