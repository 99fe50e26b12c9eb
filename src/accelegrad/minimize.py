"""`minimize`, in SciPy's manner: check what is given, put rule, oracle and certificate together."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, OptimizeResult

from accelegrad.errors import (
    Vector,
    finite_vector,
    nearest,
    real_number,
    whole_number,
)
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.sampling import BatchSampler
from accelegrad.problems.sets import Ball, Box, FeasibleSet, WholeSpace, as_feasible_set
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    LinearCoupling,
    Rule,
    Subgradient,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
)
from accelegrad.solve.certificate import Certificate, CutCertificate, DualCertificate, Region
from accelegrad.solve.loop import OUTPUTS, Options, Run
from accelegrad.solve.oracle import FunctionOracle, MinibatchOracle, ModelOracle, Oracle


class Method(NamedTuple):
    """A rule by name: what it needs and what else it takes."""

    rule: Callable[..., Rule]
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()


_SEARCH = ("initial_smoothness", "max_trials")
METHODS = {
    "accelegrad": Method(AcceleGrad, ("diameter",), ("gradient_bound",)),
    "adagrad": Method(AdaGrad, ("diameter",)),
    "universal": Method(UniversalGradient, ("epsilon",), _SEARCH),
    "universal-dual": Method(UniversalDualGradient, ("epsilon",), _SEARCH),
    "universal-fast": Method(UniversalFastGradient, ("epsilon",), _SEARCH),
    "linear-coupling": Method(LinearCoupling, ("smoothness",)),
    "subgradient": Method(Subgradient, ("step_size",), ("decay",)),
}
_MEANING = {
    "diameter": "the diameter of a ball around x0 that holds a minimiser; or give a bounded "
    "feasible_set",
    "epsilon": "the accuracy wanted, which the universal methods have to be told",
    "smoothness": "the Lipschitz constant of the gradient",
    "step_size": "the step's size",
}


def minimize(
    fun: Callable[..., Any] | LinearModel | None,
    x0: Any = None,
    *,
    args: tuple[Any, ...] = (),
    jac: bool | Callable[..., Any] = True,
    method: str | Rule = "auto",
    diameter: float | None = None,
    feasible_set: Any = None,
    project_y: bool | None = None,
    gradient_bound: float = 0.0,
    epsilon: float | None = None,
    initial_smoothness: float | None = None,
    max_trials: int | None = None,
    smoothness: float | None = None,
    step_size: float | None = None,
    decay: str | None = None,
    exact: bool = True,
    batch_size: int | None = None,
    replacement: bool = False,
    rng: Any = None,
    max_iter: int = 1000,
    tol: float | None = None,
    time_limit: float | None = None,
    output: str = "auto",
    callback: Callable[..., Any] | None = None,
    callback_at: Iterable[int] | None = None,
    progress: bool = False,
    trace: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    resume: str | os.PathLike[str] | None = None,
    **unknown: Any,
) -> OptimizeResult:
    r"""Minimise a convex function from its (sub)gradients.

    Parameters
    ----------
    fun : callable, LinearModel or None
        ``fun(x, *args)`` returns ``(value, gradient)`` when ``jac=True`` and the value alone when
        `jac` is a function. Any subgradient will do. A `LinearModel` brings its own gradient. None
        with a `jac` function: gradients only, no values and so no certificate.
    x0 : array of shape (d,)
        The start. For a LinearModel the default is zero.
    args : tuple
        More arguments for `fun` and `jac`.
    jac : True or callable
        True, or ``jac(x, *args)`` that returns the gradient.
    method : str or rule
        "accelegrad" (also "auto"), "adagrad", "universal", "universal-dual", "universal-fast"
        (these three need `epsilon`), "linear-coupling" (needs `smoothness`), "subgradient" (needs
        `step_size`; `decay` is "sqrt" or "constant"); or a rule: ``AcceleGrad(diameter=2.0)``.
    diameter : float
        On its own: the paper's unconstrained setting. K is the ball with centre x0 and this
        diameter, which has to hold a minimiser; points outside K may be returned. With
        ``feasible_set=WholeSpace()``: no projection at all.
    feasible_set : set
        A constraint: every returned point lies in it. Its diameter is used unless `diameter` is
        given, which an unbounded set needs. Any object with ``project(x)`` will do; with
        ``linear_minimum(g)`` and ``diameter`` it serves better.
    project_y : bool
        Whether AcceleGrad projects y too. Default: when a feasible set is given.
    gradient_bound : float
        AcceleGrad's G, a bound on the gradients' norms; zero is the paper's choice throughout.
    epsilon, initial_smoothness, max_trials, smoothness, step_size, decay
        Parameters of the methods named above.
    exact : bool
        False: the gradients are noisy (unbiased). Then nothing is certified, and the average is
        returned.
    batch_size : int
        For a LinearModel: estimate each gradient from so many rows.
    replacement : bool
        Draw rows with replacement; by default every epoch goes through all rows in random order.
    rng : Generator, int or None
        Where the random rows come from.
    max_iter : int
        The largest number of iterations.
    tol : float
        Stop when the certified gap is at most ``tol * max(1, |f|)``.
    time_limit : float
        Stop after so many seconds.
    output : {"auto", "best", "average", "last"}
        What is returned as x: the best point evaluated, the average that the theorem speaks of, or
        the last iterate. "auto" is "best" with exact values and "average" with noisy ones.
    callback : callable
        Called after every iteration as ``callback(intermediate_result)`` where the argument has
        that name, else as ``callback(x)``. StopIteration ends the run.
    callback_at : iterable of int
        The iterations (from 1) after which the callback is called; by default all of them.
    progress : bool
        Show a progress bar with value and certified gap.
    trace : bool
        Keep per-iteration arrays in ``result.trace``.
    checkpoint, checkpoint_every
        A file that gets the run's state every so many iterations and at its end.
    resume
        A checkpoint to go on from, bit for bit.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With x, fun, jac, nit, nfev, njev, success, status (a `Status`), message, and

        - ``lower_bound``: no point of K has a lower value; ``gap = fun - lower_bound`` proves the
          accuracy of x. It is inf where nothing is known, and below zero where it is proved that K
          holds no minimiser: then the diameter was too small.
        - ``x_average``, ``x_last``, ``x_best``: all the outputs; ``seconds``; ``trace``.

    Examples
    --------
    >>> import numpy as np, accelegrad as ag
    >>> target = np.array([3.0, -1.0, 2.0])
    >>> result = ag.minimize(lambda x: (np.abs(x - target).sum(), np.sign(x - target)),
    ...                      np.zeros(3), diameter=10.0, max_iter=2000)
    >>> bool(result.fun <= result.gap and result.gap < 0.1)
    True
    """
    _refuse_unknown(unknown)
    model = fun if isinstance(fun, LinearModel) else None
    start = _start(x0, model)
    parameters = {
        "diameter": diameter,
        "gradient_bound": gradient_bound or None,
        "epsilon": epsilon,
        "initial_smoothness": initial_smoothness,
        "max_trials": max_trials,
        "smoothness": smoothness,
        "step_size": step_size,
        "decay": decay,
    }
    setting = _setting(start, method, parameters, feasible_set, project_y)
    oracle = _oracle(
        fun, jac, args, exact=exact, batch_size=batch_size, replacement=replacement, rng=rng
    )
    judge = ModelOracle(model) if model is not None and batch_size is not None else None
    options = Options(
        max_iter=whole_number("max_iter", max_iter, least=1),
        tol=None if tol is None else real_number("tol", tol, above=0),
        time_limit=None if time_limit is None else real_number("time_limit", time_limit, above=0),
        output=_choice("output", output, OUTPUTS),
        exact=exact and batch_size is None,
        callback=None if callback is None else _scipy_callback(callback),
        callback_at=None if callback_at is None else _iterations(callback_at),
        progress=bool(progress),
        trace=bool(trace),
        checkpoint=None if checkpoint is None else _checkpoint_path(checkpoint),
        checkpoint_every=whole_number("checkpoint_every", checkpoint_every, least=1),
    )
    certificate = _certificate(
        setting.region, model, judged=oracle.exact_values or judge is not None
    )
    _check_needs(setting.rule, oracle, options, certificate)
    run = Run(
        setting.rule,
        oracle,
        setting.start,
        options,
        certificate,
        judge=judge,
        judge_every=1 if model is None or not batch_size else -(-model.n_samples // batch_size),
        kind=_kind(setting, model, exact, batch_size, replacement),
        # With y left free the points may leave the set, as in the paper's unconstrained setting.
        feasible_set=None if project_y is False else setting.feasible_set,
    )
    if resume is not None:
        run.resume(Path(resume))
    return run()


class Setting(NamedTuple):
    """The rule bound to its set, the start, and where a minimiser is taken to be."""

    rule: Rule
    start: Vector
    feasible_set: FeasibleSet | None
    region: Region | None


def _refuse_unknown(unknown: Mapping[str, Any]) -> None:
    for name in unknown:
        valid = [p for p in inspect.signature(minimize).parameters if p not in ("fun", "unknown")]
        raise TypeError(f"minimize has no option {name!r}: {nearest(name, valid)}")


def _start(x0: Any, model: LinearModel | None) -> Vector:
    if model is None:
        if x0 is None:
            raise TypeError("x0 is missing: give the point to start from.")
        return finite_vector("x0", x0)
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


def _choice(name: str, given: Any, valid: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in valid:
        raise ValueError(f"{name} is {given!r}: {nearest(str(given), valid)}")
    return given


def _setting(
    start: Vector,
    method: str | Rule,
    parameters: dict[str, Any],
    feasible_set: Any,
    project_y: bool | None,
) -> Setting:
    """Resolve diameter and set, build the rule and bind the projection to it."""
    chosen = None if feasible_set is None else as_feasible_set(feasible_set)
    if chosen is not None:
        chosen.check_dimension(start.size)
        start = _inside(start, chosen)
    diameter = parameters["diameter"]
    if isinstance(method, Rule):
        diameter = _diameter_of(method, parameters)
    if diameter is not None:
        diameter = real_number("diameter", diameter, above=0)
    elif chosen is not None and 0 < chosen.diameter_for(start.size) < math.inf:
        diameter = chosen.diameter_for(start.size)
    rule = (
        method
        if isinstance(method, Rule)
        else _rule(method, {**parameters, "diameter": diameter}, chosen)
    )
    rule = _bind(rule, start, chosen, diameter, project_y)
    return Setting(rule, start, chosen, _region(start, chosen, diameter))


def _inside(start: Vector, feasible_set: FeasibleSet) -> Vector:
    nearest_point = feasible_set.project(start)
    distance = float(np.linalg.norm(nearest_point - start))
    if not distance <= 1e-9 * (1 + float(np.linalg.norm(start))):
        raise ValueError(
            f"x0 must lie in feasible_set {feasible_set!r}, but it is {distance:.3g} away from it. "
            "feasible_set.project(x0) is the nearest point that does."
        )
    return nearest_point


def _diameter_of(rule: Rule, parameters: Mapping[str, Any]) -> float | None:
    """Return the diameter that a rule object holds; its parameters may be given only there."""
    given = [name for name, value in parameters.items() if value is not None]
    own = getattr(rule, "diameter", None)
    twice = [name for name in given if name != "diameter" or own is not None]
    if twice:
        raise ValueError(f"{twice[0]} belongs to the rule object {rule!r}; do not give it again.")
    diameter: float | None = parameters["diameter"] if own is None else own
    return diameter


def _rule(method: Any, parameters: Mapping[str, Any], feasible_set: FeasibleSet | None) -> Rule:
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a rule object, not {method!r}.")
    name = "accelegrad" if method == "auto" else method
    if name not in METHODS:
        raise ValueError(f"method is {method!r}: {nearest(method, ['auto', *METHODS])}")
    rule, needs, takes = METHODS[name]
    for parameter in needs:
        if parameters[parameter] is None:
            unbounded = f" (feasible_set {feasible_set!r} is unbounded)" if feasible_set else ""
            raise ValueError(
                f"{parameter} is needed by method {name!r}{unbounded}: {_MEANING[parameter]}."
            )
    # Any method may be told a diameter: it makes the certificate.
    allowed = {*needs, *takes}
    for parameter, value in parameters.items():
        if value is not None and parameter not in allowed | {"diameter"}:
            raise ValueError(f"{parameter} is not a parameter of method {name!r}.")
    return rule(**{p: parameters[p] for p in allowed if parameters[p] is not None})


def _bind(
    rule: Rule,
    start: Vector,
    feasible_set: FeasibleSet | None,
    diameter: float | None,
    project_y: bool | None,
) -> Rule:
    """Give the rule the projection that the setting asks for."""
    fields = _field_names(rule)
    if "project" not in fields:
        if feasible_set is not None:
            raise ValueError(
                f"feasible_set cannot be used: the rule {rule!r} has no `project` field."
            )
        return rule
    if getattr(rule, "project") is not None:  # noqa: B009
        if feasible_set is not None:
            raise ValueError(
                "feasible_set is given, but the rule object has a `project` of its own."
            )
        return rule
    bound: dict[str, Any] = {}
    if isinstance(feasible_set, WholeSpace):
        bound["project"] = None
    elif feasible_set is not None:
        bound["project"] = feasible_set.project
    elif diameter is not None:
        bound["project"] = Ball(start, diameter / 2).project
    if "project_y" in fields:
        bound["project_y"] = feasible_set is not None if project_y is None else bool(project_y)
    elif project_y is not None:
        raise ValueError(
            "project_y is not a parameter of this method; only one point is projected."
        )
    return dataclasses.replace(rule, **bound)  # type: ignore[type-var]


def _field_names(rule: Rule) -> list[str]:
    return [f.name for f in dataclasses.fields(rule)] if dataclasses.is_dataclass(rule) else []


def _region(
    start: Vector, feasible_set: FeasibleSet | None, diameter: float | None
) -> Region | None:
    chosen = WholeSpace() if feasible_set is None else feasible_set
    bound = chosen.diameter_for(start.size)
    if math.isfinite(bound):
        return Region(chosen, start, bound, assumed=False)
    return None if diameter is None else Region(chosen, start, diameter / 2, assumed=True)


def _oracle(
    fun: Any,
    jac: Any,
    args: tuple[Any, ...],
    *,
    exact: bool,
    batch_size: int | None,
    replacement: bool,
    rng: Any,
) -> Oracle:
    if isinstance(fun, LinearModel):
        if jac is not True:
            raise TypeError(
                "jac must be left out for a LinearModel, which brings its own gradient."
            )
        if batch_size is None:
            return ModelOracle(fun)
        return MinibatchOracle(
            fun, BatchSampler(fun.n_samples, batch_size, _generator(rng), replacement=replacement)
        )
    if batch_size is not None:
        raise ValueError(
            "batch_size needs a LinearModel; noisy gradients of your own: exact=False."
        )
    if fun is not None and not callable(fun):
        raise TypeError(f"fun must be a function, a LinearModel or None, not {fun!r}.")
    if jac is not True and not callable(jac):
        raise TypeError(
            f"jac must be True (fun returns value and gradient) or a function, not {jac!r}."
        )
    if fun is None and jac is True:
        raise TypeError("fun is None: jac must be a function that returns the gradient.")
    if not isinstance(args, tuple):
        raise TypeError(f"args must be a tuple, not {args!r}.")
    return FunctionOracle(fun, None if jac is True else jac, args, exact=exact)


def _generator(rng: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise TypeError(f"rng must be a Generator, a whole number or None, not {rng!r}.") from None


def _certificate(region: Region | None, model: LinearModel | None, *, judged: bool) -> Certificate:
    if not judged:
        return Certificate(None, None)
    roundoff = float(np.finfo(np.float64 if model is None else model.dtype).eps)
    cuts = None if region is None else CutCertificate(region, roundoff)
    dual = DualCertificate(model, roundoff) if model is not None and model.l2 > 0 else None
    return Certificate(cuts, dual)


def _check_needs(rule: Rule, oracle: Oracle, options: Options, certificate: Certificate) -> None:
    """Refuse what cannot work before anything is computed."""
    if rule.needs_values and not oracle.has_values:
        raise ValueError(f"fun is None, but the line search of {type(rule).__name__} needs values.")
    if options.output == "best" and not oracle.exact_values:
        raise ValueError("output='best' needs exact values; use 'average' or 'last'.")
    if options.tol is not None and certificate.cuts is None and certificate.dual is None:
        raise ValueError(
            "tol stops on the certified gap, which needs exact values and a diameter, a bounded "
            "feasible_set, or a LinearModel with l2 > 0. Use max_iter or time_limit alone."
        )


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


def _kind(
    setting: Setting,
    model: LinearModel | None,
    exact: bool,
    batch_size: int | None,
    replacement: bool,
) -> dict[str, Any]:
    """Say what the run is, so that a checkpoint of another one is refused."""
    rule = setting.rule
    parameters = {name: getattr(rule, name) for name in _field_names(rule) if name != "project"}
    return {
        "method": type(rule).__name__,
        "dimension": setting.start.size,
        "x0 (checksum)": zlib.crc32(setting.start.tobytes()),
        "feasible_set": repr(setting.feasible_set),
        "feasible_set (checksum)": _set_checksum(setting),
        **parameters,
        "exact": bool(exact),
        "batch_size": batch_size,
        "replacement": bool(replacement),
        "problem": "function" if model is None else repr(model),
        "y (checksum)": None if model is None else zlib.crc32(model.y.tobytes()),
    }


def _set_checksum(setting: Setting) -> int | None:
    """Return a number that tells sets apart whose shortened texts are the same."""
    if setting.feasible_set is None:
        return None
    return zlib.crc32(setting.feasible_set.project(setting.start + 1).tobytes())


def _scipy_callback(callback: Callable[..., Any]) -> Callable[[OptimizeResult], Any]:
    """Follow SciPy: an argument named intermediate_result gets the result, any other one x."""
    if not callable(callback):
        raise TypeError(f"callback must be a function, not {callback!r}.")
    try:
        names = set(inspect.signature(callback).parameters)
    except ValueError:  # a builtin without a signature
        names = set()
    if "intermediate_result" in names:
        return lambda result: callback(intermediate_result=result)
    return lambda result: callback(result.x)


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

    Bounds become a `Box`; the options are those of `accelegrad.minimize`, and SciPy's ``maxiter``
    and ``disp`` are understood.
    """
    if not callable(jac):
        raise ValueError(
            f"jac is {jac!r}: accelegrad needs gradients, so give jac=True or jac=callable."
        )
    if constraints:
        raise ValueError(
            "constraints are not supported; use bounds, or options={'feasible_set': ...}."
        )
    if hess is not None or hessp is not None:
        warnings.warn("hess and hessp are not used by accelegrad.", RuntimeWarning, stacklevel=3)
    if bounds is not None:
        if "feasible_set" in options:
            raise ValueError("bounds and options['feasible_set'] cannot both be given.")
        options["feasible_set"] = _box(bounds, np.shape(x0))
    if "maxiter" in options:
        options["max_iter"] = options.pop("maxiter")
    if "disp" in options:
        options["progress"] = options.pop("disp")
    return minimize(fun, x0, args=args, jac=jac, callback=callback, **options)


def _box(bounds: Any, shape: tuple[int, ...]) -> Box:
    if not isinstance(bounds, Bounds):
        pairs = [(-np.inf if lo is None else lo, np.inf if hi is None else hi) for lo, hi in bounds]
        bounds = Bounds(*np.array(pairs, dtype=float).T)
    return Box(np.broadcast_to(bounds.lb, shape), np.broadcast_to(bounds.ub, shape))
