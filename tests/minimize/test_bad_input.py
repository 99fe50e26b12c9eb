"""Bad input gets an exception at once that names the argument and what is allowed."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint

import accelegrad as ag


def quadratic(x):
    return x @ x, 2 * x


def value_only(x):
    return x @ x


def model(loss="logistic", l2=0.1, d=3, n=40):
    rng = np.random.default_rng(0)
    return ag.LinearModel(rng.standard_normal((n, d)), np.sign(rng.standard_normal(n)), loss, l2=l2)


def of_rows(method, loss="logistic", l2=0.1, **given):
    return dict(fun=model(loss, l2), method=method, diameter="auto", **given)


def restarted(fun=None, **given):
    return dict(fun=fun or model(), restart="adaptive", **{"diameter": "auto", **given})


def penalised(penalty, **given):
    start = np.full(6, 1 / 6)
    return dict(fun=model("squared", 0.0, 6), x0=start, penalty=penalty, diameter="auto", **given)


class ShortProx:
    """A user's penalty whose prox loses an entry."""

    def value(self, x):
        return 0.0

    def prox(self, x, step):
        return x[:-1]


MODEL = ag.LinearModel(np.eye(3), np.array([1.0, -1.0, 1.0]))
PAIRS = [[0, 1], [2, 3], [4, 5]]
TERMS = "l1 and elastic net terms and boxes"
ABLE = r"penalty cannot be used with .* Methods that can: 'accelegrad', 'unixgrad', 'bundle', 'u-dog'\."
WITHOUT_PROX = {
    **{name: {"diameter": "auto"} for name in ("adagrad", "dog", "a-dog")},
    "universal-fast": {"epsilon": 1e-3},
    "subgradient": {"step_size": 0.1},
    "linear-coupling": {"smoothness": 1.0},
}
RANGE = r"(diameter|initial_radius) must be between 1e-100 and 1e\+100, but it is"

