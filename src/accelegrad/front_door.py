"""`minimize`, with SciPy's conventions: check the arguments and set up the run."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad import kernels
from accelegrad.bundle.cut_memory import CutMemory, default_size
from accelegrad.catalogue import METHODS, MethodOptions
from accelegrad.choose import Request, Setting, checked_space, resolve
from accelegrad.errors import Vector, finite_vector, nearest, real_number, whole_number
from accelegrad.linalg import norm
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.sampling import BatchSampler
from accelegrad.proofs.bracket import Bracket
from accelegrad.proofs.cuts import CutCertificate
from accelegrad.proofs.model_dual import DualCertificate
from accelegrad.rules import Rule
from accelegrad.run.checkpoint import run_kind
from accelegrad.run.checks import NEAR
from accelegrad.run.compiled import CompiledRule, compiled_twin
from accelegrad.run.loop import Restarts, Run
from accelegrad.run.oracle import QUIET, FunctionOracle, MinibatchOracle, ModelOracle, Oracle
from accelegrad.run.result import OUTPUTS, Options, Progress, Status
from accelegrad.scipy_words import Limits, hint, limits_of
from accelegrad.solvers.curvature import Goal
from accelegrad.solvers.portfolio import Portfolio
from accelegrad.solvers.row_oracle import RowRule, no_goal

#: Entries of the result that have x0's shape.
SHAPED = ("x", "jac", "x_average", "x_last", "x_best")


def minimize(
    fun: Callable[..., Any] | LinearModel | None,
    x0: Any = None,
    *,
    # problem
    args: tuple[Any, ...] = (),
    jac: bool | str | Callable[..., Any] = True,
    bounds: Any = None,
    constraints: Any = (),
    feasible_set: Any = None,
    penalty: Any = None,
    exact: bool = True,
    accuracy: float = 0.0,
    batch_size: int | None = None,
    replacement: bool = False,
    rng: Any = None,
    # method
    method: str | Rule = "auto",
    diameter: float | str | None = "auto",
    scale: Any = "auto",
    restart: str | None = None,
    options: Mapping[str, Any] | None = None,
    # stopping
    max_iter: int = 1000,
    tol: float | None = None,
    rtol: float | None = None,
    time_limit: float | None = None,
    target: float | None = None,
    # output
    output: str = "auto",
    trace: bool = False,
    # observation
    callback: Callable[..., Any] | None = None,
    callback_at: Iterable[int] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    resume: str | os.PathLike[str] | None = None,
    **more: Unpack[MethodOptions],
) -> OptimizeResult:
    r"""Minimise a convex function from its (sub)gradients.

    Problem
    -------
    fun : callable, LinearModel or None
        ``fun(x, *args)`` returns ``(value, gradient)`` if ``jac=True``, and only the value if `jac`
        is a function. Any subgradient will do. A `LinearModel` has its own gradient. None with a
        `jac` function: only gradients are known, so nothing is certified.
    x0 : array or number
        The start. `fun` and `jac` get points of its shape, and gradients have this shape too; sets,
        penalties and constraints get flat points. The default for a LinearModel is zero.
    args : tuple
        Further arguments of `fun` and `jac`.
    jac : True, callable, "jax" or "torch"
        True, or a function ``jac(x, *args)`` that returns the gradient. With "jax" or "torch",
        ``fun(x, *args)`` returns a value computed by that library, which differentiates it in
        float64.
    bounds : scipy.optimize.Bounds, or a pair (min, max) per entry of x0
        Bounds of the coordinates; None or infinity where there is none.
    constraints : scipy.optimize.LinearConstraint, one or several
        Linear equations and inequalities. Together with `bounds` they define a feasible set (in
        general a `Polyhedron`), onto which x0 is projected.
    feasible_set : set or "simplex" or "nonnegative"
        A constraint: every returned point lies in this set. Any object with ``project(x)`` will do;
        ``linear_minimum(g)`` and ``diameter`` give better bounds.
    penalty : penalty or "l1" or "l2"
        A term phi that is added to the function: `L1`, `ElasticNet`, `GroupL2`, `NuclearNorm`, or
        any object with ``prox(x, step)`` and ``value(x)``. "l1" is the l1 norm, "l2" half the
        squared norm. A LinearModel's intercept is not penalised. In the result, ``fun`` and ``gap``
        refer to the sum, ``jac`` to f alone.
    exact : bool
        False: the gradients are noisy (unbiased). Then nothing is certified, and the average is
        returned.
    accuracy : float
        The largest error of a value that `fun` returns, such as the tolerance of an inner solver,
        and the largest height of the tangent there above the function. The certified gap allows for
        it, and cannot be smaller than about twice this number.
    batch_size : int
        For a LinearModel: estimate each gradient from this number of samples.
    replacement : bool
        Draw samples with replacement; by default every epoch visits all samples in random order.
    rng : Generator, int or None
        Source of randomness.

    Method
    ------
    method : str or rule
        "auto", the default, is "bundle" for a function with exact values, unless a diameter or
        parameters of other methods are given. Otherwise it is "accelegrad", or "unixgrad" for a
        constraint or penalty with a numeric diameter. For a LinearModel whose dual gap becomes
        tight, unless `batch_size` is given, it is "accelegrad-newton", "dual-ascent" if there are
        more columns than rows, "proximal-newton" with an l1 or elastic-net penalty or a box, and
        "interior-point" for few rows of a loss with one kink. ``result.reason`` gives the reason;
        the table is `accelegrad.choose.TABLE`. The names are:
        "bundle"; "accelegrad", "adagrad", "unixgrad", "diagonal" (AcceleGrad with one step size per
        coordinate), which take a diameter or find one; "u-dog", "a-dog", "dog", which never need
        one; for a LinearModel "accelegrad-newton", "dual-ascent", "proximal-newton" and
        "interior-point"; "universal", "universal-dual", "universal-fast" (these three need
        `epsilon`), "linear-coupling" (needs `smoothness`), "subgradient" (needs `step_size`).
        Rule objects are accepted too: ``AcceleGrad(diameter=2.0)``.
    diameter : "auto" or float
        "auto": nothing needs to be known; see `DistanceFreeAcceleGrad` ("adagrad" is then `DoG`,
        "unixgrad" is `UDoG`). What the problem implies (a bounded feasible set, a LinearModel with
        an l2 term) is used as an upper bound. A number without a set is the paper's unconstrained
        setting: K is the ball with centre x0 and this diameter, and must contain a minimiser;
        points outside K may be returned. With ``feasible_set=WholeSpace()``: no projection at all.
    scale : "auto", "columns", None or array
        For a LinearModel: run in scaled coordinates, as if every column of X were divided by its
        standard deviation (and centred, with an intercept), or multiplied by the entry of an array.
        X is neither changed nor copied, and stays sparse; the result is in the original
        coordinates. "columns" always scales, None never. "auto" scales if method and diameter are
        "auto" too and there is neither a feasible set nor a penalty, except for minibatches of
        sparse rows, whose steps would become dense. Boxes and `L1` are the only sets and penalties
        that can be scaled.
    restart : None, "auto" or "adaptive"
        "adaptive": restart from the best point when progress slows down, for linear convergence on
        strongly convex or sharp functions. "auto" is "adaptive" with exact values and None with
        noisy ones, because a restart discards the average. Requires ``diameter="auto"``.
    options : mapping
        Parameters of single methods, which rule objects take too. They may also be given as
        keywords: ``epsilon=0.1`` is ``options={"epsilon": 0.1}``.

        - ``bundle_size``: how many cuts "bundle" keeps; by default the dimension plus 20, in at
          most 64 MB.
        - ``gradient_bound``: AcceleGrad's G, a bound on the gradients' norms; zero is the paper's
          choice throughout.
        - ``gradient_scale``: UniXGrad's G_0; by default the norm of the first gradient.
        - ``initial_radius``: the first radius of the methods without a diameter; by default a probe
          finds it.
        - ``project_y``: whether AcceleGrad projects y too; by default if a feasible set is given.
        - ``epsilon``, ``initial_smoothness``, ``max_trials``: of the universal methods.
        - ``smoothness``: of "linear-coupling".
        - ``step_size``, ``decay`` ("sqrt" or "constant"): of "subgradient".

    Stopping
    --------
    max_iter : int
        The largest number of iterations. A run ends earlier if rounding error allows no smaller
        gap to be proved.
    tol : float
        Stop when the certified gap is at most ``tol * max(1, |f|)``; ``success`` says whether it
        is.
    rtol : float
        Stop when the certified gap is at most ``rtol * |f|``, however small f is.
    time_limit : float
        Stop after this number of seconds.
    target : float
        Stop when the value is at most this number (`Status.TARGET_REACHED`), or when the lower
        bound proves that no point has such a value (`Status.TARGET_IMPOSSIBLE`).

    Output
    ------
    output : {"auto", "best", "average", "last"}
        What is returned as x: the best point evaluated, the average that the theorems are about, or
        the last iterate. "auto" is "best" with exact values and "average" with noisy ones.
    trace : bool
        Store per-iteration arrays in ``result.trace``.

    Observation
    -----------
    callback : callable
        Called after every iteration as ``callback(intermediate_result)`` if the argument has that
        name, otherwise as ``callback(x)``. StopIteration ends the run.
    callback_at : iterable of int
        The iterations (from 1) after which the callback is called; by default all.
    progress : bool
        Show a progress bar with value and certified gap.
    checkpoint, checkpoint_every
        A file to which the state is written every `checkpoint_every` iterations and at the end.
    resume
        A checkpoint from which to continue, bit for bit.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With x, fun, jac, nit, nfev, njev, success, status (a `Status`), message, and

        - ``proved``: one line that says what is proved, and for which points.
        - ``lower_bound``: no point of K has a lower value, so ``gap = fun - lower_bound`` bounds
          the error of x. The gap is inf if nothing is known, and negative if K provably contains no
          minimiser: then the diameter was too small.
        - ``certified_radius``: the distance from x0 up to which that holds. It is inf if no
          minimiser can be farther away: with a bounded feasible set, or by a LinearModel's dual
          bound. It is half of a numeric diameter, and with "auto" a multiple of the distance
          travelled, which grows during the run (in the scaled coordinates, if `scale` is used).
        - ``certificate``: what `tools/verify.py` needs, besides the data or the function, to verify
          the gap; ``certificate.save(path)`` writes it to a file. None if it is not kept.
        - ``multipliers``, with `bounds` or `constraints`: a list with one array of Lagrange
          multipliers per constraint and, if there are bounds, one more for these. They are positive
          at upper limits and negative at lower ones: ``jac + sum(A.T @ m) + m_bounds`` is about 0.
        - ``x_average``, ``x_last``, ``x_best``: all outputs; ``seconds``; ``n_restarts``;
          ``trace``; ``rows``, the total number of rows of a LinearModel that were read.

    Examples
    --------
    >>> import numpy as np, accelegrad as ag
    >>> target = np.array([3.0, -1.0, 2.0])
    >>> result = ag.minimize(lambda x: (np.abs(x - target).sum(), np.sign(x - target)),
    ...                      np.zeros(3), max_iter=2000)
    >>> bool(result.fun <= result.gap and result.gap < 0.1)
    True
    >>> bool(np.linalg.norm(target) <= result.certified_radius)
    True
    """
    parameters: dict[str, Any] = {"diameter": diameter}
    if options is not None or more:
        parameters |= _method_options(options, more)
    project_y = parameters.pop("project_y", None)
    model = fun if isinstance(fun, LinearModel) else None
    start = _start(x0, model)
    shape = None if model is not None or np.ndim(x0) == 1 else np.shape(x0)
    limits = None
    if bounds is not None or not (isinstance(constraints, (tuple, list)) and not constraints):
        of_x0 = start.shape if shape is None else shape
        limits = limits_of(bounds, constraints, feasible_set, of_x0)
        if limits is not None and limits.feasible_set is not None:
            feasible_set = limits.feasible_set
            start = feasible_set.project(start)  # as SciPy does
    # the number of entries of the largest matrix that the run multiplies with vectors
    d = start.size
    entries = d * default_size(d) if model is None else model.n_samples * d
    limited = entries >= kernels.FEWEST_SPLIT  # BLAS to one thread, during the run
    if output not in OUTPUTS:
        raise _not_among("output", output, OUTPUTS)
    run_options = Options(
        max_iter=whole_number("max_iter", max_iter, least=1),
        goal=None if tol is None and rtol is None else _goal(tol, rtol),
        time_limit=None if time_limit is None else real_number("time_limit", time_limit, above=0),
        target=None if target is None else real_number("target", target),
        output=output,
        exact=exact and batch_size is None,
        callback=None if callback is None else _scipy_callback(callback, shape, limited),
        callback_at=None if callback_at is None else _iterations(callback_at),
        progress=bool(progress),
        trace=bool(trace),
        checkpoint=None if checkpoint is None else _checkpoint_path(checkpoint),
        checkpoint_every=whole_number("checkpoint_every", checkpoint_every, least=1),
    )
    accuracy = real_number("accuracy", accuracy, least=0.0)
    if accuracy > 0.0 and (model is not None or fun is None or not exact):
        raise ValueError(
            "accuracy is for a function whose values are off by a known amount: it cannot be used "
            "with a LinearModel, with fun=None or with exact=False."
        )
    with kernels.single_for(entries) if limited else nullcontext():
        with np.errstate(**QUIET):
            request = Request(
                model,
                checked_space(start, feasible_set, penalty, model),
                *(method, parameters, project_y, scale, restart),
                minibatches=batch_size is not None,
                exact_values=model is not None or (exact and fun is not None),
            )
            setting = resolve(request)
        if model is None:
            how: dict[str, Any] = {"exact": exact, "accuracy": accuracy, "limited": limited}
            oracle: Oracle = FunctionOracle(fun, jac, args, shape=shape, **how)
        elif jac is True:
            goal = run_options.goal
            oracle = _model_oracle(request, setting, goal, rng, batch_size, replacement)
        else:
            raise TypeError(
                "jac must be left out for a LinearModel, which brings its own gradient."
            )
        oracle.penalty = request.space.penalty
        kind = None
        if checkpoint is not None or resume is not None:
            kind = {"exact": bool(exact), "batch_size": batch_size}
            kind["replacement"] = bool(replacement)
        with np.errstate(**QUIET):
            run = _run(request, run_options, oracle, setting, kind)
        if resume is not None:
            run.resume(Path(resume))
        result = run()
        name, reason = setting.choice.name, setting.choice.reason
        if isinstance(run.progress.rule, Portfolio):
            name, reason = told(run.progress.rule, run.progress.rule_state, name, reason)
        result.update(method=name, reason=reason)
        if limits is not None:
            result["multipliers"] = _multipliers(limits, result, setting.start, run.progress)
    return result if shape is None else _shaped(result, shape)


def told(rule: Portfolio, state: Any, name: str, reason: str) -> tuple[str, str]:
    """Return the method that a portfolio ended with, and why."""
    if state.joined < 0:
        return name, reason
    names = {entry.rule: known for known, entry in METHODS.items()}
    first, second = (names.get(type(part), part.title) for part in rule.rules)
    story = f"{reason}; after {state.joined} steps that gained little, {second} took turns with it"
    return (first, second)[state.turn], story


def _goal(tol: float | None, rtol: float | None) -> Goal:
    """Return the gap that is asked for as a function of the value."""
    absolute = 0.0 if tol is None else real_number("tol", tol, above=0)
    relative = 0.0 if rtol is None else real_number("rtol", rtol, above=0)
    return lambda value: max(absolute * max(1.0, abs(value)), relative * abs(value))


def _run(
    request: Request,
    options: Options,
    oracle: Oracle,
    setting: Setting,
    how: Mapping[str, Any] | None,
) -> Run:
    """Return the run; `how` says for its checkpoints, if any, how gradients are computed."""
    model, rule, penalty = request.model, setting.rule, request.space.penalty
    judge = ModelOracle(model, penalty) if request.minibatches else None
    known = oracle.exact_values or judge is not None
    bracket = _bracket(request, options, setting, oracle) if known else Bracket(None, None)
    if "values" in rule.can and not oracle.has_values:
        raise ValueError(f"fun is None, but the line search of {rule.title} needs values.")
    if options.output == "best" and not oracle.exact_values:
        raise ValueError("output='best' needs exact values; use 'average' or 'last'.")
    if options.goal is not None and bracket.cuts is None and bracket.dual is None:
        raise ValueError(
            "tol stops on the certified gap, which needs exact values, and for this method a "
            "diameter, a bounded feasible_set, or a LinearModel with l2 > 0. Use max_iter or "
            "time_limit alone."
        )
    restarts = None if request.restart is None else _restarts(request.restart, setting, oracle)
    if isinstance(oracle, MinibatchOracle):
        rule = compiled_twin(rule, oracle.model, setting.start, values=options.trace)
    chosen, kind = request.space.feasible_set, None
    if how is not None:
        how = {**how, "compiled": isinstance(rule, CompiledRule), "restarts": restarts is not None}
        kind = run_kind(setting.rule, setting.start, chosen, penalty, model, how)
    # Without projection of y, points may leave the set, as in the paper's unconstrained setting.
    returned_in = None if request.project_y is False else chosen
    return Run(
        Progress(rule, oracle, setting.start, options, bracket, judge, returned_in),
        kind=kind,
        checked=model is None and oracle.exact_values,
        restarts=restarts,
    )


def _multipliers(
    limits: Limits, result: OptimizeResult, start: Vector, progress: Progress
) -> list[Vector] | None:
    """Return the multipliers of bounds and constraints at the returned point, None if unknown.

    At a kink no single gradient yields them, so the cuts that the run kept are averaged.
    """
    x, gradient, cuts = result["x"], result["jac"], progress.bracket.cuts
    known = math.isfinite(result["fun"]) and result["status"] is not Status.NOT_CONVEX
    if gradient is None or not known or progress.oracle.penalty is not None:
        return None
    slopes, below = gradient[None], np.zeros(1)
    if cuts is not None and cuts.kept is not None and cuts.kept.count:
        kept = cuts.kept
        values = result["fun"] - kept.values_at(x)
        slopes, below = np.vstack([slopes, kept.slopes]), np.append(below, np.maximum(values, 0.0))
    reach = max(norm(x - start), NEAR * (1.0 + norm(x)))
    return limits.multipliers(x, slopes, below, reach)


def _shaped(result: OptimizeResult, shape: tuple[int, ...]) -> OptimizeResult:
    for name in SHAPED:
        if result.get(name) is not None:
            result[name] = result[name].reshape(shape)[()]
    return result


def _method_options(
    options: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    if not isinstance(options, Mapping | None):
        raise TypeError(f"options must be a mapping of names to values, not {options!r}.")
    inside, valid = options or {}, MethodOptions.__annotations__.keys()
    arguments = inspect.signature(minimize).parameters.keys() - {"fun", "more"}
    for name in keywords.keys() - valid:
        instead = hint(name) or nearest(name, arguments | valid)
        raise TypeError(f"minimize has no option {name!r}: {instead}")
    for name in keywords.keys() & inside.keys():
        raise TypeError(f"{name} is given twice: as a keyword and in options.")
    for name in inside.keys() - valid:
        if name in arguments:
            raise TypeError(f"{name} belongs to no method: give it as {name}=..., not in options.")
        raise TypeError(f"options has no {name!r}: {hint(str(name)) or nearest(str(name), valid)}")
    given = {**inside, **keywords}
    if not given.get("gradient_bound"):
        given["gradient_bound"] = None  # AcceleGrad's default is zero
    return {name: value for name, value in given.items() if value is not None}


def _start(x0: Any, model: LinearModel | None) -> Vector:
    if model is None:
        if x0 is None:
            raise TypeError("x0 is missing: give the point to start from.")
        return finite_vector("x0", np.asarray(x0).ravel())
    if x0 is None:
        return np.zeros(model.n_parameters)
    start = finite_vector("x0", x0)
    if start.size != model.n_parameters:
        extra = " (features and intercept)" if model.fit_intercept else ""
        raise ValueError(
            f"x0 must have the model's {model.n_parameters} parameters{extra}, "
            f"but it has {start.size}."
        )
    return start


def _not_among(name: str, given: Any, valid: tuple[str, ...]) -> ValueError:
    return ValueError(f"{name} is {given!r}: {nearest(str(given), valid)}")


def _model_oracle(
    request: Request,
    setting: Setting,
    goal: Goal | None,
    rng: Any,
    batch_size: int | None,
    replacement: bool,
) -> Oracle:
    """Return what the rule asks for values and gradients of a LinearModel."""
    model, rule = request.model, setting.rule
    if batch_size is None and not isinstance(rule, RowRule):
        return ModelOracle(model)
    try:
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise TypeError(f"rng must be a Generator, a whole number or None, not {rng!r}.") from None
    if batch_size is not None:
        if isinstance(rule, RowRule):
            raise ValueError(f"batch_size cannot be used with method {setting.choice.name!r}.")
        sampler = BatchSampler(model.n_samples, batch_size, generator, replacement=replacement)
        return MinibatchOracle(model, sampler)
    assert isinstance(rule, RowRule)
    _, chosen, penalty = request.space
    return rule.oracle(model, generator, goal or no_goal, penalty, chosen)


def _bracket(request: Request, options: Options, setting: Setting, oracle: Oracle) -> Bracket:
    """Return the object that collects lower bounds for exact values."""
    model, region, penalty = request.model, setting.region, request.space.penalty
    ends = (options.goal, options.target, request.restart)
    often = ends != (None, None, None)  # a bound may end the run
    floor, dual = -math.inf, None
    if model is not None:
        if penalty is None or penalty.nonnegative:
            floor = 0.0  # losses are nonnegative
        feasible = request.project_y is not False  # all points are in the set
        if feasible or not request.space.is_limited:
            bounds = oracle.dual
            if bounds is None and not (request.constrained and request.terms is None):
                given = model.dual_with(request.terms) if request.constrained else model.dual
                bounds = given if given.is_there else None
            dual = None if bounds is None else DualCertificate(bounds, often=often)
    # A guessed region adds nothing to a bound that holds everywhere and becomes tight.
    guessed = region is not None and region.growing
    if region is None or (guessed and dual is not None and dual.dual.terms.gets_tight):
        return Bracket(None, dual, goal=options.goal, model=model, everywhere=floor)
    # A model's dual proves more than averaged cuts do, and a rule may keep its own.
    kept = None
    if model is None and "cuts" not in setting.rule.can:
        kept = CutMemory(region.center, default_size(region.center.size))
    cuts = CutCertificate(region, model, often=often, kept=kept)
    return Bracket(cuts, dual, goal=options.goal, model=model, everywhere=floor)


def _restarts(given: Any, setting: Setting, oracle: Oracle) -> Restarts | None:
    valid = ("auto", "adaptive")
    if given not in valid:
        raise _not_among("restart", given, valid)
    if given == "auto" and not oracle.exact_values:
        return None  # a restart discards the average, which mostly costs more under noise
    if setting.choice.of_rows or "cuts" in setting.rule.can:
        raise ValueError(
            f"restart cannot be used with method {setting.choice.name!r}, which needs none."
        )
    if "radius" not in setting.rule.can:
        raise ValueError(
            f"restart needs a rule with a radius of its own, as with diameter='auto'; "
            f"{setting.rule.title} has none."
        )
    if not oracle.exact_values:
        raise ValueError("restart='adaptive' compares values, which have to be exact.")
    return Restarts(setting.rule)


def _iterations(given: Iterable[int]) -> frozenset[int]:
    try:
        return frozenset(whole_number("callback_at", number, least=1) for number in given)
    except TypeError:
        raise TypeError(
            f"callback_at must hold iterations, whole numbers from 1 on; not {given!r}."
        ) from None


def _checkpoint_path(given: str | os.PathLike[str]) -> Path:
    path = Path(given)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"checkpoint={str(path)!r}: there is no folder {str(path.parent)!r}."
        )
    return path


def _scipy_callback(
    callback: Callable[..., Any], shape: tuple[int, ...] | None, limited: bool
) -> Callable[[OptimizeResult], Any]:
    """Follow SciPy: an argument named intermediate_result gets the result, any other one x."""
    if not callable(callback):
        raise TypeError(f"callback must be a function, not {callback!r}.")
    try:
        names = set(inspect.signature(callback).parameters)
    except ValueError:  # a builtin without a signature
        names = set()
    asked = kernels.for_user(callback) if limited else callback

    def shaped(result: OptimizeResult) -> OptimizeResult:
        return result if shape is None else _shaped(result, shape)

    if "intermediate_result" in names:
        return lambda result: asked(intermediate_result=shaped(result))
    return lambda result: asked(shaped(result).x)


def scipy_method(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    **options: Any,
) -> OptimizeResult:
    """`minimize` for SciPy: ``scipy.optimize.minimize(fun, x0, jac=True, method=scipy_method)``.

    Bounds and linear constraints become a set. The options are those of `accelegrad.minimize`;
    SciPy's ``maxiter`` and ``disp`` are accepted too.
    """
    if not callable(jac):
        raise ValueError(
            f"jac is {jac!r}: accelegrad needs gradients, so give jac=True or jac=callable."
        )
    if hess is not None or hessp is not None:
        warnings.warn("hess and hessp are not used by accelegrad.", RuntimeWarning, stacklevel=3)
    if "maxiter" in options:
        options["max_iter"] = options.pop("maxiter")
    if "disp" in options:
        options["progress"] = options.pop("disp")
    limits = {"bounds": bounds, "constraints": constraints}
    return minimize(fun, x0, args=args, jac=jac, callback=callback, **limits, **options)
