"""From the arguments of `minimize` to a setting: the method, its rule, and the minimiser's region.

The first row of `TABLE` whose condition holds decides which method "auto" is. A condition is a
tuple of facts, by their names in `Request`, that must all hold. docs/methods.md shows the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad import rules
from accelegrad.catalogue import (
    AUTO,
    BUNDLE,
    DUAL,
    INTERIOR,
    MEANING,
    METHODS,
    NEWTON,
    PROXIMAL,
    RADIUS,
)
from accelegrad.errors import NonFiniteError, Vector, nearest
from accelegrad.geometry.penalties import OnLeading, Penalty, as_penalty
from accelegrad.geometry.sets import Ball, Box, FeasibleSet, WholeSpace, as_feasible_set
from accelegrad.linalg import ROUNDED_UP
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.scaling import (
    ColumnScaling,
    can_scale,
    column_scaling,
    limits_intercept,
    near_start,
    unevenness,
)
from accelegrad.proofs.cuts import Region
from accelegrad.proofs.fenchel import Terms
from accelegrad.rules import Rescaled, Rule
from accelegrad.rules.base import SHORTEST, check_distance
from accelegrad.solvers.curvature import MOST_STEP_SECONDS, Costs
from accelegrad.solvers.portfolio import Portfolio
from accelegrad.solvers.row_oracle import RowRule
from accelegrad.solvers.work import likely_works

#: Up to this ratio of column sizes, methods that do not scale columns work well.
LARGEST_RATIO = 300.0
#: An interior-point step may take `MOST_STEP_SECONDS`; beyond, the smoothed loss is faster
#: (measured on eight data sets). For dense rows it may take a second if there are at most
#: `FEW_DENSE_ROWS` rows per column, and more than `MORE_LABELS` (labels) or `MORE_NUMBERS`. Samples
#: of so few rows say little, and dual ascent takes thousands of epochs; but labels of at most 2 d
#: rows are mostly separable, which it finds in some hundreds of epochs (measured on dense random
#: rows).
MORE_LABELS, MORE_NUMBERS, FEW_DENSE_ROWS = 2.0, 0.75, 10.0
COLUMNS = "columns"
#: The most that rounding may move x0 when it is projected onto its set, relative to 1 + ||x0||.
LARGEST_OFFSET = 1e-9


# -- facts ---------------------------------------------------------------------------------------


class Space(NamedTuple):
    """Start, set and penalty, in the user's or the rule's coordinates."""

    start: Vector
    feasible_set: FeasibleSet | None = None
    penalty: Penalty | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a set other than the whole space."""
        return self.feasible_set is not None and not isinstance(self.feasible_set, WholeSpace)

    def scaled(self, change: Any) -> Space:
        """Return the space in the coordinates v of x = T v."""
        return Space(
            change.invert(self.start),
            change.scaled_set(self.feasible_set, self.start.size),
            change.scaled_penalty(self.penalty),
        )


def is_given(wish: Any) -> bool:
    """Return whether an argument is neither None nor "auto"."""
    return wish is not None and not (isinstance(wish, str) and wish == AUTO)


ANYWHERE, NOTHING = Space(np.zeros(0)), MappingProxyType[str, Any]({})


