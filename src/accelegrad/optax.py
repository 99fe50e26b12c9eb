"""AcceleGrad and related methods as optax gradient transformations.

The parameters hold the point for the next gradient; `eval_params` gives the average, which is the
point to evaluate, save and deploy. The steps are those of `accelegrad.rules`, traced by JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from accelegrad.extras import require

try:
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    require("accelegrad.optax", "jax")
    raise

from accelegrad.errors import hint_at_rate, is_traced, real_number
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    DoG,
    Rule,
    UDoG,
    UniXGrad,
)
from accelegrad.rules.arrays import LARGEST_SIZE, Tree, adaptive_step, larger
from accelegrad.rules.base import QueryRule, check_radius, weighted_average
from accelegrad.rules.diagonal import DiagonalRule
from accelegrad.rules.unixgrad import TwoPhaseRule
from accelegrad.rules.untuned import Seen, UntunedAcceleGrad, UntunedState

__all__ = ["AcceleGradState", "a_dog", "accelegrad", "adagrad_norm", "eval_params", "unixgrad"]

Params: TypeAlias = Any  # a pytree of arrays
Number: TypeAlias = Any  # a Python number or 0-d array, traced or not
LearningRate: TypeAlias = Any  # a number, or a schedule: a function of the count of updates
Projection: TypeAlias = Callable[[Params], Params]
Prox: TypeAlias = Callable[[Params, Any], Params]

#: Fields of the rules' states that are not kept: the parameters hold the query point, `count` gives
#: the iteration, batches are noisy, and no later step reads y. States keep the query point if
#: a parameter is below float32, whose rounding would lose short steps.
OMITTED = {"iteration", "query_point", "gradient_point", "noisy"}
#: What `UntunedAcceleGrad` learns while it searches for its radius.
LEARNT = ("radius", "evidence", "agreement", "compared", "last_growth", "grown_from")
#: Parameters of rules in units of the gradient
SIZES = {"gradient_bound", "gradient_scale"}
PART = 512  # numbers summed one after the other in float32, without much rounding; chosen
#: Projections of `optax.projections` that do not fit steps per coordinate.
NOT_SEPARABLE = (
    *("projection_simplex", "projection_l1_ball", "projection_l1_sphere"),
    *("projection_l2_ball", "projection_l2_sphere"),
    *("projection_hyperplane", "projection_halfspace"),
)


class AcceleGradState(NamedTuple):
    """The state of every transformation of this module.

    Parameters
    ----------
    count : int32 array
        The number of updates.
    steps : NamedTuple
        The rule's state. Points are trees like the parameters, in float32 or better; fields that no
        later step needs are None. ``optax.tree.get(state, "step_size")`` and ``"radius"`` are worth
        logging.
    first_gradient : tree or None
        The first gradient of a step, for rules with two per step.
    unit : array
        A power of two that divides the gradients to keep their squares in the range of float32: 1,
        unless the first nonzero gradient is tiny or huge; zero before it. Step sizes in `steps` are
        for divided gradients.
    """

    count: Any
    steps: Any
    first_gradient: Any
    unit: Any


def accelegrad(
    learning_rate: LearningRate = 1.0,
    *,
    diameter: Number = "auto",
    gradient_bound: Number = 0.0,
    projection: Projection | None = None,
    prox: Prox | None = None,
    diagonal: bool | str = "auto",
    weight_decay: Number = 0.0,
    initial_radius: Number | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Return AcceleGrad: universal, accelerated, with no step size to tune.

    The parameters hold x, where the next gradient is taken; `eval_params` gives the average of
    the y, which is the point to use.

    Parameters
    ----------
    learning_rate : float or schedule, default 1.0
        Multiplies the step sizes. Leave it at 1: smaller values slow the search for the radius,
        with 0.01 to thousands of steps; a number below 0.1 gives a hint, once. A schedule is a
        function of the count of updates.
    diameter : float or "auto"
        The diameter of a set that holds the first parameters and a minimiser: the steps of
        `accelegrad.AcceleGrad` (of `accelegrad.DiagonalAcceleGrad` with ``diagonal=True``). "auto"
        needs no number: `accelegrad.rules.UntunedAcceleGrad`, and with a projection
        `accelegrad.DistanceFreeAcceleGrad`.
    gradient_bound : float, default 0.0
        With a `diameter`: a bound on the gradients' norms. Zero is sound for smooth functions.
    projection : callable, optional
        The Euclidean projection of a tree like the parameters onto a set, as in
        `optax.projections`. Parameters and averages stay in the set if the first ones are in it.
    prox : callable, optional
        ``prox(params, step)``, the proximal map of a term added to the loss; the step is a number,
        or with ``diagonal=True`` a tree like the parameters. Needs ``diameter="auto"``; `unixgrad`
        takes both.
    diagonal : bool or "auto"
        One step size per coordinate. A projection must then be onto a box, a term separable. "auto"
        is True without a diameter, a projection and a term.
    weight_decay : float, default 0.0
        lambda: lambda/2 times the squared norm of the parameters is added to the loss.
    initial_radius : float, optional
        With ``diameter="auto"``: the radius to begin with, better too small than too large.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        `update` needs `params` and ignores unknown extra arguments.

    Notes
    -----
    Norms are over all parameters. The state is in float32, or in float64 if a parameter is.
    `optax.inject_hyperparams` takes `projection` and `prox` for schedules unless ``static_args``
    names them.

    References
    ----------
    K. Y. Levy, A. Yurtsever, V. Cevher: Online Adaptive Methods, Universality and Acceleration.
    NeurIPS 2018.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax
    >>> from accelegrad.optax import accelegrad, eval_params
    >>> def loss(params):
    ...     return jnp.sum((params - jnp.array([1.0, -2.0])) ** 2)
    >>> optimizer, params = accelegrad(), jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> @jax.jit
    ... def step(params, state):
    ...     updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    ...     return optax.apply_updates(params, updates), state
    >>> for _ in range(200):
    ...     params, state = step(params, state)
    >>> print(jnp.round(eval_params(state, params), 2))
    [ 1. -2.]
    """
    if not isinstance(diagonal, bool) and diagonal != "auto":
        raise ValueError(f"diagonal is {diagonal!r}; allowed: True, False, 'auto'.")
    if diagonal is True:
        _check_separable(projection)
    if not _is_auto(diameter):
        _refuse("initial_radius", initial_radius, "a diameter")
        if prox is not None:
            raise ValueError("prox needs diameter='auto'; unixgrad takes it with a diameter too.")
        kind = DiagonalAcceleGrad if diagonal is True else AcceleGrad
        rule: Rule = kind(diameter, gradient_bound, project_y=True)
    else:
        _refuse("gradient_bound", gradient_bound, "diameter='auto'")
        check_radius("initial_radius", initial_radius)
        rule = _untuned(diagonal, initial_radius, projection, prox)
    return _transformation(rule, learning_rate, weight_decay, projection, prox)