# fmt: off
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
    (dict(feasible_set=ag.Ball(np.zeros(3), 0.5)), ValueError, r"x0 must lie in feasible_set.*1\.23 away"),
    (dict(feasible_set=ag.Ball(np.zeros(2), 5.0)), ValueError, r"feasible_set.*dimension 2.*3"),
    (dict(feasible_set=3.0), TypeError, r"feasible_set must be.*project"),
    (dict(gradient_bound=-1.0), ValueError, r"gradient_bound must be"),
    (dict(fun=value_only), TypeError, r"fun must return the pair.*jac=True"),
    (dict(fun=lambda x: (1.0, x, x)), TypeError, r"fun must return the pair.*length 3"),
    (dict(fun=lambda x: (1.0, x[:-1])), ValueError, r"gradient must have x0's shape \(3,\).*\(2,\)"),
    (dict(fun=lambda x: (1.0, x + 0j)), TypeError, r"gradient must be an array of real numbers.*complex"),
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
    (dict(method="universal", epsilon=1e-3, tol=1e-3, diameter=None), ValueError, r"tol stops on the certified gap"),
    (dict(time_limit=0), ValueError, r"time_limit must be"),
    (dict(output="mean"), ValueError, r"output is 'mean'.*'average'"),
    (dict(output="best", exact=False), ValueError, r"output='best' needs exact values"),
    (dict(fun=None, jac=lambda x: 2 * x, method="universal", epsilon=1e-3, diameter=None), ValueError, r"fun is None.*needs values"),
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
    (dict(fun=lambda x: (0.0, np.zeros(4)), x0=np.zeros((2, 2))), ValueError, r"gradient must have x0's shape \(2, 2\).*\(4,\)"),
    (dict(target="low"), TypeError, "target must be a finite number"),
    (dict(rtol=0.0), ValueError, "rtol"),
    (dict(max_iter=1.5), TypeError, "max_iter"),
    (dict(accuracy=-1.0), ValueError, "accuracy must be"),
    (dict(fun=MODEL, accuracy=1e-6), ValueError, "accuracy is for a function"),
    (dict(exact=False, accuracy=1e-6), ValueError, "accuracy is for a function"),
    # options of single methods
    (dict(options={"epsilom": 1.0}), TypeError, "options has no 'epsilom': did you mean 'epsilon'"),
    (dict(options={3: 1.0}), TypeError, "options has no 3: Allowed: 'bundle_size'"),
    (dict(options={"max_iter": 3}), TypeError, "max_iter belongs to no method: give it as max_iter="),
    (dict(options={"epsilon": 1.0}, epsilon=1.0), TypeError, "epsilon is given twice"),
    (dict(options=["epsilon"]), TypeError, "options must be a mapping"),
    (dict(epsilom=1.0), TypeError, "minimize has no option 'epsilom': did you mean 'epsilon'"),
    # words of other libraries
    (dict(maxiter=5), TypeError, "no option 'maxiter'.*give max_iter"),
    (dict(ftol=1e-9), TypeError, "no option 'ftol'.*give rtol.*certified gap"),
    (dict(options={"ftol": 1e-9}), TypeError, "options has no 'ftol'.*give rtol"),
    (dict(solver="SCS"), TypeError, "no option 'solver'.*give method"),
    (dict(hess=None), TypeError, "no option 'hess'.*leave it out"),
    (dict(method="L-BFGS-B"), ValueError, "'L-BFGS-B'.*'auto'.*one that fits is chosen"),
    (dict(jac="2-point"), TypeError, "'jax' or 'torch', not '2-point'"),
    # sets and penalties
    (dict(bounds=[(0, 1)] * 2), ValueError, "one pair per entry of x0, 3, not 2"),
    (dict(bounds=Bounds(np.zeros(2), 1)), ValueError, r"bounds must fit x0's shape \(3,\)"),
    (dict(bounds=[(1, 0)] * 3), ValueError, "bounds: lower must be <= upper"),
    (dict(bounds=3.0), TypeError, r"bounds must be scipy.optimize.Bounds"),
    (dict(bounds=[(0, 1)] * 3, feasible_set="simplex"), ValueError, "bounds and feasible_set"),
    (dict(constraints={"type": "eq", "fun": sum}), TypeError, "LinearConstraint.*feasible_set"),
    (dict(constraints=LinearConstraint(np.eye(4), 0, 1)), ValueError, "column per entry of x0, 3"),
    (dict(constraints=LinearConstraint(np.ones((2, 3)), [0, 2], [1, 3])), ValueError, "no point meets all the constraints"),
    (dict(feasible_set="simplx"), ValueError, "did you mean 'simplex'"),
    (dict(penalty="l3"), ValueError, "penalty must be a penalty or a name.*L1"),
    (penalised(ag.L1(0.1), feasible_set=ag.Simplex()), ValueError, "cannot be used together"),
    (penalised(ag.GroupL2(0.1, PAIRS), feasible_set=ag.NonNegative()), ValueError, "together"),
    (penalised(ag.L1(np.ones(5))), ValueError, "dimension 5, but the points have 6"),
    (penalised(ag.NuclearNorm(0.1, (2, 2))), ValueError, "dimension 4, but the points have 6"),
    (penalised(ag.GroupL2(0.1, [[0, 9]])), ValueError, "index 9"),
    (penalised(ag.L1), TypeError, "call the class first"),
    (penalised(0.1), TypeError, r"value\(x\) and prox\(x, step\), not 0.1"),
    (penalised(ag.GroupL2(0.1, PAIRS), scale="columns"), ValueError, "scale and penalty .*cannot be used together"),
    (penalised(ag.ElasticNet(0.1, 0.1), scale="columns"), ValueError, "scale and penalty .*cannot be used together"),
    (penalised(ShortProx()), ValueError, r"penalty.prox must return an array of shape \(6,\)"),
    *((dict(fun=MODEL, penalty=ag.L1(0.1), method=name, **given), ValueError, ABLE) for name, given in WITHOUT_PROX.items()),
    (dict(method="bundle", bundle_size=3), ValueError, "bundle_size must be a whole number >= 4"),
    (dict(method="bundle", bundle_size=4.5), TypeError, "bundle_size must be a whole number >= 4"),
    (dict(method="bundle", initial_radius=0.0), ValueError, "initial_radius must be"),
    (dict(method="bundle", initial_radius=np.nan), ValueError, "initial_radius must be"),
    # methods for sums over rows
    (dict(method="accelegrad-newton"), ValueError, "needs a LinearModel"),
    (of_rows("accelegrad-newton", batch_size=2), ValueError, "batch_size"),
    (of_rows("accelegrad-newton", restart="adaptive"), ValueError, "needs none"),
    (of_rows("accelegrad-newton", x0=np.zeros(3), feasible_set=ag.Box(0, 1)), ValueError, "feasible_set"),
    (of_rows("accelegrad-newton", penalty=ag.L1(1.0)), ValueError, "penalty"),
    (of_rows("accelegrad-newton", scale="columns"), ValueError, "scale cannot be used"),
    (dict(fun=model("hinge", 0.0, n=2), method="accelegrad-newton", diameter="auto"), ValueError, "l2 > 0, or few columns"),
    (of_rows("dual-ascent", l2=0.0), ValueError, "l2 > 0"),
    (of_rows("dual-ascent", initial_radius=1.0), ValueError, "initial_radius"),
    (of_rows("interior-point"), ValueError, "one kink .*the loss is 'logistic'"),
    (of_rows("interior-point", "hinge", 0.0), ValueError, "an l1 or l2 term; .*l2 0.0"),
    (of_rows("interior-point", "hinge", feasible_set=ag.Box(0, 1)), ValueError, "no constraint.*feasible_set Box"),
    (of_rows("proximal-newton", x0=np.zeros(3), feasible_set=ag.Ball(0.0, 1.0)), ValueError, TERMS),
    (of_rows("proximal-newton", penalty=ag.GroupL2(0.1, [0, 0, 1])), ValueError, TERMS),
    (of_rows("proximal-newton", l2=0.0, feasible_set=ag.NonNegative()), ValueError, "each weight has to have"),
    # scales and diameters
    (dict(fun=MODEL, scale="rows"), ValueError, "scale is 'rows'.*'columns'"),
    (dict(fun=MODEL, scale=np.ones(2)), ValueError, "one entry per column, 3, but it has 2"),
    (dict(fun=MODEL, scale=np.zeros(3)), ValueError, "scale must be > 0"),
    (dict(fun=MODEL, x0=np.zeros(3), scale="columns", feasible_set=ag.L1Ball(1.0)), ValueError, r"scale and feasible_set L1Ball\(.* cannot"),
    (dict(scale="columns"), ValueError, "scale needs a LinearModel"),
    (dict(gradient_bound=1.0, diameter="auto"), ValueError, "gradient_bound.*goes with a diameter"),
    (dict(method="unixgrad", gradient_scale=1.0, diameter="auto"), ValueError, "gradient_scale.*diameter"),
    *((dict(diameter=size), ValueError, RANGE) for size in (1e-200, 1e200, 1e300)),
    *((dict(initial_radius=size, diameter="auto"), ValueError, RANGE) for size in (1e-200, 1e300)),
    (dict(initial_radius=1.0), ValueError, "initial_radius is not a param"),
    (dict(method="diagonal", x0=np.full(3, 1 / 3), feasible_set=ag.Simplex()), ValueError, "only a Box"),
    (dict(method="diagonal", diameter=np.ones(2)), ValueError, "diameter"),
    # restarts
    (restarted() | {"restart": "sometimes"}, ValueError, "restart is 'sometimes'"),
    (restarted(diameter=5.0, method="accelegrad"), ValueError, "as with diameter='auto'; AcceleGrad"),
    (restarted(method="universal-fast", epsilon=1e-3), ValueError, "universal fast gradient has none"),
    (restarted(batch_size=5), ValueError, "values, which have to be exact"),
    (restarted(quadratic, exact=False), ValueError, "values, which have to be exact"),
]
# fmt: on


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