class Request:
    """The arguments of `minimize`, and the facts derived from them for `TABLE`.

    `parameters` are the diameter and those of single methods, `minibatches` says whether
    `batch_size` is given, and `exact_values` whether values can be compared: they are exact, or of
    the same rows. Facts that depend on the data are computed only when a condition needs them.
    """

    def __init__(
        self,
        model: LinearModel | None = None,
        space: Space = ANYWHERE,
        method: Any = AUTO,
        parameters: Mapping[str, Any] = NOTHING,
        project_y: bool | None = None,
        scale: Any = AUTO,
        restart: Any = None,
        minibatches: bool = False,
        exact_values: bool = True,
    ) -> None:
        self.model: Any = model  # functions match earlier rows of the table than facts of models
        self.space, self.method, self.parameters = space, method, parameters
        self.project_y, self.scale, self.restart = project_y, scale, restart
        self.minibatches = minibatches
        self.exact_values = exact_values
        #: whether a method was given, as a rule object or by name
        self.asked_for = not (isinstance(method, str) and method == AUTO)
        #: whether a function with exact values is minimised, not a `LinearModel`
        self.exact_function = model is None and exact_values
        #: whether the diameter is a number
        self.diameter_given = is_given(parameters.get("diameter"))
        # whether `restart` or a parameter of single methods is given
        options_given = not parameters.keys() <= {"diameter", "bundle_size"}
        options_given |= restart is not None or project_y is not None
        #: whether nothing is given that is meant for other methods
        self.nothing_given = not (self.diameter_given or options_given)
        #: whether `scale` is "columns" or an array
        self.scale_given = is_given(scale)
        #: whether there is a penalty, or a feasible set other than the whole space
        self.constrained = space.penalty is not None or space.is_limited
        #: whether it is a `LinearModel`, and nothing is given that is meant for other methods
        self.rows_alone = self.nothing_given and not (
            model is None or minibatches or self.scale_given
        )
        reasons = {
            "there is a constraint or a penalty": self.constrained,
            "it is accelerated where the function is smooth, and safe": model is None,
            "a diameter is given": self.diameter_given,
            "batch_size asks for plain stochastic steps": minibatches,
            "it is what the other options are meant for": options_given,
            "scaled coordinates are asked for": self.scale_given,
        }
        #: what is given that methods for sums over rows do not take, for the reason; or ""
        self.given = next(filter(reasons.get, reasons), "")
        self.something_given = bool(self.given)
        #: what makes the loss suitable for Newton's steps, for the reason
        self.smoothness = "can be smoothed as far as the dual gap allows"
        if model is not None and math.isfinite(model.loss.curvature):
            self.smoothness = "is smooth"

    @cached_property
    def terms(self) -> Terms | None:
        """Penalty and bounds of a `LinearModel`; None for other penalties."""
        return Terms.of(self.model, self.space.penalty, self.space.feasible_set)

    @cached_property
    def separate_terms(self) -> bool:
        """Whether each weight of a `LinearModel` has its own term or limits, which bound it."""
        model, terms = self.model, self.terms
        if terms is None or not model.has_columns:
            return False
        return terms.hold_each_weight or bool(model.dual_with(terms).has_only_signs)

    @property
    def no_dual_bound(self) -> bool:
        """Whether no lower bound from the model's dual becomes tight."""
        return not self.model.dual.is_there

    @cached_property
    def cheap_curvature(self) -> bool:
        """Whether second derivatives are cheap enough, relative to gradients, to be useful."""
        return Costs.of(self.model).least > 0

    @property
    def few_rows_with_one_kink(self) -> bool:
        """Whether losses have one kink, and steps with the curvature of all rows are cheap."""
        model = self.model
        if not model.loss.has_one_kink or not model.in_memory or self.space.is_limited:
            return False
        if not (self.separate_terms if self.constrained else model.l2 > 0.0):
            return False  # nothing bounds the weights
        n, d = model.n_samples, model.n_parameters
        # With n < d, rounding mattered too early in 9 of 60 fits with an l1 term (columns of 1e-4
        # to 1e4).
        if self.constrained and n < d:
            return False
        more = MORE_LABELS if model.loss.classification else MORE_NUMBERS
        few = model.storage.dense and more * d < n <= FEW_DENSE_ROWS * d
        seconds = Costs.of(model).all_curvature
        return bool(seconds <= (1.0 if few else MOST_STEP_SECONDS))

    @property
    def uneven_columns(self) -> bool:
        """Whether column sizes differ by more than `LARGEST_RATIO`, and may be scaled."""
        needed = self.scale is not None and not self.cheap_curvature
        if not needed or (self.within_reach and self.solvers[0][1] in (PROXIMAL, INTERIOR)):
            return False
        return self.unevenness > LARGEST_RATIO

    @property
    def within_reach(self) -> bool:
        """Whether there is an l2 term, and all rows can be read at any time, column by column."""
        return bool(self.model.l2 > 0.0 and self.model.has_columns)

    @cached_property
    def solvers(self) -> list[tuple[float, str]]:
        """The solvers for rows within reach with their likely work, the least first."""
        works = zip(likely_works(self.model), (PROXIMAL, NEWTON, DUAL, INTERIOR), strict=True)
        return sorted(works)

    @cached_property
    def unevenness(self) -> float:
        """The ratio of the largest column to the smallest, for the reason."""
        return unevenness(self.model)