def _untuned(diagonal: Any, radius: Any, projection: Any, prox: Any) -> Rule:
    """Return the rule that needs no diameter.

    `UntunedAcceleGrad` would mistake a set's push for evidence of a long distance, and its radius
    would run away; the rules for sets allow for it.
    """
    if projection is None:
        return UntunedAcceleGrad(prox is None if diagonal == "auto" else diagonal, radius)
    if diagonal is not True:
        return DistanceFreeAcceleGrad(radius)
    if prox is not None:
        raise ValueError("diagonal=True takes a projection or a prox, but both are given.")
    return DistanceFreeDiagonalAcceleGrad(radius, project_y=True)


def unixgrad(
    learning_rate: LearningRate = 1.0,
    *,
    diameter: Number = "auto",
    gradient_scale: Number | None = None,
    projection: Projection | None = None,
    prox: Prox | None = None,
    weight_decay: Number = 0.0,
    initial_radius: Number | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return UniXGrad: for constraints and proximal terms, with two gradients per step.

    Updates come in pairs: the first moves the parameters to the point of the step's second
    gradient, the second to the start of the next step.

    Parameters
    ----------
    learning_rate, projection, weight_decay
        As in `accelegrad`.
    diameter : float or "auto"
        The diameter of the set: the steps of `accelegrad.UniXGrad`. "auto" uses the distance
        travelled instead: `accelegrad.UDoG`.
    gradient_scale : float, optional
        With a `diameter`: G_0. By default the norm of the first gradient.
    prox : callable, optional
        ``prox(params, step)``, the proximal map of a term added to the loss. A projection comes
        after it, which is right for a separable term and a box.
    initial_radius : float, optional
        With ``diameter="auto"``: the radius to begin with.
    """
    if _is_auto(diameter):
        _refuse("gradient_scale", gradient_scale, "diameter='auto'")
        rule: Rule = UDoG(initial_radius)
    else:
        _refuse("initial_radius", initial_radius, "a diameter")
        rule = UniXGrad(diameter, gradient_scale)
    return _transformation(rule, learning_rate, weight_decay, projection, prox)


def a_dog(
    learning_rate: LearningRate = 1.0,
    *,
    projection: Projection | None = None,
    weight_decay: Number = 0.0,
    initial_radius: Number | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return A-DoG: AcceleGrad's coupling with the distance travelled in place of a diameter.

    The steps are those of `accelegrad.ADoG`; for the parameters see `accelegrad`. Noisy gradients
    can make its radius run away.
    """
    return _transformation(ADoG(initial_radius), learning_rate, weight_decay, projection)


def adagrad_norm(
    learning_rate: LearningRate = 1.0,
    *,
    diameter: Number = "auto",
    projection: Projection | None = None,
    weight_decay: Number = 0.0,
    initial_radius: Number | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return AdaGrad with one step size for all coordinates: not accelerated, robust under noise.

    The steps of `accelegrad.AdaGrad`. With ``diameter="auto"`` the radius is learnt as in
    `accelegrad`; with an `initial_radius` it is the distance travelled, as in `accelegrad.DoG`.
    For the other parameters see `accelegrad`.
    """
    if _is_auto(diameter):
        learnt = UntunedAcceleGrad(diagonal=False, momentum=False)
        rule: Rule = learnt if initial_radius is None else DoG(initial_radius)
    else:
        _refuse("initial_radius", initial_radius, "a diameter")
        rule = AdaGrad(diameter)
    return _transformation(rule, learning_rate, weight_decay, projection)


def eval_params(state: Any, params: Params) -> Params:
    """Return the averaged point: the one to evaluate, save and deploy.

    Parameters
    ----------
    state : pytree
        The optimizer's state, which may be nested: in chains, `optax.MultiSteps`, `optax.masked`,
        `optax.partition`, `optax.inject_hyperparams`.
    params : pytree
        Its parameters. Those that no state of this module covers are returned unchanged.

    Returns
    -------
    pytree
        Like `params`, with their types. Before the first step it is `params`.
    """
    found = [node for node in jax.tree.leaves(state, is_leaf=_is_state) if _is_state(node)]
    if not found:
        raise ValueError(
            "state holds no AcceleGradState: eval_params takes the state of an optimizer that was "
            f"made with accelegrad.optax, not {jax.tree.structure(state)}."
        )
    if sum(len(jax.tree.leaves(_sums(one))) for one in found) > len(jax.tree.leaves(params)):
        raise ValueError(
            f"state holds {len(found)} states of accelegrad.optax that share parameters: which of "
            "them to evaluate? Give that one."
        )
    for one in found:
        params = _averaged(one, params)
    return params


def _is_state(node: Any) -> bool:
    return isinstance(node, AcceleGradState)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _averaged(state: AcceleGradState, params: Params) -> Params:
    steps = state.steps

    def average(total: Any, param: Any) -> Any:
        if _is_masked(total):
            return param
        if isinstance(steps, UntunedState):
            found = UntunedAcceleGrad().output(steps._replace(anchor=total, query_point=param))
        else:
            sums = steps._replace(iteration=state.count, weighted_sum=total)
            found = weighted_average(sums, param)
        return found.astype(jnp.asarray(param).dtype)

    return jax.tree.map(average, _sums(state), params, is_leaf=_is_masked)


def _sums(state: AcceleGradState) -> Params:
    """Return the tree from which averages are made, shaped like the parameters."""
    steps = state.steps
    return steps.anchor if isinstance(steps, UntunedState) else steps.weighted_sum


# -- the arguments --------------------------------------------------------------------------------


def _is_auto(diameter: Any) -> bool:
    if isinstance(diameter, str) and diameter != "auto":
        raise ValueError(f"diameter is {diameter!r}; allowed: a number > 0, or 'auto'.")
    return isinstance(diameter, str)


def _check_separable(projection: Any) -> None:
    function = getattr(projection, "func", projection)  # of a functools.partial
    if function in {getattr(optax.projections, name) for name in NOT_SEPARABLE}:
        raise ValueError(
            "diagonal=True needs a projection that acts on each coordinate apart, like that onto "
            f"a box, but projection is {function.__name__}; give diagonal=False or 'auto'."
        )


def _refuse(name: str, given: Any, where: str) -> None:
    """Refuse an argument without effect; a traced one may be the default."""
    if given is not None and not is_traced(given) and not (np.ndim(given) == 0 and given == 0):
        raise ValueError(f"{name} is {given!r}, but with {where} it must be left out.")


# -- rules that JAX traces ------------------------------------------------------------------------


def _transformation(
    rule: Rule,
    learning_rate: LearningRate,
    weight_decay: Number,
    projection: Projection | None,
    prox: Prox | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return the rule as a transformation, with learning rate, weight decay and unit."""
    if not callable(learning_rate):
        real_number("learning_rate", learning_rate, least=0)
        if isinstance(learning_rate, int | float):
            hint_at_rate("learning_rate", learning_rate)
    real_number("weight_decay", weight_decay, least=0)
    functions = {"project": ("projection", projection), "prox": ("prox", prox)}
    given = {field: _checked(*pair) for field, pair in functions.items() if pair[1] is not None}
    stored = _Stored(rule.with_parameters(**given))

    def bound(layout: _Layout, unit: Any) -> Rule:
        """Return the rule with the user's functions and gradient sizes in its coordinates."""
        parameters = {name: layout.on_points(function) for name, function in given.items()}
        if "prox" in parameters:
            near = parameters["prox"]
            parameters["prox"] = lambda point, step: near(point, step * (1 / unit))
        for name in SIZES & vars(rule).keys():
            size = getattr(rule, name)
            if size is not None and not _is_zero(size):
                parameters[name] = size / unit
        return rule.with_parameters(**parameters) if parameters else rule

    def init(params: Params) -> AcceleGradState:
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(params)):
            return jax.eval_shape(init, params)  # type: ignore[no-any-return]  # the state begins at the parameters' values
        layout = _Layout(params)
        # A given scale of gradients sets the unit.
        scale = getattr(rule, "gradient_scale", None)
        unit = _unit_of(jnp.asarray(0.0 if scale is None else scale, layout.dtype))
        first = stored.first(bound(layout, 1.0), layout)
        two_phase = isinstance(rule, TwoPhaseRule)
        zeros = optax.tree.zeros_like(params, dtype=layout.dtype) if two_phase else None
        return AcceleGradState(jnp.zeros([], jnp.int32), first, zeros, unit)

    def update(
        updates: Params, state: AcceleGradState, params: Params | None = None, **_: Any
    ) -> tuple[Params, AcceleGradState]:
        if params is None:
            raise ValueError("params must be given to update: the steps begin where they are.")
        layout = _Layout(params)
        rate = learning_rate(state.count) if callable(learning_rate) else learning_rate
        gradient = layout.point(updates)
        if not _is_zero(weight_decay):
            gradient = gradient + jnp.asarray(weight_decay, layout.dtype) * layout.point(params)
        unit = _chosen(
            state.unit == 0, lambda: _unit_of(_largest(gradient, layout)), lambda: state.unit
        )
        divisor = unit + (unit == 0)
        scaled = _scaled(bound(layout, divisor), jnp.asarray(rate, layout.dtype))
        gradient = gradient * (1 / divisor)
        point, steps, first_gradient = stored.advanced(scaled, layout, state, gradient)
        count = optax.safe_increment(state.count)
        return layout.change_to(point), AcceleGradState(count, steps, first_gradient, unit)

    return optax.GradientTransformationExtraArgs(init, update)


def _largest(gradient: Tree, layout: _Layout) -> Any:
    found = [jnp.max(jnp.abs(part), initial=0.0) for part in gradient.content]
    return reduce(jnp.maximum, found, jnp.zeros([], layout.dtype))


def _unit_of(size: Any) -> Any:
    """Return the power of two that brings a size into range; zero for zero and infinity."""
    ratio = size / jnp.clip(size, 1 / LARGEST_SIZE, LARGEST_SIZE)
    unit = ratio / (2 * jnp.frexp(ratio)[0])
    return jnp.where((size > 0) & jnp.isfinite(size), unit, 0.0).astype(size.dtype)


def _checked(name: str, function: Any) -> Any:
    if not callable(function):
        raise TypeError(
            f"{name} must be a function of a tree like the parameters, or None, not {function!r}; "
            f"optax.inject_hyperparams needs static_args={name!r}."
        )
    return function


def _is_zero(number: Any) -> bool:
    return isinstance(number, int | float) and number == 0


def _scaled(rule: Rule, factor: Any) -> Any:
    """Return the rule with step sizes multiplied by a factor, which may be traced."""
    if isinstance(rule, UntunedAcceleGrad):
        return SearchingAcceleGrad(**{**vars(rule), "rate": factor})
    scaled, step_size = copy(rule), rule.next_step_size  # type: ignore[attr-defined]
    vars(scaled)["next_step_size"] = lambda *given: factor * step_size(*given)
    return scaled


class SearchingAcceleGrad(UntunedAcceleGrad):
    """The same steps, arranged so that XLA on CPUs compiles one loop per array.

    With a million parameters a settled step takes 4.5 times as long without this class, and a step
    of the search 2.5 times as long without `_seen`. Learning runs only during the search for the
    radius, and first, so that the step's loops can overwrite their inputs. Weight and reach are
    computed there too: loops that compute them take 1.5 times as long.
    """

    def update(self, state: UntunedState, gradient: Tree) -> UntunedState:
        """Return the state after the gradient g_t at x_t."""
        dtype = state.radius.dtype

        def numbers(learn: bool) -> tuple[Any, Any, dict[str, Any]]:
            alpha, reach = self.acceleration(state), self.reach(state)
            found = self._searched(state, gradient, alpha, reach) if learn else state
            learnt = {name: jnp.asarray(getattr(found, name), dtype) for name in LEARNT}
            return jnp.asarray(alpha, dtype), jnp.asarray(reach, dtype), learnt

        alpha, reach, found = _chosen(
            state.averaged == 0, lambda: numbers(learn=True), lambda: numbers(learn=False)
        )
        state, squares = state._replace(**found), self.squares(state, gradient, alpha)
        z, y = self.moved(state, gradient, alpha, adaptive_step(reach, squares))
        return self.following(state, squares, z, y)

    def _searched(self, state: UntunedState, gradient: Tree, alpha: Any, reach: Any) -> Any:
        squares = self.squares(state, gradient, alpha)
        changed = not (self.project is None and self.prox is None)
        if changed:
            z, y = self.moved(state, gradient, alpha, adaptive_step(reach, squares))
            seen = self.seen(state, gradient, squares, reach, z, y)
        else:
            seen = _seen(state, gradient, squares, alpha, reach)
        return self.learnt(state, seen, alpha * reach, changed=changed)


def _seen(state: UntunedState, gradient: Tree, squares: Any, alpha: Any, reach: Any) -> Seen:
    r"""Return `UntunedAcceleGrad.seen` for steps without a set or term, in one loop per array.

    Since :math:`x_0 - z_{t+1} = x_0 - z_t + \alpha_t \eta_t g_t`, and similarly for y, all sums
    are inner products of three vectors in the metric.
    """
    x0, metric = state.anchor, squares**0.5
    vectors = [gradient, x0 - state.mirror_point, x0 - state.query_point]
    shared = not isinstance(metric, Tree)
    metrics = [jnp.ones_like(x) for x in x0.content] if shared else metric.content
    columns = zip(metrics, *(vector.content for vector in vectors), strict=True)
    sums = jnp.zeros(6, state.radius.dtype)
    for weights, *column in columns:
        # One after another, so that all devices add shared sums in the same order: XLA does not
        # know that no sum exceeds infinity.
        sums = sums + _products(jnp.where(sums[0] > jnp.inf, sums[0], weights), *column)
    size, energy, product, evidence, before, behind = sums
    if shared:
        size, energy = metric, adaptive_step(energy, squares)
        before, behind = metric * before, metric * behind
    moved = alpha * reach
    return Seen(
        size,
        adaptive_step(product, energy * before),
        evidence,
        larger(0.0, before + moved * (2 * product + moved * energy)),
        larger(0.0, behind + reach * (2 * evidence + reach * energy)),
    )


@partial(jax.jit, inline=True)
def _products(metric: Any, gradient: Any, before: Any, behind: Any) -> Any:
    """Return the sums of the metric, <g, g/H>, <g, b>, <g, c>, <b, H b> and <c, H c>."""
    terms = (
        metric,
        gradient * gradient / (metric + (metric == 0)),
        gradient * before,
        gradient * behind,
        metric * before * before,
        metric * behind * behind,
    )
    if any(jax.typeof(metric).sharding.spec):  # devices share it
        return jnp.sum(jnp.stack(terms), range(1, metric.ndim + 1))
    # One reduction of all terms is one loop; several sums would not be. It adds numbers one by
    # one, so that long sums in float32 need parts.
    terms = tuple(term.ravel() for term in terms)
    whole = terms[0].size // PART * PART
    parts = _reduced([term[:whole].reshape(-1, PART) for term in terms], 1)
    rest = _reduced([term[whole:] for term in terms], 0)
    return jnp.stack(_reduced(parts, 0)) + jnp.stack(rest)


def _reduced(terms: Sequence[Any], axis: int) -> Any:
    zeros = tuple(np.zeros((), term.dtype) for term in terms)
    return jax.lax.reduce(tuple(terms), zeros, _added, (axis,))


def _added(one: Any, other: Any) -> Any:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _chosen(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return yes() or no(), by `lax.cond` only if traced: outside `jit` it always compiles."""
    if is_traced(condition):
        return jax.lax.cond(condition, yes, no)
    return yes() if condition else no()


class _Layout:
    """The layout of the parameters; rules see a `Tree` of float32 arrays, or float64 if any is."""

    def __init__(self, params: Params) -> None:
        self.given = params
        self.structure: Any
        leaves, self.structure = jax.tree.flatten(params)
        self.params = [jnp.asarray(leaf) for leaf in leaves]
        for leaf in self.params:
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise TypeError(
                    f"params must be real floating-point arrays, but one has dtype {leaf.dtype}; "
                    "leave integers out with optax.masked, and split complex ones with "
                    "optax.contrib.split_real_and_imaginary."
                )
        self.dtype = jnp.result_type(jnp.float32, *(leaf.dtype for leaf in self.params))
        self.coarse = any(leaf.dtype.itemsize < 4 for leaf in self.params)

    def point(self, tree: Params) -> Any:
        """Return a tree like the parameters as a rule's `Tree`."""
        leaves = self.structure.flatten_up_to(tree)
        return Tree([jnp.asarray(leaf).astype(self.dtype) for leaf in leaves])

    def tree(self, point: Tree) -> Params:
        """Return a rule's `Tree` as a tree like the parameters."""
        return jax.tree.unflatten(self.structure, point.content)

    def on_points(self, function: Callable[..., Params]) -> Callable[..., Tree]:
        """Turn a function of trees like the parameters into one of a rule's points."""

        def on_points(*arguments: Any) -> Any:
            given = (self.tree(one) if isinstance(one, Tree) else one for one in arguments)
            return self.point(function(*given))

        return on_points

    def change_to(self, point: Tree) -> Params:
        """Return the update that takes the parameters to a point.

        It also corrects the rounding of earlier updates.
        """
        pairs = zip(point.content, self.params, strict=True)
        return self.tree(Tree([(x - p.astype(self.dtype)).astype(p.dtype) for x, p in pairs]))


class _Stored:
    """The stored form of a rule's states, without what the next step does not read."""

    def __init__(self, rule: Rule) -> None:
        example = rule.init(Tree([np.zeros(1)]))
        omitted = set(OMITTED)
        if isinstance(rule, DiagonalRule | UntunedAcceleGrad):
            omitted.add("step_size")  # for logs only, and a pass over the parameters
        if isinstance(rule, UniXGrad):
            omitted.add("point")
        fields = example._asdict()
        self.unread = dict.fromkeys(omitted & fields.keys())
        read = {name: field for name, field in fields.items() if name not in omitted}
        self.points = sorted(name for name in read if isinstance(read[name], Tree))
        self.numbers = sorted(name for name in read if isinstance(read[name], int | float))

    def first(self, rule: Rule, layout: _Layout) -> Any:
        """Return the state before the first step.

        Arrays share no memory, so that it can be donated together with the parameters.
        """
        leaves: list[Any] = layout.params or [np.zeros(())]  # rules take no tree without arrays
        state = rule.init(Tree([leaf.astype(layout.dtype) for leaf in leaves]))
        if not layout.params:
            state = state._replace(**dict.fromkeys(self.points, Tree([])))
        return jax.tree.map(jnp.copy, self._kept(state, layout))

    def advanced(
        self, rule: Any, layout: _Layout, state: AcceleGradState, gradient: Tree
    ) -> tuple[Tree, Any, Any]:
        """Return the next point, the rule's state and the first gradient if kept."""
        if isinstance(rule, QueryRule):
            following = rule.update(self._restored(state.steps, state.count, layout), gradient)
            return rule.query(following), self._kept(following, layout), None
        before = self._restored(state.steps, state.count // 2, layout)

        def look_ahead() -> tuple[Tree, Any, Tree]:
            ahead = rule.look_ahead(before, gradient)
            return rule.second_query(ahead), ahead, gradient

        def step() -> tuple[Tree, Any, Tree]:
            first = layout.point(state.first_gradient)
            following = rule.update(before, first, gradient)
            return rule.query(following), following, first

        def kept(point: Tree, steps: Any, first_gradient: Tree) -> tuple[list[Any], Any, Any]:
            return point.content, self._kept(steps, layout), layout.tree(first_gradient)

        point, steps, first_gradient = _chosen(
            state.count % 2 == 0, lambda: kept(*look_ahead()), lambda: kept(*step())
        )
        return Tree(point), steps, first_gradient

    def _kept(self, state: Any, layout: _Layout) -> Any:
        kept = dict(self.unread)
        kept |= {name: layout.tree(getattr(state, name)) for name in self.points}
        kept |= {name: jnp.asarray(getattr(state, name), layout.dtype) for name in self.numbers}
        if layout.coarse:
            kept["query_point"] = layout.tree(state.query_point)
        elif not layout.params:
            # `optax.tree.map_params` calls this without arrays and needs both forms to match.
            kept["query_point"] = jnp.zeros([], layout.dtype)
        return state._replace(**kept)

    def _restored(self, kept: Any, iteration: Any, layout: _Layout) -> Any:
        points = {name: layout.point(getattr(kept, name)) for name in self.points}
        points["query_point"] = layout.point(kept.query_point if layout.coarse else layout.given)
        if "noisy" in self.unread:
            points["noisy"] = True
        # A count of the arrays' type preserves their type in every formula.
        return kept._replace(iteration=iteration.astype(layout.dtype), **points)