# -- the table -----------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of the table: the method if all facts of the condition hold, and the reason."""

    condition: tuple[str, ...]
    method: str
    reason: str  # with facts of the problem in braces


#: Stands for the method that was given, and for the solver for rows with the least likely work.
GIVEN, CHEAPEST = "given", "cheapest"
TABLE = [
    Row(("asked_for",), GIVEN, "it was asked for"),
    Row(
        ("exact_function", "nothing_given"),
        BUNDLE,
        "values are exact, so past cuts make a model of the function",
    ),
    Row(
        ("constrained", "diameter_given"),
        "unixgrad",
        "there is a constraint or a penalty, and a diameter is given",
    ),
    Row(
        ("rows_alone", "constrained", "few_rows_with_one_kink"),
        INTERIOR,
        "the {facts.model.loss.name} loss has one kink, and its {facts.model.n_samples} rows are "
        "few",
    ),
    Row(
        ("rows_alone", "constrained", "separate_terms"),
        PROXIMAL,
        "the {facts.model.loss.name} loss {facts.smoothness}, and each weight has its own term or "
        "limits",
    ),
    Row(("something_given",), "accelegrad", "{facts.given}"),
    Row(("no_dual_bound",), "accelegrad", "without an l2 term the dual gap need not get tight"),
    Row(
        ("uneven_columns",),
        "accelegrad",
        "columns differ in size by a factor of {facts.unevenness:.2g}, so that coordinates are "
        "scaled",
    ),
    Row(
        ("within_reach",),
        CHEAPEST,
        "for {facts.model.n_samples} rows with {facts.model.storage.entries} entries, this l2 term "
        "and the {facts.model.loss.name} loss it is likely to need least work",
    ),
    Row(
        ("cheap_curvature",),
        NEWTON,
        "the {facts.model.loss.name} loss {facts.smoothness}; the curvature in "
        "{facts.model.n_parameters} coordinates costs little beside gradients",
    ),
    Row(
        (),
        NEWTON,
        "the {facts.model.loss.name} loss {facts.smoothness}; steps on a sample of "
        "{facts.model.n_samples} rows get close quickly; full gradients then refine the curvature",
    ),
]


class Second(NamedTuple):
    """The solver that joins after some work."""

    name: str
    patience: float  # the work that either is likely to need


class Choice(NamedTuple):
    """The name of a method, and why it was chosen."""

    name: str
    reason: str
    of_rows: bool = False  # whether it works only on the rows of a LinearModel
    second: Second | None = None  # joins if this one gains little


def choose(request: Request, *, tried: str = "") -> Choice:
    """Return the requested or the best method, with the reason; `tried` is excluded."""
    for row in TABLE:
        if row.method != tried and all(map(partial(getattr, request), row.condition)):
            break
    name: Any = request.method if row.method == GIVEN else row.method
    second = None
    if name == CHEAPEST:
        (_, name), (patience, other), *_ = [known for known in request.solvers if known[1] != tried]
        few_steps = name == PROXIMAL and math.isfinite(request.model.loss.curvature)
        if patience < math.inf and request.model.in_memory and not few_steps:
            second = Second(other, patience)
    if isinstance(name, Rule):
        kind = type(name)
        known = [known for known, entry in METHODS.items() if entry.rule is kind]
        of_rows = issubclass(kind, RowRule)
        return Choice(known[0] if known and of_rows else kind.__name__, row.reason, of_rows)
    if not isinstance(name, str):
        raise TypeError(f"method must be a name or a rule object, not {name!r}.")
    if name not in METHODS:
        allowed = nearest(name, [AUTO, *METHODS])
        raise ValueError(f"method is {name!r}: {allowed} Without it, one that fits is chosen.")
    of_rows = issubclass(METHODS[name].rule, RowRule)
    return Choice(name, row.reason.format(facts=request), of_rows, second)


# -- from a request to a setting -------------------------------------------------------------------


class Setting(NamedTuple):
    """The rule bound to its set, the start, and the region taken to contain a minimiser."""

    rule: Rule
    start: Vector
    region: Region | None
    choice: Choice


def resolve(request: Request) -> Setting:
    """Resolve diameter and scaling, build the rule and bind it to set, penalty and probe."""
    model, space, choice = request.model, request.space, choose(request)
    change, proven = None, math.inf
    if model is not None or request.scale_given:
        change = _change(request, choice)
    if model is not None:
        # With noise a distant start is expensive. A given diameter is that of a ball around it.
        settled = choice.of_rows or request.diameter_given or request.constrained
        if request.minibatches and not settled:
            space = space._replace(start=near_start(model, space.start))
        if not choice.of_rows:  # else the dual gap suffices; this costs two passes
            proven = _proven_radius(space, model)
    inner = space if change is None else space.scaled(change)
    rule, diameter = built_rule(request.method, choice.name, request.parameters)
    if choice.second is not None:
        other, patience = choice.second
        first, second = METHODS[choice.name].rule(), METHODS[other].rule()
        assert isinstance(first, RowRule)
        assert isinstance(second, RowRule)
        rule = Portfolio(first, second, patience)
    method = METHODS.get(choice.name)
    if method is not None and type(rule) is method.automatic and "largest_radius" in rule.can:
        # A start that is a minimiser up to rounding says nothing about the step size.
        bounds = [proven if change is None else math.inf]
        if inner.feasible_set is not None:
            bounds.append(inner.feasible_set.diameter_for(inner.start.size))
        bound = min(bound if bound >= SHORTEST else math.inf for bound in bounds)
        if bound < math.inf:
            rule = rule.with_parameters(largest_radius=bound)
    rule = bound_rule(rule, inner, diameter, request.project_y, values=request.exact_values)
    if change is not None:
        rule = Rescaled(rule, change)
    if model is None and choice.of_rows:
        raise ValueError(f"method {choice.name!r} needs a LinearModel: a sum over rows.")
    if model is None and request.minibatches:
        raise ValueError("batch_size needs a LinearModel; for noisy gradients give exact=False.")
    region = _region(space, diameter, proven, rule, change, model)
    return Setting(rule, space.start, region, choice)


def stream_rule(space: Space, diameter: float | str, change: Any) -> Rule:
    """Return the rule for samples that arrive in chunks: AcceleGrad, which tolerates noise."""
    space = space if change is None else space.scaled(change)
    rule, number = built_rule(AUTO, "accelegrad", {"diameter": diameter})
    rule = bound_rule(rule, space, number)
    return rule if change is None else Rescaled(rule, change)


# -- the rule -----------------------------------------------------------------------------------


def built_rule(method: Any, name: str, parameters: Mapping[str, Any]) -> tuple[Rule, float | None]:
    """Return the rule, not bound yet, and the diameter, None if it is automatic.

    `method` is a rule object, or else `name` says which method's rule to build. A method without a
    diameter gets its variant that finds one, if there is one.
    """
    diameter: Any = parameters.get("diameter")
    if isinstance(diameter, str):
        if diameter != AUTO:
            raise ValueError(f"diameter must be a positive number or 'auto', not {diameter!r}.")
        diameter = None
    widths = name == "diagonal" and np.ndim(diameter) == 1
    if diameter is not None and not widths:
        diameter = check_distance("diameter", diameter)
    size = float(np.linalg.norm(diameter)) if widths else diameter  # of widths, that of the box
    if isinstance(method, Rule):
        held = getattr(method, "diameter", None)
        for parameter, value in parameters.items():
            if is_given(value) and (parameter != "diameter" or held is not None):
                raise ValueError(
                    f"{parameter} belongs to the rule object {method!r}; do not give it again."
                )
        return method, size if held is None else float(np.linalg.norm(held))
    entry = METHODS[name]
    rule, needs, takes = entry.rule, entry.needs, entry.takes
    if diameter is None and entry.automatic is not None:
        rule, needs, takes = entry.automatic, (), RADIUS
    given = {}
    for parameter, value in {**parameters, "diameter": diameter}.items():
        if value is None:
            continue
        if parameter in needs or parameter in takes:
            given[parameter] = value
        elif parameter in entry.takes:
            raise ValueError(
                f"{parameter} is not a parameter of method {name!r} with diameter='auto'; it goes "
                "with a diameter that is a number."
            )
        elif parameter != "diameter":  # any method accepts one, which gives the certificate
            raise ValueError(f"{parameter} is not a parameter of method {name!r}.")
    for parameter in needs:
        if parameter not in given:
            raise ValueError(f"{parameter} is needed by method {name!r}: {MEANING[parameter]}.")
    return rule(**given), size


def bound_rule(
    rule: Rule,
    space: Space,
    diameter: float | None,
    project_y: bool | None = None,
    *,
    values: bool = True,
) -> Rule:
    """Return the rule with its projection, prox and probe.

    Without a set, that is K of the paper's unconstrained setting: the ball with this diameter, or a
    box for the diagonal rule.
    """
    start, chosen, penalty = space
    given: Any = rule
    bound: dict[str, Any] = {}
    if "terms" in rule.can:
        return rule
    if penalty is not None:
        _need(rule, "prox", "penalty")
        bound["prox"] = partial(_prox, penalty)
        if "term" in rule.can:
            bound["term"] = penalty.value
    if "probe" in rule.can and given.probe is None:
        bound["probe"] = values
    if chosen is not None and space.is_limited:
        _need(rule, "project", "feasible_set")
        diagonal = (rules.DiagonalAcceleGrad, rules.DistanceFreeDiagonalAcceleGrad)
        if isinstance(rule, diagonal) and not isinstance(chosen, Box):
            raise ValueError(
                f"feasible_set {chosen!r} cannot be used with method 'diagonal': with one step "
                "size per coordinate, only a Box or NonNegative can."
            )
        bound["project"] = chosen.project
        if "cuts" in rule.can:
            bound["rows"] = chosen.rows_for(start.size)
    elif (
        chosen is None
        and diameter is not None
        and penalty is None
        and "project" in rule.can
        and given.project is None
        and "probe" not in rule.can
    ):
        if isinstance(rule, rules.DiagonalAcceleGrad):
            rule.init(start)  # refuses widths of another length
            half = np.broadcast_to(rule.diameter, start.shape) / 2
            bound["project"] = Box(start - half, start + half).project
        else:
            bound["project"] = Ball(start, diameter / 2).project
    if project_y is not None:
        if "project_y" not in rule.can:
            raise ValueError(
                "project_y is not a parameter of this method; only one point is projected."
            )
        bound["project_y"] = bool(project_y)
    elif "project_y" in rule.can and given.project is None:
        bound["project_y"] = space.is_limited
    return rule.with_parameters(**bound) if bound else rule


def _prox(penalty: Penalty, x: Vector, step: float) -> Vector:
    """Return the proximal map; a step that has overflowed ends the run."""
    if not math.isfinite(step):
        raise NonFiniteError(f"the step is {step}")
    return penalty.prox(x, step)


def _need(rule: Rule, ability: str, wish: str) -> None:
    """Refuse a request that the rule cannot meet, or that is already set."""
    if ability not in rule.can:
        able = ", ".join(
            repr(name)
            for name, method in METHODS.items()
            if ability in method.rule.can | (method.automatic or method.rule).can
        )
        raise ValueError(
            f"{wish} cannot be used with {rule.title}, which has no `{ability}`. "
            f"Methods that can: {able}."
        )
    if getattr(rule, ability) is not None:
        raise ValueError(f"{wish} is given, but the rule object has a `{ability}` of its own.")


# -- the space -----------------------------------------------------------------------------------


def checked_space(start: Vector, given: Any, penalty: Any, model: LinearModel | None) -> Space:
    """Return start, set and penalty as objects, or say why they are incompatible."""
    space = Space(start)
    if given is not None:
        chosen = as_feasible_set(given)
        chosen.check_dimension(start.size)
        space = Space(chosen.project(start), chosen)
        distance = float(np.linalg.norm(space.start - start))
        if not distance <= LARGEST_OFFSET * (1 + float(np.linalg.norm(start))):
            raise ValueError(
                f"x0 must lie in feasible_set {chosen!r}, but it is {distance:.3g} away from it. "
                "feasible_set.project(x0) is the nearest point that does."
            )
    if penalty is None:
        return space
    term = as_penalty(penalty)
    if model is not None and model.fit_intercept:
        term = OnLeading(term, model.n_features, model.n_parameters)
    term.check_dimension(start.size)
    if space.is_limited and not (term.separable and isinstance(space.feasible_set, Box)):
        raise ValueError(
            f"penalty {term!r} and feasible_set {space.feasible_set!r} cannot be used together: "
            "only a separable penalty (l1, elastic net) and a box have a common proximal map."
        )
    return space._replace(penalty=term)


def _change(request: Request, choice: Choice) -> ColumnScaling | None:
    """Return scaled coordinates if they are asked for, or if no argument refers to the others."""
    scale, model, noisy = request.scale, request.model, request.minibatches
    _, chosen, penalty = request.space
    if not request.scale_given:
        settled = request.asked_for or request.diameter_given or request.constrained
        if scale is None or choice.of_rows or settled:
            return None
        if noisy and sp.issparse(model.X):
            return None  # in scaled coordinates a step would touch all columns, not only nonzeros
        return column_scaling(model, noisy=noisy)
    if choice.of_rows:
        raise ValueError(f"scale cannot be used with method {choice.name!r}.")
    if model is None:
        raise ValueError("scale needs a LinearModel, whose columns it scales.")
    if not can_scale(penalty, chosen):
        what = "penalty" if not can_scale(penalty, None) else "feasible_set"
        given = penalty if what == "penalty" else chosen
        raise ValueError(
            f"scale and {what} {given!r} cannot be used together: only an l1 norm and a box keep "
            "their form in scaled coordinates."
        )
    if not isinstance(scale, str):
        change = ColumnScaling(scale)
        if change.scale.size != model.n_features:
            raise ValueError(
                f"scale must have one entry per column, {model.n_features}, but it has "
                f"{change.scale.size}."
            )
        return change
    if scale != COLUMNS:
        raise ValueError(f"scale is {scale!r}: {nearest(scale, [AUTO, COLUMNS])}")
    # A constrained intercept must not change, so the columns are not centred.
    return column_scaling(model, center=not limits_intercept(chosen), noisy=noisy)


# -- the region of a minimiser -------------------------------------------------------------------


def _region(
    given: Space,
    diameter: float | None,
    proven: float,
    rule: Rule,
    change: ColumnScaling | None,
    model: LinearModel | None,
) -> Region | None:
    """Return where a minimiser is known, given or guessed to be; None if nothing is known."""
    start, chosen, penalty = given
    space: FeasibleSet = WholeSpace()
    if chosen is not None:
        space, bound = chosen, chosen.diameter_for(start.size)
        if math.isfinite(bound):
            return Region(space, start, bound, assumed=False, penalty=penalty)
    if diameter is not None:
        return Region(space, start, diameter / 2, assumed=True, penalty=penalty)
    if math.isfinite(proven):
        return Region(space, start, proven, assumed=False, penalty=penalty)
    if "radius" not in rule.can:
        return None
    growing = partial(Region, space, start, 0.0, assumed=True, growing=True, penalty=penalty)
    if change is None:
        return growing()
    assert model is not None
    stretch = _stretch(change, model)
    if penalty is not None:  # errors of its slopes do not depend on the columns
        stretch = max(stretch, ROUNDED_UP * float(change.scale.max()))
    return growing(change=change, stretch=stretch)


def _stretch(change: ColumnScaling, model: LinearModel) -> float:
    """Return by what factor a change of coordinates can increase the error of a gradient.

    The error of an entry is proportional to the norm of its column.
    """
    columns = model.rounding.columns
    scaled = change.scale * (columns + np.abs(change.shift))
    intercept = float(model.fit_intercept)
    size = math.hypot(float(np.linalg.norm(columns)), intercept)
    longest = math.hypot(float(np.linalg.norm(scaled)), intercept)
    # The factor far exceeds the rounding error.
    return 1.01 * longest / size if size > 0.0 else 1.0


def _proven_radius(space: Space, model: LinearModel) -> float:
    """Return the largest distance from the start to a model's minimiser, inf if unknown.

    The minimum is at most the value at the feasible start, and at zero if that is feasible. Losses
    are nonnegative, so l2 term and penalty are at most that large.
    """
    start, chosen, penalty = space
    zero = np.zeros_like(start)
    points = [start]
    if chosen is None or chosen.contains(zero):
        points.append(zero)
    if penalty is None:
        if len(points) == 2:
            return model.distance_bound(start)
        if model.l2 == 0 or model.fit_intercept:
            return math.inf
        return float(model.dual.distance_by_gap(start))
    value = min(model.value(point) + penalty.value(point) for point in points)
    value += model.rounding_at(start, value).value
    radius = penalty.level_radius(value)
    if model.l2 > 0 and not model.fit_intercept and penalty.nonnegative:
        radius = min(radius, math.sqrt(2 * value / model.l2))
    return (radius + float(np.linalg.norm(start))) * ROUNDED_UP
